"""Ranks of torch's gloo that run models under exported plans: `gloo_ranks.py DEVICES FILE WAY:NAME ...`.

Plans are made before ranks are forked, so that all is imported once. Ways: `dtensor`, an architecture under a searched
plan; `fsdp` and `pipelining`, a model of `titan` under torchtitan configurations. Prints for every job the largest
difference of outputs and gradients from the module's own numbers, how many parts are split (submodules, units, stages),
how many there are, and how many parts of plans were not said.
"""

import copy
import multiprocessing
import sys
from dataclasses import replace
from datetime import timedelta
from functools import reduce
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import titan
import torch
import torch.distributed as dist
from architectures import made
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.experimental import implicit_replication
from torch.nn.attention import SDPBackend, sdpa_kernel

import ops
from taskflow import CostModel, Device, MachineModel, export_plan, search
from taskflow.bridges.making import PlanMaker
from taskflow.bridges.recipe import Recipe, even_layout, with_ends

LONGEST = timedelta(seconds=180)  # a rank that waits longer for another one gives up


def searched(module, inputs, devices):
    """The plan for slow devices with fast links, so that it pays to split these small models."""
    model = ops.from_torch(module, inputs, compare=False)
    ops.sgd(reduce(ops.add, [ops.mean(ops.multiply(y, y)) for y in model.outputs]), lr=0.1)
    slow = Device(flops_per_second=2e6, memory_bandwidth=1e8, overhead_seconds=1e-7)
    machine = MachineModel.uniform(devices, slow, 1e9, 1e-7)
    result = search(model.graph, machine, CostModel.analytic(machine), proposals=40, seed=1)
    return ops.to_dtensor(result.strategy, module, model)


def recipes(way, devices):
    """FSDP alone, and pipelines of stages of one layer with FSDP between their replicas."""
    sharded = Recipe(data=devices, sharding="parameters", micro_batches=2, schedule="by_ordinal")
    if way == "fsdp":
        return [sharded, replace(sharded, gathers_again=False, micro_batches=1, schedule="")]
    pipelined = replace(
        sharded, pipeline=2, data=devices // 2, micro_batches=4, gathers_again=False
    )
    one_each = even_layout(titan.LAYERS, titan.LAYERS)
    return [
        replace(pipelined, layout=with_ends([1, 3]), schedule="one_f_one_b"),
        replace(pipelined, layout=one_each, schedule="interleaved"),
        replace(pipelined, layout=one_each, schedule="looped_bfs"),
        replace(pipelined, layout=with_ends([1, 2, 1]), schedule="zb_v"),
    ]


def exported(way, name, devices):
    """Texts of torchtitan's configurations, and how many parts of plans they do not say."""
    module, words, _ = titan.model(name)
    model = ops.from_torch(module, words, compare=False)
    ops.sgd(ops.mean(ops.multiply(model.output, model.output)), lr=0.1)
    machine = MachineModel.uniform(devices)
    maker, costs = PlanMaker(model.graph, machine), CostModel.analytic(machine)
    found = [
        export_plan(model.graph, maker.plan(recipe), machine, costs, "torchtitan")
        for recipe in recipes(way, devices)
    ]
    return [each.text for each in found], sum(len(each.unsaid) for each in found)


def results(module, inputs):
    with sdpa_kernel(SDPBackend.MATH):
        y = module(*inputs)
    return [t for t in torch.utils._pytree.tree_leaves(y) if isinstance(t, torch.Tensor)]


def whole(x):
    return x.full_tensor() if isinstance(x, DTensor) else x


def run_dtensor(plan, name):
    module, inputs = made(name)
    other = copy.deepcopy(module)
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
    grads = {k: p.grad for k, p in other.named_parameters()}
    differences.append(of_gradients(grads, module))
    split = sum(
        any(d is not None for s in (*p.weights.values(), p.read) for d in s)
        for p in plan.placed.values()
    )
    return float(max(differences)), split, len(plan.placed), len(plan.unsaid)


def of_gradients(found, module):
    """The largest difference of some gradients from those of a module, relative to the largest of these."""
    own = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    scale = max(grad.abs().max() for grad in own.values())
    return max(
        (whole(found[name]) - own[name]).abs().max() / scale for name in own if name in found
    )


def run_titan(plan, name):
    """A step under every configuration; ranks of a stage have its gradients, the last stage the loss."""
    texts, unsaid = plan
    module, words, targets = titan.model(name)
    expected = titan.loss_of(module(words), targets)
    expected.backward()
    worst, parts, units = 0.0, 0, 0
    for text in texts:
        config = titan.config_of(text)
        stages = config.parallelism.pipeline_parallel_degree
        shape = stages, dist.get_world_size() // stages
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("pipeline", "data"))
        loss, grads = titan.train(config, module, words, targets, mesh)
        loss = torch.tensor(float(loss), dtype=torch.float64)
        dist.all_reduce(loss)
        names = [None] * dist.get_world_size()
        dist.all_gather_object(names, [n for n, g in grads.items() if isinstance(g, DTensor)])
        covered = set().union(*names)
        assert covered == dict(module.named_parameters()).keys(), covered
        found = torch.stack([abs(loss - expected.detach()), of_gradients(grads, module)])
        dist.all_reduce(found, dist.ReduceOp.MAX)
        worst = max(worst, *found.tolist())
        parts += len(vars(config.parallelism).get("module_fqns_per_model_part", [()]))
        units += len(module.layers) + 2
    return worst, parts, units, unsaid


def rank_of(rank, devices, file, plans):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{file}", rank=rank, world_size=devices, timeout=LONGEST
    )
    for (way, name), plan in plans.items():
        found = (run_dtensor if way == "dtensor" else run_titan)(plan, name)
        if rank == 0:
            print("|".join(map(str, (f"{way}:{name}", *found))), flush=True)
    dist.destroy_process_group()


def main(devices, file, jobs):
    plans = {}
    for way, name in (job.split(":") for job in jobs):
        torch.manual_seed(0)
        make = exported if way != "dtensor" else lambda _, name, n: searched(*made(name), n)
        plans[way, name] = make(way, name, devices)
    forked = multiprocessing.get_context("fork")
    ranks = [
        forked.Process(target=rank_of, args=(rank, devices, file, plans)) for rank in range(devices)
    ]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    sys.exit(max(abs(each.exitcode) for each in ranks))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
