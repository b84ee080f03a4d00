"""How often `flips` is wrong where an attribute stands for no label: `python -m benchmarks.flips_worlds` (two minutes).

Small worlds of answers: twins change every answer by noise without a direction (disturbed), by a push with the cue (drawn), or by
a push that differs from class to class. A line for each: how many of the worlds are called, cleared and left open, and how many
were called by the absolute change, which counted before.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import beta

from rightreasons.audits import audit
from rightreasons.audits.flips import TOLERANCE
from rightreasons.data.cohort import Cohort
from rightreasons.evidence import Evidence


@dataclass(frozen=True)
class World:
    """Test rows and twins.

    Attributes
    ----------
    push : log-odds by which the higher value draws answers
    noise : standard deviation of what a twin adds to an answer's log-odds without a direction
    images : of every subject; the noise is shared by a subject's images
    """

    name: str
    push: float = 0.0
    noise: float = 1.0
    n: int = 200
    images: int = 1
    classes: int = 2
    levels: int = 2

    def evidence(self, seed: int) -> Evidence:
        rng = np.random.default_rng(seed)
        subjects = self.n // self.images
        subject = np.repeat(np.arange(subjects), self.images)
        n = len(subject)
        label = rng.integers(0, self.classes, n)
        before = rng.integers(0, self.levels, n)
        after = (before + rng.integers(1, self.levels, n)) % self.levels
        logits = rng.normal(size=(n, self.classes)) + 1.5 * np.eye(self.classes)[label]
        disturbed = self.noise * rng.normal(size=(subjects, self.classes))[subject]
        drawn = np.zeros((n, self.classes))
        drawn[:, 0] = self.push * (after - before)
        ids = [f"r{k}" for k in range(n)]
        cohorts = {
            name: Cohort.from_columns(
                {"id": ids, "label": label.tolist(), "cue": [f"v{v}" for v in values], "subject": [f"s{s}" for s in subject]},
                attribute="cue",
                subject="subject",
                name=name,
            )
            for name, values in (("test", before), ("twin", after))
        }
        return Evidence.from_arrays(cohorts, {"test": {"logits": logits}, "twin": {"logits": logits + disturbed + drawn}})


WORLDS = (
    *(World(f"disturbed, noise {noise:g}", noise=noise) for noise in (0.2, 1.0, 3.0)),
    World("disturbed, 60 twins", n=60, noise=3.0),
    World("disturbed, 30 twins", n=30, noise=3.0),
    World("disturbed, 5 images a subject", images=5, noise=3.0),
    World("disturbed, 4 classes", classes=4, noise=3.0),
    World("disturbed, 4 values", levels=4, noise=3.0),
    *(World(f"drawn, push {push:g}", push=push) for push in (0.25, 0.5, 1.0, 2.0)),
    World("drawn, push 2, 60 twins", push=2.0, n=60),
    World("drawn, push 2, 4 classes", push=2.0, classes=4),
    World("drawn, push 1, 4 values", push=1.0, levels=4),
)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flips_worlds", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    given = parser.parse_args(arguments)
    print(pd.DataFrame(lines(given.seeds)).to_string(index=False))


def lines(seeds: int) -> Iterator[dict[str, object]]:
    for world in WORLDS:
        said: Counter[str] = Counter()
        by_absolute = 0
        sizes = []
        for seed in range(seeds):
            result = audit("flips", world.evidence(seed), B=300, pictures=0)
            measured = result.measurements[0]
            said[str(result.verdict)] += 1
            by_absolute += int(measured.absolute.low > TOLERANCE)
            sizes.append(measured.mean.value)
        called = said["shortcut"]
        low, high = limits(called, seeds)
        yield {
            "world": world.name, "one way": f"{np.mean(sizes):.3f}", "called": f"{called} of {seeds} ({low:.1%} to {high:.1%})",
            "cleared": said["no evidence"], "open": said["inconclusive"], "called by any change": by_absolute,
        }  # fmt: skip


def limits(called: int, n: int) -> tuple[float, float]:
    """95 % limits of a share (Clopper and Pearson)."""
    low = beta.ppf(0.025, called, n - called + 1) if called else 0.0
    high = beta.ppf(0.975, called + 1, n - called) if called < n else 1.0
    return float(low), float(high)


if __name__ == "__main__":
    main()
