"""What an audit found, as data: estimates, validity checks, a verdict and exhibits; one JSON file per finding.

A finding's file is the same to the byte whenever the same audit runs again. What is not the same (date, seconds, versions)
lies beside it, in `circumstances/<name>.json`.

Exhibits carry data, a title and a caption in plain language, never a colour or a layout: the page decides those.
Numbers may be numpy or torch values of any kind. NaN and infinity are stored as None, with a reason.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import platform
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from enum import Enum
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self, TypeAlias, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from rightreasons.errors import DataError
from rightreasons.files import read_bytes, write
from rightreasons.files import reason as why
from rightreasons.findings.notebook import as_html
from rightreasons.findings.pictures import BACKGROUND_PIXELS, MAX_PICTURES, PICTURE_PIXELS, png
from rightreasons.findings.texts import as_line, as_xml
from rightreasons.stored import known_format

Verdict: TypeAlias = Literal["shortcut", "no evidence", "inconclusive"] | None
Row: TypeAlias = Literal["behaviour", "encoding", "reliance", "place", "remedy"]
ROWS: tuple[str, ...] = get_args(Row)
Lack: TypeAlias = Literal["", "twins"]
Standing: TypeAlias = Literal["vote", "guard", "intervention"]
UnevennessKind: TypeAlias = Literal["prevalence", "presentation", "annotation", "companion", "use"]

__all__ = [
    "BACKGROUND_PIXELS", "CIRCUMSTANCES", "MAX_PICTURES", "PICTURE_PIXELS", "ROWS", "Answers", "Band", "Bars", "Cell",
    "Check", "Contrast", "Curve", "Curves", "Estimate", "Exhibit", "Finding", "Gallery", "GroupShare", "Heatmap", "Lack",
    "Picture", "Row", "Scatter", "Share", "ShownRow", "Standing", "Table", "Unevenness", "Verdict", "WithLimits", "as_line",
    "as_xml", "file_name", "not_run", "plain", "png", "versions",
]  # fmt: skip


class _Data(BaseModel):
    """Frozen data without unknown fields, NaN or infinity: the base of estimates, checks, exhibits and findings."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _as_plain_data(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        fields = plain(given)
        undefined: dict[str, list[str]] = {}
        for name, value in fields.items():
            fields[name] = _finite(value, undefined.setdefault(name, []))
        if "reason" in cls.model_fields:
            cls._explain(fields, undefined)
        return fields

    @classmethod
    def _explain(cls, fields: dict[str, Any], undefined: Mapping[str, list[str]]) -> None:
        """Fill in `reason` for the NaN and infinite values found in each field; a class with that field says how."""
        raise NotImplementedError(f"{cls.__name__} has a reason and must say how it is filled in")


Number: TypeAlias = float | None
Text: TypeAlias = Annotated[str, BeforeValidator(lambda value: value if isinstance(value, str) else str(value))]
Numbers: TypeAlias = tuple[Number, ...]


class WithLimits(Protocol):
    """A number with its limits, and a reason where it is undefined: what intervals, estimates and cells have in common."""

    @property
    def value(self) -> float | None: ...

    @property
    def low(self) -> float | None: ...

    @property
    def high(self) -> float | None: ...

    @property
    def reason(self) -> str: ...


