"""Data as it comes, batches of fewer samples, and what is done after steps and epochs."""

import csv
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ops
from taskflow import (
    Batches,
    CostModel,
    Graph,
    MachineModel,
    Trainer,
    callbacks,
    checkpoint,
    data_parallel,
)

Array = np.ndarray[Any, np.dtype[Any]]
X = np.random.default_rng(0).random((22, 3)).astype(np.float32)
T = (X.sum(1) > 1.5).astype(np.int64)


def build(samples: int = 8, training: bool = True, lr: float = 0.5) -> Graph:
    graph = Graph()
    x, t = graph.input("x", (samples, 3)), graph.input("t", (samples,), "int32")
    y = ops.linear(ops.tanh(ops.linear(x, 5, name="fc1")), 2, name="fc2")
    loss = ops.softmax_cross_entropy(y, t, name="loss")
    graph.output("accuracy", ops.accuracy(y, t))
    if training:
        ops.sgd(loss, lr=lr, momentum=0.9)
    else:
        graph.output("loss", loss)
    return graph


def evaluation(samples: int) -> Graph:
    return build(samples, training=False)


def trainer(lr: float = 0.5, **options: Any) -> Trainer:
    machine = MachineModel.uniform(2)
    return Trainer(
        build(lr=lr),
        machine=machine,
        strategy=data_parallel,
        costs=CostModel.analytic(machine),
        seed=4,
        **options,
    )


def cut(size: int, kind: str = "tuple") -> list[Any]:
    rows = [(X[k : k + size], T[k : k + size]) for k in range(0, len(X), size)]
    return rows if kind == "tuple" else [{"t": t, "x": x, "other": 1} for x, t in rows]


def weights(trained: Trainer) -> dict[str, Array]:
    return {
        name: trained.step.read(name).copy()
        for name in ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")
    }


def by_hand(epochs: int) -> dict[str, Array]:
    """A whole graph for every size, whose states are handed over: 8, 8 and 6 samples."""
    from taskflow import Executor, lower, single_device

    machine, state = MachineModel.uniform(1), dict[str, Array]()
    for _ in range(epochs):
        for x, t in cut(8):
            graph = build(len(x))
            with Executor(lower(graph, single_device(graph, machine), machine), seed=4) as step:
                for name, value in state.items():
                    step.write(name, value)
                step({"x": x, "t": t.astype(np.int32)})
                state = {name: step.read(name).copy() for name in step.persistent}
    return state


@pytest.mark.parametrize("kind", ["tuples", "dicts", "arrays", "generators", "DataLoader"])
def test_all_samples_are_trained_on_however_they_come(kind: str) -> None:
    sources: dict[str, Any] = {
        "tuples": cut(8),
        "dicts": cut(8, "dict"),
        "generators": lambda: iter(cut(8)),
    }
    if kind == "arrays":
        source: Any = Batches({"x": X, "t": T.astype(np.int32)}, 8, shuffle=False, drop_last=False)
    elif kind == "DataLoader":
        torch = pytest.importorskip("torch")
        data = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(T))
        source = torch.utils.data.DataLoader(data, batch_size=8)
    else:
        source = sources[kind]
    one = trainer(quiet=True)
    history = one.fit(source, 3, resized=build)
    expected, found = by_hand(3), weights(one)
    assert one.step.steps == 9
    assert len(history.outputs["loss"]) == 3
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6)


def test_each_size_is_lowered_once() -> None:
    made = list[int]()

    def counted(samples: int) -> Graph:
        made.append(samples)
        return build(samples)

    trainer(quiet=True).fit(cut(8), 4, resized=counted)
    assert made == [6]


def test_without_a_graph_of_that_size_they_are_left_out_with_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = trainer(quiet=True)
    with caplog.at_level(logging.WARNING):
        one.fit(cut(8), 2)
    assert one.step.steps == 4
    assert [r.message for r in caplog.records if r.name.startswith("taskflow.train")] == [
        "fit: a batch of 6 samples is left out, the graph takes 8: resized= makes graphs of other sizes"
    ]


def test_evaluation_is_of_all_samples() -> None:
    one = trainer(quiet=True)
    one.fit(cut(8), 2, resized=build)
    found = one.evaluate(evaluation, cut(8))
    w = weights(one)
    y = np.tanh(X @ w["fc1.weight"].T + w["fc1.bias"]) @ w["fc2.weight"].T + w["fc2.bias"]
    log_p = y - np.log(np.exp(y).sum(1, keepdims=True))
    assert found["loss"] == pytest.approx(-log_p[np.arange(22), T].mean(), rel=1e-5)
    assert found["accuracy"] == pytest.approx((y.argmax(1) == T).mean(), rel=1e-6)
    history = one.fit(cut(8), 1, validation=(evaluation, lambda: cut(8)), resized=build)
    assert history.validation["loss"][0] == pytest.approx(
        one.evaluate(evaluation, cut(8))["loss"], rel=1e-6
    )


