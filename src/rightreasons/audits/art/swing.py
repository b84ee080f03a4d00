"""Swing: how far decisions follow the attribute when its part of the features is amplified, and when it is turned round (ours).

The paper only amplifies, with half of the label's direction taken out of what it amplifies. A model that follows the attribute
nearly everywhere has no errors left to gain, and where label and cue lie in one direction the correction takes out the cue that
the head reads. So here nothing is taken out (rho = 0) and both ways are walked: amplified by beta, and turned round by -beta.

That lets in attributes that only go with how strongly the label shows. So a second head reads the same moved features: the last
layer, fitted again on audit rows weighted so that the attribute says nothing about the label. What both heads do is the label's
look; what only the model's head does is use of the attribute.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rightreasons.audits.art.controls import Shuffles, Tally, along, blocks
from rightreasons.audits.art.pieces import Swing
from rightreasons.audits.art.procedure import ALIGNED, CSR, NO_PI, Audit, Floats, Ints, Procedure, Stage, shares
from rightreasons.audits.art.settings import Settings
from rightreasons.head import Head
from rightreasons.stats import resampling
from rightreasons.stats.probes import Sample
from rightreasons.stats.refit import Columns, Refit, columns_of, fitted, raked_weights, refit
from rightreasons.stats.resampling import Interval, Resamples, interval, p_value, resamples
from rightreasons.stats.restoration import Directions, restore

Decide = Callable[[Floats], Ints]  # features (n, d) to outputs (n,)

FEWEST_IN_CELL = 10  # audit rows of a label and value from which a head is fitted again
NOT_LOOKED = "no gate is open"


def measure_swing(audit: Audit, settings: Settings, sample: Resamples, rng: np.random.Generator) -> Swing:
    """The swing of one model, of the refitted head, and of shuffles of the attribute.

    Both halves of the audit rows find directions and gate those of the other, and the results are averaged, so that every audit
    row serves both.
    """
    fitting, shuffling = rng.spawn(2)
    folds = crossed(audit, settings)
    betas, main = settings.swing_strengths, float(settings.beta)
    stage = audit.stage
    undefined = Interval(math.nan, math.nan, math.nan, reason=NOT_LOOKED if stage.aligned else NO_PI, level=settings.level)
    swing = Swing(
        betas=np.array(betas),
        beta=main,
        model=(),
        refitted=(),
        value=undefined,
        refitted_value=undefined,
        excess=undefined,
        accuracy=undefined,
        p=math.nan,
        shuffled=np.zeros(0),
        cosine=label_cosine(folds),
        open_classes=int(np.mean([fold.directions.open.any(axis=1).sum() for fold in folds]) + 0.5),
        smallest=smallest_side(audit),
        needed=settings.n_min,
        guard="",
    )
    if not stage.aligned or not any(fold.directions.is_open for fold in folds):
        return swing
    moved = Moved(folds, settings.routing)
    model = moved.following(betas, stage.decide, sample)
    null = shuffled_swings(folds, settings, shuffling)
    place = (betas.index(-main), betas.index(main))
    value = model.swing(*place)
    swing = replace(
        swing,
        model=model.intervals(settings.level),
        value=interval(value.point, value.draws, settings.level, "no conflicting or no aligned test rows"),
        shuffled=null,
        p=p_value(value.point, null, "greater"),
    )
    reason = no_guard(audit, settings)
    if reason:
        return replace(swing, guard=reason)
    heads = refitted_heads(audit, settings, fitting)
    return guarded(swing, heads, moved, value, sample, settings)


def guarded(swing: Swing, heads: Heads, moved: Moved, value: Draws, sample: Resamples, settings: Settings) -> Swing:
    """The same with the refitted head beside: its own swing, the excess over it, and how well it does."""
    ends = (-float(settings.beta), float(settings.beta))
    curve = moved.following(settings.swing_strengths, heads.first, sample)
    again = [moved.following(ends, head, sample).swing(0, 1).draws for head in heads.again]
    # Every resample of the test rows meets one of the heads of resampled audit rows, so that both spreads are in the interval.
    fit = np.arange(sample.B) % len(again)
    refitted = np.stack(again)[fit, np.arange(sample.B)]
    point = curve.swing(swing.betas.tolist().index(ends[0]), swing.betas.tolist().index(ends[1])).point
    return replace(
        swing,
        refitted=curve.intervals(settings.level),
        refitted_value=interval(point, refitted, settings.level),
        excess=interval(value.point - point, value.draws - refitted, settings.level),
        accuracy=balanced_accuracy(moved.stage, heads.first(moved.stage.rows.z), sample, settings.level),
    )


# ---- the steps -----------------------------------------------------------------------------------------------------------


def crossed(audit: Audit, settings: Settings) -> tuple[Audit, Audit]:
    """Both halves find, and gate what the other found; a gate's half needs half of the rows that all audit rows need."""
    procedure = Procedure(
        kind=settings.direction,
        rho=0.0,
        tau=settings.tau,
        n_min=max(settings.n_min // 2, 1),
        gated=settings.gated,
        routing=settings.routing,
    )
    halves = (audit.finding, audit.gating)
    folds = []
    for finding, gating in (halves, halves[::-1]):
        directions = procedure.directions(finding, gating)
        folds.append(replace(audit, finding=finding, gating=gating, procedure=procedure, directions=directions))
    return folds[0], folds[1]


@dataclass(frozen=True, eq=False)
class Draws:
    """A number of the rows as they are, and of every resample, (B,)."""

    point: float
    draws: Floats


@dataclass(frozen=True, eq=False)
class Following:
    """How far decisions follow the attribute at every strength: CSR less errors on aligned rows, point (b,) and draws (B, b)."""

    point: Floats
    draws: Floats

    def swing(self, turned: int, amplified: int) -> Draws:
        """Half of what lies between two strengths: 1 where decisions follow the attribute alone, 0 where they ignore it."""
        return Draws(
            float(self.point[amplified] - self.point[turned]) / 2, (self.draws[:, amplified] - self.draws[:, turned]) / 2
        )

    def intervals(self, level: float) -> tuple[Interval, ...]:
        return tuple(interval(float(self.point[k]), self.draws[:, k], level) for k in range(len(self.point)))


class Moved:
    """The test rows, moved along the directions of both folds."""

    def __init__(self, folds: Sequence[Audit], routing: str) -> None:
        self.folds, self.stage = folds, folds[0].stage
        self.route = self.stage.route(routing)

    def following(self, betas: Sequence[float], decide: Decide, sample: Resamples) -> Following:
        """Of one head, averaged over the folds."""
        points, draws = [], []
        for fold in self.folds:
            decided = np.stack([decide(self.at(fold.directions, beta)) for beta in betas])
            points.append(_following(self.stage, decided, resampling.whole(len(self.stage.rows)))[0])
            draws.append(sample.apply(partial(_following, self.stage, decided)))
        return Following(np.mean(points, axis=0), np.mean(draws, axis=0))

    def at(self, directions: Directions, beta: float) -> Floats:
        """(n, d) features at one strength; rows of a class that the audit rows lack stay."""
        z = self.stage.rows.z.copy()
        rows = np.flatnonzero(np.isin(self.route, np.array(directions.labels)))
        if beta != 0 and len(rows):
            z[rows] = restore(z[rows], self.route[rows], directions, beta)
        return z


def _following(stage: Stage, decided: Ints, counts: np.ndarray) -> Floats:
    """CSR less errors on aligned rows, (B, v)."""
    numbers = stage.numbers(decided, counts)
    return numbers[:, :, CSR] - numbers[:, :, ALIGNED]


# ---- the head that has nothing to gain -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Heads:
    """The last layer fitted again: on all audit rows, and on resamples of them."""

    first: Decide
    again: tuple[Decide, ...]


def refitted_heads(audit: Audit, settings: Settings, rng: np.random.Generator) -> Heads:
    """Fitted on audit rows weighted so that the attribute says nothing about the label, with classes predicted as often."""
    rows, head = audit.all_rows, audit.stage.head
    classes = np.unique(rows.y)
    y = np.searchsorted(classes, rows.y)
    inputs, logits = _last_inputs(head, rows.z), head(rows.z)
    columns = columns_of(inputs, logits, rng)
    x = columns(inputs, logits)
    readiness = _readiness(logits[:, classes].argmax(axis=1), len(classes))
    weight = raked_weights(y, [rows.a]) * readiness[y]
    first = refit(x, y, len(classes), weight, rng=rng, subject=rows.subject)
    again = []
    drawn = resamples(len(y), rng=rng, B=settings.refits, subject=rows.subject)
    for counts in drawn.counts():
        here = np.flatnonzero(counts)
        base = raked_weights(y[here], [rows.a[here]], counts[here]) * readiness[y[here]]
        again.append(fitted(x[here], y[here], len(classes), base, first.penalty, first))
    return Heads(_decide(first, columns, head, classes), tuple(_decide(one, columns, head, classes) for one in again))


def no_guard(audit: Audit, settings: Settings) -> str:
    """Why no head can be fitted again; empty where one can."""
    rows = audit.all_rows
    labels = np.unique(rows.y)
    if len(labels) < 2:
        return "the audit rows hold one label only, so no head can be fitted on them"
    sizes = []
    for value in audit.stage.aligned:
        sizes += [int(((rows.y == c) & (rows.a == value)).sum()) for c in labels]
    smallest = min(sizes)
    if smallest < FEWEST_IN_CELL:
        return (
            f"a label has {smallest} audit rows with one of the attribute's values; a head that gains nothing from it "
            f"needs {FEWEST_IN_CELL}"
        )
    return ""


def balanced_accuracy(stage: Stage, decided: Ints, sample: Resamples, level: float) -> Interval:
    """Share decided right, mean over the groups."""
    right, K = decided == stage.rows.y, len(stage.names)

    def mean(counts: np.ndarray) -> Floats:
        return shares(counts, stage.group, right, K)[:, stage.large].mean(axis=1)

    if not stage.large.any():
        return Interval(math.nan, math.nan, math.nan, reason="no group is large enough", level=level)
    return interval(float(mean(resampling.whole(len(right)))[0]), sample.apply(mean), level)


def _decide(fit: Refit, columns: Columns, head: Head, classes: Ints) -> Decide:
    def decide(z: Floats) -> Ints:
        return classes[fit(columns(_last_inputs(head, z), head(z))).argmax(axis=1)]

    return decide


def _last_inputs(head: Head, z: Floats) -> Floats:
    """What the last layer reads."""
    return z if head.is_linear else head.before_last(z)


def _readiness(decided: Ints, C: int) -> Floats:
    """How often each class is predicted, (C,), mean 1; one that is never predicted keeps a little."""
    share = np.bincount(decided, minlength=C) + 1.0
    return share * C / share.sum()


# ---- shuffles ------------------------------------------------------------------------------------------------------------


def shuffled_swings(folds: tuple[Audit, Audit], settings: Settings, rng: np.random.Generator) -> Floats:
    """The swing under D exchanges of the attribute within label and half, each with its own gates, (D,)."""
    beta = float(settings.beta)
    first = Shuffles(folds[0], settings.controls, rng)
    swings = []
    for fold, shuffles in zip(folds, (first, first.crossed(folds[1])), strict=True):
        follows = _shuffled_following(fold, shuffles, (-beta, beta))
        swings.append((follows[1] - follows[0]) / 2)
    return np.mean(swings, axis=0)


def _shuffled_following(fold: Audit, shuffles: Shuffles, betas: Sequence[float]) -> Floats:
    """(b, D)"""
    stage, D = fold.stage, len(shuffles.find_a)
    tally = Tally(stage, len(betas), D)
    route = stage.route(fold.procedure.routing)
    for k, label in enumerate(fold.directions.labels):
        rows = np.flatnonzero(route == label)
        residual = stage.rows.z[rows] - fold.directions.mean[k]
        spans = shuffles.spans(int(label)).gated  # type: ignore[call-overload]
        for draws in blocks(D, len(rows)):
            move = along(residual, spans[draws])
            tally.add(rows, stage.readout.shifted(rows, move.coefficient, move.basis, betas), draws)
    untouched = np.flatnonzero(~np.isin(route, np.array(fold.directions.labels)))
    tally.add(untouched, stage.readout.decided[untouched][None, None])
    numbers = tally.numbers()
    return numbers[:, :, CSR] - numbers[:, :, ALIGNED]


# ---- beside --------------------------------------------------------------------------------------------------------------


def label_cosine(folds: Sequence[Audit]) -> float:
    """Largest cosine of an open direction with the space of the class means; NaN where none is open."""
    cosines = [math.nan]
    for fold in folds:
        directions = fold.directions
        for label in directions.labels:
            basis = directions.basis(label)
            if len(basis) and len(directions.label_basis):
                cosines.append(float(np.linalg.norm(basis @ directions.label_basis.T, axis=1).max()))
    return math.nan if len(cosines) == 1 else float(np.nanmax(cosines))


def smallest_side(audit: Audit) -> int:
    """Audit rows on the smaller side of the smallest contrast that a class has."""
    rows: Sample = audit.all_rows
    sides = []
    for c in np.unique(rows.y):
        of_value = np.bincount(rows.a[rows.y == c], minlength=int(rows.a.max()) + 1)
        sides += [int(min(n, of_value.sum() - n)) for n in of_value]
    return min(sides, default=0)
