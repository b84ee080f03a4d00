"""The embedded default: a planted world on real digits, a CNN that learns the shortcut, the audits, a repair, the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rightreasons.audits import audit_all, needs_of
from rightreasons.data import planted
from rightreasons.data.cohort import Cohort
from rightreasons.evidence import Evidence
from rightreasons.findings import Finding
from rightreasons.mitigations import mitigate
from rightreasons.models.classifier import Classifier
from rightreasons.models.extraction import extract
from rightreasons.models.training import train
from rightreasons.remedy import own_finding, remedy
from rightreasons.report import report

AGREEMENT = 0.95
AUDITS = ("flips", "groups", "probes", "art", "oscar")
ALIGNED = {"aligned": {0: 0, 1: 1}}  # known here, so that both models are asked for the same change
NETWORK = "rightreasons.models.small:small_cnn"


def demo(out: Path, *, seed: int = 0, say: Callable[[str], None] = print) -> tuple[list[Finding], Path]:
    """Build the world, train the models, audit them, repair one and write the page; a second run does only what is missing.

    The biased model learns from rows in which the colour of a tag agrees with the label in 95 %; the balanced one from the
    same digits with the tag drawn again without association; the attribute model learns the tag itself.
    """
    say(
        "1/5 the world: handwritten digits, below five or not, with a coloured tag that agrees with the label in 95 % "
        "of the training rows"
    )
    world = planted.digits(out / "world", agreement=AGREEMENT, seed=seed)
    redrawn = planted.redrawn(out / "world")
    say("2/5 three small CNNs: biased, balanced (the tag redrawn without association), and one that learns the tag")
    models = {
        "biased": _train("biased", world, out, seed),
        "balanced": _train("balanced", redrawn, out, seed),
        "attribute": _train("attribute", redrawn, out, seed, target=world.attributes[0]),
    }
    say("3/5 evidence and audits")
    evidence = {name: _evidence(model, world if name == "biased" else redrawn, out, name) for name, model in models.items()}
    findings = []
    for name in ("biased", "balanced"):
        roles = {"test": evidence[name]}
        if name == "biased":
            roles |= {"baseline": evidence["balanced"], "attribute": evidence["attribute"]}
        audits = AUDITS if name == "biased" else AUDITS[:-1]
        findings += _named(audit_all(roles, audits=audits, seed=seed, settings=dict.fromkeys(AUDITS[:2], ALIGNED)), name)
    say("4/5 a repair: the biased model's features are attenuated where OSCAR places the tag")
    findings += _named(_repaired(models, evidence["biased"], world, out, seed), "repaired")
    for finding in findings:
        finding.save(out)
    say("5/5 the page")
    page = report(
        findings,
        out / "report.html",
        title="rightreasons demo: does the CNN read the digit or the tag?",
        subtitle="A planted shortcut on real handwritten digits. The biased model was trained where the tag agrees with the "
        "label in 95 % of the rows, the balanced model where it does not; all are judged on test rows without association.",
    )
    return findings, page


def _train(name: str, cohort: Cohort, out: Path, seed: int, target: str | None = None) -> Classifier:
    start = Classifier.load(NETWORK, num_classes=2, classes=cohort.classes, size=(32, 32), mean=0.5, std=0.5)
    start.card["name"] = name
    # The shortcut must be free to be learnt: stop on validation rows that are biased like the training rows.
    return train(start, cohort, target=target, epochs=12, lr=3e-3, batch=64, seed=seed, regime=name, folder=out / "models" / name)


def _evidence(model: Classifier, cohort: Cohort, out: Path, name: str) -> Evidence:
    roles = {"biased": ("test",), "balanced": ("test", "baseline"), "attribute": ("attribute",)}[name]
    return extract(model, cohort, [need for need in needs_of(AUDITS) if need.role in roles], out=out / "evidence" / name)


def _repaired(models: dict[str, Classifier], before: Evidence, world: Cohort, out: Path, seed: int) -> list[Finding]:
    place = out / "models" / "repaired"
    if (place / "model.json").exists():
        repaired = Classifier.open(place)
    else:
        references = {role: [models[name]] for role, name in (("baseline", "balanced"), ("attribute", "attribute"))}
        repaired = mitigate("attenuation", models["biased"], world, references=references, seed=seed)
        repaired.card["name"] = "repaired"
        repaired.save(place)
    after = extract(repaired, world, ("flips", "groups"), out=out / "evidence" / "repaired")
    own = own_finding(repaired.card["mitigation"], model="repaired", of="biased")
    return [remedy(before, after, seed=seed, mitigation=repaired.card["mitigation"]), *([] if own is None else [own])]


def _named(findings: list[Finding], model: str) -> list[Finding]:
    return [finding.model_copy(update={"name": f"{finding.name}-{model}", "model": model}) for finding in findings]
