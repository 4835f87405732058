"""A program that accumulates gradients, whose modules raise errors that it catches, on a clock of its
own: a forward pass takes 1 s, a backward pass 2 s, and a step of the optimizer, after four passes, 8 s."""

import time
import types

import torch
from torch import nn

import outboard.torch
from outboard import profile

now = float(int(time.perf_counter()))  # so that sums are exact
profile.time = types.SimpleNamespace(perf_counter=lambda: now)


def advance(seconds):
    global now
    now += seconds


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        advance(1)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        advance(2)
        return grad


class Failing(nn.Linear):
    def forward(self, x):
        raise ValueError("expected")


class Layer(nn.Linear):
    def forward(self, x):
        return Slow.apply(super().forward(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.failing, self.layer = Failing(4, 4), Layer(4, 4)

    def forward(self, x):
        try:
            return self.failing(x)
        except ValueError:
            return self.layer(x)


class Optimizer(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        advance(8)


model, outermost = Model(), Failing(4, 4)
optimizer = Optimizer(model.parameters(), 0.1, momentum=0.9)
for i in range(48):
    try:
        outermost(torch.ones(2, 4))
    except ValueError:
        pass
    model(torch.ones(2, 4)).sum().backward()
    if i % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
