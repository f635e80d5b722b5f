"""What the cells of recurrent layers compute, once for every way to run them: a step at a time, or all as one operator.

A cell is a program (see `ops.expressions.program`) on the gates before activation and the state before. Gates are
(..., gates, hidden), in the order i, f, g, o of an LSTM and r, z, n of a GRU; states are (..., hidden).
"""

from __future__ import annotations

from collections.abc import Sequence

from ops.building import launch_all, term, terms
from ops.expressions.assign import assign
from ops.expressions.program import Program, program
from taskflow import LogicalRegion, Operator

State = tuple[LogicalRegion, LogicalRegion]


def lstm_program(summands: int) -> Program:
    """active = σ(i), σ(f), tanh(g), σ(o); c' = f c + i g; h' = o tanh(c').

    Args:
        summands: so many arrays are summed for the gates before activation; 0: `active` holds them.
    """
    i, f, g, o = (" + ".join(f"{gate}{k}" for k in range(summands)) or gate for gate in "ifgo")
    return program(
        f"i = sigmoid({i})\nf = sigmoid({f})\no = sigmoid({o})\ng = tanh({g})\n"
        "new_c = f * c + i * g\nnew_h = o * tanh(new_c)",
        "".join(f"(i{k} f{k} g{k} o{k}) " for k in range(summands)) + "c new_h new_c (i f g o)",
        contracts=True,
    )


def lstm_gradient(hidden: Sequence[str], cell: str | None) -> Program:
    """The gradients of gates and c, from those of h' that are called `hidden`, and that of c' called `cell`.

    Those of the gates go through their activations. What is called `gc` is replaced by the gradient of c.
    """
    sum_of = " + ".join(hidden) or "0 * o"
    return program(
        f"total = {sum_of}; root = tanh(new_c); go = total * root * (o * (1 - o)); "
        f"s = {f'{cell} + ' if cell else ''}total * o * (1 - root * root)\n"
        "gi = s * g * (i * (1 - i))\ngg = s * i * (1 - g * g)\n"
        "gf = s * c * (f * (1 - f)); gc = s * f",
        " ".join(
            [
                *hidden,
                *([cell] if cell and cell != "gc" else []),
                "c new_c (i f g o) (gi gf gg go) gc",
            ]
        ),
        contracts=True,
    )


_ACTIVE = "r = sigmoid(xr + hr)\nz = sigmoid(xz + hz)\nn = tanh(xn + r * hn)\n"
GRU = assign.bind(
    program=program(
        f"{_ACTIVE}new_h = (h - n) * z + n", "(xr xz xn) (hr hz hn) h new_h", contracts=True
    )
)
GRU_GRADIENT = assign.bind(
    program=program(
        f"{_ACTIVE}gn = g * (1 - z) * (1 - n * n); fn = gn * r\n"
        "gr = gn * hn * r * (1 - r); fr = gr\n"
        "gz = (h - n) * g * z * (1 - z); fz = gz; gh = g * z",
        "g (xr xz xn) (hr hz hn) h (gr gz gn) (fr fz fn) gh",
        contracts=True,
    )
)


# -- an LSTM's cell as an operator -------------------------------------------------------------------------------------


def launch_cell(gates: LogicalRegion, c: LogicalRegion) -> State:
    """`<gates>.cell`: the state after the step whose gates are `gates`, (..., 4, hidden); `c` is (..., hidden)."""
    lead = gates.axes[:-2]
    wide, narrow = term((*lead, "^g", "h")), term((*lead, "h"))
    with gates.graph.following(gates.name):
        new_h, new_c, _ = launch_all(
            f"{gates.name}.cell",
            f"{wide}, {narrow} -> {narrow}, {narrow}, {wide}",  # the activated gates serve the gradient
            [gates, c],
            kernel=assign.bind(program=lstm_program(1)),
            backward=_cell_backward,
            flops=10,
        )
    return new_h, new_c


def _cell_backward(op: Operator, *gradients: LogicalRegion | None) -> State:
    """The gradients of the gates and of c, from those of h' and c' that flow."""
    assert gradients[2] is None, "only the state is public"
    narrow, wide = terms(op)[1][1:]
    flowing = [g for g in gradients if g is not None]
    steps = lstm_gradient(
        ["gh"] * (gradients[0] is not None), "flowing" if gradients[1] is not None else None
    )
    gates, c = launch_all(
        f"{op.name}.dx",
        f"{narrow}, " * len(flowing) + f"{narrow}, {narrow}, {wide} -> {wide}, {narrow}",
        [*flowing, op.inputs[-1], *op.outputs[1:]],
        kernel=assign.bind(program=steps),
        flops=20,
    )
    return gates, c
