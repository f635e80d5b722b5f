"""The cache of compiled functions under processes that fill it at once."""

import errno
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from taskflow.core.compiling import numba

ROOT = Path(__file__).parents[1]
_caching: Any = numba.core.caching


def file_in(folder: Path) -> Any:
    """The cache of one function."""
    return _caching.IndexDataCacheFile(folder, "function", "stamp")


FILE = """
import sys, time
from taskflow.compiling import numba
from numba.core.caching import IndexDataCacheFile

class Slow(IndexDataCacheFile):
    def pause(self, point):
        if point == sys.argv[3]:
            print(point, flush=True)
            time.sleep(1)

    def _load_index(self):
        found = super()._load_index()
        self.pause("index read")
        return found

    def _save_data(self, name, data):
        self.pause("index written")
        super()._save_data(name, data)

Slow(sys.argv[1], "function", "stamp").save(sys.argv[2], sys.argv[2])
"""


def saving(folder: Path, key: str, point: str) -> subprocess.Popen[str]:
    """A process that saves the variant `key` and stays at a point for a second."""
    process = subprocess.Popen([sys.executable, "-c", FILE, folder, key, point], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == f"{point}\n"
    return process


def test_a_variant_is_there_when_the_index_names_it(tmp_path: Path) -> None:
    with saving(tmp_path, "float32", "index written"):
        assert file_in(tmp_path).load("float32") == "float32"


def test_two_processes_give_their_variants_different_numbers(tmp_path: Path) -> None:
    with saving(tmp_path, "float32", "index read"):
        file_in(tmp_path).save("float64", "float64")
    assert [file_in(tmp_path).load(key) for key in ("float32", "float64")] == ["float32", "float64"]


def test_every_compiled_function_has_that_cache() -> None:
    sources = (ROOT / "taskflow").rglob("*.py")
    assert [path.name for path in sources if re.search(r"^\s*import numba\b", path.read_text(), re.M)] == [
        "compiling.py"
    ]


def test_a_file_system_without_locks_has_a_cache_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    file_in(tmp_path).save("float32", "float32")
    assert file_in(tmp_path).load("float32") == "float32"


def test_a_folder_that_cannot_be_written_to_has_no_lock(tmp_path: Path) -> None:
    assert file_in(tmp_path / "missing").load("float32") is None
