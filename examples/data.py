"""What the models of `ops.models` learn from.

Images are scikit-learn's digits. Text is what is installed with Python: its licence and documentation, and Debian's
licences where they are. Where no data can be had (clicks, translations), what is made up is said in the source's name.
A source draws one batch: values for every input of a graph, of the shapes that the graph wants.
"""

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np

from taskflow import Graph

Feeds = dict[str, np.ndarray]
LICENCES = "the licences installed with Python and Debian"
DOCUMENTATION = "Python's documentation (pydoc_data)"


@dataclass(frozen=True)
class Source:
    """Where examples come from, in words, and `draw(shapes, random)`, which gives a batch."""

    name: str
    draw: Callable[[Mapping[str, tuple[int, ...]], np.random.Generator], Feeds]

    def batch(self, graph: Graph, step: int) -> Feeds:
        """The batch of a step: the same on every rank."""
        drawn = self.draw({r.name: r.shape for r in graph.inputs}, np.random.default_rng([7, step]))
        return {r.name: drawn[r.name].astype(r.dtype) for r in graph.inputs}


# -- images ------------------------------------------------------------------------------------------------------------


def _digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    data = load_digits()
    return data.images / 16 - 0.3, data.target


def enlarged_digits() -> Source:
    """Images of any size in three equal colours, each point of a digit repeated."""
    images, classes = _digits()

    def draw(shapes, random):
        rows, size = random.integers(0, len(images), shapes["t"]), shapes["x"][2]
        place = np.arange(size) * 8 // size
        enlarged = images[rows][:, place[:, None], place]
        return {"x": np.broadcast_to(enlarged[:, None], shapes["x"]), "t": classes[rows]}

    return Source("scikit-learn's digits, enlarged", draw)


def halved_digits() -> Source:
    """The upper and the lower half of a digit as features."""
    images, classes = _digits()

    def draw(shapes, random):
        rows = random.integers(0, len(images), shapes["t"])
        halves = np.split(images[rows].reshape(len(rows), 64), 2, axis=1)
        return {"x0": halves[0], "x1": halves[1], "t": classes[rows]}

    return Source("scikit-learn's digits, upper and lower halves", draw)


# -- text --------------------------------------------------------------------------------------------------------------


def texts() -> tuple[str, str]:
    """Licences and documentation."""
    beside_python = [
        Path(folder) / "LICENSE.txt" for folder in (os.path.dirname(os.__file__), sys.base_prefix)
    ]
    debian = sorted(Path("/usr/share/common-licenses").glob("*"))
    own = Path(__file__).parents[1] / "LICENSE"
    paths = {path.resolve(): None for path in (own, *beside_python, *debian) if path.is_file()}
    licences = "\n".join(path.read_text(encoding="utf-8", errors="ignore") for path in paths)
    return licences, "\n".join(topics.values())


def words(vocabulary: int) -> tuple[np.ndarray, np.ndarray]:
    """Both texts as numbers of words and signs: the most frequent ones from 1 on, 0 for the others."""
    split = [re.findall(r"[a-z]+|[^\sa-z]", text.lower()) for text in texts()]
    frequent = Counter(word for text in split for word in text).most_common(vocabulary - 1)
    number = {word: k for k, (word, _) in enumerate(frequent, 1)}
    licences, documentation = (np.array([number.get(word, 0) for word in text]) for text in split)
    return licences, documentation


def _windows(text: np.ndarray, count: int, length: int, random: np.random.Generator) -> np.ndarray:
    """Sections of a text, (count, length), from anywhere."""
    return text[random.integers(0, len(text) - length, count)[:, None] + np.arange(length)]


def next_words(vocabulary: int) -> Source:
    """Words, and the words that follow them."""
    text = np.concatenate(words(vocabulary))

    def draw(shapes, random):
        batch, length = shapes["x"]
        window = _windows(text, batch, length + 1, random)
        return {"x": window[:, :-1], "t": window[:, 1:]}

    return Source(f"{LICENCES}, {DOCUMENTATION}", draw)


def kinds_of_text(vocabulary: int) -> Source:
    """Words, and whether they are from a licence (0) or from documentation (1)."""
    both = words(vocabulary)

    def draw(shapes, random):
        kind = random.integers(0, 2, shapes["t"])
        licences, documentation = (_windows(text, *shapes["x"], random) for text in both)
        return {"x": np.where(kind[:, None] == 0, licences, documentation), "t": kind}

    return Source(f"{LICENCES} (one class), {DOCUMENTATION} (the other)", draw)


def reversed_words(vocabulary: int) -> Source:
    """Words, and as their translation the same words from back to front, begun by word 0."""
    text = np.concatenate(words(vocabulary))

    def draw(shapes, random):
        source = _windows(text, *shapes["source"], random)
        t = source[:, ::-1]
        return {"source": source, "target": np.pad(t[:, :-1], ((0, 0), (1, 0))), "t": t}

    return Source(
        f"{LICENCES}, {DOCUMENTATION}; the translation is made up: the same backwards", draw
    )


def masked_words(vocabulary: int) -> Source:
    """Two sections of text, the second following the first or not, with masked words (number 0) to be guessed."""
    text = np.concatenate(words(vocabulary))

    def draw(shapes, random):
        (batch, length), (_, masked) = shapes["x"], shapes["positions"]
        follows, half = random.integers(0, 2, batch), length // 2
        x, other = (_windows(text, batch, length, random) for _ in range(2))
        x[:, half:] = np.where(follows[:, None] == 1, x[:, half:], other[:, half:])
        positions = np.argsort(random.random((batch, length)), axis=1)[:, :masked]
        t = np.take_along_axis(x, positions, 1)
        np.put_along_axis(x, positions, 0, 1)
        segments = np.broadcast_to(np.arange(length) >= half, x.shape)
        return {"x": x, "segments": segments, "positions": positions, "t": t, "t_next": follows}

    return Source(f"{LICENCES}, {DOCUMENTATION}", draw)


# -- clicks ------------------------------------------------------------------------------------------------------------


def made_up_clicks(rows: int, seed: int = 1) -> Source:
    """Random features; a click follows from a hidden weight of each dense feature and each row of every table."""

    def draw(shapes, random):
        hidden = np.random.default_rng(seed)
        feeds = {"dense": random.standard_normal(shapes["dense"])}
        score = feeds["dense"] @ hidden.standard_normal(shapes["dense"][1])
        for name in shapes:
            if name.startswith("sparse"):
                feeds[name] = (rows * random.random(shapes[name]) ** 3).astype(
                    int
                )  # a few rows are popular
                score += hidden.standard_normal(rows)[feeds[name]].sum(1)
        return feeds | {"t": (score > 0)[:, None]}

    return Source(
        f"made up: no public data can be had; clicks follow from hidden weights of seed {seed}",
        draw,
    )
