"""A procedural fundus-like world: lesions decide the label, the camera (or the patient's age) goes with it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import ndimage

from rightreasons.data.cohort import FRACTIONS, Cohort
from rightreasons.data.planted._world import (
    Association,
    Columns,
    Drawing,
    Share,
    boxes,
    build,
    cue_columns,
    labels,
    looks,
    redraw_cue,
    split_rows,
    stream,
    with_noise,
)
from rightreasons.errors import SettingError
from rightreasons.families import suggest, with_settings
from rightreasons.progress import track

CUES = ("rim", "notch", "gradient", "cast", "blur", "age", "none")
CHUNK = 128
LESIONS = 6  # at most, in one image
CURVES = 8  # main vessels: an artery and a vein above and below, towards the macula and away from it
BRANCHES = 16


@dataclass(frozen=True)
class FundusSettings:
    """What can be asked of `fundus`, which explains it."""

    n: int = 2000
    n_external: int = 1000
    pixels: int = 64
    cue: str = "rim"
    agreement: Share = 0.95
    agreement_audit: Share | None = None
    agreement_test: Share | None = None
    agreement_external: Share | None = None
    continuous: bool | None = None
    strength: float = 1.0
    lesion_contrast: float = 1.0
    prevalence: float = 0.5
    label_noise: float = 0.0
    fractions: Mapping[str, float] | None = None
    seed: int = 0


@with_settings(FundusSettings)
def fundus(folder: str | os.PathLike[str], *, settings: FundusSettings) -> Cohort:
    """Round fields of view on black with optic disc, macula and vessels; label 1 has haemorrhages and exudates, label 0 none.

    Parameters
    ----------
    n_external : rows of a second site, manifest `external` (`planted.read(folder, "external")`); 0 is none
    cue : rim (a bright ring at the edge of the field), notch (a cut in it), gradient (light from one side), cast (of colour),
        blur, age (vessels grow tortuous, the lens yellow and dim), none
    agreement, agreement_audit, agreement_test : as for `digits`
    agreement_external : at the second site; no association by default
    continuous : the attribute is a number; by default for age only (years, mean 60; the twin's is mirrored there)
    strength : of the cue, above 0 up to 1
    lesion_contrast : above 0 up to 1; lower is a harder task
    prevalence : share of label 1

    Returns
    -------
    Cohort with attribute `device` (or `age`), site, splits, twins; `mask` and `box` are of the lesions (empty for healthy eyes);
    further columns `cue_box`, `cue_mask`, `field` (box of the field of view), `eye`, `agrees`, `true_label`.
    """
    if settings.continuous is None:
        is_continuous = settings.cue == "age"
    else:
        is_continuous = settings.continuous
    fractions = dict(settings.fractions or FRACTIONS)
    recorded = {"world": "fundus", **asdict(settings), "continuous": is_continuous, "fractions": fractions}
    _check(recorded)
    columns = Columns("age" if settings.cue == "age" else "device", is_continuous, site=True)

    def draw() -> dict[str, Drawing]:
        drawings = {"manifest": draw_fundus_world(recorded)}
        if settings.n_external:
            drawings["external"] = draw_fundus_world(recorded, external=True)
        return drawings

    return build(folder, recorded, columns, draw)


def draw_fundus_world(settings: Mapping[str, Any], draw: int = 0, *, external: bool = False) -> Drawing:
    seed, pixels, years = settings["seed"], settings["pixels"], settings["cue"] == "age" and settings["continuous"]
    site = "external" if external else "internal"
    how = _association(settings, external)
    if external:
        n = settings["n_external"]
    else:
        n = settings["n"]
    true = labels(n, settings["prevalence"], stream(seed, f"{site} labels"))
    if external:
        split = np.full(n, "external", object)
    else:
        split = split_rows(true, settings["fractions"], seed)
    label = with_noise(true, split, how)
    name = "age" if settings["cue"] == "age" else "device"
    shown = cue_columns(name, redraw_cue(label, split, how, draw), label, how, years)
    look = looks(shown[name], how, years)
    twin_look = looks(shown[f"twin_{name}"], how, years)
    eyes = _eyes(true, stream(seed, f"{site} anatomy"))
    grain = stream(seed, f"{site} grain")
    stacks = {key: np.empty((n, pixels, pixels, 3), np.uint8) for key in ("images", "twins")}
    stacks |= {key: np.empty((n, pixels, pixels), bool) for key in ("masks", "cue_masks", "fields")}
    for start in track(range(0, n, CHUNK), f"fundus images ({site})"):
        rows = slice(start, min(start + CHUNK, n))
        part = {key: values[rows] for key, values in eyes.items()}
        noise = grain.standard_normal((rows.stop - start, pixels, pixels), np.float32)
        drawn = _draw_eyes(part, look[rows], twin_look[rows], noise, settings)
        for key, values in drawn.items():
            stacks[key][rows] = values
    frame = pd.DataFrame({"id": [f"{site}-{row:05d}" for row in range(n)], "label": label, **shown, "split": split, "site": site})
    frame = frame.assign(
        box=boxes(stacks["masks"]),
        cue_box=boxes(stacks["cue_masks"]),
        field=boxes(stacks.pop("fields")),
        eye=np.where(eyes["side"] > 0, "right", "left"),
        true_label=true,
    )
    return Drawing(frame, stacks)


def _check(settings: Mapping[str, Any]) -> None:
    if settings["cue"] not in CUES:
        raise SettingError(f"no cue named {settings['cue']!r}; {suggest(settings['cue'], CUES)}")
    if settings["n"] < 20 or settings["n_external"] < 0 or settings["pixels"] < 32:
        raise SettingError(
            f"n={settings['n']}, n_external={settings['n_external']}, pixels={settings['pixels']}: "
            "at least 20 rows, no negative number of external ones, and 32 pixels expected"
        )
    for key in ("strength", "lesion_contrast"):
        if not 0 < settings[key] <= 1:
            raise SettingError(f"{key}={settings[key]}: above 0 up to 1 expected")
    _association(settings, external=False)


def _association(settings: Mapping[str, Any], external: bool) -> Association:
    values = 0 if settings["continuous"] else 2
    inner = ("agreement", "agreement_audit", "agreement_test")
    how = Association.of(
        values=values, seed=settings["seed"], label_noise=settings["label_noise"], **{key: settings[key] for key in inner}
    )
    if not external:
        return how
    away = settings["agreement_external"]
    return Association.of(values=values, seed=settings["seed"], agreement=0.5 if away is None else away).everywhere("external")


# ---- anatomy: every random number of every eye, then the pixels ------------------------------------------------------------


def _eyes(label: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """What makes each eye, first axis eyes; lengths in half sides of the image."""
    n = len(label)
    side = rng.choice([-1.0, 1.0], n)  # where the optic disc lies
    disc = np.stack([0.45 * side, np.zeros(n)], axis=1) + rng.normal(0, 0.03, (n, 2))
    radius = 0.62 * np.sqrt(rng.random((n, LESIONS)))  # clear of the edge, where rim and notch are
    angle = 2 * np.pi * rng.random((n, LESIONS))
    spots = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)
    on_disc = np.hypot(*np.moveaxis(spots - disc[:, None], -1, 0)) < 0.25
    spots[..., 0] *= np.where(on_disc, -1, 1)  # the other side of the eye has no disc
    count = rng.integers(2, LESIONS + 1, n) * label
    return {
        "side": side,
        "disc": disc,
        "centre": rng.normal(0, 0.01, (n, 2)),
        "field": rng.uniform(0.90, 0.94, n),
        "tint": np.array([0.74, 0.38, 0.17]) * rng.uniform(0.85, 1.1, (n, 1)) * rng.uniform(0.93, 1.07, (n, 3)),
        "clouds": rng.normal(0, 0.05, (n, 5, 5)),
        "tortuous": rng.random(n),
        "curves": rng.random((n, CURVES, 4)),
        "branches": rng.random((n, BRANCHES, 5)),
        "spots": spots,
        "spot_size": rng.uniform(0.045, 0.085, (n, LESIONS)),
        "bright": rng.random((n, LESIONS)) < 0.4,
        "present": np.arange(LESIONS) < count[:, None],
    }


def _draw_eyes(
    eyes: Mapping[str, np.ndarray], look: np.ndarray, twin_look: np.ndarray, noise: np.ndarray, settings: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    pixels, cue, strength = settings["pixels"], settings["cue"], settings["strength"]
    row, column = (2 * (np.mgrid[:pixels, :pixels] + 0.5) / pixels - 1).astype(np.float32)
    x, y = (axis - eyes["centre"][:, i, None, None].astype(np.float32) for i, axis in enumerate((column, row)))
    distance = np.hypot(x, y) / eyes["field"][:, None, None].astype(np.float32)
    field = distance < 1
    spots = _spots(eyes, x, y, pixels)
    region = _region(cue, x, y, distance)
    drawn = {"masks": (spots.max(axis=1) > 0.5) & field, "fields": field, "cue_masks": region & field}
    eye = None
    for key, value in (("images", look), ("twins", twin_look)):
        if eye is None or cue == "age":
            if cue == "age":
                tortuous, dim = (value, strength * value)
            else:
                tortuous, dim = (eyes["tortuous"], np.zeros(len(value)))
            eye = _eye(eyes, x, y, distance, spots, tortuous, dim, settings["lesion_contrast"]) + 0.015 * noise[..., None]
        painted = np.where(region[..., None], _acquire(cue, eye, strength * value, x, distance, pixels), eye)
        drawn[key] = np.rint(255 * np.clip(painted, 0, 1) * field[..., None])
    return drawn


def _eye(
    eyes: Mapping[str, np.ndarray],
    x: np.ndarray,
    y: np.ndarray,
    distance: np.ndarray,
    spots: np.ndarray,
    tortuous: np.ndarray,
    dim: np.ndarray,
    contrast: float,
) -> np.ndarray:
    """(b, h, w, 3) before the camera: ground, macula, disc, vessels, lesions."""
    pixels = x.shape[-1]
    weights = ndimage.zoom(np.eye(5), (pixels / 5, 1), order=1, mode="nearest", grid_mode=True)
    light = (1 - 0.30 * distance**2) * (1 + weights @ eyes["clouds"] @ weights.T)
    macula = _bump(x, y, eyes["disc"] - np.stack([0.58 * eyes["side"], np.zeros(len(x))], axis=1), 0.16)
    light = light * (1 - 0.35 * macula)
    age = 1 - dim[:, None] * np.array([0.12, 0.20, 0.45])  # the ageing lens dims, blue most
    image = light[..., None] * (eyes["tint"] * age)[:, None, None, :]
    disc = _edge(0.14 - np.hypot(x - _column(eyes["disc"][:, 0]), y - _column(eyes["disc"][:, 1])), 0.025)
    image += disc[..., None] * 0.8 * (np.array([0.98, 0.82, 0.50]) * age[:, None, None, :] - image)
    vessels = _vessels(eyes, tortuous, pixels)
    image *= 1 - vessels[..., None] * np.array([0.35, 0.62, 0.50])
    for spot in range(LESIONS):
        colour = np.where(eyes["bright"][:, spot, None], [0.98, 0.88, 0.45], [0.32, 0.05, 0.05])[:, None, None, :]
        image += contrast * 0.85 * spots[:, spot, ..., None] * (colour - image)
    return image


def _spots(eyes: Mapping[str, np.ndarray], x: np.ndarray, y: np.ndarray, pixels: int) -> np.ndarray:
    """(b, LESIONS, h, w) in [0, 1], above a half inside a lesion; a lesion covers a pixel's centre at any size."""
    size = np.maximum(eyes["spot_size"], 1.5 / pixels)
    out = np.zeros((len(x), LESIONS, *x.shape[1:]), np.float32)
    for spot in range(LESIONS):
        away = np.hypot(x - _column(eyes["spots"][:, spot, 0]), y - _column(eyes["spots"][:, spot, 1]))
        out[:, spot] = _edge(_column(size[:, spot]) - away, 0.02) * _column(eyes["present"][:, spot])
    return out


def _vessels(eyes: Mapping[str, np.ndarray], tortuous: np.ndarray, pixels: int) -> np.ndarray:
    """(b, h, w) how much vessel, 0 to 1: curves as dense points, spread on their four nearest pixels, then blurred."""
    points = max(48, pixels * 3 // 4)
    t = np.linspace(0, 1, points)
    mains = _arcades(eyes, t)
    branches = _twigs(eyes, mains, t)
    waves = np.concatenate([eyes["curves"][..., 3], eyes["branches"][..., 4]], axis=1)[..., None]
    paths = np.concatenate([mains, branches], axis=1)
    along = np.gradient(paths, axis=2)
    normal = np.stack([-along[..., 1], along[..., 0]], axis=-1) / (np.linalg.norm(along, axis=-1, keepdims=True) + 1e-9)
    swing = np.sin(2 * np.pi * ((2 + 2 * waves) * t + waves)) * np.minimum(1, 4 * t)
    paths = paths + ((0.005 + 0.055 * tortuous)[:, None, None] * swing)[..., None] * normal
    calibre = np.concatenate([np.ones(CURVES), np.full(BRANCHES, 0.45)])[:, None] * (1 - 0.6 * t) * np.minimum(1, 0.3 + 4 * t)
    step = np.linalg.norm(along, axis=-1) * pixels / 2  # pixels between points, so that ink does not depend on resolution
    ink = _splat(paths, calibre * step, pixels)
    blurred = ndimage.gaussian_filter(ink, (0, 0.011 * pixels, 0.011 * pixels), truncate=3)
    return 1 - np.exp(-2.0 * blurred * 64 / pixels)


def _arcades(eyes: Mapping[str, np.ndarray], t: np.ndarray) -> np.ndarray:
    """(b, CURVES, points, 2): from the disc around the macula, and the short ways to the other side."""
    up = np.array([1, 1, -1, -1, 1, 1, -1, -1])[:, None]
    nasal = (np.arange(CURVES) >= 4)[:, None]
    vary = eyes["curves"][..., None] - 0.5
    wide = np.where(nasal, 0.62 * t, -(1.30 + 0.2 * vary[:, :, 0]) * t**1.7)
    arch = (0.62 + 0.24 * vary[:, :, 1]) * np.sin(np.pi * (0.62 + 0.2 * vary[:, :, 2]) * t)
    high = np.where(nasal, (0.50 + 0.4 * vary[:, :, 1]) * t, arch)
    x = eyes["disc"][:, 0, None, None] + eyes["side"][:, None, None] * wide
    y = eyes["disc"][:, 1, None, None] - up * high
    return np.stack([x, y], axis=-1)


def _twigs(eyes: Mapping[str, np.ndarray], mains: np.ndarray, t: np.ndarray) -> np.ndarray:
    """(b, BRANCHES, points, 2): two from every main vessel, one to each side."""
    parent = np.repeat(np.arange(CURVES), BRANCHES // CURVES)
    start = (0.2 + 0.5 * eyes["branches"][..., 0]) * (len(t) - 1)
    at = start.astype(np.int64)
    eye = np.arange(len(mains))[:, None]
    root = mains[eye, parent, at]
    ahead = mains[eye, parent, at + 1] - root
    turn = np.tile([1.0, -1.0], BRANCHES // 2) * (0.45 + 0.5 * eyes["branches"][..., 1])
    bend = turn[..., None] * (1 - 0.6 * eyes["branches"][..., 2, None] * t)
    angle = np.arctan2(ahead[..., 1], ahead[..., 0])[..., None] + bend
    length = (0.35 + 0.35 * eyes["branches"][..., 3])[..., None] / len(t)
    steps = np.stack([np.cos(angle), np.sin(angle)], axis=-1) * length[..., None]
    return root[:, :, None] + np.cumsum(steps, axis=2)


def _splat(paths: np.ndarray, weight: np.ndarray, pixels: int) -> np.ndarray:
    b = len(paths)
    at = (paths.reshape(b, -1, 2) + 1) * pixels / 2 - 0.5
    weight = np.broadcast_to(weight, paths.shape[:-1]).reshape(b, -1)
    low = np.floor(at).astype(np.int64)
    share = at - low
    canvas = np.zeros(b * pixels * pixels)
    for right in (0, 1):
        for down in (0, 1):
            column, row = low[..., 0] + right, low[..., 1] + down
            part = np.abs(1 - right - share[..., 0]) * np.abs(1 - down - share[..., 1]) * weight
            inside = (column >= 0) & (column < pixels) & (row >= 0) & (row < pixels)
            flat = (np.arange(b)[:, None] * pixels + row) * pixels + column
            canvas += np.bincount(flat[inside], part[inside], minlength=len(canvas))
    return canvas.reshape(b, pixels, pixels)


# ---- the camera ------------------------------------------------------------------------------------------------------------


def _region(cue: str, x: np.ndarray, y: np.ndarray, distance: np.ndarray) -> np.ndarray:
    """(b, h, w) which pixels the cue may change."""
    if cue == "none":
        return np.zeros(x.shape, bool)
    if cue == "rim":
        return distance > 0.88
    if cue == "notch":
        return (distance > 0.80) & (np.abs(np.arctan2(-y, x) - np.pi / 4) < 0.16)
    return np.ones(x.shape, bool)


def _acquire(cue: str, eye: np.ndarray, look: np.ndarray, x: np.ndarray, distance: np.ndarray, pixels: int) -> np.ndarray:
    """The image as the camera gives it, for cue values from 0 to 1."""
    look = look[:, None, None, None]
    if cue == "rim":
        return eye + look * 0.45 * np.array([1.0, 0.95, 0.75])
    if cue == "notch":
        return eye * (1 - look)
    if cue == "gradient":
        return eye * (1 + 0.30 * (2 * look - 1) * x[..., None])
    if cue == "cast":
        return eye * (1 + 0.12 * (2 * look - 1) * np.array([-1.0, 0.0, 1.5]))
    if cue == "blur":
        field = (distance < 1)[..., None]
        sigma = (0, 0.02 * pixels, 0.02 * pixels, 0)
        soft = ndimage.gaussian_filter(eye * field, sigma) / np.maximum(ndimage.gaussian_filter(field.astype(float), sigma), 1e-3)
        return eye + look * (soft - eye)
    return eye


def _column(values: np.ndarray) -> np.ndarray:
    return values[:, None, None].astype(np.float32)


def _edge(inside: np.ndarray, width: float) -> np.ndarray:
    """A soft step: 0.5 at the edge, `inside` in lengths of the image."""
    return 1 / (1 + np.exp(-np.clip(inside / (width / 2), -30, 30)))


def _bump(x: np.ndarray, y: np.ndarray, centre: np.ndarray, width: float) -> np.ndarray:
    return np.exp(-((x - _column(centre[:, 0])) ** 2 + (y - _column(centre[:, 1])) ** 2) / (2 * width**2))
