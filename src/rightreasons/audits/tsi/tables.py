"""TSI's analyses over groups of images: correctness, coverage, confidence, class, cue, and agreement with other measures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from rightreasons.audits.tsi import arrays
from rightreasons.audits.tsi.compare import ALL, Panel, coverage_names
from rightreasons.audits.tsi.measurement import METRICS, Measurement, Metric
from rightreasons.stats.correlation import pearson
from rightreasons.stats.tokens import TOO_LARGE

EVERY = "all images"
CONFIDENCE = (0.0, 0.25, 0.5, 0.75, 1.0)
FEWEST_PAIRS = 3  # images that a correlation needs
RANKED = 10
QUADRANTS = ("I", "II", "III", "IV")


@dataclass(frozen=True)
class Summary:
    """Mean, standard deviation, median and count of the defined values."""

    mean: float
    sd: float
    median: float
    n: int

    @classmethod
    def of(cls, values: np.ndarray) -> Summary:
        known = values[~np.isnan(values)]
        if not len(known):
            return cls(np.nan, np.nan, np.nan, 0)
        sd = float(known.std(ddof=1)) if len(known) > 1 else np.nan
        return cls(float(known.mean()), sd, float(np.median(known)), len(known))


@dataclass(frozen=True)
class GroupScores:
    """One score of one model over some images of one group."""

    metric: str
    images: str
    group: str
    model: str
    summary: Summary


def subsets(p: Panel) -> dict[str, np.ndarray]:
    """Images that every model decides rightly, and those that at least one gets wrong (sec. 3.2), beside all of them."""
    several = len(p.models) > 1
    return {
        EVERY: np.ones(len(p.group), bool),
        "right by every model" if several else "right": p.correct == 1,
        "wrong by at least one model" if several else "wrong": p.correct == 0,
    }


def by_coverage(p: Panel) -> Iterator[GroupScores]:
    """Table 1: by size of the object; too large objects are their own group."""
    sizes = {ALL: p.admissible}
    for g, name in enumerate(coverage_names(p.models[0].influence.tokens)):
        sizes[name] = p.group == g
    for metric in METRICS:
        values = p.scores(metric)
        for subset, chosen in subsets(p).items():
            for size, of_size in sizes.items():
                for model, scores in zip(p.names, values, strict=True):
                    yield GroupScores(metric.name, subset, size, model, Summary.of(scores[chosen & of_size]))


def by_confidence(p: Panel) -> Iterator[GroupScores]:
    """Table 2: by the confidence of each model's own decision."""
    confidence = p.values(lambda m: m.images.confidence)
    last = len(CONFIDENCE) - 2
    bins = np.clip(np.searchsorted(CONFIDENCE, confidence, side="right") - 1, 0, last)
    for metric in METRICS:
        values = p.scores(metric)
        for subset, chosen in subsets(p).items():
            for b in range(last + 1):
                label = f"{CONFIDENCE[b]:.0%}–{CONFIDENCE[b + 1]:.0%}"
                for model, scores, own in zip(p.names, values, bins, strict=True):
                    rows = chosen & p.admissible & (own == b)
                    yield GroupScores(metric.name, subset, label, model, Summary.of(scores[rows]))


@dataclass(frozen=True)
class CueScores:
    """M-TSI of one model where a cue agrees with the label, or conflicts with it.

    Attributes
    ----------
    above : share of images with M-TSI > 1
    outside : share of images whose strongest token lies outside
    """

    cue: str
    side: str
    model: str
    summary: Summary
    above: float
    outside: float


def by_cue(p: Panel) -> Iterator[CueScores]:
    """Images whose cue stands for their label, and for another."""
    for model, m, rows in zip(p.names, p.models, p.rows, strict=True):
        for cue, agrees in zip(m.cues.name, m.cues.agrees, strict=True):
            for side, code in (("agrees with the label", 1), ("conflicts with it", 0)):
                chosen = rows[p.admissible & (agrees[rows] == code)]
                above, outside = Summary.of(m.above[chosen]), Summary.of(m.support.strongest_outside[chosen])
                yield CueScores(cue, side, model, Summary.of(m.maximum[chosen]), above.mean, outside.mean)


