"""Audits of five kinds, of made-up chest films whose projection (AP or PA) goes with the label: what pages are tried on.

The features are drawn and the head is given, so that no network is trained; the audits are real.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from rightreasons.audits import audit_all
from rightreasons.case import Sheet
from rightreasons.data.cohort import Cohort
from rightreasons.evidence import Evidence
from rightreasons.findings import Estimate, Finding
from rightreasons.head import linear_head
from rightreasons.study.data_sheet import sheet_of
from rightreasons.study.preflight import checked

KINDS = ("shortcut", "no evidence", "presentation", "inconclusive", "does not work")
AUDITS = ("groups", "pull", "excess")
SETTINGS = {"groups": {"B": 500}, "pull": {"B": 500, "permutations": 200}, "excess": {"B": 200, "refits": 8}}
LABELS, VIEWS = np.array(["no finding", "COVID"]), np.array(["PA", "AP"])
SIZE = 72
STUDY = """
[data]
manifest = "films.csv"
label = "diagnosis"
attribute = "view"
image = "file"

[model]
model = "timm:resnet50"
checkpoint = "weights.pt"
"""


def case(kind: str, folder: Path | None = None, audits: tuple[str, ...] = AUDITS, seed: int = 0) -> tuple[list[Finding], Sheet]:
    """Findings and sheet of one kind; with a folder, the films are drawn into it and shown."""
    evidence = films(kind, folder, seed)
    settings = {name: SETTINGS[name] for name in audits if name in SETTINGS}
    findings, cards = checked(audit_all(evidence, audits=audits, settings=settings), evidence)
    rows = evidence.on("test").cohort
    learnt = Estimate(name="view", value=0.62, row="behaviour", note="Cramér's V")
    sheet = sheet_of(
        rows, evidence=evidence, command="rightreasons audit films.toml --out audit", study=STUDY, fingerprints=False
    )
    return findings, sheet.model_copy(update={"preflight": tuple(cards), "imbalance": (learnt,)})


def films(kind: str, folder: Path | None, seed: int) -> Evidence:
    """What a model says of films, by kind: it uses the projection, does not, sees more disease with it, too few rows, noise."""
    rng = np.random.default_rng(seed)
    n = 60 if kind == "inconclusive" else 400
    label = rng.integers(0, 2, 3 * n)
    view = np.where(rng.random(3 * n) < 0.75, label, 1 - label)
    disease = (2 * label - 1) + rng.normal(size=3 * n)
    if kind == "presentation":
        disease = disease + 0.7 * (2 * view - 1)
    shown = 0.0 if kind == "presentation" else 1.5  # there the projection is seen in the disease alone
    projection = shown * (2 * view - 1) + 0.7 * rng.normal(size=3 * n)
    features = np.column_stack([disease, projection, rng.normal(size=(3 * n, 4))])
    weight = np.zeros((2, 6))
    weight[1, :2] = {"shortcut": (1.2, 1.0), "inconclusive": (1.2, 0.15), "does not work": (0.0, 0.0)}.get(kind, (1.5, 0.0))
    if kind == "does not work":
        weight[1, 2:] = 1.0
    head = linear_head(weight, np.zeros(2))
    columns = {
        "id": [f"film-{k:04d}" for k in range(3 * n)],
        "diagnosis": LABELS[label],
        "view": VIEWS[view],
        "split": np.repeat(["train", "audit", "test"], n),
        "patient": [f"p{k // 2}" for k in range(3 * n)],
    }
    if folder is not None:
        columns["file"] = _drawn(folder, label, view, rng)
    told: dict[str, Any] = {"label": "diagnosis", "attribute": "view", "split": "split", "subject": "patient"}
    if folder is not None:
        told |= {"image": "file", "root": folder}
    cohort = Cohort.from_columns(columns, **told)
    # The codes of labels are in alphabetical order, and so are the outputs.
    order = [list(cohort.classes).index(name) for name in LABELS]
    swapped = linear_head(np.stack([weight[order.index(k)] for k in range(2)]), np.zeros(2)) if order != [0, 1] else head
    arrays = {"features": features, "logits": swapped(features)}
    return Evidence.from_arrays(cohort, arrays, head=swapped, name="net", training=cohort.on("train"))


def _drawn(folder: Path, label: np.ndarray, view: np.ndarray, rng: np.random.Generator) -> list[str]:
    """Two dark lungs on grey, white patches where there is disease, and the letters that a technician puts into the corner."""
    folder.mkdir(parents=True, exist_ok=True)
    films = []
    for y, a in zip(label, view, strict=True):
        film = Image.new("L", (SIZE, SIZE), 150)
        draw = ImageDraw.Draw(film)
        for left in (10, 40):
            draw.ellipse((left, 14, left + 22, 62), fill=45)
        for _ in range(5 * int(y)):
            x, z = int(rng.integers(12, 56)), int(rng.integers(22, 54))
            draw.ellipse((x, z, x + 7, z + 6), fill=int(rng.integers(120, 190)))
        if a:
            draw.text((3, 2), "AP", fill=255)
        films.append(np.clip(np.asarray(film, float) + rng.normal(0, 9, (SIZE, SIZE)), 0, 255).astype(np.uint8))
    np.save(folder / "films.npy", np.stack(films))
    return [f"films.npy#{k}" for k in range(len(films))]
