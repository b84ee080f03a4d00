"""TSI's exhibits: the comparison, Tables 1 to 7 of the paper, histograms, deletion curves, quadrants, and the gallery."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from rightreasons.audits.tsi import arrays, described, tables
from rightreasons.audits.tsi.compare import BASELINE, TWINS
from rightreasons.audits.tsi.judge import Judged
from rightreasons.audits.tsi.measurement import METRICS, Measurement
from rightreasons.findings import Bars, Cell, Curves, Exhibit, Gallery, Picture, Scatter, Table
from rightreasons.stats.resampling import Interval

MOST_POINTS = 2_000  # of a scatter plot
MOST_MODELS = 4  # with histograms of their own
MOST_PROBLEMS = 100
MOST_CLASSES = 1_000
HISTOGRAM = np.linspace(0, 2, 9)
LABELS = {BASELINE: "balanced model", TWINS: "twins, cue gone or changed"}
EDGE = 4  # scores beyond it stand at the edge of a scatter plot
COLUMNS = ("mean", "sd", "median", "n")


def exhibits(judged: Judged) -> tuple[Exhibit, ...]:
    figures: list[Exhibit | None] = [
        comparison_bars(judged),
        influence_gallery(judged.first),
        *score_histograms(judged),
        coverage_table(judged),
        confidence_table(judged),
        cue_table(judged),
        top_class_table(judged),
        class_table(judged),
        average_scatter(judged),
        annotation_curves(judged.first),
        deletion_curves(judged),
        kept_bars(judged),
        missingness_table(judged),
        substitute_table(judged),
        noise_scatter(judged),
        quadrant_table(judged),
        problem_table(judged),
    ]
    return tuple(exhibit for exhibit in figures if exhibit is not None)


# ---- the comparison ------------------------------------------------------------------------------------------------------


def comparison_bars(judged: Judged) -> Exhibit:
    c = judged.comparison
    tested, other = [group.share for group in c.groups], [group.other for group in c.groups if group.other is not None]
    series: dict[str, Sequence[Interval | float]] = {"tested": tested}
    if other:
        series[LABELS[c.against]] = other
    series["chance line"] = [group.chance for group in c.groups]
    tolerance = None if c.against else judged.tolerance
    return Bars(
        title="How often a token outside outweighs the object",
        caption="Share of images with M-TSI above 1, by how many tokens the object covers. The chance line is what exchanging "
        "influence between inside and outside at random would give; it decides nothing, because a model that looks at its object "
        "lies far below it, and one that leans on a cue in most images may still lie below it.",
        labels=[f"{group.name} (n = {group.images})" for group in c.groups],
        series=series,
        reference=tolerance,
        reference_label="" if tolerance is None else "tolerance",
        value_label="share of images",
    )


def influence_gallery(m: Measurement) -> Exhibit | None:
    shown = m.pictures
    if not len(shown.pixels):
        return None
    items = []
    for pixels, caption, row in zip(shown.pixels, shown.caption, shown.row, strict=True):
        values = {
            "M-TSI": m.maximum[row],
            "A-TSI": m.average[row],
            "probability": m.images.probability[row],
            "tokens of the object": int(m.images.covered[row]),
        }
        items.append(Picture(png=pixels, caption=f"{m.images.id[row]}: {caption}", values=values))
    return Gallery(
        title="Where the influence lies",
        caption="Images with the tokens of the object outlined in green. Warm tokens support the class: without them its "
        "probability falls; blue ones speak against it. The highest M-TSI comes first; half of the pictures are spread over the "
        "others.",
        items=items,
        sort="M-TSI",
    )


def score_histograms(judged: Judged) -> Iterator[Exhibit]:
    p = judged.panel
    labels = [f"{a:g}–{b:g}" for a, b in pairwise(HISTOGRAM)] + ["2 and more"]
    for metric in METRICS:
        for model, values in list(zip(p.names, p.scores(metric), strict=True))[:MOST_MODELS]:
            series = {}
            for subset, chosen in tables.subsets(p).items():
                scores = values[chosen & p.admissible & ~np.isnan(values)]
                if subset != tables.EVERY and len(scores):
                    series[f"{subset} (n = {len(scores)})"] = _binned(scores, len(labels))
            if series:
                yield Bars(
                    title=f"{metric.name} of the images" + (f": {model}" if len(p.models) > 1 else ""),
                    caption=f"Share of the images by {metric.name}. Above 1 the tokens outside the object count for more.",
                    labels=labels,
                    series=series,
                    value_label="share of images",
                )


def _binned(scores: np.ndarray, bins: int) -> np.ndarray:
    """Share of the scores in each bin; signed scores can be negative and belong to the lowest."""
    place = np.clip(np.searchsorted(HISTOGRAM, scores, side="right") - 1, 0, bins - 1)
    shares: np.ndarray = np.bincount(place, minlength=bins) / len(scores)
    return shares


# ---- tables by group -----------------------------------------------------------------------------------------------------


def _cells(summary: tables.Summary) -> list[float]:
    """In the order of `COLUMNS`."""
    return [summary.mean, summary.sd, summary.median, summary.n]


def _side_by_side(judged: Judged, found: Iterable[tables.GroupScores], kind: str, title: str, caption: str) -> Table:
    """One row for each score, subset and group, with the models side by side."""
    models = judged.panel.names
    rows: dict[tuple[str, str, str], list[float]] = {}
    for each in found:  # models come in their order within a group
        rows.setdefault((each.metric, each.images, each.group), []).extend(_cells(each.summary))
    columns = ["score", "images", kind]
    for model in models:
        for column in COLUMNS:
            columns.append(f"{model}: {column}" if len(models) > 1 else column)
    return Table(title=title, caption=caption, columns=columns, rows=[[*key, *cells] for key, cells in rows.items()])


def coverage_table(judged: Judged) -> Exhibit:
    return _side_by_side(
        judged,
        tables.by_coverage(judged.panel),
        "object",
        "TSI by correctness and size of the object",
        "Mean, standard deviation, median and number of images with a defined score. Objects that cover nearly the whole "
        "image are listed on their own and belong to no other row.",
    )


def confidence_table(judged: Judged) -> Exhibit:
    table = tables.by_confidence(judged.panel)
    return _side_by_side(judged, table, "confidence", "TSI by confidence", "By the probability of each model's own decision.")


def cue_table(judged: Judged) -> Exhibit | None:
    rows = []
    for each in tables.by_cue(judged.panel):
        rows.append([each.cue, each.side, each.model, *_cells(each.summary), each.above, each.outside])
    if not rows:
        return None
    known = "; ".join(judged.first.cues.source)
    return Table(
        title="Where the cue agrees with the label, and where it does not",
        caption="M-TSI of images whose attribute value stands for their own label, and for another. A cue that stands for "
        "another label speaks against the right class, so it cannot raise M-TSI there; the token of largest influence, whatever "
        f"its sign, can still lie on it. What stands for what: {known}.",
        columns=["attribute", "its value", "model", *COLUMNS, "share above 1", "strongest token outside"],
        rows=rows,
    )


def top_class_table(judged: Judged) -> Exhibit | None:
    table, several = judged.classes, len(judged.panel.models)
    rows: list[list[Any]] = []
    for (subset, model), part in table[table["n"] > 0].groupby(["images", "model"], sort=False):
        if subset == tables.EVERY and several > 1:
            continue
        best = part.sort_values(["M-TSI", "class"], ascending=[False, True]).head(tables.RANKED)
        for _, r in best.dropna(subset=["M-TSI"]).iterrows():
            rows.append([subset, model, int(r["rank"]), r["class"], r["M-TSI"], r["M-TSI sd"], int(r["n"]), int(r["recurs"])])
    if not rows:
        return None
    return Table(
        title="Classes with the highest M-TSI",
        caption="Ranked by mean M-TSI. A class that recurs is among the highest for several models: look at its images and "
        "boxes first. A mean of few images says little.",
        columns=["images", "model", "rank", "class", "mean M-TSI", "sd", "n", f"models of {several} in which it is high"],
        rows=rows,
        highlight=[k for k, row in enumerate(rows) if several > 1 and row[-1] == several],
    )


def class_table(judged: Judged) -> Exhibit | None:
    table = judged.classes
    table = table[(table["images"] == tables.EVERY) & (table["n"] > 0)]
    if table.empty:
        return None
    shown = table.head(MOST_CLASSES).drop(columns="images")
    more = ""
    if len(table) > MOST_CLASSES:
        more = f" The first {MOST_CLASSES} of {len(table)} rows."
    return Table(
        title="TSI of every class",
        caption=f"All admissible images.{more} `Result.classes` holds the whole table, to be written as CSV.",
        columns=list(shown.columns),
        rows=shown.to_numpy(dtype=object).tolist(),
    )


def problem_table(judged: Judged) -> Exhibit | None:
    table = judged.problems
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


def _points(judged: Judged, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Images to draw: admissible, and defined in both."""
    defined = judged.panel.admissible & ~np.isnan(x) & ~np.isnan(y)
    drawn: np.ndarray = judged.shown[defined[judged.shown]]
    return drawn


