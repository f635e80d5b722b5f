"""Compiled functions on disk: no change is missed, damage heals, and any folder will do."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taskflow.core import code_folders

ROOT = Path(__file__).parents[2]
FILES = {
    "kinds.py": "from enum import IntEnum\n\nclass Kind(IntEnum):\n    COPY = 3\n",
    "rule.py": "from taskflow.core.compiling import inner\n\n@inner\ndef rule(x):\n    return x + 1\n",
    "middle.py": "from taskflow.core.compiling import inner\nfrom rule import rule\n\n"
    "@inner\ndef middle(x):\n    return 10 * rule(x)\n",
    "called.py": "from taskflow import njit\nfrom kinds import Kind\nfrom middle import middle\n\n"
    "@njit\ndef called(x):\n    return middle(x) + Kind.COPY\n",
    "main.py": "import called\nprint(called.called(1), sum(called.called.stats.cache_hits.values()))\n",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Modules that call each other, and a function that Python calls."""
    return write(tmp_path / "checkout")


def write(folder: Path) -> Path:
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is on disk after the first run."""
    folder = tmp_path_factory.mktemp("compiled")
    assert run(write(folder / "checkout"), folder / "cache") == (23, False, "")
    return folder / "cache"


@pytest.fixture
def cache(compiled: Path, tmp_path: Path) -> Path:
    """A folder of a test's own that has it."""
    return Path(shutil.copytree(compiled, tmp_path / "cache"))


