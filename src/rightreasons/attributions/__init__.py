"""Explanations of a prediction: one file for each method, found by its name. Each has `maps(classifier, x, *, target, …)`.

This file knows attributions by name only and imports none, so listing them does not need torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from rightreasons import families
from rightreasons.errors import SettingError
from rightreasons.evidence import Recipe

EXPLAIN = ("predicted", "label")
"""The class that a map explains: the model's own prediction, or the right one."""


@dataclass(frozen=True)
class Explanation:
    """An attribution as a recipe asks for it: its module, the class that it explains, and its own settings."""

    module: ModuleType
    explain: str
    settings: dict[str, Any]

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns of the cohort that this explanation reads."""
        if self.explain == "label":
            return ("label",)
        return ()


def explanation_of(recipe: Recipe, *, function: str = "maps") -> Explanation:
    """What `maps@gradcam(layer=layer4,explain=label)` asks for; refused where method, class or a setting is unknown.

    Parameters
    ----------
    function : "maps", or "screened" for methods that have a screen, which also takes `region`
    """
    module = families.member("attributions", recipe.method)
    settings = dict(recipe.settings)
    if is_classless(module) and "explain" in settings:
        raise SettingError(f"{recipe.method} explains no class: leave explain= out of {str(recipe)!r}")
    explain = str(settings.pop("explain", "predicted"))
    if explain not in EXPLAIN:
        raise SettingError(f"explain={explain} in {str(recipe)!r}: give one of {', '.join(EXPLAIN)}")
    if function == "maps":
        families.resolve(settings, module.maps, where=f"attribution {recipe.method!r}")
        return Explanation(module, explain, settings)
    if not hasattr(module, function):
        raise SettingError(f"no recipe {str(recipe)!r}: {recipe.method} has no screen")
    own = {key: value for key, value in settings.items() if key != "region"}
    families.resolve(own, getattr(module, function), where=f"the screen of {recipe.method!r}")
    return Explanation(module, explain, settings)


def map_name(attribution: str, explain: str) -> str:
    """The name of the maps of an attribution, given as `gradcam` or `gradcam(layer=norm)`, of the class that is explained."""
    recipe = Recipe.parse(f"maps@{attribution}")
    if is_classless(families.member("attributions", recipe.method)):
        return str(recipe)
    settings = {"explain": explain, **dict(recipe.settings)}
    return str(Recipe("maps", recipe.method, tuple(sorted(settings.items()))))


def is_classless(module: ModuleType) -> bool:
    """Whether the maps of an attribution are the same whichever class is asked about."""
    return bool(getattr(module, "IS_CLASSLESS", False))


def check_contract(name: str, **settings: Any) -> dict[str, tuple[int, ...]]:
    """What `rightreasons.testing.check_attribution` runs; needs torch."""
    from rightreasons.attributions import _check  # runs networks

    return _check.check(name, **settings)
