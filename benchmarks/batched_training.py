"""125 two-head networks (ShorT's simulation: 5 seeds, 25 weights of the second loss) fitted at once, against one by one."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from benchmarks._two_heads import Fitted, TwoHeads, batch_rows, fit_many
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from torch import Tensor, nn

NEEDS_GPU = False

SEEDS, WEIGHTS, STEPS, BATCH, LR = 5, 25, 2000, 64, 1e-3
SWEEPS = 50
ROUNDS = 7
PLAIN_STEPS = 150  # timed of each of a few models, then scaled
PLAIN_MODELS = 3
BARS = {"cpu": 8, "cuda": 60}

Data = tuple[Tensor, Tensor, Tensor]


def main() -> None:
    """Print the table and, as the last line, the JSON object."""
    data = coloured_digits(np.random.default_rng(0))
    told: dict[str, object] = {"name": "batched-training", "models": SEEDS * WEIGHTS, "steps": STEPS, "batch": BATCH}
    rows = []
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        found = compared(data, device)
        rows.append((device, found))
        told |= found if device == "cpu" else {f"gpu_{key}": value for key, value in found.items()}
    if torch.cuda.is_available():
        told |= {"gpu": torch.cuda.get_device_name(), "gpu_sweeps": SWEEPS, "gpu_sweeps_seconds": round(sweeps_seconds(data), 2)}
    _show(rows, told)
    told |= {"cores": os.cpu_count(), "versions": {"python": platform.python_version(), "torch": torch.__version__}}
    print(json.dumps(told))


def compared(data: Data, device: str) -> dict[str, float]:
    """Both ways in turn, several times; the median of each round's ratio, so that other work on the machine meets both."""
    at_once(data, device, steps=20)
    plain_seconds(data, device, steps=20)
    ratios, fast, slow, fused = [], [], [], []
    steps = STEPS if device == "cuda" else 200
    for _ in range(ROUNDS):
        slow.append(plain_seconds(data, device))
        fast.append(_seconds(partial(at_once, data, device, steps=steps), device) * STEPS / steps)
        fused.append(plain_seconds(data, device, is_fused=True))
        ratios.append(slow[-1] / fast[-1])
    return {
        "ratio": round(statistics.median(ratios), 1),
        "ratio_lowest": round(min(ratios), 1),
        "ratio_to_fused_adam": round(statistics.median([a / b for a, b in zip(fused, fast)]), 1),
        "seconds": round(statistics.median(fast), 2),
        "plain_seconds": round(statistics.median(slow), 1),
        "plain_model_steps_timed": PLAIN_STEPS * PLAIN_MODELS * ROUNDS,
        **differences(data, device),
    }


def coloured_digits(rng: np.random.Generator, agreement: float = 0.9) -> Data:
    """Digits in colour, noisy: below five or not, and a square of 2x2 pixels whose colour mostly goes with that."""
    source = load_digits()
    n = len(source.target)
    label = source.target >= 5
    colour = np.where(rng.random(n) < agreement, label, ~label)
    images = np.repeat(source.images[:, None] / 16, 3, axis=1)
    for image, top, left, red in zip(images, *rng.integers(0, 7, (2, n)), colour):
        image[:, top : top + 2, left : left + 2] = 0
        image[0 if red else 1, top : top + 2, left : left + 2] = 1
    images += rng.normal(0, 0.3, images.shape)
    x = torch.from_numpy(images.reshape(n, -1).astype(np.float32))
    return x, torch.from_numpy(label.astype(np.float32)), torch.from_numpy(colour.astype(np.float32))


def at_once(data: Data, device: str, steps: int, sweeps: int = 1) -> Fitted:
    """Ours."""
    numbers = range(sweeps * SEEDS)
    return fit_many(
        TwoHeads(),
        starting_weights(numbers, data[0].shape[1]),
        data,
        rngs=[np.random.default_rng([1, k]) for k in numbers],
        setting={"scale": 1.0, "weight": weights()},
        steps=steps,
        batch=BATCH,
        lr=LR,
        device=device,
        threads=os.cpu_count(),
    )


def weights() -> Tensor:
    """Of the second loss."""
    return torch.linspace(0, 2, WEIGHTS)


def starting_weights(seeds: Sequence[int], inputs: int) -> dict[str, Tensor]:
    """Every model's own, (S, L, …)."""
    return TwoHeads.start([np.random.default_rng([0, k]) for k in seeds], WEIGHTS, inputs)


