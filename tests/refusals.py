"""How refusals are tested: by their whole messages, which are part of what a user gets."""

import json
from functools import partial
from inspect import signature
from pathlib import Path

import pytest


def assert_refused(message, call, kind=ValueError):
    """`call` raises `kind` with exactly `message`."""
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == message


def each_refused(table):
    """The test of a table of refusals: a case for each row `(what, call, message)`.

    `what` names the case. `call` raises a ValueError, or the kind of error that the row has as its
    fourth, with exactly `message`. Parameters of `call` that have no default are fixtures.
    """

    @pytest.mark.parametrize(
        ("call", "message", "kind"),
        [
            pytest.param(call, message, *(kind or [ValueError]), id=what)
            for what, call, message, *kind in table
        ],
    )
    def test_refused(request, call, message, kind):
        given = {
            name: request.getfixturevalue(name)
            for name, parameter in signature(call).parameters.items()
            if parameter.default is parameter.empty
        }
        assert_refused(message, lambda: call(**given), kind)

    return test_refused


def of_values(message, call, values, kind=ValueError):
    """Rows of an option: `call` takes a value before its fixtures, and `message` is formatted with it."""
    option = message.partition("{")[0]
    return [
        (f"{option}{value!r}", partial(call, value), message.format(value), kind)
        for value in values
    ]


def of_files(load, kind, path, files):
    """Rows of files `(what, content, said)` that `load(path)` refuses; what is no text is written as JSON."""

    def loading(content):
        def call(tmp_path, monkeypatch):
            monkeypatch.chdir(tmp_path)
            Path(path).write_text(content if isinstance(content, str) else json.dumps(content))
            load(path)

        return call

    return [(what, loading(content), f"{kind} '{path}': {said}") for what, content, said in files]
