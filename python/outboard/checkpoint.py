"""Checkpoints of a training job: kept by the node, restored when the job starts again.

    from outboard import checkpoint

    saved = checkpoint.load()                 # None at the first start
    if saved:
        model.load_state_dict(saved["model"])
    for step in range(saved["step"] + 1 if saved else 0, steps):
        ...
        if step % 100 == 0:
            checkpoint.save({"model": model.state_dict(), "step": step}, step)

All ranks may call save: rank 0 writes, and the others do nothing. A checkpoint counts when save
returns. The state must be the same in all ranks, as it is under DistributedDataParallel; then it
can be restored by another number of ranks.
"""

import os

import torch

from outboard import limit
from outboard._ranks import Connection

FILE = "state.pt"


def save(state, step):
    """Saves a state, any object that torch.save accepts, as the state after a step."""
    path = os.environ.get("OUTBOARD_RANKS_SOCKET")
    if limit.active is not None and limit.active.repeating:
        return  # An earlier process of this rank has saved it.
    if not path or os.environ.get("RANK", "0") != "0" or "OUTBOARD_JOB" not in os.environ:
        return
    fd = os.memfd_create("outboard-checkpoint", os.MFD_CLOEXEC)
    with os.fdopen(fd, "w+b") as f:
        torch.save(state, f)
        f.flush()
        connection = Connection(path)
        try:
            connection.request("checkpoint", file=f.fileno(), number=int(step))
        finally:
            connection.shutdown()


def load(map_location="cpu"):
    """Returns the state of the last checkpoint, None if there is none."""
    folder = os.environ.get("OUTBOARD_CHECKPOINT")
    if not folder:
        return None
    # Any object, as it was saved: from PyTorch 2.6 on torch.load reads only tensors by default.
    return torch.load(os.path.join(folder, FILE), map_location=map_location, weights_only=False)
