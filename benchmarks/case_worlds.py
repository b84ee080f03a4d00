"""What the case says in worlds of features: `python -m benchmarks.case_worlds` (with `art` ten seconds of a core a world).

A line for each kind of world: how often the case of the attribute is called, cleared and left open, how often it was called by
the rule of before (pull and the audits of reliance count one each, nothing is overruled, and there is no guard), and how another
attribute of the table is named where one is a proxy of the other. The audits run for every attribute.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd
from benchmarks._feature_worlds import KINDS, drawn, world
from sklearn.metrics import roc_auc_score

from rightreasons.audits import audit_all
from rightreasons.case import COUNTS_ONCE, cases
from rightreasons.findings import Finding

AUDITS = "pull,excess,art"
FEW = {"pull": {"B": 300, "permutations": 100}, "excess": {"B": 300, "refits": 8}, "art": {"B": 200, "controls": 99}}
RELIES = 0.2
Told = dict[str, object]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.case_worlds", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--first", type=int, default=500, help="seed of the first world")
    parser.add_argument("--audits", default=AUDITS, help="which, with commas")
    given = parser.parse_args(arguments)
    seeds, audits = range(given.first, given.first + given.seeds), given.audits.split(",")
    rows = pd.DataFrame(told for kind in KINDS for told in judged(kind, seeds, audits))
    print(pd.DataFrame(table(rows)).to_string(index=False))
    relies = rows["reliance"] >= RELIES
    for score in ("score", "score before"):
        print(f"AUROC of the {score}, true reliance of {RELIES:g} or more: {roc_auc_score(relies, rows[score]):.3f}")


def judged(kind: str, seeds: Sequence[int], audits: Sequence[str]) -> Iterator[Told]:
    for seed in seeds:
        rng = np.random.default_rng([seed, list(KINDS).index(kind)])
        planted = world(drawn(kind, rng), rng)
        attribute = planted.evidence.on("test").cohort.attributes[0]
        findings = audit_all(planted.evidence, audits=audits, seed=seed, settings={name: FEW[name] for name in audits})
        of = {case.attribute: case for case in cases(findings)}
        case = of.get(attribute) or of[""]
        verdict, score = before([f for f in findings if f.attribute == attribute])
        yield {
            "kind": kind, "reliance": planted.reliance, "verdict": str(case.verdict), "score": case.score, "before": verdict,
            "score before": score, "names": ", ".join(companion.relation for companion in case.companions),
        }  # fmt: skip


def before(findings: Sequence[Finding]) -> tuple[str, float]:
    """The rule of before, over the same findings without the guard: a call of behaviour or reliance with more weight for it."""
    votes = [f for f in findings if f.standing == "vote" and f.verdict in ("shortcut", "no evidence")]
    calls = [f for f in votes if f.verdict == "shortcut"]
    against = len(votes) - len(calls)
    weighed = sum(min(abs(f.estimates[0].value or 0.0), 1.0) / COUNTS_ONCE for f in calls)
    score = (0.5 + weighed) / (1 + weighed + against)
    if len(calls) > against:
        return "shortcut", score
    return ("no evidence" if votes and not calls else "inconclusive"), score


def table(rows: pd.DataFrame) -> Iterator[Told]:
    for kind, of in rows.groupby("kind", sort=False):
        for name, here in parts(str(kind), of):
            if not len(here):
                continue
            said = Counter(here["verdict"])
            names = Counter(name for name in here["names"] if name)
            yield {
                "world": name, "n": len(here), "called": said["shortcut"], "cleared": said["no evidence"],
                "open": said["inconclusive"], "called before": int((here["before"] == "shortcut").sum()),
                "other attribute": "; ".join(f"{name} {count}" for name, count in names.items()),
            }  # fmt: skip


def parts(kind: str, of: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Worlds in which the attribute is used, by its true reliance."""
    if not kind.startswith("used"):
        yield kind, of
        return
    edges = (0.0, 0.1, RELIES, 1.01)
    for low, high in pairwise(edges):
        yield f"{kind}, {low:g} to {min(high, 1.0):g}", of[(of["reliance"] >= low) & (of["reliance"] < high)]


if __name__ == "__main__":
    main()
