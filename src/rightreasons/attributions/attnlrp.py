"""AttnLRP (Achtibat et al. 2024): layer-wise relevance propagation through attention, OSCAR's attribution for ViTs (appendix D).

In the form input times gradient, with the gradient changed by rules: softmax by its Taylor expansion (which is its own gradient),
products half to each factor, norms with their deviation held fixed, element-wise functions as f(x)/x held fixed, linear layers by
gamma. The rules are bound to torch functions while a context is open (`_function_rules`), so transformers of timm, torchvision
and Hugging Face need no change, fused attention included. What biases, embeddings and softmax take away is counted in a ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from rightreasons.attributions._explained_score import checked, direction, explaining, refuse_changed
from rightreasons.attributions._function_rules import CONVOLUTIONS, ELEMENTWISE, POOLING, REARRANGING, Functions, activation
from rightreasons.errors import ModelError, SettingError
from rightreasons.models.classifier import Classifier
from rightreasons.models.forward import run


def maps(classifier: Classifier, x: Tensor, *, target: Tensor, gamma: float = 0.05, patch_gamma: float = 0.25) -> Tensor:
    """(b, *size) signed relevance, summed over channels.

    Parameters
    ----------
    gamma, patch_gamma : how much more the contributions of the output's own sign count in linear layers and in convolutions
        (the patch embedding). 0 is the plain rule, noisy in ViTs: their authors tune both by hand around these values
    """
    return maps_and_conservation(classifier, x, target=target, gamma=gamma, patch_gamma=patch_gamma)[0]


def maps_and_conservation(
    classifier: Classifier, x: Tensor, *, target: Tensor, gamma: float = 0.05, patch_gamma: float = 0.25
) -> tuple[Tensor, Tensor]:
    """The maps, and (b, 3): their sum, what biases, embeddings and softmax took, and the explained score, which both make."""
    for name, value in (("gamma", gamma), ("patch_gamma", patch_gamma)):
        if not 0 <= value < float("inf"):
            raise SettingError(f"{name}={value}: give a number of at least 0")
    with explaining(classifier, x, target) as (x, target):
        with torch.no_grad():
            expected = run(classifier.module, x[:1])[1]
        ledger = Ledger(x)
        context = attention_rules(ledger, gamma, patch_gamma, classifier.name)
        x.requires_grad_()
        with context:
            output = run(classifier.module, x)[1]
        if not context.called & {"softmax", "scaled_dot_product_attention", "multi_head_attention_forward"}:
            raise ModelError(
                f"attnlrp explains networks with attention, and {classifier.name} has none: use lrp or integrated_gradients"
            )
        refuse_changed("attnlrp", classifier, output[:1].detach(), expected)
        explained = (output * direction(classifier, output, target)).sum(1)
        (gradient,) = torch.autograd.grad(explained.sum(), x)
        pixels = checked((x * gradient).sum(1), "attnlrp", classifier)
        return pixels, torch.stack([pixels.flatten(1).sum(1), ledger.taken, explained.detach()], dim=1)


class Ledger:
    """(b,) relevance of each image that did not go on towards the pixels."""

    def __init__(self, x: Tensor) -> None:
        self.taken = x.new_zeros(len(x))

    def add(self, relevance: Tensor) -> None:
        """Add to (b·k, …), where the windows and heads of one image lie next to each other."""
        self.taken = self.taken + relevance.detach().reshape(len(self.taken), -1).sum(1)


def attention_rules(ledger: Ledger, gamma: float, patch_gamma: float, network: str) -> Functions:
    """The context in which a forward pass builds AttnLRP's graph."""
    rules: dict[str, Callable[..., Any]] = {}
    for name in ELEMENTWISE:
        rules[name] = _elementwise(getattr(F, name))
    for name in CONVOLUTIONS:
        rules[name] = _Weighted(getattr(F, name), ledger, patch_gamma)
    linear = _Weighted(F.linear, ledger, gamma)
    attention = _Attention(ledger, linear)
    rules |= {
        "linear": linear,
        "layer_norm": _LayerNorm(ledger),
        "rms_norm": _rms_norm,
        "batch_norm": _BatchNorm(ledger),
        "softmax": attention.softmax,
        "scaled_dot_product_attention": attention,
        "multi_head_attention_forward": attention.of_torch,
        "matmul": lambda a, b: _product(torch.matmul, a, b),
        "mul": lambda a, b: _product(torch.mul, a, b),
        "add": _Adding(ledger),
        "sub": lambda a, b, alpha=1: _Adding(ledger)(a, -alpha * b) if _depends(a) else _Adding(ledger)(-alpha * b, a),
        "rsub": lambda a, b: _Adding(ledger)(-a, b),
        "div": _divide,
        "cat": _Joining(ledger),
    }
    advice = "use integrated_gradients, occlusion or gradcam"
    return Functions(rules, REARRANGING | POOLING | {"neg"}, "attnlrp", network, advice)


