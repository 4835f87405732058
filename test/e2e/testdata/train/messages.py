"""Sends messages while other messages and calls are in progress, which no order of calls may block.

Its caller may have initialised torch.distributed.
"""

import atexit
import datetime
import os

import torch
import torch.distributed as dist

import outboard.torch  # noqa: F401

if not dist.is_initialized():
    dist.init_process_group("outboard")
rank, size = dist.get_rank(), dist.get_world_size()
to, source = (rank + 1) % size, (rank - 1) % size


def check(name, got, want):
    print(name, "equal" if got == want else (got, want), flush=True)


def of(sender, count=3):
    return torch.arange(count) + 10.0 * sender


got = torch.zeros(3)
first = dist.isend(of(rank), to)
second = dist.irecv(got, source)
first.wait(), second.wait()
check("sent before it is received", got.tolist(), of(source).tolist())

got = torch.zeros(3)
second = dist.irecv(got, source)
first = dist.isend(of(rank), to)
first.wait(), second.wait()
check("received before it is sent", got.tolist(), of(source).tolist())

got = torch.zeros(500_000)
for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, of(rank, 500_000), to), dist.P2POp(dist.irecv, got, source)]):
    work.wait()
check("a batch", got.tolist(), of(source, 500_000).tolist())

# The receiver waits for the first tag last, and makes a collective in between.
got = [torch.zeros(2) for _ in range(3)]
if rank == 0:
    works = [dist.isend(torch.full((2,), float(tag)), 1, tag=tag) for tag in (5, 3, 9)]
elif rank == 1:
    works = [dist.irecv(t, 0, tag=tag) for t, tag in zip(got, (9, 5, 3))]
else:
    works = []
total = torch.ones(1)
dist.all_reduce(total)
for work in works:
    work.wait()
check("tags beside a collective", [total.item(), [t[0].item() for t in got]], [float(size), [9.0, 5.0, 3.0] if rank == 1 else [0.0] * 3])

# Many messages keep their order; their memory is replaced by larger memory meanwhile.
counts = [1 + 100 * i for i in range(120)]
if rank == 0:
    works = [dist.isend(torch.full((n,), float(n)), 1) for n in counts]
    [w.wait() for w in works]
    got = counts
elif rank == 1:
    tensors = [torch.zeros(n) for n in counts]
    works = [dist.irecv(t, 0) for t in tensors]
    [w.wait() for w in works]
    got = [int(t[-1]) for t in tensors if t.eq(t[-1]).all()]
else:
    got = counts
check("many", got, counts)

# A parameter keeps its gradient to itself.
if rank == 0:
    parameter = torch.nn.Parameter(torch.ones(2))
    dist.send(parameter, 1)
got = torch.zeros(2)
if rank == 1:
    dist.recv(got, 0)
check("a parameter", [got.requires_grad, got.tolist()], [False, [1.0, 1.0] if rank == 1 else [0.0, 0.0]])

# Messages are of any type, also of those that no collective has.
got = torch.zeros(2, dtype=torch.complex64)
first = dist.isend(torch.tensor([1 + 2j, rank - 1j]), to)
dist.irecv(got, source).wait(), first.wait()
check("complex numbers", got.tolist(), [1 + 2j, source - 1j])

work = dist.irecv(torch.zeros(1), source)
try:
    work.wait(datetime.timedelta(milliseconds=1))
    text = "it has ended"
except RuntimeError as e:
    text = str(e)
dist.barrier()
dist.send(torch.zeros(1), to)
work.wait()
check("a time-out", text, "the call has not ended within 0.001 s")

# A child process ends, and the connections of its parent stay. Only the functions of atexit are
# called: the destructor of a gloo group waits in a child for threads that it does not have.
child = os.fork()
if child == 0:
    atexit._run_exitfuncs()
    os._exit(0)
os.waitpid(child, 0)
dist.all_reduce(total)
check("a child process", total.item(), float(size * size))

parts = [of(rank, (rank + j) % 2) for j in range(size)]
got = [torch.zeros((rank + j) % 2) for j in range(size)]
dist.all_to_all(got, parts)
check("parts of different sizes", [t.tolist() for t in got], [of(j, (rank + j) % 2).tolist() for j in range(size)])

flags = torch.tensor([True, False, rank == 0])
dist.all_reduce(flags)
check("booleans", flags.to(torch.int8).tolist(), [1, 0, 1])

for name, call in {
    "sizes": lambda: dist.all_gather([torch.zeros(2 + i) for i in range(size)], torch.zeros(2)),
    "types": lambda: dist.all_gather([torch.zeros(2, dtype=torch.float64) for _ in range(size)], torch.zeros(2)),
    "parts": lambda: dist.reduce_scatter(torch.zeros(1), [torch.zeros(1 + i) for i in range(size)]),
}.items():
    try:
        call()
        text = "no error"
    except (RuntimeError, ValueError) as e:  # the latter from PyTorch 2 itself
        text = str(e)
    check(f"wrong {name}", text != "no error", True)
