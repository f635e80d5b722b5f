"""Compiled loops generated from programs, one for each pass and way in which its arrays are broadcast.

What depends on columns alone is computed once ahead of the rows. Sums over rows are taken in parts of 256, whose sums
are added up: two short sums are more exact than a long one; sums over everything are taken in double precision.

No fast mathematics unless a program says so: an element gets the bits of its operators one by one. Imported inside
kernels only, as importing numba costs 0.3 s.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import taskflow
from ops.expressions import math as cpu_math
from ops.expressions.expression import COMPARISONS, ROUNDING, Argument, Step
from ops.expressions.program import Assignment, Pass

_PART = 256  # rows
_CODE = {
    "add": "{} + {}",
    "subtract": "{} - {}",
    "multiply": "{} * {}",
    "divide": "{} / {}",
    "negative": "-{}",
    "absolute": "abs({})",
    "sqrt": "math.sqrt({})",
    "exp": "exp({})",
    "tanh": "tanh({})",
    "erf": "erf({})",
    **{name: f"np.{name}({{}})" for name in ROUNDING},
    "maximum": "{1} if {0} <= {1} or {1} != {1} else {0}",  # NaN where one is, as NumPy's
    "minimum": "{1} if {0} >= {1} or {1} != {1} else {0}",
    "where": "{1} if {0} != zero else {2}",
    **{name: f"one if {{}} {sign} {{}} else zero" for name, sign in COMPARISONS.items()},
}


@cache
def compiled_loop(
    one: Pass,
    arguments: tuple[tuple[str, str], ...],
    numbers: tuple[str, ...],
    contracts: bool = False,
) -> Callable[..., None]:
    """`loop(*arrays, *firsts, *numbers)` runs a pass of the functions in `_CODE`.

    Args:
        one: the pass.
        arguments: per array its name and its layout: `matrix`, `row` (a number per column), `column` (one per row),
            `number`, or `parts`: (rows, parts, columns), whose parts from the next of `firsts` on bear the names.
        numbers: names of numbers of the dtype of the matrices.
        contracts: whether a product and a sum may be rounded once.
    """
    text = source(one, arguments, numbers)
    name = (
        f"loop_{hashlib.sha256(text.encode()).hexdigest()[:16]}"  # compiled code is linked by name
    )
    module = {**vars(cpu_math)}
    exec(text.replace("def loop(", f"def {name}("), module)
    options: dict[str, Any] = {"fastmath": {"contract"}} if contracts else {}
    loop: Callable[..., None] = taskflow.njit(nogil=True, error_model="numpy", **options)(
        module[name]
    )
    return loop


def source(one: Pass, arguments: tuple[tuple[str, str], ...], numbers: tuple[str, ...]) -> str:
    """The loop as text."""
    return _Loop(one, arguments, numbers).text


@dataclass(frozen=True)
class _Value:
    """Code of a value, and what it depends on: 0 numbers, 1 columns, 2 elements."""

    code: str
    depth: int


class _Loop:
    """The text of a loop while it is written."""

    def __init__(
        self, one: Pass, arguments: tuple[tuple[str, str], ...], numbers: tuple[str, ...]
    ) -> None:
        self.arrays = [f"a{k}" for k in range(len(arguments))]
        self.values = {name: _Value(f"n_{name}", 0) for name in numbers}
        self.once: list[str] = []  # before all rows
        self.columns: list[str] = []  # for every column before all rows
        self.firsts: list[str] = []
        self.of_row: list[str] = []  # for every row
        self.held = self.buffers = self.count = 0
        self.written: dict[str, str] = {}  # array that is set -> its element
        self.totals: dict[str, tuple[str, str]] = {}  # array that is a sum -> its name, its layout
        self.matrix = ""
        for array, (names, layout) in zip(self.arrays, arguments, strict=True):
            self._meet(one, array, names.split(), layout)
        bodies = [self._body(one, k) for k in range(len(one.loops))]
        self.text = self._assembled(one, numbers, bodies)

    def _meet(self, one: Pass, array: str, names: list[str], layout: str) -> None:
        """Where the values of an array's names are."""
        if layout in ("matrix", "parts"):
            self.matrix = self.matrix or array
        if layout == "parts":
            self.firsts.append(f"{array}_first")
        for k, name in enumerate(names):
            element = {
                "matrix": f"{array}[r, c]",
                "parts": f"{array}[r, {array}_first + {k}, c]",
                "row": f"{array}[c]",
                "column": f"{array}_r",
                "number": f"{array}_0",
            }[layout]
            if any(a.is_sum and a.target == name for a in one.assignments):
                self.totals[name] = array, layout
                continue
            if name in one.targets:
                self.written[name] = element
            if name in one.reads:
                self.values[name] = _Value(element, {"number": 0, "row": 1}.get(layout, 2))
                if layout == "column":
                    self.of_row.append(f"{array}_r = {array}[r]")
                if layout == "number":
                    self.once.append(f"{array}_0 = number({array}[0])")

    def _body(self, one: Pass, k: int) -> list[str]:
        """A loop over the elements of a row."""
        lines: list[str] = []
        stores: list[str] = []
        outside = dict(self.values)
        here = set[str]()
        for assignment in one.loops[k]:
            value = self._value(assignment, lines)
            name = assignment.target
            if assignment.is_sum:
                lines.append(self._add(name, self._held(value)))
                continue
            self.values[name] = value
            here.add(name)
            if name in self.written:
                stores.append(f"{self.written[name]} = {self._held(value)}")
        return lines + stores + self._buffered(one, k, here, outside)

    def _buffered(
        self, one: Pass, k: int, here: set[str], outside: Mapping[str, _Value]
    ) -> list[str]:
        """Stores to buffers of what later loops read of loop `k`, which has made the values `here`."""
        stores = []
        later = _read_from(one, k + 1)
        for name, value in self.values.items():
            if name in self.written and name in here:
                self.values[name] = _Value(self.written[name], 2)
            elif name in here and name in later and value.depth == 2:
                buffer = _Value(f"b{self.buffers}[c]", 2)
                self.buffers += 1
                stores.append(f"{buffer.code} = {value.code}")
                self.values[name] = buffer
            elif name not in here:
                self.values[name] = outside[name]  # read again by the next loop
        return stores

    def _value(self, assignment: Assignment, lines: list[str]) -> _Value:
        slots: dict[int, _Value] = {}
        for step in assignment.value.steps:
            slots[step.slot] = self._step(step, slots, lines)
        return slots[0] if assignment.value.steps else self._read(assignment.value.text, lines)

    def _step(self, step: Step, slots: dict[int, _Value], lines: list[str]) -> _Value:
        values = [self._argument(a, slots, lines) for a in step.arguments]
        depth = max(v.depth for v in values)
        name = f"t{self.count}"
        self.count = self.count + 1
        codes = [self._held(v) if depth == 2 else v.code for v in values]
        (self.once, self.columns, lines)[depth].append(
            f"{name} = " + _CODE[step.function].format(*codes)
        )
        return _Value(name, depth)

    def _argument(self, argument: Argument, slots: dict[int, _Value], lines: list[str]) -> _Value:
        if isinstance(argument, str):
            return self._read(argument, lines)
        return (
            _Value(f"number({argument!r})", 0) if isinstance(argument, float) else slots[argument]
        )

    def _read(self, name: str, lines: list[str]) -> _Value:
        """A name; an element of memory is read once in a loop."""
        value = self.values[name]
        if value.depth == 2 and value.code.endswith("]"):
            variable = f"t{self.count}"
            self.count = self.count + 1
            lines.append(f"{variable} = {value.code}")
            value = self.values[name] = _Value(variable, 2)
        return value

    def _held(self, value: _Value) -> str:
        """Code of a value within a row; what was computed for a column is kept."""
        if value.depth != 1 or value.code.endswith("]"):
            return value.code
        name = f"h{value.code[1:]}"
        if (line := f"{name}[c] = {value.code}") not in self.columns:
            self.columns.append(line)
            self.once.append(f"{name} = np.empty({self.matrix}.shape[-1], {self.matrix}.dtype)")
        return f"{name}[c]"

    def _add(self, name: str, code: str) -> str:
        array, layout = self.totals[name]
        return (
            f"{array}_part[c] += {code}"
            if layout == "row"
            else f"{array}_sum = plus({array}_sum, {code})"
        )

    def _assembled(self, one: Pass, numbers: tuple[str, ...], bodies: list[list[str]]) -> str:
        made = [array for array, layout in self.totals.values() if layout == "row"]
        whole = [array for array, layout in self.totals.values() if layout != "row"]
        width = f"{self.matrix}.shape[-1]"
        empty = f"np.empty({width}, {self.matrix}.dtype)"
        lines = [
            *(f"# {line}" for line in str(one).splitlines()),
            f"def loop({', '.join((*self.arrays, *self.firsts, *(f'n_{name}' for name in numbers)))}):",
            f"    number = {self.matrix}.dtype.type",
            "    zero, one = number(0), number(1)",
            *(f"    {array}_sum = 0.0" for array in whole),
            *(f"    {array}[:] = 0" for array in made),
            *(f"    {array}_part = {empty}" for array in made),
            *(f"    b{k} = {empty}" for k in range(self.buffers)),
            *(f"    {line}" for line in self.once),
        ]
        if self.columns:
            lines += [
                f"    for c in range({width}):",
                *(f"        {line}" for line in self.columns),
            ]
        rows = [f"for r in range({self.matrix}.shape[0]):"]
        indent = "    "
        if made:
            lines.append(f"    for first in range(0, {self.matrix}.shape[0], {_PART}):")
            lines += [f"        {array}_part[:] = 0" for array in made]
            rows = [f"for r in range(first, min(first + {_PART}, {self.matrix}.shape[0])):"]
            indent = "        "
        rows += [f"    {line}" for line in self.of_row]
        for body in bodies:
            rows += (
                [f"    for c in range({width}):", *(f"        {line}" for line in body)]
                if body
                else []
            )
        lines += [indent + line for line in rows]
        for array in made:
            lines += [
                f"        for c in range({width}):",
                f"            {array}[c] += {array}_part[c]",
            ]
        return "\n".join([*lines, *(f"    {array}[0] = {array}_sum" for array in whole), ""])


def _read_from(one: Pass, k: int) -> set[str]:
    """What the loops from number `k` on read."""
    return {name for loop in one.loops[k:] for a in loop for name in a.value.names}
