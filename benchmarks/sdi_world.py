"""SDI's verdicts on CNNs trained in planted worlds: what is called, by which rule, and how strong the operators may be.

In every world (eyes with a rim, a notch, a gradient, a cast or a blur; digits with a tag or a ring; eyes without a cue) CNNs are
trained on rows in which the cue goes with the label (`biased` 95 %, `weak` 80 %), on the same rows with the cue drawn again
(`balanced`), and there on the cue as a second task (`two tasks`: encoded, not used). Severities are calibrated on the biased
model with a balanced reference; SCALES multiply the reference severities, because a verdict should not hang on them.

`SEED=1 SEEDS=5 WORKERS=14 make bench NAME=sdi-world` for the whole table; the default is smaller. CUES names worlds, KINDS the
models, ROWS a .csv that gets a line for every model, operator and scale as worlds are done.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from benchmarks._digits import PLAN
from rich.console import Console
from rich.table import Table
from scipy.special import softmax
from scipy.stats import binomtest

from rightreasons.audits import needs_of, sdi
from rightreasons.audits.sdi.severities import REFERENCE
from rightreasons.data import planted
from rightreasons.data.cohort import Cohort
from rightreasons.extraction import extract
from rightreasons.extraction.severities import calibrate
from rightreasons.mitigations import gradient_scaling
from rightreasons.models.classifier import Classifier
from rightreasons.models.training import train
from rightreasons.progress import track
from rightreasons.stats.resampling import task_rng

NEEDS_GPU = False

CUES = tuple(os.environ.get("CUES", "rim,cast,blur,tag,none").split(","))
SEED = int(os.environ.get("SEED", "0"))
SEEDS = int(os.environ.get("SEEDS", "1"))
WORKERS = int(os.environ.get("WORKERS", str(os.cpu_count() or 1)))
SCALES = tuple(float(s) for s in os.environ.get("SCALES", "1").split(","))
BALANCED = int(os.environ.get("BALANCED", "2"))  # models judged, beside the one that calibration refers to
N = int(os.environ.get("N", "2000"))
ROWS = os.environ.get("ROWS", "")
KINDS = tuple(os.environ.get("KINDS", "weak,balanced,two tasks").split(","))  # beside the biased model

DIGITS = ("tag", "ring")
SIDE = 32
FRACTIONS = {"train": 0.6, "val": 0.08, "audit": 0.16, "test": 0.16}
BIASED, WEAK, FREE, TWO, NONE = "biased", "weak", "balanced", "two tasks", "no cue"
DRAWS = 1_000


def main() -> None:
    """Print the tables and, as the last line, the JSON object."""
    start = time.perf_counter()
    done: list[dict[str, Any]] = []
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(world, cue, 1_000 * SEED + number) for number in range(SEEDS) for cue in CUES]
        for one in track(as_completed(waiting), "worlds", total=len(waiting)):
            done += one.result()
            if ROWS:
                pd.DataFrame(done).to_csv(ROWS, index=False, float_format="%.5g")
    rows = pd.DataFrame(done)
    models = rows.drop_duplicates(["cue", "seed", "scale", "kind", "model"])
    verdicts = [_verdicts(key, of) for key, of in models.groupby(["scale", "kind"], sort=False)]
    by_cue = [_verdicts(key, of) for key, of in models[models.scale == SCALES[0]].groupby(["cue", "kind"], sort=False)]
    show("called a shortcut, by scale of the reference severities", ("scale", "models"), verdicts)
    show(f"called a shortcut, by cue, at scale {SCALES[0]:g}", ("cue", "models"), by_cue)
    operators = _operators(rows[rows.scale == SCALES[0]])
    show("the operators that take the cue (medians)", ("cue", "models", "operator"), operators)
    told = {"name": "sdi-world", "measured": "share of trained CNNs that SDI calls a shortcut, by rule"}
    print(json.dumps({**told, "seeds": SEEDS, "rows": verdicts, "seconds": round(time.perf_counter() - start)}))


def world(cue: str, seed: int) -> list[dict[str, Any]]:
    """Every model of one world, at every scale; a line for each operator."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        cohorts = {BIASED: _world(home / "biased", cue, 0.95, seed), FREE: planted.redrawn(home / "biased")}
        if WEAK in KINDS:
            cohorts[WEAK] = _world(home / "weak", cue, 0.8, seed)
        models = dict(_models(cue, cohorts, seed))
        baseline = next(iter(models))
        found = []
        for scale in SCALES:
            path = home / f"severities-{scale:g}.json"
            calibrate(
                models[baseline], cohorts[BIASED], reference=models["reference"], out=path,
                references={name: min(1.0, scale * top) for name, top in REFERENCE.items()},
            )  # fmt: skip
            for name, model in models.items():
                if name != "reference":
                    found += _judged(model, cohorts[BIASED], cue, str(path), {"seed": seed, "scale": scale, "model": name})
        return found


