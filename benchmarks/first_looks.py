"""How long somebody waits who only wants to look: `python -m benchmarks.first_looks` in the repository.

`taskflow doctor` on this machine, in seconds of the processor (aim: 2), and the report of GPT on 64 H100, from a file
to its second frame in Chromium, in seconds of the clock (aim: 2) and megabytes. Medians of `--runs`. The page needs
`make browser`.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from ops.models import gpt
from taskflow import CostModel, MachineModel, Plan, data_parallel, shard_state
from taskflow.report.page import ReportInputs, report_data, save_page
from tests.browser import OpenPage, started

DOCTOR = "from taskflow.cli import main; raise SystemExit(main(['doctor', '--json']))"
TWO_FRAMES = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def save_gpt_page(path: Path) -> int:
    """Bytes of the report of data parallelism beside sharded state, without what takes half a minute and 5 kB."""
    graph, machine = gpt.build(batch=512), MachineModel.preset("h100", nodes=8)
    rule = data_parallel(graph, machine)
    other = "sharded state", Plan(shard_state(graph, rule))
    costs = CostModel.analytic(machine)
    inputs = ReportInputs("GPT", graph, machine, costs, Plan(rule), "data parallel", other)
    return save_page(path, report_data(replace(inputs, with_baselines=False, with_what_if=False)))


def doctor_seconds() -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", DOCTOR], stdout=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    runs: int = parser.parse_args().runs
    print(f"doctor  {statistics.median(doctor_seconds() for _ in range(runs)):.2f} CPU s")

    with tempfile.TemporaryDirectory() as folder, started() as browser:
        page = Path(folder) / "gpt.html"
        size = save_gpt_page(page)

        def page_seconds() -> float:
            begin = time.monotonic()
            opened = OpenPage(browser, page)
            opened.run(TWO_FRAMES)
            seconds = time.monotonic() - begin
            opened.close()
            return seconds

        seconds = statistics.median(page_seconds() for _ in range(runs))
        print(f"page    {seconds:.2f} s, {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
