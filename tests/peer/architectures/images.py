"""Architectures of images, volumes and points, as people write them, scaled down."""

import torch
from torch import nn
from torch.nn import functional as F


def double(channels, out):
    return nn.Sequential(
        nn.Conv2d(channels, out, 3, padding=1, bias=False),
        nn.GroupNorm(2, out),
        nn.ReLU(inplace=True),
        nn.Conv2d(out, out, 3, padding=1, bias=False),
        nn.BatchNorm2d(out),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    """Two levels, transposed convolutions up, skips put together."""

    def __init__(self, width=4):
        super().__init__()
        self.d1, self.d2, self.mid = (
            double(1, width),
            double(width, 2 * width),
            double(2 * width, 4 * width),
        )
        self.u2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.u1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.c2, self.c1, self.out = (
            double(4 * width, 2 * width),
            double(2 * width, width),
            nn.Conv2d(width, 2, 1),
        )

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.mid(F.max_pool2d(b, 2))
        b = self.c2(torch.cat([self.u2(c), b], dim=1))
        return self.out(self.c1(torch.cat([self.u1(b), a], dim=1)))


class Generator(nn.Module):
    """DCGAN's: transposed convolutions with batch norm."""

    def __init__(self, latent=6, width=4):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(latent, 2 * width, 4, 1, 0, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(True),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(True),
            nn.ConvTranspose2d(width, 2, 3, 2, 1, output_padding=1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z)


class VAE(nn.Module):
    """The noise is an input; mean and log variance are outputs, too."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv2d(1, 4, 3, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(64, 6)
        )
        self.decode = nn.Sequential(
            nn.Linear(3, 64),
            nn.ELU(),
            nn.Unflatten(1, (4, 4, 4)),
            nn.ConvTranspose2d(4, 1, 4, 2, 1),
            nn.Sigmoid(),
        )

    def forward(self, x, noise):
        mean, log_var = self.encode(x).chunk(2, dim=1)
        return self.decode(mean + noise * torch.exp(0.5 * log_var)), mean, log_var


class FeaturePyramid(nn.Module):
    """Laterals, nearest and bilinear upsampling, a strided way down."""

    def __init__(self):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(2, 4, 3, 2, 1), nn.Conv2d(4, 6, 3, 2, 1)
        self.l1, self.l2 = nn.Conv2d(4, 3, 1), nn.Conv2d(6, 3, 1)
        self.smooth = nn.Conv2d(3, 3, 3, padding=1, padding_mode="replicate")

    def forward(self, x):
        a = F.relu(self.c1(x))
        b = F.relu(self.c2(a))
        top = self.l2(b)
        mid = self.smooth(self.l1(a) + F.interpolate(top, scale_factor=2, mode="nearest"))
        full = F.interpolate(mid, size=x.shape[-2:], mode="bilinear", align_corners=False)
        return full, F.interpolate(top, scale_factor=2, mode="bilinear", align_corners=True)


class StyleTransfer(nn.Module):
    """Johnson et al.'s: reflected borders, instance norms, residuals."""

    def __init__(self):
        super().__init__()
        self.conv1, self.in1 = nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4, affine=True)
        self.conv2, self.in2 = (
            nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"),
            nn.InstanceNorm2d(4),
        )
        self.up = nn.Upsample(scale_factor=2)
        self.conv3 = nn.Conv2d(4, 3, 3)

    def forward(self, x):
        y = F.relu(self.in1(self.conv1(F.pad(x, (1, 1, 1, 1), mode="reflect"))))
        y = y + self.in2(self.conv2(y))
        return self.conv3(nn.ReflectionPad2d(1)(self.up(y)))


class MobileBlock(nn.Module):
    """MobileNetV3's: depthwise, squeeze and excitation, hard activations."""

    def __init__(self, width=4, hidden=8):
        super().__init__()
        self.expand, self.n1 = nn.Conv2d(width, hidden, 1, bias=False), nn.BatchNorm2d(hidden)
        self.depth = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden, bias=False)
        self.n2, self.n3 = nn.BatchNorm2d(hidden), nn.BatchNorm2d(width)
        self.fc1, self.fc2 = nn.Conv2d(hidden, 2, 1), nn.Conv2d(2, hidden, 1)
        self.project = nn.Conv2d(hidden, width, 1, bias=False)

    def forward(self, x):
        h = F.hardswish(self.n1(self.expand(x)))
        h = F.hardswish(self.n2(self.depth(h)))
        s = F.hardsigmoid(self.fc2(F.relu6(self.fc1(F.adaptive_avg_pool2d(h, 1)))))
        return x + self.n3(self.project(h * s))


