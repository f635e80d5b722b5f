"""Names that hold brackets, quotes, line ends and control characters are printed, not obeyed."""

import json

import pytest

from taskflow import CostModel, MachineModel, data_parallel, explain, lower, simulate
from taskflow.cli import main
from taskflow.core.text import describe_memory, printable
from taskflow.report.console import make_console, print_table, show_progress
from taskflow.report.dot import strategy_dot, task_graph_dot
from tests import commands, tiny
from tests.lowered import matrix

NAME = 'fc [/] "q" [red]\n\x1b]0;title\x07 \u202e:smile:'
SHOWN = r'fc [/] "q" [red]\n\x1b]0;title\x07 \u202e:smile:'
TWO = MachineModel.uniform(2)


@pytest.fixture
def graph():
    graph = tiny.linear(matrix(), 4, NAME).graph
    tiny.sgd(tiny.mean_square(graph.regions[NAME]))
    return graph


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")


def assert_harmless(text):
    assert SHOWN in text
    assert not any(c in text for c in "\x07\u202e") and "\x1b]" not in text


def test_an_explanation(graph):
    costs = CostModel.analytic(TWO)
    assert_harmless(str(explain(graph, data_parallel(graph, TWO), TWO, costs)))
    assert_harmless(repr(graph))


def test_files(graph, tmp_path):
    strategy, doubled = data_parallel(graph, TWO), SHOWN.replace("\\", "\\\\").replace('"', '\\"')
    task_graph = lower(graph, strategy, TWO)
    for text in (
        strategy_dot(graph, strategy, 2),
        task_graph_dot(task_graph),
        task_graph_dot(task_graph, most=1),
    ):
        assert doubled in text and text.isascii() and "\x1b" not in text
    simulate(task_graph, CostModel.analytic(TWO)).save_trace(path := tmp_path / "t.json")
    text = path.read_text()
    assert text.isascii() and "\x1b" not in text
    assert any(NAME in event["name"] for event in json.loads(text)["traceEvents"])


def test_a_table_and_a_bar_on_a_terminal(terminal, capsys):
    console = make_console()
    assert console.is_terminal
    print_table(console, [(NAME, "[b]"), ("1", NAME)])
    with show_progress(console) as show:
        show(1, 2, "at [/] :smile:")
    out = capsys.readouterr().out
    assert_harmless(out)
    assert "[b]" in out and "at [/] :smile:" in out


@pytest.mark.parametrize("command", ["search", "simulate", "explain"])
def test_commands(command, tmp_path, monkeypatch, capsys):
    (tmp_path / f"names_of_{command}.py").write_text(commands.MODEL)
    monkeypatch.chdir(tmp_path)
    options = ["--proposals", "3"] if command == "search" else []
    assert (
        main(
            [
                command,
                f"{tmp_path}/names_of_{command}.py:build",
                "--arg",
                f"name={NAME!r}",
                *options,
            ]
        )
        == 0
    )
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err and (SHOWN in out or command != "explain")


def test_a_refusal_is_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "model_of_lines.py").write_text(commands.MODEL)
    monkeypatch.chdir(tmp_path)
    model = f"{tmp_path}/model_of_lines.py:build"
    for options in (
        ["--strategy", "no\n\x1b[2Jfile"],
        ["--arg", "no\x1b=1"],
        ["--arg", "batch=" + "(" * 10**5],
    ):
        line = commands.refusal(capsys, "simulate", model, *options)
        assert line.isprintable()


def test_memory_is_in_binary_units():
    sizes = [0, 2**20 - 1, 2**20, 1.5 * 2**20, 2**30 - 2**20, 79.65 * 2**30, 2**42]
    expected = [
        "0 B",
        "1048575 B",
        "1.000 MiB",
        "1.500 MiB",
        "1023.000 MiB",
        "79.650 GiB",
        "4096.000 GiB",
    ]
    assert [describe_memory(n) for n in sizes] == expected
    assert printable("a\nb\tµ│", keep="\n") == "a\nb\\tµ│"
