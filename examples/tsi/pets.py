"""TSI on real photos with real weights: a ViT-Ti of ImageNet on pets, clean and with a tag that says cat or dog.

    RIGHTREASONS_DATA=<folder> python examples/tsi/pets.py build/tsi-pets --all --device cuda

The folder holds `vit_tiny_patch16_224.safetensors` and `pets224_imagenet_breeds.zip` (480 photos of 24 breeds that are classes of
ImageNet, each clean and tagged, with trimaps and boxes of the pet and of the tag). Two copies are trained further to tell cats
from dogs on half of the photos, one on clean photos and one on tagged ones; all three are compared on the other half. On one CPU
core a photo takes about half a minute, so that by default two of each breed are looked at.

Written: `report.html` (the findings with their galleries), `numbers.md` (every estimate and table), `classes.csv`, and with
`--page FOLDER` the page `tsi-pets.md` with its figures.
"""

from __future__ import annotations

import argparse
import os
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image, ImageDraw
from timm.data import ImageNetInfo

import rightreasons as rr
from rightreasons.audits import needs_of
from rightreasons.audits.tsi import Measurement
from rightreasons.data.cohort import Cohort
from rightreasons.evidence import Evidence
from rightreasons.findings import Finding, Table
from rightreasons.perturbations.tokens import united
from rightreasons.report import figures
from rightreasons.stats.bootstrap_means import column_means
from rightreasons.stats.resampling import Interval, task_rng

WEIGHTS, PHOTOS, MODEL = "vit_tiny_patch16_224.safetensors", "pets224_imagenet_breeds.zip", "timm:vit_tiny_patch16_224"
SIDE, PATCH, GRID = 224, 16, (14, 14)
DRAWN = 512  # pixels of the frame that the boxes are given in
BACKGROUND = 2  # in a trimap; 1 is the pet and 3 its rim
SETTINGS: dict[str, Any] = {"extras": ["all"], "draws": 4}
LIGHT: dict[str, Any] = {"extras": ["keep"]}
PAIRED: dict[str, Any] = {**LIGHT, "against": "baseline"}
TRAINING: dict[str, Any] = {"epochs": 15, "lr": 1e-4, "batch": 32, "warmup": 1, "patience": None}
KINDS = ("clean", "tagged")
GALLERY = (4, 2)  # pictures across and down
BREEDS = {
    "Egyptian_Mau": 285, "Persian": 283, "Siamese": 284, "basset_hound": 161, "beagle": 162, "boxer": 242, "chihuahua": 151,
    "english_cocker_spaniel": 219, "english_setter": 212, "german_shorthaired": 210, "great_pyrenees": 257, "japanese_chin": 152,
    "keeshond": 261, "leonberger": 255, "miniature_pinscher": 237, "newfoundland": 256, "pomeranian": 259, "pug": 254,
    "saint_bernard": 247, "samoyed": 258, "scottish_terrier": 199, "staffordshire_bull_terrier": 179, "wheaten_terrier": 202,
    "yorkshire_terrier": 187,
}  # fmt: skip
MISSING = "Is a missing patch really missing?"
FIGURES = {
    "deletion": "Probability lost when the most influential tokens are dropped",
    "keep": "What the object alone and the rest alone are worth",
    "mask-and-box": "The mask instead of the box",
    "noise": "Tokens left out against noise",
    "share": "How often a token outside outweighs the object",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("RIGHTREASONS_DATA", ".")))
    parser.add_argument("--photos", type=int, default=2, help="of each breed")
    parser.add_argument("--all", action="store_true", help="all 480")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--page", type=Path, help="folder of a page with the main numbers and figures")
    given = parser.parse_args()
    rows = prepare(given.data, given.out / "data", None if given.all else given.photos)
    half = rows[rows["split"] == "test"].reset_index(drop=True)
    size = {"batch": 32, "chunk": 96} if given.device.startswith("cuda") else {"batch": 8, "chunk": 24}
    running = {"device": given.device, "threads": given.threads, **size}
    whole, evidence = network(given.data), given.out / "evidence"
    seen = {"clean": measured(whole, rows, "clean", "breed", evidence / "clean", running, SETTINGS)}
    seen["tagged"] = measured(whole, rows, "tagged", "breed", evidence / "tagged", running, LIGHT)
    for kind in KINDS:
        model = trained(given.data, rows, kind, given.device)
        out = evidence / f"trained-{kind}"
        seen[f"trained on {kind}"] = measured(model, half, "tagged", "species", out, running, PAIRED)
    models = {"test": seen["trained on tagged"], "baseline": seen["trained on clean"], "panel": [seen["tagged"]]}
    results = {
        "clean": rr.audit("tsi", seen["clean"], name="clean photos, boxes", **SETTINGS),
        "clean, masks": rr.audit("tsi", seen["clean"], name="clean photos, masks", region="mask"),
        "tagged": rr.audit("tsi", {"test": seen["tagged"], "panel": [seen["clean"]]}, name="tagged photos, boxes", **LIGHT),
        "trained": rr.audit("tsi", models, name="trained on tagged photos, boxes", **PAIRED),
        "trained, masks": rr.audit("tsi", models, name="trained on tagged photos, masks", region="mask", against="baseline"),
    }
    findings = {name: result.finding() for name, result in results.items()}
    rr.report(list(findings.values()), given.out / "report.html", title="TSI of a ViT-Ti on photos of pets")
    results["clean"].classes.to_csv(given.out / "classes.csv", index=False)
    results["clean"].problems.to_csv(given.out / "annotations.csv", index=False)
    tag = tags(seen, {name: half if name.startswith("trained") else rows for name in seen})
    text = numbers(findings, tag, len(rows))
    (given.out / "numbers.md").write_text(text)
    print(text)
    if given.page is not None:
        given.page.mkdir(parents=True, exist_ok=True)
        shown = [name for name, title in FIGURES.items() if draw(findings["clean"], title, given.page / f"tsi-{name}.svg")]
        for name in ("clean", "trained"):
            sheet(results[name].test[0]).quantize().save(given.page / f"tsi-gallery-{name}.png")
        (given.page / "tsi-pets.md").write_text(page(findings, tag, len(rows), given.device, shown))


