"""Saved tensors that outboard.offload moves between tiers of memory."""

import collections
import threading

import torch

from outboard._places import NAMES
from outboard._ranks import Error

VARIABLE = "OUTBOARD_OFFLOAD"

DEVICE, HOST, DISK = range(3)  # the tiers

ALIGNMENT = 64

# The place of a slot's content. Content that was read back stays on the device until it is freed.
HERE, WRITING, AWAY, READING = range(4)


class Limits(collections.namedtuple("Limits", "device host disk", defaults=(0, 0))):
    """The bytes of saved tensors that a rank may have in each tier."""

    @classmethod
    def parse(cls, text):
        """Returns the limits of a text like "device=1000000,host=0,disk=5000000", in bytes."""
        limits = {}
        for part in text.split(","):
            name, _, value = part.partition("=")
            if name not in NAMES or name in limits or not value.isdigit():
                raise Error(f"{VARIABLE}={text!r}: want device=BYTES,host=BYTES,disk=BYTES")
            limits[name] = int(value)
        if "device" not in limits:
            raise Error(f"{VARIABLE}={text!r} has no device=BYTES")
        return cls(**limits)


class Lock(threading.Condition):
    """The lock of an Offload. released is called after each release.

    It is reentrant: the thread that holds it may free tensors, which locks it again.
    """

    def __init__(self, released):
        super().__init__(threading.RLock())
        self.released = released

    def __exit__(self, *error):
        super().__exit__(*error)
        self.released()


class Slot:
    """The content of a saved tensor, in any tier."""

    def __init__(self, tensor, size, number):
        self.tensor, self.size, self.number = tensor, size, number
        self.shape, self.strides, self.dtype = tensor.shape, tensor.stride(), tensor.dtype
        self.skew = tensor.data_ptr() % ALIGNMENT // tensor.element_size()
        self.state, self.tier, self.at = HERE, DEVICE, None
        self.moved = self.used = self.freed = False

    def make_room(self):
        """Returns a new tensor of the same strides and alignment."""
        count = self.shape.numel()
        space = torch.empty(count + self.skew, dtype=self.dtype)
        return space.as_strided(self.shape, self.strides, self.skew)


def storage_of(tensor):
    if hasattr(tensor, "untyped_storage"):
        return tensor.untyped_storage()
    return tensor.storage()._storage  # PyTorch 1.13


def movable(tensor):
    return (
        type(tensor) is torch.Tensor and tensor.device.type == "cpu" and tensor.layout == torch.strided
        and not tensor.is_complex() and not tensor.is_neg() and not tensor.is_quantized
    )


def dense(tensor):
    """Reports whether the elements lie one behind the other, in any order of the dimensions."""
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def bytes_of(tensor):
    """Returns the memory of a dense tensor."""
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)
