"""Balanced: train anew on rows in which the attribute says nothing about the label (ART, sec. 5).

Subsampling to the smallest group is the default; reweighting keeps all rows and gives every group the same total weight.
"""

from __future__ import annotations

from typing import Any, Literal, Unpack

import numpy as np

from rightreasons.data.cohort import Cohort
from rightreasons.errors import SettingError
from rightreasons.mitigations import card_settings, handed_on
from rightreasons.models.classifier import Classifier
from rightreasons.models.grouped_rows import Select, completed, every_group, grouped, row_weights, seed_of, selection
from rightreasons.models.starting import fresh
from rightreasons.models.training import train
from rightreasons.models.training_keywords import Training, trains

STARTS = "start"
AUTO = "training"


@trains()
def mitigate(
    classifier: Classifier,
    cohort: Cohort,
    *,
    rng: np.random.Generator,
    attribute: str | None = None,
    how: Literal["subsample", "reweight"] = "subsample",
    start: str | None = None,
    select: Select | None = None,
    **training: Unpack[Training],
) -> Classifier:
    """Cross-entropy on balanced train rows; the epoch is chosen on the val rows as they are.

    Parameters
    ----------
    attribute : whose groups with the label are balanced; the cohort's first by default
    how : "subsample" every (label, attribute) group to the smallest, or "reweight" all rows
    start : starting weights, see `models.starting.fresh`
    select : "wga" or "accuracy" of the val rows; by default the first where the attribute makes groups there
    """
    if how not in ("subsample", "reweight"):
        raise SettingError(f"how is {how!r}: give subsample or reweight")
    settings = card_settings(attribute=attribute, how=how, start=start, select=select, **training)
    seed = seed_of(rng)
    cohort = completed(cohort, rng)
    by = select or selection(classifier, cohort, attribute)
    starting = fresh(classifier, rng, start)
    weights, chosen = balance(classifier, cohort, attribute, how, rng)
    new = train(starting, cohort, attribute=attribute, weights=weights, stop_on=by, seed=seed, regime="balanced", **training)
    return handed_on(new, classifier, "balanced", settings, selected=by, keeps=False, chosen=chosen)


def balance(
    classifier: Classifier, cohort: Cohort, attribute: str | None, how: str, rng: np.random.Generator
) -> tuple[np.ndarray, dict[str, Any]]:
    """(n,) weight of every row of the cohort, 0 for those that do not fit, and what the card should know.

    A weight column of the cohort is multiplied in; with "reweight" the groups are equal in its sums.
    """
    rows = grouped(classifier, cohort.on("train"), attribute)
    size = every_group(rows, what="balanced training")
    own = row_weights(rows.cohort)
    present = np.flatnonzero(size)
    weight = np.zeros(len(rows))
    if how == "subsample":
        smallest = int(size[present].min())
        for g in present:
            members = rng.permutation(np.flatnonzero(rows.group == g))[:smallest]
            weight[members] = own[members]
        chosen: dict[str, Any] = {"rows per group": smallest}
    else:
        total = np.bincount(rows.group, weights=own, minlength=len(size))
        weight = own * own.sum() / (len(present) * np.where(total > 0, total, 1.0)[rows.group])
        chosen = {"rows per group": {rows.name(g): int(size[g]) for g in present.tolist()}}
    place = {name: k for k, name in enumerate(cohort.id)}
    weights = np.zeros(len(cohort))
    weights[[place[name] for name in rows.cohort.id]] = weight
    return weights, chosen
