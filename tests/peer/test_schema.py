"""Every argument of an ATen call is read by its rule, or refused by name where it differs from its default."""

import dis
from collections.abc import Callable, Iterator
from inspect import Parameter, signature
from typing import Any

import pytest

from ops.torch.export_reader import RULES
from ops.torch.refusals import Unsupported
from ops.torch.schema import HARMLESS, is_read, refuse_unread

OF_RESULT = ("of_result", "more", "dtype")  # the dtype and shape of the result say it


def calls(torch: Any) -> Iterator[tuple[str, Callable[..., Any], Any]]:
    """Every rule, with every call of torch that it makes."""
    for name, rule in RULES.items():
        packet, _, overload = name.partition(".")
        found = getattr(torch.ops.aten, packet, None)
        for each in [] if found is None else found.overloads():
            is_of_rule = overload in ("", each) and (overload or f"{packet}.{each}" not in RULES)
            if (
                is_of_rule
                and not each.endswith("out")
                and "_out" not in each
                and "dimname" not in each
                and "values" not in each
            ):
                try:
                    target = getattr(found, each)
                except RuntimeError:  # of an overload for scripts alone
                    continue
                if "Tensor" in str(target._schema.arguments[0].type):
                    yield f"{packet}.{each}", rule, target


def names_in(rule: Callable[..., Any]) -> set[str]:
    """What the body of a rule, or a function in it, reads."""
    return {
        i.argval
        for i in dis.get_instructions(rule)
        if i.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLOSURE"))
    }


def test_a_rule_reads_what_it_takes() -> None:
    for name, rule in RULES.items():
        _, _, *parameters = signature(rule).parameters.values()
        named = {
            p.name for p in parameters if not p.name.startswith("_") and p.name not in OF_RESULT
        }
        read = (
            " ".join(map(str, names_in(rule))).replace("'", " ").replace(",", " ").split()
        )  # some are pairs
        unread = {n for n in named if n not in read and f"({n}" not in read and f"{n})" not in read}
        assert not unread, f"{name} does not read {unread}"


def test_defaults_are_torchs(torch: Any) -> None:
    count = 0
    for name, rule, target in calls(torch):
        _, *parameters = signature(rule).parameters.values()
        positional = [p for p in parameters if p.kind is Parameter.POSITIONAL_OR_KEYWORD]
        for argument, parameter in zip(target._schema.arguments, positional):
            if argument.has_default_value() and parameter.default is not Parameter.empty:
                theirs, ours = argument.default_value, parameter.default
                is_unsaid = ours in (None, (), -1) or theirs == "valid"
                is_each = isinstance(theirs, list) and set(theirs) == {ours}
                assert ours == theirs or is_unsaid or is_each, (name, argument.name, ours, theirs)
                count += 1
    assert count > 150


class Other:
    """What no argument has by default."""


def test_what_a_rule_does_not_read_is_refused_by_name(torch: Any) -> None:
    refused = 0
    for _, rule, target in calls(torch):
        arguments = target._schema.arguments
        for argument in arguments:
            if argument.name in HARMLESS or is_read(rule, target, argument):
                continue
            refused += 1
            value = Other()
            with pytest.raises(
                Unsupported, match=rf"^the argument {argument.name}=<.*> is not supported$"
            ):
                refuse_unread(rule, target, (), {argument.name: value})
    assert refused >= 10


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("torch.cumsum(x, 0, dtype=torch.float32)", ""),
        ("torch.nn.functional.softplus(x, 1.0, 0.5)", ""),
        ("torch.nn.functional.elu(x, 0.5)", ""),
        ("torch.round(x, decimals=2)", ""),
        ("torch.addmm(x[:3, 0], x, x[:3], beta=0.5, alpha=2.0)", ""),
        ("torch.div(x, 0.7, rounding_mode='floor')", ""),
        ("torch.ops.aten.elu(x, 1.0, 2.0)", "differs from torch's on large numbers"),
        (
            "torch.nn.functional.embedding(i, x, scale_grad_by_freq=True)",
            "scale_grad_by_freq is not supported",
        ),
        (
            "torch.nn.functional.embedding_bag(i[None], x, mode='max')",
            "an embedding bag with mode max",
        ),
        ("torch.norm(x, 5.0)", ""),
        ("torch.norm(x, 0.5)", "differs from torch's on zeros"),
    ],
)
def test_arguments_are_honoured_or_refused(call: str, said: str, torch: Any) -> None:
    import ops

    class Call(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return eval(call, {"torch": torch, "x": x, "i": torch.tensor([0, 1, 0])})

    x = torch.linspace(-2, 2, 12, dtype=torch.float64).reshape(4, 3)
    if not said:
        ops.from_torch(Call(), x)  # compares
        return
    with pytest.raises(ValueError, match=rf"^from_torch: .*{said}") as caught:
        ops.from_torch(Call(), x)
    assert "\n" not in str(caught.value)
