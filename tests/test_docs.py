"""The table of operators: up to date, complete, and tested at uneven degrees."""

import importlib.util
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import ops
from tests.ops.cases import CASES

ROOT = Path(__file__).parents[1]

# Public, but no operators: optimizers, initial values, weights, loops over the cells and parts of the layers that the
# table has.
OTHERS = {
    *("combine", "dispatch", "load_balance_loss", "from_torch", "from_torch_state", "Imported"),
    *("adagrad", "adam", "adama", "adamw", "lamb", "rmsprop", "sgd"),
    *(
        "constant",
        "fan_in_uniform",
        "glorot_normal",
        "glorot_uniform",
        "he_normal",
        "he_uniform",
        "normal",
        "uniform",
    ),
    *("to_torch", "to_dtensor", "DTensorPlan", "ParameterGroup", "RotaryScaling", "gradients"),
    *("Edges", "edges", "graph_order", "alibi_slopes"),  # tables
    *(
        "ctc_decode",
        "claimed",
        "fake_quantize",
    ),  # of arrays; a transform's, see tests/graph/test_quantize.py
    *("zeros", "RecurrentWeights", "recurrent_weights", "gru_steps", "lstm_steps", "rnn_steps"),
}

DEGREES = (2, 3, 4)

# Axes whose extents nobody chooses: gates, the one point of time of a step, the one channel of a group.
GIVEN = {
    (kind, axis)
    for cell in ("lstm", "gru", "rnn")
    for kind in (cell, f"{cell}_cell")
    for axis in "gs"
}
GIVEN |= {("instance_norm", "c")}  # one channel a group
GIVEN |= {("avg_pool1d", "h"), ("max_pool1d", "h")}  # a sequence is an image of one line


# Their axes hang together by groups, choices and capacity, or by a table; tests/ops/cases_experts.py and
# tests/graph/test_image.py have what fits.
TIED = {"count_dropped", "expert_slots", "mixture_of_experts", "to_edges", "edge_softmax"}
TIED |= {
    "linear_cross_entropy",
    "repeat_heads",
}  # of few classes and heads, see tests/ops/cases_torch_names.py


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{name}_table", ROOT / "docs" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def table() -> ModuleType:
    return load("operators")


def test_the_table_is_up_to_date(table: ModuleType) -> None:
    """That of what they run on GPUs: tests/ops/test_cuda_source.py."""
    assert table.TARGET.read_text(encoding="utf-8") == table.text(), "run `make docs`"


def test_figures_of_gpus_are_those_of_the_result_files() -> None:
    figures = load("cuda_figures")
    assert figures.TARGET.read_text(encoding="utf-8") == figures.text(), "run `make docs`"


def test_no_model_allocates_or_waits_on_a_gpu() -> None:
    """As the table says, which is up to date."""
    cuda = load("cuda_operators")
    tables = cuda.TARGET.read_text(encoding="utf-8").partition(cuda.LAUNCHES)[0]
    _, operators, models = re.split(r"^\|---.*\n", tables, flags=re.MULTILINE)
    rows = [line.split("|")[-3:-1] for line in models.splitlines()]
    assert len(rows) == len(cuda.TINY)
    assert all([int(number) for number in row] == [0, 0] for row in rows), rows
    assert len(operators.splitlines()) > 100
    assert not re.search(r"\(.*(allocates|waits).*\)", operators)


def test_every_public_function_is_in_the_table(table: ModuleType) -> None:
    shown = {table.function_of(case) for case in CASES}
    assert {*ops.__all__} - OTHERS - shown == set()


def test_every_operator_is_split_unevenly_at_every_degree(table: ModuleType) -> None:
    """Law 1 runs every case at these degrees; here, that one case of each function is long enough along every axis."""
    short: dict[str, set[str]] = {}
    for case in CASES:
        graph, _ = case.build()
        function = table.function_of(case)
        axes = {
            f"{axis} ({op.extents[axis]})"
            for op in table.leaders_of(function, graph)
            for axis in op.split_axes
            if (function, axis) not in GIVEN
            and not all(op.extents[axis] % d and op.extents[axis] > d for d in DEGREES)
        }
        short[function] = min(short.get(function, axes), axes, key=len)
    assert {
        f: axes for f, axes in short.items() if axes and f in ops.__all__ and f not in TIED
    } == {}


def test_every_public_function_says_what_it_takes_and_gives() -> None:
    for name in sorted({*ops.__all__}):
        text = inspect.getdoc(getattr(ops, name)) or ""
        assert len(text) > 20, name


def test_the_page_of_what_once_went_wrong_names_tests_that_are_there() -> None:
    rows = [
        line.split("|")
        for line in (ROOT / "docs" / "trust.md").read_text().splitlines()
        if "::" in line
    ]
    assert sorted(int(number) for _, number, *_ in rows) == list(range(1, 42))
    for row in rows:
        path = ""
        for file, test, case in re.findall(r"`([^`]*)::(test_\w+)(?:\[([^`]*)\])?`", row[3]):
            path = file or path
            text = (ROOT / path).read_text()
            made = f"\n{test} = each_refused(REFUSED)\n" if case else f"\ndef {test}("
            assert made in text and case in text, (path, test, case)


def test_the_changelog_has_few_entries_of_one_line() -> None:
    head, *releases = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")
    assert "Keep a Changelog" in head and releases
    for release in releases:
        lines = [line for line in release.splitlines()[1:] if line]
        sections = [line for line in lines if line.startswith("#")]
        entries = [line for line in lines if line.startswith("- ")]
        assert [s for s in ("### Added", "### Changed", "### Fixed") if s in sections] == sections
        assert len(sections) + len(entries) == len(lines)
        assert 0 < len(entries) <= 80
        assert [line for line in entries if len(line) > 120] == []
