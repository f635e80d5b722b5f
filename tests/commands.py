"""How the command line is tested: in this process, with a model in a file."""

from taskflow.cli import main

MODEL = """
from taskflow import Graph
from tests import tiny

LIMIT = 3


def build(batch=8, width=4, name="fc"):
    graph = Graph()
    x = graph.input("x", (batch, 6))
    tiny.sgd(tiny.mean_square(tiny.tanh(tiny.linear(x, width, name=name))))
    return graph


def deep():
    graph = Graph()
    h = graph.input("x", (8, 6))
    for k in range(4):
        h = tiny.linear(h, 6, name=f"fc{k}")
    tiny.sgd(tiny.mean_square(h))
    return graph


def nothing():
    return None


def fails():
    raise RuntimeError("no data")


def refuses():
    graph = Graph()
    return graph.input("x", (0,))
"""


def refusal(capsys, *arguments):
    """What a refused command line says: one line, with exit status 2 and nothing else."""
    assert main(list(map(str, arguments))) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("taskflow: ") and err.count("\n") == 1
    return err.removeprefix("taskflow: ").removesuffix("\n")
