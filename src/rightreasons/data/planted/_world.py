"""What every planted world shares: who has which label, split and cue value, and the folder it is written to."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from rightreasons import files
from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError, SettingError
from rightreasons.families import refuse_bad_seed

VERSION = 1  # of the generators; a folder made by another one is not reused
BIASED = ("train", "val")  # the splits in which `agreement` holds, and which a redraw draws again
AGE_MIDDLE, AGE_SPREAD = 60.0, 10.0

Share = float | Sequence[float]


@dataclass(frozen=True)
class Drawing:
    """One manifest of a world: its columns, and its stacks of pixels by name, first axis images."""

    frame: pd.DataFrame
    stacks: dict[str, np.ndarray]


@dataclass(frozen=True)
class Columns:
    """What a manifest's columns mean, as world.json keeps it."""

    attribute: str
    continuous: bool
    site: bool = False
    box: bool = True


@dataclass(frozen=True)
class Association:
    """How the cue goes with the label; the settings that all worlds have in common.

    Parameters
    ----------
    values : number of cue values; 0 is a continuous cue
    shares : split → per class the share of rows whose cue value is the one that goes with the class
    label_noise : share of `train` and `val` labels that are wrong
    """

    classes: int
    values: int
    shares: dict[str, tuple[float, ...]]
    label_noise: float
    seed: int

    @classmethod
    def of(
        cls,
        *,
        classes: int = 2,
        values: int,
        agreement: Share,
        agreement_audit: Share | None = None,
        agreement_test: Share | None = None,
        label_noise: float = 0.0,
        seed: int,
    ) -> Association:
        """Check the settings; None is a cue without association."""
        if values == 1 or values < 0 or values > classes:
            raise SettingError(f"values={values}: give 2 to {classes} cue values (there are {classes} classes)")
        if values == 0 and classes != 2:
            raise SettingError(f"a continuous cue needs two classes, not {classes}")
        if not 0 <= label_noise < 1:
            raise SettingError(f"label_noise={label_noise}: give a share of at least 0 and below 1")
        none = 1 / (values or 2)
        stated = {
            **dict.fromkeys(BIASED, agreement),
            "audit": none if agreement_audit is None else agreement_audit,
            "test": none if agreement_test is None else agreement_test,
        }
        shares = {}
        for split, share in stated.items():
            shares[split] = _share(share, classes, values == 0)
        return cls(classes, values, shares, label_noise, int(seed))

    def everywhere(self, split: str) -> Association:
        """The biased splits' association in one split of another name."""
        return replace(self, shares={split: self.shares[BIASED[0]]}, label_noise=0.0)

    def aligned(self, label: np.ndarray) -> np.ndarray:
        """(n,) cue value that goes with each label."""
        return label * self.values // self.classes


def stream(seed: int, task: str) -> np.random.Generator:
    """One generator per task, so that what one task draws never moves what another one draws."""
    refuse_bad_seed(seed)
    return np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(task.encode())]))


def labels(n: int, prevalence: float, rng: np.random.Generator) -> np.ndarray:
    """(n,) labels 0 and 1 in random order, their share exact."""
    positives = round(n * prevalence)
    if not 0 < positives < n:
        raise SettingError(f"prevalence={prevalence}: with {n} rows it leaves a class empty; give a share between 0 and 1")
    return rng.permutation(np.arange(n) < positives).astype(np.int64)


def split_rows(stratum: np.ndarray, fractions: Mapping[str, float], seed: int) -> np.ndarray:
    """(n,) split names, stratified, the same whatever the cue is and does."""
    if not fractions or any(f <= 0 for f in fractions.values()) or abs(sum(fractions.values()) - 1) > 1e-9:
        raise SettingError(f"fractions must be positive and sum to 1, not {dict(fractions)}")
    unknown = set(fractions) - {*BIASED, "audit", "test"}
    if unknown:
        raise SettingError(f"fractions names {sorted(unknown)}: the splits are train, val, audit and test")
    rank, size = _rank(stratum, stream(seed, "splits"))
    return np.array(list(fractions), object)[
        np.searchsorted(np.cumsum(list(fractions.values())) - 1e-9, (rank + 0.5) / size, side="right")
    ]


def with_noise(label: np.ndarray, split: np.ndarray, how: Association) -> np.ndarray:
    """Labels as the manifest gives them: some of `train` and `val` moved to another class."""
    rng = stream(how.seed, "label noise")
    rank, size = _rank(_strata(split, label), rng)
    other = (label + rng.integers(1, how.classes, len(label))) % how.classes
    return np.where(((rank + 0.5) / size < how.label_noise) & np.isin(split, BIASED), other, label)


