"""A study of [[runs]] that names no audits gets all of them, each for every attribute, with what they compare with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rightreasons.extraction import named_cohorts
from rightreasons.findings import Finding
from rightreasons.models.classifier import Classifier
from rightreasons.study import cohorts
from rightreasons.study.brought import FAMILY, FAMILY_SEEDS, SCALES
from rightreasons.study.file import Audit, Regime, SeverityTable, StudyFile
from rightreasons.study.plan import PLAIN
from rightreasons.study.runs import plan_runs
from rightreasons.study.selection import Rows, Selected, select
from rightreasons.study.sweep import run


def audited_runs(file: StudyFile, folder: Path, command: str, say: Callable[[str], None]) -> list[Finding]:
    """Run a study with all its audits, and write its page."""
    complete = filled(file, folder)
    named = {"name": file.name or folder.name, "base": str(folder), "depth": file.depth, "command": command}
    study = plan_runs(complete, folder, complete.to_toml(), named)
    return run(study, say=say).findings()


def filled(file: StudyFile, folder: Path) -> StudyFile:
    """The file with the audits that it does not name.

    Models that an audit compares with are trained, unless it could not run anyway or the depth is quick. Families are
    trained with `full`.
    """
    if file.audits is not None:
        return file
    rows = cohorts.with_roles(cohorts.data_of(file, folder), file.seed, trains=True)
    named = named_cohorts(rows, file.seed)
    truth = None if file.data is None else file.data.truth
    by_network = []
    for network in _networks(file, len(rows.classes)):
        by_network.append(select(None, Rows(rows, named, network, truth)))
    regimes = dict(file.regimes) or {PLAIN: Regime()}
    own, runs = list(regimes), list(file.runs)
    audits: dict[str, Audit] = {}
    balanced = ""
    for same in zip(*by_network, strict=True):
        one = same[0]
        roles: dict[str, Any] = {}
        if file.depth == "quick" or all(other.impossible for other in same):
            roles = {role.name: "none" for role in one.references}
        else:
            balanced = balanced or _balanced_regime(one)
        if one.is_about_a_family and file.depth == "full":
            regime = f"family-{one.attribute}"
            regimes[regime] = Regime(**{"method": FAMILY, "attribute": one.attribute})
            grid = {"seed": list(range(FAMILY_SEEDS)), "scale": list(SCALES)}
            runs.append({"regime": regime, "architecture": list(file.architectures), **grid})
            roles[one.subject] = {"regime": regime}
        table: dict[str, Any] = {"method": one.method, **one.settings}
        audits[one.name] = Audit(**table, roles=roles) if roles else Audit(**table)
    changes: dict[str, Any] = {
        "audits": audits,
        "runs": [grid if "regime" in grid else {**grid, "regime": own} for grid in runs],
    }
    if len(regimes) > len(own):
        changes["regimes"] = regimes
    if balanced and file.severities is None:
        changes["severities"] = SeverityTable(reference=balanced)
    return file.model_copy(update=changes)


def _networks(file: StudyFile, outputs: int) -> Sequence[Classifier]:
    networks = []
    for table in file.architectures.values():
        settings = {"spec": table.model, "num_classes": outputs, **table.keywords}
        networks.append(Classifier.load(**settings, trust=()))
    return networks


def _balanced_regime(one: Selected) -> str:
    """The regime that the plan will add for an audit's model of balanced rows; "" where it asks for none."""
    for role in one.asks_for_balanced_rows:
        return f"{one.name}-{role.name}"
    return ""