class SuperResolution(nn.Module):
    """ESPCN with PReLU: the pixels come of channels."""

    def __init__(self):
        super().__init__()
        self.c1, self.a1, self.c2, self.a2 = (
            nn.Conv2d(1, 4, 5, padding=2),
            nn.PReLU(4),
            nn.Conv2d(4, 4, 3),
            nn.PReLU(),
        )
        self.shuffle = nn.PixelShuffle(2)

    def forward(self, x):
        return self.shuffle(self.a2(self.c2(self.a1(self.c1(x)))))


class Darknet(nn.Module):
    """YOLOv4's cross-stage part with Mish, and pooling pyramids of equal size."""

    def __init__(self):
        super().__init__()
        self.down, self.norm = nn.Conv2d(3, 4, 3, 2, 1, bias=False), nn.BatchNorm2d(4)
        self.left, self.right = nn.Conv2d(4, 2, 1), nn.Conv2d(4, 2, 1)
        self.pools = nn.ModuleList([nn.MaxPool2d(k, stride=1, padding=k // 2) for k in (3, 5)])
        self.act, self.head = nn.Mish(), nn.Conv2d(12, 5, 1)

    def forward(self, x):
        x = self.act(self.norm(self.down(x)))
        a, b = self.left(x), self.act(self.right(x))
        return self.head(torch.cat([a, b, *[pool(x) for pool in self.pools]], 1))


class C3D(nn.Module):
    """Clips: 3-d convolutions, pooling and batch norm."""

    def __init__(self):
        super().__init__()
        self.c1, self.n1, self.c2 = (
            nn.Conv3d(2, 4, 3, padding=1),
            nn.BatchNorm3d(4),
            nn.Conv3d(4, 4, (1, 3, 3), groups=2),
        )
        self.pool, self.fc = nn.MaxPool3d(2), nn.Linear(16, 3)

    def forward(self, x):
        h = self.pool(F.relu(self.n1(self.c1(x))))
        h = F.adaptive_avg_pool3d(self.c2(F.pad(h, (1, 1, 1, 1))), (1, 2, 2))
        return self.fc(h.flatten(1))


class MixerBlock(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(tokens, 6), nn.GELU(), nn.Linear(6, tokens))
        self.channels = nn.Sequential(nn.Linear(width, 12), nn.GELU(), nn.Linear(12, width))

    def forward(self, x):
        x = x + self.tokens(self.n1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.n2(x))


class Mixer(nn.Module):
    """MLP-Mixer on patches."""

    def __init__(self, width=8):
        super().__init__()
        self.patch, self.blocks = (
            nn.Conv2d(3, width, 4, 4),
            nn.Sequential(*[MixerBlock(4, width) for _ in range(2)]),
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 5)

    def forward(self, x):
        h = self.patch(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(h)).mean(dim=1))


class ConvNeXt(nn.Module):
    """Depthwise 7 by 7, norms over channels-last, a scale per layer."""

    def __init__(self, width=4):
        super().__init__()
        self.stem, self.depth = (
            nn.Conv2d(3, width, 2, 2),
            nn.Conv2d(width, width, 7, padding=3, groups=width),
        )
        self.norm, self.up, self.down = (
            nn.LayerNorm(width, eps=1e-6),
            nn.Linear(width, 16),
            nn.Linear(16, width),
        )
        self.gamma = nn.Parameter(0.1 * torch.ones(width))

    def forward(self, x):
        x = self.stem(x)
        h = self.depth(x).permute(0, 2, 3, 1)
        h = self.gamma * self.down(F.gelu(self.up(self.norm(h))))
        return x + h.permute(0, 3, 1, 2)


class DenseNet(nn.Module):
    """Every layer reads all before it; average pooling between."""

    def __init__(self, growth=2):
        super().__init__()
        self.norms = nn.ModuleList([nn.BatchNorm2d(3 + k * growth) for k in range(3)])
        self.convs = nn.ModuleList(
            [nn.Conv2d(3 + k * growth, growth, 3, padding=1, bias=False) for k in range(3)]
        )
        self.head = nn.Linear(9, 4)

    def forward(self, x):
        features = [x]
        for norm, conv in zip(self.norms, self.convs):
            features.append(conv(F.relu(norm(torch.cat(features, 1)))))
        h = F.avg_pool2d(torch.cat(features, 1), 3, stride=2, padding=1, count_include_pad=False)
        return self.head(h.amax(dim=(2, 3)))
