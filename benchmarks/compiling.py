"""What compiling takes: `python benchmarks/compiling.py` (three minutes). Seconds of the processor, user and system.

Cold, with an empty folder for compiled code: a first `lower` of a perceptron, then `make demo` (two ranks), by compiled
function: its own time with all that is compiled for it. Warm: four commands of the command line on AlexNet.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from taskflow.comm import launch

ROOT = Path(__file__).parents[1]
MODEL = ("ops/models/alexnet.py:build", "--devices", "4")
COMMANDS = {
    "simulate": ("simulate", *MODEL),
    "explain": ("explain", *MODEL),
    "trace": ("trace", *MODEL, "--out", os.devnull),
    "search": ("search", *MODEL, "--proposals", "20"),
}
# Runs a script, and writes what compiling took in this process, by function, to a file of a folder.
TIMED = """
import atexit, json, os, runpy, sys, time
from numba.core import event

class Times(event.Listener):
    began, found = [], {}

    def on_start(self, event):
        self.began.append(time.process_time())

    def on_end(self, event):
        seconds = time.process_time() - self.began.pop()
        if not self.began:
            function = event.data["dispatcher"].py_func
            name = f"{function.__module__}.{function.__name__}"
            self.found[name] = self.found.get(name, 0) + seconds

event.register("numba:compile", Times())
folder = sys.argv[1]
del sys.argv[:2]
atexit.register(lambda: json.dump(Times.found, open(os.path.join(folder, f"{os.getpid()}.json"), "w")))
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""
LOWER = """
import taskflow, ops
graph = taskflow.Graph()
x, t = graph.input("x", (64, 784)), graph.input("t", (64,), dtype="int32")
loss = ops.softmax_cross_entropy(ops.linear(ops.relu(ops.linear(x, 256)), 10), t)
ops.sgd(loss, lr=0.1, momentum=0.9)
machine = taskflow.MachineModel.local(devices=2)
taskflow.lower(graph, taskflow.data_parallel(graph, machine), machine)
"""


def cpu_seconds(command: Sequence[str | Path], cache: Path) -> float:
    """Seconds of a command and all that it starts."""
    own = {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}
    environment = {**os.environ, **launch.settings(), **own}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compiled(command: Sequence[str | Path], script: Path, folder: Path) -> Counter[str]:
    """Prints what a script takes; seconds of compiling by function, over all of its processes."""
    timed, times = folder / "timed.py", folder / f"times of {script.name}"
    timed.write_text(TIMED)
    times.mkdir()
    whole = cpu_seconds(
        [*command, sys.executable, timed, times, script], folder / script.name / "cache"
    )
    found: Counter[str] = Counter()
    for each in times.iterdir():
        found.update(json.loads(each.read_text()))
    print(
        f"cold {script.name}: {whole:.1f} s, of which {found.total():.1f} s compile {len(found)} functions",
        flush=True,
    )
    return found


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("lower", "demo", "warm"), help="one of the three parts")
    only = parser.parse_args().only
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if only in (None, "lower"):
            script = folder / "lower.py"
            script.write_text(LOWER)
            compiled([], script, folder)
        if only in (None, "demo"):
            found = compiled(
                [Path(sys.executable).parent / "mpirun", "-n", "2"],
                ROOT / "examples/digits.py",
                folder,
            )
            for function, seconds in found.most_common():
                print(f"  {seconds:6.1f} s {function}")
        if only in (None, "warm"):
            for title, arguments in COMMANDS.items():
                command = [sys.executable, "-m", "taskflow", *arguments]
                cpu_seconds(command, folder / "warm")
                print(
                    f"warm {title}: {min(cpu_seconds(command, folder / 'warm') for _ in range(3)):.2f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
