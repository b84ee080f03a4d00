"""A network seen as features, head and maps: `logits(x) == head(features(x))`, with the head also as data.

Inputs are normalised float tensors (n, channels, *size). A one-logit head is read as the logits (0, z) everywhere.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from rightreasons import files
from rightreasons.data.images import Geometry
from rightreasons.errors import CheckpointError, ModelError, SettingError
from rightreasons.families import refuse_beyond_limits
from rightreasons.head import Head, outputs_for
from rightreasons.models import checkpoints, loading, provenance
from rightreasons.models.cut import Cut, find_cut
from rightreasons.models.forward import run, vector, with_one_logit
from rightreasons.models.head_layers import (
    ACTIVATIONS,
    TensorLayer,
    averaged,
    evaluate,
    read_layers,
    to_data,
    torch_head,
    with_one_output,
)
from rightreasons.models.saved import FORMAT, Saved, read_saved
from rightreasons.trust import names, trusting

__all__ = ["Classifier", "outputs_for", "torch_head"]

IDENTITY_TOLERANCE = 1e-4
"""How far head(features(x)) may be from the network's own output, relative to the largest logit."""


@dataclasses.dataclass(frozen=True)
class _Description:
    """What a network reads and what its outputs mean, as the user or the checkpoint says; `labels` are the checkpoint's."""

    name: str
    geometry: Geometry
    mean: float | Sequence[float]
    std: float | Sequence[float]
    classes: Sequence[Any] | None = None
    labels: Sequence[Any] | None = None
    output: int | str | None = None
    recipe: dict[str, Any] | None = None
    card: dict[str, Any] | None = None


