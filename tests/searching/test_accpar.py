"""AccPar's cost mode: types of layers from patterns, what each sums, and the best types of a chain."""

from itertools import pairwise, product

import pytest

import ops
from benchmarks.accpar import FREE, PAPER, TYPES, Layer, alexnet, best_types, layers_of
from taskflow import Graph


@pytest.fixture(scope="module")
def layers():
    return layers_of(alexnet.build(batch=512))


def test_types_of_alexnet_are_those_of_the_paper(layers):
    assert best_types(layers)[1] == PAPER


def test_a_layer_sums_weights_outputs_or_inputs(layers):
    first, last = layers[0], layers[-1]
    assert first == Layer(
        "conv1",
        512 * 3 * 224 * 224,
        {"I": 64 * 3 * 11 * 11, "II": 512 * 64 * 55 * 55, "III": 512 * 3 * 224 * 224},
    )
    assert last.sums == {"I": 1000 * 4096, "II": 512 * 1000, "III": 512 * 4096}


def test_types_are_found_without_names():
    """A matrix laid out the other way, with axes of other names: large weights, few samples."""
    graph = Graph()
    h = graph.input("x", (4, 64))
    for k in range(3):
        weight = graph.parameter(f"w{k}", (64, 64))
        h = graph.launch(f"op{k}", "s q, q r -> s r", [h, weight], kernel=lambda ctx, *arrays: None)
    elements, types = best_types(layers_of(graph))
    assert types in {("II", "III", "II"), ("III", "II", "III")} and elements == 3 * 4 * 64
    assert best_types(layers_of(graph)[:1])[0] == 4 * 64


def test_the_best_of_all_types(layers):
    def elements(types):
        between = [
            0 if pair in FREE else layer.reads // 2
            for layer, pair in zip(layers[1:], pairwise(types), strict=True)
        ]
        return sum(layer.sums[kind] for layer, kind in zip(layers, types, strict=True)) + sum(
            between
        )

    assert best_types(layers)[0] == min(
        elements(types) for types in product(TYPES, repeat=len(layers))
    )


def test_many_samples_and_few_weights_are_split_by_samples():
    graph = Graph()
    h = ops.linear(ops.linear(graph.input("x", (4096, 8)), 8, name="a"), 8, name="b")
    graph.output("h", h)
    assert best_types(layers_of(graph)) == (2 * 64, ("I", "I"))
