"""Train any model of `ops.models` at reduced size: `python -m examples.train gpt --steps 100`, from the checkout.

Under mpirun each rank is a device; alone, `--devices` of one process. The loss of a step is printed as it comes down.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import ops
import taskflow
from examples import data


@dataclass(frozen=True)
class Recipe:
    """A model at reduced size, and what it learns from."""

    source: Callable[[], data.Source]
    sizes: Mapping[str, Any]
    batch: int = 16

    def build(self, model: str, **options: Any) -> taskflow.Graph:
        return import_module(f"ops.models.{model}").build(
            **{"batch": self.batch, **self.sizes, **options}
        )


WORDS = 500
RECIPES = {
    "alexnet": Recipe(
        data.enlarged_digits,
        {
            "image": 63,
            "channels": (16, 32, 32, 32, 32),
            "hidden": 128,
            "classes": 10,
            "dropout": 0.1,
            "weight_init": ops.he_normal,  # torch's default makes signals so small that learning starts late
            "lr": 0.02,
        },
    ),
    "inception_v3": Recipe(
        data.enlarged_digits,
        {
            "image": 107,
            "width": 1 / 16,
            "modules": (1, 1, 1),
            "classes": 10,
            "dropout": 0.1,
            "lr": 0.02,
        },
        batch=8,
    ),
    "resnet101": Recipe(
        data.enlarged_digits,
        {"image": 32, "blocks": (1, 1, 1, 1), "width": 8, "classes": 10, "lr": 0.05},
    ),
    "rnntc": Recipe(
        lambda: data.kinds_of_text(WORDS),
        {
            "steps": 10,
            "hidden": 32,
            "layers": 1,
            "embed": 32,
            "vocabulary": WORDS,
            "group": 5,
            "lr": 1.0,
        },
    ),
    "rnnlm": Recipe(
        lambda: data.next_words(WORDS),
        {"steps": 10, "hidden": 64, "layers": 2, "embed": 64, "vocabulary": WORDS, "group": 5},
    ),
    "nmt": Recipe(
        lambda: data.reversed_words(WORDS),
        {"steps": 6, "hidden": 64, "layers": 1, "embed": 64, "vocabulary": WORDS, "group": 3},
    ),
    "gpt": Recipe(
        lambda: data.next_words(WORDS),
        {"sequence": 32, "layers": 2, "hidden": 64, "heads": 4, "vocabulary": WORDS, "lr": 3e-3},
    ),
    "bert": Recipe(
        lambda: data.masked_words(WORDS),
        {
            "sequence": 32,
            "masked": 5,
            "layers": 2,
            "hidden": 64,
            "heads": 4,
            "vocabulary": WORDS,
            "lr": 3e-3,
        },
    ),
    "dlrm": Recipe(
        lambda: data.made_up_clicks(1000),
        {"tables": 4, "rows": 1000, "bottom": (16, 64, 16), "top": (64, 1), "lr": 0.5},
        batch=64,
    ),
    "mlp": Recipe(data.halved_digits, {"inputs": 32, "hidden": (64, 64, 10), "lr": 0.5}, batch=32),
    "moe": Recipe(
        lambda: data.next_words(WORDS),
        {
            "sequence": 16,
            "layers": 2,
            "hidden": 64,
            "heads": 4,
            "experts": 4,
            "vocabulary": WORDS,
            "lr": 3e-3,
        },
    ),
}
RULES = ("data_parallel", "model_parallel", "one_weird_trick", "single_device", "search")


def train(
    model: str, steps: int, devices: int | None = None, rule: str = "data_parallel", seed: int = 0
) -> list[float]:
    """The loss of every step; prints ten of them, on rank 0."""
    recipe = RECIPES[model]
    source, graph = recipe.source(), recipe.build(model)
    machine = taskflow.MachineModel.local(devices) if devices else taskflow.MachineModel.local()
    strategy = rule if rule == "search" else getattr(taskflow, rule)
    costs = taskflow.CostModel.analytic(machine)
    trainer = taskflow.Trainer(graph, machine=machine, strategy=strategy, costs=costs, seed=seed)
    say = trainer.console.print
    say(
        f"{model}: {len(graph.operators)} operators on {len(machine.devices)} devices; data: {source.name}"
    )
    losses: list[float] = []
    with trainer.step as step:
        for k in range(steps):
            losses.append(float(step(source.batch(graph, k))["loss"]))
            if k % max(steps // 10, 1) == 0 or k == steps - 1:
                say(f"step {k + 1:4}: loss {losses[-1]:.4f}")
    return losses


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", choices=RECIPES)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument(
        "--devices", type=int, help="of this process; default one, and under mpirun one a rank"
    )
    parser.add_argument("--strategy", choices=RULES, default="data_parallel")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    train(options.model, options.steps, options.devices, options.strategy, options.seed)


if __name__ == "__main__":
    main()