def draw_cue(label: np.ndarray, split: np.ndarray, how: Association, draw: int = 0) -> np.ndarray:
    """(n,) cue values; the shares hold exactly (to rounding) in every split and class.

    Rows keep their place in a random order when the agreement changes, so worlds of rising agreement differ in as few rows as
    they can. Continuous: standard normal scores z, moved apart by ±Φ⁻¹(agreement) and scaled back to unit variance; a row lies
    on its class's side of 0 in `agreement` of the rows.
    """
    rank, size = _rank(_strata(split, label), stream(how.seed, f"cue {draw}"))
    place = (rank + 0.5) / size
    share = np.array([how.shares[s][c] for s, c in zip(split, label, strict=True)])
    if how.values == 0:
        apart = ndtri(share)
        return (apart * (2 * label - 1) + ndtri(place)) / np.sqrt(1 + apart**2)
    other = (how.aligned(label) + 1 + rank % (how.values - 1)) % how.values
    return np.where(place < share, how.aligned(label), other)


def redraw_cue(label: np.ndarray, split: np.ndarray, how: Association, draw: int) -> np.ndarray:
    """The cue drawn again without association in `train` and `val`; the other rows keep theirs: models meet on one test set."""
    none = tuple([1 / (how.values or 2)] * how.classes)
    free = replace(how, shares=dict.fromkeys(how.shares, none))
    first = draw_cue(label, split, how)
    if draw == 0:
        return first
    return np.where(np.isin(split, BIASED), draw_cue(label, split, free, draw), first)


def cue_columns(name: str, cue: np.ndarray, label: np.ndarray, how: Association, years: bool = False) -> dict[str, np.ndarray]:
    """The attribute as the manifest shows it, the twin's, and whether it goes with the label."""
    if how.values:
        return {name: cue, f"twin_{name}": (cue + 1) % how.values, "agrees": (cue == how.aligned(label)).astype(int)}
    if years:
        shown = np.round(AGE_MIDDLE + AGE_SPREAD * cue, 2)
        twin = np.round(2 * AGE_MIDDLE - shown, 2)
    else:
        shown = np.round(ndtr(cue), 6)
        twin = np.round(1 - shown, 6)
    return {name: shown, f"twin_{name}": twin, "agrees": ((cue > 0) == (label == 1)).astype(int)}


def looks(shown: np.ndarray, how: Association, years: bool = False) -> np.ndarray:
    """(n,) attribute values on the painters' scale, 0 to 1."""
    if how.values:
        return shown / (how.values - 1)
    if years:
        return ndtr((shown - AGE_MIDDLE) / AGE_SPREAD)
    return shown


def boxes(masks: np.ndarray) -> list[str]:
    """`x0 y0 x1 y1` around each mask (n, h, w), edges of pixels; empty where the mask is."""
    rows, columns = np.asarray(masks.any(axis=2)), np.asarray(masks.any(axis=1))
    height, width = masks.shape[1:]
    top, left = rows.argmax(axis=1), columns.argmax(axis=1)
    bottom, right = height - rows[:, ::-1].argmax(axis=1), width - columns[:, ::-1].argmax(axis=1)
    corners = zip(left, top, right, bottom, rows, strict=True)
    return [f"{x0} {y0} {x1} {y1}" if some.any() else "" for x0, y0, x1, y1, some in corners]


def build(
    folder: str | os.PathLike[str],
    settings: dict[str, Any],
    columns: Columns,
    draw: Callable[[], Mapping[str, Drawing]],
    extra: Callable[[Path], None] | None = None,
) -> Cohort:
    """Write a world once; a finished folder of the same settings is read, one of other settings is refused."""
    target = Path(folder)
    kept = {"version": VERSION, **settings, "columns": vars(columns)}
    record = json.loads(json.dumps(kept, default=lambda value: np.asarray(value).tolist()))  # numbers of numpy are numbers too
    if (target / "world.json").exists():
        _same(record, json.loads((target / "world.json").read_text()), target)
    else:
        drawings = draw()
        target.mkdir(parents=True, exist_ok=True)
        for name, drawing in drawings.items():
            write(target, name, drawing, settings.get("nifti", False))
        if extra:
            extra(target)
        files.write_json(target / "world.json", record)
    return read(target)


def read(folder: str | os.PathLike[str], manifest: str = "manifest") -> Cohort:
    """A manifest of a world on disk, every column named: `manifest`, `redrawn`, `external` …"""
    target = Path(folder)
    columns = Columns(**record(target)["columns"])
    path = target / f"{manifest}.csv"
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in target.glob("*.csv") if p.stem != "names"))
        raise DataError(f"the world in {target} has no manifest {manifest!r}; it has {known}")
    return Cohort.read(
        path,
        id="id",
        attribute=columns.attribute,
        split="split",
        site="site" if columns.site else None,
        box="box" if columns.box else (),
        mask="mask",
        twin="twin",
        twin_attribute=f"twin_{columns.attribute}",
        kinds={columns.attribute: "continuous" if columns.continuous else "categorical"},
        name=target.name if manifest == "manifest" else manifest,
    )


