"""ShorT's simulation (benchmarks/short_simulation.py) on a few worlds, and its batched parts against plain ones."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.metrics import roc_auc_score  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks import short_simulation as simulation  # noqa: E402

from rightreasons.stats import fairness  # noqa: E402

pytestmark = pytest.mark.torch


def test_batched_readouts_equal_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(3, 200, 4))
    a = (z[0, :, 0] + rng.normal(size=200) > 0).astype(np.int64)
    weight = rng.uniform(0.5, 1.5, 200)
    found = simulation.readout(torch.from_numpy(z[:, :150]), a[:150], weight[:150], torch.from_numpy(z[:, 150:])).numpy()
    for k in range(3):
        fit = z[k, :150]
        mean, scale = fit.mean(axis=0), fit.std(axis=0, ddof=1)
        model = LogisticRegression(C=1.0, tol=1e-10, max_iter=2000).fit((fit - mean) / scale, a[:150], sample_weight=weight[:150])
        np.testing.assert_allclose(found[k], model.decision_function((z[k, 150:] - mean) / scale), atol=1e-4)


def test_batched_areas_and_disparities_equal_the_plain_ones() -> None:
    rng = np.random.default_rng(1)
    score, truth = rng.integers(0, 9, (4, 120)).astype(float), rng.integers(0, 2, 120)
    found = simulation._auc(torch.from_numpy(score), truth)
    np.testing.assert_allclose(found, [roc_auc_score(truth, row) for row in score])
    decided, y, a = rng.integers(0, 2, (4, 120)), rng.integers(0, 2, 120), rng.integers(0, 2, 120)
    signed, gap, null, null_gap = simulation._disparities(decided, y, a, np.random.default_rng(0), torch.device("cpu"))
    for k in range(4):
        assert signed[k] == pytest.approx(fairness.signed_disparity(y, decided[k], a).value, abs=1e-5)
        assert gap[k] == pytest.approx(fairness.equalised_odds(y, decided[k], a), abs=1e-5)
    assert null.shape == null_gap.shape == (4, simulation.EXCHANGES)
    assert (np.abs(null) <= null_gap + 1e-6).all()


def test_a_world_has_the_association_that_it_is_told() -> None:
    kind = simulation.Kind("strong", 1, (0.95, 0.95), (0.2, 0.2))
    world = simulation.draw(kind, np.random.default_rng(0))
    train = slice(0, simulation.TRAIN)
    y, a = world.label[train], world.colour[train]
    assert a[y == 1].mean() == pytest.approx(0.95, abs=0.04)
    assert a[y == 0].mean() == pytest.approx(0.2, abs=0.06)
    assert world.colour[simulation.TRAIN :].mean() == pytest.approx(0.5, abs=0.06)
    differs = (world.x != world.twin).reshape(len(world.x), 3, 64)
    assert (differs.any(axis=1).sum(axis=1) == simulation.SIDE**2).all()


@pytest.mark.slow
def test_ten_worlds_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEDS", "3")
    monkeypatch.setenv("SCALES", "15")
    none, strong = simulation.KINDS[0], simulation.KINDS[6]
    called = {kind.name: simulation.summary(simulation.run(kind, 5, "cpu")) for kind in (none, strong)}
    assert called[none.name]["called_number"] <= 1
    assert called[strong.name]["called_number"] >= 4
    assert 0.78 <= called[none.name]["accuracy"] <= 0.88
