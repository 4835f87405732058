"""Measures the layers of the kinds of model with which FuncPipe was evaluated, and prints them.

Layers of the same shape are measured once. {"model", "layers"}: as `outboard plan train` reads them.
"""

import json
import sys
import time

import torch
from torch import nn

import outboard.torch  # noqa: F401
from outboard import profile

rounds = int(sys.argv[1])


def encoder(width, heads, length):
    """Returns an input of BERT-large, and its layers with the number of times that each occurs."""

    class Embed(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(30522, width), nn.Embedding(length, width)

        def forward(self, x):
            return self.words(x) + self.places.weight

    block = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True)
    return torch.zeros(2, length, dtype=torch.int64), [(Embed(), 1), (block, 24), (nn.Linear(width, 2), 1)]


class Bottleneck(nn.Module):
    """A block of ResNet-101."""

    def __init__(self, inner, inputs, stride):
        super().__init__()
        outer = 4 * inner
        self.way = nn.Sequential(
            nn.Conv2d(inputs, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, outer, 1, bias=False), nn.BatchNorm2d(outer))
        self.short = nn.Sequential() if inputs == outer and stride == 1 else nn.Conv2d(inputs, outer, 1, stride, bias=False)

    def forward(self, x):
        return torch.relu(self.way(x) + self.short(x))


def residual():
    layers = [(nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1)), 1)]
    inputs = 64
    for inner, count, stride in (64, 3, 1), (128, 4, 2), (256, 23, 2), (512, 3, 2):
        layers += [(Bottleneck(inner, inputs, stride), 1), (Bottleneck(inner, 4 * inner, 1), count - 1)]
        inputs = 4 * inner
    return torch.randn(2, 3, 224, 224), layers + [(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)), 1)]


for name, (inputs, layers) in {"BERT-large": encoder(1024, 16, 128), "ResNet-101": residual()}.items():
    measured = profile.measure([layer for layer, _ in layers], inputs, rounds, time.thread_time)
    whole = [m for m, (_, count) in zip(measured, layers) for _ in range(count)]
    print(json.dumps({"model": name, "layers": whole}), flush=True)
