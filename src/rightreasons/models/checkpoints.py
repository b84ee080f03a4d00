"""Weights from a file into a network: which of its parts are read, what fits, and what is refused.

A training script may keep several models in one file (a student and its teacher, weights and their moving average). Where more
than one part fills the network and their numbers differ, nobody but the user can say which is meant: `part` names it.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from rightreasons.errors import CheckpointError
from rightreasons.models import provenance

CONTAINERS = ("state_dict", "model_state_dict", "model", "model_ema", "state_dict_ema", "net", "network", "weights", "params")
"""Keys under which training scripts keep the weights, tried in this order."""
RIVAL_SHARE = 0.9
"""Another part of a file is a rival of the weights where it has so many of their names, with the same shapes."""
POSITIONS = "pos_embed"
TEXT = frozenset(range(32, 127)) | frozenset(b"\t\r\n")
OLD_PICKLE = (b"c", b"(", b"}", b"]")
"""How a pickle of protocol 0 begins, which is text too: torch says what is in it."""


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of a file and what else it says.

    Attributes
    ----------
    container : keys under which the tensors were found, such as "state_dict"; empty where they are bare
    part : the prefix that the user named; empty where none was
    told : the file's own class_to_idx, id2label and classes, unread
    says : what the file, or a config beside it, says of the input that it was trained with
    """

    path: Path
    state: dict[str, Tensor]
    container: str = ""
    part: str = ""
    told: Mapping[str, Any] = field(default_factory=dict)
    says: Mapping[str, Any] = field(default_factory=dict)

    @property
    def labels(self) -> tuple[Any, ...] | None:
        """The label of each output, where the file says it; refused where what it says cannot be read."""
        return _labels(self.told, self.path)


@dataclass(frozen=True)
class Loaded:
    """What was put into a network.

    Attributes
    ----------
    prefix : what was taken off the names of the file
    ignored : names of the file that do not belong to the network
    resampled : name of a position embedding → what was done to it
    """

    prefix: str
    ignored: list[str]
    resampled: dict[str, str]


