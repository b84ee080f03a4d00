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
from functools import cached_property
from pathlib import Path
from typing import Any

import rightreasons
from rightreasons.data.cohort import Cohort
from rightreasons.extraction import extract, named_cohorts
from rightreasons.extraction.severities import calibrate
from rightreasons.families import refuse_unknown
from rightreasons.findings import file_name
from rightreasons.models.classifier import Classifier
from rightreasons.study.cohorts import with_roles
from rightreasons.study.file import Audit, Depth, References, Regime, StudyFile
from rightreasons.study.folder import Held, Study
from rightreasons.study.keywords import full, refuse_wrong_types
from rightreasons.study.plan import BROUGHT, DATA, PLAIN, AuditPlan, Calibration, Driver, Unit
from rightreasons.study.planner import Planner, save_plan
from rightreasons.study.references import References as AddedReferences
from rightreasons.study.references import with_groups
from rightreasons.study.roles import TEST
from rightreasons.study.selection import SEVERITIES, Rows, Selected, select
from rightreasons.study.severities import NOT_IN_A_FILE
from rightreasons.study.trainings import DECODING, Draft, Point, functions_of_method, settings_of_method

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
    """Refuse what a file says of references and extraction before a network is loaded."""
    full(file.extract, extract, where="[extract]", without=NOT_EXTRACTION)
    known = {*settings_of_method(PLAIN), *References.model_fields, *DECODING}
    refuse_unknown(file.references.keywords, known, "[references]")
    refuse_wrong_types(file.references.keywords, *functions_of_method(PLAIN), where="[references]")


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
        rows = with_roles(self.data, self.file.seed, trains=self.data.has("train"))
        selected = select(self.file.audits, Rows(rows, named_cohorts(rows, self.file.seed), self.classifier))
        tables = {one.name: Audit(method=one.method, **one.settings) for one in selected}
        cohorts = with_groups(tables, {DATA: rows, **self.external})
        file = self._complete_file(tables)
        planner = BroughtPlanner(file, self.folder, cohorts, set(self.external), brought=self, selected=selected)
        plan = planner.plan(
            {
                "name": self.name,
                "base": str(self.folder),
                "brought": planner.tested,
                "depth": self.file.depth,
                "command": self.command,
                "title": self.file.title,
                "subtitle": self.file.subtitle or "",
            }
        )
        models = {planner.tested: self.classifier, **planner.given}
        study = Study(self.folder, plan, Held(models, dict(planner.rows), rows))
        save_plan(study, planner.rows, self.text)
        return study

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
        """Why nothing is trained for an audit; None where it may be. Empty where the audit itself will say."""
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


