"""Layer-wise relevance propagation for CNNs through zennit (extra `lrp`): relevance flows from the explained score to pixels.

Its rules are bound to layers. Two things make a network fit for them: batch norms are merged into the convolutions before
them (found by watching a pass, not by the order in which layers were written), and what happens between layers (residual sums,
gates, pools) gets rules of its own. What has no rule is refused: zennit alone gives NaN for a ViT, or relevance out of nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rightreasons.attributions import _map_layer as map_layer
from rightreasons.attributions._explained_score import checked, direction, explaining, refuse_changed
from rightreasons.attributions._function_rules import CONVOLUTIONS, ELEMENTWISE, POOLING, REARRANGING, Functions, activation
from rightreasons.errors import ModelError, SettingError
from rightreasons.families import suggest
from rightreasons.models.classifier import Classifier
from rightreasons.models.forward import run

STABILIZER = 1e-6
RULES = ("epsilon_plus_flat", "epsilon_plus", "epsilon_alpha2_beta1", "epsilon_alpha2_beta1_flat")


def maps(
    classifier: Classifier,
    x: Tensor,
    *,
    target: Tensor,
    rules: str = "epsilon_plus_flat",
    bias: bool = False,
    layer: str = "",
    channels: str = "auto",
) -> Tensor:
    """(b, *size) signed relevance, summed over channels.

    Parameters
    ----------
    rules : zennit's composite: epsilon for linear layers, z-plus (or alpha-2 beta-1) for convolutions, flat for the first layer
    bias : whether biases take relevance, as by zennit's defaults; else what arrives at the pixels is the whole score
    layer : stop there and give the relevance of its output at its own resolution (OSCAR, appendix I); "auto" is Grad-CAM's
    channels : where a named layer has them, as for Grad-CAM
    """
    return maps_and_conservation(classifier, x, target=target, rules=rules, bias=bias, layer=layer, channels=channels)[0]


def maps_and_conservation(
    classifier: Classifier,
    x: Tensor,
    *,
    target: Tensor,
    rules: str = "epsilon_plus_flat",
    bias: bool = False,
    layer: str = "",
    channels: str = "auto",
) -> tuple[Tensor, Tensor]:
    """The maps, and (b, 3): their sum, 0 (nothing is given away on purpose), the explained score."""
    composite = _composite(rules, bias)
    with explaining(classifier, x, target) as (x, target):
        pairs, expected = _norms_after_convolutions(classifier.module, x[:1])
        where = None
        if layer:
            where = map_layer.find(classifier, x, "" if layer == "auto" else str(layer), channels)
        x.requires_grad_()
        with _merged(pairs), composite.context(classifier.module):
            with _between_layers(classifier.name):
                activations, output = run(classifier.module, x, [where.point] if where else [])
            refuse_changed("lrp", classifier, output[:1].detach(), expected)
            relevance = (output * direction(classifier, output, target)).detach()
            if where:
                at = activations[0]
            else:
                at = x
            (arrived,) = torch.autograd.grad(output, at, grad_outputs=relevance)
        if where is not None:
            arrived = map_layer.as_map(arrived, classifier, where, x.shape[2:])
        pixels = checked(arrived.sum(1), "lrp", classifier)
        total, explained = pixels.flatten(1).sum(1), relevance.sum(1)
        return pixels, torch.stack([total, torch.zeros_like(total), explained], dim=1)


# ---- rules between layers: the gradient is the relevance -------------------------------------------------------------------


def _between_layers(network: str) -> Functions:
    rules: dict[str, Callable[..., Any]] = {}
    for name in ELEMENTWISE:
        rules[name] = _passing(getattr(F, name))
    for name in POOLING:
        rules[name] = _shared(_pooling(name))
    rules |= {"add": _add, "sub": _subtract, "mul": _multiply, "div": _divide, "neg": lambda x: _Pass.apply(x, -x.detach())}
    rules |= {"batch_norm": _passing(F.batch_norm)}
    advice = "use attnlrp where there is attention, else integrated_gradients"
    return Functions(rules, REARRANGING | CONVOLUTIONS | {"linear"}, "lrp", network, advice)


class _Pass(torch.autograd.Function):
    """Returns `made`, and passes all relevance on to `x`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, made: Tensor) -> Tensor:
        return made.clone()

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> Any:
        return relevance, None


class _Sum(torch.autograd.Function):
    """a + b: each takes relevance in proportion to its value."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a.clone(), b.clone())
        return a + b

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> Any:
        a, b = ctx.saved_tensors
        share = relevance / _stabilized(a + b)
        return (a * share).sum_to_size(a.shape), (b * share).sum_to_size(b.shape)


class _Shared(torch.autograd.Function):
    """A linear function: each input takes relevance in proportion to its contribution."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        made = function(x)
        ctx.function = function
        ctx.save_for_backward(x.clone(), made)
        return made

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> Any:
        x, made = ctx.saved_tensors
        _, back = torch.autograd.functional.vjp(ctx.function, x, relevance / _stabilized(made))
        return x * back, None


def _stabilized(z: Tensor) -> Tensor:
    return z + torch.where(z >= 0, STABILIZER, -STABILIZER)


