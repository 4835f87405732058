"""A program as they often are: a loss that is a module, gradients that are accumulated, a module that
uses its child's parameters (MultiheadAttention), and one that returns several tensors (LSTM)."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn

import outboard.torch


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.recurrent = nn.LSTM(16, 16, batch_first=True)
        self.out = nn.Linear(16, 50)

    def forward(self, x):
        x = self.embedding(x)
        x, _ = self.attention(x, x, x)
        x, _ = self.recurrent(x)
        return self.out(x).flatten(0, 1)


dist.init_process_group("outboard")
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(Model())
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for i in range(24):
    words = torch.randint(50, (8, 12))
    last = i % 4 == 3
    with contextlib.nullcontext() if last else model.no_sync():
        criterion(model(words), words.flatten()).backward()
    if last:
        optimizer.step()
        optimizer.zero_grad()
