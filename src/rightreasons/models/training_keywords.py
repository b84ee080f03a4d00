"""The settings that a mitigation hands on, written once: `@trains()` and `@runs` put them into its signature."""

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


class Places(TypedDict, total=False):
    """Where and how a method runs that trains nothing: folder, device, threads and caches."""

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
    return lambda mitigate: _with_keywords(mitigate, Training, defaults)


def runs(mitigate: Callable[P, R]) -> Callable[P, R]:
    """Decorates `mitigate(…, **places: Unpack[Places])`: `places` then holds every one of these settings."""
    return _with_keywords(mitigate, Places, {})


def _with_keywords(mitigate: Callable[P, R], keywords: type, defaults: dict[str, Any]) -> Callable[P, R]:
    own = inspect.signature(mitigate)
    usual = inspect.signature(train).parameters
    parameters = []
    for parameter in own.parameters.values():
        if parameter.kind is not parameter.VAR_KEYWORD:
            parameters.append(parameter)
    for key in keywords.__annotations__:
        parameters.append(usual[key].replace(default=defaults.get(key, usual[key].default)))
    signature = own.replace(parameters=parameters)

    @functools.wraps(mitigate)
    def complete(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return mitigate(*bound.args, **bound.kwargs)

    complete.__signature__ = signature  # type: ignore[attr-defined]
    return complete
