"""torchtitan: its configuration in Python, and the TOML of releases before February 2026.

Source: pytorch/torchtitan, `torchtitan/config/configs.py`, `distributed/pipeline_parallel.py` and
`distributed/activation_checkpoint.py`, August 2026; `config/job_config.py` of before. A Python file is read, never run:
of one function, the numbers and texts that it gives to configurations. `llama3.py:llama3_8b` names the function.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from taskflow.bridges.facts import (
    ACCUMULATING,
    JobFacts,
    System,
    Told,
    divided,
    in_whole_samples,
    micro_batches,
)
from taskflow.bridges.megatron import regular
from taskflow.bridges.recipe import Recipe, even_layout
from taskflow.bridges.shell import calculate
from taskflow.core.files import fit, naming, parse_toml, read_text

SCHEDULES = {  # names of torch.distributed.pipelining
    "1F1B": "one_f_one_b",
    "GPipe": "gpipe",
    "Interleaved1F1B": "interleaved",
    "LoopedBFS": "looped_bfs",
    "ZBVZeroBubble": "zb_v",
}
NAMES = {here: name for name, here in SCHEDULES.items()}
RECOMPUTED = {"FullAC": "layers", "SelectiveAC": "cheap", "full": "layers", "selective": "cheap"}
Count = Annotated[int, Meta(ge=1, lt=1 << 31)]
Open = Annotated[int, Meta(ge=-1, lt=1 << 62)]  # -1: it follows from the others


class TitanParallelism(Struct):
    """What is read of `ParallelismConfig`, or of the section of a TOML file."""

    data_parallel_replicate_degree: Count = 1
    data_parallel_shard_degree: Open = -1
    fsdp_reshard_after_forward: str = "default"
    tensor_parallel_degree: Count = 1
    enable_sequence_parallel: bool = True
    spmd_backend: str = ""
    pipeline_parallel_degree: Count = 1
    module_fqns_per_model_part: list[list[str]] | None = None
    pipeline_parallel_first_stage_less_layers: int = 1
    pipeline_parallel_last_stage_less_layers: int = 1
    pipeline_parallel_layers_per_stage: Count | None = None
    pipeline_parallel_schedule: str = "1F1B"
    pipeline_parallel_microbatch_size: Count = 1
    num_pp_microbatches: Count | None = None
    context_parallel_degree: Count = 1
    expert_parallel_degree: Count = 1


class TitanTraining(Struct):
    """What is read of `TrainingConfig`, or of the section of a TOML file."""

    num_tokens_per_microbatch_per_dp_rank: Count | None = None
    num_tokens_per_train_step: Open = -1
    max_context_length: Count | None = None
    seq_len: Count | None = None
    local_batch_size: Count | None = None
    batch_size: Count | None = None
    global_batch_size: Open = -1
    enable_cpu_offload: bool = False


class TitanCheckpointing(Struct):
    """What is read of activation checkpointing."""

    mode: str = ""


SECTIONS: dict[str, Any] = {
    "parallelism": TitanParallelism,
    "training": TitanTraining,
    "activation_checkpoint": TitanCheckpointing,
}
EMBEDDING = "tok_embeddings"
ENDS = ("norm", "lm_head")
WHERE = "torchtitan"


def tell(path: Path, variant: str, given: Mapping[str, str]) -> Told:
    """The sections of a file: parallelism, training, activation_checkpoint, model."""
    with naming(f"torchtitan file '{path}'"):
        text = read_text(path)
        sections = parse_toml(text) if path.suffix == ".toml" else _of_python(text, variant)
        given = sections.get("parallelism", {})
        if not given and not sections.get("training"):
            raise ValueError("it configures neither parallelism nor training")
        words = {name: fit(sections.get(name, {}), kind) for name, kind in SECTIONS.items()}
    unread = [
        f"parallelism.{name} = {given[name]}"
        for name in given
        if name not in TitanParallelism.__struct_fields__
    ]
    unread += ["training.enable_cpu_offload"] * words["training"].enable_cpu_offload
    return Told(words, _sizes(words["training"]), None, unread)


def _sizes(training: TitanTraining) -> dict[str, int]:
    """As far as they are said."""
    length = training.max_context_length or training.seq_len
    batch = training.global_batch_size
    if training.num_tokens_per_train_step > 0 and length:
        batch = training.num_tokens_per_train_step // length
    sizes = {"sequence": length or 0, "batch": batch}
    return {name: size for name, size in sizes.items() if size > 0}


def _of_python(text: str, function: str) -> dict[str, dict[str, Any]]:
    """What a function, or a module, gives to its configurations, by section."""
    sections: dict[str, dict[str, Any]] = {}
    for node in ast.walk(_part_of_python(text, function)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            section = {"ParallelismConfig": "parallelism", "TrainingConfig": "training"}
            if called in section:
                sections.setdefault(section[called], {}).update(_keywords(node))
            elif called.partition(".")[0] in RECOMPUTED:
                sections["activation_checkpoint"] = {"mode": called.partition(".")[0]}
            elif called == "model_registry" and node.args:
                sections["model"] = {"flavor": calculate(node.args[0])}
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            *_, section_name, name = ["", "", *ast.unparse(node.targets[0]).split(".")]
            if section_name in ("parallelism", "training"):
                sections.setdefault(section_name, {})[name] = _value(name, node.value)
    return sections


def _part_of_python(text: str, function: str) -> ast.AST:
    """The tree of a function, or of a module that has no more than one of configurations."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise ValueError(f"is no Python: {error.msg}, line {error.lineno}") from error
    functions = {f.name: f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef)}
    if function and function not in functions:
        raise ValueError(f"has no function '{function}', it has {', '.join(functions) or 'none'}")
    if function:
        return functions[function]
    if sum("Config" in ast.unparse(f.returns or ast.Constant("")) for f in functions.values()) > 1:
        raise ValueError(f"name one of its functions, FILE:{next(iter(functions))} for example")
    return tree


