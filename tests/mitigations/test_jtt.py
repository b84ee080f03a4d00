"""JTT: the upweighting as copies, the errors of an early model, the choice of the pair, and runs that were killed."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from digit_worlds import cnn, digits, vit  # noqa: E402

from rightreasons.data.cohort import Cohort  # noqa: E402
from rightreasons.errors import SettingError, TrainingError  # noqa: E402
from rightreasons.extraction import read  # noqa: E402
from rightreasons.mitigations import jtt  # noqa: E402
from rightreasons.models.training import train  # noqa: E402

pytestmark = pytest.mark.torch

QUICK = {"epochs": 2, "lr": 3e-3, "threads": 1, "device": "cpu"}


cohort = digits()
three = digits(three=True)


@pytest.mark.parametrize(("weight", "copies"), [("copies", 5), ("paper", 4)])
def test_upweighting_by_lambda_is_the_loss_over_copies(cohort, rng, weight, copies):
    rows = cohort.on("train")
    loss = rng.exponential(size=len(rows))
    wrong = frozenset(rng.choice(rows.id, 20, replace=False))
    w = jtt.upweighted(rows, wrong, 4, weight)
    repeated = np.concatenate([[each] * (copies if name in wrong else 1) for each, name in zip(loss, rows.id, strict=True)])
    assert np.average(loss, weights=w) == pytest.approx(repeated.mean())
    assert (w / w.mean() * loss).mean() == pytest.approx(repeated.mean())  # as `train` uses weights: of mean 1


def test_the_errors_are_those_of_the_weights_after_so_many_epochs(cohort):
    start = cnn()
    shared = {"attribute": None, "batch": 16, "lr": 3e-3, "stop_on": "accuracy", "seed": 5, "threads": 1, "device": "cpu"}
    found = jtt.early_errors(start, cohort, (1, 4), None, **shared)
    after_one = train(start, cohort, epochs=1, schedule=None, **shared)
    rows = cohort.on("train")
    wrong = read(after_one, rows)["logits"].argmax(1) != rows.label
    assert found[1] == set(rows.id[wrong])
    assert 0 < len(found[1]) < len(rows)
    assert found[4] != found[1]


@pytest.mark.parametrize(("network", "world"), [(cnn, "cohort"), (vit, "three")])
def test_it_keeps_the_pair_that_is_best_on_the_val_rows(network, world, request):
    rows = request.getfixturevalue(world)
    old = network(rows.classes)
    before = old.fingerprint
    new = jtt.mitigate(old, rows, rng=np.random.default_rng(0), early=(1, 2), upweight=(2.0, 10.0), **QUICK)
    assert old.fingerprint == before != new.fingerprint
    assert new.used == set(rows.on("train").id) | set(rows.on("val").id)
    told = new.card["mitigation"]
    scores = [each["wga"] for each in told["chosen"]["tried"]]
    first = told["chosen"]["tried"][int(np.argmax(scores))]
    assert len(scores) in (2, 4)  # two where both epochs leave the same errors
    assert {key: told["chosen"][key] for key in first} == first
    assert told["selected_by"] == "validation WGA"
    assert told["settings"]["weight"] == "copies"


def test_without_an_attribute_the_accuracy_selects(cohort):
    columns = {"id": cohort.id, "image": cohort.image, "label": cohort.label, "split": cohort.splits}
    bare = Cohort.from_columns(columns, split="split", root=cohort.root)
    new = jtt.mitigate(cnn(), bare, rng=np.random.default_rng(0), early=(1,), upweight=(5.0,), **QUICK)
    assert new.card["mitigation"]["selected_by"] == "validation accuracy"
    assert "accuracy" in new.card["mitigation"]["chosen"]


def test_epochs_that_leave_no_error_or_the_same_are_not_tried():
    some, other = frozenset({"a"}), frozenset({"b"})
    assert jtt._different({1: some, 2: some, 3: other, 4: frozenset()}) == {1: some, 3: other}


@pytest.mark.parametrize("dies_at", ["stage one", "the second pair"])
def test_a_killed_run_ends_with_the_weights_of_an_undisturbed_one(cohort, tmp_path, monkeypatch, dies_at):
    settings = {**QUICK, "early": (1, 2), "upweight": (2.0, 10.0)}
    whole = jtt.mitigate(cnn(), cohort, rng=np.random.default_rng(3), **settings)
    first, calls = jtt.cross_entropy, []

    def dies(classifier, batch):
        if batch.epoch == 2:
            raise KeyboardInterrupt
        return first(classifier, batch)

    def trains(*given, **named):
        calls.append(named)
        if len(calls) == 3 and dies_at != "stage one":
            raise KeyboardInterrupt
        return train(*given, **named)

    if dies_at == "stage one":
        monkeypatch.setattr(jtt, "cross_entropy", dies)
    monkeypatch.setattr(jtt, "train", trains)
    with pytest.raises(KeyboardInterrupt):
        jtt.mitigate(cnn(), cohort, rng=np.random.default_rng(3), folder=tmp_path, **settings)
    monkeypatch.undo()
    resumed = jtt.mitigate(cnn(), cohort, rng=np.random.default_rng(3), folder=tmp_path, **settings)
    assert resumed.fingerprint == whole.fingerprint
    assert resumed.card["mitigation"]["chosen"] == whole.card["mitigation"]["chosen"]


def test_what_it_cannot_use_is_refused(cohort, monkeypatch):
    with pytest.raises(SettingError, match="early"):
        jtt.mitigate(cnn(), cohort, rng=np.random.default_rng(0), early=(0,), **QUICK)
    with pytest.raises(SettingError, match="copies or paper"):
        jtt.mitigate(cnn(), cohort, rng=np.random.default_rng(0), weight="lambda", **QUICK)
    monkeypatch.setattr(jtt, "early_errors", lambda *_, **__: {1: frozenset()})
    with pytest.raises(TrainingError, match="makes no error"):
        jtt.mitigate(cnn(), cohort, rng=np.random.default_rng(0), early=(1,), **QUICK)
