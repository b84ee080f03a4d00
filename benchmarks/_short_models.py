"""Families of models whose use of an attribute is known, without a network: numbers drawn from how encoding and reliance act.

A model's features show the attribute with a strength that its scale sets; its score is the label's signal, noise that it shares
with the other models of its family, noise of its own, and the attribute as far as it uses it. Where it does, it leans along the
log odds that its training rows happen to have, chance included: that is what sweeps of trained networks do
(docs/results/short-simulation.md). Everything that `audits.short` would measure of these models is measured, all at once; the
verdict is the audit's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rightreasons.audits import short
from rightreasons.audits.short.measurement import (
    SIGNED,
    Association,
    Distribution,
    Encoding,
    Fairness,
    Measurement,
    Performance,
    Subgroup,
)
from rightreasons.stats import associations, resampling
from rightreasons.stats.resampling import Interval

TRAIN, TEST = 1000, 800
SIGNAL = 1.2  # of the label in the score, whose noise has standard deviation 1: an AUC of about 0.95
LEAN = 0.3  # of the training rows' log odds that the baseline's score follows, where it uses the attribute
SHOWN = 0.45  # of the attribute in the baseline's features, whose noise has standard deviation 1
MOST = 2.2  # times that, at the largest scale; 0 at the smallest
EXCHANGES = 299


@dataclass(frozen=True)
class Kind:
    """Worlds of one kind.

    Attributes
    ----------
    shares : P(attribute | label 1) and P(attribute | label 0) in training; of several levels, of the first
    use : of the attribute by the baseline and by models that show it less, as a part of LEAN
    forced : further use by models that are made to show it more
    noisier : further noise in the scores of one group
    images : of each subject, who have one label and one attribute value
    """

    name: str
    shares: tuple[float, float] = (0.5, 0.5)
    use: float = 1.0
    forced: float = 0.0
    noisier: float = 0.0
    images: int = 1
    levels: int = 2


@dataclass(frozen=True)
class Plan:
    """A family: so many scales, half of them of either sign and one 0, by so many seeds."""

    scales: int = 25
    seeds: int = 5

    @property
    def scale(self) -> np.ndarray:
        return np.tile(np.linspace(-1, 1, self.scales).round(6), self.seeds)

    @property
    def seed(self) -> np.ndarray:
        return np.repeat(np.arange(self.seeds), self.scales)


@dataclass(frozen=True)
class Rows:
    """Label and attribute of some rows, and the subject that each is of."""

    y: np.ndarray
    a: np.ndarray
    subject: np.ndarray


def rows_of(kind: Kind, n: int, shares: tuple[float, float], rng: np.random.Generator) -> Rows:
    subjects = n // kind.images
    y = rng.integers(0, 2, subjects)
    if kind.levels > 2:
        a = rng.integers(0, kind.levels, subjects)
    else:
        a = (rng.random(subjects) < np.where(y == 1, *shares)).astype(np.int64)
    return Rows(*(np.repeat(v, kind.images) for v in (y, a, np.arange(subjects))))


@dataclass(frozen=True)
class Family:
    """M models on n test rows: what they show of the attribute (M, n), their scores (M, n), and the rows they learnt from."""

    plan: Plan
    shown: np.ndarray
    score: np.ndarray
    test: Rows
    training: tuple[Rows, ...]


def family(kind: Kind, plan: Plan, test: Rows, training: Sequence[Rows], rng: np.random.Generator) -> Family:
    """Models of `plan`; `training` holds one data set, or one for every seed."""
    M, n = len(plan.scale), len(test.y)
    moved = 1 + plan.scale * np.where(plan.scale > 0, MOST - 1, 1.0)
    strength = SHOWN * np.clip(moved + 0.1 * rng.normal(size=M), 0, None)
    use = kind.use * LEAN * strength / SHOWN + kind.forced * LEAN * np.clip(moved - 1, 0, None)
    look = _centred(np.eye(kind.levels)[:, -1] if kind.levels == 2 else np.linspace(-1, 1, kind.levels))
    everyone = len(training) == 1
    odds = np.stack([_log_odds(rows, kind.levels) for rows in training])
    odds = odds[np.zeros(M, dtype=int)] if everyone else odds[plan.seed]
    shared = _noise(test, rng) * np.where(test.a == kind.levels - 1, 1 + kind.noisier, 1.0)
    seeds = np.stack([_noise(test, rng) for _ in range(plan.seeds)])[plan.seed]
    own = rng.normal(size=(M, n))
    noise = math.sqrt(0.6) * shared + math.sqrt(0.2) * seeds + math.sqrt(0.2) * own
    score = SIGNAL * (2 * test.y - 1) + noise + use[:, None] * odds[:, test.a]
    shown = strength[:, None] * look[test.a] * 2 + np.stack([_noise(test, rng) for _ in range(M)])
    return Family(plan, shown, score, test, tuple(training))


def _noise(rows: Rows, rng: np.random.Generator) -> np.ndarray:
    """(n,) of unit variance, half of it the subject's where subjects have several images."""
    own = rng.normal(size=len(rows.y))
    subjects = int(rows.subject[-1]) + 1
    if subjects == len(rows.y):
        return own
    return math.sqrt(0.5) * own + math.sqrt(0.5) * rng.normal(size=subjects)[rows.subject]


