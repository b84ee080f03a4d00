"""Is the attribute readable from the features? Linear and nearest-class-centre readouts (ART, sec. 4; OSCAR's leakage probe).

A probe is fitted on one set of rows and read on another. The target's values (within label: the groups) weigh equally in the
fit, so that a readout cannot live on the majority; accuracies are balanced over attribute values, so that a constant answer
scores exactly the chance level.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeCV

from rightreasons.errors import DataError, SettingError
from rightreasons.stats import resampling
from rightreasons.stats.groups import coded
from rightreasons.stats.resampling import Counts, Interval, Resamples, interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

KINDS = ("linear", "centre")
TARGETS = ("global", "class-conditional", "joint")
SMALLEST = 10
READABLE_SHARE = 0.4
TOO_FEW = "too few rows of two attribute values in both sets"


def readable_line(chance: float) -> float:
    """Accuracy from which an attribute counts as readable: 40 % of the way from chance to 1 (0.7 for two values)."""
    return chance + READABLE_SHARE * (1 - chance)


# ---------------------------------------------------------------------------------------------------- one readout


@dataclass(frozen=True)
class Probe:
    """An affine readout of features: `((z - mean) / scale) @ weight.T + bias`, one row of `weight` per level (one for ridge).

    Attributes
    ----------
    levels : what each output stands for; empty for a continuous target
    converged : False where the solver stopped at its iteration limit
    """

    kind: str
    levels: tuple[Hashable, ...]
    mean: Floats
    scale: Floats
    weight: Floats
    bias: Floats
    converged: bool = True

    def output(self, features: ArrayLike) -> Floats:
        """Affine outputs (n, K)."""
        # Standardising the weights instead of the features spares a copy of the features.
        weight = self.weight / self.scale
        return _features(features) @ weight.T + (self.bias - weight @ self.mean)

    def score(self, features: ArrayLike) -> Floats:
        """Log odds of each level against the rest, (n, K), which unlike probabilities never tie at 1; ridge: values, (n,)."""
        output = self.output(features)
        if self.levels:
            return _log_odds(output)
        return output[:, 0]

    def predict(self, features: ArrayLike) -> Ints:
        """Position in `levels` of the answer, (n,)."""
        return self.output(features).argmax(axis=1)


def fit(
    features: ArrayLike, target: ArrayLike, *, kind: str = "linear", weight: ArrayLike | None = None, C: float = 1.0
) -> Probe:
    """A readout of a categorical target.

    Parameters
    ----------
    features : (n, d)
    target : (n,) values or codes, none missing
    kind : "linear" is logistic regression on standardised features with l2 penalty 1/C, "centre" the nearest class centre
    weight : (n,) of rows; by default every value of the target weighs the same
    """
    _known_kind(kind)
    z = _features(features)
    code, levels = coded(target)
    if len(code) != len(z) or (code < 0).any() or len(levels) < 2:
        raise DataError(
            f"found {len(z)} rows and {len(code)} targets of {len(levels)} values; a probe needs two values, none missing"
        )
    if weight is None:
        w = equal_weights(code)
    else:
        w = np.asarray(weight, dtype=np.float64)
    if kind == "centre":
        return _centres(z, code, levels, w)
    return _linear(z, code, levels, w, C)


def fit_ridge(features: ArrayLike, target: ArrayLike, *, weight: ArrayLike | None = None) -> Probe:
    """A readout of a continuous target: ridge regression on standardised features, penalty by leave-one-out error."""
    z, y = _features(features), np.asarray(target, dtype=np.float64)
    if len(z) != len(y) or len(y) < 3 or not np.isfinite(y).all():
        raise DataError(f"found {len(z)} rows and {len(y)} targets; a ridge probe needs three or more, all finite")
    mean, scale = _standard(z)
    model = RidgeCV(alphas=len(y) * np.logspace(-4, 2, 13)).fit((z - mean) / scale, y, sample_weight=weight)
    return Probe("ridge", (), mean, scale, np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_))


def equal_weights(group: ArrayLike) -> Floats:
    """Weights (n,) of mean 1 under which all groups weigh the same."""
    names = np.asarray(group).tolist()
    size = Counter(names)
    return np.array([len(names) / (len(size) * size[name]) for name in names])


# ---------------------------------------------------------------------------------------------------- readings


@dataclass(frozen=True)
class Reading:
    """What a probe reads on held-out rows.

    Attributes
    ----------
    auc, accuracy : over all rows: macro one-vs-rest AUC (continuous: concordance) and accuracy balanced over the target's values
    within_auc, within_accuracy : the same within each label, averaged over labels; None where the target has no such reading
    chance, line : of the accuracy (continuous: of the concordance), and from where it is readable
    decides : the interval that is held against `line`: within label where there is one
    by_label : {label: (within AUC, within accuracy)} without intervals
    left_out : {what: rows or reason} of values, groups or labels too small to fit or to read
    """

    target: str
    kind: str
    auc: Interval | None
    accuracy: Interval | None
    within_auc: Interval | None
    within_accuracy: Interval | None
    chance: float
    line: float
    n_fit: int
    n_test: int
    converged: bool
    by_label: dict[Hashable, tuple[float, float]] = field(default_factory=dict)
    left_out: dict[Hashable, str] = field(default_factory=dict)

    @property
    def decides(self) -> Interval | None:
        if self.kind == "ridge":
            candidates = (self.within_auc, self.auc)
        else:
            candidates = (self.within_accuracy, self.accuracy)
        return next((c for c in candidates if c is not None), None)

    @property
    def is_readable(self) -> bool | None:
        """None where the reading is undefined."""
        if self.decides is None or math.isnan(self.decides.value):
            return None
        return self.decides.value >= self.line


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows with features z (n, d), label y (n,), attribute a (n,) and, where it is known, the subject (n,)."""

    z: NDArray
    y: NDArray
    a: NDArray
    subject: NDArray | None = None

    def select(self, rows: NDArray) -> Sample:
        subject = None if self.subject is None else self.subject[rows]
        return Sample(self.z[rows], self.y[rows], self.a[rows], subject)

    def and_also(self, other: Sample) -> Sample:
        """These rows, then the other ones; subjects are kept where both know them."""
        subject = None
        if self.subject is not None and other.subject is not None:
            subject = np.concatenate([self.subject, other.subject])
        z = np.concatenate([self.z, other.z])
        y = np.concatenate([self.y, other.y])
        a = np.concatenate([self.a, other.a])
        return Sample(z, y, a, subject)

    def __len__(self) -> int:
        return len(self.y)


