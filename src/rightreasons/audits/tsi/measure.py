"""TSI of one model: influence, object, the scores of every image (eq. 1, 2), and what further arrays add."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import softmax

from rightreasons.audits import _overlay as overlay
from rightreasons.audits.tsi.cues import agreement, most_followed, score_twins
from rightreasons.audits.tsi.extras import Source, read_extras
from rightreasons.audits.tsi.locate import Located, locate
from rightreasons.audits.tsi.measurement import (
    Images,
    Influence,
    Means,
    Measurement,
    OtherAnnotation,
    Pictures,
    Spuriosity,
    Support,
)
from rightreasons.audits.tsi.settings import Settings
from rightreasons.errors import NotRun
from rightreasons.evidence import Evidence, View
from rightreasons.families import with_settings
from rightreasons.stats import tokens
from rightreasons.stats.bootstrap_means import column_means

FLAT = 1e-6  # where no token moves the probability by this much, the ratio of two of them is rounding


@with_settings(Settings)
def measure(evidence: Evidence, *, rng: np.random.Generator, settings: Settings) -> Measurement:
    """Scores of every image of one model."""
    settings.check()
    view = evidence.on(settings.cohort)
    if not len(view):
        raise NotRun(f"no row of {settings.cohort!r} is left to measure")
    located = locate(view, settings)
    scores = Spuriosity(*tokens.spuriosity(located.influence, located.inside, settings.rectify))
    probabilities = softmax(view["logits"].astype(np.float64), axis=1)
    if settings.explain == "predicted":
        target = probabilities.argmax(axis=1)
    else:
        target = np.maximum(view.label, 0)
    images = _images(view, located, probabilities, target)
    T = located.inside.shape[1]
    admissible = tokens.is_admissible(tokens.coverage_group(images.covered, T))
    shown = overlay.choose(np.where(admissible, scores.maximum, np.nan), settings.pictures)
    return Measurement(
        model=evidence.card.name,
        cohort=settings.cohort,
        classes=tuple(map(str, evidence.card.classes)),
        influence=Influence(located.region, settings.maps, settings.explain, settings.rectify, T),
        images=images,
        scores=scores,
        support=_support(located, settings.rectify),
        means=_means(scores, admissible, view.cohort.subject, rng, settings),
        other=_other(located, settings.rectify),
        extras=read_extras(Source(view, located, settings, probabilities, target)),
        cues=agreement(evidence, view, settings.aligned),
        twins=score_twins(evidence, view, located, settings),
        followed=most_followed(evidence, view, settings, rng.spawn(1)[0]),
        pictures=_pictures(evidence, view, located, images, shown),
        left_out=view.left_out,
    )


def _images(view: View, located: Located, probabilities: np.ndarray, target: np.ndarray) -> Images:
    subject = view.cohort.subject
    predicted, rows = probabilities.argmax(axis=1), np.arange(len(view))
    return Images(
        id=np.array(view.cohort.id, dtype=np.str_),
        subject=np.zeros(0, np.str_) if subject is None else np.array(subject, dtype=np.str_),
        label=view.label,
        predicted=predicted,
        right=np.where(view.label >= 0, predicted == view.label, np.nan),
        confidence=probabilities[rows, predicted],
        probability=probabilities[rows, target],
        covered=located.covered,
        area=located.area,
    )


def _support(located: Located, rectify: str) -> Support:
    influence, inside = located.influence, located.inside
    return Support(
        undefined=tokens.why_undefined(influence, inside, rectify),
        strongest_outside=tokens.strongest_outside(influence, inside),
        only_outside=tokens.only_outside(influence, inside),
        flat=np.fmax.reduce(np.abs(influence), axis=1) < FLAT,
    )


def _means(
    scores: Spuriosity, admissible: np.ndarray, subject: np.ndarray | None, rng: np.random.Generator, settings: Settings
) -> Means:
    above = np.where(np.isnan(scores.maximum), np.nan, scores.maximum > 1)
    intervals = column_means(
        {"above": above[admissible], "maximum": scores.maximum[admissible], "average": scores.average[admissible]},
        rng=rng,
        subject=None if subject is None else subject[admissible],
        shares=("above",),
        B=settings.B,
        level=settings.level,
    )
    return Means(**intervals)


def _other(located: Located, rectify: str) -> OtherAnnotation | None:
    if located.other_inside is None:
        return None
    scores = Spuriosity(*tokens.spuriosity(located.influence, located.other_inside, rectify))
    return OtherAnnotation(located.other, scores)


def _pictures(evidence: Evidence, view: View, located: Located, images: Images, rows: np.ndarray) -> Pictures:
    pixels, reason = overlay.draw(evidence, view.cohort, rows, located.influence, located.inside, located.grid)
    if not len(pixels):
        return Pictures(pixels, (), np.zeros(0, np.int64), reason)
    classes = [str(c) for c in evidence.card.classes]
    return Pictures(pixels, tuple(_caption(images, row, classes) for row in rows), rows, reason)


def _caption(images: Images, row: int, classes: Sequence[str]) -> str:
    if images.label[row] < 0:
        label = "label unknown"
    else:
        label = classes[images.label[row]]
    return f"{label}, decided {classes[images.predicted[row]]} with {images.confidence[row]:.2f}"
