"""The plan of a training run: its settings and everything else that decides the weights, as plain data in its folder."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from rightreasons import files
from rightreasons.data.cohort import hash_of
from rightreasons.errors import SettingError, TrainingError
from rightreasons.families import refuse_beyond_limits, suggest

Metric = Literal["macro_f1", "wga", "auc", "loss", "accuracy", "balanced_accuracy"]
METRICS: tuple[Metric, ...] = ("macro_f1", "wga", "auc", "loss", "accuracy", "balanced_accuracy")
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": partial(torch.optim.AdamW, fused=True),
    "adam": partial(torch.optim.Adam, fused=True),
    "sgd": partial(torch.optim.SGD, momentum=0.9, fused=True),
}
PLAN, MODEL = "plan.json", "model.json"


@dataclass(frozen=True)
class Settings:
    """The settings of `training.train` that are numbers and names; explained there."""

    target: str | None
    attribute: str | None
    epochs: int
    batch: int
    lr: float
    optimizer: str
    weight_decay: float
    schedule: str | None
    warmup: float
    stop_on: str
    patience: int | None
    clip: float | None
    amp: bool | str | None
    seed: int
    regime: str
    device: str | None
    threads: int | None
    regress: str | None = None

    @property
    def sign(self) -> int:
        """The sign that makes `stop_on` a score where larger is better: -1 for the loss."""
        if self.stop_on != "loss":
            return 1
        return -1

    def __post_init__(self) -> None:
        known: dict[str, tuple[Any, ...]] = {"stop_on": METRICS, "optimizer": tuple(OPTIMIZERS), "schedule": ("cosine", None)}
        for name, options in {**known, "amp": (None, True, False, "bf16", "fp16")}.items():
            if getattr(self, name) not in options:
                raise SettingError(f"{name} is {getattr(self, name)!r}; {suggest(str(getattr(self, name)), map(str, options))}")
        refuse_beyond_limits(vars(self))


def claim(folder: Path, plan: Mapping[str, Any]) -> bool:
    """Take the folder for this plan; True where it holds the plan's finished model."""
    plan = json.loads(json.dumps(plan))
    file = folder / PLAN
    if file.exists():
        earlier = json.loads(file.read_text())
        other = []
        for k in {**plan, **earlier}:
            if plan.get(k) != earlier.get(k):
                other.append(f"{k} is {plan.get(k)!r} and was {earlier.get(k)!r}")
        if other:
            raise TrainingError(
                f"{folder} belongs to another training run ({'; '.join(other)}): give another folder, or remove this one"
            )
        return (folder / MODEL).exists()
    if (folder / MODEL).exists():
        raise TrainingError(f"{folder} holds a model that was not trained there ({PLAN} is missing): give another folder")
    files.write_json(file, plan)
    return False


def described(thing: Any) -> Any:
    """A function by its name; an object by its class, its plain public attributes and the hash of its state."""
    if thing is None:
        return None
    if isinstance(thing, partial):
        return [described(thing.func), [_plain(a) for a in thing.args], {k: _plain(v) for k, v in sorted(thing.keywords.items())}]
    if inspect.isroutine(thing):
        return f"{thing.__module__}:{thing.__qualname__}"
    attributes = {}
    for k, v in sorted(vars(thing).items()):
        if not k.startswith("_") and k != "training":
            attributes[k] = _plain(v)
    return [f"{type(thing).__module__}:{type(thing).__qualname__}", attributes, _hash_of_state(thing)]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray | np.generic | Tensor):
        return hash_of([str(value.dtype), str(tuple(value.shape)), _hex(torch.as_tensor(value))])
    if inspect.isroutine(value) or isinstance(value, partial):
        return described(value)
    return type(value).__qualname__


def _hash_of_state(thing: Any) -> str:
    if not hasattr(thing, "state_dict"):
        return ""
    state = sorted(thing.state_dict().items())
    return hash_of(f"{k}={_hex(v) if isinstance(v, Tensor) else json.dumps(_plain(v))}" for k, v in state)


def _hex(tensor: Tensor) -> str:
    if tensor.numel():
        return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes().hex()
    return ""
