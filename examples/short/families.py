"""Families of small CNNs on several versions of the data, trained as batched models: what ShorT says of each and between them.

A version is a cohort with its own train, val and test rows. All families are judged on the test rows of the first version; the
matrix of training and test sets has the others, for the baseline models.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

import rightreasons as rr
from rightreasons.audits import short
from rightreasons.data.cohort import Cohort
from rightreasons.data.facts import Facts
from rightreasons.errors import TrainingError
from rightreasons.evidence import Evidence
from rightreasons.findings import Finding
from rightreasons.mitigations import gradient_scaling
from rightreasons.models.batched import train_batched
from rightreasons.models.classifier import Classifier
from rightreasons.report import figures
from rightreasons.report.standalone import standalone
from rightreasons.stats.resampling import task_rng

FIGURES = {
    "Encoding over the family": "encoding",
    "Fairness against performance": "performance",
    "Disparity against encoding": "disparity",
}
FAST = {"B": 100, "permutations": 19, "metrics": ("separation",)}  # of the matrix, which shows means only


@dataclass(frozen=True)
class Recipe:
    """How the families of one attribute are made.

    Attributes
    ----------
    target : column that the models of the bound learn: the attribute, or groups of one that is a number
    largest, smallest : scales of the gradient
    bins : edges of groups of a number, for the metrics that are gaps between groups
    direction : 1 where more of the attribute goes with the positive label. Given, because a balanced set has none to be read off
    """

    attribute: str
    target: str
    size: int
    scales: int = 25
    seeds: int = 5
    largest: float = 3.0
    smallest: float = 0.02
    epochs: int = 15
    lr: float = 3e-3
    batch: int = 64
    width: int = 8
    hidden: tuple[int, ...] = (32,)
    augment: str | None = "flip_and_shift"
    direction: int = 1
    bins: tuple[float, ...] | None = None


def options(what: str, out: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=what, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(out))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=max(1, min(6, os.cpu_count() or 1)), help="processes that measure")
    parser.add_argument("--scales", type=int, default=25)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--width", type=int, default=8, help="of the small CNN")
    return parser


def run(
    plans: Mapping[str, tuple[Recipe, Mapping[str, Cohort]]], out: Path, *, device: str, workers: int, title: str
) -> dict[str, Any]:
    """Train, measure and judge every plan; findings, report.html and numbers.json are left in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    numbers: dict[str, Any] = {"device": torch.cuda.get_device_name() if device == "cuda" else "cpu", "models": []}
    findings: list[Finding] = []
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        every = [Families(name, recipe, cohorts, device) for name, (recipe, cohorts) in plans.items()]
        for one in every:  # the processes measure one family while the next is trained
            one.train(pool)
        for one in every:
            findings += one.conclude(numbers)
            numbers["seconds"] = round(time.perf_counter() - began, 1)
            (out / "numbers.json").write_text(json.dumps(numbers, indent=1))
    print(f"{numbers['seconds']} s in all\n{tables(numbers)}", flush=True)
    for finding in findings:
        finding.save(out)
        draw(finding, out / "figures")
    rr.report(findings, out / "report.html", title=title)
    return numbers


