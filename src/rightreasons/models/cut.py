"""Where a network is cut into features and head: found by watching one forward pass, never by a layer's name alone.

Every module call is recorded. From the output the calls are walked back by the vectors they hand on, which gives the chain
of layers that made it; the last linear layer of that chain is the head and what it reads are the features.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from rightreasons.errors import ModelError
from rightreasons.models.forward import first_tensor, layer, tensor_of, vector
from rightreasons.models.head_layers import does_nothing, is_atomic, is_linear, matching, read_layers

WATCHED_MAPS = 256
"""The last this many map-shaped tensors are looked at for the input of the global pool."""


@dataclass(frozen=True)
class Cut:
    """Where features, head and maps lie in a network. A point is `layer:input` or `layer:output`.

    Parameters
    ----------
    features : one point, or several whose vectors are concatenated
    head : the layers from the features to the output, in order (`relu()` is a function that is no layer)
    reads : not empty where the layers of `head` are linear side by side and the output is their mean: which point each reads
    spatial : the point of the map before the global average pool, empty where there is none
    spatial_last : whether that map has its channels last
    spatial_activation : what is still applied to it before it is averaged
    pooled : the layers from the averaged map to the output, None where they are no head
    no_spatial : why there is no map
    """

    features: tuple[str, ...]
    head: tuple[str, ...]
    reads: tuple[int, ...] = ()
    spatial: str = ""
    spatial_last: bool = False
    spatial_activation: str = ""
    pooled: tuple[str, ...] | None = None
    no_spatial: str = ""


def find_cut(module: nn.Module, x: Tensor, features: str | None = None, head: str | None = None) -> Cut:
    """The cut of a network that is in evaluation mode, on a batch of at least two inputs.

    Parameters
    ----------
    features : layer whose output are the features; None: what the head reads
    head : layer whose output are the logits; None: from the features on, or the last linear layer
    """
    for point in (features, head):
        if point is not None:
            layer(module, point)
    with _moved(module):
        record = _watch(module, x)
        if features is None and head is None:
            several = _several_heads(module, x, record)
        else:
            several = None
    if not torch.isfinite(record.output).all():
        record = _watch(module, x)
    if not torch.isfinite(record.output).all():
        raise ModelError(f"{record.name} gives values that are not finite for a random input: its weights are broken or unset")
    chain = record.chain()
    if features is None and head is None:
        cut = _last_linear(chain) or several
        if cut is None:
            raise ModelError(_why_not(record, chain))
    else:
        cut = _named(record, chain, features, head)
    for name in cut.head:
        if not name.endswith("()"):
            read_layers(layer(module, name), name)
    return _with_spatial(module, cut, record, chain)


def _is_vector(t: Tensor | None, n: int) -> bool:
    return t is not None and t.ndim >= 2 and len(t) == n and t.numel() == n * max(t.shape[1:])


@dataclass(eq=False)
class _Call:
    """One call of one module; the vectors are held so that no other tensor takes their memory.

    `function` is what was applied, outside of any module, between the call before it in the chain and this one.
    """

    name: str
    module: nn.Module
    atomic: bool
    given: Tensor | None = None
    made: Tensor | None = None
    given_values: Tensor | None = None
    made_values: Tensor | None = None
    given_shape: tuple[int, ...] = ()
    made_shape: tuple[int, ...] = ()
    function: str = ""


@dataclass(frozen=True)
class _Map:
    """A map-shaped tensor at a point, by its average over space: (n, c) with channels first and last, plain and rectified."""

    point: str
    shape: tuple[int, ...]
    means: dict[tuple[bool, str], Tensor]


@dataclass
class _Record:
    calls: list[_Call]
    maps: Sequence[_Map]
    output: Tensor
    name: str

    def chain(self) -> list[_Call]:
        """The calls that made the output from one vector after another, in order.

        A call belongs to it when the next one reads its memory, or what a plain function such as F.relu makes of its values.
        """
        backwards: list[_Call] = []
        for call in reversed(self.calls):
            if not call.atomic or call.made is None or call.made_values is None:
                continue
            if not backwards:
                if call.made.data_ptr() != self.output.data_ptr() or not torch.equal(call.made_values, vector(self.output)):
                    continue
            elif not _feeds(call, backwards[-1]):
                continue
            backwards.append(call)
            if call.given is None:
                break
        return backwards[::-1]


def _feeds(call: _Call, reader: _Call) -> bool:
    """Whether a call's output goes on to the reader; notes the function between them at the reader."""
    made, read = call.made_values, reader.given_values
    if made is None or read is None or made.shape != read.shape:
        return False
    shares = call.made is not None and reader.given is not None and call.made.data_ptr() == reader.given.data_ptr()
    if not shares and float(read.std()) == 0:  # a constant vector is the function of anything
        return False
    between = matching(made, read)
    if between is None:
        return False
    reader.function = ""
    if between != "identity":
        reader.function = f"{between}()"
    return True


