"""The audit of a table of predictions: columns found by name, the audits that a table allows, and what the vendor could add.

No torch. Features that the vendor sends, row by row, join the table and let more audits run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from rightreasons import families, files
from rightreasons.audits import audit_all, needs_of
from rightreasons.data.cohort import Cohort
from rightreasons.data.found import Found, look, predicted_columns
from rightreasons.data.schema import Schema, text, tidy
from rightreasons.data.sources import read_frame
from rightreasons.errors import DataError, SettingError
from rightreasons.evidence import Evidence
from rightreasons.findings import Finding
from rightreasons.report import report
from rightreasons.seal import seal
from rightreasons.stats.resampling import task_rng
from rightreasons.study.data_sheet import sheet_of
from rightreasons.study.folder import save_findings
from rightreasons.study.preflight import checked, halving, lines
from rightreasons.study.roles import TEST

ASK_FOR = (
    "features of every image from the layer before the last one let `probes` run: `rightreasons template` makes the file to send"
)
ERRORS = "Errors"  # the group of estimates with the rates of wrong answers
TEMPLATE_COLUMNS = ("f_0", "f_1", "f_2", "…")


@dataclass(frozen=True)
class Asked:
    """What is asked of a table of predictions.

    Attributes
    ----------
    columns : keywords of `Cohort.read`
    score, prediction : columns that hold probabilities or decisions, see `Evidence.from_predictions`
    features : a table with the same ids and a column for every feature
    audits : which ones; all that the table allows by default
    settings : audit → its settings
    """

    table: Path
    columns: Mapping[str, Any] = field(default_factory=dict)
    score: str | None = None
    prediction: str | None = None
    features: Path | None = None
    audits: Sequence[str] | None = None
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    seed: int = 0


def audit_predictions(
    asked: Asked, out: Path, *, command: str = "", say: Callable[[str], None] = print
) -> tuple[list[Finding], Path]:
    """Audit a table of predictions and write its page to `out`."""
    columns, answers = _found(asked, say)
    evidence, warnings = _evidence(asked, columns, answers)
    every = families.members("audits")
    chosen = tuple(asked.audits) if asked.audits is not None else tuple(name for name in every if _is_possible(name, evidence))
    for line in _plan(evidence, chosen, asked.audits is None):
        say(line)
    settings = {name: table for name, table in asked.settings.items() if name in chosen}
    findings, cards = checked(audit_all(evidence, audits=chosen, seed=asked.seed, settings=settings), evidence)
    cards = [card.model_copy(update={"warnings": (*card.warnings, *warnings)}) for card in cards]
    for line in itertools.chain.from_iterable(map(lines, cards)):
        say(line)
    others = [name for name in every if name not in chosen]
    facts = {"seed": str(asked.seed)}
    if asked.audits is None and others:
        facts["not possible with this table"] = (
            f"{', '.join(others)}: they need features, the network or images; {_ask(evidence)}"
        )
    sheet = sheet_of(evidence.on("test").cohort, evidence=evidence, facts=facts, command=command)
    sheet = sheet.model_copy(update={"preflight": tuple(cards)})
    sheet.save(out)
    save_findings(findings, out)
    title = f"Audit of {evidence.card.name}"
    page = report(findings, out / "report.html", title=title, subtitle=f"{asked.table}", sheet=sheet)
    seal(out, inputs={what: file for what, file in (("predictions", asked.table), ("features", asked.features)) if file})
    return findings, page


FOLLOWED = {
    "shortcut": "answers follow it",
    "no evidence": "answers do not follow it",
    "inconclusive": "it is undecided whether answers follow it",
}


def behaviour(findings: Sequence[Finding]) -> list[str]:
    """What the answers do, attribute by attribute: whether they follow it, and the error rates where it has each value."""
    said = []
    for finding in findings:
        if finding.row != "behaviour" or finding.verdict is None or finding.not_run:
            continue
        rates: dict[str, list[str]] = {}
        for other in findings:
            for estimate in other.estimates if other.attribute == finding.attribute else ():
                name, comma, where = estimate.name.partition(", ")
                if estimate.group == ERRORS and comma and estimate.value is not None:
                    rates.setdefault(name, []).append(f"{estimate.value:.1%} where {where}")
        told = "; ".join(f"{name} {', '.join(values)}" for name, values in rates.items())
        said.append(f"behaviour, {finding.attribute}: {FOLLOWED[finding.verdict]}" + (f"; {told}" if told else ""))
    return said


def template(table: Path, columns: Mapping[str, Any], to: Path) -> int:
    """Write the file to send to the vendor: every row's id, and empty columns for its features; returns the rows."""
    if to.exists():
        raise SettingError(f"{to} is there already: give --to with another name")
    seen = look(table, columns, has_images=False)
    cohort = Cohort.read(table, **{"image": None, **seen.keywords, **columns})
    files.write(to, pd.DataFrame({"id": cohort.id}).assign(**dict.fromkeys(TEMPLATE_COLUMNS, "")).to_csv(index=False))
    return len(cohort)


