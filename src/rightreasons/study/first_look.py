"""Before an audit begins: what the model answers on a few of its rows. Runs the network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rightreasons.check.preflight import OTHER_COHORTS, Answers, answers, preflight
from rightreasons.data.cohort import Cohort
from rightreasons.evidence import as_outputs
from rightreasons.extraction import card_of, read
from rightreasons.extraction.wanted import refuse_other_classes
from rightreasons.families import settings_of
from rightreasons.findings.preflight import Preflight
from rightreasons.models.classifier import Classifier
from rightreasons.study.preflight import about_of

ROWS = 128  # of those that are held out
OTHER_ROWS = 64  # of each other split


def first_look(classifier: Classifier, rows: Cohort, settings: Mapping[str, Any] | None = None) -> Preflight | None:
    """The card of a model by a sample of its held-out rows; None where there are none.

    Parameters
    ----------
    rows : with their splits
    settings : keywords of `extract`
    """
    held_out = _sample(rows, "test", "audit")
    if not len(held_out):
        return None
    known = {key: value for key, value in (settings or {}).items() if key in settings_of(read)}
    refuse_other_classes(classifier, {"test": held_out})
    about = about_of(card_of(classifier))
    label, logits = _asked(classifier, held_out, known)
    return preflight(label, logits, held_out, classifier.classes, about, elsewhere=dict(_elsewhere(classifier, rows, known)))


def _elsewhere(classifier: Classifier, rows: Cohort, known: Mapping[str, Any]) -> Iterator[tuple[str, Answers]]:
    for split in OTHER_COHORTS:
        if not rows.has(split):
            continue
        label, logits = _asked(classifier, _sample(rows, split, most=OTHER_ROWS), known)
        found = answers(label, logits)
        if found is not None:
            yield split, found


def _asked(classifier: Classifier, rows: Cohort, known: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """(n,) which output each row's label is, and (n, C) the logits."""
    target = str(classifier.card.get("target") or "")
    if target and target != rows.label_name:
        attribute = rows.attribute(target)
        label = as_outputs(attribute.values, attribute.levels, classifier.classes)
    else:
        label = as_outputs(rows.label, rows.classes, classifier.classes)
    return label, read(classifier, rows, **known)["logits"]


def _sample(rows: Cohort, *splits: str, most: int = ROWS) -> Cohort:
    """Labelled rows of some splits, evenly spread."""
    own = np.isin(np.asarray(rows.splits), splits) & (rows.label >= 0)
    index = np.flatnonzero(own)
    spread = np.linspace(0, max(0, len(index) - 1), min(most, len(index))).astype(np.int64)
    return rows.select(index[np.unique(spread)])
