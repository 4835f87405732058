"""Profiles of training: times and sizes of layers, and where the time and the memory of a pass go.

`outboard train --profile FILE` makes each rank's process import this module, and send its profile to
its node at its end; the file has that of rank 0, and a summary of each. `outboard plan train` reads the members of "layers": seconds of the passes and bytes,
per sample. The file is also a trace that ui.perfetto.dev and chrome://tracing open: "traceEvents"
has the events of the last pass, and those of the last watched pass with its memory over time.

The first passes are watched for memory, which makes them slower, so that they do not count for the
times: from the start of the program to the end of a pass that has the optimizer's state.

    from outboard import profile

    layers = profile.measure(layers, inputs)     # layers that follow each other, each by itself
"""

import atexit
import collections
import json
import os
import statistics
import sys
import threading
import time

import torch

from outboard import _allocators, _steps, offload
from outboard._ranks import Error, send_file
from outboard._storages import Watch

VARIABLE = "OUTBOARD_PROFILE"
VERSION = 1
# The first SKIPPED passes, which allocate memory and fill caches, do not count; MOST are kept.
SKIPPED, MOST = 2, 200
# At most MOST_WATCHED passes are watched, if no optimizer makes a step.
MOST_WATCHED = 32
# The events of a pass beyond MOST_EVENTS are not part of the trace.
MOST_EVENTS = 100_000


# Whether the thread executes a backward pass, which calls modules to compute activations again.
_in_backward = getattr(torch._C, "_current_graph_task_id", lambda: -1)


class _Called:
    """A running call of a module, since a time, in a frame of a thread. is_loss says that it is part of
    a loss, has_layers that a module in it is a layer."""

    def __init__(self, module, began, is_loss, frame):
        self.module, self.began, self.is_loss, self.has_layers = module, began, is_loss, False
        self.frame, self.thread = frame, threading.get_ident()

    def has_ended(self, frame):
        """Whether the call has raised an error, given the frame that calls another module."""
        if self.thread != threading.get_ident():
            return False
        while frame is not None and frame is not self.frame:
            frame = frame.f_back
        return frame is None


def _first_tensor(output):
    """Returns the first tensor of a module's result, None if there is none."""
    while isinstance(output, (tuple, list)) and output:
        output = output[0]
    return output if isinstance(output, torch.Tensor) else None


