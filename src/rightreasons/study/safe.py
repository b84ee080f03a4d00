"""What a study.toml may not say: names that leave the study's folder, and whom to trust."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from rightreasons.errors import NotTrusted, SettingError

NAMED = ("cohorts", "external", "architectures", "regimes", "audits", "curves", "tables", "relations", "pairs")
"""Tables of tables: the names of most of them become names of files."""
CODE = ("model", "architectures", "regimes", "audits", "train", "references", "data", "external", "engine_settings", "extract")


def refuse_unsafe(tables: Mapping[str, Any], source: str) -> None:
    """Refuse names that are paths, and a file that would trust itself.

    Parameters
    ----------
    tables : a study.toml as it was parsed, before anything of it is checked
    source : how errors name it
    """
    for where, name in _names(tables):
        if not _is_plain(name):
            raise SettingError(
                f"{source} {where} {name!r} is no plain name, and files of the study are named after it: give one without "
                "slashes, dots at its beginning or control characters"
            )
    for where in _trusting(tables):
        raise NotTrusted(
            f"{source} {where} says trust: a file cannot say whose code may run. Leave it out, and say --trust MODULE on the "
            "command line (in Python trust=)"
        )


def _names(tables: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if isinstance(tables.get("name"), str):
        yield "name", tables["name"]
    for kind in NAMED:
        if isinstance(tables.get(kind), Mapping):
            for name in tables[kind]:
                yield f"[{kind}.NAME]", str(name)


def _is_plain(name: str) -> bool:
    is_one_part = name == "" or (PurePath(name).name == name and "/" not in name and "\\" not in name)
    return is_one_part and not name.startswith(".") and name.isprintable()


def _trusting(tables: Mapping[str, Any]) -> Iterator[str]:
    """Where the word stands: at the top, in a table that is about code, or in one of its tables."""
    if "trust" in tables:
        yield "at its top"
    for kind in CODE:
        table = tables.get(kind)
        if not isinstance(table, Mapping):
            continue
        if "trust" in table and not isinstance(table["trust"], Mapping):
            yield f"[{kind}]"
        for name, inner in table.items():
            if isinstance(inner, Mapping) and "trust" in inner:
                yield f"[{kind}.{name}]"
