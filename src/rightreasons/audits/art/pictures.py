"""Grad-CAM before and after restoring, for networks whose features are the average of a map and whose head is linear."""

from __future__ import annotations

import numpy as np

from rightreasons.audits import _overlay as drawing
from rightreasons.audits.art.pieces import Pictures
from rightreasons.audits.art.procedure import Audit
from rightreasons.audits.art.rows import Rows
from rightreasons.evidence import Evidence
from rightreasons.findings import Gallery, Picture
from rightreasons.head import Head
from rightreasons.stats.restoration import restore

SAME = 1e-3  # how far, against the largest feature, the average of the map may lie from the features


def draw_pictures(evidence: Evidence, rows: Rows, audit: Audit, decided: np.ndarray, number: int) -> Pictures:
    """`number` conflicting rows, those first that are right before restoring and follow the attribute after.

    Parameters
    ----------
    decided : (n,) decisions on the test rows after restoring
    """
    test, stage = rows.views[0], audit.stage
    if not number:
        return _none("")
    if "spatial" not in test or test.cohort.case is not None:
        return _none("no feature maps of these rows are in the evidence")
    view = test.select(np.flatnonzero((test.label >= 0) & (test.cohort.attribute(rows.attribute).values >= 0)))
    chosen = _chosen(audit, decided, len(view), number)
    if not len(chosen):
        return _none("no conflicting test rows")
    shown = view.select(chosen)
    maps = shown["spatial"].astype(np.float64)
    z, y = stage.rows.z[chosen], stage.rows.y[chosen]
    head = evidence.head
    if head is None or not head.is_linear or not _are_averages(z, maps):
        return _none("the features are not the average of a feature map under a linear head")
    before, after = stage.readout.decided[chosen], decided[chosen]
    moved = restore(z, y, audit.directions, audit.beta) - z
    images = []
    for classes, shift in ((before, np.zeros_like(z)), (after, moved)):
        cam = gradcam(maps + shift.reshape(*shift.shape, *(1 for _ in maps.shape[2:])), head, classes)
        flat, none = cam.reshape(len(cam), -1), np.zeros((len(cam), cam[0].size), dtype=bool)
        drawn, problem = drawing.draw(evidence, shown.cohort, np.arange(len(cam)), flat, none, cam.shape[1:])
        if problem:
            return _none(problem)
        images.append(drawn)
    names = evidence.card.classes
    captions = tuple(f"{i}: {names[b]} → {names[a]}" for i, b, a in zip(shown.cohort.id, before, after, strict=True))
    return Pictures(np.stack(images, axis=1), captions, "")


def gradcam(maps: np.ndarray, head: Head, decided: np.ndarray) -> np.ndarray:
    """(n, *space) of maps (n, c, *space): under an average and a linear head the gradient is the head's own weight.

    The first output of a one-logit head is held at 0; its score is the negative of the other.
    """
    weight = np.stack([w if w.any() else -head.weight.sum(axis=0) for w in head.weight])[decided]
    return np.maximum(np.einsum("nc,nc...->n...", weight, maps), 0)


def gallery(pictures: Pictures) -> Gallery:
    """Each image before and after, side by side."""
    gap = np.full((pictures.images.shape[2], 4, 3), 255, dtype=np.uint8)
    return Gallery(
        title="Grad-CAM before and after",
        caption="Conflicting test images, left as they are and right with the attribute amplified; each map explains the class "
        "decided there. Restoring shifts a feature map by the same amount everywhere, so a map changes where the decision does, "
        "or by a constant. A picture, not a test.",
        items=[
            Picture(png=np.concatenate([before, gap, after], axis=1), caption=caption)
            for (before, after), caption in zip(pictures.images, pictures.captions, strict=True)
        ],
    )


# ---- what the functions above use ----------------------------------------------------------------------------------------


def _chosen(audit: Audit, decided: np.ndarray, n: int, number: int) -> np.ndarray:
    """Places among the first n test rows, which have no twins, in order: maps are read block by block."""
    stage, y = audit.stage, audit.stage.rows.y[:n]
    follows = (stage.readout.decided[:n] == y) & (decided[:n] == stage.towards[:n])
    conflict = np.flatnonzero(stage.conflict[:n] & np.isin(y, np.array(audit.directions.labels)))
    return np.sort(conflict[np.argsort(~follows[conflict], kind="stable")][:number])


def _are_averages(z: np.ndarray, maps: np.ndarray) -> bool:
    means = maps.reshape(*maps.shape[:2], -1).mean(axis=2)
    return means.shape == z.shape and bool(np.abs(means - z).max() <= SAME * np.abs(z).max())


def _none(why: str) -> Pictures:
    return Pictures(np.zeros((0, 2, 1, 1, 3), dtype=np.uint8), (), why)
