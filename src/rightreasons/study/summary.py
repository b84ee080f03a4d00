"""After the runs: mean and interval over seeds, findings over units, and the page. No torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rightreasons import families
from rightreasons.audits._contract import scalars, subjects_of
from rightreasons.findings import Cell, Check, Finding, Table, Verdict, file_name, not_run
from rightreasons.report import report
from rightreasons.stats.resampling import task_rng
from rightreasons.stats.units import over_seeds
from rightreasons.study.record import DONE, TIME, Study, Unmeasured, columns, read_json, write_json, write_table

SUMMARY, CONCLUDED, PAGE = "summary.parquet", "concluded.json", "report.html"
LEVEL = 0.95
BY_MODEL = "Model by model"


def summarise(study: Study, level: float = LEVEL) -> pd.DataFrame:
    """Every measured number of units that differ in the seed alone: mean, limits, standard deviation, seeds."""
    table = study.table.set_index("unit")
    plan = {key for unit in study.plan["units"].values() for key in columns(unit)}
    numbers = [
        name
        for name in table.select_dtypes("number")
        if name not in plan and not str(name).startswith(TIME) and not str(name).endswith(("_low", "_high"))
    ]
    rows = []
    for key, units in study.groups().items():
        done = table.loc[units].query("status == @DONE")
        for name in numbers:
            values = done[name].dropna().to_numpy(dtype=np.float64)
            over = over_seeds(values, level)
            sd = float(values.std(ddof=1)) if len(values) > 1 else np.nan
            named = {"architecture": key[0], "regime": key[1], "settings": ", ".join(key[2:]), "metric": name}
            rows.append({**named, "mean": over.value, "low": over.low, "high": over.high, "sd": sd, "seeds": len(values)})
    return pd.DataFrame(rows)


def conclude(study: Study) -> list[Finding]:
    """Findings of every audit for every (architecture, regime, setting) over its seeds, and the page; made once."""
    done = [unit for unit in study.units if study.status(unit) == DONE]
    told = json.dumps([done, study.plan["measured"], study.plan["name"]])
    made_from = hashlib.blake2b(told.encode(), digest_size=16).hexdigest()
    before = read_json(study.folder / CONCLUDED) if (study.folder / CONCLUDED).exists() else {"made_from": "", "files": []}
    files = [study.folder / "findings" / name for name in before["files"]]
    if before["made_from"] == made_from and all(file.exists() for file in (*files, study.folder / PAGE)):
        return [Finding.read(file) for file in files]
    findings = [
        _finding(study, name, group, [unit for unit in units if unit in set(done)])
        for name in study.plan["audits"]
        for group, units in study.groups().items()
        if set(units) & set(done)
    ]
    for finding in findings:
        finding.save(study.folder)
    names = [file_name(finding.name) + Finding.SUFFIX for finding in findings]
    for old in set(before["files"]) - set(names):
        (study.folder / "findings" / old).unlink(missing_ok=True)
    if findings:
        title = f"Study {study.name}: {len(done)} of {len(study.units)} models"
        report(findings, study.folder / PAGE, title=title, subtitle="Each finding is about models that differ in the seed alone.")
    write_json(study.folder / CONCLUDED, {"made_from": made_from, "files": names})
    return findings


def save_summary(study: Study) -> Path:
    return write_table(summarise(study), study.folder / SUMMARY)


# ---- one finding ---------------------------------------------------------------------------------------------------------


def _finding(study: Study, name: str, group: tuple[str, ...], units: list[str]) -> Finding:
    audit = study.plan["audits"][name]
    module = families.member("audits", audit["method"])
    title = "-".join((name, *group))
    known = {"model": _model(group, units), "settings": audit["settings"], "seed": study.plan["seed"]}
    measured = {role: [study.measurement(unit, name) for unit in members] for role, members in _roles(study, audit, group, units)}
    missing = [m.not_run for members in measured.values() for m in members if isinstance(m, Unmeasured)]
    if missing or not all(measured.values()):
        reason = missing[0] if missing else f"no finished model for the role {next(r for r, m in measured.items() if not m)!r}"
        return not_run(title, audit["method"], module.QUESTION, module.ROW, reason, **known)
    settings = families.accepted(module.conclude, audit["settings"])

    def concluded(tested: list[Any]) -> Finding:
        rng = task_rng(study.plan["seed"], f"{audit['method']} conclude")
        result = module.conclude({**measured, "test": tested}, rng=rng, **settings)
        context = replace(result.context, name=title, audit=audit["method"], **known)
        if context.n_rows is None:
            view = study.evidence(units[0]).on(context.cohort)
            context = replace(context, n_rows=len(view), n_subjects=subjects_of(view))
        found: Finding = replace(result, context=context).finding()
        return found

    found = concluded(measured["test"])
    if len(units) == 1:
        return found
    verdicts = [None if found.verdict is None else concluded([m]).verdict for m in measured["test"]]
    return _with_seeds(found, units, measured["test"], verdicts)


def _with_seeds(found: Finding, units: list[str], measured: list[Any], verdicts: list[Verdict]) -> Finding:
    """The finding with a table of its models, unless the audit has one, and a check that no seed says otherwise."""
    checks, exhibits = found.checks, found.exhibits
    if found.verdict is not None:
        said = {verdict: [u for u, v in zip(units, verdicts) if v == verdict] for verdict in dict.fromkeys(verdicts)}
        note = "; ".join(f"{verdict}: {', '.join(who)}" for verdict, who in said.items())
        same = set(verdicts) == {found.verdict}
        checks = (*checks, Check(name="every seed on its own gives this verdict", passed=same, note="" if same else note))
    numbers = [_intervals(m) for m in measured]
    if numbers[0] and not any(e.title == BY_MODEL for e in exhibits):
        names = tuple(numbers[0])
        rows = [[unit, *(row[name] for name in names)] for unit, row in zip(units, numbers, strict=True)]
        over = [over_seeds(np.array([row[name].value for row in numbers], dtype=np.float64)) for name in names]
        rows.append(["mean over seeds", *(Cell(value=i.value, low=i.low, high=i.high, reason=i.reason) for i in over)])
        caption = "Each model with its own interval; the last row is the mean over models with its t interval."
        exhibits = (*exhibits, Table(title=BY_MODEL, caption=caption, columns=("model", *names), rows=rows))
    return found.model_copy(update={"checks": checks, "exhibits": exhibits})


def _intervals(measurement: Any) -> dict[str, Cell]:
    """The numbers of a measurement that come with limits."""
    found = scalars(measurement)
    return {
        name.replace("_", " "): Cell(value=value, low=found[f"{name}_low"], high=found[f"{name}_high"])
        for name, value in found.items()
        if f"{name}_low" in found and f"{name}_high" in found
    }


def _roles(study: Study, audit: Mapping[str, Any], group: tuple[str, ...], units: list[str]) -> list[tuple[str, list[str]]]:
    """The units tested and, by `roles = {role = "regime"}`, the reference models of the same architecture and settings."""
    groups = study.groups()
    found = [("test", units)]
    for role, regime in audit["roles"].items():
        others = groups.get((group[0], regime, *group[2:])) or groups.get((group[0], regime), [])
        found.append((role, [unit for unit in others if study.status(unit) == DONE]))
    return found


def _model(group: tuple[str, ...], units: list[str]) -> str:
    return f"{' '.join(group)} ({len(units)} seed{'s' if len(units) > 1 else ''})"
