"""The reference models that audits ask for: regimes, rows and points that a plan adds where the file names none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rightreasons import families
from rightreasons.audits import Role
from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError, SettingError
from rightreasons.study.record import PLAIN
from rightreasons.study.regimes import Point, known, refuse_unknown
from rightreasons.study.roles import TEST, choice, plays

ROWS = ("train", "balanced", "redrawn")


def read_audit(name: str, table: Mapping[str, Any], data: Cohort, axes: Iterable[str]) -> dict[str, Any]:
    """An audit of a study with its full settings and the units that the file chooses for its roles."""
    given = dict(table)
    method, roles = given.pop("method", name), given.pop("roles", {})
    module, where = families.member("audits", method), f"[audits.{name}]"
    usual = families.settings_of(module.measure, module.conclude)
    refuse_unknown(given, [*usual, "method", "roles"], where)
    settings = {**usual, **given}
    attribute = settings.get("attribute")
    if attribute is not None and attribute not in data.attributes:
        told = families.suggest(attribute, data.attributes)
        raise SettingError(f"{where}: the data have no attribute {attribute!r}; {told}")
    asked = [role.name for role in declared(module, settings, data)]
    read = dict.fromkeys(need.role for need in module.needs(**families.accepted(module.needs, settings)))
    for role in roles:
        if role not in (*read, *asked):
            raise SettingError(f"{where} roles: {method} has no role {role!r}; {families.suggest(role, [*read, *asked])}")
    return {
        "method": method,
        "settings": settings,
        # Without `test` an audit is about a family of models: the first role that no reference has.
        "subject": TEST if TEST in read or not read else next((role for role in read if role not in asked), TEST),
        "references": asked,
        "roles": {role: choice(chosen, axes, f"{where} roles.{role}") for role, chosen in roles.items()},
        "unavailable": {},
    }


def with_groups(audits: Mapping[str, Mapping[str, Any]], cohorts: Mapping[str, Cohort]) -> dict[str, Cohort]:
    """The cohorts with the groups of numbers that reference models of these audits (the file's) learn."""
    found = dict(cohorts)
    data = next(iter(found.values()))
    for name, table in audits.items():
        module = families.member("audits", table.get("method", name))
        settings = {**families.settings_of(module.measure, module.conclude), **table}
        for role in declared(module, settings, data):
            if role.groups and _is_number(data, role.target) and f"{role.target} groups" not in data.attributes:
                found = {
                    key: cohort.in_groups(role.target, role.groups, of=data) if _is_number(cohort, role.target) else cohort
                    for key, cohort in found.items()
                }
                data = next(iter(found.values()))
    return found


def _is_number(cohort: Cohort, column: str) -> bool:
    return column in cohort.attributes and cohort.attribute(column).kind == "continuous"


def declared(module: Any, settings: Mapping[str, Any], data: Cohort) -> tuple[Role, ...]:
    """The reference models that an audit asks for with these settings; its attribute is the data's first where none is named."""
    full = dict(settings)
    if full.get("attribute", "") is None and data.attributes:
        full["attribute"] = data.attributes[0]
    roles: tuple[Role, ...] = module.roles(**families.accepted(module.roles, full))
    return roles


@dataclass
class References:
    """What a plan adds for its audits.

    Attributes
    ----------
    table : [references] of the file: `seed`, `rows`, and settings of the training
    make : (name, how) → a training set made of the data, as [cohorts.NAME] makes it
    can_redraw : whether the data are a planted world, whose cue can be drawn again
    regimes : the file's, joined by what is added
    added : regime → the audit and role that it was added for
    notes : what was added, in words
    """

    table: Mapping[str, Any]
    data: Cohort
    make: Callable[[str, Mapping[str, Any]], Cohort]
    can_redraw: bool
    regimes: dict[str, dict[str, Any]]
    cohorts: dict[str, Cohort]
    added: dict[str, dict[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _rows: dict[tuple[str, str], str] = field(default_factory=dict)
    _same: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        refuse_unknown(self.table, {*known(PLAIN), "seed", "rows"}, "[references]")
        if self.table.get("rows", "train") not in ROWS:
            raise SettingError(f"[references] rows = {self.table['rows']!r}; {families.suggest(str(self.table['rows']), ROWS)}")

    def add(self, name: str, audit: dict[str, Any], units: list[tuple[Point, dict[str, Any]]]) -> list[Point]:
        """Points of the reference models that an audit lacks; its roles are filled in."""
        module, points = families.member("audits", audit["method"]), {}
        for role in declared(module, audit["settings"], self.data):
            if role.name in audit["roles"]:
                continue
            try:
                regime = self._regime(name, role, audit["settings"].get("attribute"))
            except DataError as error:
                audit["unavailable"][role.name] = f"no {role.name} model can be trained: {error}"
                self.notes.append(f"{name}: {audit['unavailable'][role.name]}")
                continue
            audit["roles"][role.name] = {"regime": [regime]}
            told = {"audits": {}, "references": self.added}
            tested = [point for point, unit in units if audit["subject"] in plays(told, audit, unit)]
            for point in self._points(regime, tested) if regime in self.added else ():
                points[json.dumps([point.architecture, regime, point.seed, point.settings], sort_keys=True)] = point
        return list(points.values())

    def _regime(self, audit: str, role: Role, attribute: str | None) -> str:
        """The regime of a role's models; one of that name in the file is taken as it stands, and equal ones are one."""
        name = f"{audit}-{role.name}"
        if name in self.regimes and name not in self.added:
            return name
        like = PLAIN if role.regime == role.rows else role.regime  # "balanced" on balanced rows is plain training on them
        usual = {} if like == PLAIN else {"method": like}
        table = {k: v for k, v in self.regimes.get(like, usual).items() if k not in ("start", "references")}
        rows = str(self.table.get("rows", role.rows)) if role.rows != "train" else "train"
        if rows != "train":
            table["cohort"] = self._cohort(audit, rows, attribute or (self.data.attributes[0] if self.data.attributes else ""))
        if role.target:
            table["target"] = self._target(role)
        if role.stopping != "val":
            table["stopping"] = role.stopping
        table |= {key: value for key, value in self.table.items() if key not in ("seed", "rows")}
        same = json.dumps(table, sort_keys=True)
        if same not in self._same:
            self._same[same], self.regimes[name] = name, table
            self.added[name] = {"audit": audit, "role": role.name}
            of = f"cohort {table.get('cohort', 'data')}" + (f", predicts {table['target']}" if role.target else "")
            self.notes.append(f"{audit} asks for models in the role {role.name}: regime {name} added ({of})")
        return self._same[same]

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
            raise DataError("the data have no attribute")
        if rows == "balanced" and self.data.attribute(attribute).kind == "continuous":
            raise DataError(f"{attribute} is continuous and forms no groups to balance: give bins when reading it")
        key = (rows, "" if rows == "redrawn" else attribute)
        if key not in self._rows:
            name = f"{audit}-{rows}"
            if name in self.cohorts:
                raise SettingError(f"[cohorts.{name}]: the name is needed for the reference models of {audit}; choose another")
            how: Mapping[str, Any] = {"redrawn": 1} if rows == "redrawn" else {"balance": {"attribute": attribute}}
            self.cohorts[name] = self.make(name, how)
            self._rows[key] = name
        return self._rows[key]

    def _points(self, regime: str, tested: list[Point]) -> Iterable[Point]:
        """The points of the tested units, as far as their settings mean anything to a reference model."""
        table = self.regimes[regime]
        usual = known(table.get("method", PLAIN)).keys() - self.table.keys() - {"target", "stopping"}
        usual |= {"cohort"} if "cohort" not in table else set()
        given = self.table.get("seed", [])
        seeds = given if isinstance(given, list) else [given]
        for point in tested:
            settings = {key: value for key, value in point.settings.items() if key in usual}
            axes = tuple(key for key in point.axes if key in settings)
            for seed in seeds or [point.seed]:
                yield Point(point.architecture, regime, int(seed), settings, axes, f"[audits] {regime}")
