"""TSI where the answer is known: digits with a tag outside the digit's box, and small ViTs trained on tags that tell the label
and on the same images with tags drawn at random. Does influence lie on the tag of the first and not of the second, and how often
does each way to a verdict call either?

The tag fills one token, and training leaves out patches at random (`patch_drop`). Both matter: a tag over several tokens is still
seen when one of them is gone, and a network that never missed a token takes a missing tag for one of the tags, whose own removal
then moves nothing.

`SEED=0 WORLDS=5 WORKERS=8 make bench NAME=tsi-world` for the whole table; the default is smaller. `SIZE=5` or `PATCH_DROP=0` show
what happens without them. All epochs are trained: the rows that choose the epoch are biased too, and early stopping would end at
the tag alone.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from scipy.special import softmax

from rightreasons.audits import needs_of, tsi
from rightreasons.data import planted
from rightreasons.data.cohort import Cohort
from rightreasons.evidence import Evidence
from rightreasons.extraction import extract
from rightreasons.models.classifier import Classifier
from rightreasons.models.training import train
from rightreasons.perturbations.tokens import united
from rightreasons.stats.resampling import task_rng

NEEDS_GPU = False

SEED = int(os.environ.get("SEED", "0"))
WORLDS = int(os.environ.get("WORLDS", "1"))
WORKERS = int(os.environ.get("WORKERS", "1"))
CLASSES = tuple(int(c) for c in os.environ.get("CLASSES", "2 10").split())
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

PIXELS, PATCH, GRID = 32, 4, (8, 8)
WORLD: dict[str, Any] = {"cue": "tag", "size": int(os.environ.get("SIZE", PATCH)), "agreement_test": 0.5}
AGREEMENTS = {"biased": 0.98, "weaker": 0.9}
BALANCED = 4
PATCH_DROP = float(os.environ.get("PATCH_DROP", "0.5"))
TRAINING: dict[str, Any] = {"epochs": 45, "lr": 1e-3, "batch": 64, "warmup": 2, "patience": None}
SETTINGS: dict[str, Any] = {"extras": ["deletion", "keep"]}
TOLERANCES = (0.1, 0.25, 0.5)
BARS = {"agreeing_above_1": 0.8, "strongest_on_the_tag": 0.8}
"""Of the biased network; of the balanced ones neither may be reached."""


def main() -> None:
    """Print the tables and, as the last line, the JSON object."""
    tasks = [(SEED + k, classes) for k in range(WORLDS) for classes in CLASSES]
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(world, *task) for task in tasks]):
            rows += done.result()
            print(json.dumps(done.result()), flush=True)  # a run that is cut short has said something
    rows.sort(key=lambda row: (row["classes"], row["seed"], row["network"]))
    _show(rows)
    calls = [row for classes in CLASSES for row in called([r for r in rows if r["classes"] == classes], classes)]
    _show_calls(calls)
    print(
        json.dumps(
            {
                "name": "tsi-world",
                "measured": "digits with a tag outside the box; test rows, half of whose tags agree with the label",
                "agreement": AGREEMENTS,
                "patch_drop": PATCH_DROP,
                "training": TRAINING,
                "rows": rows,
                "called": calls,
                "bars": BARS,
                "passed": {f"{classes} classes": judged([r for r in rows if r["classes"] == classes]) for classes in CLASSES},
                "versions": {"python": platform.python_version(), "torch": torch.__version__},
            }
        )
    )


def judged(rows: list[dict[str, Any]]) -> dict[str, bool]:
    """What must hold, for every seed."""
    biased, balanced = ([r for r in rows if r["network"].startswith(name)] for name in ("biased", "balanced"))
    return {
        "biased network leans on the tag": all(r[k] >= bar for r in biased for k, bar in BARS.items()),
        "balanced network does not": all(r[k] < bar for r in balanced for k, bar in BARS.items()),
        "deletion by influence above Grad-CAM": all(min(r["deletion_over_gradcam_low"]) > 0 for r in biased),
    }


def called(rows: list[dict[str, Any]], classes: int) -> list[dict[str, Any]]:
    """How many networks of each kind are called by every way to a verdict, and how many it leaves open."""
    kinds = dict.fromkeys(row["network"].split()[0] for row in rows)
    found = []
    for kind in kinds:
        these = [r["verdicts"] for r in rows if r["network"].split()[0] == kind]
        ways = {way: Counter(v[way] for v in these) for way in these[0]}
        found.append(
            {
                "classes": classes,
                "network": kind,
                "networks": len(these),
                "called": {way: counts["shortcut"] for way, counts in ways.items()},
                "left_open": {way: counts["inconclusive"] for way, counts in ways.items()},
            }
        )
    return found


# ---- one world -----------------------------------------------------------------------------------------------------------


def world(seed: int, classes: int) -> list[dict[str, Any]]:
    """Networks of one seed, measured on the same test images, each judged in every way."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        cohorts: dict[str, Cohort] = {}
        for name, agreement in AGREEMENTS.items():
            settings = {**WORLD, "agreement": agreement, "classes": classes, "values": classes, "seed": seed}
            cohorts[name] = planted.digits(Path(folder) / name, **settings)
        for draw in range(1, BALANCED + 1):
            cohorts[f"balanced {draw}"] = planted.redrawn(Path(folder) / "biased", draw=draw)
        held = {name: evidence_of(cohort, seed, k, classes) for k, (name, cohort) in enumerate(cohorts.items())}
        own = {value: value for value in range(classes)}  # a balanced network's rows do not tell which label a tag stands for
        scores = {
            name: tsi.measure(evidence, rng=task_rng(seed, "tsi"), aligned=own, pictures=0, **SETTINGS)
            for name, evidence in held.items()
        }
        return [
            {
                "classes": classes,
                "seed": seed,
                "network": name,
                **measured(scores[name], held[name], seed),
                "verdicts": verdicts(scores, name, seed),
            }
            for name in held
        ]


