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
from roles import Seeds, compared, summary

import rightreasons as rr

SLICES, ATLAS = "oasis1_slices_196subj.zip", "oasis_axial_atlas_desikan.npz"
SIZE = (104, 88)  # half the slice's resolution
TEST = 0.4
DISCORDANT = 3  # demented women, and healthy men, in the biased training rows


def prepare(data: Path, out: Path) -> Path:
    """Axial slices as PNG-less stack, a manifest, the atlas and its names in `out`."""
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
