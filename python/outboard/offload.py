"""Tiers of memory: tensors saved for the backward pass lie on the host or a disk in between.

    outboard train --offload device=512MB,host=2GB,disk=20GB -- python3 train.py

keeps at most that many bytes of saved tensors on the device of each rank, in shared memory of the
host and in a file. A program needs no change but `import outboard.torch`; other programs call

    from outboard import offload

    offload.start(offload.Limits(device=512 << 20, host=2 << 30, disk=20 << 30))

The first step moves the tensors that have no room. Its measured times, and those of later steps, go
to the node, which plans where each tensor lies and when it is read back (internal/train/tiers); one
thread writes, another one reads ahead, a third one waits for plans. Tensors come back unchanged,
with the same strides and alignment, so that a step's results are the same to the last bit.

Parameters and buffers of modules, and tensors of less than 4 KiB, stay where they are and do not
count. Tensors with gaps between their elements stay and count. The file has no name: the system
deletes it when the process ends.
"""

import atexit
import collections
import os
import queue
import sys
import threading
import time
import weakref

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from outboard import stall
from outboard._places import NAMES, PROBE, Disk, Host, probe, timed
from outboard._ranks import Error, ask
from outboard._saved import AWAY, DEVICE, DISK, HERE, HOST, READING, VARIABLE, WRITING, Limits, Lock, Slot, bytes_of, dense, movable, storage_of

_SMALL = 4 << 10
# The most tensors of a step that the node plans.
_MAX_PLANNED = 8192
# The first step that is planned; it is planned again after twice as many steps each time.
_FIRST_PLAN = 2
_MAX_PLANS = 8  # for steps with different tensors


class _Handle:
    """Autograd's reference to a slot; the slot is freed with it."""

    def __init__(self, offload, slot, storage, key):
        self.offload, self.slot, self.storage, self.key = offload, slot, storage, key

    def __del__(self):
        self.offload.forget(self.slot)


