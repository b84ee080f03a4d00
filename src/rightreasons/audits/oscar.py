"""OSCAR: does the test model look where an attribute model looks, beyond what a balanced model does, and where is that?

Attribution maps of a test, a baseline and an attribute model on the same balanced test images become rank profiles of image
regions. Their partial correlation says whether the test model follows the attribute model beyond the baseline, and the region
contribution scores say where (OSCAR, sec. III; Algorithm 1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rightreasons.audits import _oscar_model as model
from rightreasons.audits import _oscar_page as page
from rightreasons.audits import _oscar_regions as cutting
from rightreasons.audits._contract import Context, Need, Role
from rightreasons.audits._oscar_checks import checks, verdict
from rightreasons.audits._oscar_compare import (
    Compared,
    Models,
    Single,
    among_replicates,
    by_seed,
    by_slice,
    compare,
    jitter_curve,
    shared,
)
from rightreasons.audits._oscar_measurement import ORDERS, Measurement
from rightreasons.audits._oscar_pictures import pictures_of, step_of, thinned
from rightreasons.audits._pull import NOT_MEASURED, pull_beside
from rightreasons.data.cohort import Attribute
from rightreasons.data.facts import Facts
from rightreasons.errors import NotRun, SettingError
from rightreasons.evidence import Evidence, Recipe, View
from rightreasons.findings import Check, Finding, Row, Verdict
from rightreasons.stats.contributions import ContributionMaps, contribution_maps, rcs_star, shortcut_map
from rightreasons.stats.profiles import (
    bootstrap_profiles,
    contributions,
    empty_maps,
    profile,
    quadrants,
    rank_regions,
    region_scores,
    spread,
)
from rightreasons.stats.replicates import Replicates, step
from rightreasons.stats.resampling import resamples
from rightreasons.stats.spatial import NULLS

__all__ = [
    "QUESTION", "ROW", "ContributionMaps", "Measurement", "Result", "bootstrap_profiles", "conclude", "contribution_maps",
    "contributions", "empty_maps", "measure", "needs", "profile", "quadrants", "rank_regions", "rcs_star", "region_scores",
    "roles", "shortcut_map", "spread", "step",
]  # fmt: skip

QUESTION = "Does the model look where an attribute model looks, beyond what a balanced model does, and where is that?"
ROW: Row = "place"

CONSERVING = ("lrp", "attnlrp", "integrated_gradients")  # attributions whose maps add up to the score
AUDITED = "@attribute"  # stands for the attribute audited, where a role is declared before one is named
TESTS = ("auto", "spatial", "replicates")


def needs(attribution: str | Mapping[str, Any] = "gradcam", explain: str = "predicted") -> tuple[Need, ...]:
    maps, sums = array_names(attribution, explain)
    found = []
    for role in ("test", "baseline", "attribute"):
        found += [Need(role, "test", maps), Need(role, "test", "logits")]
        found += [Need(role, "test", sums, optional=True)] if sums else []
    for role in ("test", "baseline"):
        found += [Need(role, cohort, "features", optional=True) for cohort in ("audit", "test")]
    found.append(Need("test", "audit", "logits", optional=True))  # which way to look, where the training rows do not say
    return tuple(found)


def roles(attribute: str | None = None) -> tuple[Role, ...]:
    """A model trained on balanced rows, and one trained on the same rows to predict the attribute."""
    return (
        Role("baseline", regime="balanced", rows="balanced"),
        Role("attribute", rows="balanced", target=attribute or AUDITED),
    )


def array_names(attribution: str | Mapping[str, Any], explain: str) -> tuple[str, str]:
    """Names of the arrays of maps, and of their sums where the attribution has them: `gradcam(layer=layer4)` or its settings."""
    if isinstance(attribution, Mapping):
        settings = dict(attribution)
        method = str(settings.pop("method", "gradcam"))
    else:
        recipe = Recipe.parse(f"maps@{attribution}")
        method, settings = recipe.method, dict(recipe.settings)
    if explain not in ("predicted", "label"):
        raise SettingError(f"explain={explain!r}; known: predicted, label")
    if explain == "label":
        settings["explain"] = explain
    inner = tuple(sorted(settings.items()))
    sums = str(Recipe("conservation", method, inner)) if method in CONSERVING else ""
    return str(Recipe("maps", method, inner)), sums


@dataclass(frozen=True)
class Result:
    """OSCAR over three roles. `compared[0]` is the partition that decides."""

    models: Models
    compared: tuple[Compared, ...]
    replicates: Replicates
    seeds: tuple[Single, ...]
    slices: tuple[Single, ...]
    jitter: np.ndarray
    decide: str
    alpha: float
    context: Context = field(default_factory=Context)

    @property
    def checks(self) -> list[Check]:
        return checks(self)

    @property
    def verdict(self) -> Verdict:
        return verdict(self)

    def finding(self) -> Finding:
        return self.context.finding(
            question=QUESTION,
            row=ROW,
            verdict=self.verdict,
            sentence=page.sentence(self),
            estimates=page.estimates(self),
            checks=self.checks,
            exhibits=page.exhibits(self),
        )


def measure(
    evidence: Evidence,
    *,
    rng: np.random.Generator,
    attribute: str | None = None,
    attribution: str | Mapping[str, Any] = "gradcam",
    explain: str = "predicted",
    partitions: str | Sequence[str] | None = None,
    names: Mapping[Any, str] | str | None = None,
    size: int | Sequence[int] | None = None,
    region: str | float = "mean",
    how: str = "median",
    order: str = "rank-then-aggregate",
    slices: str | None = None,
    pictures: int = 6,
    B: int = 10_000,
) -> Measurement:
    """Ranks of the regions of one model's maps, on test rows in which the attribute is balanced within the label.

    Parameters
    ----------
    attribution : member of `attributions/` with its settings, `"gradcam(layer=layer4)"`, or `{"method": "gradcam", "layer": …}`
    explain : the class whose score is explained: the model's own "predicted" one, or the "label"
    partitions : "grid:16" (cells along every axis, or "grid:16x8"), "superpixel:256", "atlas:<file>"; the first decides. By
        default 16x16 cells (8 an axis below 64 pixels and in volumes), and half as many beside
    names : of an atlas' labels, `{17: "hippocampus"}` or a file
    size : of the model's input, where its card does not say
    region : statistic of a region: "mean", "saliency", or a percentile
    how : "median" or "mean" over images
    order : "rank-then-aggregate", or "aggregate-then-rank" (scores over images first)
    slices : column by whose values the images are also looked at apart
    pictures : images shown with their maps
    """
    if order not in ORDERS or how not in ("median", "mean"):
        raise SettingError(f"found how={how!r}, order={order!r}; known: median, mean; {', '.join(ORDERS)}")
    test = evidence.on("test")
    a = model.audited_attribute(test, attribute)
    maps, sums = array_names(attribution, explain)
    rows, sizes = model.balanced_rows(test.cohort, a, rng)
    if not len(rows):
        raise NotRun(f"no test row has both {test.cohort.label_name} and {a.name}")
    view = test.select(rows)
    cut, geometry, known = _partitions(test, view, maps, partitions, names, size)
    affines = cutting.row_affines(view, len(geometry.size))
    found = cutting.scores(view, maps, cut, region, affines)
    ranks = [rank_regions(s) for s in found]
    on_grid = next((k for k, part in enumerate(cut) if part.cells), None)
    sample = resamples(len(view), rng=rng, B=B, subject=view.cohort.subject)
    jittered = np.zeros((0, 0)) if on_grid is None else model.jittered_profiles(found[on_grid], cut[on_grid].cells, how, rng)
    width, mean_width = model.widths(found[0])
    decided, carried = model.decided(view, a, sample), model.carried(evidence, view, a, sample)
    shown, captions = _shown(view, a, pictures)
    drawn = pictures_of(view, geometry, maps, shown, captions)
    step, axes = step_of(geometry.size), len(geometry.size)
    seen, trained = model.association(evidence.training, a.name)
    of_label = model.predicts(test) == test.cohort.label_name
    pull = pull_beside(evidence, a.name, rng=rng.spawn(1)[0], B=B) if of_label else NOT_MEASURED
    return Measurement(
        model=evidence.card.name,
        target=model.predicts(test),
        attribute=a.name,
        label_name=test.cohort.label_name,
        classes=tuple(map(str, test.cohort.classes)),
        levels=tuple(map(str, a.levels)),
        recipe=maps,
        how=how,
        order=order,
        id=tuple(map(str, view.cohort.id)),
        label=view.cohort.label.astype(np.int16),
        level=view.cohort.attribute(a.name).values.astype(np.int16),
        subject=() if view.cohort.subject is None else tuple(map(str, view.cohort.subject)),
        slices=() if slices is None else tuple(map(str, view.cohort.column(slices))),
        group_sizes=sizes,
        left_out=int(sizes.sum()) - len(rows),
        missing=len(test) - int(sizes.sum()),
        geometry=known,
        partition=tuple(part.name for part in cut),
        partition_note=tuple(part.note for part in cut),
        R=np.array([part.R for part in cut]),
        cells=np.array([part.cells or (0,) * axes for part in cut]),
        values=np.concatenate(ranks if order == ORDERS[0] else found, axis=1).astype(np.float32),
        centroids=np.concatenate([part.centroids for part in cut]),
        region=tuple(name for part in cut for name in part.names),
        regions=np.stack([thinned(part.regions, step, axes) for part in cut]).astype(np.int32),
        empty=int(empty_maps(found[0]).sum()),
        jitter=np.array(() if on_grid is None else model.jitters(cut[on_grid].cells)),
        jittered=jittered,
        agreement=model.agreement(ranks[0]),
        width=width,
        mean_width=mean_width,
        accuracy=decided.accuracy,
        chance=decided.chance,
        worst_group=decided.worst_group,
        group_accuracy=decided.group_accuracy,
        leakage=carried.leakage,
        leakage_within=carried.within,
        removed_accuracy=carried.accuracy,
        removed_worst=carried.worst,
        removed_flips=carried.flips,
        no_probe=carried.reason,
        association=seen,
        training_rows=trained,
        conservation=model.conservation_error(view, sums) if sums else np.nan,
        mean_image=drawn.mean_image,
        pictures=drawn.pictures,
        picture_maps=drawn.maps,
        captions=drawn.captions,
        no_pictures=drawn.problem,
        pull=pull,
    )


def conclude(
    measurements: Mapping[str, Sequence[Measurement]],
    *,
    rng: np.random.Generator,
    null: str | None = None,
    decide: str = "auto",
    alpha: float = 0.05,
    level: float = 0.95,
    B: int = 10_000,
) -> Result:
    """Correlate the three profiles, test them, and say where the correlation comes from.

    Several models of a role are its seeds: their mean profile is taken, and every test model is also shown on its own.

    Parameters
    ----------
    null : the spatial null whose p decides; the best one for the partition by default (`stats.spatial`)
    decide : "spatial": the partial correlation by a null that knows neighbouring regions to be alike; "replicates": the step from
        the balanced models to the attribute model, against that of balanced models in the test model's place. By default
        replicates where there are four balanced models or more: on trained CNNs they find most of what the other misses
        (`make bench NAME=oscar-models`)
    alpha : level at which the partial correlation counts as significant
    B : resamples of the images (of subjects where they are known) and draws of the nulls
    """
    if decide not in TESTS or (null is not None and null not in NULLS):
        raise SettingError(f"found decide={decide!r}, null={null!r}; known: {', '.join(TESTS)}; {', '.join(NULLS)}")
    lacking = [role for role in ("test", "baseline", "attribute") if not measurements.get(role)]
    if lacking:
        raise NotRun(
            f"no {' and no '.join(lacking)} model: OSCAR compares the test model with a baseline trained on balanced rows and "
            'with a model trained on the same rows to predict the attribute; give {"test": …, "baseline": …, "attribute": …}'
        )
    models = shared(measurements["test"], measurements["baseline"], measurements["attribute"])
    if not models.n:
        raise NotRun("the three models share no test image: extract their maps on the same rows")
    subject = models.of("subject") if models.first.subject else None
    sample = resamples(models.n, rng=rng, B=B, subject=subject)
    among = among_replicates(models, alpha)
    return Result(
        models=models,
        compared=compare(models, sample, null=null, B=B, level=level, rng=rng),
        replicates=among,
        seeds=by_seed(models, null, B, rng) if len(models.test) > 1 else (),
        slices=by_slice(models, null, min(B, 2_000), level, rng),
        jitter=jitter_curve(models) if len(models.first.jitter) else np.zeros(0),
        decide=decide if decide != "auto" else ("spatial" if among.reason else "replicates"),
        alpha=alpha,
        context=Context(attribute=models.first.attribute, n_rows=models.n, n_subjects=None if subject is None else sample.units),
    )


# ---- what the functions above use ----------------------------------------------------------------------------------------


def _partitions(
    test: View,
    view: View,
    maps: str,
    asked: str | Sequence[str] | None,
    names: Mapping[Any, str] | str | None,
    size: int | Sequence[int] | None,
) -> tuple[list[cutting.Partition], Any, str]:
    space = view.select(np.arange(1))[maps].shape[1:]
    geometry, known = cutting.input_geometry(view, size, space)
    facts = Facts(None, test.cohort, geometry)
    specs = [asked] if isinstance(asked, str) else list(asked or cutting.default_partitions(geometry.size))
    affine = facts.affine if test.cohort.has_images else lambda: None
    found = [cutting.partition(spec, geometry.size, edges=facts.edge_image, affine=affine, names=names) for spec in specs]
    if found[0].R < 4:
        raise SettingError(f"{specs[0]!r} has {found[0].R} regions, and a correlation over regions needs at least 4")
    return found, geometry, known


def _shown(view: View, a: Attribute, number: int) -> tuple[np.ndarray, list[str]]:
    """Rows to show, the groups in turn, and what they are; the same for all models."""
    cohort = view.cohort
    level = cohort.attribute(a.name).values
    group = cohort.label * len(a.levels) + level
    turn = np.zeros(len(view), dtype=np.int64)
    for g in np.unique(group):
        turn[group == g] = np.arange((group == g).sum())
    rows = np.lexsort((group, turn))[: max(0, number)]
    said = [f"{cohort.label_name} {cohort.classes[cohort.label[r]]}, {a.name} {a.levels[level[r]]}" for r in rows]
    return rows, said
