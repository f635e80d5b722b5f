"""What a GPU is asked in the few minutes that one has it: `benchmarks/gpu_minutes.sh` says which runs there are.

A run is stages, one after the other; the parts of a stage are processes side by side, each with a time limit. First
comes what only CPUs are needed for, on all of them; what is timed is alone on the GPU. A part that fails or hangs
leaves the others' results. A run keeps two files, `gpu_<run>.txt` with all that was said and `gpu_<run>.json` with its
figures, written anew after each part: one that is ended from outside leaves what it had.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
PACKAGES = (
    "numpy",
    "numba",
    "cupy-cuda13x",
    "cupy-cuda12x",
    "torch",
    "nvidia-cudnn-frontend",
    "mpi4py",
    "pytest",
)
TEST = re.compile(r"^(tests/\S+?::.+?) \((?:setup|call|teardown)\)$", re.MULTILINE)
END_SECONDS = 3.0  # of a run, in which its files are written

PYTHON = (sys.executable,)
PYTEST = (
    *PYTHON,
    "-m",
    "pytest",
    "-W",
    "default",
    "-o",
    "strict=false",
    "-p",
    "no:cacheprovider",
    "-q",
)
GPU = (*PYTHON, str(HERE / "gpu.py"), "--part")


@dataclass(frozen=True)
class Part:
    """A process.

    Attributes:
        name: in the result file.
        command: to be run in the root of the repository.
        seconds: that it may take at most.
        needs: a program of NVIDIA without which it is left out.
        is_checked: whether what it says is asked for, and is not (`NO`), is a failure.
    """

    name: str
    command: tuple[str, ...]
    seconds: float
    needs: str = ""
    is_checked: bool = True


@dataclass
class Result:
    """What became of a part: `status` is well, failed, out of time or left out; `failed` has names of tests."""

    part: str
    status: str
    seconds: float = 0.0
    limit_seconds: float = 0.0
    failed: list[str] = field(default_factory=list)
    figures: list[dict[str, Any]] = field(default_factory=list)
    text: str = ""


@dataclass(frozen=True)
class Run:
    """Stages within a time."""

    seconds: float
    stages: tuple[tuple[Part, ...], ...]


# -- which parts -------------------------------------------------------------------------------------------------------


def tests(name: str, seconds: float, *arguments: str, stand_in: bool, tool: str = "") -> Part:
    """A part of tests/gpu; `tool`: under this one of compute-sanitizer."""
    command = (*PYTEST, *arguments, *(["--stand-in"] if stand_in else []))
    if not tool:
        return Part(name, command, seconds)
    sanitizer = "compute-sanitizer"
    return Part(
        name, (sanitizer, "--tool", tool, "--error-exitcode", "9", *command), seconds, sanitizer
    )


def part(name: str, seconds: float, *, stand_in: bool, is_checked: bool = False) -> Part:
    """A part of `gpu`."""
    return Part(
        name, (*GPU, name, *(["--fake"] if stand_in else [])), seconds, is_checked=is_checked
    )


def correct(stand_in: bool) -> Run:
    """Whether the numbers are right; on a stand-in a few operators."""
    chosen = ("-k", "relu6 or rms_norm or numbers_of_numpy-relu6") if stand_in else ()
    workers = (lambda count: ()) if stand_in else (lambda count: ("-n", str(count)))
    ranks = "tests/gpu/test_ranks.py"
    prepared = (
        () if stand_in else (Part("references", (*PYTHON, "-m", "tests.gpu.references"), 60),)
    )
    checks = [
        tests(
            "operators",
            100,
            "tests/gpu/test_precisions.py",
            *chosen,
            *workers(6),
            stand_in=stand_in,
        ),
        tests(
            "laws", 100, "tests/gpu/test_laws.py", *(chosen or ()), *workers(3), stand_in=stand_in
        ),
        replace(
            tests("guards", 60, "tests/gpu/test_guards.py", stand_in=False), needs="nvidia-smi"
        ),
    ]
    for carrier in ("auto or shared", "messages", "nccl"):
        chosen_ranks = f"({carrier}) and 2" if stand_in else carrier
        checks.append(
            tests(f"ranks by {carrier}", 100, ranks, "-k", chosen_ranks, stand_in=stand_in)
        )
    for tool in ("memcheck", "racecheck"):
        checks.append(tests(tool, 105, "tests/gpu/test_kernels.py", stand_in=stand_in, tool=tool))
    for name in ("facts", "correctness", "demo", "imported", "nccl"):
        checks.append(
            part(name, 90, stand_in=stand_in, is_checked=not (stand_in and name == "demo"))
        )
    return Run(180, (prepared, tuple(checks)))


def failed(last: Path, stand_in: bool) -> Run:
    """What failed in the last `correct`: its tests, or the whole part where it names none."""
    try:
        results = json.loads(last.read_text())["parts"]
    except FileNotFoundError:
        sys.exit(f"--failed: there is no {last}: run `correct` first")
    parts = {p.name: p for stage in correct(stand_in).stages for p in stage}
    again = []
    for found in results:
        if found["status"] in ("failed", "out of time") and found["part"] in parts:
            plain = parts[found["part"]]
            options = (*PYTEST, "-vv", *(["--stand-in"] if stand_in else []))
            command = (*options, *found["failed"]) if found["failed"] else plain.command
            again.append(replace(plain, command=command, seconds=85))
    return Run(90, (tuple(again),))


def fast(names: Sequence[str], others: Sequence[str], stand_in: bool) -> Run:
    """Steps of models and other parts, each alone on the GPU, once all of PyTorch's variants are compiled."""
    tuned = [name for name in names if name in ("gpt", "cnn")]
    fills = [
        part(f"fill {name} {mode}", 60, stand_in=stand_in)
        for name in names
        for mode in ("default", "reduce-overhead")
    ]
    alone = [part(f"fill {name} max-autotune", 45, stand_in=stand_in) for name in tuned]
    timed = [part(f"steps {name}", 60, stand_in=stand_in) for name in names]
    timed += [part(name, 30, stand_in=stand_in) for name in others]
    return Run(120, (tuple(fills), *((each,) for each in (*alone, *timed))))


