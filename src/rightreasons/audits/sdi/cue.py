"""Probe 3: the cue, whether a linear probe reads it from the features, and whether it still does under each operator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rightreasons.audits.sdi.measurement import Intervals, Probe
from rightreasons.audits.sdi.perturbed import Perturbed
from rightreasons.audits.sdi.severities import Severity, nuisance_recipe
from rightreasons.data.cohort import Attribute
from rightreasons.errors import DataError, NotRun
from rightreasons.evidence import Evidence
from rightreasons.stats import groups, probes, resampling
from rightreasons.stats.probes import Sample
from rightreasons.stats.resampling import Interval, Resamples, interval

INSERTED = "border"  # the cue of rows that have none
SMALLEST = 10  # rows of a value of the cue


@dataclass(frozen=True)
class Cue:
    """The cue as the attribute `a` of audit and test rows: -1 (a number: NaN) where it is missing.

    Without a name it is a border inserted in a random half of them.
    """

    name: str
    continuous: bool
    audit: Sample
    test: Sample


def find_cue(
    evidence: Evidence, perturbed: Perturbed, operators: Sequence[Severity], attribute: str | None, rng: np.random.Generator
) -> Cue:
    """a(x) of the paper: the named attribute, or an inserted border where the cohort has none."""
    cohort, label, z = evidence.on("audit").by_case("features")
    if not perturbed.cohort.attributes:
        return insert_border(evidence, perturbed, operators, rng)
    on_test = perturbed.cohort.attribute(attribute)
    on_audit = cohort.attribute(on_test.name)
    _refuse_other_levels(on_test, on_audit)
    return Cue(
        on_test.name,
        on_test.kind == "continuous",
        Sample(z, label, on_audit.values),
        Sample(perturbed.z, perturbed.label, on_test.values),
    )


def insert_border(evidence: Evidence, perturbed: Perturbed, operators: Sequence[Severity], rng: np.random.Generator) -> Cue:
    """A cue of our own: the features of a random half of the rows are those under the border."""
    audit = evidence.on("audit")
    border = next((nuisance_recipe("features", o, 0) for o in operators if o.operator == INSERTED), None)
    if border is None or border not in audit:
        raise NotRun(
            "no cue: name an attribute with attribute=, or extract the features of audit rows under the border, which is then "
            "inserted in a random half of the rows"
        )
    _, label, z = audit.by_case("features")
    fit = _half_bordered(z, label, audit.by_case(border)[2], rng)
    read = _half_bordered(perturbed.z, perturbed.label, perturbed.view.by_case(border)[2], rng)
    return Cue("", False, fit, read)


def _half_bordered(z: np.ndarray, label: np.ndarray, bordered: np.ndarray, rng: np.random.Generator) -> Sample:
    half = rng.permutation(len(z)) % 2
    return Sample(np.where(half[:, None] == 1, bordered, z), label, half)


def _refuse_other_levels(on_test: Attribute, on_audit: Attribute) -> None:
    if on_test.levels != on_audit.levels:
        raise DataError(
            f"{on_test.name!r} has the values {list(on_test.levels)} on test rows and {list(on_audit.levels)} on audit rows: "
            "read one table"
        )


# ---- the probe -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """The AUC (concordance for numbers) with which a probe reads the cue, and the same in every resample (B,)."""

    value: float
    draws: np.ndarray

    def interval(self, level: float) -> Interval:
        return interval(self.value, self.draws, level)


@dataclass(frozen=True)
class Probed:
    """The probe's part of a measurement, and AUC_nc in every resample (B,)."""

    probe: Probe
    auc_draws: np.ndarray


def probe_cue(cue: Cue, perturbed: Perturbed, operators: Sequence[Severity], sample: Resamples, C: float, level: float) -> Probed:
    """AUC_nc on held-out rows, and how far the reading falls under each operator.

    Two probes are fitted on audit rows as they are: a plain one for AUC_nc, and one with equal weights for all pairs of label and
    cue, whose reading must not rest on the label, for the falls.
    """
    fit, read = _rows_to_probe(cue)
    if _too_few(cue, fit, read):
        return _undefined(len(operators), int(fit.sum()), int(read.sum()), sample.B)
    plain, balanced = _fit_probes(cue, fit, C)
    parts = _by_label(cue, read)
    encoded = _read(plain, cue, cue.test.z, [np.flatnonzero(read)], sample)
    clean = _read(balanced, cue, cue.test.z, parts, sample)
    if cue.name:
        under = []
        for operator in operators:
            under.append(_read_under(balanced, cue, perturbed.features(operator), parts, sample))
        drop = _falls(clean, under, level)
    else:
        drop = Intervals.undefined(len(operators))
    probe = Probe(
        auc=encoded.interval(level),
        clean=clean.interval(level),
        within=len(parts) > 1,
        drop=drop,
        n_audit=int(fit.sum()),
        n_cue=int(read.sum()),
        converged=plain.converged and balanced.converged,
    )
    return Probed(probe, encoded.draws)


