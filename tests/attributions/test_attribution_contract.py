"""The contract of attributions notices what it is for: hooks, weights, modes and random numbers left behind."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from rightreasons import testing  # noqa: E402

pytestmark = pytest.mark.torch

OWN = """
import torch
from rightreasons.errors import SettingError
from rightreasons.models.classifier import Classifier

def maps(classifier, x, *, target, power=1):
    if int(target.max()) >= classifier.C:
        raise SettingError("no such output")
    was = [(m, m.training) for m in classifier.module.modules()]
    classifier.module.eval()
    with torch.no_grad():
        found = (x.mean(1) ** power) * classifier.logits(x)[torch.arange(len(x)), target][:, None, None]
    for m, mode in was:
        m.training = mode
    return found
"""
FAULTS = {
    "leaves hooks": ("    return found", "    classifier.module.register_forward_hook(lambda *a: None)\n    return found"),
    "leaves weights or buffers": (
        "    return found",
        "    next(classifier.module.parameters()).data.add_(1e-3)\n    return found",
    ),
    "leaves the mode": ("        m.training = mode", "        pass"),
    "leaves gradients": ("    return found", "    next(classifier.module.parameters()).grad.zero_()\n    return found"),
    "leaves requires_grad": (
        "    return found",
        "    [p.requires_grad_(True) for p in classifier.module.parameters()]\n    return found",
    ),
    "changed the images": ("    return found", "    x.mul_(1.0001)\n    return found"),
    "global generator": ("    return found", "    return found + 0 * torch.rand(1)"),
    "not finite": ("    return found", "    return found / 0"),
    r"not \(b, \*space\)": ("    return found", "    return found[None]"),
    "depends on the other images": ("    return found", "    return found - found.mean(0)"),
    "does not have": ('        raise SettingError("no such output")', "        target = target * 0"),
}


@pytest.fixture
def own(own_module):
    return own_module("my_maps", "plain", OWN)


def test_an_attribution_of_ones_own_runs_by_its_dotted_name(own):
    shapes = testing.check_attribution("my_maps.plain", power=2)
    assert set(shapes.values()) == {(3, 16, 16)}


@pytest.mark.parametrize("promise", FAULTS)
def test_the_contract_notices_a_broken_promise(own, promise):
    before, after = FAULTS[promise]
    assert before in OWN
    own.write_text(OWN.replace(before, after))
    with pytest.raises(AssertionError, match=promise):
        testing.check_attribution("my_maps.plain")