def run_named(
    words: Sequence[str], only_failed: bool, out: Path, stand_in: bool
) -> tuple[str, Run]:
    """Name and run of what the command line asks for; ValueError: there is no such run."""
    if list(words) == ["correct"]:
        if only_failed:
            return "correct_failed", failed(out / "gpu_correct.json", stand_in)
        return "correct", correct(stand_in)
    if list(words) == ["fast", "1"]:
        return "fast_1", fast(("gpt", "mlp"), ("choices", "gemm"), stand_in)
    if list(words) == ["fast", "2"]:
        return "fast_2", fast(("cnn", "dlrm", "tiny mlp", "tiny gpt"), ("imported",), stand_in)
    raise ValueError(f"there is no run '{' '.join(words)}'")


# -- running -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Running:
    """A part under way: what it says goes to a file."""

    part: Part
    process: subprocess.Popen[bytes]
    file: Path
    limit: float


def run_stage(parts: Sequence[Part], left: float) -> Iterator[Result]:
    """Run parts side by side, none for longer than is left."""
    with tempfile.TemporaryDirectory() as folder:
        under_way = []
        for number, each in enumerate(parts):
            if each.needs and not shutil.which(each.needs):
                yield Result(each.name, "left out", text=f"{each.needs} is not installed\n")
            elif left < 1:
                yield Result(each.name, "left out", text="the time of the run is over\n")
            else:
                under_way.append(start(each, Path(folder, str(number)), min(each.seconds, left)))
        begin = time.perf_counter()
        while under_way:
            time.sleep(0.05)
            seconds = time.perf_counter() - begin
            for one in list(under_way):
                is_late = one.process.poll() is None and seconds >= one.limit
                if is_late:
                    os.killpg(one.process.pid, signal.SIGKILL)
                    one.process.wait()
                if one.process.returncode is not None:
                    under_way.remove(one)
                    yield result_of(one, is_late, seconds)


