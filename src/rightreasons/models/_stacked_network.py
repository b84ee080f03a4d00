"""Copies of one network as one: parameters and buffers (S seeds, L settings, …), the forward pass under vmap."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from rightreasons.errors import SettingError, TrainingError
from rightreasons.models.classifier import Classifier
from rightreasons.models.training import Batch, Objective

TOLERANCE = 1e-3
"""How far the gradient of stacked copies may be from the network's own, relative to its largest element, in float32."""


@dataclass(frozen=True)
class Seen:
    """What an objective may read of a batch: of one seed (b, …), or of all (S, b, …)."""

    x: Tensor
    y: Tensor
    attributes: dict[str, Tensor]
    weight: Tensor

    @property
    def parts(self) -> tuple[Tensor, Tensor, dict[str, Tensor], Tensor]:
        return self.x, self.y, self.attributes, self.weight


class StackedNetwork:
    """S x L copies of a classifier and its objective, which may hold parameters, buffers and numbers of its own.

    Parameters
    ----------
    grid : S lists of L pairs, equal but for their tensors and for plain numbers of the objectives
    """

    def __init__(self, grid: Sequence[Sequence[tuple[Classifier, Objective]]], device: torch.device) -> None:
        classifier, objective = grid[0][0]
        self.whole = _Whole(classifier.copy().to(device), copy.deepcopy(objective))
        if hasattr(self.whole.objective, "to"):
            self.whole.objective.to(device)
        pairs = list(chain.from_iterable(grid))
        wholes = [_Whole(classifier, objective) for classifier, objective in pairs]
        shape = (len(grid), len(grid[0]))

        def stacked(tensors_of: Callable[[_Whole], Iterator[tuple[str, Tensor]]]) -> dict[str, Tensor]:
            copies = [dict(tensors_of(whole)) for whole in wholes]
            together = {}
            for name in copies[0]:
                tensors = torch.stack([copy[name].detach().to(device) for copy in copies])
                together[name] = tensors.view(*shape, *tensors.shape[1:])
            return together

        learned = {name for name, p in self.whole.named_parameters() if p.requires_grad}
        values = stacked(nn.Module.named_parameters)
        self.params = {name: p for name, p in values.items() if name in learned}
        self.frozen = {name: p for name, p in values.items() if name not in learned}
        self.buffers = stacked(nn.Module.named_buffers)
        numbers = differing_numbers([objective for _, objective in pairs])
        self.numbers = {}
        for name, of_models in numbers.items():
            tensor = torch.tensor(of_models, dtype=torch.float32, device=device)
            self.numbers[name] = tensor.view(*shape, *tensor.shape[1:])

    def gradients(self, seen: Seen, epoch: int = 0, step: int = 0) -> tuple[Tensor, dict[str, Tensor | None]]:
        """Losses (S, L) and gradients in training mode, buffers updated; everything in `seen` is (S, b, …)."""
        self.whole.network.train()
        leaves = {name: p.detach().requires_grad_() for name, p in self.params.items()}

        def loss(own: dict[str, Tensor], numbers: dict[str, Tensor], *parts: Any) -> Tensor:
            return functional_call(self.whole, own, (Seen(*parts), numbers, epoch, step))

        in_seed = vmap(loss, in_dims=(0, 0, None, None, None, None), randomness="error")
        with sdpa_kernel(SDPBackend.MATH):  # the fused kernels of attention have no batching rule
            losses = vmap(in_seed, randomness="error")({**leaves, **self.frozen, **self.buffers}, self.numbers, *seen.parts)
        grads = torch.autograd.grad(losses.float().sum(), list(leaves.values()), allow_unused=True)
        return losses.detach(), dict(zip(leaves, grads))

    @torch.no_grad()
    def logits(self, x: Tensor, *, is_shared: bool) -> Tensor:
        """(S, L, b, C) in evaluation mode; x is (b, …) where it `is_shared` by all seeds, else (S, b, …)."""
        self.whole.network.eval()

        def one(own: dict[str, Tensor], of: Tensor) -> Tensor:
            return functional_call(self.whole, own, (of,))

        both = vmap(vmap(one, in_dims=(0, None)), in_dims=(0, None if is_shared else 0))
        with sdpa_kernel(SDPBackend.MATH):
            return both({**self.params, **self.frozen, **self.buffers}, x).float()

    def kept(self, pick: Callable[[Tensor], Tensor], params: Mapping[str, Tensor]) -> None:
        """Keep some of the copies, with these as their parameters."""
        self.params = dict(params)
        for name in ("frozen", "buffers", "numbers"):
            setattr(self, name, {key: pick(values) for key, values in getattr(self, name).items()})

    def state(self, s: int, j: int) -> dict[str, Tensor]:
        """The whole state of one copy, in its own memory on the CPU."""
        every = {**self.params, **self.frozen, **self.buffers}
        return {name: values[s, j].detach().to("cpu", copy=True) for name, values in every.items()}


