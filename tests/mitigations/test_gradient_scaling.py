"""Gradient scaling: the gradient layer to the bit, scale 0 is plain training, and the sweep moves the encoding."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from benchmarks._two_heads import TwoHeads, batch_rows, fit_many  # noqa: E402

from rightreasons.data import planted  # noqa: E402
from rightreasons.data.cohort import Cohort  # noqa: E402
from rightreasons.errors import DataError, SettingError  # noqa: E402
from rightreasons.extraction import read  # noqa: E402
from rightreasons.mitigations import gradient_scaling, mitigate  # noqa: E402
from rightreasons.mitigations.gradient_scaling import Branch, WithAttributes, scaled, scales  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402
from rightreasons.models.grouped_rows import completed, seed_of  # noqa: E402
from rightreasons.models.starting import fresh  # noqa: E402
from rightreasons.models.training import train  # noqa: E402
from rightreasons.stats import probes  # noqa: E402

pytestmark = pytest.mark.torch

QUICK = {"epochs": 2, "lr": 3e-3, "patience": None, "threads": 1, "device": "cpu", "workers": 1}


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    return planted.digits(tmp_path_factory.mktemp("digits"), n=400, pixels=16, agreement=0.8, seed=1)


def cnn() -> Classifier:
    spec = "rightreasons.models.small:small_cnn"
    return Classifier.load(
        spec, num_classes=2, classes=(0, 1), size=(16, 16), width=4, mean=0.5, std=0.5, rng=np.random.default_rng(0)
    )


def test_scale_zero_is_single_task_training_to_the_bit(cohort: Cohort) -> None:
    given = cnn()
    new = gradient_scaling.mitigate(given, cohort, rng=np.random.default_rng(3), scale=0.0, **QUICK)
    rng = np.random.default_rng(3)
    seed, whole = seed_of(rng), completed(cohort, rng)
    plain = train(fresh(given, rng), whole, stop_on="auc", seed=seed, **QUICK)
    assert new.card["curves"] == plain.card["curves"]
    for (name, p), q in zip(new.module.state_dict().items(), plain.module.state_dict().values(), strict=True):
        assert torch.equal(p, q), name


def gradients(scale: float, weight: float, label: bool) -> tuple[dict[str, torch.Tensor], list[torch.Tensor], torch.Tensor]:
    """Of a linear extractor's parameters and of the branch, for the attribute's loss alone or with the label's."""
    body, head = torch.nn.Linear(5, 4), torch.nn.Linear(4, 2)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in (*body.parameters(), *head.parameters()):
            p.copy_(torch.randn(p.shape, generator=generator))
    x = torch.randn(16, 5, generator=generator)
    objective = WithAttributes(4, [Branch("cue", scale, weight, 2)], hidden=(6,), rng=np.random.default_rng(0))
    held: list[torch.Tensor] = []

    def both(given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = body(given)
        z.retain_grad()
        held.append(z)
        return z, head(z) if label else head(z) * 0

    model = SimpleNamespace(read=both, logits=lambda given: both(given)[1])
    batch = SimpleNamespace(x=x, y=torch.arange(16) % 2, attributes={"cue": torch.arange(16) // 2 % 2}, weight=torch.ones(16))
    objective(model, batch).backward()
    branch = [p.grad for p in objective.parameters()]
    return {name: p.grad for name, p in body.named_parameters()}, branch, held[0].grad


def test_the_extractor_sees_exactly_the_scaled_gradient_and_the_branch_the_whole_of_it() -> None:
    _, whole, at_features = gradients(1.0, 1.0, label=False)
    for scale in (-0.1, 0.3, -2.0):
        _, branch, seen = gradients(scale, 1.0, label=False)
        assert torch.equal(seen, at_features * scale)
        for a, b in zip(branch, whole, strict=True):
            assert torch.equal(a, b)
    for scale in (-0.5, 4.0):  # powers of two: exact through every layer below
        body, _, _ = gradients(scale, 1.0, label=False)
        for name, gradient in gradients(1.0, 1.0, label=False)[0].items():
            assert torch.equal(body[name], gradient * scale)


def test_the_layer_is_the_identity_forward() -> None:
    z = torch.randn(3, 2)
    assert torch.equal(scaled(z, -7.0), z)


@pytest.mark.parametrize("kind", ["binary", "several", "continuous"])
def test_the_loss_equals_its_definition_and_skips_unknown_values(kind: str) -> None:
    rng = np.random.default_rng(0)
    branch = {
        "binary": Branch("a", -1.0, 0.5, 2),
        "several": Branch("a", -1.0, 0.5, 3),
        "continuous": Branch("a", -1.0, 0.5, 0, mean=40.0, divisor=100.0),
    }[kind]
    values = {"binary": [0, 1, -1, 1], "several": [2, 1, -1, 0], "continuous": [30.0, 55.0, math.nan, 41.0]}[kind]
    objective = WithAttributes(2, [branch], hidden=(), rng=rng)
    z, logits = torch.randn(4, 2, generator=torch.Generator().manual_seed(0)), torch.zeros(4, 2)
    batch = SimpleNamespace(x=z, y=torch.tensor([0, 1, 0, 1]), attributes={"a": torch.tensor(values)}, weight=torch.ones(4))
    found = float(objective(SimpleNamespace(read=lambda x: (x, logits)), batch).detach())
    out = objective.heads[0](z).detach().numpy().astype(float)
    expected = []
    for row, value in enumerate(values):
        if value == -1 or math.isnan(value):
            continue
        if kind == "binary":
            expected.append(math.log1p(math.exp(out[row, 0])) - value * out[row, 0])
        elif kind == "several":
            expected.append(math.log(sum(math.exp(v) for v in out[row])) - out[row, value])
        else:
            expected.append((out[row, 0] - (value - 40.0) / 10.0) ** 2)
    assert found == pytest.approx(math.log(2) + 0.5 * np.mean(expected), rel=1e-5)


def test_batched_and_one_by_one_training_agree() -> None:
    """The batched simulation (`benchmarks._two_heads`) against this objective: same network, batches and starting weights."""
    rng = np.random.default_rng(0)
    x, y, a = rng.normal(size=(128, 6)).astype(np.float32), rng.integers(0, 2, 128), rng.integers(0, 2, 128)
    start = TwoHeads.start([np.random.default_rng(1)], 2, 6, hidden=(5, 5), branch=2)
    data = tuple(torch.from_numpy(v.astype(np.float32)) for v in (x, y, a))
    fitted = fit_many(
        TwoHeads(), start, data, rngs=[np.random.default_rng(2)], setting={"scale": [-0.7, 1.5], "weight": 0.75}, steps=40,
        batch=32, lr=1e-2, threads=1,
    )  # fmt: skip
    for k, scale in enumerate((-0.7, 1.5)):
        own = {name: p[0, k].clone() for name, p in start.items()}
        body = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 5), torch.nn.ReLU())
        label = torch.nn.Linear(5, 1)
        objective = WithAttributes(5, [Branch("a", scale, 0.75, 2)], hidden=(2,), rng=rng)
        layers = {
            "body.0": body[0], "body.1": body[2], "label": label, "branch": objective.heads[0][0],
            "attribute": objective.heads[0][2],
        }  # fmt: skip
        for name, layer in layers.items():
            layer.load_state_dict({part: own[f"{name}.{part}"] for part in ("weight", "bias")})

        def both(
            given: torch.Tensor, body: torch.nn.Module = body, label: torch.nn.Module = label
        ) -> tuple[torch.Tensor, torch.Tensor]:
            z = body(given)
            return z, torch.cat([torch.zeros(len(z), 1), label(z)], dim=1)

        every = [p for layer in layers.values() for p in layer.parameters()]
        optimizer = torch.optim.Adam(every, lr=1e-2)
        losses = []
        for rows in batch_rows(np.random.default_rng(2), 128, 32, 40):
            batch = SimpleNamespace(
                x=data[0][rows], y=torch.from_numpy(y[rows]), attributes={"a": torch.from_numpy(a[rows])}, weight=torch.ones(32)
            )
            optimizer.zero_grad()
            loss = objective(SimpleNamespace(read=both), batch)
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        np.testing.assert_allclose(losses, fitted.losses[:, 0, k].numpy(), rtol=1e-4, atol=1e-5)


ON_GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))


