"""Output: escape codes go to a terminal and nowhere else, whatever mpirun puts between it and a rank."""

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from taskflow.comm import launch
from taskflow.report import console

ROOT = Path(__file__).parents[1]
EPOCHS, ESCAPE = 3, "\x1b"
TRAIN = ROOT / "examples" / "05_mpirun.py"


def environment():
    """Of mpirun, without what would settle the matter by itself."""
    return {
        n: v
        for n, v in launch.launch_environment(os.environ, 2).items()
        if n not in ("FORCE_COLOR", "NO_COLOR")
    }


MPIRUN = [launch.find_mpirun(), "-n", "2", sys.executable, TRAIN]
RUN = [sys.executable, "-m", "taskflow", "run", "-n", "2", TRAIN]


@pytest.mark.mpi
@pytest.mark.slow
def test_a_file_gets_lines(tmp_path):
    out = tmp_path / "out.txt"
    with launch.session_folder() as session, out.open("w") as file:
        subprocess.run(
            RUN, stdout=file, env=environment() | session, cwd=ROOT, timeout=240, check=True
        )
    text = out.read_text()
    assert ESCAPE not in text and "\r" not in text
    assert len(text) < EPOCHS * 5000
    assert [f"epoch {k}" in text for k in (1, 2, 3)] == [True] * EPOCHS
    assert text.count("fc1.weight is (64, 20)") == 1  # rank 0 alone prints


@pytest.mark.mpi
@pytest.mark.slow
def test_a_terminal_gets_a_bar():
    ours, theirs = pty.openpty()
    with launch.session_folder() as session:
        job = subprocess.Popen(MPIRUN, stdout=theirs, env=environment() | session, cwd=ROOT)
        os.close(theirs)
        text = ""
        while chunk := read(ours):
            text += chunk
        assert job.wait() == 0
    assert ESCAPE in text


def read(handle):
    """What comes next; nothing once all writers are gone, which Linux reports as an error."""
    try:
        return os.read(handle, 1 << 16).decode(errors="replace")
    except OSError:
        return ""


def test_a_lone_process_is_watched_where_its_output_is_a_terminal(monkeypatch):
    monkeypatch.setattr(console, "world_size", lambda default: 0)
    ours, theirs = pty.openpty()
    with open(theirs, "w") as tty, open(ours, "rb"):
        assert console.is_watched(tty)
    assert not console.is_watched(io.StringIO())


def test_a_rank_whose_launcher_cannot_be_seen_is_not_watched(monkeypatch):
    monkeypatch.setattr(console, "world_size", lambda default: 2)
    monkeypatch.setattr(console, "find_launcher", lambda: 0)
    ours, theirs = pty.openpty()
    with open(theirs, "w") as tty, open(ours, "rb"):
        assert not console.is_watched(tty)


def test_progress_in_a_file_is_a_line_every_few_seconds():
    file, now = io.StringIO(), [0.0]
    show = console._print_now_and_then(Console(file=file), lambda: now[0])
    for second in range(41):
        now[0] = float(second)
        show(second, 40 if second < 25 else None, f"search {second}")
    assert file.getvalue() == "search 10, 25% done\nsearch 20, 50% done\nsearch 30\nsearch 40\n"


def test_a_long_line_of_a_file_is_not_broken(capsys):
    console.make_console().print("word " * 40)
    console.print_table(console.make_console(), [("head", "[b]"), ("x" * 200, "1")])
    assert capsys.readouterr().out.count("\n") == 3
