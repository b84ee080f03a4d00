"""Worlds of features: a random trunk, a head fitted on biased rows, and a cue whose use is known because it can be flipped.

They need no images and no training of networks, so that hundreds of them take minutes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import softmax

from rightreasons.data.cohort import Cohort
from rightreasons.evidence import Evidence
from rightreasons.head import linear_head
from rightreasons.stats.refit import fitted, raked_weights

KINDS = {
    "no cue": "the attribute is nowhere in the images and goes with nothing",
    "independent": "the attribute is in the images; in the training rows it goes with no label",
    "encoded, unused": "the attribute is in the images and goes with the label; the head was fitted on rows weighted even",
    "harder group": "images of one value are noisier",
    "presentation": "the label shows more strongly with one value; the attribute itself is nowhere in the images",
    "proxy, cue recorded": "the attribute goes with a cue that is used; both are columns",
    "proxy, cue not recorded": "the attribute goes with a cue that is used; the cue is no column",
    "used": "the attribute is the cue, and goes with the label in the training rows",
    "used beside another": "the attribute and another column are cues, and both go with the label",
}
WITHOUT_ASSOCIATION = ("no cue", "independent", "harder group")
EVIDENCE, NUISANCES, WIDTH = 4, 12, 64  # factors that show the label, factors that show nothing, features


@dataclass(frozen=True)
class World:
    """One model, the rows it is audited on, and how far flipping the attribute moves its answers."""

    kind: str
    evidence: Evidence
    reliance: float


@dataclass(frozen=True)
class Spec:
    """What a world is drawn from.

    Attributes
    ----------
    kept : whether audit and test rows keep the association of the training rows
    agreement : how often the cue agrees with the label in the training rows
    size : how plainly the cue shows
    strength : how plainly the label shows
    shown : by how much more the label shows with one value (presentation)
    rate : how often the attribute is another than the cue (proxies)
    subjects : rows per subject; 1 means none
    """

    kind: str
    kept: bool
    agreement: float
    size: float
    strength: float
    shown: float
    one_sided: bool
    rate: float
    rows: int = 1_000
    training_rows: int = 2_000
    subjects: int = 1


def drawn(kind: str, rng: np.random.Generator, **fixed: Any) -> Spec:
    """A world of a kind, at random."""
    spec = Spec(
        kind=kind,
        kept=bool(rng.random() < 0.5),
        agreement=float(rng.uniform(0.7, 0.95)),
        size=float(rng.uniform(0.4, 1.5)),
        strength=float(rng.uniform(0.4, 1.0)),
        shown=float(rng.uniform(0.3, 1.0)),
        one_sided=bool(rng.random() < 0.5),
        rate=float(rng.uniform(0.05, 0.25)),
    )
    return replace(spec, **fixed)


@dataclass(frozen=True)
class Rows:
    """Factors of some images: label, cue, another cue, the attribute of the table, evidence, nuisances."""

    label: np.ndarray
    cue: np.ndarray
    second: np.ndarray
    attribute: np.ndarray
    evidence: np.ndarray
    nuisance: np.ndarray
    cue_noise: np.ndarray
    subject: np.ndarray


def rows_of(spec: Spec, n: int, associated: bool, rng: np.random.Generator) -> Rows:
    subject = np.arange(n) // spec.subjects
    label = rng.integers(0, 2, subject[-1] + 1)[subject]
    agreement = spec.agreement if associated and spec.kind not in WITHOUT_ASSOCIATION else 0.5
    cue = np.where(rng.random(subject[-1] + 1)[subject] < agreement, label, 1 - label)
    second = np.where(rng.random(n) < agreement, label, 1 - label)
    attribute = cue
    if spec.kind.startswith("proxy"):
        attribute = np.where(rng.random(n) < spec.rate, 1 - cue, cue)
    centre = spec.strength * (2.0 * label - 1)
    if spec.kind == "presentation":
        more = spec.shown * spec.strength * (2.0 * attribute - 1)
        centre = centre + np.where((label == 1) | (not spec.one_sided), more, 0.0)
    noise = np.ones(n)
    if spec.kind == "harder group":
        noise = np.where(attribute == 1, 2.0, 1.0)
    personal = rng.normal(size=(subject[-1] + 1, EVIDENCE))[subject]
    share = 0.0 if spec.subjects == 1 else 0.6
    evidence = np.sqrt(share) * personal + np.sqrt(1 - share) * rng.normal(size=(n, EVIDENCE))
    return Rows(
        label=label,
        cue=cue,
        second=second,
        attribute=attribute,
        evidence=centre[:, None] + noise[:, None] * evidence,
        nuisance=rng.normal(size=(n, NUISANCES)),
        cue_noise=0.3 * rng.normal(size=(n, 2)),
        subject=subject,
    )


@dataclass(frozen=True)
class Trunk:
    """A random layer: factors to features."""

    weight: np.ndarray
    bias: np.ndarray

    def __call__(self, spec: Spec, rows: Rows, flipped: bool = False) -> np.ndarray:
        size = 0.0 if spec.kind in ("no cue", "presentation") else spec.size
        other = spec.size if spec.kind == "used beside another" else 0.0
        cue = 1 - rows.cue if flipped else rows.cue
        marks = np.stack([size * (2.0 * cue - 1), other * (2.0 * rows.second - 1)], axis=1) + rows.cue_noise
        factors = np.concatenate([rows.evidence, marks, rows.nuisance], axis=1)
        return np.maximum(factors @ self.weight + self.bias, 0.0)


def world(spec: Spec, rng: np.random.Generator) -> World:
    """Fit a head and write down what an audit reads."""
    trunk = Trunk(rng.normal(size=(EVIDENCE + 2 + NUISANCES, WIDTH)) / 2, rng.normal(size=WIDTH) / 2)
    train = rows_of(spec, spec.training_rows, True, rng)
    features = trunk(spec, train)
    mean, scale = features.mean(axis=0), features.std(axis=0)
    weight = np.ones(len(train.label))
    if spec.kind == "encoded, unused":
        weight = raked_weights(train.label, [train.cue])
    head = fitted((features - mean) / scale, train.label, 2, weight, 1e-4)
    as_data = linear_head(head.weight / scale, head.bias - head.weight @ (mean / scale))
    cohorts, arrays = {}, {}
    for name in ("audit", "test"):
        rows = rows_of(spec, spec.rows, spec.kept, rng)
        z = trunk(spec, rows)
        cohorts[name] = cohort_of(spec, rows, name)
        arrays[name] = {"features": z, "logits": as_data(z.astype(np.float64))}
    reliance = 0.0
    if not spec.kind.startswith("proxy"):
        reliance = moved(as_data, trunk(spec, rows), trunk(spec, rows, flipped=True), rows.cue)
    evidence = Evidence.from_arrays(cohorts, arrays, head=as_data, training=cohort_of(spec, train, "train"), name=spec.kind)
    return World(spec.kind, evidence, reliance)


def moved(head: Any, z: np.ndarray, twin: np.ndarray, cue: np.ndarray) -> float:
    """Mean change of the probability of the label that the cue stands for, when the cue turns towards it."""
    change = softmax(head(z.astype(np.float64)), axis=1)[:, 1] - softmax(head(twin.astype(np.float64)), axis=1)[:, 1]
    return float(np.mean(np.where(cue == 1, change, -change)))


def cohort_of(spec: Spec, rows: Rows, name: str) -> Cohort:
    columns: dict[str, Any] = {
        "id": [f"{name}{i}" for i in range(len(rows.label))],
        "label": rows.label,
        "cue": rows.attribute,
    }
    attributes = ["cue"]
    if spec.kind == "proxy, cue recorded":
        columns["mark"] = rows.cue
        attributes.append("mark")
    if spec.kind == "used beside another":
        columns["mark"] = rows.second
        attributes.append("mark")
    if spec.subjects > 1:
        columns["person"] = [f"{name}-p{s}" for s in rows.subject]
        return Cohort.from_columns(columns, attribute=attributes, subject="person", name=name)
    return Cohort.from_columns(columns, attribute=attributes, name=name)
