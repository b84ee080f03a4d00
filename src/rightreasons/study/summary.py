"""After the runs: mean and interval over seeds, findings over units, and the page. No torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rightreasons import families
from rightreasons.audits._contract import subjects_of
from rightreasons.errors import EvidenceError, NotRun
from rightreasons.findings import Cell, Check, Finding, Table, Verdict, file_name, not_run
from rightreasons.measurements import scalars
from rightreasons.report import report
from rightreasons.stats.resampling import task_rng
from rightreasons.stats.units import over_seeds
from rightreasons.study import curves, overall, panels
from rightreasons.study.curves import Concluded
from rightreasons.study.record import DONE, TIME, Study, Unmeasured, columns, read_json, write_json, write_table
from rightreasons.study.roles import TEST, cases
from rightreasons.study.sheet import sheet_of_study

SUMMARY, ESTIMATES, CONCLUDED, PAGE = "summary.parquet", "estimates.parquet", "concluded.json", "report.html"
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
    """Findings of every audit for every (architecture, regime, setting) over its seeds, curves, and the page; made once."""
    done = [unit for unit in study.units if study.status(unit) == DONE]
    told = json.dumps([done, *(study.plan.get(key) for key in ("measured", "name", "curves", "references", *overall.KINDS))])
    made_from = hashlib.blake2b(told.encode(), digest_size=16).hexdigest()
    before = read_json(study.folder / CONCLUDED) if (study.folder / CONCLUDED).exists() else {"made_from": "", "files": []}
    files = [study.folder / "findings" / name for name in before["files"]]
    if before["made_from"] == made_from and all(file.exists() for file in (*files, study.folder / PAGE)):
        return [Finding.read(file) for file in files]
    concluded = _concluded(study, set(done))
    estimates = curves.estimates(study, concluded)
    write_table(estimates, study.folder / ESTIMATES)
    findings = overall.findings(study, estimates) + [case.finding for case in concluded] + curves.findings(study, estimates)
    for finding in findings:
        finding.save(study.folder)
    names = [file_name(finding.name) + Finding.SUFFIX for finding in findings]
    for old in set(before["files"]) - set(names):
        (study.folder / "findings" / old).unlink(missing_ok=True)
    if findings:
        title = f"Study {study.name}: {len(done)} of {len(study.units)} models"
        subtitle = "Each finding is about models that differ in the seed alone."
        sheet = sheet_of_study(study, _trained_on(study, concluded))
        sheet.save(study.folder)
        report(findings, study.folder / PAGE, title=title, subtitle=subtitle, sheet=sheet)
    write_json(study.folder / CONCLUDED, {"made_from": made_from, "files": names})
    return findings


def save_summary(study: Study) -> Path:
    return write_table(summarise(study), study.folder / SUMMARY)


# ---- one finding ---------------------------------------------------------------------------------------------------------


def _concluded(study: Study, done: set[str]) -> list[Concluded]:
    groups, found = study.groups(), []
    for name in study.plan["audits"]:
        for group, members in cases(study.plan, name, groups).items():
            finished = {role: [unit for unit in units if unit in done] for role, units in members.items()}
            if finished[study.plan["audits"][name]["subject"]]:
                found.append(_case(study, name, group, finished, members.get(panels.PANEL, ())))
    return found


def _trained_on(study: Study, concluded: list[Concluded]) -> dict[str, str]:
    """Model, as findings name it → the training set that all its units share."""
    found: dict[str, set[str]] = {}
    for key, units in study.groups().items():
        for case in concluded:
            if case.group == key[: len(case.group)]:
                found.setdefault(case.finding.model, set()).update(study.plan["units"][unit]["cohort"] for unit in units)
    return {model: next(iter(cohorts)) for model, cohorts in found.items() if len(cohorts) == 1}


def _case(
    study: Study, name: str, group: tuple[str, ...], units: Mapping[str, list[str]], panel: Sequence[str] = ()
) -> Concluded:
    """What an audit concludes of some units and their references; where they are seeds, also of each alone."""
    audit = study.plan["audits"][name]
    module, subject = families.member("audits", audit["method"]), audit["subject"]
    title, tested = "-".join((name, *group)), units[subject]
    known = {"model": _model(group, tested, subject), "settings": audit["settings"], "seed": study.plan["seed"]}
    measured, lacking = _measured(study, name, units)
    if subject not in measured:
        reason = lacking[subject]
        known["lacks"] = _lacks(study, name, tested)
        return Concluded(name, group, not_run(title, audit["method"], module.QUESTION, module.ROW, reason, **known), {})
    settings = families.accepted(module.conclude, study.settings(name)) | panels.freeze(study, name, group, panel, measured)

    def concluded(of: list[Any]) -> Finding:
        rng = task_rng(study.plan["seed"], f"{audit['method']} conclude")
        result = module.conclude({**measured, subject: of}, rng=rng, **settings)
        context = replace(result.context, name=title, audit=audit["method"], **known)
        if context.n_rows is None:
            view = study.evidence(tested[0]).on(context.cohort)
            context = replace(context, n_rows=len(view), n_subjects=subjects_of(view))
        found: Finding = replace(result, context=context).finding()
        return found

    try:
        found = concluded(measured[subject])
        if subject != TEST:
            return Concluded(name, group, found, {})
        alone = {u: concluded([m]) if len(tested) > 1 else found for u, m in zip(tested, measured[subject], strict=True)}
    except (NotRun, EvidenceError) as error:  # of a role that it cannot do without: why there is none
        reason = "; ".join([*(f"role {role}: {why}" for role, why in lacking.items()), str(error)])
        known["lacks"] = getattr(error, "lacks", "")
        return Concluded(name, group, not_run(title, audit["method"], module.QUESTION, module.ROW, reason, **known), {})
    if len(tested) > 1:
        found = _with_seeds(found, tested, measured[subject], [finding.verdict for finding in alone.values()])
    return Concluded(name, group, found, alone)


def _lacks(study: Study, name: str, units: Sequence[str]) -> str:
    """The data without which the audit could not run on the first of these units that it could not measure."""
    for unit in units:
        measurement = study.measurement(unit, name)
        if isinstance(measurement, Unmeasured):
            return measurement.lacks
    return ""


def _measured(study: Study, name: str, units: Mapping[str, list[str]]) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Role → measurements, and role → why it has none. A tested model without one leaves nothing to conclude."""
    audit = study.plan["audits"][name]
    found, lacking = {}, {}
    for role, members in units.items():
        every = [study.measurement(unit, name) for unit in members]
        missing = [m.not_run for m in every if isinstance(m, Unmeasured)]
        known = [m for m in every if not isinstance(m, Unmeasured)]
        if known and not (missing and role == audit["subject"]):
            found[role] = known
        else:
            regime = " or ".join(audit["roles"].get(role, {}).get("regime", ()))
            none = audit["unavailable"].get(role) or f"no finished model (regime {regime})"
            lacking[role] = missing[0] if missing else str(none)
    return found, lacking


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


def _model(group: tuple[str, ...], units: list[str], subject: str) -> str:
    what = "seed" if subject == TEST else "model"
    return f"{' '.join(group)} ({len(units)} {what}{'s' if len(units) > 1 else ''})"
