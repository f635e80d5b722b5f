"""Files that people and other programs may have touched: strategies, machines, costs and manifests, in and out.

Reading has three stages: text (`read_text`), tables without a doubtful part (`parse_json`, `parse_toml`), and a schema
(`fit`, `fit_each`). What is wrong in any of them is a ValueError of one line with file, place, rule and value. Writing
(`replace_file`) is atomic: a reader sees the file before or the file after.

Schemas are msgspec's: one wheel without dependencies, no conversion between types unless asked for, unknown keys
refused, 21 ms to import. Rejected: pydantic, which brings four more packages, takes 230 ms, and is strict only where it
is told to be; checks by hand, which let booleans and misspelt keys through. Keys that are there twice and numbers like
NaN are found by the parsers of the standard library: msgspec's own drops the first and does not name the others.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import stat
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from io import BufferedReader
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from taskflow.core.numbers import MIB

Value = TypeVar("Value")

LARGEST_BYTES = 256 * MIB
DEEPEST = 32  # brackets within each other
# In a line of TOML: tomllib takes a time that grows with the square of the parts of a key.
_MOST_DOTS = 100
_LONGEST_VALUE = 60
_LONGEST_MESSAGE = 1000  # characters
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_AT = re.compile(r"(.*?)(?: - at (?:`key` in )?`\$(.*)`)?", re.DOTALL)


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Put `what`, a file, in front of what is wrong inside; in one line, whatever the file holds."""
    try:
        yield
    except ValueError as error:
        text = f"{what}: {error}"
        text = text if len(text) <= _LONGEST_MESSAGE else text[:_LONGEST_MESSAGE] + " ..."
        raise ValueError("".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)) from error


def open_regular(path: str | Path) -> BufferedReader:
    """A file that is one: neither a folder nor a pipe, which would be waited for."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ValueError("is no regular file")
    return open(handle, "rb")


def read_text(path: str | Path, largest_bytes: int = LARGEST_BYTES) -> str:
    """The text of a file."""
    with open_regular(path) as stream:
        data = stream.read(largest_bytes + 1)
    if len(data) > largest_bytes:
        raise ValueError(f"is larger than {largest_bytes} bytes")
    return data.decode("utf-8")


# -- tables ------------------------------------------------------------------------------------------------------------


def parse_json(text: str, is_finite: bool = True) -> Any:
    """The value of a JSON text; unless `is_finite`, `NaN` and `Infinity` are numbers, as Python writes them."""
    number = _finite if is_finite else float
    parse = partial(json.loads, object_pairs_hook=_table, parse_float=number, parse_constant=number)
    value = _parse(parse, text, "is not complete JSON")
    if _SURROGATE.search(text):
        json.dumps(value, ensure_ascii=False).encode()  # half of a character cannot be printed
    return value


def parse_toml(text: str) -> Any:
    """The table of a TOML text; the parser refuses keys that are there twice."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") > _MOST_DOTS and not line.lstrip().startswith("#"):
            raise ValueError(f"line {number} has more than {_MOST_DOTS} dots")
    return _parse(partial(tomllib.loads, parse_float=_finite), text, "is not TOML")


def _parse(parse: Callable[[str], Any], text: str, what: str) -> Any:
    """The value of a text, which is not too deep."""
    try:
        value = parse(text)
        level: list[Any] = [value] if isinstance(value, dict | list) else []
        for _ in range(DEEPEST):
            inner = [node.values() if isinstance(node, dict) else node for node in level]
            level = [node for values in inner for node in values if isinstance(node, dict | list)]
    except (json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{what}: {error}") from error
    except RecursionError:
        level = [None]
    if level:
        raise ValueError(f"is nested deeper than {DEEPEST} levels")
    return value


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"key '{twice}' is there twice")
    return table


def _finite(text: str) -> float:
    if not isfinite(number := float(text)):
        raise ValueError(f"the number {text[:20]} is not finite")
    return number


def without_head(table: Any, form: str, version: int) -> dict[str, Any]:
    """A table whose `format` and `version` are as they must be, without them."""
    if not isinstance(table, dict) or table.get("format") != form:
        raise ValueError(f"its format is not '{form}'")
    check_version(table.get("version"), version)
    return {key: value for key, value in table.items() if key not in ("format", "version")}


def check_version(version: object, ours: int) -> None:
    """Refuse a file of another version."""
    if type(version) is not int or version != ours:
        raise ValueError(f"has version {_shown(version)}, this reads {ours}")


# -- schemas -----------------------------------------------------------------------------------------------------------


def fit(value: object, kind: type[Value], where: str = "") -> Value:
    """`value` as a `kind`, which msgspec knows.

    Raises:
        ValueError: it is none: `where`, the place in it, the rule and what is there.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(
            (f"{where}: " if where else "") + _explain(value, kind, str(error))
        ) from error


def fit_each(table: Mapping[str, object], kind: Any, what: str) -> dict[str, Any]:
    """`fit` for every value of a table; `what` its keys are."""
    return {key: fit(value, kind, f"{what} '{key}'") for key, value in table.items()}


def _explain(value: Any, kind: Any, message: str) -> str:
    """The rule in msgspec's words, with the place in ours and what stands there."""
    rule, place = _AT.fullmatch(message).groups()  # type: ignore[union-attr]
    rule = (rule[0].lower() + rule[1:]).replace("`", "'")
    if "unknown field" in rule and not place:
        rule += f"; the fields are {', '.join(kind.__struct_fields__)}"
    if " field " in rule:
        return f"{place.removeprefix('.')}: {rule}" if place else rule
    for key in re.findall(r"\w+", place or ""):
        value = value[int(key)] if isinstance(value, list) else value[key]
    return (f"'{place.removeprefix('.')}' is " if place else "is ") + f"{_shown(value)}: {rule}"


def _shown(value: object) -> str:
    """A value as JSON has it, cut short."""
    text = json.dumps(value, default=str)
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "..."


# -- writing -----------------------------------------------------------------------------------------------------------


def replace_file(path: str | Path, text: str, largest_bytes: int = LARGEST_BYTES) -> None:
    """Write a whole file: who reads meanwhile gets the old one, and so does everybody if this fails.

    What is there and no regular file, `/dev/stdout` say, is written to as it is.

    Raises:
        ValueError: no reader would take a file of this size.
        OSError: with the file.
    """
    data = text.encode()
    target = Path(path).resolve()
    if len(data) > largest_bytes:
        raise ValueError(f"file '{path}': would be larger than {largest_bytes} bytes")
    if target.exists() and not target.is_file():
        Path(path).write_bytes(data)
        return
    draft = target.with_name(f".taskflow-{os.getpid()}-{secrets.token_hex(4)}")
    with blaming(path):
        try:
            with draft.open("xb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            if target.exists():
                shutil.copymode(target, draft)
            draft.replace(target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        sync_folder(target.parent)


@contextmanager
def blaming(path: str | Path) -> Iterator[None]:
    """Errors of the system, in which `path` is the file."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
