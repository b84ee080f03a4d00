"""Other rules for the case, tried on stored rows: `python -m benchmarks.worlds.mend build/worlds/seed-0`.

Every variant goes through `rightreasons.case.combine` itself, with other weights, other voters, or calls that need a smaller p.
`--derive groups:pull:0.05` adds a voter on reliance that calls where a stored estimate's lower limit is above 0.05, and clears
where its value is below; `--estimates` ranks models by every stored estimate. Choose on SEED=0; report on other seeds.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
from benchmarks.worlds import page, tables

from rightreasons import case
from rightreasons.audits._following import FOLLOWS
from rightreasons.audits.flips import TOLERANCE
from rightreasons.case import Vote
from rightreasons.case import votes as of_the_rule

ROWS = {
    "pull": "behaviour",
    "art": "reliance",
    "sdi": "reliance",
    "short": "reliance",
    "flips": "reliance",
    "oscar": "place",
    "tsi": "place",
}
"""Of audits whose rows were stored without their row of evidence."""


RESTORED = "answers do not follow what was not restored"
MENDED = {"oscar": (FOLLOWS, "shortcut"), "tsi": (FOLLOWS, "shortcut"), "art": (RESTORED, "no evidence")}
"""Audit → the check that was added, and what it said where only that check fails."""


@dataclass(frozen=True)
class Rule:
    """A variant: weights of rows, who may vote, the p that a call needs, and whether the score weighs a call by its effect."""

    weight: Mapping[str, float]
    voters: tuple[str, ...]
    alpha: float = 1.0
    by_effect: bool = True

    def __str__(self) -> str:
        weights = ", ".join(f"{row} {weight:g}" for row, weight in self.weight.items())
        return f"{'+'.join(self.voters)} | {weights}" + (f" | p < {self.alpha:g}" if self.alpha < 1 else "")


def main(arguments: list[str] | None = None) -> None:
    """Print a line for every variant, those that keep the limits first."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.worlds.mend", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="+")
    parser.add_argument("--voters", help="audits to choose among, with commas; all that have a vote by default")
    parser.add_argument("--place", type=float, nargs="*", default=[0.0, 0.25, 0.5, 1.0], help="weights of a vote on place")
    parser.add_argument("--behaviour", type=float, nargs="*", default=[0.0, 1.0, 2.0], help="weights of a vote on behaviour")
    parser.add_argument("--alpha", type=float, nargs="*", default=[1.0, 0.01], help="p that a call needs; 1 for the audit's own")
    parser.add_argument(
        "--derive", nargs="*", default=[], metavar="AUDIT:ESTIMATE:CALLED[:CLEARED]", help="voters made of estimates"
    )
    parser.add_argument("--estimates", action="store_true", help="AUROC and Spearman of every stored estimate, and nothing else")
    parser.add_argument("--before", action="store_true", help="verdicts without what was mended, beside those with it")
    parser.add_argument("--most", type=int, default=40, help="lines")
    given = parser.parse_args(arguments)
    rows = pd.concat([page.stored(folder) for folder in given.folder], ignore_index=True)
    if given.estimates:
        print(estimates(rows).to_string(index=False, float_format=lambda v: f"{v:.3f}"))
        return
    if given.before:
        print(before_and_after(rows).to_string(index=False, float_format=lambda v: f"{v:.3f}", na_rep=""))
        print(*learnt_by_chance(rows), sep="\n")
        return
    now = Rule(case.WEIGHT, tuple(voters_of(rows)))
    for told in given.derive:
        rows = derived(rows, told)
    voters = given.voters.split(",") if given.voters else voters_of(rows)
    lines = [line(rows, rule) for rule in rules(voters, given.place, given.behaviour, given.alpha)]
    lines.insert(0, line(rows, now) | {"rule": f"as it is: {now}"})
    table = pd.DataFrame(lines)
    table["kept"] = (table["alarms high"] <= 0.05) & (table["encoded"].fillna(0) <= 0.05)
    order = table.iloc[1:].sort_values(["kept", "power", "AUROC"], ascending=False)
    shown = pd.concat([table.iloc[:1], order.head(given.most)])
    print(shown.drop_duplicates(["alarms", "power", "open", "AUROC"]).to_string(index=False, float_format=lambda v: f"{v:.3f}"))


