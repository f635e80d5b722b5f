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
from tests.refusals import each_refused

INF, NAN = float("inf"), float("nan")
TWO = MachineModel.uniform(2)
COSTS = CostModel.analytic(TWO)
X = np.ones((8, 2), np.float32)


def parameter(init, dtype="float32"):
    return Graph().parameter("w", (2,), init, dtype)


def rows():
    return lower(network(), data_parallel(network(), TWO), TWO)


def pipeline_rows():
    graph = network()
    return lower(graph, stages(graph, TWO, parts=2), TWO)


@pytest.fixture(scope="module")
def trainer():
    return kept.trainer(machine=TWO)


def rate_of_step_2(rate):
    run = kept.trainer(machine=TWO, learning_rate=lambda steps: rate if steps == 2 else 0.1)
    run.fit(kept.batches(), 1)


REFUSED = [
    (
        "a first scale of 0",
        lambda: LossScale(first=0),
        "loss scale: first is 0, a finite number above 0 is needed",
    ),
    (
        "a first scale of nan",
        lambda: LossScale(first=NAN),
        "loss scale: first is nan, a finite number above 0 is needed",
    ),
    (
        "a first scale in words",
        lambda: LossScale(first="1"),
        "loss scale: first is '1', a finite number above 0 is needed",
    ),
    (
        "a growth below 1",
        lambda: LossScale(growth=0.5),
        "loss scale: growth is 0.5, a finite number from 1 is needed",
    ),
    (
        "a backoff above 1",
        lambda: LossScale(backoff=2),
        "loss scale: backoff is 2, a finite number above 0 to 1 is needed",
    ),
    (
        "a backoff of 0",
        lambda: LossScale(backoff=0),
        "loss scale: backoff is 0, a finite number above 0 to 1 is needed",
    ),
    (
        "an interval in part",
        lambda: LossScale(interval=2.5),
        "loss scale: interval is 2.5, a whole number from 1 is needed",
    ),
    ("a constant of nan", lambda: Constant(NAN), "constant: value is nan, a number is needed"),
    (
        "uniform, upside down",
        lambda: Uniform(2, 1),
        "uniform: high is 1, a finite number from 2 is needed",
    ),
    ("uniform from nan", lambda: Uniform(NAN, 1), "uniform: low is nan, a finite number is needed"),
    (
        "a negative deviation",
        lambda: Normal(0, -1),
        "normal: std is -1, a finite number from 0 is needed",
    ),
    ("an infinite mean", lambda: Normal(INF, 1), "normal: mean is inf, a finite number is needed"),
    ("first values of nan", lambda: parameter(NAN), "region 'w': init is nan, a number is needed"),
    ("300 as uint8", lambda: parameter(300, "uint8"), "region 'w': init: uint8 cannot hold 300.0"),
    ("0.5 as int32", lambda: parameter(0.5, "int32"), "region 'w': init: int32 cannot hold 0.5"),
    (
        "1e5 as float16",
        lambda: parameter(Constant(1e5), "float16"),
        "region 'w': init: float16 cannot hold 100000.0",
    ),
    (
        "a negative rate",
        lambda: rates.constant(-1),
        "constant: rate is -1, a finite number from 0 is needed",
    ),
    (
        "every 0 steps",
        lambda: rates.step(0.1, every=0),
        "step: every is 0, a whole number from 1 is needed",
    ),
    (
        "a rate of nan",
        lambda: rates.step(NAN, every=2),
        "step: rate is nan, a finite number from 0 is needed",
    ),
    (
        "a negative factor",
        lambda: rates.exponential(0.1, -0.5),
        "exponential: factor is -0.5, a finite number from 0 is needed",
    ),
    (
        "-1 steps",
        lambda: rates.linear(0.1, -1),
        "linear: steps is -1, a whole number from 1 is needed",
    ),
    (
        "more warmup than steps",
        lambda: rates.linear(0.1, 5, warmup=9),
        "linear: warmup is 9, more than the 5 steps",
    ),
    (
        "more warmup than steps of a cosine",
        lambda: rates.cosine(0.1, 5, warmup=6),
        "cosine: warmup is 6, more than the 5 steps",
    ),
    (
        "a negative warmup",
        lambda: rates.cosine(0.1, 5, -1),
        "cosine: warmup is -1, a whole number from 0 is needed",
    ),
    (
        "a negative minimum",
        lambda: rates.cosine(0.1, 5, minimum=-1),
        "cosine: minimum is -1, a finite number from 0 is needed",
    ),
    (
        "a warmup in part",
        lambda: rates.inverse_sqrt(0.1, 2.5),
        "inverse_sqrt: warmup is 2.5, a whole number from 0 is needed",
    ),
    (
        "a size in part",
        lambda: Batches({"x": X}, 2.5),
        "batches: size is 2.5, a whole number from 1 is needed",
    ),
    ("no arrays", lambda: Batches({}, 2), "batches: there are no arrays"),
    (
        "a patience of 0",
        lambda: EarlyStopping(patience=0),
        "EarlyStopping('loss'): patience is 0, a whole number from 1 is needed",
    ),
    (
        "a patience of nan",
        lambda: EarlyStopping(patience=NAN),
        "EarlyStopping('loss'): patience is nan, a whole number from 1 is needed",
    ),
    (
        "a negative least",
        lambda: EarlyStopping("f1", least=-1),
        "EarlyStopping('f1'): least is -1, a finite number from 0 is needed",
    ),
    (
        "the most",
        lambda: EarlyStopping("f1", mode="most"),
        "EarlyStopping('f1'): mode is 'most', it is 'min' or 'max'",
    ),
    (
        "a true mode",
        lambda: BestCheckpoint("best", "f1", mode=True),
        "BestCheckpoint('f1'): mode is True, it is 'min' or 'max'",
    ),
    (
        "rows every -1 steps",
        lambda: CsvLog("a.csv", every=-1),
        "CsvLog('a.csv'): every is -1, a whole number from 0 is needed",
    ),
    (
        "events every 0 steps",
        lambda: TensorBoardLog("run", every=0),
        "TensorBoardLog('run'): every is 0, a whole number from 1 is needed",
    ),
    (
        "devices in part",
        lambda: MachineModel.uniform(1.5),
        "machine 'uniform': has at least one device, not 1.5",
    ),
    ("a true host", lambda: Device(host=True), "cpu device: host is a number from 0, not True"),
    (
        "proposals in part",
        lambda: search(network(), TWO, COSTS, proposals=2.5),
        "search: the budget is at least one proposal, not 2.5",
    ),
    (
        "nan seconds of a search",
        lambda: search(network(), TWO, COSTS, seconds=NAN),
        "search: the budget is a positive number of seconds, not nan",
    ),
    (
        "-1 seconds of a schedule",
        lambda: search_schedule(pipeline_rows(), COSTS, seconds=-1),
        "search_schedule: seconds is -1, a finite number from 0 is needed",
    ),
    (
        "nan bytes of pieces",
        lambda: lower(network(), data_parallel(network(), TWO), TWO, piece_bytes=NAN),
        "lower: piece_bytes is at least 1, not nan",
    ),
    *(
        (
            f"{name} of a window",
            lambda name=name, value=value: Window("a", **{name: value}),
            f"window of axis 'a': {name} is {value!r}, a whole number is needed",
            TypeError,
        )
        for name, value in (("size", 1.5), ("padding", NAN), ("stride", True), ("dilation", "1"))
    ),
    (
        "-1 epochs",
        lambda trainer: trainer.fit(kept.batches(), -1),
        "fit: epochs is -1, a whole number from 1 is needed",
    ),
    (
        "epochs in part",
        lambda trainer: trainer.fit(kept.batches(), 1.5),
        "fit: epochs is 1.5, a whole number from 1 is needed",
    ),
    (
        "no checkpoint kept",
        lambda trainer: trainer.fit(kept.batches(), 1, keep=0),
        "fit: keep is 0, a whole number from 1 is needed",
    ),
    (
        "checkpoints every 1.5 steps",
        lambda trainer: trainer.fit(kept.batches(), 1, every=1.5),
        "fit: every is 1.5, a whole number from 1 is needed",
    ),
    (
        "lines every 0 steps",
        lambda trainer: trainer.fit(kept.batches(), 1, line_every=0),
        "fit: line_every is 0, a whole number from 1 is needed",
    ),
    ("no batches", lambda trainer: trainer.fit([], 1), "fit: there is no batch in epoch 1"),
    (
        "a callback that is a number",
        lambda trainer: trainer.fit(kept.batches(), 1, callbacks=[3]),
        "fit: a callback is 3, a function is needed",
        TypeError,
    ),
    (
        "a rate that is no function",
        lambda: kept.trainer(machine=TWO, learning_rate=0.1),
        "trainer: learning_rate is 0.1, a function of steps is needed",
        TypeError,
    ),
    *(
        (
            f"a rate of {rate} in training",
            lambda rate=rate: rate_of_step_2(rate),
            f"fit: step 2: the learning rate is {rate}, a finite number from 0 is needed",
        )
        for rate in (-1.0, NAN, INF)
    ),
]
test_refused = each_refused(REFUSED)


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
