"""Small worlds for the tests of unlearning: stripes to tell the label, a coloured corner that mostly goes with it."""

import numpy as np
import torch

from rightreasons.data.cohort import Cohort
from rightreasons.mitigations._unlearning import Running, begin
from rightreasons.models.classifier import Classifier
from rightreasons.models.training import train


def world(folder, classes=2, values=2, n=320, conflict=0.2, missing=0):
    """Images of 16 pixels; in `conflict` of the rows the tag is that of another class. Every fourth row is `val`."""
    rng = np.random.default_rng(classes)
    label = np.arange(n) % classes
    tag = label % values
    against = rng.permutation(n)[: round(conflict * n)]
    tag[against] = (tag[against] + 1 + rng.integers(0, values - 1, len(against))) % values
    pixels = rng.integers(0, 90, (n, 16, 16, 3)).astype(np.uint8)
    for row in range(n):
        at = 4 + 3 * label[row] + int(rng.integers(0, 2))
        pixels[row, 5:15, at] = np.maximum(pixels[row, 5:15, at], 120)
        pixels[row, :4, :4, tag[row] % 3] = 255
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "stack.npy", pixels)
    colours = np.array(["red", "green", "blue"], dtype=object)[tag]
    colours[:missing] = None
    columns = {
        "id": [f"r{i}" for i in range(n)],
        "image": [f"stack.npy#{i}" for i in range(n)],
        "label": label,
        "tag": colours,
        "split": np.where(rng.permutation(n) % 8 < 3, "val", "train"),
    }
    return Cohort.from_columns(columns, attribute=["tag"], split="split", root=folder, name="stripes")


def erm(cohort, network="cnn", epochs=3):
    settings = {"width": 4} if network == "cnn" else {"dim": 16, "depth": 2, "heads": 2}
    start = Classifier.load(
        f"rightreasons.models.small:small_{network}",
        num_classes=len(cohort.classes),
        classes=cohort.classes,
        size=(16, 16),
        rng=np.random.default_rng(0),
        **settings,
    )
    return train(start, cohort, epochs=epochs, lr=5e-3, batch=50, threads=1, device="cpu", patience=None)


def started(model, cohort):
    return begin(model, cohort, np.random.default_rng(0), None, 50, Running(None, "cpu", 1, None, None))


def weights_of(model):
    return {name: tensor.clone() for name, tensor in model.module.state_dict().items()}


def same(one, two):
    return all(torch.equal(a, b) for a, b in zip(weights_of(one).values(), weights_of(two).values(), strict=True))


def left_alone(model):
    """What must be as before: weights, buffers, modes, gradients, hooks, card and ids."""
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.module.modules()]
    state = [p.grad is None and not p._backward_hooks for p in model.module.parameters()]
    return (model.fingerprint, [m.training for m in model.module.modules()], hooks, state, str(model.card), model.used)
