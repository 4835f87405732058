"""Shardings: the operators of a layer divided over the ranks of a group.

    layer = shard.Residual(nn.LayerNorm(64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
    layer = shard.Sharded(layer, ["replicated", "column", "column", "row", "replicated"], group)

The placement of a tensor is the part of it that each rank of a group has: all of it ("R"), a part
along an axis (the axis), or a summand of it ("P"). Each operator has a strategy, which sets the
placements of its input and output; between operators tensors are converted. The gradient of a
replicated tensor is a sum of which each rank has a summand, and the other way round, so the
backward pass of a conversion is the conversion between these duals (internal/train/shard has the
algebra, and tests it).

Strategies by module; all modules also have "replicated":

    nn.Linear      samples, sequence, column (a part of the outputs), row (a part of the inputs)
    nn.Embedding   samples, sequence, column, row (a part of the rows)
    Attention      samples, heads
    nn.LayerNorm   samples, sequence
    ReLU, GELU ... samples, sequence, column
    Residual       samples, sequence, column, partial: for the addition, after those of its modules

`outboard plan train` chooses strategies: write_profile measures layers for it, strategies reads its
choice. outboard.torch.pipeline(..., tensor=2, strategies=...) executes it.
"""

import json
import os

import torch
import torch.distributed as dist

from outboard import profile

REPLICATED, PARTIAL = "R", "P"

# By kind and strategy: the placements of input and output; -1 is the last axis.
_LAST = -1
_SAMPLES, _SEQUENCE, _WHOLE = (0, 0), (1, 1), (REPLICATED, REPLICATED)
_STRATEGIES = {
    "linear": {
        "replicated": _WHOLE, "samples": _SAMPLES, "sequence": _SEQUENCE,
        "column": (REPLICATED, _LAST), "row": (_LAST, PARTIAL),
    },
    "embedding": {
        "replicated": _WHOLE, "samples": _SAMPLES, "sequence": _SEQUENCE,
        "column": (REPLICATED, _LAST), "row": (REPLICATED, PARTIAL),
    },
    "attention": {"replicated": _WHOLE, "samples": _SAMPLES, "heads": (_LAST, _LAST)},
    "elementwise": {"replicated": _WHOLE, "samples": _SAMPLES, "sequence": _SEQUENCE, "column": (_LAST, _LAST)},
    "normalize": {"replicated": _WHOLE, "samples": _SAMPLES, "sequence": _SEQUENCE},
    "add": {
        "replicated": _WHOLE, "samples": _SAMPLES, "sequence": _SEQUENCE, "column": (_LAST, _LAST),
        "partial": (PARTIAL, PARTIAL),
    },
    "opaque": {"replicated": _WHOLE},
}

_ELEMENTWISE = (
    torch.nn.ReLU, torch.nn.GELU, torch.nn.SiLU, torch.nn.Tanh, torch.nn.Sigmoid, torch.nn.LeakyReLU, torch.nn.ELU, torch.nn.Softplus,
    torch.nn.Identity,
)


