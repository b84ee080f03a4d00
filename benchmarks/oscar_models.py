"""OSCAR's verdicts on trained CNNs: false alarms of balanced models, power where the cue goes with the label.

In every world (digits with a coloured tag) some CNNs are judged against the mean profile of eight balanced models and two
attribute models. References are trained on the same digits with the tag drawn again (`redrawn`), and beside it on a balanced
subsample of the biased rows (`subsampled`), which is all that a user has where nothing can be redrawn.

`WORLDS=16 TESTS=7 WORKERS=16 make bench NAME=oscar-models` for the whole table; the default is smaller. `CUE=cast` or another cue
of `planted.digits` instead of the tag.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks._digits import trained_cnn
from rich.console import Console
from rich.table import Table
from scipy.stats import binomtest

from rightreasons.audits import needs_of, oscar
from rightreasons.audits.oscar.page import place
from rightreasons.data import images, planted
from rightreasons.data.cohort import Cohort
from rightreasons.data.images import Geometry
from rightreasons.extraction import extract
from rightreasons.progress import track
from rightreasons.stats.resampling import task_rng

NEEDS_GPU = False

WORLDS = int(os.environ.get("WORLDS", "4"))
TESTS = int(os.environ.get("TESTS", "4"))  # models judged per world and kind
WORKERS = int(os.environ.get("WORKERS", str(os.cpu_count() or 1)))
SEED = int(os.environ.get("SEED", "0"))
CUE = os.environ.get("CUE", "tag")
AGREEMENTS = (0.8, 0.9)
BASELINES = int(os.environ.get("BASELINES", "8"))
ATTRIBUTES = 2
NULL = "balanced"
REFERENCES = ("redrawn", "subsampled")
DRAWS = 2_000
LEVEL = 0.05
CUE_SHARE = 0.2  # of a cell that the cue fills, from which the cell counts as the cue's
KEPT = os.environ.get("PROFILES", "")  # a .npz for every model's profiles, to try other nulls on
BARS = {NULL: (0.0, 0.08), "agreement 0.8": (0.85, 1.0), "agreement 0.9": (0.95, 1.0)}


@dataclass(frozen=True)
class Judged:
    """What OSCAR said of one model."""

    kind: str
    references: str
    verdict: str
    partial: float
    p: float
    spatial_p: float
    plain_p: float
    worst_group: float
    covered: float  # share of the cue's cells in the positive part of the region contribution scores
    extent: str  # localised, diffuse or neither, in the words of the page
    distance: float  # of the top region from the cue's middle, in cells
    profiles: tuple[np.ndarray, ...]  # (3, R) of test, baseline and attribute models, for every partition
    baselines: np.ndarray  # (K, R) of every baseline model, by the deciding partition


def main() -> None:
    """Print the table and, as the last line, the JSON object."""
    start = time.perf_counter()
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(world, SEED * 1_000 + number, TESTS) for number in range(WORLDS)]
        judged = [one for done in track(as_completed(waiting), "worlds", total=WORLDS) for one in done.result()]
    if KEPT:
        _keep(judged, Path(KEPT))
    rows = [_row(kind, references, judged) for references in REFERENCES for kind in BARS]
    _show(rows)
    told = {"name": "oscar-models", "measured": f"share of trained CNNs that OSCAR calls a shortcut at the {LEVEL} level"}
    print(json.dumps({**told, "worlds": WORLDS, "rows": rows, "seconds": round(time.perf_counter() - start)}))


def world(seed: int, tests: int) -> list[Judged]:
    """Every judgement of one world."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        cohorts = {share: planted.digits(Path(folder) / f"{share}", cue=CUE, agreement=share, seed=seed) for share in AGREEMENTS}
        home = Path(folder) / f"{AGREEMENTS[-1]}"
        fair = planted.redrawn(home, draw=1)
        references = {
            "redrawn": _references(fair, seed, {}),
            # A fifth of the rows is left: smaller batches, more passes.
            "subsampled": _references(_subsample(cohorts[AGREEMENTS[-1]], seed), seed, {"batch": 16, "epochs": 40}),
        }
        found, cue = [], cue_cells(cohorts[AGREEMENTS[-1]])
        for kind, seen in _tested(cohorts, fair, seed, tests):
            for name, (baseline, attribute) in references.items():
                found.append(_judge(kind, name, {"test": [seen], "baseline": baseline, "attribute": attribute}, cue))
        return found


def _tested(cohorts: dict[float, Cohort], fair: Cohort, seed: int, tests: int) -> Iterator[tuple[str, oscar.Measurement]]:
    for k in range(tests):
        yield NULL, _measured(fair, seed, f"null {k}")
        for share, cohort in cohorts.items():
            yield f"agreement {share}", _measured(cohort, seed, f"biased {share} {k}")


def _references(cohort: Cohort, seed: int, settings: dict[str, int]) -> tuple[list[oscar.Measurement], list[oscar.Measurement]]:
    """Balanced models, and models of the attribute on the same rows."""
    target = cohort.attributes[0]
    baseline = [_measured(cohort, seed, f"baseline {k}", **settings) for k in range(BASELINES)]
    return baseline, [_measured(cohort, seed, f"attribute {k}", target=target, **settings) for k in range(ATTRIBUTES)]


