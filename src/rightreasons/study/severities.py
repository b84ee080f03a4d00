"""[severities] of a study: perturbations are calibrated once, on one of its models, before anything reads how strong they are.

The file lies with that model. Audits and methods with a setting `severities` that the study does not give read it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from rightreasons import families
from rightreasons.errors import SettingError
from rightreasons.extraction.severities import calibrate
from rightreasons.study.regimes import Named, Point, refuse_unknown

OWN = ("baseline", "reference")
NOT_SETTINGS = ("baseline", "cohort", "reference", "out", "example")  # of calibrate(), which a file does not set


def read(table: Mapping[str, Any], points: Sequence[Point]) -> dict[str, Any]:
    """A table [severities]: the model to calibrate on (the first of the runs by default), a reference regime, settings."""
    usual = {key: value for key, value in families.settings_of(calibrate).items() if key not in NOT_SETTINGS}
    refuse_unknown(table, [*OWN, *usual], "[severities]")
    first = {"architecture": points[0].architecture, "regime": points[0].regime, "seed": points[0].seed}
    refuse_unknown(table.get("baseline", {}), first, "[severities] baseline")
    return {
        "baseline": {**first, **table.get("baseline", {})},
        "reference": str(table.get("reference", "")),
        "settings": {**usual, **{key: value for key, value in table.items() if key in usual}},
    }


def regimes_of(calibration: Mapping[str, Any]) -> set[str]:
    """The regimes whose models are calibrated on."""
    return {calibration["baseline"]["regime"], calibration["reference"]} - {""}


def wants(settings: Mapping[str, Any]) -> bool:
    """Whether these settings leave the severities open."""
    return settings.get("severities", "") is None


def placed(calibration: Mapping[str, Any], named: Named) -> dict[str, Any]:
    """The calibration with ids of units and its file, whose name changes with whatever decides its content."""
    baseline = _unit(calibration["baseline"]["regime"], calibration, named, "baseline")
    reference = _unit(calibration["reference"], calibration, named, "reference") if calibration["reference"] else ""
    told = json.dumps([baseline, reference, calibration["settings"]], sort_keys=True)
    name = f"severities-{hashlib.blake2b(told.encode(), digest_size=4).hexdigest()}.json"
    return {
        "baseline": baseline,
        "reference": reference,
        "settings": calibration["settings"],
        "file": f"runs/{baseline}/model/{name}",
    }


def _unit(regime: str, calibration: Mapping[str, Any], named: Named, what: str) -> str:
    architecture, seed = calibration["baseline"]["architecture"], calibration["baseline"]["seed"]
    for name, unit in named.get((regime, architecture), {}).items():
        if unit["seed"] == seed:
            return name
    raise SettingError(
        f"[severities] {what}: no unit of regime {regime!r} has architecture {architecture!r} and seed {seed}: add it to [[runs]]"
    )