class Classifier:
    """A trained (or random) image classifier; made by `load`, `wrap` or `open`.

    Attributes
    ----------
    module : the network, in evaluation mode when it is made; training changes it in place, and features, head, `head_data` and
        `fingerprint` follow
    geometry, mean, std : what the network reads: input geometry, and normalisation per channel of values in [0, 1]
    classes : the label value of each logit
    name : the specification it was loaded by, such as `timm:resnet18`
    cut : where features, head and maps lie
    card : architecture, regime, seed, settings, target and start, as plain data
    used : ids of the rows it was fitted or tuned on
    training : fingerprint of the cohort it was trained on, where known
    trust : modules that the caller trusted when it was loaded, so that it can be built again; it is not saved
    """

    def __init__(  # noqa: PLR0913  each keyword is a documented setting
        self,
        module: nn.Module,
        cut: Cut,
        *,
        geometry: Geometry,
        mean: Sequence[float],
        std: Sequence[float],
        classes: Sequence[Any],
        name: str,
        output: int | None = None,
        recipe: dict[str, Any] | None = None,
        card: dict[str, Any] | None = None,
        used: Iterable[str] = (),
        training: str | None = None,
    ) -> None:
        self.module = module
        self.cut = cut
        self.geometry = geometry
        self.mean = tuple(float(v) for v in mean)
        self.std = tuple(float(v) for v in std)
        self.classes = tuple(classes)
        self.name = name
        self.output = output
        self.recipe = recipe
        empty = dict.fromkeys(("regime", "seed", "target", "start"))
        self.card: dict[str, Any] = {"architecture": name, "settings": {}, **empty, **(card or {})}
        self.used = frozenset(used)
        self.training = training
        self.format = FORMAT  # of one that an earlier version saved, that version's: its evidence has its fingerprint
        self.trust: frozenset[str] = frozenset()

    # --- making one ---------------------------------------------------------------------------------------------------------

    @classmethod
    def load(  # noqa: PLR0913  each keyword is a documented setting
        cls,
        spec: str,
        checkpoint: str | Path | None = None,
        num_classes: int | None = None,
        classes: Sequence[Any] | None = None,
        output: int | str | None = None,
        size: int | Sequence[int] | None = None,
        crop: float | None = None,
        interpolation: str | None = None,
        mean: float | Sequence[float] | None = None,
        std: float | Sequence[float] | None = None,
        channels: int | None = None,
        mode: str | None = None,
        new_head: bool = False,
        part: str | None = None,
        rng: np.random.Generator | None = None,
        verify: bool = True,
        trust: str | Sequence[str] = (),
        **model_settings: Any,
    ) -> Classifier:
        """A network by name: `timm:…`, `torchvision:…`, `hf:<class or folder>`, `monai:…` or `package.module:factory`.

        Parameters
        ----------
        checkpoint : safetensors or torch file; without one the weights are random, drawn from `rng` (seed 0 when there is none)
        num_classes : taken from the checkpoint's head when not given
        classes : the label value of each output; else the checkpoint's or config's own names, else 0, 1, …
        output : one logit of a multi-label head, by number or name, read as a one-logit head
        size, crop, interpolation, mode, mean, std : override what the network's own config says
        new_head : keep the random head where the checkpoint's has another number of outputs
        part : key or prefix of the weights that are meant, where a checkpoint has several: "state_dict_ema", "teacher"
        verify : prove head(features(x)) == network(x) on a random input before handing the classifier over
        trust : modules whose code may run, where the specification names a factory of one's own: "my_lab.nets"
        model_settings : keywords of the library's own function (of the config for `hf:`)
        """
        refuse_beyond_limits({"num_classes": num_classes, "channels": channels})
        wanted = _size(size, model_settings)
        build = {"size": wanted, "channels": channels, "settings": model_settings, "trust": trust}
        built = loading.build(spec, num_classes=num_classes, rng=rng, **build)  # type: ignore[arg-type]
        if isinstance(built.module, Classifier):
            return built.module._from_factory(spec, checkpoint, part, built)._trusting(trust)
        if not isinstance(built.module, nn.Module):
            raise ModelError(f"{spec} gave a {type(built.module).__name__}: a factory must return an nn.Module or a Classifier")
        labels: Sequence[Any] | None = built.labels
        card: dict[str, Any] = {"settings": dict(model_settings), "checkpoint": None if checkpoint is None else str(checkpoint)}
        if checkpoint is None and loading.is_fresh(spec, model_settings):
            card["start"] = "fresh"
        if checkpoint is not None:
            weights = checkpoints.read_checkpoint(checkpoint, part)
            if num_classes is not None:
                counted = None
            else:
                counted = checkpoints.count_classes(built.module, weights)
            if counted is not None:
                built = loading.build(spec, num_classes=counted, rng=rng, **build)  # type: ignore[arg-type]
            card |= _read_from(weights, checkpoints.load_weights(built.module, weights, new_head=new_head))
            card["says"] = dict(weights.says)
            labels = None if classes is not None else weights.labels or built.labels
        elif part is not None:
            raise SettingError("part= names a part of a checkpoint: give checkpoint= too, or leave it out")
        if built.is_multi_label and output is None:
            raise ModelError(f"{spec} has a multi-label head ({_shown(labels)}): pick one of its logits with output=")
        geometry = _geometry(spec, built, wanted, crop, interpolation, mode, mean)
        named = {"size": size, "mean": mean, "std": std, "crop": crop, "interpolation": interpolation}
        card["input"] = provenance.sources(spec, named)
        recipe = {"spec": built.spec, "num_classes": built.num_classes, "settings": built.settings}
        description = _Description(
            name=built.spec,
            geometry=geometry,
            mean=built.mean if mean is None else mean,
            std=built.std if std is None else std,
            classes=classes,
            labels=labels,
            output=output,
            recipe=recipe,
            card=card,
        )
        return cls._described(built.module, description, verify=verify)._trusting(trust)

    @classmethod
    def wrap(  # noqa: PLR0913  each keyword is a documented setting
        cls,
        module: nn.Module,
        features: str | None = None,
        head: str | None = None,
        *,
        size: int | Sequence[int],
        mean: float | Sequence[float] = 0.0,
        std: float | Sequence[float] = 1.0,
        classes: Sequence[Any] | None = None,
        channels: int = 3,
        output: int | None = None,
        crop: float = 1.0,
        interpolation: str = "bilinear",
        mode: str = "center",
        name: str | None = None,
        card: dict[str, Any] | None = None,
        verify: bool = True,
    ) -> Classifier:
        """Any network, by two layer names; it is put into evaluation mode.

        Parameters
        ----------
        features : layer whose output (flattened, or averaged over space) the head reads; None: what the head reads
        head : layer whose output are the logits, linear or a stack of linear layers, norms and activations; None: all layers
            after `features`, or the last linear layer
        """
        wanted = _size(size, {"spatial_dims": 2})
        if wanted is None:
            raise SettingError("wrap needs size=, the input size that the network reads")
        fill = _per_channel("mean", mean, channels) if mode == "border" else ()
        geometry = Geometry(wanted, crop, interpolation, channels, mode, fill)
        name = name or f"wrapped:{type(module).__name__}"
        description = _Description(name, geometry, mean, std, classes=classes, output=output, card=card)
        return cls._described(module.eval(), description, features=features, head=head, verify=verify)

    @classmethod
    def _described(
        cls, module: nn.Module, description: _Description, *, features: str | None = None, head: str | None = None, verify: bool
    ) -> Classifier:
        """The network cut at its features and head; refused where it does not run, or where the description does not fit it."""
        name, geometry = description.name, description.geometry
        x = _trial_input(module, geometry)
        try:
            cut = find_cut(module, x, features, head)
        except ModelError as error:
            raise ModelError(f"{name}: {error}") from error
        except (RuntimeError, ValueError, TypeError, AssertionError, IndexError) as error:
            raise ModelError(
                f"{name} does not run on an input of {tuple(x.shape)}: {type(error).__name__}: {error}. "
                "Give the size= and channels= it reads"
            ) from error
        means = _per_channel("mean", description.mean, geometry.channels)
        stds = _per_channel("std", description.std, geometry.channels)
        if min(stds) <= 0:
            raise SettingError(f"std is {stds}: every value must be positive")
        classifier = cls(
            module,
            cut,
            geometry=geometry,
            mean=means,
            std=stds,
            classes=(),
            name=name,
            recipe=description.recipe,
            card=description.card,
        )
        width = to_data(classifier._layers(cut.head, raw=True)).C
        classifier.output = _output(description.output, width, description.labels, name)
        classifier.classes = _classes(description.classes, description.labels, width, classifier.output, name)
        if verify:
            classifier.verify(x)
        return classifier

    def _trusting(self, modules: str | Sequence[str]) -> Classifier:
        self.trust |= names(modules)
        return self

    def _from_factory(self, spec: str, checkpoint: str | Path | None, part: str | None, built: loading.Built) -> Classifier:
        """A classifier that a factory made, with the name by which it can be made again."""
        if checkpoint is not None:
            weights = checkpoints.read_checkpoint(checkpoint, part)
            self.card |= _read_from(weights, checkpoints.load_weights(self.module, weights))
        self.name = spec
        self.card["architecture"] = spec
        self.recipe = {"spec": spec, "num_classes": built.num_classes, "settings": built.settings}
        return self

    # --- using it -----------------------------------------------------------------------------------------------------------

    def features(self, x: Tensor) -> Tensor:
        """(n, d) what the head reads. Gradients flow; hooks, flags and gradients of the network are left as they were."""
        return self.read(x)[0]

    def head(self, z: Tensor) -> Tensor:
        """(n, d) features to (n, C) logits with the network's present weights, as in evaluation."""
        return evaluate(self._layers(self.cut.head), z)

    def logits(self, x: Tensor) -> Tensor:
        """(n, C) of the network itself."""
        return with_one_logit(run(self.module, x)[1], self.output)

    def read(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(n, d) features and (n, C) logits of one forward pass."""
        features, output = run(self.module, x, self.cut.features)
        return torch.cat([vector(t) for t in features], dim=1), with_one_logit(output, self.output)

    def spatial(self, x: Tensor) -> Tensor:
        """(n, c, *space) the maps whose average over space goes on to the head (through `pooled_head`)."""
        self.require_spatial()
        return self._channels_first(run(self.module, x, [self.cut.spatial])[0][0])

    def activations(self, x: Tensor, layers: Sequence[str]) -> tuple[dict[str, Tensor], Tensor]:
        """The outputs of named layers and the logits of one forward pass, on one graph."""
        outputs, output = run(self.module, x, [f"{name}:output" for name in layers])
        return dict(zip(layers, outputs)), with_one_logit(output, self.output)

    @property
    def has_spatial(self) -> bool:
        return bool(self.cut.spatial)

    def require_spatial(self) -> None:
        """Refuse where there are no maps before a global average pool."""
        if not self.has_spatial:
            raise ModelError(f"{self.name} has no maps before a global average pool: {self.cut.no_spatial}")

    @property
    def head_data(self) -> Head:
        """The head's present weights as data."""
        return to_data(self._layers(self.cut.head))

    @property
    def pooled_head(self) -> Head:
        """From the maps' average over space (n, c) to the logits; the head itself where nothing lies between."""
        self.require_spatial()
        if self.cut.pooled is None:
            raise ModelError(
                f"{self.name}: between the pooled map of '{self.cut.spatial}' and the logits lies more than a head may have"
            )
        return to_data(self._layers(self.cut.pooled))

    @property
    def d(self) -> int:
        return self.head_data.d

    @property
    def C(self) -> int:
        return len(self.classes)

    @property
    def device(self) -> torch.device:
        return _device(self.module)

    def to(self, device: str | torch.device) -> Classifier:
        """Move the network; returns the classifier itself."""
        self.module.to(device)
        return self

    @contextmanager
    def evaluating(self, device: str | torch.device) -> Iterator[None]:
        """Inside, the network is on a device and in evaluation mode; afterwards everything is as it was."""
        home = self.device
        modes = [(module, module.training) for module in self.module.modules()]
        try:
            self.to(device)
            self.module.eval()
            yield
        finally:
            self.to(home)
            for module, mode in modes:
                module.training = mode

    def parameters(self) -> Iterable[nn.Parameter]:
        return self.module.parameters()

    def verify(self, x: Tensor | None = None) -> None:
        """Refuse the classifier unless head(features(x)) is the network's own output, in torch and in numpy.

        Parameters
        ----------
        x : (n, channels, *size); None: a random batch of two
        """
        x = _trial_input(self.module, self.geometry) if x is None else x
        with torch.no_grad():
            z, expected = self.read(x)
            pairs = {"in torch": self.head(z), "in numpy": torch.from_numpy(self.head_data(z.cpu().numpy())).to(z.device)}
        scale = float(expected.abs().max())
        for where, logits in pairs.items():
            if logits.shape == expected.shape:
                off = float((logits - expected).abs().max())
            else:
                off = float("nan")
            if not off <= IDENTITY_TOLERANCE * max(scale, 1e-3):
                raise ModelError(
                    f"{self.name}: head(features(x)) is not the network's output {where} (off by {off:.2g}, largest logit "
                    f"{scale:.2g}) when cut at {', '.join(self.cut.features)}: name features= and head= with Classifier.wrap"
                )

    # --- keeping it ---------------------------------------------------------------------------------------------------------

    @property
    def fingerprint(self) -> str:
        """Hash of the weights, the input's geometry and normalisation, the architecture, what is read from it and its classes."""
        digest = hashlib.blake2b(digest_size=16)
        read: list[Any] = [dataclasses.asdict(self.geometry), self.mean, self.std, self.name, self.output]
        read += [self.cut.features, self.cut.head]
        if self.format > 1:
            read.append(_plain(self.classes))
        digest.update(json.dumps(read, sort_keys=True, default=str).encode())
        for key, tensor in sorted(self.module.state_dict().items()):
            digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def copy(self) -> Classifier:
        """The same classifier with weights of its own."""
        made = copy.copy(self)
        made.module, made.card = copy.deepcopy(self.module), copy.deepcopy(self.card)
        return made

    def save(self, folder: str | Path) -> Path:
        """Write `model.safetensors` and `model.json`; each appears whole or not at all."""
        folder = Path(folder)
        # clones, because tied weights share their memory and safetensors refuses that
        state = {key: tensor.detach().cpu().contiguous().clone() for key, tensor in self.module.state_dict().items()}
        description = self._told()
        with files.replacing(folder / "model.safetensors") as partial:
            save_file(state, partial)
        files.write(folder / "model.json", json.dumps(description, indent=1))
        return folder

    @classmethod
    def open(cls, folder: str | Path, module: nn.Module | None = None, trust: str | Sequence[str] = ()) -> Classifier:
        """Read a classifier that `save` wrote.

        Parameters
        ----------
        module : the network to put the weights into, for one that was wrapped and has no factory to be built by
        trust : modules whose code may run, where the network was made by a factory of one's own; the folder cannot say so itself
        """
        folder = Path(folder)
        saved = read_saved(folder)
        if module is None:
            with trusting(trust):
                module = _rebuilt(folder, saved)
        checkpoints.load_weights(module, checkpoints.read_checkpoint(folder / "model.safetensors"))
        made = cls(
            module.eval(),
            saved.cut,
            geometry=saved.geometry,
            mean=saved.mean,
            std=saved.std,
            classes=saved.classes,
            name=saved.name,
            output=saved.output,
            recipe=None if saved.recipe is None else saved.recipe.model_dump(),
            card=saved.card,
            used=saved.used,
            training=saved.training,
        )
        made.format = saved.format
        made._refuse_other_save(folder, saved)
        return made._trusting(trust)

    def __repr__(self) -> str:
        size = "x".join(map(str, (self.geometry.channels, *self.geometry.size)))
        return f"Classifier({self.name}, input {size}, {self.C} classes, features at {', '.join(self.cut.features)})"

    def _refuse_other_save(self, folder: Path, saved: Saved) -> None:
        """Refuse weights and a description that were not saved together."""
        if not self.cut.head:
            raise ModelError(f"{folder}: model.json names no layer of the head in cut.head: save the model again")
        try:
            width = self.head_data.C
        except (AttributeError, RuntimeError, ValueError, IndexError) as error:
            raise ModelError(
                f"{folder}: model.json cuts the network at {', '.join(self.cut.head)}, which it does not have"
            ) from error
        if len(self.classes) != width:
            raise ModelError(
                f"{folder}: model.json names {len(self.classes)} classes ({_shown(self.classes)}) and the network has {width} "
                "outputs: save the model again"
            )
        if self.fingerprint != saved.fingerprint:
            raise CheckpointError(
                f"{folder}: weights and classes have the fingerprint {self.fingerprint}, model.json says {saved.fingerprint}: "
                "the two files are not of one save; train or save it again"
            )

    def _told(self) -> dict[str, Any]:
        description = {
            "format": self.format,
            "name": self.name,
            "recipe": self.recipe,
            "cut": dataclasses.asdict(self.cut),
            "geometry": dataclasses.asdict(self.geometry),
            "mean": self.mean,
            "std": self.std,
            "classes": _plain(self.classes),
            "output": self.output,
            "card": self.card,
            "used": sorted(self.used),
            "training": self.training,
            "fingerprint": self.fingerprint,
        }
        try:
            json.dumps(description)
        except TypeError as error:
            raise ModelError(
                f"{self.name} cannot be saved, its settings, card and classes must be plain numbers and strings: {error}"
            ) from error
        return description

    def _layers(self, names: Sequence[str], raw: bool = False) -> list[TensorLayer]:
        """Live layers by name, the last of them giving the classifier's logits (`raw`: the network's own)."""
        layers: list[TensorLayer] = []
        for name in names:
            if name.endswith("()"):
                layers.append(TensorLayer("activation", {}, name[:-2]))
            else:
                layers += read_layers(self.module.get_submodule(name), name)
        if self.cut.reads:
            layers = [averaged(layers, self.cut.reads)]
        if raw:
            return layers
        return with_one_output(layers, self.output)

    def _channels_first(self, maps: Tensor) -> Tensor:
        if self.cut.spatial_activation:
            maps = ACTIVATIONS[self.cut.spatial_activation](maps)
        if self.cut.spatial_last:
            return maps.movedim(-1, 1)
        return maps


def _rebuilt(folder: Path, saved: Saved) -> nn.Module:
    recipe = saved.recipe
    if recipe is None:
        raise ModelError(
            f"{folder} holds a wrapped network ({saved.name}), which only its own code can build: "
            "pass it as Classifier.open(folder, module=…), or load it by a factory, 'package.module:factory'"
        )
    return build_network(recipe.model_dump(), saved.geometry.size, saved.geometry.channels)


def build_network(
    recipe: Mapping[str, Any], size: tuple[int, ...] | None, channels: int | None, rng: np.random.Generator | None = None
) -> nn.Module:
    """The network of a classifier's recipe, with random weights; that of the classifier where a factory makes one."""
    built = loading.build(
        recipe["spec"],
        num_classes=recipe["num_classes"],
        size=size,
        channels=channels,
        settings=recipe["settings"],
        rng=rng,
    )
    if isinstance(built.module, Classifier):
        return built.module.module
    return built.module


def _device(module: nn.Module) -> torch.device:
    return next((t.device for t in (*module.parameters(), *module.buffers())), torch.device("cpu"))


def _trial_input(module: nn.Module, geometry: Geometry) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, geometry.channels, *geometry.size, generator=generator).to(_device(module))


