"""What many refusals are tested with."""

from types import SimpleNamespace

import pytest

from taskflow import Graph


@pytest.fixture
def r():
    """Regions that operators are called with; `wide` and `other` are of other graphs."""
    graph = Graph()
    return SimpleNamespace(
        x=graph.input("x", (5, 3)),
        one=graph.input("one", (1, 3)),
        t=graph.input("t", (5,), "int32"),
        scalar=graph.input("scalar", ()),
        line=graph.input("line", (2, 4, 5)),
        image=graph.input("image", (2, 3, 5, 5)),
        heads=graph.input("heads", (2, 5, 3, 4)),
        mask=graph.input("mask", (2, 3, 4, 5), "bool"),
        wide=Graph().input("image", (2, 4, 5, 5)),
        other=Graph().input("other", (5, 3)),
    )