class Profiler:
    """Collects the times of this process's passes: from a call of a model to the first one after the
    backward pass."""

    def __init__(self):
        self.rank = int(os.environ.get("RANK", "0"))
        self.passes = []
        self.steps = 0  # of optimizers
        self.lock = threading.Lock()
        # watch sees the memory of passes until it is None; memory describes the last one of them.
        self.watch, self.watched, self.memory = None, 0, None
        self.begin()

    def begin(self):
        self.forward, self.layers, self.order = 0.0, {}, []
        self.calls, self.returns = 0, False  # calls of outermost modules, and whether the backward pass has begun
        self.stack, self.events, self.step = [], [], self.steps
        self.communication = self.loading = self.waiting = 0.0
        self.started = time.perf_counter()

    # Hooks of modules: layers are the innermost modules that are called and return a tensor, as some
    # modules use the parameters of their children without calling them (MultiheadAttention). The
    # outermost modules are models, or losses: these have no parameters.

    def enter(self, module, inputs):
        now, frame = time.perf_counter(), sys._getframe(1)
        # A call that raises an error does not call leave.
        while self.stack and self.stack[-1].has_ended(frame.f_back):
            self.stack.pop()
        if not self.stack and torch.is_grad_enabled() and _in_backward() == -1:
            if self.calls == 0 or self.returns:
                self.end_pass(now)
            self.calls += 1
        is_loss = self.stack[0].is_loss if self.stack else next(module.parameters(), None) is None
        self.stack.append(_Called(module, now, is_loss, frame))

    def leave(self, module, inputs, output):
        now = time.perf_counter()
        called = self.pop_call(sys._getframe(1))
        if called is None:
            return  # It began before the profile.
        if not torch.is_grad_enabled():
            return
        if not self.stack and _in_backward() == -1:
            self.forward += now - called.began
        output = _first_tensor(output)
        if not called.has_layers and not called.is_loss and output is not None:
            self.add_layer(module, output, called.began, now)
            called.has_layers = True
        if self.stack:
            self.stack[-1].has_layers |= called.has_layers

    def pop_call(self, frame):
        """Ends the call in a frame, and those in it, which have raised errors. Returns it, None if it is
        not known."""
        for i in range(len(self.stack) - 1, -1, -1):
            if self.stack[i].frame is frame:
                called = self.stack[i]
                del self.stack[i:]
                return called
        return None

    def end_step(self):
        """Counts a step of an optimizer."""
        self.steps += 1

    def add_layer(self, module, output, began, now):
        layer = self.layers.get(id(module))
        if layer is None:
            layer = self.layers[id(module)] = {"module": module, "forward": 0.0, "backward": 0.0, "stored": 0, "samples": 0, "call": 0}
            self.order.append(layer)
        layer["forward"] += now - began
        size, samples = output.numel() * output.element_size(), max(1, output.shape[0] if output.dim() else 1)
        if layer["call"] != self.calls:  # A model may use a layer several times for the same samples.
            layer["call"] = self.calls
            layer["samples"] += samples
        layer["output"] = size / samples
        layer["stored"] += size
        self.add_event(type(module).__name__, "forward", began, now)
        if output.requires_grad:
            output.register_hook(lambda grad: self.output_gradient(layer))
            for p in module.parameters():
                if p.requires_grad and layer is self.order[0] and "hooked" not in layer:
                    layer["hooked"] = True  # No other event ends the first layer's backward pass.
                    p.register_hook(lambda grad: self.close_layer(time.perf_counter()))

    def output_gradient(self, layer):
        """Begins a layer's backward pass at its output's gradient, and ends the next layer's."""
        self.returns, now = True, time.perf_counter()
        self.close_layer(now)
        self.open = (layer, now)

    open = None

    def close_layer(self, now):
        if self.open is None:
            return
        layer, began = self.open
        layer["backward"] += now - began
        self.open = None
        self.add_event(type(layer["module"]).__name__, "backward", began, now)

    def add_event(self, name, kind, began, ended):
        if len(self.events) < MOST_EVENTS:
            self.events.append((name, kind, began, ended))

    def end_pass(self, now):
        if self.calls > 0:
            self.keep_pass(self.summary(now))
            if self.watch is not None:
                self.end_watched_pass()
        if self.watch is not None:
            self.watch.begin_pass()
        with self.lock:
            self.begin()

    def keep_pass(self, summary):
        for p in self.passes:
            if len(p["layers"]) == len(summary["layers"]):
                p["events"] = []  # The trace has those of the last pass.
        self.passes.append(summary)
        del self.passes[: max(0, len(self.passes) - MOST - SKIPPED)]

    def end_watched_pass(self):
        """Keeps what the watch has seen of the pass, and ends it if it has seen enough."""
        self.watched += 1
        if self.watch.watching:
            last = self.passes[-1]
            self.memory = {
                "tensors": self.watch.end_pass(), "allocators": _allocators.states(), "timelines": self.watch.timelines(),
                "events": last["events"], "began": last["began"], "seconds": last["seconds"],
            }
        if self.watch.complete and self.watched >= SKIPPED or self.watched >= MOST_WATCHED:
            if self.watch.stop():
                self.watch = None

    def stop_watch(self):
        """Ends the watch in a process that was forked, to load data."""
        if self.watch is not None:
            self.watch.stop()

    def module_name(self):
        return type(self.stack[-1].module).__name__ if self.stack else ""

    def summary(self, now):
        backward = sum(layer["backward"] for layer in self.order)
        return {
            "seconds": now - self.started, "forward": self.forward, "backward": backward,
            "communication": self.communication, "loading": self.loading, "waiting": self.waiting,
            "layers": [dict(layer) for layer in self.order], "events": self.events,
            "began": self.started, "step": self.step, "watched": self.watch is not None,
        }

    def add(self, kind, name, began, ended):
        """Adds a time of a kind: "communication", "loading", or "waiting" for saved tensors."""
        with self.lock:
            setattr(self, kind, getattr(self, kind) + ended - began)
            self.add_event(name, kind, began, ended)

    def report(self):
        """Returns the content of the file: medians of the passes."""
        passes = self.passes[min(SKIPPED, max(0, len(self.passes) - 1)) :]
        if not passes:
            return None
        passes = [p for p in passes if not p["watched"]] or passes
        # A program may call other models too: the passes that take most of the time count.
        spent = collections.Counter()
        for p in passes:
            spent[len(p["layers"])] += p["seconds"]
        same = [p for p in passes if len(p["layers"]) == spent.most_common(1)[0][0]]
        last = same[-1]
        steps = _by_step(same)
        middle = {
            k: statistics.median(statistics.fmean(p[k] for p in step) for step in steps)
            for k in ("seconds", "forward", "backward", "communication", "loading", "waiting")
        }
        layers = []
        for i, layer in enumerate(last["layers"]):
            module, n = layer["module"], layer["samples"]
            layers.append({
                "name": f"{i}:{type(module).__name__}",
                "parameters": sum(p.numel() * p.element_size() for p in module.parameters()),
                "output": layer["output"], "stored": layer["stored"] / n,
                "forward": statistics.median(p["layers"][i]["forward"] for p in same) / n,
                "backward": statistics.median(p["layers"][i]["backward"] for p in same) / n,
            })
        return {
            "version": VERSION, "passes": len(same), "threads": torch.get_num_threads(), "where": middle, "layers": layers,
            "saved": None if offload.active is None else offload.active.last,
            "memory": {"peak": peak_memory(), "parameters": sum(v["parameters"] for v in layers), **self.report_memory(last, middle["seconds"])},
            "traceEvents": [
                *_trace(2 * self.rank, f"rank {self.rank}: last pass", last),
                *(_trace(2 * self.rank + 1, f"rank {self.rank}: watched pass", self.memory) if self.memory else []),
            ],
        }

    def report_memory(self, last, seconds):
        """Returns the memory of the last watched pass, and by how much the watch slowed it down:
        None if all passes were watched."""
        if self.memory is None:
            return {}
        slower = self.memory["seconds"] / seconds if seconds > 0 and not last["watched"] else None
        return {
            "tensors": self.memory["tensors"], "allocators": self.memory["allocators"],
            "watched": {"passes": self.watched, "seconds": self.memory["seconds"], "slower": slower},
        }


