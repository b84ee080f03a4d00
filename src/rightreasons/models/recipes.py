"""How an array is made from a batch of images: the name of a recipe becomes a function of the model and the batch.

    logits                        a plain quantity of the batch
    maps@gradcam(layer=layer4)    an attribution: a file of `attributions/`
    logits@drop(map=…,top=5)      a plain quantity of the batch as a perturbation changed it: a function in `perturbations/`
    tokens@box                    how much of each token an object covers

A recipe may read columns of the cohort and other arrays of the same evidence; it says so before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np
import torch

from rightreasons import families, perturbations
from rightreasons.data.cohort import Cohort
from rightreasons.errors import SettingError
from rightreasons.evidence import Evidence, Recipe
from rightreasons.families import suggest
from rightreasons.models.classifier import Classifier

EXPLAIN = ("predicted", "label")


@dataclass
class Pass:
    """One batch on its way through one model; what several recipes share is computed once.

    Parameters
    ----------
    label : (b,) which output is right, where a recipe reads it
    cohort, rows : where the images come from: their cohort, and (b,) row numbers in it
    arrays : (b, …) by name: what the recipes read of the same evidence
    network : features and logits of images, where they are not read by the network as it stands
    undefined : (b,) rows for which the change that was asked for does not exist; None where it exists for all
    notes : by recipe, what should be kept with its array
    """

    classifier: Classifier
    x: torch.Tensor
    label: torch.Tensor | None = None
    cohort: Cohort | None = None
    rows: np.ndarray | None = None
    arrays: dict[str, torch.Tensor] = field(default_factory=dict)
    network: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]] | None = None
    undefined: torch.Tensor | None = None
    shared: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def read(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(b, d) features and (b, C) logits."""
        found = self.classifier.read(self.x) if self.network is None else self.network(self.x)
        if self.undefined is None:
            return found
        features, logits = (t.masked_fill(self.undefined[:, None], torch.nan) for t in found)
        return features, logits

    @property
    def spatial(self) -> torch.Tensor:
        if self.network is not None:
            raise SettingError("spatial maps of a network that is changed inside cannot be read: ask for features or logits")
        return self.classifier.spatial(self.x)

    @property
    def pixels(self) -> torch.Tensor:
        """(b, c, *size) before normalisation, in [0, 1]."""
        mean, std = self._normalisation
        return (self.x * std + mean).clamp(0, 1)

    @property
    def source(self) -> tuple[Cohort, np.ndarray]:
        """The cohort and the row numbers of these images."""
        if self.cohort is None or self.rows is None:
            raise SettingError("this recipe reads rows of a cohort, and the pass was given none")
        return self.cohort, self.rows

    def target(self, explain: str) -> torch.Tensor:
        """(b,) the output to explain."""
        if explain == "predicted":
            return self.read[1].argmax(1)
        if self.label is None:
            raise SettingError("explain=label, and this pass was given no labels")
        return self.label

    def with_pixels(self, pixels: torch.Tensor, undefined: torch.Tensor | None = None) -> Pass:
        """The same rows with other pixels in [0, 1]."""
        mean, std = self._normalisation
        return replace(self, x=(pixels - mean) / std, undefined=undefined, shared={})

    def with_network(
        self,
        network: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]],
        undefined: torch.Tensor | None = None,
    ) -> Pass:
        """The same rows read in another way."""
        return replace(self, network=network, undefined=undefined, shared={})

    def once(self, key: str, work: Callable[[], Any]) -> Any:
        """What several recipes share, by a name."""
        if key not in self.shared:
            self.shared[key] = work()
        return self.shared[key]

    @property
    def _normalisation(self) -> tuple[torch.Tensor, torch.Tensor]:
        shape = (1, -1, *(1 for _ in self.x.shape[2:]))
        mean, std = (self.x.new_tensor(v).view(shape) for v in (self.classifier.mean, self.classifier.std))
        return mean, std


