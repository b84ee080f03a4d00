"""Rows of worlds in one small Parquet file, and tables of them by kind, cue, network and check, without running anything.

python -m benchmarks.worlds.kept build/worlds/seed-1 build/worlds/seed-2    # writes benchmarks/worlds/rows.parquet
python -m benchmarks.worlds.kept                                            # prints its tables
python -m benchmarks.worlds.kept --by cue                                   # or base, architecture, kept, kind, …
python -m benchmarks.worlds.kept --checks                                   # which conditions fail, how often
python -m benchmarks.worlds.kept --page docs/calibration-confounding.md     # writes the page, and the rates that ship
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from benchmarks.worlds import outside, tables
from benchmarks.worlds.page import markdown, rewritten
from benchmarks.worlds.tables import Cells

from rightreasons.calibration import CASE, Rate, Rates, calibration
from rightreasons.calibration import FILE as CALIBRATION

FILE = Path(__file__).with_name("rows.parquet")
FAMILIES = ("planted", "real")
NULLS = ("presentation", "proxy", "independent", "encoded, unused", "harder group", "no cue")
CLEARED = ("presentation", "proxy")  # nulls of which most should be cleared, not left open
MOST_ALARMS, MOST_LIMIT, FEWEST_CLEARED = 0.05, 0.08, 0.6
POWER = ((0.2, 1.01, 0.95), (0.1, 0.2, 0.7))  # from a reliance, to it, share to be called
LEFT_ALONE = 0.05  # true reliance below which answers hardly change with what a null's network was shown
ESTIMATES = 4  # of every finding
DIGITS = 3
DROPPED = (" seconds", "world seconds", "cues")
BESIDE = (tables.JOINT, tables.WITH_TWINS, "flips")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.worlds.kept", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="*", help="of worlds that were run; their rows replace those that are kept")
    parser.add_argument("--file", type=Path, default=FILE)
    parser.add_argument("--by", default="kind", help="column of the tables")
    parser.add_argument("--checks", action="store_true", help="conditions that failed, by audit and kind")
    parser.add_argument("--page", type=Path, help="page whose tables are written anew, with the rates that ship")
    given = parser.parse_args(arguments)
    if given.folders:
        keep([outside.joined(_run(folder), folder) for folder in given.folders], given.file)
    rows = read(given.file)
    if given.page:
        given.page.write_text(rewritten(given.page.read_text(), parts(rows)))
        ship(rows)
    elif given.checks:
        show(checks(rows))
    else:
        show(cells for family in FAMILIES for cells in told(rows[rows["family"] == family], given.by, family))
        show([("What was asked for", demands(rows))])


def show(found: Iterable[tuple[str, Cells]]) -> None:
    for title, (head, body) in found:
        tables._print(title, head, body)


# ---- the page ------------------------------------------------------------------------------------------------------------

SHIPPED = (CASE, "pull", "excess", "art")
WORLDS = "worlds that confound, planted and real"


def parts(rows: pd.DataFrame) -> dict[str, str]:
    """Name of a marker → Markdown that belongs after it."""
    models = rows.groupby(["world", "model"]).ngroups
    found = {
        "rows": f"{len(rows)} audits of {models} models in {rows['world'].nunique()} worlds; "
        f"{int(rows['is_null'].sum())} of them are audits of an attribute that the model does not use.",
        "demands": markdown(*demands(rows)),
    }
    for family in FAMILIES:
        of = rows[rows["family"] == family]
        nulls, others = of[of["is_null"]], of[~of["is_null"]]
        found[f"{family} nulls"] = markdown(*null_table(nulls, "kind"))
        found[f"{family} power"] = markdown(*power_table(others))
        found[f"{family} ranking"] = markdown(*ranking_table(of))
    return found


def ship(rows: pd.DataFrame) -> None:
    """The rates of the case and of the audits whose rules these worlds measure, into the file that pages read."""
    shipped = calibration()
    judges = dict(shipped.judges)
    for judge in SHIPPED:
        own = rows[rows[f"{judge} verdict"].notna()]
        others = own[~own["is_null"] & (own["reliance"] >= tables.RELIES)]
        open_share = float(own[f"{judge} verdict"].isin(tables.OPEN).mean())
        judges[judge] = Rates(
            worlds=WORLDS, alarms=_rate(own[own["is_null"]], judge), power=_rate(others, judge), inconclusive=round(open_share, 4)
        )
    made = shipped.model_copy(update={"judges": judges})
    CALIBRATION.write_text(made.model_dump_json(indent=1) + "\n")


def _rate(rows: pd.DataFrame, judge: str) -> Rate:
    found = tables.rate(rows, judge)
    return Rate(n=found["n"], called=found["called"], low=round(found["low by world"], 4), high=round(found["high by world"], 4))


# ---- the file ------------------------------------------------------------------------------------------------------------


def _run(folder: Path) -> pd.DataFrame:
    rows = [row for path in sorted(folder.glob("*.json")) for row in json.loads(path.read_text())]
    if not rows:
        raise SystemExit(f"no worlds in {folder}; run `make bench NAME=worlds` first")
    return pd.DataFrame(rows)


def keep(found: Sequence[pd.DataFrame], file: Path) -> None:
    """Every verdict, estimate and failed check; numbers to three digits, the first estimates of every finding, no timings."""
    rows = pd.concat(found, ignore_index=True)
    rows = rows.drop(columns=[c for c in rows if c.endswith(DROPPED)])
    for column in rows:
        if column.endswith(" estimates"):
            rows[column] = [_text([e[:4] for e in of[:ESTIMATES]]) if isinstance(of, list) else None for of in rows[column]]
        elif rows[column].map(lambda value: isinstance(value, list | dict | tuple)).any():
            rows[column] = [None if value is None or value is np.nan else _text(value) for value in rows[column]]
        elif rows[column].dtype == np.float64:
            rows[column] = [_short(value) for value in rows[column]]
            rows[column] = rows[column].astype(np.float32)
        elif rows[column].dtype == object:
            kinds = {type(value) for value in rows[column].dropna()}
            rows[column] = rows[column].astype("boolean" if kinds == {bool} else "category" if kinds == {str} else object)
    rows.to_parquet(file, compression="zstd", index=False)
    print(f"{file}: {len(rows)} rows of {rows['world'].nunique()} worlds, {file.stat().st_size / 1e6:.2f} MB")


def read(file: Path = FILE) -> pd.DataFrame:
    """The kept rows, as the tables take them."""
    rows = pd.read_parquet(file)
    for column in rows:
        if column.endswith((" estimates", " failed")):
            rows[column] = [json.loads(value) if isinstance(value, str) else None for value in rows[column]]
        elif isinstance(rows[column].dtype, pd.CategoricalDtype):
            rows[column] = rows[column].astype(object)
    return rows


def _text(value: Any) -> str:
    return json.dumps(_short(value), separators=(",", ":"))


def _short(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_short(v) for v in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) and np.isfinite(value) else value


# ---- tables --------------------------------------------------------------------------------------------------------------


def told(rows: pd.DataFrame, by: str, family: str) -> list[tuple[str, Cells]]:
    """Nulls and power of one family."""
    if not len(rows):
        return []
    nulls, others = rows[rows["is_null"]], rows[~rows["is_null"]]
    return [
        (f"{family}: nulls by {by}", null_table(nulls, by)),
        (f"{family}: called, by true reliance", power_table(others)),
        (f"{family}: called at a true reliance of {tables.RELIES:g} or more, by {by}", power_by(others, by)),
        (f"{family}: AUROC for a true reliance of {tables.RELIES:g} or more", ranking_table(rows)),
    ]


def judges_of(rows: pd.DataFrame) -> list[str]:
    return [*tables.judges(rows), *(name for name in BESIDE if f"{name} verdict" in rows)]


def null_table(nulls: pd.DataFrame, by: str) -> Cells:
    """Of every group of nulls: how many the case calls and clears, and how many each audit calls."""
    audits = [name for name in judges_of(nulls) if name != CASE]
    body = []
    for group, of in nulls.groupby(by):
        case = tables.rate(of[of[f"{CASE} verdict"].notna()], CASE)
        unmoved = of[of["reliance"] < LEFT_ALONE]
        body.append([
            str(group), f"{len(of)} of {of['world'].nunique()}", f"{of['reliance'].mean():.3f}", tables._limits(case),
            tables._interval(case, "low by world", "high by world"), _of(unmoved, CASE), _cleared(of),
            *(_of(of, name) for name in audits),
        ])  # fmt: skip
    below = f"calls below a reliance of {LEFT_ALONE:g}"
    return [by, "audits of worlds", "true reliance", "case calls", "by world", below, "case clears", *audits], body


def _cleared(of: pd.DataFrame, judge: str = CASE) -> str:
    return tables.percent((of[f"{judge} verdict"] == "no evidence").mean()) if len(of) else "–"


def _of(rows: pd.DataFrame, judge: str) -> str:
    known = rows[rows[f"{judge} verdict"].notna()]
    return tables._count(tables.rate(known, judge))


def power_table(others: pd.DataFrame) -> Cells:
    judges = judges_of(others)
    bins = [(f"{low:g} to {min(high, 1):g}", low, high) for low, high in pairwise(tables.EDGES)]
    body = []
    for name, low, high in [*bins, (f"{tables.RELIES:g} or more", tables.RELIES, np.inf)]:
        of = others[(others["reliance"] >= low) & (others["reliance"] < high)]
        body.append([name, *(tables._limits(tables.rate(of[of[f"{judge} verdict"].notna()], judge)) for judge in judges)])
    return ["true reliance", *judges], body


def power_by(others: pd.DataFrame, by: str) -> Cells:
    judges = judges_of(others)
    relying = others[others["reliance"] >= tables.RELIES]
    return [by, *judges], [[str(group), *(_of(of, judge) for judge in judges)] for group, of in relying.groupby(by)]


def ranking_table(rows: pd.DataFrame) -> Cells:
    rng = np.random.default_rng(0)
    every = {}
    for name in tables.judges(rows):
        own = rows[rows[f"{name} verdict"].notna()]  # those that judge only some attributes are ranked on those
        every[name] = tables.ranking(own, tables.score(own, name), rng)
    every |= {name: tables.ranking(rows, rows[name], rng) for name in tables.RIVALS if name in rows and rows[name].notna().any()}
    ordered = sorted(every, key=lambda name: -(every[name]["AUROC"]["value"] or 0.0))
    body = [[name, str(every[name]["ranked"]), tables._estimate(every[name]["AUROC"])] for name in ordered]
    return ["score", "audits", "AUROC"], body


def checks(rows: pd.DataFrame) -> list[tuple[str, Cells]]:
    """Of every audit: which deciding conditions failed, in how many rows of each kind."""
    found = []
    for column in (c for c in map(str, rows) if c.endswith(" failed")):
        judge = column.removesuffix(" failed")
        own = rows[rows[f"{judge} verdict"].notna()]
        counts: dict[str, dict[str, int]] = {}
        for kind, failed in zip(own["kind"], own[column], strict=True):
            for name in failed or ():
                counts.setdefault(name, {}).setdefault(str(kind), 0)
                counts[name][str(kind)] += 1
        kinds = sorted(own["kind"].astype(str).unique())
        body = [[name, *(str(of.get(kind, 0)) for kind in kinds)] for name, of in sorted(counts.items())]
        if body:
            sizes = own["kind"].astype(str).value_counts()
            found.append((f"{judge}: conditions that failed", (["condition", *(f"{k} ({sizes[k]})" for k in kinds)], body)))
    return found


def demands(rows: pd.DataFrame) -> Cells:
    """What was asked for of the case, planted and real apart, every kind apart."""
    body = []
    for family in FAMILIES:
        of = rows[rows["family"] == family]
        for judge in (CASE, tables.JOINT, tables.WITH_TWINS):
            if len(of) and f"{judge} verdict" in of:
                body += [[family, *line] for line in _alarms(of[of["is_null"]], judge)]
        if len(of):
            body += [[family, *line] for line in [*_clearing(of[of["is_null"]]), *_power(of[~of["is_null"]])]]
    return ["worlds", "asked for", "found", ""], body


def _alarms(nulls: pd.DataFrame, judge: str) -> Iterable[list[str]]:
    for kind in NULLS:
        found = tables.rate(nulls[(nulls["kind"] == kind) & nulls[f"{judge} verdict"].notna()], judge)
        if found["n"]:
            is_met = found["rate"] <= MOST_ALARMS and found["high"] <= MOST_LIMIT
            asked = (
                f"{judge}, {kind}: at most {tables.percent(MOST_ALARMS)} false alarms, upper limit {tables.percent(MOST_LIMIT)}"
            )
            yield [asked, tables._limits(found), _yes(is_met)]


def _clearing(nulls: pd.DataFrame) -> Iterable[list[str]]:
    for kind in CLEARED:
        of = nulls[nulls["kind"] == kind]
        if len(of):
            is_met = (of[f"{CASE} verdict"] == "no evidence").mean() >= FEWEST_CLEARED
            yield [
                f"case, {kind}: at least {tables.percent(FEWEST_CLEARED)} cleared",
                f"{_cleared(of)} of {len(of)}",
                _yes(is_met),
            ]


def _power(others: pd.DataFrame) -> Iterable[list[str]]:
    for low, high, share in POWER:
        for kept in (False, True):
            of = others[(others["reliance"] >= low) & (others["reliance"] < high) & (others.get("kept", False) == kept)]
            found = tables.rate(of, CASE)
            if found["n"]:
                rows = "that keep the training association" if kept else "without it"
                upto = " or more" if high > 1 else f" to {high:g}"
                asked = f"case, reliance {low:g}{upto}, rows {rows}: at least {tables.percent(share)} called"
                yield [asked, tables._limits(found), _yes(found["rate"] >= share)]


def _yes(is_met: bool) -> str:
    return "yes" if is_met else "**no**"


if __name__ == "__main__":
    main()
