"""The reference models that audits ask for: regimes, rows and points that a plan adds where the file names none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from rightreasons import families
from rightreasons.audits import Role
from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError, NotRun, SettingError
from rightreasons.families import refuse_unknown
from rightreasons.study import file
from rightreasons.study.keywords import refuse_wrong_types
from rightreasons.study.plan import PLAIN, AuditPlan
from rightreasons.study.roles import TEST, choice, plays
from rightreasons.study.trainings import Draft, Point, functions_of_method, settings_of_method

ROWS = ("train", "balanced", "redrawn")


def declared(module: ModuleType, settings: Mapping[str, Any], data: Cohort) -> tuple[Role, ...]:
    """The reference models that an audit asks for with these settings; its attribute is the data's first where none is named."""
    full = dict(settings)
    if full.get("attribute", "") is None and data.attributes:
        full["attribute"] = data.attributes[0]
    roles: tuple[Role, ...] = module.roles(**families.accepted(module.roles, full))
    return roles


def planned_audit(name: str, table: file.Audit, data: Cohort, axes: Iterable[str]) -> AuditPlan:
    """An audit of a study with its full settings and the units that the file chooses for its roles."""
    method, where = table.method or name, f"[audits.{name}]"
    module = families.member("audits", method)
    usual = families.settings_of(module.measure, module.conclude)
    refuse_unknown(table.keywords, [*usual, *file.Audit.model_fields], where)
    refuse_wrong_types(table.keywords, module.measure, module.conclude, where=where)
    settings = {**usual, **table.keywords}
    attribute = settings.get("attribute")
    if attribute is not None and attribute not in data.attributes:
        known = families.suggest(attribute, data.attributes)
        raise SettingError(f"{where}: the data have no attribute {attribute!r}; {known}")
    references = [role.name for role in declared(module, settings, data)]
    read = list(dict.fromkeys(need.role for need in module.needs(**families.accepted(module.needs, settings))))
    for role in table.roles:
        if role not in (*read, *references):
            known = families.suggest(role, [*read, *references])
            raise SettingError(f"{where} roles: {method} has no role {role!r}; {known}")
    return AuditPlan(
        method=method,
        settings=settings,
        subject=subject_of(read, references),
        references=references,
        roles={role: choice(chosen, axes, f"{where} roles.{role}") for role, chosen in table.roles.items()},
        unavailable={},
    )


def subject_of(read: Iterable[str], references: Iterable[str]) -> str:
    """The role that an audit is about: `test`, or, where it reads no such model, the first role that no reference has."""
    roles, others = list(read), set(references)
    if TEST in roles:
        return TEST
    return next((role for role in roles if role not in others), TEST)


def with_groups(audits: Mapping[str, file.Audit], cohorts: Mapping[str, Cohort]) -> dict[str, Cohort]:
    """The cohorts with the groups of numbers that reference models of these audits learn."""
    grouped = dict(cohorts)
    data = next(iter(grouped.values()))
    for name, table in audits.items():
        module = families.member("audits", table.method or name)
        settings = {**families.settings_of(module.measure, module.conclude), **table.keywords}
        for role in declared(module, settings, data):
            if role.groups and _is_number(data, role.target) and f"{role.target} groups" not in data.attributes:
                for key, cohort in grouped.items():
                    if _is_number(cohort, role.target):
                        grouped[key] = cohort.in_groups(role.target, role.groups, of=data)
                data = next(iter(grouped.values()))
    return grouped


def _is_number(cohort: Cohort, column: str) -> bool:
    return column in cohort.attributes and cohort.attribute(column).kind == "continuous"


