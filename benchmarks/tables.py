"""A table of predictions by the million: the audit's seconds and memory, and its intervals against the plain bootstrap of rows.

`TABLES_ROWS=100000 make bench NAME=tables` is smaller. Peers are timed where they are installed (fairlearn, aequitas).
Ratios are of processor seconds, taken in turn in one run, so that other work on the machine hinders both sides.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from rightreasons.stats import behaviour, totals
from rightreasons.stats.behaviour import Decided, Metric
from rightreasons.stats.resampling import Interval, Resamples, resamples

NEEDS_GPU = False

ROWS = int(os.environ.get("TABLES_ROWS", 1_000_000))
VALUES = (2, 2, 2, 6, 7)  # of five attributes
RESAMPLES = 10_000
PLAIN_RESAMPLES = 6
COMPARED_ROWS, COMPARED_RESAMPLES = 30_000, 2_000
BARS = {"seconds": 60, "megabytes": 2000}


def main() -> None:
    """Print the table and, as the last line, the JSON object."""
    table = planted(ROWS)
    seconds, cpu, megabytes = audited(table)
    rows, subject = decided(table, 0), table["subject"].to_numpy()
    ours, plain = processor_seconds(rows, subject)
    furthest, usual = differences()
    peers = {
        name: rate for name, peer in {"fairlearn": fairlearn_rate, "aequitas": aequitas_rate}.items() if (rate := peer(table))
    }
    own_rate = ROWS * RESAMPLES / ours
    _show(seconds, cpu, megabytes, ours, plain, {"rightreasons, all metrics": own_rate, **peers})
    print(
        json.dumps(
            {
                "name": "tables",
                "ratio": round(plain / ours, 1),
                "measured": f"processor seconds of all metrics of `groups` for one attribute, {RESAMPLES:,} resamples by "
                f"subject, against counting every row of every resample ({PLAIN_RESAMPLES} of them, scaled)",
                "rows": ROWS,
                "attributes": len(VALUES),
                "audit_seconds": round(seconds, 1),
                "audit_processor_seconds": round(cpu, 1),
                "audit_peak_megabytes": round(megabytes),
                "limits": BARS,
                "groups_processor_seconds": round(ours, 2),
                "plain_processor_seconds": round(plain, 1),
                "largest_difference_of_a_limit_in_widths": round(furthest, 4),
                "median_difference_of_a_limit_in_widths": round(usual, 4),
                "rows_resampled_a_second": {"rightreasons": round(own_rate), **{k: round(v) for k, v in peers.items()}},
                "load": round(os.getloadavg()[0], 1),
                "cores": os.cpu_count(),
                "versions": {"python": platform.python_version(), "numpy": np.__version__, "pandas": pd.__version__},
            }
        )
    )


def planted(n: int, seed: int = 0) -> pd.DataFrame:
    """Labels, five attributes, subjects of four rows in two splits, and answers of a model that leans on the first attribute."""
    rng = np.random.default_rng(seed)
    y, subject = rng.integers(0, 2, n), rng.integers(0, n // 4, n)
    columns = {"y": y, "subject": np.char.add("s", subject.astype(str)), "split": np.where(subject % 10 == 0, "audit", "test")}
    z = 2.4 * y - 1.2 + 1.5 * rng.normal(size=n) + 0.7 * rng.normal(size=n // 4)[subject]
    for k, values in enumerate(VALUES):
        a = (rng.integers(0, values, n) + (rng.random(n) < 0.3) * y) % values
        columns[f"a{k}"] = np.array([f"v{v}" for v in range(values)])[a]
        if k == 0:
            z += 1.2 * (a - 0.5)
    p = 1 / (1 + np.exp(-z))
    return pd.DataFrame({**columns, "p_0": 1 - p, "p_1": p})


def decided(table: pd.DataFrame, k: int) -> Decided:
    """The rows as `groups` sees them, with the k-th attribute."""
    probability = table[["p_0", "p_1"]].to_numpy()
    a = pd.factorize(table[f"a{k}"], sort=True)[0]
    return Decided(table["y"].to_numpy(), probability.argmax(axis=1), probability, a, VALUES[k], f"a{k}")


def audited(table: pd.DataFrame) -> tuple[float, float, float]:
    """Seconds, processor seconds and peak megabytes of `rightreasons audit --predictions`, from the command to the page."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        table.to_parquet(path)
        named = [f"--attribute=a{k}" for k in range(len(VALUES))]
        columns = ["--label=y", "--subject=subject", "--split=split", *named]
        command = [sys.executable, "-m", "rightreasons", "audit", "--predictions", str(path), *columns, "--out", f"{folder}/out"]
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "RIGHTREASONS_QUIET": "1"})
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - began
        if not (Path(folder) / "out" / "report.html").exists():
            raise SystemExit(f"the audit wrote no page: exit status {process.returncode}")
        return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def processor_seconds(
    rows: Decided, subject: np.ndarray, plain: int = PLAIN_RESAMPLES, B: int = RESAMPLES
) -> tuple[float, float]:
    """Of all metrics of one attribute: from sums, and row by row (scaled from `plain` resamples to B)."""
    metrics = behaviour.describe(rows, {0: 0, 1: 1}, "", 1)

    def sampled(number: int) -> Resamples:
        return resamples(len(rows), rng=np.random.default_rng(0), B=number, subject=subject)

    _intervals(metrics, sampled(1), by_rows=True)  # compiles, or loads what an earlier run compiled
    ours = min(_processor(lambda: behaviour.intervals(metrics, sampled(B))) for _ in range(2))
    # The value on the data as they are is one more resample of either side.
    by_rows = _processor(lambda: _intervals(metrics, sampled(plain), by_rows=True))
    return ours, by_rows * B / (plain + 1)