def before_and_after(rows: pd.DataFrame) -> pd.DataFrame:
    """Calls in nulls and at a true reliance of 0.2 or more, and `no evidence` there, with and without what was mended.

    What was mended: a check that answers follow the attribute (without it OSCAR and TSI would call, ART would clear), and a vote
    of behaviour in the case. An audit whose only failed check is that one gets its verdict back.
    """
    old = rows.copy()
    for audit, (check, verdict) in MENDED.items():
        if f"{audit} failed" in rows:
            undone = [failed == [check] for failed in rows[f"{audit} failed"]]
            old[f"{audit} verdict"] = np.where(undone, verdict, rows[f"{audit} verdict"])
    voters = tuple(name for name in voters_of(rows) if name != "pull")
    old["case verdict"], old["case score"] = again(old, Rule({"reliance": 1.0, "place": 0.5}, voters, by_effect=False))
    truth = rows["reliance"].to_numpy(dtype=float) >= tables.RELIES
    lines = []
    for audit in (name for name in (*MENDED, "case") if f"{name} verdict" in rows):
        known = rows[f"{audit} verdict"].notna()
        nulls, relying = known & rows["is_null"], known & ~rows["is_null"] & (rows["reliance"] >= tables.RELIES)
        for when, of in (("before", old), ("after", rows)):
            said = of[f"{audit} verdict"]
            lines.append({
                "verdict of": audit, "": when,
                "false alarms": f"{(said[nulls] == 'shortcut').sum()} of {nulls.sum()}",
                "called at 0.2 or more": f"{(said[relying] == 'shortcut').sum()} of {relying.sum()}",
                "no evidence at 0.2 or more": int((said[relying] == "no evidence").sum()),
                "AUROC": tables.auroc(truth, of["case score"].to_numpy(dtype=float)) if audit == "case" else np.nan,
            })  # fmt: skip
    return pd.DataFrame(lines)


def learnt_by_chance(rows: pd.DataFrame) -> Iterator[str]:
    """What the case's false alarms did learn, and how well `pull` follows the change that twins show."""
    signed = rows["directed"].abs()
    for judge in (name for name in ("case", tables.WITH_TWINS) if f"{name} verdict" in rows):
        alarms = signed[rows["is_null"] & (rows[f"{judge} verdict"] == "shortcut")]
        moved = alarms[alarms >= TOLERANCE]
        told = f" ({moved.min():.2f} to {moved.max():.2f})" if len(moved) else ""
        yield f"{judge}: {len(moved)} of {len(alarms)} false alarms move one way with the cue by {TOLERANCE:g} or more{told}"
    shown = (rows["cue"] != "none") & (rows["attribute"] == tables.ATTRIBUTE)
    found = pd.Series([estimate(of, "pull") for of in rows["pull estimates"]], index=rows.index)[shown].dropna()
    known = np.corrcoef(found.str[0].astype(float), signed[found.index])[0, 1]
    yield f"pull: correlation {known:.2f} with the size of the signed change, {len(found)} models"


def voters_of(rows: pd.DataFrame) -> list[str]:
    return [judge for judge in tables.judges(rows) if _row(rows, judge) in case.WEIGHT]


def rules(voters: Sequence[str], place: Sequence[float], behaviour: Sequence[float], alphas: Sequence[float]) -> Iterator[Rule]:
    for size in range(1, len(voters) + 1):
        for some in itertools.combinations(voters, size):
            for looks, answers, alpha in itertools.product(place, behaviour, alphas):
                yield Rule({"behaviour": answers, "reliance": 1.0, "place": looks}, some, alpha)


def line(rows: pd.DataFrame, rule: Rule) -> dict[str, object]:
    """What the case would have said under a rule."""
    verdict, score = again(rows, rule)
    said = rows[["world", "kind", "is_null", "reliance"]].assign(**{"case verdict": verdict})
    nulls = said[said["is_null"]]
    relying = said[~said["is_null"] & (said["reliance"] >= tables.RELIES)]
    alarms, power = tables.rate(nulls, "case"), tables.rate(relying, "case")
    kinds = {kind: tables.rate(of, "case")["rate"] for kind, of in tables.kinds(nulls)[:-1]}
    worst = max(kinds, key=lambda kind: kinds[kind], default="")
    encoded = [kinds[kind] for kind in ("encoded, unused", "projected head") if kind in kinds]
    return {
        "rule": str(rule), "alarms": alarms["rate"], "alarms high": alarms["high"],
        "worst null": f"{worst} {kinds[worst]:.2f}" if worst else "", "encoded": max(encoded, default=np.nan),
        "power": power["rate"], "power low": power["low"], "open": float(np.isin(verdict, tables.OPEN).mean()),
        "AUROC": tables.auroc(rows["reliance"].to_numpy() >= tables.RELIES, score),
    }  # fmt: skip


def again(rows: pd.DataFrame, rule: Rule) -> tuple[np.ndarray, np.ndarray]:
    """(verdicts, scores) of the case under a rule, one for every row."""
    voters = [Voter.of(rows, name) for name in rule.voters]
    verdicts, scores = [], []
    with patch.object(of_the_rule, "WEIGHT", {row: w for row, w in rule.weight.items() if w > 0}):
        for k in range(len(rows)):
            found = case.combine([voter.vote(k, rule) for voter in voters])
            verdicts.append(found.verdict)
            scores.append(found.score)
    return np.array(verdicts), np.array(scores)


