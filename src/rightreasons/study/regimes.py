"""What [regimes] say of a unit: the settings of its training, its rows, and the other units' models that it needs."""

from __future__ import annotations

import graphlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rightreasons import families
from rightreasons.errors import SettingError
from rightreasons.families import suggest
from rightreasons.models.training import train
from rightreasons.study.record import PLAIN

DECODING = ("workers", "cache")  # keywords of train() that change no number: any unit may be decoded with other ones
OWN = ("cohort", "method", "start", "references")  # keys of a regime that are no settings of its training
NOT_PLAIN = ("objective", "weights")  # keywords of train() that a file cannot say
NOT_SETTINGS = {"folder", *DECODING, *NOT_PLAIN, *OWN, "seed", "regime", "threads", "rng"}


@dataclass(frozen=True)
class Point:
    """One point of a grid: what [[runs]] says of one unit.

    Attributes
    ----------
    settings : beside architecture, regime and seed; `cohort` among them where the grid names it
    axes : names of the settings in which the grid's units differ
    """

    architecture: str
    regime: str
    seed: int
    settings: Mapping[str, Any]
    axes: tuple[str, ...]
    where: str


def known(method: str) -> dict[str, Any]:
    """The settings of a training method that a file may give, with their defaults."""
    if method == PLAIN:
        functions: tuple[Callable[..., Any], ...] = (train,)
    else:
        mitigate = families.member("mitigations", method).mitigate
        takes_any = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(mitigate).parameters.values())
        functions = (train, mitigate) if takes_any else (mitigate,)
    return {key: value for key, value in families.settings_of(*functions).items() if key not in NOT_SETTINGS}


def training(point: Point, table: Mapping[str, Any], common: Mapping[str, Any]) -> dict[str, Any]:
    """Full settings of a training: defaults < [train] < [regimes.<name>] < the point of the grid."""
    usual = known(table.get("method", PLAIN))
    refuse_unknown(common, {*known(PLAIN), *usual, *DECODING}, "[train]")
    refuse_unknown(table, {*usual, *OWN}, f"[regimes.{point.regime}]")
    refuse_unknown(point.settings, {*usual, "cohort", "architecture", "regime", "seed"}, point.where)
    given = [{k: v for k, v in common.items() if k in usual}, table, point.settings]
    full = {**usual, **{key: value for part in given for key, value in part.items() if key not in OWN}}
    if full.get("stopping") is None:
        full.pop("stopping", None)
    return full


def refuse_unknown(given: Iterable[str], names: Iterable[str], where: str) -> None:
    every = set(names)
    for key in given:
        if key not in every:
            raise SettingError(f"{where} has no setting {key!r}; {suggest(key, every)}")


# ---- models of other units -----------------------------------------------------------------------------------------------


def needed(name: str, table: Mapping[str, Any], regimes: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """The regime whose model a regime starts from ("" for none), and role → regime of the models that it reads."""
    method, start, references = table.get("method", PLAIN), table.get("start", ""), dict(table.get("references", {}))
    where, others = f"[regimes.{name}]", sorted(set(regimes) - {name})
    module = None if method == PLAIN else families.member("mitigations", method)
    if getattr(module, "STARTS", "start") == "model" and not start:
        raise SettingError(
            f'{where} method = "{method}" goes on from a trained model: say whose with start = "REGIME" ({", ".join(others)})'
        )
    asked = tuple(getattr(module, "REFERENCES", ()))
    for role in references:
        if role not in asked:
            raise SettingError(f'{where} references: method "{method}" has no role {role!r}; {suggest(role, asked)}')
    missing = [role for role in asked if role not in references]
    if missing:
        told = ", ".join(f'{role} = "REGIME"' for role in missing)
        raise SettingError(f'{where} method = "{method}" reads other models: say whose with references = {{{told}}}')
    return start, references


def refuse_unnamed(units: Iterable[Mapping[str, Any]], regimes: Iterable[str]) -> None:
    """Units that need models of a regime that is not there; what audits ask for has been added to `regimes`."""
    every = set(regimes)
    for unit in units:
        named = {"start": unit["start"], **{f"references.{role}": regime for role, regime in unit["references"].items()}}
        for key, regime in named.items():
            if regime and regime not in every:
                others = suggest(str(regime), every - {unit["regime"]})
                raise SettingError(f"[regimes.{unit['regime']}] {key} = {regime!r} is no regime; {others}")


def in_order(regimes: Mapping[str, Iterable[str]]) -> list[str]:
    """Regimes after those that they need; `regimes` is name → needed names."""
    try:
        return list(graphlib.TopologicalSorter({name: set(needs) for name, needs in regimes.items()}).static_order())
    except graphlib.CycleError as error:
        raise SettingError(f"regimes wait for each other: {' needs '.join(reversed(error.args[1]))}") from error


Named = Mapping[tuple[str, str], Mapping[str, Mapping[str, Any]]]
"""(regime, architecture) → id → unit."""


def start_of(unit: Mapping[str, Any], named: Named) -> str:
    """The unit that `unit` starts from: its `start` regime, same architecture, seed and axes; the nearest in axes."""
    others = _like(unit, unit["start"], named)
    same = [name for name, other in others.items() if other["seed"] == unit["seed"]]
    if not same:
        raise SettingError(
            f"[regimes.{unit['regime']}] start = {unit['start']!r}: no unit of that regime has {_described(unit)} and seed "
            f"{unit['seed']}: add it to [[runs]]"
        )
    return max(same, key=lambda name: (len(others[name]["axes"]), name))


def references_of(unit: Mapping[str, Any], named: Named) -> dict[str, list[str]]:
    """Role → units whose models `unit` reads: all seeds of that regime, same architecture and axes."""
    found = {}
    for role, regime in unit["references"].items():
        others = _like(unit, regime, named)
        found[role] = sorted(others, key=lambda name: (others[name]["seed"], name))
        if not others:
            raise SettingError(
                f"[regimes.{unit['regime']}] references.{role} = {regime!r}: no unit of that regime has {_described(unit)}: "
                "add it to [[runs]]"
            )
    return found


def _like(unit: Mapping[str, Any], regime: str, named: Named) -> dict[str, Mapping[str, Any]]:
    """Units of a regime with the same architecture, and with no axis that `unit` lacks or has another value of."""
    others = named.get((regime, unit["architecture"]), {})
    return {name: other for name, other in others.items() if other["axes"].items() <= unit["axes"].items()}


def _described(unit: Mapping[str, Any]) -> str:
    return ", ".join([f"architecture {unit['architecture']!r}", *(f"{key} = {value}" for key, value in unit["axes"].items())])
