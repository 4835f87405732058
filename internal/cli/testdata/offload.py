"""Trains a small model with its saved tensors in all tiers, and without: to the same bits.

The arguments are the limits' sizes in bytes: device, host and disk. Prints what the last step moved.
"""

import json
import os
import sys
import threading

import torch

BATCH, STEPS = 16, 9


class Block(torch.nn.Module):
    """Saves the same tensor twice, views, transposed and expanded tensors, and what is changed later."""

    def __init__(self, channels):
        super().__init__()
        self.conv = torch.nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(channels)
        self.mix = torch.nn.Linear(channels, channels)
        self.scale = torch.nn.Parameter(torch.ones(channels, 1, 1))

    def forward(self, x):
        y = torch.relu_(self.norm(self.conv(x)))
        z = self.mix(y.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        gate = torch.sigmoid(z) * y.mean((2, 3), keepdim=True).expand_as(z)
        return x + torch.nn.functional.dropout(gate * y.tanh() * self.scale, 0.1)


def make():
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3, padding=1), *[Block(8) for _ in range(4)], torch.nn.Flatten(), torch.nn.Linear(8 * 144, 10),
    )


def train(ended=lambda step: None):
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    result = []
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step)
        # The last batches are smaller: a plan for other sizes does not fit them.
        n = BATCH if step < STEPS - 3 else BATCH // 2
        inputs, targets = torch.randn(n, 1, 12, 12, generator=generator), torch.randint(10, (n,), generator=generator)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        result.append(loss.detach())
        model(inputs[:2])  # What it saves is never used.
        ended(step)
    return result + [p.detach() for p in model.parameters()]


def same(a, b):
    return torch.equal(a.view(torch.int32), b.view(torch.int32))


torch.set_num_threads(1)
want = train()
os.environ["OUTBOARD_OFFLOAD"] = "device={},host={},disk={}".format(*sys.argv[1:])
import outboard.torch  # noqa: E402 - from here on saved tensors are moved
from outboard import offload  # noqa: E402

moved = {"host": 0, "disk": 0, "peak": 0}
end = offload.active._end_step


def observe():
    end()
    last = offload.active.last
    for name in "host", "disk":
        moved[name] += last[name]
    moved["peak"] = max(moved["peak"], last["peak"])


def plan(trace):
    make_plan(trace)
    planned.set()


offload.active._end_step = observe
planned, make_plan, offload.active._make_plan = threading.Event(), offload.active._make_plan, plan
# The first plan is asked for in the second step: the steps after the next one have it.
got = train(lambda step: planned.wait(60) if step == 2 else None)
moved["planned"] = planned.is_set()
moved["equal"] = all(same(a, b) for a, b in zip(got, want))
moved["files"] = os.listdir(os.environ["TMPDIR"])
with offload.active.lock:  # What is freed while it is moved is freed at the end of that.
    offload.active.lock.wait_for(lambda: offload.active.resident == 0, 60)
moved["left"] = offload.active.resident
print("offload", json.dumps(moved))
