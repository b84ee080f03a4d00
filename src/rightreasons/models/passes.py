"""A batch that passes through a model, and how an array is made from it: shared by recipes, attributions and perturbations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from rightreasons.data.cohort import Cohort
from rightreasons.errors import SettingError
from rightreasons.evidence import Evidence
from rightreasons.models.classifier import Classifier

Reading = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""Images to (b, d) features and (b, C) logits."""


@dataclass
class Pass:
    """One batch that passes through one model; what several recipes share is computed once.

    Parameters
    ----------
    label : (b,) which output is right, where a recipe reads it
    cohort, rows : where the images come from: their cohort, and (b,) row numbers in it
    arrays : (b, …) by name: what the recipes read of the same evidence
    network : features and logits of images, where they are not read by the network as it stands
    undefined : (b,) rows for which the requested change does not exist; None where it exists for all
    notes : by recipe, what should be kept with its array
    """

    classifier: Classifier
    x: torch.Tensor
    label: torch.Tensor | None = None
    cohort: Cohort | None = None
    rows: np.ndarray | None = None
    arrays: dict[str, torch.Tensor] = field(default_factory=dict)
    network: Reading | None = None
    undefined: torch.Tensor | None = None
    shared: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def read(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(b, d) features and (b, C) logits."""
        reading = self.classifier.read if self.network is None else self.network
        features, logits = reading(self.x)
        if self.undefined is not None:
            undefined = self.undefined[:, None]
            features, logits = features.masked_fill(undefined, torch.nan), logits.masked_fill(undefined, torch.nan)
        return features, logits

    @property
    def spatial(self) -> torch.Tensor:
        if self.network is not None:
            raise SettingError("spatial maps of a network that is changed inside cannot be read: ask for features or logits")
        return self.classifier.spatial(self.x)

    @property
    def pixels(self) -> torch.Tensor:
        """(b, c, *size) before normalisation, in [0, 1]."""
        mean, std = self._normalisation
        return (self.x * std + mean).clamp(0, 1)

    @property
    def source(self) -> tuple[Cohort, np.ndarray]:
        """The cohort and the row numbers of these images."""
        if self.cohort is None or self.rows is None:
            raise SettingError("this recipe reads rows of a cohort, and the pass was given none")
        return self.cohort, self.rows

    def target(self, explain: str) -> torch.Tensor:
        """(b,) the output to explain."""
        if explain == "predicted":
            return self.read[1].argmax(1)
        if self.label is None:
            raise SettingError("explain=label, and this pass was given no labels")
        return self.label

    def with_pixels(self, pixels: torch.Tensor, undefined: torch.Tensor | None = None) -> Pass:
        """The same rows with other pixels in [0, 1]."""
        mean, std = self._normalisation
        return replace(self, x=(pixels - mean) / std, undefined=undefined, shared={})

    def with_network(self, network: Reading, undefined: torch.Tensor | None = None) -> Pass:
        """The same rows, read by another network."""
        return replace(self, network=network, undefined=undefined, shared={})

    def once(self, key: str, work: Callable[[], Any]) -> Any:
        """Compute something once and share it, by name, between recipes."""
        if key not in self.shared:
            self.shared[key] = work()
        return self.shared[key]

    def pixel_change(self, before: Pass) -> torch.Tensor:
        """(b,) root mean square difference to another pass of the same rows, of pixels in [0, 1]."""
        std = before._normalisation[1]
        return ((self.x - before.x) * std).flatten(1).square().mean(1).sqrt()

    @property
    def _normalisation(self) -> tuple[torch.Tensor, torch.Tensor]:
        shape = (1, -1, *(1 for _ in self.x.shape[2:]))
        mean = self.x.new_tensor(self.classifier.mean).view(shape)
        std = self.x.new_tensor(self.classifier.std).view(shape)
        return mean, std


@dataclass(frozen=True)
class Maker:
    """The function behind an array's name: a `Pass` of b images gives (b, …).

    Parameters
    ----------
    reads : columns of the cohort that it reads (label, box, mask), so that the array is tied to them
    arrays : other arrays of the same evidence that it reads, made before it; `audit/features` is one of another cohort
    fit : gives `make` from whole arrays of the evidence, once before the first batch
    check : raises a `ModelError` for a network that it is not for, before anything runs
    may_lack : values may be NaN where they are undefined
    """

    make: Callable[[Pass], torch.Tensor] | None
    reads: tuple[str, ...] = ()
    arrays: tuple[str, ...] = ()
    fit: Callable[[Evidence], Callable[[Pass], torch.Tensor]] | None = None
    check: Callable[[Classifier], None] | None = None
    may_lack: bool = False

    def __call__(self, batch: Pass) -> torch.Tensor:
        if self.make is None:
            raise SettingError("this recipe is made from whole arrays: fit it to the evidence first")
        return self.make(batch)
