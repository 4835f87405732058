"""The steps of a program's optimizers, in all versions of PyTorch."""

import torch

_observers = []  # functions that are called after each step


def observe(ended):
    """Calls ended after each step of an optimizer that the program makes from now on."""
    if not _observers:
        _wrap_construction()
    _observers.append(ended)


def _wrap_construction():
    construct = torch.optim.Optimizer.__init__

    def __init__(self, *args, **kwargs):
        construct(self, *args, **kwargs)
        _count_steps(type(self))

    torch.optim.Optimizer.__init__ = __init__


def _count_steps(kind):
    step = kind.step
    if getattr(step, "_outboard_counts", False):
        return

    def counted(self, *args, **kwargs):
        try:
            return step(self, *args, **kwargs)
        finally:
            for ended in _observers:
                ended()

    counted._outboard_counts = True
    counted.hooked = True  # PyTorch has wrapped it already.
    kind.step = counted
