"""A table of a study.toml as keywords of a function: unknown ones are refused, and so are values of a wrong type."""

from __future__ import annotations

import inspect
import json
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

from rightreasons import families
from rightreasons.errors import SettingError
from rightreasons.families import refuse_beyond_limits, refuse_unknown

T = TypeVar("T", bound=BaseModel)


def full(given: Mapping[str, Any], *functions: Callable[..., Any], where: str, without: Iterable[str] = ()) -> dict[str, Any]:
    """The defaults of `functions`, overridden by `given`, whose types are checked.

    Parameters
    ----------
    where : the table, as errors name it
    without : keywords of the functions that are not the file's to set
    """
    known = settings_of(*functions, without=without)
    refuse_unknown(given, known, where)
    refuse_wrong_types(given, *functions, where=where)
    return {**known, **given}


def settings_of(*functions: Callable[..., Any], without: Iterable[str] = ()) -> dict[str, Any]:
    """The keywords of functions with their defaults, but for those in `without`."""
    left_out = set(without)
    return {key: value for key, value in families.settings_of(*functions).items() if key not in left_out}


def refuse_wrong_types(given: Mapping[str, Any], *functions: Callable[..., Any], where: str) -> None:
    """Refuse values that a function's annotations or the limits of numbers do not allow; without an annotation anything goes."""
    hints: dict[str, Any] = {}
    for function in functions:
        hints |= _annotations(function)
    for key, value in given.items():
        if key not in hints or value is None:
            continue
        checker = _checker(_Hashable(hints[key]))
        if checker is None:
            continue
        try:
            # Strict JSON takes a list for a tuple and a whole number for a float, as a file must, and no text for a number.
            checker.validate_json(json.dumps(value), strict=True)
        except ValidationError as error:
            raise SettingError(f"{where} {key} is {json.dumps(value)}; expected {_expected(hints[key], error)}") from None
        except (TypeError, ValueError):
            continue  # a Python object that no file could hold: the function itself will say
    refuse_beyond_limits(given, where)


class _Hashable:
    """An annotation as a key of a cache; some annotations cannot be hashed, and equal texts mean equal types."""

    def __init__(self, annotation: Any) -> None:
        self.annotation, self.text = annotation, str(annotation)

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hashable) and self.text == other.text


@cache
def _checker(hint: _Hashable) -> TypeAdapter[Any] | None:
    """Checks values of an annotation; None where it speaks of things that are no plain data."""
    if _is_beyond_plain_data(hint.annotation):
        return None
    try:
        return TypeAdapter(hint.annotation, config=ConfigDict(arbitrary_types_allowed=True))
    except (PydanticUserError, PydanticUndefinedAnnotation):  # dataclasses and the like bring their own configuration
        return None


def _is_beyond_plain_data(annotation: Any) -> bool:
    """Whether an annotation allows objects beside texts, numbers, lists and tables: then a text may name one of them."""
    if annotation in (Any, None, type(None), str, bytes, bool, int, float):
        return False
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return False
    if origin in (list, tuple, dict, typing.Union, types.UnionType) or (origin is not None and _is_collection(origin)):
        return any(_is_beyond_plain_data(part) for part in parts if part is not Ellipsis)
    return True


def _is_collection(origin: Any) -> bool:
    return origin.__module__ == "collections.abc" and origin.__name__ in ("Sequence", "Mapping", "Iterable", "Collection")


def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    """Keyword → its type, as far as the names in the annotations can be resolved."""
    by_name = {}
    try:
        if inspect.isclass(function):
            written = function.__init__
        else:
            written = inspect.unwrap(function)
        resolved = typing.get_type_hints(written)
    except (NameError, TypeError):  # names that are imported for type checkers alone
        resolved = {}
    for name, parameter in inspect.signature(function).parameters.items():
        annotation = resolved.get(name, parameter.annotation)
        if annotation is not inspect.Parameter.empty and not isinstance(annotation, str):
            by_name[name] = annotation
    return by_name


WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", type(None): "nothing"}


def _expected(annotation: Any, error: ValidationError) -> str:
    """What a type allows, in words: `a whole number`, `'adamw', 'adam' or 'sgd'`, `a list of numbers`."""
    if annotation in WORDS:
        return WORDS[annotation]
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return " or ".join(map(repr, parts))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_expected(part, error) for part in parts if part is not type(None))
    if origin is dict or (origin is not None and getattr(origin, "__name__", "") == "Mapping"):
        return "a table"
    if origin is not None:
        inner = next((part for part in parts if part is not Ellipsis), None)
        if inner is None:
            return "a list"
        return f"a list, each {_expected(inner, error)}"
    return error.errors()[0]["msg"].removeprefix("Input should be ")


def refuse_wrong_values(kind: type[T], given: Mapping[str, Any], where: str) -> T:
    """A table whose keys and values a pydantic model describes; what it does not allow is one sentence."""
    try:
        return kind.model_validate_json(json.dumps(given), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])
        hint = kind.model_fields[key].annotation
        if first["type"].endswith(("_type", "literal_error")):
            allowed = _expected(hint, error)
        else:
            allowed = first["msg"]
        raise SettingError(f"{where} {key} is {json.dumps(given[key])}; expected {allowed}") from None
