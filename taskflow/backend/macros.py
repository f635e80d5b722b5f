"""Macros of CUDA C, spelled out as far as declarations go: what stands in braces is left out.

A preprocessor of C for what `parameters` reads. Macros of objects and of functions, `##`, and continued lines are
known; conditions are not: all their branches are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DEFINE = re.compile(r"#\s*define\s+(\w+)(?:\(([^)]*)\))?\s*(.*)")
_LINKAGE = re.compile(r'extern\s+"C"\s*\{')  # around several kernels; its braces are no body
_INNERMOST = re.compile(r"\{[^{}]*\}")
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Macro:
    """What a name stands for; `parameters` of one that is called."""

    body: str
    parameters: tuple[str, ...] | None = None

    def apply(self, args: list[str]) -> str:
        """The body with arguments in place of parameters, and `##` done."""
        given = dict(zip(self.parameters or (), args))
        text = _WORD.sub(lambda word: given.get(word[0], word[0]), self.body)
        return re.sub(r"\s*##\s*", "", text)


@dataclass(frozen=True)
class Macros:
    """Macros by name."""

    of: Mapping[str, Macro]

    def and_of(self, text: str) -> tuple[Macros, str]:
        """These macros and those that a text defines; and its code outside of braces, with all of them spelled out."""
        lines = _COMMENT.sub(" ", text).replace("\\\n", " ").splitlines()
        macros = Macros({**self.of, **dict(filter(None, map(_definition, lines)))})
        code = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
        return macros, macros.expand(without_bodies(code))

    def expand(self, text: str, within: frozenset[str] = frozenset()) -> str:
        """The text with its macros spelled out; one that stands in its own body (`within`) stays."""
        parts = []
        at = 0
        while match := _WORD.search(text, at):
            name = match[0]
            macro = self.of.get(name) if name not in within else None
            parts.append(text[at : match.start()])
            at = match.end()
            if macro is not None and macro.parameters is None:
                parts.append(self.expand(macro.apply([]), within | {name}))
            elif macro is not None and text[at:].lstrip().startswith("("):
                args, at = _arguments(text, text.index("(", at))
                args = [self.expand(arg, within) for arg in args]
                parts.append(self.expand(macro.apply(args), within | {name}))
            else:
                parts.append(name)
        return "".join([*parts, text[at:]])


def _definition(line: str) -> tuple[str, Macro] | None:
    """The macro that a line defines, if it does."""
    match = _DEFINE.match(line.strip())
    if match is None:
        return None
    name, parameters, body = match.groups()
    names = None if parameters is None else tuple(p.strip() for p in parameters.split(","))
    return name, Macro(without_bodies(body), names)


def without_bodies(text: str) -> str:
    """The text with nothing between braces."""
    text = _LINKAGE.sub("", text)
    while (shorter := _INNERMOST.sub(";", text)) != text:
        text = shorter
    return text


def _arguments(text: str, begin: int) -> tuple[list[str], int]:
    """Arguments of the call whose parenthesis opens at `begin`, and where it ends."""
    depth = 0
    args = []
    start = begin + 1
    for at in range(begin, len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if not depth or (depth == 1 and text[at] == ","):
            args.append(text[start:at].strip())
            start = at + 1
        if not depth:
            return args, start
    raise ValueError(f"a macro's arguments have no end: {text[begin : begin + 80]!r}")