def read(
    to_fit: Sample,
    to_read: Sample,
    *,
    target: str = "class-conditional",
    kind: str = "linear",
    resamples: Resamples | None = None,
    C: float = 1.0,
    smallest: int = SMALLEST,
) -> Reading:
    """Fit a probe of a categorical attribute on the first rows (audit) and read it on the others (test).

    Rows that lack the label or the attribute are left out.

    Parameters
    ----------
    target : "global" (a), "class-conditional" (a, one probe for each label) or "joint" (the group (y, a))
    resamples : of the test rows, for intervals; without them intervals are NaN
    smallest : values (in a label, groups) of fewer rows on either side are left out and listed
    """
    if target not in TARGETS:
        raise SettingError(f"no probe target {target!r}; known: {', '.join(TARGETS)}")
    _known_kind(kind)
    fitting, testing = _Known.of(to_fit), _Known.of(to_read)
    answer = {"global": _answer_global, "class-conditional": _answer_conditional, "joint": _answer_joint}[target]
    return _reading(target, kind, answer(fitting, testing, kind, C, smallest), fitting, testing, resamples)


def read_continuous(
    to_fit: Sample,
    to_read: Sample,
    *,
    target: str = "class-conditional",
    resamples: Resamples | None = None,
    smallest: int = SMALLEST,
) -> Reading:
    """`read` for numbers: ridge regression and concordance, over all rows ("global") and within label (both targets)."""
    if target not in TARGETS[:2]:
        raise SettingError(f"a continuous attribute has no {target!r} probe; known: {', '.join(TARGETS[:2])}")
    fitting, testing = _Known.of(to_fit, continuous=True), _Known.of(to_read, continuous=True)
    labels, left_out = _large(fitting.y, testing.y, smallest)
    parts: list[_Part] = []
    if target == "global" and len(labels):
        probe = fit_ridge(fitting.z, fitting.a, weight=equal_weights(fitting.y))
        score = probe.score(testing.z)
        parts.append(_Part(None, testing.rows, testing.a, score, None, ()))
        for y in labels:
            t = testing.where(y)
            if len(t):
                parts.append(_Part(y, testing.rows[t], testing.a[t], score[t], None, ()))
    elif target == "class-conditional":
        for y in labels:
            f, t = fitting.where(y), testing.where(y)
            score = fit_ridge(fitting.z[f], fitting.a[f]).score(testing.z[t])
            parts.append(_Part(y, testing.rows[t], testing.a[t], score, None, ()))
    return _reading(target, "ridge", _Answers(parts, 0.5, left_out), fitting, testing, resamples)


