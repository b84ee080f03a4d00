"""Which input settings fit a network on given rows: the usual ones are tried, one kind after the other. Runs the network."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rightreasons.check.preflight import answers
from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError, ModelError
from rightreasons.evidence import as_outputs
from rightreasons.extraction import card_of, read
from rightreasons.models.classifier import Classifier
from rightreasons.progress import track
from rightreasons.study.preflight import in_use, shown

ROWS = 128
SIZES = (28, 32, 64, 96, 128, 160, 192, 224, 256, 299, 384)
NORMALISATIONS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "ImageNet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "one half": ((0.5,), (0.5,)),
    "none, from 0 to 1": ((0.0,), (1.0,)),
    "CLIP": ((0.4815, 0.4578, 0.4082), (0.2686, 0.2613, 0.2758)),
    "one half and one quarter": ((0.5,), (0.25,)),
    "0 to 255": ((0.0,), (1 / 255,)),
}
CROPS = (1.0, 0.95, 0.9, 0.875)
CLEARLY = 0.02  # of balanced accuracy: below that, two settings are as good


@dataclass(frozen=True)
class Tried:
    """One combination: settings by option, balanced accuracy, mean log-probability of the label; or why it could not run."""

    settings: dict[str, str]
    balanced: float
    likelihood: float
    failed: str = ""

    @property
    def options(self) -> str:
        return " ".join(f"--{name} {value}" for name, value in self.settings.items())


@dataclass(frozen=True)
class Fitted:
    """What was tried, best first, and what is in use."""

    rows: int
    given: Tried
    tried: tuple[Tried, ...]
    works: bool

    @property
    def best(self) -> Tried:
        return self.tried[0]

    def lines(self) -> Iterator[str]:
        """What to say of it."""
        scored = f"balanced accuracy {self.given.balanced:.3f} on {self.rows} rows"
        yield f"in use: {self.given.options}: {scored}"
        for one in self.tried[:8]:
            yield f"  {one.balanced:.3f}  {one.options}"
        could_not = [one for one in self.tried if one.failed]
        if could_not:
            yield f"  {len(could_not)} could not be run, such as {could_not[0].options}: {could_not[0].failed}"
        if not self.works:
            yield (
                f"none of the {len(self.tried)} fits: the best scores {self.best.balanced:.3f}. Look at --classes, --checkpoint "
                "and --model, or ask whoever trained it how images were prepared"
            )
        elif self.best.balanced <= self.given.balanced + CLEARLY:
            yield "what is in use fits as well as anything that was tried"
        else:
            yield f"{self.best.options} fits: {self.best.balanced:.3f} instead of {self.given.balanced:.3f}"


def fit_preprocessing(classifier: Classifier, rows: Cohort) -> Fitted:
    """Try the usual sizes with the usual normalisations, then crops with the best of them.

    The order of the classes is taken as it is. Rows are held-out ones where the table has splits. The choice is made on the rows
    that were given, so it proves that a setting fits these, and the audit's own rows show whether it does elsewhere.
    """
    chosen = _sample(rows)
    known = in_use(card_of(classifier))
    given = _try(classifier, chosen, known)
    sizes = dict.fromkeys([tuple(known["size"]), *((side,) * len(known["size"]) for side in SIZES)])
    pairs = [(tuple(known["mean"]), tuple(known["std"])), *NORMALISATIONS.values()]
    combinations = [{**known, "size": size, "mean": mean, "std": std} for size in sizes for mean, std in pairs]
    found = [_try(classifier, chosen, each) for each in track(combinations, "sizes and normalisations")]
    k = int(np.argmax([_rank(one) for one in found]))
    for crop in dict.fromkeys((known["crop"], *CROPS)):
        found.append(_try(classifier, chosen, {**combinations[k], "crop": crop}))
    unique = {one.options: one for one in found}
    tried = sorted(unique.values(), key=_rank, reverse=True)
    return Fitted(len(chosen), given, tuple(tried), tried[0].balanced > 0 and _works(classifier, chosen, tried[0]))


def _rank(tried: Tried) -> float:
    """Balanced accuracy, and where that is equal to three digits, likelihood."""
    if tried.failed:
        return -np.inf
    return round(tried.balanced, 3) + 1e-6 * max(-100.0, tried.likelihood)


def _works(classifier: Classifier, rows: Cohort, tried: Tried) -> bool:
    label = as_outputs(rows.label, rows.classes, classifier.classes)
    known = label >= 0
    chance = 1 / max(2, len(np.unique(label[known])))
    return tried.balanced >= chance + 0.1 * (1 - chance)


def _try(classifier: Classifier, rows: Cohort, settings: dict[str, object]) -> Tried:
    said = {name: shown(settings[name]).replace(" ", "") for name in ("size", "mean", "std", "crop")}
    try:
        logits = read(_with(classifier, settings), rows)["logits"]
    except DataError:
        raise
    except (ModelError, RuntimeError, AssertionError, ValueError) as error:  # a network of fixed size says so in its own way
        return Tried(said, 0.0, -np.inf, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    label = as_outputs(rows.label, rows.classes, classifier.classes)
    found = answers(label, logits)
    if found is None:
        raise DataError(f"{len(rows)} rows, of which too few have a label of two classes: give more rows to fit on")
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    known = label >= 0
    return Tried(said, found.balanced, float(log_p[known][np.arange(int(known.sum())), label[known]].mean()))


def _with(classifier: Classifier, settings: dict[str, object]) -> Classifier:
    """The classifier with other settings of its input; the network itself is shared."""
    made = copy.copy(classifier)
    size = tuple(int(side) for side in _values(settings["size"]))
    made.geometry = replace(classifier.geometry, size=size, crop=float(_values(settings["crop"])[0]))
    made.mean, made.std = (_per_channel(_values(settings[name]), classifier.geometry.channels) for name in ("mean", "std"))
    return made


def _values(value: object) -> Sequence[float]:
    return list(value) if isinstance(value, list | tuple) else [value]  # type: ignore[list-item]


def _per_channel(values: Sequence[float], channels: int) -> tuple[float, ...]:
    if len(values) == channels:
        return tuple(values)
    return (float(sum(values) / len(values)),) * channels


def _sample(rows: Cohort) -> Cohort:
    """Labelled rows, held-out ones where there are splits, evenly spread."""
    own = rows.label >= 0
    if rows.splits is not None and (np.asarray(rows.splits) != "train").any():
        own = own & (np.asarray(rows.splits) != "train")
    index = np.flatnonzero(own)
    spread = np.linspace(0, max(0, len(index) - 1), min(ROWS, len(index))).astype(np.int64)
    return rows.select(index[np.unique(spread)])
