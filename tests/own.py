"""The rows of some devices held against those of all."""

import numpy as np

import taskflow
from taskflow.tasks.memory import plan_memory
from taskflow.tasks.reuse import folded

COLUMNS = ("kind", "launch", "point", "region", "device", "source", "ordinal", "collective")


def touching(rows, devices):
    """Of every row, whether it has an instance on one of these devices; points are where they are."""
    row = np.repeat(np.arange(len(rows)), np.diff(rows.arg_ptr))
    there = np.isin(rows.device, devices) & (rows.kind == taskflow.Kind.POINT)
    used = rows.arg_instance >= 0
    there[row[used][np.isin(rows.instance_device[rows.arg_instance[used]], devices)]] = True
    return there


def arguments(rows, row):
    """All that there is to say of a row's arguments, whatever the numbers of instances."""
    found = []
    for instance, box, privilege in rows.args(row):
        where = None
        if instance >= 0:
            where = (
                int(rows.instance_region[instance]),
                int(rows.instance_device[instance]),
                rows.instance_box[instance].tobytes(),
                bool(rows.instance_partial[instance]),
            )
        found.append((where, box, privilege))
    return found


def exchanged(rows, row):
    """Of a collective, all but the numbers of instances; of these, which are one."""
    found = rows.exchange(row)
    steps = [(s.target, s.parts, s.box, s.follows, s.offset) for s in found.steps()]
    return found.devices, found.boxes, found.sources, found.targets, found.local, steps


def algorithm(rows, row):
    """Of a collective, and the messages; None: straight, or none."""
    number = int(rows.algorithm[row])
    if number < 0:
        return number
    messages = rows.ways[number].messages
    return rows.ways[number].algorithm, [np.asarray(column).tolist() for column in messages[:3]]


def edges(rows, number):
    waiting = np.repeat(np.arange(len(rows)), np.diff(rows.dep_ptr))
    return set(zip(number[waiting].tolist(), number[rows.dep_row].tolist(), strict=True))


def assert_part(own, whole, devices):
    """`own` is what touches these devices of the whole; the edges, as numbers of the whole."""
    number = own.numbers
    np.testing.assert_array_equal(number, np.flatnonzero(touching(whole, devices)))
    for name in (*COLUMNS, "bytes", "flops"):
        np.testing.assert_array_equal(getattr(own, name), getattr(whole, name)[number], name)
    for row, at in enumerate(number.tolist()):
        is_whole = own.kind[row] != taskflow.Kind.COLLECTIVE
        every = arguments(whole, at)
        assert arguments(own, row) == [a for a in every if is_whole or a[0][1] in devices]
        assert is_whole or exchanged(own, row) == exchanged(whole, at)
        assert own.streams_of(row) == whole.streams_of(at)
        assert algorithm(own, row) == algorithm(whole, at)
    found = edges(own, number)
    kept = set(number.tolist())
    every = edges(whole, np.arange(len(whole)))
    assert found == {(a, b) for a, b in every if a in kept and b in kept}
    for name, homes in whole.homes.items():
        here = [
            (whole.instance_rect(i), box) for i, box in homes if whole.instance_device[i] in devices
        ]
        assert [(own.instance_rect(i), box) for i, box in own.homes[name]] == here
    for name, places in whole.fetches.items():
        here = [(d, box) for d, _, box in places if d in devices]
        assert [(d, box) for d, _, box in own.fetches[name]] == here
    assert own.devices_used == whole.devices_used
    return found


def assert_memory(own, whole, devices):
    """What lies on these devices lies where it does in the memory plan of the whole.

    On CPUs: plans of others are longer where nobody here knows what other devices know of each other. Nor does anybody
    here know how long a fold elsewhere reads what lies here; who shares memory with that device has its rows, too.
    """
    read_elsewhere = folded(whole)[0] >= 0
    read_elsewhere &= np.isin(whole.source, devices) & ~np.isin(whole.device, devices)
    if any(device.kind != "cpu" for device in whole.machine.devices) or read_elsewhere.any():
        return
    found, expected = plan_memory(own), plan_memory(whole)
    for name in ("peak_bytes", "persistent_bytes"):
        here, there = getattr(found, name)[devices], getattr(expected, name)[devices]
        np.testing.assert_array_equal(here, there, name)
    for row, at in enumerate(own.numbers.tolist()):
        here, there = (
            [i for i, _, _ in rows.args(k) if i >= 0 and rows.instance_device[i] in devices]
            for rows, k in ((own, row), (whole, at))
        )
        np.testing.assert_array_equal(found.offset[here], expected.offset[there])
