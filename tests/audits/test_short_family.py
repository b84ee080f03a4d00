"""A family of models that is trained, audited, chosen from, and audited again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import rightreasons as rr  # noqa: E402
from rightreasons.data import planted  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]


def test_the_chosen_model_of_a_family_is_handed_on_and_audited_on_other_rows(tmp_path: Path) -> None:
    world = {"pixels": 16, "agreement": 0.85, "agreement_test": 0.5, "strength": 0.4, "cue_noise": 0.2}
    cohort = planted.digits(tmp_path / "first", n=1200, seed=1, **world)
    spec = "rightreasons.models.small:small_cnn"
    start = Classifier.load(
        spec, num_classes=2, classes=(0, 1), size=(16, 16), width=4, mean=0.5, std=0.5, rng=np.random.default_rng(0)
    )
    quick = {"epochs": 5, "lr": 3e-3, "batch": 32, "hidden": [16], "patience": None, "threads": 1, "device": "cpu"}
    family = [
        rr.mitigate("gradient_scaling", start, cohort, attribute="cue", scale=scale, seed=seed, **quick)
        for scale in (-0.4, -0.1, 0.0, 0.4, 1.0)
        for seed in range(2)
    ]
    evidence = [rr.extract(model, cohort, ["short"]) for model in family]
    result = rr.audit("short", {"sweep": evidence}, attribute="cue", B=40, permutations=99, floor=0.6)
    assert [m.scale for m in result.judged.family.models] == [-0.4, -0.4, -0.1, -0.1, 0.0, 0.0, 0.4, 0.4, 1.0, 1.0]
    chosen = result.pick(tolerance=0.05)
    family[chosen].save(tmp_path / "chosen")
    again = Classifier.open(tmp_path / "chosen")
    other = planted.digits(tmp_path / "other", n=600, seed=2, **world)
    view = rr.extract(again, other, ["groups", "flips", "short"])
    before = rr.extract(family[chosen], other, ["groups"])
    np.testing.assert_array_equal(view.on("test")["logits"], before.on("test")["logits"])
    assert rr.audit("groups", view, B=50).finding().verdict is None
    assert rr.audit("flips", view, B=50).finding().verdict in ("shortcut", "no evidence")
