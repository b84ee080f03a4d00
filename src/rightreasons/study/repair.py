"""Before and after a mitigation: two audits on the same rows, each by the one road, and what changed between them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rightreasons.case import Sheet
from rightreasons.data.cohort import Cohort
from rightreasons.evidence import Evidence
from rightreasons.findings import Finding
from rightreasons.findings.preflight import Preflight, guarded
from rightreasons.models.classifier import Classifier
from rightreasons.remedy import own_finding, remedy
from rightreasons.study.entrances import audit_classifier

AUDITS = ("groups", "pull", "flips", "excess", "art", "probes")
"""What both models are asked: the audits that read logits, features and the head, and need no other model."""


def preflight_in(folder: Path) -> tuple[Preflight, ...]:
    """The cards of an audit's folder."""
    sheet = Sheet.read(folder)
    return () if sheet is None else sheet.preflight


def sheet_of_repair(out: Path) -> Sheet:
    """The sheet of the page of before and after: the cards of both."""
    return Sheet(preflight=(*preflight_in(out / "before"), *preflight_in(out / "after")))


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
        for finding in findings:
            audited.append(finding.model_copy(update={"name": f"{finding.name}-{when}"}))
    before = Evidence.open(out / "before" / "evidence")
    after = Evidence.open(out / "after" / "evidence")
    mitigation = new.card["mitigation"]
    mended = next(iter(preflight_in(out / "after")), None)
    attributes = cohort.attributes or (None,)
    changes = []
    for attribute in attributes:
        name = "remedy" if len(attributes) == 1 else f"remedy-{attribute}"
        changed = remedy(before, after, attribute=attribute, seed=seed, name=name, mitigation=mitigation)
        changes.append(changed if mended is None else guarded(changed, mended))
    own = own_finding(mitigation, model=str(new.card["name"]), of=str(old.card.get("name") or old.name))
    if own is not None:
        changes.append(own)
    return [*changes, *audited]
