"""TSI's analyses over groups of images: correctness, coverage, confidence, class, cue, and agreement with other measures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from rightreasons.audits import _tsi_arrays as names
from rightreasons.audits._tsi_compare import ALL, Panel, coverage_names
from rightreasons.stats.correlation import pearson

EVERY = "all images"
CONFIDENCE = (0.0, 0.25, 0.5, 0.75, 1.0)
METRICS = (("M-TSI", "maximum"), ("A-TSI", "average"))
FEWEST_PAIRS = 3  # images that a correlation needs
RANKED = 10


def summary(values: np.ndarray) -> dict[str, float | int]:
    """Mean, standard deviation, median and count of the defined values."""
    known = values[~np.isnan(values)]
    if not len(known):
        return {"mean": float("nan"), "sd": float("nan"), "median": float("nan"), "n": 0}
    sd = float(known.std(ddof=1)) if len(known) > 1 else float("nan")
    return {"mean": float(known.mean()), "sd": sd, "median": float(np.median(known)), "n": len(known)}


def subsets(p: Panel) -> dict[str, np.ndarray]:
    """Images that every model decides rightly, and those that at least one gets wrong (sec. 3.2), beside all of them."""
    several = len(p.models) > 1
    return {
        EVERY: np.ones(len(p.group), bool),
        "right by every model" if several else "right": p.correct == 1,
        "wrong by at least one model" if several else "wrong": p.correct == 0,
    }


def by_coverage(p: Panel) -> Iterator[tuple[str, str, str, str, dict[str, float | int]]]:
    """Table 1: (metric, images, size of the object, model, summary); too large objects are their own group."""
    sizes = {ALL: p.admissible}
    sizes |= {name: p.group == g for g, name in enumerate(coverage_names(p.models[0].tokens))}
    for metric, field in METRICS:
        values = p.values(field)
        for subset, chosen in subsets(p).items():
            for size, of_size in sizes.items():
                for model, scores in zip(p.names, values, strict=True):
                    yield metric, subset, size, model, summary(scores[chosen & of_size])


def by_confidence(p: Panel) -> Iterator[tuple[str, str, str, str, dict[str, float | int]]]:
    """Table 2: by the confidence of each model's own decision."""
    confidence = p.values("confidence")
    bins = np.clip(np.searchsorted(CONFIDENCE, confidence, side="right") - 1, 0, 3)
    for metric, field in METRICS:
        values = p.values(field)
        for subset, chosen in subsets(p).items():
            for b in range(4):
                label = f"{CONFIDENCE[b]:.0%}–{CONFIDENCE[b + 1]:.0%}"
                for model, scores, own in zip(p.names, values, bins, strict=True):
                    yield metric, subset, label, model, summary(scores[chosen & p.admissible & (own == b)])


def by_cue(p: Panel) -> Iterator[tuple[str, str, str, str, dict[str, float | int], float, float]]:
    """Images whose cue stands for their label, and for another: summary, share of M-TSI > 1, strongest token outside."""
    for model, m, rows in zip(p.names, p.models, p.rows, strict=True):
        for cue, agrees in zip(m.cue, m.agrees, strict=True):
            for side, code in (("agrees with the label", 1), ("conflicts with it", 0)):
                chosen = p.admissible & (agrees[rows] == code)
                scores = m.maximum[rows][chosen]
                above = np.where(np.isnan(scores), np.nan, scores > 1)
                outside = m.strongest_outside[rows][chosen]
                yield cue, side, model, "M-TSI", summary(scores), summary(above)["mean"], summary(outside)["mean"]


