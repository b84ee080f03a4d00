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
    circumstances/<name>.json                 when a finding was made, in how many seconds, with which versions
    seal.json                                 the hash of every file, written last

Every file is written under another name and renamed, so that it is whole wherever it is seen.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import ValidationError

from rightreasons import families
from rightreasons.audits import Need, needs_of
from rightreasons.data.cohort import Cohort
from rightreasons.display import table
from rightreasons.errors import DataError
from rightreasons.evidence import Evidence
from rightreasons.families import suggest
from rightreasons.files import read_json, replacing, write_json
from rightreasons.findings import CIRCUMSTANCES, Finding, file_name
from rightreasons.findings.preflight import Preflight
from rightreasons.measurements import load_measurement, measured_class
from rightreasons.stored import known_format
from rightreasons.study import roles
from rightreasons.study.plan import BROUGHT, Calibration, Plan
from rightreasons.study.plan import FORMAT as PLAN_FORMAT

ASKED, PLAN, RUN, ROW = "study.toml", "plan.json", "run.json", "row.json"
TABLE, CONCLUDED = "table.parquet", "concluded.json"
PLANNED, RUNNING, DONE, FAILED = "planned", "running", "done", "failed"
EXTRACTED = "predictions/extracted.json"  # of a unit: what its evidence was extracted for
TIME = "time_"  # how columns that hold times begin


@dataclass
class Held:
    """What the process that made a study has in memory: a brought model and rows need not lie in the study's folder.

    Attributes
    ----------
    models : unit → the model that was brought
    cohorts : by name
    data : the rows as they were read, before the study added anything to them
    errors : unit → the error that ended it in this process
    first_look : the preflight by a sample of a brought model's rows
    """

    models: dict[str, Any] = field(default_factory=dict)
    cohorts: dict[str, Cohort] = field(default_factory=dict)
    data: Cohort | None = None
    errors: dict[str, Exception] = field(default_factory=dict)
    first_look: Preflight | None = None