@pytest.mark.parametrize("device", ["cpu", ON_GPU])
def test_a_sweep_trained_as_one_is_the_sweep_trained_one_by_one(cohort: Cohort, device: str) -> None:
    settings = [{**QUICK, "scale": scale, "hidden": (8,), "device": device, "amp": False} for scale in (-0.5, 0.0, 2.0)]

    def rngs() -> list[np.random.Generator]:
        return [np.random.default_rng(5) for _ in settings]

    found = gradient_scaling.together([cnn() for _ in settings], cohort, settings, rngs=rngs())
    alone = [gradient_scaling.mitigate(cnn(), cohort, rng=rng, **own) for own, rng in zip(settings, rngs(), strict=True)]
    for a, b in zip(found, alone, strict=True):
        assert a.card["mitigation"]["settings"] == b.card["mitigation"]["settings"]
        assert a.card["settings"]["objective"][1]["scales"] == b.card["settings"]["objective"][1]["scales"]
        np.testing.assert_allclose(*([row["loss"] for row in m.card["curves"]] for m in (a, b)), rtol=1e-3)
        for (name, p), q in zip(a.module.state_dict().items(), b.module.state_dict().values(), strict=True):
            torch.testing.assert_close(p, q, rtol=0.01, atol=5e-3, msg=name)
    first = [m.module.state_dict()["body.0.0.weight"] for m in alone]
    assert not torch.allclose(first[0], first[2], atol=0.05)  # every scale has starting weights of its own


