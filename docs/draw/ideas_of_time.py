"""The last five of the ten pictures of the idea: sums, order, time, one graph for all, and search."""

from __future__ import annotations

import numpy as np

import ops
import taskflow
from docs.draw.ideas import WIDTH
from docs.draw.svg import Picture
from docs.draw.timeline import PHASES, spoken
from taskflow import Kind

RANKS = 4


def idea_collective() -> Picture:
    """6. A collective is its steps: the rounds of a ring all-reduce."""
    picture = Picture(
        WIDTH,
        300,
        "A collective is its steps",
        "an all-reduce by a ring among four devices: three rounds that add up, three that hand on; every device sends "
        "a quarter in each round",
    )
    has = np.ones((RANKS, RANKS), int)  # device, piece -> how many devices' parts are in it
    cell, left = 24.0, 92.0
    across = (WIDTH - left - 10) / (2 * RANKS - 1)
    for device in range(RANKS):
        picture.text((16, 82 + device * 44.0), f"device {device}", 12, colour="soft")
    for round_ in range(2 * RANKS - 1):
        x = left + round_ * across
        title = "start" if not round_ else f"round {round_}"
        picture.text((x + 2 * cell - 2, 30), title, 12, anchor="middle", bold=True)
        said = "" if not round_ else "reduce-scatter" if round_ < RANKS else "all-gather"
        picture.text((x + 2 * cell - 2, 48), said, 11, anchor="middle", colour="soft")
        arrived = set[tuple[int, int]]()
        if round_:
            before = has.copy()
            for device in range(RANKS):
                piece = (
                    (device - round_ + 1) % RANKS
                    if round_ < RANKS
                    else (device - round_ + 1 + RANKS) % RANKS
                )
                to = (device + 1) % RANKS
                has[to, piece] = (
                    before[to, piece] + before[device, piece] if round_ < RANKS else RANKS
                )
                arrived.add((to, piece))
        for device in range(RANKS):
            for piece in range(RANKS):
                box = (x + piece * cell, 64 + device * 44.0, cell - 3, cell + 2)
                full = int(has[device, piece])
                fill = "backward" if full == RANKS else "forward" if full > 1 else "plain"
                picture.rect(box, fill, stroke="strong" if (device, piece) in arrived else "line")
                picture.text((box[0] + (cell - 3) / 2, box[1] + 17), str(full), 12, anchor="middle")
    picture.text(
        (left, 262),
        "A number says how many devices' parts are in a piece; red: it has just arrived.",
        12,
    )
    picture.text((left, 282), "These rounds are what is predicted, and what runs.", 12)
    return picture


def idea_schedule() -> Picture:
    """7. A schedule is an order: the points of the first device under three policies, from real rows."""
    graph = taskflow.Graph()
    h = graph.input("x", (64, 64))
    for k in range(3):
        h = ops.linear(h, 64, bias=False, name=f"layer{k}")
    ops.sgd(ops.mse_loss(h, graph.input("t", (64, 64)), name="loss"), lr=0.1)
    machine = taskflow.MachineModel.uniform(3)
    costs = taskflow.CostModel.analytic(machine)
    rows = taskflow.lower(
        graph, taskflow.stages(graph, machine, cuts=["layer1", "layer2"], parts=4), machine
    )
    picture = Picture(
        WIDTH,
        250,
        "A schedule is an order",
        "what device 1 of a pipeline of three stages does, under GPipe, 1F1B and ZB-H1: the same cards in three orders",
    )
    for k, (name, policy) in enumerate(
        (("GPipe", "gpipe"), ("1F1B", "one_f_one_b"), ("ZB-H1", "zb_h1"))
    ):
        ordered, y = taskflow.reorder(rows, costs, policy), 34 + k * 62.0
        picture.text((20, y + 25), name, 14, bold=True)
        mine = [
            row
            for row in range(len(ordered))
            if ordered[row].device == 1 and ordered[row].kind == Kind.POINT
        ]
        for place, row in enumerate(mine):
            launch = ordered.launches[int(ordered.launch[row])]
            part = "" if launch.phase == 3 else str(int(ordered.ordinal[row]))
            box = (92 + place * 57.0, y, 53.0, 40.0)
            picture.boxed(box, f"{'FBWU'[launch.phase]}{part}", PHASES[launch.phase], 14)
    said = "F forward, B gradient of activations, W gradient of weights, U update; the number is the micro-batch"
    picture.text((92, 234), said, 12)
    return picture


def idea_start() -> Picture:
    """8. The rule of time: a task starts when its streams are free and what it waits for is done."""
    picture = Picture(
        WIDTH,
        270,
        "The rule of time",
        "a task starts when its streams are free and everything it waits for is done; the order of a stream is that "
        "of the rows",
    )
    lanes = ("device 0, compute", "link 0 to 1", "device 1, compute")
    for k, name in enumerate(lanes):
        y = 40 + k * 56.0
        picture.text((20, y + 24), name, 12, colour="soft")
        picture.rect((150, y, WIDTH - 170, 40), "plain")
    bars = [
        (0, 150, 140, "a", "forward"),
        (0, 290, 170, "b", "forward"),
        (1, 290, 110, "a to 1", "move"),
        (1, 460, 110, "b to 1", "move"),
        (2, 150, 90, "c", "backward"),
        (2, 400, 130, "d reads a, c", "backward"),
        (2, 570, 150, "e reads b", "backward"),
    ]
    for lane, x, width, name, fill in bars:
        picture.boxed((x, 40 + lane * 56.0, width, 40), name, fill)
    for points in (
        [(290, 80), (290, 94)],
        [(460, 80), (460, 94)],
        [(400, 136), (400, 150)],
        [(570, 136), (570, 150)],
    ):
        picture.line(points, "strong", width=2, arrow=True)
    picture.text(
        (WIDTH / 2, 226),
        "start = max(streams free, dependences done)",
        16,
        anchor="middle",
        mono=True,
    )
    picture.text(
        (WIDTH / 2, 250),
        "One pass over the rows is the whole simulation.",
        13,
        anchor="middle",
        colour="soft",
    )
    return picture


