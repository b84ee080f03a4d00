"""summary.json: what the first screen says, for programs: one object for each model and attribute."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rightreasons.case import Case, Sheet, cases
from rightreasons.errors import DataError
from rightreasons.files import read_bytes
from rightreasons.findings import Estimate, Finding, versions
from rightreasons.report.first import how_sure
from rightreasons.stored import known_format

FORMAT = 1
NAME, PAGE = "summary.json", "report.html"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Effect(_Part):
    """A number of the first screen with its interval.

    Parameters
    ----------
    what : what it is a number of
    value, low, high : None where it is undefined, or has no interval
    level : coverage of the interval
    unit : "share" and "probability" go from 0 to 1, and differences of them from -1
    """

    what: str
    value: float | None
    low: float | None
    high: float | None
    level: Annotated[float, Field(gt=0, lt=1)]
    unit: str


class NextStep(_Part):
    """What to do first, in a sentence, and a command for it; empty where no command helps."""

    todo: str
    command: str


class Counts(_Part):
    """What the verdict rests on.

    Parameters
    ----------
    rows, subjects : None where they are not known
    audits, not_run : findings about this model and attribute, and how many of these did not run
    """

    rows: int | None
    subjects: int | None
    audits: int
    not_run: int


class CaseSummary(_Part):
    """One model and one attribute.

    Parameters
    ----------
    works : false where the model does not work on these rows, so that nothing is concluded
    score : from 0, everything against a shortcut, to 1, everything for one; not a probability
    what : what was found, in plain numbers; empty where no audit tells
    sentence : the verdict and who says so
    how_sure : what it rests on, and how often such verdicts are wrong
    effect : the number in `what`; without one, the first of a finding that agrees with the verdict
    use : how much more the model follows the attribute than a last layer with nothing to gain from it; None where not measured
    """

    model: str
    attribute: str
    verdict: Literal["shortcut", "no evidence", "inconclusive"]
    works: bool
    score: Annotated[float, Field(ge=0, le=1)]
    what: str
    sentence: str
    how_sure: str
    effect: Effect | None
    use: Effect | None
    next_step: NextStep
    counts: Counts


class Summary(_Part):
    """The cases of a page.

    Parameters
    ----------
    format : of this file
    version : of the rightreasons that wrote it
    """

    format: Literal[1] = 1
    version: str
    cases: tuple[CaseSummary, ...]

    def to_json(self) -> str:
        return json.dumps(self.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """The summary of a file, or of the folder of a page."""
        place = Path(path) / NAME if Path(path).is_dir() else Path(path)
        try:
            told = json.loads(read_bytes(place))
            known_format(told.get("format") if isinstance(told, dict) else None, FORMAT, place)
            return cls.model_validate(told)
        except OSError as error:
            raise DataError(f"the summary {str(place)!r} cannot be read: {error.strerror or error}") from error
        except ValidationError as error:
            raise DataError(f"{str(place)!r} is not a summary: {error.errors(include_url=False)[0]['msg']}") from error
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise DataError(f"{str(place)!r} is not a summary: it is not JSON ({error})") from error


def summary_path(page: str | os.PathLike[str]) -> Path:
    """Beside report.html lies summary.json; beside a page of another name, a summary of that name."""
    path = Path(page)
    return path.with_name(NAME if path.name == PAGE else f"{path.stem}.{NAME}")


def schema() -> str:
    """JSON Schema of summary.json, as published in docs/schema."""
    told: dict[str, Any] = Summary.model_json_schema(mode="serialization")
    published = {"$schema": "https://json-schema.org/draft/2020-12/schema", **told}
    return json.dumps(published, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def summary_of(findings: Iterable[Finding], sheet: Sheet | None = None) -> Summary:
    """What a page of these findings says first, case by case."""
    told = tuple(_case(case) for case in cases(findings, sheet))
    return Summary(version=versions().get("rightreasons", ""), cases=told)


def _case(case: Case) -> CaseSummary:
    looked = [finding for finding in case.findings if finding.n_rows and not finding.not_run]
    most = max(looked, key=lambda finding: finding.n_rows or 0, default=None)
    return CaseSummary(
        model=case.model,
        attribute=case.attribute,
        verdict=case.verdict or "inconclusive",
        works=case.works,
        score=case.score,
        what=case.what,
        sentence=case.sentence,
        how_sure=how_sure(case),
        effect=_effect(case.effect),
        use=_effect(case.among.use),
        next_step=NextStep(todo=case.next_step.todo, command=case.next_step.command),
        counts=Counts(
            rows=None if most is None else most.n_rows,
            subjects=None if most is None else most.n_subjects,
            audits=len(case.findings),
            not_run=sum(bool(finding.not_run) for finding in case.findings),
        ),
    )


def _effect(estimate: Estimate | None) -> Effect | None:
    if estimate is None:
        return None
    limits = {"value": estimate.value, "low": estimate.low, "high": estimate.high, "level": estimate.level}
    return Effect(what=estimate.name, unit=estimate.unit, **limits)
