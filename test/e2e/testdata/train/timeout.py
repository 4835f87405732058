"""A group has a time-out: rank 0 makes calls in it that rank 1 never makes."""

import datetime

import torch
import torch.distributed as dist

import outboard.torch

dist.init_process_group("outboard")
rank = dist.get_rank()
group = dist.new_group(timeout=datetime.timedelta(seconds=1))
store = dist.distributed_c10d._get_default_store()


def error_of(call):
    try:
        call()
    except RuntimeError as e:
        return str(e)
    return "no error"


if rank == 0:
    print("message:", error_of(lambda: dist.recv(torch.zeros(1), 1, group)), flush=True)
    print("small:", error_of(lambda: dist.all_reduce(torch.zeros(1), group=group)), flush=True)
    store.set("ended", "1")
else:
    store.get("ended")

# The group of all ranks has none, and is as it was.
total = torch.ones(1)
dist.all_reduce(total)
print("total:", total.item(), flush=True)
