"""Trains a network whose allocations are known, with gradients of two micro-batches, and checks what a
profile says about them: under `outboard train --profile`, and by itself for measure.
"""

import gc
import sys

import torch

import outboard.torch  # noqa: F401
from outboard import profile
from outboard._storages import Watch
from outboard._timeline import MOST, Timeline

WIDTH, ROWS = 256, 64
ACTIVATION = 4 * ROWS * WIDTH  # bytes


def check(name, got, want):
    print(name, "equal" if got == want else f"got {got}, want {want}", flush=True)


def line(text):
    """Returns the place of a line of this file."""
    with open(__file__) as f:
        number = next(i for i, l in enumerate(f, 1) if text in l and "line(" not in l)
    return f"memory.py:{number}"


def train():
    torch.manual_seed(1)
    model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(4)])  # the model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = torch.randn(ROWS, WIDTH)
    for step in range(6):
        for _ in range(2):
            loss = model(x).sum()  # a forward pass
            loss.backward()  # a backward pass
        optimizer.step()  # a step
        optimizer.zero_grad()
    watched = profile.active.watched
    # The first step is part of the second pass, so the third is the first with the optimizer's state.
    check("watched passes", (watched, profile.active.watch), (3, None))
    check("no mode is left", torch.utils._python_dispatch._get_current_dispatch_mode(), None)


def freed():
    """Storages are alive as long as a view, or the graph of autograd, and no longer."""
    watch = Watch()
    watch.start()
    watch.begin_pass()
    a = torch.zeros(1000)  # lives until it is deleted
    view = a[10:]
    del a
    torch.zeros(1)
    with_view = watch.live
    del view
    torch.zeros(1)
    check("views keep storages", (with_view >= 4000, watch.live < 4000), (True, True))
    w = torch.ones(500, requires_grad=True)
    y = (w * 2).exp().sum()  # keeps the result of exp
    torch.zeros(1)
    in_graph = watch.live
    y.backward()
    del y
    torch.zeros(1)
    # w and its gradient, and what two scalars take.
    check("the graph keeps storages", (in_graph >= 4 * 1000, 4000 <= watch.live < 4100), (True, True))
    temporary = watch.end_pass()
    kinds = {(l["allocated"], l["freed"]) for l in temporary["lives"]}
    check("lives", {("forward", "backward"), ("forward", "later"), ("backward", "later")} - kinds, set())
    watch.stop()
    del w
    gc.collect()


def bounded():
    points = Timeline()
    for i in range(100 * MOST):
        points.add(i, 1 if i != 12345 else 7)
    check("a timeline", (len(points.points) < MOST, (12345, 7) in points.points), (True, True))


def measure():
    layer = torch.nn.Linear(WIDTH, WIDTH)
    first, = profile.measure([layer], torch.randn(ROWS, WIDTH), rounds=1, memory=True)
    m = first["memory"]
    before = 4 * (WIDTH * WIDTH + WIDTH) + ACTIVATION
    sites = {(s["operator"], s["module"]): s for s in m["sites"]}
    check("measured parameters and input", sites["allocated before", ""]["live"], before)
    check("measured output", sites["addmm", "Linear"]["bytes"], ACTIVATION)
    # The gradients of the parameters and of the input stay, and the gradient of the output goes.
    check("measured gradients", m["live"] - before, before + ACTIVATION)


if profile.active is not None:
    train()
else:
    freed()
    bounded()
    measure()
