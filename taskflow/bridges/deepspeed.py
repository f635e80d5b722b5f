"""DeepSpeed: its JSON. Stages of a pipeline are equal there, and a pipeline allows ZeRO 1 at most.

Source: deepspeedai/DeepSpeed, `docs/_pages/config-json.md`, `runtime/config.py` and `runtime/pipe/engine.py`, 2026.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from taskflow.bridges.facts import (
    JobFacts,
    System,
    Told,
    divided,
    in_whole_samples,
    micro_batches,
)
from taskflow.bridges.megatron import schedule_of
from taskflow.bridges.recipe import Recipe, even_layout
from taskflow.core.files import fit, naming, parse_json, read_text

STAGES = ("", "state", "state", "parameters")  # of ZeRO: what is sharded
BATCH = "train_batch_size"
MICRO = "train_micro_batch_size_per_gpu"
STEPS = "gradient_accumulation_steps"
Count = Annotated[int, Meta(ge=1, lt=1 << 31)]
Auto = Count | Literal["auto"] | None


class ZeroTable(Struct, frozen=True):
    """What is read of `zero_optimization`."""

    stage: Annotated[int, Meta(ge=0, le=3)] = 0


class PipeTable(Struct, frozen=True):
    """What is read of `pipeline`."""

    stages: Auto = None
    activation_checkpoint_interval: int = 0


class TensorTable(Struct, frozen=True):
    """What is read of `tensor_parallel`."""

    autotp_size: int = 0


class CheckpointingTable(Struct, frozen=True):
    """What is read of `activation_checkpointing`."""

    number_checkpoints: int | None = None


class DeepSpeedTable(Struct):
    """What is read of a file."""

    train_batch_size: Auto = None
    train_micro_batch_size_per_gpu: Auto = None
    gradient_accumulation_steps: Auto = None
    zero_optimization: ZeroTable = ZeroTable()
    pipeline: PipeTable = PipeTable()
    tensor_parallel: TensorTable = TensorTable()
    sequence_parallel_size: Count = 1
    activation_checkpointing: CheckpointingTable = CheckpointingTable()


WHERE = "DeepSpeed"
HARMLESS = {
    *("optimizer", "scheduler", "fp16", "bf16", "gradient_clipping", "steps_per_print"),
    *("wall_clock_breakdown", "zero_allow_untested_optimizer", "prescale_gradients", "dump_state"),
    *("tensorboard", "wandb", "csv_monitor", "flops_profiler", "memory_breakdown"),
}


def tell(path: Path, variant: str, given: Mapping[str, str]) -> Told:
    """The table of a file."""
    with naming(f"DeepSpeed file '{path}'"):
        table = parse_json(read_text(path))
        fields = DeepSpeedTable.__struct_fields__
        if not isinstance(table, dict) or not table.keys() & set(fields):
            raise ValueError("is no configuration of DeepSpeed")
        words = fit(table, DeepSpeedTable)
    unread = [name for name in table if name not in fields and name not in HARMLESS]
    unread += [
        f"zero_optimization.{name}"
        for name in table.get("zero_optimization", {})
        if name.startswith("offload")
    ]
    batch = _whole(words.train_batch_size)
    return Told({"table": words}, {"batch": batch} if batch else {}, None, unread)


def _whole(value: int | str | None) -> int | None:
    """A number; None: it is not there, or "auto"."""
    return value if isinstance(value, int) else None


def read(told: Told, facts: JobFacts) -> Recipe:
    """The recipe of a table."""
    table: DeepSpeedTable = told.words["table"]
    context = table.sequence_parallel_size
    pipeline = _whole(table.pipeline.stages) or 1
    tensor = max(1, table.tensor_parallel.autotp_size)
    data = divided(WHERE, facts.devices, tensor * context * pipeline, "devices")
    parts = _parts(table, facts, data)
    if context > 1:
        told.unread.append("sequence_parallel_size: heads by all-to-all; here keys are gathered")
    recipe = Recipe(
        tensor=tensor,
        context=context,
        data=data,
        pipeline=pipeline,
        layout=even_layout(pipeline, facts.layers) if pipeline > 1 else (),
        micro_batches=parts,
        sharding=STAGES[table.zero_optimization.stage],
        recomputation="layers"
        if table.activation_checkpointing.number_checkpoints
        or table.pipeline.activation_checkpoint_interval > 0
        else "",
    )
    return replace(recipe, schedule=schedule_of(recipe))


def _parts(table: DeepSpeedTable, facts: JobFacts, data: int) -> int:
    """Micro-batches on so many replicas."""
    micro = _whole(table.train_micro_batch_size_per_gpu)
    steps = _whole(table.gradient_accumulation_steps)
    parts = micro_batches(WHERE, facts, data, _whole(table.train_batch_size), micro)
    if micro is None:
        divided(WHERE, facts.samples, data * (steps or 1), "samples of a step")
        return steps or 1
    if steps is not None and steps != parts:
        raise ValueError(f"{WHERE}: {STEPS} is {steps}, the batch gives {parts}")
    return parts


def said(recipe: Recipe, facts: JobFacts) -> Recipe:
    """Without sequence parallelism of norms, uneven or several stages, experts, and other kinds of recomputation."""
    sayable = replace(
        in_whole_samples(recipe, facts),
        rest="replicas",
        expert=1,
        layout=even_layout(recipe.pipeline, facts.layers) if recipe.pipeline > 1 else (),
        recomputation="layers" if recipe.recomputation else "",
        gathers_again=True,
        offload=(),
    )
    if (sayable.pipeline > 1 and sayable.sharding) or (
        sayable.sharding and not recipe.gathers_again
    ):
        sayable = replace(sayable, sharding="state")
    return replace(sayable, schedule=schedule_of(sayable))


def write(recipe: Recipe, facts: JobFacts) -> str:
    """A JSON text."""
    table: dict[str, object] = {
        BATCH: facts.samples,
        MICRO: facts.samples // (recipe.data * recipe.micro_batches),
        STEPS: recipe.micro_batches,
        "zero_optimization": {"stage": STAGES.index(recipe.sharding)},
    }
    if recipe.tensor > 1:
        table["tensor_parallel"] = {"autotp_size": recipe.tensor}
    if recipe.context > 1:
        table["sequence_parallel_size"] = recipe.context
    is_again = recipe.recomputation == "layers"
    if recipe.pipeline > 1:
        interval = {"activation_checkpoint_interval": 1} if is_again else {}
        table["pipeline"] = {"stages": recipe.pipeline, "partition": "uniform", **interval}
    elif is_again:
        table["activation_checkpointing"] = {"number_checkpoints": facts.layers}
    return json.dumps(table, indent=1) + "\n"


DEEPSPEED = System("deepspeed", tell, read, said, write, (".json",))