def test_the_branch_leaves_and_the_card_tells_the_scale(cohort: Cohort) -> None:
    given = cnn()
    new = mitigate("gradient_scaling", given, cohort, seed=1, scale=-0.5, hidden=(8,), **QUICK)
    assert set(new.module.state_dict()) == set(given.module.state_dict())
    assert new.card["settings"]["objective"][1]["scales"] == [-0.5]
    assert new.card["mitigation"]["selected_by"] == "validation auc"
    assert "cue" in new.card["mitigation"]["chosen"]["loss weights"]


def test_several_attributes_and_a_continuous_one_train_together(cohort: Cohort) -> None:
    columns = {name: cohort.column(name) for name in ("image", "label", "split")}
    columns |= {
        "id": cohort.id,
        "cue": cohort.attribute("cue").values,
        "age": np.random.default_rng(0).normal(50, 9, len(cohort)),
    }
    aged = Cohort.from_columns(columns, image="image", attribute=["cue", "age"], split="split", id="id", root=cohort.root)
    settings = {"attribute": ["cue", "age"], "scale": {"cue": -0.2, "age": 0.1}, "hidden": (8,), **{**QUICK, "epochs": 1}}
    new = mitigate("gradient_scaling", cnn(), aged, seed=1, **settings)
    assert new.card["settings"]["objective"][1]["scales"] == [-0.2, 0.1]
    assert new.card["settings"]["objective"][1]["divisors"][1] == pytest.approx(81, rel=0.3)
    again = mitigate("gradient_scaling", cnn(), aged, seed=1, attribute="age", divisor=100, hidden=(8,), **{**QUICK, "epochs": 1})
    assert again.card["settings"]["objective"][1]["divisors"] == [100.0]


def test_the_scale_moves_the_encoding(tmp_path: Path) -> None:
    cohort = planted.digits(tmp_path, n=900, pixels=16, agreement=0.8, strength=0.5, cue_noise=0.5, seed=1)
    rows = {name: cohort.on(name) for name in ("train", "test")}

    def encoding(scale: float, seed: int) -> float:
        settings = {**QUICK, "epochs": 5, "batch": 32, "scale": scale, "hidden": (16,)}
        new = mitigate("gradient_scaling", cnn(), cohort, seed=seed, **settings)
        z = {name: read(new, part, ("features",), threads=1)["features"] for name, part in rows.items()}
        train, test = (probes.Sample(z[n], rows[n].label, rows[n].attribute("cue").values) for n in ("train", "test"))
        return float(probes.read(train, test, target="global").within_auc.value)

    hidden, shown = (np.mean([encoding(scale, seed) for seed in (0, 1)]) for scale in (-0.5, 3.0))
    assert shown > hidden + 0.1


def test_a_sweep_has_zero_and_pairs_of_magnitudes() -> None:
    found = scales()
    assert len(found) == 25
    assert found[12] == 0
    np.testing.assert_allclose(found, -np.array(found[::-1]))
    assert found[-1] == pytest.approx(0.1)
    assert found[13] == pytest.approx(1e-4)
    with pytest.raises(SettingError, match="odd"):
        scales(4)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"scale": math.inf}, "finite"),
        ({"weight": -1.0}, "at least 0"),
        ({"divisor": "sd"}, "variance"),
        ({"hidden": (0,)}, "at least 1"),
        ({"attribute": "cues"}, "cues"),
        ({"attribute": ["cue", "cue"]}, "each once"),
        ({"scale": {"age": 1.0}}, "a number for each"),
    ],
)
def test_odd_settings_are_refused(cohort: Cohort, settings: dict, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        mitigate("gradient_scaling", cnn(), cohort, **settings, **QUICK)


def test_a_constant_attribute_is_refused(cohort: Cohort) -> None:
    one = cohort.select(cohort.attribute("cue").values == 1)
    with pytest.raises(DataError, match="two or more"):
        mitigate("gradient_scaling", cnn(), one, **QUICK)
