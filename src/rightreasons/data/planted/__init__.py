"""Planted worlds: images whose shortcut is known, with the counterfactual twin of every image.

`digits` (real handwriting), `fundus` (procedural, with an external cohort) and `blobs` (volumes with an atlas) write a folder and
give its Cohort; `redrawn` draws the cue of `train` and `val` again without association on the same images (a *balanced* set, in
contrast, is a subsample: `Cohort.balance`). Every random part has a stream of its own, so worlds of one seed share rows, splits
and all pixels but the cue's, whatever the cue, its strength and its agreement are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rightreasons.data.cohort import Cohort
from rightreasons.data.planted._blobs import blobs, draw_blob_world
from rightreasons.data.planted._cues import KINDS
from rightreasons.data.planted._digits import digits, draw_digit_world
from rightreasons.data.planted._fundus import draw_fundus_world, fundus
from rightreasons.data.planted._world import Drawing, read, record, write
from rightreasons.errors import SettingError

__all__ = ["KINDS", "blobs", "digits", "fundus", "read", "redrawn"]


def redrawn(folder: str | os.PathLike[str], *, draw: int = 1) -> Cohort:
    """The same images with the cue of `train` and `val` drawn again without association; ids, splits, `audit` and `test` stay.

    Written beside the world that `folder` holds, once per `draw` (any positive number: another draw).
    """
    if draw < 1:
        raise SettingError(f"draw={draw}: give a positive number; the world itself is draw 0")
    target = Path(folder)
    settings = record(target)
    name = "redrawn"
    if draw != 1:
        name = f"redrawn-{draw}"
    if not (target / f"{name}.csv").exists():
        drawing = _DRAW[settings["world"]](settings, draw)
        pixels = {stack: drawing.stacks[stack] for stack in ("images", "twins")}
        write(target, name, Drawing(drawing.frame, pixels), settings.get("nifti", False))
    return read(target, name)


_DRAW: dict[str, Callable[[Mapping[str, Any], int], Drawing]] = {
    "digits": draw_digit_world,
    "fundus": draw_fundus_world,
    "blobs": draw_blob_world,
}
