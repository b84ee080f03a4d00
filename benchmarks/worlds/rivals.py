"""What people use today, as scores of the same models: the larger, the more suspicious. Tools installed apart: outside.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from rightreasons.data.cohort import Cohort
from rightreasons.data.images import Geometry, load_mask
from rightreasons.evidence import Evidence
from rightreasons.stats import probes
from rightreasons.stats.groups import auc, group_accuracy


def scores(evidence: Evidence, cohort: Cohort, name: str | None = None) -> dict[str, Any]:
    """Gap of the worst group, leakage of a linear probe, share of Grad-CAM outside the object's mask."""
    test, audit = evidence.on("test"), evidence.on("audit")
    label, attribute = test.cohort.label, test.cohort.attribute(name).values
    predicted = test["logits"].argmax(axis=1)
    accuracy = float((predicted == label).mean())
    worst = float(np.nanmin(list(group_accuracy(label, predicted, attribute).values())))
    fitted = probes.fit(audit["features"], audit.cohort.attribute(name).values, C=1.0)
    score = fitted.score(test["features"])
    score = score if score.ndim == 1 else score[:, -1]
    return {
        "worst-group gap": accuracy - worst,
        "probe leakage": float(auc(attribute, score)),
        "Grad-CAM outside": _outside(evidence, cohort),
    }


def _outside(evidence: Evidence, cohort: Cohort) -> float:
    view = evidence.on("test")
    maps = np.maximum(np.asarray(view["maps@gradcam"], dtype=np.float64), 0)
    side = maps.shape[-1]
    geometry = Geometry((side, side))
    masks = np.stack([load_mask(m, geometry, root=cohort.root) for m in cohort.on("test").mask])
    share = (maps * ~masks).sum(axis=(1, 2)) / np.maximum(maps.sum(axis=(1, 2)), 1e-12)
    return float(share.mean())
