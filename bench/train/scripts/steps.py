"""Times the steps of pipelines and of replicas whose layers sleep for their compute time.

The argument is a list of settings in JSON: {"layers": [{"forward", "backward", "launch", "output"}],
"cuts", "micro", "micro_batches", "steps"}; with "gradients", bytes, the ranks are replicas of one
stage that accumulate and then average so many. Each prints {"seconds": [...]}, by step.
"""

import json
import sys
import time

import torch
import torch.distributed as dist

import outboard.torch  # makes the back end known


class Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, layer):
        ctx.layer, ctx.shape = layer, x.shape
        n = x.shape[0]
        time.sleep(layer["launch"] + n * layer["forward"])
        return x.new_zeros(n, max(1, layer["output"] // 4))

    @staticmethod
    def backward(ctx, grad):
        time.sleep(ctx.layer["launch"] + ctx.shape[0] * ctx.layer["backward"])
        return grad.new_zeros(ctx.shape), None


class Layer(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return Sleep.apply(x, self.layer)


def pipeline(setting):
    layers = [Layer(v) for v in setting["layers"]]
    # A pipeline takes no gradient of its inputs, so its first layer needs a parameter to sleep for.
    layers[0] = torch.nn.Sequential(Scale(), layers[0])
    pipe = outboard.torch.pipeline(layers, loss=lambda y, t: y.sum(), micro_batches=setting["micro_batches"], cuts=setting["cuts"])
    inputs = torch.zeros(setting["micro"] * setting["micro_batches"], 1)
    return lambda: pipe.step(inputs, inputs)


class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.by = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x * self.by


def replicas(setting):
    model = torch.nn.Sequential(Scale(), *(Layer(v) for v in setting["layers"]))
    inputs, gradients = torch.zeros(setting["micro"], 1), torch.zeros(setting["gradients"] // 4)

    def step():
        for _ in range(setting["micro_batches"]):
            model(inputs).sum().backward()
        dist.all_reduce(gradients)

    return step


dist.init_process_group("outboard")
for setting in json.loads(sys.argv[1]):
    step = (replicas if setting.get("gradients") else pipeline)(setting)
    step()
    seconds = []
    for _ in range(setting["steps"]):
        dist.barrier()
        began = time.perf_counter()
        step()
        dist.barrier()
        seconds.append(time.perf_counter() - began)
    if dist.get_rank() == 0:
        print(json.dumps({"seconds": seconds}), flush=True)
dist.barrier()
