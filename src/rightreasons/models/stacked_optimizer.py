"""An optimizer for stacked models: every number may differ from model to model, and one kernel updates all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

ADAM_BETAS, ADAM_EPS, MOMENTUM = (0.9, 0.999), 1e-8, 0.9  # torch's defaults, and the momentum of `training.train`
STATES: dict[str, tuple[str, ...]] = {"sgd": ("momentum",), "adam": ("mean", "square"), "adamw": ("mean", "square")}
"""What an optimizer remembers of every parameter."""


def schedule_factors(steps: int, schedule: str | None, rise: int = 0) -> list[float]:
    """The factor on the learning rate in each step: linear over `rise` steps, then a half cosine or 1."""
    after = max(1, steps - rise)
    half_cosine = []
    for now in range(steps - rise):
        half_cosine.append((1 + math.cos(math.pi * now / after)) / 2)
    return [(now + 1) / rise for now in range(min(rise, steps))] + (half_cosine if schedule else [1.0] * (steps - rise))


class StackedOptimizer:
    """Adam, AdamW or SGD with momentum over parameters (S, L, …) of S x L models, equal to torch's own for each of them.

    The values lie in one piece of memory, so that a step is a handful of operations however many parameters there are; `params`
    are views of it. The number of the step is a tensor, so that a CUDA graph can hold a step.

    Parameters
    ----------
    lr, weight_decay, clip : (S, L) per model; clip is the largest norm of a model's gradient, None leaves it
    factors : (steps,) schedule, times `lr`
    """

    def __init__(
        self,
        kind: str,
        params: Mapping[str, Tensor],
        *,
        lr: Tensor,
        weight_decay: Tensor,
        clip: Tensor | None,
        factors: Tensor,
    ) -> None:
        self.kind, self.clip, self.factors = kind, clip, factors
        self.lr, self.weight_decay = lr, weight_decay
        self.shapes = {name: p.shape for name, p in params.items()}
        self.flat = torch.cat([p.detach().reshape(-1) for p in params.values()])
        self.params = self._views(self.flat)
        self.state = {name: torch.zeros_like(self.flat) for name in STATES[kind]}
        # A weight has at least two axes of its own; biases and norms do not decay.
        decays = {}
        for name, shape in self.shapes.items():
            decays[name] = weight_decay if len(shape) > 3 else torch.zeros_like(weight_decay)
        self._decay = None
        if bool((weight_decay != 0).any()):
            self._decay = self._spread(decays)
        if bool((lr == lr.flatten()[0]).all()):
            self._lr = lr.flatten()[:1]
        else:
            self._lr = self._spread(dict.fromkeys(self.shapes, lr))
        number = torch.arange(1, len(factors) + 1, dtype=torch.float64)
        self._first, self._second = ((1 - beta**number).to(factors) for beta in ADAM_BETAS)
        self._second = self._second.sqrt()
        self._unused: frozenset[str] = frozenset()
        self._grad, self._work = torch.empty_like(self.flat), torch.empty_like(self.flat)  # fresh memory costs more than the sums

    def step(self, grads: Mapping[str, Tensor | None], step: Tensor) -> None:
        """Change the parameters; `step` (1,) counts from 0. A parameter without a gradient stays as it is."""
        self._leave_out(frozenset(name for name, grad in grads.items() if grad is None))
        given = {}
        for name, grad_of in grads.items():
            given[name] = torch.zeros_like(self.params[name]) if grad_of is None else grad_of
        clipped = self._clipped(given)
        grad = torch.cat([clipped[name].reshape(-1) for name in self.shapes], out=self._grad)
        rate = self.factors.index_select(0, step) * self._lr
        if self._decay is not None:
            if self.kind == "adamw":
                self.flat.mul_(1 - rate * self._decay)
            else:
                grad.addcmul_(self._decay, self.flat)
        if self.kind == "sgd":
            self.flat.sub_(self.state["momentum"].mul_(MOMENTUM).add_(grad) * rate)
            return
        mean, square = self.state["mean"], self.state["square"]
        mean.lerp_(grad, 1 - ADAM_BETAS[0])
        square.mul_(ADAM_BETAS[1]).addcmul_(grad, grad, value=1 - ADAM_BETAS[1])
        spread = torch.sqrt(square, out=self._work).div_(self._second.index_select(0, step)).add_(ADAM_EPS)
        self.flat.sub_(torch.div(mean, spread, out=spread).mul_(rate / self._first.index_select(0, step)))

    def kept(self, seeds: Tensor, settings: Tensor) -> StackedOptimizer:
        """The optimizer for some rows and columns of the models, with their state."""

        def picked(values: Tensor) -> Tensor:
            return values.index_select(0, seeds).index_select(1, settings)

        made = StackedOptimizer(
            self.kind,
            {name: picked(p) for name, p in self.params.items()},
            lr=picked(self.lr),
            weight_decay=picked(self.weight_decay),
            clip=None if self.clip is None else picked(self.clip),
            factors=self.factors,
        )
        for name, values in self.state.items():
            made.state[name] = torch.cat([picked(view).reshape(-1) for view in self._views(values).values()])
        return made

    def state_dict(self) -> dict[str, Tensor]:
        return {"flat": self.flat, **self.state}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for name, values in self.state_dict().items():
            values.copy_(state[name])

    def _views(self, flat: Tensor) -> dict[str, Tensor]:
        parts = flat.split([math.prod(shape) for shape in self.shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts)}

    def _spread(self, values: Mapping[str, Tensor]) -> Tensor:
        """Spread one number per model and parameter over all its elements."""
        pieces = []
        for name, shape in self.shapes.items():
            pieces.append(values[name].reshape(shape[:2] + (1,) * (len(shape) - 2)).expand(shape))
        return torch.cat([piece.reshape(-1) for piece in pieces])

    def _clipped(self, grads: dict[str, Tensor]) -> dict[str, Tensor]:
        if self.clip is None:
            return grads
        norm = torch.stack([g.reshape(*g.shape[:2], -1).square().sum(2) for g in grads.values()]).sum(0).sqrt()
        share = (self.clip / (norm + 1e-6)).clamp(max=1.0)
        return {name: g * share.reshape(share.shape + (1,) * (g.ndim - 2)) for name, g in grads.items()}

    def _leave_out(self, unused: frozenset[str]) -> None:
        if unused != self._unused and self._decay is not None:
            decay = self._views(self._decay)
            for name in unused:
                decay[name].zero_()
        self._unused = unused