def put(state: Mapping[str, Tensor], classifier: Classifier, objective: Objective) -> None:
    """Give a classifier and its objective the state of a copy."""
    whole = _Whole(classifier, objective)
    with torch.no_grad():
        for name, tensor in (*whole.named_parameters(), *whole.named_buffers()):
            tensor.copy_(state[name])


def why_not(classifier: Classifier, objective: Objective, seen: Seen) -> str:
    """Why this network and objective cannot be stacked, learnt from one trial; empty if they can."""
    random = [f"{name} (p = {p:g})" for name, p in _random_layers(classifier.module) if p > 0]
    if random:
        return (
            f"{', '.join(random[:3])}{' …' if len(random) > 3 else ''} draws at random in every step, and copies trained as one "
            "would draw other numbers than one by one"
        )
    if hasattr(objective, "state_dict") and not isinstance(objective, nn.Module):
        return f"the objective {type(objective).__name__} keeps a state and is no nn.Module"
    alone = _Whole(classifier.copy(), copy.deepcopy(objective)).to(classifier.device)
    alone.network.train()
    try:
        pair = StackedNetwork([[(classifier, objective)] * 2], classifier.device)
        _, grads = pair.gradients(Seen(*(_with_seed(part) for part in seen.parts)))
        pair.logits(seen.x, is_shared=True)
    except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
        return f"under vmap it says: {str(error).strip().splitlines()[0]}"
    alone(seen, {}, 0, 0).backward()
    own = {name: p.grad for name, p in alone.named_parameters() if p.requires_grad and p.grad is not None}
    if own.keys() != {name for name, grad in grads.items() if grad is not None}:
        return "its copies do not use the parameters that it uses alone"
    size = max((float(grad.abs().max()) for grad in own.values()), default=0.0)
    off = max((float((grads[name][0, 1] - grad).abs().max()) for name, grad in own.items()), default=0.0)  # type: ignore[index]
    if not off <= TOLERANCE * max(size, 1e-6):
        return f"the gradient of its copies is off by {off:.2g} (its own is up to {size:.2g})"
    for name, buffer in alone.named_buffers():
        if not torch.allclose(pair.buffers[name][0, 1].double(), buffer.double(), rtol=TOLERANCE, atol=TOLERANCE):
            return f"{name} is not changed in place, and copies trained as one would lose it"
    return ""


def differing_numbers(objectives: Sequence[Objective]) -> dict[str, list[float] | list[list[float]]]:
    """The numbers, or lists of numbers, that differ between objectives of one kind: name → one value for each model."""
    first, *others = objectives
    held = _held(first)
    held_by_others = [_held(objective) for objective in others]
    for other, of_other in zip(others, held_by_others, strict=True):
        if not _is_same_kind(first, other) or of_other.keys() != held.keys():
            raise SettingError("models that train as one need objectives that are the same function, or of the same class")
    differing: dict[str, list[float] | list[list[float]]] = {}
    for name, value in held.items():
        values = [value, *(of_other[name] for of_other in held_by_others)]
        if all(_equal(other, value) for other in values):
            continue
        if all(map(_is_number, values)):
            differing[name] = list(map(float, values))
        elif all(_is_list_of_numbers(other, like=value) for other in values):
            differing[name] = [list(map(float, numbers)) for numbers in values]
        else:
            raise SettingError(
                f"the objectives of models that train as one may differ in numbers only, and they differ in {name!r}"
            )
    return differing


