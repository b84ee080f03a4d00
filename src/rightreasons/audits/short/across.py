"""What ShorT says over several families: differences in rho, disparity at equal encoding, training sets against test rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations

import numpy as np

from rightreasons.audits.short.compare import Direction, compare, cross_table, direction_of, is_redrawn, matched_encoding
from rightreasons.audits.short.measurement import Measurement
from rightreasons.audits.short.result import ROW, Result
from rightreasons.errors import SettingError
from rightreasons.findings import Cell, Check, Estimate, Exhibit, Finding, Scatter, Table
from rightreasons.stats.resampling import benjamini_hochberg
from rightreasons.stats.sweeps import Difference

QUESTION = "Do the families differ in how unfairness follows the encoding?"
SEEDS_ONLY = "what varies is seeds: of these very training rows, other draws of them may differ by more"
BINS = 5  # of encoding, of equal numbers of models


def across(results: Mapping[str, Result], *, name: str, rng: np.random.Generator) -> Finding:
    """One finding over families of models that were judged on the same test rows; it describes and gives no verdict.

    Parameters
    ----------
    results : name of a family → its result
    """
    if len(results) < 2:
        raise SettingError(f"found {len(results)} families; give at least two to compare")
    lead = next(iter(results.values())).judged.first
    common = {"name": name, "audit": "short", "question": QUESTION, "row": ROW, "attribute": lead.attribute, "n_rows": lead.n}
    try:
        direction = direction_of(results)
    except SettingError:
        return Finding(**common, not_run="no family has a training association that gives a direction: give direction=")
    differences = {}
    for one, other in combinations(results, 2):
        differences[f"{one} less {other}"] = compare(results[one], results[other], rng=rng, along=direction)
    adjusted = benjamini_hochberg([difference.p for difference in differences.values()])
    estimates = {}
    for (pair, difference), p in zip(differences.items(), adjusted, strict=True):
        estimates[pair] = _estimate(pair, difference, p)
    all_redrawn = all(map(is_redrawn, results.values()))
    return Finding(
        **common,
        model=f"{len(results)} families",
        sentence=_sentence(estimates, direction),
        estimates=list(estimates.values()),
        checks=[
            Check(
                id="replicates",
                name="every seed learnt from its own draw of the training rows",
                passed=all_redrawn,
                note="" if all_redrawn else SEEDS_ONLY,
            )
        ],
        exhibits=exhibits(results, differences, direction),
    )


def _estimate(pair: str, difference: Difference, adjusted: float) -> Estimate:
    first, second = difference.replicates
    return Estimate(
        name=f"difference in rho, {pair}",
        value=difference.value,
        low=difference.low,
        high=difference.high,
        p=None if math.isnan(adjusted) else float(adjusted),
        n=min(first, second),
        row=ROW,
        unit="rho",
        group="differences between families",
        reason=difference.reason,
        note=f"n and interval over {first} and {second} replicates and the test rows; p for all pairs together; exchanging "
        f"models (the paper's) gives p {difference.exchange_p:.3g}",
    )


def _sentence(estimates: Mapping[str, Estimate], direction: Direction) -> str:
    """`estimates` by pair of families."""
    significant = []
    for pair, e in estimates.items():
        if e.p is not None and e.p < 0.05:
            significant.append(f"{pair} {e.value:.2f} (p {e.p:.3g})")
    along = f"along one direction, that of {direction.of}"
    if not significant:
        return f"No two families are shown to differ in how disparity follows the encoding, {along}."
    return f"Families differ in how disparity follows the encoding, {along}: {'; '.join(significant)}."


def exhibits(results: Mapping[str, Result], differences: Mapping[str, Difference], direction: Direction) -> list[Exhibit]:
    edges = edges_of(results)
    figures: list[Exhibit] = [_differences(differences)]
    if len(edges) > 1:
        matched = matched_encoding(results, edges)
        figures += [matched, figure_of(matched, "lean", direction), figure_of(matched, "AUC", direction)]
    measured = {(name, "the test rows"): _baselines(result) for name, result in results.items()}
    metrics = {m.fairness.metrics for models in measured.values() for m in models}
    if len(metrics) == 1 and "separation" in next(iter(metrics)):
        figures.append(cross_table(measured))
    return figures


def edges_of(results: Mapping[str, Result], bins: int = BINS) -> list[float]:
    """Edges of bins of encoding that hold equally many models of all families together."""
    value = [m.encoding.within.value for r in results.values() for m in r.judged.family.models]
    known = [v for v in value if not math.isnan(v)]
    if len(known) < 2:
        return []
    edges = np.quantile(known, np.linspace(0, 1, bins + 1))
    low, high = np.floor(edges[0] * 1000) / 1000, np.ceil(edges[-1] * 1000) / 1000
    return [float(v) for v in np.unique([low, *edges[1:-1].round(3), high])]


def _baselines(result: Result) -> list[Measurement]:
    family = result.judged.family
    base = family.is_baseline if family.is_baseline.any() else family.kept
    return [m for m, on in zip(family.models, base, strict=True) if on]


def _differences(differences: Mapping[str, Difference]) -> Table:
    return Table(
        title="Families against each other",
        caption="Correlation of encoding and signed disparity on the removal side of either family, and their difference with "
        "its interval over replicates and test rows. Exchanging models between families, as the paper does, takes models for "
        "independent and calls too many.",
        columns=(
            "families",
            "rho of the first",
            "rho of the second",
            "difference",
            "p",
            "p, exchanging models",
            "models",
            "replicates",
        ),
        rows=[
            (
                pair, d.rhos[0], d.rhos[1], Cell(value=d.value, low=d.low, high=d.high, reason=d.reason), d.p, d.exchange_p,
                f"{d.n[0]} and {d.n[1]}", f"{d.replicates[0]} and {d.replicates[1]}",
            )
            for pair, d in differences.items()
        ],
    )  # fmt: skip


def figure_of(matched: Table, column: str, direction: Direction) -> Scatter:
    """Supp. Fig. 5: one number of a table of equal encoding, with intervals, families side by side."""
    at = matched.columns.index(column)
    places, families, cells = [], [], []
    for row in matched.rows:
        cell = row[at]
        if isinstance(cell, Cell):
            places.append(str(row[0]))
            families.append(str(row[1]))
            cells.append(cell)
    along = f" Lean along the direction of {direction.of}." if column == "lean" else ""
    return Scatter(
        title=f"{column[:1].upper()}{column[1:]} at equal encoding",
        caption=f"Mean of each family's models in each range of encoding, with its interval over seeds and test rows.{along}",
        x=places,
        y=[cell.value for cell in cells],
        y_low=[cell.low for cell in cells],
        y_high=[cell.high for cell in cells],
        group=families,
        x_label=matched.columns[0],
        y_label=column,
        hline=0.0 if column == "lean" else None,
    )
