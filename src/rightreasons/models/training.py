"""Training: one visible loop with the objective as an argument, stopped on validation rows and resumed after a kill.

The epoch is the unit of everything that may be interrupted: each draws its randomness from (seed, task, epoch) and ends with a
checkpoint that replaces the last, so a killed run loses at most the epoch in hand and ends with the bytes of an undisturbed one
(on CPU, with equal threads).
"""

from __future__ import annotations

import importlib
import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from scipy.special import log_softmax
from torch import Tensor, nn

from rightreasons import trust
from rightreasons.data.cohort import Cohort
from rightreasons.errors import SettingError, TrainingError
from rightreasons.families import suggest
from rightreasons.models import augment as augmentations
from rightreasons.models._examples import Examples, examples
from rightreasons.models.classifier import Classifier
from rightreasons.models.regression import regression
from rightreasons.models.running import device_of, generator_of, on_threads, own_randomness, precision_of, seed_torch
from rightreasons.models.trained import (
    CHECKPOINT,
    CURVES,
    Given,
    Outcome,
    ask_objective,
    copied,
    finish,
    finished,
    save_curves,
    save_state,
)
from rightreasons.models.training_plan import OPTIMIZERS, Metric, Settings, claim, described
from rightreasons.progress import Meter
from rightreasons.stats import groups

__all__ = [
    "CURVES",
    "Augment",
    "Batch",
    "Objective",
    "augmentation_of",
    "cross_entropy",
    "evaluate",
    "plan_of",
    "refuse_undefined_metric",
    "train",
]


@dataclass(frozen=True)
class Batch:
    """What an objective sees in one step.

    Attributes
    ----------
    x : (b, c, *size) normalised and augmented
    y : (b,) outputs of the classifier that are right
    attributes : every attribute of the cohort, (b,) codes (-1 missing) or floats (NaN missing)
    weight : (b,) of mean 1 over the training rows
    rows : (b,) rows of the training cohort
    epoch, step : counted from 0; steps run on over epochs
    generator : for the objective's own draws, on the device of `x`
    """

    x: Tensor
    y: Tensor
    attributes: Mapping[str, Tensor]
    weight: Tensor
    rows: np.ndarray
    epoch: int
    step: int
    generator: torch.Generator


Objective = Callable[[Classifier, Batch], Tensor]
Augment = Callable[[Tensor, torch.Generator], Tensor]


def cross_entropy(classifier: Classifier, batch: Batch) -> Tensor:
    """Weighted mean of the cross-entropy; the logits (0, z) of a one-logit head make it the binary cross-entropy of z."""
    losses = nn.functional.cross_entropy(classifier.logits(batch.x).float(), batch.y, reduction="none")
    return (losses * batch.weight).mean()