def differences(n: int = COMPARED_ROWS, B: int = COMPARED_RESAMPLES) -> tuple[float, float]:
    """How far limits from sums lie from those from rows, in widths of the interval: the furthest and the median one.

    Resamples are independent, so 2,000 of them leave about 0.02 open on either side.
    """
    table = planted(n, seed=1)
    found = []
    for k in (0, 4):
        metrics = behaviour.describe(decided(table, k), {0: 0, 1: 1}, "", 1)
        sample = resamples(n, rng=np.random.default_rng(k), B=B)
        for sums, rows in zip(behaviour.intervals(metrics, sample), _intervals(metrics, sample, by_rows=True)):
            if rows.high > rows.low:
                found += [abs(sums.low - rows.low) / (rows.high - rows.low), abs(sums.high - rows.high) / (rows.high - rows.low)]
    return max(found), float(np.median(found))


def _intervals(metrics: list[Metric], sample: Resamples, *, by_rows: bool) -> list[Interval]:
    before = totals.LARGE
    totals.LARGE = 10**12 if by_rows else before
    try:
        return behaviour.intervals(metrics, sample)
    finally:
        totals.LARGE = before


# ---- peers ---------------------------------------------------------------------------------------------------------------


def fairlearn_rate(table: pd.DataFrame) -> float:
    """Rows resampled a processor second by MetricFrame: accuracy, rates and selection by value of the same attribute."""
    if find_spec("fairlearn") is None:
        return 0.0
    from fairlearn.metrics import MetricFrame, false_positive_rate, selection_rate, true_positive_rate
    from sklearn.metrics import accuracy_score

    metrics = {
        "accuracy": accuracy_score,
        "selection": selection_rate,
        "tpr": true_positive_rate,
        "fpr": false_positive_rate,
    }
    label, predicted = table["y"], (table["p_1"] > 0.5).astype(int)
    number = 2

    def framed() -> object:
        return MetricFrame(
            metrics=metrics,
            y_true=label,
            y_pred=predicted,
            sensitive_features=table["a0"],
            n_boot=number,
            ci_quantiles=[0.025, 0.975],
            random_state=0,
        ).by_group_ci

    return len(table) * number / _processor(framed)


def aequitas_rate(table: pd.DataFrame) -> float:
    """Rows a processor second of Aequitas' crosstabs, which have no intervals: a resample would be one more of them."""
    if find_spec("aequitas") is None:
        return 0.0
    from aequitas.group import Group

    frame = pd.DataFrame({"score": (table["p_1"] > 0.5).astype(int), "label_value": table["y"], "a0": table["a0"].astype(object)})
    return len(table) / _processor(lambda: Group().get_crosstabs(frame, attr_cols=["a0"]))


def _processor(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _show(seconds: float, cpu: float, megabytes: float, ours: float, plain: float, rates: dict[str, float]) -> None:
    console = Console()
    table = Table(title=f"{ROWS:,} rows, {len(VALUES)} attributes, by subject")
    for heading in ("what", "measured", "limit"):
        table.add_column(heading)
    table.add_row(
        "audit, from the command to the page", f"{seconds:.0f} s", f"{BARS['seconds']} s on two cores with nothing else"
    )
    table.add_row("the same in processor seconds", f"{cpu:.0f} s", "")
    table.add_row("peak memory", f"{megabytes:.0f} MB", f"{BARS['megabytes']} MB")
    table.add_row("groups, one attribute, processor seconds", f"{ours:.1f} s", "")
    table.add_row(f"plain bootstrap of rows ({PLAIN_RESAMPLES} resamples, scaled)", f"{plain:.0f} s", f"{plain / ours:.0f} times")
    console.print(table)
    table = Table(title="Rows resampled a processor second")
    for heading in ("who", "rows"):
        table.add_column(heading)
    for name, rate in rates.items():
        table.add_row(name, f"{rate:,.0f}")
    console.print(table)


if __name__ == "__main__":
    main()