@dataclass(frozen=True)
class Maker:
    """The function behind an array's name: a `Pass` of b images gives (b, …).

    Parameters
    ----------
    reads : columns of the cohort that it reads (label, box, mask), so that the array is tied to them
    arrays : other arrays of the same evidence that it reads, made before it; `audit/features` is one of another cohort
    fit : gives `make` from whole arrays of the evidence, once before the first batch
    check : raises a `ModelError` for a network that it is not for, before anything runs
    may_lack : values may be NaN where they are undefined
    """

    make: Callable[[Pass], torch.Tensor] | None
    reads: tuple[str, ...] = ()
    arrays: tuple[str, ...] = ()
    fit: Callable[[Evidence], Callable[[Pass], torch.Tensor]] | None = None
    check: Callable[[Classifier], None] | None = None
    may_lack: bool = False

    def __call__(self, batch: Pass) -> torch.Tensor:
        if self.make is None:
            raise SettingError("this recipe is made from whole arrays: fit it to the evidence first")
        return self.make(batch)

    def fitted(self, evidence: Evidence) -> Maker:
        return self if self.fit is None else replace(self, make=self.fit(evidence), fit=None)


PLAIN: dict[str, Callable[[Pass], torch.Tensor]] = {
    "features": lambda batch: batch.read[0],
    "logits": lambda batch: batch.read[1],
    "spatial": lambda batch: batch.spatial,
}

CHANGE = "change"


def make(name: str) -> Maker:
    """How the array of that name is made.

    `maps@<attribution>(…)` are (b, *space) maps, signed, at the method's own resolution, of the model's own predicted class or of
    the right one (`explain=label`); `conservation@<attribution>(…)` is (b, 3), the sum of each map, what was given away on the
    way, and the score that both should add up to; `screened@<attribution>(region=box,…)` are maps that are exact where it matters
    and NaN elsewhere. `features@<perturbation>(…)`, `logits@…` and `spatial@…` are what the network says after the perturbation;
    `change@<perturbation>(…)` is (b,), the root mean square change of its pixels.
    """
    recipe = Recipe.parse(name)
    if recipe.method and recipe.quantity in ATTRIBUTIONS:
        return ATTRIBUTIONS[recipe.quantity](recipe, *_attribution(recipe))
    if recipe.method and recipe.quantity == "tokens":
        return _settled(recipe, families.member("perturbations", "tokens").cover, by=recipe.method)
    if recipe.quantity not in PLAIN and not (recipe.method and recipe.quantity == CHANGE):
        others = ", ".join(f"{quantity}@…" for quantity in ATTRIBUTIONS)
        raise SettingError(f"no recipe {name!r}; {suggest(str(recipe), PLAIN)}, and {others} of an attribution, tokens@box")
    if recipe.method:
        return _perturbed(recipe)
    return Maker(PLAIN[recipe.quantity], check=Classifier.require_spatial if recipe.quantity == "spatial" else None)


def map_name(attribution: str, explain: str) -> str:
    """The name of the maps of an attribution, given as `gradcam` or `gradcam(layer=norm)`, of the class that is explained."""
    recipe = Recipe.parse(f"maps@{attribution}")
    if _is_classless(families.member("attributions", recipe.method)):
        return str(recipe)
    settings = {"explain": explain, **dict(recipe.settings)}
    return str(Recipe("maps", recipe.method, tuple(sorted(settings.items()))))


# ---- attributions --------------------------------------------------------------------------------------------------------


def _attribution(recipe: Recipe) -> tuple[ModuleType, str, dict[str, Any]]:
    """The attribution's module, what it explains, and its own settings."""
    module = families.member("attributions", recipe.method)
    settings = dict(recipe.settings)
    if _is_classless(module) and "explain" in settings:
        raise SettingError(f"{recipe.method} explains no class: leave explain= out of {str(recipe)!r}")
    explain = str(settings.pop("explain", "predicted"))
    if explain not in EXPLAIN:
        raise SettingError(f"explain={explain} in {str(recipe)!r}: give one of {', '.join(EXPLAIN)}")
    return module, explain, settings


