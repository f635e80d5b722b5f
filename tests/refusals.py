"""How a refusal is tested: by its whole message, which is part of what a user gets."""

import pytest


def assert_refused(message, call, kind=ValueError):
    """`call` raises `kind` with exactly `message`."""
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == message
