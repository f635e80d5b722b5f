"""Every example in a docstring runs and gives what it says."""

import doctest
import importlib
from pathlib import Path

import pytest

from tests.hidden import skip_without

ROOT = Path(__file__).parents[1]
WITH_EXAMPLES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for folder in ("taskflow", "ops")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if ">>>" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples(module: str) -> None:
    loaded = importlib.import_module(module)
    for found in doctest.DocTestFinder().find(loaded):
        for example in found.examples:
            skip_without(example.source)
    failed, tried = doctest.testmod(loaded)
    assert tried > 0
    assert failed == 0
