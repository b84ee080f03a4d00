"""A-SCRUB: the divergence from the teacher, which steps ascend, and a teacher that stays."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from unlearning_worlds import erm, world  # noqa: E402

from rightreasons.errors import SettingError  # noqa: E402
from rightreasons.mitigations._association import Association  # noqa: E402
from rightreasons.mitigations.scrub import Scrub, distillation, mitigate  # noqa: E402
from rightreasons.models.training import Batch  # noqa: E402

pytestmark = pytest.mark.torch


def literal_kl(student, teacher, T):
    """T² times the mean over rows of Σ_c p_c (log p_c − log q_c), p the teacher's and q the student's softmax at T."""
    total = 0.0
    for s, t in zip(student.tolist(), teacher.tolist(), strict=True):
        p = [math.exp(v / T) / sum(math.exp(w / T) for w in t) for v in t]
        q = [math.exp(v / T) / sum(math.exp(w / T) for w in s) for v in s]
        total += sum(pc * (math.log(pc) - math.log(qc)) for pc, qc in zip(p, q, strict=True))
    return T**2 * total / len(student)


@pytest.mark.parametrize("T", [1.0, 4.0])
@pytest.mark.parametrize("C", [2, 5])
def test_the_divergence_is_the_formula_of_scrub(T, C):
    g = torch.Generator().manual_seed(C)
    student, teacher = (3 * torch.randn(7, C, generator=g) for _ in range(2))
    assert float(distillation(student, teacher, T)) == pytest.approx(literal_kl(student, teacher, T), rel=1e-5)
    assert float(distillation(teacher, teacher, T)) == pytest.approx(0, abs=1e-6)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return erm(world(tmp_path_factory.mktemp("stripes"), n=160), epochs=1)


def test_every_other_step_ascends_until_the_last_epochs(model):
    g = torch.Generator().manual_seed(0)
    head = Association(torch.ones(2, 2), torch.zeros(model.d), torch.ones(model.d))
    torch.nn.init.normal_(head.weight, generator=g)
    objective = Scrub(head, "tag", 0.5, of=model, ascends=2, temperature=4.0, teacher=2.0)
    student = model.copy()
    with torch.no_grad():
        for parameter in student.module.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=g))
    x, y, a = torch.randn(8, 3, 16, 16, generator=g), torch.arange(8) % 2, torch.arange(8) // 2 % 2

    def value(epoch, step):
        return float(objective(student, Batch(x, y, {"tag": a}, torch.ones(8), np.arange(8), epoch, step, g)).detach())

    with torch.no_grad():
        z, logits = student.read(x)
        ascent = -0.5 * float(head.loss(z, y, a))
        task = float(torch.nn.functional.cross_entropy(logits, y))
        descent = 2.0 * literal_kl(logits, model.logits(x), 4.0) + task
    for epoch, step, expected in [(0, 0, ascent), (0, 1, descent), (1, 8, ascent), (1, 9, descent), (2, 10, descent)]:
        assert value(epoch, step) == pytest.approx(expected, rel=1e-4), (epoch, step)


def test_the_teacher_is_neither_trained_nor_stored(model):
    head = Association(torch.ones(2, 2), torch.zeros(model.d), torch.ones(model.d))
    objective = Scrub(head, "tag", 0.5, of=model, ascends=2, temperature=4.0, teacher=1.0)
    assert {id(p) for p in objective.parameters()} == {id(head.weight), id(head.bias)}
    assert set(objective.state_dict()) == {f"association.{name}" for name in ("weight", "bias", "share", "mean", "scale")}


def test_a_temperature_of_zero_is_refused(model, tmp_path):
    with pytest.raises(SettingError, match="temperature is 0"):
        mitigate(model, world(tmp_path, n=160), rng=np.random.default_rng(0), temperature=0)
