"""A script that knows nothing of Outboard: DistributedDataParallel by the default back end."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group()
total = torch.tensor([1.0 + dist.get_rank()])
dist.all_reduce(total)
model = DistributedDataParallel(torch.nn.Linear(8, 4))
model(torch.randn(16, 8)).pow(2).mean().backward()
print(torch.__version__, dist.get_backend_config(), total.item(), flush=True)
dist.destroy_process_group()
