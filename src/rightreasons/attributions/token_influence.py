"""Token influence (TSI, sec. 3.1.1, definition 1): how much of the explained class's probability is lost without one token.

Exact leave-one-out: every token is left out in turn, after position embeddings and before the first block, and the network runs
on those that remain. Class and register tokens always stay; networks that average their tokens average what remains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import Tensor

from rightreasons.attributions._explained_score import checked, explaining
from rightreasons.errors import ModelError, SettingError
from rightreasons.models import plain_blocks as plain
from rightreasons.models import tokens
from rightreasons.models.classifier import Classifier
from rightreasons.models.fills import filled

PRECISIONS = {"float32": None, "tf32": None, "fp16": torch.float16}
WAYS = ("drop", "occlusion")
CPU_BYTES, GPU_BYTES = 4 * 2**20, 2**31
"""How large the widest tensor of one pass may be by default: within a core's cache, or a part of a GPU's memory."""
LEAST_KEPT = 1e-3
"""Where a query gives nearly all its weight to one key, what is left of it is rounding below this."""


def maps(  # noqa: PLR0913  each keyword is a documented setting
    classifier: Classifier,
    x: Tensor,
    *,
    target: Tensor,
    by: str = "drop",
    precision: str = "float32",
    together: int = 0,
    compiled: bool = False,
    patch: int = 0,
    fill: str = "zero",
) -> Tensor:
    """(b, gh, gw) softmax probability of the target minus its probability without that token; signed.

    Parameters
    ----------
    by : "drop" leaves the token out; "occlusion" covers its pixels instead, for any network
    precision : "float32", "tf32" (CUDA; on a trained ViT-Ti its maps have a median Spearman of 0.999 with float32) or "fp16"
        (0.99, the same top token on 97 % of images). bfloat16 is refused: 0.78
    together : sequences (image and token) in one pass; by default as many as fit a cache or a part of a GPU's memory. Halved
        where memory runs out
    compiled : with torch.compile, which takes a minute once and pays for many images
    patch, fill : for occlusion: pixels along a side (0: the network's own patch), and what covers them (`_fill.filled`)
    """
    with explaining(classifier, x, target) as (images, outputs):
        settings: dict[str, Any] = {"precision": precision, "together": together, "compiled": compiled}
        return work(classifier, images, by=by, patch=patch, fill=fill, **settings).maps(outputs)


@dataclass(frozen=True)
class Removals:
    """What a network says of whole images and of each without one token: serves every class.

    Parameters
    ----------
    whole : (b, C) probabilities
    removed : (b, gh, gw, C)
    notes : what should be kept with the maps, such as a smaller batch after memory ran out
    """

    whole: Tensor
    removed: Tensor
    notes: dict[str, Any] = field(default_factory=dict)

    def maps(self, target: Tensor) -> Tensor:
        """(b, gh, gw) for the output to explain of each image."""
        at = target.to(self.whole.device)
        whole = self.whole.gather(1, at[:, None])[:, :, None]
        return whole - self.removed.gather(3, at[:, None, None, None].expand(*self.removed.shape[:3], 1))[..., 0]


def work(
    classifier: Classifier,
    x: Tensor,
    *,
    by: str = "drop",
    precision: str = "float32",
    together: int = 0,
    compiled: bool = False,
    patch: int = 0,
    fill: str = "zero",
) -> Removals:
    """The expensive part, computed for every class at once; settings as in `maps`."""
    _refuse_settings(by, precision, together)
    everything = torch.zeros(len(x), dtype=torch.int64, device=x.device)
    with explaining(classifier, x, everything) as (images, _), torch.no_grad():
        if by == "occlusion":
            return _occluded(classifier, images, patch, fill, precision, together)
        with _matmul(precision):
            seen = tokens.read(classifier, images).cast(PRECISIONS[precision] or images.dtype)
            image, number = tokens.pairs(seen.count, range(len(images)), images.device)
            removed, notes = _without_each(seen, image, number, together, compiled)
            whole = _probability(_run_whole(seen))
    removed = checked(removed.view(len(x), *seen.grid, -1), "token_influence", classifier)
    return Removals(whole, removed, notes)


def screened(
    classifier: Classifier,
    x: Tensor,
    *,
    target: Tensor,
    inside: Tensor,
    keep: int = 22,
    precision: str = "float32",
    together: int = 0,
) -> Tensor:
    """(b, gh, gw) exact influence of the tokens that can decide the largest inside and outside an object, NaN for the others.

    The tokens are ranked by an estimate from one backward pass (`expected`); the first `keep` inside and the first
    `keep` outside are then left out one by one; where one side has fewer tokens, the other gets what is left over.

    Parameters
    ----------
    inside : (b, gh, gw) which tokens the object covers
    """
    _refuse_settings("drop", precision, together)
    if keep < 1:
        raise SettingError(f"keep={keep}: give at least 1")
    with explaining(classifier, x, target) as (images, outputs):
        seen = tokens.read(classifier, images)
        score = _expected(seen, outputs)
        if inside.shape != (len(x), *seen.grid):
            raise SettingError(f"inside is {tuple(inside.shape)}, and {classifier.name} has tokens {(len(x), *seen.grid)}")
        within = inside.flatten(1).to(score.device)
        chosen = candidates(score, within, keep)
        image, number = chosen.nonzero(as_tuple=True)
        with torch.no_grad(), _matmul(precision):
            cast = seen.cast(PRECISIONS[precision] or images.dtype)
            removed, _ = _without_each(cast, image, number, together, False)
            whole = _probability(_run_whole(cast))
        influence = score.new_full(chosen.shape, torch.nan)
        influence[chosen] = (whole[image] - removed).gather(1, outputs[image][:, None])[:, 0].to(influence)
        return influence.view(len(x), *seen.grid)


def expected(classifier: Classifier, x: Tensor, *, target: Tensor) -> Tensor:
    """(b, gh, gw) estimate of the influence from one forward and one backward pass; nothing is left out.

    Without key i, a query that gives it the weight a sees a / (1 - a) · (o - v) more than the o that it saw: exact in each layer.
    What that does to the probability is taken from the gradient, and summed over layers and all queries but the token's own,
    which is gone too. Where the patches are pooled, their pool without the token is run exactly, which costs next to nothing.
    """
    with explaining(classifier, x, target) as (images, outputs):
        seen = tokens.read(classifier, images)
        return _expected(seen, outputs).view(len(x), *seen.grid)


def check(classifier: Classifier, *, by: str = "drop", **_: Any) -> None:
    """Refuse a network that has no tokens to leave out, before anything runs."""
    if by != "occlusion":
        tokens.check(classifier)


# ---- leaving tokens out --------------------------------------------------------------------------------------------------


def _without_each(
    seen: tokens.Tokens, image: Tensor, number: Tensor, together: int, compiled: bool
) -> tuple[Tensor, dict[str, Any]]:
    """(s, C) probabilities of image `image[s]` without its patch `number[s]`, and notes."""
    size = min(together or _fitting(seen), len(image))
    while True:
        try:
            removed = _in_chunks(seen, image, number, size, compiled)
            break
        except torch.OutOfMemoryError:
            if size == 1:
                raise
            size = _smaller(size, len(image))
            if image.is_cuda:
                torch.cuda.empty_cache()
        except RuntimeError as error:
            raise ModelError(
                f"{seen.classifier.name} does not run with a token less ({error}): ask for token_influence(by=occlusion)"
            ) from error
    wanted = together or _fitting(seen)
    return removed, {"together": size} if size < min(wanted, len(image)) else {}


def _in_chunks(seen: tokens.Tokens, image: Tensor, number: Tensor, size: int, compiled: bool) -> Tensor:
    if seen.plain:
        opening = plain.Opening.of(seen.start, seen.plain[0])
    else:
        opening = None
    is_short = bool(seen.plain) and seen.reads_prefix_only
    ends, probabilities = [], []
    for start in range(0, len(image), size):
        x = _through(seen, image[start : start + size], number[start : start + size], opening, is_short, compiled)
        if is_short:
            ends.append(x)
        else:
            probabilities.append(_probability(seen.after(x)))
    if is_short:
        return _probability(seen.after(torch.cat(ends)))
    return torch.cat(probabilities)


def _through(
    seen: tokens.Tokens, image: Tensor, number: Tensor, opening: plain.Opening | None, is_short: bool, compiled: bool
) -> Tensor:
    """(s, n, D) after the last block; only the tokens in front where no other is read."""
    keep = seen.without(number)
    x = seen.start[image[:, None], keep]
    if opening is None:
        for i in range(len(seen.blocks)):
            x = seen.block(i, x, keep)
        return x
    made: Callable[[Callable[..., Tensor]], Callable[..., Tensor]] = plain.compiled if compiled else lambda function: function
    x = made(plain.rest)(x, opening.without(image, number + seen.prefix, keep), seen.plain[0])
    for block in seen.plain[1:-1]:
        x = made(plain.run)(x, block)
    if len(seen.plain) == 1:
        return x
    if is_short:
        return made(plain.run_for)(x, seen.plain[-1], seen.prefix)
    return made(plain.run)(x, seen.plain[-1])


def _run_whole(seen: tokens.Tokens) -> Tensor:
    """(b, C) logits of whole images in the precision of the removals, so that rounding does not look like influence."""
    x = seen.start
    for i in range(len(seen.blocks)):
        if seen.plain:
            x = plain.run(x, seen.plain[i])
        else:
            x = seen.block(i, x, None)
    return seen.after(x)


def _probability(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).softmax(1)


def _fitting(seen: tokens.Tokens) -> int:
    """How many sequences fit in memory, by their widest tensor (the perceptron's)."""
    if seen.plain:
        wide = len(seen.plain[0].fc1[0])
    else:
        wide = 4 * seen.start.shape[2]
    if seen.start.is_cuda:
        budget = GPU_BYTES
    else:
        budget = CPU_BYTES * torch.get_num_threads()
    return max(1, budget // (seen.start.shape[1] * wide * seen.start.element_size()))


def _smaller(size: int, total: int) -> int:
    """The largest divisor of the total that is at most half the size."""
    return next(d for d in range(size // 2, 0, -1) if total % d == 0)


@contextmanager
def _matmul(precision: str) -> Iterator[None]:
    """Use TF32 in matrix products while this is open, if asked for."""
    before = torch.get_float32_matmul_precision()
    try:
        if precision == "tf32":
            torch.set_float32_matmul_precision("high")
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _refuse_settings(by: str, precision: str, together: int) -> None:
    if by not in WAYS:
        raise SettingError(f"by='{by}': give one of {', '.join(WAYS)}")
    if precision == "bf16":
        raise SettingError(
            "precision='bf16': on a trained ViT-Ti its maps have a median Spearman of only 0.78 with float32; give float32, "
            "tf32 or fp16"
        )
    if precision not in PRECISIONS:
        raise SettingError(f"precision='{precision}': give one of {', '.join(PRECISIONS)}")
    if together < 0:
        raise SettingError(f"together={together}: give 0 (as many as fit) or more")


# ---- the screen ----------------------------------------------------------------------------------------------------------


def _expected(seen: tokens.Tokens, target: Tensor) -> Tensor:
    """(b, T), a few images at a time: every layer's attention is held until the backward pass."""
    N, heads = seen.start.shape[1], max(1, seen.start.shape[2] // 64)
    if seen.start.is_cuda:
        budget = GPU_BYTES
    else:
        budget = GPU_BYTES // 4
    size = max(1, budget // (2 * len(seen.blocks) * heads * N * N * seen.start.element_size()))
    parts = []
    for at in range(0, len(target), size):
        parts.append(_expected_of(seen, seen.start[at : at + size], target[at : at + size]))
    return torch.cat(parts)


def _expected_of(seen: tokens.Tokens, start: Tensor, target: Tensor) -> Tensor:
    """(s, T) of images of the batch, given by their tokens as they enter the first block."""
    own = torch.eye(start.shape[1], dtype=torch.bool, device=start.device)
    losses = start.new_zeros(start.shape[:2])

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
        logits = tokens.attention_logits(q, k, mask, scale)
        weights = logits.softmax(-1)
        kept = (1 - weights.detach()).clamp(min=LEAST_KEPT)

        def note(slope: Tensor) -> None:
            losses.add_((slope / kept).masked_fill(own, 0).sum((1, 2)))

        logits.register_hook(note)
        return weights @ v

    first = x = start.detach().requires_grad_(True)
    with tokens.attending(attend):
        for i in range(len(seen.blocks)):
            x = seen.block(i, x, None)
    chance = _probability(seen.after(x)).gather(1, target[:, None]).sum()
    torch.autograd.grad(chance, first)
    by_blocks = losses[:, seen.prefix :]
    if seen.reads_prefix_only:
        return by_blocks
    return by_blocks + _lost_at_the_pool(seen, x.detach(), target)


@torch.no_grad()
def _lost_at_the_pool(seen: tokens.Tokens, end: Tensor, target: Tensor) -> Tensor:
    """(s, T) the target's loss when a patch is missing after the last block only."""
    image, number = tokens.pairs(seen.count, range(len(end)), end.device)
    size = _fitting(seen)
    rest = []
    for at in range(0, len(image), size):
        rest.append(_probability(seen.after(end[image[at : at + size, None], seen.without(number[at : at + size])])))
    lost = _probability(seen.after(end))[image] - torch.cat(rest)
    return lost.gather(1, target[image][:, None]).view(len(end), seen.count).to(end)


def candidates(score: Tensor, inside: Tensor, keep: int) -> Tensor:
    """(b, T) whether a token is among the `keep` largest of its side; a side with fewer tokens leaves the rest to the other."""
    chosen = torch.zeros_like(inside)
    for side in (inside, ~inside):
        other = (~side).sum(1, keepdim=True)  # without an object there is no ratio to find, and nothing to hand on
        few = keep + torch.where(other > 0, keep - other, 0).clamp(min=0)
        rank = score.masked_fill(~side, -torch.inf).argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        chosen |= side & (rank < few)
    return chosen


# ---- covering pixels instead ---------------------------------------------------------------------------------------------


def _occluded(classifier: Classifier, x: Tensor, patch: int, fill: str, precision: str, together: int) -> Removals:
    sides = patch_of(classifier, patch)
    grid = tuple(-(-size // side) for size, side in zip(x.shape[2:], sides))
    covers, T = filled(classifier, x, fill), prod(grid)
    at = cells(x.shape[2:], sides, x.device)

    def covered(image: Tensor, which: Tensor) -> Tensor:
        here = at == which.view(-1, *(1 for _ in grid))
        return torch.where(here[:, None], covers[image], x[image])

    image, which = tokens.pairs(T, range(len(x)), x.device)
    size = together or max(1, (GPU_BYTES if x.is_cuda else 12 * CPU_BYTES) // (64 * x[0].numel() * x.element_size()))
    cast: Callable[[Tensor], Tensor] = lambda t: _probability(classifier.logits(t))  # noqa: E731
    with _matmul(precision), torch.autocast(x.device.type, torch.float16, enabled=precision == "fp16"):
        removed = []
        for start in range(0, len(image), size):
            removed.append(cast(covered(image[start : start + size], which[start : start + size])))
        whole = cast(x)
    return Removals(whole, checked(torch.cat(removed).view(len(x), *grid, -1), "token_influence", classifier))


def cells(size: torch.Size | tuple[int, ...], sides: tuple[int, ...], device: torch.device) -> Tensor:
    """(*size) the number of the cell that each pixel lies in, row by row."""
    number = torch.zeros((), dtype=torch.int64, device=device)
    for length, side in zip(size, sides):
        number = number[..., None] * -(-length // side) + torch.arange(length, device=device) // side
    return number


def patch_of(classifier: Classifier, patch: int = 0) -> tuple[int, ...]:
    """Pixels along each side of a cell: as given, or those of the network's own patches."""
    size = classifier.geometry.size
    if patch:
        if not 1 <= patch <= min(size):
            raise SettingError(f"patch={patch} of images of {size} pixels: give 1 to {min(size)}")
        return (patch,) * len(size)
    grid = tokens.patch_grid(classifier.module, size)
    if grid is None:
        raise ModelError(f"{classifier.name} has no patches of its own: say how large a cell is, patch=16")
    return tuple(s // g for s, g in zip(size, grid))
