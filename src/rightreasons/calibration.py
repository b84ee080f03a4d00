"""How often the verdicts are wrong: rates that planted worlds gave, shipped beside this file, and the line that pages show.

`python -m benchmarks.worlds.page` writes the file; docs/calibration.md tells the whole of it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rightreasons.errors import DataError

FILE = Path(__file__).with_suffix(".json")
CASE = "case"
PUBLISHED = " as published"  # behind an audit's name: the paper's own rule

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]


class Rate(BaseModel):
    """How many of `n` were called, with the 95 % interval of the share, models of one world counted as alike as they are."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    n: Count
    called: Count
    low: Share
    high: Share

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.called > self.n or self.low > self.high:
            raise ValueError(f"{self.called} of {self.n}, {self.low} to {self.high}, is no rate")
        return self

    def __str__(self) -> str:
        return f"{_percent(self.called / self.n)} % ({_percent(self.low)} to {_percent(self.high)})"


class Rates(BaseModel):
    """What one audit, or the case, did in planted worlds.

    Parameters
    ----------
    unit : what a verdict is about
    alarms : of models that do not use the cue
    power : of models whose true reliance is at least `Calibration.relies`
    inconclusive : share of all verdicts
    note : what has to be known beside
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    unit: Literal["model", "sweep"] = "model"
    alarms: Rate | None = None
    power: Rate | None = None
    inconclusive: Share = 0.0
    note: str = ""


class Calibration(BaseModel):
    """All rates, and where they are from.

    Parameters
    ----------
    version : of the package that was measured
    seeds : of the worlds, none of them used to choose a threshold
    relies : true reliance from which a model ought to be called
    judges : audit, or `case` → its rates
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str
    made: str
    command: str
    seeds: tuple[int, ...]
    worlds: Count
    relies: Share
    judges: dict[str, Rates]

    @classmethod
    def read(cls, path: Path) -> Self:
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise DataError(f"the calibration {str(path)!r} cannot be read: {error.strerror or error}") from error
        except ValidationError as error:
            raise DataError(f"{str(path)!r} is no calibration: {error.errors(include_url=False)[0]['msg']}") from error

    def line(self, judge: str) -> str:
        """One sentence on an audit, or on the case; empty for an audit that was not measured."""
        of = self.judges.get(judge)
        if of is None:
            return ""
        what = "this verdict" if judge == CASE else "this test"
        said = []
        if of.alarms is not None and of.alarms.n:
            said.append(f"in {of.alarms.n} audits of planted null {of.unit}s {what} raised {of.alarms} false alarms")
        if of.power is not None and of.power.n:
            it = "it" if said else what
            said.append(f"of {of.power.n} {of.unit}s with a true reliance of {self.relies:g} or more {it} called {of.power}")
        if not said:
            return ""
        said.append(f"{_percent(of.inconclusive)} % were inconclusive")
        paper = self.judges.get(f"{judge}{PUBLISHED}")
        if paper is not None and paper.alarms is not None and paper.alarms.n:
            said.append(f"the rule as published raised {paper.alarms} false alarms")
        if of.note:
            said.append(of.note)
        text = "; ".join(said)
        return f"{text[0].upper()}{text[1:]}."


@cache
def calibration() -> Calibration:
    """The rates that this version was shipped with."""
    return Calibration.read(FILE)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}".removesuffix(".0")
