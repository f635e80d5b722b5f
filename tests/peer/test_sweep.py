"""Every class of torch.nn and every function of torch.nn.functional: torch's numbers, or a refusal of one line.

Each class, and each function that is not the whole of a class, in one way of calling it; all of them in all ways by
HYPOTHESIS_PROFILE=thorough.
"""

import re
from collections import Counter
from operator import itemgetter
from typing import Any

import pytest

from tests.sampling import IS_THOROUGH, sampled

SHARES = 6 if IS_THOROUGH else 2  # of each sweep: workers share them, and a share is one import


def check(
    cases: Any,
    subtests: pytest.Subtests,
    capsys: pytest.CaptureFixture[str],
    title: str,
    least: float,
) -> None:
    """None is wrong, at least this share is right, and with the newest torch those that the table does not name.

    The counts are printed.
    """
    from tests.peer.sweep import verdicts
    from tests.peer.sweep.alone import is_refused

    counts = Counter[str]()
    for name, found in verdicts(cases):
        counts[found.kind] += 1
        with subtests.test(name):
            assert found.kind != "wrong", found.text
            assert not is_newest() or (found.kind == "refused") == is_refused(name), found.text
    with capsys.disabled():
        print(
            f"\n{title}: {counts['right']} right, {counts['refused']} refused, {counts['wrong']} wrong"
        )
    assert counts["right"] >= least * sum(counts.values())


def chosen(cases: Any) -> list[Any]:
    """One way of each class and function. Left out: what a class of the same name calls, and most lazy classes."""
    from tests.peer.sweep.cases import names_of_classes

    if IS_THOROUGH:
        return list(cases)
    names = {name.lower() for name in names_of_classes()}
    return [
        case
        for case in sampled(cases, itemgetter(0))
        if (first := re.split("[, (]", case[0])[0]) == "LazyConv2d"
        or not (first.startswith("Lazy") or (first.islower() and first.replace("_", "") in names))
    ]


def is_newest() -> bool:
    """Whether this is the torch that the table of refused cases is of."""
    import torch

    from tests.peer.sweep.alone import REFUSED_BY

    return bool(torch.__version__.startswith(f"{REFUSED_BY}."))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch warns of old arguments, and of what broadcasts
@pytest.mark.parametrize("share", range(SHARES))
def test_classes(share: int, subtests: pytest.Subtests, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.peer.sweep.cases import of_classes

    check(
        chosen(of_classes())[share::SHARES],
        subtests,
        capsys,
        f"classes of torch.nn, share {share}",
        0.75,
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("share", range(SHARES))
def test_functions(
    share: int, subtests: pytest.Subtests, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.peer.sweep.cases import of_functions

    check(
        chosen(of_functions())[share::SHARES],
        subtests,
        capsys,
        f"torch.nn.functional, share {share}",
        0.7,
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("share", range(SHARES))
def test_calls(share: int, subtests: pytest.Subtests, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.peer.sweep.cases import of_calls

    check(
        sampled(of_calls(), itemgetter(0))[share::SHARES],
        subtests,
        capsys,
        f"functions and methods of torch, share {share}",
        1.0,
    )


@pytest.mark.filterwarnings("ignore")
def test_modules(subtests: pytest.Subtests, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.peer.sweep.cases import of_modules

    check([*of_modules()], subtests, capsys, "modules of one trap each", 1.0)


def test_none_is_forgotten() -> None:
    from tests.peer.sweep import classes, functionals
    from tests.peer.sweep.cases import names_of_classes, names_of_functions

    assert names_of_classes() - classes.CLASSES.keys() - classes.LEFT_OUT.keys() == set()
    assert (
        names_of_functions() - functionals.FUNCTIONS.keys() - functionals.LEFT_OUT.keys() == set()
    )
    assert not classes.CLASSES.keys() & classes.LEFT_OUT.keys()
    assert not functionals.FUNCTIONS.keys() & functionals.LEFT_OUT.keys()


def test_tables_of_cases_name_cases() -> None:
    from tests.peer.sweep.alone import MISTAKEN, REFUSED, TAKEN_APART
    from tests.peer.sweep.cases import of_calls, of_classes, of_functions, of_modules

    names = {case[0] for case in (*of_classes(), *of_functions(), *of_calls(), *of_modules())}
    firsts = {name.partition("(")[0] for name in names}
    if is_newest():
        assert names | firsts >= REFUSED
        assert names >= TAKEN_APART | MISTAKEN
    assert not REFUSED & TAKEN_APART


def test_a_wrong_rule_is_seen(monkeypatch: pytest.MonkeyPatch, torch: Any) -> None:
    """The sweep and the import see what an ordinary example does not: here a slope at 0 that is not torch's."""
    from ops.elementwise.broadcast import elementwise, launch
    from ops.torch import export_reader
    from tests.peer.sweep import verdict
    from tests.peer.sweep.cases import Call

    wrong = elementwise("max(x, 0)", x="g * (x >= 0)")
    monkeypatch.setitem(
        export_reader.RULES, "relu", lambda at, x: launch("relu", wrong, {"x": x}, at.name)
    )
    found = verdict(Call(torch.relu), (torch.linspace(-1.1, 1.3, 12, dtype=torch.float64),))
    assert (found.kind, "differs from torch's on zeros" in found.text) == ("refused", True)
