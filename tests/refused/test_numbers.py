"""Values of options are checked where they are made: numbers that are none, not finite, or cannot be meant."""

import numpy as np
import pytest

from taskflow import (
    Constant,
    CostModel,
    Device,
    Executor,
    Graph,
    LossScale,
    MachineModel,
    Normal,
    ParallelConfig,
    Plan,
    Uniform,
    Window,
    data_parallel,
    lower,
    rates,
    search,
    search_schedule,
    stages,
)
from taskflow.train.batches import Batches
from taskflow.train.callbacks import BestCheckpoint, CsvLog, EarlyStopping, TensorBoardLog
from tests import kept
from tests.lowered import network
from tests.refusals import assert_refused

INF, NAN = float("inf"), float("nan")
TWO = MachineModel.uniform(2)
COSTS = CostModel.analytic(TWO)
X = np.ones((8, 2), np.float32)


def parameter(init, dtype="float32"):
    return Graph().parameter("w", (2,), init, dtype)


def rows():
    return lower(network(), data_parallel(network(), TWO), TWO)


VALUES = {
    "loss scale: first is 0, a finite number above 0 is needed": lambda: LossScale(first=0),
    "loss scale: first is nan, a finite number above 0 is needed": lambda: LossScale(first=NAN),
    "loss scale: first is '1', a finite number above 0 is needed": lambda: LossScale(first="1"),
    "loss scale: growth is 0.5, a finite number from 1 is needed": lambda: LossScale(growth=0.5),
    "loss scale: backoff is 2, a finite number above 0 to 1 is needed": lambda: LossScale(
        backoff=2
    ),
    "loss scale: backoff is 0, a finite number above 0 to 1 is needed": lambda: LossScale(
        backoff=0
    ),
    "loss scale: interval is 2.5, a whole number from 1 is needed": lambda: LossScale(interval=2.5),
    "constant: value is nan, a number is needed": lambda: Constant(NAN),
    "uniform: high is 1, a finite number from 2 is needed": lambda: Uniform(2, 1),
    "uniform: low is nan, a finite number is needed": lambda: Uniform(NAN, 1),
    "normal: std is -1, a finite number from 0 is needed": lambda: Normal(0, -1),
    "normal: mean is inf, a finite number is needed": lambda: Normal(INF, 1),
    "region 'w': init is nan, a number is needed": lambda: parameter(NAN),
    "region 'w': init: uint8 cannot hold 300.0": lambda: parameter(300, "uint8"),
    "region 'w': init: int32 cannot hold 0.5": lambda: parameter(0.5, "int32"),
    "region 'w': init: float16 cannot hold 100000.0": lambda: parameter(Constant(1e5), "float16"),
    "constant: rate is -1, a finite number from 0 is needed": lambda: rates.constant(-1),
    "step: every is 0, a whole number from 1 is needed": lambda: rates.step(0.1, every=0),
    "step: rate is nan, a finite number from 0 is needed": lambda: rates.step(NAN, every=2),
    "exponential: factor is -0.5, a finite number from 0 is needed": lambda: rates.exponential(
        0.1, -0.5
    ),
    "linear: steps is -1, a whole number from 1 is needed": lambda: rates.linear(0.1, -1),
    "linear: warmup is 9, more than the 5 steps": lambda: rates.linear(0.1, 5, warmup=9),
    "cosine: warmup is 6, more than the 5 steps": lambda: rates.cosine(0.1, 5, warmup=6),
    "cosine: warmup is -1, a whole number from 0 is needed": lambda: rates.cosine(0.1, 5, -1),
    "cosine: minimum is -1, a finite number from 0 is needed": lambda: rates.cosine(
        0.1, 5, minimum=-1
    ),
    "inverse_sqrt: warmup is 2.5, a whole number from 0 is needed": lambda: rates.inverse_sqrt(
        0.1, 2.5
    ),
    "batches: size is 2.5, a whole number from 1 is needed": lambda: Batches({"x": X}, 2.5),
    "batches: there are no arrays": lambda: Batches({}, 2),
    "EarlyStopping('loss'): patience is 0, a whole number from 1 is needed": lambda: EarlyStopping(
        patience=0
    ),
    "EarlyStopping('loss'): patience is nan, a whole number from 1 is needed": lambda: (
        EarlyStopping(patience=NAN)
    ),
    "EarlyStopping('f1'): least is -1, a finite number from 0 is needed": lambda: EarlyStopping(
        "f1", least=-1
    ),
    "EarlyStopping('f1'): mode is 'most', it is 'min' or 'max'": lambda: EarlyStopping(
        "f1", mode="most"
    ),
    "BestCheckpoint('f1'): mode is True, it is 'min' or 'max'": lambda: BestCheckpoint(
        "best", "f1", mode=True
    ),
    "CsvLog('a.csv'): every is -1, a whole number from 0 is needed": lambda: CsvLog(
        "a.csv", every=-1
    ),
    "TensorBoardLog('run'): every is 0, a whole number from 1 is needed": lambda: TensorBoardLog(
        "run", every=0
    ),
    "machine 'uniform': has at least one device, not 1.5": lambda: MachineModel.uniform(1.5),
    "cpu device: host is a number from 0, not True": lambda: Device(host=True),
    "search: the budget is at least one proposal, not 2.5": lambda: search(
        network(), TWO, COSTS, proposals=2.5
    ),
    "search: the budget is a positive number of seconds, not nan": lambda: search(
        network(), TWO, COSTS, seconds=NAN
    ),
    "search_schedule: seconds is -1, a finite number from 0 is needed": lambda: search_schedule(
        pipeline_rows(), COSTS, seconds=-1
    ),
    "lower: piece_bytes is at least 1, not nan": lambda: lower(
        network(), data_parallel(network(), TWO), TWO, piece_bytes=NAN
    ),
}


