"""One world: train its references and its models, measure their true reliance with the twins, audit them without."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks._digits import PLAN
from benchmarks.worlds import rivals
from benchmarks.worlds.kinds import PROJECTED, SIDE, TWO_TASKS, World

from rightreasons.audits import audit, needs_of
from rightreasons.case import cases
from rightreasons.data import planted
from rightreasons.data.cohort import Cohort
from rightreasons.errors import NotRun
from rightreasons.evidence import Evidence
from rightreasons.findings import Finding
from rightreasons.mitigations import gradient_scaling
from rightreasons.mitigations._contract import read
from rightreasons.models.classifier import Classifier
from rightreasons.models.extraction import extract
from rightreasons.models.training import train
from rightreasons.perturbations.calibration import calibrate
from rightreasons.stats.resampling import task_rng

BASELINES, ATTRIBUTES = 4, 2
ATTRIBUTE = "cue"
NETWORKS = {"cnn": ("small_cnn", PLAN), "vit": ("small_vit", {**PLAN, "epochs": 20, "lr": 1e-3, "warmup": 2.0})}
# Fewer draws than a user would take: the rate of verdicts is what is measured, not the digits of a p-value.
SETTINGS: dict[str, dict[str, Any]] = {
    "groups": {"B": 200},
    "probes": {"B": 200},
    "art": {"controls": 200, "B": 300},
    "oscar": {"B": 1000, "pictures": 1},
    "sdi": {"B": 500},
    "tsi": {"B": 1000, "pictures": 1},
}


def judged(world: World, tests: int) -> list[dict[str, Any]]:
    """A row for every judged model: what it is, its true reliance, what every audit, the case and the rivals say."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        cohort = world.make(Path(folder) / "world")
        free = planted.redrawn(Path(folder) / "world") if world.cue != "none" else cohort
        hidden, hidden_free = without_twins(cohort), without_twins(free)
        severities = str(Path(folder) / "severities.json")
        references = {
            "baseline": [trained(world, hidden_free, f"baseline {k}") for k in range(BASELINES)],
            "attribute": [trained(world, hidden_free, f"attribute {k}", ATTRIBUTE) for k in range(ATTRIBUTES)],
        }
        rows = []
        seen: dict[str, list[Evidence]] = {}
        for k, model in enumerate(models(world, cohort, free, tests)):
            if not k:
                calibrate(model, hidden, reference=references["baseline"][0], out=severities)
                compared = tuple(name for name in AUDITS[world.architecture] if name in ("oscar", "tsi"))
                seen = {role: [_seen(m, hidden, compared) for m in members] for role, members in references.items()}
            rows.append(row(world, k, model, cohort, hidden, seen, severities))
        return rows


def models(world: World, cohort: Cohort, free: Cohort, tests: int) -> Iterator[Classifier]:
    for k in range(tests):
        if world.models == TWO_TASKS:
            yield two_tasks(world, free, f"two tasks {k}")
        else:
            model = trained(world, cohort, f"model {k}")
            yield projected(model, cohort) if world.models == PROJECTED else model


def without_twins(cohort: Cohort) -> Cohort:
    """What an audit may see: the same rows, and nothing of the intervention."""
    names = ("id", "image", "label", ATTRIBUTE, "split", "box", "mask")
    columns = {name: cohort.column(name) for name in names if name in cohort.columns}
    place = {name: name for name in ("split", "box", "mask") if name in columns}
    return Cohort.from_columns(columns, image="image", id="id", label="label", attribute=[ATTRIBUTE], root=cohort.root, **place)


# ---- models --------------------------------------------------------------------------------------------------------------


def start(world: World, classes: tuple[Any, ...], number: int) -> Classifier:
    return Classifier.load(
        f"rightreasons.models.small:{NETWORKS[world.architecture][0]}", num_classes=len(classes), classes=classes,
        size=(SIDE, SIDE), mean=0.5, std=0.5, rng=np.random.default_rng(number),
    )  # fmt: skip


