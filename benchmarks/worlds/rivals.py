"""What people use today, as scores of the same models: the larger, the more suspicious. Tools installed apart: outside.py."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import RidgeCV

from rightreasons.data.images import Geometry, load_mask
from rightreasons.evidence import Evidence
from rightreasons.stats import probes
from rightreasons.stats.groups import auc, group_accuracy

PENALTIES = tuple(10.0 ** np.arange(-1, 5))  # of the ridge, chosen on the audit rows by leaving one out


def scores(evidence: Evidence, name: str | None = None) -> dict[str, Any]:
    """Gap of the worst group, leakage of a linear probe, Con-score, share of Grad-CAM outside the object's mask.

    A continuous attribute has no groups and no classes to tell apart.
    """
    test = evidence.on("test")
    found = {"Con-score": con_score(evidence, name)}
    if "maps@gradcam" in evidence.arrays("test") and test.cohort.mask is not None:
        found["Grad-CAM outside"] = _outside(evidence)
    attribute = test.cohort.attribute(name)
    if attribute.kind == "continuous":
        return found
    label, predicted = test.cohort.label, test["logits"].argmax(axis=1)
    accuracy = float((predicted == label).mean())
    worst = float(np.nanmin(list(group_accuracy(label, predicted, attribute.values).values())))
    return {**found, "worst-group gap": accuracy - worst, "probe leakage": _leakage(evidence, name)}


def _leakage(evidence: Evidence, name: str | None) -> float:
    """AUC of a linear probe; of one value against the rest, the mean over values, where there are more than two."""
    audit, test = evidence.on("audit"), evidence.on("test")
    values = test.cohort.attribute(name).values
    score = probes.fit(audit["features"], audit.cohort.attribute(name).values, C=1.0).score(test["features"])
    if score.ndim == 1:
        return float(auc(values, score))
    if score.shape[1] == 2:
        return float(auc(values, score[:, 1]))
    return float(np.mean([auc((values == k).astype(int), score[:, k]) for k in range(score.shape[1])]))


def con_score(evidence: Evidence, name: str | None = None) -> float:
    """DeepRepViz's Con-score (Rane and others, 2024): R² of the confounder from the latent, times |cos| of the two directions.

    The directions are those in which linear fits to standardised latents of the audit rows read the label and the confounder;
    R² is of the test rows, and not below 0. Of an attribute of more than two values, the largest over its values.
    """
    audit, test = evidence.on("audit"), evidence.on("test")
    middle, spread = audit["features"].mean(axis=0), audit["features"].std(axis=0)
    x, x_test = ((view["features"].astype(np.float64) - middle) / (spread + 1e-6) for view in (audit, test))
    of_label = RidgeCV(PENALTIES).fit(x, audit.cohort.label.astype(float)).coef_
    attribute, again = audit.cohort.attribute(name), test.cohort.attribute(name)
    if attribute.kind == "continuous":
        pairs = [(attribute.values, again.values)]
    else:
        levels = range(len(attribute.levels)) if len(attribute.levels) > 2 else (1,)
        pairs = [((attribute.values == k).astype(float), (again.values == k).astype(float)) for k in levels]
    return max(_concordance(x, x_test, of_label, *pair) for pair in pairs)


def _concordance(x: np.ndarray, x_test: np.ndarray, of_label: np.ndarray, values: np.ndarray, again: np.ndarray) -> float:
    fitted = RidgeCV(PENALTIES).fit(x, values)
    explained = max(float(fitted.score(x_test, again)), 0.0)
    lengths = float(np.linalg.norm(fitted.coef_) * np.linalg.norm(of_label))
    return explained * abs(float(fitted.coef_ @ of_label)) / lengths if lengths else 0.0


def _outside(evidence: Evidence) -> float:
    view = evidence.on("test")
    maps = np.maximum(np.asarray(view["maps@gradcam"], dtype=np.float64), 0)
    side = maps.shape[-1]
    geometry = Geometry((side, side))
    masks = np.stack([load_mask(m, geometry, root=view.cohort.root) for m in view.cohort.mask])
    share = (maps * ~masks).sum(axis=(1, 2)) / np.maximum(maps.sum(axis=(1, 2)), 1e-12)
    return float(share.mean())
