"""Which unevenness is it? The ways in which an attribute goes with the label or the answers, and what to do about each."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, get_args

from rightreasons.findings import Estimate, Finding, UnevennessKind, Verdict

KINDS: tuple[UnevennessKind, ...] = get_args(UnevennessKind)
IMBALANCED = 0.1  # association of label and attribute in the training rows from which there is something to learn

MEANS: Mapping[UnevennessKind, str] = {
    "prevalence": "the label is more frequent with one value in the training rows",
    "presentation": "the label shows more strongly with one value",
    "annotation": "the labels themselves follow the attribute",
    "companion": "another attribute explains it",
    "use": "the model uses it",
}


@dataclass(frozen=True)
class Uneven:
    """One kind of unevenness of a case.

    Attributes
    ----------
    estimate, present : None where it was not measured, or could not be told
    companion : the other attribute, of that kind
    todo : what to do about it, in one sentence; empty where there is nothing to do
    command : what to type for it; empty where no command helps
    """

    kind: UnevennessKind
    estimate: Estimate | None
    present: bool | None
    companion: str = ""
    todo: str = ""
    command: str = ""

    @property
    def means(self) -> str:
        return MEANS[self.kind]


def unevenness_of(
    verdict: Verdict, attribute: str, findings: Sequence[Finding], imbalance: Estimate | None, commands: Commands
) -> tuple[Uneven, ...]:
    """Every kind that was measured, and `annotation` where it was not: a column of adjudicated labels would tell."""
    found = []
    measured = _measured(findings, imbalance)
    for kind in KINDS:
        of_kind = [uneven for uneven in measured if uneven.kind == kind]
        for uneven in of_kind:
            advice = _advice(uneven, verdict, attribute, commands)
            found.append(Uneven(kind, uneven.estimate, uneven.present, uneven.companion, advice.todo, advice.command))
        if kind == "annotation" and not of_kind and measured:
            todo = "Not measured: give a column of adjudicated labels, of some rows at least."
            found.append(Uneven(kind, None, None, todo=todo, command=commands.audit("--truth", "ADJUDICATED")))
    return tuple(found)


def _measured(findings: Iterable[Finding], imbalance: Estimate | None) -> list[Uneven]:
    """What findings measured, each kind (and companion) once, and the prevalence of the training rows."""
    known: dict[tuple[str, str], Uneven] = {}
    if imbalance is not None:
        present = None if imbalance.value is None else abs(imbalance.value) >= IMBALANCED
        known["prevalence", ""] = Uneven("prevalence", imbalance, present)
    for finding in findings:
        for uneven in finding.unevenness:
            key = (uneven.kind, uneven.companion)
            known.setdefault(key, Uneven(uneven.kind, uneven.estimate, uneven.present, uneven.companion))
    return list(known.values())


# ---- what to do ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Advice:
    """What to do in one sentence, and what to type."""

    todo: str = ""
    command: str = ""


def _advice(uneven: Uneven, verdict: Verdict, attribute: str, commands: Commands) -> Advice:
    if uneven.kind == "prevalence":
        return _about_prevalence(uneven.present, verdict, attribute, commands)
    if uneven.kind == "companion":
        return _about_companion(uneven, attribute, commands)
    if uneven.kind == "use":
        return about_use(verdict, attribute, commands)
    if not uneven.present:
        return Advice()
    if uneven.kind == "presentation":
        return Advice(
            f"Collect: add rows in which the label shows as strongly with every value of {attribute}, and audit again. "
            "Balancing does not change this, and there is nothing to repair in it.",
            commands.audit(),
        )
    return Advice(
        f"Relabel: have rows labelled anew by someone who does not see {attribute}, and train on those labels.",
        commands.train(),
    )


def _about_prevalence(present: bool | None, verdict: Verdict, attribute: str, commands: Commands) -> Advice:
    if verdict == "shortcut" and present:
        return Advice(
            f"Balance: train on as many rows of every label with every value of {attribute}; the model uses what goes together.",
            commands.mitigate("balanced", attribute),
        )
    if verdict == "shortcut":
        return Advice(f"{attribute} does not go with the label in these training rows: look at what else the model learnt from.")
    if present and verdict == "no evidence":
        return Advice("Leave it: as far as the audits can see the model does not use it, and balancing would cost rows.")
    if present:
        return Advice("Wait: decide first whether the model uses it.")
    return Advice()


def _about_companion(uneven: Uneven, attribute: str, commands: Commands) -> Advice:
    other = uneven.companion
    if not other:
        return Advice(
            f"Record what shows: find what goes with {attribute} in the images, add it as a column, and audit that.",
            commands.audit(),
        )
    if uneven.present:
        return Advice(
            f"Look at {other}: answers follow {attribute} because it goes with {other}, so that is what to repair.",
            commands.mitigate("auto", other),
        )
    if uneven.present is None:
        return Advice(
            f"Collect rows in which {attribute} and {other} do not go together, and audit again; "
            "these rows cannot tell them apart.",
            commands.audit(),
        )
    return Advice()


def about_use(verdict: Verdict, attribute: str, commands: Commands) -> Advice:
    """What to do about an attribute that the model uses."""
    if verdict != "shortcut":
        return Advice()
    return Advice(
        f"Repair: have the repairs of the last layer tried, which learn where {attribute or 'the cue'} says nothing about the "
        "label, and audit the new model.",
        commands.mitigate("auto", attribute),
    )


# ---- commands ------------------------------------------------------------------------------------------------------------

COLUMNS = ("label", "image", "id", "split", "subject", "case", "site", "weight", "twin", "root", "mask")
"""Columns of [data] that are options of their own name."""
WEIGHTS = ("checkpoint", "num_classes", "size")


@dataclass(frozen=True)
class Commands:
    """Commands about the data and the model of an audit, with what its study.toml says of them.

    Attributes
    ----------
    asked : the command of the audit; empty where it is not known
    study : the tables of its study.toml; empty where there are none
    """

    asked: str = ""
    study: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, command: str, study: str) -> Commands:
        try:
            tables = tomllib.loads(study)
        except tomllib.TOMLDecodeError:
            tables = {}
        return cls(command, tables or {"data": _options_of(command)})

    @property
    def is_of_predictions(self) -> bool:
        """Whether a table of predictions was audited, and no model."""
        return "--predictions" in _words(self.asked)

    def check(self, *more: str) -> str:
        """What is wrong with the table and the model."""
        return shlex.join(("rightreasons", "check", *self._rows(), *self._model(), *more))

    @property
    def has_features(self) -> bool:
        """Whether the vendor's features were audited beside the predictions."""
        return "--features" in _words(self.asked)

    def template(self) -> str:
        """The file that a vendor fills with features."""
        words = _words(self.asked)
        table = words[words.index("--predictions") + 1] if words[-1:] != ["--predictions"] else "predictions.csv"
        return shlex.join(("rightreasons", "template", table, "--to", "features.csv"))

    def anew(self) -> str:
        """An audit of the rows with a model that is not there yet."""
        return Commands(study=self.study).audit("--checkpoint", "WEIGHTS")

    def audit(self, *more: str) -> str:
        """The audit once more, with further options, which a study.toml takes none of."""
        if self.asked and not more:
            return self.asked
        attributes = self._data.get("attribute", [])
        named = [attributes] if isinstance(attributes, str) else attributes
        options = [part for name in named for part in ("--attribute", str(name))]
        return shlex.join(("rightreasons", "audit", *self._rows(), *options, *self._model(), *more))

    def mitigate(self, method: str, attribute: str) -> str:
        options = (*self._rows(), *(("--attribute", attribute) if attribute else ()), *self._model())
        return shlex.join(("rightreasons", "mitigate", method, *options, "--out", f"rightreasons-{method}"))

    def train(self) -> str:
        """Training on the adjudicated labels."""
        truth = str(self._data.get("truth") or self._truth_of_audits() or "ADJUDICATED")
        return shlex.join(("rightreasons", "train", *self._rows(label=truth), *self._model(), "--out", "rightreasons-relabelled"))

    @property
    def _data(self) -> Mapping[str, Any]:
        return _table(self.study, "data")

    def _truth_of_audits(self) -> object:
        for table in _table(self.study, "audits").values():
            if isinstance(table, Mapping) and table.get("truth"):
                return table["truth"]
        return None

    def _rows(self, label: str = "") -> list[str]:
        data = self._data
        said = [str(data.get("manifest", "data.csv"))]
        for name in COLUMNS:
            value = label if name == "label" and label else data.get(name)
            if isinstance(value, str):
                said += [f"--{name}", value]
        return said

    def _model(self) -> list[str]:
        if self.is_of_predictions:
            return []
        model = _table(self.study, "model")
        said = ["--model", str(model.get("model", "MODEL"))]
        for name in WEIGHTS:
            if isinstance(model.get(name), str | int):
                said += [f"--{name.replace('_', '-')}", str(model[name])]
        return said


def _options_of(command: str) -> dict[str, Any]:
    """The columns that a command line names, as [data] would; nothing where it is no audit of a table."""
    words = _words(command)
    found: dict[str, Any] = {}
    for option, value in pairwise(words):
        name = option.removeprefix("--")
        if name == "attribute":
            found.setdefault(name, []).append(value)
        elif option.startswith("--") and name in COLUMNS:
            found[name] = value
    return found


def _words(command: str) -> list[str]:
    """The words of a command; none where it cannot be read."""
    try:
        return shlex.split(command)
    except ValueError:
        return []


def _table(tables: Mapping[str, Any] | None, name: str) -> Mapping[str, Any]:
    found = (tables or {}).get(name)
    return found if isinstance(found, Mapping) else {}
