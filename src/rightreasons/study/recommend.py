"""Which mitigation helps? Each is tried, the best on validation rows is handed on, and test rows say what each of them did.

Methods that fit the last layer again take seconds once the features are read; with `train`, methods that train anew join them.
The choice never sees a test row. The table of all methods on test rows is a report, not what they were chosen by.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rightreasons import mitigations
from rightreasons.audits import Need
from rightreasons.data.cohort import Cohort
from rightreasons.errors import RightReasonsError
from rightreasons.evidence import Evidence
from rightreasons.extraction import extract, named_cohorts, read
from rightreasons.families import member, settings_of
from rightreasons.findings import Cell, Check, Estimate, Finding, Table
from rightreasons.models.classifier import Classifier
from rightreasons.models.grouped_rows import Rows, Select, completed, labelled, score, selection
from rightreasons.progress import track
from rightreasons.remedy import BALANCED, FLIP, WORST, Comparison, Line, compare, pair_of
from rightreasons.stats.resampling import task_rng

QUESTION = "Which mitigation helps most, and at what cost?"
HELPS = 0.02  # gain on the val rows from which a method is handed on
NUMBERS = (WORST, BALANCED, FLIP)
WORDS: Mapping[Select, str] = {"wga": "worst-group accuracy", "accuracy": "accuracy"}


@dataclass(frozen=True, eq=False)
class Tried:
    """One method: its model, its score on the val rows, what it changed on the test rows, and how long it took."""

    method: str
    model: Classifier
    score: float
    comparison: Comparison
    seconds: float


@dataclass(frozen=True, eq=False)
class Recommendation:
    """What was tried and what could not be; `best` is None where nothing helps.

    Attributes
    ----------
    by : the metric of the val rows that chose; `before` is that of the model given
    refused : method → why it could not run
    """

    tried: tuple[Tried, ...]
    refused: Mapping[str, str]
    by: Select
    before: float
    attribute: str

    @property
    def best(self) -> Tried | None:
        helps = [one for one in self.tried if one.score >= self.before + HELPS]
        return max(helps, key=lambda one: one.score, default=None)


def recommend(
    classifier: Classifier,
    cohort: Cohort,
    out: Path,
    *,
    attribute: str | None = None,
    train: bool = False,
    seed: int = 0,
    where: Mapping[str, Any] | None = None,
) -> Recommendation:
    """Try every method that needs no other model, each in its own folder under `out`; what is there is not made again.

    Parameters
    ----------
    train : also try methods that train anew
    where : device, threads, workers and cache of forward passes and trainings
    """
    places = dict(where or {})
    cohort = completed(cohort, task_rng(seed, "roles of the splits"))
    by = selection(classifier, cohort, attribute)
    scored = Scored(cohort, attribute, by, places)
    before = scored.evidence(classifier, out / "before", seed)
    tried, refused = [], {}
    for method in track(mitigations.tried_by_auto(train), "mitigations"):
        folder = out / method
        began = time.monotonic()
        known = settings_of(member("mitigations", method).mitigate)
        given = {"attribute": attribute, "folder": folder / "model", **places}
        try:
            model = mitigations.mitigate(
                method, classifier, cohort, seed=seed, **{key: value for key, value in given.items() if key in known}
            )
        except RightReasonsError as error:  # too few rows of a group, every gate closed, …: said on the page
            refused[method] = str(error)
            continue
        seconds = time.monotonic() - began
        model.card["name"] = f"{classifier.card.get('name') or classifier.name} + {method}"
        after = scored.evidence(model, folder, seed)
        change = compare(pair_of(before, after, attribute), rng=task_rng(seed, "remedy"))
        tried.append(Tried(method, model, scored.score(model), change, seconds))
    name = scored.rows(classifier).attribute
    return Recommendation(tuple(tried), refused, by, scored.score(classifier), name)


@dataclass(frozen=True, eq=False)
class Scored:
    """The rows that choose and the rows that report."""

    cohort: Cohort
    attribute: str | None
    by: Select
    places: Mapping[str, Any]

    def rows(self, model: Classifier) -> Rows:
        return labelled(model, self.cohort.on("val"), self.attribute)

    def score(self, model: Classifier) -> float:
        """The metric of the val rows."""
        rows = self.rows(model)
        return score(rows, read(model, rows.cohort, ("logits",), **self.places)["logits"], self.by)

    def evidence(self, model: Classifier, folder: Path, seed: int) -> Evidence:
        """What a model says of the test rows, and of their twins where there are some."""
        cohorts = named_cohorts(self.cohort, seed=seed)
        needed: dict[str, Cohort] = {name: cohorts[name] for name in ("test", "twin") if name in cohorts}
        logits = [Need("test", name, "logits") for name in needed]
        return extract(model, needed, logits, out=folder / "evidence", seed=seed, **self.places)


def finding_of(recommendation: Recommendation, model: str) -> Finding:
    """All methods in one table, and what to do."""
    best = recommendation.best
    estimates: list[Estimate] = []
    for one in recommendation.tried:
        estimates += _estimates(one)
    return Finding(
        name="remedy-auto",
        audit="remedy",
        model=model,
        attribute=recommendation.attribute,
        question=QUESTION,
        row="remedy",
        verdict=None,
        sentence=sentence(recommendation),
        estimates=tuple(estimates),
        checks=(
            Check(
                id="a-method-helps",
                name=f"a method gains {HELPS:g} {WORDS[recommendation.by]} on the val rows",
                passed=best is not None,
                note=f"before: {recommendation.before:.3f}",
            ),
        ),
        exhibits=(table(recommendation),),
        settings={"before": model, "methods": [one.method for one in recommendation.tried]},
    )


def sentence(recommendation: Recommendation) -> str:
    best, metric = recommendation.best, WORDS[recommendation.by]
    if not recommendation.tried:
        refused = "; ".join(f"{method}: {why}" for method, why in recommendation.refused.items())
        return f"No mitigation could be tried: {refused}"
    if best is None:
        names = ", ".join(one.method for one in recommendation.tried)
        return f"Nothing that was tried ({names}) raises {metric} on the validation rows by {HELPS:g}: keep the model as it is."
    chosen = f"“{best.method}” is best on the validation rows ({metric} {recommendation.before:.2f} → {best.score:.2f})."
    changes = []
    for metric_name in (WORST, BALANCED):
        line = _line(best.comparison, metric_name)
        if line is not None:
            said = f"{line.difference.low:+.2f} to {line.difference.high:+.2f}"
            changes.append(f"{metric_name} from {line.before.value:.2f} to {line.after.value:.2f} ({said})")
    return f"{chosen} On test rows it changes {' and '.join(changes)}."


def table(recommendation: Recommendation) -> Table:
    """One row per method, the best one on validation rows first."""
    rows: list[tuple[object, ...]] = []
    for one in sorted(recommendation.tried, key=lambda one: -one.score):
        changes: list[Cell | None] = []
        for name in NUMBERS:
            line = _line(one.comparison, name)
            changes.append(None if line is None else Cell.of(line.difference))
        worst = _line(one.comparison, NUMBERS[0])
        worst_after = None if worst is None else Cell.of(worst.after)
        rows.append((one.method, one.score, worst_after, *changes, round(one.seconds, 1), ""))
    for method, why in recommendation.refused.items():
        rows.append((method, None, None, None, None, None, None, why))
    return Table(
        title="What was tried",
        caption=f"Chosen by {WORDS[recommendation.by]} on validation rows, where the model given has "
        f"{recommendation.before:.3f}. All other numbers are of test rows, which no method has seen, with 95 % intervals of the "
        "paired difference.",
        columns=(
            "method", "validation rows", "worst group after", "change of worst group", "change of balanced accuracy",
            "change when the cue is flipped", "seconds", "why not",
        ),
        rows=tuple(rows),
        highlight=(0,) if recommendation.best is not None else (),
    )  # fmt: skip


def _estimates(one: Tried) -> list[Estimate]:
    made = []
    for name in NUMBERS:
        line = _line(one.comparison, name)
        if line is not None:
            made.append(Estimate.of(f"change of {name}", line.difference, "remedy", unit="change", n=line.n, group=one.method))
    return made


def _line(comparison: Comparison, metric: str) -> Line | None:
    for line in comparison.lines:
        if line.metric == metric and not line.group and not np.isnan(line.difference.value):
            return line
    return None
