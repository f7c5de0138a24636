"""Two classifiers of glyphs: GlyphNet has many kinds of block, WideGlyphNet more arithmetic."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def conv_norm(
    inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """A convolution that keeps the extent (or divides it by the stride), normalized."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    )


class Residual(nn.Module):
    """Two 3x3 convolutions around which the input is added."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = conv_norm(channels, channels, 3)
        self.second = conv_norm(channels, channels, 3)
        self.relu = nn.ReLU()

    def forward(self, value: Tensor) -> Tensor:
        return self.relu(value + self.second(self.relu(self.first(value))))


class Fire(nn.Module):
    """A 1x1 squeeze whose result two branches widen; the branches are concatenated."""

    def __init__(self, inputs: int, squeezed: int, outputs: int) -> None:
        super().__init__()
        self.squeeze = conv_norm(inputs, squeezed)
        self.narrow = conv_norm(squeezed, outputs // 2)
        self.wide = conv_norm(squeezed, outputs // 2, 3)
        self.relu = nn.ReLU()

    def forward(self, value: Tensor) -> Tensor:
        squeezed = self.relu(self.squeeze(value))
        branches = [self.relu(self.narrow(squeezed)), self.relu(self.wide(squeezed))]
        return torch.cat(branches, dim=1)


class InvertedResidual(nn.Module):
    """Widens, filters each channel alone, narrows, and adds the input."""

    def __init__(self, channels: int, widened: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv_norm(channels, widened),
            nn.Hardswish(),
            conv_norm(widened, widened, 3, groups=widened),
            nn.Hardswish(),
            conv_norm(widened, channels),
        )

    def forward(self, value: Tensor) -> Tensor:
        return value + self.body(value)


def separable(inputs: int, outputs: int) -> nn.Sequential:
    """A depthwise 5x5 convolution that halves the extent, then a pointwise one."""
    return nn.Sequential(
        conv_norm(inputs, inputs, 5, stride=2, groups=inputs),
        nn.SiLU(),
        conv_norm(inputs, outputs),
        nn.SiLU(),
    )


class GlyphNet(nn.Module):
    """f32[N, 1, 32, 32] in 0..1 to one score (a logit) per class."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_norm(1, 24, 3), nn.Hardswish(), nn.MaxPool2d(2))
        self.residual = Residual(24)
        self.fire = Fire(24, 16, 64)
        self.shrink = nn.AvgPool2d(2)
        self.inverted = InvertedResidual(64, 160)
        self.separable = separable(64, 128)
        self.last_inverted = InvertedResidual(128, 256)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classify = nn.Linear(128, classes)

    def forward(self, image: Tensor) -> Tensor:
        value = self.fire(self.residual(self.stem(image)))
        value = self.inverted(self.shrink(value))
        value = self.last_inverted(self.separable(value))
        return self.classify(self.pool(value).flatten(1))


class PointwiseBlock(nn.Module):
    """Filters each channel alone, widens four times, narrows, and adds the input."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv_norm(channels, channels, kernel, groups=channels),
            conv_norm(channels, 4 * channels),
            nn.ReLU(),
            conv_norm(4 * channels, channels),
        )

    def forward(self, value: Tensor) -> Tensor:
        return value + self.body(value)


class WideGlyphNet(nn.Module):
    """The same input and output; nearly all multiplications are in 1x1 convolutions."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_norm(1, 64, 3), nn.ReLU())
        self.large = nn.Sequential(*(PointwiseBlock(64, 3) for _ in range(4)))
        self.shrink = nn.Sequential(
            nn.Conv2d(64, 96, 2, stride=2, bias=False), nn.BatchNorm2d(96), nn.ReLU()
        )
        self.small = PointwiseBlock(96, 7)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classify = nn.Linear(96, classes)

    def forward(self, image: Tensor) -> Tensor:
        value = self.small(self.shrink(self.large(self.stem(image))))
        return self.classify(self.pool(value).flatten(1))