class Offload:
    """Moves the saved tensors of this process: see start. plan asks for the plan of a trace."""

    def __init__(self, limits, plan=None):
        self.limits, self.ask = limits, plan
        self.lock = Lock(self._free_dropped)
        self.dropped = collections.deque()  # slots that autograd no longer needs
        self.tiers = [None, Host(limits.host), Disk(limits.disk)]
        self.known = weakref.WeakValueDictionary()  # handles by the memory that they were made from
        self.parameters = {}  # weak references of storages, by their addresses
        self.resident = self.live = self.writing = 0
        self.pending = None  # the slot that is written when another tensor is saved
        self.closed, self.failed = False, None
        self.plans, self.plan = [], None
        self.steps, self.next_plan = 0, _FIRST_PLAN
        self.peak, self.last = 0, None
        self._begin_step()
        self.rates = probe(self.tiers)
        self.writes, self.reads, self.traces = queue.SimpleQueue(), queue.SimpleQueue(), queue.SimpleQueue()
        self.threads = [threading.Thread(target=self._transfer, args=(q,), daemon=True) for q in (self.writes, self.reads)]
        planner = threading.Thread(target=self._make_plans, daemon=True)
        for t in (*self.threads, planner):
            t.start()

    def close(self):
        self.closed = True
        for q in self.writes, self.reads, self.traces:
            q.put(None)
        for t in self.threads:  # The planner may wait for the node, and uses nothing of PyTorch's.
            t.join()

    def disable(self):
        """Leaves all tensors where they are from now on, in a process without the threads."""
        self.closed = True
        self.lock = Lock(self._free_dropped)  # Another thread may have held the lock.

    # Hooks of autograd and of modules.

    def pack(self, tensor):
        """Takes a tensor that autograd saves. Autograd passes the result to unpack."""
        tensor = tensor.detach()  # The result must not hold the graph, which holds it.
        size = tensor.numel() * tensor.element_size()
        if self.closed or size < _SMALL or not movable(tensor):
            return tensor
        storage = storage_of(tensor)
        if storage._cdata in self.parameters:
            return tensor
        key = (storage._cdata, tensor._version, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        with self.lock:
            self._raise()
            self._free_dropped()
            same = self._same(key, tensor)
            if same is None:
                same = _Handle(self, self._save(tensor, size), StorageWeakRef(storage), key)
                self.known[key] = same
            return same

    def unpack(self, saved):
        """Returns a tensor that pack has taken."""
        if isinstance(saved, torch.Tensor):
            return saved
        slot = saved.slot
        with self.lock:
            self._free_dropped()
            first, slot.used = not slot.used, True
            tensor = self._fetch(slot)
            if first:
                self._add_event(slot.number)
                self._read_ahead()
        return tensor

    def enter_module(self, module, inputs):
        """Records the storages of a module's own parameters and buffers, which are never moved."""
        for t in (*module._parameters.values(), *module._buffers.values()):
            if t is None or t.device.type != "cpu" or t.layout != torch.strided:
                continue
            storage = storage_of(t)
            if storage._cdata not in self.parameters:
                # A weak reference keeps the address from being reused.
                self.parameters[storage._cdata] = StorageWeakRef(storage)
                if len(self.parameters) & (len(self.parameters) - 1) == 0:
                    self.parameters = {k: w for k, w in self.parameters.items() if not w.expired()}

    # Saving.

    def _same(self, key, tensor):
        """Returns the handle of the same memory with the same content, if there is one."""
        handle = self.known.get(key)
        if handle is None:
            return None
        slot = handle.slot
        while slot.state in (WRITING, READING):
            self._wait()
        if slot.moved:  # The program may have changed the memory meanwhile.
            content = bytes_of(tensor)
            if slot.state == HERE:
                then = bytes_of(slot.tensor)
            else:
                then = torch.empty_like(content)
                self.tiers[slot.tier].read(slot.at, then)
            if not torch.equal(content, then):
                return None
        return handle

    def _save(self, tensor, size):
        stall.advance()
        self._write_pending()
        if self.live == 0:
            self._begin_step()
        number = len(self.slots)
        self._make_room(size)
        slot = Slot(tensor, size, number)
        self.slots.append(slot)
        self._add_event(number)
        tier = self._tier(slot)
        if tier != DEVICE:
            self._leave(slot, tier)
        self.live += 1
        self._add_resident(size)
        self._read_ahead()
        return slot

    def _make_room(self, size):
        """Waits for room on the device for a tensor. The oldest, which are used last, leave it."""
        began = time.perf_counter()
        while self.resident + size > self.limits.device:
            if not self.writing:
                oldest = self._oldest()
                if oldest is None or not self._reserve(oldest, HOST):
                    break
                self._begin_write(oldest)
            self._wait()
        self._add_wait(began)

    def _oldest(self):
        """Returns the oldest tensor on the device that may leave it, None if there is none."""
        for n in range(self.left, len(self.slots)):
            slot = self.slots[n]
            if slot.state == HERE and not (slot.freed or slot.used or slot.moved) and dense(slot.tensor):
                return slot
            self.left = n + 1
        return None

    def _add_resident(self, size):
        self.resident += size
        self.peak = max(self.peak, self.resident)

    def _tier(self, slot):
        """Returns the tier of a tensor to be saved: the planned one, or one with room."""
        if not dense(slot.tensor):
            return DEVICE
        plan, n = self.plan, slot.number
        if plan is not None and (n >= len(plan["sizes"]) or plan["sizes"][n] != slot.size):
            sizes = [s.size for s in self.slots]
            plan = self.plan = next((p for p in self.plans if p["sizes"][: n + 1] == sizes), None)
        planned = DEVICE if plan is None else "dhf".index(plan["tiers"][n])
        if planned == DEVICE and self.resident + slot.size > self.limits.device:
            return HOST
        return planned

    def _leave(self, slot, tier):
        """Makes the tensor that is being saved leave the device."""
        if self._reserve(slot, tier):
            # It is written when another tensor is saved: until then the program often saves the
            # same tensor once more, as the input of the next layer.
            self.pending = slot
        elif self.resident + slot.size > self.limits.device:
            raise Error(f"no room for a saved tensor of {slot.size} bytes: {self._usage()}; give --offload more of one, or pass smaller micro-batches")

    def _reserve(self, slot, tier):
        """Reserves a place for a tensor, in another tier if the wanted one is full."""
        for t in [*range(tier, DISK + 1), *range(HOST, tier)]:
            at = self.tiers[t].extents.allocate(slot.size)
            if at is not None:
                slot.tier, slot.at = t, at
                return True
        return False

    def _usage(self):
        host, disk = (sum(n for _, n in t.extents.free) for t in self.tiers[1:])
        limits = self.limits
        return (
            f"the device has {self.resident} of {limits.device} bytes, the host {limits.host - host} of {limits.host}, "
            f"the disk {limits.disk - disk} of {limits.disk}"
        )

    def _write_pending(self):
        slot, self.pending = self.pending, None
        if slot is None or slot.freed:
            return
        if slot.used:
            self._release_place(slot)
            return
        self._begin_write(slot)

    def _begin_write(self, slot):
        slot.state = WRITING
        self.writing += 1
        self.writes.put(lambda: self._write(slot))

    def _release_place(self, slot):
        if slot.at is not None:
            self.tiers[slot.tier].extents.release(slot.at, slot.size)
            slot.tier, slot.at = DEVICE, None

    def forget(self, slot):
        """Frees the memory of a slot, which autograd no longer needs.

        The garbage collector may call it in any thread at any time, with other locks held, so it
        does not wait for the lock: a thread that holds the lock frees the slot at the release.
        """
        if not self.closed:
            self.dropped.append(slot)
            self._free_dropped()

    def _free_dropped(self):
        while self.dropped and self.lock.acquire(blocking=False):
            try:
                self._drop(self.dropped.popleft())
            except IndexError:
                pass  # A nested call has freed the last one.
            finally:
                self.lock.release()

    def _drop(self, slot):
        slot.freed = True
        self.live -= 1
        if slot.state in (HERE, AWAY):
            self._free(slot)
        if self.live == 0:
            self._end_step()

    def _free(self, slot):
        if slot.state == HERE:
            self.resident -= slot.size
        slot.tensor = None
        self._release_place(slot)
        self.lock.notify_all()

    # Transfers. The threads hold the lock only to change states.

    def _transfer(self, transfers):
        """Performs transfers until one is None. An error that ended the thread would leave the
        program waiting for ever: it ends the program's wait instead."""
        while True:
            perform = transfers.get()
            if perform is None:
                return
            try:
                perform()
            except BaseException as e:
                self._fail(f"can't move a saved tensor: {e!r}")
            del perform  # It refers to a tensor.

    def _fail(self, reason):
        with self.lock:
            if self.failed is None:
                self.failed = Error(reason)
            self.lock.notify_all()

    def _wait(self):
        """Waits until a transfer has ended. Raises the error of a failed one, also of an earlier one:
        its slot stays in the state of the transfer."""
        self._raise()
        self._free_dropped()
        self.lock.wait()
        self._raise()

    def _write(self, slot):
        error, seconds = timed(self.tiers[slot.tier].write, slot.at, bytes_of(slot.tensor))
        with self.lock:
            self.writing -= 1
            self._add_rate("write", slot, seconds)
            slot.state = HERE
            if error is not None:
                self._fail(f"can't write a saved tensor to the {NAMES[slot.tier]}: {error}")
            if slot.freed:
                self._free(slot)
            elif slot.used or error is not None:
                self._release_place(slot)  # The tensor was used before it had left.
            else:
                slot.tensor, slot.state, slot.moved = None, AWAY, True
                self.resident -= slot.size
            self.lock.notify_all()
            self._read_ahead()

    def _read(self, slot):
        """Reads back a slot in the state READING."""
        tensor = slot.make_room()
        error, seconds = timed(self.tiers[slot.tier].read, slot.at, bytes_of(tensor))
        with self.lock:
            self._add_rate("read", slot, seconds)
            if error is not None:
                self._fail(f"can't read a saved tensor from the {NAMES[slot.tier]}: {error}")
            slot.tensor, slot.state = tensor, HERE
            self._release_place(slot)
            if slot.freed:
                self._free(slot)
            self.lock.notify_all()

    def _fetch(self, slot):
        """Returns the tensor of a slot, and waits until it is on the device."""
        began = time.perf_counter()
        if self.closed and slot.state in (AWAY, READING):
            raise Error("a saved tensor was moved away, and the threads that read it back have ended: the process was forked, or ends")
        if slot.state == AWAY:  # It was not read ahead.
            slot.state = READING
            self._add_resident(slot.size)
            self.reads.put(lambda: self._read(slot))
        while slot.state == READING:
            self._wait()
        self._add_wait(began)
        self._raise()
        return slot.tensor

    def _read_ahead(self):
        """Begins the reads that the plan has for the events so far, while there is room."""
        if self.plan is None:
            return
        order = self.plan["order"]
        while self.ahead < len(order) and order[self.ahead][0] < len(self.events):
            number = order[self.ahead][1]
            slot = self.slots[number] if number < len(self.slots) else None
            if slot is None or slot.state == WRITING and not slot.used:
                return  # The end of the write continues here.
            if slot.state == AWAY and not slot.freed:
                if self.resident + slot.size > self.limits.device:
                    return
                slot.state = READING
                self._add_resident(slot.size)
                self.reads.put(lambda slot=slot: self._read(slot))
            self.ahead += 1

    def _raise(self):
        if self.failed is not None:
            raise self.failed

    # Measuring and planning.

    def _begin_step(self):
        self.slots, self.events, self.times = [], [], []
        # ahead is the next index in the plan's order of reads; the slots before left are no
        # candidates to leave the device.
        self.ahead, self.left = 0, 0
        self.waited, self.began = 0.0, time.perf_counter()
        self.peak = self.resident
        self.moved = collections.Counter()  # bytes and seconds of transfers, by direction and tier
        self.plan = self.plans[0] if self.plans else None

    def _add_event(self, number):
        self.events.append(number)
        self.times.append(time.perf_counter() - self.began - self.waited)

    def _add_wait(self, began):
        now = time.perf_counter()
        self.waited += now - began
        if observe is not None and now - began > 20e-6:
            observe("saved tensors", began, now)

    def _add_rate(self, direction, slot, seconds):
        self.moved[direction, slot.tier, "bytes"] += slot.size
        self.moved[direction, slot.tier, "seconds"] += seconds

    def _end_step(self):
        """Ends a step: no saved tensor is left."""
        self.steps += 1
        self._write_pending()
        for (direction, tier, what), total in list(self.moved.items()):
            if what == "bytes" and total >= PROBE:
                self.rates[direction][tier] = total / max(self.moved[direction, tier, "seconds"], 1e-9)
        self.last = {
            "step": self.steps, "tensors": len(self.slots), "bytes": sum(s.size for s in self.slots), "peak": self.peak, "waited": self.waited,
            **{NAMES[t]: self.moved["write", t, "bytes"] for t in (HOST, DISK)},
        }
        if not any(s.used for s in self.slots):
            return  # A forward pass without a backward pass shows no lifetimes.
        if len(self.slots) <= _MAX_PLANNED and self.steps >= self.next_plan and self.ask is not None:
            self.next_plan = 2 * self.steps
            self.traces.put(self._trace())

    def _trace(self):
        """Returns the trace of the step in the form of internal/train/tiers."""
        first = self.times[0]
        for slot in self.slots:  # A tensor that no backward pass has used lives until now.
            if not slot.used:
                self._add_event(slot.number)
        return {
            "limits": list(self.limits), "write": self.rates["write"], "read": self.rates["read"], "sizes": [s.size for s in self.slots],
            "events": self.events, "times": [t - first for t in self.times],
        }

    def _make_plans(self):
        """Asks for plans in a thread of its own, so that no transfer waits for the node."""
        while (trace := self.traces.get()) is not None:
            try:
                self._make_plan(trace)
            except Exception as e:  # A plan is not needed for correctness.
                print(f"outboard: offload: no plan: {e}", file=sys.stderr, flush=True)

    def _make_plan(self, trace):
        plan = self.ask(trace)
        plan["sizes"] = trace["sizes"]
        plan["order"] = sorted(
            (plan["prefetch"][n], trace["events"].index(n, plan["prefetch"][n]), n) for n, tier in enumerate(plan["tiers"]) if tier != "d"
        )
        plan["order"] = [(event, n) for event, _, n in plan["order"]]
        with self.lock:
            self.plans = [plan, *(p for p in self.plans if p["sizes"] != plan["sizes"])][:_MAX_PLANS]

active = None
observe = None  # if set, it is called with the name, beginning and end of each wait for a transfer


def start(limits, plan=None):
    """Bounds the saved tensors of this process from now on, in this thread's forward passes."""
    global active
    if active is not None:
        raise Error("saved tensors are bounded already")
    active = Offload(limits, plan)
    torch.nn.modules.module.register_module_forward_pre_hook(active.enter_module)
    hooks = torch.autograd.graph.saved_tensors_hooks(active.pack, active.unpack)
    hooks.__enter__()
    atexit.register(active.close)
    # A process that is forked, to load data, has no threads to move tensors.
    os.register_at_fork(after_in_child=active.disable)


def start_by_environment():
    """Starts with the limits of `outboard train --offload`, if there are any."""
    text = os.environ.get(VARIABLE)
    if text and active is None:
        start(Limits.parse(text), lambda trace: ask("memory", trace))