def by_class(p: Panel) -> pd.DataFrame:
    """Table 3: one row for each class, subset and model, with ranks by mean M-TSI and in how many models a class is a top ten.

    Ranks are within subset and model, 1 the highest mean; a class with no defined score has none.
    """
    first = p.models[0]
    label = first.label[p.rows[0]]
    parts = []
    for subset, chosen in subsets(p).items():
        keep = np.flatnonzero(chosen & p.admissible & (label >= 0))
        for model, m, rows in zip(p.names, p.models, p.rows, strict=True):
            parts.append(_class_scores(m, rows[keep], label[keep], first.classes, subset, model))
    table = pd.concat(parts, ignore_index=True)
    table["rank"] = table.groupby(["images", "model"])["M-TSI"].rank(ascending=False, method="min")
    ranked = table["rank"] <= min(RANKED, max(1, len(first.classes) // 2))
    recurs = ranked.groupby([table["images"], table["class"]]).transform("sum")
    return table.assign(recurs=recurs.astype(int))


def _class_scores(
    m: Measurement, rows: np.ndarray, label: np.ndarray, classes: tuple[str, ...], subset: str, model: str
) -> pd.DataFrame:
    frame = pd.DataFrame({metric.name: metric.of(m.scores)[rows] for metric in METRICS}).groupby(label)

    def over_classes(how: str) -> pd.DataFrame:
        return frame.agg(how).reindex(range(len(classes)))

    mean = over_classes("mean")
    sd = over_classes("std")
    median = over_classes("median")
    number = over_classes("count")
    columns: dict[str, Any] = {"class": classes, "images": subset, "model": model}
    columns["n"] = number["M-TSI"].fillna(0).astype(int).to_numpy()
    for metric in METRICS:
        name = metric.name
        columns |= {name: mean[name].to_numpy(), f"{name} sd": sd[name].to_numpy(), f"{name} median": median[name].to_numpy()}
    return pd.DataFrame(columns)


# ---- agreement with other measures ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Correlation:
    """Over images in which both are defined."""

    pearson: float
    spearman: float
    n: int


def correlation(a: np.ndarray, b: np.ndarray) -> Correlation:
    both = ~np.isnan(a) & ~np.isnan(b)
    x, y = a[both], b[both]
    if len(x) < FEWEST_PAIRS:
        return Correlation(np.nan, np.nan, len(x))
    return Correlation(float(pearson(x, y)), float(pearson(rankdata(x), rankdata(y))), len(x))


@dataclass(frozen=True)
class SubstituteScores:
    """How a score goes together with the same score by something cheaper."""

    instead: str
    metric: str
    images: str
    model: str
    correlation: Correlation


def substitutes(p: Panel) -> Iterator[SubstituteScores]:
    """Tables 5 and 7: with other maps, and with attention as the object."""
    for model, m, rows in zip(p.names, p.models, p.rows, strict=True):
        for subset, chosen in subsets(p).items():
            keep = rows[chosen & p.admissible]
            for metric in METRICS:
                for instead, scores in _cheaper(m, metric).items():
                    agreement = correlation(metric.of(m.scores)[keep], scores[keep])
                    yield SubstituteScores(instead, metric.name, subset, model, agreement)


def _cheaper(m: Measurement, metric: Metric) -> dict[str, np.ndarray]:
    """The score (n,) by other maps, and with the top tokens of the attention as the object, by name."""
    cheaper = m.extras.substitutes
    by_map = {}
    for name, scores in zip(cheaper.name, metric.of(cheaper.scores), strict=True):
        by_map[f"{name} as the map"] = scores
    # Without attention there are no scores for these.
    tops = zip(arrays.CORE_TOPS, metric.of(cheaper.core), strict=False)
    return by_map | {f"top {top} by attention as the object": scores for top, scores in tops}


@dataclass(frozen=True)
class QuadrantShares:
    """Share of the images in each quadrant of TSI against NSI, both cut at 1."""

    metric: str
    model: str
    share: dict[str, float]
    n: int

    @property
    def agree(self) -> float:
        return self.share["I"] + self.share["III"]

    @property
    def disagree(self) -> float:
        return self.share["II"] + self.share["IV"]


def quadrants(p: Panel) -> Iterator[QuadrantShares]:
    """Table 6: do tokens and noise agree?"""
    for model, m, rows in zip(p.names, p.models, p.rows, strict=True):
        if m.extras.noise is None:
            continue
        nsi = m.extras.noise.index[rows]
        for metric in METRICS:
            tsi = metric.of(m.scores)[rows]
            known = p.admissible & ~np.isnan(tsi) & ~np.isnan(nsi)
            place = quadrant(tsi[known], nsi[known])
            share = {}
            for name in QUADRANTS:
                share[name] = float((place == name).mean()) if known.any() else np.nan
            yield QuadrantShares(metric.name, model, share, int(known.sum()))


def quadrant(tsi: np.ndarray, nsi: np.ndarray) -> np.ndarray:
    """(n,) I where both exceed 1, II where only NSI does, III where neither does, IV where only TSI does."""
    place = np.full(len(tsi), "III", dtype="<U3")
    place[(tsi > 1) & (nsi > 1)] = "I"
    place[~(tsi > 1) & (nsi > 1)] = "II"
    place[(tsi > 1) & ~(nsi > 1)] = "IV"
    return place


# ---- annotations to look at ----------------------------------------------------------------------------------------------


def problems(p: Panel, tiny: int) -> pd.DataFrame:
    """Objects that cover nearly all tokens, hardly any, or none; one row for each image."""
    first, rows = p.models[0], p.rows[0]
    covered = first.images.covered[rows]
    kinds = {
        "covers nearly the whole image": p.group == TOO_LARGE,
        f"covers {tiny} token{'s' if tiny > 1 else ''} at most": (covered > 0) & (covered <= tiny),
        "lies outside the crop": covered == 0,
        "has no annotation": covered < 0,
    }
    listed = []
    for problem, where in kinds.items():
        for row in rows[where]:
            number, score = int(max(first.images.covered[row], 0)), float(first.maximum[row])
            listed.append({"id": str(first.images.id[row]), "problem": problem, "tokens": number, "M-TSI": score})
    return pd.DataFrame(listed, columns=["id", "problem", "tokens", "M-TSI"])
