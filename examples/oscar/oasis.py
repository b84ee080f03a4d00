"""OSCAR on real brains: does a CNN that calls dementia look where a model of sex looks? OASIS-1 slices, Desikan-Killiany regions.

    RIGHTREASONS_DATA=<folder> python examples/oscar/oasis.py build/oasis

The folder holds `oasis1_slices_196subj.zip` (one axial slice of 196 subjects, registered, with sex and clinical dementia rating)
and `oasis_axial_atlas_desikan.npz` (the regions of that slice). Subjects are split into training and test several times; in
every split, biased models learn from rows in which most of the demented are men, balanced ones from rows without association.
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
from roles import Seeds, compared, draw, summary

import rightreasons as rr

SLICES, ATLAS = "oasis1_slices_196subj.zip", "oasis_axial_atlas_desikan.npz"
SIZE = (104, 88)  # half the slice's resolution
TEST = 0.4
DISCORDANT = 3  # demented women, and healthy men, in the biased training rows


def prepare(data: Path, out: Path) -> Path:
    """The axial slices, a manifest, the atlas and the names of its regions, in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(data / SLICES) as archive:
        rows = list(csv.DictReader(io.StringIO(archive.read("oasis_cross-sectional.csv").decode())))
        for row in rows:
            archive.extract(f"{row['ID']}_a.jpg", out / "slices")
    manifest = pd.DataFrame(
        {
            "image": [f"slices/{row['ID']}_a.jpg" for row in rows],
            "dementia": ["demented" if float(row["CDR"]) > 0 else "healthy" for row in rows],
            "sex": [row["M/F"] for row in rows],
            "subject": [row["ID"].rsplit("_", 1)[0] for row in rows],
        }
    )
    manifest.to_csv(out / "manifest.csv", index=False)
    with np.load(data / ATLAS) as atlas:
        np.save(out / "atlas.npy", atlas["labels"])
        named = dict(name.split(":", 1) for name in atlas["names"].tolist())
    (out / "names.json").write_text(json.dumps(named, indent=1))
    return out / "manifest.csv"


def start(classes: tuple[Any, ...], rng: np.random.Generator) -> rr.Classifier:
    return rr.Classifier.load(
        "rightreasons.models.small:small_cnn",
        num_classes=2,
        classes=classes,
        size=SIZE,
        channels=1,
        width=8,
        mean=0.3,
        std=0.3,
        rng=rng,
    )


def one_split(cohort: rr.Cohort, out: Path, number: int, seeds: Seeds, epochs: int, B: int = 10_000) -> rr.Finding:
    """Train on one part of the subjects and audit on the others."""
    rng = np.random.default_rng(number)
    split = cohort.split({"train": 1 - TEST, "test": TEST}, rng=rng)
    train, test = split.on("train"), split.on("test")
    biased = train.bias(discordant=DISCORDANT, pairs={"M": "demented", "F": "healthy"}, rng=rng)
    balanced = train.balance(rng=rng)
    # So few rows are all needed for training: every model sees them for the same number of epochs, and none is chosen on others.
    fixed = {"stop_on": "loss", "patience": None, "epochs": epochs, "batch": 16, "lr": 3e-3, "threads": 1}
    models = compared(start, biased, balanced, {"test": test}, seeds=seeds, folder=out / f"split-{number + 1}", **fixed)
    atlas = {"partitions": [f"atlas:{out / 'atlas.npy'}", "grid:8"], "names": str(out / "names.json")}
    return rr.audit("oscar", models, name=f"oscar, split {number + 1}", B=B, **atlas).finding()


def run(
    data: Path, out: Path, splits: int = 3, seeds: Seeds | None = None, epochs: int = 30, B: int = 10_000
) -> list[rr.Finding]:
    cohort = rr.Cohort.read(prepare(data, out), label="dementia", attribute="sex", subject="subject")
    return [one_split(cohort, out, number, seeds or Seeds(), epochs, B) for number in range(splits)]


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    given.add_argument("out", type=Path)
    given.add_argument(
        "--data", type=Path, default=os.environ.get("RIGHTREASONS_DATA"), required="RIGHTREASONS_DATA" not in os.environ
    )
    given.add_argument("--splits", type=int, default=3)
    asked = given.parse_args()
    findings = run(asked.data, asked.out, asked.splits)
    print(json.dumps([summary(finding) for finding in findings], indent=1))
    print(rr.report(findings, asked.out / "report.html", title="OASIS: dementia and sex"))
    print(draw(findings[0], asked.out / "where.png", number=2))


if __name__ == "__main__":
    main()
