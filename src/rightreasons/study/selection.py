"""Which audits a study runs: those that its file names, or all; each for every attribute; and what these rows cannot give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from rightreasons import families
from rightreasons.audits import Need, Role, needs_of
from rightreasons.data.cohort import Cohort
from rightreasons.data.schema import text
from rightreasons.errors import SettingError
from rightreasons.extraction import refusal
from rightreasons.families import refuse_unknown
from rightreasons.models.classifier import Classifier
from rightreasons.study import file
from rightreasons.study.keywords import refuse_wrong_types
from rightreasons.study.references import declared, subject_of
from rightreasons.study.roles import TEST

TRUTH = "truth"  # the setting of audits that take adjudicated labels
SEVERITIES = "severities"  # an audit with this setting changes images, and how much is calibrated on a model first


@dataclass(frozen=True)
class Selected:
    """One audit for one attribute.

    Attributes
    ----------
    subject : the role that it is about: `test`, or that of a family of models
    references : the reference models that it compares with
    impossible : why its first need cannot be met by these rows and this network; empty where it can
    """

    name: str
    method: str
    attribute: str | None
    settings: Mapping[str, Any]
    subject: str = TEST
    references: tuple[Role, ...] = ()
    impossible: str = ""
    module: ModuleType | None = field(default=None, repr=False)

    @property
    def is_about_a_family(self) -> bool:
        return self.subject != TEST

    @property
    def calibrates(self) -> bool:
        """Whether severities must be calibrated before it runs."""
        if self.module is None:
            return False
        known = families.settings_of(self.module.measure, self.module.conclude)
        return SEVERITIES in known and self.settings.get(SEVERITIES) is None

    @property
    def asks_for_balanced_rows(self) -> tuple[Role, ...]:
        """The roles of its models of the label that are trained where the attribute says nothing about it."""
        return tuple(role for role in self.references if role.rows == "balanced" and not role.target)


@dataclass(frozen=True)
class Rows:
    """What audits are selected for: the data, the cohorts that are extracted, the network, and a column of adjudicated labels."""

    data: Cohort
    named: Mapping[str, Cohort]
    classifier: Classifier
    truth: str | None = None


def select(audits: Mapping[str, file.Audit] | None, rows: Rows) -> list[Selected]:
    """Audits by the name of their table (all where there is none), for each attribute of the data unless one is named."""
    if audits is None:
        audits = {name: file.Audit() for name in families.members("audits")}
    audits = with_truth(audits, rows.truth, rows.data)
    selected: list[Selected] = []
    for name, table in audits.items():
        selected += _for_every_attribute(name, table, rows)
    return selected


def with_truth(tables: Mapping[str, file.Audit], truth: str | None, data: Cohort) -> dict[str, file.Audit]:
    """The same audits; those that take adjudicated labels and do not name their column get the one of the data."""
    if truth is None:
        return dict(tables)
    _refuse_no_labels(truth, data)
    tables_with_it, takers = {}, []
    for name, table in tables.items():
        module = families.member("audits", table.method or name)
        takes = _takes_truth(module)
        takers += [name] if takes else []
        is_open = takes and TRUTH not in table.keywords
        tables_with_it[name] = table.model_copy(update={TRUTH: truth}) if is_open else table
    if not takers:
        readers = ", ".join(name for name in families.members("audits") if _takes_truth(families.member("audits", name)))
        raise SettingError(
            f"truth={truth!r} is read by {readers}, which is not run: leave it out, or add {readers} to the audits"
        )
    return tables_with_it


def _takes_truth(module: ModuleType) -> bool:
    return TRUTH in families.settings_of(module.measure)


def _refuse_no_labels(truth: str, data: Cohort) -> None:
    """Refuse a column of adjudicated labels that is not there, is the label itself, or holds other values than labels."""
    if truth not in data.columns:
        raise SettingError(f"truth={truth!r}: the data have no column {truth!r}; {families.suggest(truth, data.columns)}")
    if truth == data.label_name:
        raise SettingError(
            f"truth={truth!r} is the label itself: name the column in which somebody has looked at the labels again"
        )
    known = {text(value) for value in data.classes}
    others = sorted({text(value) for value in data.column(truth)} - known - {""})
    if others:
        shown = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
        raise SettingError(f"truth={truth!r} holds {shown}, which is no label; known: {', '.join(sorted(known))}")


def _for_every_attribute(name: str, table: file.Audit, rows: Rows) -> Iterable[Selected]:
    method, where, settings = table.method or name, f"[audits.{name}]", table.keywords
    module = families.member("audits", method)
    refuse_unknown(settings, families.settings_of(module.measure, module.conclude), where)
    refuse_wrong_types(settings, module.measure, module.conclude, where=where)
    if "attribute" not in families.settings_of(module.measure):
        yield _selected(name, method, None, settings, rows)
        return
    named = settings.pop("attribute", None)
    attributes = (named,) if named is not None else rows.data.attributes or (None,)
    for attribute in attributes:
        if attribute is None:
            yield _selected(name, method, None, settings, rows)
            continue
        if attribute not in rows.data.attributes:
            known = families.suggest(attribute, rows.data.attributes)
            raise SettingError(f"{where}: the data have no attribute {attribute!r}; {known}")
        if len(attributes) > 1:
            title = f"{name}-{attribute}"
        else:
            title = name
        yield _selected(title, method, attribute, {**settings, "attribute": attribute}, rows)


def _selected(name: str, method: str, attribute: str | None, settings: Mapping[str, Any], rows: Rows) -> Selected:
    module = families.member("audits", method)
    usual = families.settings_of(module.measure, module.conclude)
    references = declared(module, {**usual, **settings}, rows.data)
    needs = needs_of([method], {method: settings})
    subject = subject_of(dict.fromkeys(need.role for need in needs), [role.name for role in references])
    reason = _no_groups(module, attribute, rows) or _impossible(needs, subject, rows)
    return Selected(name, method, attribute, settings, subject, references, reason, module)


def _no_groups(module: ModuleType, attribute: str | None, rows: Rows) -> str:
    if attribute is None or not getattr(module, "COMPARES_GROUPS", False):
        return ""
    if rows.data.attribute(attribute).kind != "continuous":
        return ""
    return f"{attribute} is a number and it compares groups: cut it with bins={{{attribute!r}: 4}}"


def _impossible(needs: Iterable[Need], subject: str, rows: Rows) -> str:
    for need in needs:
        if need.role == subject and not need.optional:
            reason = refusal(need, rows.named, rows.classifier)
            if reason:
                return reason
    return ""
