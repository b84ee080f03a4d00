"""Real images for worlds, at 96 pixels: photos of pets, skin lesions, fundus photographs; and how the label shows in each.

They lie in the folder named by RIGHTREASONS_DATA: as the zips that docs/calibration.md names, or packed as one file for a machine
to which little can be carried (`python -m benchmarks.worlds.real pack FOLDER`). How strongly the label shows is what a model says
of a row that was not trained on it (`python -m benchmarks.worlds.real evidence`; once, before worlds are run).
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError
from rightreasons.files import write

SIDE = 96
DATA_SETS = ("pets", "skin", "fundus")
MOST = 2200  # rows of each data set that are packed
FOLDS = 3
QUALITY = 82  # of the packed images
PACKED, EVIDENCE = "worlds-96px.npz", "worlds-evidence.npz"
FILES = {"pets": "pets96_cat_dog_tag.zip", "skin": "ham10000_200x150.zip", "fundus": "fundus_aptos_fives_128.zip"}


@dataclass(frozen=True)
class Photos:
    """One data set's rows: images (n, 96, 96, 3) uint8, label (n,) 0 or 1, and of whom each image is, as text."""

    images: np.ndarray
    label: np.ndarray
    subject: np.ndarray


def folder() -> Path:
    named = os.environ.get("RIGHTREASONS_DATA")
    if not named:
        raise DataError("real images: name the folder of the data with RIGHTREASONS_DATA")
    return Path(named)


def photos(name: str, most: int | None = None) -> Photos:
    """Rows of a data set in a fixed random order, the first `most` of them."""
    packed = folder() / PACKED
    found = _unpacked(packed, name) if packed.is_file() else _from_zip(name)
    return Photos(*(column[:most] for column in (found.images, found.label, found.subject)))


def _unpacked(path: Path, name: str) -> Photos:
    with np.load(path) as arrays:
        ends, stream = arrays[f"{name} ends"], arrays[f"{name} bytes"]
        label, subject = arrays[f"{name} label"], arrays[f"{name} subject"]
    starts = np.concatenate([[0], ends[:-1]])
    images = [_decoded(stream[a:b].tobytes()) for a, b in zip(starts, ends, strict=True)]
    return Photos(np.stack(images), label, subject)


def _from_zip(name: str) -> Photos:
    path = folder() / FILES[name]
    if not path.is_file():
        raise DataError(f"no {path.name} in {path.parent}, and no {PACKED}: RIGHTREASONS_DATA names the wrong folder")
    with zipfile.ZipFile(path) as archive:
        rows = _ROWS[name](archive)
        order = np.random.default_rng(0).permutation(len(rows))[:MOST]
        chosen = [rows[k] for k in order]
        images = np.stack([_square(archive.read(file)) for file, _, _ in chosen])
    return Photos(images, np.array([label for _, label, _ in chosen]), np.array([subject for _, _, subject in chosen]))


Row = tuple[str, int, str]
"""File, label, subject."""


def _pets(archive: zipfile.ZipFile) -> list[Row]:
    there = set(archive.namelist())
    rows = [(f"clean/{row['image']}", int(row["is_cat"]), row["image"]) for row in _table(archive, "boxes_512px.csv")]
    return [row for row in rows if row[0] in there]


def _skin(archive: zipfile.ZipFile) -> list[Row]:
    """Anything but a naevus is label 1."""
    there = set(archive.namelist())
    table = _table(archive, "HAM10000_metadata.csv")
    rows = [(f"images/{row['image_id']}.jpg", int(row["dx"] != "nv"), row["lesion_id"]) for row in table]
    return sorted(row for row in rows if row[0] in there)


def _fundus(archive: zipfile.ZipFile) -> list[Row]:
    """Any retinopathy is label 1."""
    rows = _table(archive, "aptos_train.csv")
    return [(f"aptos/{row['id_code']}.jpg", int(int(row["diagnosis"]) > 0), row["id_code"]) for row in rows]


_ROWS = {"pets": _pets, "skin": _skin, "fundus": _fundus}


def _table(archive: zipfile.ZipFile, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(archive.read(name).decode())))


def _decoded(stream: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(stream)).convert("RGB"))


