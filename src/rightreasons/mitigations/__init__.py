"""Mitigations change a model for the better: one file each, found by its name. `mitigate` runs one on a copy of the model.

A mitigation is one file, and its name is the method's:

    STARTS = "start" | "model"       trains anew from the starting weights, or goes on from the model given
    REFERENCES = ("baseline", …)     other models that it reads, by role; absent where there are none
    AUTO = "last layer" | "training" `mitigate auto` tries it, always or with --train; absent where it is only run by name
    mitigate(classifier, cohort, *, rng, attribute=None, …, folder=None, device=None, threads=None) -> Classifier

It ends with `handed_on(new, old, method, card_settings(…), …)`. The classifier that is given is never changed. Rows by the roles
of the splits: `train` fits, `val` selects, a half of `audit` serves methods that need held-out rows, `test` is never seen.
`models.starting` has starting weights, `models.grouped_rows` groups and selection, `extraction.read` what a model says of rows.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from rightreasons import families
from rightreasons.errors import SettingError
from rightreasons.stats.resampling import task_rng
from rightreasons.trust import named_in_the_call

if TYPE_CHECKING:
    from rightreasons.data.cohort import Cohort
    from rightreasons.models.classifier import Classifier

RUNNING = ("folder", "device", "threads", "workers", "cache")
"""Keywords of `mitigate` functions that say where and how they run, and change no result that is promised."""
SELECTED = {"wga": "validation WGA", "accuracy": "validation accuracy"}
"""What the card says of a selection."""
NO_SETTINGS = ("references", *RUNNING)
"""Keywords of `mitigate` functions that do not stand among the settings of a card."""


def mitigate(
    method: str,
    classifier: Classifier,
    cohort: Cohort,
    *,
    references: Mapping[str, Classifier | Sequence[Classifier]] | None = None,
    seed: int = 0,
    **settings: Any,
) -> Classifier:
    """Run one mitigation and give the new model.

    Parameters
    ----------
    method : a member of `mitigations/`, or the dotted name of a module of your own
    references : role → model, or a list of them (seeds), for methods that read other models
    settings : keywords of the method's `mitigate`; an unknown one is an error that lists the known
    """
    with named_in_the_call(method):
        return _mitigate(method, classifier, cohort, references or {}, seed, settings)


def _mitigate(
    method: str,
    classifier: Classifier,
    cohort: Cohort,
    references: Mapping[str, Classifier | Sequence[Classifier]],
    seed: int,
    settings: dict[str, Any],
) -> Classifier:
    module = families.member("mitigations", method)
    known = families.without(families.settings_of(module.mitigate), ("references",))
    families.refuse_unknown(settings, known, f"mitigation {method!r}")
    roles = references_of(method)
    models_of: dict[str, list[Classifier]] = {}
    for role, models in references.items():
        if role not in roles:
            raise SettingError(f"mitigation {method!r} has no role {role!r}; {families.suggest(role, roles)}")
        models_of[role] = list(models) if isinstance(models, Sequence) else [models]
    missing = [role for role in roles if not models_of.get(role)]
    if missing:
        raise SettingError(f"mitigation {method!r} compares with other models and lacks references for {', '.join(missing)}")
    if roles:
        settings["references"] = models_of
    rng = task_rng(seed, f"mitigation {method.rpartition('.')[2]}")
    mitigated: Classifier = module.mitigate(classifier, cohort, rng=rng, **settings)
    return mitigated


def references_of(method: str) -> tuple[str, ...]:
    """Roles of the other models that a method reads."""
    return tuple(getattr(families.member("mitigations", method), "REFERENCES", ()))


def tried_by_auto(train: bool) -> tuple[str, ...]:
    """Methods that `mitigate auto` tries: those that fit the last layer again, and with `train` those that train anew."""
    wanted = ("last layer", "training") if train else ("last layer",)
    members = families.members("mitigations")
    return tuple(name for name in members if getattr(families.member("mitigations", name), "AUTO", "") in wanted)


def card_settings(**settings: Any) -> dict[str, Any]:
    """The settings of a `mitigate` function as plain data for the card, without those that say where and how it runs."""
    return {key: _plain(value) for key, value in settings.items() if key not in NO_SETTINGS}


def handed_on(  # noqa: PLR0913  each keyword is a documented entry of the card
    new: Classifier,
    old: Classifier,
    regime: str,
    settings: Mapping[str, Any],
    *,
    selected: str,
    selected_by: str = "",
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
    selected : the criterion, such as "wga" or "accuracy"; "" where nothing was selected. Code asks for it.
    selected_by : what people read of it; by default "validation WGA", "validation accuracy" or the criterion itself
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
            "criterion": selected,
            "selected_by": selected_by or SELECTED.get(selected, selected),
            "chosen": dict(chosen or {}),
            "of": old.fingerprint,
            "version": version("rightreasons"),
        },
    }
    return new


def check_contract(name: str, **settings: Any) -> dict[str, str]:
    """What `rightreasons.testing.check_mitigation` runs; needs torch."""
    # By its name, because the contract runs `mitigate` and so imports this file.
    check = importlib.import_module("rightreasons.mitigations._check").check
    fingerprints: dict[str, str] = check(name, **settings)
    return fingerprints


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bool | int | float | str | type(None)):
        return value
    return str(value)
