"""How an array is made from a batch of images: the name of a recipe becomes a function of the model and the batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch

from rightreasons.errors import SettingError
from rightreasons.evidence import Recipe
from rightreasons.families import suggest
from rightreasons.models.classifier import Classifier


@dataclass
class Pass:
    """One batch on its way through one model; what several recipes share is computed once."""

    classifier: Classifier
    x: torch.Tensor

    @cached_property
    def read(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.classifier.read(self.x)


PLAIN: dict[str, Callable[[Pass], torch.Tensor]] = {
    "features": lambda batch: batch.read[0],
    "logits": lambda batch: batch.read[1],
    "spatial": lambda batch: batch.classifier.spatial(batch.x),
}


def make(name: str) -> Callable[[Pass], torch.Tensor]:
    """The function behind an array's name: a `Pass` of b images gives (b, …)."""
    recipe = Recipe.parse(name)
    if recipe.method or recipe.quantity not in PLAIN:
        raise SettingError(f"no recipe {name!r}; {suggest(str(recipe), PLAIN)}")
    return PLAIN[recipe.quantity]
