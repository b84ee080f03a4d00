"""ART's verdicts on trained CNNs: is ERM's association restored, is a balanced model's not, and what does the label direction do?

Digits with a coloured tag that agrees with the label in 90 % of the training rows. At 95 % (`AGREEMENT=0.95`) the network
follows the tag on more than half of the conflicting rows already, and little room is left to restore. `SEEDS=6 WORKERS=2 make
bench NAME=art-models`.
"""

from __future__ import annotations

import json
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks._digits import trained_cnn
from rich.console import Console
from rich.table import Table

from rightreasons.audits import audit
from rightreasons.data import planted
from rightreasons.data.cohort import Cohort
from rightreasons.extraction import extract
from rightreasons.progress import track

NEEDS_GPU = False

SEEDS = int(os.environ.get("SEEDS", "5"))
WORKERS = int(os.environ.get("WORKERS", str(os.cpu_count() or 1)))
AGREEMENT = float(os.environ.get("AGREEMENT", "0.9"))
ALIGNED = {0: 0, 1: 1}
# ERM: gain of the conflict shortcut rate, and drop of the worst group where it has that much to lose.
GAIN, DROP, FLOOR = 0.15, 0.15, 0.30


def main() -> None:
    """Print the table and, as the last line, the JSON object."""
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        rows = [row for found in track(pool.map(world, range(SEEDS)), "worlds", total=SEEDS) for row in found]
    _show(rows)
    held = {name: sum(row["holds"] for row in rows if row["model"] == name) for name in ("erm", "balanced")}
    print(
        json.dumps({"name": "art-models", "agreement": AGREEMENT, "seeds": SEEDS, "seeds_in_which_it_holds": held, "rows": rows})
    )


def world(seed: int) -> list[dict[str, Any]]:
    """ERM on the biased rows, and a balanced model on the same digits with the tag drawn again."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        biased = planted.digits(Path(folder), agreement=AGREEMENT, seed=seed)
        return [judged("erm", biased, seed), judged("balanced", planted.redrawn(Path(folder)), seed)]


def judged(name: str, cohort: Cohort, seed: int) -> dict[str, Any]:
    model = trained_cnn(cohort, seed, threads=1)
    result = audit("art", extract(model, cohort, "art", threads=1), seed=0, aligned=ALIGNED)
    found = result.measurements[0].scalars()
    kept = ("wga", "csr", "delta_wga", "delta_csr", "p", "verdict", "taxonomy", "effect", "probe")
    told = {key: None if isinstance(found[key], float) and np.isnan(found[key]) else found[key] for key in kept}
    return {"seed": seed, "model": name, **told, "holds": _holds(name, told)}


def _holds(name: str, told: dict[str, Any]) -> bool:
    if name == "balanced":
        return told["verdict"] != "shortcut"
    drops = told["wga"] < FLOOR or (told["delta_wga"] or 0.0) >= DROP
    return told["verdict"] == "shortcut" and (told["delta_csr"] or 0.0) >= GAIN and drops


def _show(rows: list[dict[str, Any]]) -> None:
    table = Table(title=f"ART on trained CNNs, agreement {AGREEMENT}")
    for column in rows[0]:
        table.add_column(column)
    for row in rows:
        table.add_row(*(f"{value:.3f}" if isinstance(value, float) else str(value) for value in row.values()))
    Console(width=160).print(table)