def _world(folder: Path, cue: str, agreement: float, seed: int) -> Cohort:
    if cue in DIGITS:
        return planted.digits(folder, cue=cue, agreement=agreement, fractions=FRACTIONS, seed=seed)
    return planted.fundus(folder, n=N, n_external=0, pixels=SIDE, cue=cue, agreement=agreement, fractions=FRACTIONS, seed=seed)


def _models(cue: str, cohorts: dict[str, Cohort], seed: int) -> Iterator[tuple[str, Classifier]]:
    if cue == "none":
        yield from ((f"{NONE} {k}", _trained(cohorts[BIASED], seed, f"{NONE} {k}")) for k in range(BALANCED))
    else:
        yield BIASED, _trained(cohorts[BIASED], seed, BIASED)  # first, because severities are calibrated on it
        if WEAK in KINDS:
            yield WEAK, _trained(cohorts[WEAK], seed, WEAK)
        if FREE in KINDS:
            yield from ((f"{FREE} {k}", _trained(cohorts[FREE], seed, f"{FREE} {k}")) for k in range(BALANCED))
        if TWO in KINDS:
            yield TWO, _two_tasks(cohorts[FREE], seed)
    yield "reference", _trained(cohorts[FREE], seed, "reference")


def _start(cohort: Cohort, number: int) -> Classifier:
    return Classifier.load(
        "rightreasons.models.small:small_cnn", num_classes=2, classes=cohort.classes, size=(SIDE, SIDE), mean=0.5, std=0.25,
        rng=np.random.default_rng(number),
    )  # fmt: skip


def _trained(cohort: Cohort, seed: int, name: str) -> Classifier:
    number = int(task_rng(seed, name).integers(2**31))
    return train(_start(cohort, number), cohort, seed=number, threads=1, device="cpu", **{**PLAN, "epochs": 10})


def _two_tasks(cohort: Cohort, seed: int) -> Classifier:
    rng = task_rng(seed, TWO)
    start = _start(cohort, int(rng.integers(2**31)))
    plan = {**PLAN, "epochs": 10, "threads": 1, "device": "cpu"}
    return gradient_scaling.mitigate(start, cohort, rng=rng, scale=1.0, hidden=(), **plan)


