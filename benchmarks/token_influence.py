"""Token influence: images a second for the plain batched loop and for each mode, and what a mode's maps keep of float32.

On a GPU a ViT-B/16 (random weights: speed does not depend on them), on a CPU a ViT-Tiny/16; 224 pixels, 196 tokens. Fidelity
needs a trained network: `vit_tiny_patch16_224.safetensors` and `pets224_imagenet_breeds.zip` in the folder that
RIGHTREASONS_DATA names, else a small ViT that is trained here for half a minute. `THREADS=2` for two CPU cores.
"""

from __future__ import annotations

import io
import json
import os
import platform
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table
from scipy import stats
from torch import Tensor

from rightreasons.attributions import token_influence
from rightreasons.models.classifier import Classifier

NEEDS_GPU = False

BARS = {"cuda": {"images_per_second": 60, "ratio": 8, "spearman": 0.99}, "cpu": {"ratio": 1.5}}
MODES = {
    "cuda": ({"precision": "float32"}, {"precision": "tf32"}, {"precision": "fp16"}, {"precision": "fp16", "compiled": True}),
    "cpu": ({"precision": "float32"}, {"precision": "float32", "compiled": True}),
}
PLAIN_BATCHES = {"cuda": (98, 196), "cpu": (14, 28, 98, 196)}
FIDELITY_IMAGES = {"cuda": 128, "cpu": 4}


def main() -> None:
    """Print the tables and, as the last line, the JSON object."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if threads := os.environ.get("THREADS"):
        torch.set_num_threads(int(threads))
    name = "vit_base_patch16_224" if device == "cuda" else "vit_tiny_patch16_224"
    classifier = Classifier.load(f"timm:{name}", num_classes=1000).to(device)
    count = 16 if device == "cuda" else 1
    x = torch.randn(count, 3, 224, 224, generator=torch.Generator().manual_seed(0)).to(device)
    target = torch.arange(count, device=device)
    first = x[: max(1, count // 4)]
    plain = {
        size: len(first) / seconds(lambda size=size: plain_maps(classifier, first, target, size))
        for size in PLAIN_BATCHES[device]
    }
    usual = plain[196]
    peak = {precision: _peak(device, precision) for precision in ("float32", *(("tf32", "fp16") if device == "cuda" else ()))}
    modes = []
    for settings in MODES[device]:
        rate = count / seconds(lambda settings=settings: token_influence.maps(classifier, x, target=target, **settings))
        share = rate * _operations(classifier) / peak[settings["precision"]]
        modes.append({**settings, "images_per_second": rate, "ratio": rate / usual, "share_of_peak": share})
    ours = token_influence.maps(classifier, first[:1], target=target[:1])
    off = float((plain_maps(classifier, first[:1], target, 49) - ours).abs().max())
    kept = fidelity(device)
    _show(device, name, plain, modes, kept)
    print(
        json.dumps(
            {
                "name": "token-influence",
                "device": torch.cuda.get_device_name() if device == "cuda" else f"cpu, {torch.get_num_threads()} threads",
                "network": name,
                "measured": "images per second, 196 tokens each; plain: the network itself on batches with one token less",
                "clock": "wall time, the fastest of three runs after one that does not count",
                "plain_images_per_second": {str(size): round(rate, 4) for size, rate in plain.items()},
                "modes": [{k: round(v, 4) if isinstance(v, float) else v for k, v in mode.items()} for mode in modes],
                "ratio": round(max(mode["ratio"] for mode in modes), 3),
                "ratio_note": "against the plain loop with all tokens of an image as one batch",
                "ratio_to_the_fastest_plain_loop": round(max(m["images_per_second"] for m in modes) / max(plain.values()), 3),
                "plain_share_of_peak": round(max(plain.values()) * _operations(classifier) / peak["float32"], 3),
                "largest_difference_from_plain": off,
                "fidelity": kept,
                "bars": BARS[device],
                "versions": {"python": platform.python_version(), "torch": torch.__version__},
            }
        )
    )


def plain_maps(classifier: Classifier, x: Tensor, target: Tensor, size: int) -> Tensor:
    """(b, 14, 14) as everybody writes it: copies of the image, and a hook that takes a token out of each."""
    module, T, found = classifier.module, 196, []
    with torch.inference_mode():
        whole = module(x).softmax(1)
        for i in range(len(x)):
            for start in range(0, T, size):
                gone = torch.arange(start, min(start + size, T), device=x.device)
                rest = torch.arange(T - 1, device=x.device).expand(len(gone), -1)
                keep = torch.cat([torch.zeros_like(gone)[:, None], rest + (rest >= gone[:, None]) + 1], dim=1)
                handle = module.patch_drop.register_forward_hook(
                    lambda m, a, out, keep=keep: out.gather(1, keep[..., None].expand(-1, -1, out.shape[2]))
                )
                chance = module(x[i : i + 1].expand(len(gone), -1, -1, -1)).softmax(1)
                handle.remove()
                found.append(whole[i, target[i]] - chance[:, target[i]])
    return torch.cat(found).view(len(x), 14, 14)


def fidelity(device: str) -> dict[str, object]:
    """Median Spearman of each precision's maps with float32 and how often the top token is the same, on a trained network."""
    n = FIDELITY_IMAGES[device]
    classifier, x, what = trained(n)
    classifier.to(device)
    kept: dict[str, object] = {"network": what, "images": len(x)}
    batches = [x[i : i + 16].to(device) for i in range(0, len(x), 16)]

    def all_maps(**settings: object) -> np.ndarray:
        found = []
        for images in batches:
            with torch.inference_mode():
                target = classifier.logits(images).argmax(1)
            found.append(token_influence.maps(classifier, images, target=target, **settings))  # type: ignore[arg-type]
        return torch.cat(found).flatten(1).cpu().numpy()

    exact = all_maps(precision="float32")
    for precision in ("tf32", "fp16") if device == "cuda" else ("fp16",):
        other = all_maps(precision=precision)
        rho = [float(stats.spearmanr(a, b).statistic) for a, b in zip(exact, other)]
        kept[precision] = {
            "median_spearman": round(float(np.median(rho)), 4),
            "same_top_token": round(float((exact.argmax(1) == other.argmax(1)).mean()), 4),
        }
    return kept


