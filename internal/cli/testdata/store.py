# The store of rank 0 is used by ranks of this machine, and listens on the loopback only.
import os
import socket
import sys

import torch
import torch.distributed as dist

import outboard.torch
from outboard._store import listeners

dist.init_process_group("gloo" if sys.argv[1] == "gloo" else "outboard")
total = torch.ones(2)
dist.all_reduce(total)
assert total.tolist() == [2, 2], total
if dist.get_rank() == 0:
    devices = [s.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16) for s in listeners(int(os.environ["MASTER_PORT"]))]
    assert devices == [b"lo\0"], devices
dist.barrier()
print("done")