class Estimate(_Data):
    """One number with its uncertainty.

    Parameters
    ----------
    value, low, high : None where undefined; `reason` then says why
    p : two-sided unless `note` says otherwise
    level : coverage of the interval from `low` to `high`
    n : how many units it rests on: images, subjects, regions or models; `note` says which
    row : the row of evidence to which it belongs
    unit : the unit of the number ("probability", "%"); estimates of one unit and group share an axis on the page
    group : heading under which the page lists it
    id : stable name by which code asks for this number; never shown
    """

    name: Text
    value: Number
    low: Number = None
    high: Number = None
    p: Annotated[float, Field(ge=0, le=1)] | None = None
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    n: Annotated[int, Field(ge=0)] | None = None
    row: Row
    note: str = ""
    reason: str = ""
    unit: str = ""
    group: Text = ""
    id: str = ""

    @classmethod
    def _explain(cls, fields: dict[str, Any], undefined: Mapping[str, list[str]]) -> None:
        if fields.get("reason"):
            return
        why = []
        for name in ("value", "low", "high", "p"):
            if undefined.get(name):
                why.append(f"{name} is {undefined[name][0]}")
        if fields.get("value") is None and not why:
            why = ["no value was given"]
        fields["reason"] = "; ".join(why)

    @model_validator(mode="after")
    def _limits_are_in_order(self) -> Self:
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"estimate {self.name!r}: its low {self.low} lies above its high {self.high}; swap them")
        return self

    @classmethod
    def of(cls, name: str, number: WithLimits, row: Row, **more: Any) -> Self:
        """A number with limits, such as an interval of the statistics, as an estimate."""
        if hasattr(number, "level"):
            more.setdefault("level", number.level)
        return cls(name=name, value=number.value, low=number.low, high=number.high, reason=number.reason, row=row, **more)

    def __str__(self) -> str:
        parts = (f"{self.name} {_interval(self)}", _p(self.p))
        return ", ".join(part for part in parts if part)


class Check(_Data):
    """A condition that must hold for the finding to be believed.

    Parameters
    ----------
    passed : None where it could not be judged
    decides : whether failing it makes the verdict `inconclusive`
    id : stable name by which code asks for this check; never shown
    """

    name: Text
    passed: bool | None
    note: str = ""
    decides: bool = False
    id: str = ""


class Unevenness(_Data):
    """One way in which an attribute can go with the label or with the answers, and how much of it there is.

    Parameters
    ----------
    kind : prevalence (the label is more frequent with one value), presentation (the label shows more strongly with it),
        annotation (labels themselves follow the attribute), companion (another attribute explains it), use (the model uses it)
    present : None where it could not be told. Of a companion: True where it explains the attribute, None where the two cannot be
        told apart, False where both are used
    companion : the other attribute, for that kind; empty for something that the images show and that is no column
    """

    kind: UnevennessKind
    estimate: Estimate
    present: bool | None
    companion: str = ""


# -------------------------------------------------------------------------------------------------------- answers at a glance


class Share(_Data):
    """A share of `n` rows, from 0 to 1 (a difference of two from -1), with its limits."""

    value: Number
    low: Number = None
    high: Number = None
    n: Annotated[int, Field(ge=0)]


class Contrast(_Data):
    """How often rows of one label get one answer with a value of the attribute, and how often with its other values.

    Parameters
    ----------
    label, answer : the true label of these rows, and another one that is answered
    value : of the attribute
    other : the other value, where there are two; empty where there are more
    level : coverage of the limits
    of : among how many such contrasts this one was chosen; the limits of the difference hold for all of them together
    """

    label: Text
    answer: Text
    value: Text
    other: Text = ""
    share: Share
    share_of_other: Share
    difference: Share
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    of: Annotated[int, Field(ge=1)] = 1


class GroupShare(_Data):
    """How many answers are right among rows of one label and one value; `value` is empty without an attribute."""

    label: Text
    value: Text = ""
    right: Share


