"""Compiled kernels of mixtures of experts: rows of tokens to slots of experts and back. See `ops.cpu`.

A slot is a number, expert * (slots per expert) + place, or negative for none. Arrays are C-contiguous: tokens are rows
(n, d), their slots (n, k) and weights (n, k), or (0, 0) where every weight is one. `experts` is a tile of (experts,
places, d) whose first expert and place are `expert_lo` and `place_lo` among `places` of each expert.
"""

from __future__ import annotations

from taskflow import Array, njit


@njit(nogil=True, error_model="numpy")
def leave_out(weights: Array, choices: Array, threshold: float) -> None:
    """Weights under the threshold are 0 and their choices -1, but for the first of a row."""
    for row in range(weights.shape[0]):
        for j in range(1, weights.shape[1]):
            if weights[row, j] < threshold:
                weights[row, j] = 0
                choices[row, j] = -1


@njit(nogil=True, error_model="numpy")
def normalize(weights: Array) -> None:
    """Every row is divided by its sum."""
    for row in range(weights.shape[0]):
        total = weights.dtype.type(0)
        for j in range(weights.shape[1]):
            total += weights[row, j]
        for j in range(weights.shape[1]):
            weights[row, j] /= total


@njit(nogil=True, error_model="numpy")
def top_k_gradient(gweights: Array, choices: Array, p: Array, normalize: bool, gp: Array) -> None:
    """With w = p / Σp over the choices: gp = (gw - Σ gw w) / Σp there, else gp = gw; zero elsewhere.

    A choice of -1 is none.
    """
    for row in range(gp.shape[0]):
        for e in range(gp.shape[1]):
            gp[row, e] = 0
        total = gp.dtype.type(1)
        shared = gp.dtype.type(0)
        if normalize:
            total = gp.dtype.type(0)
            for j in range(choices.shape[1]):
                if choices[row, j] >= 0:
                    total += p[row, choices[row, j]]
                    shared += gweights[row, j] * p[row, choices[row, j]]
            shared /= total
        for j in range(choices.shape[1]):
            if choices[row, j] >= 0:
                gp[row, choices[row, j]] = (gweights[row, j] - shared) / total


@njit(nogil=True)
def fill_slots(
    choices: Array,
    groups: int,
    capacity: int,
    first: int,
    starts: Array,
    used: Array,
    slots: Array,
) -> None:
    """Give every choice (n, k) of `groups` equal groups the next free place of its expert, first choices first.

    It is -1 where no place is free, -2 where the choice is none (-1). `starts`: the first slot of an expert, and the
    end of the last; `first`: how far from there the first of these groups begins. A capacity of 0 is what lies between
    two starts. `used` counts per expert.
    """
    per_group = choices.shape[0] // groups
    for group in range(groups):
        begin = first + group * capacity
        used[:] = 0
        for j in range(choices.shape[1]):
            for row in range(group * per_group, (group + 1) * per_group):
                e = choices[row, j]
                if e < 0:
                    slots[row, j] = -2
                    continue
                room = capacity if capacity else starts[e + 1] - starts[e]
                slots[row, j] = starts[e] + begin + used[e] if used[e] < room else -1
                used[e] += 1


@njit(nogil=True)
def sort_choices(choices: Array, first: int, starts: Array, slots: Array) -> None:
    """Number the choices (n, k) of equal groups of rows by expert, first choices first; -2 for a choice of -1.

    `first`: the number of the first one; `starts` (groups, experts + 1): where in its group those of an expert begin.
    """
    count = choices.shape[0] // starts.shape[0]
    for group in range(starts.shape[0]):
        begin = group * count
        end = (group + 1) * count
        free = starts[group]
        free[:] = 0
        for row in range(begin, end):
            for j in range(choices.shape[1]):
                if choices[row, j] >= 0:
                    free[choices[row, j] + 1] += 1
        for e in range(1, len(free)):
            free[e] += free[e - 1]
        for j in range(choices.shape[1]):
            for row in range(begin, end):
                e = choices[row, j]
                slots[row, j] = first + begin * choices.shape[1] + free[e] if e >= 0 else -2
                free[max(e, 0)] += e >= 0
        for e in range(len(free) - 1, 0, -1):  # each is now where the next one begins
            free[e] = free[e - 1]
        free[0] = 0


