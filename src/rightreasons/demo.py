"""The embedded default: a planted world on real digits, a CNN that learns the shortcut, the audits, the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rightreasons.audits import audit_all
from rightreasons.data import planted
from rightreasons.data.cohort import Cohort
from rightreasons.evidence import Evidence
from rightreasons.findings import Finding
from rightreasons.models.classifier import Classifier
from rightreasons.models.extraction import extract
from rightreasons.models.training import train
from rightreasons.report import report

AGREEMENT = 0.95
AUDITS = ("flips", "groups", "probes")
ALIGNED = {"aligned": {0: 0, 1: 1}}  # known here, so that both models are asked for the same change
NETWORK = "rightreasons.models.small:small_cnn"


def demo(out: Path, *, seed: int = 0, say: Callable[[str], None] = print) -> tuple[list[Finding], Path]:
    """Build the world, train the models, audit them and write the page; a second run does only what is missing.

    The biased model learns from rows in which the colour of a tag agrees with the label in 95 %; the balanced one from the
    same digits with the tag drawn again without association; the attribute model learns the tag itself.
    """
    say(
        "1/4 the world: handwritten digits, below five or not, with a coloured tag that agrees with the label in 95 % "
        "of the training rows"
    )
    world = planted.digits(out / "world", agreement=AGREEMENT, seed=seed)
    redrawn = planted.redrawn(out / "world")
    say("2/4 three small CNNs: biased, balanced (the tag redrawn without association), and one that learns the tag")
    models = {
        "biased": _train("biased", world, out, seed),
        "balanced": _train("balanced", redrawn, out, seed),
        "attribute": _train("attribute", redrawn, out, seed, target=world.attributes[0]),
    }
    say("3/4 evidence and audits")
    evidence = {name: _evidence(models[name], cohort, out, name) for name, cohort in (("biased", world), ("balanced", redrawn))}
    findings: list[Finding] = []
    for name, seen in evidence.items():
        for finding in audit_all(seen, audits=AUDITS, seed=seed, settings={"flips": ALIGNED, "groups": ALIGNED}):
            named = finding.model_copy(update={"name": f"{finding.name}-{name}", "model": name})
            named.save(out)
            findings.append(named)
    say("4/4 the page")
    page = report(
        findings,
        out / "report.html",
        title="rightreasons demo: does the CNN read the digit or the tag?",
        subtitle="A planted shortcut on real handwritten digits. The biased model was trained where the tag agrees with the "
        "label in 95 % of the rows, the balanced model where it does not; both are judged on test rows without association.",
    )
    return findings, page


def _train(name: str, cohort: Cohort, out: Path, seed: int, target: str | None = None) -> Classifier:
    start = Classifier.load(NETWORK, num_classes=2, classes=cohort.classes, size=(32, 32), mean=0.5, std=0.5)
    start.card["name"] = name
    # The shortcut must be free to be learnt: stop on validation rows that are biased like the training rows.
    return train(start, cohort, target=target, epochs=12, lr=3e-3, batch=64, seed=seed, regime=name, folder=out / "models" / name)


def _evidence(model: Classifier, cohort: Cohort, out: Path, name: str) -> Evidence:
    return extract(model, cohort, AUDITS, out=out / "evidence" / name)
