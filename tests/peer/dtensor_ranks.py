"""A rank of torch's gloo that runs architectures under searched plans as DTensor; `test_dtensor` starts them.

Prints for every name the largest difference of outputs and gradients from the module's own numbers, the styles that
split something, and how many operators the plan could not say.
"""

import copy
import sys
from datetime import timedelta
from functools import reduce
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
import torch.distributed as dist
from architectures import made
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.experimental import implicit_replication
from torch.nn.attention import SDPBackend, sdpa_kernel

LONGEST = timedelta(seconds=180)  # a rank that waits longer for another one gives up


def searched(module, inputs, devices):
    """The plan for slow devices with fast links, so that it pays to split these small models; rank 0 searches."""
    found = [None]
    if dist.get_rank() == 0:
        import ops
        from taskflow import CostModel, Device, MachineModel, search

        model = ops.from_torch(module, inputs, compare=False)
        ops.sgd(reduce(ops.add, [ops.mean(ops.multiply(y, y)) for y in model.outputs]), lr=0.1)
        slow = Device(flops_per_second=2e6, memory_bandwidth=1e8, overhead_seconds=1e-7)
        machine = MachineModel.uniform(devices, slow, 1e9, 1e-7)
        result = search(model.graph, machine, CostModel.analytic(machine), proposals=40, seed=1)
        found = [ops.to_dtensor(result.strategy, module, model)]
    dist.broadcast_object_list(found, src=0)
    return found[0]


def results(module, inputs):
    with sdpa_kernel(SDPBackend.MATH):
        y = module(*inputs)
    return [t for t in torch.utils._pytree.tree_leaves(y) if isinstance(t, torch.Tensor)]


def whole(x):
    return x.full_tensor() if isinstance(x, DTensor) else x


def run(name, devices):
    module, inputs = made(name)
    plan = searched(module, inputs, devices)
    other = copy.deepcopy(module)
    for part in (module, other):
        part.zero_grad()
    expected = results(module, inputs)
    sum((y * y).sum() for y in expected).backward()
    plan.parallelize(other)
    with implicit_replication():
        found = results(other, inputs)
        sum((y * y).sum() for y in found).backward()
    differences = [
        (whole(a).detach() - b.detach()).abs().max() / b.abs().max()
        for a, b in zip(found, expected)
    ]
    own = dict(other.named_parameters())
    grads = [
        (whole(own[k].grad) - p.grad) for k, p in module.named_parameters() if p.grad is not None
    ]
    scale = max(p.grad.abs().max() for p in module.parameters() if p.grad is not None)
    differences += [g.abs().max() / scale for g in grads]
    split = sum(
        any(d is not None for s in (*p.weights.values(), p.read) for d in s)
        for p in plan.placed.values()
    )
    return float(max(differences)), split, len(plan.placed), len(plan.unsaid)


def main(rank, devices, file, names):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{file}", rank=rank, world_size=devices, timeout=LONGEST
    )
    for name in names:
        worst, split, styles, unsaid = run(name, devices)
        if rank == 0:
            print(f"{name}|{worst}|{split}|{styles}|{unsaid}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
