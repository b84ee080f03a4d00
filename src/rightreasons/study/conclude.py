"""After the runs: mean and interval over seeds, findings over units, and the page. No torch."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from rightreasons import families
from rightreasons.audits import audit_all, needs_of, subjects_of
from rightreasons.errors import EvidenceError, NotRun
from rightreasons.evidence import Evidence
from rightreasons.files import read_json
from rightreasons.findings import Cell, Check, Finding, Table, Verdict, not_run
from rightreasons.measurements import scalars
from rightreasons.progress import duration
from rightreasons.report import report
from rightreasons.report.summary import summary_path
from rightreasons.stats.over_models import over_seeds
from rightreasons.stats.resampling import task_rng
from rightreasons.study import curves, over_models, panels, preflight
from rightreasons.study.curves import Concluded
from rightreasons.study.data_sheet import sheet_of_study
from rightreasons.study.folder import CONCLUDED, DONE, TIME, Study, Unmeasured, save_findings, write_table
from rightreasons.study.plan import AuditPlan
from rightreasons.study.roles import TEST, Group, cases

SUMMARY, ESTIMATES, PAGE = "summary.parquet", "estimates.parquet", "report.html"
SEVERITIES = "severities"  # the setting of audits that change images
LEVEL = 0.95
BY_MODEL = "Model by model"  # an audit may have this table itself


def summarise(study: Study, level: float = LEVEL) -> pd.DataFrame:
    """Every measured number of units that differ in the seed alone: mean, limits, standard deviation, seeds."""
    table = study.table.set_index("unit")
    plan = {key for unit in study.plan.units.values() for key in unit.columns}
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
    """The table, findings of every audit over seeds, curves, and the page; made again only where something has changed."""
    study.save_table()
    write_table(summarise(study), study.folder / SUMMARY)
    done = [unit for unit in study.units if study.status(unit) == DONE]
    made_from = _made_from(study, done)
    if (study.folder / CONCLUDED).exists():
        before = read_json(study.folder / CONCLUDED)
    else:
        before = {"made_from": "", "files": []}
    files = [study.folder / "findings" / name for name in before["files"]]
    pages = (study.folder / PAGE, summary_path(study.folder / PAGE))
    if before["made_from"] == made_from and all(file.exists() for file in (*files, *pages)):
        return [Finding.read(file) for file in files]
    concluded = _concluded(study, set(done))
    cards = preflight.cards_of(study, concluded, study.groups())
    concluded = preflight.guarded_cases(concluded, cards)
    estimates = curves.estimates(study, concluded)
    write_table(estimates, study.folder / ESTIMATES)
    findings = [
        *over_models.findings(study, estimates),
        *_across(study, concluded),
        *(case.finding for case in concluded),
        *elsewhere(study),
        *curves.findings(study, estimates),
    ]
    if findings:
        sheet = sheet_of_study(study, _trained_on(study, concluded)).model_copy(update={"preflight": tuple(cards.values())})
        sheet.save(study.folder)
        report(findings, study.folder / PAGE, title=_title(study, done), subtitle=_subtitle(study), sheet=sheet)
    save_findings(findings, study.folder, made_from)
    return findings


def _made_from(study: Study, done: list[str]) -> str:
    plan = study.plan
    over = {}
    for kind in over_models.KINDS:
        over[kind] = {name: one.model_dump() for name, one in getattr(plan, kind).items()}
    drawn = {name: one.model_dump() for name, one in plan.curves.items()}
    deciding = [done, plan.measured, plan.name, drawn, plan.references, over, plan.depth, plan.title]
    return hashlib.blake2b(json.dumps(deciding).encode(), digest_size=16).hexdigest()


def _title(study: Study, done: list[str]) -> str:
    if study.plan.brought:
        return study.plan.title or f"Audit of {study.plan.name}"
    return f"Study {study.name}: {len(done)} of {len(study.units)} models"


def _subtitle(study: Study) -> str:
    if study.plan.brought:
        return study.plan.subtitle
    return "Each finding is about models that differ in the seed alone."


# ---- one finding ---------------------------------------------------------------------------------------------------------


def _concluded(study: Study, done: set[str]) -> list[Concluded]:
    groups = study.groups()
    concluded = []
    for name, audit in study.plan.audits.items():
        about = cases(study.plan, name, groups)
        for group, members in about.items():
            finished = {}
            for role, units in members.items():
                finished[role] = [unit for unit in units if unit in done]
            if finished[audit.subject]:
                concluded.append(_case(study, name, group, finished, members.get(panels.PANEL, ())))
        if study.plan.brought and not about:
            concluded.append(_without_models(study, name, groups))
    return concluded


def _across(study: Study, concluded: Sequence[Concluded]) -> list[Finding]:
    """Of every audit of families: what it says over those of one architecture, where there are several."""
    findings = []
    for name, audit in study.plan.audits.items():
        module = families.member("audits", audit.method)
        by_architecture: dict[str, dict[str, Any]] = {}
        for case in concluded:
            if case.audit == name and case.result is not None:
                by_architecture.setdefault(case.group[0], {})[" ".join(case.group[1:])] = case.result
        for architecture, results in by_architecture.items():
            if len(results) > 1 and hasattr(module, "across"):
                rng = task_rng(study.plan.seed, f"{audit.method} across")
                said: Finding = module.across(results, name=f"{name}-{architecture}-families", rng=rng)
                model = f"{said.model} of {architecture}" if said.model else ""
                findings.append(said.model_copy(update={"model": model, "seed": study.plan.seed, "settings": audit.settings}))
    return findings


def _without_models(study: Study, name: str, groups: Mapping[Group, list[str]]) -> Concluded:
    """An audit of a brought model that lacks the family of models that it is about."""
    audit = study.plan.audits[name]
    group = next(key for key, units in groups.items() if study.plan.brought in units)
    reasons = [audit.unavailable.get(audit.subject, ""), _minutes(study)]
    return Concluded(name, group, _not_run(study, name, group, [], "; ".join(filter(None, reasons))), {})


def _minutes(study: Study) -> str:
    """How long training the missing models would take, judged by how long a reference model took."""
    seconds = []
    for unit in study.units:
        if unit != study.plan.brought:
            seconds.append(study.run(unit).get("times", {}).get("train"))
    known = [each for each in seconds if each]
    if not known:
        return ""
    return f"a reference model took {duration(sum(known) / len(known))}"


def _trained_on(study: Study, concluded: list[Concluded]) -> dict[str, str]:
    """Model, as findings name it → the training set that all its units share."""
    cohorts_of: dict[str, set[str]] = {}
    for key, units in study.groups().items():
        for case in concluded:
            if case.group == key[: len(case.group)]:
                cohorts_of.setdefault(case.finding.model, set()).update(study.plan.units[unit].cohort for unit in units)
    return {model: next(iter(cohorts)) for model, cohorts in cohorts_of.items() if len(cohorts) == 1}


def _case(study: Study, name: str, group: Group, units: Mapping[str, list[str]], panel: Sequence[str] = ()) -> Concluded:
    """What an audit concludes of some units and their references; where they are seeds, also of each alone."""
    audit = study.plan.audits[name]
    module, tested = families.member("audits", audit.method), units[audit.subject]
    measured, lacking = _measured(study, name, units)
    if audit.subject not in measured:
        before = []
        for role in lacking:
            if study.plan.brought and role != audit.subject:
                before.append(lacking[role])
        reason = "; ".join(filter(None, [*before, lacking[audit.subject]]))
        return Concluded(name, group, _not_run(study, name, group, tested, reason, _lacks(study, name, tested)), {})
    settings = families.accepted(module.conclude, study.settings(name)) | panels.freeze(study, name, group, panel, measured)

    def concluded(of: list[Any]) -> tuple[Finding, Any]:
        began = time.perf_counter()
        rng = task_rng(study.plan.seed, f"{audit.method} conclude")
        result = module.conclude({**measured, audit.subject: of}, rng=rng, **settings)
        context = replace(
            result.context,
            name=_finding_name(study, name, group),
            audit=audit.method,
            model=_model(study, group, tested, audit.subject),
            settings=audit.settings,
            seed=study.plan.seed,
        )
        if context.n_rows is None:
            view = study.evidence(tested[0]).on(context.cohort)
            context = replace(context, n_rows=len(view), n_subjects=subjects_of(view))
        finding: Finding = replace(result, context=context).finding()
        seconds = time.perf_counter() - began + sum(study.run(unit).get("measured", {}).get(name, 0.0) for unit in tested)
        return finding.model_copy(update={"seconds": seconds}), result

    try:
        finding, result = concluded(measured[audit.subject])
        if audit.is_about_a_family:
            return Concluded(name, group, finding, {}, result)
        alone = {}
        for u, m in zip(tested, measured[TEST], strict=True):
            alone[u] = concluded([m])[0] if len(tested) > 1 else finding
    except (NotRun, EvidenceError) as error:  # of a role that it cannot do without: why there is none
        reasons = [*(reason for reason in lacking.values() if reason), str(error)]
        lacks = getattr(error, "lacks", "")
        return Concluded(name, group, _not_run(study, name, group, tested, "; ".join(reasons), lacks), {})
    if len(tested) > 1:
        finding = _with_seeds(finding, tested, measured[TEST], [one.verdict for one in alone.values()])
    return Concluded(name, group, finding, alone)


def _lacks(study: Study, name: str, units: Sequence[str]) -> str:
    """Which data the audit lacked on the first of these units that it could not measure."""
    for unit in units:
        measurement = study.measurement(unit, name)
        if isinstance(measurement, Unmeasured):
            return measurement.lacks
    return ""


def _not_run(study: Study, name: str, group: Group, tested: list[str], reason: str, lacks: str = "") -> Finding:
    audit = study.plan.audits[name]
    module = families.member("audits", audit.method)
    return not_run(
        _finding_name(study, name, group),
        audit.method,
        module.QUESTION,
        module.ROW,
        reason,
        lacks=lacks,
        model=_model(study, group, tested, audit.subject),
        attribute=str(audit.settings.get("attribute") or "") if study.plan.brought else "",
        settings=audit.settings,
        seed=study.plan.seed,
    )


def _finding_name(study: Study, name: str, group: Group) -> str:
    if study.plan.brought:
        return name
    return "-".join((name, *group))


def _measured(study: Study, name: str, units: Mapping[str, list[str]]) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Role → measurements, and role → why it has none. A tested model without one leaves nothing to conclude."""
    audit = study.plan.audits[name]
    measured, lacking = {}, dict(audit.unavailable)
    if SEVERITIES in audit.settings and study.settings(name)[SEVERITIES] is None and audit.settings[SEVERITIES]:
        lacking[SEVERITIES] = "its severities are not calibrated: that has failed"
    for role, members in units.items():
        every = [study.measurement(unit, name) for unit in members]
        missing = [m.not_run for m in every if isinstance(m, Unmeasured)]
        known = [m for m in every if not isinstance(m, Unmeasured)]
        if known and not (missing and role == audit.subject):
            measured[role] = known
        elif missing:
            lacking[role] = missing[0]
        elif role not in audit.unavailable:
            lacking[role] = _why_none(study, audit, role)
    return measured, lacking


