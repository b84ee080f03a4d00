"""Refit: the last layer fitted anew on held-out rows, weighted so that no attribute says anything about the label (ours).

DFR keeps as many rows of every group as the smallest has; here every row stays and the groups weigh the same. With several
attributes the weights make the label independent of each of them, without asking for rows in every combination of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import numpy as np

from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError, SettingError
from rightreasons.mitigations import card_settings, handed_on
from rightreasons.mitigations._last_layer import Refitting, l2_heads, smallest_of_the_best, with_last_layer
from rightreasons.models.classifier import Classifier
from rightreasons.models.grouped_rows import Rows, score
from rightreasons.models.training_keywords import Places, runs
from rightreasons.stats.refit import raked_weights

STARTS = "model"
AUTO = "last layer"

LEAST = 5  # rows of the smallest group


@runs
def mitigate(
    classifier: Classifier,
    cohort: Cohort,
    *,
    rng: np.random.Generator,
    attribute: str | None = None,
    others: bool = True,
    C: Sequence[float] = (0.001, 0.01, 0.1, 1.0, 10.0),
    batch: int = 64,
    **places: Unpack[Places],
) -> Classifier:
    """The classifier with its last linear layer fitted anew.

    Parameters
    ----------
    attribute : whose groups with the label select on the val rows; the cohort's first by default
    others : make the label independent of the table's other attributes too, those with values that are known in all rows
    C : inverse l2 penalties to choose from; of equally good ones the smallest
    batch : images at a time when features are read
    folder : not used: nothing here takes long enough to be resumed
    """
    if not len(C) or not all(0 < c < np.inf for c in C):
        raise SettingError(f"C={list(C)}: give penalties above 0")
    settings = card_settings(attribute=attribute, others=others, C=C, batch=batch)
    rows = Refitting.begin(classifier, cohort, rng, attribute, {"batch": batch, **places}, smallest=("refit", LEAST))
    fit, by, z_val = rows.fit, rows.by, rows.val_inputs
    names, weight = independent_weights(fit, others)
    heads = l2_heads(rows.inputs, fit.y, sorted(map(float, C)), fit.C, weight)
    scores = {c: score(rows.val, head(z_val), by) for c, head in heads.items()}
    best = smallest_of_the_best(scores)
    return handed_on(
        with_last_layer(classifier, heads[best].weight, heads[best].bias),
        classifier,
        "refit",
        settings,
        selected=by,
        fitted=rows.used,
        chosen={
            "C": best,
            by: scores[best],
            "scores": {f"{c:g}": value for c, value in scores.items()},
            "independent_of": names,
            "rows": len(fit),
        },
    )


def independent_weights(rows: Rows, others: bool) -> tuple[list[str], np.ndarray]:
    """Attributes of which the label is independent under the weights, and the weights (n,)."""
    if rows.a is None:
        raise DataError(f"cohort {rows.cohort.name!r} has no attribute that makes groups: give attribute= when reading it")
    names, columns = [rows.attribute], [rows.a]
    for name in rows.cohort.attributes if others else ():
        values = rows.cohort.attribute(name)
        if name == rows.attribute or values.kind == "continuous" or not values.present.all():
            continue
        if _in_every_label(rows.y, values.values):
            names.append(name)
            columns.append(values.values)
    return names, raked_weights(rows.y, columns)


def _in_every_label(y: np.ndarray, values: np.ndarray) -> bool:
    """Whether every value has rows of every label: without them no weights can make the two independent."""
    table = np.zeros((int(y.max()) + 1, int(values.max()) + 1), dtype=np.int64)
    np.add.at(table, (y, values), 1)
    return bool((table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0] >= LEAST).all())
