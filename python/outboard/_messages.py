"""Messages between two ranks of a group.

Several messages of a rank may be in progress, and they end in any order: a receive that waits for
its sender delays neither other messages nor the group's collectives. They have a connection and
memory of their own, in which each message in progress has its own place.
"""

import bisect
import collections
import threading
import time

import torch
from torch.futures import Future

from outboard import _background
from outboard._ranks import Connection, Error, Memory

_ALIGNMENT = 64

# A message in progress: the reply to its request sets the future. tensor is the one to send or, with
# receives, to receive; region is its place in the memory, one of regions.
_Message = collections.namedtuple("_Message", "future view tensor receives region regions")


def elements(view, at, tensor):
    """Returns the elements at a place of a memory as a tensor like the given one."""
    size = tensor.numel() * tensor.element_size()
    return view[at : at + size].view(tensor.dtype).view(tensor.shape)


class Messages:
    """The messages of a rank in a group that it has joined. completed is called when one has ended,
    before its future is set, with the time since which messages have been in progress if none is
    left, else None."""

    def __init__(self, path, group, rank, size, completed):
        self._connection, self._memory, self._completed = Connection(path), Memory(), completed
        self._connection.request("join", group=group, rank=rank, size=size, messages=True)
        # Held while a request is prepared and sent: the order of requests is that of the calls, and
        # new memory arrives before the first request that uses it.
        self._sending = threading.Lock()
        self._state = threading.Lock()
        self._pending = {}  # by the number of the request
        self._busy_since = 0.0  # if there are any
        self._regions = []  # of self._memory that are in use: (first byte, end), in order
        self._error = None  # the connection has ended
        _background.start(self._receive_replies)

    def send(self, tensor, peer, tag, site):
        """Begins to send a tensor, whose elements it has copied when it returns. Returns a future."""
        return self._start("send", tensor.detach(), peer, tag, site)

    def receive(self, tensor, peer, tag, site):
        """Begins to receive a tensor. Returns a future."""
        return self._start("receive", tensor.detach(), peer, tag, site)

    def end(self):
        """Ends the connection, and the messages in progress with an error."""
        self._connection.shutdown()

    def leave(self):
        """Does what end does when no other thread uses the connection, and releases the memory."""
        self.end()
        self._memory.close_file()

    def _start(self, kind, tensor, peer, tag, site):
        size = tensor.numel() * tensor.element_size()
        future = Future()
        with self._sending:
            number = self._connection.next_number()
            with self._state:
                if self._error is not None:
                    raise self._error
                region, is_new = self._reserve(size)
                view = self._view[region[0] : region[0] + size]
                if not self._pending:
                    self._busy_since = time.perf_counter()
                self._pending[number] = _Message(future, view, tensor, kind == "receive", region, self._regions)
            if kind == "send":
                elements(view, 0, tensor).copy_(tensor)
            file = self._memory.fd if is_new else None
            try:
                self._connection.send(kind, file, number, offset=region[0], peer=peer, tag=tag, bytes=size, site=site)
            except OSError:
                pass  # The connection has ended: the thread that receives replies ends all messages.
        return future

    def _reserve(self, size):
        """Returns a free region of the memory, and whether the memory is new. self._state is held."""
        size = max(_ALIGNMENT, (size + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT)
        at = 0
        for first, end in self._regions:
            if at + size <= first:
                break
            at = end
        is_new = self._memory.reserve(at + size)
        if is_new:
            # Messages in progress keep their places in the previous memory.
            self._view, self._regions, at = torch.frombuffer(self._memory.map, dtype=torch.uint8), [], 0
        region = (at, at + size)
        bisect.insort(self._regions, region)
        return region, is_new

    def _receive_replies(self):
        while True:
            try:
                reply = self._connection.receive_any()
            except (Error, OSError) as e:
                self._fail(e)
                return
            with self._state:
                message = self._pending.pop(reply.get("seq"), None)
                since = None if self._pending else self._busy_since
            if message is not None:
                self._finish(message, reply.get("error"), since)

    def _finish(self, message, error, since):
        try:
            if error:
                raise Error(error)
            if message.receives:
                message.tensor.copy_(elements(message.view, 0, message.tensor))
            finish, result = message.future.set_result, [message.tensor]
        except BaseException as e:  # wait() raises it in the program.
            finish, result = message.future.set_exception, e
        with self._state:
            message.regions.remove(message.region)
        self._completed(since)
        finish(result)

    def _fail(self, error):
        with self._state:
            ended = error if isinstance(error, Error) else Error(f"the connection to outboard train has ended: {error}")
            self._error = ended.with_traceback(None)  # Its frames refer to this object.
            pending, self._pending = list(self._pending.values()), {}
        for message in pending:
            message.future.set_exception(self._error)
