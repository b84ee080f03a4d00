"""ShorT's simulation (benchmarks/short_simulation.py) on a few worlds, and its batched parts against the audit's own."""

from __future__ import annotations

import dataclasses
import gzip
import json
import struct
import sys
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.metrics import roc_auc_score  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks import _short_told as told  # noqa: E402
from benchmarks import _short_worlds as worlds  # noqa: E402
from benchmarks import short_simulation as simulation  # noqa: E402

from rightreasons.audits import short  # noqa: E402
from rightreasons.data.cohort import Cohort  # noqa: E402
from rightreasons.evidence import Evidence  # noqa: E402
from rightreasons.stats import fairness  # noqa: E402

pytestmark = pytest.mark.torch
QUICK = worlds.Plan(number=5, seeds=2, steps=60)


def test_batched_readouts_equal_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(3, 200, 4))
    a = (z[0, :, 0] + rng.normal(size=200) > 0).astype(np.int64)
    weight = rng.uniform(0.5, 1.5, 200)
    found = worlds.readout(torch.from_numpy(z[:, :150]), a[:150], weight[:150], torch.from_numpy(z[:, 150:])).numpy()
    for k in range(3):
        fit = z[k, :150]
        mean, scale = fit.mean(axis=0), fit.std(axis=0)
        model = LogisticRegression(C=1.0, tol=1e-10, max_iter=2000).fit((fit - mean) / scale, a[:150], sample_weight=weight[:150])
        np.testing.assert_allclose(found[k], model.decision_function((z[k, 150:] - mean) / scale), atol=1e-4)


def test_batched_areas_and_disparities_equal_the_plain_ones() -> None:
    rng = np.random.default_rng(1)
    score, truth = rng.integers(0, 9, (4, 120)).astype(float), rng.integers(0, 2, 120)
    found = worlds.areas(torch.from_numpy(score), truth)
    np.testing.assert_allclose(found, [roc_auc_score(truth, row) for row in score])
    decided, y, a = rng.integers(0, 2, (4, 120)), rng.integers(0, 2, 120), rng.integers(0, 2, 120)
    signed, gap, null, null_gap = worlds.disparities(decided, y, a, np.random.default_rng(0))
    for k in range(4):
        assert signed[k] == pytest.approx(fairness.signed_disparity(y, decided[k], a).value, abs=1e-8)
        assert gap[k] == pytest.approx(fairness.equalised_odds(y, decided[k], a), abs=1e-8)
    assert null.shape == null_gap.shape == (4, worlds.EXCHANGES)
    assert (np.abs(null) <= null_gap + 1e-6).all()


def test_a_sweep_is_measured_as_the_audit_measures_it() -> None:
    kind = worlds.Kind("strong", 1, (0.95, 0.95), (0.2, 0.2))
    world = worlds.draw(kind, 0, worlds.source(), np.random.default_rng(0))
    (s,) = worlds.sweep([world], [np.random.default_rng(1)], QUICK, "cpu", keep=True)
    made = worlds.measurements(s, np.random.default_rng(2))["sweep"]
    n = len(world.label)
    split = np.where(np.arange(n) < world.train, "train", "test")
    columns = {"id": [str(i) for i in range(n)], "label": world.label, "colour": world.colour, "split": split}
    cohort = Cohort.from_columns(columns, attribute=["colour"], split="split")
    z = worlds.features(s.params, torch.from_numpy(world.x))
    score = worlds.logits(s.params, z).numpy()
    for k in (0, 2, 7):
        arrays = {"features": z[k].numpy(), "logits": np.stack([0 * score[k], score[k]], axis=1)}
        evidence = Evidence.from_arrays(
            cohort, arrays, name="m", training=cohort.on("train"), regime="gradient_scaling", settings={"scale": s.scale[k]}
        )
        own = short.measure(
            evidence, rng=np.random.default_rng(0), metrics=["equalised_odds"], threshold="argmax", B=20, permutations=400
        )
        assert made[k].encoding.within.value == pytest.approx(own.encoding.within.value, abs=1e-3)
        assert made[k].encoding.marginal.value == pytest.approx(own.encoding.marginal.value, abs=1e-3)
        assert made[k].performance.auc.value == pytest.approx(own.performance.auc.value, abs=1e-6)
        np.testing.assert_allclose(made[k].fairness.value, own.fairness.value, atol=1e-8)
        np.testing.assert_allclose(made[k].fairness.null.std(axis=1), own.fairness.null.std(axis=1), rtol=0.2)
        for name in (
            "fairness.metrics",
            "fairness.n_signed",
            "association.sign",
            "encoding.chance",
            "encoding.unit",
            "scale",
            "smallest.size",
            "fairness.no_exchange",
            "n",
            "encoding.n_fit",
        ):
            assert attrgetter(name)(made[k]) == attrgetter(name)(own), name
        np.testing.assert_allclose(made[k].association.estimate, own.association.estimate)


