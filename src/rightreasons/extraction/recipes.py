"""How an array is made from a batch of images: the name of a recipe becomes a function of the model and the batch.

    logits                        a plain quantity of the batch
    maps@gradcam(layer=layer4)    an attribution: a file of `attributions/`
    logits@drop(map=…,top=5)      a plain quantity of the batch as a perturbation changed it: a function in `perturbations/`
    tokens@box                    how much of each token an object covers

A recipe may read columns of the cohort and other arrays of the same evidence; it says so before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from rightreasons import attributions, families, perturbations
from rightreasons.attributions import Explanation
from rightreasons.errors import SettingError
from rightreasons.evidence import Recipe
from rightreasons.families import suggest
from rightreasons.models.classifier import Classifier
from rightreasons.models.passes import Maker, Pass
from rightreasons.perturbations import tokens

PLAIN: dict[str, Callable[[Pass], torch.Tensor]] = {
    "features": lambda batch: batch.read[0],
    "logits": lambda batch: batch.read[1],
    "spatial": lambda batch: batch.spatial,
}

CHANGE = "change"


def make(name: str) -> Maker:
    """How the array of that name is made.

    `maps@<attribution>(…)` are (b, *space) maps, signed, at the method's own resolution, of the model's own predicted class or of
    the right one (`explain=label`); `conservation@<attribution>(…)` is (b, 3): the sum of each map, what was given away on the
    way, and the score that both should add up to; `screened@<attribution>(region=box,…)` are maps that are exact where it matters
    and NaN elsewhere. `features@<perturbation>(…)`, `logits@…` and `spatial@…` are what the network says after the perturbation;
    `change@<perturbation>(…)` is (b,), the root mean square change of its pixels.
    """
    recipe = Recipe.parse(name)
    if not recipe.method:
        return _plain(recipe, name)
    if recipe.quantity in ATTRIBUTIONS:
        return ATTRIBUTIONS[recipe.quantity](recipe)
    if recipe.quantity == "tokens":
        return _with_settings(recipe, tokens.cover, by=recipe.method)  # type: ignore[no-any-return]
    if recipe.quantity in PLAIN or recipe.quantity == CHANGE:
        return _perturbed(recipe)
    raise _unknown(recipe, name)


def _plain(recipe: Recipe, name: str) -> Maker:
    if recipe.quantity not in PLAIN:
        raise _unknown(recipe, name)
    check = Classifier.require_spatial if recipe.quantity == "spatial" else None
    return Maker(PLAIN[recipe.quantity], check=check)


def _unknown(recipe: Recipe, name: str) -> SettingError:
    others = ", ".join(f"{quantity}@…" for quantity in ATTRIBUTIONS)
    return SettingError(f"no recipe {name!r}; {suggest(str(recipe), PLAIN)}, and {others} of an attribution, tokens@box")


# ---- attributions --------------------------------------------------------------------------------------------------------


def _maps(recipe: Recipe) -> Maker:
    explanation = attributions.explanation_of(recipe)
    module, settings = explanation.module, explanation.settings
    of_any_class = str(Recipe("maps", recipe.method, tuple(sorted(settings.items()))))

    def run(batch: Pass) -> torch.Tensor:
        if hasattr(module, "work"):  # what serves every class is done once
            work = batch.once(of_any_class, lambda: module.work(batch.classifier, batch.x, **settings))
            batch.notes[str(recipe)] = work.notes
            return work.maps(batch.target(explanation.explain))  # type: ignore[no-any-return]
        if hasattr(module, "maps_and_conservation"):
            return _maps_and_conservation(batch, recipe, explanation)[0]
        target = batch.target(explanation.explain)
        return module.maps(batch.classifier, batch.x, target=target, **settings)  # type: ignore[no-any-return]

    check = None
    if hasattr(module, "check"):
        check = partial(module.check, **settings)
    return Maker(run, explanation.reads, check=check)


def _conservation(recipe: Recipe) -> Maker:
    explanation = attributions.explanation_of(recipe)
    if not hasattr(explanation.module, "maps_and_conservation"):
        raise SettingError(f"no recipe {str(recipe)!r}: the maps of {recipe.method} add up to nothing in particular")

    def run(batch: Pass) -> torch.Tensor:
        return _maps_and_conservation(batch, recipe, explanation)[1]

    return Maker(run, explanation.reads)


def _maps_and_conservation(batch: Pass, recipe: Recipe, explanation: Explanation) -> tuple[torch.Tensor, torch.Tensor]:
    """Both from one backward pass, whichever of the two recipes comes first."""

    def work() -> Any:
        target = batch.target(explanation.explain)
        return explanation.module.maps_and_conservation(batch.classifier, batch.x, target=target, **explanation.settings)

    return batch.once(str(Recipe("both", recipe.method, recipe.settings)), work)  # type: ignore[no-any-return]


def _screened(recipe: Recipe) -> Maker:
    explanation = attributions.explanation_of(recipe, function="screened")
    module, settings = explanation.module, explanation.settings
    covered = f"tokens@{settings.pop('region', 'box')}"
    inside = make(covered)

    def run(batch: Pass) -> torch.Tensor:
        target = batch.target(explanation.explain)
        return module.screened(  # type: ignore[no-any-return]
            batch.classifier, batch.x, target=target, inside=batch.arrays[covered] > 0, **settings
        )

    return Maker(run, (*explanation.reads, *inside.reads), (covered,), check=module.check, may_lack=True)


ATTRIBUTIONS: dict[str, Callable[[Recipe], Maker]] = {"maps": _maps, "conservation": _conservation, "screened": _screened}


# ---- perturbations -------------------------------------------------------------------------------------------------------


def _perturbed(recipe: Recipe) -> Maker:
    """A plain quantity of the batch as a perturbation changed it; all quantities share the changed pass."""
    perturbation = _with_settings(recipe, perturbations.find(recipe.method))
    key = str(Recipe("", recipe.method, recipe.settings))

    def quantity_after(change: Callable[[Pass], Pass]) -> Callable[[Pass], torch.Tensor]:
        def quantity(batch: Pass) -> torch.Tensor:
            changed = batch.once(key, lambda: change(batch))
            if recipe.quantity == CHANGE:
                return changed.pixel_change(batch)  # type: ignore[no-any-return]
            return PLAIN[recipe.quantity](changed)

        return quantity

    make = None
    if perturbation.change is not None:
        make = quantity_after(perturbation.change)
    fit = None if perturbation.fit is None else lambda evidence: quantity_after(perturbation.fit(evidence))
    return Maker(make, perturbation.reads, perturbation.arrays, fit, perturbation.check, perturbation.may_lack)


def _with_settings(recipe: Recipe, function: Callable[..., Any], **fixed: Any) -> Any:
    """The function called with the settings of the recipe; an unknown one is refused."""
    settings = dict(recipe.settings)
    families.resolve(settings, function, where=f"{str(recipe)!r}")
    return function(**fixed, **settings)
