"""A newcomer's path, timed: clone, demo, an own torch model, its plan for eight H100, the plan shown.

`python benchmarks/newcomer.py` clones this checkout (what is committed) into an empty folder and goes through the six
commands that a newcomer types, with an empty home and empty caches. It prints each command with its seconds, by the
clock and of the processors, and says whether all but downloads take at most five minutes. Commands that download are
timed, too, but not counted: they depend on the network. `--repository` clones something else, `--keep FOLDER` leaves
all of it there.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_SECONDS, MOST_COMMANDS = 300.0, 6
KEPT = (
    "PATH",
    "LANG",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)

MODEL = '''"""A model as people have it: a small vision transformer in torch, and a function that gives a step."""

import torch
from torch import nn

import ops


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 8, batch_first=True)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Classifier(nn.Module):
    def __init__(self, width=512, layers=4):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x):
        h = self.blocks(self.patches(x).flatten(2).transpose(1, 2))
        return self.head(self.norm(h).mean(1))


def build(batch=64):
    torch.manual_seed(0)
    imported = ops.from_torch(Classifier(), torch.zeros(batch, 3, 64, 64), compare=False)
    target = imported.graph.input("target", (batch,), "int32")
    ops.adamw(ops.softmax_cross_entropy(imported.output, target, name="loss"), lr=1e-3)
    return imported.graph
'''


def commands(repository: str, torch: str) -> list[tuple[str, bool]]:
    """The commands, and whether what one takes is the network's."""
    taskflow = ".venv/bin/taskflow"
    return [
        (f"git clone --quiet {repository} taskflow", False),
        ("make .venv/installed", True),
        ("make demo", False),
        (f".venv/bin/python -m pip install --quiet {torch}", True),
        (f"{taskflow} search mymodel.py:build --machine h100 --seconds 30 --out plan.json", False),
        (
            f"{taskflow} report mymodel.py:build --machine h100 --strategy plan.json --out plan.html",
            False,
        ),
    ]


def shown_without_a_report(command: str) -> str:
    """What shows a plan in an older version, whose command line has no `report`."""
    return command.replace(" report ", " simulate ").replace(" --out plan.html", "")


def processor_seconds() -> float:
    """Of all commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(command: str, folder: Path, home: Path) -> tuple[float, float]:
    """Seconds by the clock and of the processors; a command that fails ends the benchmark with what it said."""
    kept = {
        name: value for name, value in os.environ.items() if name in KEPT or name.startswith("PIP_")
    }
    kept |= {"HOME": str(home), "PYTHON": sys.executable}  # PYTHON: which one make takes
    begin, before = time.perf_counter(), processor_seconds()
    done = subprocess.run(command.split(), cwd=folder, env=kept, capture_output=True, text=True)
    seconds = time.perf_counter() - begin, processor_seconds() - before
    if done.returncode:
        sys.exit(f"{command}: status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return seconds


def walk(folder: Path, repository: str, torch: str) -> bool:
    """Go through the commands; whether they keep to their limits."""
    home, checkout = folder / "home", folder / "taskflow"
    home.mkdir(parents=True)
    counted = counted_of_processors = 0.0
    listed = commands(repository, torch)
    for number, (command, is_download) in enumerate(listed, 1):
        where = checkout if checkout.exists() else folder
        if number == 5:
            (checkout / "mymodel.py").write_text(MODEL)  # the newcomer's own file
        if " report " in command and not (checkout / "taskflow/cli/report.py").exists():
            command = shown_without_a_report(command)
        seconds, of_processors = run(command, where, home)
        shown = command.replace(repository, "REPOSITORY") + ("  (downloads)" if is_download else "")
        print(f"{number}. {seconds:6.1f} s {of_processors:6.1f} CPU s  {shown}", flush=True)
        if not is_download:
            counted, counted_of_processors = (
                counted + seconds,
                counted_of_processors + of_processors,
            )
    page = checkout / "plan.html"
    if page.exists():
        print(f"plan.html: {page.stat().st_size / 1e6:.2f} MB")
    is_met = counted <= MOST_SECONDS and len(listed) <= MOST_COMMANDS
    counts = f"{len(listed)} commands (at most {MOST_COMMANDS}), {counted:.0f} s beside downloads"
    beside = f"{counted_of_processors:.0f} CPU s, load {os.getloadavg()[0]:.1f}"
    print(f"{counts} (at most {MOST_SECONDS:.0f}), {beside}: {'met' if is_met else 'MISSED'}")
    return is_met


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repository", default=str(ROOT), help="what to clone")
    parser.add_argument(
        "--torch",
        default="torch",
        help="what pip installs (default: torch); a build for CPUs will do",
    )
    parser.add_argument("--keep", type=Path, help="an empty folder for all of it, which stays")
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp(prefix="newcomer-"))
    try:
        is_met = walk(folder, options.repository, options.torch)
    finally:
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(not is_met)


if __name__ == "__main__":
    main()
