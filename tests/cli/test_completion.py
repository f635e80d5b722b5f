"""`taskflow completion`: bash really completes by it; the scripts of all shells name every command and option."""

import re
import shutil
import subprocess

import pytest

from taskflow.cli import SUBCOMMANDS, main
from taskflow.machine.machinefile import preset_names
from taskflow.strategy.rules import RULES


def script(capsys, shell):
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def completed(text, *words):
    """What bash offers for the last word."""
    line = " ".join(f"'{word}'" for word in words)
    ask = f"{text}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _taskflow; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "--norc", "-c", ask], capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.json").touch()
    text = script(capsys, "bash")
    assert completed(text, "taskflow", "re") == ["report"]
    assert completed(text, "taskflow", "search", "--ou") == ["--out"]
    assert {*completed(text, "taskflow", "search", "--machine", "")} == {
        "uniform",
        "local",
        *preset_names(),
    }
    assert {*completed(text, "taskflow", "explain", "m", "--strategy", "")} == {*RULES}
    assert completed(text, "taskflow", "explain", "m", "--strategy", "pl") == ["placed_tables"]
    assert completed(text, "taskflow", "explain", "m", "--strategy", "plan") == ["plan.json"]
    assert completed(text, "taskflow", "simulate", "ops.models.g") == ["ops.models.gpt:build"]
    assert "--seconds" not in completed(text, "taskflow", "simulate", "--s")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_and_option_is_there(capsys, shell):
    text = script(capsys, shell)
    with pytest.raises(SystemExit):
        main(["--help"])
    names = re.findall(r"^    (\w+)", capsys.readouterr().out, re.MULTILINE)
    assert len(names) >= len(SUBCOMMANDS)
    for name in names:
        with pytest.raises(SystemExit):
            main([name, "--help"])
        options = re.findall(r"^  (--[\w-]+)", capsys.readouterr().out, re.MULTILINE)
        for option in (
            name,
            *(option.removeprefix("--") if shell == "fish" else option for option in options),
        ):
            assert option in text


def test_its_models_are_there():
    import importlib

    from taskflow.cli.completion import MODELS

    for name in MODELS:
        assert callable(importlib.import_module(f"ops.models.{name}").build)


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
def test_fish_reads_it(capsys):
    text = script(capsys, "fish")
    done = subprocess.run(
        ["fish", "-c", f"{text}\ncomplete -C 'taskflow re'"], capture_output=True, text=True
    )
    assert done.stdout.startswith("report") and not done.stderr
