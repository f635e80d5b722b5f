"""The cases of the tables: a name, what makes the module, and its inputs."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from inspect import isclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tests.peer.sweep import Case, tensors
from tests.peer.sweep.calls import CALLS
from tests.peer.sweep.classes import CLASSES
from tests.peer.sweep.functionals import FUNCTIONS
from tests.peer.sweep.modules import MODULES

HAVE_MODES = ("Norm", "Drop", "RReLU", "MultiheadAttention")
SINCE_2_12 = ("quantile",)  # torch.export of 2.11 looks at its values: refused


class Call(nn.Module):
    """A function of its inputs."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self.run = run

    def forward(self, *given: Any) -> Any:
        return self.run(*given)


def names_of_classes() -> set[str]:
    """All classes of torch.nn that are modules."""
    return {
        name for name, each in vars(nn).items() if isclass(each) and issubclass(each, nn.Module)
    }


def names_of_functions() -> set[str]:
    """All that torch.nn.functional offers to be called."""
    found = {name: each for name, each in vars(F).items() if callable(each) and not isclass(each)}
    return {name for name in found if not name.startswith("_")}


def of_classes() -> Iterator[Case]:
    for name, (inputs, *arguments) in CLASSES.items():
        if hasattr(nn, name):
            for each in arguments:
                modes = (True, False) if any(word in name for word in HAVE_MODES) else (True,)
                for training in modes:
                    mode = "" if training else ", in evaluation"
                    given = tensors(inputs)
                    yield (
                        f"{name}({each}){mode}",
                        partial(made, f"nn.{name}({each})", training, given),
                        given,
                    )


def made(text: str, training: bool, inputs: tuple[Any, ...]) -> Any:
    """The module that a text says; lazy ones see their inputs first."""
    torch.manual_seed(0)
    module = eval(text, {"nn": nn, "torch": torch}).double().train(training)
    if any(
        isinstance(p, nn.parameter.UninitializedTensorMixin)
        for p in (*module.parameters(), *module.buffers())
    ):
        module(*inputs)
    return module


def of_functions() -> Iterator[Case]:
    for name, (inputs, *calls) in FUNCTIONS.items():
        if hasattr(F, name):
            given = dict(zip("xyzwv", tensors(inputs)))
            for call in calls:
                used = [letter for letter in given if re.search(rf"\b{letter}\b", call)]
                run = eval(f"lambda {', '.join(used)}: F.{name}{call}", {"F": F, "torch": torch})
                yield f"{name}{call}", partial(Call, run), tuple(given[letter] for letter in used)


def of_calls() -> Iterator[Case]:
    for line in CALLS.strip().splitlines():
        inputs, _, call = line.partition(" | ")
        if torch.__version__ < "2.12" and any(name in call for name in SINCE_2_12):
            continue
        yield line, partial(Call, eval(f"lambda {call}", {"F": F, "torch": torch})), tensors(inputs)


def of_modules() -> Iterator[Case]:
    for name, (inputs, make) in MODULES.items():
        yield name, partial(drawn, make), tensors(inputs)


def drawn(make: Callable[[], Any]) -> Any:
    """The module with the same weights every time."""
    torch.manual_seed(0)
    return make().double()