# ---------------------------------------------------------------------------------------------------- how a reading is made


@dataclass(frozen=True)
class _Known:
    """Rows that have label and attribute; `rows` are their places among all rows."""

    rows: Ints
    z: Floats
    y: NDArray
    a: NDArray

    @classmethod
    def of(cls, given: Sample, continuous: bool = False) -> _Known:
        z = _features(given.z)
        y, labels = coded(given.y)
        if continuous:
            a: NDArray = np.asarray(given.a, dtype=np.float64)
            known = ~np.isnan(a)
        else:
            a, levels = coded(given.a)
            known = a >= 0
            a = _named(a, levels)
        if not len(z) == len(y) == len(a):
            raise DataError(
                f"found {len(z)} rows of features, {len(y)} labels and {len(a)} attribute values; give all over the same rows"
            )
        rows = np.flatnonzero(known & (y >= 0))
        return cls(rows, z[rows], _named(y, labels)[rows], a[rows])

    def where(self, label: Hashable) -> Ints:
        return np.flatnonzero(self.y == label)


@dataclass(frozen=True)
class _Part:
    """Answers on some test rows: all (`label` None) or those of one label. `guess` is None for a continuous target."""

    label: Hashable
    rows: Ints
    truth: NDArray
    score: Floats
    guess: Ints | None
    levels: tuple[int, ...]

    def draws(self, counts: Counts) -> tuple[Floats, Floats]:
        """AUC or concordance, and balanced accuracy, of each resample."""
        here = np.take(counts, self.rows, axis=1)
        if self.guess is None:
            return resampling.concordance_draws(self.truth, self.score, here), np.full(len(counts), np.nan)
        # With two levels the second's AUC repeats the first's.
        if self.score.shape[1] == 2:
            scored = self.levels[:1]
        else:
            scored = self.levels
        auc = np.mean([resampling.auc_draws(self.truth == k, self.score[:, k], here) for k in scored], axis=0)
        cells = resampling.tally(here, 2 * self.truth + (self.guess == self.truth), 2 * self.score.shape[1])
        cells = cells.reshape(len(counts), -1, 2)[:, list(self.levels)]
        number = cells.sum(axis=2)
        right = np.divide(cells[:, :, 1], number, out=np.full(number.shape, np.nan), where=number > 0)
        return auc, right.mean(axis=1)


@dataclass(frozen=True)
class _Answers:
    """What probes of one target answer, with their chance level; no parts where too few rows are left."""

    parts: list[_Part]
    chance: float
    left_out: dict[Hashable, str]
    converged: bool = True


def _answer_global(fitting: _Known, testing: _Known, kind: str, C: float, smallest: int) -> _Answers:
    levels, left_out = _large(fitting.a, testing.a, smallest)
    if len(levels) < 2:
        return _Answers([], math.nan, left_out)
    f, t = _among(fitting.a, levels), _among(testing.a, levels)
    # Over all rows the label may tell the attribute, within label it may not: there groups weigh equally in the fit.
    marginal = fit(fitting.z[f], fitting.a[f], kind=kind, C=C)
    weight = equal_weights(_pairs(fitting.y[f], fitting.a[f]))
    balanced = fit(fitting.z[f], fitting.a[f], kind=kind, weight=weight, C=C)
    parts = [_answered(marginal, testing, np.flatnonzero(t), None)]
    whole = _answered(balanced, testing, np.flatnonzero(t), None)
    for y in sorted(set(testing.y.tolist())):
        size = np.bincount(whole.truth[testing.y[t] == y], minlength=len(levels))
        present = tuple(np.flatnonzero(size >= smallest).tolist())
        if len(present) < 2:
            left_out[("label", y)] = f"fewer than two attribute values of {smallest} rows"
            continue
        here = np.flatnonzero((testing.y[t] == y) & np.isin(whole.truth, present))
        parts.append(_Part(y, whole.rows[here], whole.truth[here], whole.score[here], whole.guess[here], present))  # type: ignore[index]
    return _Answers(parts, 1 / len(levels), left_out, marginal.converged and balanced.converged)


