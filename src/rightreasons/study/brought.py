"""The study of a brought model: the model itself, what its audits compare it with, and why some of that cannot be had.

Everything lies in one folder, and a second run makes only what is missing:

    study.toml  plan.json  sheet.json  findings/*.json  report.html
    evidence/  measurements/  predictions/  run.json  row.json    of the model
    references/<name>/model/ evidence/ …                          of each model that it is compared with
    severities/<attribute>.json                                   how strongly images are changed, for audits that change them
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rightreasons import families
from rightreasons.data.cohort import Cohort
from rightreasons.errors import SettingError
from rightreasons.evidence import Evidence
from rightreasons.extraction import extract, named_cohorts, refuse_ragged_chunks
from rightreasons.extraction.severities import calibrate
from rightreasons.families import refuse_unknown
from rightreasons.findings import file_name
from rightreasons.models.classifier import Classifier
from rightreasons.study.cohorts import with_roles
from rightreasons.study.file import Audit, Depth, References, Regime, StudyFile
from rightreasons.study.folder import Held, Study
from rightreasons.study.keywords import full, refuse_wrong_types, settings_of
from rightreasons.study.performance import performance
from rightreasons.study.plan import BROUGHT, DATA, PLAIN, AuditPlan, Calibration, Driver, Unit
from rightreasons.study.planner import BroughtNetwork, Scheme, axes_of, save_plan
from rightreasons.study.references import planned_audit, with_groups
from rightreasons.study.roles import TEST
from rightreasons.study.selection import SEVERITIES, Rows, Selected, select
from rightreasons.study.severities import NOT_IN_A_FILE
from rightreasons.study.trainings import DECODING, Point, functions_of_method, settings_of_method

REPLICATES: Mapping[Depth, int] = {"quick": 0, "usual": 1, "full": 4}
"""Seeds of every reference model. With four there is a spread of balanced models to judge the tested one by."""
SCALES = (-0.4, -0.1, -0.02, 0.0, 0.02, 0.1, 0.4)
"""Of the family that is trained where an audit is about one: how strongly the attribute's gradient reaches the network."""
FAMILY_SEEDS = 3
FAMILY = "gradient_scaling"
LIKE = ("epochs", "batch", "lr", "optimizer", "weight_decay", "schedule", "warmup", "stop_on", "patience", "clip", "augment")
"""Settings of a training that the reference models take from the tested one."""
NOT_EXTRACTION = ("out", "training", "needs", "seed")  # keywords of extract() that a plan does not set
EVERY_ROW = 10**12  # one process extracts all rows: nothing is split


def refuse_wrong_tables(file: StudyFile) -> None:
    """Check [references] and [extract] before a network is loaded."""
    start = None if file.model is None else file.model.start
    if start not in (None, "fresh", "given") and not Path(str(start)).exists():
        raise SettingError(f"start={start!r} is neither fresh nor given, and there is no such file: name the starting weights")
    _extraction(file)
    known = {*settings_of_method(PLAIN), *References.model_fields, *DECODING}
    refuse_unknown(file.references.keywords, known, "[references]")
    refuse_wrong_types(file.references.keywords, *functions_of_method(PLAIN), where="[references]")


def _extraction(file: StudyFile) -> dict[str, Any]:
    """Full settings of [extract]."""
    settings = full(file.extract, extract, where="[extract]", without=NOT_EXTRACTION)
    refuse_ragged_chunks(settings["batch"], settings["chunk"])
    return settings


