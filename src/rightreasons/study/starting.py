"""The network of a brought model at its starting weights, for a reference model that may predict something else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rightreasons.errors import ModelError
from rightreasons.models.classifier import Classifier
from rightreasons.models.starting import fresh


def begin(network: Classifier, start: str | None, classes: Sequence[Any], rng: np.random.Generator) -> Classifier:
    """The network as its training began, with an output for every class; another number of them is another, random head.

    Parameters
    ----------
    start : "fresh", "given", a folder or a checkpoint; None: what the network's card says
    """
    begun = fresh(network, rng, start)
    if len(classes) == network.C:
        return begun
    recipe, geometry = network.recipe, network.geometry
    if recipe is None:
        raise ModelError(
            f"{network.name} is a wrapped network with {network.C} outputs, and {len(classes)} are needed: load it by a factory, "
            "'package.module:factory', or bring such a model (--attribute-model)"
        )
    settings: dict[str, Any] = {}
    for key in ("size", "crop", "interpolation", "mode", "channels"):
        settings[key] = getattr(geometry, key)
    settings |= {"mean": network.mean, "std": network.std, **recipe["settings"]}
    made = Classifier.load(recipe["spec"], num_classes=len(classes), rng=rng, trust=sorted(network.trust), **settings)
    own, body = made.module.state_dict(), begun.module.state_dict()
    fitting = {}
    for key, value in body.items():
        if key in own and own[key].shape == value.shape:
            fitting[key] = value
    made.module.load_state_dict({**own, **fitting})
    made.card, made.used = {**begun.card}, begun.used
    return made