def prepare(data: Path, folder: Path, photos: int | None) -> pd.DataFrame:
    """The manifest of both kinds of photos, `photos` of each breed; files are unpacked once."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(data / PHOTOS) as archive:
        rows = pd.read_csv(archive.open("boxes_512px.csv"))
        held = {name.removeprefix("clean/") for name in archive.namelist() if name.startswith("clean/")}
        rows = rows[rows["image"].isin(held)].sort_values("image")
        if photos is not None:
            rows = rows.groupby("breed", sort=False).head(photos)
        rows = rows.reset_index(drop=True)
        for name in rows["image"]:
            for kind in ("clean", "tagged"):
                archive.extract(f"{kind}/{name}", folder)
            with archive.open(f"trimap/{Path(name).stem}.png") as file:
                mask = np.asarray(Image.open(file)) != BACKGROUND
            Image.fromarray(mask.astype(np.uint8) * 255).save(folder / f"mask_{Path(name).stem}.png")
    side = Image.open(folder / "clean" / rows["image"].iloc[0]).width
    names = classes()
    return pd.DataFrame(
        {
            "id": [Path(name).stem for name in rows["image"]],
            "clean": [str((folder / "clean" / name).absolute()) for name in rows["image"]],
            "tagged": [str((folder / "tagged" / name).absolute()) for name in rows["image"]],
            "mask": [str((folder / f"mask_{Path(name).stem}.png").absolute()) for name in rows["image"]],
            "box": placed(rows, "pet", side),
            "pet": placed(rows, "pet", SIDE),
            "tag": placed(rows, "tag", SIDE),
            "breed": [names[BREEDS[breed]] for breed in rows["breed"]],
            "species": np.where(rows["is_cat"] == 1, "cat", "dog"),
            "split": np.where(rows.groupby("breed", sort=False).cumcount() % 2, "test", "train"),
        }
    )


def placed(rows: pd.DataFrame, what: str, side: int) -> list[str]:
    """Boxes as text, in pixels of a photo of that side."""
    corners = rows[[f"{what}_{c}" for c in ("xmin", "ymin", "xmax", "ymax")]].to_numpy(float) * side / DRAWN
    return [" ".join(f"{v:.3f}" for v in box) for box in corners]


def classes() -> list[str]:
    """A short name for each of the 1,000 outputs."""
    told = ImageNetInfo("imagenet-1k")
    short = [str(told.index_to_description(k)).split(",")[0] for k in range(1000)]
    return [name if short.count(name) == 1 else f"{name} ({k})" for k, name in enumerate(short)]


def network(data: Path, **head: Any) -> rr.Classifier:
    # Nothing is cropped: the whole photo is resized.
    model = rr.Classifier.load(MODEL, checkpoint=data / WEIGHTS, **(head or {"classes": classes()}), crop=1.0)
    model.card["name"] = "weights of ImageNet"
    return model


def trained(data: Path, rows: pd.DataFrame, kind: str, device: str) -> rr.Classifier:
    """The network with a new head for cats and dogs, trained further on half of the photos of one kind."""
    columns = {"id": rows["id"], "image": rows[kind], "species": rows["species"], "split": rows["split"]}
    cohort = Cohort.from_columns(columns, label="species", id="id", split="split", name=f"{kind} photos")
    start = network(data, num_classes=2, classes=["cat", "dog"], new_head=True)
    model = rr.train(start, cohort, device=device, **TRAINING)
    model.card["name"] = f"trained on {kind} photos"
    return model


def measured(
    model: rr.Classifier,
    rows: pd.DataFrame,
    kind: str,
    label: str,
    out: Path,
    running: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> Evidence:
    """Evidence of the clean photos; of the tagged ones, whose twins are clean."""
    columns = {"id": rows["id"], "image": rows[kind], label: rows[label], "box": rows["box"], "mask": rows["mask"]}
    read: dict[str, Any] = {"label": label, "id": "id", "box": "box", "mask": "mask", "name": f"{kind} photos"}
    if kind == "clean":
        cohorts = {"test": Cohort.from_columns(columns, **read)}
    else:
        columns |= {"tag": rows["species"], "twin": rows["clean"], "twin_tag": [None] * len(rows)}
        whole = Cohort.from_columns(columns, attribute=["tag"], twin="twin", twin_attribute={"tag": "twin_tag"}, **read)
        cohorts = {"test": whole, "twin": whole.twins()}
    needs = [n for n in needs_of(["tsi"], {"tsi": settings}) if n.role == "test" and n.cohort in cohorts]
    return rr.extract(model, cohorts, needs, out=out, **running)


# ---- numbers for a page --------------------------------------------------------------------------------------------------


def tags(seen: Mapping[str, Evidence], rows: Mapping[str, pd.DataFrame]) -> dict[str, Interval]:
    """How often the strongest token, whatever its sign, lies on the tag; and on the same place where there is none."""
    on = {name: covered(frame["tag"]) for name, frame in rows.items()}
    pet = covered(rows["clean"]["pet"])
    groups = {
        "the tags": {
            "tokens that the tag covers": on["clean"].mean(axis=1),
            "tags wholly outside the pet's box": ~(on["clean"] & pet).any(axis=1),
        }
    }
    for name, evidence in seen.items():
        maps = evidence.on("test")["maps@token_influence(explain=label)"].reshape(len(rows[name]), -1)
        at = np.abs(maps).argmax(axis=1)
        groups[name] = {
            f"strongest token on the tag's place, {name}": on[name][np.arange(len(at)), at],
            f"influence of the tag's place, {name}": (maps * on[name]).sum(axis=1),
        }
    found: dict[str, Interval] = {}
    for name, columns in groups.items():
        values = {key: np.asarray(v, float) for key, v in columns.items()}
        found |= column_means(values, rng=task_rng(0, f"tags {name}"), shares=(), B=10_000, level=0.95)
    return found


def covered(boxes: pd.Series) -> np.ndarray:
    """(n, T) tokens that boxes cover."""
    return np.stack([united(np.array(text.split(), float)[None], (PATCH, PATCH), GRID).ravel() > 0 for text in boxes])


def numbers(findings: Mapping[str, Finding], tag: Mapping[str, Interval], photos: int) -> str:
    """Markdown: verdicts, estimates with intervals, the table by correctness and size, and the tag."""
    parts = [f"{photos} photos.\n"]
    for name, finding in findings.items():
        parts.append(
            f"## {name}\n\n{finding.verdict}: {finding.sentence}\n\n| | value | 95 % interval | images |\n|---|---|---|---|"
        )
        for e in finding.estimates:
            if e.value is not None:
                limits = "" if e.low is None or e.high is None else f"{e.low:.3f} to {e.high:.3f}"
                parts.append(f"| {e.name} | {e.value:.3f} | {limits} | {e.n or ''} |")
        for title in (
            "TSI by correctness and size of the object",
            "Do tokens and noise agree?",
            MISSING,
        ):
            parts += [
                f"\n### {title}\n",
                *(as_markdown(e) for e in finding.exhibits if isinstance(e, Table) and e.title == title),
            ]
    parts.append("\n## the tag\n\n| | value | 95 % interval |\n|---|---|---|")
    parts += [f"| {name} | {i.value:.3f} | {i.low:.3f} to {i.high:.3f} |" for name, i in tag.items()]
    return "\n".join(parts) + "\n"


def as_markdown(table: Table) -> str:
    def said(cell: Any) -> str:
        value = getattr(cell, "value", cell)
        return "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)

    rows = [f"| {' | '.join(table.columns)} |", "|" + "---|" * len(table.columns)]
    return "\n".join(rows + [f"| {' | '.join(said(cell) for cell in row)} |" for row in table.rows])


def page(findings: Mapping[str, Finding], tag: Mapping[str, Interval], photos: int, device: str, shown: list[str]) -> str:
    """The main numbers as a page of the documentation."""
    clean, tagged = findings["clean"], findings["tagged"]

    def figure(name: str) -> str:
        return f"![{FIGURES[name]}](tsi-{name}.svg)\n" if name in shown else ""

    def told(finding: Finding, *starts: str) -> str:
        rows = [
            f"| {e.name} | {e.value:.3f} | {e.low:.3f} to {e.high:.3f} |"
            for e in finding.estimates
            if e.name.startswith(starts) and e.value is not None and e.low is not None and e.high is not None
        ]
        return "\n".join(["| | value | 95 % interval |", "|---|---|---|", *rows, ""])

    told_tag = [f"| {name} | {i.value:.3f} | {i.low:.3f} to {i.high:.3f} |" for name, i in tag.items()]
    command = (
        f"python examples/tsi/pets.py build/tsi-pets {'--all ' if photos == 480 else ''}--device {device} --page docs/results"
    )
    return "\n".join(
        [
            "# TSI on real photos with real weights\n",
            f"A ViT-Ti/16 with weights of ImageNet on {photos} photos of pets of 24 breeds, all classes of ImageNet. Each photo",
            "is there clean and with a tag that says cat or dog; the pet has a box and a mask. The report of the command",
            "has the whole gallery, every table and the class ranking. [What TSI says where the answer is known](tsi.md) is on",
            "another page.\n",
            f"```sh\nRIGHTREASONS_DATA=<folder> {command}\n```\n",
            "Clean photos, the tokens of the pet's box outlined in green. Warm tokens support the breed, blue ones speak against",
            "it; the highest M-TSI comes first.\n",
            "![Photos with the influence of every token](tsi-gallery-clean.png)\n",
            "## Inside and outside\n",
            "Right decisions (of 1,000 classes) from all tokens, from those of the pet's box alone, and from all others alone:\n",
            told(clean, "right "),
            figure("keep"),
            "## How often a token outside outweighs the pet\n",
            f"Clean photos: {clean.sentence}\n",
            f"With masks: {findings['clean, masks'].sentence}\n",
            f"Tagged photos: {tagged.sentence}\n",
            figure("share"),
            "Mean (standard deviation) and number of images by correctness and size of the box, like Table 1 of the paper;",
            "*right* is right on the clean and on the tagged photo:\n",
            by_size(tagged, "tagged photos", "clean photos"),
            "## Three models on the same tagged photos\n",
            "The weights of ImageNet, and two copies with a new head that were trained further to tell cats from dogs on half",
            "of the photos: clean ones, and ones whose tag gives the answer. The verdict compares both on the other half.\n",
            f"With boxes: {findings['trained'].sentence}\n",
            f"With masks: {findings['trained, masks'].sentence}\n",
            told(findings["trained"], "right "),
            by_size(findings["trained"]),
            "![Influence of the copy that was trained on tagged photos](tsi-gallery-trained.png)\n",
            "## Mask instead of box\n",
            told(clean, "M-TSI, mask", "A-TSI, mask"),
            figure("mask-and-box"),
            "## Deletion: token influence against Grad-CAM\n",
            "Probability that is lost beyond what is lost by dropping as many tokens of Grad-CAM's choice:\n",
            told(clean, "influence over gradcam"),
            figure("deletion"),
            "## Noise\n",
            told(clean, "M-TSI and NSI", "A-TSI and NSI", "lost by noise"),
            figure("noise"),
            "## A missing patch\n",
            "The same 20 patches of each photo, drawn at random, left out as tokens or covered in the image:\n",
            *(as_markdown(e) + "\n" for e in clean.exhibits if isinstance(e, Table) and e.title == MISSING),
            "## The tag\n",
            "TSI cannot tell a tag within the pet's box from the pet. So these photos show what a network does with a tag, not",
            "whether TSI would find one: for that see [worlds where the answer is known](tsi.md).\n",
            "\n".join(["| | mean | 95 % interval |", "|---|---|---|", *told_tag]),
            "",
        ]
    )


def by_size(finding: Finding, *called: str) -> str:
    """Table 1: mean (sd), n by correctness and size of the box, models side by side."""
    table = next(e for e in finding.exhibits if isinstance(e, Table) and e.title.startswith("TSI by correctness"))
    models = called or [name.removesuffix(": mean") for name in table.columns[3::4]]
    lines = [f"| score | photos | size of the box | {' | '.join(models)} |", "|" + "---|" * (3 + len(models))]
    names = {"right by every model": "right", "wrong by at least one model": "wrong"}  # by size; all of them together
    for score, subset, size, *cells in table.rows:
        each = [cells[k : k + 4] for k in range(0, len(cells), 4)]
        if all(v[3] for v in each) and (size == "all sizes" or str(subset) in names):
            told = [f"{v[0]:.2f} ({v[1]:.2f}), {v[3]}" if v[1] is not None else f"{v[0]:.2f}, {v[3]}" for v in each]
            lines.append(f"| {score} | {names.get(str(subset), subset)} | {size} | {' | '.join(told)} |")
    return "\n".join(lines) + "\n"


def sheet(m: Measurement) -> Image.Image:
    """Pictures of the gallery side by side: as many of the highest M-TSI as of the others."""
    across, down = GALLERY
    first = (len(m.pictures.pixels) + 1) // 2
    rest = np.linspace(first, len(m.pictures.pixels) - 1, across * down // 2).round().astype(int)
    chosen = np.unique([*range(min(across * down // 2, first)), *rest])
    side, strip, gap = m.pictures.pixels.shape[1], 26, 6
    found = Image.new("RGB", (across * (side + gap) - gap, down * (side + strip + gap) - gap), "white")
    write = ImageDraw.Draw(found)
    for k, picture in enumerate(chosen):
        x, y = (k % across) * (side + gap), (k // across) * (side + strip + gap)
        row = m.pictures.row[picture]
        found.paste(Image.fromarray(m.pictures.pixels[picture]), (x, y + strip))
        write.text((x, y), f"{m.classes[m.label[row]][:20]}\nM-TSI {m.maximum[row]:.2g}", fill="black")
    return found


def draw(finding: Finding, title: str, path: Path) -> bool:
    """A figure of the page as a file of its own, with the page's colours; False where the finding has none."""
    exhibit = next((e for e in finding.exhibits if e.title == title), None)
    found = None if exhibit is None else re.search(r"<svg.*?</svg>", str(figures.draw(exhibit)), re.DOTALL)
    if found is None:
        return False
    css = (Path(figures.__file__).parent / "page.css").read_text()
    css = re.sub(r"@media \(prefers-color-scheme: dark\) \{.*?\n\}\n", "", css, flags=re.DOTALL)
    head, rest = found[0].split(">", 1)
    head = head if "xmlns=" in head else head + ' xmlns="http://www.w3.org/2000/svg"'
    path.write_text(f'{head} style="background: #ffffff"><style>{css}</style>{rest}\n')
    return True


if __name__ == "__main__":
    main()
