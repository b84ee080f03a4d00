"""Error rates of the verdicts: false alarms by kind of null, power by true reliance, and how well each score ranks the truth.

Rows come as judge.py writes them, one for each model and attribute. Models of one world share images and references, so every
rate has two intervals: the exact one of independent models, and one that counts how alike the models of a world are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from scipy.stats import beta, fisher_exact, rankdata, t

from rightreasons.calibration import CASE, PUBLISHED

ATTRIBUTE = "cue"  # the one that a world plants; the others go with the label and no pixel shows them
RELIES = 0.2  # true reliance from which a model counts as leaning on the cue
EDGES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 1.01)
WITH_TWINS = "case with twins"
JOINT = "case of all attributes"  # as a user sees it who names them together: corrected over attributes
TWINS = ("flips", WITH_TWINS)  # these see the intervention that the truth is measured by
RIVALS = ("worst-group gap", "probe leakage", "Con-score", "Grad-CAM outside", "ShortKit-ML", "Cleanlab")
VERDICTS = ("shortcut", "no evidence", "inconclusive")
OPEN = ("inconclusive", "not run")
LEVEL = 0.95
B = 1000

Numbers = dict[str, Any]


def show(rows: pd.DataFrame) -> Numbers:
    """Print every table and give them as plain data."""
    told = tell(rows)
    for title, (head, cells) in overview(told).items():
        _print(title, head, cells)
    return told


def tell(rows: pd.DataFrame, seed: int = 0) -> Numbers:
    """Every number of every judge and rival, as plain data."""
    rows = rows.reset_index(drop=True)
    rng = np.random.default_rng(seed)
    return {
        "models": len(rows.drop_duplicates([c for c in ("world", "model") if c in rows])),
        "rows": len(rows),
        "worlds": int(rows["world"].nunique()),
        "nulls": int(rows["is_null"].sum()),
        "relying": int((rows["reliance"] >= RELIES).sum()),
        "relies": RELIES,
        "kinds": {kind: _truth(of) for kind, of in kinds(rows[rows["is_null"]])},
        "judges": {judge: judged(rows, judge, rng) for judge in judges(rows)},
        "with twins": {judge: judged(rows, judge, rng) for judge in TWINS if f"{judge} verdict" in rows},
        "rivals": {rival: ranking(rows, rows[rival], rng) | _word(rows, rival) for rival in RIVALS if rival in rows},
    }


def judges(rows: pd.DataFrame) -> list[str]:
    """The case, then every audit that gives a verdict; describing audits say None, other people's tools have their own table."""
    given = [c.removesuffix(" verdict") for c in map(str, rows) if c.endswith(" verdict")]
    named = [name for name in given if rows[f"{name} verdict"].isin(VERDICTS).any()]
    audits = [name for name in named if name not in (CASE, JOINT, *TWINS, *RIVALS)]
    return [CASE] * (CASE in named) + audits


def judged(rows: pd.DataFrame, judge: str, rng: np.random.Generator) -> Numbers:
    """What one judge said, against the truth. Models that it does not apply to (no such column entry) are left out."""
    own = rows[rows[f"{judge} verdict"].notna()]
    nulls, others = own[own["is_null"]], own[~own["is_null"]]
    told = {
        "false alarms": {kind: rate(of, judge) for kind, of in kinds(nulls)},
        "power": [{"from": low, "to": min(high, 1.0), **rate(of, judge)} for low, high, of in bins(others)],
        "relying": rate(others[others["reliance"] >= RELIES], judge),
        "inconclusive": _share(own[f"{judge} verdict"].isin(OPEN)),
        **ranking(own, score(own, judge), rng),
    }
    if f"{judge} seconds" in own:
        seconds = own[f"{judge} seconds"].astype(float)
        told["seconds"] = {"median": round(float(seconds.median()), 2), "most": round(float(seconds.max()), 2)}
    relying = others[others["reliance"] >= RELIES]
    told |= {what: _mean(relying, f"{judge} {what}", rng) for what in ("IoU", "pointing") if f"{judge} {what}" in own}
    return told