@njit(nogil=True)
def clip_starts(
    starts: Array,
    group_rows: int,
    low: int,
    high: int,
    first: int,
    borders: Array,
) -> None:
    """borders[group, e] = where the rows of expert `first` + e begin among `low` to `high`, counted from there.

    `starts` (groups, experts + 1) of the groups from that of `low` on, each of `group_rows`.
    """
    for group in range(borders.shape[0]):
        base = (low // group_rows + group) * group_rows
        for e in range(borders.shape[1]):
            borders[group, e] = min(max(base + starts[group, first + e], low), high) - low


@njit(nogil=True)
def add_to_runs(values: Array, borders: Array, x: Array) -> None:
    """x[row] += values[e] for the rows from borders[group, e] to the next one."""
    for group in range(borders.shape[0]):
        for e in range(values.shape[0]):
            for row in range(borders[group, e], borders[group, e + 1]):
                for d in range(x.shape[1]):
                    x[row, d] += values[e, d]


@njit(nogil=True)
def sum_runs(x: Array, borders: Array, sums: Array) -> None:
    """sums[e] = the rows of x from borders[group, e] to the next one, of all groups."""
    sums[:] = 0
    for group in range(borders.shape[0]):
        for e in range(sums.shape[0]):
            for row in range(borders[group, e], borders[group, e + 1]):
                for d in range(x.shape[1]):
                    sums[e, d] += x[row, d]


@njit(nogil=True)
def scatter(
    x: Array,
    slots: Array,
    weights: Array,
    expert_lo: int,
    place_lo: int,
    places: int,
    experts: Array,
) -> None:
    """experts[slot] = weight x for every slot of a token; zero where no token is."""
    experts[:] = 0
    for row in range(slots.shape[0]):
        for j in range(slots.shape[1]):
            e = slots[row, j] // places - expert_lo
            place = slots[row, j] % places - place_lo
            if slots[row, j] >= 0 and 0 <= e < experts.shape[0] and 0 <= place < experts.shape[1]:
                weight = weights[row, j] if weights.size else x.dtype.type(1)
                for d in range(x.shape[1]):
                    experts[e, place, d] = weight * x[row, d]


@njit(nogil=True)
def gather(
    experts: Array,
    slots: Array,
    weights: Array,
    expert_lo: int,
    place_lo: int,
    places: int,
    y: Array,
) -> None:
    """y = the sum of weight experts[slot] over the slots of a token that lie in the tile."""
    y[:] = 0
    for row in range(slots.shape[0]):
        for j in range(slots.shape[1]):
            e = slots[row, j] // places - expert_lo
            place = slots[row, j] % places - place_lo
            if slots[row, j] >= 0 and 0 <= e < experts.shape[0] and 0 <= place < experts.shape[1]:
                weight = weights[row, j] if weights.size else y.dtype.type(1)
                for d in range(y.shape[1]):
                    y[row, d] += weight * experts[e, place, d]


@njit(nogil=True)
def gather_products(
    gy: Array,
    experts: Array,
    slots: Array,
    expert_lo: int,
    place_lo: int,
    places: int,
    out: Array,
) -> None:
    """out = gy · experts[slot], zero for a slot outside of the tile: the gradient of the weights of `gather`."""
    for row in range(slots.shape[0]):
        for j in range(slots.shape[1]):
            total = out.dtype.type(0)
            e = slots[row, j] // places - expert_lo
            place = slots[row, j] % places - place_lo
            if slots[row, j] >= 0 and 0 <= e < experts.shape[0] and 0 <= place < experts.shape[1]:
                for d in range(gy.shape[1]):
                    total += gy[row, d] * experts[e, place, d]
            out[row, j] = total
