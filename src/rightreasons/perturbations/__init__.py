"""What is done to images or tokens before the network answers again: a perturbation is one function in a file of this folder.

Two kinds are found by their signature, and both are used by their name in a recipe, `logits@<name>(setting=…)`:

    def border(pixels, seeds, *, severity=0.35) -> Tensor       pixels (b, c, *size) in [0, 1] to the changed ones, with a seed
                                                                for each image, so that its batch does not matter; `draw=` in
                                                                the recipe gives other seeds
    def drop(*, map="token_influence", top=1) -> Perturbation   anything else: what it reads, and how a pass is changed
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rightreasons import families, trust
from rightreasons.errors import SettingError
from rightreasons.perturbations._fields import field_of_view

if TYPE_CHECKING:
    from rightreasons.evidence import Evidence
    from rightreasons.models.classifier import Classifier
    from rightreasons.models.passes import Pass


__all__ = ["Perturbation", "field_of_view", "find", "generator", "seeds"]


@dataclass(frozen=True)
class Perturbation:
    """How a pass is changed, and what that reads.

    Parameters
    ----------
    change : a `Pass` to the changed one (`Pass.with_pixels`, `Pass.with_network`)
    reads, arrays, check, may_lack : as in `rightreasons.models.passes.Maker`
    fit : gives `change` from whole arrays of the evidence, once before the first batch
    """

    change: Callable[[Pass], Pass] | None = None
    reads: tuple[str, ...] = ()
    arrays: tuple[str, ...] = ()
    fit: Callable[[Evidence], Callable[[Pass], Pass]] | None = None
    check: Callable[[Classifier], None] | None = None
    may_lack: bool = False


def find(name: str) -> Callable[..., Perturbation]:
    """The perturbation of that name as a function of its settings; a dotted name is a function in a module of one's own."""
    if "." in name:
        return _with_settings(_own(name))
    known: dict[str, Callable[..., Any]] = {}
    for module in families.members("perturbations"):
        known.update(_functions(module))
    if name not in known:
        raise SettingError(f"no perturbation named {name!r}; {families.suggest(name, known)}")
    return _with_settings(known[name])


def seeds(ids: Sequence[str] | np.ndarray, name: str, draw: int = 0) -> np.ndarray:
    """(b,) one seed per image, from its id, the name of what is drawn and the number of the draw."""
    # torch's generator on the CPU reads the lower 32 bits of a seed alone, so all of it must be mixed.
    mixed = (hashlib.blake2b(f"{name}\0{draw}\0{i}".encode(), digest_size=8).digest() for i in ids)
    return np.array([int.from_bytes(each, "little") for each in mixed], dtype=np.uint64)


def generator(seed: int) -> torch.Generator:
    """A generator on the CPU, so that every device draws the same numbers."""
    return torch.Generator().manual_seed(int(seed) & (2**63 - 1))


# ---- what the functions above use ----------------------------------------------------------------------------------------


def _own(name: str) -> Callable[..., Any]:
    module, _, function = name.rpartition(".")
    trust.require(module, name)
    try:
        return getattr(importlib.import_module(module), function)  # type: ignore[no-any-return]
    except (ModuleNotFoundError, AttributeError) as error:
        raise SettingError(f"{name!r} cannot be used ({error}); a dotted name is a function of a module of one's own") from error


def _functions(member: str) -> list[tuple[str, Callable[..., Any]]]:
    module = families.member("perturbations", member)
    public = inspect.getmembers(module, inspect.isfunction)
    return [(n, f) for n, f in public if not n.startswith("_") and f.__module__ == module.__name__ and _is_perturbation(f)]


def _is_perturbation(function: Callable[..., Any]) -> bool:
    return _is_operator(function) or inspect.signature(function).return_annotation in ("Perturbation", Perturbation)


def _is_operator(function: Callable[..., Any]) -> bool:
    return list(inspect.signature(function).parameters)[:2] == ["pixels", "seeds"]


def _with_settings(function: Callable[..., Any]) -> Callable[..., Perturbation]:
    """Settings → `Perturbation`, with a signature that says the settings and their defaults."""
    if not _is_operator(function):
        return function
    defaulted = []
    for p in inspect.signature(function).parameters.values():
        if p.default is not inspect.Parameter.empty:
            defaulted.append(p)
    draws = inspect.Parameter("draw", inspect.Parameter.KEYWORD_ONLY, default=0)

    def operator(*, draw: int = 0, **settings: Any) -> Perturbation:
        def change(batch: Pass) -> Pass:
            cohort, rows = batch.source
            pixels, each = batch.pixels, seeds(cohort.id[rows], function.__name__, draw)
            changed = function(pixels, each, **settings)
            # Pixels that come back as they are need no way there and back through the normalisation, which costs last bits.
            if changed is pixels:
                return replace(batch, shared={})
            return batch.with_pixels(changed.clamp(0, 1))

        return Perturbation(change)

    operator.__signature__ = inspect.Signature([*defaulted, draws])  # type: ignore[attr-defined]
    return operator
