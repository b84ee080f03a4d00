"""What ShorT measures of one model: encoding, performance, fairness, and both under resampling and under exchange."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.neural_network import MLPClassifier, MLPRegressor

from rightreasons.audits._contract import refuse_mixed_cases
from rightreasons.data.cohort import Attribute, Cohort
from rightreasons.errors import NotRun, SettingError
from rightreasons.evidence import Card, Evidence, View
from rightreasons.families import suggest
from rightreasons.head import outputs_for
from rightreasons.measurements import spread
from rightreasons.stats import fairness, groups, probes, resampling
from rightreasons.stats.resampling import Interval, Resamples, exchange_within_label, interval, resamples

GAPS = ("equalised_odds", "demographic_parity", "max_gap")
FLIPS = "counterfactual gap"
SIGNED = "signed disparity"
BLOCK = 4_000_000  # entries of a block of exchanges
EDGES = 20  # bins of a continuous attribute's distribution

ByDonors = Callable[[np.ndarray], np.ndarray]  # (P, n) rows whose attribute each row takes, to (P,)
# Of resamples (B, n) within the label and over all rows; of exchanges; the encoding of no information within the label, of none
# over all rows and of the label alone; the unit; whether the readout converged.
Readings = tuple[Any, Any, ByDonors, tuple[float, float, float], str, bool]


@dataclass(frozen=True)
class Measurement:
    """One model of a family; B resamples and P exchanges are the same for all models over the same rows.

    Attributes
    ----------
    scale : of the attribute's gradient in training; NaN where the model was not trained by gradient scaling
    target : the column that it predicts, empty for the label: then there is only its encoding
    rows : hash of the test rows with their label and attribute
    encoding, marginal : AUC or mean absolute error (`unit`), within the label and over all rows
    encoding_p : of an encoding within the label that is this strong, when test rows exchange the attribute
    chance, no_information, label_alone : the encoding of no information within the label; of none over all rows; of the label
        alone over all rows
    metrics : m names; the last `n_signed` are signed disparities, one per attribute value (or per unit)
    value, low, high, p, draws, null : (m,), (m,), (m,), (m,), (m, B), (m, P); p of the metric itself under exchange
    sign, association : (n_signed,), (n_signed, 3) of the training rows; NaN in sign where these are not known
    monotone : (2,) p of a U at label 1 and 0 (continuous attributes)
    histogram, edges : (2, k) training rows by label and attribute value or bin; (k,) names or centres of these
    """

    model: str
    regime: str
    architecture: str
    seed: int | None
    scale: float
    target: str
    attribute: str
    kind: str
    label_name: str
    positive: str
    rows: str
    n: int
    n_subjects: int | None
    missing: int
    unit: str
    encoding: Interval
    encoding_p: float
    marginal: Interval
    chance: float
    no_information: float
    label_alone: float
    n_fit: int
    fit_on: str
    converged: bool
    encoding_draws: np.ndarray
    marginal_draws: np.ndarray
    auc: Interval
    auc_draws: np.ndarray
    threshold: float
    decided: str
    metrics: tuple[str, ...]
    n_signed: int
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    p: np.ndarray
    reason: tuple[str, ...]
    draws: np.ndarray
    null: np.ndarray
    sign: np.ndarray
    association: np.ndarray
    association_from: str
    exchange_reason: str
    smallest: int
    smallest_name: str
    monotone: np.ndarray
    histogram: np.ndarray
    edges: tuple[str, ...]

    @property
    def strength(self) -> float:
        """Encoding within the label, more being more."""
        return self.encoding.value * self.orientation

    @property
    def orientation(self) -> int:
        return -1 if self.unit == "MAE" else 1

    def scalars(self) -> dict[str, float | int | str]:
        """What a study's table shows of it."""
        found: dict[str, float | int | str] = {"attribute": self.attribute, "scale": self.scale, "n": self.n}
        found |= spread("encoding", self.encoding) | spread("encoding_marginal", self.marginal)
        if not self.target:
            found |= spread("auc", self.auc)
            found |= {name.replace(" ", "_"): float(v) for name, v in zip(self.metrics, self.value, strict=True)}
        return found


