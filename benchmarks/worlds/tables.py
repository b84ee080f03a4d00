"""Error rates of the verdicts: false alarms by kind of null, power by true reliance, and how well each score ranks the truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from scipy.stats import binomtest, spearmanr
from sklearn.metrics import roc_auc_score

RELIES = 0.2  # true reliance from which a model counts as leaning on the cue
EDGES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 1.01)
RIVALS = ("worst-group gap", "probe leakage", "Grad-CAM outside")


def show(rows: pd.DataFrame) -> dict[str, Any]:
    """Print every table and give them as plain data."""
    judges = [column.removesuffix(" verdict") for column in rows if column.endswith(" verdict") and _votes(rows[column])]
    told = {
        "models": len(rows),
        "worlds": int(rows["world"].nunique()),
        "false alarms": [_alarms(kind, of, judges) for kind, of in _kinds(rows[rows["is_null"]])],
        "power": [_power(bin, of, judges) for bin, of in _bins(rows[~rows["is_null"]])],
        "ranking": [_ranking(rows, judge) for judge in ("case", *RIVALS)],
    }
    for title in ("false alarms", "power", "ranking"):
        _print(title, told[title])
    return told


def _votes(column: pd.Series) -> bool:
    return bool(column.isin(["shortcut", "no evidence"]).any())


def _kinds(nulls: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    return [*((str(kind), of) for kind, of in nulls.groupby("kind")), ("all nulls", nulls)]


def _bins(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    cut = pd.cut(rows["reliance"], EDGES, right=False)
    named = [(f"reliance {k.left:g} to {min(k.right, 1):g}", of) for k, of in rows.groupby(cut, observed=True)]
    return [*named, (f"reliance of {RELIES:g} or more", rows[rows["reliance"] >= RELIES])]


def _rate(verdicts: pd.Series) -> str:
    """Share that is called, its exact 95 % interval, and how many said inconclusive or did not run."""
    ran = verdicts[verdicts.notna()]
    if not len(ran):
        return "–"
    called = int((ran == "shortcut").sum())
    limits = binomtest(called, len(ran)).proportion_ci(method="exact")
    open_ = float(ran.isin(["inconclusive", "not run"]).mean())
    return f"{called}/{len(ran)} ({100 * limits.low:.0f} to {100 * limits.high:.0f} %), {100 * open_:.0f} % open"


def _alarms(kind: str, of: pd.DataFrame, judges: list[str]) -> dict[str, Any]:
    return {"null": kind, "models": len(of), "true reliance": round(float(of["reliance"].mean()), 3)} | {
        judge: _rate(of[f"{judge} verdict"]) for judge in judges
    }


def _power(bin: str, of: pd.DataFrame, judges: list[str]) -> dict[str, Any]:
    return {"models of shortcut worlds": bin, "n": len(of)} | {judge: _rate(of[f"{judge} verdict"]) for judge in judges}


def _ranking(rows: pd.DataFrame, judge: str) -> dict[str, Any]:
    score = rows["case score" if judge == "case" else judge].to_numpy(dtype=float)
    truth = rows["reliance"].to_numpy()
    known = ~np.isnan(score)
    relies = truth[known] >= RELIES
    return {
        "score": judge,
        "n": int(known.sum()),
        "AUROC": round(float(roc_auc_score(relies, score[known])), 3) if 0 < relies.sum() < len(relies) else None,
        "Spearman": round(float(spearmanr(score[known], truth[known]).statistic), 3),
    }


def _print(title: str, rows: list[dict[str, Any]]) -> None:
    table = Table(title=title)
    for column in rows[0]:
        table.add_column(column)
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console(width=240).print(table)
