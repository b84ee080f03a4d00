"""ART on real photos: cats and dogs that carry a tag, whose text agrees with the animal in 95 of 100 training photos.

    python examples/art/pets.py --data FOLDER --architecture resnet18
    python examples/art/pets.py --data FOLDER --architecture vit_tiny

FOLDER holds pets96_cat_dog_tag.zip (3,000 photos of 96 px, clean and tagged, and the boxes of the tags), and for the transformer
vit_tiny_patch16_224.safetensors. Every photo gets a tag that was cut by its box from a tagged photo, of its own class or of the
other: were only conflicting tags pasted, the paste would be the cue. Its twin is the same photo with the other text.
"""

from __future__ import annotations

import argparse
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
from comparison import is_prepared, options, plan, run, told
from numpy.typing import NDArray
from PIL import Image

from rightreasons.data.cohort import Cohort
from rightreasons.stats.resampling import task_rng

SIDE, DRAWN = 96, 512  # pixels of a photo, and of the frame that its boxes are given in
TAG = 16
DISCORDANT = 0.05  # of the train and val rows; audit and test rows have as many conflicting as agreeing tags
FRACTIONS = {"train": 0.38, "val": 0.22, "audit": 0.24, "test": 0.16}
ARCHITECTURES = {
    "resnet18": {"name": "resnet18", "model": "timm:resnet18", "size": SIDE, "crop": 1.0, "mean": 0.5, "std": 0.5},
    "vit_tiny": {"name": "vit_tiny", "model": "timm:vit_tiny_patch16_224", "size": 224, "crop": 1.0, "new_head": True},
}
TRAINING = {
    "resnet18": {"epochs": 60, "lr": 1e-3, "batch": 64, "patience": 99, "augment": "flip_and_shift"},
    "vit_tiny": {"epochs": 8, "lr": 1e-4, "batch": 64, "patience": 99},
}
LAYERS = {"resnet18": ["layer1", "layer2", "layer3", "layer4"], "vit_tiny": ["blocks.2", "blocks.5", "blocks.8", "blocks.11"]}


def main() -> None:
    parser = options("ART and ten methods on tagged photos of pets", "build/art-pets", seeds=3)
    parser.add_argument("--architecture", choices=ARCHITECTURES, default="resnet18")
    parser.add_argument(
        "--discordant", type=float, default=DISCORDANT, help="share of train and val tags that say the other animal"
    )
    parser.add_argument("--epochs", type=int, default=None, help="of every training; 60 for the CNN, 8 for the transformer")
    given = told(parser)
    out = given.out / given.architecture
    prepare(given, out / "data")
    architecture = dict(ARCHITECTURES[given.architecture])
    if given.architecture == "vit_tiny":
        architecture["checkpoint"] = str((given.data / "vit_tiny_patch16_224.safetensors").absolute())
    training = {**TRAINING[given.architecture], **({"epochs": 2} if given.quick else {})}
    training |= {"epochs": given.epochs} if given.epochs else {}
    text = plan(
        f"pets-{given.architecture}",
        architecture,
        training,
        given,
        unlearning=1 if given.quick else max(4, int(training["epochs"]) // 4),
        data={"label": "animal", "attribute": "tag", "id": "id", "split": "split", "twin": "twin", "twin_attribute": "twin_tag"},
        art={
            "attribute": "tag",
            "aligned": {"cat": "cat", "dog": "dog"},
            "layers": [] if given.no_layers else LAYERS[given.architecture][-1 if given.quick else 0 :],
            "pictures": 0 if given.no_layers else 12,
        },
    )
    run(text, out)


def prepare(given: argparse.Namespace, folder: Path) -> None:
    """Photos with their tags and with the other text, as two stacks, and the manifest; made once."""
    if is_prepared(folder, quick=given.quick, discordant=given.discordant):
        return
    rng = task_rng(0, "tags of the pets")
    with zipfile.ZipFile(given.data / "pets96_cat_dog_tag.zip") as source:
        boxes = pd.read_csv(source.open("boxes_512px.csv")).set_index("image")
        names = sorted(n.split("/")[1] for n in source.namelist() if n.startswith("clean/") and n.endswith(".jpg"))
        if given.quick:
            names = sorted(rng.choice(names, 600, replace=False))
        boxes = boxes.loc[names]
        animal = np.where(boxes["is_cat"] == 1, "cat", "dog")
        clean = np.stack([photo(source, f"clean/{n}") for n in names])
        tags = {kind: cut(source, boxes[animal == kind]) for kind in ("cat", "dog")}
    rows = pd.DataFrame({"id": [n.removesuffix(".jpg") for n in names], "animal": animal})
    cohort = Cohort.from_columns({"id": rows["id"], "animal": animal}, label="animal", image=None, id="id")
    rows["split"] = cohort.split(FRACTIONS, rng=rng).splits
    other = np.where(animal == "cat", "dog", "cat")
    rows["tag"] = np.where(conflicting(rows, given.discordant, rng), other, animal)
    rows["twin_tag"] = np.where(rows["tag"] == "cat", "dog", "cat")
    corner = np.clip(np.rint(boxes[["tag_xmin", "tag_ymin"]].to_numpy() * SIDE / DRAWN).astype(int), 0, SIDE - TAG)
    for column, text in (("image", rows["tag"]), ("twin", rows["twin_tag"])):
        np.save(folder / f"{column}.npy", pasted(clean, tags, text, corner, rng))
        rows[column] = [f"{column}.npy#{k}" for k in range(len(rows))]
    rows.to_csv(folder / "manifest.csv", index=False)
    print(rows.groupby(["split", "animal", "tag"]).size().to_string())


def conflicting(rows: pd.DataFrame, discordant: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """(n,) which rows get the other animal's tag: the same share of both animals in every split."""
    found = np.zeros(len(rows), dtype=bool)
    for (split, _), members in rows.groupby(["split", "animal"]).indices.items():
        share = discordant if split in ("train", "val") else 0.5
        found[rng.permutation(members)[: round(share * len(members))]] = True
    return found


def photo(source: zipfile.ZipFile, name: str) -> NDArray[np.uint8]:
    return np.asarray(Image.open(source.open(name)).convert("RGB").resize((SIDE, SIDE)))


def cut(source: zipfile.ZipFile, boxes: pd.DataFrame) -> NDArray[np.uint8]:
    """(m, TAG, TAG, 3) tags of tagged photos, of those that lie whole inside the photo."""
    whole = boxes[(boxes["tag_xmax"] - boxes["tag_xmin"] >= 84) & (boxes["tag_ymax"] - boxes["tag_ymin"] >= 84)]
    corner = np.rint(whole[["tag_xmin", "tag_ymin"]].to_numpy() * SIDE / DRAWN).astype(int)
    inside = (corner <= SIDE - TAG).all(axis=1)
    return np.stack(
        [photo(source, f"tagged/{n}")[y : y + TAG, x : x + TAG] for n, (x, y) in zip(whole.index[inside], corner[inside])]
    )


def pasted(
    clean: NDArray[np.uint8],
    tags: dict[str, NDArray[np.uint8]],
    text: pd.Series,
    corner: NDArray[np.int_],
    rng: np.random.Generator,
) -> NDArray[np.uint8]:
    """Each photo with a tag of that text, where its own tag lay."""
    images = clean.copy()
    for k, (kind, (x, y)) in enumerate(zip(text, corner, strict=True)):
        images[k, y : y + TAG, x : x + TAG] = tags[kind][rng.integers(len(tags[kind]))]
    return images


if __name__ == "__main__":
    main()
