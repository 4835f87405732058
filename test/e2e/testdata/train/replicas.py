"""Compares replicas of a pipeline of two stages with one process: parameters after 5 steps."""

import sys

import torch
import torch.distributed as dist

import outboard.torch

dist.init_process_group("outboard")


def layers(seed=1):
    torch.manual_seed(seed)
    widths = [16, 128, 128, 8]
    return [m for a, b in zip(widths, widths[1:]) for m in (torch.nn.Linear(a, b), torch.nn.Tanh())]


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(24, 16, generator=generator), torch.randn(24, 8, generator=generator)


def train(parameters, step_of):
    """Makes five steps of the optimizer, the gradients of the last one from two batches."""
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    for step in range(5):
        optimizer.zero_grad()
        loss = step_of(step)
        if step == 4:
            loss += step_of(5)
        optimizer.step()
    return loss


def alone():
    model = torch.nn.Sequential(*layers())

    def step_of(step):
        inputs, targets = batch(step)
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        return loss.item()

    return model, train(model.parameters(), step_of)


replicas = int(sys.argv[1])
model, want = alone()
for schedule in "gpipe", "1f1b":
    for micro_batches in 1, 3:
        # Only the first replica begins with the parameters of the one process.
        first = dist.get_rank() < dist.get_world_size() // replicas
        pipeline = outboard.torch.pipeline(
            layers(1 if first else 2), torch.nn.functional.mse_loss, micro_batches, schedule=schedule, replicas=replicas)
        loss = train(pipeline.parameters(), lambda step: pipeline.step(*batch(step)))
        own = list(pipeline.module)
        begin = pipeline.rank * len(model) // pipeline.stages
        worst = max((p - q).abs().max().item() for m, n in zip(own, list(model)[begin:]) for p, q in zip(m.parameters(), n.parameters()))
        ok = worst <= 1e-6 and abs(loss - want) <= 1e-6
        print(schedule, micro_batches, "equal" if ok else f"differs by {worst}, loss {loss} for {want}", flush=True)