def _keywords(call: ast.Call) -> dict[str, Any]:
    return {word.arg: _value(word.arg, word.value) for word in call.keywords if word.arg}


def _value(name: str, node: ast.expr) -> Any:
    try:
        return calculate(node)
    except ValueError as error:
        raise ValueError(f"{name} is '{ast.unparse(node)}', which only a run knows") from error


def read(told: Told, facts: JobFacts) -> Recipe:
    """The recipe of sections."""
    words: TitanParallelism = told.words["parallelism"]
    pipeline = words.pipeline_parallel_degree
    data = divided(
        WHERE,
        facts.devices,
        words.tensor_parallel_degree * words.context_parallel_degree * pipeline,
        "devices",
    )
    is_sharded = _is_sharded(told, words, facts, data)
    micro = _samples(told.words["training"], facts, words, pipeline > 1)
    parts = micro_batches(WHERE, facts, data, told.sizes.get("batch"), micro)
    schedule = _schedule(told, words)
    return Recipe(
        tensor=words.tensor_parallel_degree,
        context=words.context_parallel_degree,
        expert=words.expert_parallel_degree,
        data=data,
        rest="sequence"
        if words.tensor_parallel_degree > 1 and words.enable_sequence_parallel
        else "replicas",
        pipeline=pipeline,
        layout=_layout(words, facts, schedule) if pipeline > 1 else (),
        micro_batches=parts,
        schedule=schedule if pipeline > 1 else ACCUMULATING if parts > 1 else "",
        sharding="parameters" if is_sharded else "",
        gathers_again=not is_sharded
        or words.fsdp_reshard_after_forward == "always"
        or (words.fsdp_reshard_after_forward == "default" and pipeline == 1),
        recomputation=RECOMPUTED.get(told.words["activation_checkpoint"].mode, ""),
    )


