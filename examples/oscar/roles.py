"""The models that OSCAR compares, trained and read: what the examples beside this file share."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import rightreasons as rr
from rightreasons.evidence import Evidence
from rightreasons.models.training import train
from rightreasons.progress import track

Start = Callable[..., rr.Classifier]


@dataclass(frozen=True)
class Seeds:
    """How many models of every role. Four balanced models and more can take the test model's place."""

    test: int = 3
    baseline: int = 4
    attribute: int = 2


def compared(
    start: Start,
    biased: rr.Cohort,
    balanced: rr.Cohort,
    cohorts: rr.Cohort | Mapping[str, rr.Cohort],
    *,
    seeds: Seeds,
    folder: Path,
    needs: tuple[Any, ...] = ("oscar",),
    **training: Any,
) -> dict[str, list[Evidence]]:
    """Evidence of the three roles on `cohorts`.

    Test models learn the label from the biased rows, baselines from the balanced rows, and attribute models learn the attribute
    from the balanced rows. `start(classes, rng)` is a network with random weights. Models and evidence are kept in `folder`: a
    second call trains and reads nothing again.
    """
    attribute = balanced.attribute()
    plan = [("test", biased, None, k) for k in range(seeds.test)]
    plan += [("baseline", balanced, None, k) for k in range(seeds.baseline)]
    plan += [("attribute", balanced, attribute.name, k) for k in range(seeds.attribute)]
    found: dict[str, list[Evidence]] = {"test": [], "baseline": [], "attribute": []}
    for role, rows, target, seed in track(plan, "models"):
        network = start(rows.classes if target is None else attribute.levels, np.random.default_rng([seed, len(role)]))
        network.card["name"] = f"{role} {seed + 1}"
        # Without rows to stop on, a model is kept by its training loss: as a rule that of the last epoch.
        stopping = None if rows.has("val") else rows
        kept = folder / f"{role}-{seed + 1}"
        model = train(network, rows, target=target, seed=seed, regime=role, stopping=stopping, folder=kept / "model", **training)
        found[role].append(rr.extract(model, cohorts, list(needs), training=rows.on("train"), out=kept / "evidence", threads=1))
    return found


def drawn_evenly(rng: np.random.Generator, *columns: np.ndarray) -> np.ndarray:
    """0 or 1 for every row, each half as often as the other wherever the columns are alike: no association with them."""
    found = np.zeros(len(columns[0]), dtype=np.int64)
    alike = np.unique(np.stack([np.asarray(c).astype(str) for c in columns]), axis=1, return_inverse=True)[1]
    for stratum in np.unique(alike):
        rows = np.flatnonzero(alike == stratum)
        found[rows] = rng.permutation(np.arange(len(rows)) % 2)
    return found


def draw(finding: rr.Finding, path: Path, number: int = 5) -> Path:
    """The first pictures of where the correlation comes from, side by side, as a PNG."""
    gallery = next(x for x in finding.exhibits if x.title == "Where the correlation comes from")
    shown = [Image.open(io.BytesIO(base64.b64decode(item.png))).convert("RGB") for item in gallery.items[:number]]
    height = max(picture.height for picture in shown)
    strip = Image.new("RGB", (sum(p.width for p in shown) + 4 * (len(shown) - 1), height), "white")
    left = 0
    for picture in shown:
        strip.paste(picture, (left, 0))
        left += picture.width + 4
    times = max(1, 200 // height)
    strip.resize((times * strip.width, times * strip.height), Image.Resampling.NEAREST).save(path, optimize=True)
    return path


def summary(finding: rr.Finding) -> dict[str, Any]:
    """What a table of results needs of one finding."""
    partial = finding.estimates[0]
    step = next((e for e in finding.estimates if e.group == "replicates"), None)
    regions = next(x for x in finding.exhibits if x.title.startswith("The regions"))
    return {
        "verdict": finding.verdict,
        "n": finding.n_rows,
        "subjects": finding.n_subjects,
        "partial correlation": partial.value,
        "low": partial.low,
        "high": partial.high,
        "p (spatial)": partial.p,
        "step": None if step is None else step.value,
        "p (replicates)": None if step is None else step.p,
        "regions": [str(row[0]) for row in regions.rows],
        "failed": [check.name for check in finding.checks if check.passed is False],
    }