class ShownRow(_Data):
    """One test row to look at; `png` as in a `Picture`, or None where the row has no picture."""

    id: Text
    label: Text
    value: Text = ""
    answer: Text
    probability: Number = None
    png: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _encode(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and given.get("png") is not None:
            return {**given, "png": png(given["png"], PICTURE_PIXELS)}
        return given


class Answers(_Data):
    """What a page shows first: the answers in plain numbers, and test rows to see for oneself.

    Parameters
    ----------
    noun : what a row is: images, rows or cases
    right : how many answers are right, of all rows
    level : coverage of its limits and of those of the groups
    no_contrast : why there is none
    kind : what `rows` are: rows whose attribute and not whose label was followed, other errors, or the least sure answers
    found, among : how many rows are of that kind, and among how many they could be
    """

    noun: Literal["images", "rows", "cases"]
    label_name: Text
    attribute: Text = ""
    right: Share
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    contrast: Contrast | None = None
    no_contrast: str = ""
    groups: tuple[GroupShare, ...] = ()
    kind: Literal["followed", "errors", "unsure"] = "followed"
    found: Annotated[int, Field(ge=0)] = 0
    among: Annotated[int, Field(ge=0)] = 0
    rows: tuple[ShownRow, ...] = ()


# ------------------------------------------------------------------------------------------------------------------- exhibits


class _Exhibit(_Data):
    """A picture or a table to be drawn.

    Parameters
    ----------
    caption : what is seen and what it means, in plain language
    reason : why values are missing; filled in where NaN or infinity were given
    """

    title: Text
    caption: str = ""
    reason: str = ""

    @classmethod
    def _explain(cls, fields: dict[str, Any], undefined: Mapping[str, list[str]]) -> None:
        count = sum(map(len, undefined.values()))
        series = fields.get("series")
        if isinstance(series, dict):  # curves that were built beforehand have None in place of NaN
            count += sum(curve.y.count(None) for curve in series.values() if isinstance(curve, Curve))
        if count and not fields.get("reason"):
            fields["reason"] = "1 value is undefined" if count == 1 else f"{count} values are undefined"


class Cell(_Data):
    """A number in a table with its interval, or the reason why it is undefined."""

    value: Number
    low: Number = None
    high: Number = None
    reason: str = ""

    @classmethod
    def _explain(cls, fields: dict[str, Any], undefined: Mapping[str, list[str]]) -> None:
        if fields.get("value") is None and not fields.get("reason"):
            kinds = undefined.get("value")
            fields["reason"] = kinds[0] if kinds else "no value was given"

    @model_validator(mode="after")
    def _limits_are_in_order(self) -> Self:
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"a table cell's low {self.low} lies above its high {self.high}; swap them")
        return self

    @classmethod
    def of(cls, number: WithLimits) -> Self:
        """A number with limits (an interval, an estimate) as a cell."""
        return cls(value=number.value, low=number.low, high=number.high, reason=number.reason)


class Table(_Exhibit):
    """Rows of cells.

    Parameters
    ----------
    rows : cells are text, numbers, `Cell`s, or None (undefined or not applicable)
    highlight : numbers of the rows that matter most, from 0
    """

    kind: Literal["table"] = "table"
    columns: tuple[Text, ...]
    rows: tuple[tuple[Cell | bool | int | float | str | None, ...], ...]
    highlight: tuple[int, ...] = ()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for number, row in enumerate(self.rows):
            _same_length(f"row {number} of table {self.title!r}", row, "columns", self.columns)
        for number in self.highlight:
            if not 0 <= number < len(self.rows):
                raise ValueError(f"table {self.title!r} highlights row {number} but has rows 0 to {len(self.rows) - 1}")
        return self


