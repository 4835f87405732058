"""Compares pipelines of all schedules with one process: parameters after 5 steps."""

import torch
import torch.distributed as dist

import outboard.torch

dist.init_process_group("outboard")


def layers():
    torch.manual_seed(1)
    widths = [16, 32, 24, 32, 8]
    return [m for a, b in zip(widths, widths[1:]) for m in (torch.nn.Linear(a, b), torch.nn.Tanh())]


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(24, 16, generator=generator), torch.randn(24, 8, generator=generator)


def alone():
    model = torch.nn.Sequential(*layers())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(5):
        inputs, targets = batch(step)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
    return model, loss.item()


model, want = alone()
parts = {id(p): n for n, p in model.named_parameters()}
for schedule in "gpipe", "1f1b":
    for recompute in False, True:
        for micro_batches in 1, 3, 8:
            pipeline = outboard.torch.pipeline(layers(), torch.nn.functional.mse_loss, micro_batches, schedule=schedule, recompute=recompute)
            optimizer = torch.optim.SGD(pipeline.parameters(), lr=0.1, momentum=0.9)
            for step in range(5):
                optimizer.zero_grad()
                loss = pipeline.step(*batch(step))
                optimizer.step()
            first = 8 * dist.get_rank() // dist.get_world_size()
            own = list(pipeline.module)
            worst = max(
                ((p - q).abs().max().item() for m, n in zip(own, list(model)[first:]) for p, q in zip(m.parameters(), n.parameters())),
                default=0.0,
            )
            ok = worst <= 1e-6 and abs(loss - want) <= 1e-6
            print(schedule, recompute, micro_batches, "equal" if ok else f"differs by {worst}, loss {loss} for {want}")
