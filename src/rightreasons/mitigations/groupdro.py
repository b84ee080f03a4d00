"""GroupDRO: the groups with the largest loss weigh more and more (Sagawa et al. 2020, algorithm 1).

Every step raises the weight of a (label, attribute) group by its mean loss in the batch, an exponentiated gradient, and descends
on the weighted sum of these means.
"""

from __future__ import annotations

from typing import Unpack

import numpy as np
import torch
from torch import Tensor, nn

from rightreasons.data.cohort import Cohort
from rightreasons.errors import SettingError
from rightreasons.mitigations import card_settings, handed_on
from rightreasons.models.classifier import Classifier
from rightreasons.models.grouped_rows import Select, completed, every_group, grouped, row_weights, seed_of, selection
from rightreasons.models.starting import fresh
from rightreasons.models.training import Batch, train
from rightreasons.models.training_keywords import Training, trains

STARTS = "start"


@trains(patience=None)
def mitigate(
    classifier: Classifier,
    cohort: Cohort,
    *,
    rng: np.random.Generator,
    attribute: str | None = None,
    step: float = 0.01,
    adjustment: float = 0.0,
    start: str | None = None,
    select: Select | None = None,
    **training: Unpack[Training],
) -> Classifier:
    """Train anew against the worst group; the epoch is chosen on the val rows. What is not explained here is `train`'s.

    Train rows without the attribute belong to no group and leave.

    Parameters
    ----------
    attribute : whose groups with the label compete; the cohort's first by default
    step : of the groups' weights (eta_q)
    adjustment : C of C / sqrt(n_g), added to a group's loss where the weights are raised: small groups generalise worse
    start : starting weights, see `models.starting.fresh`
    select : "wga" or "accuracy" of the val rows; by default the first where the attribute makes groups there
    patience : None, because the weights need many steps before the small groups count
    """
    if not (0 < step < np.inf and 0 <= adjustment < np.inf):
        raise SettingError(f"step={step} and adjustment={adjustment}: give a step above 0, and an adjustment of at least 0")
    settings = card_settings(attribute=attribute, step=step, adjustment=adjustment, start=start, select=select, **training)
    seed = seed_of(rng)
    cohort = completed(cohort, rng)
    by = select or selection(classifier, cohort, attribute)
    rows = grouped(classifier, cohort.on("train"), attribute)
    size = every_group(rows, what="groupdro")
    objective = WorstGroups(rows.attribute, size, rows.A, step=step, adjustment=adjustment)
    known = np.isin(cohort.id.astype(str), rows.cohort.id.astype(str))
    weights = np.where(known, row_weights(cohort), 0.0)
    new = train(
        fresh(classifier, rng, start), cohort, objective=objective, weights=weights, attribute=attribute, stop_on=by, seed=seed,
        regime="groupdro", **training,
    )  # fmt: skip
    q = {rows.name(g): round(float(objective.q[g]), 6) for g in np.flatnonzero(size).tolist()}
    return handed_on(new, classifier, "groupdro", settings, selected=by, keeps=False, chosen={"group weights": q})


class WorstGroups(nn.Module):
    """The objective: `sum of q_g · mean loss of g in the batch`, after `q_g ∝ q_g · exp(step · (mean loss + C / sqrt(n_g)))`.

    A group without rows in the batch has mean loss 0, and loses weight to those that have some, as in the released code. Rows
    with weights make weighted means.

    Parameters
    ----------
    attribute : name of the attribute in `Batch.attributes`
    size : (C·A,) rows of each group `y·A + a` in training; groups of no rows have weight 0
    """

    q: Tensor
    shift: Tensor

    def __init__(self, attribute: str, size: np.ndarray, levels: int, *, step: float = 0.01, adjustment: float = 0.0) -> None:
        super().__init__()
        self.attribute, self.levels, self.step, self.adjustment = attribute, levels, step, adjustment
        sizes = torch.as_tensor(size, dtype=torch.float64)
        self.register_buffer("q", (sizes > 0).double() / (sizes > 0).sum())
        self.register_buffer("shift", torch.where(sizes > 0, adjustment / sizes.clamp(min=1).sqrt(), 0.0), persistent=False)

    def forward(self, classifier: Classifier, batch: Batch) -> Tensor:
        losses = nn.functional.cross_entropy(classifier.logits(batch.x).float(), batch.y, reduction="none")
        group = batch.y * self.levels + batch.attributes[self.attribute]
        # sums of products, because index_add is not the same twice on a GPU and a matrix product loses precision under autocast
        part = (group == torch.arange(len(self.q), device=group.device)[:, None]) * batch.weight
        mass = part.sum(dim=1)
        mean = (part * losses).sum(dim=1) / torch.where(mass > 0, mass, 1.0)
        with torch.no_grad():
            raised = self.q * torch.exp(self.step * (mean.double() + self.shift))
            self.q.copy_(raised / raised.sum())
        return (self.q.to(mean) * mean).sum()
