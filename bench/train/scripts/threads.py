"""Trains a small convolutional model data-parallel and times its steps: {"seconds": [...]} of rank 0.

The argument is the number of steps. Gradients are summed during the backward pass.
"""

import json
import sys
import time

import torch
import torch.distributed as dist

import outboard.torch  # noqa: F401

dist.init_process_group("outboard")
torch.manual_seed(1)
layers = [torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.ReLU()]
for _ in range(4):
    layers += [torch.nn.Conv2d(32, 32, 3, padding=1), torch.nn.ReLU()]
layers += [torch.nn.AdaptiveAvgPool2d(8), torch.nn.Flatten(), torch.nn.Linear(2048, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10)]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs, targets = torch.randn(8, 3, 32, 32), torch.randint(10, (8,))
seconds = []
for _ in range(int(sys.argv[1])):
    began = time.perf_counter()
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()
    seconds.append(time.perf_counter() - began)
if dist.get_rank() == 0:
    print(json.dumps({"seconds": seconds}), flush=True)
dist.barrier()