@dataclass
class BroughtPlanner(Planner):
    """Plans one unit that is there already, and those that are trained for its sake.

    Attributes
    ----------
    selected : the audits, each for one attribute
    """

    brought: Brought = field(kw_only=True)
    selected: list[Selected] = field(kw_only=True)

    # ---- settings ------------------------------------------------------------------------------------------------------

    @cached_property
    def driver(self) -> Driver:
        return Driver(batched="auto", split_rows=EVERY_ROW)

    @cached_property
    def engine_settings(self) -> dict[str, Any]:
        return {"threads": self.brought.threads}

    @cached_property
    def extraction(self) -> dict[str, Any]:
        return full(self.file.extract, extract, where="[extract]", without=NOT_EXTRACTION)

    @cached_property
    def regimes(self) -> dict[str, Regime]:
        found = {BROUGHT: Regime(method=BROUGHT)}
        for role in self.brought.references:
            found[role] = Regime(method=BROUGHT)
        for audit in self._families:
            known = settings_of_method(FAMILY)
            like = {key: value for key, value in self.file.references.keywords.items() if key in known}
            found[f"family-{audit.attribute}"] = Regime(
                **{"method": FAMILY, "start": BROUGHT, "attribute": audit.attribute, **like}
            )
        return found

    def deciding(self, audits: Mapping[str, AuditPlan]) -> list[Any]:
        # The unit has no id that would change with the model, the rows, the extraction or this package.
        own = [self.brought.classifier.fingerprint, self.cohort(DATA).hash, self.extraction, rightreasons.__version__]
        others = {unit: model.fingerprint for unit, model in self.given.items()}
        return [*super().deciding(audits), *own, others]

    # ---- units ---------------------------------------------------------------------------------------------------------

    @property
    def architecture(self) -> str:
        return self.brought.name

    @property
    def tested(self) -> str:
        """The id of the unit that the study is about."""
        return file_name(self.brought.name)

    @cached_property
    def given(self) -> dict[str, Classifier]:
        """The models that are there already to compare with, by unit."""
        found = {}
        for role, models in self.brought.references.items():
            for number, model in enumerate(models):
                found[f"{role}-{number}"] = model
        return found

    @cached_property
    def _families(self) -> list[Selected]:
        """Audits about a family that is trained for them."""
        if self.file.depth != "full":
            return []
        return [audit for audit in self.selected if audit.is_about_a_family and self.brought.refusal(audit) is None]

    def points(self) -> list[Point]:
        found = [Point(self.architecture, BROUGHT, self.file.seed, {}, (), "[model]")]
        for role, models in self.brought.references.items():
            found += [Point(self.architecture, role, number, {}, (), "[references]") for number in range(len(models))]
        for attribute in dict.fromkeys(audit.attribute for audit in self._families):
            for seed, scale in itertools.product(range(FAMILY_SEEDS), SCALES):
                found.append(Point(self.architecture, f"family-{attribute}", seed, {"scale": scale}, ("scale",), "[audits]"))
        return found

    def audits(self, axes: Mapping[str, Any]) -> dict[str, AuditPlan]:
        """The audits with their roles as far as they are known: the model itself, models that were given, families."""
        found = super().audits(axes)
        for one in self.selected:
            audit = found[one.name]
            if not one.is_about_a_family:
                audit.roles[TEST] = {"regime": [BROUGHT]}
            for role in one.references:
                if role.name in self.brought.references:
                    audit.roles[role.name] = {"regime": [role.name]}
            if one.is_about_a_family:
                self._give_family(one, audit)
        return found

    def _give_family(self, one: Selected, audit: AuditPlan) -> None:
        if one in self._families:
            audit.roles[one.subject] = {"regime": [f"family-{one.attribute}"]}
            return
        audit.roles[one.subject] = {"regime": ["none"]}
        if self.file.depth == "full":
            reason = one.impossible or self.brought.refusal(one)
        else:
            reason = f"it is about a family of {len(SCALES) * FAMILY_SEEDS} models: ask for it with --full"
        audit.unavailable[one.subject] = reason or ""

    def references(self) -> AddedReferences:
        added = super().references()
        added.start = BROUGHT
        added.can_redraw = False
        added.refusal = {one.name: reason for one in self.selected if (reason := self.brought.refusal(one)) is not None}
        return added

    def draft(self, point: Point, regimes: Mapping[str, Regime]) -> Draft:
        regime = regimes[point.regime]
        extraction = {key: self.extraction[key] for key in ("batch", "chunk")}
        if regime.method == BROUGHT:
            return Draft(
                point.architecture, point.regime, point.seed, DATA, BROUGHT, "", {}, {}, {}, {}, extraction, self.threads,
                self.cohort(DATA).hash,
            )  # fmt: skip
        return super().draft(point, regimes)

    @property
    def weights(self) -> str:  # type: ignore[override]
        """What the trainings of references begin with."""
        start = None if self.file.model is None else self.file.model.start
        return start or "card"

    def regime_of(self, point: Point) -> str:
        return PLAIN

    def loading(self, point: Point, values: tuple[Any, ...]) -> dict[str, Any]:
        return {}  # it starts from the network that was brought

    def network(self, draft: Draft) -> Classifier:
        return self.brought.classifier

    def identified(self, draft: Draft, start: str, references: dict[str, list[str]]) -> tuple[str, Unit]:
        """Units named by what they are: there is one model, and what it is compared with lies beside it."""
        _, unit = super().identified(draft, start, references)
        if draft.regime == BROUGHT:
            return self.tested, unit.model_copy(update={"place": "."})
        if draft.method == BROUGHT:
            title = f"{draft.regime}-{draft.seed}"
        else:
            title = f"{draft.regime}-s{draft.seed}" + "".join(f"{scale:+g}" for scale in draft.axes.values())
        name = file_name(title)
        return name, unit.model_copy(update={"place": f"references/{name}"})

    # ---- how strongly images are changed -------------------------------------------------------------------------------

    def units(self, drafts: list[Draft], audits: Mapping[str, AuditPlan]) -> tuple[dict[str, Unit], dict[str, Calibration]]:
        """The units, and a calibration for every attribute whose audits change images."""
        units, _ = super().units(drafts, audits)
        calibrations: dict[str, Calibration] = {}
        for one in self.selected:
            if not one.calibrates:
                continue
            reference = self._balanced(one, audits, units)
            rows = self.rows[DATA]
            validation = rows.on("val") if rows.has("val") else rows.on("audit")
            is_possible = not one.impossible and self.file.depth != "quick" and (reference or validation.mask is not None)
            if not is_possible:
                reason = "not calibrated: that needs a model trained on balanced rows (not with --quick), or masks"
                audits[one.name].unavailable[SEVERITIES] = reason
                continue
            name = one.attribute or "all"
            file = f"severities/{file_name(f'{name}.json')}"
            settings = full({}, calibrate, where="[severities]", without=NOT_IN_A_FILE)
            calibrations[one.attribute or ""] = Calibration(
                baseline=self.tested, reference=reference, settings=settings, file=file, is_needed=False
            )
            audits[one.name].settings[SEVERITIES] = file
        return units, calibrations

    def _balanced(self, one: Selected, audits: Mapping[str, AuditPlan], units: Mapping[str, Unit]) -> str:
        """A unit trained on rows that are balanced in the same attribute, for whichever audit it is there; "" for none."""
        for other in self.selected:
            if other.attribute not in (one.attribute, None):
                continue
            for role in other.asks_for_balanced_rows:
                regimes = audits[other.name].roles.get(role.name, {}).get("regime", [])
                serving = [name for name, unit in units.items() if unit.regime in regimes]
                if serving:
                    return min(serving, key=lambda name: units[name].seed)
        return ""

    def notes(self, references: AddedReferences) -> list[str]:
        able = [one.name for one in self.selected if not one.impossible]
        first = f"{self.file.depth} audit of {self.brought.name} on {len(self.rows[DATA])} rows: "
        cannot = [f"  {one.name} cannot: {one.impossible}" for one in self.selected if one.impossible]
        return [first + (", ".join(able) or "nothing can run"), *cannot]
