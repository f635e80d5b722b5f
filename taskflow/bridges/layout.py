"""Megatron-Core's pipeline layouts: `--pipeline-model-parallel-layout "Et*3|(tt|)*29,m|L"`.

Stages are split by `|`; a letter or a group in brackets may be repeated with `*`; commas are for readability. E is the
embedding, t a layer, m a layer of multi-token prediction, L the loss. Source: NVIDIA, Megatron-LM,
`docs/user-guide/features/pipeline_parallel_layout.md`, August 2026.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

LETTERS = "EtmL"
_TOKEN = re.compile(r"\s*([EtmL|(),]|\*\s*\d+)")
_MOST_LETTERS = 1 << 16


def parse_layout(text: str) -> tuple[str, ...]:
    """The letters of every stage, in the order of the model; some may be empty.

    Raises:
        ValueError: it is no layout, with the place.
    """
    where = f"layout '{text}'"
    open_groups = [""]
    last = ""  # `last`: what a factor would repeat
    position = 0
    while position < len(text.rstrip()):
        token = _TOKEN.match(text, position)
        if token is None:
            raise ValueError(f"{where}: at {position + 1}, '{text[position]}' is no part of one")
        position = token.end()
        sign = token[1]
        if sign == "(":
            open_groups.append("")
            last = ""
        elif sign == ")":
            if len(open_groups) < 2:
                raise ValueError(f"{where}: at {position}, ')' closes nothing")
            last = open_groups.pop()
            open_groups[-1] += last
        elif sign.startswith("*"):
            times = int(sign[1:])
            if not last or times < 1 or len(last) * times > _MOST_LETTERS:
                raise ValueError(f"{where}: at {position}, '{sign}' repeats nothing, or too much")
            open_groups[-1] += last * (times - 1)
            last = ""
        elif sign != ",":
            open_groups[-1] += sign
            last = sign
    if len(open_groups) > 1:
        raise ValueError(f"{where}: '(' is not closed")
    return tuple(open_groups[0].split("|"))


def layout_text(layout: Sequence[str]) -> str:
    """A layout that `parse_layout` reads, with repetitions of stages and letters written once."""
    said = ["".join(_times(letter, len(list(run))) for letter, run in groupby(s)) for s in layout]
    pieces = [(stage, len(list(run))) for stage, run in groupby(said[:-1])]
    return "".join(_stages(stage, count) for stage, count in pieces) + said[-1]


def _stages(stage: str, count: int) -> str:
    return f"{stage}|" if count == 1 else f"({stage}|)*{count}"


def _times(letter: str, count: int) -> str:
    return letter if count == 1 else f"{letter}*{count}"
