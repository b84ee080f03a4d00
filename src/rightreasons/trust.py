"""Whose code may run: what a file or an option names is imported only if the person at the keyboard has said so.

A study.toml, a model.json and an option can name code (`my_lab.nets:make`, `my_lab.confidence`). Importing it runs it, so a name
outside this package and the libraries of networks is refused unless its module was trusted: `--trust my_lab` on the command
line, `trust="my_lab"` in Python. No file can say so itself.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType

from rightreasons.errors import NotTrusted, SettingError

OURS = "rightreasons"
NETWORKS = (
    "rightreasons.models.small", "rightreasons.mitigations.attenuation",
    "timm.models", "torchvision.models", "transformers.models", "monai.networks.nets",
)  # fmt: skip
"""Where functions lie that may be called to make a network: a library has others, which write files or run what a file says."""
VARIABLE = "RIGHTREASONS_TRUST"
"""How a driver tells its own worker processes what was trusted; nothing else reads it."""

_trusted: ContextVar[frozenset[str]] = ContextVar("trusted", default=frozenset())


@contextmanager
def trusting(modules: str | Iterable[str]) -> Iterator[None]:
    """Inside, these modules and all that lies in them may be imported and called by name."""
    before = _trusted.set(_trusted.get() | names(modules))
    try:
        yield
    finally:
        _trusted.reset(before)


def named_in_the_call(*given: str) -> AbstractContextManager[None]:
    """Inside, modules are trusted whose dotted names a caller of this package has written as an argument of a function."""
    return trusting([name for name in given if "." in name])


def names(modules: str | Iterable[str]) -> frozenset[str]:
    """Modules as they are given, as a set; what is no name of a module is refused."""
    given = [modules] if isinstance(modules, str) else list(modules)
    for name in given:
        if not all(part.isidentifier() for part in name.split(".")):
            raise SettingError(f"{name!r} cannot be trusted: expected is the name of a module, such as my_lab or my_lab.nets")
    return frozenset(given)


def trusted() -> frozenset[str]:
    """The modules that are trusted here."""
    return _trusted.get()


def require(module: str, what: str) -> None:
    """Refuse a module that is neither ours nor trusted, before it is imported.

    Parameters
    ----------
    what : the name as it was given, for the error
    """
    if not _lies_in(module, (OURS, *_trusted.get())):
        _refuse(module, what)


def require_factory(module: str, what: str) -> None:
    """The same of a module whose function is called with settings that a file may name: ours and the libraries' networks pass."""
    if not _lies_in(module, (*NETWORKS, *_trusted.get())):
        _refuse(module, what)


def require_own(maker: object, module: str, what: str) -> None:
    """Refuse a function that a module of networks only imports from somewhere else."""
    home = str(getattr(maker, "__module__", ""))
    if _lies_in(module, _trusted.get()):
        return
    if not _lies_in(home, NETWORKS):
        _refuse(home or module, what)


def from_environment() -> frozenset[str]:
    """What the driver of this worker process trusted."""
    return names(filter(None, os.environ.get(VARIABLE, "").split(",")))


def to_environment() -> dict[str, str]:
    """What tells a worker process what is trusted here."""
    return {VARIABLE: ",".join(sorted(_trusted.get()))}


def _lies_in(module: str, homes: Iterable[str]) -> bool:
    return any(module == home or module.startswith(f"{home}.") for home in homes)


def _refuse(module: str, what: str) -> None:
    raise NotTrusted(
        f"{what!r} names code of the module {module!r}, which is neither part of rightreasons nor a network by timm:, "
        f"torchvision:, hf: or monai:. Nothing of it was imported or called. If you know this code, say --trust {module} "
        f"(in Python trust={module!r})"
    )


# ---- modules in the current folder -----------------------------------------------------------------------------------------


class _TrustedHere:
    """Finds trusted modules in the current folder, after everything that is installed, and no others."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if path is not None or name not in {module.partition(".")[0] for module in _trusted.get()}:
            return None
        return importlib.machinery.PathFinder.find_spec(name, [str(Path.cwd())])


@contextmanager
def found_here() -> Iterator[None]:
    """Inside, a trusted module may lie in the current folder; an installed one of that name is found first.

    The folder itself does not join the path: a file in it that has the name of a library would be taken for the library.
    """
    finder = _TrustedHere()
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