def pipeline_rows():
    graph = network()
    return lower(graph, stages(graph, TWO, parts=2), TWO)


@pytest.mark.parametrize("message", VALUES)
def test_values(message):
    assert_refused(message, VALUES[message])


def test_windows_are_of_whole_numbers():
    for name, value in (("size", 1.5), ("padding", NAN), ("stride", True), ("dilation", "1")):
        message = f"window of axis 'a': {name} is {value!r}, a whole number is needed"
        assert_refused(
            message, lambda name=name, value=value: Window("a", **{name: value}), TypeError
        )


FITS = {
    "fit: epochs is -1, a whole number from 1 is needed": {"epochs": -1},
    "fit: epochs is 1.5, a whole number from 1 is needed": {"epochs": 1.5},
    "fit: keep is 0, a whole number from 1 is needed": {"keep": 0},
    "fit: every is 1.5, a whole number from 1 is needed": {"every": 1.5},
    "fit: line_every is 0, a whole number from 1 is needed": {"line_every": 0},
    "fit: there is no batch in epoch 1": {"batches": []},
}


@pytest.fixture(scope="module")
def trainer():
    return kept.trainer(machine=TWO)


@pytest.mark.parametrize("message", FITS)
def test_fits(trainer, message):
    options = {"batches": kept.batches(), "epochs": 1, **FITS[message]}
    assert_refused(message, lambda: trainer.fit(**options))


def test_what_is_called(trainer):
    assert_refused(
        "fit: a callback is 3, a function is needed",
        lambda: trainer.fit(kept.batches(), 1, callbacks=[3]),
        TypeError,
    )
    message = "trainer: learning_rate is 0.1, a function of steps is needed"
    assert_refused(message, lambda: kept.trainer(machine=TWO, learning_rate=0.1), TypeError)


@pytest.mark.parametrize(("rate", "said"), [(-1.0, "-1.0"), (NAN, "nan"), (INF, "inf")])
def test_rates_of_a_trainer(rate, said):
    run = kept.trainer(machine=TWO, learning_rate=lambda steps: rate if steps == 2 else 0.1)
    message = f"fit: step 2: the learning rate is {said}, a finite number from 0 is needed"
    assert_refused(message, lambda: run.fit(kept.batches(), 1))


def test_numbers_of_numpy():
    two, half = np.int64(2), np.float32(0.5)
    assert Window("a", size=two) == Window("a", size=2) and type(Window("a", size=two).size) is int
    assert parameter(half) == parameter(0.5) and parameter(two, "int32").init == Constant(2.0)
    assert LossScale(first=np.float64(8), interval=two) == LossScale(first=8.0, interval=2)
    assert ParallelConfig({"b": two}, (np.int32(0), 1)) == ParallelConfig({"b": 2}, (0, 1))
    assert rates.step(half, every=two)(3) == rates.step(0.5, every=2)(3)
    assert Plan(data_parallel(network(), TWO), parts=two).parts == 2
    assert len(MachineModel.uniform(two).devices) == 2 and Device(host=np.int64(0)).host == 0
    with Executor(rows(), seed=np.int64(3)) as step:
        assert step.seed == 3
