"""ops: the operators of deep learning as clients of taskflow's public names.

Each function launches one or a few operators on the graph of its first input and gives the output region. Arguments
are torch.nn.functional's: input regions first; where there are weights, the output extent second.
"""

from ops.activation import gelu, relu, sigmoid, tanh
from ops.arithmetic import add, multiply, subtract, sum_to
from ops.batch_norm import batch_norm
from ops.convolution import conv2d
from ops.dropout import dropout
from ops.embedding import embedding
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
from ops.layer_norm import layer_norm
from ops.linear import linear
from ops.loss import mean_squared_error
from ops.metrics import accuracy
from ops.optimizers import adam, adamw, sgd
from ops.pooling import avg_pool2d, max_pool2d
from ops.shape import concat, flatten, reshape, transpose
from ops.softmax import softmax, softmax_cross_entropy

__all__ = [
    "accuracy",
    "adam",
    "adamw",
    "add",
    "avg_pool2d",
    "batch_norm",
    "concat",
    "constant",
    "conv2d",
    "dropout",
    "embedding",
    "fan_in_uniform",
    "flatten",
    "gelu",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "layer_norm",
    "linear",
    "max_pool2d",
    "mean_squared_error",
    "multiply",
    "normal",
    "relu",
    "reshape",
    "sgd",
    "sigmoid",
    "softmax",
    "softmax_cross_entropy",
    "subtract",
    "sum_to",
    "tanh",
    "transpose",
    "uniform",
    "zeros",
]
