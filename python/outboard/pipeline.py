"""Pipelines: the layers of a model in stages, one rank each, and replicas of the whole pipeline.

    from outboard.pipeline import Pipeline

    pipeline = Pipeline(layers, loss=torch.nn.functional.mse_loss, micro_batches=8)
    optimizer = torch.optim.Adam(pipeline.parameters())
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss = pipeline.step(inputs, targets)    # gradients are accumulated over micro-batches
        optimizer.step()

All ranks make the same calls; the first stage uses the inputs, the last one the targets. step
returns the mean loss in all ranks. The gradients are those of one process with the mean of the
micro-batches' losses. Layers that use the statistics of a batch (BatchNorm) see micro-batches.

With replicas=N the ranks are N pipelines, one behind the other: rank r is stage r % stages of
replica r // stages. Each replica passes its part of the batch; then the replicas of each stage sum
their gradients by one all-reduce, which is sent as set by the job's --gradients. A stage begins to
sum when its own backward pass has ended, while the stages before it still compute. Replicas start
with the parameters of the first replica.

With tensor=N each replica of a stage is N ranks that divide the operators of its layers, by
strategies: for each layer those of outboard.shard, or None for a layer that all of them compute.
Ranks of one replica's stage are neighbours: part k of stage j of replica i is the rank
(i * stages + j) * tensor + k. neighbours="replicas" makes the replicas of a stage neighbours
instead of the stages of a replica: (j * replicas + i) * tensor + k.

The defaults of replicas and tensor are those of the job's file ("parallel"). If the job runs by its
plan, all defaults are those of the plan, which must have been made for as many layers.

Schedules: "gpipe" passes all micro-batches forward and then all backward (Huang and others,
NeurIPS 2019); "1f1b" alternates, so that a stage holds the activations of no more micro-batches
than there are stages behind it (PipeDream, SOSP 2019).
"""

import os

import torch
import torch.distributed as dist

from outboard import limit, shard
from outboard.plan import choose, planned

_TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8]
_MAX_DIMENSIONS = 14


