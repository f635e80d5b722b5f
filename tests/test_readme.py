"""Every Python block of the README runs, in order, as one program, and so does every command of its shell blocks.

Those of the pages of docs/: tests/docs.
"""

import re
import shlex
from pathlib import Path

import pytest

from taskflow.cli import main

README = Path(__file__).parents[1] / "README.md"


def test_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) >= 4
    scope: dict[str, object] = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, str(README), "exec"), scope)
    assert "ms predicted" in capsys.readouterr().out


@pytest.mark.slow
def test_readme_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text(), re.DOTALL)
    commands = [shlex.split(line) for block in blocks for line in block.splitlines()]
    assert len(commands) >= 4
    for program, *arguments in commands:
        assert (program, main(arguments)) == ("taskflow", 0)
    assert {path.name for path in tmp_path.iterdir()} == {
        "cnn.json",
        "cnn.dot",
        "cnn.html",
        "trace.json",
    }
