"""ops: the operators of deep learning as clients of taskflow's public names.

Each function launches one or a few operators on the graph of its first input and gives the output region. Arguments
are torch.nn.functional's: input regions first; where there are weights, the output extent second.
`import f as f` says that `f` is public. `ops.models` has graphs of known models, imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ops.attention.alibi import alibi_slopes as alibi_slopes
from ops.attention.attention import multihead_attention as multihead_attention
from ops.attention.attention import scaled_dot_product_attention as scaled_dot_product_attention
from ops.attention.fused_attention import fused_attention as fused_attention
from ops.attention.grouped import repeat_heads as repeat_heads
from ops.attention.linear_attention import memory_linear_attention as memory_linear_attention
from ops.attention.packed_attention import packed_attention as packed_attention
from ops.attention.rotary import RotaryScaling as RotaryScaling
from ops.attention.rotary import rotary_embedding as rotary_embedding
from ops.claims import claimed as claimed
from ops.dense.convolution import conv1d as conv1d
from ops.dense.convolution import conv2d as conv2d
from ops.dense.convolution3d import adaptive_avg_pool3d as adaptive_avg_pool3d
from ops.dense.convolution3d import avg_pool3d as avg_pool3d
from ops.dense.convolution3d import conv3d as conv3d
from ops.dense.convolution3d import max_pool3d as max_pool3d
from ops.dense.feed_forward import feed_forward as feed_forward
from ops.dense.interaction import dot_interaction as dot_interaction
from ops.dense.linear import linear as linear
from ops.dense.product import batch_matmul as batch_matmul
from ops.dense.product import bmm as bmm
from ops.dense.product import einsum as einsum
from ops.dense.product import matmul as matmul
from ops.dense.transposed import conv_transpose1d as conv_transpose1d
from ops.dense.transposed import conv_transpose2d as conv_transpose2d
from ops.elementwise.activation import abs as abs
from ops.elementwise.activation import clamp as clamp
from ops.elementwise.activation import clip as clip
from ops.elementwise.activation import cos as cos
from ops.elementwise.activation import elu as elu
from ops.elementwise.activation import exp as exp
from ops.elementwise.activation import gelu as gelu
from ops.elementwise.activation import leaky_relu as leaky_relu
from ops.elementwise.activation import log as log
from ops.elementwise.activation import relu as relu
from ops.elementwise.activation import rsqrt as rsqrt
from ops.elementwise.activation import sigmoid as sigmoid
from ops.elementwise.activation import silu as silu
from ops.elementwise.activation import sin as sin
from ops.elementwise.activation import softplus as softplus
from ops.elementwise.activation import sqrt as sqrt
from ops.elementwise.activation import tanh as tanh
from ops.elementwise.arithmetic import add as add
from ops.elementwise.arithmetic import divide as divide
from ops.elementwise.arithmetic import equal as equal
from ops.elementwise.arithmetic import greater as greater
from ops.elementwise.arithmetic import greater_equal as greater_equal
from ops.elementwise.arithmetic import less as less
from ops.elementwise.arithmetic import less_equal as less_equal
from ops.elementwise.arithmetic import maximum as maximum
from ops.elementwise.arithmetic import minimum as minimum
from ops.elementwise.arithmetic import multiply as multiply
from ops.elementwise.arithmetic import not_equal as not_equal
from ops.elementwise.arithmetic import pow as pow
from ops.elementwise.arithmetic import subtract as subtract
from ops.elementwise.arithmetic import where as where
from ops.elementwise.dropout import dropout as dropout
from ops.elementwise.dropout import dropout1d as dropout1d
from ops.elementwise.dropout import dropout2d as dropout2d
from ops.elementwise.dropout import dropout3d as dropout3d
from ops.elementwise.dropout import gumbel as gumbel
from ops.elementwise.logical import logical_and as logical_and
from ops.elementwise.logical import logical_not as logical_not
from ops.elementwise.logical import logical_or as logical_or
from ops.elementwise.rectifiers import celu as celu
from ops.elementwise.rectifiers import erf as erf
from ops.elementwise.rectifiers import expm1 as expm1
from ops.elementwise.rectifiers import hardsigmoid as hardsigmoid
from ops.elementwise.rectifiers import hardswish as hardswish
from ops.elementwise.rectifiers import hardtanh as hardtanh
from ops.elementwise.rectifiers import log1p as log1p
from ops.elementwise.rectifiers import log_sigmoid as log_sigmoid
from ops.elementwise.rectifiers import logsigmoid as logsigmoid
from ops.elementwise.rectifiers import mish as mish
from ops.elementwise.rectifiers import prelu as prelu
from ops.elementwise.rectifiers import relu6 as relu6
from ops.elementwise.rectifiers import selu as selu
from ops.elementwise.rectifiers import softsign as softsign
from ops.elementwise.rounding import ceil as ceil
from ops.elementwise.rounding import fake_quantize as fake_quantize
from ops.elementwise.rounding import floor as floor
from ops.elementwise.rounding import round as round
from ops.elementwise.rounding import sign as sign
from ops.elementwise.rounding import trunc as trunc
from ops.initializers import constant as constant
from ops.initializers import fan_in_uniform as fan_in_uniform
from ops.initializers import glorot_normal as glorot_normal
from ops.initializers import glorot_uniform as glorot_uniform
from ops.initializers import he_normal as he_normal
from ops.initializers import he_uniform as he_uniform
from ops.initializers import normal as normal
from ops.initializers import uniform as uniform
from ops.initializers import zeros as zeros
from ops.loss.cross_entropy import cross_entropy as cross_entropy
from ops.loss.ctc import ctc_decode as ctc_decode
from ops.loss.ctc import ctc_loss as ctc_loss
from ops.loss.elementwise import binary_cross_entropy as binary_cross_entropy
from ops.loss.elementwise import (
    binary_cross_entropy_with_logits as binary_cross_entropy_with_logits,
)
from ops.loss.elementwise import huber_loss as huber_loss
from ops.loss.elementwise import kl_div as kl_div
from ops.loss.elementwise import l1_loss as l1_loss
from ops.loss.elementwise import mean_absolute_error as mean_absolute_error
from ops.loss.elementwise import mean_squared_error as mean_squared_error
from ops.loss.elementwise import mse_loss as mse_loss
from ops.loss.elementwise import smooth_l1_loss as smooth_l1_loss
from ops.loss.in_one import softmax_cross_entropy as softmax_cross_entropy
from ops.loss.linear_cross_entropy import linear_cross_entropy as linear_cross_entropy
from ops.loss.metrics import accuracy as accuracy
from ops.loss.metrics import perplexity as perplexity
from ops.loss.metrics import root_mean_squared_error as root_mean_squared_error
from ops.loss.metrics import top_k_accuracy as top_k_accuracy
from ops.loss.nll import nll_loss as nll_loss
from ops.loss.softmax import log_softmax as log_softmax
from ops.loss.softmax import softmax as softmax
from ops.moe.dispatch import combine as combine
from ops.moe.dispatch import dispatch as dispatch
from ops.moe.dropless import expert_rows as expert_rows
from ops.moe.experts import expert_linear as expert_linear
from ops.moe.experts import mixture_of_experts as mixture_of_experts
from ops.moe.gate import count_dropped as count_dropped
from ops.moe.gate import expert_load as expert_load
from ops.moe.gate import expert_slots as expert_slots
from ops.moe.gate import load_balance_loss as load_balance_loss
from ops.moe.gate import top_k_gate as top_k_gate
from ops.moe.sparse import dense_to_sparse_gate as dense_to_sparse_gate
from ops.norm.batch_norm import batch_norm as batch_norm
from ops.norm.norms import group_norm as group_norm
from ops.norm.norms import instance_norm as instance_norm
from ops.norm.norms import layer_norm as layer_norm
from ops.norm.norms import rms_norm as rms_norm
from ops.optim.gradients import gradients as gradients
from ops.optim.groups import ParameterGroup as ParameterGroup
from ops.optim.optimizers import adagrad as adagrad
from ops.optim.optimizers import adam as adam
from ops.optim.optimizers import adama as adama
from ops.optim.optimizers import adamw as adamw
from ops.optim.optimizers import lamb as lamb
from ops.optim.optimizers import rmsprop as rmsprop
from ops.optim.optimizers import sgd as sgd
from ops.recurrent.gru import gru as gru
from ops.recurrent.gru import gru_cell as gru_cell
from ops.recurrent.gru import gru_steps as gru_steps
from ops.recurrent.gru import rnn as rnn
from ops.recurrent.gru import rnn_cell as rnn_cell
from ops.recurrent.gru import rnn_steps as rnn_steps
from ops.recurrent.layers import RecurrentWeights as RecurrentWeights
from ops.recurrent.layers import recurrent_weights as recurrent_weights
from ops.recurrent.lstm import lstm as lstm
from ops.recurrent.lstm import lstm_cell as lstm_cell
from ops.recurrent.lstm import lstm_steps as lstm_steps
from ops.reduce.adaptive_pooling import adaptive_avg_pool2d as adaptive_avg_pool2d
from ops.reduce.adaptive_pooling import adaptive_max_pool2d as adaptive_max_pool2d
from ops.reduce.extremes import amax as amax
from ops.reduce.extremes import amin as amin
from ops.reduce.extremes import argmax as argmax
from ops.reduce.extremes import argmin as argmin
from ops.reduce.extremes import global_max_pool2d as global_max_pool2d
from ops.reduce.extremes import max as max
from ops.reduce.extremes import min as min
from ops.reduce.extremes import topk as topk
from ops.reduce.pooling import avg_pool1d as avg_pool1d
from ops.reduce.pooling import avg_pool2d as avg_pool2d
from ops.reduce.pooling import max_pool1d as max_pool1d
from ops.reduce.pooling import max_pool2d as max_pool2d
from ops.reduce.reductions import global_avg_pool2d as global_avg_pool2d
from ops.reduce.reductions import mean as mean
from ops.reduce.reductions import sum as sum
from ops.reduce.reductions import sum_to as sum_to
from ops.reduce.sorting import argsort as argsort
from ops.reduce.sorting import sort as sort
from ops.relations.edges import Edges as Edges
from ops.relations.edges import edges as edges
from ops.relations.edges import graph_order as graph_order
from ops.relations.softmax import edge_softmax as edge_softmax
from ops.relations.sums import aggregate as aggregate
from ops.relations.sums import sum_edges as sum_edges
from ops.relations.sums import to_edges as to_edges
from ops.shape.columns import fold as fold
from ops.shape.columns import unfold as unfold
from ops.shape.expand import cast as cast
from ops.shape.expand import detach as detach
from ops.shape.expand import expand as expand
from ops.shape.expand import squeeze as squeeze
from ops.shape.expand import unsqueeze as unsqueeze
from ops.shape.interpolate import interpolate as interpolate
from ops.shape.padding import flip as flip
from ops.shape.padding import pad as pad
from ops.shape.padding import reverse as reverse
from ops.shape.rearrange import cat as cat
from ops.shape.rearrange import concat as concat
from ops.shape.rearrange import flatten as flatten
from ops.shape.rearrange import permute as permute
from ops.shape.rearrange import reshape as reshape
from ops.shape.rearrange import transpose as transpose
from ops.shape.sections import slice as slice
from ops.shape.sections import split as split
from ops.tables.embedding import embedding as embedding
from ops.tables.embedding import embedding_bag as embedding_bag
from ops.tables.embedding import position_embedding as position_embedding
from ops.tables.gather import gather as gather
from ops.tables.gather import gather_rows as gather_rows
from ops.tables.scatter import index_add as index_add
from ops.tables.scatter import one_hot as one_hot
from ops.tables.scatter import scatter_add as scatter_add
from ops.torch.dtensor import DTensorPlan as DTensorPlan
from ops.torch.dtensor import to_dtensor as to_dtensor
from ops.torch.from_torch import from_torch as from_torch
from ops.torch.imported import Imported as Imported
from ops.torch.state import from_torch_state as from_torch_state
from ops.torch.to_torch import to_torch as to_torch

# The classes and functions above, without aliases: other names of torch, and those before torch's.
__all__ = sorted(
    name
    for name, value in globals().items()
    if getattr(value, "__name__", "") == name != "import_module"
)

if not TYPE_CHECKING:  # a type checker would take any name for one of `ops`

    def __getattr__(name: str) -> object:
        """`ops.models`, which is made of what is above."""
        if name == "models":
            return import_module("ops.models")
        raise AttributeError(f"module 'ops' has no attribute '{name}'")
