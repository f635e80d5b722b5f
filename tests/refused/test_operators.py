"""Operators that are refused: regions that do not fit, and options that cannot be meant."""

import math

import ops
from tests.refusals import each_refused

NAN, INF = math.nan, math.inf

REFUSED = [
    (
        "gelu, unknown approximation",
        lambda r: ops.gelu(r.x, "erf"),
        "gelu 'gelu': approximate is 'erf', it is 'none' or 'tanh'",
    ),
    (
        "add of shapes that do not agree",
        lambda r: ops.add(r.x, r.image),
        "add 'add': 'x' is (5, 3) and 'image' is (2, 3, 5, 5); aligned at the right, 3 and 5 do not agree",
    ),
    (
        "add of another graph",
        lambda r: ops.add(r.x, r.other),
        "'add': input 1: region 'other' belongs to another graph",
    ),
    (
        "add of numbers",
        lambda: ops.add(1, 2.0),
        "add 'add': all operands are numbers, at least one region is needed",
        TypeError,
    ),
    (
        "sum_to what does not broadcast",
        lambda r: ops.sum_to(r.x, (4,)),
        "sum_to 'sum_to': the shape (4,) does not broadcast to that of 'x', (5, 3)",
    ),
    (
        "reshape to another number of points",
        lambda r: ops.reshape(r.x, (4, -1)),
        "reshape 'reshape': 'x' has shape (5, 3), which does not fill the shape (4, -1)",
    ),
    (
        "reshape to floats",
        lambda r: ops.reshape(r.x, (3.0, 5)),
        "reshape 'reshape': the shape is (3.0, 5), integers are needed",
    ),
    (
        "flatten from behind its end",
        lambda r: ops.flatten(r.x, 1, 0),
        "flatten 'flatten': start_dim 1 stands behind end_dim 0",
    ),
    (
        "permute one dimension twice",
        lambda r: ops.permute(r.x, (0, 0)),
        "permute 'permute': dims (0, 0) is not a permutation of the 2 dimensions of 'x'",
    ),
    ("concat of nothing", lambda: ops.concat([]), "concat 'concat': at least one region is needed"),
    (
        "concat of other widths",
        lambda r: ops.concat([r.x, r.one], 1),
        "concat 'concat': 'x' is (5, 3) and 'one' is (1, 3); only dim 1 may differ",
    ),
    (
        "softmax, dim too large",
        lambda r: ops.softmax(r.x, 2),
        "softmax 'softmax': dim is 2, the region has 2 dimensions",
    ),
    (
        "softmax, dim a float",
        lambda r: ops.softmax(r.x, 1.0),
        "softmax 'softmax': dim is 1.0, an integer is needed",
    ),
    (
        "divide by text",
        lambda r: ops.divide(r.x, "y"),
        "divide 'divide': y is a str, not a region",
        TypeError,
    ),
    (
        "exp of integers",
        lambda r: ops.exp(r.t),
        "exp 'exp': 't' is int32, a floating point dtype is needed",
    ),
    ("clip, min above max", lambda r: ops.clip(r.x, 1, 0), "clip 'clip': min is 1 and max is 0"),
    ("clip, min nan", lambda r: ops.clip(r.x, NAN), "clip 'clip': min is nan, a number is needed"),
    (
        "softplus, beta 0",
        lambda r: ops.softplus(r.x, 0),
        "softplus 'softplus': beta is 0, a positive finite number is needed",
    ),
    (
        "softplus, beta inf",
        lambda r: ops.softplus(r.x, INF),
        "softplus 'softplus': beta is inf, a positive finite number is needed",
    ),
    (
        "where a float",
        lambda r: ops.where(r.x, r.x, 0),
        "where 'where': condition 'x' is float32, bool is needed",
    ),
    (
        "where of numbers",
        lambda r: ops.where(ops.less(r.x, 0), 1, 0),
        "where 'where': x and y are 1 and 0, at least one region is needed",
    ),
    (
        "max of one dimension twice",
        lambda r: ops.max(r.x, (0, 0)),
        "max 'max': dim (0, 0) names a dimension of 'x' twice",
    ),
    (
        "argmax, dim too large",
        lambda r: ops.argmax(r.x, 2),
        "argmax 'argmax': dim is 2, the region has 2 dimensions",
    ),
    (
        "topk of more than there are",
        lambda r: ops.topk(r.x, 4),
        "topk 'topk': k is 4, dim 1 of 'x' has 3 points",
    ),
    (
        "log_softmax, dim too small",
        lambda r: ops.log_softmax(r.x, -3),
        "log_softmax 'log_softmax': dim is -3, the region has 2 dimensions",
    ),
    (
        "pad by a negative number",
        lambda r: ops.pad(r.x, (1, -1)),
        "pad 'pad': pad is (1, -1): pairs of numbers from 0, at most 2 of them, are needed",
    ),
    (
        "pad with nan",
        lambda r: ops.pad(r.x, (1, 1), NAN),
        "pad 'pad': value is nan, a number is needed",
    ),
    (
        "pad by a part",
        lambda r: ops.pad(r.x, (0.5, 1)),
        "pad 'pad': pad is (0.5, 1): pairs of numbers from 0, at most 2 of them, are needed",
    ),
    (
        "flip one dimension twice",
        lambda r: ops.flip(r.x, (0, -2)),
        "flip 'flip': dims (0, -2) names a dimension of 'x' twice",
    ),
    (
        "gather by another shape",
        lambda r: ops.gather(r.x, 0, r.t),
        "gather 'gather': 'x' is (5, 3) and 't' is (5,); only dim 0 may differ",
    ),
    (
        "expand to what does not broadcast",
        lambda r: ops.expand(r.x, (5, 4)),
        "expand 'expand': 'x' has shape (5, 3), which does not broadcast to (5, 4)",
    ),
    (
        "expand to floats",
        lambda r: ops.expand(r.x, (5, 3.0)),
        "expand 'expand': the shape is (5, 3.0), integers are needed",
    ),
    (
        "unsqueeze, dim too large",
        lambda r: ops.unsqueeze(r.x, 3),
        "unsqueeze 'unsqueeze': dim is 3, the region has 3 dimensions",
    ),
    (
        "leaky_relu, slope nan",
        lambda r: ops.leaky_relu(r.x, NAN),
        "leaky_relu 'leaky_relu': negative_slope is nan, a finite number is needed",
    ),
    (
        "elu, alpha inf",
        lambda r: ops.elu(r.x, INF),
        "elu 'elu': alpha is inf, a finite number is needed",
    ),
    (
        "celu, alpha 0",
        lambda r: ops.celu(r.x, 0),
        "celu 'celu': alpha is 0, a finite number other than 0 is needed",
    ),
    (
        "hardtanh, max in words",
        lambda r: ops.hardtanh(r.x, -1, "1"),
        "hardtanh 'hardtanh': max_val is '1', a number is needed",
    ),
    (
        "index_add, alpha nan",
        lambda r: ops.index_add(r.x, 0, r.t, r.x, NAN),
        "index_add 'index_add': alpha is nan, a finite number is needed",
    ),
    (
        "index_add of another extent",
        lambda r: ops.index_add(r.x, 1, r.t, r.x),
        "index_add 'index_add': 'x' is (5, 3), 't' is (5,) and 'x' is (5, 3)",
    ),
    ("sum, dim True", lambda r: ops.sum(r.x, True), "sum 'sum': dim is True, an integer is needed"),
    (
        "slice from a float",
        lambda r: ops.slice(r.x, 0, 0.0, 2),
        "slice 'slice': start is 0.0, an integer from 0 on is needed",
    ),
    (
        "scatter_add by another shape",
        lambda r: ops.scatter_add(r.x, 0, r.t, r.x),
        "scatter_add 'scatter_add': 'x' is (5, 3) and 't' is (5,); only dim 0 may differ",
    ),
]
test_refused = each_refused(REFUSED)
