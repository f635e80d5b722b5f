"""The peer tests on each end of the supported range of torch, and on one in the middle, one environment at a time.

    python benchmarks/versions_torch.py            # the versions of VERSIONS
    python benchmarks/versions_torch.py 2.9.1 -k small_modules

The range stands in pyproject.toml, in the extra `torch`. Each environment sees the packages of this one, has a torch
of its own (from the index of CPU builds, or where that is not to be had, from PyPI), and is removed afterwards. Printed
are pytest's last lines and the seconds; 0 is given where all are green. About six minutes a version on two cores, and
6 GB of disk for a build from PyPI.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
CPU_BUILDS = "https://download.pytorch.org/whl/cpu"
VERSIONS = ("2.11.0", "2.12.1", "2.13.0")  # an end, the middle, and an end of the range
TESTS, SWEEP = "tests/peer", "tests/peer/test_sweep.py"  # half of the time is the sweep's
TOLD = r"^(FAILED|SUBFAILED|ERROR)|right, | passed| failed"
NOTHING_CHOSEN = 5  # how pytest ends where -k leaves no test


def supported() -> str:
    """The requirement of the extra `torch`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: str = project["optional-dependencies"]["torch"][0]
    return found


def check_range(versions: tuple[str, ...]) -> None:
    """ValueError unless the first and the last version are the ends of the range."""
    low, high = re.findall(r"[<>]=?([\d.]+)", supported())
    first, last = (tuple(map(int, v.split(".")[:2])) for v in (versions[0], versions[-1]))
    ends = [tuple(map(int, v.split("."))) for v in (low, high)]
    if (first, (last[0], last[1] + 1)) != (ends[0], ends[1]):
        raise ValueError(
            f"versions_torch: {versions[0]} and {versions[-1]} are not the ends of '{supported()}'"
        )


def try_version(version: str, more: list[str]) -> bool:
    """Whether the peer tests are green with a version of torch."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder, "bin", "python")
        ask = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
        own = Path(subprocess.check_output([python, "-c", ask], text=True).strip())
        Path(own, "zz_base.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        install(python, version)
        command = [
            python,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:logging",
            *more,
        ]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        thorough = {**environment, "HYPOTHESIS_PROFILE": "thorough"}  # all cases of the sweep
        halves = ([SWEEP], thorough), ([TESTS, f"--ignore={SWEEP}"], environment)
        started = [
            subprocess.Popen(
                [*command, *half], cwd=ROOT, env=variables, stdout=subprocess.PIPE, text=True
            )
            for half, variables in halves
        ]
        said = [process.communicate()[0] for process in started]
    lines = [line for text in said for line in text.splitlines() if re.search(TOLD, line)]
    print(f"torch {version}: {time.monotonic() - start:.0f} s", *lines, sep="\n  ", flush=True)
    return all(process.returncode in (0, NOTHING_CHOSEN) for process in started)


def install(python: Path, version: str) -> None:
    """torch alone, of CPUs where that is to be had."""
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    pip.append(f"torch=={version}")
    if subprocess.run(
        [*pip, "--index-url", CPU_BUILDS, "--retries", "0"], capture_output=True
    ).returncode:
        subprocess.run(pip, check=True)


def main() -> int:
    """The number of versions that are not green."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("versions", nargs="*", help=f"by default {', '.join(VERSIONS)}")
    parser.add_argument("-k", help="as pytest's")
    options = parser.parse_args()
    if not options.versions:
        check_range(VERSIONS)
    more = ["-k", options.k] if options.k else []
    return sum(not try_version(version, more) for version in options.versions or VERSIONS)


if __name__ == "__main__":
    sys.exit(main())
