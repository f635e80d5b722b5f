"""`taskflow machine --validate`: what the model predicts beside what was published, by set (`cli.published`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from statistics import median
from typing import NamedTuple

from taskflow.cli.data import show_data
from taskflow.cli.published import (
    FittedConstant,
    PublishedRow,
    PublishedSet,
    predict,
    read_published,
)
from taskflow.report.console import make_console, print_table

HEAD = ("", "model", "published", "unit", "ratio", "verdict", "source")


class Prediction(NamedTuple):
    """What the model makes of a row: a figure, or why there is none.

    `is_missing`: an optional package is not installed.
    """

    row: PublishedRow
    figure: float | None
    reason: str = ""
    is_missing: bool = False

    @property
    def ratio(self) -> float:
        """Model over published."""
        assert self.figure is not None
        return self.figure / self.row.published

    @property
    def factor(self) -> float:
        """By which the model is off, from 1."""
        return max(self.ratio, 1 / self.ratio)


class Effect(NamedTuple):
    """What a fitted constant does to rows that it was not fitted to.

    Attributes:
        name: of their set; of the own set with the machines.
        rows: how many.
        without, median: by which they are off in the median without the fit, and with it.
    """

    name: str
    rows: int
    without: float
    median: float


Sets = Sequence[tuple[PublishedSet, Sequence[Prediction]]]


def validate(every: bool = False, as_json: bool = False) -> bool:
    """Print model against published, row by row; whether all that can be predicted holds.

    Args:
        every: all sets, and not that of the presets alone.
        as_json: print data.
    """
    sets = read_published()
    done = [
        (published, [*map(attempt, published.row)]) for published in (sets if every else sets[:1])
    ]
    wrong = [text for published, predictions in done for text in find_wrong(published, predictions)]
    if as_json:
        show_data(
            "validation",
            {
                "holds": not wrong,
                "rows": _rows(done),
                "constants": _constants(done),
                "wrong": wrong,
            },
        )
        return not wrong
    for published, predictions in done:
        _print_set(published, predictions)
    sys.stdout.write("\n".join(["", "fitted constants, one a set at most:", *_said(done), ""]))
    of_all = [*chain.from_iterable(predictions for _, predictions in done)]
    sys.stdout.write("\n".join(["", *wrong, _verdict(len(wrong), of_all), ""]))
    return not wrong


def _rows(done: Sets) -> list[dict[str, object]]:
    return [
        {
            "set": published.name,
            "name": p.row.name,
            "model": p.figure,
            "published": p.row.published,
            "unit": p.row.unit,
            "fit": p.row.fit,
            **({"reason": p.reason} if p.reason else {}),
        }
        for published, predictions in done
        for p in predictions
    ]


def _constants(done: Sets) -> list[dict[str, object]]:
    return [
        {
            "set": published.name,
            "what": constant.what,
            "machine": constant.machine,
            "value": constant.value,
            "without": constant.without,
            "effects": [effect._asdict() for effect in effects_of(published, constant, done)],
        }
        for published, _ in done
        if (constant := published.constant)
    ]


def _said(done: Sets) -> Iterator[str]:
    for published, _ in done:
        if not (constant := published.constant):
            continue
        rows = ", ".join(row.name for row in published.fitted)
        value = f"{constant.value:g}, {constant.without:g} without"
        yield f"{constant.what} of {constant.machine} = {value} ({constant.unit}), to {rows}"
        for effect in effects_of(published, constant, done):
            change = f"off by {effect.without:.3f} without, by {effect.median:.3f} with it"
            yield f"    {effect.name}, rows: {effect.rows}: {change}"


def effects_of(published: PublishedSet, constant: FittedConstant, done: Sets) -> list[Effect]:
    """By set, what a constant does to the rows of other sets, and to those of other machines in its own."""
    effects = []
    for other, predictions in done:
        name = other.name
        served = [p for p in predictions if p.figure is not None and constant.serves(p.row)]
        if other is published:
            name = f"{name} ({', '.join(constant.also)})"
            served = [p for p in served if p.row.machine in constant.also]
        if not served:
            continue
        effects.append(
            Effect(
                name,
                len(served),
                median(p._replace(figure=predict(p.row, constant)).factor for p in served),
                median(p.factor for p in served),
            )
        )
    return effects


def attempt(row: PublishedRow) -> Prediction:
    """The prediction of a row; what keeps it from being made is said, and stops no other."""
    try:
        return Prediction(row, predict(row))
    except Exception as error:
        missing = _missing(error)
        reason = str(missing) if missing else f"{type(error).__name__}: {error}"
        return Prediction(row, None, reason, bool(missing))


def _missing(error: BaseException | None) -> ModuleNotFoundError | None:
    """The package that is not installed, if that is why."""
    while error is not None and not isinstance(error, ModuleNotFoundError):
        error = error.__cause__
    return error


def median_factor(predictions: Sequence[Prediction]) -> float | None:
    """The median of the factors by which rows are off; None: no row was predicted."""
    factors = [p.factor for p in predictions if p.figure is not None]
    return median(factors) if factors else None


def find_wrong(published: PublishedSet, predictions: Sequence[Prediction]) -> Iterator[str]:
    """What does not hold: rows that failed, too many rows outside, a median that is off, rows out of order."""
    yield from (f"{p.row.name}: {p.reason}" for p in predictions if p.reason and not p.is_missing)
    outside = [p for p in predictions if not _holds(published, p)]
    if len(outside) > published.outside:
        for p in outside:
            figures = f"{p.figure:.4g}, published {p.row.published:.4g} {p.row.unit}"
            yield f"{published.name}: {p.row.name}: {figures}"
    middle = median_factor(predictions)
    if published.median and middle and middle > published.median:
        yield f"{published.name}: the median row is off by {middle:.3f}, at most {published.median:g}"
    figures_of = {p.row.name: p.figure for p in predictions if p.figure is not None}
    yield from _out_of_order(published, figures_of)


def _out_of_order(published: PublishedSet, figures: Mapping[str, float]) -> Iterator[str]:
    for order in published.order:
        for low, high in pairwise(name for name in order.rows if name in figures):
            if figures[low] >= figures[high]:
                yield f"order: {low} has {figures[low]:.4g}, {high} {figures[high]:.4g}"


def _holds(published: PublishedSet, prediction: Prediction) -> bool:
    return prediction.figure is None or prediction.factor <= published.tolerance


def _print_set(published: PublishedSet, predictions: Sequence[Prediction]) -> None:
    sys.stdout.write(f"\n{published.name}\n")
    print_table(make_console(), [HEAD, *_lines(published, predictions)])
    notes = [f"{key}: {source}" for key, source in published.sources.items()]
    sys.stdout.write("\n".join([*notes, _summary(published, predictions), ""]))


def _lines(published: PublishedSet, predictions: Sequence[Prediction]) -> Iterator[tuple[str, ...]]:
    for p in predictions:
        if p.figure is None:
            figure = ""
            ratio = ""
            verdict = f"not predicted: {p.reason}"
        else:
            figure = f"{p.figure:.4g}"
            ratio = f"{p.ratio:.2f}"
            verdict = "holds" if _holds(published, p) else "DOES NOT HOLD"
            verdict += ", in the fit" if p.row.fit else ""
        row = p.row
        yield row.name, figure, f"{row.published:.4g}", row.unit, ratio, verdict, row.source


def _summary(published: PublishedSet, predictions: Sequence[Prediction]) -> str:
    factors = [p.factor for p in predictions if p.figure is not None]
    if not factors:
        return "no row was predicted"
    fitted = sum(row.fit for row in published.row)
    return (
        f"{len(factors)} of {len(predictions)} rows predicted: off by {median(factors):.3f} in the median, "
        f"{max(factors):.2f} at most; {fitted} of them in a fit"
    )


def _verdict(wrong: int, predictions: Sequence[Prediction]) -> str:
    missing = sorted({p.reason for p in predictions if p.is_missing})
    also = "".join(f"; rows left out: {reason}" for reason in missing)
    return (f"{wrong} do not hold" if wrong else "all hold, and in order") + also