@dataclass(frozen=True)
class Brought:
    """A trained model, its rows, and what is asked of them.

    Attributes
    ----------
    data : the rows as they are read
    external : rows from elsewhere: what the model does there is described beside
    references : role → models that are there already
    threads : of the trainings of reference models; torch's own number by default
    text, command : the study.toml that says all this, and how to repeat it
    """

    classifier: Classifier
    data: Cohort
    folder: Path
    file: StudyFile
    external: Mapping[str, Cohort] = field(default_factory=dict)
    references: Mapping[str, Sequence[Classifier]] = field(default_factory=dict)
    threads: int | None = None
    text: str = ""
    command: str = ""

    @property
    def name(self) -> str:
        return str(self.classifier.card.get("name") or self.classifier.name)

    def study(self) -> Study:
        """The planned study; plan.json and the cohorts are written to its folder."""
        if (self.folder / "evidence" / "zarr.json").exists():  # before anything in the folder is changed
            Evidence.open(self.folder / "evidence").refuse_other_model(self.name, self.classifier.fingerprint)
        rows = with_roles(self.data, self.file.seed, trains=self.data.has("train"))
        truth = None if self.file.data is None else self.file.data.truth
        selected = select(self.file.audits, Rows(rows, named_cohorts(rows, self.file.seed), self.classifier, truth))
        scheme = self._scheme(rows, selected)
        references = scheme.references()
        units, _ = scheme.units(scheme.drafts(references))
        calibrations = calibrations_of(scheme, selected, units)
        plan = scheme.plan(
            units,
            calibrations,
            references,
            name=self.name,
            base=str(self.folder),
            notes=_described(f"{self.file.depth} audit of {self.name} on {len(rows)} rows", selected, scheme.audits),
            brought=self.unit,
            depth=self.file.depth,
            command=self.command,
            title=self.file.title,
            subtitle=self.file.subtitle or "",
        )
        models = {self.unit: self.classifier, **self._given}
        study = Study(self.folder, plan, Held(models, dict(scheme.rows), rows))
        save_plan(study, scheme.rows, self.text)
        return study

    @property
    def unit(self) -> str:
        """The id of the unit that the study is about."""
        return file_name(self.name)

    @property
    def _given(self) -> dict[str, Classifier]:
        """The models that are there already to compare with, by unit."""
        given = {}
        for role, models in self.references.items():
            for number, model in enumerate(models):
                given[f"{role}-{number}"] = model
        return given

    def _scheme(self, rows: Cohort, selected: list[Selected]) -> Scheme:
        """The model itself, models that were given to compare with, and families that audits are about."""
        tables = {one.name: Audit(method=one.method, **one.settings) for one in selected}
        cohorts = with_groups(tables, {DATA: rows, **self.external})
        file = self._complete_file(tables)
        families = self._families(selected)
        points = self._points(families)
        start = None if file.model is None else file.model.start
        compared = {unit: model.fingerprint for unit, model in self._given.items()}
        refusal = {one.name: reason for one in selected if (reason := self.refusal(one)) is not None}
        return Scheme(
            file=file,
            folder=self.folder,
            rows=cohorts,
            external=set(self.external),
            points=points,
            regimes=self._regimes(file, families),
            audits=self._audits(file, selected, families, cohorts[DATA], axes_of(points)),
            driver=Driver(batched="auto", split_rows=EVERY_ROW),
            engine_settings={"threads": self.threads},
            threads=self.threads,
            extraction=_extraction(file),
            performance=settings_of(performance, without=("seed",)),
            brought=BroughtNetwork(self.classifier, self.unit, start or "card", refusal, compared),
        )

    def _families(self, selected: list[Selected]) -> list[Selected]:
        """Audits about a family that is trained for them."""
        if self.file.depth != "full":
            return []
        return [audit for audit in selected if audit.is_about_a_family and self.refusal(audit) is None]

    def _points(self, families: list[Selected]) -> list[Point]:
        points = [Point(self.name, BROUGHT, self.file.seed, {}, (), "[model]")]
        for role, models in self.references.items():
            points += [Point(self.name, role, number, {}, (), "[references]") for number in range(len(models))]
        for attribute in dict.fromkeys(audit.attribute for audit in families):
            for seed, scale in itertools.product(range(FAMILY_SEEDS), SCALES):
                points.append(Point(self.name, f"family-{attribute}", seed, {"scale": scale}, ("scale",), "[audits]"))
        return points

    def _regimes(self, file: StudyFile, families: list[Selected]) -> dict[str, Regime]:
        regimes = {BROUGHT: Regime(method=BROUGHT)}
        for role in self.references:
            regimes[role] = Regime(method=BROUGHT)
        for audit in families:
            known = settings_of_method(FAMILY)
            like = {key: value for key, value in file.references.keywords.items() if key in known}
            settings = {"method": FAMILY, "start": BROUGHT, "attribute": audit.attribute, **like}
            regimes[f"family-{audit.attribute}"] = Regime(**settings)
        return regimes

    def _audits(
        self, file: StudyFile, selected: list[Selected], families: list[Selected], data: Cohort, axes: Mapping[str, Any]
    ) -> dict[str, AuditPlan]:
        """The audits with their roles as far as they are known: the model itself, models that were given, families."""
        audits = {name: planned_audit(name, table, data, axes) for name, table in (file.audits or {}).items()}
        for one in selected:
            audit = audits[one.name]
            for role in one.references:
                if role.name in self.references:
                    audit.roles[role.name] = {"regime": [role.name]}
            if not one.is_about_a_family:
                audit.roles[TEST] = {"regime": [BROUGHT]}
            elif one in families:
                audit.roles[one.subject] = {"regime": [f"family-{one.attribute}"]}
            else:
                audit.roles[one.subject] = {"regime": ["none"]}
                audit.unavailable[one.subject] = self._no_family(one)
        return audits

    def _no_family(self, one: Selected) -> str:
        if self.file.depth != "full":
            return f"it is about a family of {len(SCALES) * FAMILY_SEEDS} models: ask for it with --full"
        return one.impossible or self.refusal(one) or ""

    def _complete_file(self, tables: dict[str, Audit]) -> StudyFile:
        """The file as one of runs: the settings of the tested model's own training are those of its references."""
        own = self.classifier.card.get("settings") or {} if self.classifier.training is not None else {}
        seeds = list(range(REPLICATES[self.file.depth]))
        given = self.file.references.keywords
        decoding = {key: given.pop(key) for key in DECODING if key in given}
        references = References(**{**given, "seed": seeds})
        return self.file.model_copy(
            update={
                "audits": tables,
                "engine": "inline",
                "train": {**{key: own[key] for key in LIKE if key in own}, **decoding},
                "references": references,
            }
        )

    def refusal(self, audit: Selected) -> str | None:
        """Why no models are trained for an audit: None where they are, empty where the audit itself says why."""
        if audit.impossible:
            return ""
        if self.file.depth == "quick":
            return "nothing is trained with --quick"
        if not self.data.has("train"):
            return "training rows unknown, name a split column with train rows"
        start = None if self.file.model is None else self.file.model.start
        if start is None and self.classifier.training is None and not self.classifier.card.get("regime"):
            return 'starting weights unknown, say start = "fresh" or name the file of the weights that training began with'
        return None