def test_the_twins_tell_what_the_colour_does_and_a_redrawn_colour_tells_nothing() -> None:
    rng = np.random.default_rng(0)
    n = 4000
    y, a = rng.integers(0, 2, (2, n))
    image = rng.random(n) < 0.3 + 0.4 * y
    swayed = rng.random(n) < 0.5  # decided by the colour alone
    decided, twin = (np.where(swayed, colour == 1, image)[None] for colour in (a, 1 - a))
    none = np.zeros(1)
    s = worlds.Sweep(none, none, none, none, none, decided, twin, none, y, a, y, a, (0.5, 0.5))
    assert s.flips[0] == pytest.approx(0.5, abs=0.03)
    assert s.lean[0] == pytest.approx(0.5, abs=0.03)
    assert s.accuracy_alike[0] == pytest.approx((decided[0] == y).mean(), abs=0.02)
    agreeing = dataclasses.replace(s, shares=(1.0, 0.0))
    assert agreeing.accuracy_alike[0] == pytest.approx((np.where(swayed, y == 1, image) == y).mean())
    assert fairness.signed_disparity(y, decided[0], a).value == pytest.approx(0.5, abs=0.05)
    assert fairness.signed_disparity(y, s.redrawn(rng)[0], a).value == pytest.approx(0.0, abs=0.05)


def test_a_world_has_the_association_that_it_is_told() -> None:
    kind = worlds.Kind("strong", 1, (0.95, 0.95), (0.2, 0.2))
    of = worlds.source()
    world = worlds.draw(kind, 0, of, np.random.default_rng(0))
    y, a = world.label[: of.train], world.colour[: of.train]
    assert a[y == 1].mean() == pytest.approx(0.95, abs=0.04)
    assert a[y == 0].mean() == pytest.approx(0.2, abs=0.06)
    assert world.colour[of.train :].mean() == pytest.approx(0.5, abs=0.06)
    differs = (world.x[of.train :] != world.twin).reshape(of.test, 3, 64)
    assert (differs.any(axis=1).sum(axis=1) == of.side**2).all()
    dealt = worlds.draw(worlds.Kind("dealt", 1, (0.5, 0.5), (0.5, 0.5), dealt=True), 0, of, np.random.default_rng(0))
    for k in (0, 1):
        a = dealt.colour[: of.train][dealt.label[: of.train] == k]
        assert abs(a.sum() - (a == 0).sum()) <= 1


def test_the_association_of_fig_s8a_grows_in_steps() -> None:
    kind = simulation.KINDS[-1]
    shares = [kind.shares(number, np.random.default_rng(0)) for number in range(kind.steps + 1)]
    assert shares[0] == shares[kind.steps] == (0.5, 0.5)
    np.testing.assert_allclose(shares[kind.steps - 1], (0.15, 0.95))


def test_mnist_is_read_from_its_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (30, 28, 28), dtype=np.uint8)
    digits = np.tile(np.arange(10, dtype=np.uint8), 3)
    for part, rows in (("train", slice(0, 20)), ("t10k", slice(20, 30))):
        head = struct.pack(">4B3i", 0, 0, 8, 3, len(pixels[rows]), 28, 28)
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(head + pixels[rows].tobytes())
        body = struct.pack(">4Bi", 0, 0, 8, 1, len(digits[rows])) + digits[rows].tobytes()
        (tmp_path / f"{part}-labels.idx1-ubyte.gz").write_bytes(gzip.compress(body))
    of = worlds.source(str(tmp_path))
    np.testing.assert_allclose(of.images * 255, pixels, atol=1e-4)
    np.testing.assert_array_equal(of.digit, digits)
    with pytest.raises(SystemExit, match="four idx files"):
        worlds.source(str(tmp_path / "elsewhere"))


