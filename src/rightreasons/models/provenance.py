"""Where a classifier's settings and weights came from: what was given, what a library knows, what a checkpoint says of itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

INPUT = ("size", "mean", "std", "crop", "interpolation")
WORDS = {
    "size": ("input_size", "img_size", "image_size", "crop_size", "size", "resolution"),
    "mean": ("mean", "image_mean", "pixel_mean"),
    "std": ("std", "image_std", "pixel_std"),
    "crop": ("crop_pct", "crop"),
    "interpolation": ("interpolation",),
}
"""How training scripts and libraries call the settings of the input."""
LARGEST_CONFIG = 1 << 20

DEEPEST = 4


def sources(spec: str, given: Mapping[str, Any]) -> dict[str, str]:
    """Setting of the input → where it came from."""
    library, _, name = spec.partition(":")
    known = {"timm": f"timm's setting for {name}", "torchvision": f"torchvision's setting for {name}"}
    known |= {"hf": f"the image processor of {name}", "monai": "rightreasons' default"}
    usual = known.get(library, "rightreasons' default")
    return {key: "given" if given.get(key) is not None else usual for key in INPUT}


def says(content: Any, path: Path) -> dict[str, Any]:
    """What a checkpoint, or a config.json beside it, says of the input it was trained with."""
    settings: dict[str, Any] = {}
    places = [mapping for _, mapping in _mappings(content, ())]
    for name in ("config.json", "preprocessor_config.json", "args.json"):
        places += [mapping for _, mapping in _mappings(_config(path.parent / name), ())]
    for mapping in places:
        for key, words in WORDS.items():
            value = next((mapping[word] for word in words if _is_setting(key, mapping.get(word))), None)
            if value is not None:
                settings.setdefault(key, _plain(key, value))
    return settings


def _mappings(content: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    if not isinstance(content, Mapping) or len(path) > DEEPEST:
        return
    yield path, content
    for key, value in content.items():
        yield from _mappings(value, (*path, str(key)))


def _config(path: Path) -> Any:
    """A small JSON file; None where it is missing or is not JSON, because nothing depends on its hints."""
    try:
        if path.stat().st_size > LARGEST_CONFIG:
            return None
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def _is_setting(key: str, value: Any) -> bool:
    if key == "interpolation":
        return isinstance(value, str)
    if isinstance(value, Mapping):
        return key == "size" and {"height", "width"} <= set(value)
    values = value if isinstance(value, list | tuple) else [value]
    return bool(values) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def _plain(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return [int(value["height"]), int(value["width"])]
    several = isinstance(value, list | tuple)
    if key == "size":
        sides = list(map(int, value if several else [value]))
        if len(sides) == 3 and sides[0] in (1, 3):  # channels come first
            return sides[1:]
        return sides
    if several:
        return list(map(float, value))
    return value
