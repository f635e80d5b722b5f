"""Thirty-one architectures, no two alike, scaled down: `ARCHITECTURES` maps a name to what makes (module, inputs).

`REFUSED` are three more, with the line that asks for what no graph has, and what is said. All are of float64.
"""

import torch

from . import images, others, sequences


def floats(*shape):
    return torch.rand(shape, dtype=torch.float64) + 0.1


def words(count, *shape):
    return torch.randint(0, count, shape)


ARCHITECTURES = {
    "nanoGPT": (sequences.NanoGPT, lambda: (words(13, 2, 6), words(13, 2, 6))),
    "Llama": (sequences.Llama, lambda: (words(13, 2, 6),)),
    "BERT": (others.bert, lambda: (words(13, 2, 6), torch.tensor([[1] * 6, [1, 1, 1, 1, 0, 0]]))),
    "ViT": (others.vit, lambda: (floats(2, 3, 8, 8),)),
    "ResNet": (others.resnet, lambda: (floats(2, 3, 16, 16),)),
    "EfficientNet": (others.efficientnet, lambda: (floats(3, 3, 32, 32),)),
    "UNet": (images.UNet, lambda: (floats(2, 1, 8, 8),)),
    "LSTM": (sequences.LanguageLSTM, lambda: (words(11, 2, 5),)),
    "GRU": (sequences.GRUClassifier, lambda: (floats(3, 5, 4),)),
    "bidirectional": (sequences.Tagger, lambda: (words(11, 2, 5),)),
    "TransformerEncoder": (sequences.MaskedEncoder, lambda: (words(11, 2, 5),)),
    "Transformer": (sequences.Seq2Seq, lambda: (words(9, 2, 5), words(9, 2, 4))),
    "T5": (others.t5, lambda: (words(13, 2, 5), words(13, 2, 4))),
    "Swin": (others.swin, lambda: (floats(2, 3, 16, 16),)),
    "Mamba": (others.mamba, lambda: (words(13, 2, 5),)),
    "WaveNet": (sequences.WaveNet, lambda: (floats(2, 1, 10),)),
    "time series CNN": (sequences.TimeSeriesCNN, lambda: (floats(3, 2, 16),)),
    "DCGAN": (images.Generator, lambda: (floats(3, 6, 1, 1),)),
    "VAE": (images.VAE, lambda: (floats(3, 1, 8, 8), floats(3, 3))),
    "feature pyramid": (images.FeaturePyramid, lambda: (floats(2, 2, 8, 8),)),
    "style transfer": (images.StyleTransfer, lambda: (floats(2, 3, 6, 6),)),
    "MobileNetV3": (images.MobileBlock, lambda: (floats(2, 4, 5, 5) - 0.5,)),
    "ESPCN": (images.SuperResolution, lambda: (floats(2, 1, 6, 6) - 0.5,)),
    "Darknet": (images.Darknet, lambda: (floats(2, 3, 8, 8),)),
    "C3D": (images.C3D, lambda: (floats(2, 2, 4, 6, 6),)),
    "MLP-Mixer": (images.Mixer, lambda: (floats(2, 3, 8, 8),)),
    "ConvNeXt": (images.ConvNeXt, lambda: (floats(2, 3, 8, 8),)),
    "DenseNet": (images.DenseNet, lambda: (floats(2, 3, 6, 6),)),
    "DLRM": (others.DLRM, lambda: (floats(4, 5), words(7, 4, 3, 2))),
    "NeRF": (others.Field, lambda: (floats(4, 3),)),
    "GAT": (others.GraphAttention, lambda: (floats(2, 5, 3),)),
}


def made(name):
    """The module in training mode and its inputs, in float64; the same at every call."""
    torch.manual_seed(3)
    make, inputs = ARCHITECTURES[name]
    return make().double().train(), inputs()


REFUSED = {
    "early exit": (
        others.EarlyExit,
        lambda: floats(2, 4),
        "what forward does depends on the value of a tensor",
        "if h.abs().max() < self.enough:",
    ),
    "adaptive steps": (
        others.AdaptiveSteps,
        lambda: floats(2, 4),
        "what forward does depends on the value of a tensor",
        "while error > 1e-3:",
    ),
    "bilinear form": (
        others.BilinearForm,
        lambda: floats(2, 4),
        "there is no operator for",
        "return self.form(x, x)",
    ),
}