@dataclass(frozen=True)
class Voter:
    """What one audit said of every row, and how that counts."""

    row: str
    said: np.ndarray
    p: np.ndarray
    effect: np.ndarray
    standing: np.ndarray
    alike: np.ndarray
    looked: np.ndarray

    @classmethod
    def of(cls, rows: pd.DataFrame, name: str) -> Voter:
        """From stored rows; those of an earlier version are plain votes that share nothing."""

        def stored(what: str, default: object) -> np.ndarray:
            column = f"{name} {what}"
            values = rows[column] if column in rows else pd.Series([None] * len(rows), dtype=object)
            return np.array([default if pd.isna(value) else value for value in values], dtype=object)

        said = rows[f"{name} verdict"].to_numpy()
        row, p, effect = _row(rows, name), _p(rows, name), _effects(rows, name)
        return cls(row, said, p, effect, stored("standing", "vote"), stored("alike", ""), stored("looked", False))

    def vote(self, k: int, rule: Rule) -> Vote:
        weak = self.said[k] == "shortcut" and self.p[k] >= rule.alpha
        verdict = "inconclusive" if weak else self.said[k]
        size = self.effect[k] if rule.by_effect else case.COUNTS_ONCE
        looked = weak or bool(self.looked[k])
        return Vote(self.row, verdict, size, self.standing[k], self.alike[k], looked)  # type: ignore[arg-type]


def _effects(rows: pd.DataFrame, name: str) -> np.ndarray:
    """The first stored estimate of every row, as the case reads it; what counts once where there is none."""
    stored = rows[f"{name} estimates"] if f"{name} estimates" in rows else [None] * len(rows)
    first = [e[0][1] if isinstance(e, list) and e else None for e in stored]
    return np.array([case.COUNTS_ONCE if v is None else min(abs(v), 1.0) for v in first])


def derived(rows: pd.DataFrame, told: str) -> pd.DataFrame:
    """Rows with one more voter: `audit:estimate:called[:cleared]`, the limits being of its lower end and of its value."""
    audit, name, called, *more = told.split(":")
    above, below = float(called), float(more[0] if more else called)
    found = [estimate(of, name) for of in rows[f"{audit} estimates"]]
    verdict = [
        "inconclusive" if e is None else "shortcut" if e[1] > above else "no evidence" if e[0] < below else "inconclusive"
        for e in found
    ]
    voter = f"{audit} {name} {called}"
    return rows.assign(**{f"{voter} verdict": verdict, f"{voter} row": "reliance"})


def estimate(stored: object, name: str) -> tuple[float, float] | None:
    """Value and lower limit of a stored estimate (name, value, low, high, p); the value twice where there is no interval."""
    for known, value, low, *_ in stored if isinstance(stored, list) else ():
        if known == name and value is not None:
            return float(value), float(value if low is None else low)
    return None


def estimates(rows: pd.DataFrame) -> pd.DataFrame:
    """How well the value, and the lower limit, of every stored estimate order models by their true reliance."""
    truth = rows["reliance"].to_numpy(dtype=float)
    told = []
    for column in (c for c in map(str, rows) if c.endswith(" estimates")):
        names = dict.fromkeys(e[0] for of in rows[column] if isinstance(of, list) for e in of)
        for name in names:
            found = [estimate(of, name) for of in rows[column]]
            known = np.array([e is not None for e in found])
            line: dict[str, object] = {"audit": column.removesuffix(" estimates"), "estimate": name, "rows": int(known.sum())}
            for k, what in enumerate(("value", "low")):
                values = np.array([e[k] for e in found if e is not None])
                line[f"AUROC of {what}"] = tables.auroc(truth[known] >= tables.RELIES, values)
                line[f"Spearman of {what}"] = tables.spearman(values, truth[known])
            told.append(line)
    return pd.DataFrame(told).sort_values("AUROC of value", ascending=False)


def _row(rows: pd.DataFrame, judge: str) -> str:
    if f"{judge} row" in rows and rows[f"{judge} row"].notna().any():
        return str(rows[f"{judge} row"].dropna().iloc[0])
    return ROWS.get(judge, "")


def _p(rows: pd.DataFrame, judge: str) -> np.ndarray:
    """NaN, which is never too large, where an audit has no p."""
    return rows[f"{judge} p"].to_numpy(dtype=float) if f"{judge} p" in rows else np.full(len(rows), np.nan)


if __name__ == "__main__":
    main()