class Study:
    """A folder that `rightreasons sweep` wrote, whole or not yet."""

    def __init__(self, folder: Path, plan: Plan, held: Held | None = None) -> None:
        self.folder = folder
        self.plan = plan
        self.held = held or Held()

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Study:
        place = Path(folder)
        if not (place / PLAN).is_file():
            raise DataError(f"no study in {place} ({PLAN} is missing): make one with rightreasons sweep STUDY.toml --out {place}")
        return cls(place, read_plan(place / PLAN))

    def __repr__(self) -> str:
        counts = pd.Series([self.status(unit) for unit in self.units], dtype=object).value_counts()
        return f"<Study {self.name}: {len(self.units)} units, {', '.join(f'{n} {status}' for status, n in counts.items())}>"

    def _repr_html_(self) -> str:
        """For notebooks: how far each group of units that differ in the seed alone is."""
        groups = self.groups().items()
        rows = []
        for key, units in groups:
            rows.append((" ".join(key), len(units), sum(self.status(u) == DONE for u in units)))
        return table(f"Study {self.name}", ("units", "seeds", "done"), rows)

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def units(self) -> tuple[str, ...]:
        """Ids of the units that the plan asks for, sorted."""
        return tuple(sorted(self.plan.units))

    def path(self, unit: str) -> Path:
        """The folder of a unit."""
        if unit not in self.plan.units:
            raise DataError(f"study {self.name!r} has no unit {unit!r}; {suggest(unit, self.units)}")
        return self.folder / self.plan.place(unit)

    def paths(self, units: Iterable[str]) -> list[Path]:
        return [self.path(unit) for unit in units]

    def run(self, unit: str) -> dict[str, Any]:
        """The unit's run.json; of one that was never begun, its plan alone."""
        file = self.path(unit) / RUN
        record = _read(file)
        if record is None:
            return {"status": PLANNED, "plan": self.plan.units[unit].model_dump(mode="json"), "attempts": []}
        is_whole = (
            isinstance(record, dict) and isinstance(record.get("status"), str) and _is_list_of_tables(record.get("attempts"))
        )
        if not is_whole or not isinstance(record.get("error") or {}, dict):
            raise DataError(f"{file} does not say how far its unit is: remove it, and rightreasons sweep makes it again")
        return dict(record)

    def row(self, unit: str) -> dict[str, Any] | None:
        """The unit's row of the table, None before it is done (or where the audits asked for have changed since)."""
        file = self.path(unit) / ROW
        row = _read(file)
        if row is not None and not (isinstance(row, dict) and isinstance(row.get("columns"), dict) and "measured" in row):
            raise DataError(f"{file} is no row of a table: remove it, and rightreasons sweep makes it again")
        return row if row is not None and row["measured"] == self.plan.measured else None

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
        missing = []
        if self.plan.units[unit].method != BROUGHT and not (place / "model" / "model.json").exists():
            missing.append("train")
        if not (place / EXTRACTED).exists():
            missing.append("extract")
        return (*missing, "measure")

    def external(self, unit: str | None = None) -> tuple[str, ...]:
        """Cohorts from elsewhere; those that a unit is evaluated on have the column that it predicts."""
        if unit is not None and self.plan.brought not in ("", unit):
            return ()  # what a brought model is compared with is not judged elsewhere
        target = None
        if unit:
            target = self.plan.units[unit].target
        return tuple(name for name in self.plan.external if not target or target in self.plan.cohorts[name].attributes)

    def needs(self, unit: str | None = None) -> list[Need]:
        """Every array that audits read of a unit (by default of any), and the logits of internal and external test rows."""
        needs: dict[Need, None] = {}
        for name, audit in self.plan.audits.items():
            played = None
            if unit is not None:
                played = self.roles(unit, name)
            if played == ():
                continue
            for need in needs_of([audit.method], {audit.method: self.settings(name)}):
                if played is None or need.role in played:
                    needs[need] = None
        for name in ("test", *self.external(unit)):
            needs[Need("test", name, "logits")] = None
        return list(needs)

    def roles(self, unit: str, audit: str) -> tuple[str, ...]:
        """The roles that a unit has in an audit; none where the audit does not look at it."""
        return roles.plays(self.plan.audits[audit], self.plan.units[unit], self.plan.references)

    def waits_for(self, unit: str) -> tuple[str, ...]:
        """Units whose models a unit starts from or reads."""
        planned = self.plan.units[unit]
        others_needed = [planned.start, *(other for others in planned.references.values() for other in others)]
        for calibration in self.calibrations_of(unit):
            others_needed += [calibration.baseline, calibration.reference]
        return tuple(other for other in dict.fromkeys(others_needed) if other and other != self.plan.brought)

    def calibrations_of(self, unit: str) -> list[Calibration]:
        """The calibrations whose severities a unit's method trains with."""
        file = self.plan.units[unit].train.get("severities")
        return [calibration for calibration in self.plan.severities.values() if calibration.file == file]

    def settings(self, audit: str) -> dict[str, Any]:
        """Settings of an audit, with the place of the study's severities where it reads them, None before they are made."""
        settings = self.plan.audits[audit].settings
        if not any(calibration.file == settings.get("severities") for calibration in self.plan.severities.values()):
            return settings
        place = self.folder / settings["severities"]
        return {**settings, "severities": str(place) if place.exists() else None}

    @property
    def table(self) -> pd.DataFrame:
        """One row for each unit, sorted by id: its plan and every measurement; columns that hold times begin with `time_`."""
        rows = []
        for unit in self.units:
            row = self.row(unit)
            rows.append({**self.plan.units[unit].columns, "status": self.status(unit)} if row is None else row["columns"])
        frame = pd.DataFrame(rows, index=pd.Index(self.units, name="unit")).reset_index()
        times = [c for c in frame.columns if str(c).startswith(TIME)]
        return frame[[c for c in frame.columns if c not in times] + sorted(times)]

    def findings(self) -> list[Finding]:
        return [Finding.read(file) for file in sorted((self.folder / "findings").glob("*" + Finding.SUFFIX))]

    def concluded(self) -> list[Finding]:
        """The findings in the order in which they were concluded, as a page shows them."""
        names = read_json(self.folder / CONCLUDED)["files"]
        return [Finding.read(self.folder / "findings" / name) for name in names]

    def evidence(self, unit: str) -> Evidence:
        return Evidence.open(self.path(unit) / "evidence")

    def predictions(self, unit: str, cohort: str = "test") -> pd.DataFrame:
        return pd.read_parquet(self.path(unit) / "predictions" / f"{cohort}.parquet")

    def cohort(self, name: str) -> Cohort:
        """A training set or external cohort of the study."""
        if name in self.held.cohorts:
            return self.held.cohorts[name]
        known = self.plan.cohorts
        if name not in known:
            raise DataError(f"study {self.name!r} has no cohort {name!r}; {suggest(name, known)}")
        root = self.folder / known[name].root  # an absolute one stays as it is
        return Cohort.read(self.folder / "cohorts" / f"{name}.parquet", root=root, name=name)

    def groups(self) -> dict[tuple[str, ...], list[str]]:
        """Units that differ in nothing but the seed: (architecture, regime, setting=value …) → units, by seed."""
        groups: dict[tuple[str, ...], list[str]] = {}
        for unit, plan in sorted(self.plan.units.items(), key=lambda item: (item[1].seed, item[0])):
            key = (plan.architecture, plan.regime, *(f"{k}={v}" for k, v in sorted(plan.axes.items())))
            groups.setdefault(key, []).append(unit)
        return dict(sorted(groups.items()))

    def measurement(self, unit: str, audit: str) -> Any:
        """What an audit (by the name of its table) measured of a unit."""
        return read_measurement(self.plan.audits[audit].method, self.path(unit) / "measurements" / f"{audit}.npz")

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


