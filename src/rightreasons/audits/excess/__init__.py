"""Excess: does the model follow the attribute more than a head that has nothing to gain from it?

The last layer is refitted on the model's own features, on held-out rows weighted so that the attribute says nothing about the
label. Both heads read the same features. An attribute that merely goes with how strongly the label shows (sicker patients in one
ward) draws both heads alike; an attribute that the model uses draws the model more. The difference of the two pulls is the
excess. Within other attributes of the table it also tells a cue from what only goes with it.

| step | function |
|---|---|
| weights under which the label is independent of the attributes | `stats.refit.raked_weights` |
| the refitted last layer, made as sharp as the model | `stats.refit.refit`, `stats.refit.matched` |
| pull, by label and within other attributes | `stats.groups.pull`, `stats.partial_pull.partial_pull_draws` |
| the rows, the comparison | `rows.side`, `measure.Comparison` |
| verdict and conditions | `judge.Judged` |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.stats import t

from rightreasons.audits._contract import Context, Need, OneModelResult, Role
from rightreasons.audits.excess import page
from rightreasons.audits.excess.judge import SEEN, TOLERANCE, Judged
from rightreasons.audits.excess.measure import measure
from rightreasons.audits.excess.page import ROW
from rightreasons.audits.excess.pieces import Measurement
from rightreasons.findings import Check, Estimate, Exhibit, Row, Standing, Unevenness, Verdict
from rightreasons.stats.resampling import Interval

__all__ = ["QUESTION", "ROW", "Measurement", "Result", "conclude", "measure", "needs", "roles"]

QUESTION = "Does the model follow the attribute more than a head that has nothing to gain from it?"
READS_HEAD = True


def needs() -> tuple[Need, ...]:
    """Features and logits of audit and test rows; of balanced networks too, where they are given as `baseline`."""
    of_the_model = tuple(Need("test", cohort, array) for cohort in ("audit", "test") for array in ("features", "logits"))
    return (*of_the_model, *(Need("baseline", need.cohort, need.array, optional=True) for need in of_the_model))


def roles() -> tuple[Role, ...]:
    """None is trained for it: balanced networks are shown beside where there are some."""
    return ()


def conclude(
    measurements: Mapping[str, Sequence[Measurement]],
    *,
    rng: np.random.Generator,
    tolerance: float = TOLERANCE,
    seen: float = SEEN,
) -> Result:
    """`shortcut` where the lower limit of the excess exceeds `tolerance` and no other attribute explains it.

    `no evidence` where the upper limit lies below `seen`, or where another attribute explains the excess.
    """
    models, baselines = tuple(measurements["test"]), tuple(measurements.get("baseline", ()))
    first = models[0]
    context = Context(attribute=first.attribute, n_rows=first.n, n_subjects=first.n_subjects)
    return Result(models, context, tolerance=tolerance, seen=seen, over_networks=over_networks(first, baselines))


def over_networks(m: Measurement, baselines: Sequence[Measurement]) -> Interval | None:
    """The pull beyond that of balanced networks on the same rows and resamples; None where there are none."""
    alike = [b for b in baselines if b.attribute == m.attribute and len(b.pulls.draws) == len(m.pulls.draws)]
    alike = [b for b in alike if not np.isnan(b.pulls.model.low)]
    if not alike or np.isnan(m.pulls.model.low):
        return None
    values = np.array([b.pulls.model.value for b in alike])
    value = m.pulls.model.value - float(values.mean())
    draws = m.pulls.draws - np.mean([b.pulls.draws for b in alike], axis=0)
    variance = float(np.nanvar(draws, ddof=1))
    reach = float(t.ppf((1 + m.pulls.model.level) / 2, max(len(values) - 1, 1)))
    if len(values) > 1:  # what one more such network could have had
        variance += float(values.var(ddof=1)) * (1 + 1 / len(values))
    half = reach * float(np.sqrt(variance))
    return replace(m.pulls.model, value=value, low=value - half, high=value + half)


@dataclass(frozen=True)
class Result(OneModelResult[Measurement]):
    """What the excess says of one model."""

    question: ClassVar[str] = QUESTION
    row: ClassVar[Row] = ROW
    standing: ClassVar[Standing] = "guard"
    alike: ClassVar[str] = "last layer"

    tolerance: float = TOLERANCE
    seen: float = SEEN
    over_networks: Interval | None = None

    @property
    def judged(self) -> Judged:
        return Judged(self.first, self.tolerance, self.seen)

    @property
    def verdict(self) -> Verdict:
        return self.judged.verdict

    def sentence(self, m: Measurement) -> str:
        return page.sentence(self.judged)

    def estimates(self, m: Measurement) -> Sequence[Estimate]:
        return page.estimates(self.judged, self.over_networks)

    def checks(self, m: Measurement) -> Sequence[Check]:
        return self.judged.checks()

    def exhibits(self, m: Measurement) -> Sequence[Exhibit]:
        return page.exhibits(self.judged)

    def unevenness(self, m: Measurement) -> Sequence[Unevenness]:
        return page.unevenness(self.judged)
