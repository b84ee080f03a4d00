"""How strongly images are changed: calibrated once, on one of the study's models, before anything reads it.

Audits and methods with a setting `severities` that the study does not give read the file that the calibration writes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rightreasons.errors import SettingError
from rightreasons.extraction.severities import calibrate
from rightreasons.study.file import SeverityTable
from rightreasons.study.keywords import full
from rightreasons.study.plan import Calibration
from rightreasons.study.trainings import Named, Point

NOT_IN_A_FILE = ("baseline", "cohort", "reference", "out", "example")  # keywords of calibrate() that a file does not set


@dataclass(frozen=True)
class Asked:
    """A calibration before its units have ids: the regime, architecture and seed of its model, and the reference's regime."""

    architecture: str
    regime: str
    seed: int
    reference: str
    settings: Mapping[str, Any]

    @property
    def regimes(self) -> set[str]:
        """The regimes whose models are calibrated on."""
        return {self.regime, self.reference} - {""}

    def placed(self, named: Named) -> Calibration:
        """The calibration with ids of units and its file, whose name changes with whatever decides its content."""
        baseline = self._unit(self.regime, named, "baseline")
        reference = ""
        if self.reference:
            reference = self._unit(self.reference, named, "reference")
        deciding = json.dumps([baseline, reference, self.settings], sort_keys=True)
        name = f"severities-{hashlib.blake2b(deciding.encode(), digest_size=4).hexdigest()}.json"
        return Calibration(
            baseline=baseline, reference=reference, settings=dict(self.settings), file=f"runs/{baseline}/model/{name}"
        )

    def _unit(self, regime: str, named: Named, what: str) -> str:
        for name, draft in named.get((regime, self.architecture), {}).items():
            if draft.seed == self.seed:
                return name
        raise SettingError(
            f"[severities] {what}: no unit of regime {regime!r} has architecture {self.architecture!r} and seed {self.seed}: "
            "add it to [[runs]]"
        )


def asked(table: SeverityTable, points: Sequence[Point]) -> Asked:
    """A table [severities]: the model to calibrate on (the first of the runs by default), a reference regime, settings."""
    first, chosen = points[0], table.baseline
    return Asked(
        architecture=first.architecture if chosen.architecture is None else chosen.architecture,
        regime=first.regime if chosen.regime is None else chosen.regime,
        seed=first.seed if chosen.seed is None else chosen.seed,
        reference=table.reference,
        settings=full(table.keywords, calibrate, where="[severities]", without=NOT_IN_A_FILE),
    )


def are_wanted(settings: Mapping[str, Any]) -> bool:
    """Whether these settings leave the severities open."""
    return settings.get("severities", "") is None
