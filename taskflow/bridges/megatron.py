"""Megatron-LM: flags of `pretrain_gpt.py`, alone or in the script that launches it.

Source: NVIDIA, Megatron-LM, `megatron/training/arguments.py` and the configurations that it reads, August 2026; the
scripts of Narayanan et al., SC 2021, with the flags of then. What is not known to be without effect on a plan is named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from taskflow.bridges.facts import (
    ACCUMULATING,
    PER_HOST,
    JobFacts,
    System,
    Told,
    divided,
    in_whole_samples,
    micro_batches,
)
from taskflow.bridges.layout import layout_text, parse_layout
from taskflow.bridges.recipe import Recipe, even_layout, with_ends
from taskflow.bridges.shell import read_script

SIZES = {
    "num-layers": "layers",
    "hidden-size": "hidden",
    "num-attention-heads": "heads",
    "seq-length": "sequence",
    "global-batch-size": "batch",
    "ffn-hidden-size": "ffn",
    "num-query-groups": "kv_heads",
    "vocab-size": "vocabulary",
    "num-experts": "experts",
}
DEGREES = {
    "tensor": "tensor-model-parallel-size",
    "context": "context-parallel-size",
    "expert": "expert-model-parallel-size",
    "pipeline": "pipeline-model-parallel-size",
}
NUMBERS = (
    *DEGREES.values(),
    *("micro-batch-size", "global-batch-size", "num-layers", "recompute-num-layers"),
    *("num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank"),
    *("decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers"),
)
OFFLOADS = ("cpu-offloading", "optimizer-cpu-offload", "fine-grained-activation-offloading")
READ = {
    *SIZES,
    *NUMBERS,
    *OFFLOADS,
    *("sequence-parallel", "use-distributed-optimizer", "use-megatron-fsdp", "use-torch-fsdp2"),
    *("torch-fsdp2-no-reshard-after-forward", "data-parallel-sharding-strategy"),
    *("recompute-granularity", "recompute-method", "recompute-modules", "recompute-activations"),
    *("checkpoint-activations", "activations-checkpoint-method", "pipeline-model-parallel-layout"),
    *("account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split"),
    *("nnodes", "nodes", "nproc-per-node", "gpus-per-node", "ntasks-per-node"),
}
Flags = Mapping[str, list[str]]  # the words behind each
WHERE = "Megatron-LM"
LAYOUT = f"{WHERE}: --pipeline-model-parallel-size"
HARMLESS = re.compile(  # for a plan: data, rates, files, logs, kernels' names, and what the model's function says
    r"(min-|max-)?lr|decoupled|adam|weight-decay|data|vocab-file|merge-file|token|tiktoken|log|save|load|eval|train|"
    r"split|init|clip|seed|tensorboard|wandb|exit|distributed-|no-|bf16|fp16|loss-scale|max-position|position-|rotary|"
    r"swiglu|normalization|untie|disable-bias|apply-|attention-|hidden-dropout|group-query|kv-channels|use-mcore|"
    r"manual-gc|ckpt|profile|timing|DDP-impl|master|node|rdzv|job-name|export|partition|make-vocab|num-workers|mock|"
    r"step-batch|cross-entropy|calculate|empty-unused|overlap-(grad|param)|moe-router|moe-aux|moe-grouped|norm|split"
)


def tell(path: Path, variant: str, given: Mapping[str, str]) -> Told:
    """The flags of all commands of a script, or of a file that holds flags alone."""
    flags = _flags(path, given)
    for name in (*NUMBERS, *SIZES):
        if name in flags and not (_is_number(flags, name) and int(flags[name][0])):
            raise ValueError(
                f"'{path}': --{name} is a number from 1, not '{' '.join(flags[name])}'"
            )
    sizes: dict[str, object] = {
        here: int(flags[name][0]) for name, here in SIZES.items() if name in flags
    }
    for name in ("bf16", "fp16"):
        if name in flags:
            sizes["dtype"] = f"mixed_{'b' * (name == 'bf16')}float16"
    unread = [f"--{name}" for name in flags if name not in READ and not HARMLESS.match(name)]
    return Told(flags, sizes, _devices(flags), unread)


def _flags(path: Path, given: Mapping[str, str]) -> dict[str, list[str]]:
    """Flag -> the words behind it."""
    flags: dict[str, list[str]] = {}
    for words in read_script(path, given):
        name = ""
        for word in words:
            if match := re.match(r"--([A-Za-z][\w-]*)(?:=(.*))?$", word):
                name = match[1] if match[1] == "DDP-impl" else match[1].replace("_", "-")
                flags[name] = [match[2]] if match[2] is not None else []
            elif name:
                flags[name].append(word)
    if not flags:
        raise ValueError(f"'{path}': there are no flags of Megatron-LM in it")
    return flags


def _devices(flags: Flags) -> int | None:
    """Those of all hosts; None: nothing says how many hosts there are."""
    hosts = _first_number(flags, ("nnodes", "nodes"))
    per_host = _first_number(flags, ("nproc-per-node", "gpus-per-node", "ntasks-per-node"))
    return hosts * (PER_HOST if per_host is None else per_host) if hosts else None


def _first_number(flags: Flags, names: Sequence[str]) -> int | None:
    return next((int(flags[name][0]) for name in names if _is_number(flags, name)), None)


def _is_number(flags: Flags, name: str) -> bool:
    return flags.get(name, [""])[:1] != [""] and " ".join(flags[name][:1]).isdecimal()


def read(told: Told, facts: JobFacts) -> Recipe:
    """The recipe of flags."""
    flags = told.words
    degrees = {here: _number(flags, name, 1) for here, name in DEGREES.items()}
    data = divided(
        WHERE,
        told.devices or facts.devices,
        degrees["tensor"] * degrees["context"] * degrees["pipeline"],
        "devices",
    )
    parts = micro_batches(
        WHERE,
        facts,
        data,
        _number(flags, "global-batch-size", 0) or None,
        _number(flags, "micro-batch-size", 0) or 1,
    )
    recipe = Recipe(
        data=data,
        layout=_layout(told, facts, degrees["pipeline"]),
        micro_batches=parts,
        rest="sequence" if "sequence-parallel" in flags and degrees["tensor"] > 1 else "replicas",
        sharding=_sharding(flags),
        gathers_again="torch-fsdp2-no-reshard-after-forward" not in flags,
        recomputation=_recomputation(told),
        offload=tuple(name for name in OFFLOADS if name in flags),
    )
    if len(recipe.layout) == 1:
        recipe = replace(recipe, layout=())
    recipe = replace(recipe, **degrees)  # type: ignore[arg-type]
    told.unread += [f"--{name}" for name in recipe.offload]
    return replace(recipe, schedule=schedule_of(recipe))


def schedule_of(recipe: Recipe) -> str:
    """1F1B, interleaved where groups have several stages; without a pipeline micro-batch after micro-batch."""
    if recipe.pipeline == 1:
        return ACCUMULATING if recipe.micro_batches > 1 else ""
    return "interleaved" if recipe.per_group > 1 else "one_f_one_b"


def _number(flags: Flags, name: str, default: int) -> int:
    return int(flags[name][0]) if name in flags else default


def _layout(told: Told, facts: JobFacts, pipeline: int) -> tuple[str, ...]:
    flags = told.words
    if "pipeline-model-parallel-layout" in flags:
        return _named_layout(told, pipeline)
    first, last = (
        _number(flags, f"decoder-{end}-pipeline-num-layers", 0) for end in ("first", "last")
    )
    per_group = _stages_per_group(flags, facts, pipeline)
    if first or last:
        return _layout_with_ends(first, last, facts.layers, pipeline, per_group)
    counted = [f"account-for-{end}-in-pipeline-split" in flags for end in ("embedding", "loss")]
    divided(LAYOUT, facts.layers + sum(counted), pipeline * per_group, "layers")
    return even_layout(pipeline * per_group, facts.layers, *map(int, counted))


def _named_layout(told: Told, pipeline: int) -> tuple[str, ...]:
    layout = parse_layout("".join(told.words["pipeline-model-parallel-layout"]))
    divided(LAYOUT, len(layout), pipeline, "stages")
    if any("m" in letters for letters in layout):
        told.unread.append("m: layers of multi-token prediction")
    return tuple(letters.replace("m", "") for letters in layout)


def _stages_per_group(flags: Flags, facts: JobFacts, pipeline: int) -> int:
    per_stage = _number(flags, "num-layers-per-virtual-pipeline-stage", 0)
    if per_stage and pipeline > 1:
        layers = divided(LAYOUT, facts.layers, pipeline, "layers")
        return divided(LAYOUT, layers, per_stage, "layers")
    return _number(flags, "num-virtual-stages-per-pipeline-rank", 1)


def _layout_with_ends(
    first: int, last: int, layers: int, pipeline: int, per_group: int
) -> tuple[str, ...]:
    """Of so many layers in the first and the last group; 0: as many as in those between."""
    between = pipeline - bool(first) - bool(last)
    rest = divided(LAYOUT, layers - first - last, between, "layers") if between else 0
    counts = [first or rest, *[rest] * (pipeline - 2), last or rest]
    return with_ends([divided(LAYOUT, n, per_group, "layers") for n in counts] * per_group)


def _sharding(flags: Flags) -> str:
    if "use-torch-fsdp2" in flags:
        return "parameters"
    if "use-megatron-fsdp" in flags:
        strategy = flags.get("data-parallel-sharding-strategy", ["optim_grads_params"])[0]
        return {"no_shard": "", "optim_grads_params": "parameters"}.get(strategy, "state")
    return "state" if "use-distributed-optimizer" in flags else ""


def _recomputation(told: Told) -> str:
    flags = told.words
    if "recompute-method" in flags and flags["recompute-method"] == ["block"]:
        told.unread.append("--recompute-method block: all layers are computed again")
    granularity = " ".join(flags.get("recompute-granularity", ()))
    if "activations-checkpoint-method" in flags or "checkpoint-activations" in flags:
        granularity = "full"
    modules = flags.get("recompute-modules", ["core_attn"])
    if granularity == "selective" and modules != ["core_attn"]:
        told.unread.append(f"--recompute-modules {' '.join(modules)}: the core of attention is")
    is_selective = granularity == "selective" or "recompute-activations" in flags
    return "layers" if granularity == "full" else "attention" if is_selective else ""


def said(recipe: Recipe, facts: JobFacts) -> Recipe:
    """Without what Megatron-LM has no flag for: other schedules and V shapes, operators split along samples."""
    rest = "sequence" if recipe.rest == "samples" or recipe.expert > 1 else recipe.rest
    sayable = replace(
        in_whole_samples(recipe, facts),
        rest=rest if recipe.tensor > 1 else "replicas",
        recomputation="layers" if recipe.recomputation == "cheap" else recipe.recomputation,
    )
    if sayable.sharding == "parameters" and not sayable.gathers_again and sayable.pipeline > 1:
        sayable = replace(sayable, gathers_again=True)  # torch's FSDP stands with no pipeline there
    sayable = regular(sayable, facts)
    return replace(sayable, schedule=schedule_of(sayable))


def regular(recipe: Recipe, facts: JobFacts) -> Recipe:
    """As many stages for each group; one where micro-batches are no multiple of the groups that take turns."""
    several = recipe.per_group if recipe.micro_batches % recipe.pipeline == 0 else 1
    several = several if several * recipe.pipeline <= facts.layers + 2 else 1
    if recipe.pipeline == 1 or len(recipe.layout) == several * recipe.pipeline:
        return recipe
    return replace(recipe, schedule="", layout=even_layout(recipe.pipeline * several, facts.layers))


def write(recipe: Recipe, facts: JobFacts) -> str:
    """Flags behind a line of torchrun."""
    hosts = max(1, recipe.devices // PER_HOST)
    per_host = min(PER_HOST, recipe.devices)
    flags = [
        f"torchrun --nnodes {hosts} --nproc-per-node {per_host} pretrain_gpt.py",
        *(f"--{name} {getattr(recipe, here)}" for here, name in DEGREES.items()),
        f"--micro-batch-size {facts.samples // (recipe.data * recipe.micro_batches)}",
        f"--global-batch-size {facts.samples}",
    ]
    flags += ["--sequence-parallel"] * (recipe.rest == "sequence")
    flags += _layout_flags(recipe, facts)
    if recipe.sharding == "state":
        flags += ["--use-distributed-optimizer"]
    elif recipe.sharding and recipe.gathers_again:
        flags += ["--use-megatron-fsdp", "--data-parallel-sharding-strategy optim_grads_params"]
    elif recipe.sharding:
        flags += ["--use-torch-fsdp2", "--torch-fsdp2-no-reshard-after-forward"]
    flags += {
        "": [],
        "layers": [
            "--recompute-granularity full",
            "--recompute-method uniform",
            "--recompute-num-layers 1",
        ],
        "attention": ["--recompute-granularity selective", "--recompute-modules core_attn"],
    }[recipe.recomputation]
    flags += [f"--{name}" for name in recipe.offload]
    return " \\\n    ".join(flags) + "\n"


def _layout_flags(recipe: Recipe, facts: JobFacts) -> list[str]:
    if recipe.pipeline == 1:
        return []
    count = len(recipe.layout)
    if facts.layers % count == 0 and recipe.layout == even_layout(count, facts.layers):
        several = recipe.per_group
        return [f"--num-virtual-stages-per-pipeline-rank {several}"] * (several > 1)
    return [f'--pipeline-model-parallel-layout "{layout_text(recipe.layout)}"']


MEGATRON = System("megatron", tell, read, said, write)
