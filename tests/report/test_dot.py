"""DOT: the exact text of a small strategy and task graph, and large ones by operator."""

from taskflow import Device, Graph, MachineModel, ParallelConfig, data_parallel, lower
from taskflow.report.dot import strategy_dot, task_graph_dot
from tests import tiny

TWO = MachineModel.uniform(2, Device("emulated"))


def network():
    graph = Graph()
    graph.output("y", tiny.tanh(tiny.linear(graph.input("x", (8, 6)), 4, name='fc "1"')))
    strategy = data_parallel(graph, TWO)
    strategy["tanh"] = ParallelConfig({}, (1,))
    return graph, strategy


STRATEGY = r"""digraph strategy {
rankdir=TB;
node [shape=box, style=filled, fillcolor=white];
"fc \"1\"" [label="fc \"1\"\nb:2 on 0,1", fillcolor=lightblue];
"tanh" [label="tanh\nwhole on 1", fillcolor=lightgrey];
"fc \"1\"" -> "tanh" [label="fc \"1\" 128 B"];
}
"""

ROWS = r"""digraph tasks {
rankdir=TB;
node [shape=box, style=filled, fillcolor=white];
subgraph cluster_0 { label="device 0";
r0 [label="0: feed x[0]\n96 B"];
r2 [label="2: point fc \"1\"[0]\n256 B"];
r6 [label="6: copy tanh[0] from 1\n128 B"];
}
subgraph cluster_1 { label="device 1";
r1 [label="1: feed x[1]\n96 B"];
r3 [label="3: point fc \"1\"[1]\n256 B"];
r4 [label="4: copy fc \"1\"[0] from 0\n64 B"];
r5 [label="5: point tanh[0]\n256 B"];
}
r0 -> r2;
r1 -> r3;
r2 -> r4;
r3 -> r5;
r4 -> r5;
r5 -> r6;
}
"""

OPERATORS = r"""digraph tasks {
rankdir=TB;
node [shape=box, style=filled, fillcolor=white];
v2 [label="x\n2 moves"];
v0 [label="fc \"1\"\n2 tasks"];
v4 [label="fc \"1\"\n1 move, 64 B moved"];
v1 [label="tanh\n1 task"];
v5 [label="tanh\n1 move, 128 B moved"];
v0 -> v1 [label=1];
v0 -> v4 [label=1];
v1 -> v5 [label=1];
v2 -> v0 [label=2];
v4 -> v1 [label=1];
}
"""


def test_a_strategy():
    assert strategy_dot(*network(), devices=2) == STRATEGY


def test_a_task_graph_row_by_row():
    assert task_graph_dot(lower(*network(), TWO)) == ROWS


def test_a_large_task_graph_by_operator():
    assert task_graph_dot(lower(*network(), TWO), most=6) == OPERATORS