def _judged(model: Classifier, cohort: Cohort, cue: str, severities: str, told: dict[str, Any]) -> list[dict[str, Any]]:
    needs = [*needs_of(["sdi"], {"sdi": {"severities": severities}}), *needs_of(["flips"])]
    evidence = extract(model, cohort, needs, threads=1)
    m = sdi.measure(evidence, rng=task_rng(0, "sdi measure"), severities=severities, B=DRAWS)
    results = {
        rule: sdi.conclude({"test": [m]}, rng=task_rng(0, "sdi"), severities=severities, decide=rule) for rule in sdi.RULES
    }
    cue_rule, ratio_rule = results["cue"], results["ratio"]
    of_features = (m.features.r_sc.low > 1) & cue_rule.touches
    kind = told["model"].rsplit(" ", 1)[0] if told["model"][-1].isdigit() else told["model"]
    whole = {
        "cue": cue, "kind": kind, **told, "flip": _flip(evidence), "verdict": cue_rule.verdict, "ratio": ratio_rule.verdict,
        "features": "shortcut" if of_features.any() else "", "probe": m.probe.clean.value, "AUC_nc": m.probe.auc.value,
        "cue effect": m.effect.cue.value, "label effect": m.effect.label.value,
    }  # fmt: skip
    drop, taken, features, head = m.probe.drop, m.effect.taken, m.features, m.head
    return [
        {
            **whole, "operator": name, "severity": m.operators.severity[k], "status": m.operators.status[k],
            "touches": bool(cue_rule.touches[k]), "sees": bool(cue_rule.sees[k]), "fall": drop.value[k],
            "taken": taken.value[k], "low": taken.low[k], "high": taken.high[k], "p": cue_rule.adjusted_taken[k],
            "left of cue": m.effect.left_cue.value[k], "left of label": m.effect.left_label.value[k],
            "S_nc": features.s_nc.value[k], "S_c": features.s_c.value[k], "R_sc": features.r_sc.value[k],
            "head S_nc": head.s_nc.value[k], "head S_c": head.s_c.value[k], "head R_sc": head.r_sc.value[k],
            "head R_sc low": head.r_sc.low[k],
        }
        for k, name in enumerate(m.operators.name)
    ]  # fmt: skip


def _flip(evidence: Any) -> float:
    """What changing the cue alone does to the probability of the label that the cue goes with."""
    test, twin = evidence.on("test"), evidence.on("twin")
    p, q = (softmax(view["logits"], axis=1)[:, -1] for view in (test, twin))
    a, b = (np.asarray(view.cohort.attribute().values, dtype=float) for view in (test, twin))
    return float(np.mean((q - p) * np.sign(b - a)))


def _verdicts(key: tuple[Any, ...], of: pd.DataFrame) -> dict[str, Any]:
    called = int((of.verdict == "shortcut").sum())
    limits = binomtest(called, len(of)).proportion_ci(method="exact")
    return {
        **dict(zip(("of", "models"), key)),
        "n": len(of),
        "called": round(called / len(of), 3),
        "low": round(float(limits.low), 3),
        "high": round(float(limits.high), 3),
        "no evidence": round(float((of.verdict == "no evidence").mean()), 3),
        "by head-read R_sc": round(float((of.ratio == "shortcut").mean()), 3),
        "by R_sc of features": round(float((of.features == "shortcut").mean()), 3),
        "true flip": f"{of.flip.mean():+.3f} ({of.flip.min():+.3f} to {of.flip.max():+.3f})",
        "probe of the cue": round(float(of.probe.mean()), 3),
        "cue's effect": round(float(of["cue effect"].mean()), 3),
    }


def _operators(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Medians over models, of operators that take the cue from the features of half of the models of a kind or more."""
    found = []
    columns = [
        "severity",
        "fall",
        "taken",
        "left of cue",
        "left of label",
        "S_nc",
        "S_c",
        "R_sc",
        "head S_nc",
        "head S_c",
        "head R_sc",
    ]
    for key, of in rows.groupby(["cue", "kind", "operator"], sort=False):
        if of.touches.mean() >= 0.5:
            found.append({**dict(zip(("of", "models", "operator"), key)), **of[columns].median().round(3).to_dict()})
    return found


def show(title: str, first: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    table = Table(title=title)
    for k, column in enumerate(rows[0]):
        table.add_column(first[k] if k < len(first) else column, justify="left" if k < len(first) else "right")
    for row in rows:
        table.add_row(*(f"{v:g}" if isinstance(v, float) else str(v) for v in row.values()))
    Console(width=220).print(table)


if __name__ == "__main__":
    main()
