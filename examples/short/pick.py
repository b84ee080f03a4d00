"""Choose a model of a study's ShorT family, hand it on, and audit it again on rows that the choice did not see.

rightreasons sweep examples/short/study.toml
python examples/short/pick.py rightreasons-short-digits --out fairer
"""

from __future__ import annotations

import argparse
from pathlib import Path

import rightreasons as rr
from rightreasons.audits import short
from rightreasons.stats.resampling import task_rng
from rightreasons.study import Study


def main() -> None:
    parser = argparse.ArgumentParser(
        description="choose a model of a family", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("study", type=Path, help="folder of a study with the audit short")
    parser.add_argument("--audit", default="short", help="its name in the study")
    parser.add_argument("--tolerance", type=float, default=0.02, help="AUC that the choice may cost")
    parser.add_argument("--out", type=Path, default=Path("fairer"))
    given = parser.parse_args()
    study = Study.open(given.study)
    units = [unit for unit in study.units if "sweep" in study.roles(unit, given.audit)]
    result = short.conclude({"sweep": [study.measurement(unit, given.audit) for unit in units]}, rng=task_rng(0, "pick"))
    print("on the front:", *(units[k] for k in result.front), sep="\n  ")
    chosen = units[result.pick(given.tolerance)]
    print("chosen:", chosen)

    model = rr.Classifier.open(study.path(chosen) / "model")
    model.save(given.out / "model")
    rows = study.cohort("data").on("audit")  # the test rows have chosen it
    cohorts = {"test": rows, **({"twin": rows.twins()} if rows.twin is not None else {})}
    audits = ["groups", *(["flips"] if rows.twin is not None else [])]
    evidence = rr.extract(model, cohorts, audits, out=given.out / "evidence")
    findings = [rr.audit(name, evidence).finding() for name in audits]
    for finding in findings:
        print(finding.one_line())
    print("the page is", rr.report(findings, given.out / "report.html", title="The chosen model on rows it was not chosen by"))


if __name__ == "__main__":
    main()
