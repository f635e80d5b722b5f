"""Optimizers refuse names that two have, and numbers that cannot be meant."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ops
from taskflow import Graph, LogicalRegion
from tests.refusals import assert_refused

INF, NAN = float("inf"), float("nan")


def a_loss() -> LogicalRegion:
    graph = Graph()
    h = ops.relu(ops.linear(graph.input("x", (4, 8)), 8, name="fc1"))
    return ops.softmax_cross_entropy(ops.linear(h, 3, name="fc2"), graph.input("t", (4,), "int32"))


def group(name: str | None, layer: str = "fc1.*") -> ops.ParameterGroup:
    return ops.ParameterGroup(layer, lr=0.1, name=name)


NAMES: list[tuple[str, Callable[[], Any]]] = [
    (
        "sgd: groups[0] and groups[1] are both called 'slow'",
        lambda: ops.sgd(a_loss(), 0.1, groups=[group("slow"), group("slow", "fc2.*")]),
    ),
    (
        "adam: groups[0] and groups[1] are both called '1'",  # the second one has its number as a name
        lambda: ops.adam(a_loss(), groups=[group("1"), group(None, "fc2.*")]),
    ),
    (
        "lamb: groups[1] and groups[2] are both called 'a'",
        lambda: ops.lamb(a_loss(), groups=[group("b"), group("a", "*.bias"), group("a", "fc2.*")]),
    ),
    ("group '': its name is text of at least one character, or None", lambda: group("")),
    ("group 3: its name is text of at least one character, or None", lambda: group(3)),  # type: ignore[arg-type]
    ("group of []: it names no parameter", lambda: ops.ParameterGroup([], lr=0.1)),
    ("sgd: parameters= names no parameter", lambda: ops.sgd(a_loss(), 0.1, parameters=[])),
]


def test_groups_of_torch() -> None:
    groups: Any = [{"params": "fc1.*", "lr": 1}]
    message = "sgd: groups[0] is a dict, a ParameterGroup is needed"
    assert_refused(message, lambda: ops.sgd(a_loss(), 0.1, groups=groups), TypeError)


@pytest.mark.parametrize(("message", "act"), NAMES, ids=[message for message, _ in NAMES])
def test_names(message: str, act: Callable[[], Any]) -> None:
    assert_refused(message, act)


NUMBERS: list[tuple[str, Callable[[LogicalRegion], Any]]] = [
    ("sgd: lr is nan, a finite number is needed", lambda loss: ops.sgd(loss, NAN)),
    ("sgd: lr is inf, a finite number is needed", lambda loss: ops.sgd(loss, INF)),
    ("sgd: lr is '0.1', a finite number is needed", lambda loss: ops.sgd(loss, "0.1")),  # type: ignore[arg-type]
    ("sgd: lr is True, a finite number is needed", lambda loss: ops.sgd(loss, True)),
    ("sgd: lr is -0.1, it cannot be negative", lambda loss: ops.sgd(loss, -0.1)),
    (
        "sgd: momentum is nan, a finite number is needed",
        lambda loss: ops.sgd(loss, 0.1, momentum=NAN),
    ),
    (
        "adamw: weight_decay is inf, a finite number is needed",
        lambda loss: ops.adamw(loss, weight_decay=INF),
    ),
    ("adam: eps is nan, a finite number is needed", lambda loss: ops.adam(loss, eps=NAN)),
    (
        "adam: betas are (nan, 0.9), two numbers in [0, 1) are needed",
        lambda loss: ops.adam(loss, betas=(NAN, 0.9)),
    ),
    (
        "adama: betas are (0.9,), two numbers in [0, 1) are needed",
        lambda loss: ops.adama(loss, 2, betas=(0.9,)),
    ),  # type: ignore[arg-type]
    (
        "lamb: clip_norm is nan, a finite number is needed",
        lambda loss: ops.lamb(loss, clip_norm=NAN),
    ),
    ("sgd: clip_norm is 0, it is positive", lambda loss: ops.sgd(loss, 0.1, clip_norm=0)),
    (
        "adagrad: lr_decay is inf, a finite number is needed",
        lambda loss: ops.adagrad(loss, lr_decay=INF),
    ),
    ("rmsprop: alpha is nan, it is in [0, 1)", lambda loss: ops.rmsprop(loss, alpha=NAN)),
    ("sgd: lr(0) is nan, a finite number is needed", lambda loss: ops.sgd(loss, lambda step: NAN)),
    (
        "adam: lr(0) is -1.0, it cannot be negative",
        lambda loss: ops.adam(loss, lambda step: step - 1.0),
    ),
    (
        "group of 'fc1.*': lr is nan, a finite number is needed",
        lambda loss: ops.sgd(loss, 0.1, groups=[ops.ParameterGroup("fc1.*", lr=NAN)]),
    ),
    (
        "group 'slow': weight_decay is inf, a finite number is needed",
        lambda loss: ops.ParameterGroup("fc1.*", weight_decay=INF, name="slow"),
    ),
]


@pytest.mark.parametrize(("message", "act"), NUMBERS, ids=[message for message, _ in NUMBERS])
def test_numbers(message: str, act: Callable[[LogicalRegion], Any]) -> None:
    assert_refused(message, lambda: act(a_loss()))


@pytest.mark.parametrize("number", [np.float32(0.5), np.float64(0.5), np.float16(0.5)])
def test_numbers_of_numpy_are_numbers(number: Any) -> None:
    """The graph is the one of the Python number."""
    found = [
        ops.adamw(
            loss := a_loss(),
            lr=each,
            weight_decay=each,
            eps=each,
            betas=(each, each),
            clip_norm=each,
        )
        and str([op.kernel for op in loss.graph.operators])
        for each in (number, 0.5)
    ]
    assert found[0] == found[1]


OTHERS: dict[str, Callable[[LogicalRegion, Any], Any]] = {
    "sgd: nesterov is {}, True or False is needed": lambda loss, v: ops.sgd(
        loss, 0.1, momentum=0.9, nesterov=v
    ),
    "adam: sparse is {}, True or False is needed": lambda loss, v: ops.adam(loss, sparse=v),
    "rmsprop: centered is {}, True or False is needed": lambda loss, v: ops.rmsprop(
        loss, centered=v
    ),
    "lamb: name is {}, text is needed": lambda loss, v: ops.lamb(loss, name=v),
    "adagrad: parameters is {}, patterns or regions are needed": lambda loss, v: ops.adagrad(
        loss, parameters=v
    ),
    "adamw: groups is {}, a list of ParameterGroup is needed": lambda loss, v: ops.adamw(
        loss, groups=v
    ),
}


@pytest.mark.parametrize("value", [NAN, 0, 1.5, np.int64(1)])
@pytest.mark.parametrize("message", OTHERS)
def test_what_is_no_number(message: str, value: Any) -> None:
    assert_refused(message.format(repr(value)), lambda: OTHERS[message](a_loss(), value), TypeError)


@pytest.mark.parametrize("value", ["0.9", True, None])
def test_factors_of_averages(value: Any) -> None:
    assert_refused(
        f"rmsprop: alpha is {value}, it is in [0, 1)", lambda: ops.rmsprop(a_loss(), alpha=value)
    )
    message = f"adam: betas are {(0.9, value)}, two numbers in [0, 1) are needed"
    assert_refused(message, lambda: ops.adam(a_loss(), betas=(0.9, value)))
    given = tuple(value) if isinstance(value, str) else (value,)
    message = f"adama: betas are {given}, two numbers in [0, 1) are needed"
    assert_refused(message, lambda: ops.adama(a_loss(), 2, betas=value))
