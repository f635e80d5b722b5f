"""Compiled kernels of connectionist temporal classification: sums over alignments, and the likeliest labels.

A probability is a mantissa in [1, 2) (0 for zero) and a power of two of any size, so that the sums of a state are
products and additions, without a logarithm, and nothing underflows, however unlikely it is. See `ops.loss.ctc`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from taskflow import Array, njit

_NEVER = -(1 << 60)  # the power of a probability of zero
_LOG2E = 1 / math.log(2)
_MANTISSA, _ONE = (
    (1 << 52) - 1,
    1023 << 52,
)  # of the bits of a double: its fraction, and the exponent of 1


@njit(nogil=True)
def _power(k: Any) -> Any:
    """2 to the power of k; 0 where that underflows."""
    return np.int64((min(max(k, -1023), 1023) + 1023) << 52).view(np.float64)


@njit(nogil=True)
def _normal(m: Any, e: Any) -> Any:
    """m 2^e as a mantissa in [1, 2) and a power."""
    bits = np.float64(m).view(np.int64)
    if m == 0.0:
        return 0.0, _NEVER
    return np.int64((bits & _MANTISSA) | _ONE).view(np.float64), e + (bits >> 52) - 1023


@njit(nogil=True)
def _sum(m0: Any, e0: Any, m1: Any, e1: Any, m2: Any, e2: Any) -> Any:
    top = max(e0, e1, e2)
    if top <= _NEVER:
        return 0.0, _NEVER
    return m0 * _power(e0 - top) + m1 * _power(e1 - top) + m2 * _power(e2 - top), top


@njit(nogil=True)
def _softmax(x: Array, m: Array, e: Array, p: Array) -> None:
    """Of a frame: probabilities, as they are and by mantissa and power."""
    most = x.max()
    total = 0.0
    for c in range(len(x)):
        p[c] = math.exp(x[c] - most)
        total += p[c]
    shift = math.log(total)
    for c in range(len(x)):
        power = (x[c] - most - shift) * _LOG2E
        p[c] /= total
        m[c] = 0.0
        e[c] = _NEVER
        if power > _NEVER:
            e[c] = math.floor(power)
            m[c] = 2.0 ** (power - e[c])


@njit(nogil=True)
def _lay_out(target: Array, labels: int, blank: int, label: Array, skips: Array) -> None:
    """Of every state its label, and what is added to the power of the state two before: 0 if that may lead to it.

    State s stands at s + 2, behind two that are never.
    """
    label[:] = blank
    skips[:] = _NEVER
    for j in range(labels):
        label[2 * j + 3] = target[j]
        if j > 0 and target[j] != target[j - 1]:
            skips[2 * j + 3] = 0


@njit(nogil=True)
def _go_on(
    pm: Array,
    pe: Array,
    label: Array,
    skips: Array,
    last: int,
    am: Array,
    ae: Array,
) -> None:
    """Of every frame and state: the sum over alignments that are there, this frame's label included."""
    am[:, :2] = 0
    ae[:, :2] = _NEVER
    am[0, :] = 0
    ae[0, :] = _NEVER
    for s in range(2, min(last, 2) + 2):
        am[0, s], ae[0, s] = pm[0, label[s]], pe[0, label[s]]
    for t in range(1, len(pm)):
        m = am[t - 1]
        e = ae[t - 1]
        for s in range(2, last + 2):
            total, top = _sum(
                m[s], e[s], m[s - 1], e[s - 1], m[s - 2], max(e[s - 2] + skips[s], _NEVER)
            )
            am[t, s], ae[t, s] = _normal(total * pm[t, label[s]], top + pe[t, label[s]])


@njit(nogil=True)
def _go_back(
    pm: Array,
    pe: Array,
    label: Array,
    skips: Array,
    last: int,
    bm: Array,
    be: Array,
) -> None:
    """From the sums over what follows a frame, of every state, to those of the frame before.

    `pm`, `pe`: this frame's.
    """
    cm = np.empty(len(bm))
    ce = np.empty(len(bm), np.int64)
    cm[:] = 0
    ce[:] = _NEVER
    for s in range(2, last + 2):
        cm[s], ce[s] = bm[s] * pm[label[s]], max(be[s] + pe[label[s]], _NEVER)
    for s in range(2, last + 2):
        m1 = 0.0
        e1 = _NEVER
        m2 = 0.0
        e2 = _NEVER
        if s + 1 < last + 2:
            m1 = cm[s + 1]
            e1 = ce[s + 1]
        if s + 2 < last + 2:
            m2 = cm[s + 2]
            e2 = max(ce[s + 2] + skips[s + 2], _NEVER)
        total, top = _sum(cm[s], ce[s], m1, e1, m2, e2)
        bm[s], be[s] = _normal(total, top)


@njit(nogil=True)
def _end(m: Any, e: Any, last: int) -> Any:
    """The sum of the last frame's states in which an alignment may end."""
    return _normal(*_sum(m[last + 1], e[last + 1], m[last], e[last], 0.0, _NEVER))


