"""Micro-batches and orders that a trainer refuses."""

from taskflow import CostModel, MachineModel, Trainer, data_parallel, single_device
from taskflow.schedule import one_f_one_b
from tests.refusals import each_refused
from tests.train.test_accumulate import network


def trainer(strategy=single_device, devices=1, batch=64, parts=1, **options):
    machine = MachineModel.uniform(devices)
    graph, costs = network(parts=parts, batch=batch), CostModel.analytic(machine)
    return Trainer(graph, machine=machine, strategy=strategy, costs=costs, quiet=True, **options)


REFUSED = [
    (
        "samples that do not divide",
        lambda: trainer(accumulate=3),
        "micro-batches: the 64 samples of 'fc0' do not divide into 3",
    ),
    (
        "too few samples",
        lambda: trainer(data_parallel, devices=4, accumulate=32),
        "micro-batches: 'fc0' has 64 samples; 32 micro-batches in 4 parts need 128",
    ),
    (
        "parts of a batch norm",
        lambda: trainer(data_parallel, devices=2, batch=48, parts=4, accumulate=3),
        "micro-batches: 'bn0' or what follows it cannot be split into 6 along its samples, 'm b'",
    ),
    (
        "no number",
        lambda: trainer(accumulate=2.0),
        "micro-batches: 2.0 of them; a positive number is needed",
    ),
    (
        "zero",
        lambda: trainer(accumulate=0),
        "micro-batches: 0 of them; a positive number is needed",
    ),
    (
        "no order",
        lambda: trainer(order="1f1b"),
        "schedule '1f1b': is none of gpipe, looped_bfs, one_f_one_b, interleaved, zb_h1, zb_v, chimera, interlaced, "
        "three_f_one_b, program, by_ordinal, first_ready, critical_path, own_path, depth_first, forward_first, "
        "crossover, prefetch, pieces, searched",
    ),
    (
        "a batch norm that needs all micro-batches",
        lambda: trainer(accumulate=4, order=one_f_one_b),
        "schedule 'one_f_one_b': 'bn0.var' needs all 4 micro-batches of 'bn0.mean' before its first point; use "
        "ops.batch_norm(..., parts=4), or an order that knows no stages, such as taskflow.schedule.program",
    ),
]
test_refused = each_refused(REFUSED)


def test_a_batch_norm_in_the_order_of_the_program():
    assert trainer(accumulate=4).plan.parts == 4
