"""All-reduces that are made in pieces: their sums, also of tensors that do not lie behind each other,
of several calls at once and of types of other sizes; and ranks that disagree on the size."""

import torch
import torch.distributed as dist

import outboard.torch  # noqa: F401

dist.init_process_group("outboard")
rank, size = dist.get_rank(), dist.get_world_size()
total = size * (size + 1) // 2
count = (5 << 20) + 3  # elements: no multiple of a piece


def expect(what, tensor, want):
    if not torch.equal(tensor, want):
        raise SystemExit(f"{what}: {(tensor != want).sum().item()} of {tensor.numel()} elements differ")


numbers = torch.arange(count, dtype=torch.int32)
first, second = numbers * (rank + 1), numbers.float().mul_(0).add_(rank)
works = [dist.all_reduce(first, async_op=True), dist.all_reduce(second, op=dist.ReduceOp.MAX, async_op=True)]
for work in works:
    work.wait()
expect("the sum", first, numbers * total)
expect("the greatest", second, torch.full((count,), size - 1.0))

columns = torch.ones(1 << 11, 1 << 10).mul_(rank + 1).t()
dist.all_reduce(columns)
expect("the sum of columns", columns, torch.full_like(columns, total))

double = torch.full((count,), rank + 0.5, dtype=torch.float64)
dist.all_reduce(double)
expect("the sum of float64", double, torch.full_like(double, total - size / 2))
print("equal", flush=True)

# The ranks of a node have one size, so that it is the two nodes that disagree.
dist.all_reduce(torch.ones((1 << 20) * (4 + rank // (size // 2))))