def test_a_run_goes_on_where_it_was_and_a_world_does_not_depend_on_its_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = simulation.KINDS[3]
    alone, beside = (simulation.trained(kind, numbers, 0, QUICK, "", "cpu") for numbers in ([1], [0, 1]))
    np.testing.assert_allclose(alone[0][3].within, beside[1][3].within, atol=1e-4)
    np.testing.assert_array_equal(alone[0][3].colour, beside[1][3].colour)
    quick = ["--device", "cpu", "--workers", "1", "--results", str(tmp_path), "--scales", "5", "--seeds", "2", "--steps", "20"]
    asked = []
    monkeypatch.setattr(simulation, "KINDS", (worlds.Kind("weak", 2, (0.6, 0.6), (0.4, 0.4)),))
    monkeypatch.setattr(simulation, "ProcessPoolExecutor", _Here)
    monkeypatch.setattr(simulation, "trained", lambda *task, real=simulation.trained: asked.append(task[1]) or real(*task))
    simulation.main([*quick, "--share", "0.5"])
    simulation.main(quick)
    assert asked == [[0], [1]]
    rows = [json.loads(line) for line in (tmp_path / "worlds.jsonl").read_text().splitlines()]
    assert [(r["kind"], r["number"]) for r in rows] == [("weak", 0), ("weak", 1)]
    assert all(r["verdict"] in ("shortcut", "no evidence", "inconclusive") for r in rows)


def test_the_tables_of_a_page_are_written_anew_and_nothing_else_is() -> None:
    row = {"kind": "k", "verdict": "shortcut", "sign": 1, "p": 0.01, "rho": 0.5, "direct_rho": 0.6, "redrawn_p": 0.5}
    row |= {"unsigned_p": 0.2, "paper_p": 0.01, "association": 1.0, "flips": 0.1, "accuracy": 0.8, "accuracy_alike": 0.85}
    row |= {"kept": 125, "covered": 0.9, "run": "1", "at": 30.0, "machine": "CPU", "workers": 2, "shares": [0.5, 0.5]}
    kind = worlds.Kind("steps", 2, (0.5, 0.1), (0.5, 0.9), steps=2)
    found = {kind: [row | {"number": 0}, row | {"number": 1, "verdict": "no evidence", "shares": [0.1, 0.9]}]}
    numbers = {"kinds": {kind.name: told.summary(found[kind])}, "speed": told.speed(found)}
    text = "<!-- worlds -->\nold\n<!-- end -->\nkept\n<!-- steps -->\n\n<!-- end -->\n<!-- time -->\n\n<!-- end -->\nlast\n"
    once = told.rewritten(text, found, numbers)
    assert "| steps | 1 of 2 |" in once
    assert "| 0.90 / 0.10 | 1 | 0 |" in once
    assert "2 sweeps in 30 s (1500 s for 100)" in once
    assert "old" not in once
    assert "\nkept\n" in once
    assert once.endswith("last\n")
    assert told.rewritten(once, found, numbers) == once
    assert "Still to be run" not in once
    assert "Still to be run: 1 of steps." in told.rewritten(text, {kind: found[kind][:1]}, numbers)
    with pytest.raises(SystemExit, match="<!-- steps -->"):
        told.rewritten(text.replace("steps", "stairs"), found, numbers)


class _Here:
    """An executor that works in this process."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.map = map

    def __enter__(self) -> _Here:
        return self

    def __exit__(self, *args: object) -> None:
        pass


@pytest.mark.slow
def test_ten_worlds_are_told_apart() -> None:
    plan = worlds.Plan(number=15, seeds=3)
    found = {
        kind: told.summary([r for n in range(5) for r in simulation.world_rows((kind, [n], 1, plan, "", "cpu"))])
        for kind in (simulation.KINDS[0], simulation.KINDS[7])
    }
    none, strong = found.values()
    assert none["called"] <= 1 and none["inconclusive"] == 0
    # The removal side of 45 models decides: it calls three of these five, and none of the others is cleared.
    assert strong["called"] >= 3
    assert strong["called"] + strong["inconclusive"] == 5
    assert 0.78 <= none["accuracy"] <= 0.88
