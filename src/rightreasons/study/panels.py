"""The models that an audit holds every other against, frozen with the study: one that comes later changes no other's number.

An audit with a setting `panel` (a file) and a function `panel_of` has such a panel where the study names models for the role
`panel`. It is kept when all models that were planned for it are done, for as long as the study has them. No torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rightreasons import families
from rightreasons.findings import file_name
from rightreasons.study.folder import DONE, Study
from rightreasons.study.roles import cases

PANEL = "panel"


def place(study: Study, name: str, group: tuple[str, ...]) -> Path | None:
    """Where the panel of an audit's case lies, or will; None where it has none, or the study gives a file of its own."""
    audit = study.plan.audits[name]
    chosen = audit.roles.get(PANEL)
    if chosen is None or audit.settings.get(PANEL, "") is not None:
        return None
    which = (*(() if "architecture" in chosen else group[:1]), *group[2:])
    identity = json.dumps([audit.method, audit.settings, chosen, study.plan.seed], sort_keys=True)
    mark = hashlib.blake2b(identity.encode(), digest_size=4).hexdigest()
    return study.folder / "panels" / f"{file_name('-'.join((name, *which, mark)))}.json"


def freeze(
    study: Study, name: str, group: tuple[str, ...], planned: Sequence[str], measured: Mapping[str, Sequence[Any]]
) -> dict[str, str]:
    """The setting that names the frozen panel, made now where it can be; none before all models `planned` for it are done."""
    file = place(study, name, group)
    if file is None:
        return {}
    module = families.member("audits", study.plan.audits[name].method)
    if file.exists() and set(module.Panel.read(file).models) <= set(study.units):
        return {PANEL: str(file)}
    models = measured.get(PANEL, ())
    if len(models) < 2 or any(study.status(unit) != DONE for unit in planned):
        return {}
    module.panel_of(models, f"study {study.name}").save(file)
    return {PANEL: str(file)}


def missing(study: Study, name: str) -> Iterator[Path]:
    """Panels that could be frozen and are not there."""
    files: dict[Path, None] = {}
    for group, members in cases(study.plan, name, study.groups()).items():
        file, models = place(study, name, group), members.get(PANEL, [])
        if file is not None and len(models) > 1 and all(study.status(unit) == DONE for unit in models):
            files[file] = None
    return (file for file in files if not file.is_file())
