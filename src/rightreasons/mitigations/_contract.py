"""What every mitigation shares: starting weights, groups, selection, what a model says of some rows, and the new model's card.

A mitigation is one file, and its name is the method's:

    STARTS = "start" | "model"       trains anew from the starting weights, or goes on from the model given
    REFERENCES = ("baseline", …)     other models that it reads, by role; absent where there are none
    mitigate(classifier, cohort, *, rng, attribute=None, …, folder=None, device=None, threads=None) -> Classifier

The classifier that is given is never changed. Rows by the roles of the splits: `train` fits, `val` selects, a half of `audit`
serves methods that need held-out rows, `test` is never seen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch

from rightreasons import families
from rightreasons.audits import Need
from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError, ModelError, SettingError
from rightreasons.evidence import CHUNK_ROWS, as_outputs
from rightreasons.families import suggest
from rightreasons.mitigations import RUNNING
from rightreasons.models import loading
from rightreasons.models.classifier import Classifier
from rightreasons.models.extraction import extract
from rightreasons.stats import groups

Select = Literal["wga", "accuracy"]
SELECTED: dict[str, str] = {"wga": "validation WGA", "accuracy": "validation accuracy"}
"""What the card says of a selection."""
NO_SETTINGS = ("references", *RUNNING)

# ---- starting weights ----------------------------------------------------------------------------------------------------


def fresh(classifier: Classifier, rng: np.random.Generator, start: str | Path | None = None) -> Classifier:
    """The network at its starting weights, for `train`: a copy whose `used` are the ids that those weights have seen.

    Parameters
    ----------
    rng : of random starting weights
    start : "fresh" (random weights), "given" (those of `classifier`), a folder that `Classifier.save` wrote, or a checkpoint
        whose head may have another number of outputs. None: what the card says; a model that was loaded and never trained here
        starts from the weights it has.
    """
    made = classifier.copy()
    made.used, made.training = frozenset(), None
    source = _start(classifier) if start is None else str(start)
    if source == "fresh":
        made.module.load_state_dict(_random_weights(classifier, rng))
        made.card = {**_loaded_card(classifier), "start": "fresh"}
        return made
    if source == "given":
        made.used = classifier.used
        made.card = {**_loaded_card(classifier), "start": classifier.card.get("start") if _is_as_loaded(classifier) else None}
        return made
    place = Path(source)
    if place.is_dir():
        made.used = _used_in(place)
    loading.load_weights(
        made.module, loading.read_checkpoint(place / "model.safetensors" if place.is_dir() else place), new_head=True
    )
    made.card = {**_loaded_card(classifier), "start": source}
    return made


def _start(classifier: Classifier) -> str:
    told = str(classifier.card.get("start") or "")
    if _is_as_loaded(classifier):
        return "given"
    if told in ("", "fresh") or Path(told).exists():
        return told or "fresh"
    raise ModelError(
        f"{classifier.name} was trained from weights with the fingerprint {told}, and a fingerprint does not give them back: "
        "say start=<folder or checkpoint of those weights>, or start='fresh' for random ones"
    )


def _is_as_loaded(classifier: Classifier) -> bool:
    """Whether it was loaded and never trained here."""
    return classifier.training is None and not classifier.card.get("regime")


def _used_in(folder: Path) -> frozenset[str]:
    """Ids that a saved model was fitted or tuned on."""
    told = folder / "model.json"
    return frozenset(json.loads(told.read_text())["used"]) if told.is_file() else frozenset()


def _random_weights(classifier: Classifier, rng: np.random.Generator) -> dict[str, torch.Tensor]:
    recipe = classifier.recipe
    if recipe is None:
        raise ModelError(
            f"{classifier.name} is a wrapped network, and only its own code can give it random weights: "
            "say start=<folder or checkpoint of its starting weights>, or load it by a factory, 'package.module:factory'"
        )
    built = loading.build(
        recipe["spec"],
        num_classes=recipe["num_classes"],
        size=classifier.geometry.size,
        channels=classifier.geometry.channels,
        settings=recipe["settings"],
        rng=rng,
    )
    module: torch.nn.Module = built.module.module if isinstance(built.module, Classifier) else built.module
    return module.state_dict()


def _loaded_card(classifier: Classifier) -> dict[str, Any]:
    """The card of a model as it is loaded: what its training wrote there is gone."""
    named = {"name": classifier.card["name"]} if classifier.card.get("name") else {}
    empty = dict.fromkeys(("regime", "seed", "target", "start"))
    return {"architecture": classifier.card.get("architecture") or classifier.name, "settings": {}, **empty, **named}


# ---- rows, groups, selection ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """Rows with a known label (and attribute, where it is asked for), coded as the classifier's outputs.

    Attributes
    ----------
    y : (n,) the output that is right
    a : (n,) level of the attribute; None where the cohort has no attribute that makes groups
    names : value of every output, and of every level
    left_out : rows that lack the label or the attribute and are not here
    """

    cohort: Cohort
    y: np.ndarray
    a: np.ndarray | None
    attribute: str
    names: tuple[tuple[Any, ...], tuple[Any, ...]]
    left_out: int

    def __len__(self) -> int:
        return len(self.y)

    @property
    def group(self) -> np.ndarray:
        """(n,) number of the (label, attribute) group, `y * A + a`, empty groups counted."""
        if self.a is None:
            raise DataError(f"cohort {self.cohort.name!r} has no attribute that makes groups: give attribute= when reading it")
        return self.y * self.A + self.a

    @property
    def C(self) -> int:
        return len(self.names[0])

    @property
    def A(self) -> int:
        return len(self.names[1])

    def name(self, group: int) -> str:
        """`label=1, cue=0` of a group's number."""
        y, a = divmod(int(group), self.A)
        return f"{self.cohort.label_name}={self.names[0][y]}, {self.attribute}={self.names[1][a]}"

    def select(self, rows: np.ndarray) -> Rows:
        a = None if self.a is None else self.a[rows]
        return Rows(self.cohort.select(rows), self.y[rows], a, self.attribute, self.names, self.left_out)


