"""The rows of a study: the data with their splits, training sets made from them, cohorts from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rightreasons.data import planted
from rightreasons.data.cohort import Cohort, hash_of
from rightreasons.errors import SettingError
from rightreasons.families import refuse_unknown, settings_of, suggest
from rightreasons.stats.resampling import task_rng
from rightreasons.study.file import Data, StudyFile, TrainingSet
from rightreasons.study.keywords import full, refuse_wrong_types
from rightreasons.study.plan import DATA, CohortPlan

WORLDS: dict[str, Callable[..., Cohort]] = {"digits": planted.digits, "fundus": planted.fundus, "blobs": planted.blobs}
SPLITS = ("train", "val", "audit", "test")


def data_of(file: StudyFile, folder: Path) -> Cohort:
    """The rows that [data] and [split] describe, as they are read."""
    rows = read_source(file.data or Data(), folder / "world", file.seed, "[data]")
    if file.split is not None:
        keywords = full(file.split, rows.split, where="[split]")
        rows = rows.split(rng=task_rng(file.seed, "split"), **keywords)
    return rows


def with_roles(rows: Cohort, seed: int, *, trains: bool) -> Cohort:
    """The rows with every split that a study needs. This is the one place where a study completes splits.

    Parameters
    ----------
    trains : whether rows to train on are made where the table names none
    """
    return rows.with_roles(rng=task_rng(seed, "roles of the splits"), trains=trains)


def training_sets(file: StudyFile, data: Cohort, folder: Path) -> dict[str, Cohort]:
    """What [cohorts] describe: the data with other training rows."""
    sets: dict[str, Cohort] = {}
    for name, table in file.cohorts.items():
        if name == DATA:
            raise SettingError(f"[cohorts.{name}]: the name {name!r} is taken by [data]")
        sets[name] = training_set(name, table, data, folder, file.seed)
    return sets


def external_cohorts(file: StudyFile, folder: Path) -> dict[str, Cohort]:
    """What [external] describes; of a table with a test split, those rows."""
    cohorts = {}
    for name, table in file.external.items():
        refuse_taken_name(name, file.cohorts)
        if table.truth is not None:
            raise SettingError(f"[external.{name}] has truth: it belongs into [data], whose rows the audits compare")
        rows = read_source(table, folder / f"world-{name}", file.seed, f"[external.{name}]", folder / "world")
        cohorts[name] = rows.on("test") if rows.has("test") else rows
    return cohorts


def refuse_taken_name(name: str, training_sets: Iterable[str] = ()) -> None:
    """Refuse a name of rows from elsewhere that stands for other rows already."""
    if name in (DATA, *training_sets, *SPLITS, "twin"):
        raise SettingError(f"[external.{name}]: the name {name!r} is taken; choose another")


def read_source(table: Data, folder: Path, seed: int, where: str, first: Path | None = None) -> Cohort:
    """A cohort from a manifest, from a planted world, or (`world:NAME`) from a further manifest of the data's own world."""
    keywords = table.keywords
    if (table.world is None) == (table.manifest is None):
        raise SettingError(f"{where} needs either manifest = (a table of images) or world = (a planted one: {', '.join(WORLDS)})")
    if table.world is not None:
        if table.world not in WORLDS:
            raise SettingError(f"{where} has no world {table.world!r}; {suggest(table.world, WORLDS)}")
        settings = full(keywords, WORLDS[table.world], where=where)
        return WORLDS[table.world](folder, **{**settings, "seed": keywords.get("seed", seed)})
    manifest = str(table.manifest)
    if first is not None and manifest.startswith("world:"):
        return planted.read(first, manifest.removeprefix("world:"))
    refuse_unknown(keywords, [*settings_of(Cohort.read), "manifest", "world"], where)
    if keywords.get("weight") is not None:
        raise SettingError(
            f"{where} weight = {keywords['weight']!r}: no audit, training or mitigation weighs rows by a column; leave it out, "
            "and choose rows with [cohorts] balance or bias"
        )
    refuse_wrong_types(keywords, Cohort.read, where=where)
    return Cohort.read(manifest, **keywords)


def training_set(name: str, table: TrainingSet, data: Cohort, folder: Path, seed: int) -> Cohort:
    """The data with other `train` and `val` rows; `audit` and `test` stay what they are."""
    where = f"[cohorts.{name}]"
    ways = {key: value for key, value in table.model_dump().items() if value is not None}
    if len(ways) != 1:
        raise SettingError(f"{where} needs exactly one of redrawn, balance and bias, and has {', '.join(ways) or 'none'}")
    ((how, given),) = ways.items()
    if how == "redrawn":
        return planted.redrawn(folder / "world", draw=int(given))
    keywords = full(given, getattr(data, how), where=f"{where} {how}")
    kept = ~np.isin(np.asarray(data.splits), ("train", "val"))
    for split in ("train", "val"):
        part = data.on(split)
        if split == "train":
            scaled = keywords
        else:
            scaled = _scaled(keywords, len(part) / len(data.on("train")))
        rows = getattr(part, how)(rng=task_rng(seed, f"cohort {name} {split}"), **scaled)
        kept |= np.isin(data.id, rows.id)
    return data.select(kept, name=name)


def _scaled(keywords: Mapping[str, Any], share: float) -> dict[str, Any]:
    """Numbers of rows that were meant for `train`, for the smaller `val`."""
    scaled = dict(keywords)
    for key in ("discordant", "size"):
        value = keywords.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            scaled[key] = max(1, round(value * share))
    return scaled


# ---- what a plan says of them --------------------------------------------------------------------------------------------


def planned(cohort: Cohort, folder: Path, external: bool) -> CohortPlan:
    """A cohort as plan.json describes it."""
    root, home = cohort.root.absolute(), folder.absolute()
    sizes: dict[str, int] = {}
    if cohort.splits is not None:
        for name in np.unique(cohort.splits):
            sizes[str(name)] = int((cohort.splits == name).sum())
    return CohortPlan(
        rows=len(cohort),
        splits=sizes,
        attributes=list(cohort.attributes),
        hash=rows_hash(cohort),
        root=str(root.relative_to(home) if root.is_relative_to(home) else root),
        external=external,
    )


def rows_hash(cohort: Cohort) -> str:
    """Of everything in a cohort that decides a number: ids, images, labels, attributes, splits, weights, subjects, cases."""
    parts = [cohort.fingerprint, cohort.column_hash("label"), *(cohort.column_hash(a) for a in cohort.attributes)]
    for name in ("splits", "subject", "case", "weight", "twin"):
        column = getattr(cohort, name)
        parts.append("" if column is None else hash_of(map(str, column)))
    return hash_of(parts)


def described(cohorts: Mapping[str, Cohort], made: list[str]) -> Iterator[str]:
    """The size of every training set in `made`, and how far its numeric attributes go with the label."""
    for name in made:
        sizes = " and ".join(f"{len(cohorts[name].on(split))} {split}" for split in ("train", "val"))
        notes = [f"cohort {name}: {sizes} rows"]
        for a in map(cohorts[name].attribute, cohorts[name].attributes):
            if not any(isinstance(level, str) for level in a.levels):
                own, data = cohorts[name].on("train").gap(a.name), cohorts[DATA].on("train").gap(a.name)
                notes.append(f"gap of {a.name} between the last class and the others {own:.3g} in train ({data:.3g} in the data)")
        yield "; ".join(notes)
