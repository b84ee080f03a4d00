"""Before and after a mitigation: two audits on the same rows, each by the one road, and what changed between them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rightreasons.data.cohort import Cohort
from rightreasons.evidence import Evidence
from rightreasons.findings import Finding
from rightreasons.models.classifier import Classifier
from rightreasons.remedy import own_finding, remedy
from rightreasons.study.entrances import audit_classifier

AUDITS = ("groups", "flips")
"""What both models are asked on the test rows."""


def before_and_after(
    old: Classifier, new: Classifier, cohort: Cohort, out: Path, *, seed: int = 0, extraction: Mapping[str, Any] | None = None
) -> list[Finding]:
    """Audit a model and what a mitigation made of it, in the folders `before` and `after`, and compare them row by row."""
    audited: list[Finding] = []
    for when, model in (("before", old), ("after", new)):
        findings = audit_classifier(
            model,
            cohort,
            out / when,
            audits={name: {} for name in AUDITS},
            depth="quick",
            seed=seed,
            extraction=extraction,
            say=lambda _: None,
        )
        audited += [finding.model_copy(update={"name": f"{finding.name}-{when}"}) for finding in findings]
    before, after = (Evidence.open(out / when / "evidence") for when in ("before", "after"))
    mitigation = new.card["mitigation"]
    attributes = cohort.attributes or (None,)
    changes = []
    for attribute in attributes:
        name = "remedy" if len(attributes) == 1 else f"remedy-{attribute}"
        changes.append(remedy(before, after, attribute=attribute, seed=seed, name=name, mitigation=mitigation))
    own = own_finding(mitigation, model=str(new.card["name"]), of=str(old.card.get("name") or old.name))
    if own is not None:
        changes.append(own)
    return [*changes, *audited]
