"""What each mitigation gains over ERM in a planted world (worst group, balanced accuracy, flips), and what ART says of it.

Digits with a coloured tag that goes with the label in 95 % of the train and val rows and not in test rows, small CNNs,
five seeds of world and weights. Every member of the family takes part that needs no reference models; each trains and selects on
its own rows. The audit split is large enough that ART's gates have their 20 rows a group in the half that DFR and ART-head leave.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from scipy.stats import t as student

from rightreasons import families
from rightreasons.audits import art
from rightreasons.data import planted
from rightreasons.data.cohort import Cohort
from rightreasons.errors import RightReasonsError
from rightreasons.extraction import extract, read
from rightreasons.mitigations import mitigate, references_of
from rightreasons.models.classifier import Classifier
from rightreasons.models.starting import fresh
from rightreasons.models.training import evaluate, train
from rightreasons.stats.resampling import task_rng

NEEDS_GPU = False

AGREEMENT = 0.95
ALIGNED = {0: 0, 1: 1}
FRACTIONS = {"train": 0.36, "val": 0.20, "audit": 0.30, "test": 0.14}
SEEDS = (0, 1, 2, 3, 4)
TRAINING: dict[str, Any] = {"epochs": 12, "lr": 3e-3}
OWN: dict[str, dict[str, Any]] = {
    "balanced": {"epochs": 60, "batch": 16, "patience": None}
}  # few rows are left: smaller batches, more passes
BARS = {"balanced": 0.10, "groupdro": 0.10, "dfr": 0.10, "jtt": 0.05}
KEPT = 0.05  # of the balanced accuracy, that the unlearning variants may cost
METRICS = ("wga", "balanced_accuracy", "flips")


def main(arguments: list[str] | None = None) -> None:
    """Print the table and, as the last line, the JSON object."""
    given = options(arguments)
    os.environ["RIGHTREASONS_QUIET"] = "1"
    methods = [name for name in families.members("mitigations") if name != "erm" and not references_of(name)]
    methods = [name for name in methods if not given.methods or name in given.methods]
    began = time.perf_counter()
    for seed in given.seeds:
        world(given.folder, seed)  # before the workers look for it
    units = [(name, seed) for seed in given.seeds for name in ("erm", *methods)]
    first = [unit for unit in units if unit[0] == "erm"]
    work = [(given.folder, given.device) for _ in units]
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        found = dict(zip(first, pool.map(run, first, work[: len(first)]), strict=True))  # the others start from it
        rest = [unit for unit in units if unit[0] != "erm"]
        found |= dict(zip(rest, pool.map(run, rest, work[: len(rest)]), strict=True))
    told = {name: summary(name, found, given.seeds) for name in ("erm", *methods)}
    show(told, given.seeds)
    print(
        json.dumps(
            {
                "name": "mitigations",
                "agreement": AGREEMENT,
                "fractions": FRACTIONS,
                "seeds": list(given.seeds),
                "device": given.device,
                "methods": told,
                "seconds": round(time.perf_counter() - began, 1),
                "versions": {"python": platform.python_version(), "numpy": np.__version__, "torch": torch.__version__},
            }
        )
    )


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mitigations", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="processes, one thread each")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--methods", nargs="*", default=(), help="all that exist by default")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("build/mitigations"),
        help="a second run does what is missing there; remove it to measure anew",
    )
    # `make bench NAME=mitigations` calls main() with the name in sys.argv
    return parser.parse_args([] if arguments is None else arguments)


def world(folder: Path, seed: int) -> Cohort:
    return planted.digits(folder / f"world-{seed}", agreement=AGREEMENT, fractions=FRACTIONS, seed=seed)


def run(unit: tuple[str, int], where: tuple[Path, str]) -> dict[str, Any]:
    """One method and seed: its numbers, from the folder where they were found before."""
    (method, seed), (folder, device) = unit, where
    place = folder / f"{method}-{seed}" / device
    file = place / "result.json"
    if file.exists():
        done: dict[str, Any] = json.loads(file.read_text())
        return done
    torch.set_num_threads(1)
    began = time.perf_counter()
    cohort = world(folder, seed)
    try:
        model = made(method, seed, cohort, folder, device)
        told = {
            **scores(model, cohort, device),
            "art": restored(model, cohort, device),
            "seconds": round(time.perf_counter() - began, 1),
            "chosen": chosen(model),
        }
    except RightReasonsError as error:  # a method that cannot run on this seed is shown and leaves its mean
        told = {"not_run": str(error), "seconds": round(time.perf_counter() - began, 1)}
    place.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(told))
    partial.replace(file)
    return told


def made(method: str, seed: int, cohort: Cohort, folder: Path, device: str) -> Classifier:
    """The model of one method; ERM is as its users train it, stopped on rows that are biased like the train rows."""
    start = Classifier.load(
        "rightreasons.models.small:small_cnn", num_classes=2, classes=cohort.classes, size=(32, 32), mean=0.5, std=0.5
    )
    start = fresh(start, task_rng(seed, "starting weights"), "fresh")
    settings: dict[str, Any] = {"device": device, "threads": 1}
    base = folder / f"erm-{seed}" / device / "model"
    erm = train(start, cohort, seed=seed, folder=base, patience=None, **TRAINING, **settings)
    if method == "erm":
        return erm
    module = families.member("mitigations", method)
    own = {**TRAINING, **OWN.get(method, {})} if module.STARTS == "start" else {}
    known = families.settings_of(module.mitigate)
    place = folder / f"{method}-{seed}" / device / "work"
    settings |= {key: value for key, value in {**own, "folder": place}.items() if key in known}
    return mitigate(method, erm, cohort, seed=seed, **settings)


def scores(model: Classifier, cohort: Cohort, device: str) -> dict[str, float]:
    """On test rows, and flips: the share of them whose decision changes with nothing but the tag."""
    test = cohort.on("test")
    logits, other = (read(model, rows, device=device, threads=1)["logits"] for rows in (test, test.twins()))
    found = evaluate(logits, test.label, test.attribute().values)
    return {**{name: found[name] for name in METRICS[:2]}, "flips": float((logits.argmax(1) != other.argmax(1)).mean())}


def restored(model: Classifier, cohort: Cohort, device: str) -> dict[str, Any]:
    """What ART says of a model, with the rows that it was not fitted on."""
    evidence = extract(model, cohort, "art", device=device, threads=1)
    found = art.measure(evidence, rng=task_rng(0, "art measure"), aligned=ALIGNED).scalars()
    kept = (
        "verdict", "taxonomy", "effect", "delta_csr", "delta_wga", "p", "open_gates", "csr", "wga", "probe", "swing",
        "swing_excess",
    )  # fmt: skip
    return {name: None if isinstance(found[name], float) and np.isnan(found[name]) else found[name] for name in kept}


def chosen(model: Classifier) -> dict[str, Any]:
    told = model.card.get("mitigation", {})
    return {
        "by": told.get("selected_by", "validation macro F1"),
        **{k: v for k, v in told.get("chosen", {}).items() if k != "tried"},
    }


def summary(method: str, found: dict[tuple[str, int], dict[str, Any]], seeds: tuple[int, ...]) -> dict[str, Any]:
    """Means over seeds, and the gain over ERM of the same seed with Student's interval."""
    ran = [seed for seed in seeds if "not_run" not in found[method, seed]]
    told: dict[str, Any] = {"seeds": len(ran), "not_run": {str(s): found[method, s]["not_run"] for s in seeds if s not in ran}}
    told["seconds"] = round(float(np.mean([found[method, seed]["seconds"] for seed in seeds])), 1)
    if not ran:
        return told
    for name in METRICS:
        own = np.array([found[method, seed][name] for seed in ran])
        told[name] = round(float(own.mean()), 4)
        if method != "erm":
            gain = own - np.array([found["erm", seed][name] for seed in ran])
            half = student.ppf(0.975, len(gain) - 1) * gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.nan
            limits = [None if np.isnan(half) else round(float(gain.mean() + side * half), 4) for side in (-1, 1)]
            told[f"{name}_gain"], told[f"{name}_gain_interval"] = round(float(gain.mean()), 4), limits
    said = [found[method, seed]["art"] for seed in ran]
    told["art"] = {
        "shortcut": sum(one["verdict"] == "shortcut" for one in said),
        "taxonomy": dict(Counter(one["taxonomy"] or "undecided" for one in said)),
        **{
            f"{name}_by_seed": [None if one[name] is None else round(one[name], 4) for one in said]
            for name in ("delta_csr", "delta_wga", "p", "swing", "swing_excess")
        },
    }
    chosen = [found[method, seed]["chosen"] for seed in ran]
    if method == "art_head":
        told["beats_control"] = sum(bool(one["beats_control"]) for one in chosen)
        told["restored"] = [round(one["restored"], 3) for one in chosen]
        told["restored_control"] = [round(one["control"]["restored"], 3) for one in chosen]
    if method == "groupdro":
        told["rare_groups_weigh_more"] = sum(_rare_weigh_more(one) for one in chosen)
    told["wga_by_seed"] = {str(seed): round(found[method, seed]["wga"], 4) for seed in ran}
    if method != "erm":
        told["above_erm"] = sum(found[method, seed]["wga"] > found["erm", seed]["wga"] for seed in ran)
    if method in BARS:
        told["bar"], told["holds"] = BARS[method], bool(told["wga_gain"] >= BARS[method])
    elif method != "erm":
        told["task_kept"] = bool(told["balanced_accuracy_gain"] >= -KEPT)
    return told


