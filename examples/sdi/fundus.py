"""SDI and CCR on real fundus images: trained on APTOS, looked at on FIVES, a second site.

    python examples/sdi/fundus.py --data FOLDER --out build/sdi-fundus --workers 6
    rightreasons verify build/sdi-fundus/study
    rightreasons export build/sdi-fundus/study --only csv,svg

FOLDER holds fundus_aptos_fives_128.zip. Label: any retinopathy (APTOS grade 1 or more; FIVES D against N, and D against A and G).
APTOS has come with each image's local mean subtracted (4 (image - blurred) + 128); FIVES is treated likewise, and also left raw.
Everything beyond one circle is black on both sides, so that the field of view can be computed. The cue is the width of the halo
that this treatment leaves at the field's rim: it depends on the camera's resolution, and on APTOS it goes with the label.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image
from scipy import ndimage

from rightreasons.study.sweep import sweep

ARCHIVE = "fundus_aptos_fives_128.zip"
PIXELS = 128
RADIUS = 0.97  # of the half side; beyond it all is black
RING = 0.88  # where the halo is measured, up to RADIUS
BLUR = 2.0  # pixels, of FIVES' local mean: as fine as APTOS' sharper images

STUDY = """# Written by examples/sdi/fundus.py
name = "sdi-aptos-fives"
seed = 0

[data]
manifest = "aptos.csv"
id = "id"
label = "label"
attribute = "halo"
split = "split"

{externals}
{architectures}
[regimes.baseline]

[regimes.ccr]
method = "ccr"
select = "loss"
strengths = {strengths}

[regimes.ccr-no-invariance]
method = "ccr"
select = "loss"
representation = 0.0
prediction = 0.0
strengths = {strengths}

[regimes.ccr-no-sensitivity]
method = "ccr"
select = "loss"
sensitivity = 0.0
strengths = {strengths}

[train]
epochs = {epochs}
lr = 5e-4
warmup = 1.0
patience = {epochs}
stop_on = "loss"

[[runs]]
regime = ["baseline", "ccr"]
seed = {seeds}
{ablations}
[severities]
baseline = {{architecture = "resnet18", regime = "baseline", seed = {first}}}

[performance]
B = 1000

[audits.sdi]
attribute = "halo"
B = 500
roles = {{panel = {{architecture = "*", regime = ["baseline", "ccr"]}}}}

[audits.sdi-two-probes]
method = "sdi"
attribute = "halo"
B = 500
weights = [0.5, 0.5, 0.0]
roles = {{panel = {{architecture = "*", regime = ["baseline", "ccr"]}}}}

[audits.focus]
maps = "gradcam"
same = true
pictures = 6

[tables.internal]
title = "Table I. Internal performance and calibration"
regimes = ["baseline", "ccr"]
columns = ["test_auc", "test_accuracy", "test_ece", "test_brier"]

[tables.dependence]
title = "Table II. Shortcut dependence and its components"
regimes = ["baseline", "ccr"]
columns = [
    "sdi: S_nc of the features, all operators", "sdi: R_sc of the features, all operators", "sdi: AUC_nc, of the cue's probe",
    "sdi: SDI (features)", "sdi: SDI (what the head reads)",
]

[tables.external]
title = "Table III. External performance and degradation"
regimes = ["baseline", "ccr"]
columns = ["fives_auc", "fives_delta_auc", "fives_delta_ece", "fives_other_auc", "fives_raw_auc", "fives_raw_delta_auc"]

[relations.degradation]
title = "Table IV and Figure 1. Dependence and degradation"
regimes = ["baseline", "ccr"]
x = ["sdi: SDI (features)", "sdi: SDI (what the head reads)", "sdi-two-probes: SDI (features)"]
y = ["fives_delta_auc", "fives_delta_ece"]

[pairs.ccr]
title = "Figures 2 and 3. CCR against baseline"
of = ["baseline", "ccr"]
columns = ["sdi: SDI (features)", "fives_delta_auc", "fives_delta_ece", "test_auc", "fives_auc"]

[tables.ablation]
title = "Table V. Parts of the index and of the loss"
columns = ["sdi: SDI (features)", "sdi-two-probes: SDI (features)", "fives_delta_auc", "fives_auc"]

[tables.focus]
title = "Table VI. Where Grad-CAM lies"
regimes = ["baseline", "ccr"]
columns = [
    "focus: retinal focus score (mass inside the region)", "focus: peripheral activation ratio (mass at the rim)",
    "focus: entropy of the map",
]

[extract]
batch = 128

