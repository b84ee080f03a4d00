"""Many small networks fitted at once on the same rows: S seeds x L settings as one batched model, for simulations and sweeps.

Models of one seed see the same batches, so that the first layer of all its settings is one matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import vmap

from rightreasons.errors import SettingError
from rightreasons.models.stacked_optimizer import StackedOptimizer, schedule_factors

Params = Mapping[str, Tensor]
Loss = Callable[..., Tensor]
"""`loss(params, x, *targets, setting) -> ()` of one model: params {name: (…)}, x (b, …), setting {name: ()}."""

CHUNK = 64
"""About how many models a CPU thread trains at a time. It does not depend on the number of threads, so neither do the results."""


@runtime_checkable
class ByHand(Protocol):
    """A loss that brings its gradients for all models at once, where vmap is too slow."""

    def gradients(self, params: Params, x: Tensor, *targets: Tensor, setting: Params) -> tuple[Tensor, dict[str, Tensor]]:
        """Losses (S, L) and gradients {name: (S, L, …)} for params (S, L, …), x (S, b, …), targets (S, b) and setting (S, L)."""


@dataclass(frozen=True)
class Fitted:
    """What `fit_many` gives.

    Attributes
    ----------
    params : {name: (S, L, …)}
    losses : (steps, S, L) of each batch before its step
    """

    params: dict[str, Tensor]
    losses: Tensor

    @property
    def diverged(self) -> Tensor:
        """(S, L) models whose loss or parameters are not finite at the end; none of their numbers mean anything."""
        finite = [p.flatten(2).isfinite().all(2) for p in self.params.values()]
        return ~(torch.stack(finite).all(0) & self.losses.isfinite().all(0))


def fit_many(
    loss: Loss,
    params: Params,
    data: Sequence[Tensor],
    *,
    rngs: Sequence[np.random.Generator],
    setting: Mapping[str, Any] | None = None,
    rows: Sequence[np.ndarray] | None = None,
    steps: int = 2000,
    batch: int = 64,
    lr: float | Tensor = 1e-3,
    optimizer: Literal["adam", "adamw", "sgd"] = "adam",
    weight_decay: float | Tensor = 0.0,
    schedule: Literal["cosine"] | None = None,
    clip: float | None = None,
    device: str | torch.device | None = None,
    threads: int | None = None,
) -> Fitted:
    """Fit S x L models for a number of steps.

    Parameters
    ----------
    loss : of one model and one batch, differentiated for all of them at once; one with `gradients` (see `ByHand`) is asked for
        those instead
    params : {name: (S, L, …)} to start from; they are left as they are
    data : x and the targets, (N, …) each
    rngs : S, one a seed: its models share the batches that it draws (`batch_rows`)
    setting : {name: (L,) or (S, L)} numbers that differ between models
    rows : S row numbers arrays, which rows of `data` a seed draws from; all by default. Several data sets are one after the
        other in `data`, and each seed names its own.
    lr, weight_decay : a number, or (S, L)
    device : of the work and the result; that of `params` by default
    threads : on CPU, torch's own number by default. It does not change a result.
    """
    S, L = _lead(params)
    dtype = next(iter(params.values())).dtype
    where = torch.device(device) if device is not None else next(iter(params.values())).device
    _check(data, rngs, rows, steps, batch, S)
    plans = _Plans(
        loss=loss,
        order=_order(rngs, rows, len(data[0]), batch, steps),
        data=tuple(part.to(where) for part in data),
        setting={name: _per_model(values, S, L, where, dtype) for name, values in (setting or {}).items()},
        optimizer=optimizer,
        lr=_per_model(lr, S, L, where, dtype),
        weight_decay=_per_model(weight_decay, S, L, where, dtype),
        clip=None if clip is None else _per_model(clip, S, L, where, dtype),
        factors=torch.tensor(schedule_factors(steps, schedule), dtype=dtype, device=where),
    )
    start = {name: p.detach().to(where) for name, p in params.items()}
    if where.type == "cuda":
        return _fit_on_cuda(plans, start)
    return _fit_in_threads(plans, start, threads or torch.get_num_threads())


def batch_rows(rng: np.random.Generator, rows: int | np.ndarray, batch: int, steps: int) -> np.ndarray:
    """(steps, batch) rows, each of them once before any comes again: shuffled epochs one after the other, cut into batches."""
    of = np.arange(rows) if isinstance(rows, int | np.integer) else np.asarray(rows)
    epochs = -(-steps * batch // len(of))
    return rng.permuted(np.broadcast_to(of, (epochs, len(of))), axis=1).reshape(-1)[: steps * batch].reshape(steps, batch)


class TwoHeads:
    """A dense ReLU network with a binary label head, and a binary attribute head behind a gradient layer (ShorT's simulation).

    The gradient layer is the identity forward and `scale` times backward, so that the body sees the scaled gradient of the
    attribute and the branch the whole of it. Loss = cross-entropy of the label + `weight` times that of the attribute; scale 0
    also sets weight 0. Parameters: body.0 … body.k, label (1, h), branch (b, h), attribute (1, b), each with weight and bias.
    """

    @staticmethod
    def start(
        rngs: Sequence[np.random.Generator], models: int, inputs: int, hidden: Sequence[int] = (10, 10, 10), branch: int = 2
    ) -> dict[str, Tensor]:
        """Parameters (S, L, …) of S = len(rngs) seeds by L = `models`, each drawn on its own as nn.Linear does."""
        layers = {f"body.{k}": (out, into) for k, (out, into) in enumerate(zip(hidden, (inputs, *hidden)))}
        layers |= {"label": (1, hidden[-1]), "branch": (branch, hidden[-1]), "attribute": (1, branch)}
        made = {}
        for name, (out, into) in layers.items():
            for part, shape in (("weight", (out, into)), ("bias", (out,))):
                draws = np.stack([rng.uniform(-1, 1, (models, *shape)) for rng in rngs]) / np.sqrt(into)
                made[f"{name}.{part}"] = torch.from_numpy(draws.astype(np.float32))
        return made

    @staticmethod
    def features(params: Params, x: Tensor) -> Tensor:
        """(n, h) of one model; vmap takes it to all."""
        for k in range(_depth(params)):
            x = nn.functional.linear(x, params[f"body.{k}.weight"], params[f"body.{k}.bias"]).relu()
        return x

    def __call__(self, params: Params, x: Tensor, label: Tensor, attribute: Tensor, setting: Params) -> Tensor:
        def linear(name: str, h: Tensor) -> Tensor:
            return nn.functional.linear(h, params[f"{name}.weight"], params[f"{name}.bias"])

        h = self.features(params, x)
        scaled = h.detach() + setting["scale"] * (h - h.detach())
        branch = linear("attribute", linear("branch", scaled).relu()).squeeze(1)
        weight = setting["weight"] * (setting["scale"] != 0)
        of = nn.functional.binary_cross_entropy_with_logits
        return of(linear("label", h).squeeze(1), label) + weight * of(branch, attribute)

    def gradients(self, params: Params, x: Tensor, *targets: Tensor, setting: Params) -> tuple[Tensor, dict[str, Tensor]]:
        """Units lie before examples here, (S·L, h, b), so that the first layer of a seed is one product and nothing is moved."""
        (S, L), b = setting["scale"].shape, x.shape[1]
        M, depth = S * L, _depth(params)
        w = {name: p.reshape(M, p.shape[2], -1) for name, p in params.items()}
        label, attribute = (t.unsqueeze(1).expand(S, L, b).reshape(M, 1, b) for t in targets)
        scale = setting["scale"].reshape(M, 1, 1)
        weight = setting["weight"].reshape(M, 1, 1) * (scale != 0)

        first, bias = (params[f"body.0.{part}"].reshape(S, -1, n) for part, n in (("weight", x.shape[2]), ("bias", 1)))
        hs = [torch.baddbmm(bias, first, x.mT).relu_().view(M, -1, b)]
        for k in range(1, depth):
            hs.append(torch.baddbmm(w[f"body.{k}.bias"], w[f"body.{k}.weight"], hs[-1]).relu_())
        y = torch.baddbmm(w["label.bias"], w["label.weight"], hs[-1])
        u = torch.baddbmm(w["branch.bias"], w["branch.weight"], hs[-1]).relu_()
        a = torch.baddbmm(w["attribute.bias"], w["attribute.weight"], u)
        softplus = nn.functional.softplus
        losses = (softplus(y) - y * label).mean(2) + weight[:, 0] * (softplus(a) - a * attribute).mean(2)

        dy = (y.sigmoid() - label) / b
        da = (a.sigmoid() - attribute) * (weight / b)
        du = _through_relu(w["attribute.weight"].mT * da, u)
        deltas = {"label": (dy, hs[-1]), "attribute": (da, u), "branch": (du, hs[-1])}
        dh = torch.baddbmm(w["label.weight"].mT * dy, w["branch.weight"].mT, du * scale)
        for k in reversed(range(depth)):
            dh = _through_relu(dh, hs[k])
            if k:
                deltas[f"body.{k}"] = (dh, hs[k - 1])
                dh = torch.bmm(w[f"body.{k}.weight"].mT, dh)
        grads = {f"{name}.weight": torch.bmm(d, h.mT) for name, (d, h) in deltas.items()}
        grads |= {f"{name}.bias": d.sum(2) for name, (d, _) in deltas.items()}
        grads |= {"body.0.weight": torch.bmm(dh.view(S, -1, b), x), "body.0.bias": dh.sum(2)}
        return losses.view(S, L), {name: grads[name].view(p.shape) for name, p in params.items()}


def _through_relu(delta: Tensor, output: Tensor) -> Tensor:
    return torch.ops.aten.threshold_backward(delta, output, 0.0)


# ---- one fit ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plans:
    """Everything a fit needs but the parameters; order is (steps, S, b) rows."""

    loss: Loss
    order: Tensor
    data: tuple[Tensor, ...]
    setting: dict[str, Tensor]
    optimizer: str
    lr: Tensor
    weight_decay: Tensor
    clip: Tensor | None
    factors: Tensor

    def part(self, seeds: slice, settings: slice) -> _Plans:
        def cut(values: Tensor) -> Tensor:
            return values[seeds, settings]

        return _Plans(
            self.loss,
            self.order[:, seeds],
            self.data,
            {name: cut(values) for name, values in self.setting.items()},
            self.optimizer,
            cut(self.lr),
            cut(self.weight_decay),
            None if self.clip is None else cut(self.clip),
            self.factors,
        )


class _Fit:
    """The state of a fit; `step` is all tensors, the step's number included, so that a CUDA graph can repeat it."""

    def __init__(self, plans: _Plans, start: Params) -> None:
        self.plans = plans
        self.optimizer = StackedOptimizer(
            plans.optimizer,
            start,
            lr=plans.lr,
            weight_decay=plans.weight_decay,
            clip=plans.clip,
            factors=plans.factors,
        )
        self.order = plans.order.to(plans.factors.device)
        self.losses = plans.factors.new_full((len(plans.factors), *plans.lr.shape), torch.nan)
        self.number = torch.zeros(1, dtype=torch.int64, device=plans.factors.device)
        self.gradients = plans.loss.gradients if isinstance(plans.loss, ByHand) else _by_vmap(plans.loss)

    def step(self) -> None:
        rows = self.order.index_select(0, self.number)[0]
        batch = [part.index_select(0, rows.reshape(-1)).view(*rows.shape, *part.shape[1:]) for part in self.plans.data]
        losses, grads = self.gradients(self.optimizer.params, *batch, setting=self.plans.setting)
        self.losses.index_copy_(0, self.number, losses.unsqueeze(0))
        self.optimizer.step(grads, self.number)
        self.number += 1

    def result(self) -> Fitted:
        return Fitted({name: p.clone() for name, p in self.optimizer.params.items()}, self.losses)


def _by_vmap(loss: Loss) -> Callable[..., tuple[Tensor, dict[str, Tensor | None]]]:
    def gradients(params: Params, *batch: Tensor, setting: Params) -> tuple[Tensor, dict[str, Tensor | None]]:
        leaves = {name: p.detach().requires_grad_() for name, p in params.items()}

        def one(p: Params, s: Params, *shared: Tensor) -> Tensor:
            return loss(p, *shared, s)

        shared = (None,) * len(batch)
        with torch.enable_grad():
            of_seed = vmap(one, in_dims=(0, 0, *shared))
            losses = vmap(of_seed, in_dims=(0, 0, *(0 for _ in batch)))(leaves, dict(setting), *batch)
            found = torch.autograd.grad(losses.sum(), list(leaves.values()), allow_unused=True)
        return losses.detach(), dict(zip(leaves, found))

    return gradients


def _fit_in_threads(plans: _Plans, start: Params, threads: int) -> Fitted:
    """Chunks of models, each by one thread from its first step to its last: threads never wait for each other."""
    S, L = plans.lr.shape
    parts = _parts(S, L)
    done = Fitted({name: p.clone() for name, p in start.items()}, plans.factors.new_empty(len(plans.factors), S, L))

    def fit(part: tuple[slice, slice]) -> None:
        torch.set_num_threads(1)
        with torch.no_grad():
            run = _Fit(plans.part(*part), {name: p[part] for name, p in start.items()})
            for _ in range(len(plans.factors)):
                run.step()
        for name, p in run.optimizer.params.items():
            done.params[name][part] = p
        done.losses[:, part[0], part[1]] = run.losses

    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(max(1, min(threads, len(parts)))) as pool:
            list(pool.map(fit, parts))
    finally:
        torch.set_num_threads(before)
    return done


def _parts(S: int, L: int) -> list[tuple[slice, slice]]:
    """Chunks of about CHUNK models, cut along the axis that makes them more equal."""
    number = -(-S * L // CHUNK)
    by_seed = -(-S // number) * L <= S * -(-L // number)
    edges = np.linspace(0, S if by_seed else L, min(number, S if by_seed else L) + 1).round().astype(int)
    cuts = [slice(int(lo), int(hi)) for lo, hi in pairwise(edges)]
    return [(cut, slice(L)) if by_seed else (slice(S), cut) for cut in cuts]


def _fit_on_cuda(plans: _Plans, start: Params) -> Fitted:
    """One step is recorded as a CUDA graph and repeated: launching its kernels one by one takes longer than they do."""
    with torch.no_grad(), torch.cuda.device(plans.factors.device):
        trial = _Fit(plans, start)
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # what libraries allocate on first use must not be recorded
            for _ in range(min(2, len(plans.factors))):
                trial.step()
        torch.cuda.current_stream().wait_stream(aside)
        del trial
        run = _Fit(plans, start)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run.step()
        for _ in range(len(plans.factors)):  # recording does not run anything
            graph.replay()
        return run.result()


# ---- what is given ------------------------------------------------------------------------------------------------------


def _depth(params: Params) -> int:
    return sum(name.startswith("body.") and name.endswith(".weight") for name in params)


def _lead(params: Params) -> tuple[int, int]:
    leads = {tuple(p.shape[:2]) for p in params.values()}
    if len(leads) != 1 or len(lead := leads.pop()) != 2 or 0 in lead:
        shapes = {name: tuple(p.shape) for name, p in params.items()}
        raise SettingError(f"params have the shapes {shapes}: the first two axes of each must be the seeds and the settings")
    return lead[0], lead[1]


def _check(
    data: Sequence[Tensor],
    rngs: Sequence[np.random.Generator],
    rows: Sequence[np.ndarray] | None,
    steps: int,
    batch: int,
    S: int,
) -> None:
    lengths = [len(part) for part in data]
    if not lengths or len(set(lengths)) > 1 or not lengths[0]:
        raise SettingError(f"data have {lengths} rows: give x and its targets with equally many")
    for name, given in (("rngs", rngs), ("rows", rows)):
        if given is not None and len(given) != S:
            raise SettingError(f"there are {len(given)} {name} for {S} seeds: give one a seed")
    for s, own in enumerate(rows or ()):
        if not len(own) or np.min(own) < 0 or np.max(own) >= lengths[0]:
            raise SettingError(f"rows[{s}] must be numbers from 0 to {lengths[0] - 1}, at least one")
    for name, number in (("steps", steps), ("batch", batch)):
        if number < 1:
            raise SettingError(f"{name} is {number}: give at least 1")


def _order(rngs: Sequence[np.random.Generator], rows: Sequence[np.ndarray] | None, n: int, batch: int, steps: int) -> Tensor:
    drawn = [batch_rows(rng, n if rows is None else rows[s], batch, steps) for s, rng in enumerate(rngs)]
    return torch.from_numpy(np.stack(drawn, axis=1))


def _per_model(values: Any, S: int, L: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    given = torch.as_tensor(values, dtype=dtype, device=device)
    if given.shape not in {(), (L,), (S, L)}:
        raise SettingError(f"a setting has the shape {tuple(given.shape)}: give a number, ({L},) or ({S}, {L})")
    return given.expand(S, L)
