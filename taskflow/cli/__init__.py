"""The command line: `taskflow run -n 4 script.py ...` or `python -m taskflow ...`; a file for related subcommands."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from importlib import import_module

from taskflow.core.text import printable
from taskflow.core.version import our_version
from taskflow.report.console import make_console, show_compiling

SUBCOMMANDS = (
    *("run", "search", "simulate", "report", "export", "check"),
    *("costs", "machine", "collective", "doctor", "completion"),
)
MODEL = "ops.models.digits:cnn"  # an example: any function that returns a graph, MODULE:FUNCTION or FILE.py:FUNCTION
FIRST = {  # what one needs first -> what it is for
    "taskflow doctor": "is everything here that is needed?",
    f"taskflow search {MODEL} --devices 4 --out plan.json": "find a fast plan for a model",
    f"taskflow explain {MODEL} --devices 4 --strategy plan.json": "what the plan does, and why",
    f"taskflow report {MODEL} --devices 4 --strategy plan.json --out plan.html": "the same as a page",
    "taskflow run -n 4 train.py": "run a script on four ranks",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit status: 2 and one line where the user is mistaken, 130 after Ctrl-C."""
    words = sys.argv[1:] if argv is None else argv
    options = make_parser(words).parse_args(words)
    show_compiling(make_console(stderr=True))
    try:
        status: int = options.act(options)
    except ValueError as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return status


def make_parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Of the whole command line, or of what these words begin with: one command, or `--version`."""
    parser = argparse.ArgumentParser(
        prog="taskflow", description="A task runtime for deep learning."
    )
    parser.add_argument("--version", action="version", version=f"taskflow {our_version()}")
    commands = parser.add_subparsers(metavar="command")
    first = words[0] if words else ""
    is_one = first in SUBCOMMANDS[:-1]  # completion is of all
    for subcommand in [first] if is_one else SUBCOMMANDS if first != "--version" else ():
        import_module(f"taskflow.cli.{subcommand}").add_parser(commands)
    parser.set_defaults(parser=parser, act=_show_first)
    return parser


def _show_first(options: argparse.Namespace) -> int:
    from taskflow.cli.output import show

    for command, purpose in FIRST.items():
        show(f"{command}\n    {purpose}")
    show("taskflow --help lists all commands, taskflow COMMAND --help what each takes.")
    return 0


def _refuse(message: str) -> int:
    line = " ".join(part.strip() for part in message.splitlines())
    sys.stderr.write(f"taskflow: {printable(line)}\n")
    return 2
