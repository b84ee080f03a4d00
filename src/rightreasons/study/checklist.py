"""Is everything there? A study against the output checklist of the SDI and CCR paper (sec. V-I), unit by unit. No torch."""

from __future__ import annotations

import zipfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from rightreasons.audits.sdi import INDEX_NAMES
from rightreasons.errors import DataError, EvidenceError
from rightreasons.evidence import Evidence
from rightreasons.findings import Finding, Scatter, Table, file_name
from rightreasons.study import over_models, panels
from rightreasons.study.conclude import ESTIMATES, SUMMARY
from rightreasons.study.folder import DONE, FAILED, Study
from rightreasons.study.performance import INTERNAL, METRICS
from rightreasons.study.plan import PLAIN, Unit

TRAINING, INSIDE, OUTSIDE, ASKED = "1 training outputs", "2 internal metrics", "3 external metrics", "audits asked for"
INDEX, PAIRED, RELATED, ABLATED = "4 SDI outputs", "5 CCR comparison", "6 correlation and regression", "7 ablations"
PLACE, SHOWN = "explainability", "tables and figures"
SDI, CCR, FOCUS = "sdi", "ccr", "focus"
# Array of SDI's measurement → what it is in the checklist.
PROBES = {
    "features.s_nc.value": "probe 1, sensitivities",
    "features.r_sc.value": "probe 2, ratios",
    "probe.drop.value": "probe 3, the cue's probe",
    "component_draws": "components",
}
AGAIN = "run rightreasons sweep again"


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
    lines = []
    if not study.external():
        lines.append("no external cohort in the study: external predictions (1) and external metrics (3) do not apply")
    if not _of(study, SDI):
        lines.append("no sdi audit in the study: 4 to 7 are not applicable")
    elif not _regimes(study, CCR):
        lines.append("no regime with method ccr in the study: 5 and 7 are not applicable")
    return lines


def _unit(study: Study, unit: str) -> Iterator[Gap]:  # noqa: C901  one entry after the other of a checklist
    place, row, run = study.path(unit), study.row(unit), study.run(unit)
    if row is None:
        status = study.status(unit)
        error = run.get("error") or {}
        if status == FAILED and error:
            status = f"{status}: {error.get('type')}: {error.get('message')}"
        yield Gap(unit, TRAINING, f"the unit is not done ({status}); missing: {', '.join(study.missing(unit))}")
        return
    for file, what in (("model/model.safetensors", "weights"), ("model/model.json", "the model's description")):
        if not (place / file).is_file():
            yield Gap(unit, TRAINING, f"no {what} ({file})")
    plan, curves = study.plan.units[unit], place / "model" / "curves.csv"
    if plan.method == PLAIN or row["columns"].get("epochs"):
        yield from (Gap(unit, TRAINING, what) for what in _curves(curves))
    for cohort in (INTERNAL, *study.external(unit)):
        if not (place / "predictions" / f"{cohort}.parquet").is_file():
            yield Gap(unit, TRAINING, f"no predictions on {cohort} (predictions/{cohort}.parquet)")
    is_told = "plan" in run and Unit(**run["plan"]) == plan and run.get("seeds", {}).get("unit") == plan.seed
    if not is_told or not unit.endswith(plan.hash[:8]):
        yield Gap(unit, TRAINING, "run.json does not tell the seed and the configuration that the plan has")
    yield from (Gap(unit, *gap) for gap in _metrics(study.external(unit), place, row["columns"]))
    for audit in study.plan.audits:
        if study.roles(unit, audit) and not (place / "measurements" / f"{audit}.npz").is_file():
            yield Gap(unit, ASKED, f"no measurement of {audit} (measurements/{audit}.npz)")

    for audit in _of(study, SDI):
        if study.roles(unit, audit):
            yield from (Gap(unit, INDEX, what) for what in _index(study, unit, audit))


