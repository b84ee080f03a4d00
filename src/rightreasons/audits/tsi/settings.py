"""What TSI can be asked to do with one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rightreasons.audits.tsi.arrays import EXPLAIN, EXTRAS, REGIONS
from rightreasons.errors import SettingError
from rightreasons.families import suggest
from rightreasons.findings import MAX_PICTURES


@dataclass(frozen=True)
class Settings:
    """Settings of `measure`.

    Attributes
    ----------
    region : what the object is: "box", "mask", boxes or else masks ("auto"); "fov", the computed field of view, or "attention",
        its `top` tokens; with these two TSI only describes
    maps : the influence: an attribution with its settings, such as `token_influence(by=occlusion,patch=16)`, or the whole name
        of an array
    explain : influence on the right class, or on the predicted one
    rectify : "positive" counts tokens that support the class, "signed" all with their sign, "abs" by their size
    least_share : share of a token that must lie in the object for it to be inside; 0 is any overlap
    cohort : rows to measure; only `test` gives a verdict
    extras : further analyses to extract for: substitutes, deletion, noise, keep, missingness, or all
    draws, sd : of the noise (NSI), pixels in [0, 1]
    aligned : attribute value → the label it stands for; learnt as in `groups` by default
    pictures : in the gallery
    """

    region: str = "auto"
    maps: str = "token_influence"
    explain: str = "label"
    rectify: str = "positive"
    least_share: float = 0.0
    top: int = 40
    cohort: str = "test"
    extras: Sequence[str] = ()
    draws: int = 4
    sd: float = 0.25
    aligned: Mapping[Any, Any] | None = None
    B: int = 10_000
    level: float = 0.95
    pictures: int = 24

    def check(self) -> None:
        """Refuse what cannot be measured."""
        check_arrays(self)
        if not 0 <= self.least_share <= 1:
            raise SettingError(f"least_share={self.least_share}: give a share of a token between 0 and 1")
        if not 0 <= self.pictures <= MAX_PICTURES:
            raise SettingError(f"pictures={self.pictures}: give 0 to {MAX_PICTURES}")


def check_arrays(settings: Settings) -> None:
    """Refuse settings that name no array."""
    if settings.region not in REGIONS:
        raise SettingError(f"no region {settings.region!r}; {suggest(str(settings.region), REGIONS)}")
    if settings.explain not in EXPLAIN:
        raise SettingError(f"explain={settings.explain!r}; {suggest(str(settings.explain), EXPLAIN)}")
    for name in named_extras(settings.extras):
        if name not in (*EXTRAS, "all"):
            raise SettingError(f"extras= names {name!r}; {suggest(str(name), (*EXTRAS, 'all'))}")
    if settings.draws < 1 or settings.sd <= 0:
        raise SettingError(
            f"found draws={settings.draws} and sd={settings.sd}; noise needs at least one draw and a positive deviation"
        )


def wanted_extras(extras: Sequence[str]) -> tuple[str, ...]:
    """The extras asked for, in their order."""
    given = named_extras(extras)
    if "all" in given:
        return EXTRAS
    return tuple(name for name in EXTRAS if name in given)


def named_extras(extras: Sequence[str]) -> Sequence[str]:
    """One name alone stands for a list of one."""
    if not isinstance(extras, str):
        return extras
    return [extras]
