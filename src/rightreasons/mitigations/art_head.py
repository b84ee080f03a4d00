"""ART-head: the last layer fitted anew on clean and restored features, so that it stops answering to what ART amplifies (sec. 6).

The backbone is frozen. Association directions are found and gated on a seeded half of `audit`, its rows are restored along them,
and the last linear layer learns the right label from both. It decouples the head; the features keep what they have.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from rightreasons.audits.art import Directions, find, gate, restore
from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError, SettingError
from rightreasons.extraction import read
from rightreasons.head import Head, Layer
from rightreasons.mitigations import card_settings, handed_on
from rightreasons.mitigations._last_layer import held_out, last_inputs, standard, with_last_layer
from rightreasons.models.classifier import Classifier
from rightreasons.models.grouped_rows import Rows, completed, labelled, score, selection
from rightreasons.stats.restoration import halves

STARTS = "model"

MOST_STEPS = 2_000


def mitigate(  # noqa: PLR0913  each keyword is a documented setting
    classifier: Classifier,
    cohort: Cohort,
    *,
    rng: np.random.Generator,
    attribute: str | None = None,
    rho: float = 0.5,
    tau: float = 0.5,
    n_min: int = 20,
    beta: float = 2.0,
    C: Sequence[float] = (0.01, 0.1, 1.0, 10.0),
    batch: int = 64,
    folder: str | os.PathLike[str] | None = None,
    device: str | torch.device | None = None,
    threads: int | None = None,
    workers: int | None = None,
    cache: str | Path | None = None,
) -> Classifier:
    """The classifier with its last linear layer fitted anew.

    Parameters
    ----------
    rho, tau, n_min, beta : as in the audit `art`; directions are found on one part of the rows and gated on the other
    C : inverse l2 penalties to choose from, by the val rows, clean and restored together as in the fit (a strong penalty keeps
        the old direction in use: clean rows alone would not show it); of equally good ones the largest
    batch : images at a time when features are read
    folder : not used, nothing here is long
    """
    if not len(C) or not all(0 < c < np.inf for c in C) or not 0 < beta < np.inf:
        raise SettingError(f"C={list(C)} and beta={beta}: give penalties and a strength above 0")
    settings = card_settings(attribute=attribute, rho=rho, tau=tau, n_min=n_min, beta=beta, C=C, batch=batch)
    cohort = completed(cohort, rng)
    fit = held_out(classifier, cohort, rng, attribute)
    val, by = labelled(classifier, cohort.on("val"), attribute), selection(classifier, cohort, attribute)

    def features(rows: Rows) -> np.ndarray:
        places: dict[str, Any] = {"device": device, "threads": threads, "workers": workers, "cache": cache}
        return read(classifier, rows.cohort, ("features",), batch=batch, **places)["features"].astype(np.float64)

    z, z_val = features(fit), features(val)
    directions = open_directions(fit, z, rng, rho=rho, tau=tau, n_min=n_min)
    both = np.concatenate([z, restore(z, fit.y, directions, beta)])
    heads = refit(last_inputs(classifier, both), np.concatenate([fit.y, fit.y]), sorted(map(float, C)), fit.C)
    twice = val.select(np.tile(np.arange(len(val)), 2))
    x_val = last_inputs(classifier, np.concatenate([z_val, restore(z_val, val.y, directions, beta)]))
    scores = {c: score(twice, head(x_val), by) for c, head in heads.items()}
    best = max(scores, key=lambda c: (scores[c], c))
    return handed_on(
        with_last_layer(classifier, heads[best].weight, heads[best].bias),
        classifier,
        "art_head",
        settings,
        selected=by,
        fitted=[*fit.cohort.id, *val.cohort.id],
        chosen={
            "C": best,
            by: scores[best],
            "scores": {f"{c:g}": value for c, value in scores.items()},
            "selected_on": "clean and restored val rows",
            "rows": len(fit),
            "gates": _gates(fit, directions),
        },
    )


def open_directions(
    rows: Rows, features: np.ndarray, rng: np.random.Generator, *, rho: float = 0.5, tau: float = 0.5, n_min: int = 20
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


def refit(x: np.ndarray, y: np.ndarray, C: Sequence[float], classes: int) -> dict[float, Head]:
    """For each C a linear head on raw inputs (n, d'), fitted by l2 logistic regression on standardised ones."""
    mean, std = standard(x)
    heads = {}
    for c in C:
        model = LogisticRegression(C=c, max_iter=MOST_STEPS).fit((x - mean) / std, y)
        weight, bias = model.coef_, model.intercept_
        if classes == 2:  # one row, of the second class
            weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
        heads[c] = Head((Layer("linear", {"weight": weight, "bias": bias}),)).fold(mean, std)
    return heads


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