def grouped(classifier: Classifier, cohort: Cohort, attribute: str | None = None) -> Rows:
    """The rows of a cohort that have label and attribute; refused where the attribute is unknown or continuous.

    Parameters
    ----------
    attribute : the cohort's first by default
    """
    if not cohort.attributes:
        raise DataError(f"cohort {cohort.name!r} has no attribute and forms no groups: give attribute= when reading the manifest")
    if attribute is not None and attribute not in cohort.attributes:
        raise SettingError(f"no attribute {attribute!r} in cohort {cohort.name!r}; {suggest(attribute, cohort.attributes)}")
    a = cohort.attribute(attribute)
    if a.kind == "continuous":
        raise DataError(f"attribute {a.name!r} is continuous and forms no groups: give bins={{{a.name!r}: …}} when reading")
    y = as_outputs(cohort.label, cohort.classes, classifier.classes)
    kept = (y >= 0) & (a.values >= 0)
    if not kept.any():
        raise DataError(f"no row of cohort {cohort.name!r} has both {cohort.label_name!r} and {a.name!r}: look at those columns")
    names = (tuple(classifier.classes), tuple(a.levels))
    return Rows(cohort.select(kept), y[kept], a.values[kept].astype(np.int64), a.name, names, int((~kept).sum()))


def labelled(classifier: Classifier, cohort: Cohort, attribute: str | None = None) -> Rows:
    """`grouped` where the cohort has an attribute that makes groups; else the rows that have a label, `a` being None."""
    named = attribute is not None or bool(cohort.attributes)
    if named and (attribute not in (None, *cohort.attributes) or cohort.attribute(attribute).kind == "categorical"):
        return grouped(classifier, cohort, attribute)
    if attribute is not None:
        return grouped(classifier, cohort, attribute)  # a named one must make groups
    y = as_outputs(cohort.label, cohort.classes, classifier.classes)
    return Rows(cohort.select(y >= 0), y[y >= 0], None, "", (tuple(classifier.classes), ()), int((y < 0).sum()))


def every_group(rows: Rows, least: int = 1, what: str = "") -> np.ndarray:
    """(C·A,) size of every group; refused where one of a class and a level that both occur has fewer than `least` rows."""
    size = np.bincount(rows.group, minlength=rows.C * rows.A)
    table = size.reshape(rows.C, rows.A)
    expected = np.outer(table.sum(axis=1) > 0, table.sum(axis=0) > 0).reshape(-1)
    few = np.flatnonzero(expected & (size < least))
    if len(few):
        listed = "; ".join(f"{rows.name(g)}: {size[g]}" for g in few.tolist())
        raise DataError(
            f"{what or 'this mitigation'} needs at least {least} rows of every group of {rows.cohort.name!r}: {listed}"
        )
    return size


def selection(classifier: Classifier, cohort: Cohort, attribute: str | None = None) -> Select:
    """By which validation metric to select, `train`'s `stop_on`: "wga" where it is defined on the val rows, else "accuracy".

    `SELECTED` has the words for the card.
    """
    if not cohort.has("val"):
        raise DataError(f"cohort {cohort.name!r} has no rows in split 'val': call completed(cohort, rng) first")
    rows = labelled(classifier, cohort.on("val"), attribute)
    return "wga" if rows.a is not None and not np.isnan(score(rows, np.eye(rows.C)[rows.y], "wga")) else "accuracy"


