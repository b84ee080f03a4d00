"""Who is compared with whom: the units that an audit is about, and those that serve it in other roles. No torch.

A role is given by a choice of units: `"balanced"` (a regime), `["*", "!erm"]` (all regimes but one), or a table of conditions,
`{regime = "erm", lr = "*"}`. Where it does not say otherwise, a unit serves those of its own architecture and of equal axes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from rightreasons.errors import SettingError
from rightreasons.families import suggest

TEST = "test"
KEYS = ("architecture", "regime", "method", "cohort")

Choice = dict[str, list[str]]
"""Column of a unit's plan → patterns of which one must fit, and, with `!`, none may."""


def choice(given: Any, axes: Iterable[str], where: str) -> Choice:
    """A choice of units as it stands in a file, checked."""
    if isinstance(given, str | list):
        given = {"regime": given}
    if not isinstance(given, Mapping):
        raise SettingError(
            f'{where} is {given!r}: give a regime, a list of them, or conditions such as {{regime = "erm", lr = "*"}}'
        )
    known = {*KEYS, *axes}
    for key in given:
        if key not in known:
            raise SettingError(f"{where} has no condition {key!r}; {suggest(key, known)}")
    return {key: [str(v) for v in (value if isinstance(value, list) else [value])] for key, value in given.items()}


def plays(plan: Mapping[str, Any], audit: Mapping[str, Any], unit: Mapping[str, Any]) -> tuple[str, ...]:
    """The roles that a unit has in an audit; none where the audit does not look at it."""
    others = [role for role, chosen in audit["roles"].items() if role != audit["subject"] and _fits(plan, chosen, unit)]
    return (*((audit["subject"],) if _is_subject(plan, audit, unit, others) else ()), *others)


def cases(
    plan: Mapping[str, Any], name: str, groups: Mapping[tuple[str, ...], list[str]]
) -> dict[tuple[str, ...], dict[str, list[str]]]:
    """What an audit concludes over: (architecture, regime, setting=value …) → role → units.

    An audit with the role `test` has a case for every group of units that differ in the seed alone. One without it is about a
    family: all its units of one architecture that were trained on one cohort, whatever their seeds, axes and regimes.
    """
    audit, units = plan["audits"][name], plan["units"]
    played = {unit: plays(plan, audit, told) for unit, told in units.items()}
    ordered = [unit for members in groups.values() for unit in members]
    found: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for key, members in groups.items():
        subjects = [unit for unit in members if audit["subject"] in played[unit]]
        if subjects:
            family = (key[0], units[subjects[0]]["cohort"])
            case = found.setdefault(key if audit["subject"] == TEST else family, {audit["subject"]: []})
            case[audit["subject"]] += subjects
    if audit["subject"] != TEST:
        named = {key: (key[0], _regimes(case[audit["subject"]], units)) for key, case in found.items()}
        alike = Counter(named.values())
        found = {(*named[key], *([f"cohort={key[1]}"] if alike[named[key]] > 1 else [])): case for key, case in found.items()}
    for case in found.values():
        first = units[case[audit["subject"]][0]]
        axes = first["axes"] if audit["subject"] == TEST else {}
        for role, chosen in audit["roles"].items():
            if role != audit["subject"]:
                case[role] = [unit for unit in ordered if role in played[unit] and _serves(units[unit], first, axes, chosen)]
        for role in audit["unavailable"]:
            case.setdefault(role, [])
    return found


def agree(a: Mapping[str, Any], b: Mapping[str, Any], but: Iterable[str] = ()) -> bool:
    """Whether two units have equal values of all axes that both have."""
    return all(a[key] == b[key] for key in a.keys() & b.keys() - set(but))


def _regimes(family: Iterable[str], units: Mapping[str, Any]) -> str:
    return "+".join(dict.fromkeys(str(units[unit]["regime"]) for unit in family))


def _serves(unit: Mapping[str, Any], tested: Mapping[str, Any], axes: Mapping[str, Any], chosen: Choice) -> bool:
    same = "architecture" in chosen or unit["architecture"] == tested["architecture"]
    return same and agree(unit["axes"], axes, but=chosen)


def _is_subject(plan: Mapping[str, Any], audit: Mapping[str, Any], unit: Mapping[str, Any], others: list[str]) -> bool:
    """Units that predict another column, or are what this audit compares with, are not what it is about."""
    if unit["train"].get("target"):
        return False
    chosen = audit["roles"].get(audit["subject"])
    if chosen is not None:
        return _fits(plan, chosen, unit)
    is_reference = bool(set(others) & set(audit["references"]))
    return not is_reference and not (audit["references"] and unit["regime"] in plan["references"])


def _fits(plan: Mapping[str, Any], chosen: Choice, unit: Mapping[str, Any]) -> bool:
    """A pattern never takes models of another column or what was trained for some audit; their names do."""
    if unit["regime"] not in chosen.get("regime", ()) and (unit["train"].get("target") or unit["regime"] in plan["references"]):
        return False
    for key, patterns in chosen.items():
        value = str(unit[key] if key in KEYS else unit["axes"].get(key, ""))
        wanted = [pattern for pattern in patterns if not pattern.startswith("!")] or ["*"]
        refused = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
        if not any(fnmatchcase(value, p) for p in wanted) or any(fnmatchcase(value, p) for p in refused):
            return False
    return True