def _rows_to_probe(cue: Cue) -> tuple[np.ndarray, np.ndarray]:
    """Which audit and which test rows have the cue, with a value that is frequent enough in both."""
    fit, read = cue.audit.a, cue.test.a
    if cue.continuous:
        return ~np.isnan(fit), ~np.isnan(read)
    frequent = _frequent_values(fit[fit >= 0], read[read >= 0])
    return (fit >= 0) & np.isin(fit, frequent), (read >= 0) & np.isin(read, frequent)


def _frequent_values(fit: np.ndarray, read: np.ndarray) -> np.ndarray:
    values = np.unique(fit)
    return np.array([v for v in values.tolist() if min(np.sum(fit == v), np.sum(read == v)) >= SMALLEST])


def _too_few(cue: Cue, fit: np.ndarray, read: np.ndarray) -> bool:
    if min(fit.sum(), read.sum()) < 2 * SMALLEST:
        return True
    return not cue.continuous and len(np.unique(cue.audit.a[fit])) < 2


def _undefined(k: int, n_audit: int, n_cue: int, B: int) -> Probed:
    reason = f"fewer than two values of the cue with {SMALLEST} rows in both sets"
    none = Interval(math.nan, math.nan, math.nan, reason=reason)
    probe = Probe(
        auc=none, clean=none, within=False, drop=Intervals.undefined(k), n_audit=n_audit, n_cue=n_cue, converged=True
    )  # fmt: skip
    return Probed(probe, np.full(B, np.nan))


def _fit_probes(cue: Cue, fit: np.ndarray, C: float) -> tuple[probes.Probe, probes.Probe]:
    z, label, values = cue.audit.z[fit], cue.audit.y[fit], cue.audit.a[fit]
    if cue.continuous:
        ridge = probes.fit_ridge(z, values)
        return ridge, ridge
    pairs = [f"{y} {a}" for y, a in zip(label, values)]
    return probes.fit(z, values, C=C), probes.fit(z, values, C=C, weight=probes.equal_weights(pairs))


def _by_label(cue: Cue, read: np.ndarray) -> list[np.ndarray]:
    """The rows of each label where every label has two values of a named cue, else all rows."""
    labels = [y for y in sorted(set(cue.test.y[read].tolist())) if y >= 0]
    parts = [np.flatnonzero(read & (cue.test.y == y)) for y in labels]
    within = cue.name and len(parts) > 1 and all(_has_two_values(cue.test.a[rows], cue.continuous) for rows in parts)
    if within:
        return parts
    return [np.flatnonzero(read)]


def _has_two_values(values: np.ndarray, continuous: bool) -> bool:
    _, count = np.unique(values, return_counts=True)
    return len(count) > 1 and (continuous or bool(count.min() >= SMALLEST // 2))


def _read(probe: probes.Probe, cue: Cue, z: np.ndarray, parts: Sequence[np.ndarray], sample: Resamples) -> Reading:
    """Read the cue from features z (n, d): the mean over parts of the rows."""
    score = probe.score(z)
    codes = {value: k for k, value in enumerate(probe.levels)}

    def auc(counts: np.ndarray) -> np.ndarray:
        by_part = []
        for rows in parts:
            truth, weight = cue.test.a[rows], np.ascontiguousarray(counts[:, rows])
            if cue.continuous:
                by_part.append(resampling.concordance_draws(truth, score[rows], weight))
            else:
                levels = np.array([codes[v] for v in truth.tolist()], dtype=np.int64)
                by_part.append(groups.auc_draws(levels, score[rows], weight))
        mean: np.ndarray = np.mean(by_part, axis=0)
        return mean

    return Reading(float(auc(resampling.whole(len(z)))[0]), sample.apply(auc))


def _read_under(
    probe: probes.Probe, cue: Cue, features: Sequence[np.ndarray], parts: Sequence[np.ndarray], sample: Resamples
) -> Reading:
    """The mean reading over draws of one operator."""
    readings = [_read(probe, cue, moved, parts, sample) for moved in features]
    return Reading(float(np.mean([r.value for r in readings])), np.mean([r.draws for r in readings], axis=0))


def _falls(clean: Reading, under: Sequence[Reading], level: float) -> Intervals:
    values = np.array([clean.value - reading.value for reading in under])
    draws = np.stack([clean.draws - reading.draws for reading in under], axis=1)
    return Intervals.of(values, draws, level)