def _size(size: int | Sequence[int] | None, settings: dict[str, Any]) -> tuple[int, ...] | None:
    if size is None:
        return None
    if isinstance(size, str | float) or (isinstance(size, Sequence) and not all(isinstance(s, int | np.integer) for s in size)):
        raise SettingError(f"size is {size!r}: give pixels, a whole number or one for every axis")
    if isinstance(size, int | np.integer):
        return (int(size),) * int(settings.get("spatial_dims", 2))
    return tuple(int(s) for s in size)


def _geometry(
    spec: str,
    built: loading.Built,
    size: tuple[int, ...] | None,
    crop: float | None,
    interpolation: str | None,
    mode: str | None,
    mean: float | Sequence[float] | None,
) -> Geometry:
    size = size or built.size
    if size is None:
        raise ModelError(f"{spec} does not say its input size: give size=")
    mode = mode or built.mode
    fill: tuple[float, ...] = ()
    if mode == "border":  # timm pads with the model's own mean
        fill = _per_channel("mean", built.mean if mean is None else mean, built.channels)
    crop = built.crop if crop is None else crop
    return Geometry(size, crop, interpolation or built.interpolation, built.channels, mode, fill)


def _per_channel(what: str, values: float | Sequence[float], channels: int) -> tuple[float, ...]:
    """One value per channel; colour statistics of a network that reads another number of channels are averaged."""
    if isinstance(values, int | float | np.number):
        values = [float(values)]
    listed = tuple(float(v) for v in values)
    if len(listed) == channels:
        return listed
    if len(listed) in (1, 3):
        return (sum(listed) / len(listed),) * channels
    raise SettingError(f"{what} has {len(listed)} values: give one per channel ({channels}), or one for all")