@dataclass(frozen=True)
class Settings:
    """The settings of `short.measure` that its parts need."""

    positive: Any
    metrics: tuple[str, ...]
    bins: Sequence[float] | None
    of: str
    threshold: str
    top_k: int
    hidden: tuple[int, ...]
    rows: int
    B: int
    P: int
    level: float
    C: float
    direction: int | None


@dataclass(frozen=True)
class Rows:
    """Decisions that have a label and the attribute.

    Attributes
    ----------
    y : (n,) whether the label is the positive one; a : (n,) codes, or numbers
    """

    cohort: Cohort
    z: np.ndarray
    y: np.ndarray
    a: np.ndarray
    kept: np.ndarray

    def __len__(self) -> int:
        return len(self.y)


def measured(evidence: Evidence, attribute: str | None, s: Settings, rng: np.random.Generator) -> Measurement:
    fitting, drawing, shuffling = rng.spawn(3)
    test_view, a = _asked(evidence, attribute)
    positive = _positive(test_view.cohort, s.positive)
    test = rows_of(test_view, a, positive)
    if not len(test) or len(np.unique(test.y)) < 2 or len(np.unique(test.a)) < 2:
        raise NotRun(f"the {len(test)} test rows with a label and {a.name} have one value of either: nothing to compare")
    fit, fit_on = _fitting_rows(evidence, a, positive, s.rows, fitting)
    sample = resamples(len(test), rng=drawing, B=s.B, subject=test.cohort.subject)
    encoded, exchanged = encoding(fit, test, a.kind == "continuous", sample, s, int(fitting.integers(2**31)))
    card = evidence.card
    common: dict[str, Any] = {
        "model": card.name,
        "regime": card.regime,
        "architecture": card.architecture,
        "seed": card.seed,
        "scale": scale_of(card, a.name),
        "target": "" if card.target == test_view.cohort.label_name else card.target,
        "attribute": a.name,
        "kind": a.kind,
        "label_name": test_view.cohort.label_name,
        "positive": str(test_view.cohort.classes[positive]),
        "rows": _hash(test),
        "n": len(test),
        "n_subjects": None if test.cohort.subject is None else sample.units,
        "missing": int((~test.kept).sum()),
        "n_fit": len(fit),
        "fit_on": fit_on,
        **encoded,
        **_small(test, a),
        **_histogram(evidence, fit, a, positive),
    }
    if common["target"]:
        told = _nothing(s)
    else:
        told, null = _behaviour(evidence, test_view, test, a, positive, sample, s, shuffling, exchanged)
        strongest = -1 if encoded["unit"] == "MAE" else 1
        told["encoding_p"] = resampling.p_value(strongest * encoded["encoding"].value, strongest * null, "greater")
    return Measurement(**common, **told, **_association(evidence, a, positive, s, bool(common["target"])))


def scale_of(card: Card, attribute: str) -> float:
    """The scale of the attribute's gradient in a model's training, from its card; NaN where there was none."""
    told = card.settings.get("objective")
    named = told[1] if isinstance(told, list | tuple) and len(told) > 1 and isinstance(told[1], dict) else {}
    if "scale" in card.settings:
        return float(card.settings["scale"])
    if "scales" in named and attribute in named.get("attributes", ()):
        return float(named["scales"][list(named["attributes"]).index(attribute)])
    return 0.0 if card.regime == "erm" else math.nan


# ---- rows ----------------------------------------------------------------------------------------------------------------


def _asked(evidence: Evidence, attribute: str | None) -> tuple[View, Attribute]:
    view = evidence.on("test")
    if not view.cohort.attributes:
        raise NotRun("no attribute: name one with attribute=")
    a = view.cohort.attribute(attribute)
    refuse_mixed_cases(view, a.name)
    return view, a


