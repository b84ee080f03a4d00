"""Name to member: the file's name is the method's name.

A family is a package folder (`audits`, `attributions`, `mitigations`, …); a member is a module in it whose name does not
begin with an underscore. A dotted name is a user's own module and is imported as it stands.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, TypeVar, get_type_hints

from rightreasons.errors import SettingError

R = TypeVar("R")


def members(family: str) -> tuple[str, ...]:
    """Names of all members of a family, sorted; nothing is imported but the folder itself."""
    package = importlib.import_module(f"rightreasons.{family}")
    return tuple(sorted(m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_")))


def member(family: str, name: str) -> ModuleType:
    """The module behind a name: a file of the family, or a user's own module by its dotted name."""
    if "." in name:
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


def accepted(function: Callable[..., Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The part of `settings` that `function` takes as keywords."""
    names = settings_of(function)
    return {key: value for key, value in settings.items() if key in names}


def suggest(name: str, known: Iterable[str]) -> str:
    """The end of an error sentence: the nearest known name, and all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}known: {', '.join(names) if names else 'none'}"
