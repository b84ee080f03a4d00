"""π: which label each attribute value stands for, for the audits that speak of following the attribute."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from rightreasons.audits._levels import levels_of
from rightreasons.data.cohort import Attribute
from rightreasons.errors import SettingError
from rightreasons.evidence import Evidence, as_outputs
from rightreasons.families import suggest
from rightreasons.stats import groups

UNKNOWN_TRAINING = "training rows unknown"


def alignment_of(
    evidence: Evidence, a: Attribute | None, aligned: Mapping[Any, Any] | None
) -> tuple[dict[Hashable, Hashable], str]:
    """π as codes, attribute level → output, and where it comes from (or why there is none).

    Given (value → label, or attribute → such a mapping), else by lift on the training rows, else, where those are unknown,
    from the model's errors on audit rows; never from test rows, and never by lift on audit rows, which may be balanced.
    """
    if a is None or a.kind == "continuous":
        return {}, "needs bins"
    if aligned is not None and any(isinstance(v, Mapping) for v in aligned.values()):
        aligned = aligned.get(a.name)
    if aligned is not None:
        return _given(evidence, a, aligned), "given"
    levels = levels_of(evidence, a.name)
    if evidence.training is not None and a.name in evidence.training.attributes:
        train = evidence.training
        label = as_outputs(train.label, train.classes, evidence.card.classes)
        alignment = groups.alignment(label, levels.of(train.attribute(a.name)).values)
        source = "training rows"
    elif "audit" in evidence.cohorts and "logits" in evidence.on("audit"):
        rows = evidence.on("audit").decisions()
        values = levels.of(rows.cohort.attribute(a.name)).values
        alignment = groups.aligned_from_errors(rows.label, rows.logits.argmax(axis=1), values)
        source = "π from the model's errors"
    else:
        return {}, f"{UNKNOWN_TRAINING} and no audit rows: give aligned="
    if not alignment.aligned:
        return alignment.aligned, f"no value of {a.name} goes with a label in the {source}"
    return alignment.aligned, source


def _given(evidence: Evidence, a: Attribute, aligned: Mapping[Any, Any]) -> dict[Hashable, Hashable]:
    """The user's value → label as codes; values and labels that do not exist are refused."""
    levels = [str(v) for v in a.levels]
    for value in aligned:
        if str(value) not in levels:
            raise SettingError(
                f"aligned= names {value!r}, which is no value of {a.name!r}: {', '.join(levels)}; "
                f"with several attributes give aligned={{{a.name!r}: {{value: label}}, …}}"
            )
    classes = [str(c) for c in evidence.card.classes]
    for label in aligned.values():
        if str(label) not in classes:
            known = suggest(str(label), classes)
            raise SettingError(f"aligned= names the label {label!r}, which is no output of {evidence.card.name}; {known}")
    return {levels.index(str(value)): classes.index(str(label)) for value, label in aligned.items()}


def say_alignment(pi: Mapping[Hashable, Hashable], a: Attribute | None, evidence: Evidence) -> str:
    """π in the manifest's words."""
    if a is None:
        return ""
    levels, classes = dict(enumerate(a.levels)), dict(enumerate(evidence.card.classes))
    return "; ".join(f"{a.name} = {levels[k]} → {classes[v]}" for k, v in pi.items())  # type: ignore[index]