def start(part: Part, file: Path, limit: float) -> Running:
    """Begin a part, as the head of processes that end with it."""
    with file.open("wb") as said:
        process = subprocess.Popen(
            part.command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Running(part, process, file, limit)


def result_of(run: Running, is_late: bool, seconds: float) -> Result:
    """A result, from what a part has said and how it ended."""
    said = run.file.read_text(errors="replace")
    is_figure = re.compile(r'^\{"model".*\}$')
    figures = [json.loads(line) for line in said.splitlines() if is_figure.match(line)]
    lines = [line for line in said.splitlines() if not is_figure.match(line)]
    is_missed = run.part.is_checked and any(line.endswith(": NO") for line in lines)
    is_bad = run.process.returncode != 0 or is_missed
    status = "out of time" if is_late else "failed" if is_bad else "well"
    failures = list(dict.fromkeys(TEST.findall(said)))
    text = "\n".join(lines) + "\n"
    times = round(seconds, 1), round(run.limit, 1)
    return Result(run.part.name, status, *times, failures, figures, text)


# -- result files ------------------------------------------------------------------------------------------------------


def facts(name: str, stand_in: bool) -> dict[str, Any]:
    """When, on what, and with which versions."""
    query = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    gpu = (
        "NumPy in the place of a GPU"
        if stand_in
        else said_by(query).partition("\n")[0] or "no nvidia-smi"
    )
    versions = {"Python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    model, _, driver = gpu.partition(", ")
    commit = said_by(("git", "rev-parse", "--short", "HEAD"))
    return {
        "run": name,
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit,
        "gpu": model,
        "driver": driver,
        "cores": os.cpu_count(),
        "versions": versions,
    }


def said_by(command: Sequence[str]) -> str:
    """What a command prints; nothing where it is not there or fails."""
    try:
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=10
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def write(stem: Path, about: dict[str, Any], results: Sequence[Result], seconds: float) -> None:
    """Both files of a run."""
    left_out = [r.part for r in results if r.status == "left out"]
    bad = [f"{r.part}: {r.status}" for r in results if r.status in ("failed", "out of time")]
    parts = [{k: v for k, v in vars(r).items() if k != "text"} for r in results]
    whole = about | {"seconds": round(seconds, 1), "left_out": left_out, "parts": parts}
    stem.with_suffix(".json").write_text(json.dumps(whole, indent=1) + "\n")
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    place = f"{about['gpu']}, driver {about['driver'] or '-'}, {about['commit']}"
    head = f"{about['run']}: {about['date']}, {place}\n{versions}\n"
    body = "".join(
        f"\n== {r.part}: {r.status}, {r.seconds} of {r.limit_seconds} s\n{r.text}" for r in results
    )
    sums = f"not well: {', '.join(bad) or 'nothing'}; left out: {', '.join(left_out) or 'nothing'}"
    end = f"\n== {round(seconds)} s; {sums}\n"
    stem.with_suffix(".txt").write_text(head + body + end)


def main() -> None:
    """Run what the command line asks for; the exit status says whether all was well."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", nargs="+", help="correct, fast 1, fast 2")
    parser.add_argument(
        "--failed", action="store_true", help="what failed in the last run of `correct`"
    )
    parser.add_argument(
        "--out", type=Path, default=HERE / "results", help="the folder of the files"
    )
    parser.add_argument(
        "--stand-in", action="store_true", help="NumPy in the place of a GPU, and tiny sizes"
    )
    options = parser.parse_args()
    begin = time.perf_counter()
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        name, run = run_named(options.run, options.failed, options.out, options.stand_in)
    except ValueError as error:
        parser.error(str(error))
    about, results = facts(name, options.stand_in), list[Result]()
    for stage in run.stages:
        left = run.seconds - END_SECONDS - (time.perf_counter() - begin)
        for result in run_stage(stage, left):
            results.append(result)
            print(
                f"{time.perf_counter() - begin:6.1f} s  {result.part}: {result.status}", flush=True
            )
            write(options.out / f"gpu_{name}", about, results, time.perf_counter() - begin)
    write(options.out / f"gpu_{name}", about, results, time.perf_counter() - begin)
    sys.exit(any(result.status in ("failed", "out of time") for result in results))


if __name__ == "__main__":
    main()
