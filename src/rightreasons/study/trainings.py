"""How each unit is trained: the settings of its training, its rows, and the other units' models that it needs."""

from __future__ import annotations

import graphlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rightreasons import families
from rightreasons.errors import SettingError
from rightreasons.families import refuse_unknown, suggest
from rightreasons.models.running import refuse_unknown_device
from rightreasons.models.training import augmentation_of, train
from rightreasons.study.file import Regime
from rightreasons.study.keywords import refuse_wrong_types
from rightreasons.study.plan import BROUGHT, PLAIN

DECODING = ("workers", "cache")  # keywords of train() that change no number: any unit may be decoded with other ones
NOT_IN_A_FILE = ("objective", "weights")  # keywords of train() that a file cannot say
PLANNED = ("folder", "seed", "regime", "threads", "rng", "cohort", "method", "start", "references")  # what the plan itself sets


@dataclass(frozen=True)
class Point:
    """One point of a grid: what [[runs]] says of one unit.

    Attributes
    ----------
    settings : beside architecture, regime and seed; `cohort` among them where the grid names it
    axes : names of the settings in which the grid's units differ
    where : the table that it comes from, for errors
    """

    architecture: str
    regime: str
    seed: int
    settings: Mapping[str, Any]
    axes: tuple[str, ...]
    where: str


@dataclass(frozen=True)
class Draft:
    """A unit before it has an id: `start` and `references` are still names of regimes."""

    architecture: str
    regime: str
    seed: int
    cohort: str
    method: str
    start: str
    references: dict[str, str]
    axes: dict[str, Any]
    load: dict[str, Any]
    train: dict[str, Any]
    extract: dict[str, int]
    threads: int | None
    rows: str
    batched: list[str] = field(default_factory=list)
    weights: str = "given"

    @property
    def target(self) -> str | None:
        return self.train.get("target")


def settings_of_method(method: str) -> dict[str, Any]:
    """The settings of a training method that a file may give, with their defaults."""
    if method == BROUGHT:
        return {}
    known = families.settings_of(*functions_of_method(method))
    hidden = {*DECODING, *NOT_IN_A_FILE, *PLANNED}
    return {key: value for key, value in known.items() if key not in hidden}


def functions_of_method(method: str) -> tuple[Callable[..., Any], ...]:
    """The functions whose keywords a training method's settings are."""
    if method == PLAIN:
        return (train,)
    mitigate = families.member("mitigations", method).mitigate
    takes_any = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(mitigate).parameters.values())
    if takes_any:
        return (train, mitigate)
    return (mitigate,)


def training_settings(point: Point, regime: Regime, common: Mapping[str, Any]) -> dict[str, Any]:
    """Full settings of a training: defaults < [train] < [regimes.<name>] < the point of the grid."""
    usual, functions = settings_of_method(regime.method), functions_of_method(regime.method)
    refuse_unknown(common, {*settings_of_method(PLAIN), *usual, *DECODING}, "[train]")
    refuse_unknown(regime.keywords, {*usual, *Regime.model_fields}, f"[regimes.{point.regime}]")
    refuse_unknown(point.settings, {*usual, "cohort", "architecture", "regime", "seed"}, point.where)
    known = {key: value for key, value in common.items() if key in usual}
    own = {key: value for key, value in point.settings.items() if key != "cohort"}
    for where, given in (("[train]", known), (f"[regimes.{point.regime}]", regime.keywords), (point.where, own)):
        checked = {key: value for key, value in given.items() if key != "stopping"}  # a split's name in a file, rows in Python
        refuse_wrong_types(checked, *functions, where=where)
        if isinstance(augment := given.get("augment"), str):
            augmentation_of(augment)
        if (device := given.get("device")) is not None:
            refuse_unknown_device(device, where)
    refuse_wrong_types({key: common[key] for key in DECODING if key in common}, train, where="[train]")
    full = {**usual, **known, **regime.keywords, **own}
    if full.get("stopping") is None:
        full.pop("stopping", None)
    return full


