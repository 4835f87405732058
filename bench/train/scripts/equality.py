"""Trains a small network in parallel and prints how far its parameters differ from one process's.

    equality.py BACKEND STEPS ACCUMULATED
"""

import hashlib
import json
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

backend, steps, accumulated = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if backend == "outboard":
    import outboard.torch  # noqa: F401

BATCH = 48


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 10))


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(BATCH, 64, generator=generator), torch.randint(10, (BATCH,), generator=generator)


def train(model, first, count, parts):
    """Trains with count samples from first on, divided into parts whose gradients are accumulated."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(steps):
        x, y = (t[first : first + count] for t in batch(step))
        optimizer.zero_grad()
        mean = 0.0
        for i, (a, b) in enumerate(zip(x.chunk(parts), y.chunk(parts))):
            model.require_backward_grad_sync = i == parts - 1  # read by DistributedDataParallel only
            loss = torch.nn.functional.cross_entropy(model(a), b) / parts
            loss.backward()
            mean += loss.item()
        optimizer.step()
        losses.append(mean)
    return losses


dist.init_process_group(backend)
rank, size = dist.get_rank(), dist.get_world_size()
parallel = DistributedDataParallel(network())
losses = train(parallel, rank * BATCH // size, BATCH // size, accumulated)
alone = network()
train(alone, 0, BATCH, 1)
worst = max((p - q).abs().max().item() for p, q in zip(parallel.module.parameters(), alone.parameters()))
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in parallel.parameters())).hexdigest()
print(json.dumps({"rank": rank, "digest": digest, "losses": [repr(v) for v in losses], "worst": worst}), flush=True)
dist.barrier()
