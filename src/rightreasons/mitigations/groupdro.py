"""GroupDRO: the groups with the largest loss weigh more and more (Sagawa et al. 2020, algorithm 1).

Every step raises the weight of a (label, attribute) group by its mean loss in the batch, an exponentiated gradient, and descends
on the weighted sum of these means. The authors' runs draw groups evenly (`even=True`). With few rows of a rare group that repeats
the same images until they are memorised: on planted digits the worst group was then .36 and above ERM's in 6 of 10 seeds, and .51
and above in all 10 with every row once an epoch, which is the default.
"""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from rightreasons.data.cohort import Cohort
from rightreasons.errors import SettingError
from rightreasons.mitigations import card_settings, handed_on
from rightreasons.models.classifier import Classifier
from rightreasons.models.grouped_rows import Rows, Select, completed, every_group, grouped, row_weights, seed_of, selection
from rightreasons.models.starting import fresh
from rightreasons.models.training import Batch, train
from rightreasons.models.training_keywords import Training, trains

STARTS = "start"
AUTO = "training"
LEAST_STEP = 0.01
LONG_ENOUGH = 500  # steps


@trains(patience=None)
def mitigate(  # noqa: PLR0913  each keyword is a documented setting
    classifier: Classifier,
    cohort: Cohort,
    *,
    rng: np.random.Generator,
    attribute: str | None = None,
    step: float | None = None,
    adjustment: float = 0.0,
    even: bool = False,
    start: str | None = None,
    select: Select | None = None,
    **training: Unpack[Training],
) -> Classifier:
    """Train anew against the worst group; the epoch is chosen on the val rows. What is not explained here is `train`'s.

    Train rows without the attribute belong to no group and leave.

    Parameters
    ----------
    attribute : whose groups with the label compete; the cohort's first by default
    step : of the groups' weights (eta_q); by default 0.01, and more where the training is so short that they could not move
    adjustment : C of C / sqrt(n_g), added to a group's loss where the weights are raised: small groups generalise worse
    even : draw every group equally often, instead of every row once an epoch
    start : starting weights, see `models.starting.fresh`
    select : "wga" or "accuracy" of the val rows; by default the first where the attribute makes groups there
    patience : None, because the weights need many steps before the small groups count
    """
    if not ((step is None or 0 < step < np.inf) and 0 <= adjustment < np.inf):
        raise SettingError(f"step={step} and adjustment={adjustment}: give a step above 0, and an adjustment of at least 0")
    seed = seed_of(rng)
    cohort = completed(cohort, rng)
    by = select or selection(classifier, cohort, attribute)
    rows = grouped(classifier, cohort.on("train"), attribute)
    size = every_group(rows, what="groupdro")
    steps = training["epochs"] * math.ceil(len(rows) / training["batch"])
    step = default_step(steps) if step is None else step
    settings = card_settings(
        attribute=attribute, step=step, adjustment=adjustment, even=even, start=start, select=select, **training
    )  # fmt: skip
    objective = WorstGroups(rows.attribute, size, rows.A, step=step, adjustment=adjustment)
    known = np.isin(cohort.id.astype(str), rows.cohort.id.astype(str))
    weights = np.where(known, row_weights(cohort), 0.0)
    draw = evenly(cohort, rows, size) if even else None
    new = train(
        fresh(classifier, rng, start), cohort, objective=objective, weights=weights, draw=draw,
        attribute=attribute, stop_on=by, seed=seed, regime="groupdro", **training,
    )  # fmt: skip
    groups = np.flatnonzero(size).tolist()
    chosen: dict[str, dict[str, Any]] = {"group weights": {}, "group weights by epoch": {}, "share of rows": {}}
    for g in groups:
        name = rows.name(g)
        chosen["group weights"][name] = round(float(objective.q[g]), 6)
        chosen["group weights by epoch"][name] = [round(q[g], 4) for q in objective.path]
        chosen["share of rows"][name] = round(float(size[g] / size.sum()), 6)
    return handed_on(new, classifier, "groupdro", settings, selected=by, keeps=False, chosen=chosen)


def default_step(steps: int) -> float:
    """0.01, the authors', in trainings of 500 steps or more; in shorter ones so large that a lasting loss of 1 moves as much."""
    return max(LEAST_STEP, LEAST_STEP * LONG_ENOUGH / max(steps, 1))


def evenly(cohort: Cohort, rows: Rows, size: np.ndarray) -> np.ndarray:
    """(n,) chances of the cohort's rows under which every group is drawn equally often."""
    chance_of = {name: 1 / size[g] for name, g in zip(rows.cohort.id, rows.group, strict=True)}
    return np.array([chance_of.get(name, 0.0) for name in cohort.id])


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
        self._path: list[list[float]] = []
        self.register_buffer("shift", torch.where(sizes > 0, adjustment / sizes.clamp(min=1).sqrt(), 0.0), persistent=False)

    @property
    def path(self) -> list[list[float]]:
        """The groups' weights q at the end of every epoch."""
        return self._path

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self._path, dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        self._path = state.tolist()

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
            del self._path[batch.epoch :]
            self._path.append(self.q.tolist())
        return (self.q.to(mean) * mean).sum()
