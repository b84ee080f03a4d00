"""Two small networks for planted worlds and stand-ins: a five-layer CNN and a four-block ViT, trained in seconds on a CPU.

`Classifier.load("rightreasons.models.small:small_cnn", num_classes=2, size=(32, 32))`
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import nn


def small_cnn(num_classes: int, channels: int = 3, width: int = 16) -> SmallCNN:
    """Five 3x3 convolutions (two of them halve the map: 32 pixels end as 8x8), global average pool, linear `fc`."""
    return SmallCNN(num_classes, channels, width)


def small_vit(
    num_classes: int,
    size: int | Sequence[int] = 32,
    channels: int = 3,
    patch: int = 4,
    dim: int = 64,
    depth: int = 4,
    heads: int = 4,
    patch_drop: float = 0.0,
) -> VisionTransformer:
    """A small VisionTransformer of timm: 8x8 tokens and a class token at the defaults.

    Parameters
    ----------
    patch_drop : share of the patches that training leaves out, drawn anew each time, so that a missing patch is nothing new
    """
    if isinstance(size, int):
        image = (size, size)
    else:
        image = (int(size[0]), int(size[1]))
    return VisionTransformer(
        img_size=image,
        patch_size=patch,
        in_chans=channels,
        num_classes=num_classes,
        embed_dim=dim,
        depth=depth,
        num_heads=heads,
        mlp_ratio=2.0,
        patch_drop_rate=patch_drop,
    )


class SmallCNN(nn.Module):
    """`fc(pool(body(x)))`; the body's map (n, 4·width, h/4, w/4) is what spatial explanations read."""

    def __init__(self, num_classes: int, channels: int, width: int) -> None:
        super().__init__()
        widths = (channels, width, 2 * width, 2 * width, 4 * width, 4 * width)
        strides = (2, 1, 2, 1, 1)
        self.body = nn.Sequential(*(_convolution(*layer) for layer in zip(widths[:-1], widths[1:], strides, strict=True)))
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.fc = nn.Linear(widths[-1], num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.pool(self.body(x)))


def _convolution(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )
