"""Trains the model of ../digits in parallel on all ranks, each with its part of the pictures.

    outboard train --ranks 2 -- python3 train.py pictures.bin

It writes weights.bin for `../digits/train --weights` and the learning curve as curve.svg.
"""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import outboard.torch  # makes the back end known

EPOCHS, BATCH, RATE = 6, 64, 0.1  # BATCH pictures in each step, of all ranks together
PIXELS, HIDDEN, DIGITS = 28 * 28, 64, 10


def read(path):
    """Returns pictures, values from 0 to 1, and their digits: a record has the digit and the pixels."""
    records = torch.frombuffer(bytearray(open(path, "rb").read()), dtype=torch.uint8).view(-1, 1 + PIXELS)
    return records[:, 1:].float() / 255, records[:, 0].long()


def curve(losses, path):
    """Draws the loss of each step."""
    width, height, top = 640, 240, max(losses)
    points = " ".join(
        f"{40 + i * (width - 50) / max(len(losses) - 1, 1):.1f},{height - 20 - v * (height - 40) / top:.1f}"
        for i, v in enumerate(losses))
    with open(path, "w") as f:
        f.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="11">'
                f'<title>Loss of each step</title><rect width="100%" height="100%" fill="white"/>'
                f'<path d="M40 10V{height - 20}H{width - 10}" fill="none" stroke="black"/>'
                f'<text x="4" y="24">{top:.2f}</text><text x="24" y="{height - 18}">0</text>'
                f'<text x="{width - 10}" y="{height - 6}" text-anchor="end">step {len(losses)}</text>'
                f'<text x="{width / 2}" y="16" text-anchor="middle">loss (cross-entropy)</text>'
                f'<polyline points="{points}" fill="none" stroke="steelblue"/></svg>\n')


def main():
    dist.init_process_group("outboard")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)  # the same first weights on each rank
    model = torch.nn.Sequential(torch.nn.Linear(PIXELS, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, DIGITS))
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=RATE, momentum=0.9)
    pictures, digits = read(sys.argv[1])
    share = BATCH // world
    per_epoch = len(pictures) // (share * world)
    losses = []
    for epoch in range(EPOCHS):
        order = torch.randperm(len(pictures), generator=torch.Generator().manual_seed(epoch))
        for i in range(per_epoch):
            mine = order[(i * world + rank) * share:(i * world + rank + 1) * share]
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(parallel(pictures[mine]), digits[mine])
            loss.backward()  # the ranks' gradients are averaged
            optimizer.step()
            mean = loss.detach()
            dist.all_reduce(mean)
            losses.append(mean.item() / world)
        if rank == 0:
            print(f"step {len(losses)}/{EPOCHS * per_epoch} loss {losses[-1]:.4f} samples {share * world}", flush=True)
    if rank == 0:
        with open("weights.bin", "wb") as f:
            for layer in (model[0], model[2]):
                # The example's layers have a row for each input, PyTorch's one for each output.
                f.write(layer.weight.detach().t().contiguous().numpy().astype("<f4").tobytes())
                f.write(layer.bias.detach().numpy().astype("<f4").tobytes())
        curve(losses, "curve.svg")
    dist.destroy_process_group()


main()
