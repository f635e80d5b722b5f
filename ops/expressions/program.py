"""Programs: several results of one pass over memory, as text of which compiled loops and CUDA kernels are made.

    m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * (g * g)
    p = p - rate * m / (sqrt(v) + eps); total += p * p

An assignment is a name, `=` or `+=`, and an expression (`ops.expressions.expression`). A name means what was assigned
to it last. `=` sets every element of an array, or a value that later assignments read; `+=` sets an array to the sum
over all dimensions that it lacks. Assignments behind one another on a line share a loop; a new line begins a loop over
the same row (compilers do not vectorize a loop that sets two parts of one array, or many arrays); a blank line begins
the next pass.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache

from ops.expressions.expression import Expression

_ASSIGNMENT = re.compile(r"\s*(\w+)\s*(\+?=)(?!=)(.*)", re.DOTALL)


@dataclass(frozen=True)
class Assignment:
    """`target` = the value, or its sum over what `target` lacks."""

    target: str
    value: Expression
    is_sum: bool = False

    def __str__(self) -> str:
        return f"{self.target} {'+=' if self.is_sum else '='} {self.value.text}"

    def unless(self, skip: str, is_state: bool) -> Assignment:
        """The same, but with `skip` of 1 or more a state keeps its value, and anything else is 0."""
        text = f"where({skip} < 1, {self.value.text}, {self.target if is_state else 0})"
        return Assignment(self.target, Expression.parse(text), self.is_sum)


@dataclass(frozen=True)
class Pass:
    """The assignments of one pass over memory, by loops."""

    loops: tuple[tuple[Assignment, ...], ...]

    @staticmethod
    @cache
    def parse(text: str) -> Pass:
        """Raises ValueError for what is no assignment."""
        return Pass(
            tuple(
                tuple(map(_assignment, line.split(";")))
                for line in text.splitlines()
                if line.strip()
            )
        )

    def __str__(self) -> str:
        return "\n".join("; ".join(map(str, loop)) for loop in self.loops)

    @cached_property
    def assignments(self) -> tuple[Assignment, ...]:
        """All of them in order."""
        return tuple(a for loop in self.loops for a in loop)

    @cached_property
    def targets(self) -> frozenset[str]:
        """The names that are assigned."""
        return frozenset(a.target for a in self.assignments)

    @cached_property
    def reads(self) -> frozenset[str]:
        """The names whose first value comes from outside."""
        read = set[str]()
        assigned = set[str]()
        for a in self.assignments:
            read |= set(a.value.names) - assigned
            assigned.add(a.target)
        return frozenset(read)

    @cached_property
    def names(self) -> frozenset[str]:
        """All names in it."""
        return self.targets | self.reads

    @cached_property
    def maps(self) -> frozenset[str]:
        """The names that are assigned, but no sums."""
        return frozenset(a.target for a in self.assignments if not a.is_sum)

    @cached_property
    def mapped(self) -> frozenset[str]:
        """The names in assignments that are no sums."""
        return frozenset(
            name for a in self.assignments if not a.is_sum for name in (a.target, *a.value.names)
        )

    @cached_property
    def functions(self) -> frozenset[str]:
        """NumPy's names of the functions in it."""
        return frozenset(f for a in self.assignments for f in a.value.functions)


@cache
def value_in(one: Pass, assignment: Assignment, arrays: frozenset[str]) -> Expression:
    """The value of an assignment of a pass, of arrays and numbers alone, at the end of the pass."""
    texts: dict[str, str] = {}
    for a in one.assignments[: one.assignments.index(assignment)]:
        if a.target not in arrays:
            texts[a.target] = _put(a.value, texts).text
    value = _put(assignment.value, texts)
    before = set(value.names) - set(assignment.value.names)
    assert before.isdisjoint(one.maps), (
        f"'{assignment}' is of what arrays hold before the pass, by other names"
    )
    return value


def _put(value: Expression, texts: Mapping[str, str]) -> Expression:
    return value.renamed({name: texts[name] for name in value.names if name in texts})


OUT = "out"


@cache
def result_of(expression: Expression) -> Pass:
    """The pass that sets `OUT` to the value of an expression."""
    return Pass(((Assignment(OUT, expression),),))


@dataclass(frozen=True)
class Program:
    """What a kernel computes, and what it calls its arrays.

    Attributes:
        text: the passes, without blanks at the ends of its lines.
        arguments: per array its name, or the names of the points of its dimension before the last: `i f g o`.
        numbers: name -> number.
        each_step: assignments of numbers that are computed in double precision in each step, of the other numbers and
            of `t`, the number of the step from 1.
        along: the dimension of the others along which arrays of one dimension lie; None: the last one.
        contracts: whether a product and a sum may be rounded once.
    """

    text: str
    arguments: tuple[str, ...]
    numbers: tuple[tuple[str, float], ...] = ()
    each_step: str = ""
    along: int | None = None
    contracts: bool = False

    @cached_property
    def passes(self) -> tuple[Pass, ...]:
        """In order."""
        return tuple(Pass.parse(part) for part in self.text.split("\n\n"))

    def numbers_at(self, step: int) -> Mapping[str, float]:
        """The numbers in the step after so many steps."""
        return _numbers_at(self, step)

    def unless(self, skip: str, at: int) -> Program:
        """The program whose argument `at` is `skip`: if that is 1 or more, no state changes, and outputs are 0."""
        passes = []
        for one in self.passes:
            kept = [
                [a.unless(skip, a.target in one.reads) if self._has(a.target) else a for a in loop]
                for loop in one.loops
            ]
            passes.append(str(Pass(tuple(map(tuple, kept)))))
        arguments = *self.arguments[:at], skip, *self.arguments[at:]
        return replace(self, text="\n\n".join(passes), arguments=arguments)

    def _has(self, name: str) -> bool:
        return any(name in names.split() for names in self.arguments)


@lru_cache(64)
def _numbers_at(program: Program, step: int) -> Mapping[str, float]:
    numbers = dict(program.numbers)
    for a in Pass.parse(program.each_step).assignments:
        numbers[a.target] = a.value.number(numbers | {"t": step + 1})
    return numbers


def _argument_names(arguments: str) -> tuple[str, ...]:
    return tuple(a or b for a, b in re.findall(r"\(([\w ]+)\)|(\w+)", arguments))


def program(
    text: str,
    arguments: str,
    numbers: Mapping[str, float] | None = None,
    each_step: str = "",
    along: int | None = None,
    contracts: bool = False,
) -> Program:
    """A `Program`; `arguments` as `x (i f g o) y`, lines may be indented."""
    names = _argument_names(arguments)
    parsed = Program(
        "\n".join(map(str.strip, text.strip().splitlines())),
        names,
        tuple((numbers or {}).items()),
        each_step,
        along,
        contracts,
    )
    assert parsed.passes and not (each_step and any(" " in name for name in names))
    return parsed


def _assignment(text: str) -> Assignment:
    if not (match := _ASSIGNMENT.fullmatch(text)):
        raise ValueError(f"program: '{text.strip()}' is no assignment")
    target, sign, value = match.groups()
    return Assignment(target, Expression.parse(value.strip()), sign == "+=")
