"""What OSCAR found, in tables and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rightreasons.audits.oscar import pictures as drawing
from rightreasons.audits.oscar.compare import Comparison, Correlation, Single
from rightreasons.audits.oscar.judge import has_no_fixed_place
from rightreasons.audits.oscar.measurement import Measurement
from rightreasons.audits.oscar.models import ROLES
from rightreasons.audits.oscar.page import place
from rightreasons.audits.oscar.wording import CORRELATIONS, MODELS
from rightreasons.findings import MAX_PICTURES, Bars, Cell, Curves, Exhibit, Gallery, Heatmap, Picture, Scatter, Table
from rightreasons.stats.contributions import BOTH_MORE
from rightreasons.stats.correlation import residual
from rightreasons.stats.profiles import QUADRANTS
from rightreasons.stats.resampling import Interval

TOP = 10
MOST_IMAGES = 12
BOTH_LESS = QUADRANTS.index("both less")
MEANING = (
    "The number says how far the test model's order of regions follows the attribute model's, beyond what a balanced model's "
    "order explains. It is not the share of decisions that hang on the attribute: it can stay near 0.4 when no group fails any "
    "more, and a place that both models look at may matter for the task as well. Whether decisions change with the cue is for "
    "the audits of reliance to say."
)

TableCell = Cell | int | float | str | None


def exhibits(comparison: Comparison) -> list[Exhibit]:
    """All exhibits, in the order of the page."""
    shown: list[Exhibit] = [correlation_table(comparison)]
    if not comparison.replicates.reason:
        shown.append(replicate_bars(comparison))
    shown += contribution_pictures(comparison)
    shown += [region_scatter(comparison), region_table(comparison), profile_gallery(comparison)]
    shown += attribution_gallery(comparison)
    if len(comparison.jitter):
        shown.append(jitter_curves(comparison))
    shown.append(model_table(comparison))
    if comparison.seeds:
        caption = "Every test model on its own, against the mean profiles of the references."
        shown.append(single_table("Seed by seed", caption, comparison.seeds))
    if comparison.slices:
        shown.append(single_table("Slice by slice", "The same comparison on a part of the images only.", comparison.slices))
    return shown + slice_gallery(comparison)


# ---- correlations --------------------------------------------------------------------------------------------------------


def correlation_table(comparison: Comparison) -> Table:
    rows = []
    for part in comparison.compared:
        for c in part.correlations:
            rows.append(_correlation_row(c))
    decides = "The first row decides, by the spatial p."
    if comparison.by_replicates:
        decides = "Balanced models decide, see below."
    return Table(
        title="How the three models' orders of regions correlate",
        caption=f"{decides} The plain p-values permute regions as if neighbours were independent, which they are not, and call "
        f"far too much significant. {MEANING}",
        columns=("partition", "correlation", "coefficient", "value", "p (spatial)", "p (permutation)", "p (paper's permutation)"),
        rows=tuple(rows),
        highlight=() if comparison.by_replicates else (0,),
        reason="Plain permutations stand beside Pearson's correlations only.",
    )


def _correlation_row(c: Correlation) -> tuple[TableCell, ...]:
    p_values = (_number(c.spatial.p), _number(c.permutation), _number(c.paper))
    return (c.partition, CORRELATIONS[c.kind], c.coefficient, Cell.of(c.interval), *p_values)


def replicate_bars(comparison: Comparison) -> Bars:
    r, models = comparison.replicates, comparison.models
    decides = "It decides: " if comparison.by_replicates else ""
    tested = " and ".join(dict.fromkeys(m.model for m in models.test))
    return Bars(
        title="Step from the balanced models towards the attribute model",
        caption=f"{decides}a correlation forgets how large a difference is, and seeds alone make small differences that "
        "point at the cue by chance. Each balanced model takes the test model's place in turn; the line is the one-sided "
        "prediction limit.",
        labels=(tested, *(f"balanced: {m.model}" for m in models.baseline)),
        series=(r.tested, *r.values),
        value_label="share of the way",
        reference=r.upper,
        reference_label="expected of a balanced model, at most",
    )


# ---- where it comes from -------------------------------------------------------------------------------------------------


def contribution_pictures(comparison: Comparison) -> list[Exhibit]:
    """Region contribution scores of both directions over the mean image, and those of the shortcut as a map (sec. III-H)."""
    m, items = comparison.models.first, []
    for k, part in enumerate(comparison.compared):
        shortcut = f"{part.name}, shortcut-related: test and attribute, given baseline"
        items += _overlays(m, k, shortcut, part.maps.shortcut_normalised, part.maps.shortcut_quadrant)
        task = f"{part.name}, task-related: test and baseline, given attribute"
        items += _overlays(m, k, task, part.maps.task_normalised, part.maps.task_quadrant)
    shown: list[Exhibit] = []
    if items:
        gallery = Gallery(
            title="Where the correlation comes from",
            caption="Region contribution scores over the mean image. Red: both models use the region more than the third one "
            "predicts. Blue: both use it less, which adds to the correlation as well but marks no shortcut."
            + _placeless(comparison),
            items=tuple(items[:MAX_PICTURES]),
        )
        shown.append(gallery)
    cells, maps = m.regions.grid(0), comparison.compared[0].maps
    if cells is not None and len(cells) == 2 and np.isfinite(maps.shortcut).all():
        heatmap = Heatmap(
            title="Region contribution scores, test and attribute given baseline",
            caption="Scaled so that their absolute values sum to 1; before that, their sum over R - 1 is the partial "
            "correlation. Positive where both depart from the baseline in the same direction: the picture above tells which."
            + _placeless(comparison),
            values=maps.shortcut_normalised.reshape(cells),
            background=m.pictures.mean_image if len(m.pictures.images) else None,
            scale="diverging",
            value_label="RCS",
        )
        shown.append(heatmap)
    return shown


def region_scatter(comparison: Comparison) -> Scatter:
    first = comparison.compared[0]
    test, baseline, attribute = first.profiles
    return Scatter(
        title="Every region: test model against attribute model",
        caption="What the baseline leaves of the two profiles. Ranks count from 1, the most important, so both models use "
        "regions at the lower left more than the baseline predicts.",
        x=residual(attribute, baseline),
        y=residual(test, baseline),
        label=_region_names(comparison),
        group=tuple("undecided" if q < 0 else QUADRANTS[q] for q in first.maps.shortcut_quadrant),
        x_label="attribute model: rank beyond the baseline",
        y_label="test model: rank beyond the baseline",
        hline=0.0,
        vline=0.0,
    )


def region_table(comparison: Comparison) -> Table:
    first, names = comparison.compared[0], _region_names(comparison)
    maps, part = first.maps, first.maps.shortcut_part
    rows = []
    for r in np.argsort(-np.nan_to_num(part))[:TOP]:
        if part[r] > 0:
            scores = [maps.shortcut[r], maps.shortcut_normalised[r], maps.task_normalised[r]]
            rows.append((names[r], *map(_number, [*scores, *first.profiles[:, r]])))
    return Table(
        title="The regions that test and attribute model use more",
        caption=f"{place(comparison)} Largest contributions first; ranks count from 1, the most important."
        f"{_placeless(comparison)}",
        columns=("region", "RCS", "RCS, scaled", "RCS of the task, scaled", *(f"rank, {MODELS[role]}" for role in ROLES)),
        rows=tuple(rows),
        reason="" if rows else "no region is used more by both",
    )


def profile_gallery(comparison: Comparison) -> Gallery:
    m, first, items = comparison.models.first, comparison.compared[0], []
    regions, R = m.regions.drawn[0], first.profiles.shape[1]
    for role, profile in zip(ROLES, first.profiles, strict=True):
        importance = (R - np.nan_to_num(profile, nan=R)) / max(R - 1, 1)
        for plane in drawing.planes(regions, importance):
            # Ranks are spread evenly; the power keeps all but the foremost pale.
            heat = plane.of(drawing.over_regions(regions, importance**3))
            picture = drawing.heated(plane.of(m.pictures.mean_image), heat)
            items.append(Picture(png=picture, caption=_joined(MODELS[role], plane.caption), group=MODELS[role]))
    return Gallery(
        title="Rank profiles",
        caption="Where each model looks over all images, over the mean image: the more important a region, the redder.",
        items=tuple(items[:MAX_PICTURES]),
    )


def jitter_curves(comparison: Comparison) -> Curves:
    return Curves(
        title="Does it hang on place?",
        caption="The partial correlation when the test model's maps are moved at random, every image by up to so many cells. "
        "Where the models agree on a place it falls; where it does not fall, they share no place." + _placeless(comparison),
        x=comparison.models.first.steadiness.jitter,
        series={"partial correlation": comparison.jitter},
        x_label="moved by up to … cells",
        y_label="partial correlation",
        hline=0.0,
    )


# ---- the models, seeds, slices -------------------------------------------------------------------------------------------


def attribution_gallery(comparison: Comparison) -> list[Exhibit]:
    """The same images with the maps of one model of every role; nothing where there are no pictures."""
    models, items = comparison.models, []
    shown = models.first.pictures
    for k, image in enumerate(shown.images[:MOST_IMAGES]):
        group = f"image {k + 1}: {shown.captions[k]}"
        items.append(Picture(png=image, caption="image", group=group))
        for role in ROLES:
            maps = models.of(role)[0].pictures.maps
            if len(maps) > k:
                caption = f"{MODELS[role]}, {shown.captions[k]}"
                items.append(Picture(png=drawing.heated(image, maps[k]), caption=caption, group=group))
    if not items:
        return []
    title, caption = "The same images, three models", "Attribution maps of single images, each scaled to its own maximum."
    return [Gallery(title=title, caption=caption, items=tuple(items))]


def model_table(comparison: Comparison) -> Table:
    rows = []
    for role in ROLES:
        for m in comparison.models.of(role):
            rows.append((MODELS[role], *_model_row(m)))
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


def _model_row(m: Measurement) -> tuple[TableCell, ...]:
    leakage = m.leakage
    removed = (leakage.removed_accuracy, leakage.removed_worst, leakage.removed_flips)
    return (
        m.model,
        _cell(m.decisions.accuracy, leakage.reason),
        _number(m.decisions.worst_group),
        _cell(leakage.auc, leakage.reason),
        *map(_number, removed),
        m.ranking.empty,
        *map(_number, (m.steadiness.agreement, m.covers, m.wandering)),
    )


def single_table(title: str, caption: str, singles: Sequence[Single]) -> Table:
    columns = ("", "images", "partial correlation", "p (spatial)", "effective regions")
    rows = []
    for s in singles:
        rows.append((s.name, s.n, Cell.of(s.interval), _number(s.p), _number(s.effective)))
    return Table(title=title, caption=caption, columns=columns, rows=tuple(rows))


def slice_gallery(comparison: Comparison) -> list[Exhibit]:
    """Where the correlation of every slice comes from; nothing where no slice has enough images."""
    items = []
    for single in comparison.slices:
        if single.maps is not None:
            scores, quadrant = single.maps.shortcut_normalised, single.maps.shortcut_quadrant
            items += _overlays(comparison.models.first, 0, single.name, scores, quadrant)
    if not items:
        return []
    caption = "Region contribution scores of every slice, coloured as above." + _placeless(comparison)
    return [Gallery(title="Where, slice by slice", caption=caption, items=tuple(items[:MAX_PICTURES]))]


# ---- what the functions above use ----------------------------------------------------------------------------------------


def _overlays(m: Measurement, k: int, name: str, scores: np.ndarray, quadrant: np.ndarray) -> list[Picture]:
    """Scores (R,) of partition k over the mean image: red where both models use a region more, blue where both use it less."""
    if not np.isfinite(scores).all():
        return []
    top = max(float(np.abs(scores).max()), 1e-300)
    more = np.where(quadrant == BOTH_MORE, scores, 0.0) / top
    less = np.where(quadrant == BOTH_LESS, scores, 0.0) / top
    regions, items = m.regions.drawn[k], []
    for plane in drawing.planes(regions, more):
        layers = [
            drawing.Layer(plane.of(drawing.over_regions(regions, less)), drawing.LESS),
            drawing.Layer(plane.of(drawing.over_regions(regions, more)), drawing.MORE),
        ]
        picture = drawing.blended(plane.of(m.pictures.mean_image), layers)
        items.append(Picture(png=picture, caption=_joined(name, plane.caption), group=m.regions.partition[k]))
    return items


def _placeless(comparison: Comparison) -> str:
    if not has_no_fixed_place(comparison.models.attribute):
        return ""
    return " The attribute model looks at another place in every image, so this picture does not show where the cue is."


def _region_names(comparison: Comparison) -> tuple[str, ...]:
    """Of the partition that decides."""
    regions = comparison.models.first.regions
    return regions.name[regions.columns(0)]


def _joined(name: str, plane: str) -> str:
    if not plane:
        return name
    return f"{name}, {plane}"


def _cell(interval: Interval, reason: str) -> Cell:
    return Cell.of(replace(interval, reason=interval.reason or reason))


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