def _rare_weigh_more(chosen: dict[str, Any]) -> bool:
    """Whether every group with less than its even share of the rows ended with a weight above its share."""
    share, weight = chosen["share of rows"], chosen["group weights"]
    return all(weight[name] > part for name, part in share.items() if part < 1 / len(share))


def show(told: dict[str, dict[str, Any]], seeds: tuple[int, ...]) -> None:
    table = Table(
        "method",
        "WGA",
        "gain over ERM [95 %]",
        "above ERM",
        "balanced accuracy",
        "flips",
        "ART: shortcut",
        "swing by seed",
        "seconds",
    )
    table.title = f"Mitigations of a planted shortcut, {AGREEMENT:.0%} agreement, {len(seeds)} seeds, test rows"
    for name, of in told.items():
        if "wga" not in of:
            table.add_row(name, "not run", next(iter(of["not_run"].values()))[:60], *[""] * 6)
            continue
        gain = ""
        if name != "erm":
            low, high = of["wga_gain_interval"]
            gain = f"{of['wga_gain']:+.3f}" + ("" if low is None else f" [{low:+.3f}, {high:+.3f}]")
        above = f"{of['above_erm']} of {of['seeds']}" if "above_erm" in of else ""
        numbers = (f"{of['wga']:.3f}", gain, above, f"{of['balanced_accuracy']:.3f}", f"{of['flips']:.3f}")
        changes = " ".join("closed" if x is None else f"{x:+.2f}" for x in of["art"]["swing_by_seed"])
        table.add_row(name, *numbers, f"{of['art']['shortcut']} of {of['seeds']}", changes, str(of["seconds"]))
    Console(width=190 if not sys.stdout.isatty() else None).print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