def _is_same_kind(first: Objective, other: Objective) -> bool:
    """Whether two objectives are one function, or of one class (`functools.partial`: of one function)."""
    if type(first) is not type(other):
        return False
    if isinstance(first, partial) and isinstance(other, partial):
        return bool(first.func == other.func)
    return bool(first is other or isinstance(first, nn.Module) or _held(first))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_list_of_numbers(value: Any, like: Any) -> bool:
    """Whether it is a list of as many numbers as the list `like`."""
    return isinstance(value, list) and isinstance(like, list) and len(value) == len(like) and all(map(_is_number, value))


class _Whole(nn.Module):
    """Classifier and objective as one module, so that `functional_call` reaches the parameters of both."""

    def __init__(self, classifier: Classifier, objective: Objective) -> None:
        super().__init__()
        self.network = classifier.module
        self.classifier, self.objective = classifier, objective

    def forward(self, seen: Seen | Tensor, numbers: Mapping[str, Tensor] | None = None, epoch: int = 0, step: int = 0) -> Tensor:
        if isinstance(seen, Tensor):
            return self.classifier.logits(seen)
        batch = Batch(*seen.parts, rows=_Absent("rows"), epoch=epoch, step=step, generator=_Absent("generator"))  # type: ignore[arg-type]
        return _with_numbers(self.objective, numbers or {})(self.classifier, batch)


class _Absent:
    """Stands in for what differs between models (rows, random draws): an objective that reads it cannot be stacked."""

    def __init__(self, name: str) -> None:
        self.name = name

    def _refuse(self, *_: Any) -> NoReturn:
        raise TrainingError(f"the objective reads batch.{self.name}, which copies trained as one do not share")

    __len__ = __iter__ = __getitem__ = __array__ = __index__ = _refuse

    def __getattr__(self, name: str) -> Any:
        self._refuse()


def _with_numbers(objective: Objective, numbers: Mapping[str, Tensor]) -> Objective:
    if not numbers:
        return objective
    if isinstance(objective, partial):
        return partial(objective.func, *objective.args, **{**objective.keywords, **numbers})
    changed = copy.copy(objective)
    for name, value in numbers.items():
        object.__setattr__(changed, name, value)  # dataclasses may be frozen
    return changed


def _held(objective: Any) -> dict[str, Any]:
    if isinstance(objective, partial):
        return {**{str(k): v for k, v in enumerate(objective.args)}, **objective.keywords}
    hidden = {"training", "_parameters", "_buffers", "_modules"}
    if hasattr(objective, "__dict__") and not callable(getattr(objective, "__code__", None)):
        held = vars(objective)
    else:
        held = {}
    if isinstance(objective, nn.Module):
        of_module = {name for name in held if name.startswith("_")}
    else:
        of_module = set()
    return {name: value for name, value in held.items() if name not in hidden | of_module}


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return torch.equal(first, second)
    return first is second or (
        type(first) is type(second) and isinstance(first, int | float | str | tuple | list | bool) and first == second
    )


def _with_seed(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: value[None] for name, value in part.items()}
    return part[None]


def _random_layers(module: nn.Module) -> Iterator[tuple[str, float]]:
    for name, layer in module.named_modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd):
            yield name, float(layer.p)
        elif type(layer).__name__ in ("DropPath", "StochasticDepth", "PatchDropout"):
            known = []
            for attribute in ("drop_prob", "p", "prob", "rate"):
                known.append(getattr(layer, attribute, None))
            yield name, float(next(rate for rate in known if rate is not None) or 0.0)
