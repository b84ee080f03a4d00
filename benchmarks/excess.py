"""How often `excess` calls, clears and leaves open in worlds of features, by kind, and how long it takes.

`WORLDS=200 make bench NAME=excess` for the whole table; the default is smaller. ROWS=10000 and FEATURES=2048 set the size of the
timed audit, beside the same refit as scikit-learn fits it, one penalty and one resample after another. `FEW=1` draws worlds
instead whose rows leave only a few audit rows against the association, and counts calls by the size of the smallest cell.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from dataclasses import dataclass

import numpy as np
from benchmarks._feature_worlds import KINDS, drawn, world
from rich.console import Console
from rich.table import Table
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold

from rightreasons.audits import audit
from rightreasons.audits.excess.judge import TOLERANCE
from rightreasons.data.cohort import Cohort
from rightreasons.evidence import Evidence
from rightreasons.head import linear_head
from rightreasons.progress import track
from rightreasons.stats.refit import FOLDS, PENALTIES, raked_weights

NEEDS_GPU = False

WORLDS = int(os.environ.get("WORLDS", "20"))
ROWS = int(os.environ.get("ROWS", "10000"))
FEATURES = int(os.environ.get("FEATURES", "2048"))
KIND = os.environ.get("KIND", "")
FEW = os.environ.get("FEW", "") == "1"
FIRST_SEED = int(os.environ.get("SEED", "1000"))
RELIANCES = ((-1.0, 0.1), (0.1, 0.2), (0.2, 1.0))
REFITS = 24


@dataclass(frozen=True)
class Judged:
    """One world: what was planted and what the audit says."""

    reliance: float
    excess: float
    covered: bool
    verdict: str


def main() -> None:
    """Print both tables and, as the last line, the JSON object."""
    console = Console()
    if FEW:
        few_rows(console)
        return
    kinds = [KIND] if KIND else list(KINDS)
    found = {kind: [judged(kind, seed) for seed in range(FIRST_SEED, FIRST_SEED + WORLDS)] for kind in track(kinds, "kinds")}
    console.print(_rates(found))
    mine, theirs = timed()
    console.print(f"{ROWS:,} rows of {FEATURES:,} features: {mine:.1f} s; the refit alone by scikit-learn: {theirs:.1f} s")
    summary = {kind: Counter(one.verdict for one in ones) for kind, ones in found.items()}
    print(
        json.dumps(
            {
                "name": "excess",
                "measured": "verdicts by kind of world; seconds of one audit",
                "worlds_per_kind": WORLDS,
                "verdicts": summary,
                "rows": ROWS,
                "features": FEATURES,
                "seconds": round(mine, 2),
                "seconds_of_the_refit_by_scikit_learn": round(theirs, 2),
            }
        )
    )


def judged(kind: str, seed: int) -> Judged:
    rng = np.random.default_rng([seed, list(KINDS).index(kind)])
    planted = world(drawn(kind, rng), rng)
    result = audit("excess", planted.evidence, B=400)
    excess = result.first.pulls.excess
    return Judged(planted.reliance, excess.value, bool(excess.low <= planted.reliance <= excess.high), str(result.verdict))


def _rates(found: dict[str, list[Judged]]) -> Table:
    table = Table(title="What is said, by kind of world and by what flipping the cue does")
    for column in ("kind", "reliance", "worlds", "called", "cleared", "open", "excess covers it", "mean excess"):
        table.add_column(column)
    for kind, every in found.items():
        for low, high in RELIANCES:
            ones = [one for one in every if low <= one.reliance < high]
            if ones:
                span = f"{low:g} to {high:g}" if low > 0 else f"below {high:g}"
                table.add_row(kind, span, str(len(ones)), *_shares(ones))
    return table


def _shares(ones: list[Judged]) -> list[str]:
    verdicts = Counter(one.verdict for one in ones)
    shown = [wilson(verdicts[verdict], len(ones)) for verdict in ("shortcut", "no evidence", "inconclusive")]
    covered = wilson(sum(one.covered for one in ones), len(ones))
    return [*shown, covered, f"{np.mean([one.excess for one in ones]):.3f}"]


def wilson(hits: int, n: int) -> str:
    """A share with Wilson's 95 % limits, in per cent."""
    z = float(norm.ppf(0.975))
    middle = (hits + z**2 / 2) / (n + z**2)
    half = z / (n + z**2) * np.sqrt(hits * (n - hits) / n + z**2 / 4)
    return f"{hits} ({100 * max(middle - half, 0):.0f} to {100 * min(middle + half, 1):.0f} %)"


# ---- few rows against the association --------------------------------------------------------------------------------------

FEW_KINDS = ("presentation", "proxy, cue recorded", "used")
CELLS = ((3, 5), (5, 10), (10, 10_000))  # audit rows of the smallest cell