def average_scatter(judged: Judged) -> Exhibit | None:
    p, m = judged.panel, judged.first
    rows = p.rows[0]
    maximum, average = m.maximum[rows], m.average[rows]
    points = _points(judged, maximum, average)
    if not len(points):
        return None
    fits = []
    for subset, chosen in tables.subsets(p).items():
        both = tables.correlation(maximum[chosen & p.admissible], average[chosen & p.admissible])
        fits.append(f"R² = {both.pearson * both.pearson:.2f} ({subset}, n = {both.n})")
    group = np.where(p.correct == 1, "right", "wrong")
    return Scatter(
        title="A-TSI against M-TSI",
        caption=f"{'; '.join(fits)}. At most {MOST_POINTS} images are drawn. M-TSI sees a single strong token outside; A-TSI is "
        "an average over many.",
        x=maximum[points],
        y=average[points],
        label=m.images.id[rows][points],
        group=np.where(np.isnan(p.correct), "label unknown", group)[points],
        x_label="M-TSI",
        y_label="A-TSI",
        vline=1.0,
        hline=1.0,
    )


def annotation_curves(m: Measurement) -> Exhibit | None:
    if m.other is None:
        return None
    series = {}
    edges = np.linspace(-1, 1, 21)
    for metric in METRICS:
        change = (metric.of(m.other.scores) - metric.of(m.scores))[m.admissible]
        change = change[~np.isnan(change)]
        if len(change):
            series[metric.name] = np.histogram(np.clip(change, -1, 1), bins=edges)[0] / len(change)
    if not series:
        return None
    other, own = m.other.name, m.influence.region
    return Curves(
        title=f"The {other} instead of the {own}",
        caption=f"Score with the {other} minus score with the {own}, image by image; beyond ±1 counts as ±1. Tighter "
        "annotations tend to raise M-TSI, because a strong token at the border falls outside, and to lower A-TSI.",
        x=(edges[:-1] + edges[1:]) / 2,
        series=series,
        x_label="difference",
        y_label="share of images",
        style="steps",
        vline=0.0,
    )


