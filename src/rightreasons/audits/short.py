"""ShorT, Shortcut Testing: does unfairness follow the encoding of an attribute over a family of models?

Models are trained so that they encode the attribute more or less (`mitigations/gradient_scaling`, or any other way); where the
disparity of their decisions moves with the encoding, in the direction of the training association, the attribute is a shortcut
(ShorT, Methods). What decides here differs from the paper in three points, and the paper's own numbers stand beside it: encoding
is read within the label, the disparity has a sign, and p comes from exchanging the attribute among test rows of one label.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from rightreasons.audits import _short_page as page
from rightreasons.audits._contract import Context, Need, Role
from rightreasons.audits._short_judge import Judged, Rules, judge
from rightreasons.audits._short_measure import Measurement, Settings, measured
from rightreasons.errors import DataError, SettingError
from rightreasons.evidence import Evidence
from rightreasons.families import suggest
from rightreasons.findings import Finding, Row, Table, Verdict
from rightreasons.stats import sweeps
from rightreasons.stats.resampling import interval
from rightreasons.stats.sweeps import Difference

__all__ = [
    "QUESTION", "ROW", "Measurement", "Result", "compare", "conclude", "cross_table", "matched_encoding", "measure", "needs",
    "roles",
]  # fmt: skip

QUESTION = "Does unfairness follow how strongly the models encode the attribute?"
ROW: Row = "reliance"

METRICS = ("separation", "equalised_odds", "independence", "sufficiency", "demographic_parity", "max_gap")
GROUPS = 8  # of a continuous attribute, in which models that bound its encoding learn it
FEWEST_EXCHANGES = 19  # with fewer no p can reach 0.05


def needs(twins: bool = False) -> tuple[Need, ...]:
    def of(role: str, optional: bool) -> tuple[Need, ...]:
        behaviour = (
            Need(role, "test", "logits", optional),
            Need(role, "val", "logits", True),
            *((Need(role, "twin", "logits", True),) if twins else ()),
        )
        return (
            Need(role, "test", "features", optional),
            Need(role, "train", "features", True),
            Need(role, "audit", "features", True),
            *(behaviour if role != "attribute" else ()),
        )

    return of("sweep", False) + of("baseline", True) + of("attribute", True)


def roles(attribute: str | None = None) -> tuple[Role, ...]:
    return (Role("attribute", target=attribute, groups=GROUPS),) if attribute else ()


@dataclass(frozen=True)
class Result:
    """What ShorT says of a family of models."""

    judged: Judged
    context: Context = field(default_factory=Context)

    @property
    def verdict(self) -> Verdict:
        return self.judged.verdict

    @property
    def rho(self) -> float:
        """Of encoding within the label and signed disparity; evidence of presence, not of strength."""
        return math.nan if self.judged.signed is None else self.judged.signed.test.rho

    @property
    def p(self) -> float:
        return math.nan if self.judged.signed is None else self.judged.signed.adjusted

    @property
    def front(self) -> tuple[int, ...]:
        """Models that no other one above the floor beats in AUC without more disparity, or the reverse: their positions."""
        return tuple(np.flatnonzero(self.judged.front).tolist())

    def pick(self, tolerance: float | None = None) -> int:
        """Position, in the role `sweep` and then `baseline`, of the model with the least disparity among the able ones.

        Able are those whose AUC is at most `tolerance` (by default the audit's) below the mean of the baseline. It was chosen on
        these test rows: audit it again on others before believing its numbers.
        """
        found = self.judged.pick(tolerance)
        if found is None:
            raise SettingError("no model has a disparity and an AUC that near to the baseline's: give a larger tolerance")
        return found

    def finding(self) -> Finding:
        return self.context.finding(
            question=QUESTION,
            row=ROW,
            verdict=self.verdict,
            sentence=page.sentence(self.judged),
            estimates=page.estimates(self.judged),
            checks=page.checks(self.judged),
            exhibits=page.exhibits(self.judged),
        )


def measure(
    evidence: Evidence,
    *,
    rng: np.random.Generator,
    attribute: str | None = None,
    positive: str | int | None = None,
    metrics: Sequence[str] = METRICS,
    bins: Sequence[float] | None = None,
    of: str = "balanced_accuracy",
    threshold: str = "max_f1",
    top_k: int = 1,
    hidden: Sequence[int] = (),
    rows: int = 10_000,
    direction: int | None = None,
    B: int = 1_000,
    permutations: int = 999,
    level: float = 0.95,
    C: float = 1.0,
    twins: bool = False,
) -> Measurement:
    """Encoding, performance and fairness of one model, with resamples and exchanges that all models of a family share.

    Parameters
    ----------
    positive : class against the rest; needed where the label has more than two
    metrics : unsigned fairness metrics shown beside the signed disparity that decides
    bins : edges that make a continuous attribute groups, for the metrics that are gaps between groups; others take it as it is
    of : the quantity of `max_gap`
    threshold : "max_f1" on validation rows, or "argmax"; more than two classes are decided by their `top_k` outputs
    hidden : widths of a readout with hidden layers, a check that the linear one misses nothing
    rows : the most training rows that the readout is fitted on
    direction : 1 or -1, whether the attribute (its last value, larger numbers) goes with the positive class in training; read off
        the training rows by default
    B, permutations : resamples of the test rows, and exchanges of the attribute within label (of subjects where they are known)
    C : inverse penalty of the linear readout
    twins : also count how often decisions differ between an image and its twin
    """
    if permutations < FEWEST_EXCHANGES:
        raise SettingError(f"permutations={permutations}: with fewer than {FEWEST_EXCHANGES} no p can reach 0.05")
    if direction not in (None, 1, -1):
        raise SettingError(f"direction={direction}: give 1, -1 or nothing")
    settings = Settings(
        positive, tuple(metrics), bins, of, threshold, top_k, tuple(int(h) for h in hidden), rows, B, permutations, level, C,
        direction,
    )  # fmt: skip
    return measured(evidence, attribute, settings, rng)


def conclude(
    measurements: Mapping[str, Sequence[Measurement]],
    *,
    rng: np.random.Generator,
    floor: float | None = None,
    tolerance: float = 0.02,
    coverage: float = 0.5,
    fewest_models: int = 10,
    smallest_group: int = 30,
    bound: float | None = None,
    delta: float | None = None,
    alpha: float = 0.05,
    level: float = 0.95,
) -> Result:
    """Judge a family of models.

    Parameters
    ----------
    measurements : role `sweep`; `baseline`, models that join it as such beside those of scale 0; `attribute`, trained on it
    floor : AUC below which a model does not count; mean baseline AUC less 0.08 by default
    tolerance : AUC that lowering the encoding may cost before the use of the attribute may be legitimate
    coverage : part of the range of encoding, from chance to `bound`, that the models must span
    bound : encoding that can be reached; by default that of the models trained on the attribute
    delta : step of a continuous attribute (ten years, say) for which the logistic metrics are also shown as odds ratios
    """
    rules = Rules(floor, tolerance, coverage, fewest_models, smallest_group, bound, delta, alpha, level)
    judged = judge(measurements, rules, rng)
    m = judged.first
    return Result(judged, Context(attribute=m.attribute, n_rows=m.n, n_subjects=m.n_subjects))


# ---- several data sets ---------------------------------------------------------------------------------------------------


def compare(first: Result, second: Result, *, rng: np.random.Generator, P: int = 9_999, ranked: bool = True) -> Difference:
    """Do families trained on two data sets differ in rho? Models are exchanged between them, see `stats.sweeps.difference`.

    That p takes the models for independent; the interval over models and examples beside it does not.
    """
    both = [result.judged for result in (first, second)]
    pairs = [(j.encoding[j.kept], j.disparity[j.kept]) for j in both]
    found = sweeps.difference(pairs[0], pairs[1], rng=rng, P=P, ranked=ranked)
    B = min(len(j.rho_draws) for j in both)
    spread = interval(found.value, both[0].rho_draws[:B] - both[1].rho_draws[:B])
    return replace(found, low=spread.low, high=spread.high)


def matched_encoding(results: Mapping[str, Result], edges: Sequence[float]) -> Table:
    """Disparity and AUC of several families at equal encoding (Supp. Fig. 5): families by bins of encoding with these edges."""
    cuts = np.asarray(edges, dtype=np.float64)
    if len(cuts) < 2 or (np.diff(cuts) <= 0).any():
        raise SettingError(f"edges={list(edges)}: give at least two that rise")
    units = {r.judged.first.unit for r in results.values()}
    if len(units) != 1:
        raise DataError(f"the families' encodings are {', '.join(sorted(units))}: compare those of one kind")
    rows: list[tuple[str | int | float | None, ...]] = []
    for low, high in pairwise(cuts):
        for name, result in results.items():
            j = result.judged
            value = np.array([m.encoding.value for m in j.models])
            here = j.kept & (value >= low) & (value < high if high < cuts[-1] else value <= high)
            means = [float(np.nanmean(v[here])) if here.any() else None for v in (np.abs(j.disparity), j.auc)]
            rows.append((f"{low:g} to {high:g}", name, int(here.sum()), *means))
    return Table(
        title="Disparity at equal encoding",
        caption="Families of models at the same encoding of the attribute. Where they differ in disparity, encoding alone does "
        "not say how unfair a model is.",
        columns=(f"encoding ({units.pop()})", "family", "models", "mean absolute disparity", "mean AUC"),
        rows=rows,
    )


def cross_table(measurements: Mapping[tuple[str, str], Sequence[Measurement]], metric: str = "separation") -> Table:
    """AUC and a fairness metric of models by (training set, test set), means over models (Supp. Fig. 6)."""
    trained, tested = (list(dict.fromkeys(key[k] for key in measurements)) for k in (0, 1))
    every = [m for models in measurements.values() for m in models]
    for m in every:
        if metric not in m.metrics:
            raise SettingError(f"{m.model} was not measured for {metric!r}; {suggest(metric, m.metrics)}")

    def mean(key: tuple[str, str], what: str) -> float | None:
        values = [m.auc.value if what == "AUC" else m.value[m.metrics.index(what)] for m in measurements.get(key, ())]
        known = [float(v) for v in values if not math.isnan(v)]
        return sum(known) / len(known) if known else None

    shown = [(what, test) for what in ("AUC", metric) for test in tested]
    return Table(
        title="Training sets against test sets",
        caption="Where AUC is higher on test rows that are biased like the training rows than on others, it is spurious.",
        columns=("trained on", *(f"{what.replace('_', ' ')} on {test}" for what, test in shown)),
        rows=[(name, *(mean((name, test), what) for what, test in shown)) for name in trained],
    )
