"""A vision transformer seen as a sequence of tokens on its way through blocks, so that some of them can be left out.

Nothing here knows a library: the blocks are found by watching a forward pass, and each is called with what it was called with,
position tables cut to the tokens that remain. Blocks that are plain (`plain_blocks`) run in a form that saves work.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, NoReturn, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from rightreasons.errors import ModelError
from rightreasons.models import plain_blocks as plain
from rightreasons.models.classifier import Classifier
from rightreasons.models.forward import tensor_of, with_one_logit

MOST_PREFIX_TOKENS = 32
"""Class, distillation and register tokens in front of the patches; more than this is taken for a wrong grid."""
ATTENTION = ("attn", "attention", "self_attention", "self_attn")
POSITIONS = ("rope", "position_embeddings")  # arguments of a block that hold a row per patch
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2}
"""How far the blocks run here may be from the network's own logits, relative to the largest."""


@dataclass(frozen=True)
class Tokens:
    """One batch as it enters the first block, and the way from there to the logits.

    Parameters
    ----------
    blocks, calls : the blocks, and what each was called with beside the tokens
    biases : what each block's attention adds to its logits, (1, heads, N, N), where it adds something
    start : (b, N, D) tokens before the first block, positions added
    end : (b, N, D) after the last
    logits : (b, C) of the whole network
    prefix : class and register tokens in front
    grid : patches along each axis
    plain : the blocks as tensors, where all of them are of the common form; empty otherwise
    """

    classifier: Classifier
    images: Tensor
    blocks: tuple[nn.Module, ...]
    calls: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...]
    biases: tuple[Tensor | None, ...]
    start: Tensor
    end: Tensor
    logits: Tensor
    prefix: int
    grid: tuple[int, ...]
    last: nn.Module  # the network's own last block, which answers for what follows it
    plain: tuple[plain.Block, ...] = ()

    @property
    def count(self) -> int:
        """Number of patch tokens."""
        return self.start.shape[1] - self.prefix

    @cached_property
    def reads_prefix_only(self) -> bool:
        """Whether the layers after the blocks read only the tokens in front of the patches."""
        if not self.prefix:
            return False
        try:
            logits = self.after(self.end[:, : self.prefix])
        except (RuntimeError, IndexError, ValueError):
            return False
        return logits.shape == self.logits.shape and bool(torch.allclose(logits, self.logits, rtol=1e-4, atol=1e-5))

    def keeping(self, kept: Tensor) -> Tensor:
        """(s, n) numbers of tokens that stay, those in front included, of (s, m) patch numbers."""
        front = torch.arange(self.prefix, device=kept.device).expand(len(kept), -1)
        return torch.cat([front, kept + self.prefix], dim=1)

    def without(self, patches: Tensor) -> Tensor:
        """(s, N - 1) numbers of tokens that stay when patch `patches[s]` is left out."""
        rest = torch.arange(self.count - 1, device=patches.device).expand(len(patches), -1)
        return self.keeping(rest + (rest >= patches[:, None]))

    def block(self, i: int, x: Tensor, keep: Tensor | None) -> Tensor:
        """(s, n, D) through block i as the network itself runs it, position tables cut to the tokens that are kept."""
        args, kwargs = self.calls[i]
        if keep is None:
            return _tokens_of(self.blocks[i](x, *args, **kwargs))
        kwargs = {k: _at(v, keep[:, self.prefix :] - self.prefix) if k in POSITIONS else v for k, v in kwargs.items()}
        bias = self.biases[i]
        if bias is None:
            return _tokens_of(self.blocks[i](x, *args, **kwargs))
        cut = bias[0][:, keep[:, :, None], keep[:, None, :]].movedim(0, 1)
        with _Attention(lambda q, k, v, mask, scale: F.scaled_dot_product_attention(q, k, v, attn_mask=cut.to(q), scale=scale)):
            return _tokens_of(self.blocks[i](x, *args, **kwargs))

    def read(self, image: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        """(s, d) features and (s, C) logits of image `image[s]` seen through the tokens `keep[s]` alone."""
        x = self.start[image[:, None], keep]
        for i in range(len(self.blocks)):
            x = self.block(i, x, keep)
        with self._answering(x):
            return self.classifier.read(self.images[:1])

    def after(self, x: Tensor) -> Tensor:
        """(s, C) logits from tokens after the last block: the network's own norm, pooling and head."""
        with self._answering(x):
            return self.classifier.logits(self.images[:1])

    @contextmanager
    def _answering(self, x: Tensor) -> Iterator[None]:
        """While this is open, the network's last block returns these tokens, whatever its input."""

        def answer(_: nn.Module, args: Any, output: Any) -> Any:
            changed = x.to(_tokens_of(output).dtype)
            if isinstance(output, tuple):
                return (changed, *output[1:])
            return changed

        handle = self.last.register_forward_hook(answer)
        try:
            yield
        finally:
            handle.remove()

    def cast(self, dtype: torch.dtype) -> Tokens:
        """A copy whose blocks compute in another precision; the network itself is unchanged."""
        if dtype == self.start.dtype:
            return self
        blocks = self.blocks
        if not self.plain:
            blocks = tuple(copy.deepcopy(block).to(dtype) for block in self.blocks)
        return replace(
            self,
            blocks=blocks,
            calls=tuple((plain.cast(args, dtype), plain.cast(kwargs, dtype)) for args, kwargs in self.calls),
            start=self.start.to(dtype),
            plain=tuple(block.to(dtype) for block in self.plain),
        )


def read(classifier: Classifier, x: Tensor) -> Tokens:
    """The tokens of a batch; refused for a network that has no sequence of them."""
    blocks = _blocks(classifier, x[:1])
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    seen: list[Tensor] = []
    biases: list[Tensor | None] = []

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        keywords = dict(kwargs)
        if args:
            tokens = args[0]
        else:
            tokens = keywords.pop("hidden_states")
        seen.append(tokens)
        calls.append((args[1:], keywords))
        biases.append(None)

    def note(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
        if calls and isinstance(mask, Tensor):
            biases[-1] = mask if mask.ndim == 4 else mask[None]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)

    ends: list[Tensor] = []
    handles = []
    for block in blocks:
        handles.append(block.register_forward_pre_hook(before, with_kwargs=True))
    handles.append(blocks[-1].register_forward_hook(lambda _, args, output: ends.append(_tokens_of(output))))
    try:
        with _Attention(note):
            output = tensor_of(classifier.module(x), classifier.name)
    finally:
        for handle in handles:
            handle.remove()
    grid, N = grid_of(classifier), seen[0].shape[1]
    logits = with_one_logit(output.reshape(len(output), -1), classifier.output)
    whole = Tokens(classifier, x, blocks, tuple(calls), tuple(biases), seen[0], ends[0], logits, N - prod(grid), grid, blocks[-1])
    return replace(whole, plain=_checked_plain(whole))


def check(classifier: Classifier) -> None:
    """Refuse a network that has no sequence of tokens."""
    like = next(iter(classifier.parameters()))
    x = torch.zeros(1, classifier.geometry.channels, *classifier.geometry.size, device=like.device, dtype=like.dtype)
    with torch.no_grad(), _evaluating(classifier.module):
        _blocks(classifier, x)


def grid_of(classifier: Classifier) -> tuple[int, ...]:
    """How many patches lie along each axis of the network's input."""
    grid = patch_grid(classifier.module, classifier.geometry.size)
    if grid is None:
        _refuse(classifier, "it has no patch embedding that tells how its tokens lie on the image")
    return grid


def patch_grid(module: nn.Module, size: Sequence[int]) -> tuple[int, ...] | None:
    """How many patches lie along each axis: by the patch embedding, the first convolution whose stride is its width."""
    for each in module.modules():
        if (
            isinstance(each, nn.Conv2d | nn.Conv3d)
            and len(each.stride) == len(size)
            and each.stride == each.kernel_size != (1,) * len(size)
        ):
            return tuple(s // step for s, step in zip(size, each.stride))
    declared = getattr(getattr(module, "patch_embed", None), "grid_size", None)
    if isinstance(declared, tuple | list) and len(declared) == len(size):
        return tuple(map(int, declared))
    return None


@contextmanager
def attending(attend: Callable[..., Tensor]) -> Iterator[None]:
    """While this is open, `attend(q, k, v, mask, scale)` computes attention; q, k and v are (b, heads, n, d)."""
    with _Attention(attend):
        yield


# ---- what the functions above use ----------------------------------------------------------------------------------------


class _Attention(TorchFunctionMode):
    """Routes every scaled dot-product attention through a function."""

    def __init__(self, attend: Callable[..., Tensor]) -> None:
        super().__init__()
        self.attend = attend

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is F.scaled_dot_product_attention:
            q, k, v, mask = (*args, *([None] * 4))[:4]
            return self.attend(q, k, v, kwargs.get("attn_mask", mask), kwargs.get("scale"))
        if func is F.multi_head_attention_forward:
            return plain.multi_head(self.attend, *args, **kwargs)
        return func(*args, **kwargs)


def attention_logits(q: Tensor, k: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
    """(b, h, N, N) scaled products of queries and keys, the mask added: their softmax is the attention."""
    logits = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is None:
        return logits
    return logits + mask


def _are_blocks(layers: nn.Module) -> TypeGuard[nn.ModuleList | nn.Sequential]:
    """Whether a module is a list of layers of one class that hold attention."""
    if not isinstance(layers, nn.ModuleList | nn.Sequential) or not len(layers):
        return False
    return len(set(map(type, layers))) == 1 and any(hasattr(layers[0], name) for name in ATTENTION)


def _blocks(classifier: Classifier, x: Tensor) -> tuple[nn.Module, ...]:
    """The blocks of the one sequence of tokens that a network has, found by one pass of one image."""
    module = classifier.module
    lists = [tuple(layers) for layers in module.modules() if _are_blocks(layers)]
    if not lists:
        _refuse(classifier, "it has no blocks of attention over a sequence of tokens")
    if len(lists) > 1:
        _refuse(classifier, f"its attention comes in {len(lists)} stages (windows, or tokens that are merged on the way)")
    shapes: list[tuple[int, ...]] = []

    def note(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if args:
            tokens = args[0]
        else:
            tokens = kwargs.get("hidden_states")
        shapes.extend(tuple(t.shape) for t in (tokens, _tokens_of(output)) if isinstance(t, Tensor))

    handles = [block.register_forward_hook(note, with_kwargs=True) for block in lists[0]]
    try:
        module(x)
    finally:
        for handle in handles:
            handle.remove()
    grid = grid_of(classifier)
    if len(shapes) != 2 * len(lists[0]) or len(set(shapes)) > 1 or len(shapes[0]) != 3:
        _refuse(
            classifier, f"its blocks hand on {', '.join(map(str, dict.fromkeys(shapes)))}, not one sequence (1, tokens, channels)"
        )
    prefix = shapes[0][1] - prod(grid)
    if not 0 <= prefix <= MOST_PREFIX_TOKENS:
        _refuse(classifier, f"it has {shapes[0][1]} tokens and its patches form a grid of {grid}")
    return lists[0]


def _checked_plain(tokens: Tokens) -> tuple[plain.Block, ...]:
    """The blocks as tensors, where running them that way gives the network's own output."""
    if any(bias is not None for bias in tokens.biases) or any(set(kwargs) & set(POSITIONS) for _, kwargs in tokens.calls):
        return ()
    candidates = [plain.of(block) for block in tokens.blocks]
    blocks = tuple(block for block in candidates if block is not None)
    if len(blocks) < len(candidates):
        return ()
    x = tokens.start[:1].detach()
    with torch.no_grad():
        for block in blocks:
            x = plain.run(x, block)
    end = tokens.end[:1]
    off = float((x - end).abs().max()) / max(float(end.abs().max()), 1e-6)
    if off <= TOLERANCE.get(x.dtype, 1e-4):
        return blocks
    return ()


def _tokens_of(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple | list) else output  # type: ignore[no-any-return]


def _at(table: Any, kept: Tensor) -> Any:
    """Rows `kept` (s, m) of a position table (patches, d) or (heads, patches, d), as (s, heads or 1, m, d)."""
    if isinstance(table, tuple | list):
        return type(table)(_at(each, kept) for each in table)
    if not isinstance(table, Tensor):
        return table
    if table.ndim == 4:  # a batch of one table
        table = table[0]
    if table.ndim == 2:
        return table[kept][:, None]
    return table[:, kept].movedim(0, 1)


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    modes = [(each, each.training) for each in module.modules()]
    try:
        module.eval()
        yield
    finally:
        for each, mode in modes:
            each.training = mode


def _refuse(classifier: Classifier, why: str) -> NoReturn:
    raise ModelError(
        f"no token of {classifier.name} can be left out: {why}. Ask for token_influence(by=occlusion), which covers patches of "
        "pixels and works for any network"
    )


def pairs(count: int, images: Sequence[int] | range, device: torch.device) -> tuple[Tensor, Tensor]:
    """(s,) image and (s,) patch of every removal, image by image."""
    image = torch.tensor(list(images), device=device).repeat_interleave(count)
    return image, torch.arange(count, device=device).repeat(len(images))
