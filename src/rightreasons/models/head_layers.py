"""The layers of a head in torch: read from live modules, evaluated with gradients, and turned into the data of `head.py`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rightreasons.errors import ModelError
from rightreasons.head import Head, Kind, Layer

ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu": lambda z, alpha: torch.where(z > 0, z, alpha * z),
    "elu": lambda z, alpha: torch.where(z > 0, z, alpha * torch.expm1(z.clamp(max=0))),
    "gelu": F.gelu,
    "gelu_tanh": lambda z: F.gelu(z, approximate="tanh"),
    "quick_gelu": lambda z: z * torch.sigmoid(1.702 * z),
    "silu": F.silu,
    "mish": F.mish,
    "softplus": F.softplus,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
}
"""The same names as `head.ACTIVATIONS`."""


class TensorLayer(NamedTuple):
    """A `head.Layer` whose arrays are tensors, usually the live parameters of a network."""

    kind: Kind
    tensors: Mapping[str, Tensor]
    name: str = ""
    eps: float = 0.0


def evaluate(layers: Sequence[TensorLayer], z: Tensor) -> Tensor:
    """(n, d) to (n, C), differentiable in `z` and in the tensors of the layers."""
    for layer in layers:
        t = {name: tensor.to(z.device) for name, tensor in layer.tensors.items()}
        if layer.kind == "linear":
            z = F.linear(z, t["weight"], t["bias"])
        elif layer.kind == "activation":
            z = ACTIVATIONS[layer.name](z, **t)
        elif layer.name == "affine":
            z = z * t["weight"] + t["bias"]
        elif layer.name == "layer":
            z = F.layer_norm(z, z.shape[-1:], t["weight"], t["bias"], layer.eps)
        else:
            z = z * torch.rsqrt(z.square().mean(-1, keepdim=True) + layer.eps) * t["weight"]
    return z


def to_data(layers: Sequence[TensorLayer]) -> Head:
    """A copy of the layers' present values, in numpy."""
    copies = []
    for kind, tensors, which, eps in layers:
        arrays = {}
        for name, tensor in tensors.items():
            arrays[name] = tensor.detach().float().cpu().numpy().copy()
        copies.append(Layer(kind, arrays, which, eps))
    return Head(tuple(copies))


def averaged(layers: Sequence[TensorLayer], reads: Sequence[int]) -> TensorLayer:
    """The mean of linear layers side by side, as one linear layer of the concatenated features.

    Parameters
    ----------
    reads : for each layer, which of the concatenated features it reads
    """
    blocks = []
    for point in range(max(reads) + 1):
        weights = []
        for layer, read in zip(layers, reads):
            if read == point:
                weights.append(layer.tensors["weight"])
        blocks.append(torch.stack(weights).sum(0) / len(layers))
    bias = torch.stack([layer.tensors["bias"] for layer in layers]).mean(0)
    return TensorLayer("linear", {"weight": torch.cat(blocks, dim=1), "bias": bias})


def with_one_output(layers: list[TensorLayer], output: int | None) -> list[TensorLayer]:
    """The layers with one of their logits z read as (0, z): number `output`, or the only one there is; else as they are."""
    weights = [layer.tensors["weight"] for layer in layers if layer.kind != "activation"]
    if not weights:
        raise ModelError("no layer of the head has weights: name a head that ends in a linear layer")
    weight = weights[-1]
    if output is None and len(weight) > 1:
        return layers
    pick = torch.zeros(2, len(weight), device=weight.device, dtype=weight.dtype)
    pick[1, output or 0] = 1
    last = layers[-1]
    if last.kind == "linear":
        picked = {"weight": pick @ last.tensors["weight"], "bias": pick @ last.tensors["bias"]}
        return [*layers[:-1], last._replace(tensors=picked)]
    return [*layers, TensorLayer("linear", {"weight": pick, "bias": pick.new_zeros(2)})]


class TorchHead(nn.Module):
    """A `Head` as a module; weights and biases are parameters, so it moves to a device and can be trained."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.layout = [(layer.kind, tuple(layer.arrays), layer.name, layer.eps) for layer in head.layers]
        for i, layer in enumerate(head.layers):
            for name, array in layer.arrays.items():
                if name == "alpha":
                    self.register_buffer(f"{name}_{i}", torch.tensor(array))
                else:
                    self.register_parameter(f"{name}_{i}", nn.Parameter(torch.tensor(array)))

    def layers(self) -> list[TensorLayer]:
        layers = []
        for i, (kind, names, which, eps) in enumerate(self.layout):
            tensors = {name: getattr(self, f"{name}_{i}") for name in names}
            layers.append(TensorLayer(kind, tensors, which, eps))
        return layers

    def forward(self, z: Tensor) -> Tensor:
        return evaluate(self.layers(), z)


def torch_head(head: Head) -> TorchHead:
    """A head's data as a torch module."""
    return TorchHead(head)


def read_layers(module: nn.Module, name: str) -> list[TensorLayer]:
    """The layers of one module on feature vectors, sharing its parameters; empty where it does nothing in evaluation.

    Refused by name where it is no linear layer, norm or elementwise activation.
    """
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        layers = [_batch_norm(module, name)]
    elif isinstance(module, nn.Linear):
        layers = [_linear(module.weight, module.bias)]
    elif isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        layers = [_pointwise(module, name)]
    elif isinstance(module, nn.LayerNorm | nn.GroupNorm):
        layers = [_layer_norm(module, name)]
    elif _is_rms(module):
        layers = [_rms_norm(module, name)]
    else:
        return _activation(module, name)
    # timm's norm layers carry their activation inside themselves
    act = getattr(module, "act", None)
    return layers + (_activation(act, f"{name}.act") if isinstance(act, nn.Module) else [])