def _answer_conditional(fitting: _Known, testing: _Known, kind: str, C: float, smallest: int) -> _Answers:
    parts, chances, converged = [], [], True
    left_out: dict[Hashable, str] = {}
    for y in sorted(set(fitting.y.tolist()) | set(testing.y.tolist())):
        f, t = fitting.where(y), testing.where(y)
        levels, small = _large(fitting.a[f], testing.a[t], smallest)
        for a, why in small.items():
            left_out[(y, a)] = why
        if len(levels) < 2:
            left_out[("label", y)] = f"fewer than two attribute values of {smallest} rows"
            continue
        f, t = f[_among(fitting.a[f], levels)], t[_among(testing.a[t], levels)]
        probe = fit(fitting.z[f], fitting.a[f], kind=kind, C=C)
        parts.append(_answered(probe, testing, t, y))
        chances.append(1 / len(levels))
        converged &= probe.converged
    return _Answers(parts, float(np.mean(chances)) if chances else math.nan, left_out, converged)


def _answer_joint(fitting: _Known, testing: _Known, kind: str, C: float, smallest: int) -> _Answers:
    groups, test_groups = _pairs(fitting.y, fitting.a), _pairs(testing.y, testing.a)
    levels, left_out = _large(groups, test_groups, smallest)
    if len(levels) < 2:
        return _Answers([], math.nan, left_out)
    f, t = np.flatnonzero(_among(groups, levels)), np.flatnonzero(_among(test_groups, levels))
    place = {group: k for k, group in enumerate(levels)}
    probe = fit(fitting.z[f], np.array([place[g] for g in groups[f]]), kind=kind, C=C)
    named = replace(probe, levels=tuple(levels))
    return _Answers([_answered(named, replace(testing, a=test_groups), t, None)], 1 / len(levels), left_out, probe.converged)


def _answered(probe: Probe, testing: _Known, t: Ints, label: Hashable) -> _Part:
    place = {level: k for k, level in enumerate(probe.levels)}
    truth = np.array([place[value] for value in testing.a[t].tolist()], dtype=np.int64)
    output = probe.output(testing.z[t])
    return _Part(label, testing.rows[t], truth, _log_odds(output), output.argmax(axis=1), tuple(range(len(probe.levels))))


def _log_odds(output: Floats) -> Floats:
    rest = []
    for k in range(output.shape[1]):
        rest.append(logsumexp(np.delete(output, k, axis=1), axis=1))
    return output - np.stack(rest, axis=1)


def _reading(target: str, kind: str, answers: _Answers, fitting: _Known, testing: _Known, resamples: Resamples | None) -> Reading:
    if resamples:
        n = resamples.n
    else:
        n = int(testing.rows.max(initial=-1)) + 1
    if testing.rows.max(initial=-1) >= n:
        raise DataError(f"the resamples cover {n} rows and there are more test rows than that: draw resamples of all test rows")
    within = [part for part in answers.parts if part.label is not None]
    whole = next((part for part in answers.parts if part.label is None), None)

    def numbers(counts: Counts) -> Floats:
        """(b, 4): AUC and accuracy over all rows, then within label."""
        none = np.full((2, len(counts)), np.nan)
        if whole:
            over_all = np.array(whole.draws(counts))
        else:
            over_all = none
        if within:
            inside = np.mean([part.draws(counts) for part in within], axis=0)
        else:
            inside = none
        return np.concatenate([over_all, inside]).T

    if n:
        value = numbers(resampling.whole(n))[0]
    else:
        value = np.full(4, np.nan)
    if resamples and answers.parts:
        draws = resamples.apply(numbers)
    else:
        draws = np.full((0, 4), np.nan)
    auc, accuracy, within_auc, within_accuracy = (interval(float(value[k]), draws[:, k], reason=TOO_FEW) for k in range(4))
    over_all, inside, has_accuracy = target != "class-conditional", target != "joint", kind != "ridge"
    return Reading(
        target=target,
        kind=kind,
        auc=auc if over_all else None,
        accuracy=accuracy if over_all and has_accuracy else None,
        within_auc=within_auc if inside else None,
        within_accuracy=within_accuracy if inside and has_accuracy else None,
        chance=answers.chance,
        line=readable_line(answers.chance),
        n_fit=len(fitting.rows),
        n_test=len(testing.rows),
        converged=answers.converged,
        by_label={part.label: _without_interval(part, n) for part in within},
        left_out=answers.left_out,
    )


