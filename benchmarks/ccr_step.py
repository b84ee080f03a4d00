"""A step of CCR against a plain one, operators included; and what each operator costs beside a forward pass of a ResNet-50.

CCR_STEP_SIZE and CCR_STEP_BATCH set the images (by default 224 pixels and 64 images on a GPU, 96 and 8 on a CPU),
CCR_STEP_ROUNDS how often plain and consistent steps take turns.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from rightreasons import perturbations
from rightreasons.audits.sdi.severities import REFERENCE
from rightreasons.mitigations.ccr import Consistency
from rightreasons.models.classifier import Classifier
from rightreasons.models.training import Batch, cross_entropy

NEEDS_GPU = False

NETWORKS = ("timm:resnet18", "timm:efficientnet_b0", "timm:vit_small_patch16_224")
BARS = {"times_a_plain_step": 3.3}


def main() -> None:
    """Print the tables and, as the last line, the JSON object."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    size = int(os.environ.get("CCR_STEP_SIZE", 224 if device == "cuda" else 96))
    count = int(os.environ.get("CCR_STEP_BATCH", 64 if device == "cuda" else 8))
    rounds = int(os.environ.get("CCR_STEP_ROUNDS", 20 if device == "cuda" else 5))
    x = eyes(count, size).to(device)
    precisions = ("fp32", "bf16") if device == "cuda" else ("fp32",)  # `train` takes bf16 on a GPU unless it is told otherwise
    steps = {f"{name} {p}": step_times(name, x, size, rounds, p) for name in NETWORKS for p in precisions}
    operators, forward = operator_times(x, size, rounds)
    _show(steps, operators, forward, size, count)
    print(
        json.dumps(
            {
                "name": "ccr-step",
                "ratio": round(statistics.median(1 / row["ratio"] for row in steps.values()), 3),
                "measured": "seconds of a plain training step over those of one with CCR, median over networks (1 would cost "
                "nothing), and milliseconds an image of the operators",
                "device": torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine(),
                "threads": torch.get_num_threads(),
                "pixels": size,
                "batch": count,
                "rounds": rounds,
                "steps": steps,
                "operator_ms": operators,
                "resnet50_forward_ms": forward,
                "bars": BARS,
            }
        )
    )


def eyes(count: int, size: int) -> torch.Tensor:
    """Round fields on black, normalised with 0.5."""
    row = torch.arange(size) - (size - 1) / 2
    field = (row[:, None] ** 2 + row[None] ** 2).sqrt() < 0.45 * size
    pixels = (0.3 + 0.4 * torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(0))) * field
    return (pixels - 0.5) / 0.5


def step_times(name: str, x: torch.Tensor, size: int, rounds: int, precision: str) -> dict[str, float]:
    """Median seconds of both steps and of the operators alone, taken in turn, so that a busy machine is busy for all."""
    settings = {"img_size": size} if "vit" in name else {}
    classifier = Classifier.load(name, num_classes=2, classes=(0, 1), size=(size, size), mean=0.5, std=0.5, **settings)
    classifier.to(x.device)
    classifier.module.train()
    optimizer = torch.optim.AdamW(classifier.module.parameters(), lr=1e-4)
    objective = Consistency(dict(REFERENCE)).to(x.device)
    generator = torch.Generator(x.device).manual_seed(0)
    y = torch.arange(len(x), device=x.device) % 2
    batch = Batch(x, y, {}, torch.ones(len(x), device=x.device), np.arange(len(x)), 0, 0, generator)

    def step(objective: Callable[[Classifier, Batch], torch.Tensor]) -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=precision == "bf16"):
            loss = objective(classifier, batch)
        loss.backward()
        optimizer.step()

    work: dict[str, Callable[[], Any]] = {
        "plain": lambda: step(cross_entropy),
        "ccr": lambda: step(objective),
        "operators": lambda: objective.changed(classifier, batch, objective.draw(generator)),
    }
    taken: dict[str, list[float]] = {what: [] for what in work}
    for k in range(rounds + 2):
        for what, one in work.items():
            seconds = timed(one, x.device)
            if k >= 2:  # the first rounds choose kernels
                taken[what].append(seconds)
    ratio = statistics.median(c / p for c, p in zip(taken["ccr"], taken["plain"]))
    return {**{f"{what}_s": round(statistics.median(all_), 5) for what, all_ in taken.items()}, "ratio": round(ratio, 3)}


def operator_times(x: torch.Tensor, size: int, rounds: int) -> tuple[dict[str, float], float]:
    """Milliseconds an image of every operator at its reference severity, and of a forward pass of a ResNet-50."""
    pixels = (x * 0.5 + 0.5).clamp(0, 1)
    seeds = perturbations.seeds([str(k) for k in range(len(x))], "bench")
    found = {}
    for family in ("nuisance", "content"):
        for name, operator in perturbations._functions(family):
            found[name] = _ms(lambda f=operator: f(pixels.clone(), seeds), x, rounds)  # type: ignore[misc]
    network = Classifier.load("timm:resnet50", num_classes=2, classes=(0, 1), size=(size, size)).to(x.device)
    with torch.inference_mode():
        return found, _ms(lambda: network.logits(x), x, rounds)


def _ms(work: Callable[[], Any], x: torch.Tensor, rounds: int) -> float:
    timed(work, x.device)
    return round(1e3 * statistics.median(timed(work, x.device) for _ in range(rounds)) / len(x), 4)


def timed(work: Callable[[], Any], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def _show(steps: dict[str, dict[str, float]], operators: dict[str, float], forward: float, size: int, count: int) -> None:
    console = Console()
    table = Table(title=f"One training step, {count} images of {size} pixels")
    for heading in ("network", "plain, s", "CCR, s", "of it operators, s", "times"):
        table.add_column(heading)
    for name, row in steps.items():
        table.add_row(name, *(f"{row[f'{what}_s']:.4f}" for what in ("plain", "ccr", "operators")), f"{row['ratio']:.2f}")
    console.print(table)
    table = Table(title=f"Milliseconds an image; a ResNet-50 takes {forward:.3f} for its forward pass")
    for heading in ("operator", "ms"):
        table.add_column(heading)
    for name, ms in operators.items():
        table.add_row(name, f"{ms:.3f}")
    console.print(table)


if __name__ == "__main__":
    main()
