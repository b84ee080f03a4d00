"""ShorT, Shortcut Testing: does unfairness follow the encoding of an attribute over a family of models?

Models are trained so that they encode the attribute more or less (`mitigations/gradient_scaling`, or any other way); where the
disparity of their decisions moves with the encoding, in the direction of the training association, the attribute is a shortcut
(ShorT, Methods). What decides here differs from the paper in four points, and the paper's own numbers stand beside it: encoding
is read within the label, the disparity has a sign, p comes from exchanging the attribute among test rows of one label, and models
that were made to show the attribute more than the baseline stand apart.

| paper | function |
|---|---|
| Methods, "Assessing the encoding of demographic information" | `encoding.read_values`, `encoding.read_numbers` |
| Supp. Methods, decision threshold | `decisions.decision_rule` |
| Methods, "Assessing fairness" | `decisions.unsigned_metrics`, `stats.fairness` |
| – : disparity with its sign (ours) | `decisions.signed_metrics`, `rows.gate_of`, `stats.associations` |
| Methods, performance floor | `judge.floor_of` |
| Methods, LEB and UEB; Supp. Fig. 7 | `judge.bound_of` |
| Methods, "ShorT: testing for shortcut learning" | `judge.metrics_over_models`, `judge.verdict_of` |
| Definition, performance clause | `judge.cost_of_low_encoding` |
| Supp. Methods, comparing data sets; Supp. Figs. 5, 6 | `compare.compare`, `matched_encoding`, `cross_table`, `across.across` |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rightreasons.audits._contract import Context, Need, Role
from rightreasons.audits.short.across import across
from rightreasons.audits.short.compare import compare, cross_table, matched_encoding
from rightreasons.audits.short.judge import judge
from rightreasons.audits.short.measure import measured
from rightreasons.audits.short.measurement import Measurement
from rightreasons.audits.short.result import QUESTION, ROW, Result
from rightreasons.audits.short.settings import METRICS, Rules, Settings
from rightreasons.evidence import Evidence
from rightreasons.families import with_settings

__all__ = [
    "METRICS", "QUESTION", "ROW", "Measurement", "Result", "across", "compare", "conclude", "cross_table", "matched_encoding",
    "measure", "needs", "roles",
]  # fmt: skip

GROUPS = 8  # of a continuous attribute, in which models that bound its encoding learn it


def needs(twins: bool = False) -> tuple[Need, ...]:
    read = []
    for role in ("sweep", "baseline", "attribute"):
        optional = role != "sweep"
        read += [
            Need(role, "test", "features", optional),
            Need(role, "train", "features", True),
            Need(role, "audit", "features", True),
        ]
        if role != "attribute":
            read += [Need(role, "test", "logits", optional), Need(role, "val", "logits", True)]
            if twins:
                read.append(Need(role, "twin", "logits", True))
    return tuple(read)


def roles(attribute: str | None = None) -> tuple[Role, ...]:
    return (Role("attribute", target=attribute, groups=GROUPS),) if attribute else ()


@with_settings(Settings)
def measure(evidence: Evidence, *, rng: np.random.Generator, settings: Settings) -> Measurement:
    """Encoding, performance and fairness of one model, with resamples and exchanges that all models of a family share."""
    return measured(evidence, settings, rng)


@with_settings(Rules)
def conclude(measurements: Mapping[str, Sequence[Measurement]], *, rng: np.random.Generator, settings: Rules) -> Result:
    """Judge a family of models.

    Parameters
    ----------
    measurements : role `sweep`; `baseline`, models that join it as such beside those of scale 0; `attribute`, trained on it
    """
    judged = judge(measurements, settings, rng)
    m = judged.first
    return Result(judged, Context(attribute=m.attribute, n_rows=m.n, n_subjects=m.n_subjects))
