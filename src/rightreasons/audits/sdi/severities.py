"""How strong each operator of SDI is (sec. IV-F): calibrated once on a baseline, stored as JSON, then the same for all models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from rightreasons.audits.sdi import stored
from rightreasons.errors import SettingError
from rightreasons.evidence import Recipe
from rightreasons.families import suggest

REFERENCE = {
    "border": 0.3,
    "unborder": 0.5,
    "resize": 0.3,
    "pad": 0.3,
    "periphery": 1.0,
    "tags": 0.7,
    "channels": 0.5,
    "cast": 0.5,
    "illumination": 0.5,
    "flatfield": 1.0,
    "histogram": 0.5,
    "jpeg": 0.5,
    "blur": 0.3,
    "grain": 0.3,
}
"""The nuisance operators and their reference severities, as `rightreasons.perturbations.nuisance` documents them."""
CONTENT = {"contrast": 0.5, "elastic": 0.5, "patches": 0.4}
"""The content operators and theirs."""

KEPT, REDUCED, DEPENDS, EXCLUDED = "kept", "reduced", "baseline depends on it", "excluded"
FIELD = "field of view"
FORMAT = "rightreasons severities 1"


@dataclass(frozen=True)
class Severity:
    """One nuisance operator as calibrated.

    Attributes
    ----------
    drop, drop_reference : fall of the AUC on validation rows under the operator at this severity, for the baseline and for the
        cue-balanced reference; None where there is none
    change : mean root mean square change of a pixel in [0, 1] at this severity
    content : content operator → severity at which pixels change as much; operators that cannot reach it are left out
    status : kept at s_ref, reduced, kept although the baseline's AUC falls ("baseline depends on it"), or excluded
    resolved : False where the baseline's AUC falls too far and neither a balanced reference nor a mask says why
    """

    operator: str
    severity: float
    content: dict[str, float]
    status: str = KEPT
    resolved: bool = True
    drop: float | None = None
    drop_reference: float | None = None
    change: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Severities:
    """All operators, and what they were calibrated on.

    Attributes
    ----------
    references : reference severities that were given in place of the operators' own
    calibrated : False for reference severities that no baseline has seen
    pictures : (operator, severity, PNG in base64) of one example image, after some pictures of the field of view (`FIELD`)
    """

    operators: tuple[Severity, ...]
    calibrated: bool = False
    baseline: str = ""
    reference: str = ""
    cohort: str = ""
    rows: int = 0
    tolerance: float = 0.02
    references: dict[str, float] = field(default_factory=dict)
    auc: float | None = None
    auc_reference: float | None = None
    pictures: tuple[tuple[str, float, str], ...] = ()

    @property
    def used(self) -> tuple[Severity, ...]:
        return tuple(o for o in self.operators if o.status != EXCLUDED)

    def save(self, path: str | Path) -> Path:
        return stored.save(path, FORMAT, asdict(self))

    @classmethod
    def read(cls, path: str | Path) -> Severities:
        content = stored.read(path, FORMAT, "severities", "make them with rightreasons.extraction.severities.calibrate")
        content["operators"] = tuple(Severity(**operator) for operator in content["operators"])
        content["pictures"] = tuple((str(name), float(severity), str(png)) for name, severity, png in content["pictures"])
        return cls(**content)


def read_severities(source: str | Path | None = None, operators: Sequence[str] | None = None) -> Severities:
    """The severities of a file; without one the reference severities, which no baseline has seen.

    Parameters
    ----------
    operators : the nuisance operators to use; all by default
    """
    if source:
        severities = Severities.read(source)
    else:
        severities = reference_severities()
    if operators is None:
        return severities
    known = {severity.operator: severity for severity in severities.operators}
    for name in operators:
        if name not in known:
            raise SettingError(f"no severity for the operator {name!r}; {suggest(name, known)}")
    return replace(severities, operators=tuple(known[name] for name in operators))


def reference_severities() -> Severities:
    return Severities(tuple(Severity(operator, severity, dict(CONTENT)) for operator, severity in REFERENCE.items()))


def nuisance_recipe(quantity: str, operator: Severity, draw: int) -> str:
    """The array of a quantity under a nuisance operator, by the name that evidence keeps it under."""
    return content_recipe(quantity, operator.operator, operator.severity, draw)


def content_recipe(quantity: str, operator: str, severity: float, draw: int) -> str:
    """The same under a content operator."""
    return str(Recipe(quantity, operator, (("draw", draw), ("severity", float(f"{severity:.6g}")))))