def _why_none(study: Study, audit: AuditPlan, role: str) -> str:
    """Why a role that has models in the plan has none that is finished."""
    regimes = audit.roles.get(role, {}).get("regime", [])
    for unit, planned in study.plan.units.items():
        error = None
        if planned.regime in regimes:
            error = study.run(unit).get("error")
        if error:
            return f"no {role} model: {error['message']}"
    return f"no finished {role} model (regime {' or '.join(regimes)})"


def _with_seeds(finding: Finding, units: list[str], measured: list[Any], verdicts: list[Verdict]) -> Finding:
    """The finding with a table of its models, unless the audit has one, and a check that no seed says otherwise."""
    checks, exhibits = finding.checks, finding.exhibits
    if finding.verdict is not None:
        checks = (*checks, _seeds_agree(finding.verdict, units, verdicts))
    numbers = [_intervals(m) for m in measured]
    if numbers[0] and not any(exhibit.title == BY_MODEL for exhibit in exhibits):
        exhibits = (*exhibits, _model_by_model(units, numbers))
    return finding.model_copy(update={"checks": checks, "exhibits": exhibits})


def _seeds_agree(verdict: Verdict, units: list[str], verdicts: list[Verdict]) -> Check:
    who: dict[Verdict, list[str]] = {}
    for unit, own in zip(units, verdicts, strict=True):
        who.setdefault(own, []).append(unit)
    same = set(verdicts) == {verdict}
    note = ""
    if not same:
        note = "; ".join(f"{own}: {', '.join(several)}" for own, several in who.items())
    return Check(id="seeds", name="every seed on its own gives this verdict", passed=same, note=note)


