"""Sizes and life times of the tensors of a pass, and the lines of the program that allocate them.

A dispatch mode of PyTorch sees the operators that a thread calls, also those that autograd calls for
it. Each storage that appears is watched by a weak reference until it is freed: views share their
storage, and a storage outlives its tensors if the graph of autograd holds it. An operator costs some
tens of microseconds more while it is watched.

Storages are found when an operator returns or receives them. Those that operators allocate and free
inside do not appear, and neither do those of other threads.
"""

import collections
import sys
import threading
import time

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _python_dispatch

from outboard import _allocators
from outboard._site import locate
from outboard._timeline import Timeline

# Bounds of the memory of a Watch: storages at once, places, and places that are reported.
MOST_STORAGES, MOST_PLACES, MOST_ROWS = 1 << 17, 4096, 128
# After an operator, the newest storages of each part of a pass are checked until _ALIVE of them are
# alive; one of _SHARE of all storages is checked, on average.
_ALIVE, _SHARE = 3, 16
_SAMPLED = 1e-3  # seconds between two looks at the allocators

_untyped = getattr(torch.Tensor, "untyped_storage", None) or torch.Tensor._storage  # PyTorch 1.13

Place = collections.namedtuple("Place", "site operator module")
_OTHERS = Place("", "others", "")


class _Storage:
    """A storage that was alive when it was last checked. born is the number of its pass."""

    __slots__ = ("weak", "size", "place", "part", "born", "at")

    def __init__(self, weak, size, place, part, born, at):
        self.weak, self.size, self.place, self.part, self.born, self.at = weak, size, place, part, born, at


class _Sum:
    """Storages of a pass: how many, their bytes, and the total life time of those that were freed."""

    __slots__ = ("count", "bytes", "largest", "freed", "seconds")

    def __init__(self):
        self.count = self.bytes = self.largest = self.freed = 0
        self.seconds = 0.0

    def add(self, size):
        self.count += 1
        self.bytes += size
        self.largest = max(self.largest, size)

    def free(self, seconds):
        self.freed += 1
        self.seconds += seconds

    def report(self):
        return {
            "tensors": self.count, "bytes": self.bytes, "largest": self.largest,
            "seconds": self.seconds / self.freed if self.freed else None,
        }


_NONE = _Sum()


