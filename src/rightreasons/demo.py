"""The embedded default: a planted world on real digits, a CNN and a ViT that learn its shortcut, audits, a repair, a page."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rightreasons.audits import audit, audit_all, needs_of
from rightreasons.data import planted
from rightreasons.data.cohort import Cohort
from rightreasons.errors import TrainingError
from rightreasons.evidence import Evidence
from rightreasons.extraction import extract
from rightreasons.extraction.severities import calibrate
from rightreasons.findings import Finding
from rightreasons.mitigations import gradient_scaling, mitigate
from rightreasons.models.classifier import Classifier
from rightreasons.models.training import train
from rightreasons.remedy import own_finding, remedy
from rightreasons.report import report
from rightreasons.seal import seal
from rightreasons.stats.resampling import task_rng
from rightreasons.study.data_sheet import imbalance, sheet_of

AGREEMENT = 0.95
SMALL: Mapping[str, Any] = {"num_classes": 2, "size": (32, 32), "mean": 0.5, "std": 0.5}
CNN: Mapping[str, Any] = {"spec": "rightreasons.models.small:small_cnn", **SMALL}
VIT: Mapping[str, Any] = {"spec": "rightreasons.models.small:small_vit", **SMALL}
CNN_TRAINING: Mapping[str, Any] = {"epochs": 12, "lr": 3e-3, "batch": 64}
VIT_TRAINING: Mapping[str, Any] = {"epochs": 15, "lr": 1e-3, "batch": 64, "patience": None}
ONE = ("flips", "groups", "pull", "probes", "art")  # audits that look at one model alone
KNOWN: dict[str, Any] = {"aligned": {0: 0, 1: 1}}  # known here, so that every model is asked for the same change

FAINT: Mapping[str, Any] = {"agreement": 0.8, "agreement_test": 0.5, "strength": 0.3, "cue_noise": 0.3, "pixels": 16}
FRACTIONS = {"train": 0.55, "val": 0.1, "audit": 0.05, "test": 0.3}
TINY: Mapping[str, Any] = {**CNN, "size": (16, 16), "width": 4}
TINY_TRAINING: Mapping[str, Any] = {"epochs": 8, "lr": 3e-3, "batch": 32}
SCALES, SEEDS = (-0.4, -0.15, -0.05, 0.0, 0.1, 0.4, 1.5), 3
FAMILY = f"family of {len(SCALES) * SEEDS} small CNNs (faint tag)"

TITLE = "rightreasons demo: do they read the digit or the tag?"
SUBTITLE = (
    "A planted shortcut on real handwritten digits, below five or not. The biased CNN and ViT were trained where a coloured tag "
    "agrees with the label in 95 % of the rows, the balanced CNN where it does not. All are judged on test rows where the tag "
    "says nothing about the label."
)
OF_FAMILY = (
    f" The family has {len(SCALES)} scales and {SEEDS} seeds of a small network, on the same digits with a fainter tag: the tag "
    "of the main world is so loud that every network shows it, however its gradient is scaled. The method's paper has 25 scales "
    "and five seeds."
)


def demo(out: Path, *, seed: int = 0, say: Callable[[str], None] = print) -> tuple[list[Finding], Path]:
    """Build the world, train the models, audit them, repair one and write the page; a second run does only what is missing."""
    say(
        "1/6 the world: handwritten digits, below five or not, with a coloured tag that agrees with the label in 95 % "
        "of the training rows"
    )
    world = planted.digits(out / "world", agreement=AGREEMENT, seed=seed)
    redrawn = planted.redrawn(out / "world")
    say("2/6 small networks: a biased CNN and ViT, the same without the shortcut (the tag redrawn), and one that learns the tag")
    models = {
        "biased CNN": _train("biased CNN", world, out, seed, CNN, CNN_TRAINING),
        "biased ViT": _train("biased ViT", world, out, seed, VIT, VIT_TRAINING),
        "balanced CNN": _train("balanced CNN", redrawn, out, seed, CNN, CNN_TRAINING),
        "balanced ViT": _train("balanced ViT", redrawn, out, seed, VIT, VIT_TRAINING),
        "tag CNN": _train("tag CNN", redrawn, out, seed, CNN, {**CNN_TRAINING, "target": world.attributes[0]}),
    }
    say("3/6 evidence and audits: flips, groups, pull, probes, ART, OSCAR and SDI of the CNN, TSI of the ViT")
    findings = _audited(models, world, redrawn, out, seed)
    say(f"4/6 ShorT: a family of {len(SCALES) * SEEDS} smaller CNNs that show a fainter tag more or less")
    findings += _family(out, seed)
    say("5/6 a repair: the biased CNN's features are attenuated where OSCAR places the tag")
    findings += _repaired(models, world, out, seed)
    for finding in findings:
        finding.save(out)
    say("6/6 the page")
    sheet = sheet_of(
        world,
        evidence=Evidence.open(out / "evidence" / "biased CNN"),
        command=f"rightreasons demo --out {out} --seed {seed}",
        facts={"seed": str(seed)},
    )
    learnt = (
        *imbalance(world, "biased CNN", "biased ViT", "repaired CNN"),
        *imbalance(redrawn, "balanced CNN"),
        *imbalance(_faint(out, seed), FAMILY),
    )
    sheet = sheet.model_copy(update={"imbalance": learnt})
    sheet.save(out)
    page = report(findings, out / "report.html", title=TITLE, subtitle=SUBTITLE, sheet=sheet)
    seal(out, inputs={})
    return findings, page


def _train(
    name: str, cohort: Cohort, out: Path, seed: int, network: Mapping[str, Any], training: Mapping[str, Any]
) -> Classifier:
    # The shortcut must be free to be learnt: stop on validation rows that are biased like the training rows.
    start = Classifier.load(**{**network, "classes": cohort.classes})
    start.card["name"] = name
    return train(start, cohort, seed=seed, regime=name, folder=out / "models" / name, **training)


# ---- the audits ----------------------------------------------------------------------------------------------------------


def _audited(models: Mapping[str, Classifier], world: Cohort, redrawn: Cohort, out: Path, seed: int) -> list[Finding]:
    severities = {"severities": str(out / "severities.json"), "attribute": world.attributes[0]}
    calibrate(models["biased CNN"], world, reference=models["balanced CNN"], out=out / "severities.json")
    settings: dict[str, dict[str, Any]] = {"flips": KNOWN, "groups": KNOWN, "sdi": severities}

    def seen(name: str, audits: Sequence[str], *roles: str) -> Evidence:
        asked = needs_of(audits, {audit: settings.get(audit, {}) for audit in audits})
        needs = [need for need in asked if need.role in roles]
        return extract(models[name], world if "biased" in name else redrawn, needs, out=out / "evidence" / name)

    balanced = seen("balanced CNN", (*ONE, "oscar", "sdi"), "test", "baseline", "reference")
    cnn = {"test": seen("biased CNN", (*ONE, "oscar", "sdi"), "test"), "baseline": balanced, "reference": balanced}
    cnn["attribute"] = seen("tag CNN", ("oscar",), "attribute")
    vit = {"test": seen("biased ViT", (*ONE, "tsi"), "test"), "baseline": seen("balanced ViT", ("tsi",), "baseline")}
    asked = {
        "biased CNN": (cnn, (*ONE, "oscar", "sdi")),
        "biased ViT": (vit, (*ONE, "tsi")),
        "balanced CNN": ({"test": balanced}, ONE),
    }
    findings = []
    for name, (roles, audits) in asked.items():
        chosen = {audit: of_audit for audit, of_audit in settings.items() if audit in audits}
        findings += _named(audit_all(roles, audits=audits, seed=seed, settings=chosen), name)
    return findings


def _faint(out: Path, seed: int) -> Cohort:
    return planted.digits(out / "faint", seed=seed, fractions=FRACTIONS, **FAINT)


def _family(out: Path, seed: int) -> list[Finding]:
    """ShorT over a family; trained as one batched model, and kept."""
    world = _faint(out, seed)
    grid = list(itertools.product(range(seed, seed + SEEDS), SCALES))
    places = [out / "family" / f"s{s}{scale:+g}" for s, scale in grid]
    if not all((place / "model.json").exists() for place in places):
        starts = []
        for s, _ in grid:
            starts.append(Classifier.load(**{**TINY, "classes": world.classes}, rng=task_rng(s, "starting weights")))
        settings = []
        for _, scale in grid:
            settings.append({"attribute": world.attributes[0], "scale": scale, "hidden": (16,), **TINY_TRAINING})
        rngs = [task_rng(s, "family") for s, _ in grid]
        for place, model in zip(places, gradient_scaling.together(starts, world, settings, rngs=rngs), strict=True):
            if isinstance(model, TrainingError):
                raise model
            model.card["name"] = place.name
            model.save(place)
    tag = _train("faint tag CNN", world, out, seed, TINY, {**TINY_TRAINING, "target": world.attributes[0]})
    needs = needs_of(["short"])
    of_sweep = [need for need in needs if need.role == "sweep"]
    sweep = []
    for place in places:
        sweep.append(extract(Classifier.open(place), world, of_sweep, out=out / "evidence" / "family" / place.name))
    bound = extract(tag, world, [n for n in needs if n.role == "attribute"], out=out / "evidence" / "faint tag CNN")
    roles: dict[str, Evidence | list[Evidence]] = {"sweep": sweep, "attribute": bound}
    finding: Finding = audit("short", roles, seed=seed, attribute=world.attributes[0]).finding()
    return _named([finding.model_copy(update={"sentence": finding.sentence + OF_FAMILY})], FAMILY)


# ---- the repair ----------------------------------------------------------------------------------------------------------


def _repaired(models: Mapping[str, Classifier], world: Cohort, out: Path, seed: int) -> list[Finding]:
    name, place = "repaired CNN", out / "models" / "repaired CNN"
    if (place / "model.json").exists():
        repaired = Classifier.open(place)
    else:
        references = {"baseline": [models["balanced CNN"]], "attribute": [models["tag CNN"]]}
        repaired = mitigate("attenuation", models["biased CNN"], world, references=references, seed=seed)
        repaired.card["name"] = name
        repaired.save(place)
    before = Evidence.open(out / "evidence" / "biased CNN")
    after = extract(repaired, world, ONE, out=out / "evidence" / name)
    card = repaired.card["mitigation"]
    own = own_finding(card, model=name, of="biased CNN")
    changed = [remedy(before, after, seed=seed, mitigation=card), *([] if own is None else [own])]
    return _named([*audit_all(after, audits=ONE, seed=seed, settings=dict.fromkeys(("flips", "groups"), KNOWN)), *changed], name)


def _named(findings: Sequence[Finding], model: str) -> list[Finding]:
    return [finding.model_copy(update={"name": f"{finding.name}-{model}", "model": model}) for finding in findings]
