"""The tests of this folder import torch when they run: it takes 3 s, and most processes only collect them."""

from typing import Any

import pytest


@pytest.fixture(autouse=True)
def torch() -> Any:
    return pytest.importorskip("torch")
