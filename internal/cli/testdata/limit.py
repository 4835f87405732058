"""Trains a pipeline with dropout and prints the loss of each step and a digest of the stage.

STEPS is the number of steps, 3 by default.
"""

import hashlib
import os
import random

import torch
import torch.distributed as dist

import outboard.torch

STEPS = int(os.environ.get("STEPS", "3"))

dist.init_process_group("outboard")
torch.manual_seed(1)
random.seed(2)
widths = [16, 32, 24, 32, 8]
layers = [m for a, b in zip(widths, widths[1:]) for m in (torch.nn.Linear(a, b), torch.nn.BatchNorm1d(b), torch.nn.Tanh(), torch.nn.Dropout(0.2))]
# The replicas draw batches and dropout from generators that differ from step to step.
pipeline = outboard.torch.pipeline(layers, torch.nn.functional.mse_loss, 2, recompute=True, cuts=[8], replicas=dist.get_world_size() // 2)
optimizer = torch.optim.Adam(pipeline.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
dist.barrier()
for step in range(STEPS):
    inputs, targets = torch.randn(32, 16), torch.randn(32, 8) * random.random()
    optimizer.zero_grad()
    print("step", step, "loss", pipeline.step(inputs, targets).hex(), flush=True)
    optimizer.step()
    schedule.step()
state = hashlib.sha256()
for name, t in sorted(pipeline.module.state_dict().items()):
    state.update(name.encode() + t.numpy().tobytes())
for entry in optimizer.state.values():
    state.update(entry["exp_avg_sq"].numpy().tobytes())
print("stage", state.hexdigest(), "generator", hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest(), flush=True)
