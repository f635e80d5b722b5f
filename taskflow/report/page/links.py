"""Bytes of links for a page: what every link carries, and links that are alike added up."""

from __future__ import annotations

from typing import Any

import numpy as np

from taskflow.machine import MachineModel
from taskflow.machine.scaling import is_between_hosts
from taskflow.tasks.timeline import Timeline


def machine_columns(machine: MachineModel) -> dict[str, Any]:
    """Devices and links, for the picture of a machine."""
    return {
        "name": machine.name,
        "host": [device.host for device in machine.devices],
        "kind": machine.devices[0].kind,
        "ends": [
            [str(end) if isinstance(end, str) else end for end in link.ends]
            for link in machine.links
        ],
        "bandwidth": [link.bandwidth for link in machine.links],
        "is_between": is_between_hosts(machine).astype(int).tolist(),
    }


def link_columns(timeline: Timeline) -> dict[str, Any]:
    """Bytes of every link; and per class (between hosts or within, and bandwidth) their number, bytes and busiest.

    `busiest_share` is the part of the step for which the busiest link of a class would be full.
    """
    machine = timeline.task_graph.machine
    carried = np.zeros(len(timeline.task_graph.machine.links), np.int64)
    by_link = timeline.link_bytes()
    carried[list(by_link)] = list(by_link.values())
    between = is_between_hosts(machine)
    bandwidth = machine.link_bandwidth[:-1]
    classes = []
    for is_between, rate in sorted({*zip(between.tolist(), bandwidth.tolist(), strict=True)}):
        of_class = carried[(between == is_between) & (bandwidth == rate)]
        share = float(of_class.max()) / rate / timeline.seconds if timeline.seconds else 0.0
        classes.append(
            {
                "name": "between hosts" if is_between else "within hosts",
                "bandwidth": rate,
                "links": len(of_class),
                "bytes": int(of_class.sum()),
                "busiest_bytes": int(of_class.max()),
                "busiest_share": share,
            }
        )
    return {"bytes": carried.tolist(), "classes": classes}
