"""MoE: a language model whose layers have experts in place of one dense part, after GShard (Lepikhin et al., ICLR 2021,
arXiv 2006.16668: two experts per token, capacity for each group of tokens) with the load-balance loss of the Switch
Transformer (Fedus, Zoph and Shazeer, JMLR 23, 2022) and rotary positions. By default 124 million of its 294 million
parameters work on a token, as many as the smallest GPT-2 has.
"""

import ops
import taskflow
from ops.models.common import finish, tokens
from taskflow import Graph, LogicalRegion, MachineModel, Strategy

CHOICES = 2  # experts for a token, each twice as wide as the layer


def build(
    batch: int = 8,
    sequence: int = 1024,
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    experts: int = 8,
    capacity_factor: float = 1.25,
    groups: int = 1,
    vocabulary: int = 50257,
    lr: float = 6e-4,
    training: bool = True,
    dtype: str = "float32",
) -> Graph:
    """Words `x` and the words that follow them `t`, (batch, sequence) each; `groups` of sequences share a capacity."""
    graph = Graph()
    x = tokens(graph, "x", batch, sequence)
    t = tokens(graph, "t", batch, sequence)
    h = ops.embedding(
        x, vocabulary, hidden, name="embed", dtype=dtype, weight_init=ops.normal(0.0, 0.02)
    )
    balances = []
    for k in range(layers):
        h = ops.add(
            h, _attend(ops.layer_norm(h, name=f"norm{k}a"), heads, f"attention{k}"), name=f"add{k}a"
        )
        normed = ops.layer_norm(h, name=f"norm{k}b")
        y, balance = ops.mixture_of_experts(
            normed,
            experts,
            2 * hidden,
            CHOICES,
            capacity_factor,
            groups,
            name=f"experts{k}",
        )
        h = ops.add(h, y, name=f"add{k}b")
        balances.append(balance)
    y = ops.einsum(
        "bse,ve->bsv", ops.layer_norm(h, name="norm"), graph.regions["embed.weight"], name="fc"
    )
    words = ops.cross_entropy(y, t, name="loss_words")
    graph.output("perplexity", ops.perplexity(words))
    loss = words
    for k, balance in enumerate(balances):
        loss = ops.add(loss, ops.multiply(balance, 0.01, name=f"balance{k}"), name=f"loss{k}")
    return finish(graph, loss, training, ops.adamw, lr=lr, betas=(0.9, 0.95), weight_decay=0.1)


def _attend(x: LogicalRegion, heads: int, name: str) -> LogicalRegion:
    """Causal attention whose queries and keys are turned by their positions."""
    shape = (*x.shape[:2], heads, x.shape[2] // heads)
    q, k, v = (
        ops.reshape(ops.linear(x, x.shape[2], name=f"{name}.{p}"), shape, f"{name}.{p}.heads")
        for p in "qkv"
    )
    q = ops.rotary_embedding(q, name=f"{name}.q.turned")
    k = ops.rotary_embedding(k, name=f"{name}.k.turned")
    y = ops.scaled_dot_product_attention(q, k, v, is_causal=True, name=f"{name}.scores")
    return ops.linear(ops.reshape(y, x.shape, f"{name}.joined"), x.shape[2], name=f"{name}.out")


def expert_parallel(graph: Graph, machine: MachineModel) -> Strategy:
    """Data parallel, but every device has some of the experts; as many groups of tokens make it an all-to-all."""
    strategy = taskflow.data_parallel(graph, machine)
    devices = len(machine.devices)
    for op in graph.operators:
        if op.name.startswith("experts") and op.name.endswith(".up"):
            strategy[op.name] = taskflow.ParallelConfig({"e": min(devices, op.extents["e"])})
    return strategy
