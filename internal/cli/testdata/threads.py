"""Takes the steps in which the numbers of threads are measured, and prints the chosen one."""

import torch

import outboard.torch  # noqa: F401
from outboard import threads

model = torch.nn.Linear(4, 4)
optimizers = [torch.optim.SGD(model.parameters(), lr=0.01), torch.optim.Adam(model.parameters())]
other = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100):
    optimizer = optimizers[step % 2]
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
state = threads.active.state
print("threads", state["threads"] == torch.get_num_threads(), 1 <= state["threads"] <= state["most"], state["steps"] > 4)
