"""Where OSCAR and TSI say that the cue is, against where it is: the pixels in which an image and its twin differ."""

from __future__ import annotations

from typing import Any

import numpy as np

from rightreasons.audits.tsi.arrays import influence_array
from rightreasons.data.cohort import Cohort
from rightreasons.data.images import Geometry, load
from rightreasons.evidence import Evidence
from rightreasons.stats.profiles import QUADRANTS

MOST = 0.35  # share of the image's pixels; a cue of more has no place
ROWS = 100  # whose twins tell where the cue is
PATCH = 4  # pixels of a token's side
QUARTER = 0.25  # of the highest region's pixels: so many on the cue are a hit
HALF = 0.5  # of the highest score: what is above it is what was found


def found(name: str, result: Any, evidence: Evidence, twins: Cohort) -> dict[str, float]:
    """IoU of the pixels that an audit finds with the cue's, and how often its highest region lies on the cue (0 to 1).

    Nothing where the audit names no place, or the cue has none.
    """
    if name == "oscar":
        scores = oscar_scores(result)[None]
        cue = cue_pixels(twins, scores.shape[1:]).mean(axis=0, keepdims=True) > HALF
    elif name == "tsi":
        influence = np.abs(evidence.on("test")[influence_array("token_influence", "label")][:ROWS]).astype(np.float64)
        scores = influence.repeat(PATCH, axis=1).repeat(PATCH, axis=2)
        cue = cue_pixels(twins, scores.shape[1:])
    else:
        return {}
    if not 0 < cue.mean() < MOST:
        return {}
    iou, pointed = overlap(scores, cue)
    return {f"{name} IoU": iou, f"{name} pointing": pointed}


def overlap(scores: np.ndarray, cue: np.ndarray) -> tuple[float, float]:
    """Means over maps with a cue, both (n, h, w): IoU of what scores above half of the most, and whether the most is on it."""
    flat, truth = scores.reshape(len(scores), -1), cue.reshape(len(cue), -1)
    there = truth.any(axis=1)
    flat, truth = flat[there], truth[there]
    top = flat.max(axis=1, keepdims=True)
    region, highest = (flat >= HALF * top) & (top > 0), (flat == top) & (top > 0)
    iou = (region & truth).sum(axis=1) / (region | truth).sum(axis=1)
    pointed = (highest & truth).sum(axis=1) >= np.maximum(QUARTER * highest.sum(axis=1), 1)
    return round(float(iou.mean()), 4), round(float(pointed.mean()), 4)


def oscar_scores(result: Any) -> np.ndarray:
    """(h, w) contribution of the regions that test and attribute model both use more than the baseline would have it."""
    maps, regions = result.compared[0].maps, result.models.first.regions.drawn[0]
    both = maps.shortcut_quadrant == QUADRANTS.index("both more")
    by_region = np.where(both, np.nan_to_num(maps.shortcut), 0.0).clip(min=0)
    painted: np.ndarray = by_region[regions]
    return painted


def cue_pixels(twins: Cohort, shape: tuple[int, ...]) -> np.ndarray:
    """(n, h, w) whether image and twin differ, of the first rows."""
    geometry = Geometry((int(shape[0]), int(shape[1])))
    rows = range(min(ROWS, len(twins)))
    pairs = [
        [load(references[row], geometry, root=twins.root).astype(np.int16) for references in (twins.image, twins.twin)]
        for row in rows
        if twins.twin is not None
    ]
    return np.stack([np.abs(image - twin).max(axis=-1) > 0 for image, twin in pairs])
