"""Is an answer drawn one way, or only disturbed? The part of a change that goes in a direction that was learnt elsewhere.

A cue that is read draws answers towards one label with one value; a cue that disturbs changes them without a direction. Which
way is learnt on one half of the rows and applied to the other, both ways, so that chance cannot choose its own direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rightreasons.stats.resampling import subject_codes

ROUNDING = 1e-9


@dataclass(frozen=True)
class Way:
    """Where a step of the attribute draws answers: towards a label, with its higher (+1) or its lower value (-1)."""

    label: int
    sign: float


@dataclass(frozen=True)
class Steps:
    """What changed between two rows of a pair.

    Attributes
    ----------
    step : (n,) which two values it went between, whatever the order, -1 where that is not known
    sign : (n,) +1 from the lower to the higher, -1 back
    """

    step: NDArray[np.int64]
    sign: NDArray[np.float64]

    def signed(self, difference: NDArray[np.float64]) -> NDArray[np.float64]:
        """Changes of answers (n, C) as those of a step upwards."""
        return difference * self.sign[:, None]


def halves(n: int, subject: NDArray[np.object_] | None, rng: np.random.Generator) -> NDArray[np.bool_]:
    """(n,) whether a row is in the first half; a subject's rows stay together."""
    code = np.arange(n) if subject is None else subject_codes(subject)
    units = int(code.max(initial=-1)) + 1
    first = np.zeros(units, dtype=bool)
    first[rng.permutation(units)[: units // 2]] = True
    return first[code]


def ways(difference: NDArray[np.float64], steps: Steps, rows: NDArray[np.bool_]) -> dict[int, Way]:
    """Step → the label towards which its changes (n, C) go most on average over some rows."""
    signed = steps.signed(difference)
    found = {}
    for step in np.unique(steps.step[rows & (steps.step >= 0)]):
        mean = signed[rows & (steps.step == step)].mean(axis=0)
        rises, falls = int(mean.argmax()), int(mean.argmin())
        if mean[rises] >= -mean[falls] - ROUNDING:  # of two labels one rises as the other falls: say the one that rises
            found[int(step)] = Way(rises, 1.0)
        else:
            found[int(step)] = Way(falls, -1.0)
    return found


def along(difference: NDArray[np.float64], steps: Steps, known: Mapping[int, Way]) -> NDArray[np.float64]:
    """(n,) change of every row in the direction of its step; NaN where none is known."""
    signed = steps.signed(difference)
    change = np.full(len(difference), np.nan)
    for step, way in known.items():
        rows = steps.step == step
        change[rows] = way.sign * signed[rows, way.label]
    return change


def one_way(difference: NDArray[np.float64], steps: Steps, first: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(n,) change of every row in the direction that the other half shows."""
    learnt_on_first, learnt_on_second = (ways(difference, steps, rows) for rows in (first, ~first))
    of_first, of_second = along(difference, steps, learnt_on_second), along(difference, steps, learnt_on_first)
    return np.where(first, of_first, of_second)
