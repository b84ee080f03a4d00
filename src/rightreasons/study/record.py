"""A study on disk: its units, how far each is, its table and findings. Read and written without torch.

    study.toml  plan.json                     what was asked for, and what it means with every default filled in
    cohorts/<name>.parquet                    the rows
    runs/<unit>/run.json                      status, plan, versions, attempts, times, device, error
               /model/  evidence/             what `train` and `extract` wrote
               /predictions/<cohort>.parquet  id, label, attributes, p_<class>
               /measurements/<audit>.npz      what each audit measured; performance.npz with its bootstrap distributions
               /row.json                      the unit's row of the table; there when, and only when, the unit is done
    table.parquet  summary.parquet            a row a unit; mean and interval over seeds
    panels/<audit>.json                       the models that an index is relative to, frozen
    estimates.parquet                         every estimate of every finding, over seeds and for each model alone
    findings/<name>.json  report.html

Every file is written under another name and renamed, so that it is whole wherever it is seen.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from rightreasons import families
from rightreasons.audits import Need, needs_of
from rightreasons.data.cohort import Cohort
from rightreasons.display import table
from rightreasons.errors import DataError
from rightreasons.evidence import Evidence
from rightreasons.families import suggest
from rightreasons.files import read_json, replacing, write_json
from rightreasons.findings import Finding, file_name
from rightreasons.measurements import load_measurement, measured_class
from rightreasons.study import roles

PLAN, RUN, ROW, TABLE, CONCLUDED = "plan.json", "run.json", "row.json", "table.parquet", "concluded.json"
PLANNED, RUNNING, DONE, FAILED = "planned", "running", "done", "failed"
PLAIN = "erm"  # the method that is `train` itself
TIME = "time_"  # how columns that hold times begin


class Study:
    """A folder that `rightreasons sweep` wrote, whole or not yet."""

    def __init__(self, folder: Path, plan: Mapping[str, Any]) -> None:
        self.folder = folder
        self.plan = plan

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Study:
        place = Path(folder)
        if not (place / PLAN).is_file():
            raise DataError(f"no study in {place} ({PLAN} is missing): make one with rightreasons sweep STUDY.toml --out {place}")
        return cls(place, read_json(place / PLAN))

    def __repr__(self) -> str:
        counts = pd.Series([self.status(unit) for unit in self.units], dtype=object).value_counts()
        return f"<Study {self.name}: {len(self.units)} units, {', '.join(f'{n} {status}' for status, n in counts.items())}>"

    def _repr_html_(self) -> str:
        """For notebooks: how far each group of units that differ in the seed alone is."""
        groups = self.groups().items()
        rows = [(" ".join(key), len(units), sum(self.status(u) == DONE for u in units)) for key, units in groups]
        return table(f"Study {self.name}", ("units", "seeds", "done"), rows)

    @property
    def name(self) -> str:
        return str(self.plan["name"])

    @property
    def units(self) -> tuple[str, ...]:
        """Ids of the units that the plan asks for, sorted."""
        return tuple(sorted(self.plan["units"]))

    def path(self, unit: str) -> Path:
        if unit not in self.plan["units"]:
            raise DataError(f"study {self.name!r} has no unit {unit!r}; {suggest(unit, self.units)}")
        return self.folder / "runs" / unit

    def run(self, unit: str) -> dict[str, Any]:
        """The unit's run.json; of one that was never begun, its plan alone."""
        told = _read(self.path(unit) / RUN)
        return {"status": PLANNED, "plan": self.plan["units"][unit], "attempts": []} if told is None else told

    def row(self, unit: str) -> dict[str, Any] | None:
        """The unit's row of the table, None before it is done (or where the audits asked for have changed since)."""
        row = _read(self.path(unit) / ROW)
        return row if row is not None and row["measured"] == self.plan["measured"] else None

    def status(self, unit: str) -> str:
        """planned, running (or ended without a word), done or failed."""
        if self.row(unit) is not None:
            return DONE
        status = str(self.run(unit)["status"])
        return PLANNED if status == DONE else status

    def missing(self, unit: str) -> tuple[str, ...]:
        """The steps that a unit still lacks, in order: train, extract, measure."""
        if self.row(unit) is not None:
            return ()
        place = self.path(unit)
        made = {"train": "model/model.json", "extract": "predictions/extracted.json"}
        return (*(step for step, file in made.items() if not (place / file).exists()), "measure")

    def external(self, unit: str | None = None) -> tuple[str, ...]:
        """Cohorts from elsewhere; those that a unit is evaluated on have the column that it predicts."""
        target = self.plan["units"][unit]["train"].get("target") if unit else None
        told = self.plan["cohorts"].items()
        return tuple(name for name, c in told if c["external"] and (not target or target in c["attributes"]))

    def needs(self, unit: str | None = None) -> list[Need]:
        """Every array that audits read of a unit (by default of any), and the logits of internal and external test rows."""
        found = {Need("test", name, "logits"): None for name in ("test", *self.external(unit))}
        for name, audit in self.plan["audits"].items():
            asked = needs_of([audit["method"]], {audit["method"]: self.settings(name)})
            played = None if unit is None else self.roles(unit, name)
            found.update(dict.fromkeys(need for need in asked if played is None or need.role in played))
        return list(found)

    def roles(self, unit: str, audit: str) -> tuple[str, ...]:
        """The roles that a unit has in an audit; none where the audit does not look at it."""
        return roles.plays(self.plan, self.plan["audits"][audit], self.plan["units"][unit])

    def waits_for(self, unit: str) -> tuple[str, ...]:
        """Units whose models a unit starts from or reads."""
        told = self.plan["units"][unit]
        found = [told["start"], *(other for others in told["references"].values() for other in others)]
        if self.trains_with_severities(unit):
            found += [self.plan["severities"][key] for key in ("baseline", "reference")]
        return tuple(dict.fromkeys(filter(None, found)))

    @property
    def severities(self) -> Path | None:
        """Where the severities that the study calibrates are, or will be; None where it calibrates none."""
        told = self.plan.get("severities")
        return self.folder / told["file"] if told else None

    def trains_with_severities(self, unit: str) -> bool:
        """Whether a unit's method reads the severities that the study calibrates."""
        return (
            self.severities is not None and self.plan["units"][unit]["train"].get("severities") == self.plan["severities"]["file"]
        )

    def settings(self, audit: str) -> dict[str, Any]:
        """Settings of an audit, with the place of the study's severities where it reads them, None before they are made."""
        told: dict[str, Any] = self.plan["audits"][audit]["settings"]
        place = self.severities
        if place is None or told.get("severities") != self.plan["severities"]["file"]:
            return told
        return {**told, "severities": str(place) if place.exists() else None}

    @property
    def table(self) -> pd.DataFrame:
        """A row a unit, sorted by id: its plan and every measurement; columns that hold times begin with `time_`."""
        rows = []
        for unit in self.units:
            row = self.row(unit)
            rows.append(columns(self.plan["units"][unit]) | {"status": self.status(unit)} if row is None else row["columns"])
        frame = pd.DataFrame(rows, index=pd.Index(self.units, name="unit")).reset_index()
        times = [c for c in frame.columns if str(c).startswith(TIME)]
        return frame[[c for c in frame.columns if c not in times] + sorted(times)]

    def findings(self) -> list[Finding]:
        return [Finding.read(file) for file in sorted((self.folder / "findings").glob("*" + Finding.SUFFIX))]

    def evidence(self, unit: str) -> Evidence:
        return Evidence.open(self.path(unit) / "evidence")

    def predictions(self, unit: str, cohort: str = "test") -> pd.DataFrame:
        return pd.read_parquet(self.path(unit) / "predictions" / f"{cohort}.parquet")

    def cohort(self, name: str) -> Cohort:
        """A training set or external cohort of the study."""
        known = self.plan["cohorts"]
        if name not in known:
            raise DataError(f"study {self.name!r} has no cohort {name!r}; {suggest(name, known)}")
        root = self.folder / known[name]["root"]  # an absolute one stays as it is
        return Cohort.read(self.folder / "cohorts" / f"{name}.parquet", root=root, name=name)

    def groups(self) -> dict[tuple[str, ...], list[str]]:
        """Units that differ in nothing but the seed: (architecture, regime, setting=value …) → units, by seed."""
        found: dict[tuple[str, ...], list[str]] = {}
        for unit, plan in sorted(self.plan["units"].items(), key=lambda item: (item[1]["seed"], item[0])):
            key = (plan["architecture"], plan["regime"], *(f"{k}={v}" for k, v in sorted(plan["axes"].items())))
            found.setdefault(key, []).append(unit)
        return dict(sorted(found.items()))

    def measurement(self, unit: str, audit: str) -> Any:
        """What an audit (by the name of its table) measured of a unit."""
        return read_measurement(self.plan["audits"][audit]["method"], self.path(unit) / "measurements" / f"{audit}.npz")

    def save_table(self) -> Path:
        """Write table.parquet."""
        return write_table(self.table, self.folder / TABLE)