# ---- rules: the gradient times the value is the relevance ------------------------------------------------------------------


class _Shift(torch.autograd.Function):
    """x + constant, which takes its share of the relevance into the ledger."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, constant: Tensor, ledger: Ledger) -> Tensor:
        ctx.save_for_backward(constant)
        ctx.ledger = ledger
        return x + constant

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        ctx.ledger.add(gradient * ctx.saved_tensors[0])
        return gradient, None, None


class _Softmax(torch.autograd.Function):
    """Prop. 3.1: R_i = x_i (R_i - s_i sum R); the expansion's constant takes the rest."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, ledger: Ledger) -> Tensor:
        made = x.softmax(dim)
        ctx.save_for_backward(x, made)
        ctx.dim, ctx.ledger = dim, ledger
        return made

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, made = ctx.saved_tensors
        relevance = made * gradient
        back = relevance - made * relevance.sum(ctx.dim, keepdim=True)
        ctx.ledger.add(relevance - torch.where(made > 0, x, 0.0) * back)  # a masked score is minus infinity
        return back, None, None


class _Weighted:
    """Linear layers and convolutions by the gamma rule (0: by their own gradient).

    Contributions of the output's own sign count (1 + gamma) times: y = p (z / p held fixed), with p the output of the weights
    changed so. Inputs of both signs, as in zennit's Gamma.
    """

    def __init__(self, function: Callable[..., Tensor], ledger: Ledger, gamma: float) -> None:
        self.function, self.ledger, self.gamma = function, ledger, gamma

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None, *args: Any, **kwargs: Any) -> Tensor:
        def made(values: Tensor, weights: Tensor) -> Tensor:
            return self.function(values, weights, None, *args, **kwargs)

        plain = made(x, weight)
        shape = [-1] + [1] * (weight.ndim - 2)  # one value per output, at every place of a convolution
        constant = None
        z = plain.detach()
        if bias is not None:
            constant = bias.view(shape)
            z = z + constant
        if self.gamma == 0:
            return plain if constant is None else _Shift.apply(plain, constant, self.ledger)  # type: ignore[no-any-return]
        # The negative contributions are what the positive ones leave, so they need no product of their own.
        positive = made(x.clamp(min=0), weight.clamp(min=0)) + made(x.clamp(max=0), weight.clamp(max=0))
        up, down = plain + self.gamma * positive, plain + self.gamma * (plain - positive)
        if constant is not None:
            up = _Shift.apply(up, constant + self.gamma * constant.clamp(min=0), self.ledger)
            down = _Shift.apply(down, constant + self.gamma * constant.clamp(max=0), self.ledger)
        return torch.where(z > 0, up * _ratio(z, up), down * _ratio(z, down))


