"""Stages with a time limit: between two steps one process of a rank ends, and another continues.

`outboard train --stage-limit 15m` sets OUTBOARD_STAGE_LIMIT. Before the time of a process is over,
Pipeline.step saves the stage's parameters, buffers and gradients, the state of the optimizers and
that of the random number generators in memory that the node keeps, and ends the process. The node
starts the program again. Its earlier steps are repeated without computation: Pipeline.step returns
the loss that it returned before, the optimizers have no gradients and change nothing, and the
standard output is discarded. At the step where the first process ended the state is restored. Other
ranks wait for their next message from the stage meanwhile, and notice nothing.

A program must therefore do the same each time it is started and gets the same losses. It must make
its groups before the first step, and no calls of torch.distributed of its own between steps, except
barriers; it has one Pipeline. A process makes at least one step, however short the limit is.

`outboard train --stage-limit 15m,elsewhere` sets OUTBOARD_STAGE_ELSEWHERE, too: the next process of a
stage may run on another node. Before each step all ranks exchange whether the time of one is over.
If so, rank 0 asks its node for another device, and all ranks receive the answer. If there is one,
all ranks save their states and end, and the job's next attempt starts all of them again. They make
their groups anew, and repeat the earlier steps as above. If there is none, only the processes whose
time is over end, and continue on their node.
"""

import io
import mmap
import os
import random
import socket
import sys
import time

import torch
import torch.distributed as dist

from outboard._ranks import MAX_PACKET, Connection, Error

VARIABLE = "OUTBOARD_STAGE_LIMIT"
ELSEWHERE = "OUTBOARD_STAGE_ELSEWHERE"

active = None


