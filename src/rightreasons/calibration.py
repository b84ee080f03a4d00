"""How often the verdicts are wrong: rates measured in planted worlds, shipped beside this file, and the sentence that pages show.

`python -m benchmarks.worlds.page` writes the file; docs/calibration.md has the details.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rightreasons.errors import DataError

FILE = Path(__file__).with_suffix(".json")
CASE = "case"
PUBLISHED = " as published"  # after an audit's name: the paper's own rule

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]


class Rate(BaseModel):
    """How many of `n` were called, with a 95 % interval of the share that allows for models of one world being alike."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    n: Count
    called: Count
    low: Share
    high: Share

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.called > self.n or self.low > self.high:
            raise ValueError(f"{self.called} of {self.n} with limits {self.low} to {self.high} is not a rate")
        return self

    def __str__(self) -> str:
        return f"{_percent(self.called / self.n)} % ({_percent(self.low)} to {_percent(self.high)})"


class Rates(BaseModel):
    """How one audit, or the case, did in planted worlds.

    Parameters
    ----------
    unit : what a verdict is about
    worlds : which worlds they were measured in
    alarms : calls among models that do not use the cue
    power : calls among models whose true reliance is at least `Calibration.relies`
    inconclusive : share of all verdicts
    note : what else a reader should know
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    unit: Literal["model", "sweep"] = "model"
    worlds: str = "planted worlds"
    alarms: Rate | None = None
    power: Rate | None = None
    inconclusive: Share = 0.0
    note: str = ""


class Calibration(BaseModel):
    """All rates, and where they come from.

    Parameters
    ----------
    version : of the package that was measured
    seeds : of the worlds; none of these worlds was used to choose a threshold
    relies : true reliance from which a model should be called
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
            raise DataError(f"{str(path)!r} is not a calibration: {error.errors(include_url=False)[0]['msg']}") from error

    def line(self, judge: str) -> str:
        """One sentence about an audit, or about the case; empty for an audit that was not measured."""
        rates = self.judges.get(judge)
        if rates is None:
            return ""
        subject = "this verdict" if judge == CASE else "this test"
        parts = []
        if rates.alarms is not None and rates.alarms.n:
            parts.append(
                f"in {rates.alarms.n} audits of {rates.unit}s without a shortcut ({rates.worlds}) {subject} raised a false alarm "
                f"in {rates.alarms}"
            )
            subject = "it"
        if rates.power is not None and rates.power.n:
            reliant = f"{rates.power.n} {rates.unit}s with a true reliance of {self.relies:g} or more"
            parts.append(f"of {reliant} {subject} called {rates.power}")
        if not parts:
            return ""
        parts.append(f"{_percent(rates.inconclusive)} % were inconclusive")
        paper = self.judges.get(f"{judge}{PUBLISHED}")
        if paper is not None and paper.alarms is not None and paper.alarms.n:
            parts.append(f"the rule as published raised a false alarm in {paper.alarms}")
        if rates.note:
            parts.append(rates.note)
        text = "; ".join(parts)
        return f"{text[0].upper()}{text[1:]}."


@cache
def calibration() -> Calibration:
    """The rates shipped with this version."""
    return Calibration.read(FILE)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}".removesuffix(".0")
