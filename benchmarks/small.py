"""Two minutes of ratios against plain ways, and an exit status of 1 where one has fallen by half.

Each ratio is the best of several, both sides in one run and in processor seconds, so that a busy machine changes little.
`python -m benchmarks.small --keep` stores today's ratios as those to hold.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from benchmarks import bootstrap, oscar_bootstrap, tables
from rich.console import Console
from rich.table import Table

from rightreasons.stats import groups
from rightreasons.stats.exchanged_pull import pull_null
from rightreasons.stats.resampling import exchange_within_label, resamples, task_rng

NEEDS_GPU = False

KEPT = Path(__file__).with_name("small.json")
RUNS = 3
FALLEN = 0.5


def main() -> None:
    """Print the table and, as the last line, the JSON object."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    found = ratios()
    fallen = [name for name, ratio in found.items() if ratio < FALLEN * kept[name]]
    table = Table(title="Processor seconds of a plain way over ours")
    for heading in ("what", "ratio", "kept"):
        table.add_column(heading)
    for name, ratio in found.items():
        table.add_row(name, f"{ratio:.1f}", f"{kept[name]:.1f}")
    Console().print(table)
    told = {name: round(ratio, 2) for name, ratio in found.items()}
    lowest = min(ratio / kept[name] for name, ratio in found.items())
    measured = "the smallest of several ratios, each over the one that is kept"
    print(
        json.dumps(
            {"name": "small", "ratio": round(lowest, 2), "measured": measured, "ratios": told, "limits": {"ratio": FALLEN}}
        )
    )
    if fallen:
        raise SystemExit(f"fallen by half or more: {', '.join(fallen)}; if that is meant, python -m benchmarks.small --keep")


def ratios() -> dict[str, float]:
    """The best of several runs of each."""
    return {name: max(one() for _ in range(RUNS)) for name, one in RATIOS.items()}


def _tables() -> float:
    n = 60_000
    table = tables.planted(n)
    ours, plain = tables.processor_seconds(tables.decided(table, 3), table["subject"].to_numpy(), plain=4, B=1000)
    return plain / ours


def _bootstrap() -> float:
    columns = bootstrap.planted_rows(np.random.default_rng(0))
    bootstrap.intervals(columns, 8, threads=1)
    ours = _processor(lambda: bootstrap.intervals(columns, 1000, threads=1)) / 1000
    drawn = np.random.default_rng(1).integers(0, bootstrap.ROWS, (10, bootstrap.ROWS))
    return _processor(lambda: [bootstrap.plain(columns, rows) for rows in drawn]) / len(drawn) / ours


def _oscar() -> float:
    ranks = oscar_bootstrap.planted_ranks(np.random.default_rng(0))
    oscar_bootstrap.draws(ranks, 8)
    return (
        _processor(lambda: oscar_bootstrap.plain_draws(ranks, 4))
        / 4
        * 400
        / _processor(lambda: oscar_bootstrap.draws(ranks, 400))
    )


def _exchange() -> float:
    rng = task_rng(0, "small exchange")
    table = tables.planted(50_000)
    rows = tables.decided(table, 0)
    exchange = exchange_within_label(rows.label, rows.attribute, table["subject"].to_numpy())

    def ours(B: int) -> object:
        return list(pull_null(rows.label, rows.probability, rows.attribute, {0: 0, 1: 1}, exchange, rng=rng, B=B))

    def plain(B: int) -> object:
        orders = exchange.permutations(B, rng)
        return [groups.pull(rows.label, rows.probability, rows.attribute[order], {0: 0, 1: 1}) for order in orders]

    ours(2)
    plain(1)
    return _processor(lambda: plain(4)) / 4 * 100 / _processor(lambda: ours(100))


def _resamples() -> float:
    rng, n = np.random.default_rng(0), 20_000
    sample = resamples(n, rng=rng, B=400)
    sample.counts(0, 8)
    plain = _processor(lambda: [np.bincount(rng.integers(0, n, n), minlength=n) for _ in range(100)]) / 100
    return plain * 400 / _processor(lambda: sample.counts())


RATIOS: dict[str, Callable[[], float]] = {
    "metrics of a table, sums against rows": _tables,
    "AUC, ECE and accuracies, against scikit-learn": _bootstrap,
    "medians of profiles, against numpy": _oscar,
    "permutations of the pull, against a loop": _exchange,
    "drawing resamples, against numpy": _resamples,
}


def _processor(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    if sys.argv[1:] == ["--keep"]:
        KEPT.write_text(
            json.dumps({name: round(ratio, 2) for name, ratio in ratios().items()}, indent=1) + "\n", encoding="utf-8"
        )
    else:
        main()