def substitute_table(judged: Judged) -> Exhibit | None:
    rows = []
    for each in tables.substitutes(judged.panel):
        both = each.correlation
        rows.append([each.instead, each.metric, each.images, each.model, both.pearson, both.spearman, both.n])
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


def noise_scatter(judged: Judged) -> Exhibit | None:
    m, rows, noise = judged.first, judged.panel.rows[0], judged.first.extras.noise
    if noise is None:
        return None
    points = _points(judged, m.maximum[rows], noise.index[rows])
    if not len(points):
        return None
    tsi, nsi = m.maximum[rows][points], noise.index[rows][points]
    inside = float(m.images.area[m.admissible].mean())
    return Scatter(
        title="Tokens left out against noise",
        caption="M-TSI against NSI, the loss of probability by noise outside over the loss by noise inside "
        f"({noise.draws} draws). Quadrants I and III agree. Noise covers {inside:.0%} of an image inside and "
        f"{1 - inside:.0%} outside on average: a larger area alone can do more. At most {MOST_POINTS} images are drawn; "
        f"scores beyond ±{EDGE} stand at the edge.",
        x=np.clip(tsi, -EDGE, EDGE),
        y=np.clip(nsi, -EDGE, EDGE),
        label=m.images.id[rows][points],
        group=tables.quadrant(tsi, nsi),
        x_label="M-TSI",
        y_label="NSI",
        vline=1.0,
        hline=1.0,
    )