@dataclass(frozen=True)
class Unmeasured:
    """In place of a measurement: the audit could not run on this unit."""

    not_run: str
    lacks: str = ""


def read_measurement(method: str, path: Path) -> Any:
    """A measurement, as the class of the audit's file that it was saved as; `Unmeasured` where the audit could not run."""
    kind = measured_class(path)
    if kind == Unmeasured.__qualname__:
        return load_measurement(Unmeasured, path)
    return load_measurement(getattr(families.member("audits", method), kind), path)


def columns(plan: Mapping[str, Any]) -> dict[str, Any]:
    """A unit's plan as columns of the table."""
    named = {key: plan[key] for key in ("architecture", "regime", "seed", "cohort", "method", "start")}
    settings = {f"train_{key}": value for key, value in sorted(plan["train"].items()) if key not in ("seed", "regime")}
    return {**named, **settings, "threads": plan["threads"], "batched": len(plan["batched"])}


# ---- files ---------------------------------------------------------------------------------------------------------------


def _read(path: Path) -> Any:
    """What a file holds, None where there is none; one step, for a unit's folder may be replaced while it is watched."""
    try:
        return read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def write_table(frame: pd.DataFrame, path: Path) -> Path:
    """Write Parquet under another name and rename it; a column of several kinds of value is written as text."""
    kinds = {str(name): {type(v) for v in frame[name] if v is not None} for name in frame if frame[name].dtype == object}
    frame = frame.assign(**{name: frame[name].map(_text) for name, found in kinds.items() if len(found) > 1})
    with replacing(path) as partial:
        frame.to_parquet(partial, index=False)
    return path


def _text(value: Any) -> str | None:
    return None if value is None or value != value else str(value)


def save_findings(findings: Sequence[Finding], folder: Path) -> None:
    """Write findings, and remove those that an earlier run wrote and this one does not: they would speak of another question."""
    told = folder / CONCLUDED
    names = [file_name(finding.name) + Finding.SUFFIX for finding in findings]
    for old in set(read_json(told)["files"] if told.exists() else ()) - set(names):
        (folder / "findings" / old).unlink(missing_ok=True)
    for finding in findings:
        finding.save(folder)
    write_json(told, {"made_from": "", "files": names})


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@contextmanager
def locked(folder: Path, units: Sequence[str], name: str = "lock") -> Iterator[None]:
    """Hold units, or with another `name` a part of them, for oneself.

    A process that dies lets go; one that finds them held waits and then sees what was done.
    """
    files = []
    try:
        for unit in sorted(units):  # in one order everywhere, so that two groups cannot wait for each other
            place = folder / "runs" / unit
            place.mkdir(parents=True, exist_ok=True)
            files.append((place / name).open("w"))
            fcntl.flock(files[-1], fcntl.LOCK_EX)
        yield
    finally:
        for file in files:
            file.close()
