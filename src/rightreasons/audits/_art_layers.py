"""ART inside the network: directions of a named layer's channel means, and what restoring there does to the decisions.

`perturbations/layers.py` runs the network with the shift that these directions give; what it says is read here. Find and gate
have halves of the audit rows, and shuffles, of their own, which all layers and all models share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from rightreasons.audits._art_runs import Procedure, Sample, Stage, complete, outcome
from rightreasons.errors import EvidenceError, NotRun
from rightreasons.evidence import Evidence, Recipe, View
from rightreasons.stats import probes, restoration
from rightreasons.stats.resampling import Resamples, exchange_within_label, interval, p_value, task_rng
from rightreasons.stats.restoration import Directions

DRAWS = 20
"""Shuffles of the attribute at every layer: with fewer than 19 no p can reach 0.05."""
DEFAULTS = {"beta": 2.0, "attribute": "", **{f.name: f.default for f in fields(Procedure)}}


def means_array(after: str) -> str:
    """Name of the channel means of a layer's output."""
    return str(Recipe("features", "layer", (("after", after),)))


def restored_array(after: str, procedure: Procedure, beta: float, draw: int = 0, attribute: str | None = None) -> str:
    """Name of the logits after restoring at a layer; settings that are the default are left out of it."""
    given = {**vars(procedure), "beta": float(beta), "attribute": attribute or ""}
    settings: dict[str, Any] = {"after": after, **{key: value for key, value in given.items() if value != DEFAULTS[key]}}
    if draw:
        settings["draw"] = draw
    return str(Recipe("logits", "restored", tuple(sorted(settings.items()))))


def arrays(
    layers: Sequence[str], procedure: Procedure, beta: float, attribute: str | None, draws: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is read of audit rows, and of test rows and their twins."""
    means = tuple(means_array(after) for after in layers)
    restored = tuple(restored_array(after, procedure, beta, k, attribute) for after in layers for k in range(draws + 1))
    return means, (*means, *restored)


def directions_at(
    evidence: Evidence, after: str, procedure: Procedure, attribute: str | None = None, draw: int = 0
) -> Directions:
    """Directions of a layer's channel means, found and gated on halves of the audit rows.

    Parameters
    ----------
    draw : 0 for the attribute as it is, else the number of a shuffle within class and half
    """
    view = evidence.on("audit")
    if not view.cohort.attributes:
        raise NotRun("no attribute: name one with attribute=")
    a = view.cohort.attribute(attribute or None)
    if a.kind == "continuous":
        raise NotRun(f"{a.name} is continuous, and ART compares its values within each class: needs bins")
    rows = complete(view, a.name, means_array(after))[0]
    if not len(rows):
        raise NotRun(f"no audit row has a label and {a.name}: ART needs both")
    to_find, to_gate = restoration.halves(rows.y, rows.a, rng=task_rng(0, "halves of art's layers"), subject=rows.subject)
    if not len(to_gate):
        raise NotRun(f"the {len(rows)} audit rows cannot be halved: directions are found on one half and gated on the other")
    halves = [rows.select(part) for part in (to_find, to_gate)]
    if draw:
        halves = [_shuffled(half, task_rng(draw, f"shuffles of art's layers, half {k}")) for k, half in enumerate(halves)]
    return procedure.directions(*halves)


@dataclass(frozen=True)
class _Layer:
    name: str
    logits: np.ndarray
    shuffled: list[np.ndarray]
    means: np.ndarray
    audit: Sample


def measure_layers(
    evidence: Evidence, views: Sequence[View], stage: Stage, sample: Resamples, layers: Sequence[str], procedure: Procedure,
    beta: float, attribute: str, draws: int, level: float, C: float,
) -> dict[str, Any]:  # fmt: skip
    """What restoring does at each layer, as fields of a `Measurement`; layers that were not extracted are named.

    Parameters
    ----------
    views : test rows, and their twins where these are reported on, in the order of the rows of `stage`
    """
    if not layers:
        return {}
    if any(view.cohort.case is not None for view in views):
        raise NotRun("layers= restores image by image, and these rows are cases of several images: leave layers= out")
    found, lacking = [], []
    for after in layers:
        try:
            found.append(_read(evidence, views, after, procedure, beta, attribute, draws))
        except EvidenceError:
            lacking.append(after)
    told: dict[str, Any] = {"layer_lacking": tuple(lacking)}
    if not found:
        return told
    plain = np.concatenate([complete(view, attribute, "logits")[0].z for view in views]).argmax(axis=1)
    decided = np.stack([plain, *(layer.logits.argmax(axis=1) for layer in found)])
    change = outcome(stage, decided, sample).change
    base = stage.point(plain[None])[0]
    sign = np.array([-1.0, 1.0, 1.0])
    value, spread = change.value[1:], change.draws[:, 1:]
    directions = [directions_at(evidence, layer.name, procedure, attribute) for layer in found]
    control = np.stack([sign * (stage.point(np.stack([d.argmax(axis=1) for d in x.shuffled])) - base) for x in found])
    readings = [
        probes.read(x.audit.z, x.audit.y, x.audit.a, x.means, stage.rows.y, stage.rows.a, resamples=sample, C=C).decides
        for x in found
    ]
    nothing = (math.nan, math.nan, math.nan)
    return told | {
        "layer_name": tuple(layer.name for layer in found),
        "layer_width": np.array([layer.means.shape[1] for layer in found]),
        "layer_open": np.array([int(d.open.any(axis=1).sum()) for d in directions]),
        "layer_T": np.array([np.nanmax(d.T, initial=0.0) for d in directions]),
        "layer_change": np.array(
            [[_three(interval(value[v, k], spread[:, v, k], level)) for k in range(3)] for v in range(len(found))]
        ),
        "layer_excess": np.array(
            [_three(interval(v[1] - v[2], d[:, 1] - d[:, 2], level)) for v, d in zip(value, np.moveaxis(spread, 1, 0))]
        ),
        "layer_control": control,
        "layer_p": np.array(
            [p_value(value[v, 1], control[v, :, 1], "greater") if d.is_open else math.nan for v, d in enumerate(directions)]
        ),
        "layer_probe": np.array([nothing if r is None else _three(r) for r in readings]),
    }


# ---- what the functions above use ----------------------------------------------------------------------------------------


def _read(
    evidence: Evidence, views: Sequence[View], after: str, procedure: Procedure, beta: float, attribute: str, draws: int
) -> _Layer:
    def of(array: str) -> np.ndarray:
        return np.concatenate([complete(view, attribute, array)[0].z for view in views])

    def restored(draw: int) -> np.ndarray:
        """By its full name or, for the first attribute, by the one that names none."""
        named = restored_array(after, procedure, beta, draw, attribute)
        is_first = views[0].cohort.attributes[0] == attribute
        if is_first and named not in views[0]:
            named = restored_array(after, procedure, beta, draw)
        return of(named)

    audit = complete(evidence.on("audit"), attribute, means_array(after))[0]
    return _Layer(after, restored(0), [restored(k) for k in range(1, draws + 1)], of(means_array(after)), audit)


def _shuffled(half: Sample, rng: np.random.Generator) -> Sample:
    rows = exchange_within_label(half.y, half.a, half.subject).permutation(rng)
    return Sample(half.z, half.y, half.a[rows], half.subject)


def _three(i: Any) -> tuple[float, float, float]:
    return i.value, i.low, i.high