def read_checkpoint(path: str | Path, part: str | None = None) -> Checkpoint:
    """Tensors of a safetensors file, or of a torch file read with `weights_only=True`.

    Parameters
    ----------
    part : the key or the prefix of the weights that are meant, where the file has several: "state_dict_ema", "teacher"
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"no checkpoint at {path}" + (": it is a folder, name the file in it" if path.is_dir() else ""))
    _refuse_no_weights(path)
    if path.suffix == ".safetensors":
        try:
            state = load_file(path)
        except (SafetensorError, ValueError, OSError) as error:
            raise CheckpointError(f"{path} is no readable safetensors file: {error}") from error
        prefix = "" if part is None else _prefix(part, state, path)
        return Checkpoint(path, state, part=prefix, says=provenance.says({}, path))
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path} cannot be read as tensors alone: it holds Python objects, which could run code, or it is no torch file. "
            f"Save the state dict: torch.save(model.state_dict(), path). ({_first_line(error)})"
        ) from error
    except (RuntimeError, EOFError, ValueError, KeyError, OSError, AttributeError, IndexError, TypeError) as error:
        raise CheckpointError(f"{path} is no readable torch file (cut off, or a TorchScript archive?): {error}") from error
    is_container = isinstance(content, Mapping) and part in content
    container, state = _tensors(content, path, part if is_container else None)
    prefix = "" if part is None or is_container else _prefix(part, state, path)
    told = {
        key: content[key] for key in ("class_to_idx", "id2label", "classes") if isinstance(content, Mapping) and key in content
    }
    return Checkpoint(path, state, container, prefix, told, provenance.says(content, path))


def load_weights(module: nn.Module, checkpoint: Checkpoint, *, new_head: bool = False) -> Loaded:
    """Put a checkpoint's tensors into a network.

    A prefix that the network's own keys lack (`module.`, `model.`, …) is taken off; keys outside that prefix are a training
    script's own (losses, metrics) and are left. Everything else must fit, but for the position embedding of a timm ViT, which
    is resampled to the network's grid as timm does.

    Parameters
    ----------
    new_head : leave tensors whose first axis is of another length as they are: the head is to be trained anew
    """
    own = module.state_dict()
    prefix, state = _without_prefix(checkpoint, own)
    state, resampled = _with_resampled_positions(module, state, own)
    missing = [key for key in own if key not in state and not key.endswith("num_batches_tracked")]
    unknown = [key for key in state if key not in own]
    unexpected = [prefix + key for key in unknown if not prefix or (not checkpoint.part and prefix + key in checkpoint.state)]
    shapes = {
        key: (tuple(state[key].shape), tuple(own[key].shape))
        for key in state
        if key in own and state[key].shape != own[key].shape
    }
    if new_head:
        shapes = {key: (stored, wanted) for key, (stored, wanted) in shapes.items() if stored[1:] != wanted[1:]}
    if missing or unexpected or shapes:
        raise CheckpointError(_mismatch(checkpoint.path, module, len(own), missing, unexpected, shapes))
    _refuse_wrong_numbers(checkpoint.path, state, own)
    with torch.no_grad():
        for key, target in own.items():
            if key in state and state[key].shape == target.shape:
                target.copy_(state[key])
    return Loaded(prefix, unknown if prefix else [], resampled)


def count_classes(module: nn.Module, checkpoint: Checkpoint) -> int | None:
    """How many outputs a checkpoint's head has, where it is another number than the network's; None where nothing tells."""
    own = module.state_dict()
    _, state = _without_prefix(checkpoint, own)
    counts = {
        (len(state[key]), len(own[key]))
        for key in state
        if key in own and state[key].shape != own[key].shape and state[key].ndim and state[key].shape[1:] == own[key].shape[1:]
    }
    if len(counts) == 1:
        return counts.pop()[0]
    return None


# ---- what a file holds ----------------------------------------------------------------------------------------------------


def _refuse_no_weights(path: Path) -> None:
    """A text or nothing at all under the name of a checkpoint: a page of an error, or what Git LFS leaves for a file."""
    with path.open("rb") as file:
        start = file.read(512)
    if not start:
        raise CheckpointError(f"{path} is empty: fetch or save the checkpoint again")
    if start.startswith(b"version https://git-lfs"):
        raise CheckpointError(f"{path} is a pointer of Git LFS and not the file itself: fetch it with git lfs pull")
    is_text = all(byte in TEXT for byte in start)
    if is_text and start[:1] not in OLD_PICKLE:
        shown = start.decode("ascii").split("\n")[0][:40]
        raise CheckpointError(f"{path} is a text that begins with {shown!r}, and no weights: give a .safetensors or a torch file")


def _prefix(part: str, state: Mapping[str, Tensor], path: Path) -> str:
    """A prefix as it stands in front of names."""
    prefix = part.rstrip(".") + "."
    if not any(key.startswith(prefix) for key in state):
        found = sorted({key.partition(".")[0] for key in state})
        raise CheckpointError(f"{path} has no part {part!r}: its names begin with {', '.join(found[:8])}")
    return prefix


def _tensors(content: Any, path: Path, part: str | None) -> tuple[str, dict[str, Tensor]]:
    """The mapping of names to tensors inside what training scripts save around it, and the keys that led there."""
    keys: list[str] = []
    if part is not None:
        content = content[part]
        keys.append(part)
    while isinstance(content, Mapping):
        found = next((key for key in CONTAINERS if isinstance(content.get(key), Mapping)), None)
        if found is None:
            break
        if part is None:
            _refuse_rivals(content, found, path)
        content = content[found]
        keys.append(found)
    tensors: dict[str, Tensor] = {}
    content_is = f"a {type(content).__name__}"
    if isinstance(content, Mapping):
        tensors = {str(key): value for key, value in content.items() if isinstance(value, Tensor)}
        content_is = f"the keys {[str(key) for key in list(content)[:8]]}"
    if not tensors:
        raise CheckpointError(
            f"{path} holds no weights: found {content_is}, expected tensors by name, bare or under one of {', '.join(CONTAINERS)}"
        )
    return ".".join(keys), tensors


def _refuse_rivals(content: Mapping[Any, Any], found: str, path: Path) -> None:
    """Refuse a file whose further part has the names of the weights and other numbers, such as their moving average."""
    chosen = _named(content[found])
    rivals = [str(key) for key in content if key != found and _is_rival(chosen, content[key])]
    if rivals:
        names = " and ".join(repr(name) for name in (found, *rivals))
        raise CheckpointError(
            f"{path} holds {names}, whose numbers differ: say which is meant with part={rivals[0]!r} or part={found!r}"
        )


def _is_rival(chosen: Mapping[str, Tensor], other: Any) -> bool:
    if not isinstance(other, Mapping) or not chosen:
        return False
    tensors = _named(other)
    shared = [key for key in chosen if key in tensors and tensors[key].shape == chosen[key].shape]
    if len(shared) < RIVAL_SHARE * len(chosen):
        return False
    return not all(torch.equal(chosen[key], tensors[key]) for key in shared)


def _named(content: Mapping[Any, Any]) -> dict[str, Tensor]:
    return {str(key).removeprefix("module."): value for key, value in content.items() if isinstance(value, Tensor)}


def _labels(told: Mapping[str, Any], path: Path) -> tuple[Any, ...] | None:
    """Label values by output from `class_to_idx`, `classes` or `id2label`, where the file has one."""
    by_label = told.get("class_to_idx")
    if isinstance(by_label, Mapping) and by_label:
        numbers = list(by_label.values())
        if not _are_outputs(numbers):
            raise CheckpointError(
                f"{path} has a class_to_idx whose numbers are {_short(numbers)}, expected 0 to {len(numbers) - 1}: "
                "say the label value of every output with classes="
            )
        return tuple(sorted(by_label, key=by_label.__getitem__))
    by_index = told.get("id2label")
    if isinstance(by_index, Mapping) and by_index:
        numbers = [int(key) if str(key).isdigit() else key for key in by_index]
        if not _are_outputs(numbers):
            raise CheckpointError(
                f"{path} has an id2label whose keys are {_short(numbers)}, expected 0 to {len(numbers) - 1}: "
                "say the label value of every output with classes="
            )
        return tuple(by_index[key] for key in sorted(by_index, key=int))
    listed = told.get("classes")
    if isinstance(listed, list | tuple) and listed:
        return tuple(listed)
    return None


def _are_outputs(numbers: Sequence[Any]) -> bool:
    """Whether they are 0, 1, … in any order."""
    are_whole = all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
    return are_whole and sorted(numbers) == list(range(len(numbers)))


def _short(values: Sequence[Any]) -> str:
    return ", ".join(repr(value) for value in values[:6]) + (", …" if len(values) > 6 else "")


# ---- what fits ------------------------------------------------------------------------------------------------------------


def _without_prefix(checkpoint: Checkpoint, own: Mapping[str, Tensor]) -> tuple[str, dict[str, Tensor]]:
    """The prefix that, taken off where it stands, makes most keys match; the shortest of those that do equally well.

    Refused where several fill the network with different numbers.
    """
    state = checkpoint.state
    if checkpoint.part:
        return checkpoint.part, {key[len(checkpoint.part) :]: v for key, v in state.items() if key.startswith(checkpoint.part)}
    prefixes = {""}
    for key in state:
        parts = key.split(".")
        prefixes.update(".".join(parts[:depth]) + "." for depth in range(1, min(4, len(parts))))

    def stripped(prefix: str) -> dict[str, Tensor]:
        # a key with the prefix wins over one that is called so from the start
        bare = {key: value for key, value in state.items() if not key.startswith(prefix)}
        return bare | {key[len(prefix) :]: value for key, value in state.items() if key.startswith(prefix)}

    matched = {prefix: sum(key in own for key in stripped(prefix)) for prefix in prefixes}
    best, *others = sorted(prefixes, key=lambda prefix: (-matched[prefix], len(prefix), prefix))
    chosen = stripped(best)
    if all(key in chosen or key.endswith("num_batches_tracked") for key in own):
        for other in others:
            if matched[other] < matched[best]:
                break
            _refuse_equally_good(checkpoint.path, {best: chosen, other: stripped(other)}, own)
    return best, chosen


def _refuse_equally_good(path: Path, fitting: Mapping[str, Mapping[str, Tensor]], own: Mapping[str, Tensor]) -> None:
    """Refuse two parts that fill the network equally well where their numbers differ."""
    (first, one), (second, other) = fitting.items()
    for key in own:
        if key not in one or key not in other or one[key] is other[key]:
            continue
        if one[key].shape != other[key].shape or not torch.equal(one[key], other[key]):
            names = " and ".join(repr(name) if name else "bare names" for name in (first, second))
            raise CheckpointError(
                f"{path} holds {names}, which fit the network equally well and have different numbers: say which is meant "
                f"with part={second.rstrip('.')!r}" + (f" or part={first.rstrip('.')!r}" if first else "")
            )


def _refuse_wrong_numbers(path: Path, state: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    """Whole numbers in place of weights are quantised and mean nothing without their scales; NaN means nothing at all."""
    for key, target in own.items():
        if key not in state or not target.is_floating_point():
            continue
        stored = state[key]
        if not stored.is_floating_point() or stored.element_size() < 2:
            kinds = [str(one.dtype).removeprefix("torch.") for one in (stored, target)]
            raise CheckpointError(
                f"{path} holds {kinds[0]} for {key}, and the network has {kinds[1]}: quantised weights mean nothing without "
                "their scales; save them dequantised, as floats"
            )
        if torch.isnan(stored).any():
            raise CheckpointError(f"{path} holds NaN for {key}: the training broke down; take an earlier checkpoint")


def _with_resampled_positions(
    module: nn.Module, state: dict[str, Tensor], own: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The position embedding of a timm ViT at the network's grid, as timm's own loading makes it, and what was done."""
    stored, wanted = state.get(POSITIONS), own.get(POSITIONS)
    grid = getattr(getattr(module, "patch_embed", None), "grid_size", None)
    is_timm = type(module).__module__.startswith("timm.")
    if stored is None or wanted is None or grid is None or not is_timm or stored.ndim != 3 or stored.shape == wanted.shape:
        return state, {}
    prefix_tokens = 0 if getattr(module, "no_embed_class", False) else int(getattr(module, "num_prefix_tokens", 1))
    side = (stored.shape[1] - prefix_tokens) ** 0.5
    if stored.shape[2] != wanted.shape[2] or not stored.is_floating_point() or not side.is_integer():
        return state, {}
    from timm.layers.pos_embed import resample_abs_pos_embed

    made = resample_abs_pos_embed(stored, new_size=list(grid), num_prefix_tokens=prefix_tokens)
    if made.shape != wanted.shape:
        return state, {}
    return {**state, POSITIONS: made}, {POSITIONS: f"from {side:.0f} x {side:.0f} to {grid[0]} x {grid[1]} patches"}


def _mismatch(
    path: Path,
    module: nn.Module,
    n: int,
    missing: Sequence[str],
    unexpected: Sequence[str],
    shapes: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]],
) -> str:
    differing = [f"{key} {stored} in the file, {wanted} in the network" for key, (stored, wanted) in shapes.items()]
    differences = listed("missing", missing) + listed("unexpected", unexpected) + listed("of another shape", differing)
    hint = "name the architecture that was trained"
    if shapes and not missing and not unexpected:
        hint = "give the num_classes= and size= it was trained with, or new_head=True to train a new head on these weights"
    return f"{path} does not fit {type(module).__name__} ({n} tensors): {differences}{hint}"


def listed(what: str, keys: Sequence[str], most: int = 5) -> str:
    """The first few of many names, for an error."""
    if not keys:
        return ""
    more = f" and {len(keys) - most} more" if len(keys) > most else ""
    return f"{len(keys)} {what} ({', '.join(keys[:most])}{more}); "


def _first_line(error: Exception) -> str:
    """An error of another library in one line."""
    return ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
