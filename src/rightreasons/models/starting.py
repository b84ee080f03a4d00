"""A network at its starting weights: random ones, those it was given with, or those of a folder or checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rightreasons.errors import ModelError
from rightreasons.models import checkpoints
from rightreasons.models.classifier import Classifier, build_network
from rightreasons.trust import trusting


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
    if start is None:
        source = _start(classifier)
    else:
        source = str(start)
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
    weights = checkpoints.read_checkpoint(place / "model.safetensors" if place.is_dir() else place)
    checkpoints.load_weights(made.module, weights, new_head=True)
    made.card = {**_loaded_card(classifier), "start": source}
    return made


def _start(classifier: Classifier) -> str:
    start = str(classifier.card.get("start") or "")
    if _is_as_loaded(classifier):
        return "given"
    if start in ("", "fresh") or Path(start).exists():
        return start or "fresh"
    raise ModelError(
        f"{classifier.name} was trained from weights with the fingerprint {start}, and a fingerprint does not give them back: "
        "say start=<folder or checkpoint of those weights>, or start='fresh' for random ones"
    )


def _is_as_loaded(classifier: Classifier) -> bool:
    """Whether the model was loaded and has not been trained here."""
    return classifier.training is None and not classifier.card.get("regime")


def _used_in(folder: Path) -> frozenset[str]:
    """Ids that a saved model was fitted or tuned on."""
    description = folder / "model.json"
    if description.is_file():
        return frozenset(json.loads(description.read_text())["used"])
    return frozenset()


def _random_weights(classifier: Classifier, rng: np.random.Generator) -> dict[str, torch.Tensor]:
    recipe = classifier.recipe
    if recipe is None:
        raise ModelError(
            f"{classifier.name} is a wrapped network, and only its own code can give it random weights: "
            "say start=<folder or checkpoint of its starting weights>, or load it by a factory, 'package.module:factory'"
        )
    with trusting(classifier.trust):
        return build_network(recipe, classifier.geometry.size, classifier.geometry.channels, rng).state_dict()


def _loaded_card(classifier: Classifier) -> dict[str, Any]:
    """The card that a model has when it is loaded, without what a training wrote there."""
    if classifier.card.get("name"):
        named = {"name": classifier.card["name"]}
    else:
        named = {}
    empty = dict.fromkeys(("regime", "seed", "target", "start"))
    return {"architecture": classifier.card.get("architecture") or classifier.name, "settings": {}, **empty, **named}
