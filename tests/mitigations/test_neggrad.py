"""A-NegGrad+: its formula, and what all unlearning keeps: the old model, the same answer twice, resuming, the guard."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from unlearning_worlds import erm, left_alone, same, world  # noqa: E402

from rightreasons.data.cohort import Cohort  # noqa: E402
from rightreasons.errors import DataError, SettingError  # noqa: E402
from rightreasons.mitigations import neggrad, salun, scrub, ssd  # noqa: E402
from rightreasons.mitigations._association import Association  # noqa: E402
from rightreasons.models import training  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402
from rightreasons.models.training import Batch  # noqa: E402

pytestmark = pytest.mark.torch

TRAINED = {"neggrad": neggrad, "scrub": scrub, "salun": salun}
METHODS = {**TRAINED, "ssd": ssd}


def settings_of(name, **more):
    own = {"alpha": (50.0, 1e6)} if name == "ssd" else {"epochs": 2, "lr": 3e-3, "mu": 0.3}
    return {"batch": 50, "threads": 1, "device": "cpu", "keep": 1.0, **own, **more}


def unlearned(name, model, cohort, seed=0, **more):
    return METHODS[name].mitigate(model, cohort, rng=np.random.default_rng(seed), **settings_of(name, **more))


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setenv("RIGHTREASONS_QUIET", "1")


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    return world(tmp_path_factory.mktemp("stripes"), missing=5)


@pytest.fixture(scope="module")
def model(cohort):
    """After one epoch it decides for one class: no unlearning lowers its worst group."""
    return erm(cohort, epochs=1)


# ---- the formula --------------------------------------------------------------------------------------------------------


def test_the_value_and_both_gradients_are_those_of_the_formula(model):
    g = torch.Generator().manual_seed(0)
    made = model.copy()
    head = Association(torch.ones(2, 2), torch.zeros(model.d), torch.ones(model.d))
    torch.nn.init.normal_(head.weight, generator=g)
    x, y, a = torch.randn(12, 3, 16, 16, generator=g), torch.arange(12) % 2, torch.arange(12) // 2 % 2
    weight = torch.rand(12, generator=g)
    objective = neggrad.NegGrad(head, "tag", 0.7)
    value = objective(made, Batch(x, y, {"tag": a}, weight, np.arange(12), 0, 0, g))
    value.backward()
    found = {name: p.grad.clone() for name, p in made.module.named_parameters()}

    z, logits = made.read(x)
    log_p = torch.log_softmax(logits, dim=1)
    task = sum(-log_p[i, y[i]] * weight[i] for i in range(12)) / 12
    log_q = [torch.log_softmax(head.weight[y[i]] @ z[i] + head.bias[y[i]], dim=0)[a[i]] for i in range(12)]
    association = -sum(log_q) / 12
    assert float(value.detach()) == pytest.approx(float((task - 0.7 * association).detach()), rel=1e-5)
    expected = torch.autograd.grad(task - 0.7 * association, list(made.module.parameters()), retain_graph=True)
    for gradient, literal in zip(found.values(), expected, strict=True):
        assert torch.allclose(gradient, literal, atol=1e-6)
    (learns,) = torch.autograd.grad(association, [head.weight])  # the head descends where the extractor ascends
    assert torch.allclose(head.weight.grad, learns, atol=1e-6)


# ---- all four -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_the_old_model_stays_untouched_and_the_same_seed_gives_the_same_model(name, model, cohort):
    before = left_alone(model)
    first, second = (unlearned(name, model, cohort) for _ in range(2))
    assert left_alone(model) == before
    assert same(first, second)
    assert not same(first, model)
    assert first.card == second.card
    told = first.card["mitigation"]
    assert first.card["regime"] == told["method"] == name
    assert told["selected_by"] == "validation WGA"
    assert told["of"] == model.fingerprint
    assert "unchanged" not in told["chosen"]
    assert left_alone(first)[1:4] == left_alone(model)[1:4]  # evaluation mode, no hooks, no gradients
    known = cohort.select(cohort.complete("tag"))
    assert first.used >= set(known.id)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("network", ["cnn", "vit"])
def test_many_classes_and_values_on_convolutions_and_tokens(name, network, tmp_path):
    cohort = world(tmp_path, classes=3, values=3, n=240, conflict=0.5)
    model = erm(cohort, network, epochs=1)
    made = unlearned(name, model, cohort)
    assert made.C == 3
    assert all(torch.isfinite(p).all() for p in made.module.parameters())
    made.verify()
    made.save(tmp_path / "made")
    assert same(Classifier.open(tmp_path / "made"), made)


@pytest.mark.parametrize("name", TRAINED)
def test_a_killed_run_goes_on_and_ends_with_the_same_weights(name, model, cohort, tmp_path, monkeypatch):
    undisturbed = unlearned(name, model, cohort)
    save = training.Run.save

    def save_and_die(run, folder):
        save(run, folder)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(training.Run, "save", save_and_die)
        unlearned(name, model, cohort, folder=tmp_path)
    monkeypatch.setattr("rightreasons.mitigations._unlearning.fit_association", None)  # its head is kept, not fitted again
    assert same(unlearned(name, model, cohort, folder=tmp_path), undisturbed)
    assert same(unlearned(name, model, cohort, folder=tmp_path), undisturbed)  # a finished folder
    assert (tmp_path / "mu-0.3" / "curves.csv").exists()


@pytest.mark.parametrize("name", METHODS)
def test_what_cannot_be_unlearned_is_refused(name, model, cohort):
    with pytest.raises(SettingError, match="no attribute 'sex'"):
        unlearned(name, model, cohort, attribute="sex")
    with pytest.raises(SettingError, match="keep is 5"):
        unlearned(name, model, cohort, keep=5)
    with pytest.raises(SettingError, match="give a number above 0"):
        unlearned(name, model, cohort, **({"alpha": ()} if name == "ssd" else {"mu": (0.1, -1.0)}))
    with pytest.raises(SettingError, match="give a number above 0"):
        unlearned(name, model, cohort, **{"alpha" if name == "ssd" else "mu": "large"})
    n = len(cohort)
    columns = {"id": cohort.id, "image": cohort.image, "label": cohort.label, "split": cohort.splits, "age": np.arange(n) / n}
    aged = Cohort.from_columns(columns, attribute=["age"], split="split", root=cohort.root)
    with pytest.raises(DataError, match="continuous"):
        unlearned(name, model, aged)


# ---- selection ----------------------------------------------------------------------------------------------------------


def test_the_chosen_strength_has_the_best_validation_score_of_those_that_keep_the_task(model, cohort):
    made = unlearned("neggrad", model, cohort, mu=(0.01, 0.3, 30.0), keep=0.05)
    chosen = made.card["mitigation"]["chosen"]
    assert [tried["mu"] for tried in chosen["tried"]] == [0.01, 0.3, 30.0]
    before = chosen["before"]
    able = [t for t in chosen["tried"] if t["task_accuracy"] >= before["task_accuracy"] - 0.05 and t["wga"] >= before["wga"]]
    if able:
        assert chosen["mu"] == max(able, key=lambda t: (t["wga"], t["task_accuracy"]))["mu"]
    else:
        assert same(made, model)


def test_a_model_that_nothing_improves_stays_as_it_was_and_says_so(cohort, tmp_path):
    model = erm(cohort, epochs=8)
    made = unlearned("ssd", model, cohort, alpha=1e-6, keep=0.05)  # damps nearly everything
    chosen = made.card["mitigation"]["chosen"]
    assert chosen["tried"][0]["task_accuracy"] < chosen["before"]["task_accuracy"] - 0.05
    assert "as it was given" in chosen["unchanged"]
    assert same(made, model)
    assert made is not model
    assert made.card["regime"] == "ssd"


def test_without_groups_among_the_validation_rows_accuracy_selects(cohort):
    tag = np.where(cohort.splits == "val", None, np.array([*cohort.attribute().levels, None], object)[cohort.attribute().values])
    columns = {"id": cohort.id, "image": cohort.image, "label": cohort.label, "split": cohort.splits, "tag": tag}
    blind = Cohort.from_columns(columns, attribute=["tag"], split="split", root=cohort.root)
    made = unlearned("neggrad", erm(cohort, epochs=1), blind)
    assert made.card["mitigation"]["selected_by"] == "validation accuracy"


def test_groups_with_too_few_validation_rows_are_named(model, cohort):
    few = np.flatnonzero((cohort.splits == "val") & (cohort.group() == 1))[3:]
    made = unlearned("neggrad", model, cohort.select(np.setdiff1d(np.arange(len(cohort)), few)))
    (named,) = made.card["mitigation"]["chosen"]["too_few_validation_rows"]
    assert "label=0" in named


@pytest.mark.slow
def test_unlearning_raises_the_worst_group_in_a_world_with_a_planted_tag(tmp_path):
    """Five epochs of ERM on stripes that are hard to see beside a tag that is right in 90 % of the rows."""
    cohort = world(tmp_path, n=1200, conflict=0.1)
    model = erm(cohort, epochs=5)
    for name in TRAINED:
        chosen = unlearned(name, model, cohort, epochs=8, mu=(0.03, 0.1, 0.3), keep=0.05).card["mitigation"]["chosen"]
        assert chosen["wga"] >= chosen["before"]["wga"], name
