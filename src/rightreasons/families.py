"""Name to member: the file's name is the method's name.

A family is a package folder (`audits`, `attributions`, `mitigations`, …); a member is a module in it whose name does not
begin with an underscore. A dotted name is a user's own module, which is imported as it stands once it is trusted (`trust`).
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import inspect
import math
import numbers
import pkgutil
from collections.abc import Callable, Container, Iterable, Mapping
from types import ModuleType
from typing import Any, TypeVar, get_type_hints

from rightreasons import trust
from rightreasons.errors import SettingError

R = TypeVar("R")
V = TypeVar("V")


@dataclasses.dataclass(frozen=True)
class Limit:
    """What a number may be: from `least` to `most`, or between them where `open` says so."""

    least: float
    most: float = math.inf
    open: bool = False

    def allows(self, value: float) -> bool:
        if self.open:
            return self.least < value < self.most
        return self.least <= value <= self.most

    def __str__(self) -> str:
        if self.open:
            return f"above {self.least:g}" if self.most == math.inf else f"between {self.least:g} and {self.most:g}"
        return f"at least {self.least:g}" if self.most == math.inf else f"{self.least:g} to {self.most:,.0f}"


LIMITS = {
    "B": Limit(20, 10_000_000),  # of fewer resamples a percentile interval may leave out its own estimate
    "level": Limit(0, 1, open=True),
    "permutations": Limit(19, 10_000_000),  # of fewer no p-value can be 0.05
    "epochs": Limit(1),
    "batch": Limit(1),
    "chunk": Limit(1),
    "patience": Limit(1),
    "workers": Limit(1),
    "threads": Limit(1),
    "warmup": Limit(0),
    "weight_decay": Limit(0),
    "seed": Limit(0),
    "num_classes": Limit(1),
    "channels": Limit(1),
    "lr": Limit(0, open=True),
    "clip": Limit(0, open=True),
}
"""Bounds of numbers that mean the same wherever they are a setting."""


def members(family: str) -> tuple[str, ...]:
    """Names of all members of a family, sorted; nothing is imported but the folder itself."""
    package = importlib.import_module(f"rightreasons.{family}")
    return tuple(sorted(m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_")))


def member(family: str, name: str) -> ModuleType:
    """The module behind a name: a file of the family, or a user's own module by its dotted name."""
    if "." in name:
        if not all(part.isidentifier() for part in name.split(".")):
            raise SettingError(f"{name!r} is no name of a module: give a member of {family} ({', '.join(members(family))})")
        trust.require(name, name)
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise SettingError(f"{name!r} cannot be imported ({error}); a dotted name is a module on the Python path") from error
    known = members(family)
    if name not in known:
        raise SettingError(f"no {family} named {name!r}; {suggest(name, known)}")
    return importlib.import_module(f"rightreasons.{family}.{name}")


def with_settings(kind: type) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Let a function take its settings as one typed object and its callers give them as keywords.

    `kind` is a frozen dataclass in which every field has a default. The function takes it as `settings`; callers give its fields
    as keywords, and `inspect.signature`, hence `settings_of` and `accepted`, sees them as such:

        @with_settings(Settings)
        def measure(evidence, *, rng, settings: Settings): ...

        measure(evidence, rng=rng, beta=2.0)
        measure(evidence, rng=rng, settings=Settings(beta=2.0))
    """
    defaults = kind()
    names = [field.name for field in dataclasses.fields(kind)]
    hints = get_type_hints(kind)
    keywords = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=getattr(defaults, name), annotation=hints[name])
        for name in names
    ]

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        @functools.wraps(function)
        def called(*args: Any, **given: Any) -> R:
            own = {name: given.pop(name) for name in names if name in given}
            if own and "settings" in given:
                raise SettingError(f"{function.__name__} was given settings= and {', '.join(own)}=: give either")
            return function(*args, **{"settings": kind(**own), **given})

        signature = inspect.signature(function)
        others = [parameter for parameter in signature.parameters.values() if parameter.name != "settings"]
        called.__signature__ = signature.replace(parameters=[*others, *keywords])  # type: ignore[attr-defined]
        return called

    return decorate


def settings_of(*functions: Callable[..., Any]) -> dict[str, Any]:
    """Keyword settings of these functions with their defaults: the parameters that have one."""
    defaults: dict[str, Any] = {}
    for function in functions:
        for parameter in inspect.signature(function).parameters.values():
            if parameter.default is not inspect.Parameter.empty:
                defaults[parameter.name] = parameter.default
    return defaults


def resolve(given: dict[str, Any], *functions: Callable[..., Any], where: str) -> dict[str, Any]:
    """Full settings: the defaults of `functions` overridden by `given`; an unknown key is an error that lists the known ones."""
    known = settings_of(*functions)
    refuse_unknown(given, known, where)
    return {**known, **given}


def refuse_unknown(given: Iterable[str], known: Iterable[str], where: str) -> None:
    """Raise for the first setting that `where` (an audit, a table of a study.toml) does not know, with the names that it does."""
    names = set(known)
    for key in given:
        if key not in names:
            raise SettingError(f"{where} has no setting {key!r}; {suggest(key, names)}")


def refuse_beyond_limits(given: Mapping[str, Any], where: str = "") -> None:
    """Raise for the first number that lies outside its `LIMITS`; `where` is what it is a setting of."""
    for key, value in given.items():
        if key not in LIMITS or value is None:
            continue
        if not isinstance(value, numbers.Real) or isinstance(value, bool):
            raise SettingError(f"{where} {key} is {value!r}: give a number, {LIMITS[key]}".strip())
        if not LIMITS[key].allows(float(value)) or value == math.inf:
            raise SettingError(f"{where} {key} is {value}: give {LIMITS[key]}".strip())


def refuse_bad_seed(seed: Any) -> None:
    """Refuse a seed that is no whole number from 0: 1.9 would silently be the seed 1."""
    if not isinstance(seed, numbers.Integral) or isinstance(seed, bool) or seed < 0:
        raise SettingError(f"seed is {seed!r}: give a whole number from 0")


def accepted(function: Callable[..., Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The part of `settings` that `function` takes as keywords."""
    return only(settings, settings_of(function))


def only(settings: Mapping[str, V], names: Container[str]) -> dict[str, V]:
    """The part of `settings` with these names."""
    return {key: value for key, value in settings.items() if key in names}


def without(settings: Mapping[str, V], names: Container[str]) -> dict[str, V]:
    """`settings` but for these names."""
    return {key: value for key, value in settings.items() if key not in names}


def suggest(name: str, known: Iterable[str]) -> str:
    """The end of an error sentence: the nearest known name, and all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}known: {', '.join(names) if names else 'none'}"