[engine_settings]
threads = 1
workers = {workers}
"""
ABLATIONS = """
[[runs]]
architecture = "resnet18"
regime = ["ccr-no-invariance", "ccr-no-sensitivity"]
seed = {seeds}
"""
EXTERNAL = """[external.{name}]
manifest = "{name}.csv"
id = "id"
label = "label"
attribute = "halo"
"""
NETWORKS = {
    "resnet18": 'model = "timm:resnet18"',
    "efficientnet_b0": 'model = "timm:efficientnet_b0"',
    "vit_small": 'model = "timm:vit_small_patch16_224"\nimg_size = {size}',
}


def main() -> None:
    parser = argparse.ArgumentParser(description="SDI and CCR, APTOS to FIVES")
    parser.add_argument("--data", type=Path, default=os.environ.get("RIGHTREASONS_DATA"), help="folder of the zip file")
    parser.add_argument("--out", type=Path, default=Path("build/sdi-fundus"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--size", type=int, default=PIXELS, help="pixels that the networks see")
    parser.add_argument(
        "--strengths", type=float, nargs="+", default=[10.0, 3.0, 1.0], help="of CCR, from which each model chooses"
    )
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--no-ablations", action="store_true")
    parser.add_argument("--quick", action="store_true", help="few images: shows that all of it runs, and nothing else")
    given = parser.parse_args()
    if given.data is None:
        parser.error(f"say where {ARCHIVE} is: --data FOLDER, or the environment variable RIGHTREASONS_DATA")
    given.out.mkdir(parents=True, exist_ok=True)
    externals = manifests(Path(given.data) / ARCHIVE, given.out, given.quick)
    text = STUDY.format(
        externals="\n".join(EXTERNAL.format(name=name) for name in externals),
        architectures="\n".join(
            f"[architectures.{name}]\n{NETWORKS[name].format(size=given.size)}\nsize = {given.size}\nmean = 0.5\nstd = 0.25\n"
            for name in given.networks
        ),
        strengths=given.strengths,
        epochs=given.epochs,
        seeds=given.seeds,
        first=given.seeds[0],
        ablations="" if given.no_ablations else ABLATIONS.format(seeds=given.seeds),
        workers=given.workers,
    )
    (given.out / "study.toml").write_text(text)
    sweep(given.out / "study.toml", given.out / "study")


def manifests(archive: Path, out: Path, quick: bool) -> list[str]:
    """Stacks of pixels and tables in `out`; names of the external ones."""
    with zipfile.ZipFile(archive) as source:
        grades = {
            row["id_code"]: int(row["diagnosis"]) for row in csv.DictReader(io.TextIOWrapper(source.open("aptos_train.csv")))
        }
        names = sorted(name for name in source.namelist() if name.endswith(".jpg"))
        names = names[:: 12 if quick else 1]
        pixels = {name: np.asarray(Image.open(source.open(name)).convert("RGB")) for name in names}
    aptos = [name for name in names if name.startswith("aptos/")]
    fives = [name for name in names if name.startswith("fives/")]
    inside = np.stack([pixels[name] for name in aptos])
    raw = np.stack([pixels[name] for name in fives])
    label = np.array([int(grades[Path(name).stem] > 0) for name in aptos])
    disease = np.array([Path(name).stem[-1] for name in fives])
    split = _split(label)
    widest = float(np.median(halo(inside)[split == "train"]))
    stacks = {"aptos": inside, "fives": local_mean_subtracted(raw), "fives_raw": raw}
    for name, stack in stacks.items():
        np.save(out / f"{name}.npy", in_circle(stack))

    def write(name: str, stack: str, rows: np.ndarray, ids: list[str], labels: np.ndarray, **more: np.ndarray) -> None:
        wide = (halo(stacks[stack][rows]) > widest).astype(int)
        columns = {"id": [ids[r] for r in rows], "image": [f"{stack}.npy#{r}" for r in rows], "label": labels, "halo": wide}
        pd.DataFrame({**columns, **more}).to_csv(out / f"{name}.csv", index=False)

    write("aptos", "aptos", np.arange(len(aptos)), aptos, label, split=split)
    told, others = np.flatnonzero(np.isin(disease, ["D", "N"])), np.flatnonzero(np.isin(disease, ["D", "A", "G"]))
    for name, stack, rows in (("fives", "fives", told), ("fives_other", "fives", others), ("fives_raw", "fives_raw", told)):
        write(name, stack, rows, fives, (disease[rows] == "D").astype(int))
    return ["fives", "fives_other", "fives_raw"]


def _split(label: np.ndarray) -> np.ndarray:
    """65 % train, 10 % val, 10 % audit (the cue's probe is fitted there) and 15 % test, stratified by label."""
    rng, split = np.random.default_rng(0), np.empty(len(label), dtype=object)
    for value in np.unique(label):
        rows = rng.permutation(np.flatnonzero(label == value))
        parts = np.split(rows, (np.array([0.65, 0.75, 0.85]) * len(rows)).round().astype(int))
        for name, part in zip(("train", "val", "audit", "test"), parts, strict=True):
            split[part] = name
    return split


def _radius() -> np.ndarray:
    at = np.arange(PIXELS) - (PIXELS - 1) / 2
    return np.hypot(at[:, None], at[None]) / (PIXELS / 2)


def in_circle(pixels: np.ndarray) -> np.ndarray:
    """Black beyond one circle."""
    return np.where((_radius() <= RADIUS)[..., None], pixels, 0).astype(np.uint8)


def halo(pixels: np.ndarray) -> np.ndarray:
    """(n,) mean distance from middle grey in the field's outermost ring: wide halos of coarse images have more."""
    ring = (_radius() > RING) & (_radius() <= RADIUS)
    return np.abs(pixels[:, ring].astype(np.float64) - 128).mean(axis=(1, 2))


def local_mean_subtracted(pixels: np.ndarray) -> np.ndarray:
    """4 (image - blurred) + 128, as APTOS came."""
    values = pixels.astype(np.float32)
    return np.clip(4 * (values - ndimage.gaussian_filter(values, (0, BLUR, BLUR, 0))) + 128, 0, 255).astype(np.uint8)


if __name__ == "__main__":
    main()
