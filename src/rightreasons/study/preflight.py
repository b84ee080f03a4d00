"""The preflight of what is audited: a card for each model, and the findings as they may be said of it. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rightreasons.audits import Models
from rightreasons.check.preflight import About, doubt_of_repeats, preflight_of, repeated, repeats_by_content, warning_of_repeats
from rightreasons.data import images
from rightreasons.data.cohort import Cohort
from rightreasons.data.images import Geometry
from rightreasons.errors import ImageError
from rightreasons.evidence import BROUGHT as ARRAYS
from rightreasons.evidence import Card, Evidence, View
from rightreasons.findings import Finding, Picture
from rightreasons.findings.preflight import Fact, Preflight, guarded
from rightreasons.study.curves import Concluded
from rightreasons.study.folder import Study
from rightreasons.study.plan import BROUGHT, DATA
from rightreasons.study.roles import TEST, Group

PICTURES = 12
TOLERANCE = 5e-3
NO_SPLIT = "in no split"


def cards_of(study: Study, concluded: Sequence[Concluded], units: Mapping[Group, Sequence[str]]) -> dict[str, Preflight]:
    """Model, as findings name it → its card. A family that an audit is about has none: some of its models are made to fail."""
    found: dict[str, Preflight] = {}
    of_unit: dict[str, Preflight | None] = {}
    for case in concluded:
        model, is_of_models = case.finding.model, study.plan.audits[case.audit].subject == TEST
        if model in found or not is_of_models or case.finding.not_run:
            continue
        members = _members(study, case.group, units)
        for unit in members:
            if unit not in of_unit:
                of_unit[unit] = _of_unit(study, unit)
        known = {unit: card for unit in members if (card := of_unit[unit]) is not None}
        if known:
            found[model] = _of_seeds(model, known)
    if found:
        first = next(iter(found))
        found[first] = _with_pictures(study, _members_of(study, first, concluded, units), found[first])
    return found


def _members(study: Study, group: Group, units: Mapping[Group, Sequence[str]]) -> list[str]:
    if study.plan.brought:
        return [study.plan.brought]
    return [
        unit for key, members in units.items() if key[: len(group)] == group for unit in members if study.row(unit) is not None
    ]


def _members_of(study: Study, model: str, concluded: Sequence[Concluded], units: Mapping[Group, Sequence[str]]) -> list[str]:
    group = next(case.group for case in concluded if case.finding.model == model)
    return _members(study, group, units)


def _of_unit(study: Study, unit: str) -> Preflight | None:
    evidence = study.evidence(unit)
    is_trained_here = study.plan.units[unit].method != BROUGHT
    about = about_of(evidence.card, is_trained_here=is_trained_here)
    card = preflight_of(evidence, about)
    if card is None:
        return None
    look = study.held.first_look if unit == study.plan.brought else None
    warnings = card.warnings
    if look is not None:
        elsewhere = {**look.elsewhere, **card.elsewhere}
        doubts = {**look.doubts, **card.doubts}
        card = card.model_copy(update={"may_call": card.may_call or look.may_call, "elsewhere": elsewhere, "doubts": doubts})
        warnings = tuple(dict.fromkeys((*warnings, *look.warnings)))
    return card.model_copy(update={"splits": dict(study.plan.cohorts[DATA].splits), "warnings": warnings})


def halving(read: Cohort, seed: int) -> tuple[str, ...]:
    """What to say of rows whose test split was halved; nothing where the table has an audit split."""
    if read.has("audit"):
        return ()
    lacks, halved = ("splits", "rows") if read.splits is None else ("audit split", "test rows")
    whole = f"the table has no {lacks}, and its {halved} were halved, by chance and seed {seed}"
    return (f"{whole}: one half estimates (audit), the other is reported on (test)",)


def of_all_rows(look: Preflight, read: Cohort, rows: Cohort, seed: int) -> Preflight:
    """A first look with what only all rows tell: how they were split, and which test rows repeat an image.

    Parameters
    ----------
    read, rows : as they were read, and with the splits that the audit needs
    """
    test = rows.on("test")
    repeats = repeats_by_content(test)
    left_out = 0 if rows.splits is None else int((rows.splits == "").sum())
    lost = (f"{left_out} rows are in no split and were left out",) if left_out else ()
    copies = repeats if repeats > repeated(test) else 0  # those of one name are warned of already
    warnings = (*look.warnings, *halving(read, seed), *lost, *warning_of_repeats(copies, len(test)))
    doubts = {**look.doubts, **doubt_of_repeats(repeats, len(test))}
    return look.model_copy(update={"warnings": warnings, "doubts": doubts})


def _of_seeds(model: str, cards: Mapping[str, Preflight]) -> Preflight:
    """One card for models that differ in the seed alone: it works where all of them do."""
    failing = {unit: card for unit, card in cards.items() if not card.works}
    unit, card = next(iter((failing or cards).items()))
    changes: dict[str, Any] = {"model": model}
    if len(cards) > 1 and failing:
        changes["reason"] = f"{len(failing)} of {len(cards)} seeds, such as {unit}: {card.reason}"
    elif len(cards) > 1:
        changes["reason"] = f"all {len(cards)} seeds; of {unit}: {card.reason}"
    return card.model_copy(update=changes)


def checked(findings: Sequence[Finding], models: Models) -> tuple[list[Finding], list[Preflight]]:
    """Findings about evidence as they may be said, and the cards of the tested models."""
    tested = models if isinstance(models, Evidence) else models.get(TEST, next(iter(models.values())))
    members = [tested] if isinstance(tested, Evidence) else list(tested)
    cards = [card for evidence in members if (card := preflight_of(evidence, about_of(evidence.card))) is not None]
    found = list(findings)
    for card in cards:
        found = [guarded(finding, card) for finding in found]
    return found, cards


def about_of(card: Card, *, is_trained_here: bool = False) -> About:
    """What a model's evidence knows of it beside its answers."""
    has_network = not card.model.startswith(ARRAYS)
    says = card.settings.get("says") or {}
    return About(
        name=card.name,
        is_random=has_network and card.start == "fresh" and not card.regime and not is_trained_here,
        is_trained_here=is_trained_here or bool(card.training or card.regime),
        has_network=has_network,
        facts=tuple(facts_of(card)),
        disagreements=differing(says, in_use(card)),
    )


