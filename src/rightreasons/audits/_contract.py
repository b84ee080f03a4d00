"""What every audit shares: what it needs, which reference models it asks for, and the context of one run.

An audit is a module of `audits/`, one file or a folder, with `QUESTION` and `ROW`, two declarations that are plain data, and two
steps:

    needs(**settings) -> tuple[Need, ...]        the arrays it reads
    roles(**settings) -> tuple[Role, ...]        the reference models it compares with; empty for audits of one model
    measure(evidence, *, rng, …) -> Measurement  what one model says: a frozen dataclass of arrays, numbers, texts and pieces that
                                                 are such dataclasses; runs no network
    conclude(measurements, *, rng, …) -> Result  over named models: {role: [Measurement, …]} -> a frozen dataclass with
                                                 a `context` and a `finding()`

An audit of a family of models may have a third one:

    across(results, *, name, rng) -> Finding     over several families by name, each with its result, on the same test rows

Two constants may stand beside `QUESTION` where they are true, so that a plan can say beforehand what cannot run:
`READS_HEAD = True`, it reads features with the model's head, and `COMPARES_GROUPS = True`, its attribute must have groups.

A setting is a keyword with a default of `measure` or `conclude`. Where there are many, they are one frozen dataclass:
`families.with_settings`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from rightreasons.evidence import View
from rightreasons.findings import Check, Estimate, Exhibit, Finding, Row, Standing, Unevenness, Verdict

M = TypeVar("M")


@dataclass(frozen=True)
class Need:
    """An array that an audit reads: of which role's model, on which cohort."""

    role: str
    cohort: str
    array: str
    optional: bool = False  # the audit says less without it, and still runs


@dataclass(frozen=True)
class Role:
    """A reference model that an audit compares with; a study trains it where it is missing."""

    name: str
    regime: str = "erm"
    rows: str = "train"  # train | balanced | redrawn
    target: str = ""  # column it predicts; empty means the label
    groups: int = 0  # a target that is a number is learnt by squared error, its head so many groups of it; 0 asks for classes
    stopping: str = "val"  # rows on which its training stops


@dataclass(frozen=True)
class Context:
    """Which run of which audit a result belongs to."""

    name: str = ""
    audit: str = ""
    model: str = ""
    cohort: str = "test"
    attribute: str = ""
    n_rows: int | None = None
    n_subjects: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    seconds: float | None = None

    def finding(self, **content: Any) -> Finding:
        """A finding with everything that this context knows filled in."""
        return Finding(**{**vars(self), **content})


class Result(Protocol):
    """What an audit says over named models."""

    @property
    def context(self) -> Context: ...

    def finding(self) -> Finding: ...


@dataclass(frozen=True)
class OneModelResult(ABC, Generic[M]):
    """The result of an audit of one model; several measurements are seeds of it on the same rows, and the first one speaks.

    An audit says what is particular to it: a question and a row, and the parts of its finding.
    """

    question: ClassVar[str]
    row: ClassVar[Row]
    standing: ClassVar[Standing] = "vote"
    alike: ClassVar[str] = ""

    measurements: tuple[M, ...]
    context: Context = field(default_factory=Context)

    @property
    def first(self) -> M:
        return self.measurements[0]

    @property
    def verdict(self) -> Verdict:
        """None for an audit that describes."""
        return None

    @abstractmethod
    def sentence(self, m: M) -> str:
        """What was found, in a sentence."""

    @abstractmethod
    def estimates(self, m: M) -> Sequence[Estimate]:
        """Its numbers."""

    @abstractmethod
    def checks(self, m: M) -> Sequence[Check]:
        """The conditions under which it can be believed."""

    @abstractmethod
    def exhibits(self, m: M) -> Sequence[Exhibit]:
        """What the page draws."""

    def unevenness(self, m: M) -> Sequence[Unevenness]:
        """Which kinds of unevenness it measured; most audits measure none."""
        return ()

    def finding(self) -> Finding:
        m = self.first
        return Finding(
            **vars(self.context),
            question=self.question,
            row=self.row,
            verdict=self.verdict,
            sentence=self.sentence(m),
            estimates=self.estimates(m),
            checks=self.checks(m),
            exhibits=self.exhibits(m),
            standing=self.standing,
            alike=self.alike,
            unevenness=self.unevenness(m),
        )


def subjects_of(view: View) -> int | None:
    """Number of distinct subjects of a view, None where subjects are not known."""
    subject = view.cohort.subject
    if subject is None:
        return None
    return len(set(subject))