class Attention(torch.nn.Module):
    """Multi-head attention over axis 1, without parameters.

    It reads (samples, positions, 3 * width): for each head the features of its query, key and
    value. It returns (samples, positions, width).
    """

    def __init__(self, width, heads, causal=False):
        super().__init__()
        if width % heads:
            raise ValueError(f"{width} features are no whole number for each of {heads} heads")
        self.width, self.heads, self.causal = width, heads, causal

    def forward(self, x):
        samples, length, features = x.shape
        each = self.width // self.heads
        # The number of heads follows from the features: each rank has a part of divided heads.
        q, k, v = (t.transpose(1, 2) for t in x.view(samples, length, features // (3 * each), 3, each).unbind(3))
        scores = q @ k.transpose(2, 3) / each**0.5
        if self.causal:
            scores = scores.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), float("-inf"))
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(samples, length, features // 3)


class Residual(torch.nn.Sequential):
    """Adds its input to the output of its modules, applied one after the other."""

    def forward(self, x):
        return x + super().forward(x)


def kind(module):
    """Returns the kind of operator that a module is: the key of its strategies."""
    if isinstance(module, torch.nn.Linear):
        return "linear"
    if isinstance(module, torch.nn.Embedding) and module.max_norm is None and not module.scale_grad_by_freq:
        return "embedding"
    if isinstance(module, Attention):
        return "attention"
    if isinstance(module, torch.nn.LayerNorm) and len(module.normalized_shape) == 1:
        return "normalize"
    if isinstance(module, _ELEMENTWISE):
        return "elementwise"
    if isinstance(module, Residual):
        return "add"
    return "opaque"


def _is_container(module):
    return type(module) in (torch.nn.Sequential, Residual)


def operators(layer):
    """Returns the operators of a layer as (name, module), in the order of their strategies."""

    def walk(module, path):
        if not _is_container(module):
            yield path or "0", module
            return
        for name, child in module.named_children():
            yield from walk(child, f"{path}.{name}" if path else name)
        if isinstance(module, Residual):
            yield f"{path}.add" if path else "add", module

    return list(walk(layer, ""))


# Conversions.


def dual(placement):
    """Returns the placement of the gradient of a tensor."""
    return {REPLICATED: PARTIAL, PARTIAL: REPLICATED}.get(placement, placement)


def convert(x, source, target, group=None):
    """Returns a tensor in another placement over the ranks of a group."""
    source, target = _axis(source, x), _axis(target, x)
    return x if source == target else _Convert.apply(x, source, target, group)


def _axis(placement, x):
    return placement % x.dim() if isinstance(placement, int) else placement


class _Convert(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, source, target, group):
        ctx.way = dual(target), dual(source), group
        return _move(x, source, target, group)

    @staticmethod
    def backward(ctx, gradient):
        return _move(gradient, *ctx.way), None, None, None


def _move(x, source, target, group):
    """Converts a tensor without a gradient."""
    n, own = dist.get_world_size(group), dist.get_rank(group)
    x = x.contiguous()
    if target == PARTIAL:  # Other ranks' summands are zero, or zero outside of their part.
        if source == REPLICATED:
            return x if own == 0 else torch.zeros_like(x)
        return torch.cat([x if i == own else torch.zeros_like(x) for i in range(n)], source)
    if source == PARTIAL and target == REPLICATED:
        total = x.clone()
        dist.all_reduce(total, group=group)
        return total
    if source == PARTIAL:
        parts = _parts(x, n, target)
        total = torch.empty_like(parts[own])
        dist.reduce_scatter(total, parts, group=group)
        return total
    if source == REPLICATED:
        return _parts(x, n, target)[own]
    parts = [torch.empty_like(x) for _ in range(n)]
    if target == REPLICATED:
        dist.all_gather(parts, x, group=group)
        return torch.cat(parts, source)
    sent = _parts(x, n, target)
    parts = [torch.empty_like(p) for p in sent]
    dist.all_to_all(parts, sent, group=group)
    return torch.cat(parts, source)


def _parts(x, n, axis):
    if x.shape[axis] % n:
        raise ValueError(f"axis {axis} of a tensor of {tuple(x.shape)} can't be divided into {n} equal parts")
    return [p.contiguous() for p in x.chunk(n, axis)]


# Execution.


class Sharded(torch.nn.Module):
    """A layer whose operators are divided over the ranks of a group.

    strategies has a name for each of operators(layer). Input and output are the same in all ranks,
    and so are the parameters of the original layer. The layer must not use random numbers.
    The loss counts once: convert(loss, "R", "P", group).backward() in all ranks; then
    reduce_gradients() before the optimizer's step.
    """

    def __init__(self, layer, strategies, group=None):
        super().__init__()
        names = operators(layer)
        if isinstance(strategies, str) or len(strategies) != len(names):
            raise ValueError(f"{len(names)} strategies are needed, for {', '.join(n for n, _ in names)}: there are {strategies!r}")
        self.group = group
        self.tree = _build(layer, iter(zip(names, strategies)), group)

    def forward(self, x):
        y, placement = self.tree.run(x, REPLICATED)
        return convert(y, placement, REPLICATED, self.group)

    def partial_parameters(self):
        """Returns the parameters that all ranks have: each has a summand of their gradients."""
        divided = {id(p) for m in self.modules() for p in getattr(m, "divided", ())}
        return [p for p in self.parameters() if id(p) not in divided]

    def reduce_gradients(self):
        """Sums the gradients of parameters that all ranks have."""
        reduce_gradients(self.partial_parameters(), self.group)


def reduce_gradients(parameters, group):
    """Sums the gradients of parameters over a group, by one all-reduce for each type."""
    by_type = {}
    for p in parameters:
        if p.requires_grad:
            by_type.setdefault(p.dtype, []).append(p)
    for same in by_type.values():
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in same])
        dist.all_reduce(flat, group=group)
        for p, total in zip(same, flat.split([p.numel() for p in same])):
            p.grad = total.view_as(p).clone()


def _build(module, following, group):
    """Returns a module whose run(x, placement) returns the result and its placement."""
    if not _is_container(module):
        (name, _), strategy = next(following)
        return _Operator(name, module, strategy, group)
    children = [_build(child, following, group) for child in module.children()]
    if not isinstance(module, Residual):
        return _Chain(children)
    (name, _), strategy = next(following)
    return _Sum(children, _placements(name, "add", strategy)[0], group)


def _placements(name, of, strategy):
    placements = _STRATEGIES[of].get(strategy)
    if placements is None:
        raise ValueError(f"{name}: no strategy {strategy!r} of kind {of}: there are {', '.join(_STRATEGIES[of])}")
    return placements


class _Chain(torch.nn.Module):
    def __init__(self, children):
        super().__init__()
        self.parts = torch.nn.ModuleList(children)

    def run(self, x, placement):
        for part in self.parts:
            x, placement = part.run(x, placement)
        return x, placement


class _Sum(_Chain):
    def __init__(self, children, placement, group):
        super().__init__(children)
        self.placement, self.group = placement, group

    def run(self, x, placement):
        y, after = super().run(x, placement)
        return convert(x, placement, self.placement, self.group) + convert(y, after, self.placement, self.group), self.placement