# ---- what the functions above use ----------------------------------------------------------------------------------------


def _found(asked: Asked, say: Callable[[str], None]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keywords of `Cohort.read` and where the answers are; what was found is said."""
    given = {**asked.columns, **{key: value for key in ("score", "prediction") if (value := getattr(asked, key)) is not None}}
    if "score" in given:
        given["score"] = given["score"].partition("=")[0]
    seen = look(asked.table, given, has_images=False)
    columns = {**seen.keywords, **asked.columns}
    answers: dict[str, Any] = {"score": asked.score, "prediction": asked.prediction}
    found = list(seen.found)
    if asked.score is None and asked.prediction is None:
        name = columns.get("label", "label")
        cells = seen.frame[name] if name in seen.frame.columns else pd.Series(dtype=object)
        labels = sorted({text(value) for value in tidy(cells, ()) if value is not None})
        answered = predicted_columns(seen, labels, asked.table)
        if answered:
            kind, names = answered[0].part, [one.value for one in answered]
            answers[kind] = names[0] if len(names) == 1 else names
            why = "its name" if kind == "score" else "its name; decisions alone: AUC and calibration say no more than they do"
            found += [Found(kind, name, why) for name in names]
    taken = {one.value for one in found}
    left = {name: why for name, why in seen.left.items() if name not in taken}
    for line in replace(seen, found=tuple(found), left=left).lines():
        say(line)
    return columns, answers


def _evidence(asked: Asked, columns: Mapping[str, Any], answers: Mapping[str, Any]) -> tuple[Evidence, tuple[str, ...]]:
    """The evidence of a table, with features where there are any; rows without splits are then halved, which is said."""
    if asked.features is None:
        return Evidence.from_predictions(asked.table, **answers, **columns), ()
    read = Cohort.read(asked.table, **{"image": None, **columns})
    evidence = Evidence.from_predictions(
        asked.table, **answers, **columns, features=_features(asked.features, read),
        rng=task_rng(asked.seed, "roles of the splits"),
    )  # fmt: skip
    return evidence, halving(read, asked.seed)


def _features(path: Path, cohort: Cohort) -> Any:
    """(n, d) features of a cohort's rows from a table with their ids."""
    frame, _ = read_frame(path, Schema.of(image=None, label=None, id="id"))
    if "id" not in frame.columns:
        raise DataError(f"{path} has no column 'id': it names the row of the predictions that features belong to")
    frame = frame.assign(id=[text(cell) for cell in frame["id"]])
    twice = frame["id"].duplicated()
    if twice.any():
        raise DataError(f"{path} has the id {frame['id'][twice].iloc[0]!r} twice: one row of features for every id is expected")
    lacking = [name for name in cohort.id if name not in set(frame["id"])]
    if lacking:
        raise DataError(f"{path} has no features of {len(lacking)} rows of the predictions, such as id {lacking[0]!r}")
    numbers = frame.drop(columns="id").apply(pd.to_numeric, errors="coerce")
    wrong = [str(name) for name in numbers.columns if numbers[name].isna().any()]
    if wrong or not len(numbers.columns):
        raise DataError(
            f"{path}: column {wrong[0]!r} has cells that are no numbers"
            if wrong
            else f"{path} has no column of features beside 'id'"
        )
    return numbers.set_index(frame["id"]).loc[list(cohort.id)].to_numpy(dtype="float64")


def _is_possible(audit: str, evidence: Evidence) -> bool:
    """Whether a table with these arrays and no network is enough for an audit."""
    for need in needs_of([audit]):
        if need.optional:
            continue
        if need.role != TEST or need.cohort not in evidence.cohorts or need.array not in evidence.on(need.cohort):
            return False
    return evidence.head is not None or not getattr(families.member("audits", audit), "READS_HEAD", False)


def _plan(evidence: Evidence, chosen: Sequence[str], is_all: bool) -> list[str]:
    cohort = evidence.on("test").cohort
    of = f", each for {', '.join(cohort.attributes)}" if cohort.attributes else "; no attribute, so nothing is compared by group"
    said = [f"audit of {evidence.card.name}, {len(cohort)} test rows: {', '.join(chosen)}{of}"]
    others = len(families.members("audits")) - len(chosen)
    if is_all and others > 0:
        said.append(f"{others} other audits need features, the network or images; {_ask(evidence)}")
    return said


def _ask(evidence: Evidence) -> str:
    if "features" in evidence.on("test"):
        return "ask the vendor for the network, or for twins: the same images without the cue"
    return f"ask the vendor: {ASK_FOR}"
