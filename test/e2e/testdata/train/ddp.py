"""Trains a small network for 100 steps with each of the named back ends: prints the last loss and a digest of all parameters."""

import hashlib
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import outboard.torch  # noqa: F401

dist.init_process_group("outboard")
for backend in sys.argv[1:]:
    group = dist.group.WORLD if backend == "outboard" else dist.new_group(backend=backend)
    torch.manual_seed(1)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)), process_group=group
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(100 + dist.get_rank())
    for _ in range(100):
        x, y = torch.randn(32, 64, generator=generator), torch.randint(10, (32,), generator=generator)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
    print(f"{backend}: {dist.get_rank()} {digest.hexdigest()} {loss.item()!r}", flush=True)
