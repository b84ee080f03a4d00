"""When does CCR take a cue from a model? Fundus-like worlds, small stand-ins; strengths, operators, severities, parts of it.

Internal test rows have the cue as the training rows have it, external ones have it without association. A true flip is the change
of probability when the twin has the other value of the cue. `SEEDS=1 WORKERS=10 CUES=rim,cast NETWORKS=resnet,vit
OUT=rows.jsonl make bench NAME=ccr-world`; rows are written as they come.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from rightreasons.audits.sdi.severities import read_severities
from rightreasons.data import planted
from rightreasons.data.cohort import Cohort
from rightreasons.extraction import read
from rightreasons.extraction.severities import calibrate
from rightreasons.mitigations import ccr
from rightreasons.models.classifier import Classifier
from rightreasons.models.training import train
from rightreasons.stats.groups import auc
from rightreasons.stats.resampling import task_rng

NEEDS_GPU = False

SEEDS = int(os.environ.get("SEEDS", "1"))
WORKERS = int(os.environ.get("WORKERS", str(os.cpu_count() or 1)))
DEVICE = os.environ.get("DEVICE", "cpu")
ROWS = int(os.environ.get("ROWS", "2600"))
EPOCHS = int(os.environ.get("EPOCHS", "20"))
PIXELS = 32
AGREEMENT = 0.95
CUES = tuple(os.environ.get("CUES", "rim,cast").split(","))
STAND_INS: dict[str, dict[str, Any]] = {
    "resnet": {"spec": "rightreasons.models.small:small_cnn", "width": 8},
    "efficientnet": {"spec": "timm:test_efficientnet"},
    "vit": {"spec": "rightreasons.models.small:small_vit", "dim": 48, "depth": 3},
}
NETWORKS = tuple(os.environ.get("NETWORKS", ",".join(STAND_INS)).split(","))
# Reference severities at which the operator that takes the cue takes all of it.
WHOLE = {"rim": {"border": 0.4}, "cast": {"histogram": 1.0}}
OTHERS = ["illumination", "blur", "periphery", "tags"]  # leave rim and cast as they are


def trials() -> dict[str, dict[str, Any]]:
    """Name → settings of CCR; those of `severities` are files of `prepare`."""
    strong: dict[str, Any] = {"strength": 10.0}
    return {
        **{f"strength {s:g}": {"strength": float(s)} for s in (3, 10, 30)},
        "10, all operators": {**strong, "operators": "all"},
        "10, all operators, drawn alike": {**strong, "operators": "all", "focus": False},
        "10, operators that leave the cue": {**strong, "operators": OTHERS},
        "10, uncalibrated": {**strong, "severities": None},
        "10, a remnant left": {**strong, "severities": "remnant.json"},
        "10, no representation": {**strong, "representation": 0.0},
        "10, no prediction": {**strong, "prediction": 0.0},
        "10, no sensitivity": {**strong, "sensitivity": 0.0},
        "10, no invariance": {**strong, "prediction": 0.0, "representation": 0.0},
    }


def main() -> None:
    """Print the table and, as the last line, the JSON object."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        list(pool.map(world, [folder] * len(CUES), CUES))
        grid = [(seed, cue, net) for seed in range(SEEDS) for cue in CUES for net in NETWORKS]
        _gather(rows, [pool.submit(prepare, folder, *each) for each in grid])
        asked = [(*each, trial) for trial in trials() for each in grid]
        _gather(rows, [pool.submit(one, folder, *each) for each in asked])
    _show(rows)
    print(json.dumps({"name": "ccr-world", "agreement": AGREEMENT, "rows": rows}))


def _gather(rows: list[dict[str, Any]], running: list[Future[list[dict[str, Any]]]]) -> None:
    for done in as_completed(running):
        for row in done.result():
            rows.append(row)
            if out := os.environ.get("OUT"):
                with Path(out).open("a") as stream:
                    stream.write(json.dumps(row) + "\n")


def world(folder: str, cue: str) -> None:
    torch.set_num_threads(1)
    planted.fundus(
        Path(folder) / cue, n=ROWS, n_external=1000, pixels=PIXELS, cue=cue, agreement=AGREEMENT, agreement_test=AGREEMENT,
        lesion_contrast=0.85, fractions={"train": 0.6, "val": 0.12, "audit": 0.03, "test": 0.25},
    )  # fmt: skip
    planted.redrawn(Path(folder) / cue)


