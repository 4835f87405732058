"""Rank 1 reduces another number of elements than the other."""

import torch
import torch.distributed as dist

import outboard.torch  # noqa: F401

dist.init_process_group("outboard")
if dist.get_rank() == 1:
    dist.all_reduce(torch.ones(3))
else:
    dist.all_reduce(torch.ones(4))
