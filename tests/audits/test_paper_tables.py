"""The table of paper section → function in an audit names functions that exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

import rightreasons
from rightreasons import audits, families

NAMES = re.compile(r"`([\w.]+)`")


def table_of(module: ModuleType) -> list[str]:
    """The names in the last column of the table."""
    names = []
    for line in (module.__doc__ or "").splitlines():
        if line.startswith("| ") and not line.startswith("| paper") and not line.startswith("| step"):
            names += NAMES.findall(line.rstrip("|").rpartition("|")[2])
    return names


def exists(name: str, homes: tuple[str, ...]) -> bool:
    """Whether a dotted name is a module, or something in one, below one of the packages."""
    for home in homes:
        *modules, last = f"{home}.{name}".split(".")
        for cut in range(len(modules), home.count("."), -1):
            path = ".".join(modules[:cut])
            if not is_module(path):
                continue
            if cut == len(modules) and is_module(f"{path}.{last}"):
                return True
            inside = importlib.import_module(path)
            for part in [*modules[cut:], last]:
                inside = getattr(inside, part, None)
            if inside is not None:
                return True
    return False


def is_module(path: str) -> bool:
    """By its file: some modules need torch to be imported."""
    place = Path(rightreasons.__file__).parents[1].joinpath(*path.split("."))
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


@pytest.mark.parametrize("method", families.members("audits"))
def test_every_function_in_the_table_exists(method):
    module = families.member("audits", method)
    homes = (f"{audits.__name__}.{method}", audits.__name__, "rightreasons")
    assert [name for name in table_of(module) if not exists(name, homes)] == []


@pytest.mark.parametrize("method", ["art", "oscar", "sdi", "focus"])
def test_an_audit_of_a_paper_has_a_table(method):
    assert len(table_of(families.member("audits", method))) > 4


def test_a_name_that_is_not_there_would_be_seen():
    assert not exists("judge.no_such_function", ("rightreasons.audits.art",))
    assert exists("judge.Judged.taxonomy", ("rightreasons.audits.art",))