def in_use(card: Card) -> dict[str, Any]:
    """Setting of the input → its value."""
    geometry = card.settings.get("geometry") or {}
    known = {"size": geometry.get("size"), "crop": geometry.get("crop"), "interpolation": geometry.get("interpolation")}
    return {**known, "mean": card.settings.get("mean"), "std": card.settings.get("std")}


def facts_of(card: Card) -> list[Fact]:
    """Class order, the settings of the input, and which weights were read, each with where it came from."""
    found = [Fact(name="class order", value=", ".join(f"{k} = {value}" for k, value in enumerate(card.classes)))]
    came_from = card.settings.get("input") or {}
    usual = "saved with the model" if card.training or card.regime else "not known"
    for name, value in in_use(card).items():
        if value is not None:
            found.append(Fact(name=name, value=shown(value), source=_source(str(came_from.get(name, usual)))))
    read = card.settings.get("weights") or {}
    if read:
        ignored = f", {read['ignored']} keys of the file are not the network's" if read.get("ignored") else ""
        found.append(Fact(name="weights", value=f"{read['tensors']} tensors{ignored}", source=str(read["file"])))
        found.append(Fact(name="container", value=read["container"] or "none: the tensors lie bare", source="the checkpoint"))
        found.append(Fact(name="prefix", value=read["prefix"] or "none", source="the checkpoint"))
    elif card.start == "fresh" and not card.regime:
        found.append(Fact(name="weights", value="random: no checkpoint was read"))
    return found


def _source(word: str) -> str:
    return "given by you" if word == "given" else word


def shown(value: Any) -> str:
    """A setting as it is written in an option."""
    values = value if isinstance(value, list | tuple) else [value]
    return ", ".join(v if isinstance(v, str) else f"{v:g}" for v in values)


def differing(said: Mapping[str, Any], used: Mapping[str, Any]) -> dict[str, str]:
    """Option → what a checkpoint says of itself, and what is in use instead; only where they differ."""
    found = {}
    for key, value in said.items():
        if used.get(key) is not None and not _is_same(value, used[key]):
            found[f"--{key}"] = f"{key} {shown(value)}, and {shown(used[key])} is in use"
    return found


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return str(one) == str(other)
    a, b = (list(v) if isinstance(v, list | tuple) else [v] for v in (one, other))
    longest = max(len(a), len(b))
    a, b = (values * longest if len(values) == 1 else values for values in (a, b))
    return len(a) == len(b) and all(abs(float(x) - float(y)) <= TOLERANCE for x, y in zip(a, b, strict=True))