def train(  # noqa: PLR0913  each keyword is a documented setting
    classifier: Classifier,
    cohort: Cohort,
    *,
    objective: Objective | None = None,
    target: str | None = None,
    regress: str | None = None,
    attribute: str | None = None,
    stopping: Cohort | None = None,
    weights: np.ndarray | None = None,
    draw: np.ndarray | None = None,
    epochs: int = 20,
    batch: int = 64,
    lr: float = 1e-3,
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw",
    weight_decay: float = 0.01,
    schedule: Literal["cosine"] | None = "cosine",
    warmup: float = 0.0,
    stop_on: Metric = "macro_f1",
    patience: int | None = 5,
    clip: float | None = 1.0,
    amp: bool | Literal["bf16", "fp16"] | None = None,
    augment: Augment | str | None = None,
    seed: int = 0,
    folder: str | os.PathLike[str] | None = None,
    device: str | torch.device | None = None,
    regime: str = "erm",
    threads: int | None = None,
    workers: int | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Classifier:
    """Train a copy of `classifier` on the rows of split `train`, and keep the epoch that is best on split `val`.

    A cohort without `val` rows is completed by `with_roles(trains=True)`, seeded: 15 % of `train`, or all four splits where it
    has none. Rows whose target is missing, or whose weight is 0, leave and are counted in the card.

    Parameters
    ----------
    objective : `(classifier, batch) -> loss`, `cross_entropy` by default. One with state (`state_dict`, `load_state_dict`) is
        changed in place and stored with the checkpoints; its `parameters()` join the optimizer, and `to(device)` is called. To
        resume, give it as it was at the start.
    target : an attribute to learn instead of the label (OSCAR's attribute model); the new model's classes are its levels.
    regress : a number that the network learns by squared error; its head learns `target`, groups of that number, from the
        features as they are.
    attribute : whose groups with the target make the worst-group accuracy; the cohort's first by default.
    stopping : rows to stop on instead of `val`; a `cohort` without splits is then training rows throughout.
    weights : (n,) one per row of `cohort`, instead of its weight column.
    draw : (n,) one per row of `cohort`: an epoch draws as many rows as there are, with replacement, by these chances.
    batch : the last, smaller batch of an epoch is used too, unless it is a single row, which batch normalisation cannot take.
    weight_decay : of weights; biases and norms have none.
    warmup : epochs of linear increase to `lr`.
    stop_on : compared between epochs; of equal ones the first is kept.
    patience : epochs without a better one before training stops; None trains all `epochs`.
    clip : largest norm of the gradient.
    amp : lower precision; by default bf16 (fp16 where the GPU lacks it) on CUDA and none on CPU. Stopping is always in fp32.
    augment : `(x, generator) -> x`, the name of a function in `models/augment.py`, or "package.module:function".
    folder : where the model, its curves and checkpoints go. A second call with the same plan goes on where the first was ended,
        or gives the finished model; another plan is refused.
    device : CUDA if there is one, by default. The new model comes back on the device of `classifier`.
    threads : torch's threads on CPU during training; they change the last bits.
    workers : decoding threads.
    cache : folder for decoded pixels; without one, those of each part are held in memory up to 1 GB, else decoded in every epoch.
    """
    settings = Settings(
        target=target,
        regress=regress,
        attribute=attribute,
        epochs=epochs,
        batch=batch,
        lr=lr,
        optimizer=optimizer,
        weight_decay=weight_decay,
        schedule=schedule,
        warmup=warmup,
        stop_on=stop_on,
        patience=patience,
        clip=clip,
        amp=amp,
        seed=seed,
        regime=regime,
        device=None if device is None else str(device),
        threads=threads,
    )
    fit, stop = examples(classifier, cohort, stopping, settings, weights=weights, draw=draw)
    refuse_undefined_metric(settings, stop, classifier)
    loss, change = objective_of(objective, classifier, fit, settings), augmentation_of(augment)
    plan = plan_of(settings, classifier, fit, stop, loss, change)
    place = None
    if folder is not None:
        place = Path(folder)
    if place is not None and claim(place, plan):
        return finished(place, loss, classifier)

    where = device_of(device)
    with on_threads(threads), own_randomness(where):
        fit = fit.decoded(classifier.geometry, cache, workers)
        stop = stop.decoded(classifier.geometry, cache, workers)
        run = Run(classifier.copy().to(where), loss, settings, fit.steps(batch))
        run.resume(place)
        _loop(run, fit, stop, change, place)
        return finish(run.model, run.outcome(), Given(classifier, fit, stop, plan), place)


def evaluate(logits: np.ndarray, y: np.ndarray, attribute: np.ndarray | None = None) -> dict[str, float]:
    """Every metric of `stop_on` for logits (n, C) and right outputs (n,); NaN where it is undefined (AUC of one class)."""
    predicted = logits.argmax(axis=1)
    log_p = log_softmax(logits.astype(np.float64), axis=1)
    return {
        "loss": -float(log_p[np.arange(len(y)), y].mean()),
        "accuracy": groups.accuracy(y, predicted),
        "balanced_accuracy": groups.balanced_accuracy(y, predicted),
        "macro_f1": float(np.mean([groups.f1(y == c, predicted == c) for c in np.union1d(y, predicted)])),
        "auc": groups.auc(y, np.exp(log_p)),
        # Every group counts here, however small: leaving the rare ones out would choose the epoch that serves them worst.
        "wga": math.nan if attribute is None else groups.worst_group_accuracy(y, predicted, attribute, smallest=1),
    }


def plan_of(
    settings: Settings, classifier: Classifier, fit: Examples, stop: Examples, objective: Objective, augment: Augment | None
) -> dict[str, Any]:
    """Everything that decides the trained weights, as plain data."""
    return {
        **asdict(settings),
        "objective": described(objective),
        "augment": described(augment),
        "architecture": classifier.name,
        "starting weights": classifier.fingerprint,
        "training rows": fit.cohort.fingerprint,
        "training columns": fit.columns,
        "stopping rows": stop.cohort.fingerprint,
        "stopping columns": stop.columns,
    }


def objective_of(given: Objective | None, classifier: Classifier, fit: Examples, settings: Settings) -> Objective:
    """What training minimises: the given objective, the squared error of a number, or cross-entropy."""
    if settings.regress is None:
        return given or cross_entropy
    if given is not None:
        raise SettingError(f"regress={settings.regress!r} is an objective of its own: give it or objective=, not both")
    return regression(classifier, fit, settings.regress, settings.seed)


def refuse_undefined_metric(settings: Settings, stop: Examples, classifier: Classifier) -> None:
    """Refuse, before anything runs, a metric that is undefined on the stopping rows."""
    if math.isnan(evaluate(np.zeros((len(stop.y), classifier.C)), stop.y, stop.groups)[settings.stop_on]):
        if settings.stop_on == "auc":
            reason = "they are of one class"
        else:
            reason = "no group of a categorical attribute has 10 of them"
        raise TrainingError(
            f"{settings.stop_on} is undefined on the {len(stop.y)} stopping rows ({reason}): "
            "give other stopping= rows or another stop_on="
        )


def augmentation_of(named: Augment | str | None) -> Augment | None:
    """The augmentation with that name; a function is used as given."""
    if not isinstance(named, str):
        return named
    path, _, name = named.rpartition(":")
    if path:
        trust.require(path, named)
    try:
        if path:
            home = importlib.import_module(path)
        else:
            home = augmentations
    except ModuleNotFoundError as error:
        raise SettingError(f"augment={named!r}: {error}; give package.module:function of a module on the Python path") from error
    if not callable(getattr(home, name, None)):
        known = []
        for key, value in vars(home).items():
            if callable(value) and value.__module__ == home.__name__:
                known.append(key)
        raise SettingError(f"augment={named!r}: no function {name!r} in {home.__name__}; {suggest(name, known)}")
    return getattr(home, name)


# ---- the loop -----------------------------------------------------------------------------------------------------------


def _loop(run: Run, fit: Examples, stop: Examples, augment: Augment | None, folder: Path | None) -> None:
    settings = run.settings
    what = f"train {run.model.name} ({settings.regime}, seed {settings.seed})"
    with Meter(what, settings.epochs * run.steps, run.epoch * run.steps, may_end_early=True) as meter:
        while not run.is_over:
            started = time.perf_counter()
            loss = _epoch(run, fit, augment, meter)
            scores = evaluate(_logits(run, stop), stop.y, stop.groups)
            measured = {"epoch": run.epoch + 1, "loss": loss, **{f"val_{name}": score for name, score in scores.items()}}
            run.end_epoch({**measured, "lr": run.rate(run.steps - 1), "time_seconds": time.perf_counter() - started})
            run.save(folder)
            meter.say(f"epoch {run.epoch}: loss {loss:.3f}, {settings.stop_on} {scores[settings.stop_on]:.3f}")


def _epoch(run: Run, fit: Examples, augment: Augment | None, meter: Meter) -> float:
    """One pass over the training rows; their mean loss."""
    settings, device = run.settings, run.device
    seed_torch(settings.seed, f"network in epoch {run.epoch}", device)
    augments = generator_of(settings.seed, f"augmentation in epoch {run.epoch}", device)
    draws = generator_of(settings.seed, f"objective in epoch {run.epoch}", device)
    order = fit.order(settings.batch, settings.seed, run.epoch)
    look_every = 1 if device.type == "cpu" else 25  # reading a loss waits for the GPU
    losses: list[Tensor] = []
    run.model.module.train()
    with closing(fit.batches(run.model, settings.batch, order)) as stream:
        for rows, x in stream:
            if augment is not None:
                x = augment(x, augments)
            step = len(losses)
            batch = Batch(x, *fit.targets(rows, device), rows, run.epoch, run.epoch * run.steps + step, draws)
            losses.append(run.step(batch, step))
            if len(losses) % look_every == 0 or len(losses) == run.steps:
                _refuse_divergence(losses, look_every, run)
            meter.advance()
    sizes = []
    for start in range(0, len(order), settings.batch):
        sizes.append(min(settings.batch, len(order) - start))
    return float(np.average(torch.stack(losses).double().cpu().numpy(), weights=sizes))


def _logits(run: Run, part: Examples) -> np.ndarray:
    run.model.module.eval()
    with closing(part.batches(run.model, run.settings.batch)) as stream, torch.no_grad():
        logits = torch.cat([run.model.logits(x).float() for _, x in stream]).cpu().numpy()
    if not np.isfinite(logits).all():
        raise TrainingError(f"the logits of the stopping rows are not finite after epoch {run.epoch + 1}: {_way_out(run)}")
    return logits


def _refuse_divergence(losses: list[Tensor], newest: int, run: Run) -> None:
    seen = torch.stack(losses[-newest:]).float().cpu()
    if not torch.isfinite(seen).all():
        step = len(losses) - len(seen) + int(torch.isfinite(seen).int().argmin()) + 1
        value = float(seen[step - 1 - len(losses) + len(seen)])
        raise TrainingError(f"the loss is {value} in epoch {run.epoch + 1}, step {step} of {run.steps}: {_way_out(run)}")


def _way_out(run: Run) -> str:
    amp = "" if run.precision is None else "set amp=False, "
    return f"lower lr (now {run.settings.lr:g}) or clip, {amp}look at mean= and std= and at the pixels, and start in a new folder"


@dataclass
class Run:
    """The state of a training run: what a checkpoint holds, and how one step changes it."""

    model: Classifier
    objective: Objective
    settings: Settings
    steps: int  # of an epoch
    epoch: int = 0  # finished ones
    curves: list[dict[str, float]] = field(default_factory=list)
    best: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.device = torch.device(self.model.device)
        self._ask_objective("to", None, self.device)
        own = [*self.model.module.parameters(), *self._ask_objective("parameters", ())]
        self.parameters = [p for p in own if p.requires_grad]
        if not self.parameters:
            raise TrainingError(f"no parameter of {self.model.name} may change: set requires_grad of those to train")
        weights = [p for p in self.parameters if p.ndim > 1]
        biases_and_norms = [p for p in self.parameters if p.ndim <= 1]
        groups = [
            {"params": weights, "weight_decay": self.settings.weight_decay},
            {"params": biases_and_norms, "weight_decay": 0.0},
        ]
        make_optimizer = OPTIMIZERS[self.settings.optimizer]
        self.optimizer = make_optimizer([group for group in groups if group["params"]], lr=self.settings.lr)
        self.precision = precision_of(self.settings.amp, self.device)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision is torch.float16)

    @property
    def is_over(self) -> bool:
        patience, waited = self.settings.patience, self.epoch - self.best.get("epoch", 0)
        return self.epoch >= self.settings.epochs or (patience is not None and waited >= patience)

    def rate(self, step: int) -> float:
        """Learning rate of a step of this epoch."""
        s, now = self.settings, self.epoch * self.steps + step
        rise, total = round(s.warmup * self.steps), s.epochs * self.steps
        if now < rise:
            return s.lr * (now + 1) / rise
        if s.schedule is None:
            return s.lr
        return s.lr * (1 + math.cos(math.pi * (now - rise) / max(1, total - rise))) / 2

    def step(self, batch: Batch, step: int) -> Tensor:
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(step)
        self.optimizer.zero_grad(set_to_none=True)
        with nullcontext() if self.precision is None else torch.autocast(self.device.type, self.precision):
            loss = self.objective(self.model, batch)
        self.scaler.scale(loss).backward()
        if self.settings.clip is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.parameters, self.settings.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()

    def end_epoch(self, row: dict[str, float]) -> None:
        """The epoch's row joins the curves, and its weights are kept if they are the best so far."""
        self.epoch += 1
        self.curves.append(row)
        score = row[f"val_{self.settings.stop_on}"] * self.settings.sign
        if not self.best or score > self.best["score"]:
            states = {"model": self.model.module.state_dict(), "objective": self._ask_objective("state_dict", {})}
            self.best = {"epoch": self.epoch, "score": score, **{name: copied(state) for name, state in states.items()}}

    def save(self, folder: Path | None) -> None:
        if folder is None:
            return
        state = {
            "epoch": self.epoch,
            "curves": self.curves,
            "best": self.best,
            "model": self.model.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "objective": self._ask_objective("state_dict", {}),
        }
        save_state(folder / CHECKPOINT, state)
        save_curves(folder, self.curves)

    def resume(self, folder: Path | None) -> None:
        if folder is None or not (folder / CHECKPOINT).exists():
            return
        state = torch.load(folder / CHECKPOINT, map_location="cpu", weights_only=True)
        self.epoch, self.curves, self.best = state["epoch"], state["curves"], state["best"]
        self.model.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self._ask_objective("load_state_dict", None, state["objective"])

    def outcome(self) -> Outcome:
        """The end of the run; model and objective take the state of the best epoch."""
        self._take_best()
        best = self.best
        return Outcome(self.settings, best["epoch"], self.curves, best["objective"], self.device, self.precision)

    def _take_best(self) -> None:
        self.model.module.load_state_dict(self.best["model"])
        self._ask_objective("load_state_dict", None, self.best["objective"])
        self.optimizer.zero_grad(set_to_none=True)

    def _ask_objective(self, name: str, default: Any, *arguments: Any) -> Any:
        return ask_objective(self.objective, name, default, *arguments)
