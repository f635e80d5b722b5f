"""`taskflow.from_torch` hands over to the package of operators; what that does is in `tests/peer`."""

import sys
from types import SimpleNamespace

import pytest

import taskflow


def test_the_imported_operators_do_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ops", SimpleNamespace(from_torch=lambda *given: given))
    assert taskflow.from_torch("module", "inputs") == ("module", "inputs")


def test_without_operators_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ops", raising=False)
    with pytest.raises(ImportError, match=r"^from_torch: import ops first: taskflow itself has no operators$"):
        taskflow.from_torch(None, None)