def few_rows(console: Console) -> None:
    """By the smallest cell: how often the lower limit of the excess exceeds the tolerance, and what is said."""
    table = Table(title="Worlds that keep their association, by audit rows of the smallest cell")
    for column in ("kind", "smallest cell", "worlds", "reliance", "excess is sure", "called", "cleared"):
        table.add_column(column)
    summary: dict[str, dict[str, int]] = {}
    for kind in [KIND] if KIND else FEW_KINDS:
        ones = [few(kind, seed) for seed in track(range(FIRST_SEED, FIRST_SEED + WORLDS), kind)]
        for low, high in CELLS:
            here = [one for one in ones if low <= one.smallest < high]
            if here:
                counts = {
                    "worlds": len(here),
                    "sure": sum(one.sure for one in here),
                    "called": sum(one.verdict == "shortcut" for one in here),
                    "cleared": sum(one.verdict == "no evidence" for one in here),
                }
                summary[f"{kind}, {low} to {high - 1}"] = counts
                reliance = np.mean([one.reliance for one in here])
                shares = [wilson(counts[what], len(here)) for what in ("sure", "called", "cleared")]
                table.add_row(kind, f"{low} to {high - 1}", str(len(here)), f"{reliance:.2f}", *shares)
    console.print(table)
    print(json.dumps({"name": "excess", "measured": "verdicts by audit rows of the smallest cell", "cells": summary}))


@dataclass(frozen=True)
class Few:
    """One world with few rows against the association."""

    smallest: int
    reliance: float
    sure: bool
    verdict: str


def few(kind: str, seed: int) -> Few:
    rng = np.random.default_rng([seed, list(KINDS).index(kind), 1])
    agreement, rows = float(rng.uniform(0.92, 0.98)), int(rng.choice([150, 250, 400]))
    planted = world(drawn(kind, rng, kept=True, agreement=agreement, rows=rows), rng)
    result = audit("excess", planted.evidence, B=400)
    sure = bool(result.first.pulls.excess.low > TOLERANCE)
    return Few(result.first.cells.smallest, planted.reliance, sure, str(result.verdict))


# ---- speed ---------------------------------------------------------------------------------------------------------------


def timed() -> tuple[float, float]:
    """Seconds of the audit, and of its refits as everybody would write them."""
    evidence = large(np.random.default_rng(0))
    audit("excess", large(np.random.default_rng(1), rows=400, d=20), B=50)  # kernels are compiled
    start = time.perf_counter()
    audit("excess", evidence)
    mine = time.perf_counter() - start
    start = time.perf_counter()
    by_scikit_learn(evidence)
    return mine, time.perf_counter() - start


def large(rng: np.random.Generator, rows: int = ROWS, d: int = FEATURES) -> Evidence:
    """Half of the rows to audit by and half to test on, the cue used a little."""
    directions = rng.normal(size=(2, d)) / np.sqrt(d)
    head = linear_head(np.stack([np.zeros(d), 6 * directions[0] + 3 * directions[1]]))
    cohorts, arrays = {}, {}
    for name in ("audit", "test"):
        n = rows // 2
        label, cue = rng.integers(0, 2, n), rng.integers(0, 2, n)
        z = (np.outer(2 * label - 1, 4 * directions[0]) + np.outer(2 * cue - 1, 4 * directions[1])).astype(np.float32)
        z += rng.standard_normal((n, d), dtype=np.float32)
        columns = {"id": [f"{name}{i}" for i in range(n)], "label": label, "cue": cue}
        cohorts[name] = Cohort.from_columns(columns, attribute="cue", name=name)
        arrays[name] = {"features": z, "logits": head(z)}
    return Evidence.from_arrays(cohorts, arrays, head=head)


def by_scikit_learn(evidence: Evidence) -> None:
    """A penalty by folds and refits of resampled rows, on all features."""
    view = evidence.on("audit")
    z, label = view["features"], view.label
    z = (z - z.mean(axis=0)) / z.std(axis=0)
    weight = raked_weights(label, [view.cohort.attribute("cue").values])
    rows = np.arange(len(label))
    for penalty in track(PENALTIES[:4], "penalties by scikit-learn"):
        for inside, _ in GroupKFold(FOLDS).split(z, label, rows):
            _fitted(z[inside], label[inside], weight[inside], penalty)
    rng = np.random.default_rng(0)
    for _ in track(range(REFITS), "refits by scikit-learn"):
        drawn_rows = rng.integers(0, len(label), len(label))
        _fitted(z[drawn_rows], label[drawn_rows], weight[drawn_rows], PENALTIES[2])


def _fitted(z: np.ndarray, label: np.ndarray, weight: np.ndarray, penalty: float) -> LogisticRegression:
    return LogisticRegression(C=2 / (penalty * weight.sum()), max_iter=200).fit(z, label, sample_weight=weight)
