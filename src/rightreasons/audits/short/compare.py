"""Families of models on several data sets, compared (Supp. Methods; Supp. Figs. 5 and 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from rightreasons.audits.short.measurement import Measurement
from rightreasons.audits.short.result import Result
from rightreasons.errors import DataError, SettingError
from rightreasons.families import suggest
from rightreasons.findings import Table
from rightreasons.stats import sweeps
from rightreasons.stats.resampling import interval
from rightreasons.stats.sweeps import Difference


def compare(first: Result, second: Result, *, rng: np.random.Generator, P: int = 9_999, ranked: bool = True) -> Difference:
    """Do families trained on two data sets differ in rho? Models are exchanged between them, see `stats.sweeps.difference`.

    That p takes the models for independent; the interval over models and examples beside it does not.
    """
    families = [result.judged.family for result in (first, second)]
    pairs = [(family.encoding[family.kept], family.disparity[family.kept]) for family in families]
    found = sweeps.difference(pairs[0], pairs[1], rng=rng, P=P, ranked=ranked)
    draws = [result.judged.rho_draws for result in (first, second)]
    B = min(len(d) for d in draws)
    spread = interval(found.value, draws[0][:B] - draws[1][:B])
    return replace(found, low=spread.low, high=spread.high)


def matched_encoding(results: Mapping[str, Result], edges: Sequence[float]) -> Table:
    """Disparity and AUC of several families at equal encoding (Supp. Fig. 5): families by bins of encoding with these edges."""
    cuts = np.asarray(edges, dtype=np.float64)
    if len(cuts) < 2 or (np.diff(cuts) <= 0).any():
        raise SettingError(f"edges={list(edges)}: give at least two that rise")
    units = {result.judged.first.encoding.unit for result in results.values()}
    if len(units) != 1:
        raise DataError(f"the families' encodings are {', '.join(sorted(units))}: compare those of one kind")
    rows: list[tuple[str | int | float | None, ...]] = []
    for low, high in pairwise(cuts):
        for name, result in results.items():
            family = result.judged.family
            value = np.array([m.encoding.within.value for m in family.models])
            below = value <= high if high == cuts[-1] else value < high  # the last bin is closed
            here = family.kept & (value >= low) & below
            disparity = float(np.nanmean(np.abs(family.disparity[here]))) if here.any() else None
            auc = float(np.nanmean(family.auc[here])) if here.any() else None
            rows.append((f"{low:g} to {high:g}", name, int(here.sum()), disparity, auc))
    return Table(
        title="Disparity at equal encoding",
        caption="Families of models at the same encoding of the attribute. Where they differ in disparity, encoding alone does "
        "not say how unfair a model is.",
        columns=(f"encoding ({units.pop()})", "family", "models", "mean absolute disparity", "mean AUC"),
        rows=rows,
    )


def cross_table(measurements: Mapping[tuple[str, str], Sequence[Measurement]], metric: str = "separation") -> Table:
    """AUC and a fairness metric of models by (training set, test set), means over models (Supp. Fig. 6)."""
    trained = list(dict.fromkeys(training for training, _ in measurements))
    tested = list(dict.fromkeys(test for _, test in measurements))
    for models in measurements.values():
        for m in models:
            if metric not in m.fairness.metrics:
                raise SettingError(f"{m.model} was not measured for {metric!r}; {suggest(metric, m.fairness.metrics)}")
    rows = []
    for training in trained:
        models_of = [measurements.get((training, test), ()) for test in tested]
        auc = [_mean([m.performance.auc.value for m in models]) for models in models_of]
        unfair = [_mean([m.fairness.value[m.fairness.metrics.index(metric)] for m in models]) for models in models_of]
        rows.append((training, *auc, *unfair))
    shown = [(what, test) for what in ("AUC", metric.replace("_", " ")) for test in tested]
    return Table(
        title="Training sets against test sets",
        caption="Where AUC is higher on test rows that are biased like the training rows than on others, it is spurious.",
        columns=("trained on", *(f"{what} on {test}" for what, test in shown)),
        rows=rows,
    )


def _mean(values: Sequence[float]) -> float | None:
    """Of the values that are defined; None where there is none."""
    known = [float(v) for v in values if not np.isnan(v)]
    return sum(known) / len(known) if known else None