@dataclass
class References:
    """What a plan adds for its audits.

    Attributes
    ----------
    table : [references] of the file
    make : (name, way) → a training set made of the data, as [cohorts.NAME] makes it
    can_redraw : whether the data are a planted world, whose cue can be drawn again
    regimes : the file's, joined by what is added
    start : the regime of the model that was brought, whose network every reference has; empty where models are trained here
    weights : what that network began with, see `plan.Unit`
    refusal : audit → why nothing is trained for it
    added : regime → the audit and role that it was added for
    notes : what was added, in words
    """

    table: file.References
    data: Cohort
    make: Callable[[str, file.TrainingSet], Cohort]
    can_redraw: bool
    regimes: dict[str, file.Regime]
    cohorts: dict[str, Cohort]
    start: str = ""
    refusal: Mapping[str, str] = field(default_factory=dict)
    added: dict[str, dict[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _rows: dict[tuple[str, str], str] = field(default_factory=dict)
    _same: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = {*settings_of_method(PLAIN), *file.References.model_fields}
        refuse_unknown(self.table.keywords, known, "[references]")
        refuse_wrong_types(self.table.keywords, *functions_of_method(PLAIN), where="[references]")
        if self.table.rows is not None and self.table.rows not in ROWS:
            raise SettingError(f"[references] rows = {self.table.rows!r}; {families.suggest(self.table.rows, ROWS)}")

    def add(self, name: str, audit: AuditPlan, units: list[tuple[Point, Draft]]) -> list[Point]:
        """Points of the reference models that an audit lacks; its roles are filled in."""
        module = families.member("audits", audit.method)
        points: dict[str, Point] = {}
        for role in declared(module, audit.settings, self.data):
            if role.name in audit.roles:
                continue
            try:
                regime = self._regime(name, role, audit.settings.get("attribute"))
            except (DataError, NotRun) as error:
                self._say_unavailable(name, audit, role, error)
                continue
            audit.roles[role.name] = {"regime": [regime]}
            tested = [point for point, draft in units if audit.subject in plays(audit, draft, self.added)]
            for point in self._points(regime, tested) if regime in self.added else ():
                points[json.dumps([point.architecture, regime, point.seed, point.settings], sort_keys=True)] = point
        return list(points.values())

    def _say_unavailable(self, name: str, audit: AuditPlan, role: Role, error: Exception) -> None:
        if name in self.refusal:
            audit.unavailable[role.name] = f"no {role.name} model: {error}" if str(error) else ""
            return
        audit.unavailable[role.name] = f"no {role.name} model can be trained: {error}"
        self.notes.append(f"{name}: {audit.unavailable[role.name]}")

    def _regime(self, audit: str, role: Role, attribute: str | None) -> str:
        """The regime of a role's models; one of that name in the file is taken as it stands, and equal ones are one."""
        if f"{audit}-{role.name}" in self.regimes and f"{audit}-{role.name}" not in self.added:
            return f"{audit}-{role.name}"
        if audit in self.refusal:
            raise NotRun(self.refusal[audit])
        regime = self._as_declared(audit, role, attribute)
        same = json.dumps(regime.model_dump(), sort_keys=True)
        if same not in self._same:
            name = self._name(audit, role, regime)
            self._same[same], self.regimes[name] = name, regime
            self.added[name] = {"audit": audit, "role": role.name}
            rows = f"cohort {regime.cohort}"
            if role.target:
                rows += f", predicts {regime.keywords['target']}"
            self.notes.append(f"{audit} asks for models in the role {role.name}: regime {name} added ({rows})")
        return self._same[same]

    def _as_declared(self, audit: str, role: Role, attribute: str | None) -> file.Regime:
        """The training that a role asks for, with what [references] says of all of them."""
        method = PLAIN if role.regime == role.rows else role.regime  # "balanced" on balanced rows is plain training on them
        known = self.regimes.get(method)
        if known is None:
            settings: dict[str, Any] = {"method": method}
        else:
            settings = {"method": known.method, **known.keywords}
        if known is not None and "cohort" in known.model_fields_set:
            settings["cohort"] = known.cohort
        if role.rows != "train":
            rows = self.table.rows or role.rows
            settings["cohort"] = self._cohort(audit, rows, attribute or next(iter(self.data.attributes), ""))
        if role.target:
            settings["target"] = self._target(role)
        if role.groups and _is_number(self.data, role.target) and method == PLAIN:
            settings["regress"] = role.target
        if role.stopping != "val":
            settings["stopping"] = role.stopping
        if self.start:
            settings["start"] = self.start
        return file.Regime(**{**settings, **self.table.keywords})

    def _name(self, audit: str, role: Role, regime: file.Regime) -> str:
        """Where a model was brought, its references are named by what they learnt; in a study, by the audit that asks."""
        if not self.start:
            return f"{audit}-{role.name}"
        rows = regime.cohort if role.rows != "train" else "train"
        if not role.target:
            return rows
        return f"{rows}-predicts-{role.target}"

    def _target(self, role: Role) -> str:
        """The column that a role's models predict: groups of it where it is a number and the role allows them."""
        column = role.target
        if column not in self.data.attributes:
            raise DataError(f"the data have no attribute {column!r}")
        if self.data.attribute(column).kind == "categorical":
            return column
        if not role.groups:
            raise DataError(f"{column} is continuous, and a classifier learns classes: give bins when reading it")
        return f"{column} groups"

    def _cohort(self, audit: str, rows: str, attribute: str) -> str:
        """The name of a training set without association, made once: all references of one attribute share their rows."""
        if rows not in ROWS:
            raise SettingError(f"audit {audit!r} asks for {rows!r} rows; {families.suggest(rows, ROWS)}")
        if rows == "redrawn" and not self.can_redraw:
            rows = "balanced"
            self.notes.append(f"{audit} asks for redrawn rows: the data are no planted world, and a balanced part is taken")
        if not attribute:
            raise DataError("the data have no attribute: name its column with attribute=")
        if rows == "balanced" and self.data.attribute(attribute).kind == "continuous":
            raise DataError(f"{attribute} is continuous and forms no groups to balance: give bins when reading it")
        key = (rows, "" if rows == "redrawn" else attribute)
        if key not in self._rows:
            # A cohort's name seeds the draw of its rows, so neither name may change.
            if self.start:
                name = f"{rows}-{attribute}"
            else:
                name = f"{audit}-{rows}"
            if name in self.cohorts:
                raise SettingError(f"[cohorts.{name}]: the name is needed for the reference models of {audit}; choose another")
            if rows == "redrawn":
                way = file.TrainingSet(redrawn=1)
            else:
                way = file.TrainingSet(balance={"attribute": attribute})
            self.cohorts[name] = self.make(name, way)
            self._rows[key] = name
        return self._rows[key]

    def _points(self, regime: str, tested: list[Point]) -> Iterator[Point]:
        """The points of the tested units, as far as their settings mean anything to a reference model."""
        table = self.regimes[regime]
        usual = settings_of_method(table.method).keys() - self.table.keywords.keys() - {"target", "stopping"}
        if "cohort" not in table.model_fields_set:
            usual |= {"cohort"}
        if isinstance(self.table.seed, list):
            seeds = self.table.seed
        else:
            seeds = [self.table.seed]
        for point in tested:
            settings = {}
            for key, value in point.settings.items():
                if key in usual:
                    settings[key] = value
            axes = tuple(key for key in point.axes if key in settings)
            for seed in seeds or [point.seed]:
                yield Point(point.architecture, regime, int(seed), settings, axes, f"[audits] {regime}")