def _output(output: int | str | None, width: int, labels: Sequence[Any] | None, name: str) -> int | None:
    if output is None:
        return None
    if isinstance(output, str):
        if labels is None or output not in labels:
            raise SettingError(
                f"output='{output}' is none of the outputs of {name}: {_shown(labels)}; give its number, 0 to {width - 1}"
            )
        return list(labels).index(output)
    if not 0 <= output < width:
        raise SettingError(f"output={output}, but {name} has {width} outputs: give a number from 0 to {width - 1}")
    return int(output)


def _classes(
    classes: Sequence[Any] | None, labels: Sequence[Any] | None, width: int, output: int | None, name: str
) -> tuple[Any, ...]:
    is_one_logit = output is not None or width == 1
    C = 2 if is_one_logit else width
    has = f"{name} has {width} outputs"
    if width == 1:
        has = f"{name} has 1 output"
    if isinstance(classes, str):
        raise SettingError(f"classes={classes!r} is one text: give a list, one label value for every output")
    if classes is not None:
        if len(classes) != C or len(set(classes)) != C:
            if width == 1:
                has += ", read as two (0, z)"
            raise SettingError(
                f"classes={_shown(classes)} must list {C} different label values: {has}. For a multi-label head give output="
            )
        return tuple(classes)
    if labels is None or output is not None or (width == 1 and len(labels) == 1):
        return tuple(range(C))
    if len(labels) != C or len(set(labels)) != C:
        raise ModelError(
            f"the checkpoint names the classes {_shown(labels)} and {has}: say the label value of every output with classes="
        )
    return tuple(labels)


def _plain(classes: Sequence[Any]) -> list[Any]:
    """Label values as JSON knows them."""
    return [value.item() if isinstance(value, np.generic) else value for value in classes]


def _read_from(weights: checkpoints.Checkpoint, loaded: checkpoints.Loaded) -> dict[str, Any]:
    """What the card says of the checkpoint that was read: which part of it, and what was done."""
    return {
        "container": weights.container,
        "prefix": loaded.prefix,
        "ignored_keys": loaded.ignored,
        "resampled": loaded.resampled,
        "weights": {
            "file": str(weights.path),
            "container": weights.container,
            "prefix": loaded.prefix,
            "tensors": len(weights.state) - len(loaded.ignored),
            "ignored": len(loaded.ignored),
        },
    }


def _shown(values: Sequence[Any] | None) -> str:
    if values is None:
        return "it names none"
    return ", ".join(map(repr, values[:12])) + (f", … ({len(values)})" if len(values) > 12 else "")
