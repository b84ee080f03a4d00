"""A-SalUn: which weights may change, and that all others stay to the bit."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from unlearning_worlds import erm, left_alone, started, weights_of, world  # noqa: E402

from rightreasons.mitigations.salun import SalUn, mitigate, saliency, salient  # noqa: E402
from rightreasons.models.training import train  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    return world(tmp_path_factory.mktemp("stripes"), missing=5)


@pytest.fixture(scope="module", params=["cnn", "vit"])
def model(request, cohort):
    return erm(cohort, request.param, epochs=1)


def literal_mask(gradients, share):
    """One list of all weights of the network, sorted; its top share."""
    listed = [(-abs(float(v)), n, i) for n, g in enumerate(gradients.values()) for i, v in enumerate(g.flatten())]
    top = {(n, i) for size, n, i in sorted(listed)[: round(share * len(listed))] if size < 0}
    return {
        name: torch.tensor([(n, i) in top for i in range(g.numel())]).view(g.shape)
        for n, (name, g) in enumerate(gradients.items())
    }


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1.0])
def test_the_mask_is_the_top_share_of_all_weights_together(share):
    g = torch.Generator().manual_seed(0)
    gradients = {"a": torch.randn(4, 5, generator=g), "b": 100 * torch.randn(7, generator=g), "c": torch.zeros(9)}
    gradients["a"][0, 0] = gradients["a"][1, 1]  # a tie
    found, expected = salient(gradients, share), literal_mask(gradients, share)
    assert all(torch.equal(found[name], expected[name]) for name in gradients)
    assert not found["c"].any()


def test_the_saliency_is_the_gradient_of_the_association_loss_over_all_rows(model, cohort):
    start = started(model, cohort)
    with torch.no_grad():  # away from the head's optimum, where the rows' gradients cancel
        start.association.weight.normal_(generator=torch.Generator().manual_seed(0))
    found = saliency(start)
    made = model.copy()
    pixels = np.load(cohort.root / "stack.npy")[[int(image.split("#")[1]) for image in start.rows.cohort.image]]
    mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (made.mean, made.std))
    x = (torch.from_numpy(pixels).movedim(-1, 1).float() / 255 - mean) / std
    loss = start.association.loss(made.features(x), torch.from_numpy(start.rows.y), torch.from_numpy(start.rows.a))
    gradients = torch.autograd.grad(loss, list(made.module.parameters()), allow_unused=True)
    for (name, _), gradient in zip(made.module.named_parameters(), gradients, strict=True):
        expected = torch.zeros_like(found[name]) if gradient is None else gradient.double() * len(start.rows)
        assert torch.allclose(found[name], expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max() + 1e-6)), name


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_held_weights_are_bitwise_unchanged_with_weight_decay_and_momentum(model, cohort, optimizer):
    before, start = weights_of(model), started(model, cohort)
    mask = salient(saliency(start), 0.5)
    objective = SalUn(start.association, "tag", 1.0, mask)
    made = train(
        model, cohort, objective=objective, epochs=2, batch=50, lr=1e-2, optimizer=optimizer, weight_decay=0.5, stop_on="loss",
        threads=1, device="cpu",
    )  # fmt: skip
    objective.release()
    free = sum(int(part.sum()) for part in mask.values())
    moved = 0
    for name, weight in made.module.named_parameters():
        held = ~mask[name]
        assert torch.equal(weight.detach()[held], before[name][held]), name
        moved += int((weight.detach() != before[name]).sum())
    assert 0.9 * free < moved <= free
    assert left_alone(made)[2:4] == left_alone(model)[2:4]  # no hooks are left behind


def test_the_new_model_says_how_many_weights_could_change_and_the_others_did_not(cohort):
    model = erm(cohort, epochs=1)
    settings = {"mu": 1.0, "epochs": 1, "lr": 1e-2, "weight_decay": 0.5, "batch": 50, "share": 0.2}
    made = mitigate(model, cohort, rng=np.random.default_rng(0), keep=1.0, threads=1, device="cpu", **settings)
    chosen = made.card["mitigation"]["chosen"]
    moved = sum(int((p != q).sum()) for p, q in zip(made.module.parameters(), model.module.parameters(), strict=True))
    assert 0 < moved <= chosen["weights_that_may_change"] == round(0.2 * chosen["weights"])


def test_an_optimizer_moves_held_weights_where_only_gradients_are_masked():
    """The reason for putting weights back: decay and momentum act without a gradient."""
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9, weight_decay=0.5)
    weight.grad = torch.zeros(3)
    optimizer.step()
    assert not torch.equal(weight.detach(), torch.ones(3))
