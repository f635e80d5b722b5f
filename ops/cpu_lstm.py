"""Compiled kernels of the LSTM's elementwise parts; see `cpu` for what holds for all of them.

Gates are (samples, 4, hidden) in the order i, f, g, o; states are (samples, hidden).
"""

from __future__ import annotations

from typing import Any

import numba

from ops.cpu_math import sigmoid, tanh

_CONTRACT = {"contract"}


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=_CONTRACT)
def cell(gates: Any, c: Any, new_h: Any, new_c: Any, active: Any) -> None:
    """active = σ(i), σ(f), tanh(g), σ(o); new_c = f c + i g; new_h = o tanh(new_c)."""
    for n in range(c.shape[0]):
        for part in range(4):
            source, target = gates[n, part], active[n, part]
            for k in range(source.size):
                target[k] = source[k]
        finish_sample(active[n], c[n], new_h[n], new_c[n])


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=_CONTRACT)
def cell_of_sum(gates: Any, inputs: Any, c: Any, new_h: Any, new_c: Any, active: Any) -> None:
    """`cell` of gates + inputs."""
    for n in range(c.shape[0]):
        for part in range(4):
            source, other, target = gates[n, part], inputs[n, part], active[n, part]
            for k in range(source.size):
                target[k] = source[k] + other[k]
        finish_sample(active[n], c[n], new_h[n], new_c[n])


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=_CONTRACT)
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


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=_CONTRACT)
def cell_gradient(gh: Any, flowing: Any, c: Any, new_c: Any, active: Any, ggates: Any, gc: Any) -> None:
    """The gradients of gates and c from those of new_h (`gh`) and new_c (`flowing`)."""
    one = c.dtype.type(1)
    for n in range(c.shape[0]):
        i, f, g, o = active[n, 0], active[n, 1], active[n, 2], active[n, 3]
        gi, gf, gg, go = ggates[n, 0], ggates[n, 1], ggates[n, 2], ggates[n, 3]
        for k in range(i.size):
            squashed = tanh(new_c[n, k])
            go[k] = gh[n, k] * squashed * (o[k] * (one - o[k]))
            gc[n, k] = flowing[n, k] + gh[n, k] * o[k] * (one - squashed * squashed)
        for k in range(i.size):
            gi[k] = gc[n, k] * g[k] * (i[k] * (one - i[k]))
            gg[k] = gc[n, k] * i[k] * (one - g[k] * g[k])
        for k in range(i.size):
            gf[k] = gc[n, k] * c[n, k] * (f[k] * (one - f[k]))
            gc[n, k] *= f[k]
