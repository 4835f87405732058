"""Trains a small transformer in stages, one rank each, to reverse sequences of letters.

    outboard train --ranks 2 -- python3 train.py

The last stage prints how many letters it gets right and writes the learning curve as curve.svg.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn

import outboard.torch  # makes the back end known

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 400
LETTERS, LENGTH, WIDTH, BLOCKS, BATCH = 12, 8, 48, 4, 64


class Embed(nn.Module):
    """Letters and their places as vectors."""

    def __init__(self):
        super().__init__()
        self.letters, self.places = nn.Embedding(LETTERS, WIDTH), nn.Embedding(LENGTH, WIDTH)

    def forward(self, x):
        return self.letters(x) + self.places.weight


def layers():
    """Returns the whole model, the same in each rank: a pipeline keeps the layers of its stage."""
    torch.manual_seed(1)
    blocks = [nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True) for _ in range(BLOCKS)]
    return [Embed(), *blocks, nn.Linear(WIDTH, LETTERS)]


def batch(step):
    inputs = torch.randint(LETTERS, (BATCH, LENGTH), generator=torch.Generator().manual_seed(step))
    return inputs, inputs.flip(1)


def loss(outputs, targets):
    loss.right += (outputs.argmax(2) == targets).sum().item()
    return nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())


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
    pipeline = outboard.torch.pipeline(layers(), loss=loss, micro_batches=4)
    optimizer = torch.optim.Adam(pipeline.parameters(), lr=2e-3)
    losses, last = [], dist.get_rank() == dist.get_world_size() - 1
    for step in range(STEPS):
        loss.right = 0
        optimizer.zero_grad()
        losses.append(pipeline.step(*batch(step)))
        optimizer.step()
        if dist.get_rank() == 0 and (step + 1) % 50 == 0:
            print(f"step {step + 1}/{STEPS} loss {losses[-1]:.4f} samples {BATCH}", flush=True)
    if last:
        print(f"{loss.right} of {BATCH * LENGTH} letters are right", flush=True)
        curve(losses, "curve.svg")
    dist.barrier()
    dist.destroy_process_group()


main()
