"""Networks by name: `timm:…`, `torchvision:…`, `hf:…`, `monai:…` or `pkg.mod:factory`, with their input settings.

Nothing here reaches for a network: without a checkpoint the weights are random.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

from rightreasons.errors import CheckpointError, ModelError
from rightreasons.models.checkpoints import listed
from rightreasons.trust import require_factory, require_own, trusting


@dataclass(frozen=True)
class Built:
    """A network with what its library knows about its input; `spec`, `num_classes` and `settings` build it again."""

    module: Any
    spec: str
    num_classes: int | None
    settings: dict[str, Any]
    size: tuple[int, ...] | None = None
    crop: float = 1.0
    interpolation: str = "bilinear"
    mode: str = "center"
    channels: int = 3
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    labels: tuple[str, ...] | None = None
    is_multi_label: bool = False


def build(
    spec: str,
    *,
    num_classes: int | None = None,
    size: tuple[int, ...] | None = None,
    channels: int | None = None,
    settings: Mapping[str, Any] | None = None,
    rng: np.random.Generator | None = None,
    trust: str | Sequence[str] = (),
) -> Built:
    """The network of a name, with random weights drawn from `rng` (of seed 0 when there is none).

    Parameters
    ----------
    size, channels : told to networks that are built for one input size or number of channels
    settings : keywords of the library's own function; for `hf:<class name>` those of its config
    trust : modules of which a factory may be called
    """
    source, _, name = spec.partition(":")
    if not name or not source:
        raise ModelError(
            f"'{spec}' names no model: write timm:resnet18, torchvision:resnet18, hf:<class or folder>, monai:DenseNet121 "
            "or package.module:factory"
        )
    builder: Callable[..., Built] = _BUILDERS.get(source, _factory)
    seed = 0 if rng is None else int(rng.integers(2**62))
    with torch.random.fork_rng(devices=[]), trusting(trust):
        # not torch.manual_seed, which also touches every accelerator
        torch.random.default_generator.manual_seed(seed)
        built = builder(spec, num_classes, size, channels, dict(settings or {}))
    if isinstance(built.module, nn.Module):
        built.module.eval()
    return built


def is_fresh(spec: str, settings: Mapping[str, Any]) -> bool:
    """Whether the network of a name comes with random weights; a user's own factory may load some, so it is not known to."""
    source, _, name = spec.partition(":")
    if settings.get("pretrained") or settings.get("weights"):
        return False
    if source == "hf":
        return not (Path(name) / "config.json").is_file()
    return source in _BUILDERS or source.startswith("rightreasons.")


# --- libraries ---------------------------------------------------------------------------------------------------------------


def _timm(
    spec: str, num_classes: int | None, size: tuple[int, ...] | None, channels: int | None, settings: dict[str, Any]
) -> Built:
    import timm
    from timm.data import resolve_data_config

    name = spec.partition(":")[2]
    if not timm.is_model(name):
        raise ModelError(_unknown("timm", name, timm.list_models()))
    config = _call(spec, timm.get_pretrained_cfg, name, allow_unregistered=False)
    extra = dict(settings)
    extra.setdefault("in_chans", 3 if channels is None else channels)
    if size is not None and config is not None and config.fixed_input_size and size != config.input_size[1:]:
        extra.setdefault("img_size", size)
    if num_classes is not None:
        extra["num_classes"] = num_classes
    module = _call(spec, timm.create_model, name, pretrained=False, **extra)
    if not getattr(module, "num_classes", 1):
        raise ModelError(f"{spec} has no classifier of its own (num_classes=0): give num_classes=")
    data = resolve_data_config({}, model=module)
    return Built(
        module,
        spec,
        num_classes,
        settings,
        size=size or tuple(extra.get("img_size") or data["input_size"][1:]),
        crop=float(data["crop_pct"]),
        interpolation=_interpolation(data["interpolation"]),
        mode=data["crop_mode"],
        channels=extra["in_chans"],
        mean=tuple(data["mean"]),
        std=tuple(data["std"]),
    )


