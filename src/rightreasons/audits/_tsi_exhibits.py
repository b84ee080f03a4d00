"""TSI's exhibits: the comparison, Tables 1 to 7 of the paper, histograms, deletion curves, quadrants, and the gallery."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from rightreasons.audits import _tsi_arrays as names
from rightreasons.audits import _tsi_tables as tables
from rightreasons.audits._tsi_measure import Measurement
from rightreasons.findings import Bars, Cell, Curves, Exhibit, Gallery, Picture, Scatter, Table
from rightreasons.stats.resampling import Interval

if TYPE_CHECKING:
    from rightreasons.audits.tsi import Result

MOST_POINTS = 2_000  # of a scatter plot
MOST_MODELS = 4  # with histograms of their own
MOST_PROBLEMS = 100
MOST_CLASSES = 1_000
HISTOGRAM = np.linspace(0, 2, 9)
LABELS = {"baseline": "balanced model", "twins": "twins, cue gone or changed"}


def exhibits(result: Result) -> tuple[Exhibit, ...]:
    found: list[Exhibit | None] = [_comparison(result), _gallery(result.test[0]), *_histograms(result)]
    found += [_by_coverage(result), _by_confidence(result), _by_cue(result), _top_classes(result), _classes(result)]
    found += [_average_and_maximum(result), _annotations(result), _deletion(result), _kept(result), _missing(result)]
    found += [_substitutes(result), *_quadrants(result), _problems(result)]
    return tuple(e for e in found if e is not None)


# ---- the comparison ------------------------------------------------------------------------------------------------------


def _comparison(result: Result) -> Exhibit:
    c = result.comparison
    series = {"tested": [i.value for i in c.share]}
    low, high = {"tested": [i.low for i in c.share]}, {"tested": [i.high for i in c.share]}
    if c.against:
        series[LABELS[c.against]] = [i.value for i in c.other]
        low[LABELS[c.against]], high[LABELS[c.against]] = [i.low for i in c.other], [i.high for i in c.other]
    series["chance line"] = list(c.chance)
    tolerance = None if c.against else result.tolerance
    return Bars(
        title="How often a token outside outweighs the object",
        caption="Share of images with M-TSI above 1, by how many tokens the object covers. The chance line is what exchanging "
        "influence between inside and outside at random would give; it decides nothing, because a model that looks at its object "
        "lies far below it, and one that leans on a cue in most images may still lie below it.",
        labels=[f"{name} (n = {n})" for name, n in zip(c.names, c.images, strict=True)],
        series=series,
        low=low,
        high=high,
        reference=tolerance,
        reference_label="" if tolerance is None else "tolerance",
        value_label="share of images",
    )


def _gallery(m: Measurement) -> Exhibit | None:
    if not len(m.pictures):
        return None
    items = [
        Picture(
            png=pixels,
            caption=f"{m.id[row]}: {caption}",
            values={
                "M-TSI": m.maximum[row],
                "A-TSI": m.average[row],
                "probability": m.probability[row],
                "tokens of the object": int(m.covered[row]),
            },
        )
        for pixels, caption, row in zip(m.pictures, m.captions, m.picture_row, strict=True)
    ]
    return Gallery(
        title="Where the influence lies",
        caption="Images with the tokens of the object outlined in green. Warm tokens support the class: without them its "
        "probability falls; blue ones speak against it. The highest M-TSI comes first; half of the pictures are spread over the "
        "others.",
        items=items,
        sort="M-TSI",
    )


def _histograms(result: Result) -> Iterable[Exhibit]:
    p = result.panel
    labels = [f"{a:g}–{b:g}" for a, b in pairwise(HISTOGRAM)] + ["2 and more"]
    for metric, field in tables.METRICS:
        for model, values in list(zip(p.names, p.values(field), strict=True))[:MOST_MODELS]:
            series = {}
            for subset, chosen in tables.subsets(p).items():
                scores = values[chosen & p.admissible & ~np.isnan(values)]
                if subset != tables.EVERY and len(scores):
                    # Signed scores can be negative: they belong to the lowest bin.
                    bins = np.clip(np.searchsorted(HISTOGRAM, scores, side="right") - 1, 0, len(labels) - 1)
                    series[f"{subset} (n = {len(scores)})"] = np.bincount(bins, minlength=len(labels)) / len(scores)
            if series:
                yield Bars(
                    title=f"{metric} of the images" + (f": {model}" if len(p.models) > 1 else ""),
                    caption=f"Share of the images by {metric}. Above 1 the tokens outside the object count for more.",
                    labels=labels,
                    series=series,
                    value_label="share of images",
                )


# ---- tables by group -----------------------------------------------------------------------------------------------------

COLUMNS = ("mean", "sd", "median", "n")


def _side_by_side(result: Result, entries: Iterable[tuple[str, str, str, str, dict[str, Any]]], kind: str) -> dict[str, Any]:
    """Columns and rows of a table with the models side by side."""
    models = result.panel.names
    cells: dict[tuple[str, str, str], dict[str, dict[str, Any]]] = {}
    for metric, subset, group, model, numbers in entries:
        cells.setdefault((metric, subset, group), {})[model] = numbers
    columns = ["score", "images", kind, *(f"{model}: {c}" if len(models) > 1 else c for model in models for c in COLUMNS)]
    rows = [[*key, *(by_model[model][c] for model in models for c in COLUMNS)] for key, by_model in cells.items()]
    return {"columns": columns, "rows": rows}


def _by_coverage(result: Result) -> Exhibit:
    return Table(
        title="TSI by correctness and size of the object",
        caption="Mean, standard deviation, median and number of images with a defined score. Objects that cover nearly the whole "
        "image are listed on their own and belong to no other row.",
        **_side_by_side(result, tables.by_coverage(result.panel), "object"),
    )


def _by_confidence(result: Result) -> Exhibit:
    return Table(
        title="TSI by confidence",
        caption="By the probability of each model's own decision.",
        **_side_by_side(result, tables.by_confidence(result.panel), "confidence"),
    )


def _by_cue(result: Result) -> Exhibit | None:
    rows = [
        [cue, side, model, *(numbers[c] for c in COLUMNS), above, outside]
        for cue, side, model, _, numbers, above, outside in tables.by_cue(result.panel)
    ]
    if not rows:
        return None
    known = "; ".join(result.test[0].cue_from)
    return Table(
        title="Where the cue agrees with the label, and where it does not",
        caption="M-TSI of images whose attribute value stands for their own label, and for another. A cue that stands for "
        "another label speaks against the right class, so it cannot raise M-TSI there; the token of largest influence, whatever "
        f"its sign, can still lie on it. What stands for what: {known}.",
        columns=["attribute", "its value", "model", *COLUMNS, "share above 1", "strongest token outside"],
        rows=rows,
    )


def _top_classes(result: Result) -> Exhibit | None:
    table = result.classes
    rows = []
    for (subset, model), part in table[table["n"] > 0].groupby(["images", "model"], sort=False):
        if subset != tables.EVERY or len(result.panel.models) == 1:
            best = part.sort_values(["M-TSI", "class"], ascending=[False, True]).head(tables.RANKED)
            rows += [
                [subset, model, int(r["rank"]), r["class"], r["M-TSI"], r["M-TSI sd"], int(r["n"]), int(r["recurs"])]
                for _, r in best.dropna(subset=["M-TSI"]).iterrows()
            ]
    if not rows:
        return None
    several = len(result.panel.models)
    return Table(
        title="Classes with the highest M-TSI",
        caption="Ranked by mean M-TSI. A class that recurs is among the highest for several models: look at its images and "
        "boxes first. A mean of few images says little.",
        columns=["images", "model", "rank", "class", "mean M-TSI", "sd", "n", f"models of {several} in which it is high"],
        rows=rows,
        highlight=[k for k, row in enumerate(rows) if several > 1 and row[-1] == several],
    )


def _classes(result: Result) -> Exhibit | None:
    table = result.classes
    table = table[(table["images"] == tables.EVERY) & (table["n"] > 0)]
    if table.empty:
        return None
    shown = table.head(MOST_CLASSES).drop(columns="images")
    more = f" The first {MOST_CLASSES} of {len(table)} rows." if len(table) > MOST_CLASSES else ""
    return Table(
        title="TSI of every class",
        caption=f"All admissible images.{more} `Result.classes` holds the whole table, to be written as CSV.",
        columns=list(shown.columns),
        rows=shown.to_numpy(dtype=object).tolist(),
    )


def _problems(result: Result) -> Exhibit | None:
    table = result.problems
    if table.empty:
        return None
    counts = "; ".join(f"{n} × {what}" for what, n in table["problem"].value_counts(sort=False).items())
    shown = table.groupby("problem", sort=False).head(MOST_PROBLEMS)
    return Table(
        title="Annotations to look at",
        caption=f"{counts}. High scores of tiny objects can come from the annotation. At most {MOST_PROBLEMS} of each are shown.",
        columns=list(shown.columns),
        rows=shown.to_numpy(dtype=object).tolist(),
    )


# ---- scores against each other -------------------------------------------------------------------------------------------


def _average_and_maximum(result: Result) -> Exhibit | None:
    p, m = result.panel, result.test[0]
    values = m.maximum[p.rows[0]], m.average[p.rows[0]]
    found = []
    for subset, chosen in tables.subsets(p).items():
        r, _, n = tables.correlation(values[0][chosen & p.admissible], values[1][chosen & p.admissible])
        found.append(f"R² = {r * r:.2f} ({subset}, n = {n})")
    points = result.shown[p.admissible[result.shown] & ~np.isnan(values[0][result.shown]) & ~np.isnan(values[1][result.shown])]
    if not len(points):
        return None
    correct = p.correct[points]
    return Scatter(
        title="A-TSI against M-TSI",
        caption=f"{'; '.join(found)}. At most {MOST_POINTS} images are drawn. M-TSI sees a single strong token outside; A-TSI is "
        "an average over many.",
        x=values[0][points],
        y=values[1][points],
        label=m.id[p.rows[0]][points],
        group=np.where(np.isnan(correct), "label unknown", np.where(correct == 1, "right", "wrong")),
        x_label="M-TSI",
        y_label="A-TSI",
        vline=1.0,
        hline=1.0,
    )


def _annotations(result: Result) -> Exhibit | None:
    m = result.test[0]
    if not m.other:
        return None
    rows = m.admissible
    series = {}
    edges = np.linspace(-1, 1, 21)
    for metric, own, other in (("M-TSI", m.maximum, m.other_maximum), ("A-TSI", m.average, m.other_average)):
        change = (other - own)[rows]
        change = change[~np.isnan(change)]
        if len(change):
            series[metric] = np.histogram(np.clip(change, -1, 1), bins=edges)[0] / len(change)
    if not series:
        return None
    return Curves(
        title=f"The {m.other} instead of the {m.region}",
        caption=f"Score with the {m.other} minus score with the {m.region}, image by image; beyond ±1 counts as ±1. Tighter "
        "annotations tend to raise M-TSI, because a strong token at the border falls outside, and to lower A-TSI.",
        x=(edges[:-1] + edges[1:]) / 2,
        series=series,
        x_label="difference",
        y_label="share of images",
        style="steps",
        vline=0.0,
    )


def _substitutes(result: Result) -> Exhibit | None:
    rows = [list(row) for row in tables.substitutes(result.panel)]
    if not rows:
        return None
    return Table(
        title="Cheaper maps, and attention instead of an annotation",
        caption="Correlation, over images, of TSI by token influence and the annotation with TSI by another map, and with TSI by "
        "token influence when the tokens of highest attention stand for the object. Attention is no measure of influence: read "
        "low values as a warning and high ones as a convenience.",
        columns=["instead", "score", "images", "model", "Pearson", "Spearman", "n"],
        rows=rows,
    )


def _quadrants(result: Result) -> Iterable[Exhibit]:
    found = list(tables.quadrants(result.panel))
    if not found:
        return
    m, p = result.test[0], result.panel
    if len(m.noise):
        values = m.maximum[p.rows[0]], m.noise[p.rows[0]]
        points = result.shown[p.admissible[result.shown]]
        points = points[~np.isnan(values[0][points]) & ~np.isnan(values[1][points])]
        if len(points):
            inside = float(m.area[m.admissible].mean())
            tsi, nsi = values[0][points], values[1][points]
            quadrant = np.where(tsi > 1, np.where(nsi > 1, "I", "IV"), np.where(nsi > 1, "II", "III"))
            yield Scatter(
                title="Tokens left out against noise",
                caption="M-TSI against NSI, the loss of probability by noise outside over the loss by noise inside "
                f"({m.noise_draws} draws). Quadrants I and III agree. Noise covers {inside:.0%} of an image inside and "
                f"{1 - inside:.0%} outside on average: a larger area alone can do more. At most {MOST_POINTS} images are drawn; "
                "scores beyond ±4 stand at the edge.",
                x=np.clip(tsi, -4, 4),
                y=np.clip(nsi, -4, 4),
                label=m.id[p.rows[0]][points],
                group=quadrant,
                x_label="M-TSI",
                y_label="NSI",
                vline=1.0,
                hline=1.0,
            )
    yield Table(
        title="Do tokens and noise agree?",
        caption="Share of images in each quadrant: both above 1 (I), only NSI (II), neither (III), only TSI (IV).",
        columns=["score", "model", "agree (I + III)", "disagree (II + IV)", "I", "II", "III", "IV", "n"],
        rows=[
            [metric, model, q["I"] + q["III"], q["II"] + q["IV"], q["I"], q["II"], q["III"], q["IV"], n]
            for metric, model, q, n in found
        ],
    )


# ---- what further forward passes show ------------------------------------------------------------------------------------


def _deletion(result: Result) -> Exhibit | None:
    m, d = result.test[0], result.describing
    if not m.deletion or not d:
        return None
    series = {}
    for by in m.deletion:
        found = [d[f"lost, top {top} by {by}"] for top in names.DELETED]
        series[by.replace("_", " ")] = {
            "y": [i.value for i in found],
            "low": [i.low for i in found],
            "high": [i.high for i in found],
        }
    return Curves(
        title="Probability lost when the most influential tokens are dropped",
        caption="Mean loss for the class over images that are decided rightly, with its interval, when the top 1, 3, 5, 10 and "
        "20 tokens of each map are dropped. The higher curve found the tokens that matter more.",
        x=list(names.DELETED),
        series=series,
        x_label="tokens dropped",
        y_label="probability lost",
    )


def _kept(result: Result) -> Exhibit | None:
    m, d = result.test[0], result.describing
    if not len(m.kept) or not d:
        return None
    keys = ("right with all tokens", "right from inside alone", "right from outside alone")
    found = [d[key] for key in keys]
    return Bars(
        title="What the object alone and the rest alone are worth",
        caption="Share of right decisions from all tokens, from those of the object alone, and from those outside alone. A model "
        "that looks at its object keeps its accuracy with the first and loses it with the second.",
        labels=["all tokens", "inside alone", "outside alone"],
        series={"accuracy": [i.value for i in found]},
        low={"accuracy": [i.low for i in found]},
        high={"accuracy": [i.high for i in found]},
        value_label="share of right decisions",
    )


def _missing(result: Result) -> Exhibit | None:
    m, d = result.test[0], result.describing
    if not m.missing or not d:
        return None
    return Table(
        title="Is a missing patch really missing?",
        caption=f"The same {names.MISSING} patches, drawn at random, left out as tokens or filled in the image. A fill that "
        "changes more decisions than leaving out adds something of its own (missingness bias).",
        columns=["patches", "same decision", "right", "probability lost"],
        rows=[[way, _cell(d[f"same decision, {way}"]), _cell(d[f"right, {way}"]), _cell(d[f"lost, {way}"])] for way in m.missing],
    )


def _cell(i: Interval) -> Cell:
    return Cell(value=i.value, low=i.low, high=i.high, reason=i.reason)
