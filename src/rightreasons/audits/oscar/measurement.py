"""What OSCAR keeps of one model: ranks of regions on balanced test rows, and what shows whether they can be trusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rightreasons.audits._following import NOT_MEASURED
from rightreasons.audits.oscar.behaviour import Decisions, Leakage, Training
from rightreasons.audits.oscar.pictures import Pictures
from rightreasons.audits.oscar.regions import Regions
from rightreasons.audits.oscar.rows import BalancedRows
from rightreasons.audits.oscar.steadiness import Steadiness
from rightreasons.measurements import spread
from rightreasons.stats.profiles import SortedRanks, bootstrap_profiles, rank_regions
from rightreasons.stats.resampling import Counts, Interval

Floats = NDArray[np.float64]
ProfileDrawer = Callable[[Counts], list[Floats]]
"""Profiles (B, R) of every partition, for resamples given as counts (B, n)."""

RANK_FIRST, AGGREGATE_FIRST = ORDERS = ("rank-then-aggregate", "aggregate-then-rank")


@dataclass(frozen=True)
class Ranking:
    """The importance of the regions, image by image.

    Attributes
    ----------
    recipe : name of the array of maps
    how, order : how images are summed up to a profile: "median" or "mean", before or after regions are ranked
    values : (n, sum R) ranks of the regions, partition by partition; scores where they are aggregated before they are ranked
    empty : rows whose map is empty, all regions alike
    """

    recipe: str
    how: str
    order: str
    values: np.ndarray
    empty: int


@dataclass(frozen=True)
class Measurement:
    """One model's regions on the balanced test rows.

    Attributes
    ----------
    target : column that the model predicts
    label_name, classes : column of the label, and its values
    attribute, levels : the attribute, and its values
    conservation : median relative error of the sum of relevance; NaN where the maps do not add up to the score
    pull : of the attribute on the answers, over all test rows
    """

    model: str
    target: str
    attribute: str
    label_name: str
    classes: tuple[str, ...]
    levels: tuple[str, ...]
    rows: BalancedRows
    regions: Regions
    ranking: Ranking
    steadiness: Steadiness
    decisions: Decisions
    leakage: Leakage
    training: Training
    conservation: float
    pictures: Pictures
    pull: Interval = NOT_MEASURED

    @property
    def n(self) -> int:
        return self.rows.n

    @property
    def covers(self) -> float:
        """Share of the regions that a single map covers."""
        return self.steadiness.width / float(self.regions.R[0])

    @property
    def wandering(self) -> float:
        """How much of what a single map leaves free the mean of all maps fills; about 0 for maps that share one place."""
        free = float(self.regions.R[0]) - self.steadiness.width
        if not free > 0:
            return 0.0
        return (self.steadiness.mean_width - self.steadiness.width) / free

    def profile_drawer(self, rows: np.ndarray) -> ProfileDrawer:
        """The rank profiles of these rows (sec. III-F), (B, R) of every partition, as a function of counts (B, len(rows))."""
        values = self.ranking.values[rows]
        if self.ranking.how == "median":
            aggregate = SortedRanks.of(values).medians
        else:
            aggregate = partial(_means, values)

        def draw(counts: Counts) -> list[Floats]:
            together = aggregate(counts)
            profiles = []
            for k in range(len(self.regions.R)):
                profiles.append(together[:, self.regions.columns(k)])
            if self.ranking.order == AGGREGATE_FIRST:
                return [rank_regions(profile) for profile in profiles]
            return profiles

        return draw

    def scalars(self) -> dict[str, float | int | str]:
        """For a row of a study's table."""
        return {
            "attribute": self.attribute,
            "target": self.target,
            "n": self.n,
            **spread("accuracy", self.decisions.accuracy),
            **spread("leakage", self.leakage.auc),
            "worst_group": self.decisions.worst_group,
            "empty": self.ranking.empty,
            "left_out": self.rows.left_out,
            "agreement": self.steadiness.agreement,
            "covers": self.covers,
            "wandering": self.wandering,
            "removed_accuracy": self.leakage.removed_accuracy,
            "removed_worst": self.leakage.removed_worst,
        }


def _means(values: np.ndarray, counts: Counts) -> Floats:
    return bootstrap_profiles(values, counts, "mean")
