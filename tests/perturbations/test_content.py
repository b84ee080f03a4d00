"""Content operators change the inside of the field and leave the acquisition alone; `test_nuisance` has what all share."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from rightreasons import perturbations  # noqa: E402
from rightreasons.errors import SettingError  # noqa: E402
from rightreasons.perturbations import _fields, content  # noqa: E402

OPERATORS = dict(perturbations._functions("content"))


@pytest.fixture(scope="module")
def eyes() -> torch.Tensor:
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    row, column = np.mgrid[:48, :48] - 23.5
    eye = (0.5 + 0.15 * rng.standard_normal((4, 3, 48, 48))) * (np.hypot(row, column) < 20)
    return torch.from_numpy(np.clip(eye, 0, 1)).float()


@pytest.mark.parametrize("name", OPERATORS)
def test_surround_rim_and_frame_stay(name, eyes):
    for pixels in (eyes, eyes.clamp(min=0.3)):  # round on black, and full frames
        seen = _fields.aperture(pixels)
        changed = OPERATORS[name](pixels, perturbations.seeds(list("abcd"), name), severity=1.0)
        outer = ~(seen.field & (seen.distance <= content.INNER))[:, None].expand_as(pixels)
        assert torch.equal(changed[outer], pixels[outer])
        assert float((changed - pixels)[~outer].abs().mean()) > 0.01


def test_contrast_goes_up_in_some_places_and_down_in_others(eyes):
    changed = content.contrast(eyes, perturbations.seeds(list("abcd"), "contrast"), severity=0.8)
    before, after = (_fields.blurred((p - _fields.blurred(p, 3.0)).square(), 3.0).mean(1) for p in (eyes, changed))
    ratio = (after / before.clamp(min=1e-6))[_fields.aperture(eyes).distance < 0.6]
    assert float(ratio.max()) > 1.5 and float(ratio.min()) < 0.6


def test_bending_moves_values_and_invents_none(eyes):
    changed = content.elastic(eyes, perturbations.seeds(list("abcd"), "elastic"), severity=1.0)
    for before, after in zip(eyes, changed):
        assert after.min() >= before.min() and after.max() <= before.max()


def test_patches_drop_out_to_black_or_to_the_mean(eyes):
    each = perturbations.seeds(list("abcd"), "patches")
    gone = content.patches(eyes, each, severity=0.5) != eyes
    share = float(gone.float().mean()) / float((_fields.aperture(eyes).distance <= content.INNER).float().mean())
    assert 0.25 < share < 0.55
    assert float(content.patches(eyes, each, severity=0.5)[gone].max()) == 0
    mean = content.patches(eyes, each, severity=0.5, fill="mean")
    assert float((mean[gone] - 0.5).abs().max()) < 0.05
    with pytest.raises(SettingError, match="zero"):
        content.patches(eyes, each, severity=0.5, fill="zro")