def _index(study: Study, unit: str, audit: str) -> Iterator[str]:
    """Features as they are and under every operator, and what the probes say."""
    place = study.path(unit)
    try:
        evidence = Evidence.open(place / "evidence")
        held = {name: set(evidence.arrays(name)) for name in evidence.cohorts}
        for need in study.needs(unit):
            if need.array.startswith("features") and not need.optional and need.array not in held.get(need.cohort, ()):
                yield f"no {need.array} of {need.cohort} (evidence)"
    except (EvidenceError, OSError) as error:
        yield f"no features: {error}"
    arrays = _arrays(place / "measurements" / f"{audit}.npz")
    for name, what in PROBES.items() if arrays else ():
        if name not in arrays:
            yield f"no {what} (measurements/{audit}.npz)"


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
        if cohort != INTERNAL:
            wanted += [f"{cohort}_delta_{metric}" for metric in ("auc", "ece")]
        for name in wanted:
            if name not in row:
                yield item, f"no {name}: it was not computed"
            elif row[name] is None or row[name] != row[name]:
                yield item, f"no {name}: it is undefined on these rows"
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
    if len(summary):
        counted = summary[summary["metric"] == f"{INTERNAL}_{METRICS[0]}"]
    else:
        counted = summary
    for key, units in study.groups().items():
        if set(units) & incomplete:
            done = sum(study.status(unit) == DONE for unit in units)
        else:
            done = len(units)
        if len(counted):
            rows = counted[_is_group(counted, key)]
        else:
            rows = counted
        if done and (not len(rows) or int(rows["seeds"].iloc[0]) != done):
            yield Gap("", INSIDE, f"{SUMMARY} does not count the {done} seeds of {' '.join(key)}: {AGAIN}")
    yield from _over_units(study)


# ---- 4 to 7: what is said over all units ---------------------------------------------------------------------------------


def _over_units(study: Study) -> Iterator[Gap]:
    for calibration in study.plan.severities.values():
        if not (study.folder / calibration.file).is_file():
            yield Gap("", INDEX, f"no severities ({calibration.file}): {AGAIN}")
    for kind, item in zip(over_models.KINDS, (SHOWN, RELATED, PAIRED), strict=True):
        for name in getattr(study.plan, kind):
            if not _file(study, kind, name).is_file():
                yield Gap("", item, f"no [{kind}.{name}] (findings/{_file(study, kind, name).name}): {AGAIN}")
    if not _of(study, SDI):
        return
    yield from _indices(study)
    outside = {f"{cohort}_delta_auc" for cohort in study.external()}
    if outside:
        yield from _relation(study, outside)
    if _regimes(study, CCR):
        yield from _comparison(study, outside)
        yield from _ablations(study, outside)
        if not _of(study, FOCUS):
            yield Gap("", PLACE, "no focus audit: add [audits.focus]")


def _indices(study: Study) -> Iterator[Gap]:
    """The index of every unit that should have one, and the frozen panel that it is relative to."""
    for audit in _of(study, SDI):
        for panel in panels.missing(study, audit):
            yield Gap("", INDEX, f"no frozen panel of {audit} (panels/{panel.name}): {AGAIN}")
    file = study.folder / ESTIMATES
    if not file.is_file():
        yield Gap("", INDEX, f"no index of any unit ({ESTIMATES}): {AGAIN}")
        return
    frame = pd.read_parquet(file)
    for audit in _of(study, SDI):
        rows = frame[(frame["audit"] == audit) & frame["estimate"].isin(INDEX_NAMES) & frame["value"].notna()]
        known = set(rows["model"])
        for unit in study.units:
            if "test" in study.roles(unit, audit) and study.status(unit) == DONE and unit not in known:
                yield Gap(unit, INDEX, f"no index of {audit} ({ESTIMATES})")


def _relation(study: Study, outside: set[str]) -> Iterator[Gap]:
    """A relation of the index and a fall of AUC outside, one point a unit."""
    asked = {}
    for name, relation in study.plan.relations.items():
        if outside & set(relation.y) and any(_is_of(study, x, SDI) for x in relation.x):
            asked[name] = relation
    if not asked:
        yield Gap("", RELATED, "no relation of SDI and the fall of AUC outside: add [relations.NAME]")
    for name, relation in asked.items():
        file = _file(study, "relations", name)
        if file.is_file():
            units = _finished(study, relation.regimes)
            for what in _lacking_of_relation(Finding.read(file), len(units)):
                yield Gap("", RELATED, f"[relations.{name}] does not have {what}: {AGAIN}")


def _lacking_of_relation(finding: Finding, units: int) -> Iterator[str]:
    clouds = [e for e in finding.exhibits if isinstance(e, Scatter)]
    if not clouds or len(clouds[0].x) != units:
        yield f"one point for each of {units} units"
    for method in over_models.METHODS:
        correlations = [e for e in finding.estimates if e.name == over_models.correlation_name(method, e.group)]
        if not any(e.low is not None or e.reason for e in correlations):
            yield f"a {method.capitalize()} correlation with its interval"
    analyses: set[object] = set()
    for table in _tables_with(finding, over_models.ANALYSIS):
        column = table.columns.index(over_models.ANALYSIS)
        analyses |= {row[column] for row in table.rows}
    if over_models.REGRESSION not in analyses:
        yield "a line's coefficients"
    if not _tables_with(finding, over_models.R_SQUARED):
        yield "R² and diagnostics of a line's residuals"


