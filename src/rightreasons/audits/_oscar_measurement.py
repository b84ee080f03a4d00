"""What OSCAR keeps of one model: ranks of regions on balanced test rows, and what shows whether they can be trusted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rightreasons.audits._pull import NOT_MEASURED
from rightreasons.measurements import spread
from rightreasons.stats.profiles import SortedRanks, bootstrap_profiles, rank_regions
from rightreasons.stats.resampling import Counts, Interval

Floats = NDArray[np.float64]
Drawer = Callable[[Counts], list[Floats]]

ORDERS = ("rank-then-aggregate", "aggregate-then-rank")


@dataclass(frozen=True)
class Measurement:
    """One model's regions on the balanced test rows.

    Attributes
    ----------
    target : column that the model predicts
    id, label, level, subject : (n,) of the balanced rows; subjects are empty where unknown
    group_sizes : (C, A) test rows of every label and attribute value, before balancing
    left_out, missing : test rows that balancing leaves out, and rows without label or attribute
    partition, R, cells : of every partition: name, number of regions, cells along every axis (0 where it is no grid)
    values : (n, sum R) ranks of the regions, partition by partition; scores where they are aggregated before they are ranked
    centroids, region : (sum R, axes) and names of the regions
    regions : (P, *drawn) region numbers at drawing size
    empty : rows whose map is empty, all regions alike
    jitter, jittered : (K,) cells by which maps were moved at random, and (K, cells) the profiles that result; the first is 0
    agreement : mean correlation of one image's ranks with the mean ranks of the others
    width, mean_width : regions that a single map covers (median over images), and that the mean of all maps covers
    accuracy, chance : balanced accuracy of the model's own target, and of a constant answer
    group_accuracy : (C, A) on the balanced rows; NaN where the model does not predict the label
    leakage, leakage_within : AUC of a linear probe of the attribute on the features, over all rows and within the label
    removed_accuracy, removed_worst, removed_flips : balanced accuracy, worst-group accuracy, and share of decisions that change,
        when the probe's direction is taken out of the features (App. A2)
    association : Cramér's V of label and attribute in the training rows
    conservation : median relative error of the sum of relevance
    mean_image, pictures, picture_maps : (*drawn, 3), (k, h, w, 3) and (k, h, w), for the page
    pull : of the attribute on the answers, over all test rows
    """

    model: str
    target: str
    attribute: str
    label_name: str
    classes: tuple[str, ...]
    levels: tuple[str, ...]
    recipe: str
    how: str
    order: str
    id: tuple[str, ...]
    label: np.ndarray
    level: np.ndarray
    subject: tuple[str, ...]
    slices: tuple[str, ...]
    group_sizes: np.ndarray
    left_out: int
    missing: int
    geometry: str
    partition: tuple[str, ...]
    partition_note: tuple[str, ...]
    R: np.ndarray
    cells: np.ndarray
    values: np.ndarray
    centroids: np.ndarray
    region: tuple[str, ...]
    regions: np.ndarray
    empty: int
    jitter: np.ndarray
    jittered: np.ndarray
    agreement: float
    width: float
    mean_width: float
    accuracy: Interval
    chance: float
    worst_group: float
    group_accuracy: np.ndarray
    leakage: Interval
    leakage_within: Interval
    removed_accuracy: float
    removed_worst: float
    removed_flips: float
    no_probe: str
    association: float
    training_rows: int
    conservation: float
    mean_image: np.ndarray
    pictures: np.ndarray
    picture_maps: np.ndarray
    captions: tuple[str, ...]
    no_pictures: str
    pull: Interval = NOT_MEASURED

    @property
    def n(self) -> int:
        return len(self.id)

    @property
    def covers(self) -> float:
        """Share of the regions that a single map covers."""
        return self.width / float(self.R[0])

    @property
    def wandering(self) -> float:
        """How much of what a single map leaves free the mean of all maps fills; about 0 for maps that share one place."""
        free = float(self.R[0]) - self.width
        return (self.mean_width - self.width) / free if free > 0 else 0.0

    def part(self, k: int) -> slice:
        """The columns of partition k."""
        end = np.cumsum(self.R)
        return slice(int(end[k] - self.R[k]), int(end[k]))

    def drawer(self, rows: np.ndarray) -> Drawer:
        """The profiles of these rows, (B, R) of every partition, as a function of counts (B, len(rows)) of resamples."""
        values = self.values[rows]
        aggregate = SortedRanks.of(values).medians if self.how == "median" else partial(_means, values)

        def draw(counts: Counts) -> list[Floats]:
            together = aggregate(counts)
            return ranked([together[:, self.part(k)] for k in range(len(self.R))], self.order)

        return draw

    def scalars(self) -> dict[str, float | int | str]:
        """For a row of a study's table."""
        found: dict[str, float | int | str] = {"attribute": self.attribute, "target": self.target, "n": self.n}
        found |= spread("accuracy", self.accuracy) | spread("leakage", self.leakage)
        names = ("worst_group", "empty", "left_out", "agreement", "covers", "wandering", "removed_accuracy", "removed_worst")
        return found | {name: getattr(self, name) for name in names}


def ranked(profiles: Sequence[Floats], order: str) -> list[Floats]:
    """Profiles (B, R) as they are, or ranked now where scores were aggregated first."""
    return list(profiles) if order == ORDERS[0] else [rank_regions(p) for p in profiles]


def _means(values: np.ndarray, counts: Counts) -> Floats:
    return bootstrap_profiles(values, counts, "mean")