# ---- files ---------------------------------------------------------------------------------------------------------------


def read_plan(path: Path) -> Plan:
    """What plan.json says."""
    try:
        plan = read_json(path)
        known_format(plan.get("format") if isinstance(plan, dict) else None, PLAN_FORMAT, path)
        return Plan.model_validate(plan)
    except DataError:
        raise
    except (ValidationError, ValueError, RecursionError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise DataError(f"{path} is no plan of a study ({reason}): make it again with rightreasons sweep STUDY.toml") from error


def _is_list_of_tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def _read(path: Path) -> Any:
    """What a file holds, None where there is none; one step, for a unit's folder may be replaced while it is watched."""
    try:
        return read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def write_table(frame: pd.DataFrame, path: Path) -> Path:
    """Write Parquet under another name and rename it; a column of several kinds of value is written as text."""
    kinds = {}
    for name in frame:
        if frame[name].dtype == object:
            kinds[str(name)] = {type(v) for v in frame[name] if v is not None}
    frame = frame.assign(**{name: frame[name].map(_text) for name, of_column in kinds.items() if len(of_column) > 1})
    with replacing(path) as partial:
        frame.to_parquet(partial, index=False)
    return path


def _text(value: Any) -> str | None:
    if value is None or value != value:
        return None
    return str(value)


def save_findings(findings: Sequence[Finding], folder: Path, made_from: str = "") -> None:
    """Write findings, and remove those that an earlier run wrote and this one does not: they would speak of another question."""
    listing = folder / CONCLUDED
    names = [file_name(finding.name) + Finding.SUFFIX for finding in findings]
    for old in set(read_json(listing)["files"] if listing.exists() else ()) - set(names):
        (folder / "findings" / old).unlink(missing_ok=True)
        (folder / CIRCUMSTANCES / old).unlink(missing_ok=True)
    for finding in findings:
        finding.save(folder)
    write_json(listing, {"made_from": made_from, "files": names})


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@contextmanager
def locked(places: Iterable[Path], name: str = "lock") -> Iterator[None]:
    """Lock the folders of units, or with another `name` a part of them, for this process.

    A process that dies lets go; one that finds them held waits and then sees what was done.
    """
    files = []
    try:
        for place in sorted(places):  # in one order everywhere, so that two groups cannot wait for each other
            place.mkdir(parents=True, exist_ok=True)
            files.append((place / name).open("w"))
            fcntl.flock(files[-1], fcntl.LOCK_EX)
        yield
    finally:
        for file in files:
            file.close()
