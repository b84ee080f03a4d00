"""What TSI measures of one model, image by image, in pieces."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rightreasons.audits._following import NOT_MEASURED
from rightreasons.measurements import spread
from rightreasons.stats import tokens
from rightreasons.stats.resampling import Interval


@dataclass(frozen=True)
class Influence:
    """Which influence was measured, and what the object is.

    Attributes
    ----------
    maps : as it was asked for
    tokens : T, of the model's grid
    """

    region: str
    maps: str
    explain: str
    rectify: str
    tokens: int

    @property
    def is_calibrated(self) -> bool:
        """Whether this is the influence that the tolerance was calibrated for: support by tokens that are left out."""
        return "token_influence" in self.maps and "occlusion" not in self.maps and self.rectify == "positive"


@dataclass(frozen=True)
class Images:
    """The images and what the model decides about them.

    Attributes
    ----------
    subject : (n,), or empty where subjects are not known
    right : (n,) 1 where the decision is right, 0 where wrong, NaN where the label is missing
    confidence, probability : (n,) of the predicted class, and of the class whose influence this is
    covered : (n,) tokens that the object covers, -1 where the row has no annotation
    area : (n,) share of the image that it covers
    """

    id: np.ndarray
    subject: np.ndarray
    label: np.ndarray
    predicted: np.ndarray
    right: np.ndarray
    confidence: np.ndarray
    probability: np.ndarray
    covered: np.ndarray
    area: np.ndarray


@dataclass(frozen=True)
class Spuriosity:
    """A-TSI (eq. 1) and M-TSI (eq. 2), (n,) or (k, n), NaN where undefined."""

    average: np.ndarray
    maximum: np.ndarray


@dataclass(frozen=True)
class Metric:
    """One of the two scores."""

    name: str
    field: str

    def of(self, scores: Spuriosity) -> np.ndarray:
        values: np.ndarray = getattr(scores, self.field)
        return values


M_TSI, A_TSI = Metric("M-TSI", "maximum"), Metric("A-TSI", "average")
METRICS = (M_TSI, A_TSI)


@dataclass(frozen=True)
class Support:
    """Where the influence lies, beyond the two scores; each (n,).

    Attributes
    ----------
    undefined : why M-TSI is undefined, numbers into `stats.tokens.REASONS`
    strongest_outside : 1 where the token of largest influence, whatever its sign, lies outside, 0 inside, NaN undefined
    only_outside : where tokens support the class outside the object and none does inside
    flat : where no token moves the probability by more than rounding
    """

    undefined: np.ndarray
    strongest_outside: np.ndarray
    only_outside: np.ndarray
    flat: np.ndarray


@dataclass(frozen=True)
class Means:
    """Over the admissible, defined images: the share with M-TSI > 1, and both means."""

    above: Interval
    maximum: Interval
    average: Interval


@dataclass(frozen=True)
class OtherAnnotation:
    """Scores with the other annotation: the mask beside the box, or the box beside the mask (App. D)."""

    name: str
    scores: Spuriosity


@dataclass(frozen=True)
class Substitutes:
    """Scores with the maps `name` in place of the influence (App. C.2), and with the top 5, 10, 20, 40, 80 tokens of the
    attention as the object (App. C.4).
    """

    name: tuple[str, ...]
    scores: Spuriosity
    core: Spuriosity


@dataclass(frozen=True)
class Deletion:
    """(m, 5, n) probability lost when the top 1, 3, 5, 10, 20 tokens of the maps `by` are dropped (App. C.1)."""

    by: tuple[str, ...]
    lost: np.ndarray


@dataclass(frozen=True)
class Noise:
    """NSI (App. C.3) and the probability that noise inside and outside the object takes away, each (n,)."""

    index: np.ndarray
    lost_inside: np.ndarray
    lost_outside: np.ndarray
    draws: int


@dataclass(frozen=True)
class Kept:
    """(n,) whether the decision is right from the tokens inside alone, and outside alone; NaN where there are none."""

    inside: np.ndarray
    outside: np.ndarray


@dataclass(frozen=True)
class Missingness:
    """After the same tokens were removed in each `way` (App. B): same decision, right, and probability lost, each (k, n)."""

    way: tuple[str, ...]
    same: np.ndarray
    right: np.ndarray
    lost: np.ndarray


@dataclass(frozen=True)
class Extras:
    """What further forward passes say; empty or None where they were not extracted, and `notes` say what was asked for."""

    substitutes: Substitutes
    deletion: Deletion
    noise: Noise | None
    kept: Kept | None
    missingness: Missingness
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Cues:
    """Attributes whose values stand for labels.

    Attributes
    ----------
    source : what stands for what, and where that is known from
    agrees : (c, n) 1 where the value stands for the image's label, 0 for another, -1 for none
    """

    name: tuple[str, ...]
    source: tuple[str, ...]
    agrees: np.ndarray


@dataclass(frozen=True)
class Twins:
    """(n,) M-TSI of each image's twin; NaN where it has none that can be compared, and `reason` where no image has."""

    maximum: np.ndarray
    reason: str


