"""Text for people: what a terminal shows as it is, and sizes of memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def printable(text: str, keep: str = "") -> str:
    """`text` with everything that is no printable character written as an escape, but for those in `keep`.

    Names come from models and files: a terminal would obey their control characters, and a line would end in them.
    """
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )


def describe_memory(size_bytes: float) -> str:
    """Bytes of memory as memory is sold, e.g. `79.650 GiB`; in full below a MiB, where a few of them matter."""
    for unit, power in (("GiB", 30), ("MiB", 20)):
        if size_bytes >= 1 << power:
            return f"{size_bytes / (1 << power):.3f} {unit}"
    return f"{size_bytes:.0f} B"


def in_ms(seconds: float) -> str:
    """`0.0123456` -> `12.346 ms`."""
    return f"{seconds * 1e3:.3f} ms"


def contents(members: tuple[str, ...]) -> str:
    """What a fused operator contains, for people: ` (a + b)`; empty for an operator of its own."""
    return f" ({' + '.join(members)})" if members else ""


def listed(title: str, lines: Sequence[str], most: int = 40) -> str:
    """A title and the first `most` lines, each made printable and indented."""
    shown = [title, *(printable(f"  {line}") for line in lines[:most])]
    return "\n".join(
        shown if len(lines) <= most else [*shown, f"  ... and {len(lines) - most} more"]
    )


def list_numbers(numbers: Sequence[int]) -> str:
    """Numbers in order: `0,1`, `0-3`, `0,2,4`, `0,2,4,...,62`."""
    if len(numbers) > 2 and all(b == a + 1 for a, b in pairwise(numbers)):
        return f"{numbers[0]}-{numbers[-1]}"
    shown = list(map(str, numbers))
    return ",".join(shown if len(shown) <= 6 else [*shown[:3], "...", shown[-1]])


def is_norm(name: str) -> bool:
    """Whether an output is the norm of an optimizer's gradients, `gradient_norm`, or `<name>.gradient_norm`."""
    return name.rpartition(".")[2] == "gradient_norm"


def is_loss(output: str) -> bool:
    """Whether an output of a graph is a loss by its name: that of its optimizer, or of one of several."""
    return output == "loss" or output.endswith(".loss")