def _torchvision(
    spec: str, num_classes: int | None, size: tuple[int, ...] | None, channels: int | None, settings: dict[str, Any]
) -> Built:
    import torchvision.models as zoo

    name = spec.partition(":")[2]
    known = zoo.list_models(module=zoo) + zoo.list_models(module=zoo.video)
    if name not in known:
        raise ModelError(_unknown("torchvision's classifiers", name, known))
    if channels not in (None, 3):
        raise ModelError(f"{spec} reads 3 channels, not {channels}: grey images are repeated when channels is left out")
    extra = dict(settings)
    if num_classes is not None:
        extra["num_classes"] = num_classes
    if name in ("googlenet", "inception_v3"):
        extra.setdefault("init_weights", True)  # said aloud, else torchvision warns that its default will change
    if size is not None and name.startswith("vit_"):
        extra.setdefault("image_size", size[0])
    if size is not None and name.startswith("maxvit"):
        extra.setdefault("input_size", size)
    module = _call(spec, zoo.get_model, name, weights=None, **extra)
    preset = zoo.get_model_weights(name)["DEFAULT"].transforms()
    if len(preset.crop_size) == 2 and size is None:
        raise ModelError(f"{spec} reads videos: give size=(frames, height, width)")
    side, resized = preset.crop_size[-1], preset.resize_size[0]
    return Built(
        module,
        spec,
        num_classes,
        settings,
        size=size or (side, side),
        crop=min(1.0, side / resized),
        interpolation=_interpolation(preset.interpolation.value),
        mean=tuple(preset.mean),
        std=tuple(preset.std),
    )


def _hf(
    spec: str, num_classes: int | None, size: tuple[int, ...] | None, channels: int | None, settings: dict[str, Any]
) -> Built:
    transformers = _library("transformers", "hf")
    name = spec.partition(":")[2]
    if (Path(name) / "config.json").is_file():
        module = _hf_folder(transformers, Path(name), num_classes, settings)
        processing = _hf_processing(transformers, module.config.model_type, Path(name))
    else:
        module = _hf_class(transformers, name, num_classes, size, channels, settings)
        processing = _hf_processing(transformers, module.config.model_type, None)
    config: Any = module.config
    if processing.get("do_flip_channel_order"):
        raise ModelError(
            f"{spec} reads images as BGR, which the input settings cannot say: wrap a network that flips its channels"
        )
    labels = tuple(config.id2label[i] for i in sorted(config.id2label))
    normalised = processing.get("do_normalize", True)
    return Built(
        module,
        f"hf:{type(module).__name__}",
        int(config.num_labels),
        json.loads(config.to_json_string(use_diff=True)),
        channels=int(getattr(config, "num_channels", channels or 3)),
        mean=tuple(processing["image_mean"]) if normalised else (0.0,),
        std=tuple(processing["image_std"]) if normalised else (1.0,),
        labels=None if labels == tuple(f"LABEL_{i}" for i in range(len(labels))) else labels,
        is_multi_label=config.problem_type == "multi_label_classification",
        **_hf_geometry(processing, size or _pair(getattr(config, "image_size", None))),
    )


def _hf_folder(transformers: Any, folder: Path, num_classes: int | None, settings: dict[str, Any]) -> Any:
    if num_classes is None:
        extra = dict(settings)
    else:
        extra = {**settings, "num_labels": num_classes}
    load = transformers.AutoModelForImageClassification.from_pretrained
    try:
        module, report = load(folder, local_files_only=True, output_loading_info=True, **extra)
    except (ValueError, OSError, RuntimeError, TypeError) as error:
        raise ModelError(f"hf:{folder} cannot be loaded: {_brief(error)}") from error
    missing, shapes = sorted(report["missing_keys"]), sorted(str(key) for key in report["mismatched_keys"])
    if missing or shapes:
        raise CheckpointError(
            f"the weights in {folder} do not fill {type(module).__name__}: {listed('missing', missing)}"
            f"{listed('of another shape', shapes)}it is a folder of another task or with another number of labels"
        )
    return module


