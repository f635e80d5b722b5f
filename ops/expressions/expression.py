"""Elementwise mathematics as text: one scalar expression says what an operator computes, and nothing else does.

`"0.5 * x * (1 + tanh(x))"` is parsed once, into steps that are NumPy's elementwise functions; equal parts are computed
once. `passes` runs the steps over a tile in scratch memory, `loops` and `cuda_source` write one compiled loop and one
CUDA kernel from them. Operators that are fused put one expression in the place of a name in the other
(`ops.elementwise.pointwise`).

An expression is made of names, numbers, `+ - * / **`, comparisons (1 where they hold, else 0) and the functions of
`_FUNCTIONS`; `sigmoid(x)` stands for its definition.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property

import numpy as np

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.Pow: "power",
    ast.USub: "negative",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
}
COMPARISONS = {
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "equal": "==",
    "not_equal": "!=",
}
ROUNDING = ("floor", "ceil", "trunc", "rint")
OF_C = (
    "exp",
    "expm1",
    "log",
    "log1p",
    "sin",
    "cos",
    "tanh",
    "sqrt",
    "erf",
    *ROUNDING,
)  # called so in C, too
_FUNCTIONS = {
    **{name: name for name in (*OF_C, "fmod", "sign", "where")},
    "round": "rint",
    "abs": "absolute",
    "max": "maximum",
    "min": "minimum",
}
# exact for large negative numbers, too, and without an overflow
_MACROS = {"sigmoid": "(where(({0}) < 0, exp(-abs({0})), 1) / (1 + exp(-abs({0}))))"}

Argument = str | float | int  # a name, a number, or the slot of an earlier result


@dataclass(frozen=True)
class Step:
    """One elementwise function: `slot` = function(arguments). Slot 0 is the result."""

    function: str
    arguments: tuple[Argument, ...]
    slot: int


@dataclass(frozen=True)
class Expression:
    """A scalar expression and its steps.

    Attributes:
        text: as it was written.
        names: that occur in it, sorted.
        steps: in order; the last one writes the result. None for a lone name.
    """

    text: str
    names: tuple[str, ...] = field(repr=False)
    steps: tuple[Step, ...] = field(compare=False, repr=False)

    @staticmethod
    @cache
    def parse(text: str) -> Expression:
        """Raises ValueError for what is no such expression."""
        tree = ast.parse(_expanded(text), mode="eval").body
        names = sorted(
            {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - _FUNCTIONS.keys()
        )
        return Expression(text, tuple(names), _Compiler(text).compile(tree))

    def number(self, values: Mapping[str, float]) -> float:
        """Its value of numbers, in double precision."""
        slots: dict[Argument, float] = {}
        for step in self.steps:
            operands = [
                values[a] if isinstance(a, str) else slots.get(a, a) if type(a) is int else a
                for a in step.arguments
            ]
            slots[step.slot] = float(getattr(np, step.function)(*operands))
        return slots[0] if self.steps else values[self.text]

    @cached_property
    def functions(self) -> frozenset[str]:
        """NumPy's names of the functions in it."""
        return frozenset(step.function for step in self.steps)

    def renamed(self, names: Mapping[str, str]) -> Expression:
        """With other names, or other expressions, in the place of some of its names."""
        put = {name: ast.parse(_expanded(text), mode="eval").body for name, text in names.items()}
        tree = _Replacing(put).visit(ast.parse(_expanded(self.text), mode="eval"))
        return Expression.parse(ast.unparse(tree))


class _Replacing(ast.NodeTransformer):
    """Expressions in the place of names."""

    def __init__(self, put: Mapping[str, ast.expr]) -> None:
        self.put = put

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.put.get(node.id, node)


def _expanded(text: str) -> str:
    """Definitions in the place of macros, whose argument is free of brackets."""
    for name, definition in _MACROS.items():
        while (start := text.find(f"{name}(")) >= 0:
            end = text.index(")", start)
            text = (
                text[:start]
                + definition.format(text[start + len(name) + 1 : end])
                + text[end + 1 :]
            )
    return text


class _Compiler:
    """Steps of a tree; a slot is free again after the last step that reads it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.steps: list[
            tuple[str, tuple[Argument, ...]]
        ] = []  # results are numbered as they are made
        self.numbers: dict[tuple[object, ...], int] = {}  # of steps, see `visit`

    def compile(self, tree: ast.AST) -> tuple[Step, ...]:
        if isinstance(tree, ast.Name):
            return ()
        self.visit(tree)
        last_use = {
            a: k for k, (_, arguments) in enumerate(self.steps) for a in arguments if type(a) is int
        }
        slots: dict[Argument, int] = {}
        free = [0]
        steps = []
        for k, (function, arguments) in enumerate(self.steps):
            free += sorted(
                {slots[a] for a in arguments if type(a) is int and last_use[a] == k}, reverse=True
            )
            slots[k] = (
                0
                if k == len(self.steps) - 1
                else free.pop()
                if free
                else 1 + max(slots.values(), default=0)
            )
            steps.append(
                Step(
                    function,
                    tuple(slots[a] if type(a) is int else a for a in arguments),
                    slots[k],
                )
            )
        return tuple(steps)

    def visit(self, node: ast.AST) -> Argument:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return float(node.value)
        if isinstance(node, ast.Name):
            return node.id
        function, operands = self._parts(node)
        arguments = tuple(self.visit(operand) for operand in operands)
        key = function, *((type(a), a) for a in arguments)  # the result of step 1 is not 1.0
        if key not in self.numbers:
            self.numbers[key] = len(self.steps)
            self.steps.append((function, arguments))
        return self.numbers[key]

    def _parts(self, node: ast.AST) -> tuple[str, list[ast.expr]]:
        match node:
            case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)], [left, right]
            case ast.UnaryOp(op, operand) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)], [operand]
            case ast.Compare(left, [op], [right]) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)], [left, right]
            case ast.Call(ast.Name(name), arguments, []) if name in _FUNCTIONS:
                return _FUNCTIONS[name], arguments
        raise ValueError(f"expression '{self.text}': cannot read '{ast.unparse(node)}'")
