"""CCR: literal twins of equations 7 to 10, what the scale and the parts do, and how the strength is chosen."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from rightreasons.audits.sdi.severities import Severities, Severity  # noqa: E402
from rightreasons.errors import SettingError  # noqa: E402
from rightreasons.mitigations import ccr  # noqa: E402
from rightreasons.mitigations._check import world  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402
from rightreasons.models.training import CURVES, cross_entropy  # noqa: E402

pytestmark = pytest.mark.torch

OPERATORS = {"border": 0.5, "cast": 0.5, "tags": 0.7}
QUICK = {"epochs": 1, "batch": 32, "threads": 1, "device": "cpu", "workers": 1, "patience": None}


def network(kind="cnn", classes=2):
    settings = {"width": 4} if kind == "cnn" else {"dim": 16, "depth": 2, "heads": 2}
    return Classifier.load(
        f"rightreasons.models.small:small_{kind}", num_classes=classes, classes=tuple(range(classes)), size=(16, 16), mean=0.5,
        std=0.5, rng=np.random.default_rng(0), **settings,
    )  # fmt: skip


def batch_of(n=12, classes=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    return SimpleNamespace(
        x=torch.rand(n, 3, 16, 16, generator=g) * 2 - 1, y=torch.arange(n) % classes, weight=torch.ones(n), step=0,
        generator=torch.Generator().manual_seed(seed + 1),
    )  # fmt: skip


@pytest.mark.parametrize("classes", [2, 3])
def test_the_loss_is_equations_7_to_9(classes):
    g = torch.Generator().manual_seed(0)
    z, z_nc, z_c = torch.randn(3, 5, 4, generator=g).double()
    logits, logits_nc = torch.randn(2, 5, classes, generator=g).double()
    objective = ccr.Consistency(OPERATORS, prediction=0.7, sensitivity=0.4, margin=3.0)
    scale = 2.5
    for row in range(5):
        square = sum((a - b) ** 2 for a, b in zip(z[row].tolist(), z_nc[row].tolist())) / scale**2
        p, q = (softmax(v[row].tolist()) for v in (logits, logits_nc))
        p, q = (p[1:], q[1:]) if classes == 2 else (p, q)
        invariance = square + 0.7 * sum((a - b) ** 2 for a, b in zip(p, q))
        away = math.sqrt(sum((a - b) ** 2 for a, b in zip(z[row].tolist(), z_c[row].tolist()))) / scale
        twin = invariance + 0.4 * max(0.0, 3.0 - away)
        found = objective.consistency(z, z_nc, z_c, logits, logits_nc, scale)[row]
        assert float(found) == pytest.approx(twin, abs=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["cnn", "vit"])
def test_the_whole_is_equation_10_from_one_pass(kind):
    classifier, batch = network(kind), batch_of()
    objective = ccr.Consistency(OPERATORS, strength=0.6)
    whole = objective(classifier, batch)
    again = batch_of()
    nc, c = objective.changed(classifier, again, ccr.Consistency(OPERATORS).draw(again.generator))
    (z, said), (z_nc, said_nc), (z_c, _) = (classifier.read(x) for x in (again.x, nc, c))
    parts = objective.consistency(z, z_nc, z_c, said, said_nc, z.norm(dim=1).mean()).mean()
    assert float(whole) == pytest.approx(float(cross_entropy(classifier, again) + 0.6 * parts), abs=1e-6)
    assert not torch.equal(nc, again.x) and not torch.equal(c, again.x)


def test_gradients_flow_through_both_changed_images():
    z, z_nc, z_c = (torch.randn(4, 3, requires_grad=True) for _ in range(3))
    logits, logits_nc = (torch.randn(4, 2, requires_grad=True) for _ in range(2))
    ccr.Consistency(OPERATORS, margin=100.0).consistency(z, z_nc, z_c, logits, logits_nc).sum().backward()
    assert all(float(t.grad.abs().sum()) > 0 for t in (z, z_nc, z_c, logits, logits_nc))
    same = torch.randn(4, 3, requires_grad=True)
    ccr.Consistency(OPERATORS).consistency(same, same.detach(), same.detach(), logits, logits_nc).sum().backward()
    assert bool(torch.isfinite(same.grad).all())  # where nothing moved


def test_distances_do_not_depend_on_the_size_of_the_features():
    z = torch.randn(6, 5)
    small, large = (ccr.Consistency(OPERATORS) for _ in range(2))
    assert float(large._scale(100 * z)) == pytest.approx(100 * float(small._scale(z)), rel=1e-5)
    assert float(ccr.Consistency(OPERATORS, normalised=False)._scale(z)) == 1


@pytest.mark.parametrize("part", ["representation", "prediction", "sensitivity"])
def test_a_part_of_weight_0_is_left_out(part):
    z, z_nc, z_c = torch.randn(3, 4, 3)
    logits, logits_nc = torch.randn(2, 4, 2)
    parts = {
        "representation": (z - z_nc).square().sum(1),
        "prediction": (logits.softmax(1)[:, 1] - logits_nc.softmax(1)[:, 1]).square(),
        "sensitivity": (5.0 - (z - z_c).norm(dim=1)).clamp(min=0),
    }
    found = ccr.Consistency(OPERATORS, margin=5.0, **{part: 0.0}).consistency(z, z_nc, z_c, logits, logits_nc)
    assert torch.allclose(found, sum(v for k, v in parts.items() if k != part), atol=1e-5)


def test_the_strength_is_the_largest_that_keeps_the_validation_auc(tmp_path, monkeypatch):
    cohort, given = world(tmp_path, 2), network()
    said = iter([0.9, 0.80, 0.885, 0.95])  # the baseline, then from the largest strength down
    monkeypatch.setattr(ccr, "_validation_auc", lambda *_: next(said))
    new = ccr.mitigate(given, cohort, rng=np.random.default_rng(0), strengths=(0.1, 2.0, 0.5), **QUICK)
    assert new.card["mitigation"]["chosen"]["strength"] == 0.5
    assert new.card["mitigation"]["chosen"]["within the tolerance"] is True


def test_settings_without_sense_are_refused(tmp_path):
    for settings in ({"strength": -1.0}, {"strengths": ()}, {"margin": -0.1}):
        with pytest.raises(SettingError, match="at least 0"):
            ccr.mitigate(network(), world(tmp_path, 2), rng=np.random.default_rng(0), **settings)
    with pytest.raises(SettingError, match="excluded"):
        ccr.Consistency({})


def softmax(values):
    total = sum(math.exp(v) for v in values)
    return [math.exp(v) / total for v in values]


def test_operators_under_which_predictions_still_move_come_up_more_often():
    objective = ccr.Consistency(OPERATORS)
    flat, moved = torch.zeros(8, 2), torch.stack([torch.full((8,), -4.0), torch.full((8,), 4.0)], dim=1)
    for which, after in enumerate((moved, flat, flat)):
        for _ in range(20):
            objective._remember(which, flat, after)
    draws = np.bincount([objective.draw(torch.Generator().manual_seed(k)) for k in range(600)], minlength=3) / 600
    assert draws[0] > 0.8 and min(draws[1:]) > 0  # no operator is forgotten
    objective.focus = False
    draws = np.bincount([objective.draw(torch.Generator().manual_seed(k)) for k in range(600)], minlength=3) / 600
    assert np.abs(draws - 1 / 3).max() < 0.07


def test_operators_on_which_the_baseline_depends_are_used_where_there_are_such(tmp_path):
    kept = Severity("grain", 0.2, {}, "kept")
    depends = Severity("border", 0.4, {}, "baseline depends on it")
    excluded = Severity("jpeg", 0.1, {}, "excluded")
    assert ccr._operators(Severities((kept, depends, excluded)), True) == {"border": 0.4}
    assert ccr._operators(Severities((kept, excluded)), True) == {"grain": 0.2}
    assert ccr._operators(Severities((kept, depends)), False) == {"grain": 0.2, "border": 0.4}


def test_the_curves_of_the_chosen_strength_are_kept(tmp_path):
    new = ccr.mitigate(
        network(), world(tmp_path, 2), rng=np.random.default_rng(0), strengths=(0.5,), folder=tmp_path / "work", **QUICK
    )
    assert new.card["mitigation"]["chosen"]["strength"] == 0.5
    assert (tmp_path / "work" / CURVES).read_text() == (tmp_path / "work" / "strength-0.5" / CURVES).read_text()
