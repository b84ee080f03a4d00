"""The screen of token influence: how often M-TSI from the k best tokens inside and k outside equals that from all, by passes.

On `vit_tiny_patch16_224.safetensors` and `pets224_imagenet_breeds.zip` in the folder that RIGHTREASONS_DATA names
(TOKEN_SCREEN_IMAGES of them; by default 480 on a GPU, 24 on a CPU); else on a small ViT trained here, with the middle of
the image as the object.
"""

from __future__ import annotations

import csv
import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import torch
from benchmarks.token_influence import trained
from rich.console import Console
from rich.table import Table
from scipy import stats
from torch import Tensor

from rightreasons.attributions import token_influence
from rightreasons.perturbations.tokens import united

NEEDS_GPU = False

KEPT = (4, 8, 12, 16, 20, 22, 24, 32, 48)
RANKING, WHOLE = 3, 2
"""Passes of the ranking (one forward; the one back costs about two), and of either way to read the tokens and run them whole."""
BARS = {"agreement": 0.95, "share_of_passes": 0.25}


def main() -> None:
    """Print the curve and, as the last line, the JSON object."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    n = int(os.environ.get("TOKEN_SCREEN_IMAGES", 480 if device == "cuda" else 24))
    classifier, x, what = trained(n)
    classifier.to(device)
    inside = _inside(x, n)
    exact, score = [], []
    for start in range(0, len(x), 16):
        images = x[start : start + 16].to(device)
        with torch.inference_mode():
            target = classifier.logits(images).argmax(1)
        exact.append(token_influence.maps(classifier, images, target=target).flatten(1).cpu())
        score.append(token_influence.expected(classifier, images, target=target).flatten(1).cpu())
    curve = curve_of(torch.cat(exact), torch.cat(score), inside.flatten(1))
    rho = float(np.median([stats.spearmanr(a, b).statistic for a, b in zip(torch.cat(exact), torch.cat(score))]))
    _show(curve, rho, what, len(x))
    reached = [row for row in curve if row["agreement"] >= BARS["agreement"]]
    print(
        json.dumps(
            {
                "name": "token-screen",
                "measured": "share of images whose M-TSI from the screened tokens equals that from all, and passes against all",
                "network": what,
                "images": len(x),
                "median_spearman_with_the_exact_ranking": round(rho, 4),
                "curve": curve,
                "fewest_passes_that_reach_the_agreement": min((row["share_of_passes"] for row in reached), default=None),
                "bars": BARS,
            }
        )
    )


def curve_of(exact: Tensor, score: Tensor, inside: Tensor) -> list[dict[str, float]]:
    """One row for each number of candidates on either side."""
    whole, rows = m_tsi(exact, inside), []
    for k in KEPT:
        chosen = token_influence.candidates(score, inside, k)
        part = m_tsi(exact.masked_fill(~chosen, torch.nan), inside)
        same = (part == whole) | (part.isnan() & whole.isnan())
        passes = (chosen.sum(1).double().mean() + RANKING + WHOLE) / (exact.shape[1] + WHOLE)
        rows.append({"keep": k, "agreement": round(float(same.double().mean()), 4), "share_of_passes": round(float(passes), 4)})
    return rows


def m_tsi(influence: Tensor, inside: Tensor) -> Tensor:
    """(n,) largest positive influence outside over the largest inside (eq. 2); NaN where that is 0."""
    held = influence.nan_to_num(0.0).clamp(min=0)
    out, within = (held.masked_fill(~m, 0.0).amax(1) for m in (~inside, inside))
    return torch.where(within > 0, out / within, torch.nan)


def _inside(x: Tensor, n: int) -> Tensor:
    """(n, gh, gw) the tokens that the object covers."""
    path = Path(os.environ.get("RIGHTREASONS_DATA", "")) / "pets224_imagenet_breeds.zip"
    if not (os.environ.get("RIGHTREASONS_DATA") and path.is_file() and x.shape[-1] == 224):
        side = x.shape[-1] // 4
        found = torch.zeros(len(x), side, side, dtype=torch.bool)
        found[:, side // 4 : -(side // 4), side // 4 : -(side // 4)] = True
        return found
    with zipfile.ZipFile(path) as held:
        table = {r["image"]: r for r in csv.DictReader(io.StringIO(held.read("boxes_512px.csv").decode()))}
        names = sorted(name for name in held.namelist() if name.startswith("clean/"))
    chosen = names[:: max(1, len(names) // n)][:n]
    boxes = [np.array([[float(table[Path(c).name][f"pet_{k}"]) for k in ("xmin", "ymin", "xmax", "ymax")]]) for c in chosen]
    return torch.from_numpy(np.stack([united(b * 224 / 512, (16, 16), (14, 14)) > 0 for b in boxes]))


def _show(curve: list[dict[str, float]], rho: float, what: str, n: int) -> None:
    console = Console()
    table = Table(title=f"M-TSI from a screen, {n} images, {what}")
    for heading in ("candidates inside + outside", "M-TSI equal", "passes against all"):
        table.add_column(heading)
    for row in curve:
        table.add_row(f"{row['keep']:.0f} + {row['keep']:.0f}", f"{row['agreement']:.1%}", f"{row['share_of_passes']:.0%}")
    console.print(table)
    console.print(f"median Spearman of this ranking with the exact one: {rho:.2f}; bars: {BARS}")
