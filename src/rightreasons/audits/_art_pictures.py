"""Grad-CAM before and after restoring, for networks whose features are the average of a map and whose head is linear."""

from __future__ import annotations

from typing import Any

import numpy as np

from rightreasons.audits import _overlay as drawing
from rightreasons.audits._art_runs import Stage
from rightreasons.evidence import Evidence, View
from rightreasons.findings import Gallery, Picture
from rightreasons.head import Head
from rightreasons.stats.restoration import Directions, restore

SAME = 1e-3  # how far, against the largest feature, the average of the map may lie from the features


def draw_pictures(
    evidence: Evidence, test: View, known: np.ndarray, stage: Stage, directions: Directions, beta: float, after: np.ndarray,
    number: int,
) -> dict[str, Any]:  # fmt: skip
    """Conflicting rows, those first that are right before and follow the attribute after, as fields of a `Measurement`.

    Parameters
    ----------
    known : (n,) which of the test rows are the first rows of `stage`
    after : (m,) decisions on the rows of `stage` after restoring
    """
    if not number:
        return {}
    if "spatial" not in test or test.cohort.case is not None:
        return {"no_pictures": "no feature maps of these rows are in the evidence"}
    view = test.select(np.flatnonzero(known))
    n = len(view)
    rows, before = stage.rows, stage.readout.decided[:n]
    follows = (before == rows.y[:n]) & (after[:n] == stage.towards[:n])
    conflict = np.flatnonzero(stage.conflict[:n] & np.isin(rows.y[:n], np.array(directions.labels)))
    chosen = np.sort(conflict[np.argsort(~follows[conflict], kind="stable")][:number])  # in order: maps are read block by block
    if not len(chosen):
        return {"no_pictures": "no conflicting test rows"}
    shown = view.select(chosen)
    maps = shown["spatial"].astype(np.float64)
    z = rows.z[chosen]
    means = maps.reshape(*maps.shape[:2], -1).mean(axis=2)
    head = evidence.head
    if head is None or not head.is_linear or means.shape != z.shape or np.abs(means - z).max() > SAME * np.abs(z).max():
        return {"no_pictures": "the features are not the average of a feature map under a linear head"}
    moved = restore(z, rows.y[chosen], directions, beta) - z
    pictures = []
    for decided, shift in ((before[chosen], np.zeros_like(z)), (after[:n][chosen], moved)):
        cam = gradcam(maps + shift.reshape(*shift.shape, *(1 for _ in maps.shape[2:])), head, decided)
        flat, none = cam.reshape(len(cam), -1), np.zeros((len(cam), cam[0].size), dtype=bool)
        drawn, problem = drawing.draw(evidence, shown.cohort, np.arange(len(cam)), flat, none, cam.shape[1:])
        if problem:
            return {"no_pictures": problem}
        pictures.append(drawn)
    names = evidence.card.classes
    said = [f"{i}: {names[b]} → {names[a]}" for i, b, a in zip(shown.cohort.id, before[chosen], after[:n][chosen], strict=True)]
    return {"pictures": np.stack(pictures, axis=1), "captions": tuple(said)}


def gradcam(maps: np.ndarray, head: Head, decided: np.ndarray) -> np.ndarray:
    """(n, *space) of maps (n, c, *space): under an average and a linear head the gradient is the head's own weight.

    The first output of a one-logit head is held at 0; its score is the negative of the other.
    """
    weight = np.stack([w if w.any() else -head.weight.sum(axis=0) for w in head.weight])[decided]
    return np.maximum(np.einsum("nc,nc...->n...", weight, maps), 0)


def gallery(pictures: np.ndarray, captions: tuple[str, ...]) -> Gallery:
    """(k, 2, h, w, 3) pictures, each before and after."""
    gap = np.full((pictures.shape[2], 4, 3), 255, dtype=np.uint8)
    return Gallery(
        title="Grad-CAM before and after",
        caption="Conflicting test images, left as they are and right with the attribute amplified; each map explains the class "
        "that is decided then. Restoring shifts a feature map by the same amount at every place, so that a map changes where the "
        "decision does, or by a constant. A picture, not a test.",
        items=[
            Picture(png=np.concatenate([before, gap, after], axis=1), caption=said)
            for (before, after), said in zip(pictures, captions, strict=True)
        ],
    )
