"""One model: from its attribution maps to ranks of regions (Algorithm 1, lines 2 to 10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rightreasons.audits._following import NOT_MEASURED, pull_beside
from rightreasons.audits.oscar.behaviour import (
    conservation_error,
    decisions_of,
    leakage_of,
    predicted_column,
    training_of,
)
from rightreasons.audits.oscar.measurement import ORDERS, RANK_FIRST, Measurement, Ranking
from rightreasons.audits.oscar.pictures import pictures_of
from rightreasons.audits.oscar.regions import cut_images, score_regions, stored_regions
from rightreasons.audits.oscar.rows import audited_attribute, balance_within_label, balanced_rows
from rightreasons.audits.oscar.steadiness import steadiness_of
from rightreasons.errors import SettingError
from rightreasons.evidence import Evidence, Recipe
from rightreasons.families import with_settings
from rightreasons.stats.profiles import empty_maps, rank_regions
from rightreasons.stats.resampling import Interval, resamples

CONSERVING = ("lrp", "attnlrp", "integrated_gradients")  # attributions whose maps add up to the score
EXPLAINED = ("predicted", "label")
AGGREGATES = ("median", "mean")


@dataclass(frozen=True)
class Settings:
    """How one model is measured.

    Attributes
    ----------
    attribute : the column audited; may be left out where there is only one
    attribution : member of `attributions/` with its settings, `"gradcam(layer=layer4)"`, or `{"method": "gradcam", "layer": …}`
    explain : the class whose score is explained: the model's own "predicted" one, or the "label"
    partitions : "grid:16" (cells along every axis, or "grid:16x8"), "superpixel:256", "atlas:<file>"; the first decides. By
        default 16x16 cells (8 an axis below 64 pixels and in volumes), and half as many beside
    names : of an atlas' labels, `{17: "hippocampus"}` or a file
    size : of the model's input, where its card does not say
    region : statistic of a region: "mean", "saliency", or a percentile
    how : "median" or "mean" over images
    order : "rank-then-aggregate", or "aggregate-then-rank" (scores over images first)
    slices : column; the images of each of its values are also compared on their own
    pictures : images shown with their maps
    B : resamples of the images
    """

    attribute: str | None = None
    attribution: str | Mapping[str, Any] = "gradcam"
    explain: str = "predicted"
    partitions: str | Sequence[str] | None = None
    names: Mapping[Any, str] | str | None = None
    size: int | Sequence[int] | None = None
    region: str | float = "mean"
    how: str = "median"
    order: str = RANK_FIRST
    slices: str | None = None
    pictures: int = 6
    B: int = 10_000


@dataclass(frozen=True)
class Arrays:
    """Names of the arrays of maps, and of their sums where the attribution keeps them (empty where it does not)."""

    maps: str
    sums: str


def array_names(attribution: str | Mapping[str, Any], explain: str) -> Arrays:
    """The arrays of an attribution, given as `gradcam(layer=layer4)` or as its settings."""
    if isinstance(attribution, Mapping):
        settings = dict(attribution)
        method = str(settings.pop("method", "gradcam"))
    else:
        recipe = Recipe.parse(f"maps@{attribution}")
        method, settings = recipe.method, dict(recipe.settings)
    if explain not in EXPLAINED:
        raise SettingError(f"explain={explain!r}; known: {', '.join(EXPLAINED)}")
    if explain == "label":
        settings["explain"] = explain
    inner = tuple(sorted(settings.items()))
    sums = ""
    if method in CONSERVING:
        sums = str(Recipe("conservation", method, inner))
    return Arrays(str(Recipe("maps", method, inner)), sums)


@with_settings(Settings)
def measure(evidence: Evidence, *, rng: np.random.Generator, settings: Settings) -> Measurement:
    """Ranks of the regions of one model's maps, on test rows in which the attribute is balanced within the label."""
    _check(settings)
    test = evidence.on("test")
    a = audited_attribute(test, settings.attribute)
    arrays = array_names(settings.attribution, settings.explain)
    space = test.select(np.arange(min(len(test), 1)))[arrays.maps].shape[1:]  # before the rows are sorted: there may be no maps
    balance = balance_within_label(test.cohort, a, rng)
    view = test.select(balance.kept)
    cut = cut_images(view, space, settings.partitions, settings.names, settings.size)
    scores = score_regions(view, arrays.maps, cut, settings.region)
    ranks = [rank_regions(of_partition) for of_partition in scores]
    values = np.concatenate(ranks if settings.order == RANK_FIRST else scores, axis=1).astype(np.float32)
    sample = resamples(len(view), rng=rng, B=settings.B, subject=view.cohort.subject)
    return Measurement(
        model=evidence.card.name,
        target=predicted_column(test),
        attribute=a.name,
        label_name=test.cohort.label_name,
        classes=tuple(map(str, test.cohort.classes)),
        levels=tuple(map(str, a.levels)),
        rows=balanced_rows(test, a, balance, settings.slices),
        regions=stored_regions(cut),
        ranking=Ranking(arrays.maps, settings.how, settings.order, values, empty=int(empty_maps(scores[0]).sum())),
        steadiness=steadiness_of(scores, ranks[0], cut.partitions, settings.how, rng),
        decisions=decisions_of(view, a, sample),
        leakage=leakage_of(evidence, view, a, sample),
        training=training_of(evidence.training, a.name),
        conservation=conservation_error(view, arrays.sums),
        pictures=pictures_of(view, a, cut.geometry, arrays.maps, settings.pictures),
        pull=_pull_on_answers(evidence, a.name, rng, settings.B),
    )


# ---- what the functions above use ----------------------------------------------------------------------------------------


def _check(settings: Settings) -> None:
    if settings.order not in ORDERS or settings.how not in AGGREGATES:
        known = f"{', '.join(AGGREGATES)}; {', '.join(ORDERS)}"
        raise SettingError(f"found how={settings.how!r}, order={settings.order!r}; known: {known}")


def _pull_on_answers(evidence: Evidence, attribute: str, rng: np.random.Generator, B: int) -> Interval:
    """How far the attribute pulls the answers of a model of the label; a model of the attribute follows it by definition."""
    test = evidence.on("test")
    if predicted_column(test) != test.cohort.label_name:
        return NOT_MEASURED
    return pull_beside(evidence, attribute, rng=rng.spawn(1)[0], B=B)