# ---- pictures --------------------------------------------------------------------------------------------------------------


def _with_pictures(study: Study, units: Sequence[str], card: Preflight) -> Preflight:
    """The card with images as the network sees them, and what their pixels are once they are normalised."""
    evidence = study.evidence(units[0])
    view = evidence.on(card.cohort)
    geometry = evidence.card.settings.get("geometry")
    if geometry is None or not view.cohort.has_images or not len(view):
        return card
    pictures, pixels = _pictures(view, Geometry(**geometry), evidence.card.classes)
    facts = card.facts
    if pixels is not None:
        mean, std = (np.asarray(evidence.card.settings[key], dtype=np.float64) for key in ("mean", "std"))
        seen = (pixels - mean) / std
        value = f"mean {seen.mean():.2f}, standard deviation {seen.std():.2f}"
        facts = (
            *facts,
            Fact(name="pixels seen", value=value, source="of these images; networks are mostly trained at about 0 and 1"),
        )
    return card.model_copy(update={"pictures": tuple(pictures), "facts": facts})


def _pictures(view: View, geometry: Geometry, classes: Sequence[Any]) -> tuple[list[Picture], np.ndarray | None]:
    """A few images, of every class in turn, with label and answer; and their pixels (m, c) between 0 and 1."""
    rows = _chosen(view.label)
    chosen = view.select(rows)
    answered = chosen["logits"].argmax(axis=1)
    found, values = [], []
    for k, label in enumerate(chosen.label):
        try:
            pixels = images.load(chosen.cohort.image[k], geometry, root=chosen.cohort.root)
        except ImageError:
            continue  # the audit read it once: it has gone since, and the card can do without
        values.append(images.widen(pixels).reshape(-1, pixels.shape[-1]))
        is_right = "right" if answered[k] == label else "wrong"
        said = f"{chosen.cohort.id[k]}: {classes[label]}, answered {classes[answered[k]]}"
        found.append(Picture(png=images.thumbnail(pixels), caption=said, group=is_right))
    return found, np.concatenate(values) if values else None


def _chosen(label: np.ndarray) -> np.ndarray:
    """Positions of at most twelve rows, spread over the rows and over the classes in turn."""
    by_class = [np.flatnonzero(label == value) for value in np.unique(label[label >= 0])]
    each = -(-PICTURES // max(1, len(by_class)))
    picked = [rows[np.unique(np.linspace(0, len(rows) - 1, min(each, len(rows))).astype(int))] for rows in by_class]
    return np.sort(np.concatenate([*picked, np.zeros(0, dtype=int)])[:PICTURES].astype(np.int64))


# ---- findings --------------------------------------------------------------------------------------------------------------


def guarded_cases(concluded: Sequence[Concluded], cards: Mapping[str, Preflight]) -> list[Concluded]:
    """What was concluded, as it may be said of models that do not work."""
    found = []
    for case in concluded:
        card = cards.get(case.finding.model)
        found.append(case if card is None else replace(case, finding=guarded(case.finding, card)))
    return found


def lines(card: Preflight) -> list[str]:
    """The card for a terminal."""
    said = [f"preflight of {card.model}: {card.sentence}"]
    if card.accuracy is not None:
        said.append(f"  accuracy {card.accuracy:.3f}, balanced {card.balanced:.3f}, on {card.n} rows")
    for one in card.classes:
        recall = "no rows" if one.recall is None else f"{one.recall:.0%} of {one.rows} rows are named so"
        said.append(f"  class {one.name}: {recall}; it is the answer to {one.answered}")
    for fact in card.facts:
        source = f"  ({fact.source})" if fact.source else ""
        said.append(f"  {fact.name}: {fact.value}{source}")
    if card.splits:
        said.append(f"  rows: {', '.join(f'{n} {split or NO_SPLIT}' for split, n in card.splits.items())}")
    for split, balanced in card.elsewhere.items():
        said.append(f"  on its {split} rows: balanced accuracy {balanced:.3f}")
    said += [f"  {reason}: nothing can be said of it" for attribute, reason in card.doubts.items() if attribute]
    said += [f"  note: {warning}" for warning in card.warnings]
    return said