@dataclass(frozen=True)
class Followed:
    """The pull of the attribute that the answers follow most, its limits widened by how many attributes there are."""

    pull: Interval = NOT_MEASURED
    attribute: str = ""


@dataclass(frozen=True)
class Pictures:
    """Pictures (k, h, w, 3) of the images in `row`; none, and the reason, where they cannot be drawn."""

    pixels: np.ndarray
    caption: tuple[str, ...]
    row: np.ndarray
    reason: str


@dataclass(frozen=True)
class Measurement:
    """TSI of one model, image by image, in the order of its rows."""

    model: str
    cohort: str
    classes: tuple[str, ...]
    influence: Influence
    images: Images
    scores: Spuriosity
    support: Support
    means: Means
    other: OtherAnnotation | None
    extras: Extras
    cues: Cues
    twins: Twins
    followed: Followed
    pictures: Pictures
    left_out: int

    @property
    def maximum(self) -> np.ndarray:
        """(n,) M-TSI."""
        return self.scores.maximum

    @property
    def average(self) -> np.ndarray:
        """(n,) A-TSI."""
        return self.scores.average

    @property
    def label(self) -> np.ndarray:
        return self.images.label

    @property
    def above(self) -> np.ndarray:
        """(n,) 1 where M-TSI exceeds 1, 0 where it does not, NaN where it is undefined."""
        return np.where(np.isnan(self.maximum), np.nan, self.maximum > 1)

    @property
    def admissible(self) -> np.ndarray:
        """(n,) objects that cover a token and not too many."""
        return tokens.is_admissible(tokens.coverage_group(self.images.covered, self.influence.tokens))

    def scalars(self) -> dict[str, float | int | str]:
        admissible = self.admissible
        columns: dict[str, float | int | str] = {"region": self.influence.region, "tokens": self.influence.tokens}
        columns["n"] = int(admissible.sum())
        columns |= spread("share_above_1", self.means.above)
        columns |= spread("mean_M_TSI", self.means.maximum) | spread("mean_A_TSI", self.means.average)
        noise, kept = self.extras.noise, self.extras.kept
        if noise is not None:
            columns["median_NSI"] = float(np.median(_defined(noise.index[admissible])))
        if kept is not None:
            columns["accuracy_inside_alone"] = float(np.mean(_defined(kept.inside[admissible])))
            columns["accuracy_outside_alone"] = float(np.mean(_defined(kept.outside[admissible])))
        return columns


def _defined(values: np.ndarray) -> np.ndarray:
    """The values that are; one NaN where there are none, whose mean and median are undefined."""
    known = values[~np.isnan(values)]
    if len(known):
        return known
    return np.array([np.nan])
