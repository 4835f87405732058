"""The store of torch.distributed, closed to other machines.

The store of rank 0 listens on all addresses of its machine, and asks for no credential. The nodes
relay the connections of other nodes' ranks, so it is needed from the loopback only.
"""

import os
import socket
import sys

import torch.distributed  # has the module as a function of the same name

rendezvous = sys.modules["torch.distributed.rendezvous"]

_servers = []  # the stores that this process serves, as long as it lives


def listeners(port):
    """Returns the sockets of this process that listen on a port, duplicated."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            listener = socket.socket(fileno=os.dup(int(fd)))
        except OSError:  # it is no socket, or was closed
            continue
        internet = listener.family in (socket.AF_INET, socket.AF_INET6)
        if internet and listener.getsockname()[1] == port and listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            found.append(listener)
        else:
            listener.close()
    return found


def close_to_others(port):
    """Binds the sockets that listen on a port to the loopback device. Processes without privileges may
    do that from Linux 5.7 on."""
    for listener in listeners(port):
        with listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")


def protect_by_environment():
    """Closes the store that this process will serve, if it is a rank of `outboard train`."""
    if os.environ.get("OUTBOARD_RANKS_SOCKET"):
        rendezvous.TCPStore = _create


# The names of TCPStore's first parameters, which PyTorch 1.13 passes by position and 2.6 by name.
_PARAMETERS = ("host_name", "port", "world_size", "is_master")


def _create(*arguments, _original=rendezvous.TCPStore, **options):
    """Makes a TCPStore as PyTorch's rendezvous does. That of rank 0 waits for the other ranks, so
    another one serves them, which shares the socket with it ("multi-tenant")."""
    values = {**dict(zip(_PARAMETERS, arguments)), **options}
    if values.get("is_master") and values.get("multi_tenant") and values.get("host_name") == os.environ.get("MASTER_ADDR"):
        try:
            server = _original(*arguments, **{**options, "wait_for_workers": False})
            close_to_others(server.port)
            _servers.append(server)
        except (OSError, RuntimeError, TypeError) as cause:
            print(f"outboard: the store of torch.distributed is open to other machines: {cause}", file=sys.stderr)
    return _original(*arguments, **options)
