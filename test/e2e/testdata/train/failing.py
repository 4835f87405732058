"""Rank 0 trains while rank 1 makes another call: DDP must raise the error, not crash."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import outboard.torch  # noqa: F401

dist.init_process_group("outboard")
model = DistributedDataParallel(torch.nn.Linear(4, 4))
try:
    if dist.get_rank() == 0:
        model(torch.ones(2, 4)).sum().backward()
    else:
        dist.all_reduce(torch.ones(3))
except RuntimeError as e:
    print(f"rank {dist.get_rank()}: {'ranks disagree in call' in str(e)}", flush=True)
