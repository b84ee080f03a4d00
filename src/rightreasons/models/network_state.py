"""What code that only borrows a network must restore in it; contract tests compare it before and after."""

from __future__ import annotations

from typing import Any

from torch import nn

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def network_state(module: nn.Module) -> dict[str, Any]:
    """Weights, gradients, flags, hooks and attributes of a network on the CPU; equal states compare as equal."""
    parameters, modules = list(module.parameters()), list(module.modules())
    hooks = []
    for each in modules:
        for kind in HOOKS:
            hooks.append(tuple(getattr(each, kind)))
    return {
        "weights or buffers": {key: tensor.numpy().tobytes() for key, tensor in module.state_dict().items()},
        "the parameters themselves": [id(p) for p in parameters],
        "gradients": [None if p.grad is None else p.grad.numpy().tobytes() for p in parameters],
        "requires_grad": [p.requires_grad for p in parameters],
        "the mode": [m.training for m in modules],
        "hooks": hooks,
        "attributes": [sorted(m.__dict__) for m in modules],
    }
