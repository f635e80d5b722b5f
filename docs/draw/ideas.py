"""The first five of the ten pictures of the idea: what a model is, and what becomes of it."""

from __future__ import annotations

from itertools import pairwise

import ops
import taskflow
from docs.draw.svg import Picture
from docs.draw.timeline import PHASES

WIDTH = 860.0
DEVICE = ("forward", "backward", "weight", "update")  # a colour for each of four devices


def idea_graph() -> Picture:
    """1. Forward, backward and update are operators in one list."""
    picture = Picture(
        WIDTH,
        300,
        "A model is operators over regions",
        "x goes through fc1, relu, fc2 and loss; gradients come back the same way; updates change the weights",
    )
    forward = [
        ("fc1", "linear"),
        ("relu", "elementwise"),
        ("fc2", "linear"),
        ("loss", "squared error"),
    ]
    xs = [130.0, 310.0, 490.0, 670.0]
    picture.text((20, 66), "forward", 13, colour="soft")
    picture.text((20, 156), "backward", 13, colour="soft")
    picture.text((20, 246), "update", 13, colour="soft")
    for (name, kind), x in zip(forward, xs, strict=True):
        picture.boxed((x, 38, 130, 46), f"{name}\n{kind}", "forward")
    picture.line([(104, 61), (128, 61)], arrow=True)
    picture.text((92, 65), "x", 13, anchor="middle", mono=True)
    for x, following in pairwise(xs):
        picture.line([(x + 130, 61), (following - 2, 61)], arrow=True)
    backward = [
        ("fc1.dweight", "weight"),
        ("relu.dx", "backward"),
        ("fc2.dx, fc2.dweight", "backward"),
    ]
    for (name, fill), x in zip([*backward, ("loss.dx", "backward")], xs, strict=True):
        picture.boxed((x, 130, 130, 42), name.replace(", ", "\n"), fill, 12)
    for before, x in pairwise(xs):
        picture.line([(x, 151), (before + 132, 151)], arrow=True)
    picture.line([(735, 84), (735, 128)], arrow=True)
    for name, x in (("fc1.weight.sgd", xs[0]), ("fc2.weight.sgd", xs[2])):
        picture.boxed((x, 222, 130, 42), name, "update", 12)
        picture.line([(x + 65, 172), (x + 65, 220)], arrow=True)
    picture.line(
        [(xs[0] - 14, 243), (xs[0] - 14, 74), (xs[0] - 2, 74)], "strong", arrow=True, dashed=True
    )
    picture.line([(xs[0] - 2, 243), (xs[0] - 14, 243)], "strong", dashed=True)
    picture.line(
        [(xs[2] - 14, 243), (xs[2] - 14, 74), (xs[2] - 2, 74)], "strong", arrow=True, dashed=True
    )
    picture.line([(xs[2] - 2, 243), (xs[2] - 14, 243)], "strong", dashed=True)
    picture.text((288, 247), "weights, kept between steps", 12, colour="strong")
    return picture


def matrix(
    picture: Picture,
    at: tuple[float, float],
    size: tuple[float, float],
    name: str,
    axes: tuple[str, str],
    **fills: str,
) -> None:
    """A matrix, its name in the middle and its axes at the sides; `fills`: of the whole."""
    (x, y), (width, height) = at, size
    picture.rect((x, y, width, height), fills.get("fill", "plain"), stroke="soft", round_by=0)
    picture.text((x + width / 2, y + height / 2 + 5), name, 15, anchor="middle", mono=True)
    picture.text((x - 8, y + height / 2 + 5), axes[0], 14, anchor="end", mono=True, colour="strong")
    picture.text((x + width / 2, y - 8), axes[1], 14, anchor="middle", mono=True, colour="strong")


