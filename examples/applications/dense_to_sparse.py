"""A mixture of experts that begins dense and grows sparse, beside one that is sparse from the start and a dense one.

    python -m examples.applications.dense_to_sparse
    python -m examples.applications.dense_to_sparse --words --steps 400

docs/applications/dense_to_sparse.md says what the paper claims, what is shown here and what is not.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from time import process_time
from typing import Any

import numpy as np

import ops
import taskflow
from examples.data import next_words
from taskflow import Executor, Graph, LogicalRegion, MachineModel

TOKENS, EXPERTS = 512, 8
RUNGS = (8, 4, 2, 1)  # choices of a token at most
FIRST, LAST = 8.0, 0.3  # temperatures
COOLING = 0.9  # the share of the steps in which it falls
OPTIONS: dict[str, dict[str, Any]] = {  # the Switch layer has places for twice an even load
    "sparse": {"k": 1, "capacity_factor": 2.0},
    "dts": {"capacity_factor": None},
    "dense": {"k": EXPERTS, "capacity_factor": None},
}
CLOSE = 1.05  # the next rung begins where the mean number of choices is no more than so many times its own
Feeds = Mapping[str, np.ndarray]
Model = Callable[[Graph, Callable[..., tuple[LogicalRegion, LogicalRegion]]], LogicalRegion]


@dataclass
class Run:
    """What training showed: of each step its seconds, choices of a token and rung; the error on other batches after it.

    Seconds are those of the processor, since others may use the machine. `dropped`: choices without a place; `changes`:
    seconds until the executor of another rung was there.
    """

    error: float = 0.0
    dropped: int = 0
    seconds: list[float] = field(default_factory=list)
    chosen: list[float] = field(default_factory=list)
    rungs: list[int] = field(default_factory=list)
    changes: list[float] = field(default_factory=list)

    def median_step(self, rung: int) -> float:
        return float(np.median(np.array(self.seconds)[np.array(self.rungs) == rung]))


# -- models ------------------------------------------------------------------------------------------------------------


def teacher(
    graph: Graph, layer: Callable[..., tuple[LogicalRegion, LogicalRegion]]
) -> LogicalRegion:
    """Tokens of hidden clusters, each with a linear map of its own to learn."""
    x, t = graph.input("x", (TOKENS, 16)), graph.input("t", (TOKENS, 16))
    y, balance = layer(x, EXPERTS, 32)
    error = ops.mse_loss(y, t, name="error")
    graph.output("error", error)
    return ops.add(error, ops.multiply(balance, 0.01), name="loss")


def teacher_batches(seed: int) -> Iterator[Feeds]:
    generator = np.random.default_rng(seed)
    centres = generator.standard_normal((EXPERTS, 16)) * 1.2
    maps = np.linalg.qr(generator.standard_normal((EXPERTS, 16, 16)))[0]
    while True:
        cluster, z = generator.integers(0, EXPERTS, TOKENS), generator.standard_normal((TOKENS, 16))
        t = np.einsum("bij,bj->bi", maps[cluster], z)
        yield {"x": (centres[cluster] + z).astype(np.float32), "t": t.astype(np.float32)}


def words(graph: Graph, layer: Callable[..., tuple[LogicalRegion, LogicalRegion]]) -> LogicalRegion:
    """The next of 512 words after four of them."""
    x, t = graph.input("x", (TOKENS, 4), "int32"), graph.input("t", (TOKENS,), "int32")
    h = ops.flatten(ops.embedding(x, 512, 32, name="words"), name="flat")
    h = ops.relu(ops.linear(h, 64, name="fc"), name="relu")
    y, balance = layer(h, EXPERTS, 128)
    scores = ops.linear(ops.add(h, y, name="shortcut"), 512, name="out")
    error = ops.softmax_cross_entropy(scores, t, name="error")
    graph.output("error", error)
    return ops.add(error, ops.multiply(balance, 0.01), name="loss")


def word_batches(seed: int) -> Iterator[Feeds]:
    source, generator = next_words(512), np.random.default_rng(seed)
    while True:
        drawn = source.draw({"x": (TOKENS, 4)}, generator)
        yield {"x": drawn["x"].astype(np.int32), "t": drawn["t"][:, -1].astype(np.int32)}


# -- training ----------------------------------------------------------------------------------------------------------


def build(model: Model, kind: str, k: int, steps: int, training: bool = True) -> Graph:
    """A rung: `kind` is sparse (one expert a token), dense (all) or dts, at most k as the temperature falls."""
    graph, options = taskflow.Graph(), OPTIONS[kind]
    if kind == "dts":
        decay = taskflow.rates.exponential(FIRST, (LAST / FIRST) ** (1 / (COOLING * steps)))

        def temperature(done: int) -> float:
            return max(decay(done), LAST)

        options = {
            **options,
            "gate": partial(ops.dense_to_sparse_gate, k=k, temperature=temperature, noisy=training),
        }
    loss = model(graph, partial(ops.mixture_of_experts, **options))
    if training:
        ops.adam(loss, lr=0.003)
    return graph


def train(model: Model, kind: str, batches: Iterator[Feeds], steps: int, seed: int = 0) -> Run:
    """Training on one device; executors of later rungs take parameters and optimizer states of the first."""
    machine, run, rung, average = MachineModel.local(devices=1), Run(), 0, float(EXPERTS)
    with ExitStack() as stack:

        def enter(share: Executor | None, training: bool = True) -> Executor:
            graph = build(model, kind, RUNGS[rung], steps, training)
            rows = taskflow.lower(graph, taskflow.single_device(graph, machine), machine)
            return stack.enter_context(Executor(rows, seed=seed, share=share))

        step = first = enter(None)
        for feeds, _ in zip(batches, range(steps)):
            begin = process_time()
            values = step(feeds)
            run.seconds.append(process_time() - begin)
            run.rungs.append(rung)
            run.dropped += int(values["experts.dropped"])
            run.chosen.append(
                float(values.get("experts.chosen", EXPERTS if kind == "dense" else 1))
            )
            average += 0.1 * (run.chosen[-1] - average)
            if kind == "dts" and rung + 1 < len(RUNGS) and average <= CLOSE * RUNGS[rung + 1]:
                rung, begin = rung + 1, process_time()
                step = enter(first)
                run.changes.append(process_time() - begin)
        if kind == "dts":
            rung = len(RUNGS) - 1  # as it is used: the likeliest expert, without noise
        test = enter(first, training=False)
        run.error = float(np.mean([test(feeds)["error"] for feeds, _ in zip(batches, range(20))]))
    return run


def compare(
    model: Model, batches: Callable[[int], Iterator[Feeds]], steps: int, seed: int
) -> dict[str, Run]:
    """All three kinds on the same batches."""
    runs = {
        kind: train(model, kind, batches(seed), steps, seed) for kind in ("sparse", "dts", "dense")
    }
    for kind, run in runs.items():
        ways = [(k, run.rungs.index(n)) for n, k in enumerate(RUNGS) if n in run.rungs]
        print(
            f"{kind:6} error {run.error:.4f}, {np.mean(run.chosen):.2f} experts a token in all steps, "
            f"{run.chosen[-1]:.2f} in the last, {run.dropped} choices dropped, "
            f"{np.median(run.seconds[-50:]) * 1e3:.2f} ms a step"
            + (
                f"; at most {', '.join(f'{k} from step {n}' for k, n in ways)}"
                if kind == "dts"
                else ""
            )
        )
    return runs


def summary(all_runs: Sequence[Mapping[str, Run]]) -> dict[str, float]:
    """What the acceptance asks for, over several seeds."""
    errors = {kind: np.array([runs[kind].error for runs in all_runs]) for kind in all_runs[0]}
    places = {kind: np.mean([np.mean(runs[kind].chosen) for runs in all_runs]) for kind in errors}
    last = [runs["dts"].median_step(max(runs["dts"].rungs)) for runs in all_runs]
    first = [runs["dts"].median_step(0) for runs in all_runs]
    sparse = [runs["sparse"].median_step(0) for runs in all_runs]
    return {
        "mean error over sparse": errors["dts"].mean() / errors["sparse"].mean(),
        "worst error over sparse": errors["dts"].max() / errors["sparse"].max(),
        "places over dense": float(places["dts"] / places["dense"]),
        "last rung over sparse, seconds": float(np.median(np.divide(last, sparse))),
        "first rung over sparse, seconds": float(np.median(np.divide(first, sparse))),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument(
        "--words", action="store_true", help="next words instead of the teacher's maps"
    )
    options = parser.parse_args()
    model, batches = (words, word_batches) if options.words else (teacher, teacher_batches)
    runs = [compare(model, batches, options.steps, seed) for seed in range(options.seeds)]
    for what, ratio in summary(runs).items():
        print(f"{what}: {ratio:.2f}")


if __name__ == "__main__":
    main()
