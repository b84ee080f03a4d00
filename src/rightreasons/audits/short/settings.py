"""The settings of ShorT: those of `measure`, and the rules by which `conclude` judges a family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rightreasons.errors import SettingError

METRICS = ("separation", "equalised_odds", "independence", "sufficiency", "demographic_parity", "max_gap")
FEWEST_EXCHANGES = 19  # with fewer no p can reach 0.05


@dataclass(frozen=True)
class Settings:
    """The settings of `short.measure`.

    Parameters
    ----------
    positive : class against the rest; needed where the label has more than two
    metrics : unsigned fairness metrics shown beside the signed disparity that decides
    bins : edges that make a continuous attribute groups, for the metrics that are gaps between groups; others take it as it is
    of : the quantity of `max_gap`: "balanced_accuracy", "accuracy", "auc" and others
    threshold : "max_f1" on validation rows, or "argmax"; more than two classes are decided by their `top_k` outputs
    hidden : widths of a readout with hidden layers, a check that the linear one misses nothing
    rows : the most training rows that the readout is fitted on
    direction : 1 or -1, whether the attribute (its last value, larger numbers) goes with the positive class in training; read off
        the training rows by default
    sure : confidence, over all attribute values, that it takes to call the training rows' association there. The models of a
        family all follow what their training rows happen to have, so chance must be all but ruled out here
    small : odds ratio, of a value against the rest or of two standard deviations of a number, below which it is called small
    B, permutations : resamples of the test rows, and exchanges of the attribute within label (of subjects where they are known)
    C : inverse penalty of the linear readout
    twins : also count how often decisions differ between an image and its twin
    """

    attribute: str | None = None
    positive: str | int | None = None
    metrics: Sequence[str] = METRICS
    bins: Sequence[float] | None = None
    of: str = "balanced_accuracy"
    threshold: str = "max_f1"
    top_k: int = 1
    hidden: Sequence[int] = ()
    rows: int = 10_000
    direction: int | None = None
    sure: float = 0.99
    small: float = 1.5
    B: int = 1_000
    permutations: int = 999
    level: float = 0.95
    C: float = 1.0
    twins: bool = False

    def __post_init__(self) -> None:
        if self.permutations < FEWEST_EXCHANGES:
            raise SettingError(f"permutations={self.permutations}: with fewer than {FEWEST_EXCHANGES} no p can reach 0.05")
        if self.direction not in (None, 1, -1):
            raise SettingError(f"direction={self.direction}: give 1, -1 or nothing")


@dataclass(frozen=True)
class Rules:
    """The settings of `short.conclude`.

    Parameters
    ----------
    floor : AUC below which a model does not count; mean baseline AUC less 0.08 by default
    tolerance : AUC that lowering the encoding may cost before the use of the attribute may be legitimate
    coverage : part of the range of encoding, from chance to `bound`, that the models must span; and part of what the baseline
        encodes that the models on the removal side must take away
    encoded : part of that range that the baseline must encode, else there is nothing to remove
    fewest_models : above the floor, on the removal side: those that encode the attribute no more than the baseline
    visible : largest |rho| that may go unseen. Where even a larger one would be missed in one family of five, the audit does not
        say that there is none
    smallest_group : test rows of the smallest subgroup
    bound : encoding that can be reached; by default that of the models trained on the attribute
    delta : step of a continuous attribute (ten years, say) for which the logistic metrics are also shown as odds ratios
    """

    floor: float | None = None
    tolerance: float = 0.02
    coverage: float = 0.5
    encoded: float = 0.1
    fewest_models: int = 10
    visible: float = 0.6
    smallest_group: int = 30
    bound: float | None = None
    delta: float | None = None
    alpha: float = 0.05
    level: float = 0.95