def idea_pattern() -> Picture:
    """2. One line says what may be split."""
    picture = Picture(
        WIDTH,
        290,
        "One line says what may be split",
        "the pattern 'b i, o i -> b o' names the axes of x, the weight and y; b and o are in the result, i is not",
    )
    picture.text((WIDTH / 2, 40), '"b i, o i -> b o"', 22, anchor="middle", mono=True)
    matrix(picture, (120, 90), (110, 90), "x", ("b", "i"))
    picture.text((268, 140), "·", 22, anchor="middle")
    matrix(picture, (320, 78), (110, 114), "weight", ("o", "i"))
    picture.line([(470, 136), (530, 136)], arrow=True)
    matrix(picture, (580, 90), (120, 90), "y", ("b", "o"))
    said = [
        ("b", "in the result: split, it makes tiles. In no weight: Sample."),
        ("o", "in the result: split, it makes tiles. In a weight: Parameter."),
        ("i", "in no result: split, it makes partial results, which are summed."),
    ]
    for k, (axis, text) in enumerate(said):
        picture.text((120, 226 + 22 * k), axis, 14, mono=True, colour="strong")
        picture.text((144, 226 + 22 * k), text, 13)
    return picture


def halves(
    picture: Picture, box: tuple[float, float, float, float], along: str, names: str = "01"
) -> None:
    """A matrix in two parts, one below the other (`rows`), beside it (`columns`), or whole, for both (`whole`)."""
    x, y, width, height = box
    for k in range(2):
        if along == "rows":
            part = (x, y + k * height / 2, width, height / 2)
        elif along == "columns":
            part = (x + k * width / 2, y, width / 2, height)
        else:
            part = (x + k * 7, y - k * 7, width, height)
        picture.rect(part, DEVICE[k], stroke="soft", round_by=0)
        at = (part[0] + part[2] / 2, part[1] + part[3] / 2 + 4)
        if along != "whole":
            picture.text(at, names[k], 12, anchor="middle")
    if along == "whole":
        picture.text((x + width / 2 + 7, y + height / 2 - 2), "0, 1", 12, anchor="middle")


def idea_split() -> Picture:
    """3. Three ways to split a product, and what each moves."""
    picture = Picture(
        WIDTH,
        330,
        "Three ways to split a product over two devices",
        "along b: tiles of y, the weight whole on both. along o: tiles of y, x whole on both. along i: each device has "
        "a partial y, and the two are summed",
    )
    panels = [
        (
            '{"b": 2}',
            ("rows", "whole", "rows"),
            "The weight is whole on both.",
            "Its gradient will be a sum.",
        ),
        (
            '{"o": 2}',
            ("whole", "rows", "columns"),
            "x is whole on both.",
            "Each has its half of the weight.",
        ),
        (
            '{"i": 2}',
            ("columns", "columns", "partial"),
            "Each has a partial y:",
            "y is their sum, an all-reduce.",
        ),
    ]
    for k, (config, (x_split, w_split, y_split), *said) in enumerate(panels):
        left = 16 + k * 280.0
        picture.rect((left, 20, 268, 292), "paper", stroke="line")
        picture.text((left + 134, 50), config, 17, anchor="middle", mono=True)
        for name, at in (("x", 44.0), ("weight", 124.0), ("y", 218.0)):
            picture.text((left + at, 92), name, 12, anchor="middle", mono=True, colour="soft")
        halves(picture, (left + 16, 118, 52, 66), x_split)
        halves(picture, (left + 96, 118, 52, 66), w_split)
        picture.line([(left + 160, 150), (left + 178, 150)], arrow=True)
        if y_split == "partial":
            halves(picture, (left + 188, 126, 52, 58), "whole")
            picture.text(
                (left + 218, 210), "0 + 1", 13, anchor="middle", colour="strong", mono=True
            )
        else:
            halves(picture, (left + 188, 118, 60, 66), y_split)
        picture.lines((left + 134, 254), said, 13, anchor="middle")
    return picture


