"""The data sheet of a page: group sizes, rows left out, how strongly attributes go with the label, and fingerprints. No torch."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping

import numpy as np

from rightreasons.case import Sheet
from rightreasons.data.cohort import Cohort
from rightreasons.evidence import Evidence
from rightreasons.findings import Estimate, Table
from rightreasons.stats.correlation import cramers_v
from rightreasons.study.folder import Study
from rightreasons.study.plan import DATA

SPLITS = ("train", "val", "audit", "test")


def sheet_of(
    cohort: Cohort, *, evidence: Evidence | None = None, external: Mapping[str, Cohort] | None = None, command: str = "",
    study: str = "", facts: Mapping[str, str] | None = None, trained: bool = False, fingerprints: bool = True,
) -> Sheet:  # fmt: skip
    """What a page says of a cohort with splits.

    Parameters
    ----------
    evidence : of the audited model, which knows the rows that were left out
    trained : whether the model is known to have learnt from the `train` rows; otherwise they say nothing of what it could learn
    fingerprints : of the rows; they read every image, so a study gives those that its plan has
    """
    parts = _parts(cohort, external or {})
    if trained and cohort.has("train"):
        known = imbalance(cohort)
    else:
        known = ()
    made = {
        "cohort": cohort.name,
        **({f"rows of {name}": rows.fingerprint for name, rows in parts.items()} if fingerprints else {}),
    }
    if evidence is not None:
        made |= {"model": evidence.card.name, "weights": evidence.card.model}
    return Sheet(
        tables=(*(_groups(parts, name) for name in cohort.attributes), _left_out(parts, evidence)),
        facts={**made, **(facts or {})},
        imbalance=known,
        command=command,
        study=study,
    )


def sheet_of_study(study: Study, trained_on: Mapping[str, str]) -> Sheet:
    """The sheet of a study's page.

    Parameters
    ----------
    trained_on : model, as findings name it → its training rows
    """
    plan, file = study.plan, study.folder / "study.toml"
    text = file.read_text() if file.is_file() else ""
    if plan.brought:
        evidence = study.evidence(plan.brought)
        if study.held.data is not None:
            rows = study.held.data
        else:
            rows = study.cohort(DATA)
        external = {name: study.cohort(name) for name in plan.external}
        facts = {"seed": str(plan.seed), "depth": plan.depth}
        is_known = rows.has("train")
        return sheet_of(
            rows, evidence=evidence, external=external, command=plan.command, study=text, facts=facts, trained=is_known
        )
    if plan.command:  # made by `rightreasons audit`
        facts = {"seed": str(plan.seed), "depth": plan.depth}
        base = sheet_of(study.cohort(DATA), command=plan.command, study=text, facts=facts)
    else:
        facts = {"seed": str(plan.seed), **{key: value for key, value in plan.code.items() if value}}
        for name, cohort in plan.cohorts.items():
            facts[f"rows of {name}"] = cohort.hash
        command = shlex.join(["rightreasons", "sweep", str(study.folder)])
        base = sheet_of(study.cohort(DATA), command=command, study=text, facts=facts, fingerprints=False)
    cohorts = {name: study.cohort(name) for name in dict.fromkeys(trained_on.values())}
    learnt = tuple(e for model, name in trained_on.items() for e in imbalance(cohorts[name], model))
    return base.model_copy(update={"imbalance": learnt})


def _parts(cohort: Cohort, external: Mapping[str, Cohort]) -> dict[str, Cohort]:
    inside = {name: cohort.on(name) for name in SPLITS if cohort.has(name)}
    return {**(inside or {"all rows": cohort}), **external}


def _groups(parts: Mapping[str, Cohort], name: str) -> Table:
    """Rows by label and attribute in every part; of an attribute that is a number, its mean and spread."""
    rows: list[tuple[str | int | float | None, ...]] = []
    of = next(iter(parts.values()))
    numeric = of.attribute(name).kind == "continuous"
    for part, cohort in parts.items():
        if name not in cohort.attributes:
            continue
        a = cohort.attribute(name)
        for code, label in enumerate(cohort.classes):
            here = cohort.label == code
            if numeric:
                values = a.values[here & a.present]
                mean, deviation = None, None
                if len(values):
                    mean, deviation = float(values.mean()), float(values.std())
                rows.append((part, str(label), int(here.sum()), mean, deviation))
            else:
                counts = np.bincount(a.values[here & a.present].astype(int), minlength=len(a.levels))
                rows.append((part, str(label), *counts.tolist()))
    columns = ["rows", of.label_name or "label"]
    if numeric:
        columns += ["n", "mean", "standard deviation"]
    else:
        for level in of.attribute(name).levels:
            columns.append(f"{name} = {level}")
    return Table(
        title=f"{of.label_name or 'label'} by {name}",
        caption="Numbers of images. Groups that are small make wide intervals, and groups that are empty cannot be judged.",
        columns=columns,
        rows=rows,
    )


def _left_out(parts: Mapping[str, Cohort], evidence: Evidence | None) -> Table:
    rows: list[tuple[str | int | None, ...]] = []
    for part, cohort in parts.items():
        lacking = []
        for name in cohort.attributes:
            lacking.append(int((~cohort.attribute(name).present).sum()))
        seen = None
        if evidence is not None and part in evidence.cohorts:
            seen = evidence.on(part).left_out
        subjects = None
        if cohort.subject is not None:
            subjects = len(np.unique(cohort.subject))
        rows.append((part, len(cohort), subjects, int((cohort.label < 0).sum()), *lacking, seen))
    names = next(iter(parts.values())).attributes
    return Table(
        title="Rows, and what was left out",
        caption="A row without a label or an attribute is left out of what needs it. Rows that the model was fitted or tuned on "
        "are left out of all that is estimated and reported.",
        columns=("rows", "images", "subjects", "no label", *(f"no {name}" for name in names), "seen in training"),
        rows=rows,
    )


# ---- imbalance -----------------------------------------------------------------------------------------------------------


def imbalance(cohort: Cohort, *models: str) -> tuple[Estimate, ...]:
    """How strongly every attribute goes with the label in the training rows of a cohort, for some models or for all."""
    associations = [association(cohort.on("train"), name) for name in cohort.attributes]
    return tuple(e.model_copy(update={"group": model}) for e in associations for model in models or ("",))


def association(rows: Cohort, name: str) -> Estimate:
    """Cramér's V of label and attribute, corrected for its bias in small tables; of a number, the correlation ratio."""
    a = rows.attribute(name)
    known = (rows.label >= 0) & a.present
    label, values = rows.label[known], a.values[known]
    value, reason = math.nan, "the training rows have one value of label or attribute"
    if len(np.unique(label)) > 1 and len(np.unique(values)) > 1:
        value, reason = (_ratio(label, values) if a.kind == "continuous" else cramers_v(label, values)), ""
    return Estimate(name=name, value=value, n=int(known.sum()), row="behaviour", note="in the training rows", reason=reason)


def _ratio(label: np.ndarray, values: np.ndarray) -> float:
    """Root of the part of a number's variance that lies between labels, corrected for the number of labels."""
    n, codes = len(values), np.unique(label)
    within = sum(float(((values[label == c] - values[label == c].mean()) ** 2).sum()) for c in codes)
    whole = float(((values - values.mean()) ** 2).sum())
    if whole == 0 or n <= len(codes):
        return math.nan
    return math.sqrt(max(0.0, 1 - (within / (n - len(codes))) / (whole / (n - 1))))