class _LayerNorm:
    """Prop. 3.4: the deviation is held fixed, so the norm is linear."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def __call__(
        self, x: Tensor, shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
    ) -> Tensor:
        axes = tuple(range(-len(shape), 0))
        centred = x - x.mean(axes, keepdim=True)
        made = centred * torch.rsqrt(centred.detach().square().mean(axes, keepdim=True) + eps)
        if weight is not None:
            made = made * weight
        return made if bias is None else _Shift.apply(made, bias, self.ledger)  # type: ignore[no-any-return]


class _BatchNorm:
    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def __call__(
        self, x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor | None = None, bias: Tensor | None = None,
        training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
    ) -> Tensor:  # fmt: skip
        shape = (-1, *(1 for _ in x.shape[2:]))
        scale = torch.rsqrt(variance + eps) * (1.0 if weight is None else weight)
        if bias is None:
            shift = -mean * scale
        else:
            shift = bias - mean * scale
        return _Shift.apply(x * scale.view(shape), shift.view(shape), self.ledger)  # type: ignore[no-any-return]


class _Attention:
    """Scaled dot-product attention, spelled out."""

    def __init__(self, ledger: Ledger, linear: _Weighted) -> None:
        self.ledger, self.linear = ledger, linear

    def softmax(self, x: Tensor, dim: int = -1, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
        return _Softmax.apply(x if dtype is None else x.to(dtype), dim, self.ledger)  # type: ignore[no-any-return]

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    ) -> Tensor:  # fmt: skip
        if is_causal or enable_gqa:
            raise ModelError("attnlrp has no rule for causal or grouped attention, which no image classifier needs")
        if scale is None:
            scale = query.shape[-1] ** -0.5
        scores = _product(torch.matmul, query * scale, key.transpose(-2, -1))
        if attn_mask is not None:
            if attn_mask.dtype == torch.bool:
                scores = scores.masked_fill(~attn_mask, float("-inf"))
            else:
                scores = _Adding(self.ledger)(scores, attn_mask)
        return _product(torch.matmul, self.softmax(scores), value)

    def of_torch(  # noqa: PLR0913  the arguments of torch.nn.functional.multi_head_attention_forward, in its order
        self, query: Tensor, key: Tensor, value: Tensor, width: int, heads: int, in_weight: Tensor | None, in_bias: Tensor | None,
        bias_k: Any, bias_v: Any, add_zero_attn: bool, dropout_p: float, out_weight: Tensor, out_bias: Tensor | None,
        **settings: Any,
    ) -> tuple[Tensor, None]:  # fmt: skip
        """`nn.MultiheadAttention` (tokens, b, width), as torchvision's ViT calls it."""
        plain = in_weight is not None and bias_k is None and bias_v is None and not add_zero_attn
        if (
            not plain
            or any(settings.get(k) is not None for k in ("key_padding_mask", "attn_mask"))
            or settings.get("need_weights")
        ):
            raise ModelError(
                "attnlrp has no rule for this nn.MultiheadAttention: it covers plain self-attention, without attention weights "
                "in its output"
            )
        weights = in_weight.chunk(3) if in_weight is not None else ()
        biases = (None,) * 3 if in_bias is None else in_bias.chunk(3)
        images_first = (t.transpose(0, 1) for t in (query, key, value))
        parts = []
        for t, w, b in zip(images_first, weights, biases):
            parts.append(self.linear(t, w, b).unflatten(-1, (heads, width // heads)).transpose(1, 2))
        made = self(*parts).transpose(1, 2).flatten(2)
        return self.linear(made, out_weight, out_bias).transpose(0, 1), None


class _Adding:
    """A sum of terms that depend on the image is linear; a constant (position embedding, relative bias) takes its share."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def __call__(self, a: Any, b: Any, *, alpha: float = 1) -> Tensor:
        if _depends(a) and _depends(b):
            return torch.add(a, b, alpha=alpha)
        if _depends(a):
            x, constant = (a, alpha * b)
        else:
            x, constant = (alpha * b, a)
        fixed = torch.as_tensor(constant, dtype=x.dtype, device=x.device)
        return _Shift.apply(*torch.broadcast_tensors(x, fixed), self.ledger)  # type: ignore[no-any-return]


class _Joining:
    """Constants beside what depends on the image (class and register tokens) take what flows back to them."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def __call__(self, tensors: Sequence[Tensor], dim: int = 0, **named: Any) -> Tensor:
        anchor = next(t for t in tensors if t.requires_grad)
        return torch.cat([t if t.requires_grad else self._tied(t, anchor) for t in tensors], named.get("axis", dim))

    def _tied(self, constant: Tensor, anchor: Tensor) -> Tensor:
        """The constant, tied to the anchor's graph by a zero term: autograd would otherwise never ask for its gradient."""
        nothing = 0 * anchor.flatten(1)[:, 0]
        return _Shift.apply(nothing.view(-1, *(1 for _ in constant.shape[1:])).expand_as(constant), constant, self.ledger)  # type: ignore[no-any-return]


def _product(function: Callable[[Tensor, Tensor], Tensor], a: Any, b: Any) -> Tensor:
    """Prop. 3.3: the uniform rule, half to each factor; a constant factor takes nothing."""
    made = function(a, b)
    if _depends(a) and _depends(b):
        return made / 2 + (made / 2).detach()
    return made


def _divide(a: Any, b: Any, **kwargs: Any) -> Tensor:
    if _depends(b):
        raise ModelError("attnlrp has no rule for a division by what depends on the image: use integrated_gradients")
    return torch.div(a, b, **kwargs)


def _elementwise(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Prop. 3.2, the identity rule: all relevance goes to the one input."""
    apart = activation(function)

    def rule(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        made = apart(x.detach(), *args, **kwargs)
        return torch.where(x == 0, made, x * _ratio(made, x))

    return rule


def _rms_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    axes = tuple(range(-len(shape), 0))
    if eps is None:
        eps = torch.finfo(x.dtype).eps
    made = x * torch.rsqrt(x.detach().square().mean(axes, keepdim=True) + eps)
    if weight is None:
        return made
    return made * weight


def _ratio(made: Tensor, of: Tensor) -> Tensor:
    of = of.detach()
    return made / torch.where(of == 0, 1.0, of)


def _depends(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad
