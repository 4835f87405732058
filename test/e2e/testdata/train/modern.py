"""Calls that came with PyTorch 2, by the default back end and by gloo beside it: functional collectives,
coalesced ones, DTensor, FSDP, groups with names, and checkpoints of torch.distributed."""

import shutil
import tempfile

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import Shard, distribute_tensor

dist.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()


def own():
    return torch.arange(4, dtype=torch.float32) + rank


def functions(group):
    return [
        functional.all_reduce(own(), "sum", group) + 0,
        functional.all_gather_tensor(own(), 0, group) + 0,
        functional.reduce_scatter_tensor(own().repeat(size), "sum", 0, group) + 0,
        functional.all_to_all_single(own(), [2, 2], [2, 2], group) + 0,
        functional.broadcast(own(), 1, group) + 0,
    ]


def coalesced(group):
    gathered, scattered = [torch.zeros(8), torch.zeros(8)], [torch.zeros(2), torch.zeros(2)]
    with dist._coalescing_manager(group, async_ops=True) as calls:
        for out in gathered:
            dist.all_gather_into_tensor(out, own(), group=group)
    calls.wait()
    with dist._coalescing_manager(group, async_ops=True) as calls:
        for out in scattered:
            dist.reduce_scatter_tensor(out, own(), group=group)
    calls.wait()
    return gathered + scattered


def sharded_tensor(group):
    whole = distribute_tensor(torch.arange(12.0).reshape(6, 2), DeviceMesh.from_group(group, "cpu"), [Shard(0)])
    return [whole.sum().full_tensor(), whole.redistribute(placements=[Shard(1)]).to_local()]


def fully_sharded(group):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    model = FullyShardedDataParallel(model, process_group=group, device_id=torch.device("cpu"))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    torch.manual_seed(rank)
    for _ in range(3):
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    with FullyShardedDataParallel.summon_full_params(model):
        return [p.detach().clone() for p in model.parameters()]


def named(group):
    some = dist.new_group(backend=dist.get_backend(group), group_desc="some")
    total = own()
    dist.all_reduce(total, group=some)
    text = f"{some.group_desc} {bool(some.group_name)}"
    dist.destroy_process_group(some)
    return [total, torch.tensor(list(text.encode()))]


def restored(group):
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder, 0, group=group)
    checkpoint.save({"w": torch.arange(4.0)}, checkpoint_id=folder[0], process_group=group)
    state = {"w": torch.zeros(4)}
    checkpoint.load(state, checkpoint_id=folder[0], process_group=group)
    dist.barrier(group)
    if rank == 0:
        shutil.rmtree(folder[0])
    return [state["w"]]


gloo = dist.new_group(backend="gloo")
for case in (functions, coalesced, sharded_tensor, fully_sharded, named, restored):
    want, got = case(gloo), case(dist.group.WORLD)
    same = len(want) == len(got) and all(map(torch.equal, want, got))
    print(case.__name__, "equal" if same else (want, got), flush=True)
dist.destroy_process_group()
