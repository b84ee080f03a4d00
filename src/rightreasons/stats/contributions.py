"""Where a test model follows the attribute model, and where the task: OSCAR's two contribution maps, and maps made of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rightreasons.stats.profiles import QUADRANTS, Floats, contributions, l1_normalised, quadrants

BOTH_MORE = QUADRANTS.index("both more")  # both residuals say *more important*


@dataclass(frozen=True)
class ContributionMaps:
    """Region contribution scores (..., R) of one triplet of profiles; NaN where a partial correlation is undefined.

    Attributes
    ----------
    shortcut, task : RCS(TS, SA | BA) and RCS(TS, BA | SA) as they are: over R - 1 they sum to the partial correlations
    shortcut_quadrant, task_quadrant : position in `profiles.QUADRANTS`, -1 where a residual is zero
    """

    shortcut: Floats
    task: Floats
    shortcut_quadrant: NDArray[np.int8]
    task_quadrant: NDArray[np.int8]

    @property
    def shortcut_normalised(self) -> Floats:
        """Scaled to sum |RCS| = 1."""
        return l1_normalised(self.shortcut)

    @property
    def task_normalised(self) -> Floats:
        return l1_normalised(self.task)

    @property
    def shortcut_part(self) -> Floats:
        """The shortcut scores where both models use a region *more* than the baseline predicts, 0 elsewhere.

        A positive score alone does not say so: it is positive as well where both ignore a region more.
        """
        return _part(self.shortcut, self.shortcut_quadrant)

    @property
    def task_part(self) -> Floats:
        """The task scores where the test and the baseline model use a region more than the attribute model predicts."""
        return _part(self.task, self.task_quadrant)


def contribution_maps(test: ArrayLike, baseline: ArrayLike, attribute: ArrayLike) -> ContributionMaps:
    """Both directions of the region contribution scores of three rank profiles (..., R): sec. III-H."""
    return ContributionMaps(
        contributions(test, attribute, baseline, normalise=False),
        contributions(test, baseline, attribute, normalise=False),
        quadrants(test, attribute, baseline),
        quadrants(test, baseline, attribute),
    )


def rcs_star(test: ArrayLike, baseline: ArrayLike, attribute: ArrayLike) -> Floats:
    """RCS* = RCS(TS, SA | BA) - RCS(TS, BA | SA), each scaled to sum |RCS| = 1 first, (..., R): Algorithm 2."""
    maps = contribution_maps(test, baseline, attribute)
    return maps.shortcut_normalised - maps.task_normalised


def shortcut_map(test: ArrayLike, baseline: ArrayLike, attribute: ArrayLike) -> Floats:
    """What `quadrant` attenuation weakens, (..., R) in [0, 1]: 1 at the region that is most the shortcut's and not the task's.

    The shortcut part less its projection on the task part, clamped at 0, scaled to maximum 1. All zero where no region is used
    more by both; NaN where a partial correlation is undefined.
    """
    maps = contribution_maps(test, baseline, attribute)
    shortcut, task = maps.shortcut_part, maps.task_part
    length = np.sum(task * task, axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        along = np.where(length == 0, 0.0, np.sum(shortcut * task, axis=-1, keepdims=True) / length)
        left = np.maximum(shortcut - along * task, 0.0)
        largest = left.max(axis=-1, keepdims=True)
        return np.where(largest == 0, 0.0, left / largest)


# ---- what the functions above use ----------------------------------------------------------------------------------------


def _part(scores: Floats, quadrant: NDArray[np.int8]) -> Floats:
    """Scores of the regions that both models use more, 0 elsewhere; undefined scores stay undefined."""
    return np.where(np.isnan(scores), np.nan, np.where(quadrant == BOTH_MORE, scores, 0.0))
