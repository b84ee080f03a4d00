"""Scikit-learn's 1,797 handwritten digits, enlarged and coloured, with a cue that goes with the label."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import ndimage
from sklearn.datasets import load_digits

from rightreasons.data.cohort import FRACTIONS, Cohort
from rightreasons.data.planted._cues import Cue, locate, paint, slanted
from rightreasons.data.planted._world import (
    Association,
    Columns,
    Drawing,
    Share,
    boxes,
    build,
    cue_columns,
    looks,
    redraw_cue,
    split_rows,
    stream,
    with_noise,
)
from rightreasons.errors import SettingError
from rightreasons.families import with_settings

OBJECT_SHARE = 0.7  # of the image's side: the corners stay free for a cue outside the object's box
INK = 0.35  # above this share of full ink a pixel is object
CHUNK = 256 * 32 * 32  # pixels painted at a time: what a cache holds


@dataclass(frozen=True)
class DigitSettings:
    """What can be asked of `digits`, which explains it."""

    cue: str = "tag"
    agreement: Share = 0.95
    agreement_audit: Share | None = None
    agreement_test: Share | None = None
    place: str | Sequence[int] | None = None
    size: int | None = None
    strength: float = 1.0
    cue_noise: float = 0.0
    continuous: bool = False
    values: int = 2
    classes: int | Mapping[int, int] = 2
    n: int | None = None
    pixels: int = 32
    label_noise: float = 0.0
    pixel_noise: float = 0.07
    harder: float = 0.0
    fractions: Mapping[str, float] | None = None
    attribute: str = "cue"
    seed: int = 0


@with_settings(DigitSettings)
def digits(folder: str | os.PathLike[str], *, settings: DigitSettings) -> Cohort:
    """Scikit-learn's handwritten digits with a planted cue; label 0 is a digit below five, 1 the others.

    Parameters
    ----------
    cue : tag (a coloured square), patch (a striped square), ring (a coloured border), texture (of the background), cast (of
        colour), frequency (a faint pattern over everything, told by its band), slant (the digit leans left or right), none (an
        attribute that no pixel shows)
    agreement : share of `train` and `val` rows whose cue value goes with the label, or one share per class. 0.5 is no association
        between two values (1/values in general), 1 a cue that tells the label. A continuous cue lies on its label's side of
        the middle in this share of the rows.
    agreement_audit, agreement_test : the same for `audit` and `test`; no association by default
    place : of a tag or patch: top-left (default), top-right, bottom-left, bottom-right, centre (on the digit), random (off the
        digit, elsewhere in every image), or (row, column)
    size : side of a tag (5 at 32 pixels) or patch (8), width of a ring (2), in pixels
    strength : contrast of the cue, above 0 up to 1
    cue_noise, pixel_noise : standard deviation of pixel noise on a tag, patch or ring, and on the whole image
    continuous : the cue's value is a number between 0 and 1; the twin's is 1 minus it
    values : number of values of the cue, 2 up to the number of classes; the twin shows the next one
    classes : 2, 10 (the digit itself), or a mapping digit → class from 0; digits that it lacks are left out
    n : use this many digits, as evenly over the ten as they allow
    label_noise : share of wrong labels in `train` and `val`; the cue goes with the label as given, `true_label` keeps the truth
    harder : further pixel noise on images of the cue's last value (an unfairness that is no shortcut); a twin keeps its image's
    fractions : of the splits, 60/10/15/15 % by default, stratified on the digit
    attribute : name of the attribute's column

    Returns
    -------
    Cohort with splits, boxes and masks of the digit, twins with their attribute; further columns `cue_box`, `cue_mask`, `digit`,
    `agrees`, `true_label`.
    """
    classes: int | dict[str, int]
    if isinstance(settings.classes, int):
        classes = settings.classes
    else:
        classes = {str(digit): int(label) for digit, label in settings.classes.items()}  # keys as world.json keeps them
    fractions = dict(settings.fractions or FRACTIONS)
    recorded = {"world": "digits", **asdict(settings), "classes": classes, "fractions": fractions}
    columns = Columns(settings.attribute, settings.continuous)
    return build(folder, recorded, columns, lambda: {"manifest": draw_digit_world(recorded)})


def draw_digit_world(settings: Mapping[str, Any], draw: int = 0) -> Drawing:
    strokes, target = digit_images()
    classes = _classes(settings["classes"])
    rows = _some_digits(target, list(classes), settings["n"], settings["seed"])
    strokes, target = strokes[rows], target[rows]
    how = Association.of(
        classes=max(classes.values()) + 1,
        values=0 if settings["continuous"] else settings["values"],
        agreement=settings["agreement"],
        agreement_audit=settings["agreement_audit"],
        agreement_test=settings["agreement_test"],
        label_noise=settings["label_noise"],
        seed=settings["seed"],
    )
    pixels = _pixels(settings)
    cue = Cue.of(
        settings["cue"],
        pixels=pixels,
        size=settings["size"],
        place=settings["place"],
        strength=settings["strength"],
        noise=settings["cue_noise"],
        values=how.values,
    )
    split = split_rows(target, settings["fractions"], how.seed)
    true = np.array([classes[d] for d in target.tolist()])
    label = with_noise(true, split, how)
    attribute = settings["attribute"]
    shown = cue_columns(attribute, redraw_cue(label, split, how, draw), label, how)
    stacks = draw_digits(
        strokes,
        pixels,
        cue,
        looks(shown[attribute], how),
        looks(shown[f"twin_{attribute}"], how),
        pixel_noise=settings["pixel_noise"],
        harder=settings["harder"],
        rngs={task: stream(how.seed, task) for task in ("colour", "grain", "cue grain", "place")},
    )
    frame = pd.DataFrame({"id": [f"digit-{row:04d}" for row in rows], "label": label, **shown, "split": split})
    frame = frame.assign(box=boxes(stacks["masks"]), cue_box=boxes(stacks["cue_masks"]), digit=target, true_label=true)
    return Drawing(frame, stacks)


def _classes(chosen: int | Mapping[str, int]) -> dict[int, int]:
    if not isinstance(chosen, int):
        classes = {int(digit): int(label) for digit, label in chosen.items()}
        labels = sorted(set(classes.values()))
        if len(labels) < 2 or labels != list(range(len(labels))) or not set(classes) <= set(range(10)):
            raise SettingError(f"classes={classes}: map digits 0 to 9 to classes 0, 1, … of which there are at least two")
        return classes
    if chosen not in (2, 10):
        raise SettingError(f"classes={chosen}: give 2, 10 or a mapping digit → class")
    return {digit: digit if chosen == 10 else int(digit >= 5) for digit in range(10)}


def _some_digits(target: np.ndarray, wanted: Sequence[int], n: int | None, seed: int) -> np.ndarray:
    """Rows of the digits in use; of `n` the first in each digit's random order, so that smaller worlds lie within larger ones."""
    order = stream(seed, "digits").permutation(len(target))
    turn = np.empty(len(target), np.int64)
    for digit in range(10):
        mine = order[target[order] == digit]
        turn[mine] = np.arange(len(mine))
    known = np.flatnonzero(np.isin(target, wanted))
    if n is not None and not 20 <= n <= len(known):
        raise SettingError(f"n={n}: give 20 to {len(known)} digits")
    return np.sort(known[np.lexsort((target[known], turn[known]))][:n])