class _Operator(torch.nn.Module):
    """An operator with this rank's part of its parameters."""

    def __init__(self, name, module, strategy, group):
        super().__init__()
        self.of, self.strategy, self.group = kind(module), strategy, group
        self.reads, self.writes = _placements(name, self.of, strategy)
        self.n, self.own = dist.get_world_size(group), dist.get_rank(group)
        if any(isinstance(m, torch.nn.modules.dropout._DropoutNd) and m.p > 0 for m in module.modules()):
            raise ValueError(f"{name}: the ranks of a group would drop different elements: set the dropout to 0")
        if strategy == "heads" and module.heads % self.n:
            raise ValueError(f"{name}: {module.heads} heads can't be divided by {self.n} ranks")
        self.module, self.divided = module, []
        if self.of in ("linear", "embedding") and strategy in ("column", "row"):
            self._divide(name)

    def _divide(self, name):
        """Keeps this rank's part of the parameters."""
        whole = self.module
        # A matrix of nn.Linear has its outputs along axis 0, that of nn.Embedding its rows.
        axis = 0 if (self.of == "linear") == (self.strategy == "column") else 1
        if whole.weight.shape[axis] % self.n:
            raise ValueError(f"{name}: {whole.weight.shape[axis]} {self.strategy}s can't be divided by {self.n} ranks")
        self.module = None
        self.weight = self._part(whole.weight, axis)
        self.divided = [self.weight]
        self.bias, self.padding = getattr(whole, "bias", None), getattr(whole, "padding_idx", None)
        if self.padding is not None:
            raise ValueError(f"{name}: an embedding with padding_idx can't be divided by {self.strategy}s: use samples")
        if self.bias is not None and self.strategy == "column":
            self.bias = self._part(self.bias, 0)
            self.divided.append(self.bias)

    def _part(self, parameter, axis):
        part = parameter.detach().chunk(self.n, axis)[self.own].clone()
        return torch.nn.Parameter(part, requires_grad=parameter.requires_grad)

    def run(self, x, placement):
        return self._compute(convert(x, placement, self.reads, self.group)), self.writes

    def _compute(self, x):
        if self.module is not None:
            return self.module(x)
        if self.of == "linear" and self.strategy == "column":
            return torch.nn.functional.linear(x, self.weight, self.bias)
        if self.of == "linear":
            y = torch.nn.functional.linear(x, self.weight)
            return y if self.bias is None else y + self.bias * (self.own == 0)  # It is added once.
        if self.strategy == "column":
            return torch.nn.functional.embedding(x, self.weight)
        rows = x - self.own * self.weight.shape[0]
        mine = (rows >= 0) & (rows < self.weight.shape[0])
        return torch.nn.functional.embedding(rows * mine, self.weight) * mine.unsqueeze(-1)


# The input and output of `outboard plan train`.


def write_profile(layers, inputs, path, rounds=5):
    """Writes the measured profile of layers that `outboard plan train` reads: `profile: PATH`.

    inputs is a batch of at least two samples.
    """
    measured, x = [], inputs
    for i, layer in enumerate(layers):
        parts, launch, x = _measure(layer, x, rounds)
        measured.append({"name": f"{i}:{type(layer).__name__}", "launch": launch, "operators": parts})
    aside = f"{path}.part"
    with open(aside, "w") as f:
        json.dump({"version": profile.VERSION, "layers": measured}, f)
    os.replace(aside, path)


def _measure(layer, inputs, rounds):
    """Returns a layer's operators in the planner's form, the time of its calls, and its output."""
    found, launches = [], []

    def leaf(name, module, reads, times, output):
        o = {"name": name, "kind": kind(module), "inputs": reads, "output": list(output.shape[1:]), **times}
        if isinstance(module, Attention):
            o["heads"] = module.heads
        if isinstance(module, torch.nn.Embedding):
            o["rows"] = module.num_embeddings
        found.append(o)

    def walk(module, path, x, source):
        if not _is_container(module):
            times = profile.measure([module], x, rounds)[0]
            launches.append(times["launch"])
            with torch.no_grad():
                y = module(x)
            name = path or "0"
            leaf(name, module, [source], {k: times[k] for k in ("parameters", "stored", "forward", "backward")}, y)
            return y, name
        y, after = x, source
        for child, part in module.named_children():
            y, after = walk(part, f"{path}.{child}" if path else child, y, after)
        if isinstance(module, Residual):
            name = f"{path}.add" if path else "add"
            leaf(name, module, [source, after], {"forward": 0.0, "backward": 0.0}, y)
            y, after = x + y, name
        return y, after

    y, _ = walk(layer, "", inputs, "input")
    return found, sum(launches), y


def strategies(plan):
    """Returns the strategies of each layer, from the file of `outboard plan train -o json`."""
    with open(plan) as f:
        best = json.load(f)["plans"][0]["plan"]
    return [[o["strategy"] for o in layer["operators"]] for layer in best.get("sharding", [])]
