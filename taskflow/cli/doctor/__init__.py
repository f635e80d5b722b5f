"""`taskflow doctor`: what of this machine taskflow needs, how it is, and the one command that mends what is not well.

`facts` looks, once; `findings` judges what was seen, and touches nothing.
"""

from __future__ import annotations

import argparse

from taskflow.cli.data import add_json, record, show_data
from taskflow.cli.doctor.facts import Facts, look
from taskflow.cli.doctor.findings import Finding, Verdict, judge
from taskflow.cli.output import show, show_table
from taskflow.cli.types import Commands

__all__ = ["Facts", "Finding", "Verdict", "add_parser", "judge", "look"]


def add_parser(commands: Commands) -> None:
    """Add the subcommand to argparse's `commands`."""
    parser = commands.add_parser(
        "doctor",
        help="say what is missing or wrong on this machine, and how to mend it",
        description="Look at packages, MPI, shared memory, compiler, cache, cores and GPUs. The exit status is 1 if "
        "something must be mended.",
    )
    add_json(parser, "the findings")
    parser.set_defaults(act=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    findings = judge(look())
    is_ill = any(finding.verdict == Verdict.FAULT for finding in findings)
    if options.json:
        records = [{**record(finding), "verdict": finding.verdict.value} for finding in findings]
        show_data("doctor", {"healthy": not is_ill, "findings": records})
        return int(is_ill)
    show_table([("what", "", "found"), *((f.name, f.verdict.value, f.says) for f in findings)])
    mends = [f for f in findings if f.mend]
    for finding in mends:
        show(f"\n{finding.name}: {finding.why}\n    {finding.mend}")
    show(
        "\n"
        + (
            "something must be mended"
            if is_ill
            else "all is well"
            if not mends
            else "it works; some could be better"
        )
    )
    return int(is_ill)
