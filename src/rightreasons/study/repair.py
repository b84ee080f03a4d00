"""Before and after a mitigation: two audits on the same rows, each by the one road, and what changed between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from rightreasons.study.first_look import first_look
from rightreasons.study.preflight import lines

AUDITS = ("groups", "pull", "flips", "excess", "art", "probes")
"""What both models are asked: the audits that read logits, features and the head, and need no other model."""


def preflight_in(folder: Path) -> tuple[Preflight, ...]:
    """The cards of an audit's folder."""
    sheet = Sheet.read(folder)
    return () if sheet is None else sheet.preflight


def look_before(
    old: Classifier, cohort: Cohort, extraction: Mapping[str, Any] | None, say: Callable[[str], None]
) -> Preflight | None:
    """The preflight of the model that is to be mended, before anything is trained: said where it does not work."""
    look = first_look(old, cohort, extraction)
    if look is not None and not look.works:
        for line in lines(look):
            say(line)
    return look


def sheet_of_repair(out: Path, look: Preflight | None) -> Sheet:
    """The sheet of the page of before and after: the cards of both; without audits, the first look at the model given."""
    cards = (*preflight_in(out / "before"), *preflight_in(out / "after"))
    return Sheet(preflight=cards or (() if look is None else (look,)))


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
        changes.append(changed if mended is None else _of_what_works(guarded(changed, mended), mended))
    own = own_finding(mitigation, model=str(new.card["name"]), of=str(old.card.get("name") or old.name))
    if own is not None:
        changes.append(own)
    return [*changes, *audited]


def _of_what_works(changed: Finding, mended: Preflight) -> Finding:
    """What a mitigation changed, with a word where the new model does not work: a gain of such a model is no remedy."""
    if mended.works:
        return changed
    return changed.model_copy(update={"sentence": f"{changed.sentence} Of the new model: {mended.fault} ({mended.reason})."})