def test_numbers_go_to_tables_and_to_tensorboard(tmp_path: Path) -> None:
    table, folder = tmp_path / "run.csv", tmp_path / "board"
    logs = [callbacks.CsvLog(table, every=2), callbacks.TensorBoardLog(folder)]
    history = trainer(quiet=True).fit(
        cut(8), 2, validation=(evaluation, cut(8)), resized=build, callbacks=logs
    )
    with open(table, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["step"], r["epoch"]) for r in rows] == [
        ("2", "0"),
        ("3", "1"),
        ("4", "1"),
        ("6", "1"),
        ("6", "2"),
    ]
    assert [float(r["loss"]) for r in rows if r["validation loss"]] == history.outputs["loss"]
    assert [
        float(r["validation loss"]) for r in rows if r["validation loss"]
    ] == history.validation["loss"]
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    board = accumulator.EventAccumulator(str(folder))
    board.Reload()
    assert set(board.Tags()["scalars"]) == {
        f"{g}/{n}" for g in ("train", "epoch", "validation") for n in ("loss", "accuracy")
    }
    assert [e.step for e in board.Scalars("train/loss")] == [1, 2, 3, 4, 5, 6]
    found = [e.value for e in board.Scalars("validation/loss")]
    np.testing.assert_allclose(found, history.validation["loss"], rtol=1e-6)


def test_it_stops_early_and_the_best_epoch_is_kept(tmp_path: Path) -> None:
    seen = list[float]()

    def drift(moment: callbacks.Moment) -> None:
        """From the third epoch on, the first layer is made worse."""
        if moment.is_epoch:
            seen.append(moment.value("loss") or 0.0)
            if moment.epoch >= 3:
                moment.executor.write("fc1.weight", moment.executor.read("fc1.weight") * -3)

    one = trainer(quiet=True)
    best = callbacks.BestCheckpoint(tmp_path / "best")
    stop = callbacks.EarlyStopping(patience=2)
    one.fit(
        cut(8), 50, validation=(evaluation, cut(8)), resized=build, callbacks=[best, stop, drift]
    )
    assert len(seen) < 50
    assert int(np.argmin(seen)) == len(seen) - 3
    assert best.best == min(seen)
    manifest = checkpoint.load(one.step, tmp_path / "best")
    assert manifest.notes["epoch"] == len(seen) - 2
    assert one.evaluate(evaluation, cut(8))["loss"] == pytest.approx(min(seen), rel=1e-6)


def test_a_line_every_so_many_steps_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    trainer().fit(cut(8), 2, resized=build, line_every=2)
    lines = [line for line in capsys.readouterr().out.splitlines() if "done" in line]
    assert [line.rpartition(", ")[2] for line in lines] == ["33% done", "67% done", "100% done"]
    assert all(
        line.startswith(f"epoch {k} loss 0.") for k, line in zip((1, 2, 2), lines, strict=True)
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([(X[:8],)], "batches: a batch has 1 parts, the graph has the inputs x, t"),
        ([{"x": X[:8]}], "batches: a batch has no 't'; it has x"),
        (
            [(X[:8], T[:7])],
            "batches: the parts of a batch have different lengths: {'x': 8, 't': 7}",
        ),
        ([(X[:8], X[:8, 0])], "batches: 't' is int32, a batch has float32"),
        ([(X[:9], T[:9])], "fit: a batch has 9 samples, the graph takes 8"),
        (
            iter(cut(8)),
            "batches: an iterator is used up after an epoch: give a list, or a function that makes it",
        ),
    ],
)
def test_refused(source: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        trainer(quiet=True).fit(source, 2)
    assert str(caught.value) == message


def test_no_such_number(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"^EarlyStopping\('f1'\): there is no such number after the epoch; there are ",
    ):
        trainer(quiet=True).fit(cut(8), 1, callbacks=[callbacks.EarlyStopping("f1")])
    with pytest.raises(
        TypeError, match=r"^batches: a int is no iterable of batches, and no function of one$"
    ):
        trainer(quiet=True).fit(3, 1)  # type: ignore[arg-type]