def _model_by_model(units: list[str], numbers: list[dict[str, Cell]]) -> Table:
    names = tuple(numbers[0])
    rows: list[list[object]] = []
    for unit, row in zip(units, numbers, strict=True):
        rows.append([unit, *(row[name] for name in names)])
    over: list[object] = ["mean over seeds"]
    for name in names:
        over.append(Cell.of(over_seeds(np.array([row[name].value for row in numbers], dtype=np.float64))))
    return Table(
        title=BY_MODEL,
        caption="Each model with its own interval; the last row is the mean over models with its t interval.",
        columns=("model", *names),
        rows=[*rows, over],
    )


def _intervals(measurement: Any) -> dict[str, Cell]:
    """The numbers of a measurement that come with limits."""
    columns = scalars(measurement)
    return {
        name.replace("_", " "): Cell(value=value, low=columns[f"{name}_low"], high=columns[f"{name}_high"])
        for name, value in columns.items()
        if f"{name}_low" in columns and f"{name}_high" in columns
    }


def _model(study: Study, group: Group, units: list[str], subject: str) -> str:
    if study.plan.brought:
        return study.plan.name
    what = "seed" if subject == TEST else "model"
    return f"{' '.join(group)} ({len(units)} {what}{'s' if len(units) > 1 else ''})"


# ---- rows from elsewhere -------------------------------------------------------------------------------------------------


def elsewhere(study: Study) -> list[Finding]:
    """What a brought model's outputs do on rows from elsewhere, by audits that need nothing else.

    These findings describe: the case is about the test rows.
    """
    if not study.plan.brought or not study.plan.external or study.status(study.plan.brought) != DONE:
        return []
    alone = []
    for method in families.members("audits"):
        if _reads_outputs_alone(method):
            alone.append(method)
    findings = []
    for name in study.plan.external:
        said = study.evidence(study.plan.brought)
        logits, card = said.on(name)["logits"], said.card
        rows = {"test": study.cohort(name)}
        evidence = Evidence.from_arrays(rows, {"test": {"logits": logits}}, classes=card.classes, name=card.name)
        for finding in audit_all(evidence, audits=alone, seed=study.plan.seed):
            renamed = {"name": f"{finding.name}-{name}", "cohort": name, "verdict": None, "model": study.plan.name}
            findings.append(finding.model_copy(update=renamed))
    return findings


def _reads_outputs_alone(method: str) -> bool:
    return all(need.array == "logits" and need.cohort == "test" for need in needs_of([method]) if not need.optional)