@contextmanager
def _moved(module: nn.Module) -> Iterator[None]:
    """Inside, all weights are moved a little; afterwards they are as before.

    Networks start with layers that do nothing yet (a norm of unit statistics, a residual branch or a scale of zero or one); what
    only looks alike on such weights would be taken for the same, and would come apart in training.
    """
    generator = torch.Generator().manual_seed(2)

    def noise(t: Tensor) -> Tensor:
        return torch.randn(t.shape, generator=generator).to(t.device, t.dtype)

    kept: list[tuple[Tensor, Tensor]] = []

    def move(t: Tensor, to: Tensor) -> None:
        kept.append((t, t.clone()))
        t.copy_(to)

    with torch.no_grad():
        try:
            for parameter in module.parameters():
                if parameter.is_floating_point() and parameter.ndim < 2:
                    move(parameter, parameter + 0.1 * noise(parameter))
                elif parameter.is_floating_point() and not parameter.any():
                    move(parameter, noise(parameter) * parameter[0].numel() ** -0.5)
            for norm in module.modules():
                if (
                    isinstance(norm, nn.modules.batchnorm._BatchNorm)
                    and norm.running_mean is not None
                    and norm.running_var is not None
                ):
                    move(norm.running_mean, norm.running_mean + 0.1 * noise(norm.running_mean) * norm.running_var.sqrt())
                    move(norm.running_var, norm.running_var * torch.exp(0.2 * noise(norm.running_var)))
            yield
        finally:
            for tensor, before in kept:
                tensor.copy_(before)


def _watch(module: nn.Module, x: Tensor) -> _Record:
    calls: list[_Call] = []
    maps: deque[_Map] = deque(maxlen=WATCHED_MAPS)
    open_calls: list[_Call] = []
    handles = []
    try:
        inside: tuple[str, ...] = ()
        for name, child in module.named_modules():
            if name == "" or (inside and name.startswith(inside)):
                continue
            atomic = is_atomic(child)
            if atomic and any(True for _ in child.children()):
                inside = (*inside, f"{name}.")
            else:
                inside = inside
            handles += _recorder(name, child, atomic, len(x), calls, open_calls, maps)
        with torch.no_grad():
            output = tensor_of(module(x), type(module).__name__)
    finally:
        for handle in handles:
            handle.remove()
    if output.shape[:1] != x.shape[:1] or output.ndim not in (1, 2):
        raise ModelError(
            f"{type(module).__name__} gave {tuple(output.shape)} for {len(x)} images: expected a row of logits per image, (n, C)"
        )
    return _Record(calls, maps, output, type(module).__name__)


