"""How long a graph takes to build, and twice as many layers: `python benchmarks/building.py`.

GPT with its backward pass and AdamW, in seconds of the processor, and what a graph of 2n layers takes over one of n. A
graph is built in linear time: the ratio is near 2. Needs no GPU.
"""

from __future__ import annotations

import argparse
import gc
import time

from ops.models import gpt


def build(layers: int) -> float:
    """Seconds, and what was built is printed."""
    gc.collect()  # of another graph
    begin = time.process_time()
    graph = gpt.build(layers=layers)
    seconds = time.process_time() - begin
    print(f"{layers:6d}  {len(graph.operators):9d}  {seconds:7.2f}", flush=True)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=1000, help="of the smaller graph")
    layers: int = parser.parse_args().layers
    print("layers  operators  seconds")
    first, second = build(layers), build(2 * layers)
    print(f"twice the layers take {second / first:.2f} times as long")


if __name__ == "__main__":
    main()
