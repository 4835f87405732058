"""The line of the program that a call comes from."""

import os

import torch

_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_LIBRARIES = (_OWN, _TORCH, "<")
_BACKWARD, _OPTIMIZERS = _TORCH + os.path.join("autograd", "__init__.py"), _TORCH + "optim" + os.sep


def locate(frame):
    """Returns the line of the program that a frame was called from, the first outside of libraries,
    and the part of a pass that the frame belongs to: "backward", "optimizer" or "".

    The line is "" in a thread of autograd's own, which runs the backward pass of a GPU.
    """
    part = ""
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(_LIBRARIES):
            return f"{os.path.basename(path)}:{frame.f_lineno}", part
        if path == _BACKWARD:
            part = "backward"
        elif path.startswith(_OPTIMIZERS):
            part = "optimizer"
        frame = frame.f_back
    return "", part or "backward"