RUNNING: dict[str, Any] = {"device": DEVICE, "threads": 1, "workers": 1}
COMMON: dict[str, Any] = {"epochs": EPOCHS, "lr": 2e-3, "amp": False, "patience": None, **RUNNING}


def prepare(folder: str, seed: int, cue: str, net: str) -> list[dict[str, Any]]:
    """A baseline and a model of redrawn rows, and severities calibrated on both: as they should be, and too weak for the cue."""
    torch.set_num_threads(1)
    place, rows, models = Path(folder) / cue, [], {}
    for name, manifest in (("baseline", "manifest"), ("redrawn", "redrawn")):
        began, cohort = time.perf_counter(), planted.read(place, manifest)
        models[name] = train(_network(net, seed), cohort, stop_on="loss", seed=seed, **COMMON)
        rows.append(_row(models[name], place, seed, cue, net, name, began))
    for file, references in (("severities.json", WHOLE.get(cue)), ("remnant.json", None)):
        calibrate(
            models["baseline"], planted.read(place), reference=models["redrawn"], references=references,
            out=_files(place, net, seed) / file,
        )  # fmt: skip
    return rows


def one(folder: str, seed: int, cue: str, net: str, trial: str) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    place, began = Path(folder) / cue, time.perf_counter()
    settings = {"severities": "severities.json", **trials()[trial]}
    if settings["severities"]:
        settings["severities"] = str(_files(place, net, seed) / settings["severities"])
    if settings.get("operators") == "all":
        settings["operators"] = [o.operator for o in read_severities(settings["severities"]).used]
    rng = np.random.default_rng(seed)
    new = ccr.mitigate(_network(net, seed), planted.read(place), rng=rng, select="loss", **settings, **COMMON)
    return [_row(new, place, seed, cue, net, trial, began)]


def _files(place: Path, net: str, seed: int) -> Path:
    return place / f"{net}-{seed}"


def _network(net: str, seed: int) -> Classifier:
    told = dict(STAND_INS[net])
    return Classifier.load(
        told.pop("spec"), num_classes=2, classes=(0, 1), size=(PIXELS, PIXELS), mean=0.5, std=0.5,
        rng=task_rng(seed, "starting weights"), **told,
    )  # fmt: skip


def _row(model: Classifier, place: Path, seed: int, cue: str, net: str, trial: str, began: float) -> dict[str, Any]:
    found = judged(model, planted.read(place), planted.read(place, "external"))
    told = {"seed": seed, "cue": cue, "network": net, "trial": trial, "epoch": model.card["selected_epoch"]}
    return {**told, **found, "seconds": time.perf_counter() - began}


def judged(model: Classifier, cohort: Cohort, external: Cohort) -> dict[str, float]:
    def says(rows: Cohort) -> np.ndarray:
        logits = read(model, rows, ("logits",), **RUNNING)["logits"].astype(np.float64)
        return 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))

    val, test = cohort.on("val"), cohort.on("test")
    inside, outside = auc(test.label, says(test)), auc(external.label, says(external))
    twins = test.twins()
    towards = np.where(twins.attribute().values == 1, 1, -1)
    return {
        "validation AUC": auc(val.label, says(val)),
        "internal AUC": inside,
        "external AUC": outside,
        "ΔAUC": inside - outside,
        "true flip": float(np.mean(towards * (says(twins) - says(test)))),
    }


def _show(rows: list[dict[str, Any]]) -> None:
    numbers = ("validation AUC", "internal AUC", "external AUC", "ΔAUC", "true flip", "seconds")
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["cue"], row["network"], row["trial"]), []).append(row)
    table = Table(title=f"CCR in fundus-like worlds, agreement {AGREEMENT}, means over seeds")
    for column in ("cue", "network", "trial", "seeds", *numbers):
        table.add_column(column)
    for key, found in sorted(
        groups.items(), key=lambda item: (item[0][:2], ["baseline", "redrawn", *trials()].index(item[0][2]))
    ):
        table.add_row(*key, str(len(found)), *(f"{np.mean([row[name] for row in found]):.3f}" for name in numbers))
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
