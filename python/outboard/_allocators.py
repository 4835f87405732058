"""The memory of this process as its allocators see it: bytes in use, and free bytes that they hold.

Free bytes that an allocator holds between bytes in use are fragmentation: the process pays for them,
and they serve only requests that fit.
"""

import ctypes
import os

import torch

_PAGE = os.sysconf("SC_PAGE_SIZE")


class _Mallinfo(ctypes.Structure):
    """struct mallinfo2 of glibc 2.33: see mallinfo(3)."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    ]


def _find_mallinfo():
    try:
        function = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return None  # another C library, or an old one
    function.restype, function.argtypes = _Mallinfo, []
    return function


_mallinfo = _find_mallinfo()


def resident():
    """Returns the resident size of this process, in bytes."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * _PAGE


def heap():
    """Returns the state of the C library's allocator in bytes, None if it does not tell.

    "used" and "free" are bytes of its arenas; "top" is the part of "free" at the end of the main
    arena, which it can return to the system; "mapped" are bytes in maps of their own, for large
    requests, which are returned when they are freed.
    """
    if _mallinfo is None:
        return None
    i = _mallinfo()
    return {"name": "malloc", "used": i.uordblks, "free": i.fordblks, "top": min(i.keepcost, i.fordblks), "mapped": i.hblkhd}


def devices():
    """Returns the states of PyTorch's allocators on GPUs, in bytes, for GPUs that are in use.

    "free" are bytes that the allocator has reserved and no tensor uses; "top" is the part of them
    in blocks that are free as a whole, which torch.cuda.empty_cache returns to the device.
    """
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return []
    states = []
    for number in range(torch.cuda.device_count()):
        stats = torch.cuda.memory_stats(number)
        used, reserved = (stats.get(f"{kind}_bytes.all.current", 0) for kind in ("allocated", "reserved"))
        if reserved:
            free = reserved - used
            split = min(stats.get("inactive_split_bytes.all.current", 0), free)
            states.append({"name": f"cuda:{number}", "used": used, "free": free, "top": free - split, "mapped": 0})
    return states


def states():
    """Returns the states of all allocators, as heap and devices do."""
    first = heap()
    return ([] if first is None else [first]) + devices()