def _positive(cohort: Cohort, named: Any) -> int:
    """Position among the label's classes of the one that is taken against the rest."""
    classes = [str(c) for c in cohort.classes]
    if named is None:
        if len(classes) != 2:
            raise NotRun(f"the label has the classes {', '.join(classes)}: name one against the rest with positive=")
        return 1
    if str(named) not in classes:
        raise SettingError(f"positive={named!r} is no class of the label; {suggest(str(named), classes)}")
    return classes.index(str(named))


def rows_of(view: View, a: Attribute, positive: int, array: str = "features") -> Rows:
    cohort, _, z = view.by_case(array)
    column = cohort.attribute(a.name)
    kept = (cohort.label >= 0) & column.present
    part = cohort.select(kept)
    values = column.values[kept]
    values = values.astype(np.float64) if a.kind == "continuous" else values.astype(np.int64)
    return Rows(part, z[kept], (part.label == positive).astype(np.int64), values, kept)


def _fitting_rows(evidence: Evidence, a: Attribute, positive: int, most: int, rng: np.random.Generator) -> tuple[Rows, str]:
    """Training rows, at most so many; audit rows where those have no features."""
    for name in ("train", "audit"):
        if name in evidence.cohorts and "features" in evidence.on(name):
            view = evidence.on(name)
            if len(view) > most:
                view = view.select(np.sort(rng.permutation(len(view))[:most]))
            rows = rows_of(view, a, positive)
            if len(rows) < 20 or len(np.unique(rows.a)) < 2:
                raise NotRun(f"{len(rows)} {name} rows have a label and {a.name}: too few to fit a readout")
            return rows, name
    raise NotRun(f"the evidence of {evidence.card.name} has no features of train or audit rows: the readout is fitted on them")


def _hash(rows: Rows) -> str:
    told = hashlib.blake2b(digest_size=16)
    for part in ("\n".join(map(str, rows.cohort.id)).encode(), rows.y.tobytes(), rows.a.tobytes()):
        told.update(part)
    return told.hexdigest()


def _small(test: Rows, a: Attribute) -> dict[str, Any]:
    """The smallest subgroup of the test rows: by label and value, or by label and quartile."""
    if a.kind == "continuous":
        edges = np.quantile(test.a, [0.25, 0.5, 0.75])
        codes, names = np.searchsorted(edges, test.a, side="right"), [f"quartile {k + 1}" for k in range(4)]
    else:
        codes, names = test.a, [str(v) for v in a.levels]
    size = {(y, k): int(((test.y == y) & (codes == k)).sum()) for y in (0, 1) for k in np.unique(codes).tolist()}
    (y, k), least = min(size.items(), key=lambda item: item[1])
    return {"smallest": least, "smallest_name": f"label {'positive' if y else 'negative'}, {a.name} {names[k]}"}


def _histogram(evidence: Evidence, fit: Rows, a: Attribute, positive: int) -> dict[str, Any]:
    y, values = _training(evidence, a, positive) or (fit.y, fit.a)
    if a.kind == "categorical":
        count = [np.bincount(values[y == k], minlength=len(a.levels)) for k in (0, 1)]
        return {"histogram": np.array(count), "edges": tuple(str(v) for v in a.levels)}
    edges = np.histogram_bin_edges(values, bins=EDGES)
    count = [np.histogram(values[y == k], bins=edges)[0] for k in (0, 1)]
    return {"histogram": np.array(count), "edges": tuple(f"{c:.6g}" for c in (edges[:-1] + edges[1:]) / 2)}