@njit(nogil=True, error_model="numpy")
def losses(
    x: Array,
    targets: Array,
    frames: Array,
    labels: Array,
    blank: int,
    loss: Array,
    gx: Array,
) -> None:
    """-log of the probability of each target, and its gradient; infinite, with a gradient of NaN, if it cannot be.

    `x`: (b, t, c); `targets`: (b, l), of which `labels` count; `frames` of `x` count; the gradient of others is 0.
    """
    places = 2 * targets.shape[1] + 3
    pm = np.empty(x.shape[1:])
    p = np.empty(x.shape[1:])
    pe = np.empty(x.shape[1:], np.int64)
    am = np.empty((x.shape[1], places))
    ae = np.empty((x.shape[1], places), np.int64)
    bm = np.empty(places)
    be = np.empty(places, np.int64)
    label = np.empty(places, np.int64)
    skips = np.empty(places, np.int64)
    for b in range(len(x)):
        count = frames[b]
        last = 2 * labels[b] + 1
        gx[b] = 0
        if count == 0:
            loss[b] = 0.0 if labels[b] == 0 else np.inf
            continue
        for t in range(count):
            _softmax(x[b, t], pm[t], pe[t], p[t])
        _lay_out(targets[b], labels[b], blank, label, skips)
        _go_on(pm[:count], pe[:count], label, skips, last, am, ae)
        whole, power = _end(am[count - 1], ae[count - 1], last)
        if whole == 0.0:
            loss[b] = np.inf
            gx[b, :count] = np.nan
            continue
        loss[b] = -(math.log(whole) + power / _LOG2E)
        bm[:] = 0
        be[:] = _NEVER
        bm[max(last, 2) : last + 2] = 1.0
        be[max(last, 2) : last + 2] = 0
        for t in range(count - 1, -1, -1):
            gx[b, t] = p[t]
            for s in range(2, last + 2):
                if am[t, s] * bm[s] != 0.0:
                    share = am[t, s] * bm[s] / whole * _power(ae[t, s] + be[s] - power)
                    gx[b, t, label[s]] -= share
            _go_back(pm[t], pe[t], label, skips, last, bm, be)


@njit(nogil=True)
def _log_sum(a: float, b: float) -> float:
    top = max(a, b)
    return top if top == -np.inf else top + math.log(math.exp(a - top) + math.exp(b - top))


@njit(nogil=True)
def _likeliest(ended: Array, open_: Array) -> int:
    """The first of the likeliest prefixes."""
    best = 0
    for k in range(1, len(ended)):
        if _log_sum(ended[k], open_[k]) > _log_sum(ended[best], open_[best]):
            best = k
    return best


@njit(nogil=True)
def _labels_to(node: int, parent: Array, label: Array) -> Array:
    """Those on the way from the root of the tree."""
    labels = np.empty(len(label), np.int64)
    length = 0
    while label[node] >= 0:
        labels[length] = label[node]
        node = parent[node]
        length += 1
    return labels[:length][::-1].copy()


@njit(nogil=True)
def search_prefixes(y: Array, beam: int, blank: int) -> Array:
    """The labels of the likeliest prefix after all frames; `y`: (frames, classes), logarithms of probabilities.

    A prefix is a node of a tree, made when it is first kept. `ended[k]` and `open_[k]`: of the alignments of prefix k
    that end in a blank, or in its last label (Hannun et al., arXiv 1408.2873).
    """
    classes = y.shape[1]
    parent = np.full(len(y) * beam + 1, -1)
    label = np.full(len(parent), -1)
    child = np.full((len(parent), classes), -1)
    where = np.full(len(parent), -1)
    nodes = 1
    node = np.zeros(beam, np.int64)
    count = 1
    ended = np.full(beam, -np.inf)
    open_ = np.full(beam, -np.inf)
    ended[0] = 0.0
    for t in range(len(y)):
        stays = np.full((beam, classes + 1), -np.inf)
        ends = np.full(beam, -np.inf)
        where[node[:count]] = np.arange(count)
        for k in range(
            count
        ):  # column `classes` of `stays`: the prefix itself; others: with one more label
            whole = _log_sum(ended[k], open_[k])
            last = label[node[k]]
            ends[k] = whole + y[t, blank]
            if last >= 0:
                stays[k, classes] = _log_sum(stays[k, classes], open_[k] + y[t, last])
            for c in range(classes):
                if c != blank:
                    longer = (ended[k] if c == last else whole) + y[t, c]
                    at = where[child[node[k], c]] if child[node[k], c] >= 0 else -1
                    if at >= 0:
                        stays[at, classes] = _log_sum(stays[at, classes], longer)
                    else:
                        stays[k, c] = longer
        where[node[:count]] = -1
        score = stays.copy()
        for k in range(count):
            score[k, classes] = _log_sum(ends[k], stays[k, classes])
        kept = 0
        old = node.copy()
        for at in np.argsort(-score.ravel())[:beam]:
            k = at // (classes + 1)
            c = at % (classes + 1)
            if score[k, c] == -np.inf:
                break
            ended[kept], open_[kept], node[kept] = -np.inf, stays[k, c], old[k]
            if c == classes:
                ended[kept] = ends[k]
            else:
                if child[old[k], c] < 0:
                    child[old[k], c], parent[nodes], label[nodes] = nodes, old[k], c
                    nodes += 1
                node[kept] = child[old[k], c]
            kept += 1
        count = kept
    return _labels_to(node[_likeliest(ended[:count], open_[:count])], parent, label)
