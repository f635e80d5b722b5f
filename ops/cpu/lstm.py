"""Compiled kernels of the LSTM's elementwise parts; see `cpu` for what holds for all of them.

Gates are (samples, 4, hidden) in the order i, f, g, o; states are (samples, hidden).
"""

from __future__ import annotations

from typing import Any

from ops.cpu.math import sigmoid, tanh
from ops.cpu.panels import add_product
from taskflow import njit

_CONTRACT = {"contract"}


@njit(nogil=True, error_model="numpy", fastmath=_CONTRACT)
def cell(gates: Any, c: Any, new_h: Any, new_c: Any, active: Any) -> None:
    """active = σ(i), σ(f), tanh(g), σ(o); new_c = f c + i g; new_h = o tanh(new_c)."""
    for n in range(c.shape[0]):
        for part in range(4):
            source, target = gates[n, part], active[n, part]
            for k in range(source.size):
                target[k] = source[k]
        finish_sample(active[n], c[n], new_h[n], new_c[n])


@njit(nogil=True, error_model="numpy", fastmath=_CONTRACT)
def cell_of_sum(gates: Any, inputs: Any, c: Any, new_h: Any, new_c: Any, active: Any) -> None:
    """`cell` of gates + inputs."""
    for n in range(c.shape[0]):
        for part in range(4):
            source, other, target = gates[n, part], inputs[n, part], active[n, part]
            for k in range(source.size):
                target[k] = source[k] + other[k]
        finish_sample(active[n], c[n], new_h[n], new_c[n])


@njit(nogil=True, error_model="numpy", fastmath=_CONTRACT)
def finish_sample(active: Any, old: Any, out: Any, state: Any) -> None:
    """A sample of `cell`, whose gates `active` holds."""
    for part in (0, 1, 3):
        gate = active[part]
        for k in range(gate.size):
            gate[k] = sigmoid(gate[k])
    i, f, g, o = active[0], active[1], active[2], active[3]
    for k in range(g.size):
        g[k] = tanh(g[k])
    for k in range(g.size):
        state[k] = f[k] * old[k] + i[k] * g[k]
    for k in range(g.size):
        out[k] = o[k] * tanh(state[k])


@njit(nogil=True, error_model="numpy", fastmath=_CONTRACT)
def cell_gradient(gh: Any, flowing: Any, c: Any, new_c: Any, active: Any, ggates: Any, gc: Any) -> None:
    """The gradients of gates and c from those of new_h (`gh`) and new_c (`flowing`)."""
    for n in range(c.shape[0]):
        sample_gradient(gh[n], flowing[n], c[n], new_c[n], active[n], ggates[n], gc[n])


@njit(nogil=True, error_model="numpy", fastmath=_CONTRACT)
def sample_gradient(gh: Any, flowing: Any, c: Any, new_c: Any, active: Any, ggates: Any, gc: Any) -> None:
    """`cell_gradient` of one sample."""
    one = c.dtype.type(1)
    i, f, g, o = active[0], active[1], active[2], active[3]
    gi, gf, gg, go = ggates[0], ggates[1], ggates[2], ggates[3]
    for k in range(i.size):
        squashed = tanh(new_c[k])
        go[k] = gh[k] * squashed * (o[k] * (one - o[k]))
        gc[k] = flowing[k] + gh[k] * o[k] * (one - squashed * squashed)
    for k in range(i.size):
        gi[k] = gc[k] * g[k] * (i[k] * (one - i[k]))
        gg[k] = gc[k] * i[k] * (one - g[k] * g[k])
    for k in range(i.size):
        gf[k] = gc[k] * c[k] * (f[k] * (one - f[k]))
        gc[k] *= f[k]


# -- all steps, each with its product with the state before ------------------------------------------------------------


@njit(nogil=True, error_model="numpy", fastmath=_CONTRACT)
def steps(
    inputs: Any, bias: Any, h: Any, c: Any, has_state: Any, packed: Any, edge: Any, hs: Any, cs: Any, active: Any
) -> None:
    """The states after all steps.

    Args:
        inputs: their part of the gates, (samples, steps, 4 hidden).
        bias: (4 hidden,).
        h, c: the state before the first step, (samples, hidden); `h` is read if there is one.
        packed: the weight (4 hidden, hidden), see `cpu_panels`, and `edge` scratch memory for it.
        hs, cs, active: results, (samples, steps, hidden) twice, and (samples, steps, 4, hidden).
    """
    samples, count, width = inputs.shape
    gates = active.reshape(samples, count, width)
    for t in range(count):
        for n in range(samples):
            source, target = inputs[n, t], gates[n, t]
            for k in range(width):
                target[k] = source[k] + bias[k]
        if t:
            add_product(hs[:, t - 1], packed, gates[:, t], edge)
        elif has_state:
            add_product(h, packed, gates[:, t], edge)
        for n in range(samples):
            if t:
                finish_sample(active[n, t], cs[n, t - 1], hs[n, t], cs[n, t])
            else:
                finish_sample(active[n, t], c[n], hs[n, t], cs[n, t])


@njit(nogil=True, error_model="numpy", fastmath=_CONTRACT)
def steps_gradient(
    ghs: Any, c: Any, cs: Any, active: Any, has_state: Any, packed: Any, edge: Any, gh: Any, gc: Any, ggates: Any
) -> None:
    """The gradients of all gates and of the first state.

    Args:
        ghs: gradients of the hidden states, (samples, steps, hidden); no samples: there are none.
        c, cs, active: as of `steps`.
        has_state: whether the gradient of the state before the first step is wanted.
        packed: the weight as (hidden, 4 hidden), see `cpu_panels`, and `edge` scratch memory for it.
        gh, gc: gradients of the state, (samples, hidden) and (2, samples, hidden): on entry of the last one, in
            `gc[steps % 2]`; on return of the first one, in `gc[0]`.
        ggates: result, (samples, steps, 4, hidden).
    """
    samples, count, hidden = cs.shape
    gates = ggates.reshape(samples, count, 4 * hidden)
    for t in range(count - 1, -1, -1):
        flowing, before = gc[(t + 1) % 2], gc[t % 2]
        for n in range(samples):
            if ghs.shape[0]:
                above, total = ghs[n, t], gh[n]
                for k in range(hidden):
                    total[k] += above[k]
            old = cs[n, t - 1] if t else c[n]
            sample_gradient(gh[n], flowing[n], old, cs[n, t], active[n, t], ggates[n, t], before[n])
        if t or has_state:
            gh[:] = 0
            add_product(gates[:, t], packed, gh, edge)
