"""AccPar's cost mode: by which axis every layer of AlexNet is split over two halves, from patterns alone.

    python benchmarks/accpar.py [--batch 512]

Types of a layer with a matrix of weights (Song, Chen, Zhuo, Qian, Chen, Li, "AccPar: tensor partitioning for
heterogeneous deep learning accelerators", HPCA 2020): I splits the samples, II the input channels, III the output
channels. What lacks the axis is summed over both halves: the gradient of the weights, the output, or the gradient of
the input. Communication alone is counted, in elements; the paper has I I I I I II III II at its level 0. Dynamic
programming over the chain of layers is exact.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from ops.models import alexnet
from taskflow import Graph, Operator
from taskflow.graph.samples import sample_axes

TYPES = "I", "II", "III"
PAPER = "I", "I", "I", "I", "I", "II", "III", "II"
# Half of what lies between two layers is sent, but where the first one leaves it as the second one reads it.
FREE = {("I", "I"), ("II", "III"), ("III", "II")}


@dataclass(frozen=True)
class Layer:
    """A layer: elements that it reads, and elements that are summed over both halves, by type."""

    name: str
    reads: int
    sums: Mapping[str, int]


def layers_of(graph: Graph) -> list[Layer]:
    """The forward operators with a matrix of weights, in program order."""
    samples = sample_axes(graph)
    weighted = [(op, k) for op in graph.operators for k in _matrices(op) if op.follows is None]
    return [_layer(op, k, samples[op.name]) for op, k in weighted]


def _matrices(op: Operator) -> list[int]:
    return [
        k for k, region in enumerate(op.inputs) if region.role == "parameter" and region.ndim > 1
    ]


def _layer(op: Operator, weight: int, sample: str) -> Layer:
    """Axes of the weights that the output has are output channels, those that it sums over are input channels."""
    terms = op.bound.term_axes
    data, matrix, output = terms[0], terms[weight], terms[len(op.inputs)]
    axes = {"I": {sample}, "II": (matrix & data) - output, "III": (matrix & output) - data}
    sizes = {
        data: prod(op.inputs[0].shape),
        matrix: prod(op.inputs[weight].shape),
        output: prod(op.outputs[0].shape),
    }
    sums = {
        kind: sum(size for term, size in sizes.items() if not axes[kind] & term) for kind in TYPES
    }
    return Layer(op.name, sizes[data], sums)


def best_types(layers: Sequence[Layer]) -> tuple[int, tuple[str, ...]]:
    """The fewest elements that are sent, and the type of every layer."""
    best = {kind: (layers[0].sums[kind], (kind,)) for kind in TYPES}
    for layer in layers[1:]:
        best = {
            kind: min(_after(best[last], last, kind, layer) for last in TYPES) for kind in TYPES
        }
    return min(best.values())


def _after(
    before: tuple[int, tuple[str, ...]], last: str, kind: str, layer: Layer
) -> tuple[int, tuple[str, ...]]:
    elements, types = before
    between = 0 if (last, kind) in FREE else layer.reads // 2
    return elements + between + layer.sums[kind], (*types, kind)


def main() -> None:
    """Print what every layer sums by type, and the best types."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=512)
    layers = layers_of(alexnet.build(batch=parser.parse_args().batch))
    elements, types = best_types(layers)
    for layer, kind in zip(layers, types, strict=True):
        sums = ", ".join(f"{each} {layer.sums[each] / 1e6:.2f}" for each in TYPES)
        print(
            f"{layer.name:6} {kind:4} reads {layer.reads / 1e6:6.2f}; sums {sums} million elements"
        )
    verdict = "as in the paper" if types == PAPER else f"the paper has {' '.join(PAPER)}: MISSED"
    print(f"{' '.join(types)}, {elements / 1e6:.2f} million elements: {verdict}")


if __name__ == "__main__":
    main()
