"""`rr.audit_all`: everything that the data allow, of evidence, of a study.toml, or of a classifier with its cohort."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rightreasons import families
from rightreasons.audits import Models
from rightreasons.audits import audit_all as on_evidence
from rightreasons.errors import SettingError
from rightreasons.evidence import Evidence
from rightreasons.findings import Finding

if TYPE_CHECKING:
    from rightreasons.data.cohort import Cohort
    from rightreasons.models.classifier import Classifier
    from rightreasons.study.choose import Depth


def audit_all(
    what: Models | Classifier | str | os.PathLike[str],
    cohort: Cohort | None = None,
    *,
    audits: Sequence[str] | None = None,
    seed: int = 0,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    out: str | os.PathLike[str] | None = None,
    depth: Depth | None = None,
    start: str | None = None,
    say: Callable[[str], None] = print,
    **more: Any,
) -> list[Finding]:
    """Everything that the data allow, as findings; what cannot run is a finding that says why.

    Parameters
    ----------
    what : Evidence, or role → Evidence: the audits run on what was extracted. A study.toml, or a Classifier with its `cohort`:
        evidence is extracted, reference models are trained, and a page is written to `out`
    audits : which ones; all by default
    settings : audit → its settings
    depth : "quick", "usual" or "full", see `Whole`
    start : starting weights of the reference models, see `Whole`
    more : further fields of `Whole`: external, references, training, extraction, title, subtitle
    """
    if isinstance(what, Evidence | Mapping):
        if cohort is not None or out is not None or more:
            raise SettingError("with evidence there is nothing to extract or train: leave out cohort=, out= and the like")
        return on_evidence(what, audits=audits, seed=seed, settings=settings)
    from rightreasons.study import asked, whole  # these run networks, and evidence is audited without torch

    if isinstance(what, str | os.PathLike):
        if cohort is not None or audits is not None or settings or start or more:
            raise SettingError("a study.toml says what is audited and how: leave out all but out= and depth=")
        return asked.audit_study(what, out, depth=depth, say=say)
    if cohort is None or out is None:
        raise SettingError("give a classifier with cohort= and out=, the folder for all that is made")
    names = tuple(audits) if audits is not None else families.members("audits")
    for name in settings or {}:
        if name not in names:
            raise SettingError(f"settings are given for audit {name!r}, which is not run; {families.suggest(name, names)}")
    tables = {name: dict((settings or {}).get(name, {})) for name in names}
    fields: dict[str, Any] = {"depth": depth or "usual", "seed": seed, "start": start, **more}
    return whole.Whole(classifier=what, cohort=cohort, folder=Path(out), audits=tables, **fields).run(say)
