"""Sums numbers over all ranks in each step, and saves the state every fifth step.

Attempts that end by a kill wait after LIMIT steps. The sum does not depend on the number of ranks.
A node has PER ranks that follow each other.
"""
import os
import struct
import time

from outboard._ranks import Connection, Memory


def number(name):
    return int(os.environ[name])


rank, world, attempt = number("RANK"), number("WORLD_SIZE"), number("OUTBOARD_ATTEMPT")
socket = os.environ["OUTBOARD_RANKS_SOCKET"]
first, state = 0, 1
if "OUTBOARD_CHECKPOINT" in os.environ:
    with open(os.environ["OUTBOARD_CHECKPOINT"] + "/state.pt") as f:
        first, state = map(int, f.read().split())
print("pid", attempt, os.getpid(), flush=True)
group, memory = Connection(socket), Memory()
group.request("join", group="steps", rank=rank, size=world, nodes=[r // number("PER") for r in range(world)])
memory.reserve(8)
for step in range(first, number("STEPS")):
    if attempt <= number("KILLS") and step == first + number("LIMIT") and rank == 0:
        time.sleep(1000)
    struct.pack_into("<q", memory.map, 0, sum(state * (i + 2) % 1000003 for i in range(rank, 60, world)))
    group.request("call", file=memory.fd if step == first else None, operation=1, element=5, reduction=1, count=1, root=0, offset=0, site="")
    state = struct.unpack_from("<q", memory.map, 0)[0] % 1000003
    if rank == 0:
        print("step", attempt, step, flush=True)
    if rank == 0 and step % 5 == 4:
        file = os.memfd_create("state")
        os.write(file, f"{step + 1} {state}".encode())
        Connection(socket).request("checkpoint", file=file, number=step + 1)
        print("saved", attempt, step + 1, flush=True)
print("result", attempt, state, flush=True)