def quadrant_table(judged: Judged) -> Exhibit | None:
    rows = []
    for each in tables.quadrants(judged.panel):
        shares = [each.share[quadrant] for quadrant in tables.QUADRANTS]
        rows.append([each.metric, each.model, each.agree, each.disagree, *shares, each.n])
    if not rows:
        return None
    return Table(
        title="Do tokens and noise agree?",
        caption="Share of images in each quadrant: both above 1 (I), only NSI (II), neither (III), only TSI (IV).",
        columns=["score", "model", "agree (I + III)", "disagree (II + IV)", *tables.QUADRANTS, "n"],
        rows=rows,
    )


# ---- what further forward passes show ------------------------------------------------------------------------------------


def deletion_curves(judged: Judged) -> Exhibit | None:
    means, maps = judged.describing, judged.first.extras.deletion.by
    if not maps or not means:
        return None
    series = {}
    for by in maps:
        lost = []
        for top in arrays.DELETED:
            lost.append(means[described.lost_without_top(by, top)].mean)
        series[by.replace("_", " ")] = lost
    return Curves(
        title="Probability lost when the most influential tokens are dropped",
        caption="Mean loss for the class over images that are decided rightly, with its interval, when the top 1, 3, 5, 10 and "
        "20 tokens of each map are dropped. The higher curve found the tokens that matter more.",
        x=list(arrays.DELETED),
        series=series,
        x_label="tokens dropped",
        y_label="probability lost",
    )


def kept_bars(judged: Judged) -> Exhibit | None:
    means = judged.describing
    if judged.first.extras.kept is None or not means:
        return None
    keys = (described.RIGHT_WITH_ALL, described.RIGHT_FROM_INSIDE, described.RIGHT_FROM_OUTSIDE)
    right = [means[key].mean for key in keys]
    return Bars(
        title="What the object alone and the rest alone are worth",
        caption="Share of right decisions from all tokens, from those of the object alone, and from those outside alone. A model "
        "that looks at its object keeps its accuracy with the first and loses it with the second.",
        labels=["all tokens", "inside alone", "outside alone"],
        series={"accuracy": right},
        value_label="share of right decisions",
    )


def missingness_table(judged: Judged) -> Exhibit | None:
    means, ways = judged.describing, judged.first.extras.missingness.way
    if not ways or not means:
        return None
    rows = []
    for way in ways:
        keys = (described.same_decision_when(way), described.right_when(way), described.lost_when(way))
        rows.append([way, *(Cell.of(means[key].mean) for key in keys)])
    return Table(
        title="Is a missing patch really missing?",
        caption=f"The same {arrays.MISSING} patches, drawn at random, left out as tokens or filled in the image. A fill that "
        "changes more decisions than leaving out adds something of its own (missingness bias).",
        columns=["patches", "same decision", "right", "probability lost"],
        rows=rows,
    )
