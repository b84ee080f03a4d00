"""Where in a network a map is read: a layer found or named, its tensor as (b, c, *space), tokens laid out on their grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from rightreasons.errors import ModelError, SettingError
from rightreasons.models.classifier import Classifier
from rightreasons.models.forward import layer as layer_of
from rightreasons.models.tokens import MOST_PREFIX_TOKENS, patch_grid


@dataclass(frozen=True)
class Place:
    """A point of the network (`layer:input` or `layer:output`), and how its tensor becomes (b, c, *space).

    Parameters
    ----------
    channels : "first", "last", or "auto": by the shape
    is_rectified : the network goes on with the tensor's positive part, which no layer gives
    """

    point: str
    channels: str = "auto"
    is_rectified: bool = False


def find(classifier: Classifier, x: Tensor, layer: str, channels: str) -> Place:
    """The named layer's output, or the layer that explains this network best.

    In this order: the layer that OSCAR's appendix I names for VGG (last layer before the final pool) and MobileNetV3 (last
    inverted residual); the map before the global average pool (ResNet's `layer4`, Inception's `Mixed_7c` and all other CNNs);
    for tokens the last norm over all of them from which the patches still reach the output (with a class token, the first norm
    of the last block: after it only the class token counts); the last map of a CNN that has no global pool.
    """
    if channels not in ("auto", "first", "last"):
        raise SettingError(f"channels='{channels}': give auto, first or last")
    if layer:
        if layer.endswith((":input", ":output")):
            point = layer
        else:
            point = f"{layer}:output"
        layer_of(classifier.module, point.rsplit(":", 1)[0])
        return Place(point, channels)
    named = _paper_layer(classifier.module)
    if named:
        return Place(f"{named}:output", "first")
    cut = classifier.cut
    if classifier.has_spatial:
        return Place(cut.spatial, "last" if cut.spatial_last else "first", cut.spatial_activation == "relu")
    return _watched(classifier, x[:1])


def as_map(t: Tensor, classifier: Classifier, place: Place, size: Sequence[int]) -> Tensor:
    """(b, c, *space) of what was read at a place; tokens without those in front of the patches, on their grid."""
    axes = len(size)
    if t.ndim == axes + 2:
        if place.channels == "auto":
            is_last = _is_channels_last(t.shape, size)
        else:
            is_last = place.channels == "last"
        if is_last is None:
            raise ModelError(
                f"'{place.point}' of {classifier.name} gives {tuple(t.shape)} for images of {tuple(size)}: none of its axes have "
                "their proportions. Name a layer with a map, or say where it has its channels: channels=first or last"
            )
        if is_last:
            return t.movedim(-1, 1)
        return t
    if t.ndim == 3:
        grid = patch_grid(classifier.module, size)
        prefix = None
        if grid is not None:
            prefix = t.shape[1] - prod(grid)
        known = getattr(classifier.module, "num_prefix_tokens", None)
        if (
            grid is None
            or prefix is None
            or not 0 <= prefix <= MOST_PREFIX_TOKENS
            or (known is not None and prefix not in (0, known))
        ):
            laid = f"the patches of its input form a grid of {grid}"
            if grid is None:
                laid = "it has no patch embedding to tell the grid"
            raise ModelError(
                f"'{place.point}' of {classifier.name} gives {tuple(t.shape)}, read as (images, tokens, channels), and {laid}: "
                "name a layer that keeps every token, such as the first norm of the last block"
            )
        return t[:, prefix:].movedim(-1, 1).unflatten(2, grid)
    raise ModelError(
        f"'{place.point}' of {classifier.name} gives {tuple(t.shape)}: expected a map with {axes} axes of space, or tokens. "
        "Name a layer before the pooling"
    )


@contextmanager
def leaf_at(module: nn.Module, point: str) -> Iterator[list[Tensor]]:
    """While this is open, the graph begins at the point: the list holds the tensor that the network went on with, as a leaf."""
    name, side = point.rsplit(":", 1)
    seen: list[Tensor] = []

    def replaced(t: Tensor) -> Tensor:
        seen[:] = [t.detach().requires_grad_()]
        return seen[0].clone()  # what the network does in place must not touch the leaf

    def before(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if args and isinstance(args[0], Tensor):
            return (replaced(args[0]), *args[1:])
        return args

    def after(_: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if isinstance(output, tuple) and output and isinstance(output[0], Tensor):
            return (replaced(output[0]), *output[1:])
        if isinstance(output, Tensor):
            return replaced(output)
        return output

    layer = layer_of(module, name)
    if side == "input":
        handle = layer.register_forward_pre_hook(before)
    else:
        handle = layer.register_forward_hook(after)
    try:
        yield seen
    finally:
        handle.remove()


def refuse_unused(classifier: Classifier, place: Place) -> NoReturn:
    raise ModelError(
        f"'{place.point}' of {classifier.name} has no part in the explained score: name a layer that the forward pass "
        "calls and that the output depends on"
    )


# ---- what the functions above use ----------------------------------------------------------------------------------------


def _paper_layer(module: nn.Module) -> str:
    """OSCAR, appendix I: `features[29]` of VGG-16 and `blocks[5][2]` of MobileNetV3-Large, in timm's and torchvision's naming."""
    features, blocks = getattr(module, "features", None), getattr(module, "blocks", None)
    kind = type(module).__name__
    if kind == "VGG" and isinstance(features, nn.Sequential):
        kept = []
        for i, child in enumerate(features):
            if "Pool" not in type(child).__name__:
                kept.append(i)
        return f"features.{kept[-1]}"
    if kind == "MobileNetV3":
        if isinstance(features, nn.Sequential) and len(features) > 2:
            return f"features.{len(features) - 2}"
        if isinstance(blocks, nn.Sequential):
            stages = [list(stage.children()) for stage in blocks]
        else:
            stages = []
        if len(stages) > 1 and type(stages[-1][0]).__name__.startswith("Conv"):
            return f"blocks.{len(stages) - 2}.{len(stages[-2]) - 1}"
    return ""


def _watched(classifier: Classifier, x: Tensor) -> Place:
    """The layer of a network without a global average pool, by one pass of one image."""
    size = tuple(x.shape[2:])
    norms: list[tuple[str, Tensor]] = []
    maps: list[str] = []
    handles = []
    try:
        for name, module in classifier.module.named_modules():
            if name:
                handles.append(module.register_forward_hook(_noting(name, len(size), norms, maps)))
        features = classifier.features(x.detach().requires_grad_())
    finally:
        for handle in handles:
            handle.remove()
    # By the features and not by a logit, because a head may start at zero; in a direction that no norm holds fixed.
    along = (features * torch.linspace(-1, 1, features.shape[1], device=x.device)).sum()
    if norms:
        gradients = torch.autograd.grad(along, [t for _, t in norms], allow_unused=True)
    else:
        gradients = ()
    for (name, tokens), gradient in reversed([*zip(norms, gradients)]):
        grid = patch_grid(classifier.module, size)
        prefix = 0
        if grid is not None:
            prefix = tokens.shape[1] - prod(grid)
        if grid is not None and 0 <= prefix <= MOST_PREFIX_TOKENS and gradient is not None and bool(gradient[:, prefix:].any()):
            return Place(f"{name}:output")
    if maps:
        return Place(f"{maps[-1]}:output", "first")
    raise ModelError(
        f"{classifier.name} has no layer with a map or with tokens on a grid ({classifier.cut.no_spatial}): name one, layer="
    )


def _noting(name: str, axes: int, norms: list[tuple[str, Tensor]], maps: list[str]) -> Any:
    def note(module: nn.Module, args: Any, output: Any) -> None:
        if not isinstance(output, Tensor) or not output.requires_grad:
            return
        if output.ndim == 3 and "norm" in type(module).__name__.lower():
            norms.append((name, output))
        elif output.ndim == axes + 2 and min(output.shape[2:]) > 1:
            maps.append(name)

    return note


def _is_channels_last(shape: Sequence[int], size: Sequence[int]) -> bool | None:
    """Whether space lies in (b, *space, c) and not in (b, c, *space), by the input's proportions; None: in neither."""
    first = _is_reduced(shape[2:], size)
    last = _is_reduced(shape[1:-1], size)
    if first or last:
        return not first
    return None


def _is_reduced(space: Sequence[int], size: Sequence[int]) -> bool:
    """Whether every axis is the input's divided by one number, but for a cell of padding or cropping."""
    step = max(s / n for s, n in zip(size, space))
    return step >= 1 and all(abs(s / step - n) <= 1 for s, n in zip(size, space))