def kinds(nulls: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    return [*((str(kind), of) for kind, of in nulls.groupby("kind")), ("all nulls", nulls)]


def bins(rows: pd.DataFrame) -> list[tuple[float, float, pd.DataFrame]]:
    truth = rows["reliance"].to_numpy(dtype=float)
    return [(low, high, rows[(truth >= low) & (truth < high)]) for low, high in pairwise(EDGES)]


def rate(rows: pd.DataFrame, judge: str) -> Numbers:
    """How many are called, with the exact interval and the one by world; how many are open."""
    verdict = rows[f"{judge} verdict"]
    called, n = int((verdict == "shortcut").sum()), len(rows)
    if not n:
        return {
            "n": 0,
            "called": 0,
            "rate": None,
            "low": None,
            "high": None,
            "low by world": None,
            "high by world": None,
            "open": None,
        }
    low, high = exact(called, n)
    low_w, high_w = by_world((verdict == "shortcut").to_numpy(dtype=float), rows["world"].to_numpy())
    return {
        "n": n, "called": called, "rate": called / n, "low": low, "high": high, "low by world": low_w, "high by world": high_w,
        "open": _share(verdict.isin(OPEN)),
    }  # fmt: skip


def exact(called: float, n: float) -> tuple[float, float]:
    """Clopper and Pearson's interval; counts may be effective ones, which are no whole numbers."""
    tail = (1 - LEVEL) / 2
    low = float(beta.ppf(tail, called, n - called + 1)) if called > 0 else 0.0
    high = float(beta.ppf(1 - tail, called + 1, n - called)) if called < n else 1.0
    return low, high


def by_world(called: np.ndarray, world: np.ndarray) -> tuple[float, float]:
    """Korn and Graubard's interval: the exact one with the number of independent models that would vary as much.

    Where all say the same, how alike the models of a world are is not known, and it is the exact one.
    """
    names, of = np.unique(world, return_inverse=True)
    n, k, p = len(called), len(names), float(called.mean())
    if k < 2:
        return exact(p * k, k)
    residual = np.bincount(of, called - p, minlength=k)
    variance = k / (k - 1) * float((residual**2).sum()) / n**2
    freedom = (t.ppf(0.975, n - 1) / t.ppf(0.975, k - 1)) ** 2 if n > k else 1.0
    alone = p * (1 - p) / (n - 1)  # the variance, were every model a world of its own
    effective = min(float(n), n * alone / variance * freedom) if variance > 0 else float(n)
    return exact(p * effective, effective)


# ---- ranking -------------------------------------------------------------------------------------------------------------


def score(rows: pd.DataFrame, judge: str) -> pd.Series:
    """By which a judge orders models: its own score; else its verdict and, among equal verdicts, its p."""
    if f"{judge} score" in rows:
        return rows[f"{judge} score"]
    order = rows[f"{judge} verdict"].map({"shortcut": 2.0, "no evidence": 0.0}).fillna(1.0)
    p = rows[f"{judge} p"].astype(float).fillna(1.0) if f"{judge} p" in rows else 1.0
    return order + 0.9 * (1 - p)


def ranking(rows: pd.DataFrame, scores: pd.Series, rng: np.random.Generator) -> Numbers:
    """AUROC for a true reliance of RELIES or more, and Spearman with it; intervals by drawing worlds again."""
    value, truth, world = (np.asarray(x) for x in (scores.astype(float), rows["reliance"].astype(float), rows["world"]))
    known = ~(np.isnan(value) | np.isnan(truth))
    value, truth, world = value[known], truth[known], world[known]
    return {
        "ranked": len(value),
        "AUROC": drawn_again(lambda i: auroc(truth[i] >= RELIES, value[i]), world, rng),
        "Spearman": drawn_again(lambda i: spearman(value[i], truth[i]), world, rng),
    }


def auroc(positive: np.ndarray, value: np.ndarray) -> float:
    n = int(positive.sum())
    if not 0 < n < len(positive):
        return float("nan")
    return float((rankdata(value)[positive].sum() - n * (n + 1) / 2) / (n * (len(positive) - n)))


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    a, b = rankdata(x), rankdata(y)
    a, b = a - a.mean(), b - b.mean()
    norm = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / norm if norm > 0 else float("nan")


def drawn_again(statistic: Callable[[np.ndarray], float], world: np.ndarray, rng: np.random.Generator) -> Numbers:
    """A statistic of rows with its 95 % interval over worlds drawn again; None where it is undefined."""
    names, of = np.unique(world, return_inverse=True)
    members = [np.flatnonzero(of == k) for k in range(len(names))]
    value = statistic(np.arange(len(world))) if len(world) else float("nan")
    if np.isnan(value):
        return {"value": None, "low": None, "high": None}
    draws = [statistic(np.concatenate([members[k] for k in rng.integers(len(names), size=len(names))])) for _ in range(B)]
    low, high = np.nanquantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return {"value": value, "low": float(low), "high": float(high)}


def _mean(rows: pd.DataFrame, column: str, rng: np.random.Generator) -> Numbers:
    known = rows[rows[column].notna()]
    values = known[column].to_numpy(dtype=float)
    return {"n": len(known), **drawn_again(lambda i: float(values[i].mean()), known["world"].to_numpy(), rng)}


def _word(rows: pd.DataFrame, rival: str) -> Numbers:
    """What a tool with a word of its own says, as for a judge."""
    if f"{rival} verdict" not in rows:
        return {}
    own = rows[rows[f"{rival} verdict"].notna()]
    others = own[~own["is_null"] & (own["reliance"] >= RELIES)]
    return {"false alarms": {kind: rate(of, rival) for kind, of in kinds(own[own["is_null"]])}, "relying": rate(others, rival)}


def _truth(rows: pd.DataFrame) -> Numbers:
    return {"rows": len(rows), "worlds": int(rows["world"].nunique()), "reliance": _share(rows["reliance"])}


def _share(values: pd.Series) -> float | None:
    return float(values.astype(float).mean()) if len(values) else None


# ---- two seeds -----------------------------------------------------------------------------------------------------------


def compared(first: Numbers, second: Numbers) -> Numbers:
    """Judge → false alarms and power of both seeds, whether the second rates lie within the first intervals, and Fisher's p."""
    told: Numbers = {}
    for judge, one in first["judges"].items():
        other = second["judges"].get(judge)
        if other is not None:
            pairs = {
                "false alarms": (one["false alarms"]["all nulls"], other["false alarms"]["all nulls"]),
                "power": (one["relying"], other["relying"]),
            }
            told[judge] = {what: _alike(*pair) for what, pair in pairs.items()}
    return told


def _alike(a: Numbers, b: Numbers) -> Numbers:
    if not a["n"] or not b["n"]:
        return {"first": a, "second": b, "within": None, "p": None}
    table = [[r["called"], r["n"] - r["called"]] for r in (a, b)]
    within = a["low by world"] <= b["rate"] <= a["high by world"]
    return {"first": a, "second": b, "within": bool(within), "p": float(fisher_exact(table).pvalue)}


# ---- what was asked for --------------------------------------------------------------------------------------------------


def demands(told: Numbers) -> list[tuple[str, str, bool | None]]:
    """What the rates ought to be, what they are, and whether that is so; None where there is nothing to judge by."""
    found = []
    for judge, of in told["judges"].items():
        if judge.endswith(PUBLISHED):  # nothing is asked of other people's rules
            continue
        alarms, most = of["false alarms"]["all nulls"], 0.05 if judge == CASE else 0.1
        met = None if alarms["high"] is None else alarms["high"] <= most
        found.append((f"{judge}: upper limit of false alarms at most {percent(most)}", _limits(alarms), met))
    case = told["judges"].get(CASE)
    if case is None:
        return found
    power = case["relying"]
    met = None if power["rate"] is None else power["rate"] >= 0.95
    found.append((f"case: at least 95 % called at a true reliance of {RELIES:g} or more", _limits(power), met))
    for kind in ("encoded, unused", "projected head"):
        if kind in case["false alarms"]:
            alarms = case["false alarms"][kind]
            found.append((f"case: at most 5 % called of the nulls {kind!r}", _limits(alarms), alarms["rate"] <= 0.05))
    own = case["AUROC"]["value"]
    for rival, of in told["rivals"].items():
        other = of["AUROC"]["value"]
        met = None if own is None or other is None else own > other
        found.append((f"case: AUROC above that of {rival}", f"{_number(own)} and {_number(other)}", met))
    return found


# ---- tables in words -----------------------------------------------------------------------------------------------------

Cells = tuple[list[str], list[list[str]]]


def overview(told: Numbers) -> dict[str, Cells]:
    """Title → (headings, rows of texts), for the terminal and the page alike."""
    every = {
        **told["judges"],
        **{f"{name.removesuffix(' with twins')} (sees twins)": of for name, of in told["with twins"].items()},
    }
    found = {
        "verdicts": _verdict_table(every),
        "false alarms": _alarm_table(told, every),
        "power": _power_table(every),
        "others": _rival_table(told),
        "place": _place_table(every),
        "demands": (
            ["asked for", "found", ""],
            [[what, found, {True: "yes", False: "**no**", None: "–"}[met]] for what, found, met in demands(told)],
        ),
    }
    return {title: cells for title, cells in found.items() if cells[1]}


def _verdict_table(every: Numbers) -> Cells:
    head = ["verdict of", "false alarms", "95 %", "by world", f"called at {RELIES:g} or more", "95 %", "by world", "open"]
    body = []
    for name, of in every.items():
        cells = [cell for part in (of["false alarms"]["all nulls"], of["relying"]) for cell in _three(part)]
        body.append([name, *cells, "–" if of["inconclusive"] is None else percent(of["inconclusive"])])
    return head, body


def _three(of: Numbers) -> tuple[str, str, str]:
    return _count(of), _interval(of, "low", "high"), _interval(of, "low by world", "high by world")


def _alarm_table(told: Numbers, every: Numbers) -> Cells:
    body = []
    for kind, truth in told["kinds"].items():
        cells = [_limits(judge["false alarms"].get(kind)) for judge in every.values()]
        body.append([kind, f"{truth['rows']} of {truth['worlds']}", _number(truth["reliance"]), *cells])
    return ["null", "audits of worlds", "true reliance", *every], body


def _power_table(every: Numbers) -> Cells:
    judges_ = list(every.values())
    if not judges_:
        return [], []
    body = [
        [f"{bin['from']:g} to {bin['to']:g}", *(_limits(judge["power"][k]) for judge in judges_)]
        for k, bin in enumerate(judges_[0]["power"])
    ]
    return ["true reliance", *every], [*body, [f"{RELIES:g} or more", *(_limits(judge["relying"]) for judge in judges_)]]


def _rival_table(told: Numbers) -> Cells:
    """Judges and what people use today, in order of their AUROC."""
    every = {**told["judges"], **told["rivals"]}
    ordered = sorted(every, key=lambda name: -(every[name]["AUROC"]["value"] or 0.0))
    body = []
    for name in ordered:
        of = every[name]
        alarms, relying = of.get("false alarms", {}).get("all nulls"), of.get("relying")
        body.append(
            [name, str(of["ranked"]), _estimate(of["AUROC"]), _estimate(of["Spearman"]), _limits(alarms), _limits(relying)]
        )
    return ["score", "audits", "AUROC", "Spearman", "false alarms", f"called at {RELIES:g} or more"], body


def _place_table(every: Numbers) -> Cells:
    body = []
    for name, of in every.items():
        seconds = of.get("seconds")
        if seconds or "IoU" in of:
            time = f"{seconds['median']:.2f} ({seconds['most']:.1f})" if seconds else "–"
            body.append([name, _estimate(of.get("IoU")), _estimate(of.get("pointing")), time])
    return ["audit", "IoU with the cue", "pointing", "seconds, median (most)"], body


def _count(of: Numbers | None) -> str:
    return f"{of['called']} of {of['n']}" if of and of["n"] else "–"


def _interval(of: Numbers | None, low: str, high: str) -> str:
    return f"{100 * of[low]:.1f} to {100 * of[high]:.1f} %" if of and of["n"] else "–"


def _limits(of: Numbers | None) -> str:
    return f"{_count(of)} ({_interval(of, 'low', 'high')})" if of and of["n"] else "–"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _estimate(of: Numbers | None) -> str:
    if not of or of["value"] is None:
        return "–"
    return f"{of['value']:.3f} ({of['low']:.3f} to {of['high']:.3f})"


def _print(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(title=title)
    for column in head:
        table.add_column(column)
    for row in rows:
        table.add_row(*row)
    Console(width=240).print(table)
