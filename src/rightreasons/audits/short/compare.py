"""Families of models on several data sets, compared (Supp. Methods; Supp. Figs. 5 and 6).

All families of a comparison are measured along one direction, that of one of them or a given one: a balanced set has no direction
of its own, and a sign that hangs on how the attribute is coded would make the difference of two correlations hang on it too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np

from rightreasons.audits.short.judge import Judged
from rightreasons.audits.short.measurement import Measurement
from rightreasons.audits.short.result import Result
from rightreasons.errors import DataError, SettingError
from rightreasons.families import suggest
from rightreasons.findings import Cell, Table
from rightreasons.stats import sweeps
from rightreasons.stats.over_models import over_seeds
from rightreasons.stats.resampling import Interval, interval
from rightreasons.stats.sweeps import Difference

Side = Literal["removal", "all"]


# ---- one direction -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Direction:
    """Along which the disparity of every family is measured.

    Attributes
    ----------
    metric : name of a signed disparity
    sign : 1 or -1
    of : whose direction it is
    """

    metric: str
    sign: float
    of: str

    def __str__(self) -> str:
        return f"{self.metric}, {'as it is' if self.sign > 0 else 'turned round'}: the direction of {self.of}"

    def of_models(self, models: Sequence[Measurement]) -> tuple[np.ndarray, np.ndarray]:
        """The disparity (M,) along it, and its draws (M, B)."""
        of_model = []
        for m in models:
            if self.metric not in m.fairness.signed:
                raise DataError(f"{m.model} was not measured for {self.metric!r}; {suggest(self.metric, m.fairness.signed)}")
            k = m.fairness.metrics.index(self.metric)
            of_model.append((self.sign * m.fairness.value[k], self.sign * m.fairness.draws[k]))
        return np.array([value for value, _ in of_model]), np.stack([draws for _, draws in of_model])


def direction_of(results: Mapping[str, Result], along: str | int | None = None) -> Direction:
    """The direction of a named family, of the first family that has one, or 1 or -1 (more of the attribute's last value)."""
    if isinstance(along, int):
        if along not in (1, -1):
            raise SettingError(f"along={along}: give 1, -1 or the name of a family")
        lead = next(iter(results.values())).judged.family.lead
        return Direction(lead.fairness.signed[0], float(along), "the setting along=")
    if along is not None and along not in results:
        raise SettingError(f"along={along!r} is no family; {suggest(along, list(results))}")
    for name in results if along is None else [along]:
        j = results[name].judged
        if j.level is not None:
            return Direction(j.family.lead.fairness.signed[j.level], float(j.family.lead.association.sign[j.level]), name)
    who = "no family has" if along is None else f"the family {along!r} has not"
    raise SettingError(f"{who} a training association that gives a direction: give along=1 or along=-1")


# ---- the difference ------------------------------------------------------------------------------------------------------


def compare(
    first: Result,
    second: Result,
    *,
    rng: np.random.Generator,
    along: Direction | Literal["first", "second"] | int | None = None,
    side: Side = "removal",
    P: int = 9_999,
) -> Difference:
    """Do families trained on two data sets differ in rho, beyond other seeds (or training resamples) and other test rows?

    Parameters
    ----------
    along : the one direction in which both are measured; by default that of the first family, or else of the second
    side : which models are compared: those that encode the attribute no more than the baseline, as in the verdict, or all
    P : exchanges of models for the paper's p, which stands beside ours
    """
    along = along if isinstance(along, Direction) else direction_of({"first": first, "second": second}, along)
    families = [_side_of(result.judged, along, side) for result in (first, second)]
    same_rows = first.judged.first.rows == second.judged.first.rows
    difference = sweeps.difference(*families, same_rows=same_rows)
    usual = sweeps.exchange_p(*((f.encoding, f.disparity) for f in families), rng=rng, P=P)
    return replace(difference, exchange_p=usual)


def _side_of(j: Judged, along: Direction, side: Side) -> sweeps.Family:
    rows = np.flatnonzero(j.family.removal if side == "removal" else j.family.kept)
    models = [j.family.models[k] for k in rows]
    disparity, drawn = along.of_models(models)
    drawn_encoding = np.stack([m.encoding.draws * m.encoding.orientation for m in models])
    draws = sweeps.over_rows(drawn_encoding, drawn) if drawn.shape[1] else np.zeros(0)
    return sweeps.Family(j.family.encoding[rows], disparity, tuple(map(replicate_of, models)), draws)


def replicate_of(m: Measurement) -> str:
    """What a repetition draws anew: the seed, or the training rows where every seed has its own; else the model itself."""
    if m.seed is None:
        return m.model
    return f"{m.seed} {m.trained_on}"


def is_redrawn(result: Result) -> bool:
    """Whether the models of a family learnt from several draws of the training rows."""
    return len({m.trained_on for m in result.judged.family.models}) > 1


# ---- at equal encoding ---------------------------------------------------------------------------------------------------


def matched_encoding(
    results: Mapping[str, Result], edges: Sequence[float], *, along: str | int | None = None, level: float = 0.95
) -> Table:
    """Disparity and AUC of several families at equal encoding (Supp. Fig. 5): families by bins of encoding with these edges.

    Means over the models of a bin, with intervals over seeds and test rows.
    """
    cuts = np.asarray(edges, dtype=np.float64)
    if len(cuts) < 2 or (np.diff(cuts) <= 0).any():
        raise SettingError(f"edges={list(edges)}: give at least two that rise")
    units = {result.judged.first.encoding.unit for result in results.values()}
    if len(units) != 1:
        raise DataError(f"the families' encodings are {', '.join(sorted(units))}: compare those of one kind")
    direction = direction_of(results, along)
    rows: list[tuple[Cell | str | int | float | None, ...]] = []
    for low, high in pairwise(cuts):
        for name, result in results.items():
            family = result.judged.family
            value = np.array([m.encoding.within.value for m in family.models])
            below = value <= high if high == cuts[-1] else value < high  # the last bin is closed
            here = [m for m, on in zip(family.models, family.kept & (value >= low) & below, strict=True) if on]
            rows.append((f"{low:g} to {high:g}", name, len(here), *_of_bin(here, direction, level)))
    return Table(
        title="Disparity at equal encoding",
        caption="Families of models at the same encoding of the attribute, mean over their models with its interval over seeds "
        f"and test rows, along one direction ({direction.of}). Where they differ in disparity, encoding alone does not say how "
        "unfair a model is.",
        columns=(f"encoding ({units.pop()})", "family", "models", "lean", "absolute lean", "AUC"),
        rows=rows,
    )


def _of_bin(models: Sequence[Measurement], along: Direction, level: float) -> list[Cell | None]:
    if not models:
        return [None, None, None]
    value, drawn = along.of_models(models)
    auc = np.array([m.performance.auc.value for m in models])
    drawn_auc = np.stack([m.performance.draws for m in models])
    names = [replicate_of(m) for m in models]
    parts = ((value, drawn), (np.abs(value), np.abs(drawn)), (auc, drawn_auc))
    return [Cell.of(over_replicates(v, d, names, level)) for v, d in parts]


def over_replicates(value: np.ndarray, drawn: np.ndarray, names: Sequence[str], level: float = 0.95) -> Interval:
    """Mean of models (M,) with an interval over their replicates and the test rows, from draws (M, B).

    Whole replicates are drawn anew for every resample of the rows; with one replicate only the rows vary.
    """
    kept = ~np.isnan(value)
    if not kept.any():
        return Interval(float("nan"), float("nan"), float("nan"), reason="undefined for every model", level=level)
    value, drawn = value[kept], drawn[kept]
    mean = float(value.mean())
    if not drawn.shape[1]:
        return over_seeds(value, level)
    codes = np.unique(np.asarray(names, dtype=object)[kept].astype(str), return_inverse=True)[1]
    K, B = int(codes.max()) + 1, drawn.shape[1]
    number = np.bincount(codes).astype(np.float64)
    sums = np.stack([drawn[codes == k].sum(axis=0) for k in range(K)])
    rng = np.random.default_rng(0)  # the same replicates for every cell of a table
    often = rng.multinomial(K, np.full(K, 1 / K), size=B).T
    # The bootstrap of few replicates is too narrow by (K - 1) / K.
    draws = (often * sums).sum(axis=0) / (often * number[:, None]).sum(axis=0)
    widen = np.sqrt(K / (K - 1)) if K > 1 else 1.0
    return interval(mean, mean + widen * (draws - np.nanmean(draws)), level)


# ---- training sets against test sets -------------------------------------------------------------------------------------


def cross_table(
    measurements: Mapping[tuple[str, str], Sequence[Measurement]], metric: str = "separation", *, level: float = 0.95
) -> Table:
    """AUC and a fairness metric of models by (training set, test set), means over models with intervals (Supp. Fig. 6)."""
    trained = list(dict.fromkeys(training for training, _ in measurements))
    tested = list(dict.fromkeys(test for _, test in measurements))
    for models in measurements.values():
        for m in models:
            if metric not in m.fairness.metrics:
                raise SettingError(f"{m.model} was not measured for {metric!r}; {suggest(metric, m.fairness.metrics)}")
    rows = []
    for training in trained:
        models_of = [measurements.get((training, test), ()) for test in tested]
        auc = [_auc_of(models, level) for models in models_of]
        unfair = [_unfairness_of(models, metric, level) for models in models_of]
        rows.append((training, *auc, *unfair))
    shown = [(what, test) for what in ("AUC", metric.replace("_", " ")) for test in tested]
    return Table(
        title="Training sets against test sets",
        caption="Mean over models with its interval over seeds and test rows. Where AUC is higher on test rows that are biased "
        "like the training rows than on others, it is spurious.",
        columns=("trained on", *(f"{what} on {test}" for what, test in shown)),
        rows=rows,
    )


def _auc_of(models: Sequence[Measurement], level: float) -> Cell | None:
    if not models:
        return None
    value = np.array([m.performance.auc.value for m in models])
    return Cell.of(
        over_replicates(value, np.stack([m.performance.draws for m in models]), list(map(replicate_of, models)), level)
    )


def _unfairness_of(models: Sequence[Measurement], metric: str, level: float) -> Cell | None:
    if not models:
        return None
    at = [m.fairness.metrics.index(metric) for m in models]
    value = np.array([m.fairness.value[k] for m, k in zip(models, at, strict=True)])
    drawn = np.stack([m.fairness.draws[k] for m, k in zip(models, at, strict=True)])
    return Cell.of(over_replicates(value, drawn, list(map(replicate_of, models)), level))
