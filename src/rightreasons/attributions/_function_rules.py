"""Rules for what a network does outside its layers: every torch function of a forward pass is seen while a context is open.

Networks add residuals, gate, attend and pool by plain functions, each library in its own classes. A rule bound to the function
fits them all and leaves no network changed; a function that has no rule is refused by name, so no wrong map comes out silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from rightreasons.errors import ModelError

ELEMENTWISE = frozenset(
    {
        "relu",
        "relu6",
        "leaky_relu",
        "elu",
        "celu",
        "selu",
        "gelu",
        "silu",
        "mish",
        "softplus",
        "tanh",
        "sigmoid",
        "hardswish",
        "hardsigmoid",
        "hardtanh",
        "logsigmoid",
    }
)
REARRANGING = frozenset(
    {
        "reshape",
        "view",
        "view_as",
        "reshape_as",
        "permute",
        "transpose",
        "t",
        "swapaxes",
        "swapdims",
        "movedim",
        "flatten",
        "unflatten",
        "unbind",
        "chunk",
        "split",
        "tensor_split",
        "getitem",
        "select",
        "narrow",
        "index_select",
        "contiguous",
        "clone",
        "expand",
        "expand_as",
        "repeat",
        "repeat_interleave",
        "tile",
        "cat",
        "concat",
        "concatenate",
        "stack",
        "squeeze",
        "unsqueeze",
        "roll",
        "flip",
        "pad",
        "to",
        "float",
        "type",
        "type_as",
        "T",
        "mT",
        "H",
        "dropout",
        "dropout1d",
        "dropout2d",
        "dropout3d",
        "alpha_dropout",
        "feature_dropout",
        "as_strided",
        "unfold",
        "pixel_unshuffle",
        "pixel_shuffle",
        "channel_shuffle",
        "max_pool1d",
        "max_pool2d",
        "max_pool3d",
        "adaptive_max_pool1d",
        "adaptive_max_pool2d",
        "adaptive_max_pool3d",
    }
)
"""Every output value is one input value (or 0): what flows back goes where it came from. Dropout: networks are evaluating."""

POOLING = frozenset(
    {"mean", "sum", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"}
)
CONVOLUTIONS = frozenset({"conv1d", "conv2d", "conv3d"})

_SAME = {"radd": "add", "iadd": "add", "rmul": "mul", "imul": "mul", "multiply": "mul", "truediv": "div", "true_divide": "div",
         "isub": "sub", "subtract": "sub", "bmm": "matmul", "mm": "matmul", "rmatmul": "matmul"}  # fmt: skip


class Functions(TorchFunctionMode):
    """While open, functions of tensors that need a gradient go through `rules`, or must be in `allowed`.

    Parameters
    ----------
    rules : function name → what is called in its place; inside a rule no rule applies
    allowed : names of functions whose own gradient is right
    method, network : for the sentence of a refusal
    """

    def __init__(
        self, rules: dict[str, Callable[..., Any]], allowed: Iterable[str], method: str, network: str, advice: str
    ) -> None:
        super().__init__()
        self.rules = rules
        self.allowed = frozenset(allowed)
        self.method, self.network, self.advice = method, network, advice
        self.called: set[str] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not any(t.requires_grad for t in _tensors((*args, *kwargs.values()))):
            return func(*args, **kwargs)
        name = _name(func)
        self.called.add(name)
        if name in self.rules:
            return self.rules[name](*args, **kwargs)
        result = func(*args, **kwargs)
        if isinstance(result, tuple | list):
            made = result
        else:
            made = (result,)
        if name in self.allowed or not any(t.requires_grad for t in _tensors(made)):
            return result
        raise ModelError(f"{self.method} has no rule for the function '{name}' that {self.network} calls: {self.advice}")


def activation(func: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function, with in-place computation switched off."""

    def apart(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        kwargs.pop("inplace", None)
        return func(x, *(a for a in args if not isinstance(a, bool)), **kwargs)

    return apart


def _tensors(values: Iterable[Any]) -> Iterable[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from (v for v in value if isinstance(v, Tensor))


def _name(func: Any) -> str:
    name = str(getattr(func, "__name__", func))
    if name == "__get__":
        return str(getattr(func.__self__, "__name__", name))
    bare = name.strip("_")
    return _SAME.get(bare, bare)
