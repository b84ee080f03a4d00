"""GroupDRO: the weights of the groups against a literal twin, what is trained, and killed runs."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from digit_worlds import cnn, digits, vit  # noqa: E402

from rightreasons.errors import DataError, SettingError  # noqa: E402
from rightreasons.mitigations import groupdro  # noqa: E402
from rightreasons.models._examples import Examples  # noqa: E402
from rightreasons.models.grouped_rows import grouped  # noqa: E402

pytestmark = pytest.mark.torch

STUB = SimpleNamespace(logits=lambda x: x)
QUICK = {"epochs": 3, "lr": 3e-3, "threads": 1, "device": "cpu"}


cohort = digits()
three = digits(three=True)


def batch_of(logits, y, a, weight=None):
    weight = torch.ones(len(y)) if weight is None else torch.as_tensor(weight, dtype=torch.float32)
    return SimpleNamespace(x=logits, y=torch.as_tensor(y), attributes={"cue": torch.as_tensor(a)}, weight=weight, epoch=0)


def twin_step(q, logits, y, a, levels, step, adjustment, size):
    """One step of Sagawa et al. 2020, algorithm 1, as their code has it: group by group, row by row."""
    loss = []
    for g in range(len(q)):
        rows = [i for i in range(len(y)) if y[i] * levels + a[i] == g]
        each = [math.log(sum(math.exp(v) for v in logits[i])) - logits[i][y[i]] for i in rows]
        loss.append(sum(each) / len(each) if each else 0.0)
    raised = [q[g] * math.exp(step * (loss[g] + adjustment / math.sqrt(size[g]))) for g in range(len(q))]
    q = [value / sum(raised) for value in raised]
    return q, sum(value * mean for value, mean in zip(q, loss, strict=True))


@pytest.mark.parametrize("adjustment", [0.0, 1.5])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_weights_follow_the_original_over_a_sequence_of_batches(adjustment, classes, rng):
    size = np.arange(10, 10 + 2 * classes)
    objective = groupdro.WorstGroups("cue", size, 2, step=0.3, adjustment=adjustment)
    q = [1 / (2 * classes)] * (2 * classes)
    for b in range(12):
        logits = torch.tensor(rng.normal(0, 2, (9, classes)), dtype=torch.float32)
        y, a = rng.integers(0, classes, 9), rng.integers(0, 2, 9) if b % 3 else np.zeros(9, int)  # groups are absent
        loss = objective(STUB, batch_of(logits, y, a))
        q, expected = twin_step(q, logits.tolist(), y.tolist(), a.tolist(), 2, 0.3, adjustment, size.tolist())
        np.testing.assert_allclose(objective.q.numpy(), q, rtol=1e-6)
        assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_the_gradient_is_that_of_the_weighted_means_and_not_of_the_weights(rng):
    logits = torch.tensor(rng.normal(size=(4, 2)), dtype=torch.float32, requires_grad=True)
    objective = groupdro.WorstGroups("cue", np.full(4, 5), 2, step=1.0)
    objective(STUB, batch_of(logits, [0, 0, 1, 1], [0, 0, 1, 1])).backward()
    q = objective.q.float()
    one = torch.softmax(logits.detach(), 1) - torch.eye(2)[[0, 0, 1, 1]]
    expected = one * torch.tensor([q[0] / 2, q[0] / 2, q[3] / 2, q[3] / 2])[:, None]
    torch.testing.assert_close(logits.grad, expected)


def test_a_group_that_training_lacks_has_no_weight_ever():
    objective = groupdro.WorstGroups("cue", np.array([5, 0, 5, 5]), 2, adjustment=1.0)
    objective(STUB, batch_of(torch.zeros(2, 2), [0, 1], [0, 1]))
    assert objective.q[1] == 0
    assert float(objective.q.sum()) == pytest.approx(1)


def test_weights_of_rows_make_weighted_means():
    logits = torch.tensor([[0.0, 2.0], [1.0, 0.0], [1.0, 0.0]])
    apart = groupdro.WorstGroups("cue", np.full(4, 5), 2)(STUB, batch_of(logits[:2], [0, 0], [0, 0], [1, 2]))
    copied = groupdro.WorstGroups("cue", np.full(4, 5), 2)(STUB, batch_of(logits, [0, 0, 0], [0, 0, 0]))
    torch.testing.assert_close(apart, copied)


@pytest.mark.parametrize(("network", "world"), [(cnn, "cohort"), (vit, "three")])
def test_it_trains_anew_and_leaves_the_old_model_alone(network, world, request):
    rows = request.getfixturevalue(world)
    old = network(rows.classes)
    before = old.fingerprint
    new = groupdro.mitigate(old, rows, rng=np.random.default_rng(0), **QUICK)
    assert old.fingerprint == before != new.fingerprint
    assert new.used == set(rows.on("train").id) | set(rows.on("val").id)
    told = new.card["mitigation"]
    assert new.card["regime"] == "groupdro"
    assert told["selected_by"] == "validation WGA"
    assert told["settings"]["step"] >= 0.01
    weights = told["chosen"]["group weights"]
    assert len(weights) == len(rows.classes) * len(rows.attribute().levels)
    assert sum(weights.values()) == pytest.approx(1, abs=1e-4)


def test_a_killed_run_ends_with_the_weights_of_an_undisturbed_one(cohort, tmp_path, monkeypatch):
    settings = {**QUICK, "step": 0.5}
    whole = groupdro.mitigate(cnn(), cohort, rng=np.random.default_rng(3), **settings)
    forward = groupdro.WorstGroups.forward

    def dies(self, classifier, batch):
        if batch.epoch == 2:
            raise KeyboardInterrupt
        return forward(self, classifier, batch)

    monkeypatch.setattr(groupdro.WorstGroups, "forward", dies)
    with pytest.raises(KeyboardInterrupt):
        groupdro.mitigate(cnn(), cohort, rng=np.random.default_rng(3), folder=tmp_path, **settings)
    monkeypatch.undo()
    for _ in range(2):  # goes on, and then finds it finished
        resumed = groupdro.mitigate(cnn(), cohort, rng=np.random.default_rng(3), folder=tmp_path, **settings)
        assert resumed.fingerprint == whole.fingerprint
        assert resumed.card["mitigation"]["chosen"] == whole.card["mitigation"]["chosen"]


def test_what_it_cannot_use_is_refused(cohort):
    start = cnn()
    with pytest.raises(SettingError, match="cue"):
        groupdro.mitigate(start, cohort, rng=np.random.default_rng(0), attribute="cu", **QUICK)
    with pytest.raises(SettingError, match="step"):
        groupdro.mitigate(start, cohort, rng=np.random.default_rng(0), step=0.0, **QUICK)
    gone = (cohort.splits == "train") & (cohort.label == 0) & (cohort.attribute().values == 1)
    with pytest.raises(DataError, match="label=0, cue=1: 0"):
        groupdro.mitigate(start, cohort.select(~gone), rng=np.random.default_rng(0), **QUICK)


def test_groups_are_drawn_evenly_and_rows_of_one_group_alike(cohort):
    rows = grouped(cnn(), cohort.on("train"), None)
    size = np.bincount(rows.group, minlength=rows.C * rows.A)
    chances = groupdro.evenly(rows.cohort, rows, size)
    by_group = np.bincount(rows.group, weights=chances, minlength=len(size))
    np.testing.assert_allclose(by_group[size > 0], 1.0)
    order = SimpleNamespace(y=np.zeros(len(rows)), draw=chances / chances.sum(), _rows_of_an_epoch=lambda batch: 8000)
    drawn = Examples.order(order, 64, 0, 0)
    share = np.bincount(rows.group[drawn], minlength=len(size))[size > 0] / len(drawn)
    np.testing.assert_allclose(share, 1 / (size > 0).sum(), atol=0.03)
    assert (Examples.order(order, 64, 0, 0) == drawn).all()
    assert (Examples.order(order, 64, 0, 1) != drawn).any()


def test_the_weights_of_every_epoch_are_kept_and_survive_a_checkpoint():
    objective = groupdro.WorstGroups("cue", np.full(4, 5), 2, step=1.0)
    batch = batch_of(torch.tensor([[3.0, 0.0], [0.0, 3.0]]), [1, 1], [0, 1])
    for epoch in (0, 0, 1):
        batch.epoch = epoch
        objective(STUB, batch)
    assert len(objective.path) == 2 and objective.path[1] == objective.q.tolist()
    restored = groupdro.WorstGroups("cue", np.full(4, 5), 2, step=1.0)
    restored.load_state_dict(objective.state_dict())
    assert restored.path == objective.path


def test_a_short_training_takes_larger_steps():
    assert groupdro.default_step(10_000) == groupdro.default_step(500) == 0.01
    assert groupdro.default_step(50) == pytest.approx(0.1)
