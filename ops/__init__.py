"""ops: the operators of deep learning as clients of taskflow's public names.

Each function launches one or a few operators on the graph of its first input and gives the output region. Arguments
are torch.nn.functional's: input regions first; where there are weights, the output extent second.
"""

from ops.activation import gelu, relu, sigmoid, tanh
from ops.arithmetic import add, multiply, subtract, sum_to
from ops.attention import multihead_attention, scaled_dot_product_attention
from ops.batch_norm import batch_norm
from ops.binary_loss import binary_cross_entropy_with_logits, perplexity
from ops.convolution import conv2d
from ops.dispatch import combine, dispatch
from ops.dropout import dropout
from ops.embedding import embedding
from ops.embedding_bag import embedding_bag, gather_rows, position_embedding
from ops.experts import expert_linear, mixture_of_experts
from ops.gate import count_dropped, expert_load, expert_slots, load_balance_loss, top_k_gate
from ops.initializers import (
    constant,
    fan_in_uniform,
    glorot_normal,
    glorot_uniform,
    he_normal,
    he_uniform,
    normal,
    uniform,
    zeros,
)
from ops.interaction import dot_interaction
from ops.layer_norm import layer_norm
from ops.linear import linear
from ops.loss import mean_squared_error
from ops.lstm import lstm, lstm_cell, lstm_steps
from ops.lstm_weights import LSTMWeights, lstm_weights
from ops.metrics import accuracy
from ops.optimizers import adam, adamw, sgd
from ops.pooling import avg_pool2d, max_pool2d
from ops.product import batch_matmul, einsum, matmul
from ops.reductions import global_avg_pool2d, mean, sum
from ops.rotary import rotary_embedding
from ops.sections import slice, split
from ops.shape import concat, flatten, reshape, transpose
from ops.softmax import softmax, softmax_cross_entropy
from ops.torch_state import from_torch_state

__all__ = [
    "LSTMWeights",
    "accuracy",
    "adam",
    "adamw",
    "add",
    "avg_pool2d",
    "batch_matmul",
    "batch_norm",
    "binary_cross_entropy_with_logits",
    "combine",
    "concat",
    "constant",
    "conv2d",
    "count_dropped",
    "dispatch",
    "dot_interaction",
    "dropout",
    "einsum",
    "embedding",
    "embedding_bag",
    "expert_linear",
    "expert_load",
    "expert_slots",
    "fan_in_uniform",
    "flatten",
    "from_torch_state",
    "gather_rows",
    "gelu",
    "global_avg_pool2d",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "layer_norm",
    "linear",
    "load_balance_loss",
    "lstm",
    "lstm_cell",
    "lstm_steps",
    "lstm_weights",
    "matmul",
    "max_pool2d",
    "mean",
    "mean_squared_error",
    "mixture_of_experts",
    "multihead_attention",
    "multiply",
    "normal",
    "perplexity",
    "position_embedding",
    "relu",
    "reshape",
    "rotary_embedding",
    "scaled_dot_product_attention",
    "sgd",
    "sigmoid",
    "slice",
    "softmax",
    "softmax_cross_entropy",
    "split",
    "subtract",
    "sum",
    "sum_to",
    "tanh",
    "top_k_gate",
    "transpose",
    "uniform",
    "zeros",
]
