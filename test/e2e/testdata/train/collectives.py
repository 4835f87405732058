"""Makes every collective call with every type and each of the named back ends, and prints the results of this rank.

Then it runs direct.py and messages.py, so that no other job has to import PyTorch for them.
"""

import pathlib
import runpy
import sys

import torch
import torch.distributed as dist

import outboard.torch  # noqa: F401

dist.init_process_group("outboard")
rank, size = dist.get_rank(), dist.get_world_size()


def values(count, dtype):
    return (torch.arange(count) * (rank + 1) + rank).to(dtype)


def calls(backend, world):
    def show(name, *tensors):
        print(f"{backend}: {rank} {name}", *(t.tolist() for t in tensors), flush=True)

    for dtype in (torch.float64, torch.float32, torch.int64, torch.int32, torch.int8, torch.uint8):
        for op in ("SUM", "MIN", "MAX"):
            t = values(7, dtype).reshape(7, 1)
            dist.all_reduce(t, getattr(dist.ReduceOp, op), group=world)
            show(f"all_reduce {dtype} {op}", t)
        t = values(5, dtype)
        dist.broadcast(t, src=1, group=world)
        show(f"broadcast {dtype}", t)
        out = [torch.zeros(4, dtype=dtype) for _ in range(size)]
        dist.all_gather(out, values(4, dtype), group=world)
        show(f"all_gather {dtype}", *out)

    # Not contiguous, and empty.
    t = values(6, torch.float32).reshape(2, 3).t()
    dist.all_reduce(t, group=world)
    show("transposed", t)
    t = torch.zeros(0)
    dist.all_reduce(t, group=world)
    show("empty", t)

    parts = [values(3, torch.float32) + 10 * i for i in range(size)]
    out = [torch.zeros(3) for _ in range(size)] if rank == 0 else None
    dist.gather(values(3, torch.float32), out, dst=0, group=world)
    if rank == 0:
        show("gather", *out)
    t = torch.zeros(3)
    dist.scatter(t, parts if rank == 1 else None, src=1, group=world)
    show("scatter", t)
    t = values(3, torch.float32)
    dist.reduce(t, dst=1, group=world)
    if rank == 1:
        show("reduce", t)

    # Rank i sends 1 + (i + j) % 3 rows to rank j.
    rows = [1 + (rank + j) % 3 for j in range(size)]
    t = torch.zeros(sum(rows), 2)
    dist.all_to_all_single(t, values(2 * sum(rows), torch.float32).reshape(-1, 2), rows, rows, group=world)
    show("all_to_all_single", t)

    t = torch.zeros(2)
    if rank == 0:
        dist.send(torch.tensor([1.0, 2.0]), dst=1, tag=3, group=world)
    elif rank == 1:
        dist.recv(t, src=0, tag=3, group=world)
    show("received", t)

    group = dist.new_group([0, 1], backend=backend)
    if rank < 2:
        t = torch.ones(2)
        dist.all_reduce(t, group=group)
        show("group", t)
    works = [dist.all_reduce(values(1000, torch.float32), group=world, async_op=True) for _ in range(10)]
    for w in works:
        w.wait()
    dist.barrier(group=world)


for backend in sys.argv[1:]:
    calls(backend, dist.group.WORLD if backend == "outboard" else dist.new_group(backend=backend))
for script in "direct.py", "messages.py":
    runpy.run_path(str(pathlib.Path(__file__).with_name(script)))