def _hf_class(
    transformers: Any,
    name: str,
    num_classes: int | None,
    size: tuple[int, ...] | None,
    channels: int | None,
    settings: dict[str, Any],
) -> Any:
    names = [n for n in dir(transformers) if "ForImageClassification" in n]
    kind: Any = getattr(transformers, name, None) if name.isidentifier() else None
    configuration: Any = getattr(kind, "config_class", None)
    if configuration is None or not (inspect.isclass(kind) and issubclass(kind, nn.Module)):
        raise ModelError(_unknown("transformers", name, names) + ", or the path of a folder with config.json")
    extra = dict(settings)
    if num_classes is not None:
        extra.update(num_labels=num_classes)
        if len(extra.get("id2label", ())) not in (0, num_classes):
            extra = {key: value for key, value in extra.items() if key not in ("id2label", "label2id")}
    known = configuration().to_dict()
    if size is not None and "image_size" in known:
        extra.setdefault("image_size", size[0] if len(set(size)) == 1 else list(size))
    if channels is not None and "num_channels" in known:
        extra.setdefault("num_channels", channels)
    return _call(f"hf:{name}", lambda **config: kind(configuration.from_dict(config)), **extra)


def _hf_processing(transformers: Any, model_type: str, folder: Path | None) -> dict[str, Any]:
    """The image processor's settings: of the folder, else the defaults of the model's type, else mean and std of 0.5."""
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES

    plain: dict[str, Any] = {"image_mean": (0.5,), "image_std": (0.5,)}
    for name in ("preprocessor_config.json", "processor_config.json"):
        if folder is not None and (folder / name).is_file():
            saved = json.loads((folder / name).read_text())
            return {**plain, **saved.get("image_processor", saved)}
    for name in _processor_names(IMAGE_PROCESSOR_MAPPING_NAMES.get(model_type)):
        processor = getattr(transformers, name, None)
        if processor is not None:
            defaults = processor().to_dict()
            return {**plain, **{key: value for key, value in defaults.items() if value is not None}}
    return plain


def _processor_names(listed: Any) -> list[str]:
    """Names of image processors as one version or another of transformers lists them: one, several, or by backend."""
    if isinstance(listed, dict):
        listed = tuple(listed.values())
    names = listed if isinstance(listed, tuple) else (listed,)
    return [name for name in names if name]


def _hf_geometry(processing: Mapping[str, Any], size: tuple[int, ...] | None) -> dict[str, Any]:
    """Size, crop, mode and interpolation, from the many ways in which processors say them."""
    resized = processing.get("size") or {}
    if isinstance(resized, int):
        resized = {"height": resized, "width": resized}
    else:
        resized = resized
    is_cropped = bool(processing.get("do_center_crop")) and processing.get("crop_size") is not None
    short = resized.get("shortest_edge")
    before = _pair(short) or ((resized["height"], resized["width"]) if "height" in resized else None)
    after = _pair(processing["crop_size"]) if is_cropped else before
    crop, mode = 1.0, "center" if short else "squash"
    if is_cropped and before and after:
        crop = min(1.0, after[0] / before[0])
    elif short and processing.get("crop_pct"):
        # ConvNeXt's rule: below 384 pixels resize to size / crop_pct and crop, from 384 on squash
        if short < 384:
            crop, mode = (float(processing["crop_pct"]), "center")
        else:
            crop, mode = (1.0, "squash")
    resample = {0: "nearest", 2: "bilinear", 3: "bicubic"}.get(int(processing.get("resample", 2)), "bicubic")
    return {"size": size or after or (224, 224), "crop": crop, "mode": mode, "interpolation": resample}


def _monai(
    spec: str, num_classes: int | None, size: tuple[int, ...] | None, channels: int | None, settings: dict[str, Any]
) -> Built:
    nets = _library("monai.networks.nets", "medical")
    name = spec.partition(":")[2]
    kind = getattr(nets, name, None)
    if not callable(kind) or isinstance(kind, ModuleType):
        raise ModelError(_unknown("monai.networks.nets", name, [n for n in dir(nets) if callable(getattr(nets, n))]))
    if size is None:
        raise ModelError(f"{spec} does not say its input size: give size=(x, y, z) for volumes or size=(h, w)")
    accepted = _accepted(kind, nets)
    own = {name: settings[name] for name in ("in_channels", "n_input_channels") if name in settings}
    if channels is not None:
        channels = channels
    else:
        channels = next(iter(own.values()), 1)
    extra: dict[str, Any] = {"spatial_dims": len(size), "img_size": size, "classification": True, "pretrained": False}
    extra.update(in_channels=channels, n_input_channels=channels)
    classes = num_classes
    if classes is None:
        classes = next((settings[key] for key in ("num_classes", "out_channels") if key in settings), None)
    # a class count that has to be named is taken from a checkpoint later; until then two stand for it
    if classes is None and accepted.get("out_channels") is inspect.Parameter.empty:
        classes = 2
    if classes is not None:
        extra.update({"num_classes" if "num_classes" in accepted else "out_channels": classes})
    extra = {key: value for key, value in extra.items() if key in accepted and (value is not None)} | settings
    module = _call(spec, kind, **extra)
    return Built(module, spec, classes, settings, size=size, channels=channels)