def draw(finding: Finding, folder: Path) -> None:
    """The drawings of figures 2 to 4 of the paper, as files of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    for exhibit in finding.exhibits:
        title = "distribution" if exhibit.title.endswith("by label in the training rows") else FIGURES.get(exhibit.title)
        found = re.search(r"<svg.*?</svg>", str(figures.draw(exhibit)), re.DOTALL) if title else None
        if found is not None:
            (folder / f"{finding.name}-{title}.svg").write_text(standalone(found[0]))


def tables(numbers: Mapping[str, Any]) -> str:
    """Markdown of everything that a page of results shows."""
    parts = []
    for name, told in numbers.items():
        if not isinstance(told, dict):
            continue
        parts.append(f"\n### {name}\n")
        parts.append(
            "| version | train rows | gap | AUC, baseline | encoding: chance to bound | part covered | models above the floor |"
        )
        parts.append("|---|---|---|---|---|---|---|")
        for version, f in told["families"].items():
            rows, kept = told["rows"][version]["train"], f"{f['kept']} of {f['models']}"
            cells = (
                f"{rows['gap']:.3g}",
                f"{f['baseline_auc']:.3f}",
                f"{f['chance']:.3g} to {f['bound']:.3g}",
                f"{f['covered']:.0%}",
            )
            parts.append(f"| {version} | {rows['rows']} | {' | '.join(cells)} | {kept} |")
        parts.append(
            "\n| version | metric | rho | 95 % interval | p, exchange | rho, the paper's | its p | baseline |\n"
            + "|---" * 8
            + "|"
        )
        for version, f in told["families"].items():
            for m in f["metrics"]:
                ours = f"{m['rho']:.2f} | {m['low']:.2f} to {m['high']:.2f} | {m['p']:.3f}"
                paper = f"{m['paper_rho']:.2f} | {m['paper_p']:.2g} | {m['baseline']:.3f}"
                parts.append(f"| {version} | {m['name'].replace('_', ' ')} | {ours} | {paper} |")
        parts += [f"\n{v}: {f['verdict']}: {f['sentence']}" for v, f in told["families"].items()]
        for pair, d in told["differences"].items():
            parts.append(f"\n{pair}: {d['value']:.2f} ({d['low']:.2f} to {d['high']:.2f}), p {d['p']:.4f}")
        parts += [_markdown(table) for table in told["tables"]]
    return "\n".join(parts)


def _markdown(table: Mapping[str, Any]) -> str:
    def said(cell: Any) -> str:
        if isinstance(cell, Mapping):  # a number with its interval
            low, high = cell["low"], cell["high"]
            limits = "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"
            return "" if cell["value"] is None else f"{cell['value']:.3f}{limits}"
        return "" if cell is None else f"{cell:.3f}" if isinstance(cell, float) else str(cell)

    rows = [f"\n{table['title']}\n", f"| {' | '.join(table['columns'])} |", "|---" * len(table["columns"]) + "|"]
    return "\n".join(rows + [f"| {' | '.join(map(said, row))} |" for row in table["rows"]])


@dataclass(frozen=True)
class Seen:
    """What one model says: features and logits by part."""

    name: str
    scale: float
    seed: int
    target: str
    arrays: Mapping[str, Mapping[str, np.ndarray]]


class Families:
    """One attribute: a family of models for each version of the data."""

    def __init__(self, name: str, recipe: Recipe, cohorts: Mapping[str, Cohort], device: str) -> None:
        self.name, self.recipe, self.cohorts, self.device = name, recipe, dict(cohorts), device
        self.first = next(iter(cohorts))
        self.tests = {f"test {version}": cohort.on("test") for version, cohort in cohorts.items()}
        self.found: dict[tuple[str, str], list[Future[short.Measurement]]] = {}
        self.seconds: dict[str, float] = {}

    def train(self, pool: ProcessPoolExecutor) -> None:
        for version, cohort in self.cohorts.items():
            began = time.perf_counter()
            models = self._family(cohort, bound=version == self.first)
            self.seconds[version] = round(time.perf_counter() - began, 1)
            told = ", ".join(f"{k} {v['rows']} rows gap {v['gap']:.3g}" for k, v in self._sizes(cohort).items())
            print(f"{self.name} {version}: {told}; {len(models)} models in {self.seconds[version]} s", flush=True)
            parts = {**{split: cohort.on(split) for split in ("train", "val")}, **self.tests}
            pixels = {part: self._pixels(rows, models[0][0]) for part, rows in parts.items()}
            for model, scale, seed in models:
                seen = self._seen(model, pixels, f"{self.name} {version} s{seed}", scale, seed)
                self._submit(pool, (version, "bound" if seen.target else "sweep"), seen, parts, f"test {self.first}", {})
                for test in self.tests if scale == 0 else ():
                    self._submit(pool, (version, test), seen, parts, test, FAST)

    def _family(self, cohort: Cohort, bound: bool) -> list[tuple[Classifier, float, int]]:
        """Models of every scale and seed; for the bound also, of every seed, one that is trained on the attribute itself."""
        r = self.recipe
        common = {
            "epochs": r.epochs, "lr": r.lr, "batch": r.batch, "patience": None, "augment": r.augment, "device": self.device,
        }  # fmt: skip
        pairs = [(s, k) for k in range(r.seeds) for s in gradient_scaling.scales(r.scales, r.largest, r.smallest)]
        trained = gradient_scaling.together(
            [self._network(k, cohort.classes) for _, k in pairs],
            cohort,
            [{**common, "attribute": r.attribute, "scale": s, "hidden": r.hidden} for s, _ in pairs],
            rngs=[task_rng(k, "sweep") for _, k in pairs],
        )
        references = train_batched(
            [self._network(k, cohort.attribute(r.target).levels) for k in range(r.seeds)],
            cohort,
            [{**common, "seed": k, "target": r.target, "stop_on": "auc"} for k in range(r.seeds)],
        ) if bound else []  # fmt: skip
        every = [(model, *pair) for model, pair in zip(trained, pairs, strict=True)]
        every += [(model, math.nan, k) for k, model in enumerate(references)]
        for model, scale, seed in every:
            if isinstance(model, TrainingError):
                print(f"scale {scale}, seed {seed} diverged: {model}", flush=True)
        return [(model, scale, seed) for model, scale, seed in every if isinstance(model, Classifier)]

    def _network(self, seed: int, classes: Sequence[Any]) -> Classifier:
        return Classifier.load(
            "rightreasons.models.small:small_cnn", num_classes=len(classes), classes=tuple(classes), size=self.recipe.size,
            width=self.recipe.width, mean=0.5, std=0.25, rng=task_rng(seed, f"starting weights, {len(classes)} outputs"),
        )  # fmt: skip

    def _pixels(self, cohort: Cohort, model: Classifier) -> torch.Tensor:
        return torch.from_numpy(np.asarray(Facts(None, cohort, model.geometry).pixels()[:])).to(self.device)

    @torch.no_grad()
    def _seen(self, model: Classifier, pixels: Mapping[str, torch.Tensor], name: str, scale: float, seed: int) -> Seen:
        model.to(self.device)
        arrays = {}
        for part, x in pixels.items():
            said = [model.read((p.movedim(-1, 1).float() / 255 - model.mean[0]) / model.std[0]) for p in x.split(1000)]
            arrays[part] = {
                what: torch.cat([s[k] for s in said]).float().cpu().numpy() for k, what in enumerate(("features", "logits"))
            }
        model.to("cpu")
        return Seen(name, scale, seed, str(model.card["target"]), arrays)

    def _submit(
        self,
        pool: ProcessPoolExecutor,
        key: tuple[str, str],
        seen: Seen,
        parts: Mapping[str, Cohort],
        test: str,
        settings: Mapping[str, Any],
    ) -> None:
        places = {"train": "train", "val": "val", "test": test}
        part = replace(seen, arrays={name: seen.arrays[place] for name, place in places.items()})
        rows = {name: parts[place] for name, place in places.items()}
        r = self.recipe
        given = {"attribute": r.attribute, "direction": r.direction, "bins": r.bins, **settings}
        self.found.setdefault(key, []).append(pool.submit(measured, part, rows, given))

    def _sizes(self, cohort: Cohort) -> dict[str, dict[str, float]]:
        parts = {split: cohort.on(split) for split in ("train", "val", "test")}
        return {split: {"rows": len(part), "gap": part.gap(self.recipe.attribute)} for split, part in parts.items()}

    # ---- what it says ----

    def conclude(self, numbers: dict[str, Any]) -> list[Finding]:
        results: dict[str, short.Result] = {}
        for version in self.cohorts:
            sweep, bound = list(self._done(version, "sweep")), list(self._done(self.first, "bound"))
            numbers["models"] += [_row(m, self.name, version) for m in (*sweep, *(bound if version == self.first else ()))]
            result = short.conclude({"sweep": sweep, "attribute": bound}, rng=task_rng(0, "conclude"))
            named = {
                "name": f"short-{self.name}-{version}",
                "audit": "short",
                "model": f"{len(sweep)} small CNNs, {version} data",
            }
            results[version] = replace(result, context=replace(result.context, **named))
            print(f"{self.name} {version}: {result.verdict}: {results[version].finding().sentence}", flush=True)
        matrix = {(version, test[5:]): list(self._done(version, test)) for version in self.cohorts for test in self.tests}
        edges = np.quantile(
            [m.encoding.within.value for r in results.values() for m in r.judged.family.models], np.linspace(0, 1, 6)
        )
        shown = (short.cross_table(matrix), short.matched_encoding(results, np.unique(edges.round(3)).tolist()))
        numbers[self.name] = {
            "recipe": vars(self.recipe),
            "rows": {version: self._sizes(cohort) for version, cohort in self.cohorts.items()},
            "training_seconds": self.seconds,
            "families": {version: _told(r) for version, r in results.items()},
            "differences": _differences(results),
            "tables": [table.model_dump(mode="json") for table in shown],
        }
        for pair, told in numbers[self.name]["differences"].items():
            print(f"{self.name} {pair}: {told}", flush=True)
        found = [r.finding() for r in results.values()]
        return [found[0].model_copy(update={"exhibits": (*found[0].exhibits, *shown)}), *found[1:]]

    def _done(self, version: str, of: str) -> Iterator[short.Measurement]:
        for future in self.found.get((version, of), ()):
            yield future.result()


def measured(seen: Seen, parts: Mapping[str, Cohort], settings: Mapping[str, Any]) -> short.Measurement:
    """In a process of its own."""
    classes = parts["train"].attribute(seen.target).levels if seen.target else parts["train"].classes
    regime = "attribute" if seen.target else "gradient_scaling"
    evidence = Evidence.from_arrays(
        dict(parts), seen.arrays, classes=classes, name=seen.name, target=seen.target, training=parts["train"], seed=seen.seed,
        regime=regime, architecture="small_cnn", settings={"scale": seen.scale},
    )  # fmt: skip
    return short.measure(evidence, rng=task_rng(0, "measure"), **settings)


def _row(m: short.Measurement, name: str, version: str) -> dict[str, Any]:
    told = {k: v if not isinstance(v, float) or math.isfinite(v) else None for k, v in m.scalars().items()}
    return {"family": name, "version": version, "seed": m.seed, "target": m.target, **told}


def _told(result: short.Result) -> dict[str, Any]:
    j = result.judged
    metrics = [*([j.signed] if j.signed else []), *j.metrics]
    return {
        "verdict": result.verdict,
        "sentence": result.finding().sentence,
        "rho": result.rho,
        "p": result.p,
        "floor": j.family.floor,
        "models": len(j.family.models),
        "kept": int(j.family.kept.sum()),
        "baseline_auc": float(np.mean(j.family.auc[j.family.is_baseline])),
        "bound": j.bound.value,
        "chance": j.first.encoding.chance,
        "covered": j.bound.covered,
        "cost": [j.cost.value, j.cost.low, j.cost.high],
        "front": list(result.front),
        "metrics": [
            {
                "name": m.name, "rho": m.test.rho, "low": m.spread.low, "high": m.spread.high, "p": m.test.p,
                "visible": m.visible, "paper_rho": m.marginal.rho, "paper_p": m.marginal.usual_p,
                "baseline": m.baseline.value, "baseline_p": m.baseline_p,
            }
            for m in metrics
        ],
    }  # fmt: skip


def _differences(results: Mapping[str, short.Result]) -> dict[str, Any]:
    """Every version against the last, along the direction of the first that has one."""
    *others, last = results
    return {
        f"{name} less {last}": vars(short.compare(results[name], results[last], rng=task_rng(0, "compare"))) for name in others
    }
