"""How an array is made from a batch of images: the name of a recipe becomes a function of the model and the batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from rightreasons import families
from rightreasons.errors import SettingError
from rightreasons.evidence import Recipe
from rightreasons.families import suggest
from rightreasons.models.classifier import Classifier


@dataclass
class Pass:
    """One batch on its way through one model; what several recipes share is computed once.

    Parameters
    ----------
    label : (b,) which output is right, where a recipe reads it
    """

    classifier: Classifier
    x: torch.Tensor
    label: torch.Tensor | None = None
    explained: dict[str, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    @cached_property
    def read(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.classifier.read(self.x)

    def target(self, explain: str) -> torch.Tensor:
        """(b,) the output to explain."""
        if explain == "predicted":
            return self.read[1].argmax(1)
        if self.label is None:
            raise SettingError("explain=label, and this pass was given no labels")
        return self.label


@dataclass(frozen=True)
class Maker:
    """The function behind an array's name: a `Pass` of b images gives (b, …).

    Parameters
    ----------
    reads_label : whether it needs the pass's labels, so that the array is tied to the label column
    """

    make: Callable[[Pass], torch.Tensor]
    reads_label: bool = False

    def __call__(self, batch: Pass) -> torch.Tensor:
        return self.make(batch)


PLAIN: dict[str, Callable[[Pass], torch.Tensor]] = {
    "features": lambda batch: batch.read[0],
    "logits": lambda batch: batch.read[1],
    "spatial": lambda batch: batch.classifier.spatial(batch.x),
}
EXPLAIN = ("predicted", "label")


def make(name: str) -> Maker:
    """How the array of that name is made.

    `maps@<attribution>(…)` are (b, *space) maps, signed, at the method's own resolution, of the model's own predicted class or of
    the right one (`explain=label`); `conservation@<attribution>(…)` is (b, 3), the sum of each map, what was given away on the
    way, and the score that both should add up to.
    """
    recipe = Recipe.parse(name)
    if recipe.method and recipe.quantity in ("maps", "conservation"):
        return _attribution(recipe)
    if recipe.method or recipe.quantity not in PLAIN:
        raise SettingError(f"no recipe {name!r}; {suggest(str(recipe), PLAIN)}, and maps@… and conservation@… of an attribution")
    return Maker(PLAIN[recipe.quantity])


def _attribution(recipe: Recipe) -> Maker:
    module = families.member("attributions", recipe.method)
    settings = dict(recipe.settings)
    explain = str(settings.pop("explain", "predicted"))
    if explain not in EXPLAIN:
        raise SettingError(f"explain={explain} in {str(recipe)!r}: give one of {', '.join(EXPLAIN)}")
    families.resolve(settings, module.maps, where=f"attribution {recipe.method!r}")
    both = getattr(module, "maps_and_conservation", None)
    if recipe.quantity == "conservation" and both is None:
        raise SettingError(f"no recipe {str(recipe)!r}: the maps of {recipe.method} add up to nothing in particular")
    return Maker(_both(both, recipe, settings, explain) if both else _maps(module.maps, settings, explain), explain == "label")


def _maps(maps: Callable[..., torch.Tensor], settings: dict[str, Any], explain: str) -> Callable[[Pass], torch.Tensor]:
    return lambda batch: maps(batch.classifier, batch.x, target=batch.target(explain), **settings)


def _both(both: Callable[..., Any], recipe: Recipe, settings: dict[str, Any], explain: str) -> Callable[[Pass], torch.Tensor]:
    key, which = str(Recipe("", recipe.method, recipe.settings)), 0 if recipe.quantity == "maps" else 1

    def run(batch: Pass) -> torch.Tensor:
        if key not in batch.explained:
            batch.explained[key] = both(batch.classifier, batch.x, target=batch.target(explain), **settings)
        return batch.explained[key][which]

    return run
