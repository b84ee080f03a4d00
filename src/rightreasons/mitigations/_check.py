"""The contract of a mitigation, run on small networks: what the new model must be, and that the old one is left alone."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from rightreasons import families
from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError, ModelError, SettingError
from rightreasons.mitigations import NO_SETTINGS, mitigate, references_of
from rightreasons.models.classifier import Classifier
from rightreasons.models.network_state import network_state
from rightreasons.models.training import train

SIZE = 16
PER_GROUP = {"train": 16, "val": 12, "audit": 32, "test": 4}
QUICK: dict[str, Any] = {"epochs": 1, "patience": None, "batch": 32, "device": "cpu", "threads": 1, "workers": 1}
NETWORKS: dict[str, dict[str, Any]] = {"cnn": {"width": 4}, "vit": {"dim": 16, "depth": 2, "heads": 2}}


def check(name: str, **settings: Any) -> dict[str, str]:
    """Run the contract; gives the fingerprint of the new model for every small network that the method changes.

    A network that the method is not for must be refused with a ModelError that names it.
    """
    module = families.member("mitigations", name)
    _expect(getattr(module, "STARTS", None) in ("start", "model"), f"{name} has no STARTS: 'start' or 'model'")
    known = families.settings_of(module.mitigate)
    _expect("rng" not in known, f"{name}.mitigate has a default for rng: randomness is an argument")
    lacking = []
    for key in ("attribute", "folder", "device", "threads"):
        if key not in known:
            lacking.append(key)
    _expect(not lacking, f"{name}.mitigate has no {', '.join(lacking)}=")
    full = {**{key: value for key, value in QUICK.items() if key in known}, **settings}
    mitigated = {}
    with tempfile.TemporaryDirectory() as folder:
        for classes in (2, 3):
            cohort = world(Path(folder), classes)
            for which in NETWORKS:
                try:
                    mitigated[f"{which}, {classes} classes"] = _check_one(name, module, which, cohort, full, Path(folder))
                except ModelError as error:
                    _expect("small" in str(error), f"{name} refuses a network without naming it: {error}")
    _expect(mitigated, f"{name} changes none of the networks {', '.join(NETWORKS)}")
    return mitigated


def world(folder: Path, classes: int) -> Cohort:
    """Images of 16 x 16 pixels: the label is a bright bar, `cue` a bright corner that goes with it in training, `age` noise."""
    rng = np.random.default_rng(classes)
    columns: dict[str, list[Any]] = {"id": [], "label": [], "cue": [], "split": []}
    for split, per_group in PER_GROUP.items():
        for y in range(classes):
            for a in range(2):
                agrees = (y > 0) == bool(a)
                if split == "train" and agrees:
                    rows = per_group * 2
                else:
                    rows = per_group
                for _ in range(rows):
                    for key, value in (("id", f"{split}{len(columns['id'])}"), ("label", y), ("cue", a), ("split", split)):
                        columns[key].append(value)
    n = len(columns["id"])
    pixels = rng.integers(0, 120, (n, SIZE, SIZE, 3), dtype=np.uint8)
    for row, (y, a) in enumerate(zip(columns["label"], columns["cue"], strict=True)):
        pixels[row, 6 + 3 * y : 8 + 3 * y, 6:] += 90
        pixels[row, :4, :4, a] += 120
    stack = folder / f"stack{classes}.npy"
    np.save(stack, pixels)
    table = {**columns, "age": rng.normal(50, 10, n), "image": [f"{stack.name}#{row}" for row in range(n)]}
    return Cohort.from_columns(
        table, image="image", attribute=["cue", "age"], split="split", id="id", root=folder, name=f"contract{classes}"
    )


def _check_one(name: str, module: Any, which: str, cohort: Cohort, settings: dict[str, Any], folder: Path) -> str:
    old = _trained(which, cohort)
    references = {}
    for role in references_of(name):
        references[role] = _trained("cnn", cohort, "cue" if role == "attribute" else None)
    models = {"the model given": old, **{f"the {role} model": model for role, model in references.items()}}
    for model in models.values():
        _disturb(model.module)
    before = {what: _state(model) for what, model in models.items()}
    drawn = torch.random.get_rng_state()

    def run(**more: Any) -> Classifier:
        return mitigate(name, old, cohort, references=references or None, seed=5, **{**settings, **more})

    try:
        new = run()
    finally:
        for what, model in models.items():
            after = _state(model)
            changed = [part for part in after if after[part] != before[what][part]]
            _expect(not changed, f"{name} leaves {', '.join(changed)} of {what} changed")
        _expect(torch.equal(drawn, torch.random.get_rng_state()), f"{name} draws from torch's global generator")
    _check_new(name, module, old, new, cohort)
    _expect(run().fingerprint == new.fingerprint, f"{name} gives other weights for the same seed")
    _check_kept(name, new, folder / f"{name.rpartition('.')[2]}-{which}-{cohort.name}")
    if not getattr(module, "CONTINUOUS", False):
        _expect_refused(
            lambda: run(attribute="age"), "age", f"{name} takes a continuous attribute without an error that names it"
        )
    _expect_refused(lambda: run(attribute="cues"), "cues", f"{name} takes an unknown attribute without an error that names it")
    _expect_refused(lambda: run(no_such_setting=1), "no_such_setting", f"{name} takes an unknown setting without an error")
    return new.fingerprint


def _check_new(name: str, module: Any, old: Classifier, new: Classifier, cohort: Cohort) -> None:
    own = {t.data_ptr() for t in old.module.state_dict().values()} & {t.data_ptr() for t in new.module.state_dict().values()}
    _expect(new is not old and not own, f"{name} gives a model that shares weights with the one given")
    _expect(not any(m.training for m in new.module.modules()), f"{name} gives a model that is not in evaluation mode")
    _expect(all(p.grad is None for p in new.module.parameters()), f"{name} gives a model that still holds gradients")
    regime, entry = name.rpartition(".")[2], new.card.get("mitigation") or {}
    _expect(new.card["regime"] == regime, f"{name}: the card's regime is {new.card['regime']!r}, not {regime!r}")
    expected = set(families.settings_of(module.mitigate)) - set(NO_SETTINGS)
    settings = set(entry.get("settings", ()))
    _expect(settings == expected, f"{name}: the card's settings are {sorted(settings)}, not {sorted(expected)}")
    _expect(entry.get("selected_by"), f"{name}: the card does not say what it was selected by")
    _expect("chosen" in entry, f"{name}: the card does not say what was chosen")
    _expect(new.classes == old.classes, f"{name}: the outputs stand for other classes than before")
    if cohort.splits is not None:
        split = dict(zip(cohort.id, cohort.splits, strict=True))
    else:
        split = {}
    unknown = [i for i in new.used if i not in split]
    _expect(not unknown, f"{name}: used has ids that no row has, such as {unknown[:1]}")
    _expect("test" not in {split[i] for i in new.used}, f"{name} was fitted or tuned on test rows")
    if module.STARTS == "model":
        _expect(new.used >= old.used, f"{name} goes on from the model and forgets ids that it was fitted on")
    _expect({split[i] for i in new.used} & {"train", "audit"}, f"{name}: used has neither train nor audit rows")


def _check_kept(name: str, new: Classifier, folder: Path) -> None:
    new.verify()
    x = torch.randn(3, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    opened = Classifier.open(new.save(folder))
    with torch.inference_mode():
        _expect(torch.equal(opened.logits(x), new.logits(x)), f"{name}: the model that is opened says something else")
        if new.has_spatial:
            pooled = new.spatial(x).flatten(2).mean(2)
            logits = torch.from_numpy(new.pooled_head(pooled.numpy()))
            near = torch.allclose(logits, new.logits(x), rtol=1e-3, atol=1e-4)
            _expect(near, f"{name}: the average of the new model's maps does not lead to its logits")
    _expect((opened.card, opened.used, opened.training) == (new.card, new.used, new.training), f"{name}: the card is not kept")


def _trained(which: str, cohort: Cohort, target: str | None = None) -> Classifier:
    """A copy of a small model that was trained for two epochs; trained once a process."""
    classes = len(cohort.classes)
    return _trained_once(which, classes, target).copy()


@functools.cache
def _trained_once(which: str, classes: int, target: str | None) -> Classifier:
    with tempfile.TemporaryDirectory() as folder:
        cohort = world(Path(folder), classes)
        if target is None:
            values = cohort.classes
        else:
            values = cohort.attribute(target).levels
        start = Classifier.load(
            f"rightreasons.models.small:small_{which}",
            num_classes=len(values),
            classes=values,
            size=(SIZE, SIZE),
            mean=0.5,
            std=0.5,
            rng=np.random.default_rng(3),
            **NETWORKS[which],
        )
        return train(start, cohort, target=target, epochs=2, batch=32, lr=3e-3, seed=3, device="cpu", threads=1, workers=1)


def _disturb(module: nn.Module) -> None:
    """Bring a network into a state that a careless method would not restore: training mode, with gradients and a hook."""
    module.train()
    next(module.children()).eval()
    module.register_forward_hook(_nothing)
    for parameter in module.parameters():
        parameter.grad = torch.full_like(parameter, 0.5)


def _nothing(*_: Any) -> None:
    """A hook that changes nothing."""


def _state(classifier: Classifier) -> dict[str, Any]:
    """Everything a mitigation may touch on its way and must put back."""
    module = classifier.module
    return {
        **network_state(module),
        "the layers": [(key, id(m)) for key, m in module.named_modules()],
        "the card": repr(classifier.card),
        "used or training": (classifier.used, classifier.training, classifier.classes),
    }


def _expect_refused(call: Callable[[], Any], named: str, promise: str) -> None:
    try:
        call()
    except (DataError, SettingError) as error:
        _expect(named in str(error), promise)
        return
    raise AssertionError(promise)


def _expect(kept: Any, promise: str) -> None:
    if not kept:
        raise AssertionError(promise)