def _described(what: str, selected: list[Selected], audits: Mapping[str, AuditPlan]) -> list[str]:
    """What will run, and what will not and why, in words; audits that lack the same are told together."""
    cannot: dict[str, list[str]] = {}
    able = []
    for one in selected:
        reason = one.impossible or _lacking(one, audits[one.name])
        if reason:
            cannot.setdefault(reason, []).append(one.name)
        else:
            able.append(one.name)
    said = [f"{what}", f"  will run: {', '.join(able) or 'nothing'}"]
    return [*said, *(f"  will not run: {', '.join(names)}: {reason}" for reason, names in cannot.items())]


def _lacking(one: Selected, audit: AuditPlan) -> str:
    """Why an audit will not run though the rows and the network would do: models it cannot go without; empty where it will."""
    if audit.unavailable.get(audit.subject):
        return audit.unavailable[audit.subject]
    if one.module is None:
        return ""
    settings = families.accepted(one.module.needs, dict(one.settings))
    asked = {need.role for need in one.module.needs(**settings) if not need.optional}
    reasons = [audit.unavailable[role] for role in audit.unavailable if role in asked and audit.unavailable[role]]
    if audit.unavailable.get(SEVERITIES) and not audit.settings.get("operators"):
        reasons.append(audit.unavailable[SEVERITIES])
    return "; ".join(reasons)


# ---- how strongly images are changed -------------------------------------------------------------------------------------


def calibrations_of(scheme: Scheme, selected: list[Selected], units: Mapping[str, Unit]) -> dict[str, Calibration]:
    """Attribute → a calibration, for every attribute whose audits change images; the audits' settings name its file."""
    calibrations: dict[str, Calibration] = {}
    for one in selected:
        if not one.calibrates:
            continue
        audit, reference = scheme.audits[one.name], _balanced(one, scheme, selected, units)
        rows = scheme.rows[DATA]
        validation = rows.on("val") if rows.has("val") else rows.on("audit")
        is_possible = not one.impossible and scheme.file.depth != "quick"
        if not is_possible or not (reference or validation.mask is not None):
            reason = "not calibrated: that needs a model trained on balanced rows (not with --quick), or masks"
            audit.unavailable[SEVERITIES] = reason
            continue
        name = one.attribute or "all"
        audit.settings[SEVERITIES] = f"severities/{file_name(f'{name}.json')}"
        calibrations[one.attribute or ""] = Calibration(
            baseline=scheme.brought.unit if scheme.brought is not None else "",
            reference=reference,
            settings=settings_of(calibrate, without=NOT_IN_A_FILE),
            file=audit.settings[SEVERITIES],
            is_needed=False,
        )
    return calibrations


def _balanced(one: Selected, scheme: Scheme, selected: list[Selected], units: Mapping[str, Unit]) -> str:
    """A unit trained on rows that are balanced in the same attribute, for whichever audit it is there; "" for none."""
    for other in selected:
        if other.attribute not in (one.attribute, None):
            continue
        for role in other.asks_for_balanced_rows:
            regimes = scheme.audits[other.name].roles.get(role.name, {}).get("regime", [])
            serving = [name for name, unit in units.items() if unit.regime in regimes]
            if serving:
                return min(serving, key=lambda name: units[name].seed)
    return ""
