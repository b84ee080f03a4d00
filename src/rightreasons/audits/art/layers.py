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

from rightreasons.audits.art.controls import draws_of
from rightreasons.audits.art.pieces import Changes, Draws, Layers
from rightreasons.audits.art.procedure import CSR, TOWARDS_SHORTCUT, Procedure, Stage, outcome
from rightreasons.audits.art.rows import Rows, categorical_attribute, complete, halved
from rightreasons.audits.art.settings import Settings
from rightreasons.errors import EvidenceError, NotRun
from rightreasons.evidence import Evidence, Recipe, View
from rightreasons.stats import probes
from rightreasons.stats.probes import Sample
from rightreasons.stats.resampling import Interval, Resamples, exchange_within_label, p_value, task_rng
from rightreasons.stats.restoration import Directions

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


def audit_arrays(settings: Settings) -> tuple[str, ...]:
    """Arrays that are read of audit rows."""
    return tuple(map(means_array, settings.layers))


def test_arrays(settings: Settings) -> tuple[str, ...]:
    """Arrays that are read of test rows and of their twins."""
    names = list(audit_arrays(settings))
    for after in settings.layers:
        for draw in range(settings.layer_controls + 1):
            names.append(restored_array(after, settings.procedure, settings.beta, draw, settings.attribute))
    return tuple(names)


def directions_at(
    evidence: Evidence, after: str, procedure: Procedure, attribute: str | None = None, draw: int = 0
) -> Directions:
    """Directions of a layer's channel means, found and gated on halves of the audit rows.

    Parameters
    ----------
    draw : 0 for the attribute as it is, else the number of a shuffle within class and half
    """
    view = evidence.on("audit")
    name = categorical_attribute(view, attribute or None).name
    rows = complete(view, name, means_array(after)).rows
    if not len(rows):
        raise NotRun(f"no audit row has a label and {name}: ART needs both")
    finding, gating = halved(rows, task_rng(0, "halves of art's layers"))
    if draw:
        finding = _shuffled(finding, task_rng(draw, "shuffles of art's layers, half 0"))
        gating = _shuffled(gating, task_rng(draw, "shuffles of art's layers, half 1"))
    return procedure.directions(finding, gating)


def measure_layers(evidence: Evidence, rows: Rows, stage: Stage, sample: Resamples, settings: Settings) -> Layers:
    """What restoring does at each layer; layers that were not extracted are named."""
    if settings.layers and any(view.cohort.case is not None for view in rows.views):
        raise NotRun("layers= restores image by image, and these rows are cases of several images: leave layers= out")
    layers, lacking = [], []
    for after in settings.layers:
        try:
            layers.append(_read_layer(evidence, rows, after, settings))
        except EvidenceError:
            lacking.append(after)
    if not layers:
        return _no_layers(tuple(lacking))
    plain = _of_views(rows.views, rows.attribute, "logits").argmax(axis=1)
    decided = np.stack([plain, *(layer.logits.argmax(axis=1) for layer in layers)])
    counted = outcome(stage, decided, sample)
    change = counted[1:].against(counted[:1])
    shuffled = np.stack([_shuffled_changes(stage, layer, plain) for layer in layers])  # (L, D, 3)
    directions = []
    for layer in layers:
        directions.append(directions_at(evidence, layer.name, settings.procedure, rows.attribute))
    p = np.full(len(layers), math.nan)
    for k, at_layer in enumerate(directions):
        if at_layer.is_open:
            p[k] = p_value(change.value[k, CSR], shuffled[k, :, CSR], "greater")
    return Layers(
        name=tuple(layer.name for layer in layers),
        lacking=tuple(lacking),
        width=np.array([layer.means.shape[1] for layer in layers]),
        open=np.array([int(at_layer.open.any(axis=1).sum()) for at_layer in directions]),
        T=np.array([np.nanmax(at_layer.T, initial=0.0) for at_layer in directions]),
        change=change.as_changes(settings.level),
        shuffled=draws_of(shuffled),
        p=p,
        probe=tuple(_probe(layer, stage.rows, sample, settings.C) for layer in layers),
    )


# ---- what the functions above use ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Layer:
    """What the evidence holds of a layer: logits after restoring, also along shuffles, and channel means of both sets of rows."""

    name: str
    logits: np.ndarray
    shuffled: list[np.ndarray]
    means: np.ndarray
    audit: Sample


def _read_layer(evidence: Evidence, rows: Rows, after: str, settings: Settings) -> _Layer:
    restored = []
    for draw in range(settings.layer_controls + 1):
        restored.append(_restored_logits(rows, after, draw, settings))
    return _Layer(
        name=after,
        logits=restored[0],
        shuffled=restored[1:],
        means=_of_views(rows.views, rows.attribute, means_array(after)),
        audit=complete(evidence.on("audit"), rows.attribute, means_array(after)).rows,
    )


def _restored_logits(rows: Rows, after: str, draw: int, settings: Settings) -> np.ndarray:
    """By its full name or, for the first attribute, by the one that names none."""
    test = rows.views[0]
    array = restored_array(after, settings.procedure, settings.beta, draw, rows.attribute)
    if array not in test and test.cohort.attributes[0] == rows.attribute:
        array = restored_array(after, settings.procedure, settings.beta, draw)
    return _of_views(rows.views, rows.attribute, array)


def _of_views(views: Sequence[View], attribute: str, array: str) -> np.ndarray:
    return np.concatenate([complete(view, attribute, array).rows.z for view in views])


def _shuffled_changes(stage: Stage, layer: _Layer, plain: np.ndarray) -> np.ndarray:
    """(D, 3) changes under each shuffle."""
    decided = np.stack([logits.argmax(axis=1) for logits in layer.shuffled])
    return TOWARDS_SHORTCUT * (stage.point(decided) - stage.point(plain[None])[0])


def _probe(layer: _Layer, test: Sample, sample: Resamples, C: float) -> Interval:
    reading = probes.read(layer.audit, Sample(layer.means, test.y, test.a), resamples=sample, C=C)
    return reading.decides or Interval(math.nan, math.nan, math.nan, reason=probes.TOO_FEW)


def _shuffled(half: Sample, rng: np.random.Generator) -> Sample:
    rows = exchange_within_label(half.y, half.a, half.subject).permutation(rng)
    return Sample(half.z, half.y, half.a[rows], half.subject)


def _no_layers(lacking: tuple[str, ...]) -> Layers:
    none, no_draws = np.zeros(0), np.zeros((0, 0))
    return Layers(
        name=(),
        lacking=lacking,
        width=np.zeros(0, dtype=np.int64),
        open=np.zeros(0, dtype=np.int64),
        T=none,
        change=Changes((), (), (), ()),
        shuffled=Draws(no_draws, no_draws, no_draws),
        p=none,
        probe=(),
    )