def evidence_of(cohort: Cohort, seed: int, number: int, classes: int) -> Evidence:
    """Of a network of its own: the world's seed and the network's number start and order its training."""
    start = Classifier.load(
        "rightreasons.models.small:small_vit",
        num_classes=classes,
        size=PIXELS,
        mean=0.5,
        std=0.5,
        patch_drop=PATCH_DROP,
        rng=task_rng(seed, f"network {number}"),
    )
    model = train(start, cohort, seed=100 * seed + number, device=DEVICE, threads=1, **TRAINING)
    needs = [n for n in needs_of(["tsi"], {"tsi": SETTINGS}) if n.role == "test"]
    return extract(model, cohort, [*needs, *needs_of(["flips"])], device=DEVICE, threads=1)


def verdicts(scores: Mapping[str, tsi.Measurement], name: str, seed: int) -> dict[str, str]:
    """By the way to it: against one balanced network, against three, against twins, and against a tolerance."""
    others = [m for key, m in scores.items() if key.startswith("balanced") and key != name]
    ways: dict[str, tuple[Sequence[tsi.Measurement], dict[str, Any]]] = {
        "one balanced network": (others[:1], {}),
        "three balanced networks": (others[:3], {}),
        "twins": ((), {"against": "twins"}),
    }
    ways |= {f"tolerance {t:g}": ((), {"against": "tolerance", "tolerance": t}) for t in TOLERANCES}
    return {
        way: str(tsi.conclude({"test": [scores[name]], "baseline": baseline}, rng=task_rng(seed, "verdict"), **settings).verdict)
        for way, (baseline, settings) in ways.items()
    }


