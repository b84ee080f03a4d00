"""Write the folders that every later version must still read: `python tests/stored/make.py tests/stored/<version>`.

Run it once for each version that is released, and never again over what lies there. What is large and tells nothing more of a
format (pages, images, wide tables) is left out before the folders are sealed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from rightreasons.seal import seal

STUDY = """
name = "tiny"
[data]
world = "digits"
agreement = 0.9
n = 120
pixels = 12
[architectures.cnn]
model = "rightreasons.models.small:small_cnn"
size = 12
width = 2
[train]
epochs = 1
batch = 32
[[runs]]
architecture = "cnn"
seed = [0]
[performance]
B = 10
[audits.groups]
B = 10
"""
COLUMNS = "--label label --attribute cue --split split"
LEFT_OUT = ("report.html", "world", "lock", "log.txt", "table.parquet", "estimates.parquet")
LEFT_OUT_OF_AN_AUDIT = ("evidence", "predictions", "cohorts", "measurements", "summary.parquet")  # as those of a study


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="stored-") as folder:
        place = Path(folder)
        (place / "tiny.toml").write_text(STUDY)
        table().to_csv(place / "answers.csv", index=False)
        run(place, "sweep tiny.toml --out study")
        (model,) = (place / "study" / "runs").glob("*/model")
        shutil.copytree(model, place / "model")
        world = "study/world/manifest.csv"
        run(place, f"audit {world} {COLUMNS} --model model --quick --audits groups --set groups.B=10 --out audit")
        run(place, "audit --predictions answers.csv --id id --attribute sex --audits groups,pull --set pull.B=10 --out answers")
        for name in ("study", "audit", "answers"):
            slim(place / name, LEFT_OUT if name != "audit" else (*LEFT_OUT, *LEFT_OUT_OF_AN_AUDIT))
            seal(place / name)
            shutil.copytree(place / name, target / name)


def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    label, sex = rng.integers(0, 2, 80), rng.integers(0, 2, 80)
    p = 1 / (1 + np.exp(-(rng.normal(size=80) + 2 * label + sex - 1.5)))
    ids = [f"r{row}" for row in range(80)]
    return pd.DataFrame({"id": ids, "label": label, "sex": np.array(["f", "m"])[sex], "p": p.round(4)})


def run(place: Path, command: str) -> None:
    quiet = {**os.environ, "RIGHTREASONS_QUIET": "1"}
    subprocess.run([sys.executable, "-m", "rightreasons", *command.split()], cwd=place, check=True, env=quiet)


def slim(folder: Path, without: Sequence[str]) -> None:
    for name in without:
        for path in list(folder.rglob(name)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
