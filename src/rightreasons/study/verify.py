"""Is everything there? A study against the output checklist of sdi-ccr, sec. V-I, unit by unit. No torch."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from rightreasons.errors import DataError
from rightreasons.study.performance import INTERNAL, METRICS
from rightreasons.study.record import DONE, FAILED, PLAIN, Study
from rightreasons.study.summary import SUMMARY

TRAINING, INSIDE, OUTSIDE, ASKED = "1 training outputs", "2 internal metrics", "3 external metrics", "audits asked for"


@dataclass(frozen=True)
class Gap:
    """Something that the checklist asks for and that is not there; `unit` is empty where the study as a whole lacks it."""

    unit: str
    item: str
    what: str


def verify(study: Study) -> list[Gap]:
    """Everything that is missing, in the order of the units; empty for a complete study."""
    gaps = [gap for unit in study.units for gap in _unit(study, unit)]
    return gaps + list(_whole(study, {gap.unit for gap in gaps}))


def notes(study: Study) -> list[str]:
    """What the checklist asks for and this study cannot have."""
    if study.external():
        return []
    return ["no external cohort in the study: external predictions (1) and external metrics (3) do not apply"]


def _unit(study: Study, unit: str) -> Iterator[Gap]:
    place, row, run = study.path(unit), study.row(unit), study.run(unit)
    if row is None:
        status = study.status(unit)
        error = run.get("error") or {}
        told = f"{status}: {error.get('type')}: {error.get('message')}" if status == FAILED and error else status
        yield Gap(unit, TRAINING, f"the unit is not done ({told}); missing: {', '.join(study.missing(unit))}")
        return
    for file, what in (("model/model.safetensors", "weights"), ("model/model.json", "the model's description")):
        if not (place / file).is_file():
            yield Gap(unit, TRAINING, f"no {what} ({file})")
    plan, curves = study.plan["units"][unit], place / "model" / "curves.csv"
    if plan["method"] == PLAIN:  # a mitigation may have no epochs, and its curves may have other names
        yield from (Gap(unit, TRAINING, what) for what in _curves(curves))
    for cohort in (INTERNAL, *study.external(unit)):
        if not (place / "predictions" / f"{cohort}.parquet").is_file():
            yield Gap(unit, TRAINING, f"no predictions on {cohort} (predictions/{cohort}.parquet)")
    if run.get("plan") != plan or not unit.endswith(plan["hash"][:8]) or run.get("seeds", {}).get("unit") != plan["seed"]:
        yield Gap(unit, TRAINING, "run.json does not tell the seed and the configuration that the plan has")
    yield from (Gap(unit, *gap) for gap in _metrics(study.external(unit), place, row["columns"]))
    for audit in study.plan["audits"]:
        if study.roles(unit, audit) and not (place / "measurements" / f"{audit}.npz").is_file():
            yield Gap(unit, ASKED, f"no measurement of {audit} (measurements/{audit}.npz)")


def _curves(file: Path) -> Iterator[str]:
    if not file.is_file():
        yield "no curves of the losses (model/curves.csv)"
        return
    with file.open() as stream:
        names, rows = stream.readline().strip().split(","), stream.readline()
    for name in ("loss", "val_loss"):
        if name not in names or not rows:
            yield f"no {name} in model/curves.csv"


def _metrics(external: tuple[str, ...], place: Path, row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    arrays = _arrays(place / "measurements" / "performance.npz")
    for cohort in (INTERNAL, *external):
        item = INSIDE if cohort == INTERNAL else OUTSIDE
        wanted = [f"{cohort}_{metric}" for metric in METRICS]
        wanted += [] if cohort == INTERNAL else [f"{cohort}_delta_{metric}" for metric in ("auc", "ece")]
        for name in wanted:
            if row.get(name) is None or row[name] != row[name]:
                yield item, f"no {name}: {'it is undefined on these rows' if name in row else 'it was not computed'}"
        if "draws" not in arrays:
            yield item, f"no bootstrap distributions on {cohort} (measurements/performance.npz)"
        elif cohort != INTERNAL and "degradation" not in arrays:
            yield item, f"no coupled bootstrap distributions of the degradation on {cohort} (measurements/performance.npz)"


def _arrays(file: Path) -> set[str]:
    """Names of the arrays in an .npz, without reading them; none where it is not there or not whole."""
    if not zipfile.is_zipfile(file):
        return set()
    with zipfile.ZipFile(file) as stored:
        return {name.removesuffix(".npy") for name in stored.namelist()}


def _whole(study: Study, incomplete: set[str]) -> Iterator[Gap]:
    """The aggregates over seeds, and the table."""
    if not (study.folder / "table.parquet").is_file():
        yield Gap("", INSIDE, "no table.parquet: run rightreasons sweep again")
    if not (study.folder / SUMMARY).is_file():
        yield Gap("", INSIDE, f"no means and intervals over seeds ({SUMMARY}): run rightreasons sweep again")
        return
    summary = pd.read_parquet(study.folder / SUMMARY)
    counted = summary[summary["metric"] == f"{INTERNAL}_{METRICS[0]}"] if len(summary) else summary
    for key, units in study.groups().items():
        done = sum(study.status(unit) == DONE for unit in units) if set(units) & incomplete else len(units)
        rows = counted[_is_group(counted, key)] if len(counted) else counted
        if done and (not len(rows) or int(rows["seeds"].iloc[0]) != done):
            yield Gap("", INSIDE, f"{SUMMARY} does not count the {done} seeds of {' '.join(key)}: run rightreasons sweep again")


def _is_group(frame: pd.DataFrame, key: tuple[str, ...]) -> pd.Series:
    named = (frame["architecture"] == key[0]) & (frame["regime"] == key[1])
    return named & (frame["settings"] == ", ".join(key[2:]))


def to_json(study: Study, gaps: list[Gap]) -> str:
    if not study.units:
        raise DataError(f"study {study.name!r} has no units")
    told = {"study": study.name, "units": len(study.units), "complete": not gaps, "gaps": [vars(gap) for gap in gaps]}
    return json.dumps({**told, "notes": notes(study)}, indent=1)
