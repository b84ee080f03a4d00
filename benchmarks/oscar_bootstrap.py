"""10,000 bootstraps of OSCAR's partial correlation, three median profiles each, against the plain loop; 10,000 permutations."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable

import numba
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from rightreasons.stats import correlation, profiles, resampling, spatial

NEEDS_GPU = False

IMAGES = 1000
REGIONS = 256
RESAMPLES = 10_000
PLAIN_RESAMPLES = 10
PLAIN_RUNS = 3


def main() -> None:
    """Print the table and, as the last line, the JSON object."""
    ranks = planted_ranks(np.random.default_rng(0))
    first = _seconds(lambda: draws(ranks, 8))  # compiles, or loads what an earlier run compiled
    # The fastest of several runs each: other work on the machine must not flatter either side.
    fast = min(_seconds(lambda: draws(ranks, RESAMPLES)) for _ in range(5))
    plain = min(_seconds(lambda: plain_draws(ranks, PLAIN_RESAMPLES)) for _ in range(PLAIN_RUNS)) * RESAMPLES / PLAIN_RESAMPLES
    difference = largest_difference(ranks)
    a, b, given = (profiles.profile(of_model) for of_model in ranks)
    rng = np.random.default_rng(3)
    permuting = min(
        _seconds(lambda: spatial.correlation_test(a, b, given, null="permutation", rng=rng, B=RESAMPLES)) for _ in range(10)
    )
    _show(fast, plain, first, permuting, difference)
    print(
        json.dumps(
            {
                "name": "oscar-bootstrap",
                "ratio": round(plain / fast, 1),
                "measured": "seconds for 10,000 partial correlations of three median profiles, drawing and sorting included",
                "seconds": round(fast, 4),
                "seconds_first_call": round(first, 2),
                "plain_seconds": round(plain, 1),
                "plain_note": f"plain loop timed on {PLAIN_RESAMPLES} resamples, fastest of {PLAIN_RUNS}, and scaled",
                "permutation_seconds": round(permuting, 4),
                "largest_difference": difference,
                "images": IMAGES,
                "regions": REGIONS,
                "resamples": RESAMPLES,
                "cores": os.cpu_count(),
                "versions": {"python": platform.python_version(), "numpy": np.__version__, "numba": numba.__version__},
            }
        )
    )


def planted_ranks(rng: np.random.Generator) -> list[NDArray]:
    """Ranks (n, R) of a test, an attribute and a baseline model that share a part of their profile; rectified, so with ties."""
    shared = rng.normal(size=REGIONS)
    return [
        profiles.rank_regions(np.maximum(shared + rng.normal(size=REGIONS) + rng.normal(size=(IMAGES, REGIONS)), 0.0))
        for _ in range(3)
    ]


def draws(ranks: list[NDArray], B: int) -> NDArray:
    """Ours: partial correlations (B,)."""
    resamples = resampling.resamples(IMAGES, rng=resampling.task_rng(0, "oscar bootstrap"), B=B)
    together = profile_draws(ranks, resamples)
    return correlation.partial(together[:, 0], together[:, 1], together[:, 2])


def profile_draws(ranks: list[NDArray], resamples: resampling.Resamples) -> NDArray:
    """Median profiles (B, M, R) of M models over the same resampled images; blocks of resamples run in threads."""
    medians = resamples.apply(profiles.SortedRanks.of(np.hstack(ranks)).medians)
    return medians.reshape(resamples.B, len(ranks), -1)


def plain_draws(ranks: list[NDArray], B: int) -> list[float]:
    """The same as everybody writes it: indices, `np.median`, least squares."""
    rng, values = np.random.default_rng(2), []
    for _ in range(B):
        rows = rng.integers(0, IMAGES, IMAGES)
        test, attribute, baseline = (np.median(of_model[rows], axis=0) for of_model in ranks)
        values.append(float(correlation.partial(test, attribute, baseline)))
    return values


def largest_difference(ranks: list[NDArray], B: int = 40) -> float:
    """Between the profiles of both ways for the same counts."""
    resamples = resampling.resamples(IMAGES, rng=np.random.default_rng(1), B=B)
    theirs = [[np.median(np.repeat(of_model, row, axis=0), axis=0) for of_model in ranks] for row in resamples.counts()]
    return float(np.abs(profile_draws(ranks, resamples) - np.array(theirs)).max())


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _show(fast: float, plain: float, first: float, permuting: float, difference: float) -> None:
    console = Console()
    table = Table(title=f"{RESAMPLES:,} resamples of {IMAGES:,} images, three profiles of {REGIONS} regions")
    for heading in ("way", "seconds", "times faster"):
        table.add_column(heading)
    table.add_row(f"plain loop of medians ({PLAIN_RESAMPLES} resamples timed, scaled)", f"{plain:.0f}", "1")
    table.add_row("rightreasons", f"{fast:.2f}", f"{plain / fast:.0f}")
    table.add_row("first call in a process (compiles or loads)", f"{first:.2f}", "")
    table.add_row(f"{RESAMPLES:,} permutations of the partial correlation", f"{permuting:.3f}", "")
    console.print(table)
    console.print(f"largest difference for the same counts: {difference:.1e} (bar: 0); bars: ratio 100, permutations 0.1 s")