def trained(world: World, cohort: Cohort, name: str, target: str | None = None) -> Classifier:
    number = int(task_rng(world.seed, f"{world.name} {name}").integers(2**31))
    classes = cohort.classes if target is None else cohort.attribute(target).levels
    plan = {**NETWORKS[world.architecture][1], "threads": 1, "device": "cpu"}
    return train(start(world, classes, number), cohort, target=target, seed=number, **plan)


def two_tasks(world: World, free: Cohort, name: str) -> Classifier:
    """It learns to tell the cue beside the label, where they have nothing to do with each other: encoded, and no use for it."""
    rng = task_rng(world.seed, f"{world.name} {name}")
    begin = start(world, free.classes, int(rng.integers(2**31)))
    plan = {**NETWORKS[world.architecture][1], "threads": 1, "device": "cpu"}
    return gradient_scaling.mitigate(begin, free, rng=rng, scale=1.0, hidden=(), **plan)


def projected(model: Classifier, cohort: Cohort) -> Classifier:
    """The direction in which the cue moves the features, by the twins of the training rows, taken out of the head's weights."""
    rows = cohort.on("train")
    moved = read(model, rows.twins(), ["features"])["features"] - read(model, rows, ["features"])["features"]
    sign = np.where(rows.attribute(ATTRIBUTE).values > 0, -1.0, 1.0)
    _, _, directions = np.linalg.svd(np.asarray(moved * sign[:, None], dtype=np.float64), full_matrices=False)
    u = torch.from_numpy(directions[:1]).float()
    new = model.copy()
    with torch.no_grad():
        weight = new.module.get_submodule(new.cut.head[-1]).weight
        weight -= weight @ u.T @ u
    return new


# ---- verdicts ------------------------------------------------------------------------------------------------------------


def row(
    world: World, k: int, model: Classifier, cohort: Cohort, hidden: Cohort, seen: Mapping[str, list[Evidence]], severities: str
) -> dict[str, Any]:
    truth = audit("flips", extract(model, cohort, "flips", threads=1), B=200, pictures=0).measurements[0]
    evidence = _seen(model, hidden, AUDITS[world.architecture], severities)
    told: dict[str, Any] = {
        "world": world.name, "kind": world.kind, "base": world.base, "cue": world.cue, "architecture": world.architecture,
        "seed": world.seed, "model": k, "is_null": world.is_null, **world.settings, "reliance": truth.absolute.value,
        "flips": truth.flips.value,
    }  # fmt: skip
    findings: list[Finding] = []
    for name in AUDITS[world.architecture]:
        began = time.process_time()
        finding = _finding(name, evidence, seen, severities)
        findings += [finding] if finding else []
        told[f"{name} verdict"] = str(finding.verdict) if finding else "not run"
        told[f"{name} p"] = finding.estimates[0].p if finding and finding.estimates else None
        told[f"{name} seconds"] = round(time.process_time() - began, 2)
    case = cases(findings)[0]
    told |= {"case verdict": str(case.verdict), "case score": case.score}
    return told | rivals.scores(evidence, cohort)


AUDITS = {"cnn": ("groups", "probes", "art", "oscar", "sdi"), "vit": ("groups", "probes", "art", "oscar", "sdi", "tsi")}


def _finding(name: str, evidence: Evidence, seen: Mapping[str, list[Evidence]], severities: str) -> Finding | None:
    settings = dict(SETTINGS[name])
    roles: dict[str, Any] = {"test": evidence}
    if name in ("oscar", "tsi"):
        roles |= {role: members for role, members in seen.items() if role == "baseline" or name == "oscar"}
    if name == "sdi":
        settings["severities"] = severities
    try:
        found: Finding = audit(name, roles, **settings).finding()
    except NotRun:
        return None
    return found


def _seen(model: Classifier, cohort: Cohort, audits: Sequence[str], severities: str | None = None) -> Evidence:
    return extract(model, cohort, needs_of(audits, {"sdi": {"severities": severities}} if "sdi" in audits else {}), threads=1)