def _centred(values: np.ndarray) -> np.ndarray:
    return values - values.mean()


def _log_odds(rows: Rows, levels: int) -> np.ndarray:
    """(levels,) of the positive label at each value, as the training rows happen to have them."""
    positive, number = np.bincount(rows.a, rows.y, minlength=levels), np.bincount(rows.a, minlength=levels)
    return _centred(np.log((positive + 0.5) / (number - positive + 0.5)))


# ---- what the audit measures ---------------------------------------------------------------------------------------------


def measurements(f: Family, rng: np.random.Generator, B: int = 0, exchanges: int = EXCHANGES) -> list[Measurement]:
    """The family as `short.measure(…, metrics=[])` would measure it, with so many resamples of the test rows."""
    levels = int(f.test.a.max()) + 1
    compared = [1] if levels == 2 else list(range(levels))
    exchange = resampling.exchange_within_label(f.test.y, f.test.a, f.test.subject)
    moved = np.stack([f.test.a, *(f.test.a[exchange.permutation(rng)] for _ in range(exchanges))])
    decided = (f.score > 0).astype(np.float32)
    signed = np.stack([_signed(decided, f.test.y, (moved == k).astype(np.float32)) for k in compared], axis=1)
    counts = np.zeros((0, len(f.test.y)), dtype=np.uint8)
    if B:
        counts = resampling.resamples(len(f.test.y), rng=rng, B=B, subject=f.test.subject).counts()
    drawn = np.stack([_drawn(decided, f.test.y, f.test.a == k, counts) for k in compared], axis=1)
    found = [_association(rows, levels) for rows in f.training]
    names = tuple(SIGNED if levels == 2 else f"{SIGNED}: {k}" for k in compared)
    made = []
    for m in range(len(f.score)):
        own = 0 if len(f.training) == 1 else int(f.plan.seed[m])
        fairness = Fairness(
            metrics=names, n_signed=len(names), value=signed[m, :, 0], low=np.full(len(names), math.nan),
            high=np.full(len(names), math.nan), p=np.full(len(names), math.nan), reason=("",) * len(names),
            draws=drawn[m], null=signed[m, :, 1:], no_exchange=exchange.reason, monotone=np.full(2, math.nan),
        )  # fmt: skip
        made.append(_measurement(f, m, found[own], fairness, counts, f"rows {own} of {id(f.training)}"))
    return made


def _measurement(
    f: Family, m: int, association: Association, fairness: Fairness, counts: np.ndarray, trained_on: str
) -> Measurement:
    values = _within(f.test, f.shown[m], np.concatenate([resampling.whole(len(f.test.y)), counts]))
    auc = float(resampling.auc_draws(f.test.y == 1, f.score[m], resampling.whole(len(f.test.y)))[0])
    draws = resampling.auc_draws(f.test.y == 1, f.score[m], counts) if len(counts) else np.zeros(0)
    smallest = int(np.bincount(2 * f.test.a + f.test.y).min())
    encoding = Encoding(
        unit="AUC", within=_point(values[0]), marginal=_point(values[0]), p=math.nan, chance=0.5, no_information=0.5,
        label_alone=math.nan, draws=values[1:], marginal_draws=values[1:], n_fit=TRAIN, fit_on="train", converged=True,
    )  # fmt: skip
    return Measurement(
        model=f"m{m}", regime="gradient_scaling", architecture="known model", seed=int(f.plan.seed[m]),
        scale=float(f.plan.scale[m]), target="", attribute="a", kind="categorical", label_name="label", positive="1",
        rows="test", n=len(f.test.y), n_subjects=None, missing=0, encoding=encoding,
        performance=Performance(_point(auc), draws, 0.5, "0.5"), fairness=fairness, association=association,
        smallest=Subgroup(max(smallest, 30), "the smallest subgroup"), training=Distribution(np.ones((2, 2)), ("0", "1")),
        trained_on=trained_on, spreads=np.full(len(fairness.metrics), math.nan),
    )  # fmt: skip


