"""Trains a small network for 100 steps and prints the last loss and a digest of all parameters."""

import hashlib
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if sys.argv[1] == "outboard":
    import outboard.torch  # noqa: F401

dist.init_process_group(sys.argv[1])
torch.manual_seed(1)
model = DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
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
print(digest.hexdigest(), repr(loss.item()))
