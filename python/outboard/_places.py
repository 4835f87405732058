"""Places for the content of tensors outside of PyTorch's memory: on the host and on a disk."""

import bisect
import mmap
import os
import tempfile
import time

import torch

from outboard._ranks import Error

NAMES = ["device", "host", "disk"]  # of the tiers

PROBE = 1 << 20  # the bytes of the first measured transfer


class Extents:
    """The free extents of a tier, allocated first-fit; adjacent free extents are merged."""

    def __init__(self, size):
        self.free = [(0, size)] if size else []  # (first, bytes), in order

    def allocate(self, size):
        """Returns the first byte of an extent of that size, None if none is free."""
        size = _rounded(size)
        for k, (first, room) in enumerate(self.free):
            if room >= size:
                self.free[k : k + 1] = [(first + size, room - size)] if room > size else []
                return first
        return None

    def release(self, first, size):
        size = _rounded(size)
        k = bisect.bisect(self.free, (first,))
        if k < len(self.free) and self.free[k][0] == first + size:
            size += self.free.pop(k)[1]
        if k and sum(self.free[k - 1]) == first:
            k -= 1
            first, room = self.free.pop(k)
            size += room
        self.free.insert(k, (first, size))


def _rounded(size):
    return -(-size // 4096) * 4096


class Host:
    """Shared memory of the host; its pages exist from their first use on."""

    def __init__(self, limit):
        self.limit, self.extents = limit, Extents(limit)
        fd = os.memfd_create("outboard-offload", os.MFD_CLOEXEC)
        os.ftruncate(fd, max(limit, 1))
        self.bytes = torch.frombuffer(mmap.mmap(fd, max(limit, 1)), dtype=torch.uint8)
        os.close(fd)  # The mapping holds the memory.

    def write(self, at, content):
        self.bytes[at : at + content.numel()].copy_(content)

    def read(self, at, content):
        content.copy_(self.bytes[at : at + content.numel()])


class Disk:
    """A file without a name in the folder for temporary files."""

    def __init__(self, limit):
        self.limit, self.extents = limit, Extents(limit)
        self.file = tempfile.TemporaryFile(buffering=0)

    def write(self, at, content):
        view = memoryview(content.numpy())
        while len(view):
            n = os.pwrite(self.file.fileno(), view, at)
            view, at = view[n:], at + n

    def read(self, at, content):
        view = memoryview(content.numpy())
        while len(view):
            n = os.preadv(self.file.fileno(), [view], at)
            if not n:
                raise Error(f"the file of saved tensors ends at byte {at}")
            view, at = view[n:], at + n


def timed(transfer, at, content):
    """Returns the error of a transfer, None for none, and its seconds."""
    began, error = time.perf_counter(), None
    try:
        transfer(at, content)
    except Exception as e:
        error = e
    return error, time.perf_counter() - began


def probe(tiers):
    """Measures the bytes per second to and from each tier; tiers has None for the device."""
    rates = {"write": [0.0] * len(tiers), "read": [0.0] * len(tiers)}
    content = torch.zeros(PROBE, dtype=torch.uint8)
    for number, tier in enumerate(tiers):
        size = 0 if tier is None else min(tier.limit, PROBE)
        for direction in ("write", "read") if size else ():
            error, seconds = timed(getattr(tier, direction), 0, content[:size])
            if error is not None:
                raise Error(f"the {NAMES[number]} can't hold saved tensors: {error}")
            rates[direction][number] = size / max(seconds, 1e-9)
    return rates
