"""The contracts that every member of a family must keep, for ours and for a user's own: `check_audit("my_lab.my_audit")`."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rightreasons import families
from rightreasons.audits import Need, Role, audit
from rightreasons.data.cohort import Cohort
from rightreasons.errors import NotRun
from rightreasons.evidence import Evidence
from rightreasons.findings import ROWS, Finding
from rightreasons.head import Head, Layer
from rightreasons.stats.resampling import Interval
from rightreasons.trust import named_in_the_call


def check_audit(name: str, **settings: Any) -> Finding:
    """Run the contract of an audit on small synthetic evidence; the first broken promise is an AssertionError that says which.

    Parameters
    ----------
    name : a member of `audits/` or a dotted name
    settings : for the run, where the defaults are slow
    """
    with named_in_the_call(name):
        return _check_audit(name, settings)


def _check_audit(name: str, settings: dict[str, Any]) -> Finding:
    module = families.member("audits", name)
    _expect(isinstance(getattr(module, "QUESTION", None), str), f"{name} has no QUESTION")
    _expect(getattr(module, "ROW", None) in ROWS, f"{name} has no ROW among {', '.join(ROWS)}")
    for step in ("measure", "conclude"):
        _expect("rng" in _keywords(getattr(module, step)), f"{name}.{step} has no rng=: randomness is an argument")
    needs = module.needs(**families.accepted(module.needs, settings))
    _expect(needs and all(isinstance(need, Need) for need in needs), f"{name}.needs() is not a tuple of Need")
    _expect(all(isinstance(role, Role) for role in module.roles()), f"{name}.roles() is not a tuple of Role")
    maps = tuple(dict.fromkeys(need.array for need in needs if need.array.startswith(("maps@", "tokens@"))))
    perturbed = tuple(dict.fromkeys(need.array for need in needs if need.array.startswith(("features@", "change@"))))
    models = {}
    for k, role in enumerate(dict.fromkeys(need.role for need in needs)):
        models[role] = synthetic_evidence(seed=k, maps=maps, perturbed=perturbed)
    before = {role: _content(evidence) for role, evidence in models.items()}
    first, second = (audit(name, models, seed=3, **settings).finding() for _ in range(2))
    _expect(before == {role: _content(e) for role, e in models.items()}, f"{name} changed the evidence it read")
    _expect(_numbers(first) == _numbers(second), f"{name} gives another answer for the same seed")
    _expect(_numbers(Finding.from_json(first.to_json())) == _numbers(first), f"{name}: the finding does not survive its own JSON")
    known = families.settings_of(module.measure, module.conclude)
    _expect(
        set(first.settings) == set(known), f"{name}: the finding's settings are {sorted(first.settings)}, not {sorted(known)}"
    )
    _check_measurement(name, module, models, settings)
    _check_unknown(name, models)
    return first


def check_attribution(name: str, **settings: Any) -> dict[str, tuple[int, ...]]:
    """Run the contract of an attribution on small networks; gives the shape of the maps for each network that it explains.

    Maps are finite, (b, *space), the same twice and for an image alone; weights, hooks, gradients, flags and modes are as before.

    Parameters
    ----------
    name : a member of `attributions/` or a dotted name
    settings : for the run, where the defaults do not fit images of 16 x 16 pixels
    """
    # By its name, because this file belongs to the numbers wing and the contract runs networks.
    with named_in_the_call(name):
        shapes: dict[str, tuple[int, ...]] = importlib.import_module("rightreasons.attributions").check_contract(name, **settings)
    return shapes


def check_mitigation(name: str, **settings: Any) -> dict[str, str]:
    """Run the contract of a mitigation on small networks; gives the fingerprint of the new model for each that it changes.

    The model given stays as it was; the new one has the card of a mitigation and the ids it was fitted on (never test rows), has
    the same weights for the same seed, and opens as it was saved. Models that the method compares with are trained here.

    Parameters
    ----------
    name : a member of `mitigations/` or a dotted name
    settings : for the run, where the defaults are slow; epochs are few anyway
    """
    # By its name, because this file belongs to the numbers wing and the contract runs networks.
    with named_in_the_call(name):
        found: dict[str, str] = importlib.import_module("rightreasons.mitigations").check_contract(name, **settings)
    return found


def synthetic_evidence(
    n: int = 240, d: int = 6, seed: int = 0, maps: Sequence[str] = (), perturbed: Sequence[str] = ()
) -> Evidence:
    """Evidence of a linear model whose features carry a binary label and a binary attribute `cue`: audit, test and twin rows.

    `maps` names arrays of noise, (n, 6, 6), that stand for attribution maps of the test rows, or (`tokens@…`) for the tokens that
    an object covers. `perturbed` names `features@…`, the features moved a little at random, and `change@…`, 0.05 everywhere.
    """
    rng = np.random.default_rng(seed)
    rows = np.random.default_rng(0)  # every model sees the same rows
    label, cue = rows.integers(0, 2, n), rows.integers(0, 2, n)
    cohort = Cohort.from_columns(
        {
            "id": [f"r{i}" for i in range(n)],
            "label": label,
            "cue": cue,
            "split": np.where(np.arange(n) % 2, "audit", "test"),
        },
        attribute="cue",
        split="split",
        name="synthetic",
    )
    direction = rng.normal(size=(2, d))
    noise = rng.normal(size=(n, d))
    features = np.outer(2 * label - 1, direction[0]) + np.outer(2 * cue - 1, direction[1]) + noise
    twins = np.outer(2 * label - 1, direction[0]) + np.outer(1 - 2 * cue, direction[1]) + noise
    weight = np.stack([np.zeros(d), direction.sum(axis=0)])
    head = Head((Layer("linear", {"weight": weight, "bias": np.zeros(2)}),))
    test = cohort.on("test")
    flipped = Cohort.from_columns(
        {"id": test.id, "label": test.label, "cue": 1 - test.attribute("cue").values}, attribute="cue", name="twin"
    )
    rows_of = {name: np.flatnonzero(cohort.splits == name) for name in ("audit", "test")}
    arrays = {name: {"features": features[r], "logits": head(features[r])} for name, r in rows_of.items()}
    arrays["twin"] = {"features": twins[rows_of["test"]], "logits": head(twins[rows_of["test"]])}
    drawn = {name: rng.random((len(test), 6, 6), dtype=np.float32) for name in maps}
    arrays["test"] |= {k: (v > 0.7).astype(np.float32) if k.startswith("tokens@") else v for k, v in drawn.items()}
    for name in perturbed:
        moved = features[rows_of["test"]] + 0.3 * rng.normal(size=(len(test), d))
        arrays["test"][name] = moved if name.startswith("features@") else np.full(len(test), 0.05)
    cohorts = {"audit": cohort.on("audit"), "test": test, "twin": flipped}
    return Evidence.from_arrays(cohorts, arrays, head=head, name=f"synthetic-{seed}")


def _expect(kept: Any, promise: str) -> None:
    if not kept:
        raise AssertionError(promise)


def _keywords(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters)


def _content(evidence: Evidence) -> dict[str, bytes]:
    return {
        f"{cohort}/{array}": evidence.on(cohort)[array].tobytes()
        for cohort in evidence.cohorts
        for array in evidence.arrays(cohort)
    }


def _numbers(finding: Finding) -> dict[str, Any]:
    return finding.model_copy(update={"created": "", "seconds": None, "versions": {}}).model_dump()


def _check_measurement(name: str, module: Any, models: Mapping[str, Evidence], settings: Mapping[str, Any]) -> None:
    full = families.resolve(dict(settings), module.measure, module.conclude, where=name)
    one = module.measure(next(iter(models.values())), rng=np.random.default_rng(0), **families.accepted(module.measure, full))
    _expect(dataclasses.is_dataclass(one), f"{name}: a measurement is a dataclass")
    _expect(one.__dataclass_params__.frozen, f"{name}: a measurement is frozen")
    _check_storable(name, one)


def _check_storable(name: str, piece: Any) -> None:
    """Arrays, numbers, texts and intervals, or pieces that hold such."""
    for item in dataclasses.fields(piece):
        value = getattr(piece, item.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, Interval):
            _check_storable(name, value)
            continue
        kind = type(value).__name__
        _expect(_is_plain(value), f"{name}: {item.name} of a measurement is a {kind}; arrays, numbers and strings expected")


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(_is_plain(v) and not isinstance(v, np.ndarray) for v in value)
    return isinstance(value, np.ndarray | int | float | str | bool | np.generic | Interval | None)


def _check_unknown(name: str, models: Mapping[str, Evidence]) -> None:
    try:
        audit(name, models, no_such_setting=1)
    except families.SettingError as error:
        _expect("no_such_setting" in str(error), f"{name}: the error of an unknown setting does not name it")
    except NotRun:
        raise AssertionError(f"{name} ran before it refused an unknown setting") from None
    else:
        raise AssertionError(f"{name} takes an unknown setting without an error")