# ---- models of other units -----------------------------------------------------------------------------------------------


def needed_regimes(name: str, regime: Regime, regimes: Iterable[str]) -> tuple[str, dict[str, str]]:
    """The regime whose model a regime starts from ("" for none), and role → regime of the models that it reads."""
    where, others = f"[regimes.{name}]", sorted(set(regimes) - {name})
    module = None
    if regime.method != PLAIN:
        module = families.member("mitigations", regime.method)
    if getattr(module, "STARTS", "start") == "model" and not regime.start:
        raise SettingError(
            f'{where} method = "{regime.method}" goes on from a trained model: say whose with start = "REGIME" '
            f"({', '.join(others)})"
        )
    roles = tuple(getattr(module, "REFERENCES", ()))
    for role in regime.references:
        if role not in roles:
            raise SettingError(f'{where} references: method "{regime.method}" has no role {role!r}; {suggest(role, roles)}')
    missing = [role for role in roles if role not in regime.references]
    if missing:
        example = ", ".join(f'{role} = "REGIME"' for role in missing)
        raise SettingError(f'{where} method = "{regime.method}" reads other models: say whose with references = {{{example}}}')
    return regime.start, dict(regime.references)


def refuse_unnamed(drafts: Iterable[Draft], regimes: Iterable[str]) -> None:
    """Refuse units that need models of a regime that is not there; what audits ask for has been added to `regimes`."""
    every = set(regimes)
    for draft in drafts:
        named = {"start": draft.start, **{f"references.{role}": regime for role, regime in draft.references.items()}}
        for key, regime in named.items():
            if regime and regime not in every:
                others = suggest(str(regime), every - {draft.regime})
                raise SettingError(f"[regimes.{draft.regime}] {key} = {regime!r} is no regime; {others}")


def in_order(regimes: Mapping[str, Iterable[str]]) -> list[str]:
    """Regimes after those that they need; `regimes` is name → needed names."""
    try:
        return list(graphlib.TopologicalSorter({name: set(needs) for name, needs in regimes.items()}).static_order())
    except graphlib.CycleError as error:
        raise SettingError(f"regimes wait for each other: {' needs '.join(reversed(error.args[1]))}") from error


Named = Mapping[tuple[str, str], Mapping[str, Draft]]
"""(regime, architecture) → id → unit."""


def start_of(draft: Draft, named: Named) -> str:
    """The unit that `draft` starts from: its `start` regime, same architecture, seed and axes; the nearest in axes."""
    others = _like(draft, draft.start, named)
    if draft.weights != "given" and others:  # all begin with the network that was brought, whatever their seeds
        return next(iter(others))
    same = [name for name, other in others.items() if other.seed == draft.seed]
    if not same:
        raise SettingError(
            f"[regimes.{draft.regime}] start = {draft.start!r}: no unit of that regime has {_described(draft)} and seed "
            f"{draft.seed}: add it to [[runs]]"
        )
    return max(same, key=lambda name: (len(others[name].axes), name))


def references_of(draft: Draft, named: Named) -> dict[str, list[str]]:
    """Role → units whose models `draft` reads: all seeds of that regime, same architecture and axes."""
    references = {}
    for role, regime in draft.references.items():
        others = _like(draft, regime, named)
        references[role] = sorted(others, key=lambda name: (others[name].seed, name))
        if not others:
            raise SettingError(
                f"[regimes.{draft.regime}] references.{role} = {regime!r}: no unit of that regime has {_described(draft)}: "
                "add it to [[runs]]"
            )
    return references


def _like(draft: Draft, regime: str, named: Named) -> dict[str, Draft]:
    """Units of a regime with the same architecture, and with no axis that `draft` lacks or has another value of."""
    others = named.get((regime, draft.architecture), {})
    return {name: other for name, other in others.items() if other.axes.items() <= draft.axes.items()}


def _described(draft: Draft) -> str:
    return ", ".join([f"architecture {draft.architecture!r}", *(f"{key} = {value}" for key, value in draft.axes.items())])
