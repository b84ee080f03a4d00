"""What OSCAR found, in words, tables and pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rightreasons.audits import _oscar_pictures as drawing
from rightreasons.audits._contract import estimate
from rightreasons.audits._oscar_checks import EVERYWHERE, FIXED, LEARNT, WANDERING, significance, verdict, wandering
from rightreasons.audits._oscar_compare import ROLES, Correlation
from rightreasons.audits._oscar_measurement import Measurement
from rightreasons.audits._pull import FOLLOWS
from rightreasons.findings import (
    MAX_PICTURES,
    Bars,
    Cell,
    Curves,
    Estimate,
    Exhibit,
    Gallery,
    Heatmap,
    Picture,
    Row,
    Scatter,
    Table,
)
from rightreasons.stats.correlation import residual
from rightreasons.stats.profiles import QUADRANTS
from rightreasons.stats.replicates import Replicates
from rightreasons.stats.resampling import Interval

if TYPE_CHECKING:
    from rightreasons.audits.oscar import Result

ROW: Row = "place"
# What both models use more is localised where it reaches no farther than this, or is worth no larger a share of the regions; it
# is diffuse where it reaches and is spread beyond the other pair.
NEAR, FEW = 0.75, 0.08
FAR, MANY = 0.85, 0.15
TOP = 10
NAMES = {"test": "test model", "baseline": "baseline", "attribute": "attribute model"}
SAID = {
    "partial": "partial: test and attribute, given baseline",
    "deviation": "deviation: test without baseline, and attribute",
    "test and attribute": "pairwise: test and attribute",
    "test and baseline": "pairwise: test and baseline",
    "baseline and attribute": "pairwise: baseline and attribute",
}
STEP = "step from the balanced models towards the attribute model"
MEANING = (
    "The number says how far the test model's order of regions follows the attribute model's, beyond what a balanced model's "
    "order explains. It is not the share of decisions that hang on the attribute: it can stay near 0.4 when no group fails any "
    "more, and a place that both models look at may matter for the task as well. What a changed cue changes, the audits of "
    "reliance tell."
)


# ---- in words ------------------------------------------------------------------------------------------------------------


def sentence(result: Result) -> str:
    said = verdict(result)
    failed = [check for check in result.checks if check.decides and check.passed is False]
    attribute, decides = result.models.first.attribute, result.compared[0].correlation()
    number = _number(decides.interval)
    if said == "inconclusive":
        return f"{_failure(result, failed)} (partial correlation {number})."
    if said == "shortcut":
        return (
            f"The test model looks where a model of “{attribute}” looks, beyond what a balanced model does: partial correlation "
            f"{number}, {_p(result)}. {place(result)}"
        )
    if significance(result) < 0:
        return (
            f"The test model looks away from where a model of “{attribute}” looks (counter-alignment, partial correlation "
            f"{number}, {_p(result)}): no evidence of a shortcut through it."
        )
    return (
        f"Beyond what a balanced model does, the test model looks where a model of “{attribute}” looks no more than chance "
        f"allows: partial correlation {number}, {_p(result)}."
    )


def place(result: Result) -> str:
    """Whether what the two models share lies in one place or everywhere, in words."""
    first = result.compared[0]
    extent, R = first.spread, first.profiles.shape[1]
    if wandering(result.models.attribute) > WANDERING:
        return "The maps of the attribute model have no fixed place, so that none is claimed."
    if np.isnan(extent.effective):
        return "No region is used more by both: they agree on what they ignore."
    covers = float(np.mean([m.covers for m in result.models.attribute]))
    share = extent.effective / R
    if covers >= EVERYWHERE or (first.reach >= FAR and share >= MANY):
        kind = "diffuse"
    else:
        kind = "localised" if first.reach <= NEAR or share <= FEW else "neither localised nor diffuse"
    return (
        f"What they share is {kind}: worth {extent.effective:.0f} of {R} regions, reaching {first.reach:.0%} as far as the whole "
        f"image, where a single map of the attribute model covers {covers:.0%} of it."
    )


def _failure(result: Result, failed: list[Any]) -> str:
    attribute = result.models.first.attribute
    # A model that has learnt nothing of the attribute has maps of no fixed place too, and tells nothing of the cue.
    if wandering(result.models.attribute) > WANDERING and not any(c.name == LEARNT for c in failed):
        others = [c.name for c in failed if c.name != FIXED]
        return (
            f"To the model of “{attribute}” it is a cue with no fixed place: alignment fails, so that OSCAR can neither find nor "
            "place a shortcut through it" + (f". Conditions that fail beside: {'; '.join(others)}" if others else "")
        )
    if [c.name for c in failed] == [FOLLOWS]:
        return (
            f"The test model looks where a model of “{attribute}” looks, beyond what a balanced model does, and its answers do "
            f"not follow it: {failed[0].note}"
        )
    return "The test's own conditions fail: " + "; ".join(c.name + " – no" + (f", {c.note}" if c.note else "") for c in failed)


def _number(value: Interval) -> str:
    if np.isnan(value.value):
        return f"undefined: {value.reason}"
    limits = "" if np.isnan(value.low) else f" ({value.low:.2f} to {value.high:.2f})"
    return f"{value.value:.2f}{limits}"


def _p(result: Result) -> str:
    if result.decide == "replicates":
        r = result.replicates
        return (
            f"{r.tested:.0%} of the way from the balanced models to the attribute model (up to {r.upper:.0%} expected of "
            f"{len(r.values)} balanced models in its place), one-sided p = {r.p:.3g}"
        )
    return f"p = {result.compared[0].correlation().spatial.p:.3g}"


# ---- in numbers ----------------------------------------------------------------------------------------------------------


def estimates(result: Result) -> list[Estimate]:
    found, first = [], result.compared[0]
    for part in result.compared:
        for kind in ("partial", "deviation", "test and attribute"):
            c = part.correlation(kind)
            note = f"over {part.profiles.shape[1]} regions ({part.name}); interval: images; p: {c.spatial.null} null"
            found.append(_estimate(f"{SAID[kind]}, {part.name}", c, note=note, n=result.models.n, unit="correlation"))
    extent, R = first.spread, first.profiles.shape[1]
    for name, value in (
        ("regions that test and attribute model use more (effective number)", extent.effective),
        ("evenness of those regions (entropy, 1 = all alike)", extent.entropy),
        ("concentration of those regions (Gini, 1 = one region)", extent.gini),
    ):
        found.append(Estimate(name=name, value=value, n=R, row=ROW, reason=extent.reason, note="n: regions", group="extent"))
    far = "reach of those regions (0 = one place, 1 = the whole image)"
    found.append(Estimate(name=far, value=first.reach, n=R, row=ROW, reason=extent.reason, note="n: regions", group="extent"))
    among = [_step(result.replicates)] if not result.replicates.reason else []
    # What decides stands first: a case reads its p and its size there.
    found = [*among, *found] if result.decide == "replicates" else [*found, *among]
    return found + [e for role in ("test", "baseline") for m in getattr(result.models, role)[:1] for e in _of_model(m, role)]


def _estimate(name: str, c: Correlation, **more: Any) -> Estimate:
    p = None if np.isnan(c.spatial.p) else c.spatial.p
    return estimate(name, c.interval, ROW, p=p, **more)


def _step(r: Replicates) -> Estimate:
    note = f"0 is the balanced models, 1 the attribute model; one-sided p, prediction limit {r.upper:.2f}; n: balanced models"
    return Estimate(name=STEP, value=r.tested, p=r.p, n=len(r.values), row=ROW, note=note, unit="share", group="replicates")


def _of_model(m: Measurement, role: str) -> list[Estimate]:
    who = NAMES[role]
    none = m.no_probe
    return [
        Estimate(
            name=f"worst-group accuracy, {who}", value=m.worst_group, n=m.n, row="behaviour", unit="share", group="models",
            reason="" if np.isfinite(m.worst_group) else "no group of ten rows, or no logits",
        ),
        estimate(f"leakage: AUC of a probe of {m.attribute}, {who}", m.leakage, "encoding", n=m.n, unit="AUC", group="models")
        if not none or np.isfinite(m.leakage.value)
        else Estimate(name=f"leakage, {who}", value=None, reason=none, row="encoding", group="models"),
        Estimate(
            name=f"decisions that change without the probe's direction, {who}", value=m.removed_flips, n=m.n, row="reliance",
            unit="share", group="models", reason=none,
        ),
    ]  # fmt: skip


# ---- in exhibits ---------------------------------------------------------------------------------------------------------


def exhibits(result: Result) -> list[Exhibit]:
    found: list[Exhibit] = [_correlations(result)]
    if not result.replicates.reason:
        found.append(_replicates(result))
    found += _where(result)
    found += [_scatter(result), _regions(result), _profiles(result)]
    found += _attributions(result)
    if len(result.jitter):
        found.append(_jitter(result))
    found.append(_models(result))
    found += _single_tables(result)
    return found


def _correlations(result: Result) -> Table:
    rows: list[tuple[Any, ...]] = []
    for part in result.compared:
        for c in part.correlations:
            value = Cell(value=c.interval.value, low=c.interval.low, high=c.interval.high, reason=c.interval.reason)
            rows.append(
                (part.name, SAID[c.kind], c.coefficient, value, _value(c.spatial.p), _value(c.permutation), _value(c.paper))
            )
    return Table(
        title="How the three models' orders of regions correlate",
        caption=(
            "The first row decides, by the spatial p." if result.decide == "spatial" else "Balanced models decide, see below."
        )
        + " The plain p-values permute regions as if neighbours were independent, "
        f"which they are not, and call far too much significant. {MEANING}",
        columns=("partition", "correlation", "coefficient", "value", "p (spatial)", "p (permutation)", "p (paper's permutation)"),
        rows=tuple(rows),
        highlight=(0,) if result.decide == "spatial" else (),
        reason="Plain permutations stand beside Pearson's correlations only.",
    )


def _replicates(result: Result) -> Bars:
    r, models = result.replicates, result.models
    steps = zip((m.model for m in models.baseline), r.values, strict=True)
    decides = "It decides: " if result.decide == "replicates" else ""
    return Bars(
        title="Step from the balanced models towards the attribute model",
        caption=f"{decides}a correlation forgets how large a difference is, and seeds alone make small differences that "
        "point at the cue by chance. Each balanced model takes the test model's place in turn; the line is the one-sided "
        "prediction limit.",
        labels=(" and ".join(dict.fromkeys(m.model for m in models.test)), *(f"balanced: {name}" for name, _ in steps)),
        series=(r.tested, *r.values),
        value_label="share of the way",
        reference=r.upper,
        reference_label="expected of a balanced model, at most",
    )


def _where(result: Result) -> list[Exhibit]:
    m, items = result.models.first, []
    for k, part in enumerate(result.compared):
        for name, scores, quadrant in (
            ("shortcut-related: test and attribute, given baseline", part.maps.shortcut_normalised, part.maps.shortcut_quadrant),
            ("task-related: test and baseline, given attribute", part.maps.task_normalised, part.maps.task_quadrant),
        ):
            items += _overlays(m, k, f"{part.name}, {name}", scores, quadrant)
    found: list[Exhibit] = []
    if items:
        found.append(
            Gallery(
                title="Where the correlation comes from",
                caption="Region contribution scores over the mean image. Red: both models use the region more than the third "
                "would have it. Blue: both use it less, which counts towards the correlation as well and marks no shortcut."
                + _placeless(result),
                items=tuple(items[:MAX_PICTURES]),
            )
        )
    first = result.compared[0]
    if m.cells[0].all() and m.cells.shape[1] == 2 and np.isfinite(first.maps.shortcut).all():
        found.append(
            Heatmap(
                title="Region contribution scores, test and attribute given baseline",
                caption="Scaled so that their absolute values sum to 1; before that, their sum over R - 1 is the partial "
                "correlation. Positive where both depart from the baseline in the same direction: the picture above tells which."
                + _placeless(result),
                values=first.maps.shortcut_normalised.reshape(tuple(m.cells[0])),
                background=m.mean_image if len(m.pictures) else None,
                scale="diverging",
                value_label="RCS",
            )
        )
    return found


def _placeless(result: Result) -> str:
    if wandering(result.models.attribute) <= WANDERING:
        return ""
    return " The attribute model looks at another place in every image, so that this picture does not show where the cue is."


def _overlays(m: Measurement, k: int, name: str, scores: np.ndarray, quadrant: np.ndarray) -> list[Picture]:
    if not np.isfinite(scores).all():
        return []
    top = max(float(np.abs(scores).max()), 1e-300)
    both = {which: np.where(quadrant == which, scores, 0.0) / top for which in (0, 3)}
    regions, found = m.regions[k], []
    for where, plane in drawing.planes(regions, both[0]):
        more, less = (drawing.plane_of(drawing.over_regions(regions, both[q]), plane) for q in (0, 3))
        picture = drawing.blended(drawing.plane_of(m.mean_image, plane), [(less, drawing.LESS), (more, drawing.MORE)])
        found.append(Picture(png=picture, caption=", ".join(filter(None, (name, where))), group=m.partition[k]))
    return found


def _scatter(result: Result) -> Scatter:
    m, first = result.models.first, result.compared[0]
    test, baseline, attribute = first.profiles
    label = m.region[m.part(0)]
    return Scatter(
        title="Every region: test model against attribute model",
        caption="What the baseline leaves of the two profiles. Ranks count from 1, the most important, so that regions at the "
        "lower left are used more by both models than a balanced model would have it.",
        x=residual(attribute, baseline),
        y=residual(test, baseline),
        label=label,
        group=tuple("undecided" if q < 0 else QUADRANTS[q] for q in first.maps.shortcut_quadrant),
        x_label="attribute model: rank beyond the baseline",
        y_label="test model: rank beyond the baseline",
        hline=0.0,
        vline=0.0,
    )


def _regions(result: Result) -> Table:
    m, first = result.models.first, result.compared[0]
    part, task = first.maps.shortcut_part, first.maps.task_normalised
    order = [r for r in np.argsort(-np.nan_to_num(part))[:TOP] if part[r] > 0]
    label = m.region[m.part(0)]
    rows = tuple(
        (label[r], _value(first.maps.shortcut[r]), _value(first.maps.shortcut_normalised[r]), _value(task[r]),
         *(_value(p[r]) for p in first.profiles))
        for r in order
    )  # fmt: skip
    return Table(
        title="The regions that test and attribute model use more",
        caption=f"{place(result)} Largest contributions first; ranks count from 1, the most important.{_placeless(result)}",
        columns=("region", "RCS", "RCS, scaled", "RCS of the task, scaled", *(f"rank, {NAMES[role]}" for role in ROLES)),
        rows=rows,
        reason="" if rows else "no region is used more by both",
    )


def _profiles(result: Result) -> Gallery:
    m, first, items = result.models.first, result.compared[0], []
    regions, R = m.regions[0], first.profiles.shape[1]
    for role, profile in zip(ROLES, first.profiles, strict=True):
        importance = (R - np.nan_to_num(profile, nan=R)) / max(R - 1, 1)
        for where, plane in drawing.planes(regions, importance):
            # Ranks are spread evenly; the power keeps all but the foremost pale.
            heat = drawing.plane_of(drawing.over_regions(regions, importance**3), plane)
            picture = drawing.heated(drawing.plane_of(m.mean_image, plane), heat)
            items.append(Picture(png=picture, caption=", ".join(filter(None, (NAMES[role], where))), group=NAMES[role]))
    return Gallery(
        title="Rank profiles",
        caption="Where each model looks over all images, over the mean image: the more important a region, the redder.",
        items=tuple(items[:MAX_PICTURES]),
    )


def _attributions(result: Result) -> list[Exhibit]:
    models, items = result.models, []
    first = models.first
    if not len(first.pictures):
        return []
    for k in range(min(len(first.pictures), 12)):
        group = f"image {k + 1}: {first.captions[k]}"
        items.append(Picture(png=first.pictures[k], caption="image", group=group))
        for role in ROLES:
            m = getattr(models, role)[0]
            if len(m.picture_maps) > k:
                picture = drawing.heated(first.pictures[k], m.picture_maps[k])
                items.append(Picture(png=picture, caption=f"{NAMES[role]}, {first.captions[k]}", group=group))
    title, caption = "The same images, three models", "Attribution maps of single images, each scaled to its own maximum."
    return [Gallery(title=title, caption=caption, items=tuple(items))]


def _jitter(result: Result) -> Curves:
    return Curves(
        title="Does it hang on place?",
        caption="The partial correlation when the test model's maps are moved at random, every image by up to so many cells. "
        "Where the models agree on a place it falls; where it does not fall, no place is meant." + _placeless(result),
        x=result.models.first.jitter,
        series={"partial correlation": result.jitter},
        x_label="moved by up to … cells",
        y_label="partial correlation",
        hline=0.0,
    )


def _models(result: Result) -> Table:
    rows = []
    for role in ROLES:
        for m in getattr(result.models, role):
            accuracy, leakage = (
                Cell(value=i.value, low=i.low, high=i.high, reason=i.reason or m.no_probe) for i in (m.accuracy, m.leakage)
            )
            rows.append(
                (NAMES[role], m.model, accuracy, _value(m.worst_group), leakage, _value(m.removed_accuracy),
                 _value(m.removed_worst), _value(m.removed_flips), m.empty, _value(m.agreement),
                 _value(m.covers), _value(m.wandering))
            )  # fmt: skip
    return Table(
        title="The models",
        caption="Leakage is what a linear probe reads of the attribute from the features; taking its direction out and deciding "
        "again shows whether decisions hang on that one direction (they may hang on the attribute all the same). Agreement is "
        "the correlation of one image's ranks with the others'; covers, the share of the regions that a single map covers; "
        "wandering, how much of the rest the mean of all maps fills (near 1: no fixed place).",
        columns=(
            "role", "model", "balanced accuracy", "worst group", "leakage (AUC)", "accuracy without the direction",
            "worst group without it", "decisions changed", "empty maps", "agreement", "covers", "wandering",
        ),
        rows=tuple(rows),
        reason="Groups, leakage and removal are for models of the label.",
    )  # fmt: skip


def _single_tables(result: Result) -> list[Exhibit]:
    found: list[Exhibit] = []
    for title, caption, members in (
        ("Seed by seed", "Every test model on its own, against the mean profiles of the references.", result.seeds),
        ("Slice by slice", "The same comparison on a part of the images only.", result.slices),
    ):
        if members:
            rows = tuple(
                (
                    one.name,
                    one.n,
                    Cell(value=one.interval.value, low=one.interval.low, high=one.interval.high, reason=one.interval.reason),
                    _value(one.p),
                    _value(one.effective),
                )
                for one in members
            )
            columns = ("", "images", "partial correlation", "p (spatial)", "effective regions")
            found.append(Table(title=title, caption=caption, columns=columns, rows=rows))
    items = [
        picture
        for one in result.slices
        if one.maps is not None
        for picture in _overlays(result.models.first, 0, one.name, one.maps.shortcut_normalised, one.maps.shortcut_quadrant)
    ]
    if items:
        caption = "Region contribution scores of every slice, coloured as above." + _placeless(result)
        found.append(Gallery(title="Where, slice by slice", caption=caption, items=tuple(items[:MAX_PICTURES])))
    return found


def _value(number: float) -> float | None:
    return float(number) if np.isfinite(number) else None
