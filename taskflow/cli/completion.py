"""`taskflow completion`: a script by which a shell completes commands, options, presets and files."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator

from taskflow.cli.types import Commands
from taskflow.machine.machinefile import preset_names
from taskflow.schedule.orders import NAMED
from taskflow.strategy.rules import RULES

# Options that take one of some names, or a file.
NAMES: dict[str, Callable[[], list[str]]] = {
    "--machine": lambda: ["uniform", "local", *preset_names()],
    "--strategy": lambda: list(RULES),
    "--against": lambda: list(RULES),
    "--schedule": lambda: [*NAMED, "searched"],
    "--costs": lambda: ["analytic", "measured"],
}
MODELS = (
    *(
        "alexnet",
        "bert",
        "dlrm",
        "gpt",
        "inception_v3",
        "lenet",
        "mlp",
        "moe",
        "nmt",
        "resnet101",
        "rnnlm",
        "rnntc",
    ),
)


def add_parser(commands: Commands) -> None:
    """Add the subcommand to argparse's `commands`."""
    parser = commands.add_parser(
        "completion",
        help="print a script that completes commands in a shell",
        description='Print a script for a shell. In ~/.bashrc: eval "$(taskflow completion bash)"; in ~/.zshrc: '
        'eval "$(taskflow completion zsh)"; for fish: taskflow completion fish | source',
    )
    parser.add_argument("shell", choices=sorted(SCRIPTS))
    parser.set_defaults(act=_completion)


def _completion(options: argparse.Namespace) -> int:
    sys.stdout.write(SCRIPTS[options.shell](options.parser))
    return 0


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The subcommands with their parsers."""
    (subcommands,) = (
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    )
    return dict(subcommands.choices)


def _helps(parser: argparse.ArgumentParser) -> dict[str, str]:
    """What each subcommand is for."""
    (subcommands,) = (
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    )
    return {action.dest: action.help or "" for action in subcommands._choices_actions}


def _options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [
        action
        for action in parser._actions
        if action.option_strings and action.help != argparse.SUPPRESS
    ]


def _bash(parser: argparse.ArgumentParser) -> str:
    """bash: a function that looks at the word before, then at the subcommand."""
    commands = _commands(parser)
    values = "\n".join(_cases((name, " ".join(choices())) for name, choices in NAMES.items()))
    words = "\n".join(_cases((name, _flags(command)) for name, command in commands.items()))
    models = " ".join(f"ops.models.{name}:build" for name in MODELS)
    return f"""_taskflow() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" names=
    case "$before" in
{values}
    esac
    if [ -z "$names" ] && [ "$COMP_CWORD" -gt 1 ]; then
        case "$word" in -*) case "${{COMP_WORDS[1]}}" in
{words}
        esac ;; *) [ "$COMP_CWORD" = 2 ] && names="{models}" ;; esac
    elif [ -z "$names" ]; then
        names="{" ".join(commands)}"
    fi
    COMPREPLY=($(compgen -W "$names" -- "$word"))
    [ -n "$COMPREPLY" ] || [[ "$word" == -* ]] || COMPREPLY=($(compgen -f -- "$word"))
}}
COMP_WORDBREAKS="${{COMP_WORDBREAKS//:}}"
complete -o filenames -F _taskflow taskflow
"""


def _flags(command: argparse.ArgumentParser) -> str:
    return " ".join(flag for action in _options(command) for flag in action.option_strings)


def _cases(pairs: Iterator[tuple[str, str]]) -> Iterator[str]:
    for name, words in pairs:
        yield f"        {name}) names={shlex.quote(words)} ;;"


def _zsh(parser: argparse.ArgumentParser) -> str:
    """zsh: that of bash, which it can run."""
    return f"autoload -U +X bashcompinit && bashcompinit\n{_bash(parser)}"


def _fish(parser: argparse.ArgumentParser) -> str:
    """fish: a line for each command and option."""
    commands = _commands(parser)
    helps = _helps(parser)
    lines = ["complete -c taskflow -e"]
    for name in commands:
        lines.append(
            f"complete -c taskflow -f -n __fish_use_subcommand -a {name} -d {shlex.quote(helps[name])}"
        )
    for name, command in commands.items():
        for action in _options(command):
            lines.append(
                f"complete -c taskflow -n '__fish_seen_subcommand_from {name}' {_fish_option(action)}"
            )
    return "\n".join(lines) + "\n"


def _fish_option(action: argparse.Action) -> str:
    """Its flags, what it takes and what it is for."""
    flags = " ".join(
        f"-l {s[2:]}" if s.startswith("--") else f"-s {s[1:]}" for s in action.option_strings
    )
    choices = next((NAMES[s]() for s in action.option_strings if s in NAMES), [])
    takes = f" -x -a {shlex.quote(' '.join(choices))}" if choices else " -r" * (action.nargs != 0)
    about = shlex.quote((action.help or "").replace("%%", "%"))
    return f"{flags}{takes} -d {about}"


SCRIPTS = {"bash": _bash, "fish": _fish, "zsh": _zsh}