def trained(n: int) -> tuple[Classifier, Tensor, str]:
    """A trained ViT and n images of what it knows."""
    folder = Path(os.environ.get("RIGHTREASONS_DATA", ""))
    weights, photos = folder / "vit_tiny_patch16_224.safetensors", folder / "pets224_imagenet_breeds.zip"
    if os.environ.get("RIGHTREASONS_DATA") and weights.is_file() and photos.is_file():
        classifier = Classifier.load("timm:vit_tiny_patch16_224", checkpoint=weights)
        return classifier, _photos(photos, n), "ViT-Ti/16 with ImageNet weights, photos of pets"
    return (*_trained_here(n), "a small ViT trained here on handwritten digits")


# ---- what the functions above use ----------------------------------------------------------------------------------------


def _photos(path: Path, n: int) -> Tensor:
    with zipfile.ZipFile(path) as held:
        names = sorted(name for name in held.namelist() if name.startswith("clean/"))
        chosen = names[:: max(1, len(names) // n)][:n]
        pictures = [np.asarray(Image.open(io.BytesIO(held.read(name))).convert("RGB").resize((224, 224))) for name in chosen]
    return torch.from_numpy(np.stack(pictures)).movedim(-1, 1).float().div(255).sub(0.5).div(0.5)


def _trained_here(n: int) -> tuple[Classifier, Tensor]:
    from sklearn.datasets import load_digits

    digits = load_digits()
    pictures = torch.from_numpy(np.kron(digits.images / 16, np.ones((4, 4)))).float()[:, None].expand(-1, 3, -1, -1)
    label = torch.from_numpy(digits.target)
    classifier = Classifier.load("rightreasons.models.small:small_vit", num_classes=10, size=(32, 32))
    module = classifier.module.train()
    optimiser = torch.optim.AdamW(module.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        rows = torch.randint(0, 1500, (64,), generator=generator)
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(module(pictures[rows]), label[rows]).backward()
        optimiser.step()
    module.eval()
    return classifier, pictures[1500 : 1500 + n].contiguous()


def seconds(work: Callable[[], object]) -> float:
    """Wall time of the fastest of three runs, after one that compiles and is not counted."""
    finished = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    best = float("inf")
    work()
    for _ in range(3):
        finished()
        start = time.perf_counter()
        work()
        finished()
        best = min(best, time.perf_counter() - start)
    return best


def _peak(device: str, precision: str) -> float:
    """Operations a second of a large matrix product, measured."""
    side, runs = (8192, 10) if device == "cuda" else (2048, 3)
    dtype = torch.float16 if precision == "fp16" else torch.float32
    a = torch.randn(side, side, device=device, dtype=dtype)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        return 2 * side**3 * runs / seconds(lambda: [a @ a for _ in range(runs)])
    finally:
        torch.set_float32_matmul_precision(before)


def _operations(classifier: Classifier) -> float:
    """Operations of the plain loop for one image: those of 196 sequences through every block."""
    module = classifier.module
    N, D, depth = 196, module.embed_dim, len(module.blocks)
    return 196 * depth * (24.0 * N * D * D + 4.0 * N * N * D)


def _show(device: str, name: str, plain: dict[int, float], modes: list[dict[str, object]], kept: dict[str, object]) -> None:
    console = Console()
    table = Table(title=f"Token influence, {name}, 196 tokens, {device}")
    for heading in ("way", "images / s", "times the plain loop", "of the matrix-product peak"):
        table.add_column(heading)
    for size, rate in plain.items():
        table.add_row(f"plain loop, {size} sequences a batch", f"{rate:.3f}", f"{rate / plain[196]:.2f}", "")
    for mode in modes:
        said = ", ".join(["compiled"] if mode.get("compiled") else [])
        table.add_row(
            f"{mode['precision']} {said}",
            f"{mode['images_per_second']:.3f}",
            f"{mode['ratio']:.2f}",
            f"{mode['share_of_peak']:.0%}",
        )
    console.print(table)
    console.print(f"fidelity against float32 on {kept['network']} ({kept['images']} images): {kept}")
    console.print(f"bars: {BARS[device]}")