class Network(nn.Module):
    """The same network as everybody writes it."""

    def __init__(self, start: dict[str, Tensor]) -> None:
        super().__init__()
        sizes = {name.removesuffix(".weight"): p.shape for name, p in start.items() if name.endswith(".weight")}
        self.body = nn.ModuleList(nn.Linear(into, out) for name, (out, into) in sizes.items() if name.startswith("body"))
        for name in ("label", "branch", "attribute"):
            setattr(self, name, nn.Linear(sizes[name][1], sizes[name][0]))
        self.load_state_dict(start)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        for layer in self.body:
            x = layer(x).relu()
        return self.label(x)[:, 0], self.attribute(self.branch(x).relu())[:, 0]


def one_by_one(data: Data, device: str, seed: int, model: int, steps: int, is_fused: bool = False) -> tuple[Tensor, float]:
    """Losses (steps,) of one model, and the seconds of its steps."""
    start = {name: p[0, model] for name, p in starting_weights([seed], data[0].shape[1]).items()}
    network = Network(start).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=LR, fused=is_fused or None)
    order = torch.from_numpy(batch_rows(np.random.default_rng([1, seed]), len(data[0]), BATCH, steps)).to(device)
    x, y, a = (part.to(device) for part in data)
    weight, of = float(weights()[model]), nn.functional.binary_cross_entropy_with_logits
    losses = torch.zeros(steps, device=device)
    _wait(device)
    began = time.perf_counter()
    for step, rows in enumerate(order):
        label, attribute = network(x[rows])
        loss = of(label, y[rows]) + weight * of(attribute, a[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses[step] = loss.detach()
    _wait(device)
    return losses.cpu(), time.perf_counter() - began


def plain_seconds(data: Data, device: str, steps: int = PLAIN_STEPS, is_fused: bool = False) -> float:
    """Of all models and steps, scaled from a few; one thread, which is the faster way for kernels this short."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    times = [one_by_one(data, device, 0, 1 + k, steps, is_fused)[1] for k in range(PLAIN_MODELS)]
    torch.set_num_threads(before)
    return statistics.fmean(times) / steps * STEPS * SEEDS * WEIGHTS


def differences(data: Data, device: str) -> dict[str, float]:
    """Between both ways for the same starting weights and batches: of the losses of the first 100 steps, and of their end."""
    fitted = at_once(data, device, steps=STEPS)
    pairs = [(seed, model) for seed in (0, SEEDS - 1) for model in (1, WEIGHTS - 1)]
    alone = [one_by_one(data, device, seed, model, STEPS)[0] for seed, model in pairs]
    together = [fitted.losses[:, seed, model].cpu() for seed, model in pairs]
    early = max(float((a[:100] - b[:100]).abs().max()) for a, b in zip(alone, together))
    ends = [abs(float(a[-200:].mean() - b[-200:].mean())) for a, b in zip(alone, together)]
    return {"largest_loss_difference_100_steps": early, "largest_difference_of_mean_loss_last_200": max(ends)}


def sweeps_seconds(data: Data) -> float:
    """50 sweeps of 125 models at once, drawing and copying included."""
    return min(_seconds(partial(at_once, data, "cuda", steps=STEPS, sweeps=SWEEPS), "cuda") for _ in range(2))


def _seconds(work: partial[Fitted], device: str) -> float:
    _wait(device)
    start = time.perf_counter()
    work()
    _wait(device)
    return time.perf_counter() - start


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _show(rows: Sequence[tuple[str, dict[str, float]]], told: dict[str, object]) -> None:
    table = Table(title=f"{SEEDS * WEIGHTS} two-head networks, {STEPS:,} steps of {BATCH} rows")
    for heading in (
        "device",
        "one by one (s, scaled)",
        "at once (s)",
        "times faster",
        "lowest round",
        "bar",
        "loss off, 100 steps",
    ):
        table.add_column(heading)
    for device, found in rows:
        table.add_row(
            device,
            f"{found['plain_seconds']:.1f}",
            f"{found['seconds']:.2f}",
            f"{found['ratio']:.1f}",
            f"{found['ratio_lowest']:.1f}",
            str(BARS[device]),
            f"{found['largest_loss_difference_100_steps']:.1e}",
        )
    console = Console()
    console.print(table)
    if "gpu_sweeps_seconds" in told:
        console.print(f"{SWEEPS} sweeps of {SEEDS * WEIGHTS} models at once: {told['gpu_sweeps_seconds']} s (bar: 60)")
