"""Who is compared with whom: the units that an audit is about, and those that serve it in other roles. No torch.

A role is given by a choice of units: `"balanced"` (a regime), `["*", "!erm"]` (all regimes but one), or a table of conditions,
`{regime = "erm", lr = "*"}`. Where it does not say otherwise, a unit serves those of its own architecture and of equal axes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Protocol

from rightreasons.errors import SettingError
from rightreasons.families import suggest
from rightreasons.study.plan import AuditPlan, Choice, Plan, Unit

TEST = "test"
KEYS = ("architecture", "regime", "method", "cohort")
Group = tuple[str, ...]
"""(architecture, regime, setting=value …) of units that differ in the seed alone."""


class Member(Protocol):
    """What is asked of a unit, planned or still being planned."""

    @property
    def architecture(self) -> str: ...

    @property
    def regime(self) -> str: ...

    @property
    def axes(self) -> Mapping[str, Any]: ...

    @property
    def target(self) -> str | None: ...


def choice(given: Any, axes: Iterable[str], where: str) -> Choice:
    """A choice of units as it stands in a file, checked."""
    if isinstance(given, str | list):
        conditions = {"regime": given}
    else:
        conditions = given
    known = {*KEYS, *axes}
    chosen: Choice = {}
    for key, value in conditions.items():
        if key not in known:
            raise SettingError(f"{where} has no condition {key!r}; {suggest(key, known)}")
        if isinstance(value, list):
            patterns = value
        else:
            patterns = [value]
        chosen[key] = [str(pattern) for pattern in patterns]
    return chosen


def plays(audit: AuditPlan, unit: Member, added: Collection[str]) -> tuple[str, ...]:
    """The roles that a unit has in an audit; none where the audit does not look at it.

    Parameters
    ----------
    added : regimes that the plan added for audits
    """
    others = []
    for role, chosen in audit.roles.items():
        if role != audit.subject and _fits(chosen, unit, added):
            others.append(role)
    if _is_subject(audit, unit, others, added):
        return (audit.subject, *others)
    return tuple(others)


def cases(plan: Plan, name: str, groups: Mapping[Group, list[str]]) -> dict[Group, dict[str, list[str]]]:
    """What an audit concludes over: group → role → units.

    An audit with the role `test` has a case for every group of units that differ in the seed alone. One without it is about a
    family: all its units of one architecture that were trained on one cohort, whatever their seeds, axes and regimes.
    """
    audit = plan.audits[name]
    played = {}
    for unit in plan.units:
        played[unit] = plays(audit, plan.units[unit], plan.references)
    if audit.is_about_a_family:
        by_group = _families(plan, audit, played, groups)
    else:
        by_group = {}
        for group, members in groups.items():
            subjects = [unit for unit in members if audit.subject in played[unit]]
            if subjects:
                by_group[group] = {audit.subject: subjects}
    ordered = [unit for members in groups.values() for unit in members]
    for case in by_group.values():
        first = plan.units[case[audit.subject][0]]
        for role, chosen in audit.roles.items():
            if role != audit.subject:
                serving = [unit for unit in ordered if role in played[unit]]
                case[role] = [unit for unit in serving if _serves(plan.units[unit], first, audit, chosen)]
        for role in audit.unavailable:
            case.setdefault(role, [])
    return by_group


def agree(a: Mapping[str, Any], b: Mapping[str, Any], but: Iterable[str] = ()) -> bool:
    """Whether two units have equal values of all axes that both have."""
    return all(a[key] == b[key] for key in a.keys() & b.keys() - set(but))


# ---- what the functions above use ----------------------------------------------------------------------------------------


def _families(
    plan: Plan, audit: AuditPlan, played: Mapping[str, Collection[str]], groups: Mapping[Group, list[str]]
) -> dict[Group, dict[str, list[str]]]:
    """(architecture, regimes) → the units of a family; the cohort is named too where two families would be called alike."""
    by_rows: dict[tuple[str, str], list[str]] = {}
    for group, members in groups.items():
        for unit in members:
            if audit.subject in played[unit]:
                by_rows.setdefault((group[0], plan.units[unit].cohort), []).append(unit)
    named: dict[tuple[str, str], tuple[str, str]] = {}
    for (architecture, cohort), family in by_rows.items():
        regimes = dict.fromkeys(plan.units[unit].regime for unit in family)
        named[architecture, cohort] = architecture, "+".join(regimes)
    alike = Counter(named.values())
    by_title: dict[Group, dict[str, list[str]]] = {}
    for key, family in by_rows.items():
        if plan.brought:  # seed by seed, as its family is trained
            family.sort(key=lambda unit: (plan.units[unit].seed, tuple(plan.units[unit].axes.values())))
        title: Group = named[key]
        if alike[named[key]] > 1:
            title = (*title, f"cohort={key[1]}")
        by_title[title] = {audit.subject: family}
    return by_title


def _serves(unit: Unit, tested: Unit, audit: AuditPlan, chosen: Choice) -> bool:
    is_same = "architecture" in chosen or unit.architecture == tested.architecture
    axes = {} if audit.is_about_a_family else tested.axes
    return is_same and agree(unit.axes, axes, but=chosen)


def _is_subject(audit: AuditPlan, unit: Member, others: list[str], added: Collection[str]) -> bool:
    """Units that predict another column, or are what this audit compares with, are not what it is about."""
    if unit.target:
        return False
    chosen = audit.roles.get(audit.subject)
    if chosen is not None:
        return _fits(chosen, unit, added)
    if not audit.references:
        return True
    return not set(others) & set(audit.references) and unit.regime not in added


def _fits(chosen: Choice, unit: Member, added: Collection[str]) -> bool:
    """Patterns never take models of another column, or what was trained for some audit; such a regime must be named."""
    is_reference = bool(unit.target) or unit.regime in added
    if is_reference and unit.regime not in chosen.get("regime", ()):
        return False
    for key, patterns in chosen.items():
        value = str(getattr(unit, key) if key in KEYS else unit.axes.get(key, ""))
        wanted = [pattern for pattern in patterns if not pattern.startswith("!")] or ["*"]
        refused = []
        for pattern in patterns:
            if pattern.startswith("!"):
                refused.append(pattern.removeprefix("!"))
        if not any(fnmatchcase(value, pattern) for pattern in wanted):
            return False
        if any(fnmatchcase(value, pattern) for pattern in refused):
            return False
    return True
