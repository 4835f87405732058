"""Trains with saved tensors on a disk whose transfers fail: each wait must end with an error.

The arguments are what fails: read, write, memory (for a tensor that is read back) or write-bytes (an
error that no transfer reports). Each has a process of its own, a copy of one that has imported PyTorch.
"""

import errno
import os
import sys

import torch

from outboard import offload


def fail(error):
    def raising(*args):
        raise error

    return raising


def broken_file():
    return offload.Error("the file of saved tensors ends at byte 0")


def train(kind):
    offload.start(offload.Limits(device=100_000, host=0, disk=8_000_000))
    moving = offload.active
    disk = moving.tiers[offload.DISK]
    if kind == "write":
        disk.write = fail(OSError(errno.ENOSPC, "No space left on device"))
    elif kind == "read":
        disk.read = fail(broken_file())
    elif kind == "memory":
        offload.Slot.make_room = fail(RuntimeError("can't allocate memory"))
    elif kind == "write-bytes":
        offload.bytes_of = fail(RuntimeError("no bytes of this tensor"))

    model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh()) for _ in range(20)])
    for attempt in range(2):  # The second attempt meets the failed transfers of the first one.
        try:
            model(torch.randn(128, 64, requires_grad=True)).sum().backward()
            print(kind, "no error", flush=True)
        except RuntimeError as e:
            print(kind, "error", e, flush=True)


for kind in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        train(kind)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit(f"{kind}: the process failed")