def _subsample(cohort: Cohort, seed: int) -> Cohort:
    """Balanced training and stopping rows out of the biased ones; audit and test rows as they are."""
    kept = np.isin(np.asarray(cohort.splits), ("audit", "test"))
    for split in ("train", "val"):
        kept |= np.isin(cohort.id, cohort.on(split).balance(rng=task_rng(seed, f"subsample {split}")).id)
    return cohort.select(kept)


def _measured(cohort: Cohort, seed: int, name: str, target: str | None = None, **settings: Any) -> oscar.Measurement:
    """One CNN, trained and measured."""
    number = int(task_rng(seed, name).integers(2**31))
    model = trained_cnn(cohort, number, target, threads=1, device="cpu", **settings)
    evidence = extract(model, cohort, needs_of(["oscar"]), threads=1)
    return oscar.measure(evidence, rng=task_rng(seed, "oscar measure"), pictures=1, B=100)


def cue_cells(cohort: Cohort, rows: int = 40) -> np.ndarray:
    """(8, 8) share of each cell in which an image and its twin differ: where the cue is."""
    test, geometry = cohort.on("test"), Geometry((32, 32))
    pairs = zip(test.image[:rows], test.twins().image[:rows], strict=True)
    differ = [images.load(a, geometry, root=test.root) != images.load(b, geometry, root=test.root) for a, b in pairs]
    return np.mean([one.any(axis=-1) for one in differ], axis=0).reshape(8, 4, 8, 4).mean(axis=(1, 3))


def _judge(kind: str, references: str, measured: dict[str, list[oscar.Measurement]], cue: np.ndarray) -> Judged:
    result = oscar.conclude(measured, rng=task_rng(0, "oscar conclude"), B=DRAWS)
    decides = next(c for c in result.compared[0].correlations if (c.kind, c.coefficient) == ("partial", "Pearson"))
    part = result.compared[0].maps.shortcut_part.reshape(cue.shape)
    middle = np.average(np.argwhere(cue > 0), axis=0, weights=cue[cue > 0])
    return Judged(
        covered=float((part[cue > CUE_SHARE] > 0).mean()),
        extent=next((word for word in ("neither", "localised", "diffuse") if word in place(result)), ""),
        distance=float(np.linalg.norm(np.unravel_index(int(part.argmax()), cue.shape) - middle)),
        kind=kind,
        references=references,
        verdict=str(result.verdict),
        partial=decides.interval.value,
        p=result.replicates.p,
        spatial_p=decides.spatial.p,
        plain_p=decides.permutation,
        worst_group=measured["test"][0].decisions.worst_group,
        profiles=tuple(part.profiles for part in result.compared),
        baselines=np.stack(result.models.own("baseline")),
    )


def _row(kind: str, references: str, judged: list[Judged]) -> dict[str, Any]:
    of = [one for one in judged if (one.kind, one.references) == (kind, references)]
    shortcuts = sum(one.verdict == "shortcut" for one in of)
    limits = binomtest(shortcuts, len(of)).proportion_ci(method="exact")  # as if models of a world were independent
    positive = np.array([one.partial > 0 for one in of])
    return {
        "references": references,
        "models": kind,
        "n": len(of),
        "called": round(shortcuts / len(of), 3),
        "low": round(limits.low, 3),
        "high": round(limits.high, 3),
        "inconclusive": round(float(np.mean([one.verdict == "inconclusive" for one in of])), 3),
        "spatial null": round(float(np.mean(positive & (np.array([one.spatial_p for one in of]) <= LEVEL))), 3),
        "plain permutation": round(float(np.mean(positive & (np.array([one.plain_p for one in of]) <= LEVEL))), 3),
        "partial correlation": round(float(np.median([one.partial for one in of])), 2),
        "diffuse": round(float(np.mean([one.extent == "diffuse" for one in of])), 3),
        "cue covered": round(float(np.mean([one.covered for one in of])), 3),
        "top region, cells off": round(float(np.median([one.distance for one in of])), 2),
        "worst-group accuracy": round(float(np.mean([one.worst_group for one in of])), 3),
        "bar": BARS[kind],
    }


def _keep(judged: list[Judged], path: Path) -> None:
    parts = range(len(judged[0].profiles))
    columns = ("kind", "references", "verdict", "partial", "p", "spatial_p", "plain_p", "worst_group", "baselines")
    found = {name: np.array([getattr(one, name) for one in judged]) for name in columns}
    np.savez_compressed(path, **found, **{f"profiles{k}": np.stack([one.profiles[k] for one in judged]) for k in parts})


def _show(rows: list[dict[str, Any]]) -> None:
    table = Table(
        title=f"called a shortcut; {WORLDS} worlds, {BASELINES} balanced seeds as baseline, {ATTRIBUTES} attribute models"
    )
    for column in rows[0]:
        table.add_column(column, justify="left" if column in ("references", "models") else "right")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console(width=220).print(table)
