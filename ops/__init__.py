"""ops: the operators of deep learning as clients of taskflow's public names.

Each function launches one or a few operators on the graph of its first input and gives the output region. Arguments
are torch.nn.functional's: input regions first; where there are weights, the output extent second.
"""

from ops.activation import elu, gelu, leaky_relu, relu, sigmoid, silu, softplus, tanh
from ops.adaptive import adagrad, rmsprop
from ops.adaptive_pooling import adaptive_avg_pool2d, adaptive_max_pool2d
from ops.arithmetic import (
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
from ops.attention import multihead_attention, scaled_dot_product_attention
from ops.batch_norm import batch_norm
from ops.composed_softmax import log_softmax
from ops.convolution import conv2d
from ops.convolution1d import conv1d
from ops.cross_entropy import cross_entropy
from ops.dispatch import combine, dispatch
from ops.dropout import dropout
from ops.embedding import embedding
from ops.embedding_bag import embedding_bag, gather_rows, position_embedding
from ops.expand import cast, expand, squeeze, unsqueeze
from ops.experts import expert_linear, mixture_of_experts
from ops.extremes import argmax, global_max_pool2d, max, min, topk
from ops.feed_forward import feed_forward
from ops.from_torch import Imported, from_torch
from ops.functions import abs, clip, cos, exp, log, rsqrt, sin, sqrt
from ops.fused_attention import fused_attention
from ops.gate import count_dropped, expert_load, expert_slots, load_balance_loss, top_k_gate
from ops.gather import gather
from ops.gru import gru, gru_cell, gru_steps
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
from ops.lamb import lamb
from ops.layer_norm import layer_norm
from ops.linear import linear
from ops.linear_attention import memory_linear_attention
from ops.loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    huber_loss,
    mean_absolute_error,
    mean_squared_error,
)
from ops.lstm import lstm, lstm_cell, lstm_steps
from ops.metrics import accuracy, perplexity, root_mean_squared_error, top_k_accuracy
from ops.norms import group_norm, rms_norm
from ops.optimizers import adam, adamw, sgd
from ops.padding import pad, reverse
from ops.pooling import avg_pool2d, max_pool2d
from ops.product import batch_matmul, einsum, matmul
from ops.recurrent_weights import RecurrentWeights, lstm_weights, recurrent_weights
from ops.reductions import global_avg_pool2d, mean, sum
from ops.rnn import rnn, rnn_cell, rnn_steps
from ops.rotary import rotary_embedding
from ops.sections import slice, split
from ops.shape import concat, flatten, reshape, transpose
from ops.softmax import softmax, softmax_cross_entropy
from ops.sum_to import sum_to
from ops.torch_state import from_torch_state

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
