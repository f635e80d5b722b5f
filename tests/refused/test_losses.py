"""Losses and metrics that are refused: regions that do not fit, and options that cannot be meant."""

import math

import ops
from tests.refusals import each_refused

NAN = math.nan

REFUSED = [
    (
        "softmax_cross_entropy of floats as classes",
        lambda r: ops.softmax_cross_entropy(r.x, r.x),
        "softmax_cross_entropy 'softmax_cross_entropy': t 'x' is float32, an integer dtype is needed",
    ),
    (
        "softmax_cross_entropy of 4 classes",
        lambda r: ops.softmax_cross_entropy(r.x, r.t, classes=4),
        "softmax_cross_entropy 'softmax_cross_entropy': classes is 4, 'x' has 3 columns",
    ),
    (
        "softmax_cross_entropy of 4 classes, smoothed",
        lambda r: ops.softmax_cross_entropy(r.x, r.t, classes=4, label_smoothing=0.1),
        "softmax_cross_entropy 'softmax_cross_entropy': classes is 4, 'x' has 3 columns",
    ),
    (
        "accuracy of other samples",
        lambda r: ops.accuracy(r.one, r.t),
        "accuracy 'accuracy': 'one' is (1, 3) and 't' is (5,), not (1,)",
    ),
    (
        "accuracy, ignore_index in words",
        lambda r: ops.accuracy(r.x, r.t, ignore_index="pad"),
        "accuracy 'accuracy': ignore_index is 'pad', an integer or None is needed",
    ),
    (
        "mse_loss of other samples",
        lambda r: ops.mse_loss(r.x, r.one),
        "mse_loss 'mse_loss': 'x' is (5, 3) and 'one' is (1, 3)",
    ),
    (
        "cross_entropy, reduction max",
        lambda r: ops.cross_entropy(r.x, r.t, reduction="max"),
        "cross_entropy 'cross_entropy': reduction is 'max', it is 'mean', 'sum' or 'none'",
    ),
    (
        "cross_entropy, smoothing of 2",
        lambda r: ops.cross_entropy(r.x, r.t, label_smoothing=2),
        "cross_entropy 'cross_entropy': label_smoothing is 2, a number in [0, 1] is needed",
    ),
    (
        "cross_entropy, ignore_index in part",
        lambda r: ops.cross_entropy(r.x, r.t, 0.5),
        "cross_entropy 'cross_entropy': ignore_index is 0.5, an integer or None is needed",
    ),
    (
        "cross_entropy, ignore_index of probabilities",
        lambda r: ops.cross_entropy(r.x, r.x, 3),
        "cross_entropy 'cross_entropy': ignore_index is 3, but 'x' has probabilities, no classes",
    ),
    (
        "cross_entropy, weights in two dimensions",
        lambda r: ops.cross_entropy(r.x, r.t, weight=r.x),
        "cross_entropy 'cross_entropy': weight 'x' is (5, 3), there are 3 classes",
    ),
    (
        "huber_loss, delta 0",
        lambda r: ops.huber_loss(r.x, r.x, 0),
        "huber_loss 'huber_loss': delta is 0, a positive number is needed",
    ),
    (
        "huber_loss, delta nan",
        lambda r: ops.huber_loss(r.x, r.x, NAN),
        "huber_loss 'huber_loss': delta is nan, a positive number is needed",
    ),
    (
        "top_k_accuracy of none",
        lambda r: ops.top_k_accuracy(r.x, r.t, 0),
        "top_k_accuracy 'top_k_accuracy': k is 0, a positive integer is needed",
    ),
    (
        "top_k_accuracy of 4 classes",
        lambda r: ops.top_k_accuracy(r.x, r.t, classes=4),
        "top_k_accuracy 'top_k_accuracy': classes is 4, 'x' has 3 columns",
    ),
    (
        "smooth_l1_loss, beta -1",
        lambda r: ops.smooth_l1_loss(r.x, r.x, -1),
        "smooth_l1_loss 'smooth_l1_loss': beta is -1, a finite number from 0 on is needed",
    ),
    (
        "nll_loss, integers as weights",
        lambda r: ops.nll_loss(r.x, r.t, weight=r.t),
        "nll_loss 'nll_loss': 't' is int32, a floating point dtype is needed",
    ),
    (
        "kl_div, reduction batch",
        lambda r: ops.kl_div(r.x, r.x, reduction="batch"),
        "kl_div 'kl_div': reduction is 'batch', it is 'mean', 'sum', 'none' or 'batchmean'",
    ),
    (
        "binary_cross_entropy_with_logits, pos_weight of another shape",
        lambda r: ops.binary_cross_entropy_with_logits(r.x, r.x, pos_weight=r.wide),
        "binary_cross_entropy_with_logits 'binary_cross_entropy_with_logits': pos_weight 'image' is (2, "
        "4, 5, 5), 'x' is (5, 3)",
    ),
]
test_refused = each_refused(REFUSED)