class Watch(_python_dispatch.TorchDispatchMode):
    """Watches the storages of this thread's operators, from start to stop.

    module returns the name of the module whose forward pass runs, "" for none.
    """

    def __init__(self, module=lambda: "", clock=time.perf_counter):
        super().__init__()
        self._module, self._clock = module, clock
        self._lock = threading.RLock()  # Autograd has a thread for each GPU.
        self._storages = {}  # by the address of PyTorch's object
        self._live = collections.Counter()  # bytes by place
        self.live = self._unwatched = 0
        self.watching, self._sampled = False, 0.0
        self.stepped = None  # the number of the first pass in which an optimizer has made a step
        self._older, self._places = [], {_OTHERS: _OTHERS}
        self._number, self._part, self._after_backward = -1, "before", False
        self._begin(self._clock())

    # The dispatch mode.

    def start(self):
        self.watching = True
        self.__enter__()

    def stop(self):
        """Stops, and returns whether other modes that the program has entered since allow it."""
        self.watching = False
        if _python_dispatch._get_current_dispatch_mode() is not self:
            return False
        self.__exit__(None, None, None)
        self._storages.clear()
        self._older, self._parts = [], {}
        return True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not self.watching:
            return func(*args, **(kwargs or {}))
        now = self._clock()
        site, part = locate(sys._getframe(1))
        with self._lock:
            self._advance(part)
            self._check(now)
        result = func(*args, **(kwargs or {}))
        operator = func.__name__.partition(".")[0]
        with self._lock:
            self._find((args, kwargs), now, site, f"input of {operator}")
            self._find(result, now, site, operator)
            self._sample(now)
        return result

    def _advance(self, part):
        """Follows the parts of a pass: forward, backward, optimizer, rest."""
        if part:
            self._part = part
            if part == "backward":
                self._after_backward = True
            elif self._after_backward and self.stepped is None:
                self.stepped = max(self._number, 0)
        elif self._part in ("backward", "optimizer"):
            self._part = "rest" if self._number >= 0 else "before"

    # Storages.

    def _find(self, value, now, site, operator):
        """Adds the storages of the tensors in the arguments or the result of an operator."""
        if isinstance(value, torch.Tensor):
            self._add(value, now, site, operator)
        elif isinstance(value, (tuple, list)):
            for v in value:
                self._find(v, now, site, operator)
        elif isinstance(value, dict):
            for v in value.values():
                self._find(v, now, site, operator)

    def _add(self, tensor, now, site, operator):
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided or tensor.is_meta:
            return
        try:
            storage = _untyped(tensor)
        except (NotImplementedError, RuntimeError):
            return  # a wrapper of functorch's
        size = storage.nbytes()
        known = self._storages.get(storage._cdata)
        if known is not None and known.size == size:
            return
        if known is not None:  # It was resized.
            self._free(known, now)
        elif size == 0:
            return
        elif len(self._storages) >= MOST_STORAGES:
            self._unwatched += 1
            return
        place = self._place(site, operator)
        record = _Storage(StorageWeakRef(storage), size, place, self._part, self._number, now)
        self._storages[storage._cdata] = record
        self._parts.setdefault(self._part, []).append(record)
        self._sites.setdefault(place, _Sum()).add(size)
        self._allocated.add(size)
        self._live[place] += size
        self.live += size
        self._tensors.add(now, self.live)
        if self.live > self._peak:
            # _at_peak is taken at the first free after a peak.
            self._peak, self._at_peak = self.live, None

    def _place(self, site, operator):
        place = Place(site, operator, self._module() if self._part == "forward" else "")
        known = self._places.get(place)
        if known is None:
            if len(self._places) >= MOST_PLACES:
                return _OTHERS
            known = self._places[place] = place
        return known

    def _free(self, record, now):
        if self._storages.get(record.weak.cdata) is not record:
            return  # It was resized before: another record stands for it.
        if self._at_peak is None:
            self._at_peak = dict(self._live)
        del self._storages[record.weak.cdata]
        self._live[record.place] -= record.size
        self.live -= record.size
        if not self._live[record.place]:
            del self._live[record.place]
        own = record.born == self._number
        if own:
            self._sites[record.place].free(now - record.at)
        life = self._lives.setdefault((record.part if own else "earlier", self._part), _Sum())
        life.add(record.size)
        life.free(now - record.at)

    def _check(self, now):
        """Frees the records of storages that are no longer alive.

        The graph of autograd frees a forward pass's storages in reverse order, and most others live
        for a few operators: so the newest of each part are checked at once. The others are checked
        after a number of operators that grows with theirs.
        """
        before = self.live
        for records in self._parts.values():
            alive, i = 0, len(records) - 1
            while i >= 0 and alive < _ALIVE:
                if records[i].weak.expired():
                    self._free(records.pop(i), now)
                else:
                    alive += 1
                i -= 1
        self._unchecked += 1
        if self._unchecked * _SHARE >= len(self._storages):
            self._check_all(now)
        if self.live != before:
            self._tensors.add(now, self.live)

    def _check_all(self, now):
        self._unchecked = 0
        self._older = self._alive(self._older, now)
        for part, records in self._parts.items():
            self._parts[part] = self._alive(records, now)

    def _alive(self, records, now):
        alive = []
        for r in records:
            if not r.weak.expired():
                alive.append(r)
            else:
                self._free(r, now)
        return alive

    # Passes.

    def _begin(self, now):
        """Begins to count a pass."""
        self._began, self._parts, self._unchecked = now, {}, 0
        self._sites, self._lives, self._allocated = {}, {}, _Sum()
        self._peak, self._at_peak = self.live, None
        self._tensors, self._resident, self._held = Timeline(), Timeline(), Timeline()
        self._tensors.add(now, self.live)

    @property
    def complete(self):
        """Whether the pass has the state of the program's optimizer, if it has one, from its begin."""
        return self.stepped is not None and self._number > self.stepped

    def know(self, tensors):
        """Adds tensors that were allocated before the watch began."""
        self._find(tensors, self._clock(), "", "allocated before")

    def begin_pass(self):
        """Begins a pass: what was allocated before belongs to earlier ones."""
        now = self._clock()
        for records in self._parts.values():
            self._older += records
        self._check_all(now)
        self._number += 1
        self._part, self._after_backward = "forward", False
        self._begin(now)

    def end_pass(self):
        """Returns the report of the pass since begin_pass; see docs/training.md."""
        now = self._clock()
        self._check_all(now)
        self._tensors.add(now, self.live)
        if self._at_peak is None:
            self._at_peak = dict(self._live)
        for r in self._storages.values():
            self._lives.setdefault((r.part if r.born == self._number else "earlier", "later"), _Sum()).add(r.size)
        lives = sorted(self._lives.items(), key=lambda item: (-item[1].bytes, item[0]))
        return {
            "peak": self._peak, "live": self.live, "allocations": self._allocated.count, "allocated": self._allocated.bytes,
            "sites": self._report_sites(), "lives": [{"allocated": a, "freed": f, **s.report()} for (a, f), s in lives],
            "unwatched": self._unwatched,
        }

    def _report_sites(self):
        """Returns rows of the places that allocate, those with the most bytes at the peak first."""
        places = set(self._sites) | set(self._at_peak)
        order = sorted(places, key=lambda p: (-self._at_peak.get(p, 0), -self._sites.get(p, _NONE).bytes, p))
        rows = [
            {**p._asdict(), **self._sites.get(p, _NONE).report(), "peak": self._at_peak.get(p, 0), "live": self._live[p]} for p in order
        ]
        rest = rows[MOST_ROWS:]
        if rest:
            rows[MOST_ROWS:] = [{
                "site": "", "operator": f"{len(rest)} more", "module": "", "seconds": None, "largest": max(r["largest"] for r in rest),
                **{k: sum(r[k] for r in rest) for k in ("tensors", "bytes", "peak", "live")},
            }]
        return rows

    def timelines(self):
        """Returns the bytes over time of the pass: of tensors, of the process, and those that the
        C library's allocator holds free."""
        return {"tensors": self._tensors.points, "resident": self._resident.points, "free in malloc": self._held.points}

    def _sample(self, now):
        if now - self._sampled < _SAMPLED:
            return
        self._sampled = now
        self._resident.add(now, _allocators.resident())
        heap = _allocators.heap()
        if heap is not None:
            self._held.add(now, heap["free"])
