"""ops: the operators of deep learning as clients of taskflow's public names.

Each function launches one or a few operators on the graph of its first input and gives the output region. Arguments
are torch.nn.functional's: input regions first; where there are weights, the output extent second.
"""

from ops.attention.attention import multihead_attention, scaled_dot_product_attention
from ops.attention.fused_attention import fused_attention
from ops.attention.linear_attention import memory_linear_attention
from ops.attention.rotary import rotary_embedding
from ops.dense.convolution import conv2d
from ops.dense.convolution1d import conv1d
from ops.dense.feed_forward import feed_forward
from ops.dense.interaction import dot_interaction
from ops.dense.linear import linear
from ops.dense.product import batch_matmul, einsum, matmul
from ops.elementwise.activation import elu, gelu, leaky_relu, relu, sigmoid, silu, softplus, tanh
from ops.elementwise.arithmetic import (
    add,
    divide,
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    maximum,
    minimum,
    multiply,
    not_equal,
    pow,
    subtract,
    where,
)
from ops.elementwise.dropout import dropout
from ops.elementwise.functions import abs, clip, cos, exp, log, rsqrt, sin, sqrt
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
from ops.loss.composed_softmax import log_softmax
from ops.loss.cross_entropy import cross_entropy
from ops.loss.elementwise import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    huber_loss,
    mean_absolute_error,
    mean_squared_error,
)
from ops.loss.metrics import accuracy, perplexity, root_mean_squared_error, top_k_accuracy
from ops.loss.softmax import softmax, softmax_cross_entropy
from ops.moe.dispatch import combine, dispatch
from ops.moe.experts import expert_linear, mixture_of_experts
from ops.moe.gate import count_dropped, expert_load, expert_slots, load_balance_loss, top_k_gate
from ops.norm.batch_norm import batch_norm
from ops.norm.layer_norm import layer_norm
from ops.norm.norms import group_norm, rms_norm
from ops.optim.adaptive import adagrad, rmsprop
from ops.optim.lamb import lamb
from ops.optim.optimizers import adam, adamw, sgd
from ops.recurrent.gru import gru, gru_cell, gru_steps
from ops.recurrent.lstm import lstm, lstm_cell, lstm_steps
from ops.recurrent.rnn import rnn, rnn_cell, rnn_steps
from ops.recurrent.weights import RecurrentWeights, lstm_weights, recurrent_weights
from ops.reduce.adaptive_pooling import adaptive_avg_pool2d, adaptive_max_pool2d
from ops.reduce.extremes import argmax, global_max_pool2d, max, min, topk
from ops.reduce.pooling import avg_pool2d, max_pool2d
from ops.reduce.reductions import global_avg_pool2d, mean, sum
from ops.reduce.sum_to import sum_to
from ops.shape.expand import cast, expand, squeeze, unsqueeze
from ops.shape.padding import pad, reverse
from ops.shape.rearrange import concat, flatten, reshape, transpose
from ops.shape.sections import slice, split
from ops.tables.embedding import embedding
from ops.tables.embedding_bag import embedding_bag, gather_rows, position_embedding
from ops.tables.gather import gather
from ops.torch.from_torch import Imported, from_torch
from ops.torch.state import from_torch_state

__all__ = [
    "Imported",
    "RecurrentWeights",
    "abs",
    "accuracy",
    "adagrad",
    "adam",
    "adamw",
    "adaptive_avg_pool2d",
    "adaptive_max_pool2d",
    "add",
    "argmax",
    "avg_pool2d",
    "batch_matmul",
    "batch_norm",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cast",
    "clip",
    "combine",
    "concat",
    "constant",
    "conv1d",
    "conv2d",
    "cos",
    "count_dropped",
    "cross_entropy",
    "dispatch",
    "divide",
    "dot_interaction",
    "dropout",
    "einsum",
    "elu",
    "embedding",
    "embedding_bag",
    "equal",
    "exp",
    "expand",
    "expert_linear",
    "expert_load",
    "expert_slots",
    "fan_in_uniform",
    "feed_forward",
    "flatten",
    "from_torch",
    "from_torch_state",
    "fused_attention",
    "gather",
    "gather_rows",
    "gelu",
    "global_avg_pool2d",
    "global_max_pool2d",
    "glorot_normal",
    "glorot_uniform",
    "greater",
    "greater_equal",
    "group_norm",
    "gru",
    "gru_cell",
    "gru_steps",
    "he_normal",
    "he_uniform",
    "huber_loss",
    "lamb",
    "layer_norm",
    "leaky_relu",
    "less",
    "less_equal",
    "linear",
    "load_balance_loss",
    "log",
    "log_softmax",
    "lstm",
    "lstm_cell",
    "lstm_steps",
    "lstm_weights",
    "matmul",
    "max",
    "max_pool2d",
    "maximum",
    "mean",
    "mean_absolute_error",
    "mean_squared_error",
    "memory_linear_attention",
    "min",
    "minimum",
    "mixture_of_experts",
    "multihead_attention",
    "multiply",
    "normal",
    "not_equal",
    "pad",
    "perplexity",
    "position_embedding",
    "pow",
    "recurrent_weights",
    "relu",
    "reshape",
    "reverse",
    "rms_norm",
    "rmsprop",
    "rnn",
    "rnn_cell",
    "rnn_steps",
    "root_mean_squared_error",
    "rotary_embedding",
    "rsqrt",
    "scaled_dot_product_attention",
    "sgd",
    "sigmoid",
    "silu",
    "sin",
    "slice",
    "softmax",
    "softmax_cross_entropy",
    "softplus",
    "split",
    "sqrt",
    "squeeze",
    "subtract",
    "sum",
    "sum_to",
    "tanh",
    "top_k_accuracy",
    "top_k_gate",
    "topk",
    "transpose",
    "uniform",
    "unsqueeze",
    "where",
    "zeros",
]
