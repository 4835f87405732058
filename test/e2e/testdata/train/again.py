"""A program that makes its groups, destroys them, and makes them again, several times."""

import atexit
import gc
import threading

import torch
import torch.distributed as dist
import torch.distributed.nn  # Its functions keep the group that is the default one when it is imported.

import outboard.torch

# The program ends while the thread of a group that it has left waits for this in PyTorch's C++ code.
ending = threading.Event()
atexit.register(ending.set)


def wait_for_end(_):
    if threading.current_thread() is not threading.main_thread():  # The barrier may have ended before.
        ending.wait()


def train(seed):
    """Trains in new groups, and returns the sum of all ranks."""
    dist.init_process_group("outboard")
    torch.manual_seed(seed)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    model(torch.randn(8, 4)).sum().backward()
    # The second group has other ranks each time, and its name is the same.
    some = dist.new_group([seed % 3, 2 - seed % 2]) if seed % 3 != 2 - seed % 2 else dist.new_group([0, 1, 2])
    total = torch.tensor([float(dist.get_rank())])
    if dist.get_rank() == 0:
        dist.send(total, 1)
    elif dist.get_rank() == 1:
        dist.recv(torch.empty(1), 0)
    dist.all_reduce(total)
    members = torch.ones(100_000)
    if dist.get_rank(some) >= 0:
        dist.all_reduce(members, group=some)
        assert members[0] == dist.get_world_size(some), members
    end = dist.barrier(async_op=True)
    if seed == 5:
        end.get_future().then(wait_for_end)
    end.wait()
    rank = dist.get_rank()
    dist.destroy_process_group()
    return rank, total.item()


for seed in range(6):
    rank, total = train(seed)
    print(f"sum {total}", "equal" if total == 3 else "differs", flush=True)
gc.collect()  # DDP has cycles of references.
left = outboard.torch._memberships
print(f"member of {left}", "equal" if not left else "differs", flush=True)