def _tables_with(finding: Finding, column: str) -> list[Table]:
    return [e for e in finding.exhibits if isinstance(e, Table) and column in e.columns]


def _comparison(study: Study, outside: set[str]) -> Iterator[Gap]:
    asked = {name: pairs for name, pairs in study.plan.pairs.items() if pairs.of[1] in _regimes(study, CCR)}
    columns = {column for pairs in asked.values() for column in pairs.columns}
    lacking = "no paired comparison of {} between a baseline and CCR: add [pairs.NAME]"
    if not any(_is_of(study, column, SDI) for column in columns):
        yield Gap("", PAIRED, lacking.format("SDI"))
    if not columns & outside:
        yield Gap("", PAIRED, lacking.format("the fall of AUC outside"))
    for name, pairs in asked.items():
        file = _file(study, "pairs", name)
        if file.is_file():
            before, after = (_done(study, regime) for regime in pairs.of)
            rows = {len(table.rows) for table in _tables_with(Finding.read(file), over_models.DIFFERENCE)}
            if rows != {len(before & after) * len(pairs.columns)}:
                yield Gap("", PAIRED, f"[pairs.{name}] does not have the difference of every pair of equal seeds: {AGAIN}")


def _done(study: Study, regime: str) -> set[tuple[str, int]]:
    """(architecture, seed) of the units of a regime that are done."""
    return {(unit.architecture, unit.seed) for unit in _finished(study, (regime,))}


def _finished(study: Study, regimes: Collection[str]) -> list[Unit]:
    """The units of some regimes that are done."""
    units = []
    for name in study.units:
        unit = study.plan.units[name]
        if unit.regime in regimes and study.status(name) == DONE:
            units.append(unit)
    return units


def _ablations(study: Study, outside: set[str]) -> Iterator[Gap]:
    """CCR without invariance and without sensitivity, the index from fewer probes, and a table with both and the whole."""
    units = study.plan.units.values()
    trained = {unit.regime: unit.train for unit in units if unit.method == CCR}
    no_invariance = [r for r, t in trained.items() if t["representation"] == t["prediction"] == 0]
    no_sensitivity = [r for r, t in trained.items() if t["sensitivity"] == 0]
    fewer_probes = [audit for audit in _of(study, SDI) if 0 in study.plan.audits[audit].settings["weights"]]
    if not no_invariance:
        yield Gap("", ABLATED, "no CCR without the invariance term (representation = 0, prediction = 0)")
    if not no_sensitivity:
        yield Gap("", ABLATED, "no CCR without the sensitivity term (sensitivity = 0)")
    if not fewer_probes:
        yield Gap("", ABLATED, "no index from fewer probes: add an sdi audit with a weight of 0")
    if not (no_invariance and no_sensitivity and fewer_probes):
        return
    for table in study.plan.tables.values():
        audits = {column.partition(":")[0] for column in table.columns}
        has_regimes = {*no_invariance, *no_sensitivity} <= set(table.regimes)
        if has_regimes and outside & set(table.columns) and audits & set(fewer_probes):
            return
    yield Gap("", ABLATED, "no table of the ablations beside the whole: add [tables.NAME] with their indices and falls of AUC")


def _of(study: Study, method: str) -> list[str]:
    """Names of the audits of a method."""
    return [name for name, audit in study.plan.audits.items() if audit.method == method]


def _is_of(study: Study, column: str, method: str) -> bool:
    return column.partition(":")[0] in _of(study, method)


def _regimes(study: Study, method: str) -> set[str]:
    return {unit.regime for unit in study.plan.units.values() if unit.method == method}


def _file(study: Study, kind: str, name: str) -> Path:
    return study.folder / "findings" / (file_name(f"{kind}-{name}") + Finding.SUFFIX)


def _is_group(frame: pd.DataFrame, key: tuple[str, ...]) -> pd.Series:
    named = (frame["architecture"] == key[0]) & (frame["regime"] == key[1])
    return named & (frame["settings"] == ", ".join(key[2:]))


def told(study: Study, gaps: list[Gap]) -> dict[str, Any]:
    """The checklist as plain data."""
    if not study.units:
        raise DataError(f"study {study.name!r} has no units")
    summary = {"study": study.name, "units": len(study.units), "complete": not gaps, "gaps": [vars(gap) for gap in gaps]}
    return {**summary, "notes": notes(study)}
