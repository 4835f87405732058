"""Makes small all-reduces in all ways in which a program may wait for them, or not.

Its caller may have initialised torch.distributed.
"""

import time
import weakref

import torch
import torch.distributed as dist

import outboard.torch  # noqa: F401

if not dist.is_initialized():
    dist.init_process_group("outboard")
rank, size = dist.get_rank(), dist.get_world_size()
total = size * (size + 1) / 2


def begin(factor):
    t = torch.full((5,), float(factor * (rank + 1)))
    return t, dist.all_reduce(t, async_op=True)


def check(name, *pairs):
    wrong = [(t.tolist(), factor * total) for factor, t in pairs if t.tolist() != [factor * total] * 5]
    print(name, "equal" if not wrong else wrong, flush=True)


(a, first), (b, second), (c, third) = begin(1), begin(2), begin(3)
third.wait()
first.wait()
second.wait()
check("waited for in another order", (1, a), (2, b), (3, c))

a, work = begin(4)
while not work.is_completed():
    time.sleep(0.001)
check("polled", (4, a))

a, work = begin(5)
seen = work.get_future().then(lambda f: f.value()[0].clone()).wait()
check("by its future", (5, a), (5, seen))

a, work = begin(6)
dist.barrier()
b, other = begin(7)
large = torch.ones(100_000)
dist.all_reduce(large)
work.wait()
check("behind other calls", (6, a), (7, b))
other.wait()

group = dist.new_group(list(range(size)))
a, work = begin(8)
b = torch.full((5,), float(9 * (rank + 1)))
dist.all_reduce(b, group=group)
work.wait()
check("beside another group", (8, a), (9, b))

a, work = begin(10)  # Nobody waits for it.
del work
dist.barrier()
check("never waited for", (10, a))


def call_again(future):
    """Does what hooks of DDP such as powerSGD_hook do: a callback makes a call, and waits for it."""
    t = torch.full((5,), float(12 * (rank + 1)))
    dist.all_reduce(t, async_op=True).get_future().wait()
    return t


if rank > 0:
    dist.recv(torch.empty(1), 0)
a, work = begin(11)
seen = work.get_future().then(call_again)  # on rank 0 before the call can end
if rank == 0:
    for other in range(1, size):
        dist.send(torch.ones(1), other)
seen.wait()
check("made by a callback", (11, a), (12, seen.value()))

# A program may ask for the results of a call after it has waited for it, as DDP's Join does, and then
# the call holds them, and nothing else.
for count in (5, 100_000):  # direct, and by the group's thread
    work = dist.all_reduce(torch.full((count,), float(rank + 1)), async_op=True)
    work.wait()
    results = [*work.result(), *work.get_future().value(), *work.get_future().then(lambda f: f.value()).wait()]
    seen = [t.tolist() == [total] * count for t in results]
    print(f"results of {count}", "equal" if seen == [True] * 3 else seen, flush=True)
    held = weakref.ref(results[0])
    dist.barrier()  # The group's thread has dropped the call before.
    del work, results
    print(f"held results of {count}", "equal" if held() is None else held(), flush=True)

out = [torch.zeros(2) for _ in range(size)]
work = dist.all_gather(out, torch.full((2,), float(rank)), async_op=True)
work.wait()
seen = [t.tolist() for t in work.result()]
print("results of a gather", "equal" if seen == [[float(r)] * 2 for r in range(size)] else seen, flush=True)

model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
with model.join():  # The ranks have different numbers of batches.
    for _ in range(1 + rank):
        model(torch.ones(1, 2)).sum().backward()
print("uneven inputs equal", flush=True)

# Each rank has another number of rows, the last one none.
for shape in ((9,), (9, 3)):
    rows = size - 1 - rank
    a = torch.sparse_coo_tensor([list(range(rows))], torch.ones(rows, *shape[1:]), shape)
    dist.all_reduce(a)
    want = torch.tensor([max(0.0, size - 1 - i) for i in range(9)]).reshape(9, *[1] * (len(shape) - 1)).expand(shape)
    print(f"sparse {shape}", "equal" if torch.equal(a.to_dense(), want) else a, flush=True)