def _factory(
    spec: str, num_classes: int | None, size: tuple[int, ...] | None, channels: int | None, settings: dict[str, Any]
) -> Built:
    path, _, name = spec.partition(":")
    require_factory(path, spec)
    try:
        home = importlib.import_module(path)
    except ModuleNotFoundError as error:
        known = ", ".join(f"{source}:" for source in _BUILDERS)
        raise ModelError(f"'{spec}': no module {error.name!r} can be imported, and '{path}:' is none of {known}") from error
    maker = getattr(home, name, None)
    if not callable(maker):
        raise ModelError(_unknown(path, name, [n for n in dir(home) if callable(getattr(home, n)) and not n.startswith("_")]))
    require_own(maker, path, spec)
    accepted = _accepted(maker, None)
    offered = {"num_classes": num_classes, "size": size, "channels": channels}
    extra = {key: value for key, value in offered.items() if value is not None and key in accepted} | settings
    module = _call(spec, maker, **extra)
    return Built(module, spec, num_classes, settings, size=size, channels=channels or 3)


_BUILDERS: dict[str, Callable[..., Built]] = {"timm": _timm, "torchvision": _torchvision, "hf": _hf, "monai": _monai}


def _library(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ModelError(f"{name.partition('.')[0]} is not installed: pip install 'rightreasons[{extra}]'") from error


def _call(spec: str, maker: Callable[..., Any], *args: Any, **settings: Any) -> Any:
    try:
        return maker(*args, **settings)
    except (TypeError, ValueError, KeyError, AssertionError, RuntimeError, ImportError) as error:
        shown = ", ".join(f"{key}={value!r}" for key, value in settings.items() if key != "pretrained")
        raise ModelError(f"{spec} cannot be built with {shown or 'its defaults'}: {_brief(error)}") from error


def _brief(error: Exception) -> str:
    """An error of another library in one line."""
    return ": ".join([type(error).__name__, *str(error).splitlines()[:1]])


def _accepted(maker: Any, home: Any) -> dict[str, Any]:
    """Keyword names of a function or class with their defaults; where it passes keywords on, also its base's or its result's."""
    if inspect.isclass(maker):
        makers: list[Any] = [vars(base)["__init__"] for base in maker.__mro__ if "__init__" in vars(base) and base is not object]
    else:
        returned = inspect.signature(maker).return_annotation
        if isinstance(returned, str) and home is not None:
            kind = getattr(home, returned, None)
        else:
            kind = None
        if inspect.isclass(kind):
            makers = [maker, vars(kind)["__init__"]]
        else:
            makers = [maker]
    accepted: dict[str, Any] = {}
    for each in makers:
        parameters = inspect.signature(each).parameters.values()
        accepted = {p.name: p.default for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)} | accepted
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return accepted


def _pair(size: Any) -> tuple[int, ...] | None:
    if isinstance(size, dict):
        if "height" in size:
            size = (size["height"], size["width"])
        else:
            size = size.get("shortest_edge")
    if size is None:
        return None
    if isinstance(size, int | float):
        return (int(size), int(size))
    return tuple(int(s) for s in size)


def _interpolation(name: str) -> str:
    """The nearest of what `Geometry` knows: Lanczos is read as bicubic, box and Hamming as bilinear."""
    return {"nearest": "nearest", "bicubic": "bicubic", "lanczos": "bicubic", "random": "bicubic"}.get(name, "bilinear")


def _unknown(where: str, name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, 5, 0.5)
    return f"'{name}' is not in {where}" + (f": did you mean {', '.join(near)}?" if near else f" ({len(known)} names)")
