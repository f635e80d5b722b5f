"""Optimizers refuse names that two have, and numbers that cannot be meant."""

import math

import numpy as np
import pytest

import ops
from taskflow import Graph
from tests.refusals import each_refused, of_values

INF, NAN = math.inf, math.nan


def a_loss():
    graph = Graph()
    h = ops.relu(ops.linear(graph.input("x", (4, 8)), 8, name="fc1"))
    return ops.softmax_cross_entropy(ops.linear(h, 3, name="fc2"), graph.input("t", (4,), "int32"))


@pytest.fixture
def loss():
    return a_loss()


def group(name, layer="fc1.*"):
    return ops.ParameterGroup(layer, lr=0.1, name=name)


NO_OPTIONS = NAN, 0, 1.5, np.int64(1)
NO_FACTORS = "0.9", True, None
REFUSED = [
    (
        "two groups of one name",
        lambda loss: ops.sgd(loss, 0.1, groups=[group("slow"), group("slow", "fc2.*")]),
        "sgd: groups[0] and groups[1] are both called 'slow'",
    ),
    (
        "a group that is called as another is counted",
        lambda loss: ops.adam(loss, groups=[group("1"), group(None, "fc2.*")]),
        "adam: groups[0] and groups[1] are both called '1'",
    ),
    (
        "the last two groups of one name",
        lambda loss: ops.lamb(loss, groups=[group("b"), group("a", "*.bias"), group("a", "fc2.*")]),
        "lamb: groups[1] and groups[2] are both called 'a'",
    ),
    (
        "an empty name",
        lambda: group(""),
        "group '': its name is text of at least one character, or None",
    ),
    (
        "a number as a name",
        lambda: group(3),
        "group 3: its name is text of at least one character, or None",
    ),
    (
        "a group of nothing",
        lambda: ops.ParameterGroup([], lr=0.1),
        "group of []: it names no parameter",
    ),
    (
        "no parameters",
        lambda loss: ops.sgd(loss, 0.1, parameters=[]),
        "sgd: parameters= names no parameter",
    ),
    (
        "groups of torch",
        lambda loss: ops.sgd(loss, 0.1, groups=[{"params": "fc1.*", "lr": 1}]),
        "sgd: groups[0] is a dict, a ParameterGroup is needed",
        TypeError,
    ),
    ("a rate of nan", lambda loss: ops.sgd(loss, NAN), "sgd: lr is nan, a finite number is needed"),
    ("a rate of inf", lambda loss: ops.sgd(loss, INF), "sgd: lr is inf, a finite number is needed"),
    (
        "a rate in words",
        lambda loss: ops.sgd(loss, "0.1"),
        "sgd: lr is '0.1', a finite number is needed",
    ),
    ("a true rate", lambda loss: ops.sgd(loss, True), "sgd: lr is True, a finite number is needed"),
    ("a rate of -0.1", lambda loss: ops.sgd(loss, -0.1), "sgd: lr is -0.1, it cannot be negative"),
    ("a rate of -1", lambda loss: ops.sgd(loss, -1), "sgd: lr is -1, it cannot be negative"),
    (
        "a momentum of nan",
        lambda loss: ops.sgd(loss, 0.1, momentum=NAN),
        "sgd: momentum is nan, a finite number is needed",
    ),
    (
        "nesterov without a momentum",
        lambda loss: ops.sgd(loss, 1, nesterov=True),
        "sgd: nesterov needs a momentum",
    ),
    (
        "an infinite decay of weights",
        lambda loss: ops.adamw(loss, weight_decay=INF),
        "adamw: weight_decay is inf, a finite number is needed",
    ),
    (
        "eps of nan",
        lambda loss: ops.adam(loss, eps=NAN),
        "adam: eps is nan, a finite number is needed",
    ),
    (
        "a beta of nan",
        lambda loss: ops.adam(loss, betas=(NAN, 0.9)),
        "adam: betas are (nan, 0.9), two numbers in [0, 1) are needed",
    ),
    (
        "a beta of 1",
        lambda loss: ops.adam(loss, betas=(0.9, 1)),
        "adam: betas are (0.9, 1), two numbers in [0, 1) are needed",
    ),
    (
        "one beta",
        lambda loss: ops.adama(loss, 2, betas=(0.9,)),
        "adama: betas are (0.9,), two numbers in [0, 1) are needed",
    ),
    (
        "a norm of nan",
        lambda loss: ops.lamb(loss, clip_norm=NAN),
        "lamb: clip_norm is nan, a finite number is needed",
    ),
    (
        "a norm of 0",
        lambda loss: ops.sgd(loss, 0.1, clip_norm=0),
        "sgd: clip_norm is 0, it is positive",
    ),
    (
        "an infinite decay of a rate",
        lambda loss: ops.adagrad(loss, lr_decay=INF),
        "adagrad: lr_decay is inf, a finite number is needed",
    ),
    (
        "an alpha of nan",
        lambda loss: ops.rmsprop(loss, alpha=NAN),
        "rmsprop: alpha is nan, it is in [0, 1)",
    ),
    (
        "a function of nan",
        lambda loss: ops.sgd(loss, lambda step: NAN),
        "sgd: lr(0) is nan, a finite number is needed",
    ),
    (
        "a function of negative rates",
        lambda loss: ops.adam(loss, lambda step: step - 1.0),
        "adam: lr(0) is -1.0, it cannot be negative",
    ),
    (
        "a rate of nan in a group",
        lambda loss: ops.sgd(loss, 0.1, groups=[ops.ParameterGroup("fc1.*", lr=NAN)]),
        "group of 'fc1.*': lr is nan, a finite number is needed",
    ),
    (
        "an infinite decay in a group",
        lambda: ops.ParameterGroup("fc1.*", weight_decay=INF, name="slow"),
        "group 'slow': weight_decay is inf, a finite number is needed",
    ),
    (
        "fans of a vector",
        lambda: ops.glorot_normal((3,)),
        "initializer: the fans of a weight need two dimensions, its shape is (3,)",
    ),
    *of_values(
        "sgd: nesterov is {!r}, True or False is needed",
        lambda value, loss: ops.sgd(loss, 0.1, momentum=0.9, nesterov=value),
        NO_OPTIONS,
        TypeError,
    ),
    *of_values(
        "adam: sparse is {!r}, True or False is needed",
        lambda value, loss: ops.adam(loss, sparse=value),
        NO_OPTIONS,
        TypeError,
    ),
    *of_values(
        "rmsprop: centered is {!r}, True or False is needed",
        lambda value, loss: ops.rmsprop(loss, centered=value),
        NO_OPTIONS,
        TypeError,
    ),
    *of_values(
        "lamb: name is {!r}, text is needed",
        lambda value, loss: ops.lamb(loss, name=value),
        NO_OPTIONS,
        TypeError,
    ),
    *of_values(
        "adagrad: parameters is {!r}, patterns or regions are needed",
        lambda value, loss: ops.adagrad(loss, parameters=value),
        NO_OPTIONS,
        TypeError,
    ),
    *of_values(
        "adamw: groups is {!r}, a list of ParameterGroup is needed",
        lambda value, loss: ops.adamw(loss, groups=value),
        NO_OPTIONS,
        TypeError,
    ),
    *of_values(
        "rmsprop: alpha is {}, it is in [0, 1)",
        lambda value, loss: ops.rmsprop(loss, alpha=value),
        NO_FACTORS,
    ),
    *of_values(
        "adam: betas are (0.9, {!r}), two numbers in [0, 1) are needed",
        lambda value, loss: ops.adam(loss, betas=(0.9, value)),
        NO_FACTORS,
    ),
    *of_values(
        "adama: betas are ({},), two numbers in [0, 1) are needed",
        lambda value, loss: ops.adama(loss, 2, betas=value),
        (True, None),
    ),
    (
        "betas in words",
        lambda loss: ops.adama(loss, 2, betas="0.9"),
        "adama: betas are ('0', '.', '9'), two numbers in [0, 1) are needed",
    ),
]
test_refused = each_refused(REFUSED)


def built(number):
    """The kernels of an optimizer with this number for every option."""
    loss = a_loss()
    ops.adamw(
        loss, lr=number, weight_decay=number, eps=number, betas=(number, number), clip_norm=number
    )
    return str([op.kernel for op in loss.graph.operators])


@pytest.mark.parametrize("number", [np.float32(0.5), np.float64(0.5), np.float16(0.5)])
def test_numbers_of_numpy_are_numbers(number):
    """The graph is the one of the Python number."""
    assert built(number) == built(0.5)
