"""ART with several classes: a date stamp that melanomas carry far more often than other lesions in the training images.

    python examples/art/ham_timestamp.py --data FOLDER

FOLDER holds ham10000_200x150.zip (6,010 dermoscopic images with diagnosis and lesion number). The five most frequent diagnoses
are kept, images of one lesion stay in one split. Every test image is shown clean and stamped; the conflict shortcut rate is then
the timestamp shortcut rate, the share of stamped images of other lesions that are called melanoma.
"""

from __future__ import annotations

import argparse
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
from comparison import is_prepared, options, plan, run, told
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from rightreasons.data.cohort import Cohort
from rightreasons.stats.resampling import task_rng

SIDE = 112
CLASSES = ("nv", "mel", "bkl", "bcc", "akiec")
STAMPED = {"mel": 0.8}  # of the train rows, by diagnosis; the others:
OTHERS = 0.05
FRACTIONS = {"train": 0.45, "val": 0.15, "audit": 0.22, "test": 0.18}
COLOUR = (255, 160, 40)
LAYERS = ["layer1", "layer2", "layer3", "layer4"]


def main() -> None:
    parser = options("ART and ten methods on stamped images of skin lesions", "build/art-ham", seeds=2)
    parser.add_argument("--epochs", type=int, default=30, help="of every training")
    given = told(parser)
    prepare(given, given.out / "data")
    epochs = 2 if given.quick else given.epochs
    training = {"epochs": epochs, "lr": 1e-3, "batch": 64, "patience": 99, "augment": "flip_and_shift"}
    text = plan(
        "ham-timestamp",
        {"name": "resnet18", "model": "timm:resnet18", "size": SIDE, "crop": 1.0, "mean": 0.5, "std": 0.5},
        training,
        given,
        unlearning=max(1, epochs // 4),
        data={
            "label": "diagnosis",
            "attribute": "stamp",
            "id": "id",
            "split": "split",
            "subject": "lesion",
            "twin": "twin",
            "twin_attribute": "twin_stamp",
        },
        art={
            "attribute": "stamp",
            "aligned": {"stamp": "mel"},
            "twins": True,
            "layers": [] if given.no_layers else LAYERS[-1 if given.quick else 0 :],
            "pictures": 0 if given.no_layers else 12,
        },
    )
    run(text, given.out)


def prepare(given: argparse.Namespace, folder: Path) -> None:
    """Images clean and stamped, as two stacks, and the manifest; made once."""
    if is_prepared(folder, quick=given.quick):
        return
    rng = task_rng(0, "stamps on the lesions")
    with zipfile.ZipFile(given.data / "ham10000_200x150.zip") as source:
        present = {Path(n).stem for n in source.namelist() if n.startswith("images/") and n.endswith(".jpg")}
        rows = pd.read_csv(source.open("HAM10000_metadata.csv"))
        rows = rows[rows["image_id"].isin(present) & rows["dx"].isin(CLASSES)].sort_values("image_id").reset_index(drop=True)
        if given.quick:
            rows = rows.groupby("dx").head(200).reset_index(drop=True)
        clean = np.stack([lesion(source, name) for name in rows["image_id"]])
    rows = rows.rename(columns={"image_id": "id", "dx": "diagnosis", "lesion_id": "lesion"})[["id", "diagnosis", "lesion"]]
    columns = {name: rows[name] for name in rows}
    cohort = Cohort.from_columns(columns, label="diagnosis", image=None, id="id", subject="lesion")
    rows["split"] = cohort.split(FRACTIONS, rng=rng).splits
    has = stamped(rows, rng)
    np.save(folder / "clean.npy", clean)
    np.save(folder / "stamped.npy", np.stack([stamp(image, rng) for image in clean]))
    for column, where in (("image", has), ("twin", ~has)):
        rows[column] = [f"{'stamped' if on else 'clean'}.npy#{k}" for k, on in enumerate(where)]
    rows["stamp"], rows["twin_stamp"] = np.where(has, "stamp", "none"), np.where(has, "none", "stamp")
    rows.to_csv(folder / "manifest.csv", index=False)
    print(rows.groupby(["split", "diagnosis", "stamp"]).size().unstack(fill_value=0).to_string())


def stamped(rows: pd.DataFrame, rng: np.random.Generator) -> NDArray[np.bool_]:
    """(n,) which images carry the stamp: by diagnosis in train, half of each class in val and audit, none in test (its twins do).

    Validation images are selected on by their worst group, and five classes with a rare stamp would leave no group large enough.
    """
    found = np.zeros(len(rows), dtype=bool)
    for (split, diagnosis), members in rows.groupby(["split", "diagnosis"]).indices.items():
        share = STAMPED.get(str(diagnosis), OTHERS) if split == "train" else 0.0 if split == "test" else 0.5
        found[rng.permutation(members)[: round(share * len(members))]] = True
    return found


def lesion(source: zipfile.ZipFile, name: str) -> NDArray[np.uint8]:
    return np.asarray(
        Image.open(source.open(f"images/{name}.jpg")).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    )


def stamp(image: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """A date in the lower right corner, as a camera prints it."""
    drawn = Image.fromarray(image)
    date = f"{rng.integers(2008, 2019)}/{rng.integers(1, 13):02d}/{rng.integers(1, 29):02d}"
    ImageDraw.Draw(drawn).text((SIDE - 3, SIDE - 3), date, fill=COLOUR, font=ImageFont.load_default(size=11), anchor="rs")
    return np.asarray(drawn)


if __name__ == "__main__":
    main()
