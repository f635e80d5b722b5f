"""The pages of jobs: their commands run on the file that the page shows, and what is found is written and better."""

from pathlib import Path

import pytest

from docs.draw.blocks import DOCS, blocks
from taskflow.cli import main

FILES = {"megatron": "run.sh", "torchtitan": "config.py", "deepspeed": "ds.json"}


@pytest.mark.slow
@pytest.mark.parametrize("system", FILES)
def test_three_commands_give_a_better_job(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = blocks(DOCS / "jobs" / f"{system}.md")
    job = next(block.text for block in page if block.language == "text")
    Path(FILES[system]).write_text(job)
    commands = [
        line.split() for block in page if block.language == "sh" for line in block.text.splitlines()
    ]
    assert [words[1] for words in commands] == ["simulate", "search", "export"]
    for words in commands:
        assert main(words[1:]) == 0
        if words[1] == "search":
            table = capsys.readouterr().out
            assert f"% faster than {FILES[system]}:" in table
            assert table.index(FILES[system]) < table.index("better 1")
    written = Path(commands[2][-1])
    said = main([*commands[0][1:], "--from", str(written)])
    assert said == 0
