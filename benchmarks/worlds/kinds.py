"""The worlds: images with a known cue, how it goes with the label, and which models are judged in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rightreasons.data import planted
from rightreasons.data.cohort import Cohort
from rightreasons.stats.resampling import task_rng

DIGITS = ("tag", "patch", "ring", "texture", "cast", "frequency")
EYES = ("rim", "notch", "gradient", "cast", "blur")
AGREEMENTS = (0.7, 0.8, 0.9, 0.95, 1.0)
STRENGTHS = (0.5, 1.0)
NOISE = (0.0, 0.05)  # of the labels
FRACTIONS = {"train": 0.5, "val": 0.1, "audit": 0.2, "test": 0.2}
SIDE = 32

BIASED, TWO_TASKS, PROJECTED = "trained", "two tasks", "projected"
"""Sorts of judged models: trained on the world's rows; with the cue drawn again, and on the cue as a second task; trained on
the world's rows, the cue's direction then taken out of the head."""


@dataclass(frozen=True)
class World:
    """One set of images, and the models that are judged in it.

    Attributes
    ----------
    kind : of the shortcut, or of the null
    is_null : whether its models should not be called; the truth of each model is measured all the same
    models : their sort
    """

    kind: str
    base: str
    cue: str
    architecture: str
    seed: int
    is_null: bool
    settings: dict[str, Any] = field(default_factory=dict)
    models: str = BIASED

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.base}-{self.cue}-{self.architecture}-{self.seed}".replace(", ", "-").replace(" ", "-")

    def make(self, folder: Path) -> Cohort:
        if self.base == "digits":
            return planted.digits(folder, cue=self.cue, fractions=FRACTIONS, seed=self.seed, **self.settings)
        few = {"n": 1800, "n_external": 0, "pixels": SIDE}
        return planted.fundus(folder, cue=self.cue, fractions=FRACTIONS, seed=self.seed, **few, **self.settings)


NULLS = ("no cue", "independent", "encoded, unused", "projected head", "same region", "harder group")


def worlds(count: int, seed: int, architectures: Sequence[str]) -> list[World]:
    """Worlds of shortcuts and of nulls in turn, the kinds of nulls in turn too: the beginning of the list is a fair sample."""
    found = []
    for number in range((count + 1) // 2):
        rng = task_rng(seed, f"world {number}")
        found.append(shortcut(10_000 * seed + number, str(rng.choice(architectures)), rng))
        found.append(null(NULLS[number % len(NULLS)], 10_000 * seed + number, str(rng.choice(architectures)), rng))
    return found[:count]


def shortcut(seed: int, architecture: str, rng: np.random.Generator) -> World:
    """A cue that goes with the label in the training rows, at any strength."""
    settings = {"agreement": rng.choice(AGREEMENTS), "strength": rng.choice(STRENGTHS), "label_noise": rng.choice(NOISE)}
    return World("shortcut", *_cue(rng), architecture, seed, False, {key: float(value) for key, value in settings.items()})


def null(kind: str, seed: int, architecture: str, rng: np.random.Generator) -> World:
    """A world whose models should not be called."""
    base, cue = _cue(rng)
    settings: dict[str, Any] = {"agreement": 0.9 if kind in ("no cue", "encoded, unused", "projected head") else 0.5}
    models = {"encoded, unused": TWO_TASKS, "projected head": PROJECTED}.get(kind, BIASED)
    if kind == "no cue":  # the attribute goes with the label in the table and is nowhere in the image
        cue = "none"
    elif kind == "same region":  # the cue lies on the digit that the label is read from
        base, cue, settings["place"] = "digits", "patch", (12, 12)
    elif kind == "harder group":
        base, cue, settings["harder"] = "digits", str(rng.choice(("tag", "patch", "ring"))), 0.3
    return World(kind, base, cue, architecture, seed, True, settings, models)


def _cue(rng: np.random.Generator) -> tuple[str, str]:
    every = [("digits", cue) for cue in DIGITS] + [("eyes", cue) for cue in EYES]
    return every[rng.integers(len(every))]
