"""Compares shardings of a transformer over four ranks with one process: losses and parameters of 4 steps."""

import random

import torch
import torch.distributed as dist
from torch import nn

import outboard.torch
from outboard import shard

dist.init_process_group("outboard")
WIDTH, HEADS, LENGTH, WORDS, BATCH, STEPS = 16, 4, 8, 12, 16, 4


def layers():
    torch.manual_seed(1)
    block = lambda: nn.Sequential(  # noqa: E731
        shard.Residual(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), shard.Attention(WIDTH, HEADS, causal=True), nn.Linear(WIDTH, WIDTH)),
        shard.Residual(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)),
    )
    return [nn.Embedding(WORDS, WIDTH), block(), block(), nn.Linear(WIDTH, WORDS)]


def batch(step):
    generator = torch.Generator().manual_seed(step)
    words = torch.randint(WORDS, (BATCH, LENGTH + 1), generator=generator)
    return words[:, :-1], words[:, 1:]


def loss(y, words):
    return nn.functional.cross_entropy(y.reshape(-1, WORDS), words.reshape(-1))


def alone():
    model = nn.Sequential(*layers())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        value = loss(model(batch(step)[0]), batch(step)[1])
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return model, losses


def check(name, strategies, **options):
    pipeline = outboard.torch.pipeline(layers(), loss, strategies=strategies, **options)
    optimizer = torch.optim.SGD(pipeline.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        losses.append(pipeline.step(*batch(step)))
        optimizer.step()
    first = len(trained) * pipeline.rank // pipeline.stages
    worst = max(abs(a - b) for a, b in zip(losses, want))
    for i, layer in enumerate(pipeline.module):
        whole = trained[first + i]
        if isinstance(layer, shard.Sharded):
            whole = shard.Sharded(whole, strategies[first + i], layer.group)
        worst = max([worst, *((p - q).abs().max().item() for p, q in zip(layer.parameters(), whole.parameters()))])
    print(name, "equal" if worst <= 1e-6 else f"differs by {worst}: {strategies}", flush=True)


HALF = ["replicated", "column", "heads", "row", "replicated", "replicated", "column", "column", "row", "replicated"]
SEQUENCE = ["sequence", "column", "heads", "row", "sequence", "sequence", "column", "column", "row", "sequence"]
SAMPLES = ["samples"] * 10
trained, want = alone()
check("megatron", [["row"], HALF, HALF, ["column"]], tensor=4)
check("sequence", [["sequence"], SEQUENCE, SEQUENCE, ["sequence"]], tensor=4)
check("samples", [["samples"], SAMPLES, SAMPLES, ["samples"]], tensor=4, micro_batches=2)
check("stages", [["column"], HALF, SEQUENCE, None], tensor=2, micro_batches=4)
check("stages, recomputed", [["row"], SEQUENCE, HALF, ["row"]], tensor=2, micro_batches=4, schedule="gpipe", recompute=True)
check("replicas", [["row"], HALF, SAMPLES, ["row"]], tensor=2, replicas=2, micro_batches=2)
check("neighbours", [None] * 4, replicas=2, micro_batches=2, neighbours="replicas")
# Any strategies may follow each other.
for seed in range(5):
    r = random.Random(seed)
    chosen = [[r.choice(list(shard._STRATEGIES[shard.kind(m)])) for _, m in shard.operators(layer)] for layer in layers()]
    check(f"random {seed}", chosen, tensor=4)
