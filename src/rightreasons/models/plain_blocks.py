"""A transformer block of the common form as tensors: norm, attention, norm, two-layer perceptron, each added to what came in.

    x = x + g1 · proj(attention(norm1(x)))        x = x + g2 · fc2(act(fc1(norm2(x))))

Most blocks of timm, torchvision and transformers are of this form. As plain tensors they can be cast, compiled and run for some
queries or without one key; whoever uses one compares it with the network's own block first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

MOST_WEIGHT = 0.9
"""A weight beyond which 1 - weight has lost a digit."""


class Block(NamedTuple):
    """Weights of one block; `scale1` and `scale2` are 1 where the block has no layer scale."""

    norm1: tuple[Tensor, Tensor, float]
    qkv: tuple[Tensor, Tensor]
    proj: tuple[Tensor, Tensor]
    scale1: Tensor
    norm2: tuple[Tensor, Tensor, float]
    fc1: tuple[Tensor, Tensor]
    fc2: tuple[Tensor, Tensor]
    scale2: Tensor
    heads: int
    activation: str

    def to(self, dtype: torch.dtype) -> Block:
        """The same weights in another precision."""
        return Block(*(cast(part, dtype) for part in self))


def of(block: nn.Module) -> Block | None:
    """A block of the common form as tensors; None for any other."""
    norm1, norm2 = _child(block, "norm1", "ln_1", "layernorm_before"), _child(block, "norm2", "ln_2", "layernorm_after")
    attention, mlp = _child(block, "attn", "self_attention", "attention"), _child(block, "mlp")
    if attention is None or mlp is None or not isinstance(norm1, nn.LayerNorm) or not isinstance(norm2, nn.LayerNorm):
        return None
    qkv, layers = _projections(attention), _perceptron(mlp)
    proj = _child(attention, "proj", "out_proj", "o_proj")
    heads = next((int(n) for k in ("num_heads", "num_attention_heads") if (n := getattr(attention, k, None))), 0)
    if qkv is None or layers is None or not isinstance(proj, nn.Linear) or not heads:
        return None
    if any(_does_something(getattr(attention, name, None)) for name in ("q_norm", "k_norm", "norm", "gate")):
        return None
    fc1, fc2, activation = layers
    scales = []
    for names in (("ls1", "layer_scale1", "gamma_1"), ("ls2", "layer_scale2", "gamma_2")):
        scales.append(_scale(block, norm1, *names))
    return Block(
        _norm(norm1), qkv, _linear(proj), scales[0], _norm(norm2), _linear(fc1), _linear(fc2), scales[1], heads, activation
    )


def run(x: Tensor, block: Block) -> Tensor:
    """(s, n, D) through a block."""
    projected = F.linear(F.layer_norm(x, x.shape[-1:], *block.norm1), *block.qkv)
    return rest(x, context(*heads_of(projected, block.heads, 3)), block)


def run_for(x: Tensor, block: Block, queries: int) -> Tensor:
    """(s, queries, D) through a block: only the first so many tokens, which read all.

    Few queries need neither keys nor values: q · (W y) = (W' q) · y, and a sum of W y with weights is W times that of y. A key's
    bias moves all logits of a query alike.
    """
    y = F.layer_norm(x, x.shape[-1:], *block.norm1)
    (to_q, to_k, to_v), (of_q, _, of_v) = (part.chunk(3) for part in block.qkv)
    q = F.linear(y[:, :queries], to_q, of_q).unflatten(-1, (block.heads, -1))
    projected = torch.einsum("sqhd,hde->sqhe", q * q.shape[-1] ** -0.5, to_k.unflatten(0, (block.heads, -1)))
    weights = (projected.flatten(1, 2) @ y.transpose(1, 2)).softmax(-1)
    read = (weights @ y).unflatten(1, (queries, block.heads))
    brought = torch.einsum("sqhe,hde->sqhd", read, to_v.unflatten(0, (block.heads, -1))).flatten(2) + of_v
    return rest(x[:, :queries], brought, block)


class Opening(NamedTuple):
    """What the first block's attention makes of whole images: the same whichever token is missing later.

    Parameters
    ----------
    q, k, v, seen : (b, n, heads, d) queries, keys, values, and what attention brings to each query
    weights : (b, n, heads, n) of each query for each key
    """

    q: Tensor
    k: Tensor
    v: Tensor
    seen: Tensor
    weights: Tensor

    @classmethod
    def of(cls, x: Tensor, block: Block) -> Opening:
        q, k, v = F.linear(F.layer_norm(x, x.shape[-1:], *block.norm1), *block.qkv).unflatten(-1, (3, block.heads, -1)).unbind(2)
        weights = (torch.einsum("bihd,bjhd->bihj", q, k) * q.shape[-1] ** -0.5).softmax(-1)
        return cls(q, k, v, torch.einsum("bihj,bjhd->bihd", weights, v), weights)

    def without(self, image: Tensor, gone: Tensor, keep: Tensor) -> Tensor:
        """(s, m, D) what attention brings to the tokens `keep` (s, m) of image `image[s]` when token `gone[s]` is missing.

        A query that gave the missing key the weight a and saw o now sees (o - a v) / (1 - a). Where little is left of 1 - a, its
        rounding would show, and the sum is made anew.
        """
        at = image[:, None]
        a = self.weights[at, keep, :, gone[:, None]][..., None]
        attended = torch.addcmul(self.seen[at, keep], a, self.v[image, gone][:, None], value=-1).div_(1 - a)
        s, i, h = (a[..., 0] > MOST_WEIGHT).nonzero(as_tuple=True)
        if len(s):
            b = image[s]
            logits = torch.einsum("rd,rjd->rj", self.q[b, keep[s, i], h], self.k[b, :, h]) * self.q.shape[-1] ** -0.5
            anew = logits.scatter(1, gone[s, None], -torch.inf).softmax(-1)
            attended[s, i, h] = torch.einsum("rj,rjd->rd", anew, self.v[b, :, h])
        return attended.flatten(2)


def heads_of(projected: Tensor, heads: int, parts: int) -> tuple[Tensor, ...]:
    """(s, n, parts · D) as `parts` tensors (s, heads, n, d)."""
    return projected.unflatten(-1, (parts, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)


def context(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """(s, n, D) what attention brings to each query."""
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def rest(x: Tensor, brought: Tensor, block: Block) -> Tensor:
    """The part of a block that comes after its attention."""
    x = torch.addcmul(x, F.linear(brought, *block.proj), block.scale1)
    y = F.linear(F.layer_norm(x, x.shape[-1:], *block.norm2), *block.fc1)
    return torch.addcmul(x, F.linear(ACTIVATIONS[block.activation](y), *block.fc2), block.scale2)


def cast(part: Any, dtype: torch.dtype) -> Any:
    """Cast every floating tensor in nested tuples and dicts to another precision."""
    if isinstance(part, dict):
        return {key: cast(each, dtype) for key, each in part.items()}
    if isinstance(part, tuple):
        return tuple(cast(each, dtype) for each in part)
    if isinstance(part, Tensor) and part.is_floating_point():
        return part.to(dtype)
    return part


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled once per process; its weights are arguments, so all models of one shape share it."""
    return torch.compile(function, dynamic=False)


def multi_head(attend: Callable[..., Tensor], query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Multi-head attention of (n, b, D) tokens to themselves as torch has it, with `attend` for its inner attention."""
    names = (
        "embed_dim_to_check", "num_heads", "in_proj_weight", "in_proj_bias", "bias_k", "bias_v", "add_zero_attn", "dropout_p",
        "out_proj_weight", "out_proj_bias",
    )  # fmt: skip
    settings = {**dict(zip(names, args)), **kwargs}
    projected = F.linear(query.transpose(0, 1), settings["in_proj_weight"], settings["in_proj_bias"])
    q, k, v = heads_of(projected, settings["num_heads"], 3)
    brought = attend(q, k, v, None, None).transpose(1, 2).flatten(2)
    return F.linear(brought, settings["out_proj_weight"], settings["out_proj_bias"]).transpose(0, 1), None


# ---- what the functions above use ----------------------------------------------------------------------------------------


def _quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": _gelu_tanh,
    "quick_gelu": _quick_gelu,
    "relu": F.relu,
    "silu": F.silu,
}
CLASSES = {
    "GELU": "gelu",
    "GELUActivation": "gelu",
    "GELUTanh": "gelu_tanh",
    "PytorchGELUTanh": "gelu_tanh",
    "GELUTanhActivation": "gelu_tanh",
    "QuickGELU": "quick_gelu",
    "QuickGELUActivation": "quick_gelu",
    "ReLU": "relu",
    "SiLU": "silu",
}


def _child(module: nn.Module, *names: str) -> nn.Module | None:
    return next((m for name in names if isinstance(m := getattr(module, name, None), nn.Module)), None)


def _does_something(part: Any) -> bool:
    return part is not None and not isinstance(part, nn.Identity)


def _norm(norm: nn.LayerNorm) -> tuple[Tensor, Tensor, float]:
    if norm.weight is None:
        weight = torch.ones(norm.normalized_shape)
    else:
        weight = norm.weight.detach()
    return weight, torch.zeros_like(weight) if norm.bias is None else norm.bias.detach(), float(norm.eps)


def _linear(layer: nn.Linear) -> tuple[Tensor, Tensor]:
    weight = layer.weight.detach()
    return weight, weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach()


def _projections(attention: nn.Module) -> tuple[Tensor, Tensor] | None:
    """(3 · D, D) and (3 · D,) of queries, keys and values."""
    if isinstance(attention, nn.MultiheadAttention):
        weight, bias = attention.in_proj_weight, attention.in_proj_bias
        if weight is None or bias is None:
            return None
        return (weight.detach(), bias.detach())
    fused = getattr(attention, "qkv", None)
    if isinstance(fused, nn.Linear):
        if getattr(attention, "q_bias", None) is not None:
            return None
        return _linear(fused)
    parts = [getattr(attention, f"{which}_proj", None) for which in "qkv"]
    if not all(isinstance(part, nn.Linear) for part in parts):
        return None
    weights, biases = zip(*(_linear(part) for part in parts if isinstance(part, nn.Linear)))
    return torch.cat(weights), torch.cat(biases)


def _perceptron(mlp: nn.Module) -> tuple[nn.Linear, nn.Linear, str] | None:
    fc1: nn.Module | None
    fc2: nn.Module | None
    act: nn.Module | None
    if isinstance(mlp, nn.Sequential):
        linear = [m for m in mlp if isinstance(m, nn.Linear)]
        between = [m for m in mlp if type(m).__name__ in CLASSES]
        if len(linear) != 2 or len(between) != 1:
            return None
        fc1, fc2, act = linear[0], linear[1], between[0]
    else:
        fc1, fc2, act = _child(mlp, "fc1"), _child(mlp, "fc2"), _child(mlp, "act", "activation_fn", "activation")
    if not isinstance(fc1, nn.Linear) or not isinstance(fc2, nn.Linear) or _does_something(getattr(mlp, "norm", None)):
        return None
    name = CLASSES.get(type(act).__name__, "")
    if isinstance(act, nn.GELU) and act.approximate == "tanh":
        name = "gelu_tanh"
    if name:
        return (fc1, fc2, name)
    return None


def _scale(block: nn.Module, norm: nn.LayerNorm, *names: str) -> Tensor:
    for name in names:
        part = getattr(block, name, None)
        gamma: Any = part
        if not isinstance(part, Tensor):
            gamma = next((getattr(part, n) for n in ("gamma", "lambda1") if hasattr(part, n)), None)
        if isinstance(gamma, Tensor):
            return gamma.detach()
    return torch.ones(norm.normalized_shape).to(next(norm.parameters()))