class Limit:
    """The time limit of this process. seconds is the limit; state is what the previous process of
    the rank has left, None in the first one. elsewhere says that the next one may run on another
    node."""

    def __init__(self, seconds, rank, path, state=None, elsewhere=False):
        self._seconds, self._rank, self._path, self._state = seconds, rank, path, state
        self._elsewhere = elsewhere
        self._groups = []  # (process group, name, nodes), in the order in which they were made
        self._pipeline, self._optimizers = None, []
        self._inside = False  # a call of the pipeline is in progress
        self._own_call = ""  # the line of a call that the program has made by itself
        self._longest, self._began = 0.0, None
        self.number = 0  # of the next step
        self._losses = list(state["losses"]) if state else []
        # By step: the state of the random number generator after it, where the step changed it.
        self._generators = dict(state["generators"]) if state else {}

    @property
    def repeating(self):
        """Whether the next step was made by an earlier process."""
        return self._state is not None

    @property
    def rejoins(self):
        """Whether this process joins groups that exist: the other ranks do not join them again."""
        return self.repeating and len(self._state["groups"]) > 0

    # Groups of ranks.

    def next_group(self):
        """Returns the name and the nodes of the group that is made next, None if it does not exist."""
        if not self.repeating or len(self._groups) >= len(self._state["groups"]):
            return None
        return self._state["groups"][len(self._groups)]

    def add_group(self, group, name, nodes):
        self._groups.append((group, name, nodes))

    def check_call(self, site, is_barrier=False):
        """Returns whether a call is to be made, which a repeated barrier is not."""
        if self._inside or is_barrier:
            return self._inside or not self.repeating
        self._own_call = self._own_call or site
        if self.repeating:
            raise Error(f"{site} calls torch.distributed between steps, which a stage with a time limit can't repeat")
        return True

    # The pipeline.

    def add_pipeline(self, pipeline):
        if self._pipeline is not None:
            raise Error("a program with --stage-limit can have one Pipeline, and it has made another one")
        self._pipeline, self._inside = pipeline, True

    def add_optimizer(self, optimizer):
        self._optimizers.append(optimizer)

    def leave_pipeline(self):
        self._inside = False

    def begin_step(self):
        """Returns the loss of a step that an earlier process has made, else None. It ends the
        process instead if no time is left for the step."""
        if self.repeating and self.number < len(self._losses):
            self.number += 1
            after = self._generators.get(self.number - 1)
            if after is not None:
                torch.set_rng_state(after)
            return self._losses[self.number - 1]
        if self.repeating:
            self._restore()  # The ranks have agreed about this step already.
        else:
            over = self._longest > 0 and _age() + 2 * self._longest > self._seconds
            if self._elsewhere and self.number > 0 and self._agree_to_move(over):
                self._suspend(moves=True)
            if over:
                self._suspend()
        self._inside, self._began, self._generator = True, time.monotonic(), torch.get_rng_state()
        return None

    def end_step(self, loss):
        after = torch.get_rng_state()
        if not torch.equal(after, self._generator):
            self._generators[self.number] = after
        self._losses.append(loss)
        self.number += 1
        self._longest = max(self._longest, time.monotonic() - self._began)
        self._inside = False

    def _agree_to_move(self, over):
        """Exchanges with all ranks whether the time of their processes is over. Returns whether all
        of them end, since a stage continues on another node."""
        self._inside = True
        expired = torch.zeros(dist.get_world_size(), dtype=torch.uint8)
        expired[self._rank] = over
        dist.all_reduce(expired, op=dist.ReduceOp.MAX)
        moves = torch.zeros(1, dtype=torch.uint8)
        if expired.any():
            if self._rank == 0:
                moves[0] = self._ask_for_device(expired.nonzero().flatten().tolist())
            dist.all_reduce(moves, op=dist.ReduceOp.MAX)
        self._inside = False
        return bool(moves)

    def _ask_for_device(self, ranks):
        """Returns whether the node has found another device for the next processes of ranks."""
        connection = Connection(self._path)
        try:
            return connection.request("elsewhere", expired=ranks)["moves"]
        finally:
            connection.close()

    # The state.

    def _suspend(self, moves=False):
        """Saves the state, and ends this process. moves says that all ranks do, and leave their
        groups; else the next process of this rank joins them again."""
        if self._own_call:
            raise Error(f"{self._own_call} calls torch.distributed beside the pipeline: a stage with a time limit can't start again")
        with os.fdopen(os.memfd_create("outboard-stage", os.MFD_CLOEXEC), "w+b") as f:
            # Groups end with the ranks that leave them.
            groups = [] if moves else self._groups
            torch.save(self._capture([(name, nodes) for _, name, nodes in groups]), f)
            f.flush()
            for group, _, _ in groups:
                group._connection.request("detach")
            Connection(self._path).request("suspend", file=f.fileno(), rank=self._rank, moves=moves)
        sys.stdout.flush()
        # What the program has to do at its end is done by the rank's last process.
        os._exit(0)

    def _capture(self, groups):
        """Returns the state, for a process that joins groups again."""
        module = self._pipeline.module
        return {
            "groups": groups,
            "losses": self._losses,
            "generators": self._generators,
            "module": module.state_dict(),
            "gradients": [p.grad for p in module.parameters()],
            "optimizers": [o.state_dict() for o in self._optimizers],
            "generator": torch.get_rng_state(),
            "python": random.getstate(),
        }

    def _restore(self):
        state, module = self._state, self._pipeline.module
        if len(state["optimizers"]) != len(self._optimizers):
            raise Error(f"the program has made {len(self._optimizers)} optimizers before step {self.number}, and {len(state['optimizers'])} the first time")
        module.load_state_dict(state["module"])
        for p, gradient in zip(module.parameters(), state["gradients"]):
            p.grad = gradient
        for optimizer, saved in zip(self._optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        torch.set_rng_state(state["generator"])
        random.setstate(state["python"])
        self._state = None
        _show_output()


def _age():
    """Returns the seconds since this process was started."""
    with open("/proc/self/stat") as f:
        ticks = int(f.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


_hidden = None  # a copy of the standard output, while it is discarded


def _hide_output():
    global _hidden
    sys.stdout.flush()
    _hidden = os.dup(1)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)


def _show_output():
    global _hidden
    if _hidden is not None:
        sys.stdout.flush()
        os.dup2(_hidden, 1)
        os.close(_hidden)
        _hidden = None


def _fetch(path, rank):
    """Returns the state that the rank's previous process has left, None if there is none."""
    connection = Connection(path)
    try:
        connection.send("resume", rank=rank)
        _, files, _, _ = socket.recv_fds(connection.socket, MAX_PACKET, 1)
        if not files:
            return None
    finally:
        connection.close()
    with mmap.mmap(files[0], 0, prot=mmap.PROT_READ) as content:  # The file's position is the node's.
        os.close(files[0])
        return torch.load(io.BytesIO(content), weights_only=False)


def _join_without_store():
    """Lets this process join groups that exist: the other ranks do not wait for it at the store of
    torch.distributed, which may have ended with the process of rank 0."""
    rendezvous = sys.modules["torch.distributed.rendezvous"]

    def environment(url, **_):
        yield dist.HashStore(), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    rendezvous._rendezvous_handlers["env"] = environment
    sys.modules["torch.distributed.distributed_c10d"]._store_based_barrier = lambda *args, **options: None


def _notice_optimizers():
    construct = torch.optim.Optimizer.__init__

    def __init__(self, *args, **kwargs):
        construct(self, *args, **kwargs)
        active.add_optimizer(self)

    torch.optim.Optimizer.__init__ = __init__


def start_by_environment():
    """Starts with the settings of `outboard train --stage-limit`, if there are any."""
    global active
    text, path = os.environ.get(VARIABLE), os.environ.get("OUTBOARD_RANKS_SOCKET")
    if not text or not path or active is not None:
        return
    rank = int(os.environ.get("RANK", "0"))
    active = Limit(float(text), rank, path, _fetch(path, rank), bool(os.environ.get(ELSEWHERE)))
    _notice_optimizers()
    if active.repeating:
        if active.rejoins:
            _join_without_store()
        _hide_output()