def by_class(p: Panel) -> pd.DataFrame:
    """One row a class, subset and model: counts, M-TSI and A-TSI, rank by mean M-TSI, and in how many models it is a top ten.

    Ranks are within subset and model, 1 the highest mean; a class with no defined score has none.
    """
    label = p.models[0].label[p.rows[0]]
    scores = {metric: p.values(field) for metric, field in METRICS}
    parts = []
    for subset, chosen in subsets(p).items():
        rows = np.flatnonzero(chosen & p.admissible & (label >= 0))
        for k, model in enumerate(p.names):
            frame = pd.DataFrame({metric: scores[metric][k, rows] for metric, _ in METRICS}).groupby(label[rows])
            mean, sd, median, number = (
                frame.agg(how).reindex(range(len(p.models[0].classes))) for how in ("mean", "std", "median", "count")
            )
            part: dict[str, Any] = {"class": p.models[0].classes, "images": subset, "model": model}
            part |= {"n": number["M-TSI"].fillna(0).astype(int).to_numpy()}
            for metric, _ in METRICS:
                part |= {metric: mean[metric].to_numpy(), f"{metric} sd": sd[metric].to_numpy()}
                part |= {f"{metric} median": median[metric].to_numpy()}
            parts.append(pd.DataFrame(part))
    table = pd.concat(parts, ignore_index=True)
    table["rank"] = table.groupby(["images", "model"])["M-TSI"].rank(ascending=False, method="min")
    ranked = table["rank"] <= min(RANKED, max(1, len(p.models[0].classes) // 2))
    recurs = ranked.groupby([table["images"], table["class"]]).transform("sum")
    return table.assign(recurs=recurs.astype(int))


def correlation(a: np.ndarray, b: np.ndarray) -> tuple[float, float, int]:
    """Pearson, Spearman and the images in which both are defined."""
    both = ~np.isnan(a) & ~np.isnan(b)
    x, y = a[both], b[both]
    if len(x) < FEWEST_PAIRS:
        return float("nan"), float("nan"), len(x)
    return float(pearson(x, y)), float(pearson(rankdata(x), rankdata(y))), len(x)


def substitutes(p: Panel) -> Iterator[tuple[str, str, str, str, float, float, int]]:
    """Tables 5 and 7: (what, metric, images, model, Pearson, Spearman, n) by other maps, and by attention as the object."""
    for model, m, rows in zip(p.names, p.models, p.rows, strict=True):
        for subset, chosen in subsets(p).items():
            keep = chosen & p.admissible
            for metric, field in METRICS:
                own = getattr(m, field)[rows][keep]
                for name, scores in zip(m.substitute, getattr(m, f"substitute_{field}"), strict=True):
                    yield f"{name} as the map", metric, subset, model, *correlation(own, scores[rows][keep])
                for top, scores in zip(names.CORE_TOPS, getattr(m, f"core_{field}"), strict=False):
                    yield f"top {top} by attention as the object", metric, subset, model, *correlation(own, scores[rows][keep])


def quadrants(p: Panel) -> Iterator[tuple[str, str, dict[str, float], int]]:
    """Table 6: (metric, model, share of the images in each quadrant, n) of TSI against NSI, both cut at 1."""
    for model, m, rows in zip(p.names, p.models, p.rows, strict=True):
        if not len(m.noise):
            continue
        nsi = m.noise[rows]
        for metric, field in METRICS:
            tsi = getattr(m, field)[rows]
            known = p.admissible & ~np.isnan(tsi) & ~np.isnan(nsi)
            above, noisy = tsi[known] > 1, nsi[known] > 1
            cells = {"I": above & noisy, "II": ~above & noisy, "III": ~above & ~noisy, "IV": above & ~noisy}
            total = int(known.sum())
            yield metric, model, {q: float(c.mean()) if total else float("nan") for q, c in cells.items()}, total


def problems(p: Panel, tiny: int) -> pd.DataFrame:
    """Annotations to look at: objects that cover nearly all tokens, hardly any, or none; one row an image."""
    first, rows = p.models[0], p.rows[0]
    covered, ids = first.covered[rows], first.id[rows]
    kinds = [
        ("covers nearly the whole image", p.group == 4),
        (f"covers {tiny} token{'s' if tiny > 1 else ''} at most", (covered > 0) & (covered <= tiny)),
        ("lies outside the crop", covered == 0),
        ("has no annotation", covered < 0),
    ]
    found = [
        {"id": str(ids[r]), "problem": what, "tokens": int(max(covered[r], 0)), "M-TSI": float(first.maximum[rows][r])}
        for what, where in kinds
        for r in np.flatnonzero(where)
    ]
    return pd.DataFrame(found, columns=["id", "problem", "tokens", "M-TSI"])
