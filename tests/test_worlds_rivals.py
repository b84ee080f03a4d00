"""Scores of other people, on features whose answer is known."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.worlds import rivals

from rightreasons.data.cohort import Cohort
from rightreasons.evidence import Evidence


def evidence(angle: float, noise: float) -> Evidence:
    """Label and attribute are read in two directions so many degrees apart."""
    rng = np.random.default_rng(0)
    made = {}
    for name in ("audit", "test"):
        features = rng.standard_normal((600, 4))
        along = np.array([np.cos(np.radians(angle)), np.sin(np.radians(angle)), 0, 0])
        attribute = features @ along + noise * rng.standard_normal(600)
        columns = {"label": (features[:, 0] > 0).astype(int), "age": attribute, "old": (attribute > 0).astype(int)}
        cohort = Cohort.from_columns(columns, label="label", attribute=["age", "old"], kinds={"age": "continuous"})
        logits = np.stack([-features[:, 0], features[:, 0]], axis=1)
        made[name] = (cohort, {"features": features, "logits": logits})
    return Evidence.from_arrays({k: c for k, (c, _) in made.items()}, {k: a for k, (_, a) in made.items()}, classes=(0, 1))


@pytest.mark.parametrize("angle", [0, 45, 90])
def test_con_score_is_explained_variance_times_the_cosine(angle: float) -> None:
    found = rivals.con_score(evidence(angle, 0.0), "age")
    assert found == pytest.approx(np.cos(np.radians(angle)), abs=0.05)
    half = rivals.con_score(evidence(angle, 1.0), "age")  # noise as large as the signal: half the variance
    assert half == pytest.approx(np.cos(np.radians(angle)) / 2, abs=0.07)


def test_what_is_not_in_the_latent_has_no_con_score() -> None:
    assert rivals.con_score(evidence(0, 30.0), "age") < 0.02


def test_a_continuous_attribute_has_no_groups() -> None:
    assert set(rivals.scores(evidence(0, 0.0), "age")) == {"Con-score"}
    told = rivals.scores(evidence(0, 0.0), "old")
    assert told["probe leakage"] > 0.95 and told["worst-group gap"] == 0
