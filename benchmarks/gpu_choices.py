"""The choices of kernels that are shipped, from the result files: `python benchmarks/gpu_choices.py` writes them.

Of each kind of GPU the newest figures count; see `taskflow.backend.choices`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from taskflow.backend.choices import LIBRARY, OWN, Choices, render_choices  # noqa: E402

RESULTS, TARGET = ROOT / "benchmarks" / "results", ROOT / "taskflow" / "backend" / "choices.toml"


def text() -> str:
    """Of the file."""
    by_gpu: dict[str, dict[str, dict[str, float]]] = {}
    sources = []
    runs = [(path.name, json.loads(path.read_text())) for path in RESULTS.glob("gpu_*.json")]
    for name, run in sorted(runs, key=lambda pair: (pair[1]["date"], pair[0])):
        figures = [f for part in run["parts"] for f in part["figures"] if f["model"] == "choices"]
        for f in figures:
            ways = {way: f[way] for way in (LIBRARY, OWN)}
            by_gpu.setdefault(run["gpu"], {})[f["key"]] = ways
        sources += [name] if figures else []
    return render_choices({gpu: Choices(by_gpu[gpu]) for gpu in sorted(by_gpu)}, sources)


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
