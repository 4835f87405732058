"""Times all-reduces of the back end outboard, and of gloo in turn with it.

    allreduce.py SECONDS ROUNDS BYTES...

For each size it prints the seconds of one call in each round: {"bytes", "outboard", "gloo"}.
"""

import datetime
import json
import os
import sys
import time

import torch
import torch.distributed as dist

import outboard.torch  # noqa: F401

seconds, rounds, sizes = float(sys.argv[1]), int(sys.argv[2]), [int(v) for v in sys.argv[3:]]
dist.init_process_group("outboard", timeout=datetime.timedelta(minutes=5))
groups = {"outboard": None}
if os.environ.get("OUTBOARD_NODES", "1") == "1":  # gloo needs ranks that reach each other
    groups["gloo"] = dist.new_group(backend="gloo")


def call(tensor, group):
    began = time.perf_counter()
    dist.all_reduce(tensor, group=group)
    return time.perf_counter() - began


def turn(tensor, group, count):
    """Returns the mean time of a call: a rank may begin its next call while others end theirs."""
    dist.barrier()
    began = time.perf_counter()
    for _ in range(count):
        dist.all_reduce(tensor, group=group)
    return (time.perf_counter() - began) / count


for size in sizes:
    tensor = torch.zeros(size // 4)
    count = {}
    for name, group in groups.items():
        for _ in range(3):
            call(tensor, group)
        longest = torch.tensor([max(call(tensor, group) for _ in range(3))])
        dist.all_reduce(longest, op=dist.ReduceOp.MAX)
        count[name] = max(3, int(seconds / longest.item()))
    times = {name: [] for name in groups}
    for _ in range(rounds):
        for name, group in groups.items():
            times[name].append(turn(tensor, group, count[name]))
    if dist.get_rank() == 0:
        print(json.dumps({"bytes": size, **times}), flush=True)
dist.barrier()
