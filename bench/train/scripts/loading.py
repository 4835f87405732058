"""Reads a dataset of equal files twice, each rank another half each time, in random order: by
requests of the rank's own, or through the node. The rank computes for some time with each file.

Arguments: "own" or "node", the bucket's URL, seconds of computation for each file. Rank 0 prints
the total seconds, and the processor time that it used.
"""

import hashlib
import json
import os
import random
import sys
import time
import urllib.request

import torch.distributed as dist

import outboard.torch
from outboard import data

how, bucket, compute = sys.argv[1], sys.argv[2], float(sys.argv[3])
dist.init_process_group("outboard")
rank, ranks = dist.get_rank(), dist.get_world_size()
reader = data.Reader()


def own(names):
    for name in names:
        with urllib.request.urlopen(f"{bucket}/chunks/sha256/{name}") as response:
            content = response.read()
        if hashlib.sha256(content).hexdigest() != name:
            raise ValueError(f"{name} has other content")
        yield name, content


read = {"own": own, "node": reader.stream}[how]
dist.barrier()
began, used = time.perf_counter(), time.process_time()
total = 0
for epoch in range(2):
    names = reader.names()
    random.Random(epoch).shuffle(names)
    for name, content in read(names[rank::ranks]):
        total += len(content)
        time.sleep(compute)
dist.barrier()
if rank == 0:
    print(json.dumps({"seconds": time.perf_counter() - began, "processor": time.process_time() - used, "bytes": total}), flush=True)