class Pipeline:
    """The stage of this rank."""

    def __init__(
        self, layers, loss, micro_batches=None, schedule=None, recompute=None, cuts=None, replicas=None, tensor=None, strategies=None,
        neighbours=None,
    ):
        layers = list(layers)
        micro_batches, schedule = choose("micro_batches", micro_batches, 1), choose("schedule", schedule, "1f1b")
        recompute, neighbours = choose("recompute", recompute, False), choose("neighbours", neighbours, "stages")
        if schedule not in ("gpipe", "1f1b"):
            raise ValueError(f'schedule {schedule!r}: want "gpipe" or "1f1b"')
        if micro_batches < 1:
            raise ValueError(f"{micro_batches} micro-batches: want 1 or more")
        if neighbours not in ("stages", "replicas"):
            raise ValueError(f'neighbours {neighbours!r}: want "stages" or "replicas"')
        if limit.active is not None:
            limit.active.add_pipeline(self)
        self._place(_degree("replicas", replicas, "OUTBOARD_REPLICAS"), _degree("tensor", tensor, "OUTBOARD_TENSOR"), neighbours)
        if cuts is None and planned().get("layers", len(layers)) != len(layers):
            raise ValueError(
                f"the job's plan divides {planned()['layers']} layers, and the pipeline has {len(layers)}: "
                "measure its layers by outboard.profile.measure, or pass cuts"
            )
        cuts, strategies = choose("cuts", cuts, None), choose("strategies", strategies, None)
        cuts = equal_cuts(len(layers), self.stages) if cuts is None else list(cuts)
        if len(cuts) != self.stages - 1 or sorted(set([0, *cuts, len(layers)])) != [0, *cuts, len(layers)]:
            raise ValueError(f"cuts {cuts} do not divide {len(layers)} layers into {self.stages} stages of at least one")
        bounds = [0, *cuts, len(layers)]
        self.loss, self.micro_batches, self.schedule, self.recompute = loss, micro_batches, schedule, recompute
        self.tensor_group = None  # the ranks that divide the operators of this replica's stage
        self._flat = {}  # by type: the gradients of a step, one behind the other
        self._make_groups()
        own = slice(bounds[self.rank], bounds[self.rank + 1])
        self.module = torch.nn.Sequential(*self._divide(layers, strategies, own))
        self._share_parameters()
        if limit.active is not None:
            limit.active.leave_pipeline()

    def _place(self, replicas, tensor, neighbours):
        """Computes the replica, the stage and the part of this rank."""
        world = dist.get_world_size()
        if replicas < 1 or tensor < 1 or world % (replicas * tensor):
            raise ValueError(f"{world} ranks are no whole number of stages in {replicas} replicas of {tensor} ranks each")
        self.stages, self.replicas, self.tensor, self.neighbours = world // replicas // tensor, replicas, tensor, neighbours
        at, self.part = divmod(dist.get_rank(), tensor)
        if neighbours == "stages":
            self.replica, self.rank = divmod(at, self.stages)
        else:
            self.rank, self.replica = divmod(at, replicas)

    def _divide(self, layers, strategies, own):
        """Returns the layers of this stage, divided over the ranks of its replica."""
        if strategies is None and self.tensor > 1:
            raise ValueError("tensor: pass the strategies of each layer, as `outboard plan train` prints them (outboard.shard)")
        if self.tensor == 1:
            return layers[own]
        strategies = list(strategies)
        if len(strategies) != len(layers):
            raise ValueError(f"strategies of {len(strategies)} layers: there are {len(layers)}")
        return [layer if s is None else shard.Sharded(layer, s, self.tensor_group) for layer, s in zip(layers[own], strategies[own])]

    def _make_groups(self):
        """Makes the groups of ranks; all ranks make all of them, in the same order."""
        stages, replicas, parts = range(self.stages), range(self.replicas), range(self.tensor)
        for replica, part in ((r, p) for r in replicas for p in parts):
            group = dist.new_group([self._global_rank(stage, replica, part) for stage in stages])
            if (replica, part) == (self.replica, self.part):
                self._replica_group = group
        for stage, part in ((s, p) for s in stages for p in parts) if self.replicas > 1 else ():
            group = dist.new_group([self._global_rank(stage, replica, part) for replica in replicas])
            if (stage, part) == (self.rank, self.part):
                self._stage_group = group
        for stage, replica in ((s, r) for s in stages for r in replicas) if self.tensor > 1 else ():
            group = dist.new_group([self._global_rank(stage, replica, part) for part in parts])
            if (stage, replica) == (self.rank, self.replica):
                self.tensor_group = group

    def _global_rank(self, stage, replica, part=None):
        """Returns the rank of a part of a replica's stage; the default is this rank's part."""
        at = replica * self.stages + stage if self.neighbours == "stages" else stage * self.replicas + replica
        return at * self.tensor + (self.part if part is None else part)

    def _share_parameters(self):
        """Copies the parameters and buffers of this stage's first replica to all its replicas."""
        if self.replicas == 1 or limit.active is not None and limit.active.repeating:
            return
        for t in [*self.module.parameters(), *self.module.buffers()]:
            dist.broadcast(t.data, self._global_rank(self.rank, 0), group=self._stage_group)

    def parameters(self):
        """Returns the parameters of this stage."""
        return self.module.parameters()

    @property
    def is_first(self):
        return self.rank == 0

    @property
    def is_last(self):
        return self.rank == self.stages - 1

    def step(self, inputs=None, targets=None):
        """Passes a batch forward and backward. Returns the mean loss."""
        if limit.active is None:
            return self._make_step(inputs, targets)
        loss = limit.active.begin_step()
        if loss is None:
            loss = self._make_step(inputs, targets)
            limit.active.end_step(loss)
        return loss

    def _make_step(self, inputs, targets):
        self._sending, self._losses = [], []
        before = self._set_gradients_aside()
        self._inputs = self._own_part(inputs) if self.is_first else None
        self._targets = self._own_part(targets) if self.is_last else None
        held = []  # (input, output or None, random state) of pending micro-batches, oldest first
        done = 0
        for action, number in actions(self.schedule, self.stages, self.rank, self.micro_batches):
            if action == "forward":
                held.append(self._forward(number))
            else:
                self._backward(done, *held.pop(0))
                done += 1
        for work, _ in self._sending:
            work.wait()
        self._reduce_gradients(before)
        loss = torch.zeros(1, dtype=torch.float64)
        if self.is_last:
            loss[0] = sum(self._losses) / (self.micro_batches * self.replicas)
        dist.all_reduce(loss)
        return loss.item()

    def _own_part(self, batch):
        """Returns the micro-batches of this replica's part of a batch."""
        parts = _divide(batch, self.replicas * self.micro_batches)
        return parts[self.replica * self.micro_batches : (self.replica + 1) * self.micro_batches]

    def _set_gradients_aside(self):
        """Removes and returns the gradients of earlier steps, which are summed already."""
        if self.replicas == 1 and self.tensor == 1:
            return {}
        before = {p: p.grad for p in self.module.parameters() if p.grad is not None}
        for p in before:
            p.grad = None
        return before

    def _reduce_gradients(self, before):
        """Sums this step's gradients over the stage's ranks, and adds those of earlier steps."""
        if self.tensor > 1:
            shard.reduce_gradients(self._partial_parameters(), self.tensor_group)
        if self.replicas > 1:
            self._reduce_over_replicas()
        for p, earlier in before.items():
            p.grad = earlier if p.grad is None else earlier.add_(p.grad)

    def _partial_parameters(self):
        """Returns the parameters of which each rank of a replica has a summand of the gradients."""
        for layer in self.module:
            yield from getattr(layer, "partial_parameters", layer.parameters)()

    def _reduce_over_replicas(self):
        by_type = {}
        for p in self.module.parameters():
            if p.requires_grad:
                by_type.setdefault(p.dtype, []).append(p)
        for kind, params in by_type.items():
            parts = [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in params]
            # One buffer for all steps: --gradients topk finds its residual by the buffer's address.
            flat = self._flat.setdefault(kind, torch.empty(sum(len(g) for g in parts), dtype=kind))
            torch.cat(parts, out=flat)
            dist.all_reduce(flat, group=self._stage_group)
            for p, total in zip(params, flat.split([p.numel() for p in params])):
                p.grad = total.view_as(p).clone()

    def _forward(self, number):
        x = self._inputs[number] if self.is_first else self._receive(-1)
        if not self.is_first and x.is_floating_point():
            x.requires_grad_()
        if self.recompute and not self.is_last:
            state = torch.get_rng_state()
            with torch.no_grad():
                y = self.module(x)
            self._send(y, 1)
            return x, None, state
        y = self.module(x)
        if not self.is_last:
            self._send(y.detach(), 1)
        return x, y, None

    def _backward(self, number, x, y, state):
        if y is None:
            with torch.random.fork_rng(devices=[]):
                torch.set_rng_state(state)  # The same random numbers, for dropout.
                y = self.module(x)
        if self.is_last:
            loss = self.loss(y, self._targets[number])
            # All ranks of a replica compute the loss, which counts once.
            counts = 1.0 if self.part == 0 else 0.0
            self._losses.append(counts * loss.item())
            (loss / (self.micro_batches * self.replicas) * counts).backward()
        else:
            y.backward(self._receive(1))
        if not self.is_first:
            self._send(x.grad, -1)

    def _send(self, tensor, stages):
        """Sends a tensor to the stage that many stages behind this one."""
        to = self._global_rank(self.rank + stages, self.replica)
        tensor = tensor.contiguous()
        if tensor.dim() > _MAX_DIMENSIONS or tensor.dtype not in _TYPES:
            raise ValueError(f"a tensor of {tensor.dim()} dimensions of {tensor.dtype} can't pass between stages")
        head = [_TYPES.index(tensor.dtype), tensor.dim(), *tensor.shape]
        head = torch.tensor(head + [0] * (_MAX_DIMENSIONS + 2 - len(head)), dtype=torch.int64)
        for t in (head, tensor):
            self._sending.append((dist.isend(t, to, group=self._replica_group), t))  # It must live until it is sent.

    def _receive(self, stages):
        """Returns a tensor from the stage that many stages behind this one."""
        source = self._global_rank(self.rank + stages, self.replica)
        head = torch.zeros(_MAX_DIMENSIONS + 2, dtype=torch.int64)
        dist.recv(head, source, group=self._replica_group)
        kind, dimensions, *shape = head.tolist()
        tensor = torch.empty(shape[:dimensions], dtype=_TYPES[kind])
        dist.recv(tensor, source, group=self._replica_group)
        return tensor


def _degree(name, given, variable):
    """Returns a degree of parallelism: the given one, or that of the job's file."""
    return choose(name, given, int(os.environ.get(variable) or 1))


def equal_cuts(layers, stages):
    """Returns the cuts of layers into stages of the same number of layers, or nearly."""
    return [layers * stage // stages for stage in range(1, stages)]


def actions(schedule, stages, rank, micro_batches):
    """Returns the order in which a stage passes micro-batches: ("forward" or "backward", number)."""
    forward = [("forward", i) for i in range(micro_batches)]
    backward = [("backward", i) for i in range(micro_batches)]
    if schedule == "gpipe":
        return forward + backward
    ahead = min(micro_batches, stages - rank - 1)
    order = forward[:ahead]
    for i in range(micro_batches - ahead):
        order += [forward[ahead + i], backward[i]]
    return order + backward[micro_batches - ahead :]


def _divide(batch, parts):
    if batch is None or batch.shape[0] % parts:
        size = "no" if batch is None else batch.shape[0]
        raise ValueError(f"{size} samples are no whole number of {parts} micro-batches")
    return batch.chunk(parts)
