"""DeepSpeed: its JSON. Stages of a pipeline are equal there, and a pipeline allows ZeRO 1 at most.

Source: deepspeedai/DeepSpeed, `docs/_pages/config-json.md`, `runtime/config.py` and `runtime/pipe/engine.py`, 2026.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from taskflow.bridges.facts import JobFacts, System, Told, divided, micro_batches
from taskflow.bridges.megatron import schedule_of
from taskflow.bridges.recipe import Recipe, even_layout
from taskflow.core.files import naming, parse_json, read_text

STAGES = ("", "state", "state", "parameters")  # of ZeRO: what is sharded
BATCH, MICRO = "train_batch_size", "train_micro_batch_size_per_gpu"
STEPS = "gradient_accumulation_steps"
READ = {
    *(BATCH, MICRO, STEPS, "zero_optimization", "pipeline", "tensor_parallel"),
    *("sequence_parallel_size", "activation_checkpointing"),
}
HARMLESS = {
    *("optimizer", "scheduler", "fp16", "bf16", "gradient_clipping", "steps_per_print"),
    *("wall_clock_breakdown", "zero_allow_untested_optimizer", "prescale_gradients", "dump_state"),
    *("tensorboard", "wandb", "csv_monitor", "flops_profiler", "memory_breakdown"),
}


def tell(path: Path, variant: str, given: Mapping[str, str]) -> Told:
    """The table of a file."""
    with naming(f"DeepSpeed file '{path}'"):
        table = parse_json(read_text(path))
        if not isinstance(table, dict) or not READ & table.keys():
            raise ValueError("is no configuration of DeepSpeed")
    unread = [name for name in table if name not in READ and name not in HARMLESS]
    zero = table.get("zero_optimization", {})
    unread += [f"zero_optimization.{name}" for name in zero if name.startswith("offload")]
    batch = _whole(table, BATCH)
    if batch is None and (micro := _whole(table, MICRO)) and (steps := _whole(table, STEPS)):
        table = {**table, "samples_per_rank": micro * steps}
    return Told(table, {"batch": batch} if batch else {}, None, unread)


def _whole(table: Mapping[str, Any], name: str) -> int | None:
    """A number; None: it is not there, or "auto"."""
    value = table.get(name)
    if value is None or value == "auto":
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"DeepSpeed: {name} is a number from 1, not {value!r}")
    return value


def read(told: Told, facts: JobFacts) -> Recipe:
    """The recipe of a table."""
    table, where = told.words, "DeepSpeed"
    zero, pipe = table.get("zero_optimization", {}), table.get("pipeline", {})
    pipeline = _whole(pipe, "stages") or 1
    tensor = _whole(table.get("tensor_parallel", {}), "autotp_size") or 1
    context = _whole(table, "sequence_parallel_size") or 1
    data = divided(where, facts.devices, tensor * context * pipeline, "devices")
    micro, steps = _whole(table, MICRO), _whole(table, STEPS)
    parts = micro_batches(where, facts, data, _whole(table, BATCH), micro)
    if micro is None:
        parts = steps or 1
        divided(where, facts.samples, data * parts, "samples of a step")
    elif steps is not None and steps != parts:
        raise ValueError(f"{where}: {STEPS} is {steps}, the batch gives {parts}")
    checkpointing = table.get("activation_checkpointing", {})
    is_again = bool(checkpointing.get("number_checkpoints")) or bool(
        pipe.get("activation_checkpoint_interval")
    )
    if context > 1:
        told.unread.append("sequence_parallel_size: heads by all-to-all; here keys are gathered")
    stage = int(zero.get("stage", 0))
    found = Recipe(
        tensor=tensor,
        context=context,
        data=data,
        pipeline=pipeline,
        layout=even_layout(pipeline, facts.layers) if pipeline > 1 else (),
        micro_batches=parts,
        sharding=STAGES[stage],
        recomputation="layers" if is_again else "",
    )
    return replace(found, schedule=schedule_of(found))


def said(recipe: Recipe, facts: JobFacts) -> Recipe:
    """Without sequence parallelism of norms, uneven or several stages, experts, and other kinds of recomputation."""
    found = replace(
        recipe,
        rest="replicas",
        expert=1,
        layout=even_layout(recipe.pipeline, facts.layers) if recipe.pipeline > 1 else (),
        recomputation="layers" if recipe.recomputation else "",
        gathers_again=True,
        offload=(),
    )
    if (found.pipeline > 1 and found.sharding) or (found.sharding and not recipe.gathers_again):
        found = replace(found, sharding="state")
    return replace(found, schedule=schedule_of(found))


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


DEEPSPEED = System("deepspeed", tell, read, said, write)
