"""Which known networks the tensors of a checkpoint fit, for a user who has the file and not the name.

Names and shapes of the tensors decide, on networks that are built without memory for their weights. Several networks can have
the same tensors and differ in how images are prepared, so all that fit are told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rightreasons.models.checkpoints import Checkpoint, count_classes, read_checkpoint

TIMM = {
    "layer1.0.": ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d", "wide_resnet50_2"),
    "features.denseblock1.": ("densenet121", "densenet161", "densenet169", "densenet201"),
    "blocks.0.attn.": (
        "vit_tiny_patch16_224", "vit_small_patch16_224", "vit_base_patch16_224", "vit_small_patch32_224", "vit_base_patch32_224",
        "vit_large_patch16_224", "vit_small_patch14_dinov2", "vit_base_patch14_dinov2",
    ),
    "blocks.0.0.": (
        "efficientnet_b0", "efficientnet_b1", "efficientnet_b2", "efficientnet_b3", "efficientnet_b4", "mobilenetv2_100",
        "mobilenetv3_small_100", "mobilenetv3_large_100",
    ),
    "stages.0.blocks.0.": ("convnext_tiny", "convnext_small", "convnext_base", "convnextv2_tiny", "convnextv2_base"),
    "layers.0.blocks.0.": ("swin_tiny_patch4_window7_224", "swin_small_patch4_window7_224", "swin_base_patch4_window7_224"),
}  # fmt: skip
TORCHVISION = {
    "layer1.0.": ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d", "wide_resnet50_2"),
    "features.denseblock1.": ("densenet121", "densenet161", "densenet169", "densenet201"),
    "encoder.layers.encoder_layer_0.": ("vit_b_16", "vit_b_32", "vit_l_16"),
    "features.0.": (
        "efficientnet_b0", "efficientnet_b1", "efficientnet_b2", "efficientnet_b3", "mobilenet_v2", "mobilenet_v3_small",
        "mobilenet_v3_large", "convnext_tiny", "convnext_small", "convnext_base", "swin_t", "swin_s", "swin_b", "vgg11", "vgg16",
        "vgg16_bn", "alexnet",
    ),
}  # fmt: skip
"""Part of a tensor's name → networks that have such a tensor."""


def fitting(checkpoint: str | Path, part: str | None = None) -> list[str]:
    """Specifications (`timm:resnet18`) of the known networks that a checkpoint fills, each tensor and no tensor left over."""
    weights = read_checkpoint(checkpoint, part)
    return [spec for spec, module in _candidates(weights) if _fits(module, weights)]


def _candidates(weights: Checkpoint) -> Iterator[tuple[str, Callable[..., nn.Module]]]:
    import timm
    import torchvision.models as zoo

    for library, families in (("timm", TIMM), ("torchvision", TORCHVISION)):
        for mark, names in families.items():
            if not any(mark in key for key in weights.state):
                continue
            for name in names:
                maker: Any = timm.create_model if library == "timm" else zoo.get_model
                yield f"{library}:{name}", lambda maker=maker, name=name, **more: maker(name, **more)


def _fits(maker: Callable[..., nn.Module], weights: Checkpoint) -> bool:
    with torch.device("meta"):
        plain = maker()
        count = count_classes(plain, weights)
        module = plain if count is None else maker(num_classes=count)
    return _has_same_tensors(weights.state, module.state_dict())


def _has_same_tensors(state: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> bool:
    """Whether names and shapes agree, a prefix that all names share (`module.`) taken off."""
    shortest = min(own, key=len)
    prefixes = {key[: -len(shortest)] for key in state if key.endswith(shortest)}
    for prefix in prefixes:
        bare = {key[len(prefix) :]: value for key, value in state.items() if key.startswith(prefix)}
        if len(bare) == len(state) and bare.keys() == own.keys():
            return all(bare[key].shape == own[key].shape for key in own)
    return False
