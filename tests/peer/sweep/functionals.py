"""The functions of torch.nn.functional: inputs, and calls of them as text with the inputs `x`, `y`, `z`, `w`.

`LEFT_OUT` says why the others are no cases.
"""

LEFT_OUT = {
    "Optional": "no function",
    "assert_int_or_pair": "checks arguments",
    "boolean_dispatch": "makes functions",
    "handle_torch_function": "dispatches",
    "has_torch_function": "dispatches",
    "has_torch_function_unary": "dispatches",
    "has_torch_function_variadic": "dispatches",
    "grouped_mm": "runs on GPUs in bfloat16",
    "scaled_mm": "runs on GPUs in float8",
    "scaled_grouped_mm": "runs on GPUs in float8",
    "native_channel_shuffle": "is channel_shuffle",
    "conv_tbc": "has no derivative in an export",
}

_IMAGE, _LINE, _VOLUME = "2 3 6 6", "2 3 8", "2 2 4 5 4"


def _each(call: str, *more: str) -> tuple[str, ...]:
    """The call alone, and with each of more arguments."""
    return (f"{call})", *(f"{call}, {text})" for text in more))


_REDUCED = ("reduction='sum'", "reduction='none'")

FUNCTIONS: dict[str, tuple[str, ...]] = {
    "adaptive_avg_pool1d": (_LINE, "(x, 3)", "(x, 1)"),
    "adaptive_avg_pool2d": (_IMAGE, "(x, (4, None))", "(x[0], 2)"),
    "adaptive_avg_pool3d": (_VOLUME, "(x, 2)"),
    "adaptive_max_pool1d": (_LINE, "(x, 3)", "(x, 3, True)"),
    "adaptive_max_pool1d_with_indices": (_LINE, "(x, 3)[0]"),
    "adaptive_max_pool2d": (_IMAGE, "(x, 3)", "(x, (2, 5))"),
    "adaptive_max_pool2d_with_indices": (_IMAGE, "(x, 3)[0]"),
    "adaptive_max_pool3d": (_VOLUME, "(x, 2)"),
    "adaptive_max_pool3d_with_indices": (_VOLUME, "(x, 2)[0]"),
    "affine_grid": ("2 2 3", "(x, (2, 3, 4, 5), False)", "(x, (2, 3, 4, 5), True)"),
    "alpha_dropout": ("4 3", "(x, 0.3, False)", "(x, 0.3, True)"),
    "avg_pool1d": (_LINE, "(x, 3)", "(x, 3, 2, 1)", "(x, 3, 2, 1, True, False)"),
    "avg_pool2d": (_IMAGE, "(x, 3)", "(x, 3, 2, 1, True, False, 2)", "(x[0], 2)"),
    "avg_pool3d": (_VOLUME, "(x, 2)", "(x, 3, 2, 1)"),
    "batch_norm": (
        f"{_LINE}; 3; u 3; 3; 3",
        "(x, y, z)",
        "(x, y, z, w, v)",
        "(x, None, None, training=True)",
        "(x, y, z, w, v, eps=0.1)",
        "(x, None, None, w, v, True, 0.3, 0.1)",
    ),
    "bilinear": ("4 3; 4 2; 5 3 2; 5", "(x, y, z)", "(x, y, z, w)"),
    "binary_cross_entropy": ("u 4 3; u 4 3; u 4 3", *_each("(x, y", *_REDUCED, "z", "z, reduction='sum'")),
    "binary_cross_entropy_with_logits": (
        "4 3; u 4 3; u 4 3; u 3",
        *_each("(x, y", *_REDUCED, "z", "z, pos_weight=w", "pos_weight=w, reduction='none'"),
    ),
    "celu": ("4 3", "(x)", "(x, 0.5)"),
    "celu_": ("4 3", "(x * 2)"),
    "channel_shuffle": ("2 4 3", "(x, 2)"),
    "conv1d": (f"{_LINE}; 4 3 3; 4; 6 1 2", "(x, y)", "(x, y, z, 2, 1, 2)", "(x, w, groups=3)", "(x, y, padding='same')"),
    "conv2d": (f"{_IMAGE}; 4 3 3 2; 4", "(x, y)", "(x, y, z, (2, 1), (1, 0), (1, 2))", "(x[0], y)", "(x, y, z, 1, 'same')"),
    "conv3d": (f"{_VOLUME}; 4 2 2 2 2; 4", "(x, y)", "(x, y, z, 2, 1)"),
    "conv_transpose1d": (f"{_LINE}; 3 4 3; 4", "(x, y)", "(x, y, z, 2, 1, 1)", "(x, y, z, 3, 0, 2, 1, 2)"),
    "conv_transpose2d": (f"{_IMAGE}; 3 4 3 2; 4", "(x, y)", "(x, y, z, 2, 1, 1)", "(x[0], y)"),
    "conv_transpose3d": (f"{_VOLUME}; 2 3 2 2 2", "(x, y)"),
    "cosine_embedding_loss": ("4 3; 4 3; s 4", *_each("(x, y, z", *_REDUCED, "0.3")),
    "cosine_similarity": ("4 3; 4 3", *_each("(x, y", "0", "1, 0.5")),
    "cross_entropy": (
        "4 3; i3 4; u 3; p 4 3",
        *_each("(x, y", *_REDUCED, "z", "ignore_index=1", "label_smoothing=0.2", "z, ignore_index=2, reduction='sum'"),
        "(x, w)",
        "(x, w, z, label_smoothing=0.1)",
        "(x[0], y[0])",
    ),
    "ctc_loss": ("l 6 2 5; i5 2 3", "(x, y, (6, 6), (2, 3))"),
    "dropout": ("4 3", "(x, 0.3, False)", "(x, 0.0)", "(x, 1.0)"),
    "dropout1d": (_LINE, "(x, 0.3, False)", "(x, 0.0)", "(x, 0.3)"),
    "dropout2d": (_IMAGE, "(x, 0.3, False)", "(x, 0.0)", "(x, 0.3)"),
    "dropout3d": (_VOLUME, "(x, 0.3, False)", "(x, 0.0)", "(x, 0.3)"),
    "elu": ("4 3", "(x)", "(x, 0.5)", "(x, -1.0)"),
    "elu_": ("4 3", "(x * 2)"),
    "embedding": (
        "i7 2 5; 7 3",
        "(x, y)",
        "(x, y, 2)",
        "(x, y, -2)",
        "(x, y, scale_grad_by_freq=True)",
        "(x, y, sparse=True)",
        "(x, y, max_norm=1.0)",
    ),
    "embedding_bag": (
        "i7 3 4; 7 3; u 3 4; i7 12",
        "(x, y)",
        "(x, y, mode='sum')",
        "(x, y, mode='max')",
        "(x, y, mode='sum', per_sample_weights=z)",
        "(x, y, padding_idx=2)",
        "(w, y, torch.tensor([0, 4, 8]))",
        "(w, y, torch.tensor([0, 3, 8]))",
        "(w, y, torch.tensor([0, 6, 12]), include_last_offset=True)",
    ),
    "feature_alpha_dropout": (_IMAGE, "(x, 0.3, False)", "(x, 0.3, True)"),
    "fold": ("2 12 9", "(x, (4, 4), 2)"),
    "fractional_max_pool2d": (_IMAGE, "(x, 2, 3)"),
    "fractional_max_pool2d_with_indices": (_IMAGE, "(x, 2, 3)[0]"),
    "fractional_max_pool3d": (_VOLUME, "(x, 2, 2)"),
    "fractional_max_pool3d_with_indices": (_VOLUME, "(x, 2, 2)[0]"),
    "gaussian_nll_loss": ("4 3; 4 3; u 4 3", *_each("(x, y, z", *_REDUCED, "full=True"), "(x, y, 0.5)"),
    "gelu": ("4 3", "(x)", "(x, approximate='tanh')"),
    "glu": ("4 6", "(x)", "(x, 0)"),
    "grid_sample": (f"{_IMAGE}; 2 4 5 2", *_each("(x, y", "align_corners=False", "mode='nearest'")),
    "group_norm": ("2 4 5; 4; 4", "(x, 2)", "(x, 2, y, z)", "(x, 4, y)", "(x, 1, None, z, 0.1)"),
    "gumbel_softmax": ("4 3", "(x)"),
    "hardshrink": ("4 3", "(x)", "(x, 1.0)", "(x, 0.0)"),
    "hardsigmoid": ("4 3", "(x)"),
    "hardswish": ("4 3", "(x)"),
    "hardtanh": ("4 3", "(x)", "(x, -0.5, 3.0)"),
    "hardtanh_": ("4 3", "(x * 2)"),
    "hinge_embedding_loss": ("4 3; s 4 3", *_each("(x, y", *_REDUCED, "0.5")),
    "huber_loss": ("4 3; 4 3; u 4 3", *_each("(x, y", *_REDUCED, "delta=0.5", "weight=z")),
    "instance_norm": (f"{_LINE}; 3; u 3; 3; 3", "(x)", "(x, weight=w, bias=v)", "(x, y, z, use_input_stats=False)"),
    "interpolate": (
        _IMAGE,
        "(x, 9)",
        "(x, scale_factor=2)",
        "(x, scale_factor=0.5)",
        "(x, (4, 9), mode='bilinear')",
        "(x, 9, mode='bilinear', align_corners=True)",
        "(x, scale_factor=1.7, mode='bilinear', recompute_scale_factor=True)",
        "(x, 9, mode='bicubic')",
        "(x, scale_factor=(1.5, 0.7), mode='bicubic', align_corners=True)",
        "(x, 4, mode='area')",
        "(x, 9, mode='nearest-exact')",
        "(x, 4, mode='bilinear', antialias=True)",
        "(x[0], 9, mode='linear')",
    ),
    "kl_div": ("l 4 3; p 4 3; l 4 3", *_each("(x, y", *_REDUCED, "reduction='batchmean'"), "(x, z, log_target=True)"),
    "l1_loss": ("4 3; 4 3; u 4 3; 3", *_each("(x, y", *_REDUCED, "weight=z"), "(x, w)"),
    "layer_norm": ("2 4 5; 5; 5; 4 5", "(x, (5,))", "(x, (5,), y, z, 0.1)", "(x, (4, 5), w)", "(x, (5,), None, z)"),
    "leaky_relu": ("4 3", "(x)", "(x, 0.3)", "(x, -0.5)", "(x, 0.0)"),
    "leaky_relu_": ("4 3", "(x * 2)"),
    "linear": ("4 3; 5 3; 5; 3", "(x, y)", "(x, y, z)", "(x, w)", "(x[0], y, z)"),
    "linear_cross_entropy": ("4 3; 5 3; i5 4", "(x, y, z)"),
    "local_response_norm": (_IMAGE, "(x, 2)", "(x, 3, 0.1, 0.5, 2.0)"),
    "log_softmax": ("4 3", "(x, 1)", "(x, 0)", "(x, -1, dtype=torch.float64)"),
    "logsigmoid": ("4 3", "(x)"),
    "lp_pool1d": (_LINE, "(x, 2, 3)", "(x, 1, 2, 1)", "(x, 3, 2)"),
    "lp_pool2d": (_IMAGE, "(x, 2, 3)", "(x, 2, 3, ceil_mode=True)"),
    "lp_pool3d": (_VOLUME, "(x, 2, 2)"),
    "margin_ranking_loss": ("4; 4; s 4", *_each("(x, y, z", *_REDUCED, "0.5")),
    "max_pool1d": (_LINE, "(x, 3)", "(x, 3, 2, 1)", "(x, 3, 2, 1, 2)", "(x, 3, ceil_mode=True)"),
    "max_pool1d_with_indices": (_LINE, "(x, 3)[0]"),
    "max_pool2d": (_IMAGE, "(x, 3)", "(x, 3, 2, 1, ceil_mode=True)", "(x, 2, dilation=2)", "(x[0], 2)"),
    "max_pool2d_with_indices": (_IMAGE, "(x, 3)[0]", "(x, 2)"),
    "max_pool3d": (_VOLUME, "(x, 2)", "(x, 3, 2, 1)"),
    "max_pool3d_with_indices": (_VOLUME, "(x, 2)[0]"),
    "max_unpool1d": ("2 3 4", "(*F.max_pool1d(x, 2, return_indices=True), 2)"),
    "max_unpool2d": ("2 3 4 4", "(*F.max_pool2d(x, 2, return_indices=True), 2)"),
    "max_unpool3d": ("2 2 4 4 4", "(*F.max_pool3d(x, 2, return_indices=True), 2)"),
    "mish": ("4 3", "(x)"),
    "mse_loss": ("4 3; 4 3; u 4 3; 3", *_each("(x, y", *_REDUCED, "weight=z"), "(x, w)"),
    "multi_head_attention_forward": (
        "4 2 8; 24 8; 24; 8 8",
        "(x, x, x, 8, 2, y, z, None, None, False, 0.0, w, None)",
    ),
    "multi_margin_loss": ("4 3; i3 4; u 3", *_each("(x, y", *_REDUCED, "2, 0.5", "1, 0.3, z")),
    "multilabel_margin_loss": ("4 3; i3 4 3", *_each("(x, y", *_REDUCED)),
    "multilabel_soft_margin_loss": ("4 3; u 4 3; u 3", *_each("(x, y", *_REDUCED, "z")),
    "nll_loss": ("l 4 3; i3 4; u 3; l 2 3 4; i3 2 4", *_each("(x, y", *_REDUCED, "z", "ignore_index=1"), "(w, v)"),
    "normalize": ("4 3", "(x)", "(x, 1.0)", "(x, 3.0, 0)", "(x, 2.0, 1, 0.5)", "(x, float('inf'))"),
    "one_hot": ("i5 4", "(x, 5)", "(x, 7).double()", "(x)"),
    "pad": (
        _LINE,
        "(x, (1, 2))",
        "(x, (1, -2, 1, 0), value=3.0)",
        "(x, (1, 2), mode='reflect')",
        "(x, (1, 2), mode='replicate')",
        "(x, (3, 2), mode='circular')",
    ),
    "pairwise_distance": ("4 3; 4 3", *_each("(x, y", "1.0", "3.0", "2.0, 0.1, True", "float('inf')")),
    "pdist": ("4 3", "(x)", "(x, 1.0)"),
    "pixel_shuffle": ("2 8 3 3", "(x, 2)"),
    "pixel_unshuffle": (_IMAGE, "(x, 3)"),
    "poisson_nll_loss": ("4 3; u 4 3", *_each("(x, y", "False", "full=True", "False, eps=0.5", *_REDUCED)),
    "prelu": (f"{_LINE}; 3; 1", "(x, y)", "(x, z)"),
    "relu": ("4 3", "(x)"),
    "relu6": ("4 3", "(x)"),
    "relu_": ("4 3", "(x * 2)"),
    "rms_norm": ("2 4 5; 5; 4 5", "(x, (5,))", "(x, (5,), y, 0.1)", "(x, (4, 5), z)"),
    "rrelu": ("4 3", "(x)", "(x, 0.1, 0.3, True)"),
    "rrelu_": ("4 3", "(x * 2)"),
    "scaled_dot_product_attention": (
        "2 2 4 8; 2 2 4 8; 2 2 4 8; b 2 1 4 4; 4 4",
        *_each("(x, y, z", "is_causal=True", "scale=0.3", "scale=8**-0.5, is_causal=True", "w", "v", "w, scale=0.1"),
        "(x, y[:, :, :3], z[:, :, :3], is_causal=True)",
        "(x[:, :, :3], y, z, is_causal=True)",
        "(x, y[:, :1], z[:, :1], enable_gqa=True)",
        "(x[0], y[0], z[0])",
        "(x[0, 0], y[0, 0], z[0, 0], w[0, 0])",
        "(x, y, z[..., :5], is_causal=True)",
        "(x, y, z, torch.ones(4, 4, dtype=torch.bool).tril(-1))",
        "(x, y, z, torch.zeros(4, 4).double().masked_fill(torch.ones(4, 4).tril() == 0, -torch.inf))",
        "(x, y, z, torch.zeros(4, 4, dtype=torch.bool))",
    ),
    "selu": ("4 3", "(x)"),
    "selu_": ("4 3", "(x * 2)"),
    "sigmoid": ("4 3", "(x)"),
    "silu": ("4 3", "(x)"),
    "smooth_l1_loss": ("4 3; 4 3", *_each("(x, y", *_REDUCED, "beta=0.5", "beta=0.0")),
    "soft_margin_loss": ("4 3; s 4 3", *_each("(x, y", *_REDUCED)),
    "softmax": ("4 3", "(x, 1)", "(x, 0)", "(x, 1, dtype=torch.float32)"),
    "softmin": ("4 3", "(x, 1)"),
    "softplus": ("4 3", "(x)", "(x, 2.0)", "(x, 1.0, 0.5)", "(x, 0.5, 3.0)", "(x, 1.0, 0.0)"),
    "softshrink": ("4 3", "(x)", "(x, 0.0)", "(x, 1.0)"),
    "softsign": ("4 3", "(x)"),
    "tanh": ("4 3", "(x)"),
    "tanhshrink": ("4 3", "(x)"),
    "threshold": ("4 3", "(x, 0.5, 7.0)", "(x, 0.0, 0.0)"),
    "threshold_": ("4 3", "(x * 2, 0.5, 7.0)"),
    "triplet_margin_loss": ("4 3; 4 3; 4 3", *_each("(x, y, z", *_REDUCED, "0.5, 1.0", "swap=True")),
    "triplet_margin_with_distance_loss": ("4 3; 4 3; 4 3", *_each("(x, y, z", *_REDUCED, "swap=True")),
    "unfold": (_IMAGE, "(x, 2)", "(x, (3, 2), 1, 1, 2)"),
    "upsample": (_IMAGE, "(x, 9)", "(x, scale_factor=2, mode='bilinear')"),
    "upsample_bilinear": (_IMAGE, "(x, 9)"),
    "upsample_nearest": (_IMAGE, "(x, 9)"),
}


def cases():
    import torch
    from torch.nn import functional as F

    from tests.peer.sweep import tensors

    class Call(torch.nn.Module):
        def __init__(self, run, used):
            super().__init__()
            self.run, self.used = run, used

        def forward(self, *given):
            return self.run(*given)

    for name, (inputs, *calls) in FUNCTIONS.items():
        if not hasattr(F, name):
            continue
        for call in calls:
            letters = "xyzwv"[: inputs.count(";") + 1]
            used = [k for k, a in enumerate(letters) if any(f"{s}{a}{e}" in call for s in "( ,=*" for e in ",)[ .")]
            own = ", ".join(letters[k] for k in used)
            run = eval(f"lambda {own}: F.{name}{call}", {"F": F, "torch": torch})
            yield f"{name}{call}", (lambda run=run, used=used: Call(run, used).double()), tuple(tensors(inputs)[k] for k in used)