def _training(evidence: Evidence, a: Attribute, positive: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Label and attribute of the training rows, where they are known."""
    cohort = evidence.training
    if cohort is None and "train" in evidence.cohorts:
        cohort = evidence.on("train").cohort
    if cohort is None or a.name not in cohort.attributes:
        return None
    column = cohort.attribute(a.name)
    kept = (cohort.label >= 0) & column.present
    return (cohort.label[kept] == positive).astype(np.int64), column.values[kept]


def _association(evidence: Evidence, a: Attribute, positive: int, s: Settings, is_reference: bool) -> dict[str, Any]:
    codes = _signed_levels(a)
    unknown = {"sign": np.full(len(codes), np.nan), "association": np.full((len(codes), 3), np.nan)}
    if is_reference:
        return {**unknown, "association_from": ""}
    if s.direction is not None:
        return {**unknown, "sign": np.full(len(codes), float(np.sign(s.direction))), "association_from": "given"}
    rows = _training(evidence, a, positive)
    if rows is None:
        return {**unknown, "association_from": "training rows unknown: give direction="}
    present = set(np.unique(rows[1]).tolist())
    found = [
        fairness.association(rows[0], rows[1], kind=a.kind, level=code)
        if code is None or code in present
        else fairness.Association(math.nan, math.nan, math.nan, 0, "no such training rows")
        for code in codes
    ]
    return {
        "sign": np.array([float(f.sign) for f in found]),
        "association": np.array([[f.value, f.low, f.high] for f in found]),
        "association_from": "training rows",
    }


def _signed_levels(a: Attribute) -> list[int | None]:
    if a.kind == "continuous":
        return [None]
    return [1] if len(a.levels) == 2 else list(range(len(a.levels)))


# ---- encoding ------------------------------------------------------------------------------------------------------------


def encoding(
    fit: Rows, test: Rows, continuous: bool, sample: Resamples, s: Settings, seed: int
) -> tuple[dict[str, Any], ByDonors]:
    """Readouts of frozen features, within the label and over all rows, with their bounds; and the former under exchange."""
    made = _errors(fit, test, s, seed) if continuous else _scores(fit, test, s, seed)
    within, marginal, exchanged, bounds, unit, converged = made

    def both(counts: np.ndarray) -> np.ndarray:
        return np.stack([part(counts) for part in (within, marginal)], axis=1)

    value, draws = both(resampling.whole(len(test)))[0], sample.apply(both)
    reason = "an attribute value has no rows within a label"
    return {
        "unit": unit,
        "encoding": interval(value[0], draws[:, 0], s.level, reason),
        "marginal": interval(value[1], draws[:, 1], s.level, reason),
        "encoding_draws": draws[:, 0],
        "marginal_draws": draws[:, 1],
        "chance": bounds[0],
        "no_information": bounds[1],
        "label_alone": bounds[2],
        "converged": converged,
    }, exchanged


def _scores(fit: Rows, test: Rows, s: Settings, seed: int) -> Readings:
    """A categorical attribute: (macro one-vs-rest) AUC. Within the label the groups weigh equally in the fit."""
    levels = np.unique(fit.a)
    plain, balanced = probes.equal_weights(fit.a), probes.equal_weights(2 * fit.a + fit.y)
    if s.hidden:
        marginal, within = (_deep(fit, test, w, s.hidden, seed) for w in (plain, balanced))
        converged = True
    else:
        fits = [probes.fit(fit.z, fit.a, weight=w, C=s.C) for w in (plain, balanced)]
        marginal, within = (probe.score(test.z) for probe in fits)
        converged = all(probe.converged for probe in fits)

    asked = range(1, 2) if len(levels) == 2 else range(len(levels))

    def auc(score: np.ndarray, rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
        here = np.take(counts, rows, axis=1)
        each = [resampling.auc_draws(test.a[rows] == levels[k], score[rows, k], here) for k in asked]
        return np.mean(each, axis=0)

    by_label = [np.flatnonzero(test.y == y) for y in (0, 1)]

    def exchanged(donors: np.ndarray) -> np.ndarray:
        """An AUC is a sum of ranks, which stay where they are: one product for all exchanges."""
        found = []
        for rows in by_label:
            a, rank = test.a[donors[:, rows]], rankdata(within[rows], axis=0)
            for k in asked:
                is_it = a == levels[k]
                n = is_it.sum(axis=1)
                over = is_it @ rank[:, k] - n * (n + 1) / 2
                found.append(np.divide(over, n * (len(rows) - n), out=np.full(len(n), np.nan), where=(n > 0) & (n < len(rows))))
        return np.mean(found, axis=0)

    everything = np.arange(len(test))
    share = np.array([[(fit.a[fit.y == y] == v).mean() if (fit.y == y).any() else 0.0 for v in levels] for y in (0, 1)])
    alone = float(auc(share[test.y], everything, resampling.whole(len(test)))[0])
    return (
        lambda counts: np.mean([auc(within, rows, counts) for rows in by_label], axis=0),
        lambda counts: auc(marginal, everything, counts),
        exchanged,
        (0.5, 0.5, alone),
        "AUC",
        converged,
    )


def _errors(fit: Rows, test: Rows, s: Settings, seed: int) -> Readings:
    """Numbers: mean absolute error. Within the label, features and attribute are taken from their means at that label.

    Test rows are taken from their own means: where their mix differs from training, a readout of nothing is then neither better
    nor worse than the chance that it is compared with.
    """
    means = {"fit": _by_label(fit.a, fit.y), "test": _by_label(test.a, test.y)}
    inside = [rows.z - _by_label(rows.z, rows.y)[rows.y] for rows in (fit, test)]
    target = [fit.a - means["fit"][fit.y], test.a - means["test"][test.y]]
    pairs = [
        (fit.z, fit.a, test.z, test.a, None),
        (inside[0], target[0], inside[1], target[1], probes.equal_weights(fit.y)),
    ]
    guesses, off = [], []
    for z, a, tz, ta, w in pairs:
        if s.hidden:
            network = MLPRegressor(s.hidden, random_state=seed, early_stopping=True, max_iter=300)
            spread_ = np.where(z.std(axis=0) > 0, z.std(axis=0), 1.0)
            network.fit((z - z.mean(axis=0)) / spread_, (a - a.mean()) / a.std())
            guess = network.predict((tz - z.mean(axis=0)) / spread_) * a.std() + a.mean()
        else:
            guess = probes.fit_ridge(z, a, weight=w).score(tz)
        guesses.append(guess)
        off.append(np.abs(guess - ta))
    marginal, within = off

    def error(counts: np.ndarray) -> np.ndarray:
        total, number = (resampling.tally(counts, test.y, 2, v) for v in (within, np.ones(len(test))))
        return np.divide(total, number, out=np.full(total.shape, np.nan), where=number > 0).mean(axis=1)

    def overall(counts: np.ndarray) -> np.ndarray:
        return resampling.sums(counts, marginal) / counts.sum(axis=1)

    def exchanged(donors: np.ndarray) -> np.ndarray:
        moved = [test.a[donors[:, test.y == y]] for y in (0, 1)]
        far = [guesses[1][test.y == y] - (m - m.mean(axis=1, keepdims=True)) for y, m in enumerate(moved)]
        return np.mean([np.abs(f).mean(axis=1) for f in far], axis=0)

    chance = float(np.mean([np.abs(target[1][test.y == y]).mean() for y in (0, 1)]))
    alone = float(np.abs(test.a - means["fit"][test.y]).mean())
    return error, overall, exchanged, (chance, float(np.abs(test.a - fit.a.mean()).mean()), alone), "MAE", True


def _by_label(values: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(2, …) means at label 0 and 1; the overall mean where a label has no rows."""
    return np.stack([values[y == k].mean(axis=0) if (y == k).any() else values.mean(axis=0) for k in (0, 1)])


def _deep(fit: Rows, test: Rows, weight: np.ndarray, hidden: tuple[int, ...], seed: int) -> np.ndarray:
    """Log odds (n, K) of a readout with hidden layers, fitted on rows that are drawn by their weights."""
    rng = np.random.default_rng(seed)
    rows = rng.choice(len(fit), len(fit), p=weight / weight.sum())
    mean, scale = fit.z.mean(axis=0), np.where(fit.z.std(axis=0) > 0, fit.z.std(axis=0), 1.0)
    network = MLPClassifier(hidden, random_state=seed, early_stopping=True, max_iter=300)
    network.fit((fit.z[rows] - mean) / scale, fit.a[rows])
    p = np.clip(network.predict_proba((test.z - mean) / scale), 1e-9, 1 - 1e-9)
    return np.log(p / (1 - p))


# ---- performance and fairness --------------------------------------------------------------------------------------------


def _behaviour(
    evidence: Evidence,
    view: View,
    test: Rows,
    a: Attribute,
    positive: int,
    sample: Resamples,
    s: Settings,
    rng: np.random.Generator,
    exchanged: ByDonors,
) -> tuple[dict[str, Any], np.ndarray]:
    """What is measured of the decisions; and `exchanged`, (P,), of the exchanges that all of it shares."""
    decisions = view.decisions()
    output = int(outputs_for(view.cohort.classes, evidence.card.classes)[positive])
    p = decisions.probability[test.kept]
    decide, cut, how = _rule(evidence, output, positive, s)
    predicted, score = decide(p), p[:, output]
    names = _metrics(a, s)
    kinds = {name: _how(name, a, s) for name in names}
    signed = _signed_levels(a)
    y = test.y
    flips = _flipped(evidence, view, test, a, decide, predicted)
    unsigned = [fairness.disparity(name, y, predicted, test.a, **kinds[name]) for name in names]
    with_sign = [fairness.signed_disparity(y, predicted, test.a, kind=a.kind, level=k) for k in signed]

    def numbers(counts: np.ndarray) -> np.ndarray:
        found = [resampling.auc_draws(y == 1, score, counts)]
        found += [d.draws(counts) for d in unsigned]
        if flips is not None:
            known = ~np.isnan(flips)
            total = resampling.sums(counts, np.stack([np.where(known, flips, 0.0), known], axis=1))
            found.append(np.divide(total[:, 0], total[:, 1], out=np.full(len(counts), np.nan), where=total[:, 1] > 0))
        found += [d.draws(counts) for d in with_sign]
        return np.stack(found, axis=1)

    value, draws = numbers(resampling.whole(len(test)))[0], sample.apply(numbers)
    exchange = exchange_within_label(y, test.a, test.cohort.subject)
    parts: list[ByDonors] = [d.null for d in unsigned]
    parts += [lambda donors: np.full(len(donors), np.nan)] * (flips is not None)  # twins have nothing to exchange
    parts += [d.null for d in with_sign]
    *null_rows, encoded = _null(exchange, [*parts, exchanged], len(test), s.P, rng)
    null = np.stack(null_rows)
    every = [interval(v, d, s.level) for v, d in zip(value, draws.T, strict=True)]
    reasons = [d.reason for d in unsigned]
    reasons += [""] * (flips is not None)
    reasons += [d.reason for d in with_sign]
    stratum = [fairness.monotonicity(predicted, test.a, rows=y == k).p if a.kind == "continuous" else math.nan for k in (1, 0)]
    told = [f"{SIGNED}: {a.levels[k]}" if k is not None and len(signed) > 1 else SIGNED for k in signed]
    return {
        "auc": every[0],
        "auc_draws": draws[:, 0],
        "threshold": cut,
        "decided": how,
        "metrics": (*names, *([FLIPS] if flips is not None else []), *told),
        "n_signed": len(signed),
        "value": value[1:],
        "low": np.array([i.low for i in every[1:]]),
        "high": np.array([i.high for i in every[1:]]),
        "p": np.array([_p(v, d) for v, d in zip(value[1:], null, strict=True)]),
        "reason": tuple(reasons),
        "draws": draws[:, 1:].T.copy(),
        "null": null,
        "exchange_reason": exchange.reason,
        "monotone": np.array(stratum),
    }, encoded


def _nothing(s: Settings) -> dict[str, Any]:
    """Of a model that predicts the attribute: it has an encoding and no decisions about the label."""
    none = Interval(math.nan, math.nan, math.nan, reason="predicts another column than the label", level=s.level)
    empty = np.zeros(0)
    wide = {"draws": np.zeros((0, s.B)), "null": np.zeros((0, s.P))}
    one = dict.fromkeys(("value", "low", "high", "p"), empty)
    told = {"threshold": math.nan, "decided": "", "metrics": (), "n_signed": 0, "reason": (), "exchange_reason": ""}
    told["encoding_p"] = math.nan
    return {"auc": none, "auc_draws": np.full(s.B, np.nan), "monotone": np.full(2, np.nan), **told, **one, **wide}


def _rule(evidence: Evidence, output: int, positive: int, s: Settings) -> tuple[Any, float, str]:
    """How probabilities (n, C) become decisions for the positive class, and how that is said."""
    C = len(evidence.card.classes)
    if C > 2:
        k = min(s.top_k, C - 1)
        return (
            lambda p: (np.argsort(-p, axis=1, kind="stable")[:, :k] == output).any(axis=1).astype(np.int64),
            math.nan,
            f"top {k}",
        )
    if s.threshold not in ("max_f1", "argmax"):
        raise SettingError(f"threshold {s.threshold!r} is not known: max_f1 or argmax")
    cut, how = 0.5, "0.5"
    if s.threshold == "max_f1":
        how = "0.5, because there are no validation rows"
        if "val" in evidence.cohorts and "logits" in evidence.on("val"):
            tuned = evidence.on("val").decisions()
            known = tuned.cohort.label >= 0
            truth = (tuned.cohort.label[known] == positive).astype(np.int64)
            found = groups.max_f1_threshold(truth, tuned.probability[known, output])
            cut, how = (found, "best F1 on validation rows") if not math.isnan(found) else (0.5, "0.5, no positive val rows")
    return lambda p: (p[:, output] >= cut).astype(np.int64), float(cut), how


def _metrics(a: Attribute, s: Settings) -> tuple[str, ...]:
    for name in s.metrics:
        if name not in fairness.METRICS:
            raise SettingError(f"no fairness metric {name!r}; {suggest(name, fairness.METRICS)}")
    if s.bins is not None and a.kind == "continuous":
        low, high = (f(a.values[a.present]) for f in (np.min, np.max))
        if low < min(s.bins) or high > max(s.bins):
            raise SettingError(f"bins={list(s.bins)} leave out test rows: {a.name} runs from {low:g} to {high:g}")
    if a.kind == "continuous" and s.bins is None:
        return tuple(name for name in s.metrics if name not in GAPS)
    return tuple(s.metrics)


def _how(name: str, a: Attribute, s: Settings) -> dict[str, Any]:
    if a.kind == "continuous":
        return {"bins": s.bins, "of": s.of} if name in GAPS else {"kind": "continuous"}
    return {"kind": "categorical", "of": s.of}


def _flipped(evidence: Evidence, view: View, test: Rows, a: Attribute, decide: Any, predicted: np.ndarray) -> np.ndarray | None:
    """(n,) whether the decision differs for the twin, which differs in the attribute alone; NaN without a twin."""
    if "twin" not in evidence.cohorts or "logits" not in evidence.on("twin") or test.cohort.case is not None:
        return None
    twin = evidence.on("twin")
    other = dict(zip(twin.cohort.id, decide(twin.decisions().probability), strict=True))
    found = np.array([float(other[i] != d) if i in other else math.nan for i, d in zip(test.cohort.id, predicted, strict=True)])
    return None if np.isnan(found).all() else found


def _null(exchange: resampling.Exchange, parts: Sequence[ByDonors], n: int, P: int, rng: np.random.Generator) -> np.ndarray:
    """(m, P) of every part when the attribute is exchanged within label."""
    block = max(1, min(P, BLOCK // n))
    made = []
    for start in range(0, P, block):
        donors = np.stack([exchange.permutation(rng) for _ in range(min(block, P - start))])
        made.append(np.stack([part(donors) for part in parts]))
    return np.concatenate(made, axis=1)


def _p(value: float, null: np.ndarray) -> float:
    return resampling.p_value(value, null) if len(null) and not np.isnan(null).all() else math.nan