def idea_strategy() -> Picture:
    """4. A strategy is a configuration for each operator: SOAP."""
    picture = Picture(
        WIDTH,
        340,
        "A strategy: a configuration for each operator",
        "conv is split along samples and height, fc1 along outputs, fc2 along inputs; loss runs on one device",
    )
    rows = [
        ("conv", '{"n": 2, "h": 2}', (2, 2), "S, A", "samples and image rows; edges of tiles move"),
        ("fc1", '{"o": 4}', (1, 4), "P", "outputs: each device has a quarter of the weight"),
        ("fc2", '{"b": 2, "i": 2}', (2, 2), "S, P", "samples, and partial sums within each half"),
        ("loss", "{}, devices=(3,)", (1, 1), "O", "one device, chosen: Operator"),
    ]
    for x, text in (
        (20, "operator"),
        (110, "ParallelConfig"),
        (300, "points, by device"),
        (470, "SOAP"),
    ):
        picture.text((x, 34), text, 12, colour="soft")
    for k, (name, config, (down, across), letters, said) in enumerate(rows):
        y = 54 + k * 70.0
        picture.line([(20, y - 6), (WIDTH - 20, y - 6)], "line", width=1)
        picture.text((20, y + 30), name, 14, bold=True)
        picture.text((110, y + 30), config, 13, mono=True)
        for point in range(down * across):
            device = 3 if name == "loss" else point
            width, height = 120 / across, 48 / down
            box = (300 + point % across * width, y + point // across * height, width, height)
            picture.rect(box, DEVICE[device], stroke="soft", round_by=0)
            picture.text(
                (box[0] + width / 2, box[1] + height / 2 + 4), str(device), 12, anchor="middle"
            )
        picture.text((470, y + 30), letters, 14, bold=True, colour="strong")
        picture.text((530, y + 30), said, 13)
    return picture


def small_rows() -> tuple[taskflow.TaskGraph, taskflow.Timeline]:
    """Two products on two devices: the first along its outputs, the second along its inputs."""
    graph = taskflow.Graph()
    h = ops.relu(
        ops.linear(graph.input("x", (512, 512)), 2048, bias=False, name="fc1"), name="relu"
    )
    graph.output("y", ops.relu(ops.linear(h, 512, bias=False, name="fc2"), name="last"))
    machine = taskflow.MachineModel.uniform(2, taskflow.Device("cuda"))
    strategy = taskflow.single_device(graph, machine)
    for name, axis in (("fc1", "o"), ("relu", "o"), ("fc2", "i"), ("last", "b")):
        strategy[name] = taskflow.ParallelConfig({axis: 2})
    rows = taskflow.lower(graph, strategy, machine)
    return rows, taskflow.simulate(rows, taskflow.CostModel.analytic(machine))


def idea_lower() -> Picture:
    """5. Lowering: points, copies and sums, drawn from real rows."""
    rows, _ = small_rows()
    depth: list[int] = []
    for row in range(len(rows)):
        depth.append(max((depth[k] + 1 for k in rows.deps(row)), default=0))
    last, used = max(depth), dict[tuple[int, int], int]()
    picture = Picture(
        WIDTH,
        190,
        "Lowering: what has to move appears by itself",
        f"{len(rows)} rows of a real task graph on two devices: feeds, points of fc1, relu and fc2, and what sums "
        "fc2's parts",
    )
    step, at = (WIDTH - 150) / (last + 1), dict[int, tuple[float, float]]()
    for device in range(2):
        top = 14 + device * 84.0
        picture.rect((14, top, WIDTH - 28, 76), "plain")
        picture.text((26, top + 42), f"device {device}", 13, colour="soft")
    for row in range(len(rows)):
        task = rows[row]
        level = used[key] = used.get(key := (task.device, depth[row]), -1) + 1
        at[row] = (112 + depth[row] * step, 33 + task.device * 84.0 + level * 46)
    width = step - 14
    for row in range(len(rows)):
        for before in rows.deps(row):
            (x0, y0), (x1, y1) = at[before], at[row]
            picture.line([(x0 + width, y0 + 19), (x1 - 1, y1 + 19)], "soft", width=1.2, arrow=True)
    for row in range(len(rows)):
        task = rows[row]
        fill = (
            "update"
            if task.kind == taskflow.Kind.FEED
            else "move"
            if task.kind != taskflow.Kind.POINT
            else PHASES[0]
        )
        what = {taskflow.Kind.POINT: "point", taskflow.Kind.FEED: "feed", taskflow.Kind.FOLD: "sum"}
        label = what.get(task.kind, task.collective)
        picture.boxed((*at[row], width, 38), f"{label}\n{task.name}[{task.point}]", fill, 9.5)
    return picture