def _pixels(settings: Mapping[str, Any]) -> int:
    if settings["pixels"] < 12:
        raise SettingError(f"pixels={settings['pixels']}: a digit needs 12 or more")
    for key in ("pixel_noise", "harder"):
        if settings[key] < 0:
            raise SettingError(f"{key}={settings[key]}: give a standard deviation of at least 0")
    return int(settings["pixels"])


def digit_images() -> tuple[np.ndarray, np.ndarray]:
    """The digits (1797, 8, 8) in [0, 1] and which number each is."""
    images, target = load_digits(return_X_y=True)
    return images.reshape(-1, 8, 8) / 16.0, target


def draw_digits(
    strokes: np.ndarray,
    pixels: int,
    cue: Cue,
    look: np.ndarray,
    twin_look: np.ndarray,
    *,
    pixel_noise: float,
    harder: float,
    rngs: dict[str, np.random.Generator],
) -> dict[str, np.ndarray]:
    """Stacks of images, twins and masks, uint8 and bool.

    Parameters
    ----------
    strokes : (n, 8, 8)
    harder : standard deviation of further pixel noise on the rows of look 1, in proportion below; an image's twin keeps it
    """
    n = len(strokes)
    stacks = {name: np.empty((n, pixels, pixels, 3), np.uint8) for name in ("images", "twins")}
    stacks |= {name: np.empty((n, pixels, pixels), bool) for name in ("masks", "cue_masks")}
    for rows, ink in _enlarged(strokes, pixels):
        plain = _coloured(ink, rngs["colour"])
        grain = rngs["grain"].standard_normal(plain.shape, np.float32)
        plain = np.clip(plain + (pixel_noise + harder * look[rows, None, None, None]).astype(np.float32) * grain, 0, 1)
        own = rngs["cue grain"].standard_normal(ink.shape, np.float32)
        masks = ink > INK
        cue_masks = locate(cue, masks, rngs["place"])
        if cue.kind == "slant":
            stacks["masks"][rows] = slanted(cue, masks, look[rows])
        else:
            stacks["masks"][rows] = masks
        stacks["cue_masks"][rows] = cue_masks
        for name, value in (("images", look), ("twins", twin_look)):
            stacks[name][rows] = np.rint(255 * paint(cue, plain, value[rows], cue_masks, own))
    return stacks


def _enlarged(strokes: np.ndarray, pixels: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Ink (b, pixels, pixels) of some rows at a time, the digit in the middle."""
    side = round(OBJECT_SHARE * pixels)
    weights = ndimage.zoom(np.eye(8), (side / 8, 1), order=1, mode="nearest", grid_mode=True)
    before = (pixels - side) // 2
    step = max(1, CHUNK // pixels**2)
    for start in range(0, len(strokes), step):
        rows = slice(start, min(start + step, len(strokes)))
        ink = np.zeros((rows.stop - start, pixels, pixels), np.float32)
        ink[:, before : before + side, before : before + side] = weights @ strokes[rows] @ weights.T
        yield rows, ink


def _coloured(ink: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Light ink on a dark ground, both a little different in every image."""
    shade = rng.random((len(ink), 8), np.float32)
    ground = 0.10 + 0.10 * shade[:, :1] + 0.06 * shade[:, 1:4]
    light = 0.70 + 0.15 * shade[:, 4:5] + 0.10 * shade[:, 5:8]
    return ground[:, None, None, :] + ink[..., None] * (light - ground)[:, None, None, :]
