"""The store of torch.distributed, closed to other machines.

The store of rank 0 listens on all addresses of its machine, and asks for no credential. The nodes
relay the connections of other nodes' ranks, so it is needed from the loopback only.
"""

import collections
import os
import socket
import sys

import torch.distributed  # has the module as a function of the same name

rendezvous = sys.modules["torch.distributed.rendezvous"]

_servers = {}  # the stores that this process serves, as long as it lives, by their ports
_rounds = collections.Counter()  # of a store, by its port: how often this process has met the others there


def listeners(port):
    """Returns the sockets of this process that listen on a port, duplicated."""
    found = []
    for fd in map(int, os.listdir("/proc/self/fd")):
        if any(listener.fileno() == fd for listener in found):
            continue  # The number was that of the folder, which was open while it was read.
        try:
            copy = os.dup(fd)
        except OSError:  # it was closed
            continue
        try:
            listener = socket.socket(fileno=copy)
        except OSError:  # it is no socket
            os.close(copy)
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
    if not values.get("multi_tenant") or values.get("host_name") != os.environ.get("MASTER_ADDR"):
        return _original(*arguments, **options)
    if values.get("is_master") and values["port"] not in _servers:
        try:
            server = _original(*arguments, **{**options, "wait_for_workers": False})
            close_to_others(server.port)
            _servers[values["port"]] = server
        except (OSError, RuntimeError, TypeError) as cause:
            print(f"outboard: the store of torch.distributed is open to other machines: {cause}", file=sys.stderr)
    return _separate(_original(*arguments, **options), values["port"])


def _separate(store, port):
    """Returns the part of a store in which a program that has called destroy_process_group finds no keys
    of its groups before: PyTorch gives the next groups the same keys, and the store remains."""
    _rounds[port] += 1
    if _rounds[port] == 1:
        return store
    return torch.distributed.PrefixStore(f"outboard-{_rounds[port]}", store)
