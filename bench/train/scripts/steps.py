"""Times the steps of pipelines and of replicas whose layers sleep for their compute time.

The argument is a list of settings in JSON: {"layers": [{"forward", "backward", "launch", "output"}],
"cuts", "micro", "micro_batches", "steps"}; with "gradients", bytes, the ranks are replicas of one
stage that accumulate and then average that many bytes. "replicas" is the number of replicas of a
pipeline, "tensor" the number of ranks of each of its stages: they sleep for their part of the time
and sum the outputs of each layer, and their gradients, as a row-parallel matrix behind a
column-parallel one does; "parameters" of a layer are bytes. Rank 0 prints {"seconds": [...]} for
each setting, by step.
"""

import json
import sys
import time

import torch
import torch.distributed as dist

import outboard.torch  # registers the back end
from outboard import shard


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
    def __init__(self, layer, tensor=1):
        super().__init__()
        self.layer = dict(layer, forward=layer["forward"] / tensor, backward=layer["backward"] / tensor)
        self.tensor, self.group = tensor, None
        if layer.get("parameters"):
            self.parameter = torch.nn.Parameter(torch.zeros(layer["parameters"] // 4 // tensor))

    def partial_parameters(self):
        return []  # Each rank has a part of them.

    def forward(self, x):
        y = Sleep.apply(x, self.layer)
        return y if self.tensor == 1 else shard.convert(y, shard.PARTIAL, shard.REPLICATED, self.group)


def pipeline(setting):
    tensor = setting.get("tensor") or 1
    layers = [Layer(v, tensor) for v in setting["layers"]]
    # A pipeline takes no gradient of its inputs, so its first layer needs a parameter to sleep for.
    layers[0] = First(layers[0])
    replicas = setting.get("replicas") or 1
    pipe = outboard.torch.pipeline(
        layers, loss=lambda y, t: y.sum(), micro_batches=setting["micro_batches"], cuts=setting["cuts"], replicas=replicas, tensor=tensor,
        strategies=[None] * len(layers))
    for module in pipe.module.modules():
        if isinstance(module, Layer) and tensor > 1:
            module.group = pipe.tensor_group
    inputs = torch.zeros(setting["micro"] * setting["micro_batches"] * replicas, 1)
    return lambda: pipe.step(inputs, inputs)


class First(torch.nn.Sequential):
    def __init__(self, layer):
        super().__init__(Scale(), layer)

    def partial_parameters(self):
        return []


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
