"""Many small classifiers trained as one batched model (torch.func): what `training.train` gives for each, in far fewer kernels.

What `train` does one after the other is done for S seeds x L settings at once. Models of one seed share their batches, so that
their first layer is one product. Every model leaves behind what `train` would leave.
"""

from __future__ import annotations

import inspect
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from rightreasons.data.cohort import Cohort, hash_of
from rightreasons.errors import SettingError, TrainingError
from rightreasons.families import suggest
from rightreasons.models._examples import Examples, examples
from rightreasons.models._stacked_network import Seen, StackedNetwork, differing_numbers, put, why_not
from rightreasons.models.classifier import Classifier
from rightreasons.models.running import device_of, generator_of, on_threads, own_randomness
from rightreasons.models.stacked_optimizer import StackedOptimizer, schedule_factors
from rightreasons.models.trained import Given, Outcome, ask_objective, copied, finish, finished, save_curves, save_state
from rightreasons.models.training import (
    Augment,
    Objective,
    augmentation_of,
    cross_entropy,
    evaluate,
    objective_of,
    plan_of,
    refuse_undefined_metric,
    train,
)
from rightreasons.models.training_plan import Settings, claim
from rightreasons.progress import Meter

VARIES = ("seed", "lr", "weight_decay")
"""Settings in which the models of one group may differ, beside `regime` and the numbers of their objectives."""

MOST_PARAMETERS = 2_000_000
SMALL_FLOPS, SMALL_PARAMETERS = 1_000_000, 50_000
GROUP = "group.pt"


def train_batched(
    classifiers: Sequence[Classifier],
    cohort: Cohort,
    settings: Sequence[Mapping[str, Any]],
    *,
    folders: Sequence[str | os.PathLike[str]] | None = None,
    threads: int | None = None,
) -> list[Classifier | TrainingError]:
    """Train copies of networks of one architecture as one; each is what `train` would give, within float tolerance.

    A model that stops early, or whose loss is no longer finite, leaves the group and the others go on; in the place of one that
    diverged the list has its TrainingError.

    Parameters
    ----------
    settings : keywords of `train`, one mapping a model; equal but for `VARIES`, `regime`, and numbers that objectives of one
        class (or `functools.partial` of one function) hold. Without `amp` the precision is float32, on CUDA too (autocast does
        not reach into vmap, and kernels this short gain nothing by it); lower ones are refused.
    folders : one a model, for what `train` writes. The first also holds the group's checkpoint: a second call with the same
        plan goes on after the last whole epoch. A model's plan names its group, because the others may change its last bits.
    threads : instead of those in `settings`
    """
    members = _members(classifiers, cohort, settings, folders, threads)
    first = members[0]
    are_finished = []
    for member in members:
        are_finished.append(member.folder is not None and claim(member.folder, member.plan))
    if all(are_finished):
        _end(first)
        return [finished(Path(m.folder or ""), m.objective, m.classifier) for m in members]
    device = device_of(first.settings.device)
    with on_threads(first.settings.threads), own_randomness(device):
        _decode(members)
        group = _Group(members, device)
        group.resume(first.folder)
        _loop(group, first.folder)
        done = []
        for member, is_there in zip(members, are_finished):
            done.append(group.finish(member, is_there))
    if not any(isinstance(model, TrainingError) for model in done):
        _end(first)
    return done


def refusal(classifier: Classifier) -> str:
    """Why copies of this network cannot be trained as one; empty if they can."""
    size = sum(p.numel() for p in classifier.module.parameters())
    if size > MOST_PARAMETERS:
        return f"it has {size:,} parameters, and batching serves networks of at most {MOST_PARAMETERS:,}"
    shape = (4, classifier.geometry.channels, *classifier.geometry.size)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(classifier.device)
    seen = Seen(x, torch.arange(4, device=x.device) % classifier.C, {}, torch.ones(4, device=x.device))
    return why_not(classifier, cross_entropy, seen)


def is_small(classifier: Classifier) -> bool:
    """Whether batching pays: so little work per image that most of a step's time is spent on starting its kernels.

    The bounds are where groups of 8 and of 25 were faster on a CPU (1.0 to 9.5 times; above them 0.3 to 0.8 times).
    """
    if sum(p.numel() for p in classifier.module.parameters()) > SMALL_PARAMETERS:
        return False
    x = torch.zeros(1, classifier.geometry.channels, *classifier.geometry.size, device=classifier.device)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        classifier.logits(x)
    return counter.get_total_flops() <= SMALL_FLOPS