def is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d)


def is_atomic(module: nn.Module) -> bool:
    """Whether `read_layers` treats the module as one step, whatever it contains."""
    known = (nn.modules.batchnorm._BatchNorm, nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.LayerNorm, nn.GroupNorm)
    return isinstance(module, known) or not any(True for _ in module.children())


def does_nothing(module: nn.Module) -> bool:
    """Whether the module passes features on as they are in evaluation."""
    return isinstance(module, nn.Identity | nn.Flatten | nn.modules.dropout._DropoutNd)


def _linear(weight: Tensor, bias: Tensor | None) -> TensorLayer:
    return TensorLayer("linear", {"weight": weight, "bias": weight.new_zeros(len(weight)) if bias is None else bias})


def _pointwise(module: nn.Conv1d | nn.Conv2d | nn.Conv3d, name: str) -> TensorLayer:
    if set(module.kernel_size) != {1} or module.groups != 1 or set(module.stride) != {1} or set(module.padding) != {0}:
        raise ModelError(
            f"'{name}' ({type(module).__name__} of kernel {module.kernel_size}, groups {module.groups}) is no linear layer of "
            "one feature vector: only 1x1 convolutions after the global pool are"
        )
    return _linear(module.weight.flatten(1), module.bias)


def _batch_norm(module: nn.modules.batchnorm._BatchNorm, name: str) -> TensorLayer:
    if module.running_mean is None or module.running_var is None:
        raise ModelError(f"'{name}' ({type(module).__name__}) has no running statistics: its output depends on the batch")
    scale = torch.rsqrt(module.running_var + module.eps)
    if module.weight is not None:
        scale = scale * module.weight
    shift = -module.running_mean * scale
    return TensorLayer("norm", {"weight": scale, "bias": shift if module.bias is None else shift + module.bias}, "affine")


def _layer_norm(module: nn.LayerNorm | nn.GroupNorm, name: str) -> TensorLayer:
    if isinstance(module, nn.LayerNorm):
        over = list(module.normalized_shape)
    else:
        over = [module.num_channels]
    if len(over) != 1 or (isinstance(module, nn.GroupNorm) and module.num_groups != 1):
        raise ModelError(f"'{name}' ({module}) normalises something else than one feature vector")
    if module.weight is None:
        weight = torch.ones(over)
    else:
        weight = module.weight
    if module.bias is None:
        bias = torch.zeros(over, device=weight.device)
    else:
        bias = module.bias
    return TensorLayer("norm", {"weight": weight, "bias": bias}, "layer", module.eps)


def _is_rms(module: nn.Module) -> bool:
    return "rmsnorm" in type(module).__name__.lower() and isinstance(getattr(module, "weight", None), Tensor)


def _rms_norm(module: nn.Module, name: str) -> TensorLayer:
    eps = getattr(module, "eps", None)
    if getattr(module, "bias", None) is not None:
        raise ModelError(f"'{name}' ({type(module).__name__}) is an RMS norm with a bias, which heads do not have")
    weight: Tensor = module.weight  # type: ignore[assignment]
    return TensorLayer("norm", {"weight": weight}, "rms", float(torch.finfo(weight.dtype).eps if eps is None else eps))


def _activation(module: nn.Module, name: str) -> list[TensorLayer]:
    if does_nothing(module):
        return []
    if isinstance(module, nn.PReLU):
        return [TensorLayer("activation", {"alpha": module.weight}, "leaky_relu")]
    for which, attribute, kind in (("leaky_relu", "negative_slope", nn.LeakyReLU), ("elu", "alpha", nn.ELU)):
        if isinstance(module, kind):
            return [TensorLayer("activation", {"alpha": torch.tensor(float(getattr(module, attribute)))}, which)]
    recognised = _recognise(module)
    if recognised is None:
        raise ModelError(
            f"'{name}' ({type(module).__name__}) is no layer that a head may have (linear, norm, or one of the activations "
            f"{', '.join(ACTIVATIONS)}): remove it if it follows the logits, or name a later layer as features="
        )
    if recognised == "identity":
        return []
    return [TensorLayer("activation", {}, recognised)]


def _recognise(module: nn.Module) -> str | None:
    """The name of an elementwise function, by what it does to 2001 values: libraries have their own classes."""
    if any(True for _ in module.parameters()) or any(True for _ in module.buffers()):
        return None
    values = torch.linspace(-8, 8, 2001)[None]
    probe = copy.deepcopy(module).eval()
    try:
        with torch.no_grad():
            applied = probe(values.clone())
    except (RuntimeError, TypeError, ValueError, IndexError):  # it wants another shape, so it is no elementwise function
        return None
    if isinstance(applied, Tensor) and applied.shape == values.shape:
        return matching(values, applied)
    return None


def matching(before: Tensor, after: Tensor) -> str | None:
    """Which parameter-free activation, or "identity", takes `before` to `after`; None when none does."""
    if torch.allclose(before, after, rtol=1e-6, atol=1e-7):
        return "identity"
    for name, function in ACTIVATIONS.items():
        if name not in ("leaky_relu", "elu") and torch.allclose(function(before), after, rtol=1e-5, atol=1e-6):
            return name
    return None