def record(folder: Path) -> dict[str, Any]:
    """The settings that a finished world was made with."""
    path = folder / "world.json"
    if not path.exists():
        raise DataError(f"no finished world in {folder}: make it with planted.digits, planted.fundus or planted.blobs")
    return json.loads(path.read_text())


def write(folder: Path, name: str, drawing: Drawing, nifti: bool = False) -> None:
    """Stacks first, the manifest last; a stack that the drawing does not bring is the first manifest's."""
    column = {"images": "image", "twins": "twin", "masks": "mask", "cue_masks": "cue_mask"}
    frame = drawing.frame.copy()
    for stack, part in column.items():
        own = stack in drawing.stacks
        if name == "manifest" or not own:
            stem = stack
        else:
            stem = f"{name}_{stack}"
        if own:
            _write_stack(folder, stem, drawing.stacks[stack], nifti)
        frame[part] = [f"{stem}/{row}.nii.gz" if nifti else f"{stem}.npy#{row}" for row in range(len(frame))]
    put_table(folder / f"{name}.csv", frame)


def put_table(path: Path, frame: pd.DataFrame) -> None:
    files.write(path, frame.to_csv(index=False, lineterminator="\n"))


def put_array(path: Path, array: np.ndarray) -> None:
    with files.replacing(path) as partial, partial.open("wb") as file:
        np.save(file, array)


def put_nifti(path: Path, volume: np.ndarray) -> None:
    """A volume (x, y, z) of integers in RAS, 2 mm apart, the origin in its middle."""
    try:
        import nibabel
    except ModuleNotFoundError as error:
        raise DataError("nifti=True needs nibabel: pip install rightreasons[medical]") from error
    affine = np.diag([2.0, 2.0, 2.0, 1.0])
    affine[:3, 3] = -(np.array(volume.shape) - 1)
    image = nibabel.Nifti1Image(np.ascontiguousarray(volume), affine)
    temporary = path.with_name(f".{os.getpid()}.{path.name}")  # nibabel tells formats by their suffix
    nibabel.save(image, temporary)
    temporary.replace(path)


def _write_stack(folder: Path, stem: str, stack: np.ndarray, nifti: bool) -> None:
    if not nifti:
        put_array(folder / f"{stem}.npy", stack)
        return
    (folder / stem).mkdir(exist_ok=True)
    for row, volume in enumerate(stack):
        put_nifti(folder / stem / f"{row}.nii.gz", volume.reshape(volume.shape[:3]).astype(np.uint8))


def _same(wanted: dict[str, Any], stored: dict[str, Any], folder: Path) -> None:
    differ = []
    for key in sorted({*wanted, *stored}):
        if wanted.get(key) != stored.get(key):
            differ.append(key)
    if differ:
        made_with = ", ".join(f"{key}={stored.get(key)!r}" for key in differ)
        asked_for = ", ".join(f"{key}={wanted.get(key)!r}" for key in differ)
        raise SettingError(f"{folder} holds a world made with {made_with}, not {asked_for}: name another folder")


def _share(share: Share, classes: int, continuous: bool) -> tuple[float, ...]:
    shares = tuple(np.asarray(share, dtype=float).ravel().tolist()) * (classes if np.ndim(share) == 0 else 1)
    if len(shares) != classes:
        raise SettingError(f"agreement {share} has {len(shares)} values: give one number, or one per class ({classes})")
    if any(not 0 <= s <= 1 for s in shares):
        raise SettingError(f"agreement {share}: give shares from 0 to 1 (0.5 is none for a cue of two values)")
    if continuous and any(not 0.001 <= s <= 0.999 for s in shares):
        raise SettingError(f"agreement {share}: a continuous cue can agree in 0.001 to 0.999 of the rows, never in none or all")
    return shares


def _strata(*columns: np.ndarray) -> np.ndarray:
    codes = [np.unique(c.astype(str), return_inverse=True)[1] for c in columns]
    return np.unique(np.stack(codes), axis=1, return_inverse=True)[1].reshape(-1)


def _rank(stratum: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(n,) each row's rank in a random order of its stratum, from 0, and the stratum's size."""
    order = np.lexsort((rng.random(len(stratum)), stratum))
    size = np.bincount(stratum)
    rank = np.empty(len(stratum), np.int64)
    rank[order] = np.arange(len(stratum)) - np.repeat(np.cumsum(size) - size, size)
    return rank, size[stratum]