# ---- the loop -----------------------------------------------------------------------------------------------------------


def _loop(group: _Group, folder: Path | None) -> None:
    first = group.members[0]
    what = f"train {len(group.members)} models as one: {first.classifier.name} ({first.settings.regime})"
    with Meter(what, first.settings.epochs * group.steps, group.epoch * group.steps, may_end_early=True) as meter:
        while group.grid.size:
            started = time.perf_counter()
            losses = _epoch(group, meter)
            logits = _logits(group)
            share = (time.perf_counter() - started) / group.grid.size
            for (s, j), number in np.ndenumerate(group.grid):
                _end_epoch(group, group.members[number], (s, j), losses[:, s, j], logits[s, j], share)
            group.epoch += 1
            group.keep(*_going_on(group))
            group.save(folder)
            going = group.grid.size
            meter.say(f"epoch {group.epoch}: mean loss {np.nanmean(losses):.3f}, {going} models go on")


def _epoch(group: _Group, meter: Meter) -> np.ndarray:
    """One pass over the training rows; losses (steps, S, L)."""
    batch, device, epoch = group.members[0].settings.batch, group.device, group.epoch
    losses: list[Tensor] = []
    with ExitStack() as streams:
        leaders = [group.members[number] for number in group.grid[:, 0]]
        draws = []
        for m in leaders:
            draws.append(generator_of(m.settings.seed, f"augmentation in epoch {epoch}", device))
        sources = []
        for m in leaders:
            sources.append(m.fit.batches(group.template, batch, m.fit.order(batch, m.settings.seed, epoch)))
        for source in sources:
            streams.enter_context(closing(source))
        for parts in zip(*sources, strict=True):
            seen = []
            for m, draw, (rows, x) in zip(leaders, draws, parts):
                seen.append(Seen(x if m.augment is None else m.augment(x, draw), *m.fit.targets(rows, device)))
            losses.append(group.step(_stacked(seen), len(losses)))
            meter.advance()
    return torch.stack(losses).double().cpu().numpy()


def _stacked(seen: Sequence[Seen]) -> Seen:
    attributes = {}
    for name in seen[0].attributes:
        attributes[name] = torch.stack([of_seed.attributes[name] for of_seed in seen])
    return Seen(
        torch.stack([of_seed.x for of_seed in seen]),
        torch.stack([of_seed.y for of_seed in seen]),
        attributes,
        torch.stack([of_seed.weight for of_seed in seen]),
    )


def _logits(group: _Group) -> np.ndarray:
    """(S, L, n, C) of the stopping rows."""
    leaders = [group.members[number] for number in group.grid[:, 0]]
    is_shared = all(m.stop is leaders[0].stop for m in leaders)
    batch = leaders[0].settings.batch
    logits = []
    with ExitStack() as streams:
        sources = []
        for m in leaders[:1] if is_shared else leaders:
            sources.append(m.stop.batches(group.template, batch))
        for source in sources:
            streams.enter_context(closing(source))
        for parts in zip(*sources, strict=True):
            if is_shared:
                x = parts[0][1]
            else:
                x = torch.stack([x for _, x in parts])
            logits.append(group.network.logits(x, is_shared=is_shared))
    return torch.cat(logits, dim=2).cpu().numpy()


def _end_epoch(
    group: _Group, member: _Member, place: tuple[int, ...], losses: np.ndarray, logits: np.ndarray, seconds: float
) -> None:
    """The epoch's row joins the member's curves, and its state is kept if it is the best so far."""
    settings, epoch = member.settings, group.epoch + 1
    if member.is_over(group.epoch):
        return
    member.error = _divergence(losses, logits, epoch, settings)
    if member.error:
        return
    sizes = []
    for start in range(0, member.rows, settings.batch):
        sizes.append(min(settings.batch, member.rows - start))
    scores = evaluate(logits, member.stop.y, member.stop.groups)
    measured = {"epoch": epoch, "loss": float(np.average(losses, weights=sizes))}
    measured |= {f"val_{name}": score for name, score in scores.items()}
    rate = settings.lr * group.factors[epoch * group.steps - 1]
    member.curves.append({**measured, "lr": rate, "time_seconds": seconds})
    score = scores[settings.stop_on] * settings.sign
    if not member.best or score > member.best["score"]:
        member.best = {"epoch": epoch, "score": score, "state": group.network.state(*place)}