def start(package: Path, cache: Path, **more: str) -> subprocess.Popen[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "NUMBA_CACHE_DIR": str(cache),
        **more,
    }
    command = [sys.executable, "-B", package / "main.py"]
    return subprocess.Popen(
        command, cwd="/", env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def run(package: Path, cache: Path, **more: str) -> tuple[int, bool, str]:
    """What the called function gives, whether it was on disk, and what was said on standard error."""
    return outcome(start(package, cache, **more))


def outcome(process: subprocess.Popen[str]) -> tuple[int, bool, str]:
    out, said = process.communicate()
    assert process.returncode == 0, said
    result, hits = out.split()
    return int(result), hits == "1", said


def files(cache: Path) -> Mapping[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((cache / "taskflow").iterdir())}


def test_a_change_in_a_function_that_others_call_is_seen(package: Path, cache: Path) -> None:
    """And checkouts with the same sources share their files, wherever and whenever these were written."""
    rule = package / "rule.py"
    rule.write_text(rule.read_text().replace("x + 1", "x + 2"))
    assert run(package, cache) == (33, False, "")
    rule.write_text(FILES["rule.py"])
    assert run(package, cache) == (23, True, "")


def test_a_change_of_a_constant_that_compiled_code_names_is_seen(
    package: Path, cache: Path
) -> None:
    (package / "kinds.py").write_text(FILES["kinds.py"].replace("3", "4"))
    assert run(package, cache) == (24, False, "")


def test_what_was_loaded_is_linked_into_what_is_compiled(package: Path, cache: Path) -> None:
    (package / "outer.py").write_text(
        "from taskflow import njit\nfrom called import called\n\n@njit\ndef outer(x):\n    return called(x) + 1\n"
    )
    (package / "main.py").write_text(
        FILES["main.py"].replace("print(called.called(1)", "print(outer.outer(1)")
    )
    main = package / "main.py"
    main.write_text("import outer\n" + main.read_text())
    assert run(package, cache) == (24, True, "")


def test_only_what_python_calls_is_machine_code(package: Path, tmp_path: Path) -> None:
    (package / "main.py").write_text(
        "import called, middle, rule\nfound = called.called(1)\n"
        "built = [each.library._finalized for function in (called.called, middle.middle, rule.rule)"
        " for each in function.overloads.values()]\nassert built == [True, False, False], built\nprint(found, 0)\n"
    )
    assert run(package, tmp_path)[0] == 23


def test_a_damaged_file_is_made_anew_with_one_line_of_warning(package: Path, cache: Path) -> None:
    whole, folder = files(cache), cache / "taskflow"
    for name, data in whole.items():
        (folder / name).write_bytes(data[:-9] + bytes([data[-9] ^ 4]) + data[-8:])
    assert run(package, cache) == (
        23,
        False,
        f"compiled code in {folder} is damaged; it is compiled again\n",
    )
    assert run(package, cache) == (23, True, "")
    assert files(cache).keys() == whole.keys()


def test_any_damage_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    code_folders.write("name", b"payload" * 9)
    (path,) = tmp_path.rglob("name")
    whole = path.read_bytes()
    assert code_folders.read("name") == b"payload" * 9
    for damaged in (
        whole[: len(whole) // 2],
        b"",
        whole[:-9] + bytes([whole[-9] ^ 4]) + whole[-8:],
    ):
        path.write_bytes(damaged)
        assert code_folders.read("name") is None


def test_of_processes_that_start_at_once_one_compiles_what_the_others_wait_for(
    package: Path, tmp_path: Path
) -> None:
    processes = [start(package, tmp_path) for _ in range(2)]
    assert sorted(outcome(each) for each in processes) == [(23, False, ""), (23, True, "")]
    assert [name.partition("-")[0] for name in files(tmp_path)] == ["called.called"]


def test_what_cannot_be_compiled_keeps_nobody_waiting(package: Path, tmp_path: Path) -> None:
    (package / "main.py").write_text(
        "import called\nfrom numba.core.errors import TypingError\n"
        "try:\n    called.called('text')\nexcept TypingError:\n    print(called.called._cache._held is None, 0)\n"
    )
    process = start(package, tmp_path)
    assert process.communicate()[0] == "True 0\n"
    assert not list((tmp_path / "taskflow").iterdir())


def test_where_nothing_can_be_written_a_private_folder_serves(
    package: Path, tmp_path: Path
) -> None:
    nowhere = Path("/dev/null/nowhere")
    assert run(package, nowhere, TMPDIR=str(tmp_path)) == (23, False, "")
    assert run(package, nowhere, TMPDIR=str(tmp_path)) == (23, True, "")
    (private,) = tmp_path.glob("taskflow-*")
    assert private.stat().st_mode & 0o777 == 0o700
    private.chmod(0o777)  # others may have put their code there
    said = f"compiled code is not kept: neither {nowhere}/taskflow nor a folder for temporary files takes it\n"
    assert run(package, nowhere, TMPDIR=str(tmp_path)) == (23, False, said)


def test_nothing_is_kept_without_home_and_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "nowhere")  # relative, as without a home
    monkeypatch.setattr(code_folders.tempfile, "gettempdir", lambda: "/dev/null")
    assert list(code_folders.folders()) == [] and code_folders.used_folder() is None
    code_folders.write("name", b"payload")
    assert code_folders.read("name") is None and not code_folders.has("name")


def test_what_is_typed_in_is_compiled_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    typed: dict[str, Any] = {"__name__": "typed"}
    exec("from taskflow import njit\n\n@njit\ndef typed(x):\n    return x + 1\n", typed)
    assert typed["typed"](2) == 3
    assert not list(tmp_path.iterdir())


def test_loops_become_vector_instructions() -> None:
    typed: dict[str, Any] = {"__name__": "typed"}
    loops = (
        "from taskflow import njit\n\n@njit\ndef add_where(y, at, x):\n    for n in range(y.shape[0]):\n"
        "        row, where = y[n], at[n]\n        for k in range(4):\n            into = x[n, k]\n"
        "            for c in range(row.size):\n                into[c] += row[c] if where[c] == k else 0\n"
    )
    exec(loops, typed)
    typed["add_where"](np.ones((2, 8), "f4"), np.zeros((2, 8), "i4"), np.zeros((2, 4, 8), "f4"))
    (code,) = typed["add_where"].inspect_llvm().values()
    assert "vector.body" in code


def test_a_folder_is_kept_from_growing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_folders, "LARGEST_BYTES", 250)
    for day in range(4):
        (tmp_path / f"{day}").write_bytes(bytes(100))
        os.utime(tmp_path / f"{day}", (day, day))
    code_folders._bound(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "3"]


def test_every_compiled_function_has_that_cache() -> None:
    sources = [
        path for package in ("taskflow", "ops") for path in sorted((ROOT / package).rglob("*.py"))
    ]
    homes = [path.name for path in sources if re.search(r"\bnumba\.n?jit\b", path.read_text())]
    assert homes == ["compiling.py"]
