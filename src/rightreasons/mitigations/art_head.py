"""ART-head: the last layer fitted anew on clean and restored features, so that it no longer answers to what ART amplifies (5.7).

The backbone is frozen. Association directions are found and gated on a seeded half of `audit`, its rows are restored along them,
and the last linear layer learns the right label from both. It decouples the head; the features keep what they have.

The same refit without restored rows is its control: held-out rows alone may be enough. Both are scored on clean and restored val
rows, and the card says whether the restored rows helped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np

from rightreasons.audits.art import Directions, find, gate, restore
from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError, SettingError
from rightreasons.families import with_settings
from rightreasons.head import Head
from rightreasons.mitigations import card_settings, handed_on
from rightreasons.mitigations._last_layer import Refitting, l2_heads, last_inputs, with_last_layer
from rightreasons.models.classifier import Classifier
from rightreasons.models.grouped_rows import Rows, Select, score
from rightreasons.models.training_keywords import Places, runs
from rightreasons.stats.restoration import halves

STARTS = "model"
AUTO = "last layer"


@dataclass(frozen=True)
class Settings:
    """What can be set of ART-head.

    Parameters
    ----------
    rho, tau, n_min, beta : as in the audit `art`; directions are found on one part of the rows and gated on the other. Without
        label-null correction by default: what the correction takes out, the head goes on reading
    C : inverse l2 penalties to choose from, by the val rows, clean and restored together as in the fit (a strong penalty keeps
        the old direction in use: clean rows alone would not show it); of equally good ones the largest
    batch : images at a time when features are read
    """

    attribute: str | None = None
    rho: float = 0.0
    tau: float = 0.5
    n_min: int = 20
    beta: float = 2.0
    C: Sequence[float] = (0.01, 0.1, 1.0, 10.0)
    batch: int = 64


@with_settings(Settings)
@runs
def mitigate(
    classifier: Classifier, cohort: Cohort, *, rng: np.random.Generator, settings: Settings, **places: Unpack[Places]
) -> Classifier:
    """The classifier with its last linear layer fitted anew. `folder` is not used: nothing takes long."""
    s = settings
    if not len(s.C) or not all(0 < c < np.inf for c in s.C) or not 0 < s.beta < np.inf:
        raise SettingError(f"C={list(s.C)} and beta={s.beta}: give penalties and a strength above 0")
    rows = Refitting.begin(classifier, cohort, rng, s.attribute, {"batch": s.batch, **places})
    fit, val, z, z_val, by = rows.fit, rows.val, rows.features, rows.val_features, rows.by
    directions = open_directions(fit, z, rng, rho=s.rho, tau=s.tau, n_min=s.n_min)
    penalties = sorted(map(float, s.C))
    judged = Judged(classifier, val, z_val, restore(z_val, val.y, directions, s.beta), by)
    clean = rows.inputs
    both = np.concatenate([clean, last_inputs(classifier, restore(z, fit.y, directions, s.beta))])
    chosen = judged.best(l2_heads(both, np.concatenate([fit.y, fit.y]), penalties, fit.C))
    control = judged.best(l2_heads(clean, fit.y, penalties, fit.C))
    head = chosen.head
    return handed_on(
        with_last_layer(classifier, head.weight, head.bias),
        classifier,
        "art_head",
        card_settings(**vars(settings)),
        selected=by,
        fitted=rows.used,
        chosen={
            "C": chosen.C,
            by: chosen.score,
            "scores": chosen.scores,
            "selected_on": "clean and restored val rows",
            "clean": chosen.clean,
            "restored": chosen.restored,
            "control": {"C": control.C, by: control.score, "clean": control.clean, "restored": control.restored},
            "beats_control": chosen.score > control.score,
            "rows": len(fit),
            "gates": _gates(fit, directions),
        },
    )


@dataclass(frozen=True, eq=False)
class Fitted:
    """The best of several penalties: its head, and how it does on val rows, clean, restored and both together."""

    C: float
    head: Head
    score: float
    clean: float
    restored: float
    scores: dict[str, float]


class Judged:
    """Val rows, clean and restored, on which heads are compared."""

    def __init__(self, classifier: Classifier, val: Rows, clean: np.ndarray, restored: np.ndarray, by: Select) -> None:
        self.val, self.by = val, by
        self.twice = val.select(np.tile(np.arange(len(val)), 2))
        self.clean, self.restored = last_inputs(classifier, clean), last_inputs(classifier, restored)

    def best(self, heads: Mapping[float, Head]) -> Fitted:
        """The head that is best on both together; of equally good ones the one with the largest C."""
        both = np.concatenate([self.clean, self.restored])
        scores = {c: score(self.twice, head(both), self.by) for c, head in heads.items()}
        best = max(scores, key=lambda c: (scores[c], c))
        head = heads[best]
        return Fitted(
            C=best,
            head=head,
            score=scores[best],
            clean=score(self.val, head(self.clean), self.by),
            restored=score(self.val, head(self.restored), self.by),
            scores={f"{c:g}": value for c, value in scores.items()},
        )


def open_directions(
    rows: Rows, features: np.ndarray, rng: np.random.Generator, *, rho: float = 0.0, tau: float = 0.5, n_min: int = 20
) -> Directions:
    """Directions found on one half of the rows, gated on the other; refused where every gate is closed."""
    y, a = rows.y, np.asarray(rows.a)
    first, second = halves(y, a, rng=rng, subject=rows.cohort.subject)
    directions = gate(find(features[first], y[first], a[first], rho), features[second], y[second], a[second], tau, n_min)
    if not directions.is_open:
        states = "; ".join(f"{name}: {state}" for name, state in _gates(rows, directions).items())
        raise DataError(
            f"art_head has nothing to restore, every gate is closed ({states}): give more audit rows, or another tau= or n_min="
        )
    return directions


def _gates(rows: Rows, directions: Directions) -> dict[str, str]:
    """What became of each direction, by its class and attribute value."""
    states = {}
    for c, label in enumerate(directions.labels):
        for v, value in enumerate(directions.values):
            if directions.open[c, v]:
                state = "open"
            else:
                state = f"closed, {directions.reason[c][v]}"
            separation, size = directions.T[c, v], directions.counts[c, v]
            states[rows.name(int(label) * rows.A + int(value))] = f"{state} (T {separation:.2f}, {size} rows)"  # type: ignore[call-overload]
    return states
