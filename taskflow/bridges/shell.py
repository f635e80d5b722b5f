"""Launch scripts: the words of every command of a shell script, without running any.

Variables, arrays, arithmetic, `if` with comparisons of texts and numbers, `export` and files that are read in (`.`,
`source`) are followed, as launch scripts of training jobs have them. What only a run knows (arguments, other commands'
output) is left as an empty text. Functions, loops and `case` are skipped, with what stands in them.
"""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from taskflow.core.files import read_text

Words = list[str]
Variables = dict[str, Words]  # a text is an array of one

_NAME = r"[A-Za-z_]\w*"
_ASSIGNMENT = re.compile(
    rf"(?:export\s+|local\s+|readonly\s+|declare\s+-\w+\s+)*({_NAME})(\+?)=(.*)", re.DOTALL
)
_USE = re.compile(
    rf"\$\(\((?P<sum>.*?)\)\)|\$\{{(?P<name>{_NAME}|\d+)(?:\[[@*]\])?(?::?[-=](?P<default>[^}}]*))?\}}"
    rf"|\$(?P<bare>{_NAME}|\d|@|\*)|\$\((?P<call>[^()]*)\)|`(?P<tick>[^`]*)`"
)
_PIECE = re.compile(  # quoted, put in, escaped, plain, or between words
    r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\$\(\(.*?\)\)|\$\{[^}]*\}|`[^`]*`|\\.|\$?[^\s'\"\\$`]+|\$|\s+",
    re.DOTALL,
)
_ARRAY = re.compile(rf"\"\$\{{({_NAME})\[@\]\}}\"")
_SKIPPED = {"for": "done", "while": "done", "case": "esac"}
_COMPARED = {
    **dict.fromkeys(("=", "==", "-eq"), operator.eq),
    **dict.fromkeys(("!=", "-ne"), operator.ne),
    "-gt": operator.gt,
    "-lt": operator.lt,
    "-ge": operator.ge,
    "-le": operator.le,
}


def read_script(path: Path, given: Mapping[str, str] | None = None) -> list[Words]:
    """The words of every command of a script, and of what it exports, in their order.

    Args:
        path: of the script; a file that it reads in is looked for beside it.
        given: variables that the caller sets; what the script sets otherwise is not set.
    """
    script = _Script(path, {name: [value] for name, value in (given or {}).items()})
    script.read(path)
    return script.commands


