"""Do two families of a study differ in how unfairness follows the encoding, beyond other seeds and test rows?

rightreasons sweep examples/short/fundus.toml
python examples/short/difference.py rightreasons-short-fundus biased even
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rightreasons.audits import short
from rightreasons.stats.resampling import task_rng
from rightreasons.study import Study


def main() -> None:
    parser = argparse.ArgumentParser(description="compare two families", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("study", type=Path, help="folder of a study with the audit short")
    parser.add_argument("regimes", nargs=2, help="of the two families")
    parser.add_argument("--audit", default="short", help="its name in the study")
    given = parser.parse_args()
    study = Study.open(given.study)
    results = []
    for regime in given.regimes:
        units = [u for u in study.units if study.plan.units[u].regime == regime and "sweep" in study.roles(u, given.audit)]
        family = [study.measurement(unit, given.audit) for unit in units]
        results.append(short.conclude({"sweep": family}, rng=task_rng(0, "difference")))
    found = short.compare(*results, rng=task_rng(0, "difference"))
    rhos = " and ".join(f"{rho:.2f} over {n} models" for rho, n in zip(found.rhos, found.n, strict=True))
    limits = f"{found.low:.2f} to {found.high:.2f}"
    print(f"rho {rhos}: they differ by {found.value:.2f} ({limits}), p {found.p:.4f}; exchanging models p {found.exchange_p:.4f}")


if __name__ == "__main__":
    main()