def _is_sharded(told: Told, words: TitanParallelism, facts: JobFacts, data: int) -> bool:
    """Whether parameters are sharded over so many replicas, all of them."""
    copies = words.data_parallel_replicate_degree
    shards = words.data_parallel_shard_degree
    if copies * (data // copies if shards < 0 else shards) != data:
        raise ValueError(
            f"{WHERE}: {copies} times {shards} data parallel, {data} are left of {facts.devices} devices"
        )
    is_sharded = copies != data or words.context_parallel_degree > 1
    if is_sharded and copies > 1:
        told.unread.append(f"{copies} copies of sharded parameters: one, sharded over {data}")
    return is_sharded


def _schedule(told: Told, words: TitanParallelism) -> str:
    name = words.pipeline_parallel_schedule
    if words.pipeline_parallel_degree > 1 and name not in SCHEDULES:
        told.unread.append(f"pipeline_parallel_schedule {name}: 1F1B")
    return SCHEDULES.get(name, "one_f_one_b")


def _samples(
    training: TitanTraining, facts: JobFacts, words: TitanParallelism, is_staged: bool
) -> int | None:
    """Of a micro-batch on a device; TOML has a number of its own for pipelines."""
    if tokens := training.num_tokens_per_microbatch_per_dp_rank:
        return divided(WHERE, tokens, facts.length, "words of a micro-batch")
    if is_staged:
        return words.pipeline_parallel_microbatch_size
    return training.local_batch_size or training.batch_size


def _layout(words: TitanParallelism, facts: JobFacts, schedule: str) -> tuple[str, ...]:
    if words.module_fqns_per_model_part:
        named = words.module_fqns_per_model_part
        letters = tuple("".join(map(_letter, part)) for part in named)
    else:
        letters = _even_layout(words, facts, 1 if schedule in ("one_f_one_b", "gpipe") else 2)
    divided(WHERE, len(letters), words.pipeline_parallel_degree, "stages")
    if schedule != "zb_v":
        return letters
    turn = len(letters) // 2  # the two stages at the turn are one here
    return *letters[: turn - 1], letters[turn - 1] + letters[turn], *letters[turn + 1 :]


def _even_layout(words: TitanParallelism, facts: JobFacts, per_group: int) -> tuple[str, ...]:
    """With as many layers in every stage but the first and the last."""
    ends = (
        words.pipeline_parallel_first_stage_less_layers,
        words.pipeline_parallel_last_stage_less_layers,
    )
    stages = words.pipeline_parallel_degree * per_group
    if per_stage := words.pipeline_parallel_layers_per_stage:
        stages = -(-(facts.layers + sum(ends)) // per_stage)
    return even_layout(stages, facts.layers, *ends)


def _letter(name: str) -> str:
    if name == EMBEDDING:
        return "E"
    if name.startswith("layers."):
        return "t"
    return "" if name == "norm" else "L"


def said(recipe: Recipe, facts: JobFacts) -> Recipe:
    """Without what torchtitan cannot say: state that is sharded alone, other schedules, operators along samples."""
    rest = "sequence" if recipe.rest == "samples" else recipe.rest
    sayable = in_whole_samples(recipe, facts)
    sayable = replace(sayable, rest=rest if recipe.tensor > 1 else "replicas", offload=())
    if sayable.sharding == "state" or (sayable.context > 1 and not sayable.sharding):
        sayable = replace(sayable, sharding="parameters", gathers_again=False)
    if sayable.sharding and sayable.data * sayable.context == 1:
        sayable = replace(sayable, sharding="")
    if sayable.recomputation == "attention":
        sayable = replace(sayable, recomputation="cheap")
    if sayable.pipeline == 1:
        return replace(sayable, schedule=ACCUMULATING if sayable.micro_batches > 1 else "")
    if sayable.is_v and len(sayable.layout) == 2 * sayable.pipeline - 1:
        return replace(sayable, schedule=sayable.policy)
    sayable = regular(sayable, facts)
    several = sayable.per_group > 1
    able = ("interleaved", "looped_bfs") if several else ("one_f_one_b", "gpipe")
    return sayable if sayable.schedule in able else replace(sayable, schedule=able[0])


def write(recipe: Recipe, facts: JobFacts) -> str:
    """A function that takes a `Trainer.Config` and gives it the plan."""
    tokens = facts.samples // (recipe.data * recipe.micro_batches) * facts.length
    training = {
        "num_tokens_per_microbatch_per_dp_rank": tokens,
        "num_tokens_per_train_step": facts.samples * facts.length,
        "max_context_length": facts.length,
    }
    kind = {"layers": "FullAC", "cheap": "SelectiveAC"}.get(recipe.recomputation)
    lines = [
        f'"""A plan for {recipe.devices} devices, as torchtitan has its configurations."""\n',
        "from torchtitan.config import ParallelismConfig",
        f"from torchtitan.distributed.activation_checkpoint import {kind}" if kind else "",
        "\n\ndef with_plan(config):",
        '    """Give a `Trainer.Config` the plan; the model and all else stay."""',
        "    config.parallelism = ParallelismConfig(",
        *(f"        {name}={value!r}," for name, value in _parallelism(recipe).items()),
        "    )",
        *(f"    config.training.{name} = {value}" for name, value in training.items()),
        f"    config.activation_checkpoint = {f'{kind}.Config()' if kind else None}",
        "    return config\n",
    ]
    return "\n".join(line for line in lines if line)


def _parallelism(recipe: Recipe) -> dict[str, object]:
    is_sharded = recipe.sharding == "parameters"
    settings: dict[str, object] = {
        "data_parallel_replicate_degree": 1 if is_sharded else recipe.data,
        "data_parallel_shard_degree": recipe.data if is_sharded else 1,
        "tensor_parallel_degree": recipe.tensor,
        "enable_sequence_parallel": recipe.rest == "sequence",
        "context_parallel_degree": recipe.context,
        "expert_parallel_degree": recipe.expert,
        "fsdp_reshard_after_forward": "always" if recipe.gathers_again else "never",
        "pipeline_parallel_degree": recipe.pipeline,
    }
    if recipe.pipeline > 1:
        settings["pipeline_parallel_schedule"] = NAMES[recipe.schedule]
        settings["num_pp_microbatches"] = recipe.micro_batches
        settings["module_fqns_per_model_part"] = _modules(recipe)
    return settings


def _modules(recipe: Recipe) -> list[list[str]]:
    layout: Sequence[str] = recipe.layout
    if recipe.is_v:
        turn = len(layout) // 2
        half = -(-len(layout[turn]) // 2)
        layout = [*layout[:turn], layout[turn][:half], layout[turn][half:], *layout[turn + 1 :]]
    parts = list[list[str]]()
    layer = 0
    for letters in layout:
        names = [EMBEDDING] * letters.startswith("E")
        names += [f"layers.{layer + k}" for k in range(letters.count("t"))]
        layer += letters.count("t")
        parts.append([*names, *ENDS] if letters.endswith("L") else names)
    return parts


TORCHTITAN = System("torchtitan", tell, read, said, write, (".py", ".toml"))
