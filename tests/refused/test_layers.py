"""Layers that are refused: regions that do not fit, and options that cannot be meant."""

import math

import numpy as np

import ops
from tests.refusals import each_refused, of_values

NAN, INF = math.nan, math.inf

REFUSED = [
    (
        "linear of a number",
        lambda: ops.linear(3, 4),
        "linear 'linear': x is a int, not a region",
        TypeError,
    ),
    (
        "linear of integers",
        lambda r: ops.linear(r.t, 4),
        "linear 'linear': 't' is int32, a floating point dtype is needed",
    ),
    (
        "linear of a scalar",
        lambda r: ops.linear(r.scalar, 4),
        "linear 'linear': 'scalar' has shape (), at least one dimension is needed",
    ),
    (
        "linear, no features",
        lambda r: ops.linear(r.x, 0, name="fc1"),
        "linear 'fc1': out_features is 0, a positive integer is needed",
    ),
    (
        "linear, unknown activation",
        lambda r: ops.linear(r.x, 4, activation="gelu"),
        "linear 'linear': activation is 'gelu', it is 'relu' or 'gelu_tanh'",
    ),
    (
        "linear, bias_init without a bias",
        lambda r: ops.linear(r.x, 4, bias=False, bias_init=0.5, name="fc"),
        "'fc': bias_init is 0.5, but there is no bias",
    ),
    (
        "conv2d of a matrix",
        lambda r: ops.conv2d(r.x, 4, 3),
        "conv2d 'conv2d': 'x' has shape (5, 3), 4 dimensions are needed",
    ),
    (
        "conv2d, window too large",
        lambda r: ops.conv2d(r.image, 4, 7, name="c"),
        "conv2d 'c': a window of 7 points does not fit into the 5 points of 'image' and a padding of 0",
    ),
    (
        "conv2d, stride 0",
        lambda r: ops.conv2d(r.image, 4, 3, stride=0),
        "conv2d 'conv2d': stride is 0, a positive integer is needed",
    ),
    (
        "conv2d, one size of two",
        lambda r: ops.conv2d(r.image, 4, (3,)),
        "conv2d 'conv2d': kernel_size is (3,), an integer or two are needed",
    ),
    (
        "conv2d, negative padding",
        lambda r: ops.conv2d(r.image, 4, 3, padding=-1),
        "conv2d 'conv2d': padding is -1, an integer from 0 on is needed",
    ),
    (
        "conv2d, uneven groups",
        lambda r: ops.conv2d(r.image, 4, 3, groups=3),
        "conv2d 'conv2d': out_channels is 4, which does not divide into 3 groups",
    ),
    (
        "conv2d, window of a float",
        lambda r: ops.conv2d(r.wide, 4, 2.0),
        "conv2d 'conv2d': kernel_size is 2.0, an integer or two are needed",
    ),
    (
        "conv2d, bias_init without a bias",
        lambda r: ops.conv2d(r.wide, 4, 3, bias=False, bias_init=0.5),
        "'conv2d': bias_init is 0.5, but there is no bias",
    ),
    (
        "max_pool2d, padding too large",
        lambda r: ops.max_pool2d(r.image, 2, padding=2),
        "max_pool2d 'max_pool2d': padding is 2, more than half the kernel size 2",
    ),
    (
        "max_pool2d, window of 0",
        lambda r: ops.max_pool2d(r.wide, 0),
        "max_pool2d 'max_pool2d': kernel_size is 0, a positive integer is needed",
    ),
    (
        "batch_norm of one sample",
        lambda r: ops.batch_norm(r.one),
        "batch_norm 'batch_norm': 'one' is (1, 3): training needs more than one value per channel",
    ),
    (
        "batch_norm of a sample a part",
        lambda r: ops.batch_norm(r.x, parts=5),
        "batch_norm 'batch_norm': 'x' is (5, 3): training needs more than one value per channel in each of 5 parts",
    ),
    (
        "batch_norm, uneven parts",
        lambda r: ops.batch_norm(r.image, parts=3, name="bn1"),
        "batch_norm 'bn1': the 2 samples of 'image' do not divide into 3 parts",
    ),
    (
        "batch_norm, no parts",
        lambda r: ops.batch_norm(r.x, parts=0),
        "batch_norm 'batch_norm': parts is 0, a positive integer is needed",
    ),
    (
        "batch_norm, eps True",
        lambda r: ops.batch_norm(r.x, eps=True),
        "batch_norm 'batch_norm': eps is True, a positive finite number is needed",
    ),
    (
        "batch_norm, momentum above 1",
        lambda r: ops.batch_norm(r.x, momentum=3),
        "batch_norm 'batch_norm': momentum is 3, a number in [0, 1] is needed",
    ),
    (
        "layer_norm, eps a shape",
        lambda r: ops.layer_norm(r.x, (3,)),
        "layer_norm 'layer_norm': eps is (3,), a positive finite number is needed",
    ),
    (
        "layer_norm, eps nan",
        lambda r: ops.layer_norm(r.x, eps=NAN),
        "layer_norm 'layer_norm': eps is nan, a positive finite number is needed",
    ),
    (
        "rms_norm, eps 0",
        lambda r: ops.rms_norm(r.x, 0),
        "rms_norm 'rms_norm': eps is 0, a positive finite number is needed",
    ),
    (
        "rms_norm of a scalar",
        lambda r: ops.rms_norm(r.scalar),
        "rms_norm 'rms_norm': 'scalar' has shape (), at least one dimension is needed",
    ),
    (
        "rms_norm, eps below 0",
        lambda r: ops.rms_norm(r.x, eps=-1e-6),
        "rms_norm 'rms_norm': eps is -1e-06, a positive finite number is needed",
    ),
    (
        "group_norm, eps nan",
        lambda r: ops.group_norm(r.image, 3, NAN),
        "group_norm 'group_norm': eps is nan, a positive finite number is needed",
    ),
    (
        "group_norm, uneven groups",
        lambda r: ops.group_norm(r.image, 2),
        "group_norm 'group_norm': 3 channels do not divide into 2 groups",
    ),
    (
        "group_norm, weight_init without weights",
        lambda r: ops.group_norm(r.wide, 2, affine=False, weight_init=2.0),
        "group_norm 'group_norm': first values are given, but there are no parameters: affine is False",
    ),
    (
        "dropout, p above 1",
        lambda r: ops.dropout(r.x, 1.5),
        "dropout 'dropout': p is 1.5, a number in [0, 1] is needed",
    ),
    (
        "dropout, p below 0",
        lambda r: ops.dropout(r.x, -0.1),
        "dropout 'dropout': p is -0.1, a number in [0, 1] is needed",
    ),
    (
        "dropout, p in words",
        lambda r: ops.dropout(r.x, "half"),
        "dropout 'dropout': p is 'half', a number in [0, 1] is needed",
    ),
    (
        "embedding of floats",
        lambda r: ops.embedding(r.x, 3, 2),
        "embedding 'embedding': indices 'x' is float32, an integer dtype is needed",
    ),
    (
        "embedding of dtype int32",
        lambda r: ops.embedding(r.t, 4, 3, dtype="int32"),
        "embedding 'embedding': dtype is 'int32', a floating point dtype is needed",
    ),
    (
        "embedding, padding_idx too large",
        lambda r: ops.embedding(r.t, 4, 3, padding_idx=4),
        "embedding 'embedding': padding_idx is 4, the table has 4 rows",
    ),
    (
        "conv1d of a matrix",
        lambda r: ops.conv1d(r.x, 4, 3),
        "conv1d 'conv1d': 'x' has shape (5, 3), 3 dimensions are needed",
    ),
    (
        "conv1d, window too large",
        lambda r: ops.conv1d(ops.unsqueeze(r.x, 0), 4, 4, name="c"),
        "conv1d 'c': a window of 4 points does not fit into the 3 points of 'unsqueeze' and a padding of 0",
    ),
    (
        "conv1d, padding in part",
        lambda r: ops.conv1d(r.line, 4, 3, padding=0.5),
        "conv1d 'conv1d': padding is 0.5, an integer is needed",
    ),
    (
        "adaptive_avg_pool2d to nothing",
        lambda r: ops.adaptive_avg_pool2d(r.image, 0),
        "adaptive_avg_pool2d 'adaptive_avg_pool2d': output_size is 0, a positive integer is needed",
    ),
    (
        "gru_cell, another batch of states",
        lambda r: ops.gru_cell(r.x, r.one),
        "gru_cell 'gru_cell': 'x' is (5, 3) and 'one' is (1, 3)",
    ),
    (
        "gru_cell, weights of four gates",
        lambda r: ops.gru_cell(r.x, r.x, ops.recurrent_weights(r.x.graph, "w", 4, 3, 3)),
        "gru_cell 'w': the weights are for 4 gates, 3 are needed",
    ),
    (
        "rnn_cell, unknown nonlinearity",
        lambda r: ops.rnn_cell(r.x, r.x, nonlinearity="elu"),
        "rnn_cell 'rnn_cell': nonlinearity is 'elu', it is 'tanh' or 'relu'",
    ),
    (
        "memory_linear_attention of a matrix",
        lambda r: ops.memory_linear_attention(r.image, r.image, r.x),
        "memory_linear_attention 'attention': 'x' has shape (5, 3), 4 dimensions are needed",
    ),
    (
        "multihead_attention, memory-linear with dropout",
        lambda r: ops.multihead_attention(
            ops.unsqueeze(r.x, 0), 1, dropout_p=0.5, memory_linear=True
        ),
        "multihead_attention 'attention': memory-linear attention has no dropout, dropout_p is 0.5",
    ),
    (
        "multihead_attention, fused with dropout",
        lambda r: ops.multihead_attention(ops.unsqueeze(r.x, 0), 1, dropout_p=0.5, fused=True),
        "multihead_attention 'attention': fused attention has no dropout, dropout_p is 0.5",
    ),
    (
        "multihead_attention, memory-linear and fused",
        lambda r: ops.multihead_attention(ops.unsqueeze(r.x, 0), 1, memory_linear=True, fused=True),
        "multihead_attention 'attention': it is either memory_linear or fused, not both",
    ),
    (
        "multihead_attention, fused with a mask",
        lambda r: ops.multihead_attention(r.line, 1, fused=True, mask=r.mask),
        "multihead_attention 'attention': fused attention has no mask, 'mask' was given",
    ),
    (
        "multihead_attention, joined with alibi",
        lambda r: ops.multihead_attention(r.line, 1, fused=True, joined=True, alibi=True),
        "multihead_attention 'attention': joined attention has no alibi",
    ),
    (
        "alibi_slopes of no heads",
        lambda r: ops.alibi_slopes(0),
        "alibi_slopes: heads is 0, a positive integer is needed",
    ),
    (
        "multihead_attention, joined with scores",
        lambda r: ops.multihead_attention(ops.unsqueeze(r.x, 0), 1, joined=True),
        "multihead_attention 'attention': joined=True is for fused attention without memory or kv_heads",
    ),
    (
        "feed_forward, unknown activation",
        lambda r: ops.feed_forward(r.x, 4, activation="silu"),
        "feed_forward 'feed_forward': activation is 'silu', it is 'gelu_tanh' or 'relu'",
    ),
    (
        "feed_forward, no hidden features",
        lambda r: ops.feed_forward(r.x, 0),
        "feed_forward 'feed_forward': hidden_features is 0, a positive integer is needed",
    ),
    (
        "fused_attention of a matrix",
        lambda r: ops.fused_attention(r.image, r.image, r.x),
        "fused_attention 'attention': 'x' has shape (5, 3), 4 dimensions are needed",
    ),
    (
        "fused_attention, scale nan",
        lambda r: ops.fused_attention(r.heads, r.heads, r.heads, scale=NAN),
        "fused_attention 'attention': scale is nan, a finite number is needed",
    ),
    (
        "dropout2d, p nan",
        lambda r: ops.dropout2d(r.wide, NAN),
        "dropout2d 'dropout2d': p is nan, a number in [0, 1] is needed",
    ),
    (
        "scaled_dot_product_attention, p above 1",
        lambda r: ops.scaled_dot_product_attention(
            r.heads, r.heads, r.heads, dropout_p=2, training=False
        ),
        "dropout 'attention.drop': p is 2, a number in [0, 1] is needed",
    ),
    (
        "scaled_dot_product_attention, mask of another shape",
        lambda r: ops.scaled_dot_product_attention(r.heads, r.heads, r.heads, mask=r.mask),
        "scaled_dot_product_attention 'attention': mask 'mask' is (2, 3, 4, 5), the scores are (2, 3, 5, 5)",
    ),
    (
        "lstm, dropout above 1",
        lambda r: ops.lstm(r.line, 3, dropout=1.5),
        "lstm 'lstm': dropout is 1.5, a number in [0, 1] is needed",
    ),
    (
        "gru, dropout nan",
        lambda r: ops.gru(r.line, 3, dropout=NAN),
        "gru 'gru': dropout is nan, a number in [0, 1] is needed",
    ),
    (
        "rotary_embedding of an odd extent",
        lambda r: ops.rotary_embedding(r.wide, INF),
        "rotary_embedding 'rotary_embedding': 'image' has shape (2, 4, 5, 5), at least three dimensions "
        "and an even extent of the last are needed",
    ),
    (
        "rotary_embedding, infinite base",
        lambda r: ops.rotary_embedding(r.heads, INF),
        "rotary_embedding 'rotary_embedding': base is inf, a positive finite number is needed",
    ),
    (
        "mixture_of_experts, infinite capacity",
        lambda r: ops.mixture_of_experts(r.x, 2, 3, capacity_factor=INF),
        "mixture_of_experts 'experts': capacity_factor is inf, a positive finite number is needed",
    ),
    (
        "avg_pool1d, negative padding",
        lambda r: ops.avg_pool1d(r.line, 2, padding=-1),
        "avg_pool1d 'avg_pool1d': padding is -1, an integer from 0 on is needed",
    ),
    (
        "conv_transpose1d, padding in part",
        lambda r: ops.conv_transpose1d(r.line, 4, 3, padding=0.5),
        "conv_transpose1d 'conv_transpose1d': padding is 0.5, an integer is needed",
    ),
    (
        "top_k_gate, k in part",
        lambda r: ops.top_k_gate(r.x, 1.5),
        "top_k_gate 'top_k_gate': k is 1.5, a positive integer is needed",
    ),
    (
        "fold, another number of columns",
        lambda r: ops.fold(r.line, 4, 2),
        "fold 'fold': 'line' is (2, 4, 5); 3 times 3 columns of a multiple of 4 points are needed",
    ),
    (
        "embedding_bag, padding_idx in part",
        lambda r: ops.embedding_bag(r.t, 4, 3, padding_idx=0.5),
        "embedding_bag 'embedding_bag': padding_idx is 0.5, the table has 4 rows",
    ),
    *of_values(
        "dropout 'dropout': p is {!r}, a number in [0, 1] is needed",
        lambda value, r: ops.dropout(r.x, value),
        (np.float32(2), np.int64(-1), np.float64("nan")),
    ),
]
test_refused = each_refused(REFUSED)


def test_a_probability_of_numpy_is_one(r):
    assert ops.dropout(r.x, np.bool_(True)).shape == r.x.shape