def _divergence(losses: np.ndarray, logits: np.ndarray, epoch: int, settings: Settings) -> str:
    way_out = f"lower lr (now {settings.lr:g}) or clip, look at mean= and std= and at the pixels, and start in a new folder"
    odd = np.flatnonzero(~np.isfinite(losses))
    if len(odd):
        return f"the loss is {losses[odd[0]]} in epoch {epoch}, step {odd[0] + 1} of {len(losses)}: {way_out}"
    if np.isfinite(logits).all():
        return ""
    return f"the logits of the stopping rows are not finite after epoch {epoch}: {way_out}"


def _going_on(group: _Group) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the grid in which some model still trains; a finished model among them only fills the grid."""
    over = group.for_each(lambda member: member.is_over(group.epoch))
    return np.flatnonzero(~over.all(axis=1)), np.flatnonzero(~over.all(axis=0))


# ---- the group ----------------------------------------------------------------------------------------------------------


@dataclass
class _Member:
    """One model of a group: what was asked for, and how far its training is."""

    classifier: Classifier
    settings: Settings
    objective: Objective
    fit: Examples
    stop: Examples
    augment: Augment | None
    workers: int | None
    cache: str | os.PathLike[str] | None
    folder: Path | None
    plan: dict[str, Any]
    curves: list[dict[str, float]] = field(default_factory=list)
    best: dict[str, Any] = field(default_factory=dict)
    error: str = ""

    @property
    def rows(self) -> int:
        """Training rows in one epoch."""
        return len(self.fit.order(self.settings.batch, self.settings.seed, 0))

    def is_over(self, epoch: int) -> bool:
        waited = epoch - self.best.get("epoch", 0)
        patience = self.settings.patience
        return bool(self.error) or epoch >= self.settings.epochs or (patience is not None and waited >= patience)


class _Group:
    """The models still in training: their numbers among the members (`grid`, S x L), their parameters, and a step of all."""

    def __init__(self, members: list[_Member], device: torch.device) -> None:
        settings = members[0].settings
        self.members, self.device = members, device
        self.grid = _grid([member.settings.seed for member in members])
        self.template = members[0].classifier.copy().to(device)
        self._refuse()
        self.steps, self.epoch = members[0].fit.steps(settings.batch), 0
        self.factors = schedule_factors(settings.epochs * self.steps, settings.schedule, round(settings.warmup * self.steps))
        pairs = []
        for row in self.grid:
            in_row = [members[number] for number in row]
            pairs.append([(member.classifier, member.objective) for member in in_row])
        self.network = StackedNetwork(pairs, device)
        if not self.network.params:
            raise TrainingError(f"no parameter of {self.template.name} may change: set requires_grad of those to train")
        self.optimizer = StackedOptimizer(
            settings.optimizer,
            self.network.params,
            lr=self._per_member("lr"),
            weight_decay=self._per_member("weight_decay"),
            clip=None if settings.clip is None else self._per_member("clip"),
            factors=torch.tensor(self.factors, device=device),
        )
        self.network.params = self.optimizer.params
        self.kept = tuple(map(np.arange, self.grid.shape))

    def for_each(self, value: Callable[[_Member], Any]) -> np.ndarray:
        """(S, L) one number for each member of the grid."""
        values = [value(self.members[number]) for number in self.grid.flat]
        return np.array(values).reshape(self.grid.shape)

    def step(self, seen: Seen, step: int) -> Tensor:
        now = self.epoch * self.steps + step
        losses, grads = self.network.gradients(seen, self.epoch, now)
        self.optimizer.step(grads, torch.tensor([now], device=self.device))
        return losses

    def keep(self, seeds: np.ndarray, settings: np.ndarray) -> None:
        """Keep some rows and columns of the grid."""
        if (len(seeds), len(settings)) == self.grid.shape:
            return
        self.grid = self.grid[np.ix_(seeds, settings)]
        self.kept = (self.kept[0][seeds], self.kept[1][settings])
        if self.grid.size:
            rows = torch.from_numpy(seeds).to(self.device)
            columns = torch.from_numpy(settings).to(self.device)
            self.optimizer = self.optimizer.kept(rows, columns)
            self.network.kept(lambda values: values.index_select(0, rows).index_select(1, columns), self.optimizer.params)

    def save(self, folder: Path | None) -> None:
        for member in self.members:
            if member.folder is not None and len(member.curves) == self.epoch:
                save_curves(member.folder, member.curves)
        if folder is None:
            return
        state = {
            "epoch": self.epoch,
            "kept": [index.tolist() for index in self.kept],
            "optimizer": self.optimizer.state_dict(),
            "buffers": self.network.buffers,
            "members": [{"curves": m.curves, "best": m.best, "error": m.error} for m in self.members],
        }
        save_state(folder / GROUP, state)

    def resume(self, folder: Path | None) -> None:
        if folder is None or not (folder / GROUP).exists():
            return
        state = torch.load(folder / GROUP, map_location="cpu", weights_only=True)
        self.epoch = state["epoch"]
        for member, saved in zip(self.members, state["members"], strict=True):
            member.curves, member.best, member.error = saved["curves"], saved["best"], saved["error"]
        self.keep(*(np.array(index, dtype=np.int64) for index in state["kept"]))
        if self.grid.size:
            self.optimizer.load_state_dict(state["optimizer"])
            for name, values in self.network.buffers.items():
                values.copy_(state["buffers"][name])

    def finish(self, member: _Member, is_there: bool) -> Classifier | TrainingError:
        if member.error:
            return TrainingError(member.error)
        if is_there and member.folder is not None:
            return finished(member.folder, member.objective, member.classifier)
        model = member.classifier.copy()
        model.module.zero_grad(set_to_none=True)
        ask_objective(member.objective, "to", None, model.device)
        put(member.best["state"], model, member.objective)
        state = copied(ask_objective(member.objective, "state_dict", {}))
        if member.folder is not None:
            save_curves(member.folder, member.curves)
        outcome = Outcome(member.settings, member.best["epoch"], member.curves, state, self.device, None)
        trained_on = Given(member.classifier, member.fit, member.stop, member.plan)
        return finish(model, outcome, trained_on, member.folder)

    def _per_member(self, name: str) -> Tensor:
        values = self.for_each(lambda member: getattr(member.settings, name))
        return torch.tensor(values, dtype=torch.float32, device=self.device)

    def _refuse(self) -> None:
        first, batch = self.members[0], self.members[0].settings.batch
        sizes = sorted({len(member.fit.y) for member in self.members})
        if len(sizes) > 1:
            raise TrainingError(
                f"the seeds draw {sizes} training rows each, and models that train as one need equally many: "
                "give the cohort a 'val' split, or stopping="
            )
        rows = np.arange(min(4, len(first.fit.y)))
        with closing(first.fit.batches(self.template, batch, rows)) as stream:
            x = next(iter(stream))[1][:4]
        seen = Seen(x, *first.fit.targets(rows[: len(x)], self.device))
        reason = why_not(self.template, first.objective, seen)
        if reason:
            raise TrainingError(f"copies of {self.template.name} cannot train as one: {reason}")


def _grid(seeds: Sequence[int]) -> np.ndarray:
    """(S, L) numbers of members, those of a seed in a row; where seeds have unequal numbers, every member has a row."""
    members: dict[int, list[int]] = {}
    for number, seed in enumerate(seeds):
        members.setdefault(seed, []).append(number)
    are_equally_many = len({len(numbers) for numbers in members.values()}) == 1
    if are_equally_many:
        return np.array(list(members.values()))
    return np.arange(len(seeds))[:, None]


def _end(first: _Member) -> None:
    if first.folder is not None:
        (first.folder / GROUP).unlink(missing_ok=True)


# ---- what is given ------------------------------------------------------------------------------------------------------


def _members(
    classifiers: Sequence[Classifier],
    cohort: Cohort,
    settings: Sequence[Mapping[str, Any]],
    folders: Sequence[str | os.PathLike[str]] | None,
    threads: int | None,
) -> list[_Member]:
    numbers = {"classifiers": len(classifiers), "settings": len(settings), "folders": len(folders or classifiers)}
    if len(set(numbers.values())) > 1 or not classifiers:
        raise SettingError(f"there are {numbers}: give one of each for every model")
    places = []
    for k in range(len(classifiers)):
        places.append(None if folders is None else Path(folders[k]))
    if folders is not None and len({str(place) for place in places}) < len(places):
        raise SettingError("two models share a folder: give each its own")
    complete = [_complete(one, threads) for one in settings]
    _refuse_differences(classifiers, complete)
    rows = _Rows(cohort, complete[0])
    members = []
    for classifier, keywords, place in zip(classifiers, complete, places):
        own = Settings(**{f.name: keywords[f.name] for f in fields(Settings)})
        fit, stop = rows.of(classifier, own)
        loss = objective_of(keywords["objective"], classifier, fit, own)
        change = augmentation_of(keywords["augment"])
        plan = plan_of(own, classifier, fit, stop, loss, change)
        members.append(_Member(classifier, own, loss, fit, stop, change, keywords["workers"], keywords["cache"], place, plan))
    differing_numbers([member.objective for member in members])
    group = hash_of(json.dumps(member.plan, sort_keys=True) for member in members)
    for number, member in enumerate(members):
        member.plan["batched"] = {"group": group, "member": number, "of": len(members)}
    return members


def _complete(keywords: Mapping[str, Any], threads: int | None) -> dict[str, Any]:
    """All keywords of `train`: those given, and defaults for the rest."""
    known = {}
    for name, p in inspect.signature(train).parameters.items():
        if p.kind is p.KEYWORD_ONLY:
            known[name] = p.default
    known.pop("folder")
    unknown = [name for name in keywords if name not in known]
    if unknown:
        raise SettingError(f"settings have {unknown[0]!r}, which is no keyword of train; {suggest(unknown[0], known)}")
    complete = {**known, **keywords}
    return {
        **complete,
        "device": None if complete["device"] is None else str(complete["device"]),
        "threads": complete["threads"] if threads is None else threads,
    }


def _refuse_differences(classifiers: Sequence[Classifier], of_models: Sequence[Mapping[str, Any]]) -> None:
    for name, value in of_models[0].items():
        other = next((keywords[name] for keywords in of_models if not _same(keywords[name], value)), value)
        if other is not value and name not in (*VARIES, "regime", "objective"):
            raise SettingError(
                f"{name} is {value!r} for one model and {other!r} for another: only {', '.join(VARIES)} may differ"
            )
    if of_models[0]["amp"]:
        raise SettingError(f"amp is {of_models[0]['amp']!r}: models that train as one do so in float32, leave amp out")
    kinds = {_kind(classifier): classifier.name for classifier in classifiers}
    if len(kinds) > 1:
        raise SettingError(f"the classifiers are not of one architecture, input and normalisation: {sorted(set(kinds.values()))}")


def _kind(classifier: Classifier) -> str:
    tensors = (*classifier.module.named_parameters(), *classifier.module.named_buffers())
    shapes = []
    for name, t in tensors:
        shapes.append(f"{name} {tuple(t.shape)} {t.dtype} {t.requires_grad}")
    read = (classifier.name, classifier.geometry, classifier.mean, classifier.std, classifier.classes, classifier.output)
    return hash_of([repr(read), *shapes])


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, Cohort) and isinstance(second, Cohort):
        return first.fingerprint == second.fingerprint
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.array_equal(first, second)
    return first is second or first == second


class _Rows:
    """The rows that fit and stop: one for all seeds, unless it is the seed that splits them."""

    def __init__(self, cohort: Cohort, given: Mapping[str, Any]) -> None:
        self.cohort, self.stopping, self.weights = cohort, given["stopping"], given["weights"]
        self.is_split_by_seed = self.stopping is None and not (cohort.has("train") and cohort.has("val"))
        self.made: dict[int, tuple[Examples, Examples]] = {}

    def of(self, classifier: Classifier, settings: Settings) -> tuple[Examples, Examples]:
        if self.is_split_by_seed:
            key = settings.seed
        else:
            key = -1
        if key not in self.made:
            self.made[key] = examples(classifier, self.cohort, self.stopping, settings, weights=self.weights)
            refuse_undefined_metric(settings, self.made[key][1], classifier)
        return self.made[key]


def _decode(members: Sequence[_Member]) -> None:
    """Decode the pixels of every part, each of them once."""
    done: dict[int, Examples] = {}
    for member in members:
        for name in ("fit", "stop"):
            part = getattr(member, name)
            if id(part) not in done:
                done[id(part)] = part.decoded(member.classifier.geometry, member.cache, member.workers)
            setattr(member, name, done[id(part)])
