"""TSI where the answer is known: digits with a tag outside the digit's box, a small ViT trained on tags that tell the label, and
one on the same images with tags drawn at random. Does influence lie on the tag of the first and not of the second?

With two classes and with ten, for TSI_WORLD_SEEDS seeds (2 by default) of the world and of the networks; minutes. Two classes may
leave a network room to learn one of the two tags and to call everything else the other class, whose tag then moves nothing; ten
leave less.

All epochs are trained: the rows that choose the epoch are biased too, and early stopping would end at the tag alone.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from rightreasons.audits import audit, needs_of
from rightreasons.data import planted
from rightreasons.data.cohort import Cohort
from rightreasons.evidence import Evidence
from rightreasons.models.classifier import Classifier
from rightreasons.models.extraction import extract
from rightreasons.models.training import train
from rightreasons.perturbations.tokens import united

NEEDS_GPU = False

PIXELS, PATCH, GRID = 32, 4, (8, 8)
AGREEMENT = 0.95
AGREEMENT_TEST = 0.5
CLASSES = (2, 10)
TRAINING: dict[str, Any] = {"epochs": 30, "lr": 1e-3, "batch": 64, "warmup": 2, "patience": None}
SETTINGS: dict[str, Any] = {"extras": ["deletion", "keep"]}
BARS = {"agreeing_above_1": 0.8, "strongest_on_the_tag": 0.8}
"""Of the biased network; of the other neither may be reached."""


def main() -> None:
    """Print the table and, as the last line, the JSON object."""
    seeds = range(int(os.environ.get("TSI_WORLD_SEEDS", 2)))
    rows = [row for classes in CLASSES for seed in seeds for row in world(seed, classes)]
    _show(rows)
    passed = {f"{classes} classes": judged([r for r in rows if r["classes"] == classes]) for classes in CLASSES}
    print(
        json.dumps(
            {
                "name": "tsi-world",
                "measured": "digits with a tag outside the box; test rows, half of whose tags agree with the label",
                "agreement": AGREEMENT,
                "training": TRAINING,
                "rows": rows,
                "bars": BARS,
                "passed": passed,
                "versions": {"python": platform.python_version(), "torch": torch.__version__},
            }
        )
    )


def judged(rows: list[dict[str, Any]]) -> dict[str, bool]:
    """What must hold, for every seed."""
    biased, free = ([r for r in rows if r["network"] == name] for name in ("biased", "redrawn"))
    return {
        "biased network leans on the tag": all(r[k] >= bar for r in biased for k, bar in BARS.items()),
        "redrawn network does not": all(r[k] < bar for r in free for k, bar in BARS.items()),
        "the audit tells them apart": all(r["verdict"] == "shortcut" for r in biased),
        "deletion by influence above Grad-CAM": all(min(r["deletion_over_gradcam_low"]) > 0 for r in biased),
    }


def world(seed: int, classes: int) -> list[dict[str, Any]]:
    """Both networks of one seed, measured on the same test images."""
    settings = {"agreement": AGREEMENT, "agreement_test": AGREEMENT_TEST, "classes": classes, "values": classes, "seed": seed}
    with tempfile.TemporaryDirectory() as folder:
        biased = planted.digits(Path(folder) / "world", cue="tag", **settings)  # type: ignore[arg-type]
        free = planted.redrawn(Path(folder) / "world")
        held = {name: evidence_of(cohort, seed, classes) for name, cohort in (("biased", biased), ("redrawn", free))}
        results = {
            "biased": audit("tsi", {"test": held["biased"], "baseline": held["redrawn"]}, **SETTINGS),
            "redrawn": audit("tsi", {"test": held["redrawn"]}, **SETTINGS),
        }
        return [{"classes": classes, "seed": seed, "network": name, **measured(results[name], held[name])} for name in held]


def evidence_of(cohort: Cohort, seed: int, classes: int) -> Evidence:
    rng = np.random.default_rng(seed)
    start = Classifier.load("rightreasons.models.small:small_vit", num_classes=classes, size=PIXELS, mean=0.5, std=0.5, rng=rng)
    model = train(start, cohort, seed=seed, **TRAINING)
    needs = [n for n in needs_of(["tsi"], {"tsi": SETTINGS}) if n.role == "test" and n.cohort != "twin"]
    return extract(model, cohort, needs)


def measured(result: Any, evidence: Evidence) -> dict[str, Any]:
    """Numbers of one network: where M-TSI exceeds 1, and where the strongest token lies."""
    m, view = result.test[0], evidence.on("test")
    influence = view["maps@token_influence(explain=label)"].reshape(len(view), -1)
    strongest = np.abs(influence).argmax(axis=1)
    on = on_the_tag(view.cohort)[np.arange(len(view)), strongest]
    agrees = np.asarray(view.cohort.column("agrees")).astype(bool)
    # Where only tokens outside support the class, M-TSI has no denominator; those count among all, and not as above 1.
    above = np.nan_to_num(m.maximum) > 1
    gaps = [result.describing[f"influence over gradcam, top {top}"] for top in (1, 3, 5, 10, 20)]
    return {
        "images": len(view),
        "accuracy_agreeing": _share(m.right[agrees]),
        "accuracy_conflicting": _share(m.right[~agrees]),
        "agreeing_above_1": _share(above[agrees]),
        "agreeing_undefined": _share(np.isnan(m.maximum[agrees])),
        "agreeing_only_outside": _share(m.only_outside[agrees]),
        "conflicting_above_1": _share(above[~agrees]),
        "strongest_on_the_tag": _share(on),
        "strongest_on_the_tag_agreeing": _share(on[agrees]),
        "strongest_on_the_tag_conflicting": _share(on[~agrees]),
        "right_from_inside_alone": round(float(result.describing["right from inside alone"].value), 4),
        "right_from_outside_alone": round(float(result.describing["right from outside alone"].value), 4),
        "deletion_over_gradcam": [round(g.value, 4) for g in gaps],
        "deletion_over_gradcam_low": [round(g.low, 4) for g in gaps],
        "verdict": result.verdict,
    }


def on_the_tag(cohort: Cohort) -> np.ndarray:
    """(n, T) tokens that the tag covers."""
    boxes = cohort.column("cue_box")
    return np.stack([united(np.array(str(b).split(), float)[None], (PATCH, PATCH), GRID).ravel() > 0 for b in boxes])


def _share(values: np.ndarray) -> float:
    return round(float(np.mean(values)), 4)


def _show(rows: list[dict[str, Any]]) -> None:
    table = Table(title="TSI of small ViTs on digits with a tag outside the box")
    shown = {
        "agreeing_above_1": "M-TSI > 1, tag agrees",
        "conflicting_above_1": "tag conflicts",
        "strongest_on_the_tag": "strongest token on the tag",
        "accuracy_agreeing": "right, tag agrees",
        "accuracy_conflicting": "right, tag conflicts",
        "verdict": "verdict",
    }
    for heading in ("classes", "seed", "trained on", *shown.values(), "influence over Grad-CAM, top 1 … 20"):
        table.add_column(heading)
    for row in rows:
        cells = [f"{row[k]:.1%}" if isinstance(row[k], float) else str(row[k]) for k in shown]
        table.add_row(
            str(row["classes"]),
            str(row["seed"]),
            row["network"],
            *cells,
            " ".join(f"{g:+.3f}" for g in row["deletion_over_gradcam"]),
        )
    Console().print(table)
    Console().print(f"bars for the biased network: {BARS}")
