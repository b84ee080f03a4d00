"""10,000 bootstrap intervals of AUC, ECE and group accuracies on 10,000 rows, against the plain loop over scikit-learn calls."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable

import numba
import numpy as np
import sklearn
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.calibration import calibration_curve
from sklearn.metrics import accuracy_score, roc_auc_score

from rightreasons.stats import calibration, groups, resampling

NEEDS_GPU = False

ROWS = 10_000
RESAMPLES = 10_000
PLAIN_RESAMPLES = 40
PLAIN_RUNS = 5
NAMES = ("AUC", "ECE", "accuracy (0, 0)", "accuracy (0, 1)", "accuracy (1, 0)", "accuracy (1, 1)")

Columns = tuple[NDArray, NDArray, NDArray]


def main() -> None:
    """Print the table and, as the last line, the JSON object."""
    columns = planted_rows(np.random.default_rng(0))
    first = _seconds(lambda: intervals(columns, 8))  # compiles, or loads what an earlier run compiled
    # The fastest of several runs each: other work on the machine must not flatter either side.
    fast = min(_seconds(lambda: intervals(columns, RESAMPLES)) for _ in range(10))
    one_thread = min(_seconds(lambda: intervals(columns, RESAMPLES, threads=1)) for _ in range(5))
    scaled = _plain_seconds(columns) * RESAMPLES / PLAIN_RESAMPLES
    difference = largest_difference(columns)
    _show(columns, fast, one_thread, scaled, first, difference)
    print(
        json.dumps(
            {
                "name": "bootstrap",
                "ratio": round(scaled / fast, 1),
                "measured": "seconds for percentile intervals of AUC, ECE and four group accuracies, drawing included",
                "seconds": round(fast, 4),
                "seconds_one_thread": round(one_thread, 4),
                "seconds_first_call": round(first, 2),
                "plain_seconds": round(scaled, 1),
                "plain_resamples_timed": PLAIN_RESAMPLES * PLAIN_RUNS,
                "largest_difference": difference,
                "rows": ROWS,
                "resamples": RESAMPLES,
                "cores": os.cpu_count(),
                "versions": {
                    "python": platform.python_version(),
                    "numpy": np.__version__,
                    "numba": numba.__version__,
                    "scikit-learn": sklearn.__version__,
                },
            }
        )
    )


def planted_rows(rng: np.random.Generator) -> Columns:
    """Labels, attribute and probabilities (n, 2) of a model that leans on the attribute."""
    label = rng.integers(0, 2, ROWS)
    attribute = np.where(rng.random(ROWS) < 0.8, label, 1 - label)
    logit = rng.normal(1.2 * label + 0.8 * attribute - 1.0, 1.5)
    return label, attribute, calibration.probabilities(logit)


def intervals(columns: Columns, B: int, threads: int | None = None) -> list[resampling.Interval]:
    """Ours: resamples as counts, every number a pass over them."""
    resamples = resampling.resamples(ROWS, rng=resampling.task_rng(0, "bootstrap benchmark"), B=B)
    draws = resamples.apply(lambda counts: ours(columns, counts), threads)
    points = ours(columns, resampling.whole(ROWS))[0]
    return [resampling.interval(point, column) for point, column in zip(points, draws.T)]


def ours(columns: Columns, counts: NDArray) -> NDArray:
    """The six numbers of each resample, (B, 6)."""
    label, attribute, probability = columns
    return np.column_stack(
        [
            groups.auc_draws(label, probability, counts),
            calibration.ece_draws(probability, label, counts),
            groups.group_accuracy_draws(label, probability.argmax(axis=1), attribute, counts),
        ]
    )


def plain(columns: Columns, rows: NDArray) -> list[float]:
    """The six numbers of one resample by scikit-learn, as everybody writes it."""
    label, attribute, probability = (column[rows] for column in columns)
    predicted, confidence = probability.argmax(axis=1), probability.max(axis=1)
    right = predicted == label
    observed, stated = calibration_curve(right, confidence, n_bins=calibration.BINS)
    bins = np.minimum((confidence * calibration.BINS).astype(int), calibration.BINS - 1)
    share = np.bincount(bins, minlength=calibration.BINS)
    accuracies = [
        accuracy_score(label[group], predicted[group])
        for group in ((label == y) & (attribute == a) for y in (0, 1) for a in (0, 1))
    ]
    return [roc_auc_score(label, probability[:, 1]), share[share > 0] / len(rows) @ np.abs(observed - stated), *accuracies]


def largest_difference(columns: Columns, B: int = 50) -> float:
    """Between both ways for the same resamples."""
    counts = resampling.resamples(ROWS, rng=np.random.default_rng(1), B=B).counts()
    theirs = [plain(columns, np.repeat(np.arange(ROWS), row)) for row in counts]
    return float(np.abs(ours(columns, counts) - np.array(theirs)).max())


def _plain_seconds(columns: Columns) -> float:
    rng = np.random.default_rng(2)

    def some() -> None:
        for _ in range(PLAIN_RESAMPLES):
            plain(columns, rng.integers(0, ROWS, ROWS))

    return min(_seconds(some) for _ in range(PLAIN_RUNS))


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _show(columns: Columns, fast: float, one_thread: float, scaled: float, first: float, difference: float) -> None:
    console = Console()
    results = Table(title=f"{RESAMPLES:,} resamples of {ROWS:,} rows")
    for heading in ("number", "value", "95 % interval"):
        results.add_column(heading)
    for name, found in zip(NAMES, intervals(columns, RESAMPLES)):
        results.add_row(name, f"{found.value:.4f}", f"{found.low:.4f} to {found.high:.4f}")
    console.print(results)
    times = Table(title="seconds")
    for heading in ("way", "seconds", "times faster"):
        times.add_column(heading)
    times.add_row(f"plain loop (fastest of {PLAIN_RUNS} times {PLAIN_RESAMPLES}, scaled)", f"{scaled:.1f}", "1")
    times.add_row("rightreasons, one thread", f"{one_thread:.2f}", f"{scaled / one_thread:.0f}")
    times.add_row("rightreasons", f"{fast:.2f}", f"{scaled / fast:.0f}")
    times.add_row("first call in a process (compiles or loads)", f"{first:.2f}", "")
    console.print(times)
    console.print(f"largest difference for the same resamples: {difference:.1e} (bar: 1e-12); bar of the ratio: 50")
