"""Which audits to run: those that are asked for, once per attribute, with what each lacks before it can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from rightreasons import families
from rightreasons.audits import Need, Role, needs_of
from rightreasons.data.cohort import Cohort
from rightreasons.errors import SettingError
from rightreasons.extraction import refusal
from rightreasons.models.classifier import Classifier
from rightreasons.study.references import declared
from rightreasons.study.roles import TEST

Depth: TypeAlias = Literal["quick", "usual", "full"]
DEPTHS: tuple[Depth, ...] = ("quick", "usual", "full")
SEVERITIES = "severities"  # an audit with this setting changes images, and how much is calibrated on a model first


@dataclass(frozen=True)
class Chosen:
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
    module: Any = field(default=None, repr=False)

    @property
    def is_family(self) -> bool:
        return self.subject != TEST

    @property
    def calibrates(self) -> bool:
        known = families.settings_of(self.module.measure, self.module.conclude)
        return SEVERITIES in known and self.settings.get(SEVERITIES) is None

    def needs(self, role: str, **settings: Any) -> list[Need]:
        """What it reads of the models of a role."""
        asked = needs_of([self.method], {self.method: {**self.settings, **settings}})
        return [need for need in asked if need.role == role]


def choose(
    audits: Mapping[str, Mapping[str, Any]] | None, cohort: Cohort, named: Mapping[str, Cohort], classifier: Classifier
) -> list[Chosen]:
    """Audits by the name of their table (all where there is none), for each attribute of the cohort unless one is named.

    Parameters
    ----------
    audits : table → settings, with `method` where it is not the table's name
    named : the cohorts that are extracted
    """
    asked = {name: {} for name in families.members("audits")} if audits is None else audits
    return [one for name, table in asked.items() for one in _each(name, table, cohort, named, classifier)]


def _each(
    name: str, table: Mapping[str, Any], cohort: Cohort, named: Mapping[str, Cohort], classifier: Classifier
) -> Sequence[Chosen]:
    settings = dict(table)
    method = str(settings.pop("method", name))
    module = families.member("audits", method)
    families.resolve(settings, module.measure, module.conclude, where=f"[audits.{name}]")
    takes = "attribute" in families.settings_of(module.measure)
    attributes: tuple[str | None, ...] = (None,)
    if takes:
        asked = settings.pop("attribute", None)
        attributes = (asked,) if asked is not None else (cohort.attributes or (None,))
        for wanted in filter(None, attributes):
            if wanted not in cohort.attributes:
                told = families.suggest(wanted, cohort.attributes)
                raise SettingError(f"[audits.{name}]: the data have no attribute {wanted!r}; {told}")
    found = []
    for attribute in attributes:
        full = {**settings, **({"attribute": attribute} if attribute is not None else {})}
        title = f"{name}-{attribute}" if takes and attribute is not None and len(attributes) > 1 else name
        found.append(_one(title, method, module, attribute, full, cohort, named, classifier))
    return found


def _one(
    name: str, method: str, module: Any, attribute: str | None, settings: dict[str, Any], cohort: Cohort,
    named: Mapping[str, Cohort], classifier: Classifier,
) -> Chosen:  # fmt: skip
    usual = families.settings_of(module.measure, module.conclude)
    references = declared(module, {**usual, **settings}, cohort)
    needs = needs_of([method], {method: settings})
    roles = list(dict.fromkeys(need.role for need in needs))
    others = {role.name for role in references}
    subject = TEST if TEST in roles or not roles else next((role for role in roles if role not in others), TEST)
    first = [need for need in needs if need.role == subject and not need.optional]
    why = next(filter(None, (refusal(need, named, classifier) for need in first)), "")
    return Chosen(name, method, attribute, settings, subject, references, why, module)
