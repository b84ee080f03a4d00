"""The whole ART audit on 10,000 audit and 10,000 test rows of 2,048 features, against a plain loop over its controls."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from rightreasons.audits import audit
from rightreasons.audits.art import find, gate, restore
from rightreasons.data.cohort import Cohort
from rightreasons.evidence import Evidence
from rightreasons.head import Head, linear_head
from rightreasons.stats.groups import SMALLEST_GROUP, conflict_shortcut_rate, worst_group_accuracy
from rightreasons.stats.restoration import halves

NEEDS_GPU = False

ROWS = 10_000
FEATURES = 2_048
CONTROLS = 300
RESAMPLES = 1_000
PLAIN_CONTROLS = 2
LIMIT_SECONDS = 30
BETAS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)

Rows = tuple[NDArray, NDArray, NDArray]


def main() -> None:
    """Print the table and, as the last line, the JSON object."""
    rng = np.random.default_rng(0)
    head = planted_head(rng)
    rows, test = planted_rows(rng), planted_rows(rng)
    small = evidence_of(tuple(part[:400] for part in rows), tuple(part[:400] for part in test), head)  # type: ignore[arg-type]
    audit("art", small, controls=20, B=20)  # compiles, or loads what an earlier run compiled
    evidence = evidence_of(rows, test, head)
    start, processor = time.perf_counter(), time.process_time()
    result = audit("art", evidence, controls=CONTROLS, B=RESAMPLES, betas=BETAS)
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    m = result.measurements[0]
    plain, largest = plain_loop(rows, test, head)
    scaled = plain * CONTROLS / PLAIN_CONTROLS
    table = Table(title=f"ART on {ROWS:,} + {ROWS:,} rows of {FEATURES:,} features, {CONTROLS} draws of four controls")
    for heading in ("way", "seconds"):
        table.add_column(heading)
    table.add_row(f"plain loop over the shuffled control alone (of {PLAIN_CONTROLS} draws, scaled)", f"{scaled:.1f}")
    table.add_row("rightreasons: find, gate, restore, curve, controls, bootstraps, ablations, probes", f"{seconds:.1f}")
    table.add_row("  of which this process had a core (other work on the machine adds to the line above)", f"{processor:.1f}")
    Console().print(table)
    Console().print(
        f"gain of CSR {m.change.csr.value:.3f} ({m.change.csr.low:.3f} to {m.change.csr.high:.3f}), p = {m.p:.4f}, "
        f"{result.verdict}: {result.taxonomy}; limit {LIMIT_SECONDS} s"
    )
    print(
        json.dumps(
            {
                "name": "art",
                "ratio": round(scaled / processor, 1),
                "measured": "processor seconds of the whole audit, against a loop of find, gate, restore over shuffles alone",
                "seconds": round(seconds, 2),
                "processor_seconds": round(processor, 2),
                "limit_seconds": LIMIT_SECONDS,
                "plain_seconds": round(scaled, 1),
                "plain_draws_timed": PLAIN_CONTROLS,
                "plain_largest_gain": largest,
                "verdict": result.verdict,
                "rows": ROWS,
                "features": FEATURES,
                "controls": CONTROLS,
                "resamples": RESAMPLES,
                "cores": os.cpu_count(),
                "threads": os.environ.get("OMP_NUM_THREADS", ""),
                "versions": {"python": platform.python_version(), "numpy": np.__version__},
            }
        )
    )


def planted_rows(rng: np.random.Generator) -> Rows:
    """Features that carry label and attribute beside noise of falling size, labels and attribute."""
    label = rng.integers(0, 2, ROWS)
    attribute = np.where(rng.random(ROWS) < 0.8, label, 1 - label)
    features = rng.normal(size=(ROWS, FEATURES)) * np.linspace(1.5, 0.5, FEATURES)
    features[:, :4] += 1.2 * (2 * label - 1)[:, None]
    features[:, 4:8] += 1.2 * (2 * attribute - 1)[:, None]
    return features, label, attribute


def planted_head(rng: np.random.Generator) -> Head:
    """A head that reads the label's features and, less, the attribute's."""
    weight = 0.002 * rng.normal(size=FEATURES)
    weight[:4], weight[4:8] = 1.0, 0.6
    return linear_head(weight)


def evidence_of(rows: Rows, test: Rows, head: Head) -> Evidence:
    arrays, cohorts = {}, {}
    for name, (features, label, attribute) in (("audit", rows), ("test", test)):
        columns = {"id": [f"{name}{k}" for k in range(len(label))], "label": label, "cue": attribute}
        cohorts[name] = Cohort.from_columns(columns, attribute="cue", name=name)
        arrays[name] = {"features": features, "logits": head(features)}
    return Evidence.from_arrays(cohorts, arrays, head=head, training=cohorts["audit"])


def plain_loop(rows: Rows, test: Rows, head: Head) -> tuple[float, float]:
    """Seconds of the shuffled control alone as one writes it first, and the largest gain of CSR that it met."""
    rng = np.random.default_rng(1)
    features, label, attribute = rows
    first, second = halves(label, attribute, rng=rng)
    before = head(test[0]).argmax(axis=1)
    csr = conflict_shortcut_rate(test[1], before, test[2], {0: 0, 1: 1})
    gains: list[float] = []

    def loop() -> None:
        for _ in range(PLAIN_CONTROLS):
            shuffled = attribute.copy()
            for y in (0, 1):
                shuffled[label == y] = rng.permutation(shuffled[label == y])
            found = find(features[first], label[first], shuffled[first])
            for judged in (gate(found, features[second], label[second], shuffled[second]), found):
                for beta in BETAS:
                    decided = head(restore(test[0], test[1], judged, beta)).argmax(axis=1)
                    worst_group_accuracy(test[1], decided, test[2], SMALLEST_GROUP)
                    gains.append(conflict_shortcut_rate(test[1], decided, test[2], {0: 0, 1: 1}) - csr)

    return _seconds(loop), max(gains)


def _seconds(work: Callable[[], object]) -> float:
    """Of the processor: other work on the machine must flatter neither side."""
    start = time.process_time()
    work()
    return time.process_time() - start