class Bars(_Exhibit):
    """Bars by label, one or several series side by side, with error bars.

    Parameters
    ----------
    series : {name: (n_labels,)}; a bare array is one unnamed series. Numbers with limits, such as intervals, bring their own
        low and high.
    low, high : {name: (n_labels,)} limits of the intervals
    reference : a value to compare with (chance, the overall mean), drawn as a line
    """

    kind: Literal["bars"] = "bars"
    labels: tuple[Text, ...]
    series: dict[str, Numbers]
    low: dict[str, Numbers] = {}
    high: dict[str, Numbers] = {}
    reference: Number = None
    reference_label: str = ""
    value_label: str = ""

    @model_validator(mode="before")
    @classmethod
    def _take_limits(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or not isinstance(given.get("series"), Mapping):
            return given
        parts = {part: dict(given.get(part) or {}) for part in ("series", "low", "high")}
        for name, numbers in given["series"].items():
            if _have_limits(numbers):
                parts["series"][name], parts["low"][name], parts["high"][name] = _values_and_limits(numbers)
        return {**given, **parts}

    @field_validator("series", "low", "high", mode="before")
    @classmethod
    def _one_series(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            return given
        return {"": given}

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for what, named in (("series", self.series), ("low", self.low), ("high", self.high)):
            for name, values in named.items():
                _same_length(f"{what} {name!r} of bars {self.title!r}", values, "labels", self.labels)
                if name not in self.series:
                    raise ValueError(f"bars {self.title!r} have a {what} for {name!r}, but the series are {list(self.series)}")
        for name in self.low.keys() & self.high.keys():
            _in_order(f"series {name!r} of bars {self.title!r}", self.low[name], self.high[name])
        return self


class Band(_Data):
    """A shaded region of a plot, across its whole height (axis x) or width (axis y); None reaches the edge."""

    axis: Literal["x", "y"] = "y"
    low: Number = None
    high: Number = None
    label: str = ""


class Curve(_Data):
    """One line of `Curves`; `x` where it is not the one shared by all."""

    y: Numbers
    low: Numbers | None = None
    high: Numbers | None = None
    x: tuple[float | str | None, ...] | None = None


class _Plane(_Exhibit):
    x_label: str = ""
    y_label: str = ""
    hline: Number = None
    hline_label: str = ""
    vline: Number = None
    vline_label: str = ""
    diagonal: bool = False
    bands: tuple[Band, ...] = ()
    x_scale: Literal["linear", "log"] = "linear"
    y_scale: Literal["linear", "log"] = "linear"


class Curves(_Plane):
    """Lines over a shared x, each with an optional interval.

    Parameters
    ----------
    x : numbers, or texts for ordered names such as layers
    series : {name: Curve, mapping with y, low, high, x, numbers with limits such as intervals, or a bare array}
    style : "steps" for counts in bins, x being the bins' centres
    diagonal : draw y = x
    """

    kind: Literal["curves"] = "curves"
    x: tuple[float | str | None, ...]
    series: dict[str, Curve]
    style: Literal["line", "steps"] = "line"

    @model_validator(mode="before")
    @classmethod
    def _take_limits(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or not isinstance(given.get("series"), Mapping):
            return given
        series = dict(given["series"])
        for name, curve in series.items():
            if _have_limits(curve):
                series[name] = dict(zip(("y", "low", "high"), _values_and_limits(curve), strict=True))
        return {**given, "series": series}

    @field_validator("series", mode="before")
    @classmethod
    def _arrays_are_curves(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            curves = dict(given)
        else:
            curves = {"": given}
        for name, curve in curves.items():
            if not isinstance(curve, Mapping | Curve):
                curves[name] = {"y": curve}
        return curves

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for name, curve in self.series.items():
            x = self.x if curve.x is None else curve.x
            for part in (curve.y, curve.low, curve.high):
                if part is not None:
                    _same_length(f"series {name!r} of curves {self.title!r}", part, "x values", x)
            if curve.low is not None and curve.high is not None:
                _in_order(f"series {name!r} of curves {self.title!r}", curve.low, curve.high)
        every_x = list(self.x)
        for curve in self.series.values():
            every_x += curve.x or ()
        if len({isinstance(x, str) for x in every_x if x is not None}) > 1:
            raise ValueError(f"curves {self.title!r} mix numbers and texts on the x axis; use one of them")
        return self


class Scatter(_Plane):
    """Points, each with an optional label (shown on hover) and group (shown by colour and shape).

    Parameters
    ----------
    x : numbers, or names, at which groups stand side by side
    x_low, x_high, y_low, y_high : limits of each point's intervals, if any
    boxes : draw quartiles and median of every group at every name
    hollow : groups drawn with hollow marks because they do not count
    """

    kind: Literal["scatter"] = "scatter"
    x: tuple[float | str | None, ...]
    y: Numbers
    label: tuple[Text, ...] = ()
    group: tuple[Text, ...] = ()
    hollow: tuple[Text, ...] = ()
    x_low: Numbers = ()
    x_high: Numbers = ()
    y_low: Numbers = ()
    y_high: Numbers = ()
    boxes: bool = False

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for axis, low, high in (("x", self.x_low, self.x_high), ("y", self.y_low, self.y_high)):
            if bool(low) != bool(high):
                raise ValueError(f"scatter {self.title!r} has only one limit along {axis}; give both low and high, or neither")
            if any(isinstance(x, str) for x in self.x) and axis == "x" and low:
                raise ValueError(f"scatter {self.title!r} has names along x, which have no intervals; leave x_low and x_high out")
            _in_order(f"{axis} of scatter {self.title!r}", low, high)
        for what in ("y", "label", "group", "x_low", "x_high", "y_low", "y_high"):
            values = getattr(self, what)
            if values or what == "y":
                _same_length(f"{what} of scatter {self.title!r}", values, "x values", self.x)
        return self


class Heatmap(_Exhibit):
    """A grid of values, alone or over a picture.

    Parameters
    ----------
    values : (rows, columns); numbers with limits, such as intervals, bring their own low and high
    low, high : (rows, columns) limits of the intervals, if any; a cell whose interval contains `centre` is marked
    background : PNG bytes, base64 text or an image array (at most 512 pixels) under the grid, which covers it exactly
    scale : "diverging" has two colours that part at `centre`
    """

    kind: Literal["heatmap"] = "heatmap"
    values: tuple[Numbers, ...]
    low: tuple[Numbers, ...] = ()
    high: tuple[Numbers, ...] = ()
    row_labels: tuple[Text, ...] = ()
    col_labels: tuple[Text, ...] = ()
    row_title: str = ""
    col_title: str = ""
    value_label: str = ""
    background: str | None = None
    scale: Literal["sequential", "diverging"] = "sequential"
    centre: float = 0.0

    @model_validator(mode="before")
    @classmethod
    def _encode_background(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and given.get("background") is not None:
            return {**given, "background": png(given["background"], BACKGROUND_PIXELS)}
        return given

    @model_validator(mode="before")
    @classmethod
    def _take_limits(cls, given: Any) -> Any:
        rows = given.get("values") if isinstance(given, Mapping) else None
        if not isinstance(rows, list | tuple) or not rows or not _have_limits(rows[0]):
            return given
        values, low, high = zip(*map(_values_and_limits, rows), strict=True)
        return {**given, "values": values, "low": low, "high": high}

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not self.values or not self.values[0]:
            raise ValueError(f"heatmap {self.title!r} has no values; leave the exhibit out")
        for number, row in enumerate(self.values):
            _same_length(f"row {number} of heatmap {self.title!r}", row, "columns", self.values[0])
        if bool(self.low) != bool(self.high):
            raise ValueError(f"heatmap {self.title!r} has only one limit of its intervals; give both low and high, or neither")
        for what, limits in (("low", self.low), ("high", self.high)) if self.low else ():
            _same_length(f"{what} of heatmap {self.title!r}", limits, "rows", self.values)
            for number, row in enumerate(limits):
                _same_length(f"row {number} of {what} of heatmap {self.title!r}", row, "columns", self.values[0])
        if self.row_labels:
            _same_length(f"row_labels of heatmap {self.title!r}", self.row_labels, "rows", self.values)
        if self.col_labels:
            _same_length(f"col_labels of heatmap {self.title!r}", self.col_labels, "columns", self.values[0])
        return self


class Picture(_Data):
    """One small image of a gallery.

    Parameters
    ----------
    png : PNG bytes, base64 text, or an array (h, w) or (h, w, c), uint8 or float in [0, 1], which is shrunk to 128 pixels
    values : numbers by which a reader can sort the gallery
    """

    png: str
    caption: Text = ""
    values: dict[str, Number] = {}
    group: Text = ""

    @model_validator(mode="before")
    @classmethod
    def _encode(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and "png" in given:
            return {**given, "png": png(given["png"], PICTURE_PIXELS)}
        return given


class Gallery(_Exhibit):
    """At most 60 small pictures; `sort` names the value by which they are sorted at first, largest first."""

    kind: Literal["gallery"] = "gallery"
    items: Annotated[tuple[Picture, ...], Field(max_length=MAX_PICTURES)]
    sort: str = ""

    @model_validator(mode="after")
    def _sort_is_known(self) -> Self:
        known: set[str] = set()
        for item in self.items:
            known.update(item.values)
        if self.sort and self.items and self.sort not in known:
            raise ValueError(f"gallery {self.title!r} is sorted by {self.sort!r} but its pictures have {sorted(known)}")
        return self


Exhibit: TypeAlias = Annotated[Table | Bars | Curves | Scatter | Heatmap | Gallery, Field(discriminator="kind")]


# -------------------------------------------------------------------------------------------------------------------- finding


def versions() -> dict[str, str]:
    """Installed versions of the packages that a result may depend on; none of them is imported."""
    found = {}
    for name in ("rightreasons", "numpy", "scipy", "scikit-learn", "pandas", "torch", "timm"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {"python": platform.python_version(), **found}


FORMAT = 2  # of a finding's file; 1 held its circumstances too
CIRCUMSTANCES = "circumstances"  # the folder beside `findings` with what may differ between two equal runs


class Finding(_Data):
    """What one audit found, complete enough to be shown, checked and repeated.

    Parameters
    ----------
    format : of the file that it is written to
    name : the audit's table in the study; also the name of the file
    row : the row of evidence in which the verdict counts
    verdict : None for an audit that only describes, and for one that did not run
    sentence : the verdict in one plain sentence
    estimates : the page shows the first one beside the verdict
    settings : all settings, defaults included
    not_run : why the audit did not run, if it was asked for and could not
    lacks : the missing data for which it did not run, as a word that code can ask for; empty where it is something else
    standing : how its verdict counts: `intervention` changed the cue itself; `guard` can tell use of the attribute from an
        attribute that goes with the label's look; any other verdict is a `vote`
    alike : findings with the same word measure nearly the same number and share one vote
    unevenness : which kinds of unevenness it measured
    answers : the answers at a glance, of an audit that describes them
    versions, seconds, created : circumstances of the run, which are no part of its file
    """

    format: Literal[2] = 2
    name: Annotated[Text, Field(min_length=1)]
    audit: str
    question: str
    row: Row
    verdict: Verdict = None
    sentence: str = ""
    estimates: tuple[Estimate, ...] = ()
    checks: tuple[Check, ...] = ()
    exhibits: tuple[Exhibit, ...] = ()
    settings: dict[str, Any] = {}
    model: str = ""
    cohort: str = ""
    attribute: str = ""
    n_rows: Annotated[int, Field(ge=0)] | None = None
    n_subjects: Annotated[int, Field(ge=0)] | None = None
    versions: dict[str, str] = Field(default_factory=versions)
    seed: int | None = None
    seconds: Number = None
    not_run: str = ""
    lacks: Lack = ""
    standing: Standing = "vote"
    alike: str = ""
    unevenness: tuple[Unevenness, ...] = ()
    answers: Answers | None = None
    created: str = Field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    SUFFIX: ClassVar[str] = ".json"
    _OF_THE_RUN: ClassVar[tuple[str, ...]] = ("created", "seconds", "versions")

    @model_validator(mode="before")
    @classmethod
    def _settings_are_finite(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and isinstance(given.get("settings"), Mapping):
            return {**given, "settings": _finite(plain(given["settings"]), [], replace=str)}
        return given

    @model_validator(mode="after")
    def _verdict_is_earned(self) -> Self:
        if self.not_run and self.verdict is not None:
            raise ValueError(f"finding {self.name!r} did not run ({self.not_run}) and cannot have the verdict {self.verdict!r}")
        if not self.not_run and not self.sentence:
            raise ValueError(f"finding {self.name!r} has no sentence; say the verdict in one plain sentence")
        if self.verdict == "shortcut" and all(estimate.value is None for estimate in self.estimates):
            raise ValueError(
                f"finding {self.name!r} says 'shortcut' without one defined estimate; give it, or say 'inconclusive'"
            )
        return self

    def to_json(self) -> str:
        """What its file holds: all but the circumstances of the run."""
        return _as_text(self.model_dump(mode="json", exclude=set(self._OF_THE_RUN)))

    @classmethod
    def from_json(cls, text: str | bytes, circumstances: Mapping[str, Any] | None = None) -> Self:
        """What `to_json` gave, with the circumstances of its run where they are known.

        A file of format 1 has them itself.
        """
        try:
            told = json.loads(text)
            if isinstance(told, dict):
                known_format(told.get("format"), FORMAT, "the finding")
                unknown: dict[str, Any] = {"created": "", "seconds": None, "versions": {}}
                told = {**unknown, **told, "format": FORMAT, **(circumstances or {})}
            return cls.model_validate(told)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "the file"
            count = error.error_count()
            more = ""
            if count != 1:
                more = f" (the first of {count} problems)"
            raise DataError(f"not a finding: {where}: {first['msg']}{more}") from error
        except DataError:
            raise
        except (ValueError, RecursionError) as error:
            raise DataError(f"not a finding: the text is not JSON ({why(error)})") from error

    def save(self, folder: str | Path) -> Path:
        """Write `folder/findings/<name>.json` and `folder/circumstances/<name>.json`, whole or not at all; returns the first."""
        name = file_name(self.name) + self.SUFFIX
        write(Path(folder) / CIRCUMSTANCES / name, _as_text(self.model_dump(mode="json", include=set(self._OF_THE_RUN))))
        return write(Path(folder) / "findings" / name, self.to_json())

    @classmethod
    def read(cls, path: str | Path) -> Self:
        place = Path(path)
        try:
            return cls.from_json(read_bytes(path), cls._circumstances(place.parent.parent / CIRCUMSTANCES / place.name))
        except OSError as error:
            raise DataError(f"the finding {str(path)!r} cannot be read: {error.strerror or error}") from error
        except DataError as error:
            raise DataError(f"{str(path)!r}: {error}") from error

    @classmethod
    def _circumstances(cls, file: Path) -> dict[str, Any]:
        """What the file beside a finding tells of its run; nothing where there is none."""
        try:
            told = json.loads(read_bytes(file))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except DataError:
            raise
        except (ValueError, RecursionError) as error:
            raise DataError(f"its circumstances in {file} are not JSON ({why(error)}): delete that file to do without") from error
        if not isinstance(told, dict) or set(told) - set(cls._OF_THE_RUN):
            raise DataError(f"its circumstances in {file} are not {', '.join(cls._OF_THE_RUN)}: delete that file to do without")
        return told

    @classmethod
    def read_all(cls, folder: str | Path) -> list[Self]:
        """Every finding in `folder/findings`, or in `folder` itself if it has no such subfolder, sorted by file name."""
        inner = Path(folder) / "findings"
        paths = sorted((inner if inner.is_dir() else Path(folder)).glob("*" + cls.SUFFIX))
        if not paths:
            raise DataError(f"no findings (*{cls.SUFFIX}) in {str(folder)!r}; run an audit first, or name the folder with them")
        return [cls.read(path) for path in paths]

    @classmethod
    def schema(cls) -> dict[str, Any]:  # type: ignore[override]
        """JSON Schema of the file."""
        told = cls.model_json_schema(mode="serialization")
        told["properties"] = {name: of for name, of in told["properties"].items() if name not in cls._OF_THE_RUN}
        told["required"] = [name for name in told["required"] if name not in cls._OF_THE_RUN]
        return told

    @property
    def headline(self) -> str:
        """The verdict in a word or two."""
        if self.not_run:
            return "not run"
        return self.verdict or "described"

    def one_line(self) -> str:
        """For a terminal: name, verdict, sentence and the first estimate."""
        if self.not_run:
            line = f"{self.name}: not run: {self.not_run}"
        else:
            first = ""
            if self.estimates:
                first = f" [{self.estimates[0]}]"
            line = f"{self.name}: {self.headline.upper()}: {self.sentence}{first}"
        return as_line(line)

    def _repr_html_(self) -> str:
        states = {True: "passed", False: "failed", None: "unknown"}
        rows = [(e.name, _interval(e), _p(e.p), e.note) for e in self.estimates]
        for check in self.checks:
            rows.append((check.name, states[check.passed], "", check.note))
        if self.not_run:
            sentence = f"not run: {self.not_run}"
        else:
            sentence = self.sentence
        return as_html((self.headline, self.row, self.question), sentence, rows)


def not_run(name: str, audit: str, question: str, row: Row, reason: str, **fields: Any) -> Finding:
    """The finding of an audit that was asked for and did not run, with the reason that the page shows."""
    if not reason.strip():
        raise DataError(f"finding {name!r} did not run and gives no reason; give one")
    return Finding(name=name, audit=audit, question=question, row=row, not_run=reason, **fields)


def plain(value: Any) -> Any:
    """Numpy, torch and pandas values, paths, dates and dataclasses as plain Python data: what JSON can hold, and NaN."""
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, str):  # a name from the file system may hold lone surrogates, which UTF-8 cannot
        return str.__str__(value).encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, BaseModel):
        return value
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in value), key=lambda item: (str(type(item)), item))
    return _plain_object(value)


def _plain_object(value: Any) -> Any:
    if isinstance(value, Enum):
        return plain(value.value)
    if callable(getattr(value, "tolist", None)):  # arrays and scalars of numpy, torch and pandas
        return plain(value.tolist())
    if isinstance(value, os.PathLike):
        return plain(os.fspath(value))
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return _plain_number_or_list(value)


def _plain_number_or_list(value: Any) -> Any:
    if isinstance(value, float | int):  # of a subclass
        if isinstance(value, float):
            return float(value)
        return int(value)
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    raise ValueError(f"{value!r} of type {type(value).__name__} cannot be written into a finding; give numbers, texts or lists")


def _finite(value: Any, undefined: list[str], replace: Callable[[float], Any] | None = None) -> Any:
    """Plain data with None, or `replace(value)`, for NaN and infinity; `undefined` collects which of the two each was."""
    if isinstance(value, float) and not math.isfinite(value):
        undefined.append("not a number" if math.isnan(value) else "infinite")
        if replace is None:
            return None
        return replace(value)
    if isinstance(value, dict):
        return {key: _finite(item, undefined, replace) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item, undefined, replace) for item in value]
    return value


def _as_text(told: Any) -> str:
    return json.dumps(told, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def _same_length(what: str, values: Any, other: str, reference: Any) -> None:
    if len(values) != len(reference):
        raise ValueError(f"{what} has {len(values)} value(s) but there are {len(reference)} {other}")


def _in_order(what: str, low: Numbers, high: Numbers) -> None:
    for number, (below, above) in enumerate(zip(low, high)):
        if below is not None and above is not None and below > above:
            raise ValueError(f"{what}: low {below} lies above high {above} at position {number}; swap them")


def file_name(name: str) -> str:
    """A file name that every system accepts: special characters as %XX, long names cut and given a hash."""
    encoded = re.sub(r'[\x00-\x1f/\\:*?"<>|%\x7f]', lambda match: f"%{ord(match.group()):02X}", name)
    if encoded.startswith((".", " ")):
        encoded = f"%{ord(encoded[0]):02X}" + encoded[1:]
    if len(encoded.encode()) <= 180:
        return encoded
    return encoded.encode()[:150].decode("utf-8", "ignore") + "~" + hashlib.blake2b(name.encode(), digest_size=8).hexdigest()


def _have_limits(numbers: Any) -> bool:
    return isinstance(numbers, list | tuple) and bool(numbers) and hasattr(numbers[0], "low")


def _values_and_limits(numbers: Sequence[WithLimits]) -> tuple[list[Number], list[Number], list[Number]]:
    values, low, high = [], [], []
    for number in numbers:
        values.append(number.value)
        low.append(number.low)
        high.append(number.high)
    return values, low, high


def _short(value: float) -> str:
    if 0.001 <= abs(value) < 1000 or value == 0:
        return f"{value:.3f}"
    return f"{value:.3g}"


def _p(p: float | None) -> str:
    if p is None:
        return ""
    if p < 0.001:
        return "p < 0.001"
    return f"p = {p:.3f}"


def _interval(estimate: Estimate) -> str:
    if estimate.value is None:
        return f"undefined ({estimate.reason})"
    limits = []
    for limit in (estimate.low, estimate.high):
        limits.append("?" if limit is None else _short(limit))
    interval = ""
    if limits != ["?", "?"]:
        interval = f" [{limits[0]}, {limits[1]}]"
    return f"{_short(estimate.value)}{interval}"