class _Script:
    def __init__(self, path: Path, given: Variables) -> None:
        self._folder = path.parent
        self._given = given
        self.commands = list[Words]()
        self._variables: Variables = dict(given)
        self._branches: list[tuple[bool, bool]] = []  # of every `if`: this branch, any so far
        self._skipping = ""  # what ends what is skipped

    def read(self, path: Path) -> None:
        """All statements of a file."""
        for statement in _statements(read_text(path)):
            self._take(statement)

    @property
    def _is_on(self) -> bool:
        return all(is_on for is_on, _ in self._branches)

    def _take(self, statement: str) -> None:
        head, _, rest = statement.partition(" ")
        if self._skipping:
            self._skipping = "" if head == self._skipping else self._skipping
        elif head in _SKIPPED:
            self._skipping = _SKIPPED[head]
        elif head in ("if", "elif", "else", "fi", "then"):
            self._branch(head, rest)
        elif self._is_on:
            self._run(statement)

    def _branch(self, head: str, rest: str) -> None:
        if head == "then":
            if rest:
                self._take(rest.strip())
        elif head == "if":
            holds = self._is_on and self._holds(rest)
            self._branches.append((holds, holds))
        elif head == "fi":
            self._branches.pop()
        elif self._branches:
            _, any_so_far = self._branches.pop()
            holds = not any_so_far and (head == "else" or self._holds(rest))
            self._branches.append((holds, any_so_far or holds))
            if head == "else" and rest:
                self._take(rest.strip())

    def _holds(self, condition: str) -> bool:
        """Whether a comparison is true, or one of several, or all; what is not understood is false."""
        if "||" in condition:
            return any(map(self._holds, condition.split("||")))
        if "&&" in condition:
            return all(map(self._holds, condition.split("&&")))
        words = self._words(condition.strip().strip("[] ")) or [""]
        if words[0] in ("-n", "-z"):
            return bool("".join(words[1:])) == (words[0] == "-n")
        left, sign, right = (*words, "", "")[:3] if len(words) > 2 else ("", *words, "")[:3]
        if sign not in _COMPARED:
            return False
        if sign.startswith("-"):
            return left.isdecimal() and right.isdecimal() and _COMPARED[sign](int(left), int(right))
        return bool(_COMPARED[sign](left, right))

    def _run(self, statement: str) -> None:
        if match := _ASSIGNMENT.fullmatch(statement):
            self._assign(match[1], match[2], match[3], statement.startswith("export"))
            return
        words = self._words(statement)
        if words[:1] in (["."], ["source"]) and len(words) > 1:
            path = self._folder / Path(words[1]).name
            if path.is_file():
                self.read(path)
        elif words:
            self.commands.append(words)

    def _assign(self, name: str, plus: str, value: str, is_exported: bool) -> None:
        if name in self._given:
            return
        inside = value[1:-1] if value.startswith("(") else value
        words = self._words(inside)
        if not value.startswith("("):
            words = [" ".join(words)]
        self._variables[name] = (self._variables.get(name, []) if plus else []) + words
        if is_exported:
            self.commands.append(" ".join(words).split())

    def _words(self, text: str) -> Words:
        """Words of a text, variables put in; those of an array are several."""
        quoted = ""
        for piece in _PIECE.findall(text):
            if array := _ARRAY.fullmatch(piece):
                quoted += shlex.join(self._variables.get(array[1], []))
            elif piece[0] == '"':
                quoted += shlex.quote(self._put_in(piece[1:-1]))
            elif piece[0] in "'\\" or piece.isspace():
                quoted += piece
            else:
                quoted += shlex.join(self._put_in(piece).split())
        return shlex.split(quoted)

    def _put_in(self, text: str) -> str:
        return _USE.sub(self._value, text)

    def _value(self, use: re.Match[str]) -> str:
        if use["sum"] is not None:
            names = re.sub(rf"\$?\{{?({_NAME})\}}?", lambda n: self._text(n[1]) or "0", use["sum"])
            return str(_calculated(names))
        name = use["name"] or use["bare"] or ""
        value = self._text(name)
        if not value and use["default"] is not None:
            return self._put_in(use["default"].strip("\"'"))
        return value

    def _text(self, name: str) -> str:
        return " ".join(self._variables.get(name, ()))


def _statements(text: str) -> Iterator[str]:
    """Statements one by one, without comments; an array or a text in quotes may have several lines."""
    statement = ""
    depth = 0
    quote = ""
    lines = re.sub(r"\\\n", " ", text).splitlines()
    for line in lines:
        for k, sign in enumerate(line):
            if not quote and sign == "#" and (k == 0 or line[k - 1].isspace()):
                break
            if not quote and sign == ";" and depth == 0:
                yield from _stripped(statement)
                statement = ""
                continue
            if sign == quote and line[k - 1 : k] != "\\":
                quote = ""
            elif not quote and sign in "\"'":
                quote = sign
            elif not quote:
                depth += (sign == "(") - (sign == ")")
            statement += sign
        if quote or depth > 0:
            statement += "\n"
            continue
        yield from _stripped(statement)
        statement = ""
    yield from _stripped(statement)


def _stripped(statement: str) -> Iterator[str]:
    if statement.strip():
        yield statement.strip()


_SIGNS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def calculate(node: ast.AST) -> object:
    """What a literal, or numbers with signs between them, are; ValueError: it is something else."""
    if isinstance(node, ast.BinOp) and type(node.op) in _SIGNS:
        left = calculate(node.left)
        right = calculate(node.right)
        if isinstance(left, int) and isinstance(right, int) and right:
            return _SIGNS[type(node.op)](left, right)
    return ast.literal_eval(node)


def _calculated(text: str) -> int:
    try:
        value = calculate(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError):
        return 0
    return value if isinstance(value, int) else 0
