"""The pages of jobs: their commands run on the file that the page shows, and what is found is written and better."""

import json
from pathlib import Path

import pytest

from docs.draw.blocks import DOCS, blocks
from taskflow.cli import main

FILES = {"megatron": "run.sh", "torchtitan": "config.py", "deepspeed": "ds.json"}
PLANS = {"flexflow": "strategy.txt", "pytorch": "model.py"}


def commands_of(system: str, file: str) -> list[list[str]]:
    """The words of the three commands of a page, whose job is written to the file."""
    page = blocks(DOCS / "jobs" / f"{system}.md")
    job = next(block.text for block in page if block.language == "text")
    Path(file).write_text(job)
    shell = (block.text for block in page if block.language == "sh")
    commands = [line.split() for text in shell for line in text.splitlines()]
    assert [words[1] for words in commands] == ["simulate", "search", "export"]
    return [words[1:] for words in commands]


@pytest.mark.slow
@pytest.mark.parametrize("system", FILES)
def test_three_commands_give_a_better_job(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    commands = commands_of(system, FILES[system])
    for words in commands:
        assert main(words) == 0
        if words[0] == "search":
            table = capsys.readouterr().out
            assert f"% faster than {FILES[system]}:\n" in table
            assert table.index(FILES[system]) < table.index("% faster than")
    written = Path(commands[2][-1])
    said = main([*commands[0], "--from", str(written)])
    assert said == 0


@pytest.mark.parametrize("system", PLANS)
def test_three_commands_give_a_better_plan(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Predicted to be faster than the job itself, by `simulate` of what the search wrote."""
    if system == "pytorch":
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    job, search, export = commands_of(system, PLANS[system])
    found = []
    for words in (job, search, export, [*job[:2], "--strategy", "better.json", *job[-2:]]):
        assert main([*words, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    before, after = (found[k]["cases"][0]["seconds"] for k in (0, 3))
    assert after < 0.99 * before
    assert json.loads(Path(export[-1]).read_text())