def _maps(recipe: Recipe, module: ModuleType, explain: str, settings: dict[str, Any]) -> Maker:
    families.resolve(settings, module.maps, where=f"attribution {recipe.method!r}")
    key = str(Recipe("maps", recipe.method, tuple(sorted(settings.items()))))

    def run(batch: Pass) -> torch.Tensor:
        if hasattr(module, "work"):  # what serves every class is done once
            work = batch.once(key, lambda: module.work(batch.classifier, batch.x, **settings))
            batch.notes[str(recipe)] = work.notes
            return work.maps(batch.target(explain))  # type: ignore[no-any-return]
        if hasattr(module, "maps_and_conservation"):
            return _both(batch, recipe, module, explain, settings)[0]
        return module.maps(batch.classifier, batch.x, target=batch.target(explain), **settings)  # type: ignore[no-any-return]

    check = getattr(module, "check", None)
    return Maker(run, _label_of(explain), check=check and (lambda classifier: check(classifier, **settings)))


def _conservation(recipe: Recipe, module: ModuleType, explain: str, settings: dict[str, Any]) -> Maker:
    families.resolve(settings, module.maps, where=f"attribution {recipe.method!r}")
    if not hasattr(module, "maps_and_conservation"):
        raise SettingError(f"no recipe {str(recipe)!r}: the maps of {recipe.method} add up to nothing in particular")
    return Maker(lambda batch: _both(batch, recipe, module, explain, settings)[1], _label_of(explain))


def _screened(recipe: Recipe, module: ModuleType, explain: str, settings: dict[str, Any]) -> Maker:
    if not hasattr(module, "screened"):
        raise SettingError(f"no recipe {str(recipe)!r}: {recipe.method} has no screen")
    region = str(settings.pop("region", "box"))
    inside = make(f"tokens@{region}")
    families.resolve(settings, module.screened, where=f"the screen of {recipe.method!r}")

    def run(batch: Pass) -> torch.Tensor:
        target, covered = batch.target(explain), batch.arrays[f"tokens@{region}"]
        return module.screened(batch.classifier, batch.x, target=target, inside=covered > 0, **settings)  # type: ignore[no-any-return]

    return Maker(run, (*_label_of(explain), *inside.reads), (f"tokens@{region}",), check=module.check, may_lack=True)


ATTRIBUTIONS: dict[str, Callable[[Recipe, ModuleType, str, dict[str, Any]], Maker]] = {
    "maps": _maps,
    "conservation": _conservation,
    "screened": _screened,
}


def _both(batch: Pass, recipe: Recipe, module: ModuleType, explain: str, settings: dict[str, Any]) -> Any:
    key = str(Recipe("both", recipe.method, recipe.settings))
    return batch.once(
        key, lambda: module.maps_and_conservation(batch.classifier, batch.x, target=batch.target(explain), **settings)
    )


def _label_of(explain: str) -> tuple[str, ...]:
    return ("label",) if explain == "label" else ()


def _is_classless(module: ModuleType) -> bool:
    return bool(getattr(module, "IS_CLASSLESS", False))


# ---- perturbations -------------------------------------------------------------------------------------------------------


def _perturbed(recipe: Recipe) -> Maker:
    """A plain quantity of the batch as a perturbation changed it; all quantities share the changed pass."""
    found = _settled(recipe, perturbations.find(recipe.method))
    key = str(Recipe("", recipe.method, recipe.settings))

    def of(change: Callable[[Pass], Pass]) -> Callable[[Pass], torch.Tensor]:
        def quantity(batch: Pass) -> torch.Tensor:
            changed = batch.once(key, lambda: change(batch))
            return _rms_change(batch, changed) if recipe.quantity == CHANGE else PLAIN[recipe.quantity](changed)

        return quantity

    make = None if found.change is None else of(found.change)
    fit = found.fit and (lambda evidence: of(found.fit(evidence)))
    return Maker(make, found.reads, found.arrays, fit, found.check, found.may_lack)


def _rms_change(before: Pass, after: Pass) -> torch.Tensor:
    """(b,) root mean square change of the pixels in [0, 1]."""
    return ((after.x - before.x) * before._normalisation[1]).flatten(1).square().mean(1).sqrt()


def _settled(recipe: Recipe, function: Callable[..., Any], **given: Any) -> Any:
    settings = dict(recipe.settings)
    families.resolve(settings, function, where=f"{str(recipe)!r}")
    return function(**given, **settings)
