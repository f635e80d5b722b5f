"""Models in torchtitan's shape, and its configurations applied to them as it does: FSDP2 and pipelining.

Source: pytorch/torchtitan, `distributed/pipeline_parallel.py`, `distributed/fsdp.py`, `models/llama3/parallelize.py`,
August 2026. A model has `tok_embeddings`, `layers`, `norm` and `lm_head`; a stage of a pipeline has some of these.
"""

import copy
import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace

import torch
from architectures.images import MixerBlock
from architectures.sequences import LlamaBlock, NanoBlock
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class
from torch.nn import functional as F

WORDS, LENGTH, WIDTH, LAYERS, BATCH = 13, 8, 8, 4, 8


class EncoderBlock(nn.Module):
    """BERT's: every word sees all others, norms come behind."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH)

    def forward(self, x):
        heads = (t.view(*t.shape[:2], 2, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        x = self.norm1(x + self.out(y))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class ParallelBlock(nn.Module):
    """Attention and perceptron side by side, as GPT-J has them."""

    def __init__(self):
        super().__init__()
        self.norm, self.attn = nn.LayerNorm(WIDTH), NanoBlock(WIDTH, 2).attn
        self.up, self.down = nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH)

    def forward(self, x):
        h = self.norm(x)
        return x + self.attn(h) + self.down(F.gelu(self.up(h)))


class ResidualBlock(nn.Module):
    """A perceptron alone."""

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH, eps=1e-6)
        self.gate, self.up = nn.Linear(WIDTH, 12, bias=False), nn.Linear(WIDTH, 12, bias=False)
        self.down = nn.Linear(12, WIDTH, bias=False)

    def forward(self, x):
        h = self.norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


LAYERS_OF = {
    "GPT": lambda: NanoBlock(WIDTH, 2),
    "Llama": lambda: LlamaBlock(WIDTH, longest=LENGTH),
    "encoder": EncoderBlock,
    "mixer": lambda: MixerBlock(LENGTH, WIDTH),
    "parallel": ParallelBlock,
    "perceptrons": ResidualBlock,
}


class Model(nn.Module):
    """Words to words; parts that a stage lacks are None."""

    def __init__(self, name):
        super().__init__()
        self.tok_embeddings = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleDict({str(k): LAYERS_OF[name]() for k in range(LAYERS)})
        self.norm, self.lm_head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x):
        for part in (self.tok_embeddings, *self.layers.values(), self.norm, self.lm_head):
            x = x if part is None else part(x)
        return x


def model(name):
    """The same at every call, in float64, with words and targets of a step."""
    torch.manual_seed(5)
    made = Model(name).double()
    return made, *torch.randint(0, WORDS, (2, BATCH, LENGTH))


def loss_of(logits, targets):
    """The sum over words, as a part of the mean over the step."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / (
        BATCH * LENGTH
    )


# -- a configuration, applied ------------------------------------------------------------------------------------------


@dataclass
class Trainer:
    """What stands in for `Trainer.Config`."""

    training: SimpleNamespace = field(default_factory=SimpleNamespace)
    parallelism: SimpleNamespace | None = None
    activation_checkpoint: object = None


def config_of(text):
    """What an exported file makes of a `Trainer.Config`; what it imports from torchtitan stands in."""
    config = ModuleType("torchtitan.config")
    config.ParallelismConfig = SimpleNamespace
    sys.modules |= {"torchtitan": ModuleType("torchtitan"), "torchtitan.config": config}
    scope = {}
    exec(text, scope)
    return scope["with_plan"](Trainer())


def shard(part, mesh, parallelism):
    """FSDP2 of a model or of a stage: the embedding, every layer, and both ends together are units."""
    again = parallelism.fsdp_reshard_after_forward == "always"
    ends = [each for each in (part.norm, part.lm_head) if each is not None]
    for unit in (part.tok_embeddings, *part.layers.values(), ends):
        if unit is not None and unit != []:
            fully_shard(unit, mesh=mesh, reshard_after_forward=again)
    fully_shard(part, mesh=mesh, reshard_after_forward=again)
    for each in part.modules():
        if hasattr(each, "set_gradient_divide_factor"):
            each.set_gradient_divide_factor(1.0)  # the loss is a part of the mean over the step


def stage(whole, names):
    """The model with these parts alone."""
    part = copy.deepcopy(whole)
    for name in ("tok_embeddings", "norm", "lm_head"):
        if name not in names:
            setattr(part, name, None)
    for number in list(part.layers):
        if f"layers.{number}" not in names:
            del part.layers[number]
    return part


def train(config, whole, words, targets, mesh):
    """The step's loss on this rank, and its gradients by name; `mesh`: of pipeline and data parallel ranks.

    Every data parallel rank has its own rows of the batch.
    """
    parallelism = config.parallelism
    data, ranks = mesh["data"], mesh["pipeline"]
    mine = slice(data.get_local_rank(), None, data.size())
    words, targets = words[mine], targets[mine]
    is_sharded = parallelism.data_parallel_shard_degree > 1
    if parallelism.pipeline_parallel_degree == 1:
        parts = {0: copy.deepcopy(whole)}
    else:
        names = parallelism.module_fqns_per_model_part
        schedule = get_schedule_class(parallelism.pipeline_parallel_schedule)
        several = len(names) // ranks.size()
        here = [ranks.get_local_rank() + k * ranks.size() for k in range(several)]
        if parallelism.pipeline_parallel_schedule == "ZBVZeroBubble":
            here[1] = len(names) - 1 - here[0]
        parts = {k: stage(whole, names[k]) for k in here}
    if is_sharded:
        for part in parts.values():
            shard(part, data, parallelism)
    if parallelism.pipeline_parallel_degree == 1:
        each = config.training.num_tokens_per_microbatch_per_dp_rank // LENGTH
        loss = 0.0
        for some, theirs in zip(words.split(each), targets.split(each)):
            of_part = loss_of(parts[0](some), theirs)
            of_part.backward()
            loss += of_part.detach()
    else:
        device, group = torch.device("cpu"), ranks.get_group()
        stages = [PipelineStage(p, k, len(names), device, group=group) for k, p in parts.items()]
        is_single = issubclass(schedule, PipelineScheduleSingle)
        run = schedule(
            stages[0] if is_single else stages,
            n_microbatches=parallelism.num_pp_microbatches,
            loss_fn=loss_of,
            scale_grads=False,
        )
        losses = []
        inputs = (words,) if 0 in parts else ()
        run.step(*inputs, target=targets if len(names) - 1 in parts else None, losses=losses)
        loss = sum(each.detach() for each in losses)
    return loss, {name: p.grad for part in parts.values() for name, p in part.named_parameters()}
