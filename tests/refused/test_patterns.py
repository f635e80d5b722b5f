"""Patterns, windows and extents that cannot be."""

from taskflow import Graph, Image, Pattern, Window
from tests import tiny
from tests.refusals import each_refused

PATTERNS = [
    ("b i, o i b o", "'->' is missing between inputs and outputs"),
    ("max[b c] -> b", "a reduction stands in an output, not in the input 'max[b c]'"),
    ("b ? -> b", "cannot read '?' in the term 'b ?'"),
    ("b . -> b", "cannot read '.' in the term 'b .'"),
    ("b 2 -> b", "cannot read '2' in the term 'b 2'"),
    ("b -> min[b]", "cannot read '[b]' in the term 'min[b]'"),
    ("b (h (d e)) -> b", "a group inside a group in the term 'b (h (d e))'"),
    ("b h d) -> b", "')' without '(' in the term 'b h d)'"),
    ("b (h d -> b", "')' is missing in the term 'b (h d'"),
    ("b b -> b", "axis 'b' stands twice in the term 'b b'"),
    ("b -> b (h b)", "axis 'b' stands twice in the term 'b (h b)'"),
]


def launching(pattern, *shapes, **options):
    """A call of `launch` with regions `r0`, `r1` and so on, of which no operator is left."""

    def call():
        graph = Graph()
        regions = [graph.input(f"r{k}", shape) for k, shape in enumerate(shapes)]
        try:
            graph.launch("op", pattern, regions, kernel=tiny._copy, **options)
        finally:
            assert not graph.operators

    return call


def a_weight_of_another_width():
    graph = Graph()
    regions = [graph.input("x", (64, 784)), graph.parameter("fc1.weight", (256, 512))]
    graph.launch("fc1", "b i, o i -> b o", regions, kernel=tiny._matmul)


POSITIVE = "window of axis 'c': size, stride and dilation are positive, not"
REFUSED = [
    *(
        (text, lambda t=text: Pattern.parse(t), f"pattern '{text}': {said}")
        for text, said in PATTERNS
    ),
    (
        "number of inputs",
        launching("b, b -> b", (3,)),
        "'op': pattern 'b, b -> b' has 2 inputs, 1 were given",
    ),
    (
        "dimensions",
        launching("b i -> b", (3,)),
        "'op': term 'b i' has 2 dimensions, region 'r0' has shape (3,)",
    ),
    (
        "scalar",
        launching(". -> .", (3,)),
        "'op': term '.' has 0 dimensions, region 'r0' has shape (3,)",
    ),
    (
        "inputs differ",
        launching("b i, o i -> b o", (4, 3), (5, 2)),
        "'op': axis 'i' is 3 in 'r0' and 2 in 'r1'",
    ),
    (
        "sizes differ",
        launching("b i -> b", (4, 3), sizes={"i": 2}),
        "'op': axis 'i' is 2 in sizes and 3 in 'r0'",
    ),
    (
        "no extent",
        launching("b -> b c", (4,)),
        "'op': axis 'c' of the output 'b c' has no extent: name it in sizes",
    ),
    ("no points", launching("b -> b c", (4,), sizes={"c": 0}), "'op': axis 'c' has 0 points"),
    ("one", launching("b 1 -> b", (4, 2)), "'op': a dimension '1' has 2 points in 'r0'"),
    (
        "group",
        launching("b (h d) -> b", (4, 6), sizes={"h": 4}),
        "'op': group '(h d)' has 6 points in 'r0', which does not agree with {'h': 4, 'd': None}",
    ),
    (
        "two unknown",
        launching("b (h d) -> b", (4, 6)),
        "'op': group '(h d)' has 6 points in 'r0', which does not agree with {'h': None, 'd': None}",
    ),
    (
        "window in an output",
        launching("b -> w", (4,), windows={"w": Window("b")}),
        "'op': 'w' is a window; a window belongs into an input",
    ),
    (
        "image in an output",
        launching("b -> w", (4,), windows={"w": Image("b", [0], [1])}),
        "'op': 'w' is a window; a window belongs into an input",
    ),
    (
        "image of another length",
        launching("w, b -> b", (4,), (3,), windows={"w": Image("b", [0, 1], [1, 2])}),
        "'op': axis 'b' is 3 in 'r1' and 2 in the window of 'w'",
    ),
    (
        "image of more than there is",
        launching("w -> b", (4,), windows={"w": Image("b", [0, 1], [1, 5])}),
        "'op': the image of axis 'b' reads up to 5 of 'w', which has 4 points",
    ),
    (
        "image that ends before it begins",
        lambda: Image("b", [0, 3], [1, 2]),
        "image of axis 'b': point 1 reads 3 to 2",
    ),
    (
        "image of two lengths",
        lambda: Image("b", [0, 3], [1]),
        "image of axis 'b': low has 2 points and high 1",
    ),
    (
        "flops of a window",
        launching("w -> b", (4,), windows={"w": Window("b")}, flops={"w": 2.0}),
        "'op': flops of 'w', which has no Image",
    ),
    (
        "window nowhere",
        launching("b -> b", (4,), windows={"w": Window("b")}),
        "'op': window 'w' stands in no input of the pattern 'b -> b'",
    ),
    (
        "window in a group",
        launching("b (w d) -> b d", (4, 6), sizes={"d": 2}, windows={"w": Window("b")}),
        "'op': window 'w' stands in a group",
    ),
    (
        "window of nothing",
        launching("w b -> b", (4, 3), windows={"w": Window("c", transposed=True)}),
        "'op': window 'w' follows axis 'c', which has no extent",
    ),
    (
        "window of another axis",
        launching("w -> c", (4,), windows={"w": Window("d")}),
        "'op': axis 'c' of the output 'c' has no extent: window 'w' follows 'd', which stands in no term",
    ),
    (
        "window too large",
        launching("w -> c", (4,), windows={"w": Window("c", size=5)}),
        "'op': axis 'c' has 0 points",
    ),
    (
        "a weight of another width",
        a_weight_of_another_width,
        "'fc1': axis 'i' is 784 in 'x' and 512 in 'fc1.weight'",
    ),
    ("a window of no points", lambda: Window("c", size=0), f"{POSITIVE} 0, 1, 1"),
    ("a stride of 0", lambda: Window("c", stride=0), f"{POSITIVE} 1, 0, 1"),
    ("a negative dilation", lambda: Window("c", dilation=-1), f"{POSITIVE} 1, 1, -1"),
    (
        "a window of no axis",
        lambda: Window(3),
        "window: axis is 3, the name of an axis is needed",
        TypeError,
    ),
]
test_refused = each_refused(REFUSED)
