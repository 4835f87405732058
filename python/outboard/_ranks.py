"""A rank's end of the protocol with `outboard train` (internal/train/ranks).

The protocol is that of docs/design/0008-local-protocol.md: one packet is one message, a JSON
object; requests have a number that their reply repeats; file descriptors travel with the packet.
"""

import array
import fcntl
import json
import mmap
import os
import socket
import threading

MAX_PACKET = 160 << 10

F_ADD_SEALS, F_SEAL_SHRINK, F_SEAL_GROW = 1033, 2, 4


class Error(RuntimeError):
    """A request that failed, with the reason that `outboard train` gives."""


class Memory:
    """Memory that is shared with `outboard train`. To grow, it is replaced by larger memory."""

    def __init__(self):
        self.size = 0
        self.map = None
        self.fd = -1

    def reserve(self, size):
        """Provides at least size bytes. Returns whether the memory is new and has to be shared."""
        if size <= self.size:
            return False
        size = max(1 << 20, 1 << (size - 1).bit_length())
        fd = os.memfd_create("outboard-rank", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)
        if self.fd >= 0:
            os.close(self.fd)
        self.fd, self.size, self.map = fd, size, mmap.mmap(fd, size)
        return True

    def close(self):
        """Releases the memory, to which no reference may be left."""
        self.map.close()
        self.close_file()

    def close_file(self):
        """Closes the file by which the memory is shared. References to the memory remain valid."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Connection:
    """One connection to `outboard train`. Its users make sure that it has one request at a time, or
    that one thread receives the replies to all requests, by receive_any."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(path)
        self.lock = threading.Lock()
        self.number = 0

    def limit_waits(self, seconds):
        """Sets how long a request waits for a reply: then it fails, and the connection has ended."""
        self.socket.settimeout(seconds)

    def next_number(self):
        """Returns the number of a new request."""
        with self.lock:
            self.number += 1
            return self.number

    def send(self, kind, file=None, seq=None, **members):
        """Sends a request and returns its number, which is seq if next_number has returned that."""
        seq = seq or self.next_number()
        packet = json.dumps({"type": kind, "seq": seq, **members}).encode()
        rights = []
        if file is not None:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file]))]
        self.socket.sendmsg([packet], rights)
        return seq

    def receive(self, number):
        """Waits for the reply to a request and returns it. Raises Error if it reports a failure."""
        while True:
            reply = self.receive_any()
            if reply.get("seq") == number:
                break
        if reply.get("error"):
            raise Error(reply["error"])
        return reply

    def receive_any(self):
        """Waits for the reply to any request and returns it."""
        try:
            data = self.socket.recv(MAX_PACKET)
        except socket.timeout:
            self.shutdown()
            raise Error(f"the call has not ended within {self.socket.gettimeout():g} s, the timeout of its group") from None
        if not data:
            raise Error("outboard train has ended")
        return json.loads(data)

    def request(self, kind, file=None, **members):
        """Makes a request and returns its reply. Raises Error if the reply reports a failure."""
        return self.receive(self.send(kind, file, **members))

    def leave(self):
        """Ends the connection of a group's member, which no other thread uses. Other ranks are told that
        its process has left the group and not failed."""
        try:
            self.send("leave")
        except OSError:
            pass  # It has ended already.
        self.shutdown()

    def close(self):
        """Ends the connection, which no other thread uses."""
        self.socket.close()

    def shutdown(self):
        """Ends the connection: a waiting request fails."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # It has ended already.


def send_file(kind, content, **members):
    """Makes a request with a file that has a content, bytes."""
    with os.fdopen(os.memfd_create(f"outboard-{kind}", os.MFD_CLOEXEC), "w+b") as f:
        f.write(content)
        f.flush()
        connection = Connection(os.environ["OUTBOARD_RANKS_SOCKET"])
        try:
            connection.request(kind, file=f.fileno(), **members)
        finally:
            connection.close()


def ask(subject, measured):
    """Returns the node's decision about a subject, given the measurements of this rank."""
    text = json.dumps(measured).encode()
    memory = Memory()
    memory.reserve(2 * len(text) + (64 << 10))  # The answer replaces the question.
    memory.map[: len(text)] = text
    connection = Connection(os.environ["OUTBOARD_RANKS_SOCKET"])
    try:
        reply = connection.request("decide", file=memory.fd, subject=subject, rank=int(os.environ.get("RANK", "0")), bytes=len(text))
        return json.loads(memory.map[: reply["bytes"]])
    finally:
        connection.close()
        memory.close()
