"""ShorT on photos of skin lesions: is age, or sex, a shortcut for melanoma? Original, biased and balanced training sets.

    python examples/short/ham.py --data FOLDER --device cuda

FOLDER holds ham10000_200x150.zip (6,010 dermoscopic images with diagnosis, age, sex and lesion number). Images of one lesion stay
in one split. Each attribute has three versions of the data, made by subsampling train, val and test: as they are, with a larger
gap between melanomas and others, and with none.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from families import Recipe, options, run
from PIL import Image

from rightreasons.data.cohort import Cohort
from rightreasons.stats.resampling import task_rng

FRACTIONS = {"train": 0.5, "val": 0.11, "audit": 0.03, "test": 0.36}
GAPS: dict[str, dict[str, float | None]] = {
    "age": {"original": None, "biased": 15.0, "balanced": 0.0},
    "male": {"original": None, "biased": 0.4, "balanced": 0.0},
}
BINS: dict[str, tuple[float, ...] | None] = {"age": (0, 30, 45, 65, 100), "male": None}  # Supp. Fig. 4 of the paper
TARGETS = {"age": "age groups", "male": "male"}  # what the models of the bound learn: a classifier learns classes


def main() -> None:
    parser = options("ShorT on skin lesions", "build/short-ham")
    parser.add_argument("--data", type=Path, default=os.environ.get("RIGHTREASONS_DATA"), help="folder of the zip file")
    parser.add_argument("--attributes", nargs="+", choices=GAPS, default=list(GAPS))
    parser.add_argument("--size", type=int, default=64, help="pixels")
    parser.add_argument("--quick", action="store_true", help="few images: shows that all of it runs, and nothing else")
    given = parser.parse_args()
    if given.data is None:
        parser.error("say where the zip file is: --data FOLDER, or the environment variable RIGHTREASONS_DATA")
    given.out.mkdir(parents=True, exist_ok=True)
    cohort = lesions(given.data, given.out, given.size, given.quick)
    plans = {
        name: (
            Recipe(
                name,
                TARGETS[name],
                given.size,
                given.scales,
                given.seeds,
                epochs=given.epochs,
                width=given.width,
                bins=BINS[name],
            ),
            versions(cohort, name, GAPS[name]),
        )
        for name in given.attributes
    }
    run(plans, given.out, device=given.device, workers=given.workers, title="ShorT on skin lesions")


def lesions(data: Path, out: Path, size: int, quick: bool) -> Cohort:
    """The cohort, split by lesion; its pixels are one stack in `out`."""
    with zipfile.ZipFile(data / "ham10000_200x150.zip") as source:
        present = {Path(n).stem for n in source.namelist() if n.startswith("images/") and n.endswith(".jpg")}
        rows = pd.read_csv(source.open("HAM10000_metadata.csv"))
        rows = rows[rows["image_id"].isin(present) & rows["age"].notna() & rows["sex"].isin(["male", "female"])]
        rows = rows.sort_values("image_id").reset_index(drop=True)
        if quick:
            rows = rows.groupby(rows["dx"] == "mel").head(350).reset_index(drop=True)
        np.save(out / "pixels.npy", np.stack([_picture(source, name, size) for name in rows["image_id"]]))
    columns = {
        "id": rows["image_id"],
        "image": [f"pixels.npy#{k}" for k in range(len(rows))],
        "melanoma": (rows["dx"] == "mel").astype(int),
        "age": rows["age"],
        "male": (rows["sex"] == "male").astype(int),
        "lesion": rows["lesion_id"],
    }
    whole = Cohort.from_columns(
        columns, label="melanoma", attribute=["age", "male"], id="id", subject="lesion", root=out, kinds={"age": "continuous"},
        name="original",
    )  # fmt: skip
    return whole.split(FRACTIONS, rng=task_rng(0, "lesions"), attribute="age").in_groups("age")


def _picture(source: zipfile.ZipFile, name: str, size: int) -> np.ndarray:
    image = Image.open(source.open(f"images/{name}.jpg")).convert("RGB")
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))


def versions(cohort: Cohort, attribute: str, gaps: Mapping[str, float | None]) -> dict[str, Cohort]:
    """The data as they are and subsampled, split by split."""
    found = {}
    for name, gap in gaps.items():
        parts = [cohort.on(split) for split in FRACTIONS]
        if gap is not None:
            parts = [
                part.bias(rng=task_rng(0, f"{attribute} {name} {part.name}"), attribute=attribute, gap=gap) for part in parts
            ]
        ids = np.concatenate([part.id for part in parts])
        found[name] = cohort.select(np.isin(cohort.id, ids), name=name)
    return found


if __name__ == "__main__":
    main()
