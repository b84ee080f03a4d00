"""ERM: train anew, every row alike. What the other mitigations are compared with (ART, sec. 5)."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from rightreasons.data.cohort import Cohort
from rightreasons.mitigations import card_settings, handed_on
from rightreasons.models.classifier import Classifier
from rightreasons.models.grouped_rows import Select, completed, seed_of, selection
from rightreasons.models.starting import fresh
from rightreasons.models.training import train
from rightreasons.models.training_keywords import Training, trains

STARTS = "start"


@trains()
def mitigate(
    classifier: Classifier,
    cohort: Cohort,
    *,
    rng: np.random.Generator,
    attribute: str | None = None,
    start: str | None = None,
    select: Select | None = None,
    **training: Unpack[Training],
) -> Classifier:
    """Cross-entropy on the train rows; the epoch is chosen on the val rows. What is not explained here is `train`'s.

    Parameters
    ----------
    attribute : whose worst group selects; the cohort's first by default
    start : starting weights, see `models.starting.fresh`
    select : "wga" or "accuracy" of the val rows; by default the first where the attribute makes groups there
    """
    settings = card_settings(attribute=attribute, start=start, select=select, **training)
    seed = seed_of(rng)
    cohort = completed(cohort, rng)
    by = select or selection(classifier, cohort, attribute)
    starting = fresh(classifier, rng, start)
    new = train(starting, cohort, attribute=attribute, stop_on=by, seed=seed, regime="erm", **training)
    return handed_on(new, classifier, "erm", settings, selected=by, keeps=False)
