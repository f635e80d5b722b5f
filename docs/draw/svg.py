"""SVG by hand: a picture is a list of shapes whose colours are names, light and dark.

A file carries both themes and chooses by the system's preference, so that it reads well in a repository; a page of the
site that holds it inline chooses for it (docs/_static/site.css has the same colours). Coordinates are rounded, so that
the same picture is the same bytes on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

LIGHT = {
    "paper": "#ffffff",
    "ink": "#1d2733",
    "soft": "#5a6673",
    "line": "#c3ccd5",
    "plain": "#eef1f4",
    "forward": "#bcd8f6",
    "backward": "#bfe6d2",
    "weight": "#dacff6",
    "update": "#f8e0a2",
    "move": "#f7c4c0",
    "strong": "#b3372f",
}
DARK = {
    "paper": "#15191e",
    "ink": "#e6ebf0",
    "soft": "#a3afbb",
    "line": "#46515c",
    "plain": "#262d35",
    "forward": "#1f4b80",
    "backward": "#1c5d46",
    "weight": "#4c3b88",
    "update": "#6e5410",
    "move": "#7d3034",
    "strong": "#ff8f85",
}
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
MONO = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"
CHARACTER = 0.56  # of the font size: how wide a character of the text is, at most on average


def colours(theme: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in theme.items())


def number(value: float) -> str:
    """At most one digit behind the point."""
    return f"{value:.1f}".removesuffix(".0")


class Picture:
    """A picture of that size in pixels; `title` and `description` are read out in place of it."""

    def __init__(self, width: float, height: float, title: str, description: str) -> None:
        self.width, self.height, self.title, self.description = width, height, title, description
        self._shapes: list[str] = []

    def rect(
        self,
        box: tuple[float, float, float, float],
        fill: str = "plain",
        *,
        stroke: str = "",
        round_by: float = 3,
        dashed: bool = False,
        tip: str = "",
    ) -> None:
        """A box (x, y, width, height); `tip` shows under the pointer."""
        x, y, width, height = (number(v) for v in box)
        line = f' stroke="var(--{stroke})"' if stroke else ""
        dashes = ' stroke-dasharray="4 3"' if dashed else ""
        rounded = f' rx="{number(round_by)}"' if round_by else ""
        paint = f"var(--{fill})" if fill else "none"
        shape = f'<rect x="{x}" y="{y}" width="{width}" height="{height}"{rounded} fill="{paint}"{line}{dashes}'
        self._shapes.append(f"{shape}><title>{escape(tip)}</title></rect>" if tip else f"{shape}/>")

    def text(
        self,
        at: tuple[float, float],
        text: str,
        size: float = 13,
        *,
        anchor: str = "start",
        colour: str = "ink",
        bold: bool = False,
        mono: bool = False,
    ) -> None:
        """One line of text; `at` is the end of its base line that `anchor` (start, middle, end) names."""
        style = f' font-size="{number(size)}"'
        style += f' text-anchor="{anchor}"' if anchor != "start" else ""
        style += ' font-weight="600"' if bold else ""
        style += ' class="m"' if mono else ""
        style += f' fill="var(--{colour})"' if colour != "ink" else ""
        self._shapes.append(
            f'<text x="{number(at[0])}" y="{number(at[1])}"{style}>{escape(text)}</text>'
        )

    def lines(
        self, at: tuple[float, float], texts: Iterable[str], size: float = 13, **style: object
    ) -> None:
        """Lines of text below each other."""
        for k, text in enumerate(texts):
            self.text((at[0], at[1] + k * size * 1.45), text, size, **style)  # type: ignore[arg-type]

    def line(
        self,
        points: Sequence[tuple[float, float]],
        colour: str = "soft",
        *,
        width: float = 1.5,
        arrow: bool = False,
        dashed: bool = False,
    ) -> None:
        """Straight lines from point to point, with an arrow at the end."""
        path = "M" + " L".join(f"{number(x)} {number(y)}" for x, y in points)
        head = ' marker-end="url(#tf-arrow)"' if arrow else ""
        dashes = ' stroke-dasharray="4 3"' if dashed else ""
        paint = f' stroke="var(--{colour})" stroke-width="{number(width)}"'
        self._shapes.append(f'<path d="{path}" fill="none"{paint}{dashes}{head}/>')

    def boxed(
        self,
        box: tuple[float, float, float, float],
        text: str,
        fill: str = "plain",
        size: float = 13,
        **style: object,
    ) -> None:
        """A box with text in its middle, on several lines where it has some."""
        self.rect(box, fill, stroke="line")
        texts = text.split("\n")
        x, y, width, height = box
        top = y + height / 2 - (len(texts) - 1) * size * 0.65 + size * 0.35
        for k, each in enumerate(texts):
            at = (x + width / 2, top + k * size * 1.3)
            self.text(at, each, size, anchor="middle", **style)  # type: ignore[arg-type]

    def svg(self) -> str:
        """The file."""
        size, said = (
            f"{number(self.width)} {number(self.height)}",
            f"{self.title}. {self.description}",
        )
        style = (
            f"svg.tf{{{colours(LIGHT)}font-family:{FONT}}}"
            f"@media(prefers-color-scheme:dark){{svg.tf{{{colours(DARK)}}}}}"
            f"svg.tf{{fill:var(--ink)}}svg.tf .m{{font-family:{MONO}}}"
        )
        head = f'<svg xmlns="http://www.w3.org/2000/svg" class="tf" viewBox="0 0 {size}" width="{number(self.width)}"'
        marker = (
            '<defs><marker id="tf-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="var(--soft)"/></marker></defs>'
        )
        return "\n".join(
            [
                f'{head} height="{number(self.height)}" role="img" aria-label="{escape(said)}">',
                f"<title>{escape(self.title)}</title><desc>{escape(self.description)}</desc>",
                f"<style>{style}</style>{marker}",
                f'<rect width="{number(self.width)}" height="{number(self.height)}" rx="6" fill="var(--paper)"/>',
                *self._shapes,
                "</svg>\n",
            ]
        )
