"""Jobs of other systems, read, simulated and bettered: `python benchmarks/bridges_jobs.py [--rows NAME ...]`.

One line a job, in a process of its own: what a step takes as the job has it (!: it does not fit), the seconds of the
processor and the memory that its simulation took, and what a search in the words of its system finds in `--seconds`:
how much faster, and what the text of it, read again, is simulated to take. `--scripts FOLDER`: where the `sc21` scripts
of Megatron-LM and torchtitan's `config_registry.py` of Llama 3 lie; these go in as they are written.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import ops
import taskflow
from ops.models import gpt as gpt_model
from ops.models import huggingface
from taskflow.bridges.exporting import SYSTEMS, JobFile, import_job, said_in
from taskflow.bridges.making import PlanMaker
from taskflow.bridges.nearest import SaidPlans
from taskflow.searching.outcome import judged

LLAMA = {
    "8B": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32},
    "70B": {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80},
    "405B": {"hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126},
}
SIZES = ("1.7B", "3.6B", "7.5B", "18B", "39B", "76B", "145B", "310B", "530B", "1T")


def trained(graph: taskflow.Graph) -> taskflow.Graph:
    """In bfloat16 with float32 parameters, updated by AdamW."""
    graph = taskflow.precision(graph, "bfloat16")
    ops.adamw(graph.outputs["loss"], lr=1e-4)
    return graph


def gpt(
    batch: int,
    sequence: int,
    layers: int,
    hidden: int,
    heads: int,
    vocabulary: int = 51200,
    dtype: str = "mixed_bfloat16",
) -> taskflow.Graph:
    """GPT in mixed precision, attention as one operator."""
    sizes = {"layers": layers, "hidden": hidden, "heads": heads, "vocabulary": vocabulary}
    return gpt_model.build(batch, sequence, **sizes, dropout=0.0, fused=True, dtype=dtype)


def llama(batch: int, sequence: int = 8192, size: str = "8B") -> taskflow.Graph:
    """Llama 3 (Grattafiori et al., arXiv 2407.21783), in mixed precision."""
    sizes = LLAMA[size]
    config: dict[str, Any] = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        **sizes,
        "num_attention_heads": sizes["hidden_size"] // 128,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
        "max_position_embeddings": sequence,
        "hidden_act": "silu",
    }
    return trained(huggingface.build(config, batch, sequence, training=False))


class Job(NamedTuple):
    """A file and what it is for; `file` is in the folder of scripts, or `text` is what it says."""

    name: str
    machine: str
    devices: int
    file: str
    text: str = ""
    given: Mapping[str, str] = MappingProxyType({})
    model: str = "gpt"
    arguments: Mapping[str, Any] = MappingProxyType({})


ALPA = (
    "--num-layers 32 --hidden-size 2560 --num-attention-heads 32 --seq-length 1024 --global-batch-size 32 "
    "--micro-batch-size 4 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --nnodes 1 "
    "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 --fp16 --vocab-size 51200"
)
MPT = (
    '{{"train_batch_size": {0}, "train_micro_batch_size_per_gpu": {1}, "zero_optimization": {{"stage": 3}}, '
    '"activation_checkpointing": {{"number_checkpoints": 32}}, "bf16": {{"enabled": true}}}}'
)
MPT_SIZES = {"sequence": 2048, "layers": 32, "hidden": 4096, "heads": 32, "vocabulary": 50368}
JOBS = [
    Job("Alpa GPT 2.6B", "v100", 8, "alpa.sh", f"python pretrain_gpt.py {ALPA}"),
    Job("llm-foundry 7B, 8", "a100", 8, "mpt.json", MPT.format(96, 12), arguments=MPT_SIZES),
    Job("llm-foundry 7B, 64", "a100", 64, "mpt.json", MPT.format(1152, 18), arguments=MPT_SIZES),
    Job(
        "torchtitan Llama 3 8B",
        "h100",
        8,
        "config_registry.py:llama3_8b",
        model="llama",
        arguments={"batch": 8},
    ),
    Job(
        "torchtitan Llama 3 70B",
        "h100",
        64,
        "config_registry.py:llama3_70b",
        model="llama",
        arguments={"batch": 64, "size": "70B"},
    ),
    *(
        Job(f"Megatron SC'21 {size}", "a100", 0, "run_table_1.sh", given={"MODEL_SIZE": size})
        for size in SIZES
    ),
]


def better(job: Job, folder: Path, seconds: float, pipe: Connection) -> None:
    """Send the lines of one job."""
    name = f"{folder / job.file}"
    if job.text:
        Path(name).write_text(job.text, encoding="utf-8")
    file = JobFile(name, job.given)
    one = taskflow.MachineModel.preset(job.machine)
    devices = file.devices or job.devices
    machine = taskflow.MachineModel.preset(job.machine, nodes=devices // len(one.devices))
    build = {"gpt": gpt, "llama": llama}[job.model]
    sizes = {n: v for n, v in file.sizes.items() if n in build.__annotations__}
    graph = build(**{**sizes, **job.arguments})
    costs, maker = taskflow.CostModel.analytic(machine), PlanMaker(graph, machine)
    plan = file.job(maker).plan
    outcome = judged(graph, machine, costs, plan)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    took, gigabytes = time.process_time(), usage.ru_maxrss / 1e6
    line = (
        f"{job.name:24s} {devices:5d} {outcome.with_room:9.3f} s {outcome.peak_bytes / 1e9:6.1f} GB"
    )
    pipe.send(
        f"{line}{' ' if outcome.fits else '!'} simulated in {took:5.1f} s, {gigabytes:4.1f} GB"
    )
    if not seconds:
        return
    system = SYSTEMS[file.system]
    said = SaidPlans(system, maker)
    given = {"starts": {job.name: plan}, "seconds": seconds, "space": said, "moves": said.moves}
    found = taskflow.search(graph, machine, costs, **given)
    exported = said_in(system, maker, found.plan, costs)
    suffix = Path(job.file.partition(":")[0]).suffix
    again = folder / f"better{suffix}"
    again.write_text(exported.text, encoding="utf-8")
    back = judged(graph, machine, costs, import_job(str(again), graph, machine).plan)
    gain = outcome.with_room / found.seconds - 1
    said = f"{gain:6.1%} faster, re-imported {back.with_room:.3f} s" if gain else "none is faster"
    pipe.send(f"{'':24s} {said}; {len(found.history) - 1} steps: {exported.recipe}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="*", default=[""], metavar="NAME")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each search; 0: none")
    parser.add_argument("--scripts", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    for job in JOBS:
        if not job.name.startswith(tuple(options.rows)) or not (job.text or options.scripts):
            continue
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) if job.text else options.scripts
            receiving, sending = multiprocessing.Pipe(duplex=False)
            process = multiprocessing.Process(
                target=better, args=(job, place, options.seconds, sending)
            )
            process.start()
            sending.close()
            try:
                while True:
                    print(receiving.recv(), flush=True)
            except EOFError:
                process.join()


if __name__ == "__main__":
    main()