def measured(m: tsi.Measurement, evidence: Evidence, seed: int) -> dict[str, Any]:
    """Numbers of one network: where M-TSI exceeds 1, and where the strongest token lies."""
    view = evidence.on("test")
    influence = view["maps@token_influence(explain=label)"].reshape(len(view), -1)
    strongest = np.abs(influence).argmax(axis=1)
    on = on_the_tag(view.cohort)[np.arange(len(view)), strongest]
    agrees = np.asarray(view.cohort.column("agrees")).astype(bool)
    # Where only tokens outside support the class, M-TSI has no denominator; those count among all, and not as above 1.
    above = np.nan_to_num(m.maximum) > 1
    described = tsi.conclude({"test": [m]}, rng=task_rng(seed, "describing")).describing
    found = {name: column.mean for name, column in described.items()}
    gaps = [found[f"influence over gradcam, top {top}"] for top in (1, 3, 5, 10, 20)]
    return {
        "images": len(view),
        "accuracy_agreeing": _share(m.images.right[agrees]),
        "accuracy_conflicting": _share(m.images.right[~agrees]),
        "changed_by_the_twin": _change(evidence),
        "above_1": _share(above),
        "agreeing_above_1": _share(above[agrees]),
        "agreeing_above_1_by_class": [_share(above[agrees & (m.label == c)]) for c in range(len(m.classes))],
        "agreeing_undefined": _share(np.isnan(m.maximum[agrees])),
        "conflicting_above_1": _share(above[~agrees]),
        "strongest_on_the_tag": _share(on),
        "strongest_on_the_tag_agreeing": _share(on[agrees]),
        "strongest_on_the_tag_conflicting": _share(on[~agrees]),
        "right_from_inside_alone": round(float(found["right from inside alone"].value), 4),
        "right_from_outside_alone": round(float(found["right from outside alone"].value), 4),
        "deletion_over_gradcam": [round(g.value, 4) for g in gaps],
        "deletion_over_gradcam_low": [round(g.low, 4) for g in gaps],
    }


def on_the_tag(cohort: Cohort) -> np.ndarray:
    """(n, T) tokens that the tag covers."""
    boxes = cohort.column("cue_box")
    return np.stack([united(np.array(str(b).split(), float)[None], (PATCH, PATCH), GRID).ravel() > 0 for b in boxes])


def _change(evidence: Evidence) -> float:
    """Mean over images of the largest change of a probability when the tag is exchanged: what the tag does in truth."""
    images, twins = evidence.on("test"), evidence.on("twin")
    place = {i: k for k, i in enumerate(twins.cohort.id)}
    p = softmax(images["logits"], axis=1)
    q = softmax(twins["logits"], axis=1)[[place[i] for i in images.cohort.id]]
    return round(float(np.abs(p - q).max(axis=1).mean()), 4)


def _share(values: np.ndarray) -> float:
    return round(float(np.mean(values)), 4) if len(values) else float("nan")


# ---- tables --------------------------------------------------------------------------------------------------------------


def _show(rows: Iterable[dict[str, Any]]) -> None:
    table = Table(title="TSI of small ViTs on digits with a tag outside the box")
    shown = {
        "agreeing_above_1": "M-TSI > 1, tag agrees",
        "conflicting_above_1": "tag conflicts",
        "strongest_on_the_tag": "strongest token on the tag",
        "accuracy_agreeing": "right, tag agrees",
        "accuracy_conflicting": "tag conflicts",
        "changed_by_the_twin": "change by another tag",
    }
    for heading in ("classes", "seed", "network", *shown.values(), "least gain of deletion over Grad-CAM"):
        table.add_column(heading)
    for row in rows:
        cells = [f"{row[k]:.1%}" for k in shown]
        table.add_row(str(row["classes"]), str(row["seed"]), row["network"], *cells, f"{min(row['deletion_over_gradcam']):+.4f}")
    Console(width=130).print(table)
    Console().print(f"bars for the biased network: {BARS}")


def _show_calls(calls: Sequence[dict[str, Any]]) -> None:
    table = Table(title="Networks called a shortcut (and left open), by what they are compared with")
    for heading in ("classes", "network", "networks", *calls[0]["called"]):
        table.add_column(heading)
    for row in calls:
        told = [f"{n} ({row['left_open'][way]})" if row["left_open"][way] else str(n) for way, n in row["called"].items()]
        table.add_row(str(row["classes"]), row["network"], str(row["networks"]), *told)
    Console(width=130).print(table)
