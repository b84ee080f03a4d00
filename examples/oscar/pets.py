"""OSCAR on a cue that has no place: cat and dog photos whose tag is stuck on at random. It must not claim a place.

    RIGHTREASONS_DATA=<folder> python examples/oscar/pets.py build/pets

The folder holds `pets96_cat_dog_tag.zip`: photos, clean and with a tag that names the animal, and where the tag is. Here both
tags are stuck on every photo at its tag's place, so that the tag can go with the animal or against it, and every photo has a
twin with the other tag: `flips` says by intervention what OSCAR cannot see.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image
from roles import Seeds, compared, drawn_evenly, summary

import rightreasons as rr

PHOTOS = "pets96_cat_dog_tag.zip"
SIDE, SOURCE = 96, 512  # pixels of the photos, and of the coordinates of the boxes
ANIMALS = ("dog", "cat")


def prepare(data: Path, out: Path, photos: int = 1_200, seed: int = 0) -> tuple[Path, Path]:
    """Two manifests over one stack of photos: `biased`, whose training tags name the animal, and `balanced`, whose tags do not.

    Test rows are the same in both, tags drawn without association.
    """
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    with zipfile.ZipFile(data / PHOTOS) as archive:
        there = set(archive.namelist())
        rows = [
            row
            for row in csv.DictReader(io.StringIO(archive.read("boxes_512px.csv").decode()))
            if f"clean/{row['image']}" in there
        ]
        tags = _tags(archive, rows)
        chosen = [
            r
            for code in (0, 1)
            for r in rng.permutation([k for k, row in enumerate(rows) if int(row["is_cat"]) == code])[: photos // 2]
        ]
        rows = [rows[r] for r in chosen]
        stack = np.stack([_stuck(archive, row, tags[tag]) for tag in (0, 1) for row in rows])
    np.save(out / "photos.npy", stack)
    animal = np.array([int(row["is_cat"]) for row in rows])
    split = rng.permutation(np.resize(["train"] * 12 + ["val"] * 2 + ["audit"] * 2 + ["test"] * 4, len(rows)))
    drawn = drawn_evenly(rng, animal, split)
    tied = np.where(np.isin(split, ("train", "val")), animal, drawn)
    return _manifest(out / "biased.csv", animal, tied, split), _manifest(out / "balanced.csv", animal, drawn, split)


def _tags(archive: zipfile.ZipFile, rows: list[dict[str, str]]) -> list[np.ndarray]:
    """The two tags as pixels: the median over photos in which the tag is whole."""
    found: list[list[np.ndarray]] = [[], []]
    for row in rows:
        x0, y0, x1, y1 = _box(row)
        animal = found[int(row["is_cat"])]
        if (x1 - x0, y1 - y0) == (16, 16) and len(animal) < 20:
            animal.append(_pixels(archive, f"tagged/{row['image']}")[y0:y1, x0:x1])
    return [np.median(patches, axis=0).astype(np.uint8) for patches in found]


def _stuck(archive: zipfile.ZipFile, row: dict[str, str], tag: np.ndarray) -> np.ndarray:
    photo = _pixels(archive, f"clean/{row['image']}")
    x, y, *_ = _box(row)
    x, y = min(x, SIDE - tag.shape[1]), min(y, SIDE - tag.shape[0])
    photo[y : y + tag.shape[0], x : x + tag.shape[1]] = tag
    return photo


def _box(row: dict[str, str]) -> list[int]:
    return [round(int(row[f"tag_{end}"]) * SIDE / SOURCE) for end in ("xmin", "ymin", "xmax", "ymax")]


def _pixels(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    return np.array(Image.open(io.BytesIO(archive.read(name))).convert("RGB"))


def _manifest(path: Path, animal: np.ndarray, tag: np.ndarray, split: np.ndarray) -> Path:
    n = len(animal)
    columns = {
        "id": np.arange(n),
        "image": [f"photos.npy#{t * n + k}" for k, t in enumerate(tag)],
        "twin": [f"photos.npy#{(1 - t) * n + k}" for k, t in enumerate(tag)],
        "animal": [ANIMALS[a] for a in animal],
        "tag": [f"says {ANIMALS[t]}" for t in tag],
        "twin_tag": [f"says {ANIMALS[1 - t]}" for t in tag],
        "split": split,
    }
    pd.DataFrame(columns).to_csv(path, index=False)
    return path


def start(classes: tuple[Any, ...], rng: np.random.Generator) -> rr.Classifier:
    network = "rightreasons.models.small:small_cnn"
    return rr.Classifier.load(network, num_classes=2, classes=classes, size=(SIDE, SIDE), width=8, mean=0.5, std=0.25, rng=rng)


def run(
    data: Path, out: Path, photos: int = 1_200, seeds: Seeds | None = None, epochs: int = 8, B: int = 10_000
) -> list[rr.Finding]:
    """OSCAR's finding, and what flips says of the same model."""
    read = {"label": "animal", "attribute": "tag", "id": "id", "split": "split", "twin": "twin", "twin_attribute": "twin_tag"}
    biased, balanced = (rr.Cohort.read(path, **read) for path in prepare(data, out, photos))
    settings = {"epochs": epochs, "lr": 3e-3, "patience": None, "threads": 1}
    chosen = {"seeds": seeds or Seeds(test=1, attribute=1), "folder": out, "needs": ("oscar", "flips")}
    models = compared(start, biased, balanced, biased, **chosen, **settings)
    flips = rr.audit("flips", models["test"][0]).finding()
    return [rr.audit("oscar", models, B=B).finding(), flips]


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    given.add_argument("out", type=Path)
    given.add_argument(
        "--data", type=Path, default=os.environ.get("RIGHTREASONS_DATA"), required="RIGHTREASONS_DATA" not in os.environ
    )
    asked = given.parse_args()
    findings = run(asked.data, asked.out)
    print(json.dumps(summary(findings[0]), indent=1))
    for finding in findings:
        print(finding.one_line())
    print(rr.report(findings, asked.out / "report.html", title="Pets: a tag with no place"))


if __name__ == "__main__":
    main()
