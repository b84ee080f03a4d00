"""The settings of `train` that a mitigation hands on, written once: `@trains()` puts them into its signature."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypedDict, TypeVar

import torch

from rightreasons.errors import SettingError
from rightreasons.models.training import train

P = ParamSpec("P")
R = TypeVar("R")


class Training(TypedDict, total=False):
    """Keywords of `train` that mitigations take as their own; `train` explains them and has their defaults."""

    epochs: int
    batch: int
    lr: float
    optimizer: Literal["adamw", "adam", "sgd"]
    weight_decay: float
    schedule: Literal["cosine"] | None
    warmup: float
    patience: int | None
    clip: float | None
    amp: bool | Literal["bf16", "fp16"] | None
    augment: str | None
    folder: str | Path | None
    device: str | torch.device | None
    threads: int | None
    workers: int | None
    cache: str | Path | None


def trains(**defaults: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates `mitigate(…, **training: Unpack[Training])`: `training` then holds every one of these settings.

    The signature lists them one by one, so that study files, the command line and cards know them and refuse others.

    Parameters
    ----------
    defaults : where they differ from those of `train`
    """
    unknown = sorted(set(defaults) - set(Training.__annotations__))
    if unknown:
        raise SettingError(f"no settings of a training: {', '.join(unknown)}; known: {', '.join(Training.__annotations__)}")
    usual = inspect.signature(train).parameters
    handed = [usual[key].replace(default=defaults.get(key, usual[key].default)) for key in Training.__annotations__]

    def around(mitigate: Callable[P, R]) -> Callable[P, R]:
        own = inspect.signature(mitigate)
        named = [parameter for parameter in own.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
        signature = own.replace(parameters=[*named, *handed])

        @functools.wraps(mitigate)
        def complete(*args: P.args, **kwargs: P.kwargs) -> R:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return mitigate(*bound.args, **bound.kwargs)

        complete.__signature__ = signature  # type: ignore[attr-defined]
        return complete

    return around
