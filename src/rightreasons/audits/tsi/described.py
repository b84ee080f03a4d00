"""Means over images that decide nothing: where the strongest token lies, deletion, noise, kept and missing tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rightreasons.audits.tsi import arrays
from rightreasons.audits.tsi.measurement import A_TSI, M_TSI, METRICS, Measurement
from rightreasons.stats.bootstrap_means import column_means
from rightreasons.stats.resampling import Interval

SHARE, PROBABILITY = "share", "probability"
RIGHT_WITH_ALL = "right with all tokens"
RIGHT_FROM_INSIDE = "right from inside alone"
RIGHT_FROM_OUTSIDE = "right from outside alone"
BY_CUE = "Where the cue agrees with the label, and where not"
OTHER_VIEWS = "Other views of the same question"
AGAINST_GRADCAM = "Deletion: token influence against Grad-CAM"
MASK_AGAINST_BOX = "Mask against box"


@dataclass(frozen=True)
class Column:
    """One value an image, NaN where the image does not count.

    Attributes
    ----------
    unit : "share" for columns of zeros and ones
    group : heading of its estimate on the page; None where it is shown in an exhibit alone
    """

    name: str
    values: np.ndarray
    unit: str = SHARE
    group: str | None = None


@dataclass(frozen=True)
class Described:
    """The mean of a column over the admissible images."""

    mean: Interval
    unit: str
    group: str | None


def describe(m: Measurement, *, rng: np.random.Generator, B: int, level: float) -> dict[str, Described]:
    """The mean of every column, by name."""
    rows = m.admissible
    if not rows.any():
        return {}
    columns = list(_columns(m))
    means = column_means(
        {column.name: column.values[rows] for column in columns},
        rng=rng,
        subject=m.images.subject[rows] if len(m.images.subject) else None,
        shares=tuple(column.name for column in columns if column.unit == SHARE),
        B=B,
        level=level,
    )
    return {column.name: Described(means[column.name], column.unit, column.group) for column in columns}


def lost_without_top(by: str, top: int) -> str:
    return f"lost, top {top} by {by}"


def lost_when(way: str) -> str:
    return f"lost, {way}"


def right_when(way: str) -> str:
    return f"right, {way}"


def same_decision_when(way: str) -> str:
    return f"same decision, {way}"


def _columns(m: Measurement) -> Iterator[Column]:
    outside, above = m.support.strongest_outside, m.above
    yield Column("strongest token outside", outside, group="")
    yield Column("above 1, or support outside only", np.where(m.support.only_outside, 1.0, above), group="")
    yield from _by_cue(m)
    yield from _kept(m)
    yield from _missing_decisions(m)
    yield from _agreement_with_noise(m)
    yield from _deletion(m)
    for way, lost in zip(m.extras.missingness.way, m.extras.missingness.lost, strict=True):
        yield Column(lost_when(way), lost, PROBABILITY)
    if m.extras.noise is not None:
        yield Column("lost by noise inside", m.extras.noise.lost_inside, PROBABILITY, OTHER_VIEWS)
        yield Column("lost by noise outside", m.extras.noise.lost_outside, PROBABILITY, OTHER_VIEWS)
    if m.other is not None:
        for metric in (M_TSI, A_TSI):
            name = f"{metric.name}, {m.other.name} minus {m.influence.region}"
            yield Column(name, metric.of(m.other.scores) - metric.of(m.scores), "", MASK_AGAINST_BOX)


def _by_cue(m: Measurement) -> Iterator[Column]:
    for cue, agrees in zip(m.cues.name, m.cues.agrees, strict=True):
        for side, code in (("agrees", 1), ("conflicts", 0)):
            chosen = agrees == code
            outside = m.support.strongest_outside
            yield Column(f"{cue} {side}: above 1", np.where(chosen, m.above, np.nan), group=BY_CUE)
            yield Column(f"{cue} {side}: strongest token outside", np.where(chosen, outside, np.nan), group=BY_CUE)


def _kept(m: Measurement) -> Iterator[Column]:
    if m.extras.kept is not None:
        yield Column(RIGHT_WITH_ALL, m.images.right, group=OTHER_VIEWS)
        yield Column(RIGHT_FROM_INSIDE, m.extras.kept.inside, group=OTHER_VIEWS)
        yield Column(RIGHT_FROM_OUTSIDE, m.extras.kept.outside, group=OTHER_VIEWS)


def _missing_decisions(m: Measurement) -> Iterator[Column]:
    missing = m.extras.missingness
    for way, same, right in zip(missing.way, missing.same, missing.right, strict=True):
        yield Column(same_decision_when(way), same)
        yield Column(right_when(way), right)


def _agreement_with_noise(m: Measurement) -> Iterator[Column]:
    if m.extras.noise is None:
        return
    nsi = m.extras.noise.index
    for metric in METRICS:
        tsi = metric.of(m.scores)
        same = (np.nan_to_num(tsi) > 1) == (np.nan_to_num(nsi) > 1)
        both = ~np.isnan(nsi) & ~np.isnan(tsi)
        yield Column(f"{metric.name} and NSI agree", np.where(both, same, np.nan), group=OTHER_VIEWS)


def _deletion(m: Measurement) -> Iterator[Column]:
    deletion = m.extras.deletion
    right = np.where(m.images.right == 1, 1.0, np.nan)  # the paper's curves are over images that are decided rightly (App. C.1)
    for by, lost in zip(deletion.by, deletion.lost, strict=True):
        for k, top in enumerate(arrays.DELETED):
            yield Column(lost_without_top(by, top), lost[k] * right, PROBABILITY)
    if "token_influence" in deletion.by and "gradcam" in deletion.by:
        influence = deletion.lost[deletion.by.index("token_influence")]
        gradcam = deletion.lost[deletion.by.index("gradcam")]
        for k, top in enumerate(arrays.DELETED):
            more = (influence - gradcam)[k] * right
            yield Column(f"influence over gradcam, top {top}", more, PROBABILITY, AGAINST_GRADCAM)