def score(rows: Rows, logits: np.ndarray, by: Select) -> float:
    """The metric that selects, of logits (n, C) on these rows."""
    predicted = logits.argmax(axis=1)
    if by == "accuracy":
        return groups.accuracy(rows.y, predicted)
    # As in training: the small groups are those that a selection must not leave out.
    return groups.worst_group_accuracy(rows.y, predicted, cast(np.ndarray, rows.a), smallest=1)


def completed(cohort: Cohort, rng: np.random.Generator) -> Cohort:
    """The cohort with all four roles: `val` from `train` and `audit` from `test` where it lacks them."""
    return cohort.with_roles(rng=rng, trains=True)


def audit_half(cohort: Cohort, rng: np.random.Generator, attribute: str | None = None) -> Cohort:
    """A seeded half of the audit rows, stratified on (label, attribute), whole subjects; the other half is left to audits."""
    if not cohort.has("audit"):
        raise DataError(f"cohort {cohort.name!r} has no rows in split 'audit': call completed(cohort, rng) first")
    return cohort.on("audit").split({"fit": 0.5, "rest": 0.5}, rng=rng, attribute=attribute).on("fit")


def settings_in(mitigate: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting of a `mitigate` function with its value, from `locals()` at its top, as plain data for the card.

    Those that `@trains()` gave it are in `training`.
    """
    every = {**values, **values.get("training", {})}
    return {key: _plain(every[key]) for key in families.settings_of(mitigate) if key not in NO_SETTINGS}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, bool | int | float | str | type(None)) else str(value)


def seed_of(rng: np.random.Generator) -> int:
    """A seed for `train`."""
    return int(rng.integers(2**31))


# ---- what a model says ---------------------------------------------------------------------------------------------------


def read(
    classifier: Classifier,
    cohort: Cohort,
    arrays: Sequence[str] = ("logits",),
    *,
    batch: int = 32,
    device: str | torch.device | None = None,
    threads: int | None = None,
    workers: int | None = None,
    cache: str | Path | None = None,
) -> dict[str, np.ndarray]:
    """Arrays by recipe ("logits", "features", "spatial", "maps@gradcam", …), rows as in the cohort; the model stays as it was."""
    evidence = extract(
        classifier,
        {"rows": cohort},
        [Need("test", "rows", name) for name in arrays],
        batch=batch,
        chunk=-(-CHUNK_ROWS // batch) * batch,
        device=None if device is None else str(device),
        threads=threads,
        workers=workers,
        cache=cache,
    )
    view = evidence.on("rows")
    return {name: view[name] for name in arrays}


# ---- the new model -------------------------------------------------------------------------------------------------------


def handed_on(
    new: Classifier,
    old: Classifier,
    regime: str,
    settings: Mapping[str, Any],
    *,
    selected: Select | str,
    fitted: Iterable[str] = (),
    keeps: bool = True,
    chosen: Mapping[str, Any] | None = None,
    seed: int | None = None,
) -> Classifier:
    """`new` with the card of a mitigation; the network is in evaluation mode and carries no gradients.

    Parameters
    ----------
    new : the changed model: a copy of `old`, or what `train` gave
    settings : every setting of `mitigate`, defaults included, as plain data
    selected : "wga" or "accuracy" on validation rows, or words of one's own ("not selected")
    fitted : ids that it was fitted or tuned on beside those `new.used` has
    keeps : whether `old.used` stays: True where the method goes on from the model (STARTS = "model"), False where it trains anew
    chosen : what the selection chose (epoch, strength, …) and whatever else the page should know
    """
    for parameter in new.module.parameters():
        parameter.grad = None
    new.module.eval()
    new.used = frozenset(new.used) | frozenset(fitted) | (frozenset(old.used) if keeps else frozenset())
    if new.training is None:
        new.training = old.training
    if "metric" in new.card and not keeps:
        chosen = {"epoch": new.card["selected_epoch"], new.card["metric"]["name"]: new.card["metric"]["value"], **(chosen or {})}
    if (named := settings.get("start")) not in (None, "fresh", "given"):
        new.card["start"] = str(named)  # weights that can be found again, where `train` keeps their fingerprint only
    new.card = {
        **new.card,
        "regime": regime,
        "seed": new.card.get("seed") if seed is None else seed,
        "mitigation": {
            "method": regime,
            "settings": dict(settings),
            "selected_by": SELECTED.get(selected, selected),
            "chosen": dict(chosen or {}),
            "of": old.fingerprint,
            "version": version("rightreasons"),
        },
    }
    return new


__all__ = [
    "SELECTED", "Rows", "Select", "audit_half", "completed", "every_group", "fresh", "grouped", "handed_on", "labelled",
    "read", "score", "seed_of", "selection", "settings_in",
]  # fmt: skip
