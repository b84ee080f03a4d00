"""model.json: what a saved classifier says of itself, checked when it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from rightreasons.data.images import Geometry
from rightreasons.errors import ModelError
from rightreasons.files import read_json
from rightreasons.models.cut import Cut
from rightreasons.stored import known_format

FORMAT = 2
"""Of model.json. Since 2 the fingerprint covers the classes; 1 is still read."""


class Recipe(BaseModel):
    """What builds the network again."""

    model_config = ConfigDict(frozen=True)

    spec: str
    num_classes: int | None = None
    settings: dict[str, Any] = {}


class Saved(BaseModel):
    """The keys of model.json, as `Classifier` has them."""

    model_config = ConfigDict(frozen=True)

    format: int
    name: str
    recipe: Recipe | None
    cut: Cut
    geometry: Geometry
    mean: list[float]
    std: list[float]
    classes: list[str | int | float | bool]
    output: int | None
    card: dict[str, Any]
    used: list[str]
    training: str | None
    fingerprint: str


def read_saved(folder: Path) -> Saved:
    """What `model.json` in a folder says; refused where it is not what `Classifier.save` writes."""
    file = folder / "model.json"
    if not file.is_file() or not (folder / "model.safetensors").is_file():
        raise ModelError(
            f"{folder} holds no classifier: expected model.json and model.safetensors, as Classifier.save writes them"
        )
    card = read_json(file)
    if not isinstance(card, dict):
        raise ModelError(f"{file} is a {type(card).__name__} and describes no classifier: save the model again")
    known_format(card.get("format"), FORMAT, file, error=ModelError)
    try:
        return Saved.model_validate(card)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        why = "is missing" if first["type"] == "missing" else f"is wrong ({first['msg']})"
        raise ModelError(f"{file}: {key} {why}: it is not what Classifier.save writes; save the model again") from error