def idea_one_graph() -> Picture:
    """9. One task graph, and three that read it."""
    picture = Picture(
        WIDTH,
        300,
        "One task graph for all",
        "model, strategy and schedule become one task graph; check_plan proves it, simulate predicts it, Executor runs "
        "it, and search asks simulate",
    )
    for k, (name, said) in enumerate(
        (("Graph", "what"), ("Strategy", "where"), ("Schedule", "when"))
    ):
        y = 40 + k * 78.0
        picture.boxed((20, y, 130, 54), f"{name}\n{said}", "forward")
        picture.line([(150, y + 27), (202, 145 + (k - 1) * 16)], arrow=True)
    picture.boxed((206, 104, 86, 82), "lower\nreorder", "plain")
    picture.line([(292, 145), (328, 145)], arrow=True)
    picture.rect((332, 84, 140, 122), "update", stroke="line")
    picture.text((402, 110), "TaskGraph", 15, anchor="middle", bold=True)
    picture.lines(
        (402, 134),
        ["points, copies,", "collectives,", "dependences", "in issue order"],
        12,
        anchor="middle",
    )
    readers = [
        ("check_plan", "proof", "every value once, no race"),
        ("simulate", "predicted time", "also bytes, memory"),
        ("Executor", "measured time", "threads, MPI ranks, GPUs"),
    ]
    for k, (name, gives, said) in enumerate(readers):
        y = 40 + k * 78.0
        picture.line([(472, 145 + (k - 1) * 26), (528, y + 27)], arrow=True)
        picture.boxed((532, y, 110, 54), name, "backward", 14)
        picture.line([(642, y + 27), (668, y + 27)], arrow=True)
        picture.text((676, y + 24), gives, 13, bold=True)
        picture.text((676, y + 42), said, 11.5, colour="soft")
    back = [(560, 172), (560, 184), (508, 184), (508, 268), (10, 268), (10, 145), (18, 145)]
    picture.line(back, "strong", dashed=True, arrow=True)
    picture.text(
        (260, 286),
        "search: another strategy, judged by predicted time",
        12,
        anchor="middle",
        colour="strong",
    )
    return picture


def idea_search() -> Picture:
    """10. A search: what was found after how many proposals, from a real one."""
    graph = taskflow.Graph()
    h = ops.reshape(
        ops.embedding(graph.input("x", (64, 20), "int32"), 20000, 128, name="embed"), (64, 2560)
    )
    for k in range(3):
        h = ops.relu(ops.linear(h, 2048, name=f"fc{k}"), name=f"relu{k}")
    y = ops.linear(h, 10, name="fc3")
    ops.sgd(ops.softmax_cross_entropy(y, graph.input("t", (64,), "int32"), name="loss"), lr=0.1)
    machine = taskflow.MachineModel.preset("p100")
    result = taskflow.search(
        graph, machine, taskflow.CostModel.analytic(machine), proposals=1500, seed=3
    )
    starts = {"data parallel", "model parallel", "one weird trick", "single device"}
    known = {name: value for name, value in result.baseline_seconds.items() if name in starts}
    picture = Picture(
        WIDTH,
        320,
        "A search begins with what is known, and walks on",
        f"a classifier of words on four P100: data parallel takes {spoken(known['data parallel'])}, what is found "
        f"{spoken(result.seconds)} after {result.proposals} proposals",
    )
    left, right, top, bottom = 70.0, WIDTH - 190, 30.0, 270.0
    low, high = 0.9 * result.seconds, 1.1 * max(known.values())
    up = lambda seconds: bottom - np.log(seconds / low) / np.log(high / low) * (bottom - top)
    over = lambda proposal: left + proposal / result.proposals * (right - left)
    picture.line([(left, top), (left, bottom), (right, bottom)], "soft", width=1)
    used: list[float] = []
    for name, value in sorted(known.items(), key=lambda item: -item[1]):
        picture.line([(left, up(value)), (right, up(value))], "soft", width=1, dashed=True)
        y = up(value) + 4
        while any(abs(y - other) < 16 for other in used):
            y += 4
        used.append(y)
        picture.text((right + 8, y), f"{name}, {spoken(value)}", 12, colour="soft")
    points = [(over(0), up(min(result.baseline_seconds.values())))]
    for proposal, seconds in result.history:
        points += [(over(proposal), points[-1][1]), (over(proposal), up(seconds))]
    points.append((right, points[-1][1]))
    picture.line(points, "strong", width=2.5)
    y = points[-1][1] + 4
    while any(abs(y - other) < 16 for other in used):
        y += 4
    picture.text((right + 8, y), f"found, {spoken(result.seconds)}", 13, bold=True, colour="strong")
    picture.text(((left + right) / 2, bottom + 34), "proposals", 12, anchor="middle", colour="soft")
    picture.text((right, bottom + 18), str(result.proposals), 11, anchor="end", colour="soft")
    for seconds in (1e-3, 2e-3, 5e-3):
        picture.line([(left - 4, up(seconds)), (left, up(seconds))], "soft", width=1)
        picture.text((left - 8, up(seconds) + 4), spoken(seconds), 11, anchor="end", colour="soft")
    return picture
