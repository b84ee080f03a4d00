"""A classifier's head as data: a short list of linear, norm and activation layers, evaluated here in numpy.

`models.classifier.torch_head` evaluates the same data in torch, to the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy import special

from rightreasons.errors import DataError, ModelError

Kind = Literal["linear", "norm", "activation"]

NORMS: dict[str, tuple[str, ...]] = {"affine": ("weight", "bias"), "layer": ("weight", "bias"), "rms": ("weight",)}
"""Norms by name, with their arrays: an evaluated BatchNorm is `affine`; `layer` and `rms` need `eps`."""

ARRAYS_OF_LINEAR: tuple[str, ...] = ("weight", "bias")


@dataclass(frozen=True, eq=False)
class Layer:
    """One step of a head.

    Parameters
    ----------
    kind : linear | norm | activation
    arrays : linear: weight (out, in) and bias (out,); norm: see `NORMS`; activation: `alpha` where it has a slope
    name : which norm or which activation; empty for linear
    eps : what a `layer` or `rms` norm adds to the variance
    """

    kind: Kind
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    name: str = ""
    eps: float = 0.0

    def __call__(self, z: np.ndarray) -> np.ndarray:
        """(n, in) to (n, out), in the precision of `z`."""
        arrays = {}
        for name, array in self.arrays.items():
            arrays[name] = np.asarray(array, dtype=z.dtype)
        if self.kind == "linear":
            return z @ arrays["weight"].T + arrays["bias"]
        if self.kind == "activation":
            return ACTIVATIONS[self.name](z, **arrays).astype(z.dtype, copy=False)
        return _normalise(self.name, z, arrays, z.dtype.type(self.eps))

    @property
    def is_linear(self) -> bool:
        return self.kind == "linear" or (self.kind == "norm" and self.name == "affine")


@dataclass(frozen=True, eq=False)
class Head:
    """The layers that turn features (n, d) into logits (n, C).

    A one-logit head is kept as two logits (0, z): the first row of its last linear layer is zero.
    """

    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        _validate(self.layers)

    def __call__(self, z: np.ndarray) -> np.ndarray:
        """(n, d) to (n, C); float32 unless `z` is float64."""
        z = np.asarray(z)
        if z.ndim != 2 or z.shape[1] != self.d:
            raise ModelError(f"the head reads features of shape (n, {self.d}), found {z.shape}")
        z = z.astype(np.float64 if z.dtype == np.float64 else np.float32, copy=False)
        for layer in self.layers:
            z = layer(z)
        return z

    def before_last(self, z: np.ndarray) -> np.ndarray:
        """(n, d) to (n, k): what the last linear layer reads."""
        last = max(i for i, layer in enumerate(self.layers) if layer.kind == "linear")
        for layer in self.layers[:last]:
            z = layer(z)
        return z

    @property
    def d(self) -> int:
        """Number of features."""
        return next(layer.arrays["weight"].shape[-1] for layer in self.layers if layer.kind != "activation")

    @property
    def C(self) -> int:
        """Number of logits."""
        return next(layer.arrays["weight"].shape[0] for layer in reversed(self.layers) if layer.kind != "activation")

    @property
    def is_linear(self) -> bool:
        return all(layer.is_linear for layer in self.layers)

    @property
    def weight(self) -> np.ndarray:
        """(C, d) of a linear head; refused when it has an activation or a data-dependent norm."""
        return self._affine()[0]

    @property
    def bias(self) -> np.ndarray:
        """(C,) of a linear head."""
        return self._affine()[1]

    def fold(self, mean: np.ndarray, std: np.ndarray) -> Head:
        """The head on raw features, of this head on standardised ones: `head.fold(m, s)(z) == head((z - m) / s)`."""
        mean, std = np.asarray(mean, dtype=np.float64), np.asarray(std, dtype=np.float64)
        if mean.shape != (self.d,) or std.shape != (self.d,):
            raise DataError(f"mean and std must both be ({self.d},), found {mean.shape} and {std.shape}")
        if not (np.isfinite(mean).all() and np.isfinite(std).all() and (std > 0).all()):
            bad = np.flatnonzero(~(np.isfinite(mean) & np.isfinite(std) & (std > 0)))
            raise DataError(
                f"mean and std must be finite and std positive; features {bad[:5].tolist()} are not: use 1 for a constant"
            )
        first = self.layers[0]
        if first.kind != "linear":
            return Head((Layer("norm", {"weight": _f32(1 / std), "bias": _f32(-mean / std)}, "affine"), *self.layers))
        weight = first.arrays["weight"] / std
        folded = Layer("linear", {"weight": _f32(weight), "bias": _f32(first.arrays["bias"] - weight @ mean)})
        return Head((folded, *self.layers[1:]))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """A flat dict for npz, zarr or safetensors; `from_arrays` reads it back."""
        flat = {}
        for i, layer in enumerate(self.layers):
            stem = f"{i}.{layer.kind}.{layer.name or '-'}"
            flat[f"{stem}.eps"] = np.asarray(layer.eps, dtype=np.float64)
            flat.update({f"{stem}.{name}": np.asarray(array) for name, array in layer.arrays.items()})
        return flat

    @staticmethod
    def from_arrays(flat: Mapping[str, np.ndarray]) -> Head:
        stems: dict[int, tuple[str, str]] = {}
        arrays: dict[int, dict[str, np.ndarray]] = {}
        for key, array in flat.items():
            parts = key.split(".")
            if len(parts) != 4 or not parts[0].isdigit():
                raise ModelError(
                    f"{key!r} is no part of a head: expected '<number>.<kind>.<name>.<array>' as Head.to_arrays writes it"
                )
            i, kind, name, array_name = int(parts[0]), *parts[1:]
            stems[i] = (kind, "" if name == "-" else name)
            arrays.setdefault(i, {})[array_name] = np.asarray(array)
        layers = []
        for i in sorted(stems):
            kind, name = stems[i]
            eps = float(arrays[i].pop("eps", np.asarray(0.0)))
            layers.append(Layer(kind, arrays[i], name, eps))  # type: ignore[arg-type]  # Head checks the kind
        return Head(tuple(layers))

    def _affine(self) -> tuple[np.ndarray, np.ndarray]:
        if not self.is_linear:
            kinds = [layer.name or layer.kind for layer in self.layers]
            raise ModelError(
                f"a head of {' > '.join(kinds)} has no single weight and bias: ask is_linear first, or call the head"
            )
        if len(self.layers) == 1 and self.layers[0].kind == "linear":
            return self.layers[0].arrays["weight"], self.layers[0].arrays["bias"]
        weight, bias = np.eye(self.d), np.zeros(self.d)
        for layer in self.layers:
            w = layer.arrays["weight"].astype(np.float64)
            b = layer.arrays["bias"].astype(np.float64)
            if layer.kind == "linear":
                weight, bias = w @ weight, w @ bias + b
            else:
                weight, bias = w[:, None] * weight, w * bias + b
        return _f32(weight), _f32(bias)


def linear_head(weight: np.ndarray, bias: np.ndarray | None = None) -> Head:
    """A linear head of weight (C, d) and bias (C,); one row is read as the logits (0, z)."""
    weight = np.atleast_2d(np.asarray(weight))
    if bias is None:
        bias = np.zeros(len(weight))
    else:
        bias = np.atleast_1d(np.asarray(bias))
    if len(weight) == 1:
        weight, bias = np.concatenate([np.zeros_like(weight), weight]), np.concatenate([np.zeros_like(bias), bias])
    return Head((Layer("linear", {"weight": _f32(weight), "bias": _f32(bias)}),))


def outputs_for(cohort_classes: Sequence[object], classes: Sequence[object]) -> np.ndarray:
    """(len(cohort_classes),) which output of the model stands for each label value of the cohort.

    Values match when they are equal, else when they read the same (0 and "0"). The model may know more classes than the cohort.
    """
    exact = {_plain(value): i for i, value in enumerate(classes)}
    spelled = {str(_plain(value)): i for i, value in enumerate(classes)}
    outputs = []
    for value in cohort_classes:
        outputs.append(exact.get(_plain(value), spelled.get(str(_plain(value)))))
    if None in outputs:
        missing = [value for value, i in zip(cohort_classes, outputs) if i is None]
        raise DataError(
            f"the cohort's label values {_some(cohort_classes)} are not all among the model's outputs {_some(classes)}: "
            f"{_some(missing)} missing; say what every output stands for with classes=[…], one value per output in order"
        )
    if len(set(outputs)) != len(outputs):
        raise DataError(
            f"two label values of {_some(cohort_classes)} stand for one output of {_some(classes)}: "
            "give each its own in classes=[…]"
        )
    return np.array(outputs, dtype=np.int64)


def _gelu(z: np.ndarray) -> np.ndarray:
    return 0.5 * z * (1 + special.erf(z * z.dtype.type(np.sqrt(0.5))))


def _gelu_tanh(z: np.ndarray) -> np.ndarray:
    return 0.5 * z * (1 + np.tanh(z.dtype.type(np.sqrt(2 / np.pi)) * (z + z.dtype.type(0.044715) * z**3)))


def _elu(z: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    return np.where(z > 0, z, alpha * np.expm1(np.minimum(z, 0)))


def _softplus(z: np.ndarray) -> np.ndarray:
    return np.logaddexp(z, z.dtype.type(0))


ACTIVATIONS: dict[str, Callable[..., np.ndarray]] = {
    "relu": lambda z: np.maximum(z, 0),
    "relu6": lambda z: np.clip(z, 0, 6),
    "leaky_relu": lambda z, alpha: np.where(z > 0, z, alpha * z),
    "elu": _elu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "quick_gelu": lambda z: z * special.expit(z.dtype.type(1.702) * z),
    "silu": lambda z: z * special.expit(z),
    "mish": lambda z: z * np.tanh(_softplus(z)),
    "softplus": _softplus,
    "tanh": np.tanh,
    "sigmoid": special.expit,
    "hardswish": lambda z: z * np.clip(z + 3, 0, 6) / 6,
    "hardsigmoid": lambda z: np.clip(z + 3, 0, 6) / 6,
}
"""Activations by name; `leaky_relu` (also PReLU) and `elu` have an `alpha`, one number or one per feature."""


def _normalise(name: str, z: np.ndarray, arrays: Mapping[str, np.ndarray], eps: np.floating) -> np.ndarray:
    if name == "affine":
        return z * arrays["weight"] + arrays["bias"]
    if name == "rms":
        return z / np.sqrt((z * z).mean(1, keepdims=True) + eps) * arrays["weight"]
    centred = z - z.mean(1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(1, keepdims=True) + eps) * arrays["weight"] + arrays["bias"]


def _validate(layers: tuple[Layer, ...]) -> None:
    width: int | None = None
    for i, layer in enumerate(layers):
        what = f"layer {i} of the head ({layer.kind} {layer.name})".replace(" )", ")")
        known = {"linear": ("",), "norm": tuple(NORMS), "activation": tuple(ACTIVATIONS)}.get(layer.kind)
        if known is None or layer.name not in known:
            raise ModelError(
                f"{what} is not known: heads are made of linear layers, norms {tuple(NORMS)} and activations {tuple(ACTIVATIONS)}"
            )
        if layer.kind == "activation":
            continue
        expected = ARRAYS_OF_LINEAR if layer.kind == "linear" else NORMS[layer.name]
        if set(layer.arrays) != set(expected):
            raise ModelError(f"{what} must have the arrays {expected}, found {tuple(layer.arrays)}")
        weight = layer.arrays["weight"]
        axes = 2 if layer.kind == "linear" else 1
        if weight.ndim != axes or any(layer.arrays[name].shape != weight.shape[:1] for name in expected[1:]):
            shapes = [layer.arrays[name].shape for name in expected]
            raise ModelError(f"{what} has arrays of shapes {shapes}, which do not belong together")
        if width is not None and weight.shape[-1] != width:
            raise ModelError(f"{what} reads {weight.shape[-1]} values but the layer before it gives {width}")
        width = weight.shape[0]
    if width is None:
        raise ModelError("a head needs at least one linear layer")


def _f32(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, dtype=np.float32)


def _plain(value: object) -> object:
    """A label value as a plain Python number or string."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _some(values: Sequence[object], most: int = 12) -> str:
    shown = ", ".join(repr(_plain(value)) for value in list(values)[:most])
    if len(values) > most:
        return f"[{shown}, …] ({len(values)} in all)"
    return f"[{shown}]"
