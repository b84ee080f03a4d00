"""ShorT's result: what was judged of a family of models, the models to choose from, and the finding."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from rightreasons.audits._contract import Context
from rightreasons.audits.short import page
from rightreasons.audits.short.judge import Judged
from rightreasons.errors import SettingError
from rightreasons.findings import Finding, Row, Verdict

QUESTION = "Does unfairness follow how strongly the models encode the attribute?"
ROW: Row = "reliance"


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
        picked = self.judged.pick(tolerance)
        if picked is None:
            raise SettingError("no model has a disparity and an AUC that near to the baseline's: give a larger tolerance")
        return picked

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
