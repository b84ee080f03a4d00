"""Does the model work on these rows at all? The card that opens a page, and what it takes from the findings below it."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from rightreasons.findings import Check, Finding, Picture, Verdict

State: TypeAlias = Literal["works", "random", "constant", "order", "below", "chance", "few"]
DOES_NOT_WORK = "the model does not work on these rows"
CANNOT_BE_TOLD = "it cannot be told whether the model works on these rows"
CHECK = "model-works"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ClassLine(_Part):
    """One class: how many rows have it, and which share of them the model names so; how many rows it names so in all."""

    name: str
    rows: int
    recall: float | None
    answered: int


class Fact(_Part):
    """One setting that decides what the network sees or which weights it has, and where it came from."""

    name: str
    value: str
    source: str = ""


class Preflight(_Part):
    """What was looked at before any verdict.

    Parameters
    ----------
    model : as findings name it
    state : "works", or why it does not: random weights, one answer to everything, another order of the classes is clearly better,
        clearly below chance, not above chance, too few rows
    reason : the same in words
    options : what to look at, as options of the command line
    may_call : a call of a shortcut stands although the model does not work on the test rows: it works on its own kind of rows
    follows : attributes that its answers follow; a call about them stands where the model is at chance
    doubts : attribute → why nothing can be said of it; "" for all of them
    n : labelled rows that the state was judged on
    """

    model: str
    state: State
    reason: str = ""
    options: tuple[str, ...] = ()
    may_call: bool = False
    follows: tuple[str, ...] = ()
    doubts: dict[str, str] = {}
    cohort: str = "test"
    n: int = 0
    accuracy: float | None = None
    balanced: float | None = None
    chance: float | None = None
    classes: tuple[ClassLine, ...] = ()
    facts: tuple[Fact, ...] = ()
    splits: dict[str, int] = {}
    elsewhere: dict[str, float] = {}
    warnings: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()

    @property
    def works(self) -> bool:
        return self.state == "works"

    @property
    def fault(self) -> str:
        """What is wrong, as the beginning of a sentence: too few rows do not say that a model fails."""
        return CANNOT_BE_TOLD if self.state == "few" else DOES_NOT_WORK

    @property
    def advice(self) -> str:
        """What to look at, as the end of a sentence; empty where nothing is wrong."""
        if not self.options:
            return ""
        return f"look at {_listed(self.options)}"

    @property
    def sentence(self) -> str:
        """The card in one sentence."""
        if not self.works:
            advice = f": {self.advice}" if self.advice else ""
            return f"{self.fault[:1].upper()}{self.fault[1:]}. {self.reason[:1].upper()}{self.reason[1:]}{advice}."
        return f"The model works on these rows: {self.reason}."

    def objection(self, verdict: Verdict, attribute: str) -> str:
        """Why a verdict about an attribute cannot stand; empty where it can.

        "No evidence" needs a model that works on the rows that were audited. A call of a shortcut also stands where the model
        works elsewhere, or is at chance because its answers follow the attribute: that is what a shortcut does.
        """
        for named in (attribute, ""):
            if named in self.doubts:
                return self.doubts[named]
        if self.works:
            return ""
        is_called = verdict == "shortcut" and self.state != "random"
        if is_called and (self.may_call or (self.state == "chance" and attribute in self.follows)):
            return ""
        advice = f"; {self.advice}" if self.advice else ""
        return f"{self.fault} ({self.reason}){advice}"


def guarded(finding: Finding, card: Preflight) -> Finding:
    """The finding as it may be said of such a model: a verdict that cannot stand becomes inconclusive, with the reason."""
    if finding.verdict is None:
        return finding
    objection = card.objection(finding.verdict, finding.attribute)
    if not objection:
        return finding
    told = "" if finding.verdict == "inconclusive" else f" (it would have been: {finding.verdict})"
    what = "its levels are distinct" if finding.attribute in card.doubts else "the model works on these rows"
    check = Check(name=what, passed=False, decides=True, id=CHECK, note=objection)
    return finding.model_copy(
        update={
            "verdict": "inconclusive",
            "sentence": f"Inconclusive{told}: {objection}.",
            "checks": (check, *finding.checks),
        }
    )


def objection_of(finding: Finding) -> str:
    """What `guarded` objected to; empty where it did not."""
    return next((check.note for check in finding.checks if check.id == CHECK and check.passed is False), "")


def _listed(words: tuple[str, ...]) -> str:
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"