def _recorder(
    name: str, module: nn.Module, atomic: bool, n: int, calls: list[_Call], open_calls: list[_Call], maps: deque[_Map]
) -> list[Any]:
    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        call = _Call(name, module, atomic)
        tensor = first_tensor(args, kwargs)
        if tensor is not None:
            call.given_shape = tuple(tensor.shape)
            _note_map(f"{name}:input", tensor, n, maps)
            if _is_vector(tensor, n):
                call.given, call.given_values = tensor, vector(tensor).clone()
        open_calls.append(call)

    def after(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        call = open_calls.pop()
        if isinstance(output, tuple) and output:
            made = output[0]
        else:
            made = output
        if isinstance(made, Tensor):
            call.made_shape = tuple(made.shape)
            _note_map(f"{name}:output", made, n, maps)
            if _is_vector(made, n):
                call.made, call.made_values = made, vector(made).clone()
        calls.append(call)

    return [module.register_forward_pre_hook(before, with_kwargs=True), module.register_forward_hook(after)]


def _note_map(point: str, t: Tensor, n: int, maps: deque[_Map]) -> None:
    if t.ndim < 4 or len(t) != n or not t.is_floating_point():
        return
    first, last = tuple(range(2, t.ndim)), tuple(range(1, t.ndim - 1))
    means = {}
    for channels_last, axes in ((False, first), (True, last)):
        if max(t.shape[a] for a in axes) > 1:
            means[channels_last, ""] = t.mean(axes)
            means[channels_last, "relu"] = t.clamp(min=0).mean(axes)
    maps.append(_Map(point, tuple(t.shape), means))


def _last_linear(chain: list[_Call]) -> Cut | None:
    for i in reversed(range(len(chain))):
        if is_linear(chain[i].module) and chain[i].given is not None:
            return Cut((f"{chain[i].name}:input",), _names(chain[i:]))
    return None


def _several_heads(module: nn.Module, x: Tensor, record: _Record) -> Cut | None:
    """Distilled models average several linear heads; tried with random numbers in the place of their outputs."""
    shape = (len(x), vector(record.output).shape[1])
    heads = []
    for c in record.calls:
        if c.atomic and is_linear(c.module) and c.given is not None and c.made_shape == shape:
            heads.append(c)
    if len(heads) < 2 or len({c.name for c in heads}) != len(heads):
        return None
    generator = torch.Generator().manual_seed(1)
    drawn = [torch.randn(shape, generator=generator).to(x.device) for _ in heads]
    handles = [c.module.register_forward_hook(lambda *_, value=value: value.clone()) for c, value in zip(heads, drawn)]
    try:
        with torch.no_grad():
            output = tensor_of(module(x), record.name)
    finally:
        for handle in handles:
            handle.remove()
    if not torch.allclose(output, torch.stack(drawn).mean(0), rtol=1e-5, atol=1e-6):
        return None
    places = [c.given.data_ptr() for c in heads if c.given is not None]
    distinct = list(dict.fromkeys(places))
    points = tuple(f"{heads[places.index(place)].name}:input" for place in distinct)
    return Cut(points, tuple(c.name for c in heads), tuple(map(distinct.index, places)))


def _named(record: _Record, chain: list[_Call], features: str | None, head: str | None) -> Cut:
    """The cut at layers that the user named."""
    if head is not None:
        inside = []
        for i, call in enumerate(chain):
            if call.name == head or call.name.startswith(f"{head}."):
                inside.append(i)
        if not inside or inside[-1] != max((i for i, c in enumerate(chain) if not does_nothing(c.module)), default=-1):
            if chain:
                made_by = f"it is made by '{chain[-1].name}'"
            else:
                made_by = "no layer makes it as it is"
            raise ModelError(f"head='{head}' does not give the output of {record.name}: {made_by}. {_why_not(record, chain)}")
        start = inside[0]
    else:
        start = len(chain)
    if features is None:
        while start < len(chain) and (chain[start].given is None or does_nothing(chain[start].module)):
            start += 1
        if start == len(chain):
            raise ModelError(f"head='{head}' of {record.name} reads no feature vector: name the layer that gives it as features=")
        return Cut((f"{chain[start].name}:input",), _names(chain[start:]))
    return _from_features(record, chain, features, start)


def _from_features(record: _Record, chain: list[_Call], features: str, start: int) -> Cut:
    call = next((c for c in reversed(record.calls) if c.name == features), None)
    if call is None:
        raise ModelError(f"features='{features}' of {record.name} did not run: name a layer that the forward pass calls")
    when = record.calls.index(call)
    after = [c for c in chain if record.calls.index(c) > when and not c.name.startswith(f"{features}.")]
    if call.made is not None and call.made_values is not None:
        # the first step that reads the features' own memory, else the first that reads them after a plain function such as F.relu
        for i, step in enumerate(after):
            if step.given is None or step.given_values is None or step.given_values.shape != call.made_values.shape:
                continue
            between = matching(call.made_values, step.given_values)
            if between is not None:
                steps = _names(after[i:])
                if between != "identity":
                    steps = (f"{between}()", *steps)
                return Cut((f"{features}:output",), steps)
            break
    else:
        for i, step in enumerate(after):
            pooled = _pooled_from(record, f"{features}:output", step.given_values)
            if pooled is not None and not does_nothing(step.module):
                return Cut((f"{step.name}:input",), _names(after[i:]))
    if after:
        reads = f"'{after[0].name}' reads {after[0].given_shape}"
    else:
        reads = "no layer after it makes the output"
    raise ModelError(
        f"features='{features}' of {record.name} gives {call.made_shape} and {reads}: between the features and the head may lie "
        "only flattening, a global average pool and layers that a head may have. Name the last layer before the head, or leave "
        "features out"
    )


def _names(calls: Sequence[_Call]) -> tuple[str, ...]:
    """The steps from what the first call reads on."""
    names: list[str] = []
    for i, call in enumerate(calls):
        if i and call.function:
            names.append(call.function)
        if not does_nothing(call.module):
            names.append(call.name)
    return tuple(names)


def _pooled_from(record: _Record, point: str, target: Tensor | None) -> _Map | None:
    return next((m for m in reversed(record.maps) if m.point == point and _averages(m, target) is not None), None)


def _averages(space: _Map, target: Tensor | None) -> tuple[bool, str] | None:
    """How the target is the average of a map: (channels last, activation before the average)."""
    if target is None or float(target.std()) == 0:
        return None
    atol = 1e-5 * float(target.abs().max())
    for how, mean in space.means.items():
        if mean.shape == target.shape and torch.allclose(mean, target, rtol=1e-4, atol=atol):
            return how
    return None


def _with_spatial(module: nn.Module, cut: Cut, record: _Record, chain: list[_Call]) -> Cut:
    if len(cut.features) > 1:
        return replace(cut, no_spatial=f"the features are of several layers ({', '.join(cut.features)})")
    steps = [call for call in chain if call.given_values is not None]
    if cut.reads:
        steps = [call for call in record.calls if f"{call.name}:input" == cut.features[0]][-1:]
    for i in range(len(steps)):
        for space in reversed(record.maps):
            how = _averages(space, steps[i].given_values)
            if how is not None:
                pooled = cut.head if cut.reads else _as_head(module, _names(steps[i:]))
                return replace(cut, spatial=space.point, spatial_last=how[0], spatial_activation=how[1], pooled=pooled)
    first = None
    if steps:
        first = steps[0]
    if first:
        looked = f"'{first.name}' reads {first.given_shape}"
    else:
        looked = f"'{cut.features[0]}'"
    return replace(cut, no_spatial=f"no map of {record.name} whose global average leads to the head: looked before {looked}")


def _as_head(module: nn.Module, names: tuple[str, ...]) -> tuple[str, ...] | None:
    try:
        for name in names:
            if not name.endswith("()"):
                read_layers(layer(module, name), name)
    except ModelError:
        return None
    return names


def _why_not(record: _Record, chain: list[_Call]) -> str:
    """Why no linear layer gives the output, by name."""
    C = vector(record.output).shape[1]
    wide = [
        c
        for c in record.calls
        if c.atomic and is_linear(c.module) and len(c.made_shape) > 1 and C in (c.made_shape[1], c.made_shape[-1])
    ]
    spread = [c for c in wide if c.made is None]
    single = [c for c in wide if c.made is not None]
    if chain and not single and not spread:
        last = chain[-1]
        kind = type(last.module).__name__
        return f"{record.name}: the output comes from '{last.name}' ({kind}), and no linear layer before it has {C} outputs"
    if spread and not single:
        c = spread[-1]
        return (
            f"{record.name}: its classifier '{c.name}' ({type(c.module).__name__}) runs on every place of a map or token "
            f"{c.made_shape} and pooling follows it, so there is no feature vector that a head reads"
        )
    if single and spread:
        also = f"'{spread[-1].name}' ({type(spread[-1].module).__name__}), which runs on every place of a map or token"
        return f"{record.name}: its output is not '{single[-1].name}' alone: it is combined with {also} {spread[-1].made_shape}"
    if len(single) > 1:
        heads = ", ".join(f"'{c.name}'" for c in single[-4:])
        return (
            f"{record.name}: its output combines {heads} otherwise than by their plain mean (by weights of its own, which "
            "training changes), so no one linear head stands for it"
        )
    listed = ", ".join(f"'{c.name}' {c.made_shape}" for c in wide[-4:]) or "none"
    return (
        f"{record.name}: its output is no linear layer's output and no mean of such; layers with {C} outputs: {listed}. "
        "Wrap the network so that its last step is a linear layer, or name features= and head="
    )
