"""The contract of an attribution, run on small networks: what a map must be, and that nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from rightreasons import families
from rightreasons.errors import ModelError, RightReasonsError
from rightreasons.models.classifier import Classifier
from rightreasons.models.network_state import network_state

IMAGES = 3


def check(name: str, **settings: Any) -> dict[str, tuple[int, ...]]:
    """Run the contract; gives the shape of the maps for every small network that the method explains.

    A network that the method does not support must be refused with a ModelError that names it.
    """
    module = families.member("attributions", name)
    required = {k for k in ("target",) if k not in families.settings_of(module.maps)}
    _expect(required, f"{name}.maps has a default for target: what is explained must be said")
    shapes = {}
    for classifier in _networks():
        try:
            shapes[classifier.name] = _check_one(name, module, classifier, settings)
        except ModelError as error:
            _expect(classifier.name in str(error), f"{name} refuses a network without naming it: {error}")
    _expect(shapes, f"{name} explains none of {', '.join(c.name for c in _networks())}")
    return shapes


def _check_one(name: str, module: Any, classifier: Classifier, settings: dict[str, Any]) -> tuple[int, ...]:
    x = torch.randn(IMAGES, 3, *classifier.geometry.size, generator=torch.Generator().manual_seed(1))
    target = torch.tensor([0, 1, 1])
    logits = classifier.logits(x).detach()
    _disturb(classifier.module)
    before, untouched, drawn = _state(classifier.module), x.clone(), torch.random.get_rng_state()

    def maps(rows: slice = slice(None)) -> Tensor:
        return module.maps(classifier, x[rows], target=target[rows], **settings)  # type: ignore[no-any-return]

    try:
        first = maps()
        _expect(isinstance(first, Tensor) and first.is_floating_point(), f"{name} gives no tensor of maps")
        _expect(len(first) == IMAGES and first.ndim == 3, f"{name} gives maps of shape {tuple(first.shape)}, not (b, *space)")
        _expect(torch.isfinite(first).all(), f"{name} gives maps that are not finite")
        _expect(not first.requires_grad, f"{name} gives maps that still hold their graph")
        _expect(torch.equal(first, maps()), f"{name} gives another map for the same image")
        with torch.inference_mode():
            _expect(torch.equal(first, maps()), f"{name} gives another map in inference mode")
        scale = float(first.abs().max())
        alone = torch.cat([maps(slice(i, i + 1)) for i in range(IMAGES)])
        _expect(
            torch.allclose(first, alone, rtol=1e-3, atol=1e-4 * scale), f"{name}: a map depends on the other images of its batch"
        )
        _expect_refused(name, lambda: module.maps(classifier, x, target=torch.tensor([0, 1, 2]), **settings))
    finally:
        after = _state(classifier.module)
        changed = [what for what in before if before[what] != after[what]]
        _expect(not changed, f"{name} leaves {', '.join(changed)} of the network changed")
        _expect(torch.equal(x, untouched) and not x.requires_grad, f"{name} changed the images it was given")
        _expect(torch.equal(drawn, torch.random.get_rng_state()), f"{name} draws from torch's global generator")
    classifier.module.eval()
    _expect(torch.equal(classifier.logits(x), logits), f"{name} changed what the network says")
    return tuple(first.shape)


def _networks() -> list[Classifier]:
    """A CNN and a ViT in two sizes of head, with weights and statistics as after some training."""
    made = []
    kinds: dict[str, dict[str, Any]] = {"cnn": {"width": 4}, "vit": {"dim": 16, "depth": 2, "heads": 2}}
    for which, settings in kinds.items():
        for outputs in (2, 1):
            classifier = Classifier.load(
                f"rightreasons.models.small:small_{which}", num_classes=outputs, size=(16, 16), **settings
            )
            generator = torch.Generator().manual_seed(2)
            with torch.no_grad():
                for parameter in classifier.module.parameters():
                    parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
                for norm in classifier.module.modules():
                    if isinstance(norm, nn.BatchNorm2d) and norm.running_mean is not None:
                        norm.running_mean += 0.2 * torch.randn(norm.running_mean.shape, generator=generator)
            made.append(classifier)
    return made


def _disturb(module: nn.Module) -> None:
    """Bring a network into a state that a careless method would not restore: training mode, gradients, hooks, a frozen weight."""
    module.train()
    next(module.children()).eval()
    module.register_forward_hook(lambda *_: None)
    for i, parameter in enumerate(module.parameters()):
        parameter.grad = torch.full_like(parameter, 0.5)
        parameter.requires_grad_(i % 2 == 0)


def _state(module: nn.Module) -> dict[str, Any]:
    """Everything that an attribution may change while it runs and must restore."""
    return {
        **network_state(module),
        "settings": [(m.__dict__.get("eps"), m.__dict__.get("inplace"), m.__dict__.get("fused_attn")) for m in module.modules()],
    }


def _expect_refused(name: str, call: Callable[[], Any]) -> None:
    try:
        call()
    except RightReasonsError:
        return
    raise AssertionError(f"{name} explains an output that the network does not have")


def _expect(kept: Any, promise: str) -> None:
    if not kept:
        raise AssertionError(promise)