def _by_step(passes):
    """Returns the passes of each step of the optimizer: a program that accumulates gradients makes
    several, of which one communicates and has the step. Steps with another number of passes than most
    are left out: the first and the last one are incomplete."""
    if len({p["step"] for p in passes}) == 1:
        return [[p] for p in passes]
    steps = collections.defaultdict(list)
    for p in passes:
        steps[p["step"]].append(p)
    usual = collections.Counter(map(len, steps.values())).most_common(1)[0][0]
    return [step for step in steps.values() if len(step) == usual]


def _trace(process, name, observed):
    """Returns the events of a pass, and its memory over time, in the format of Chrome's traces."""

    def at(t):
        return 1e6 * (t - observed["began"])

    events = [{"name": "process_name", "ph": "M", "pid": process, "args": {"name": name}}]
    for event, kind, began, ended in observed["events"]:
        events.append({"name": event, "cat": kind, "ph": "X", "pid": process, "tid": kind, "ts": at(began), "dur": 1e6 * (ended - began)})
    for quantity, points in observed.get("timelines", {}).items():
        events += [{"name": quantity, "ph": "C", "pid": process, "ts": at(t), "args": {"bytes": value}} for t, value in points]
    return events


def peak_memory():
    """Returns the largest resident size of this process, in bytes."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


active = None


def start():
    """Profiles this process until its end, when it sends the profile to its node."""
    global active
    if active is not None:
        return
    active = profiler = Profiler()
    torch.nn.modules.module.register_module_forward_pre_hook(profiler.enter)
    torch.nn.modules.module.register_module_forward_hook(profiler.leave)
    _time_loading(profiler)
    _steps.observe(profiler.end_step)
    offload.observe = lambda name, began, ended: profiler.add("waiting", name, began, ended)
    profiler.watch = Watch(profiler.module_name)
    profiler.watch.start()
    os.register_at_fork(after_in_child=profiler.stop_watch)
    atexit.register(_send, profiler, os.getpid())


def start_by_environment():
    """Starts if `outboard train --profile` asks for it."""
    if os.environ.get(VARIABLE) and os.environ.get("OUTBOARD_RANKS_SOCKET"):
        start()


def _time_loading(profiler):
    from torch.utils.data import dataloader

    following = dataloader._BaseDataLoaderIter.__next__

    def timed(self):
        began = time.perf_counter()
        try:
            return following(self)
        finally:
            profiler.add("loading", "DataLoader", began, time.perf_counter())

    dataloader._BaseDataLoaderIter.__next__ = timed


def _send(profiler, process):
    if os.getpid() != process:
        return  # It was forked.
    profiler.end_pass(time.perf_counter())
    report = profiler.report()
    if report is None:
        print("outboard: no profile: the program has called no model with gradients", file=sys.stderr)
        return
    try:
        send_file("profile", json.dumps(report).encode(), rank=profiler.rank)
    except (Error, OSError) as e:
        print(f"outboard: no profile: {e}", file=sys.stderr)


def measure(layers, inputs, rounds=5, clock=time.perf_counter, memory=False):
    """Returns the times and sizes of consecutive layers, in the form of `outboard plan train`.

    inputs is a batch of at least two samples. Each layer runs by itself on one sample and on all
    of them, which separates the time of a sample from that of a call. On a machine that is busy
    with other work, with one thread, time.thread_time is the better clock.

    With memory, each layer also has a member "memory": the tensors that a forward and a backward
    pass of the whole batch allocate, as in the profile of a program.
    """
    result = []
    few, many = inputs[:1], inputs
    for i, layer in enumerate(layers):
        times = [_time_layer(layer, x, rounds, clock) for x in (few, many)]
        with torch.no_grad():
            outputs = [layer(few), layer(many)]
        n = many.shape[0]
        forward, backward = (max(0.0, (times[1][k] - times[0][k]) / (n - 1)) for k in (0, 1))
        result.append({
            "name": f"{i}:{type(layer).__name__}",
            "parameters": sum(p.numel() * p.element_size() for p in layer.parameters()),
            "output": outputs[1].numel() * outputs[1].element_size() / n,
            "stored": _stored(layer, many) / n,
            "forward": forward, "backward": backward,
            "launch": max(0.0, (times[0][0] - forward + times[0][1] - backward) / 2),
            **({"memory": _watch_layer(layer, many)} if memory else {}),
        })
        few, many = outputs
    return result


def _time_layer(layer, x, rounds, clock):
    """Returns the median seconds of the forward and the backward pass."""
    forward, backward = [], []
    for _ in range(rounds + 1):
        x = x.detach()
        if x.is_floating_point():
            x.requires_grad_()
        began = clock()
        y = layer(x)
        middle = clock()
        if y.requires_grad:
            y.backward(torch.ones_like(y))
        forward.append(middle - began)
        backward.append(clock() - middle)
    return statistics.median(forward[1:]), statistics.median(backward[1:])


def _watch_layer(layer, x):
    """Returns the tensors of a forward and a backward pass, beside the parameters and the input."""
    watch = Watch(lambda: type(layer).__name__)
    x = x.detach()
    if x.is_floating_point():
        x.requires_grad_()
    watch.know([*layer.parameters(), *layer.buffers(), x])
    watch.start()
    try:
        watch.begin_pass()
        y = layer(x)
        if y.requires_grad:
            y.backward(torch.ones_like(y))
        return watch.end_pass()
    finally:
        watch.stop()


def _stored(layer, x):
    """Returns the bytes that the layer keeps for its backward pass, beside parameters."""
    own = {p.data_ptr() for p in layer.parameters()}
    sizes = {}

    def keep(t):
        if t.data_ptr() not in own:
            sizes[t.data_ptr()] = t.numel() * t.element_size()
        return t

    x = x.detach()
    if x.is_floating_point():
        x.requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        kept = layer(x)  # It lives until the sizes are summed, so that no address occurs twice.
    total = sum(sizes.values())
    del kept
    return total