def _without_interval(part: _Part, n: int) -> tuple[float, float]:
    auc, accuracy = part.draws(resampling.whole(n))
    return float(auc[0]), float(accuracy[0])


def _linear(z: Floats, code: Ints, levels: tuple[Hashable, ...], weight: Floats, C: float) -> Probe:
    mean, scale = _standard(z)
    model = LogisticRegression(C=C, max_iter=2000)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit((z - mean) / scale, code, sample_weight=weight)
    coefficient, bias = model.coef_, model.intercept_
    if len(levels) == 2:
        coefficient, bias = np.concatenate([0 * coefficient, coefficient]), np.array([0.0, bias[0]])
    return Probe(
        "linear", levels, mean, scale, coefficient, bias, not any(issubclass(w.category, ConvergenceWarning) for w in caught)
    )


def _centres(z: Floats, code: Ints, levels: tuple[Hashable, ...], weight: Floats) -> Probe:
    centres = np.stack([np.average(z[code == k], axis=0, weights=weight[code == k]) for k in range(len(levels))])
    mean = centres.mean(axis=0)
    centres = centres - mean
    # Half the negative squared distance, less the part that all levels share.
    return Probe("centre", levels, mean, np.ones(z.shape[1]), centres, -0.5 * np.sum(centres**2, axis=1))


def _known_kind(kind: str) -> None:
    if kind not in KINDS:
        raise SettingError(f"no probe {kind!r}; known: {', '.join(KINDS)}")


def _standard(z: Floats) -> tuple[Floats, Floats]:
    scale = z.std(axis=0)
    return z.mean(axis=0), np.where(scale > 1e-12 * np.abs(z).max(initial=0.0), scale, 1.0)


def _features(features: ArrayLike) -> Floats:
    z = np.asarray(features, dtype=np.float64)
    if z.ndim != 2:
        raise DataError(f"found features of shape {z.shape}, expected (n, d)")
    bad = ~np.isfinite(z).all(axis=1)
    if bad.any():
        raise DataError(
            f"features of {int(bad.sum())} of {len(z)} rows are not finite (first: row {int(bad.argmax())}); leave them out"
        )
    return z


def _large(fit_values: NDArray, test_values: NDArray, smallest: int) -> tuple[list[Hashable], dict[Hashable, str]]:
    """Values with at least `smallest` rows on both sides, sorted, and why the others are left out."""
    to_fit, to_read = Counter(fit_values.tolist()), Counter(test_values.tolist())
    values = sorted(to_fit | to_read)
    kept = [v for v in values if min(to_fit[v], to_read[v]) >= smallest]
    return kept, {v: f"{to_fit[v]} rows to fit, {to_read[v]} to read" for v in values if v not in kept}


def _among(column: NDArray, values: list[Hashable]) -> NDArray[np.bool_]:
    known = set(values)
    return np.array([value in known for value in column.tolist()], dtype=bool)


def _named(code: Ints, values: tuple[Hashable, ...]) -> NDArray:
    """Values (n,) of a coded column, None where missing."""
    names = np.empty(len(values) + 1, dtype=object)
    names[: len(values)] = values
    return names[code]


def _pairs(y: NDArray, a: NDArray) -> NDArray:
    """The pair (label, attribute) of each row, (n,)."""
    pairs = np.empty(len(y), dtype=object)
    pairs[:] = list(zip(y.tolist(), a.tolist()))
    return pairs
