"""The head as data: its numbers, its shapes, its round trip, and which output stands for which label."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from rightreasons.errors import DataError, ModelError
from rightreasons.head import ACTIVATIONS, NORMS, Head, Layer, linear_head, outputs_for


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def linear(rng: np.random.Generator, out: int, d: int) -> Layer:
    return Layer("linear", {"weight": rng.normal(size=(out, d)).astype("f4"), "bias": rng.normal(size=out).astype("f4")})


def deep_head(rng: np.random.Generator) -> Head:
    norm = {"weight": rng.normal(size=6).astype("f4"), "bias": rng.normal(size=6).astype("f4")}
    return Head(
        (
            Layer("norm", norm, "layer", 1e-5),
            linear(rng, 5, 6),
            Layer("activation", {"alpha": np.float32(0.2)}, "leaky_relu"),
            linear(rng, 3, 5),
        )
    )


def test_a_linear_head_is_a_matrix_product(rng: np.random.Generator) -> None:
    head = Head((linear(rng, 3, 4),))
    z = rng.normal(size=(7, 4))
    assert head.is_linear and (head.d, head.C) == (4, 3)
    np.testing.assert_allclose(head(z), z @ head.weight.T + head.bias, rtol=1e-12)


def test_one_logit_is_read_as_zero_and_z(rng: np.random.Generator) -> None:
    weight, z = rng.normal(size=(1, 4)), rng.normal(size=(5, 4))
    logits = linear_head(weight, np.array([0.5]))(z)
    np.testing.assert_array_equal(logits[:, 0], 0)
    np.testing.assert_allclose(logits[:, 1], z @ weight[0] + 0.5, rtol=1e-5)


def test_affine_norms_compose_into_one_linear_layer(rng: np.random.Generator) -> None:
    affine = Layer("norm", {"weight": rng.normal(size=4).astype("f4"), "bias": rng.normal(size=4).astype("f4")}, "affine")
    head = Head((linear(rng, 4, 6), affine, linear(rng, 2, 4)))
    z = rng.normal(size=(9, 6))
    assert head.is_linear
    np.testing.assert_allclose(z @ head.weight.T + head.bias, head(z), rtol=1e-4, atol=1e-5)


def test_a_head_with_an_activation_has_no_weight(rng: np.random.Generator) -> None:
    head = deep_head(rng)
    assert not head.is_linear
    with pytest.raises(ModelError, match="layer > linear > leaky_relu > linear"):
        _ = head.weight


@pytest.mark.parametrize("kind", ["linear", "deep"])
def test_folding_moves_the_standardisation_into_the_head(kind: str, rng: np.random.Generator) -> None:
    head = Head((linear(rng, 3, 6),)) if kind == "linear" else deep_head(rng)
    z = rng.normal(3, 5, size=(8, 6))
    mean, std = z.mean(0), z.std(0)
    np.testing.assert_allclose(head.fold(mean, std)(z), head((z - mean) / std), rtol=1e-4, atol=1e-5)


def test_folding_refuses_a_constant_feature(rng: np.random.Generator) -> None:
    with pytest.raises(DataError, match=r"features \[2\] are not"):
        Head((linear(rng, 3, 4),)).fold(np.zeros(4), np.array([1.0, 1, 0, 1]))


def test_a_head_comes_back_from_its_arrays(rng: np.random.Generator, tmp_path) -> None:  # type: ignore[no-untyped-def]
    head, z = deep_head(rng), rng.normal(size=(4, 6)).astype("f4")
    np.savez(tmp_path / "head.npz", **head.to_arrays())
    with np.load(tmp_path / "head.npz") as flat:
        again = Head.from_arrays(dict(flat))
    assert [(layer.kind, layer.name, layer.eps) for layer in again.layers] == [(x.kind, x.name, x.eps) for x in head.layers]
    np.testing.assert_array_equal(again(z), head(z))


def test_more_than_ten_layers_keep_their_order(rng: np.random.Generator) -> None:
    head = Head(tuple(linear(rng, 3, 3) for _ in range(12)))
    z = rng.normal(size=(2, 3)).astype("f4")
    np.testing.assert_array_equal(Head.from_arrays(head.to_arrays())(z), head(z))


def test_single_precision_in_gives_single_precision_out(rng: np.random.Generator) -> None:
    head = deep_head(rng)
    assert head(rng.normal(size=(2, 6)).astype("f4")).dtype == np.float32
    assert head(rng.normal(size=(2, 6))).dtype == np.float64
    assert head(np.ones((2, 6), dtype=np.float16)).dtype == np.float32


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activations_stay_finite_for_large_values(name: str) -> None:
    arrays = {"alpha": np.float32(0.1)} if name in ("leaky_relu", "elu") else {}
    with np.errstate(over="raise", invalid="raise"):
        values = Layer("activation", arrays, name)(np.array([[-1e4, -50, 0, 50, 1e4]], dtype="f4"))
    assert np.isfinite(values).all()


def test_what_does_not_belong_together_is_refused(rng: np.random.Generator) -> None:
    with pytest.raises(ModelError, match="reads 5 values but the layer before it gives 3"):
        Head((linear(rng, 3, 4), linear(rng, 2, 5)))
    with pytest.raises(ModelError, match="softmax"):
        Head((linear(rng, 3, 4), Layer("activation", {}, "softmax")))
    with pytest.raises(ModelError, match="at least one linear"):
        Head(())
    with pytest.raises(ModelError, match=r"\(n, 4\), found \(2, 5\)"):
        Head((linear(rng, 3, 4),))(np.zeros((2, 5)))
    with pytest.raises(ModelError, match="no part of a head"):
        Head.from_arrays({"weight": np.zeros((2, 2))})


def test_outputs_are_matched_by_value_in_any_order() -> None:
    assert outputs_for([0, 1], [0, 1, 2]).tolist() == [0, 1]
    assert outputs_for(["cat", "dog"], ["dog", "bird", "cat"]).tolist() == [2, 0]
    assert outputs_for(np.array([1, 0]), ("0", "1")).tolist() == [1, 0]
    assert outputs_for([np.int64(3), 1.0], [1, 2, 3]).tolist() == [2, 0]


def test_labels_that_no_output_stands_for_show_both_lists() -> None:
    with pytest.raises(DataError, match=r"\['cat', 'dog'\].*\[0, 1\].*classes="):
        outputs_for(["cat", "dog"], [0, 1])
    with pytest.raises(DataError, match="two label values"):
        outputs_for([1, "1"], [0, 1])


def test_the_head_needs_no_torch() -> None:
    code = "import sys, rightreasons.head; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.torch
@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activations_are_those_of_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    functions = {
        "gelu_tanh": torch.nn.GELU(approximate="tanh"),
        "leaky_relu": torch.nn.LeakyReLU(0.3),
        "elu": torch.nn.ELU(0.7),
        "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    }
    function = functions.get(name) or getattr(torch.nn.functional, name, None) or getattr(torch, name)
    alpha = {"leaky_relu": {"alpha": np.float32(0.3)}, "elu": {"alpha": np.float32(0.7)}}.get(name, {})
    values = np.linspace(-30, 30, 4001)[None].astype("f4")
    np.testing.assert_allclose(
        Layer("activation", alpha, name)(values), function(torch.tensor(values)).numpy(), rtol=2e-5, atol=1e-6
    )


@pytest.mark.torch
@pytest.mark.parametrize("name", sorted(NORMS))
def test_norms_are_those_of_torch(name: str, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    weight, bias, z = (rng.normal(size=s).astype("f4") for s in (5, 5, (6, 5)))
    w, b, t = torch.tensor(weight), torch.tensor(bias), torch.tensor(z)
    expected = {
        "affine": w * t + b,
        "layer": torch.nn.functional.layer_norm(t, (5,), w, b, 1e-3),
        "rms": torch.nn.functional.rms_norm(t, (5,), w, 1e-3),
    }[name]
    arrays = {"weight": weight} | ({"bias": bias} if "bias" in NORMS[name] else {})
    np.testing.assert_allclose(Layer("norm", arrays, name, 1e-3)(z), expected.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.torch
def test_torch_evaluates_the_same_data_to_the_same_numbers(rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    from rightreasons.models.classifier import torch_head

    head, z = deep_head(rng), rng.normal(size=(4, 6)).astype("f4")
    module = torch_head(head)
    assert sum(p.requires_grad for p in module.parameters()) == 6
    np.testing.assert_allclose(module(torch.tensor(z)).detach().numpy(), head(z), rtol=1e-5, atol=1e-6)
