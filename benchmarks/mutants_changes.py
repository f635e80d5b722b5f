"""Seeded changes of the sources for `mutants.py`: each of one place of a line, drawn from all places of an area.

A comparison, an operator, a number, a condition that is turned around, a statement that is left out. Numbers of a
module (they are tuned), messages, annotations and what needs a GPU or torch are left alone.
"""

from __future__ import annotations

import ast
import json
import random
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What no test can notice, since it changes nothing but time or unused memory: by `Mutant.key`, and why.
REASONS: dict[str, str] = json.loads(Path(__file__).with_name("mutants.json").read_text())
AREAS = (
    "taskflow/lowering",
    "taskflow/tasks",
    "taskflow/collective",
    "taskflow/simulation",
    "taskflow/schedule",
    "ops",
)
SKIPPED = ("ops/torch", "ops/cuda", "ops/models")


@dataclass(frozen=True)
class Mutant:
    """One place of a file, from `begin` to before `end`, which reads `new` instead of `old`."""

    path: str
    line: int
    begin: int
    end: int
    old: str
    new: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: `{self.old}` -> `{self.new}` in `{self.text}`"

    @property
    def key(self) -> str:
        """What names it as long as the line stays, wherever it stands."""
        return f"{self.path}: `{self.old}` -> `{self.new}` in `{self.text}`"

    def applied(self, source: str) -> str:
        """The source with the change."""
        encoded = source.encode()
        return (encoded[: self.begin] + self.new.encode() + encoded[self.end :]).decode()


_SWAPS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "//"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
_NAMES = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "minimum": "maximum",
    "maximum": "minimum",
}


class _Sites(ast.NodeVisitor):
    """Collects the places of a source that may change, as `mutants`."""

    def __init__(self, path: str, source: str) -> None:
        self.mutants = list[Mutant]()
        self._path, self._bytes = path, source.encode()
        self._starts = [0]
        for line in self._bytes.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._is_in_function = False
        self.visit(ast.parse(source))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outside, self._is_in_function = self._is_in_function, True
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        is_documented = ast.get_docstring(node) is not None
        for statement in node.body[is_documented:]:
            self.visit(statement)
        self._is_in_function = outside

    def visit_Raise(self, node: ast.Raise) -> None:
        """A message."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Never false."""

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":  # nor that
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """A message, mostly."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            self._swap(node.left, node.ops[0], node.comparators[0])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not (_is_listed(node.left) or _is_listed(node.right)):
            self._swap(node.left, node.op, node.right)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        if len(node.values) == 2:
            self._swap(node.values[0], node.op, node.values[1])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add(node, self._at(node), self._at(node.operand), "")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, self._at(node), self._end(node), str(not node.value))
        elif isinstance(node.value, int):
            self._add(node, self._at(node), self._end(node), str(node.value + 1))

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func
        spelled = name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")
        if spelled in _NAMES:
            self._add(node, self._end(name) - len(spelled), self._end(name), _NAMES[spelled])
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        test = self._bytes[self._at(node.test) : self._end(node.test)].decode()
        self._add(node, self._at(node.test), self._end(node.test), f"not ({test})")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._add(node, self._at(node), self._end(node), "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if type(node.op) in (ast.Add, ast.Sub):
            self._swap(node.target, node.op, node.value)
        self.generic_visit(node)

    def _swap(self, left: ast.expr, operator: ast.AST, right: ast.expr) -> None:
        if type(operator) not in _SWAPS:
            return
        old, new = _SWAPS[type(operator)]
        begin, end = self._end(left), self._at(right)
        between = self._bytes[begin:end].decode()
        operator_ = re.search(rf"(?<![\w/<>=!*]){re.escape(old)}", between)
        if operator_:
            at = begin + len(between[: operator_.start()].encode())
            self._add(left, at, at + len(old), new)

    def _add(self, node: ast.expr | ast.stmt, begin: int, end: int, new: str) -> None:
        if self._is_in_function:
            line = next(k for k, start in enumerate(self._starts) if start > begin)
            text = self._bytes[self._starts[line - 1] : self._starts[line]].decode().strip()
            old = self._bytes[begin:end].decode()
            self.mutants.append(Mutant(self._path, line, begin, end, old, new, text))

    def _at(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset


def _is_listed(node: ast.expr) -> bool:
    """A text or a sequence: these are only put together, and anything else is an error at once."""
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return is_text or isinstance(node, (ast.JoinedStr, ast.List, ast.Tuple))


def sites(area: str) -> list[Mutant]:
    """All places of an area that may change."""
    paths = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / area).rglob("*.py"))
    kept = [path for path in paths if not path.startswith(SKIPPED)]
    return [mutant for path in kept for mutant in _Sites(path, (ROOT / path).read_text()).mutants]


def draw(count: int, seed: int) -> list[Mutant]:
    """As many of each area, in a line each, without those that no test can notice."""
    generator, drawn = random.Random(seed), list[Mutant]()
    for number, area in enumerate(AREAS):
        share = count // len(AREAS) + (number < count % len(AREAS))
        by_line = dict[tuple[str, int], Mutant]()
        for mutant in generator.sample(all_sites := sites(area), len(all_sites)):
            by_line.setdefault((mutant.path, mutant.line), mutant)
        drawn += [each for each in by_line.values() if each.key not in REASONS][:share]
    return drawn