def _square(stream: bytes) -> np.ndarray:
    """The middle square, at 96 pixels."""
    picture = Image.open(io.BytesIO(stream)).convert("RGB")
    side = min(picture.size)
    left, top = ((length - side) // 2 for length in picture.size)
    return np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BICUBIC, box=(left, top, left + side, top + side)))


def pack(target: Path) -> None:
    """Every data set in one file that `photos` reads."""
    arrays: dict[str, np.ndarray] = {}
    for name in DATA_SETS:
        found = photos(name)
        streams = [_encoded(image) for image in found.images]
        arrays[f"{name} bytes"] = np.frombuffer(b"".join(streams), np.uint8)
        arrays[f"{name} ends"] = np.cumsum([len(stream) for stream in streams])
        arrays[f"{name} label"], arrays[f"{name} subject"] = found.label, found.subject
    _save(target / PACKED, arrays)


def _encoded(image: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "WEBP", quality=QUALITY)
    return file.getvalue()


def _save(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    write(path, file.getvalue())


# ---- how strongly the label shows ----------------------------------------------------------------------------------------


def evidence(name: str, most: int | None = None) -> np.ndarray:
    """(n,) out-of-fold log odds of label 1 for the rows of `photos`."""
    path = _evidence_file()
    if not path.is_file():
        raise DataError(f"{path} is not there: run `python -m benchmarks.worlds.real evidence` first")
    with np.load(path) as arrays:
        return arrays[name][:most]


def _evidence_file() -> Path:
    return Path(os.environ.get("WORLDS_EVIDENCE", folder() / EVIDENCE))


def find_evidence(names: Sequence[str], workers: int, most: int | None, epochs: int) -> None:
    """Fine-tune on all folds but one, and ask about that one."""
    jobs = [(name, fold, most, epochs) for name in names for fold in range(FOLDS)]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        told = list(pool.map(_fold, jobs))
    arrays: dict[str, np.ndarray] = {}
    for (name, _, _, _), (rows, odds) in zip(jobs, told, strict=True):
        arrays.setdefault(name, np.full(sum(len(r) for (n, *_), (r, _) in zip(jobs, told, strict=True) if n == name), np.nan))
        arrays[name][rows] = odds
    _save(_evidence_file(), arrays)


def _fold(job: tuple[str, int, int | None, int]) -> tuple[np.ndarray, np.ndarray]:
    import torch
    from benchmarks.worlds import networks

    from rightreasons.extraction import read
    from rightreasons.models.training import train

    name, fold, most, epochs = job
    torch.set_num_threads(1)
    found = photos(name, most)
    _, person = np.unique(found.subject, return_inverse=True)
    held = person % FOLDS == fold
    device = os.environ.get("DEVICE", "cpu")
    start = networks.start("vit_ti", (0, 1), int(fold))
    with tempfile.TemporaryDirectory() as place:
        np.save(Path(place) / "images.npy", found.images)
        columns: dict[str, Any] = {
            "image": [f"images.npy#{row}" for row in range(len(held))], "label": found.label,
            "split": np.where(held, "test", np.where(np.arange(len(held)) % 10 == 0, "val", "train")),
        }  # fmt: skip
        cohort = Cohort.from_columns(columns, label="label", split="split", root=place)
        plan = {**networks.PLANS["vit_ti"], "epochs": epochs, "seed": fold, "threads": 1, "workers": 1, "device": device}
        model = train(start, cohort, **plan).to(device)
        logits = read(model, cohort.on("test"), ["logits"], batch=128, device=device, threads=1, workers=1)["logits"]
    return np.flatnonzero(held), np.diff(logits.astype(np.float64), axis=1)[:, 0]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.worlds.real", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("pack", "evidence"))
    parser.add_argument("folder", type=Path, nargs="?", help="of the packed file")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--most", type=int, help="rows of each data set")
    parser.add_argument("--epochs", type=int, default=6)
    given = parser.parse_args(arguments)
    if given.what == "pack":
        pack(given.folder or folder())
    else:
        find_evidence(DATA_SETS, given.workers, given.most, given.epochs)


if __name__ == "__main__":
    main()