def _within(test: Rows, shown: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """AUC (1 + B,) of the last value against the rest, mean over labels; of several levels the mean over all of them."""
    found = []
    for y in (0, 1):
        rows = np.flatnonzero(test.y == y)
        here = np.ascontiguousarray(counts[:, rows])
        found.append(resampling.concordance_draws(test.a[rows], shown[rows], here))
    return np.asarray(np.mean(found, axis=0))


def _signed(decided: np.ndarray, y: np.ndarray, is_it: np.ndarray) -> np.ndarray:
    """(M, P) acceptance at a value less that of the rest, mean over labels; is_it (P, n)."""
    gaps = []
    for label in (0, 1):
        rows = y == label
        d, k = decided[:, rows], is_it[:, rows]
        yes, number = (d @ k.T).astype(np.float64), k.sum(axis=1).astype(np.float64)
        gaps.append(yes / number - (d.sum(axis=1, keepdims=True) - yes) / (rows.sum() - number))
    return np.mean(gaps, axis=0).round(9)


def _drawn(decided: np.ndarray, y: np.ndarray, is_it: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """(M, B) the same under resamples of the rows."""
    gaps = []
    for label in (0, 1):
        shares = []
        for group in (is_it, ~is_it):
            weight = counts[:, (y == label) & group].astype(np.float32)
            shares.append((decided[:, (y == label) & group] @ weight.T) / weight.sum(axis=1))
        gaps.append(shares[0] - shares[1])
    return np.mean(gaps, axis=0, dtype=np.float64)


def _association(rows: Rows, levels: int) -> Association:
    several = len(np.unique(rows.subject)) < len(rows.y)
    found = associations.of_values(rows.y, rows.a, levels, subject=rows.subject if several else None)
    estimate = np.stack([found.value, found.low, found.high], axis=1)
    return Association(found.answer, found.sign, estimate, found.p, found.units, "training rows")


def _point(value: float) -> Interval:
    return Interval(float(value), math.nan, math.nan)


def judged(kind: Kind, plan: Plan, rng: np.random.Generator) -> short.Result:
    """One world: its rows, its family and the audit's result."""
    test, training = rows_of(kind, TEST, (0.5, 0.5), rng), rows_of(kind, TRAIN, kind.shares, rng)
    made = measurements(family(kind, plan, test, [training], rng), rng)
    return short.conclude({"sweep": made}, bound=0.95, rng=rng)


def pair(kind: Kind, plan: Plan, over: str, rng: np.random.Generator) -> tuple[short.Result, short.Result]:
    """Two families of one kind of world on the same test rows.

    Parameters
    ----------
    over : "seeds": both learnt from the same rows; "training resamples": every seed of either from its own draw of them; "one
        draw each": either family from one draw, which seeds cannot know of
    """
    test, same = rows_of(kind, TEST, (0.5, 0.5), rng), rows_of(kind, TRAIN, kind.shares, rng)
    results = []
    for number in range(2):
        draws = [same]
        if over != "seeds":
            draws = [rows_of(kind, TRAIN, kind.shares, rng) for _ in range(plan.seeds if over == "training resamples" else 1)]
        made = measurements(family(kind, plan, test, draws, rng), np.random.default_rng(0), B=60, exchanges=19)
        # Seeds of the two families are other networks.
        made = [replace(m, seed=100 * number + (m.seed or 0)) for m in made]
        results.append(short.conclude({"sweep": made}, bound=0.95, fewest_models=3, rng=rng))
    return results[0], results[1]
