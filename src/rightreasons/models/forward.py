"""One forward pass of a network, with the tensors at named points of it. A point is `layer:input` or `layer:output`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from rightreasons.errors import ModelError


def layer(module: nn.Module, name: str) -> nn.Module:
    """The layer with that dotted name."""
    known = dict(module.named_modules(remove_duplicate=False))
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, [n for n in known if n], 3) or [n for n, _ in module.named_children()]
    raise ModelError(f"{type(module).__name__} has no layer '{name}': did you mean one of {', '.join(near[:12])}?")


def run(module: nn.Module, x: Tensor, points: Sequence[str] = ()) -> tuple[list[Tensor], Tensor]:
    """One forward pass: the tensors at the points, attached to the graph of the output, and the output (n, C).

    The network goes on with a clone of each, so that what it does in place does not change what is returned.
    """
    seen: dict[str, Tensor] = {}
    with _hooks(module, points, seen):
        output = tensor_of(module(x), type(module).__name__)
    missing = [point for point in points if point not in seen]
    if missing:
        raise ModelError(f"{', '.join(missing)} of {type(module).__name__} did not run: name a layer that the forward pass calls")
    return [seen[point] for point in points], output.reshape(len(output), -1)


def tensor_of(output: Any, name: str) -> Tensor:
    """The logits in what a network returned: a tensor, `.logits`, or the first of a tuple."""
    if isinstance(output, Tensor):
        return output
    for key in ("logits", "out"):
        if isinstance(output, dict):
            inner = output.get(key)
        else:
            inner = getattr(output, key, None)
        if isinstance(inner, Tensor):
            return inner
    if isinstance(output, tuple | list) and output and isinstance(output[0], Tensor):
        return output[0]
    raise ModelError(f"{name} returned {type(output).__name__}: expected a tensor of logits, or an object with .logits")


def with_one_logit(output: Tensor, number: int | None) -> Tensor:
    """The output (n, C) with one of its logits z read as (0, z): that number, or the only one there is; else as it is."""
    if number is None and output.shape[1] > 1:
        return output
    z = output[:, number or 0]
    return torch.stack([torch.zeros_like(z), z], dim=1)


def vector(t: Tensor) -> Tensor:
    """A tensor whose axes beside the batch are all of length one but one, as (n, d)."""
    return t.reshape(len(t), -1)


def first_tensor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """The first tensor among the arguments of a call."""
    return next((a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)), None)


@contextmanager
def _hooks(module: nn.Module, points: Sequence[str], seen: dict[str, Tensor]) -> Iterator[None]:
    handles = []
    try:
        for point in dict.fromkeys(points):
            name, side = point.rsplit(":", 1)
            handles.append(_tap(layer(module, name), point, side, seen))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _tap(module: nn.Module, point: str, side: str, seen: dict[str, Tensor]) -> Any:
    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        tensor = first_tensor(args, kwargs)
        if tensor is None:
            return args, kwargs
        seen[point] = tensor
        on = tensor.clone()
        swapped = tuple(on if a is tensor else a for a in args)
        return swapped, {key: on if a is tensor else a for key, a in kwargs.items()}

    def after(_: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if isinstance(output, tuple):
            tensor = output[0]
        else:
            tensor = output
        if not isinstance(tensor, Tensor):
            return None
        seen[point] = tensor
        on = tensor.clone()
        if isinstance(output, tuple):
            return (on, *output[1:])
        return on

    if side == "input":
        return module.register_forward_pre_hook(before, with_kwargs=True)
    return module.register_forward_hook(after)