def _passing(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    if function is not F.batch_norm:
        apart = activation(function)
    else:
        apart = function
    return lambda x, *args, **kwargs: _Pass.apply(x, apart(x.detach(), *args, **kwargs))


def _pooling(name: str) -> Callable[..., Tensor]:
    return getattr(F, name) if hasattr(F, name) else getattr(torch, name)  # type: ignore[no-any-return]


def _shared(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda x, *args, **kwargs: _Shared.apply(x, lambda t: function(t, *args, **kwargs))


def _needs_gradient(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _add(a: Any, b: Any, *, alpha: float = 1) -> Tensor:
    if _needs_gradient(a) and _needs_gradient(b):
        return _Sum.apply(a, b if alpha == 1 else _Pass.apply(b, alpha * b.detach()))  # type: ignore[no-any-return]
    return torch.add(a, b, alpha=alpha) if isinstance(a, Tensor) else torch.add(b, a, alpha=alpha)  # a constant takes nothing


def _subtract(a: Any, b: Any, *, alpha: float = 1) -> Tensor:
    if _needs_gradient(a):
        return _add(a, b, alpha=-alpha)
    return _add(_Pass.apply(b, -b.detach()), a)


def _multiply(a: Any, b: Any) -> Tensor:
    """A gate (squeeze-and-excitation: one number per channel) takes nothing; factors of one shape take half each."""
    if not (_needs_gradient(a) and _needs_gradient(b)):
        if _needs_gradient(a):
            signal, factor = (a, b)
        else:
            signal, factor = (b, a)
        return _Pass.apply(*torch.broadcast_tensors(signal, signal.detach() * factor))  # type: ignore[no-any-return]
    made = a.detach() * b.detach()
    if a.shape == b.shape:
        return (_Pass.apply(a, made) + _Pass.apply(b, made)) / 2
    signal = a if a.numel() > b.numel() else b
    return _Pass.apply(signal.expand_as(made), made)  # type: ignore[no-any-return]


def _divide(a: Any, b: Any, **kwargs: Any) -> Tensor:
    if _needs_gradient(b):
        raise ModelError("lrp has no rule for a division by what depends on the image: use integrated_gradients")
    return _Pass.apply(a, torch.div(a.detach(), b, **kwargs))  # type: ignore[no-any-return]


# ---- the network made fit for the rules -------------------------------------------------------------------------------------


def _composite(rules: str, bias: bool) -> Any:
    try:
        from zennit.composites import COMPOSITES
    except ImportError as error:
        raise ModelError("lrp needs zennit: install rightreasons[lrp]") from error
    if rules not in RULES:
        raise SettingError(f"no LRP rules '{rules}'; {suggest(str(rules), RULES)}")
    return COMPOSITES[rules](epsilon=STABILIZER, stabilizer=STABILIZER, zero_params=None if bias else ["bias"])


_LINEAR = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)


def _norms_after_convolutions(module: nn.Module, x: Tensor) -> tuple[list[tuple[nn.Module, nn.Module]], Tensor]:
    """Pairs of a layer and the batch norm that alone reads its output, and the network's output (1, width)."""
    made: dict[int, tuple[nn.Module, Tensor]] = {}
    pairs: list[tuple[nn.Module, nn.Module]] = []
    calls: Counter[nn.Module] = Counter()

    def after(each: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        calls[each] += 1
        if isinstance(each, _LINEAR):
            made[id(output)] = (each, output)  # the tensor is held, so that no other takes its number
        elif args and id(args[0]) in made:
            pairs.append((made[id(args[0])][0], each))

    def is_norm(each: nn.Module) -> bool:
        return isinstance(each, nn.modules.batchnorm._BatchNorm) and each.running_mean is not None and each.weight is not None

    handles = [each.register_forward_hook(after) for each in module.modules() if isinstance(each, _LINEAR) or is_norm(each)]
    try:
        with torch.no_grad():
            output = run(module, x)[1]
    finally:
        for handle in handles:
            handle.remove()
    return [(a, b) for a, b in pairs if calls[a] == 1 and calls[b] == 1], output


@contextmanager
def _merged(pairs: list[tuple[nn.Module, nn.Module]]) -> Iterator[None]:
    """Batch norms that do nothing, because the layers before them do it; the same parameters are back afterwards.

    zennit's own canonizers leave the norms' eps, which scales every layer (by 0.9995 in Inception-v3).
    """
    kept: list[tuple[dict[str, Any], dict[str, Any]]] = []
    try:
        for layer, norm in pairs:
            kept += [(part, dict(part)) for part in (layer._parameters, norm._parameters, norm._buffers)]
            kept.append((norm.__dict__, {"eps": norm.eps}))
            _merge(layer, norm)
        yield
    finally:
        for part, before in kept:
            part.update(before)


def _merge(layer: Any, norm: Any) -> None:
    scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
    if layer.bias is None:
        before = torch.zeros_like(norm.bias)
    else:
        before = layer.bias
    values = {
        "weight": layer.weight * scale.view(-1, *(1 for _ in layer.weight.shape[1:])),
        "bias": (before - norm.running_mean) * scale + norm.bias,
    }
    for name, value in values.items():
        layer._parameters[name] = nn.Parameter(value, requires_grad=False)
    norm._parameters |= {
        "weight": nn.Parameter(torch.ones_like(scale), requires_grad=False),
        "bias": nn.Parameter(torch.zeros_like(scale), requires_grad=False),
    }
    norm._buffers |= {"running_mean": torch.zeros_like(scale), "running_var": torch.ones_like(scale)}
    norm.eps = 0.0
