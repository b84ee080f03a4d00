"""rightreasons: is your image classifier right for the right reasons?

The names below are the public interface. Those that need torch resolve on first use, so that `import rightreasons`, reading
evidence, auditing and reporting work where torch is not installed.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if sys.argv[:1] == ["-m"] and sys.path[:1] == [str(Path.cwd())]:
    del sys.path[0]  # `python -m rightreasons` puts the current folder first, and a pyarrow.py that lies there is not pyarrow

from rightreasons import errors
from rightreasons.report import report  # a function of the same name as its folder: bound here, once, for good

if TYPE_CHECKING:
    from rightreasons.audits import audit
    from rightreasons.data.cohort import Cohort
    from rightreasons.evidence import Evidence
    from rightreasons.extraction import extract
    from rightreasons.findings import Finding
    from rightreasons.mitigations import mitigate
    from rightreasons.models.classifier import Classifier
    from rightreasons.models.training import train
    from rightreasons.study import Study
    from rightreasons.study.entrances import audit_all

__version__ = "0.1.0"

__all__ = [
    "Classifier",
    "Cohort",
    "Evidence",
    "Finding",
    "Study",
    "audit",
    "audit_all",
    "errors",
    "extract",
    "mitigate",
    "report",
    "train",
]

_HOMES = {
    "Classifier": "rightreasons.models.classifier",
    "Cohort": "rightreasons.data.cohort",
    "Evidence": "rightreasons.evidence",
    "Finding": "rightreasons.findings",
    "Study": "rightreasons.study",
    "audit": "rightreasons.audits",
    "audit_all": "rightreasons.study.entrances",
    "extract": "rightreasons.extraction",
    "mitigate": "rightreasons.mitigations",
    "train": "rightreasons.models.training",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rightreasons' has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name in ("torch", "timm", "torchvision"):
            raise errors.RightReasonsError(f"rightreasons.{name} needs {error.name}: pip install {error.name}") from error
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
