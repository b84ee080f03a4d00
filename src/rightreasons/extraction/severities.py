"""Severities of SDI's operators: as strong as a baseline's AUC allows (eq. 13), content operators matched in pixel change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from rightreasons import perturbations
from rightreasons.audits.sdi.severities import CONTENT, DEPENDS, EXCLUDED, FIELD, KEPT, REDUCED, REFERENCE, Severities, Severity
from rightreasons.data import images
from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError, SettingError
from rightreasons.families import member, suggest
from rightreasons.findings import png
from rightreasons.head import outputs_for
from rightreasons.models.batches import batches
from rightreasons.models.classifier import Classifier
from rightreasons.perturbations import field_of_view
from rightreasons.progress import track
from rightreasons.stats.groups import auc

TOLERANCE = 0.02
LOWEST = 0.1  # of s_ref: an operator that costs too much even there fails
STEPS = 6
GRID = np.geomspace(0.002, 1, 12)  # severities; between two of them the change is a power of the severity
HIGHEST = {"contrast": 1.0, "elastic": 1.0, "patches": 0.5}  # beyond it content is destroyed and no model could move less
FEW = 64  # rows on which pixel change is measured
UNTOUCHED = 1e-3  # RMS change inside a mask below which an operator leaves the object alone
UNCHANGED = 1e-4  # RMS change of a picture below which an operator does nothing to it
PICTURES = (0.5, 1.0, 2.0)  # times the severity
FIELDS = 4  # images whose field of view is drawn


def calibrate(  # noqa: PLR0913  each keyword is a documented setting
    baseline: Classifier,
    cohort: Cohort,
    *,
    reference: Classifier | None = None,
    operators: Sequence[str] | None = None,
    references: Mapping[str, float] | None = None,
    tolerance: float = TOLERANCE,
    exclude: bool = False,
    most: int = 512,
    batch: int = 32,
    out: str | Path | None = None,
    example: int = 0,
) -> Severities:
    """Severities of the nuisance operators on the `val` rows of a named baseline.

    Bisection between 0.1 s_ref and s_ref finds the largest severity at which the AUC falls by at most `tolerance` (eq. 13). A
    baseline that uses the cue loses AUC under the very operator that removes it. So an operator stays at s_ref as "baseline
    depends on it" where a cue-balanced reference keeps its AUC, or where the operator leaves the object's mask alone.

    Parameters
    ----------
    cohort : with a split `val`; or the validation rows themselves
    reference : a model trained without the cue (balanced or redrawn rows)
    references : other reference severities than the operators' own, by name
    exclude : the paper's rule instead: an operator that costs the baseline too much at s_ref is left out
    most : rows, evenly spaced, held in memory
    out : where the JSON goes; one that is there, of the same baseline and rows, is read and not made again
    example : which of the rows the gallery shows
    """
    own_references = dict(references or {})
    if operators is None:
        names = tuple(REFERENCE)
    else:
        names = tuple(operators)
    for name in (*names, *own_references):
        if name not in REFERENCE:
            raise SettingError(f"no nuisance operator {name!r}; {suggest(name, REFERENCE)}")
    rows = _validation(cohort, most)
    asked = Severities(
        (),
        True,
        baseline.fingerprint,
        "" if reference is None else reference.fingerprint,
        rows.fingerprint,
        len(rows),
        tolerance=tolerance,
        references=own_references,
    )
    if out is not None and Path(out).exists():
        return _same(Severities.read(out), asked, out)
    validation = _ValidationRows(baseline, rows, reference, batch)
    severity_of = {**REFERENCE, **own_references}
    calibrated = [
        _calibrated(validation, name, severity_of[name], tolerance, exclude) for name in track(names, "calibrate severities")
    ]
    curves = {name: validation.curve(name) for name in CONTENT}
    severities = replace(
        asked,
        operators=tuple(replace(operator, content=_matched(operator.change, curves)) for operator in calibrated),
        auc=validation.auc,
        auc_reference=validation.auc_reference,
        pictures=validation.pictures(calibrated, example),
    )
    if out is not None:
        severities.save(out)
    return severities


# ---- one operator --------------------------------------------------------------------------------------------------------


def _calibrated(validation: _ValidationRows, name: str, top: float, tolerance: float, exclude: bool) -> Severity:
    """The severity of one operator, at most `top` (s_ref), with what became of it and why."""
    change = validation.change(name, top)
    if change < UNCHANGED:
        return Severity(name, top, {}, EXCLUDED, change=change, reason="it changes nothing in these images")
    drop, drop_reference = validation.drop(name, top), validation.drop_reference(name, top)
    inside = validation.inside(name, top)
    at_top = partial(Severity, name, top, {}, drop=drop, drop_reference=drop_reference, change=change)
    # A baseline that lives on the cue does not notice content that is destroyed; the reference does.
    if drop <= tolerance and (drop_reference is None or drop_reference <= tolerance or exclude):
        return at_top(KEPT)
    if exclude:
        return at_top(EXCLUDED, reason=f"the baseline's AUC falls by {drop:.3f} at s_ref")
    if drop > tolerance and inside is not None and inside < UNTOUCHED:
        return at_top(DEPENDS, reason="the object's mask is untouched")
    if drop_reference is not None and drop_reference <= tolerance:
        return at_top(DEPENDS, reason="the cue-balanced reference keeps its AUC")
    if drop_reference is not None:  # what destroys content for the reference sets the severity
        severity = bisect(lambda s: float(validation.drop_reference(name, s) or 0.0), top, tolerance)
        is_resolved = True
    else:
        severity = bisect(lambda s: validation.drop(name, s), top, tolerance)
        is_resolved = inside is not None
    if np.isnan(severity):
        reason = f"AUC falls by more than {tolerance:g} even at {LOWEST:g} s_ref"
        return replace(at_top(EXCLUDED, reason=reason), severity=LOWEST * top, resolved=is_resolved)
    return _reduced(validation, name, severity, top, tolerance, is_resolved)


def _reduced(
    validation: _ValidationRows, name: str, severity: float, top: float, tolerance: float, is_resolved: bool
) -> Severity:
    """An operator at a severity below s_ref."""
    drop = validation.drop(name, severity)
    return Severity(
        name,
        severity,
        {},
        DEPENDS if drop > tolerance else REDUCED,
        is_resolved,
        drop,
        validation.drop_reference(name, severity),
        validation.change(name, severity),
        f"reduced from s_ref {top:g}",
    )


def bisect(drop: Callable[[float], float], top: float, tolerance: float, steps: int = STEPS) -> float:
    """The largest severity found in [0.1 top, top] whose drop stays within the tolerance; NaN where none does."""
    low, high = LOWEST * top, top
    if drop(high) <= tolerance:
        return high
    if drop(low) > tolerance:
        return float("nan")
    for _ in range(steps):
        middle = (low + high) / 2
        if drop(middle) <= tolerance:
            low = middle
        else:
            high = middle
    return low


def _matched(change: float | None, curves: dict[str, np.ndarray]) -> dict[str, float]:
    """The severity of each content operator at which pixels change by `change`, where that lies within `HIGHEST`."""
    if change is None:
        return {}
    matched = {}
    for name, curve in curves.items():
        rising = np.maximum.accumulate(np.maximum(curve, 1e-9))
        if not max(UNCHANGED, rising[0]) <= change <= rising[-1]:
            continue
        severity = float(f"{np.exp(np.interp(np.log(change), np.log(rising), np.log(GRID))):.4g}")
        if severity <= HIGHEST[name]:
            matched[name] = severity
    return matched


# ---- the rows ------------------------------------------------------------------------------------------------------------


class _ValidationRows:
    """Validation rows in memory, and what the models say about them under any operator."""

    def __init__(self, baseline: Classifier, rows: Cohort, reference: Classifier | None, batch: int) -> None:
        if reference is None:
            self.models = [baseline]
        else:
            self.models = [baseline, reference]
        if reference is not None and reference.geometry != baseline.geometry:
            raise SettingError(
                f"the reference sees {reference.geometry} and the baseline {baseline.geometry}: give models of one input"
            )
        self.rows, self.device = rows, baseline.device
        feed = batches(rows, baseline.geometry, (0.0,), (1.0,), batch=batch)
        self.parts = [(numbers, x) for numbers, x in feed]
        numbers = np.unique(np.linspace(0, len(rows) - 1, FEW).round().astype(int))
        self.few = numbers, torch.cat([x for _, x in self.parts])[numbers]
        self.masks = None
        if rows.mask is not None:
            self.masks = _masks(rows, baseline)
        self.label = [outputs_for(rows.classes, m.classes)[rows.label] for m in self.models]
        self._known: dict[tuple[int, str, float], float] = {}
        self.auc = self._auc(0, "", 0.0)
        self.auc_reference = None
        if reference is not None:
            self.auc_reference = self._auc(1, "", 0.0)

    def drop(self, name: str, severity: float) -> float:
        return self.auc - self._auc(0, name, severity)

    def drop_reference(self, name: str, severity: float) -> float | None:
        if self.auc_reference is None:
            return None
        return self.auc_reference - self._auc(1, name, severity)

    def change(self, name: str, severity: float) -> float:
        """Mean over rows of the RMS change of the pixels."""
        numbers, x = self.few
        return float(_rms(x, self._under_operator(name, x, numbers, severity)).mean())

    def inside(self, name: str, severity: float) -> float | None:
        """Largest RMS change inside the object's mask over the rows; None without masks."""
        if self.masks is None:
            return None
        worst = 0.0
        for x, y, numbers in self._changed(name, severity):
            here = torch.from_numpy(self.masks[numbers])[:, None].to(x)
            square = ((x - y).square() * here).flatten(1).sum(1) / (here.flatten(1).sum(1) * x.shape[1]).clamp(min=1)
            worst = max(worst, float(square.max().sqrt()))
        return worst

    def curve(self, name: str) -> np.ndarray:
        """Mean RMS change at the severities of GRID."""
        return np.array([self.change(name, float(s)) for s in GRID])

    def pictures(self, calibrated: Sequence[Severity], example: int) -> tuple[tuple[str, float, str], ...]:
        """One image under every operator at three severities, and the field of view of a few."""
        number = example % len(self.rows)
        x = self._row(number)
        others = []
        for k in range(FIELDS):
            others.append(self._row((number + k * len(self.rows) // FIELDS) % len(self.rows)))
        shown = [(FIELD, 0.0, png(_picture(_outlined(one)))) for one in others]
        shown.append(("as it is", 0.0, png(_picture(x))))
        for name, severity in [*((o.operator, o.severity) for o in calibrated), *CONTENT.items()]:
            for factor in PICTURES if severity < 1 else np.array(PICTURES) / 2:
                s = min(1.0, float(factor) * severity)
                shown.append((name, round(s, 4), png(_picture(self._under_operator(name, x, np.array([number]), s)))))
        return tuple(shown)

    def _row(self, number: int) -> torch.Tensor:
        return next(x[list(numbers).index(number)][None] for numbers, x in self.parts if number in numbers)

    def _auc(self, model: int, name: str, severity: float) -> float:
        key = (model, name, severity)
        if key not in self._known:
            classifier, logits = self.models[model], []
            shape = (1, -1, 1, 1)
            mean = torch.tensor(classifier.mean, dtype=torch.float32).view(shape)
            std = torch.tensor(classifier.std, dtype=torch.float32).view(shape)
            with torch.inference_mode():
                for _, y, _ in self._changed(name, severity):
                    logits.append(classifier.logits(((y - mean) / std).to(classifier.device)).float().cpu())
            p = torch.cat(logits).double().softmax(1).numpy()
            self._known[key] = auc(self.label[model], p if p.shape[1] > 2 else p[:, 1])
        return self._known[key]

    def _changed(self, name: str, severity: float) -> list[tuple[torch.Tensor, torch.Tensor, np.ndarray]]:
        return [(x, self._under_operator(name, x, numbers, severity) if name else x, numbers) for numbers, x in self.parts]

    def _under_operator(self, name: str, x: torch.Tensor, numbers: np.ndarray, severity: float) -> torch.Tensor:
        family = "content" if name in CONTENT else "nuisance"
        operator = getattr(member("perturbations", family), name)
        each = perturbations.seeds(self.rows.id[numbers], name, 0)
        changed: torch.Tensor = operator(x.to(self.device), each, severity=severity).clamp(0, 1).cpu()
        return changed


def _rms(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x - y).flatten(1).square().mean(1).sqrt()


def _outlined(x: torch.Tensor) -> torch.Tensor:
    """One image (1, c, h, w) with its surround in grey."""
    field = field_of_view(x)[:, None]
    return torch.where(field, x, torch.lerp(x, torch.full_like(x, 0.6), 0.7))


def _picture(x: torch.Tensor) -> np.ndarray:
    values = x[0].permute(1, 2, 0).numpy()
    if values.shape[2] == 3:
        return values
    return values[:, :, 0]


def _masks(rows: Cohort, classifier: Classifier) -> np.ndarray:
    if rows.mask is None:
        raise DataError("these rows have no masks")
    masks = []
    for m in rows.mask:
        masks.append(images.load_mask(m, classifier.geometry, root=rows.root) if m else np.ones(classifier.geometry.size, bool))
    return np.stack(masks)


def _validation(cohort: Cohort, most: int) -> Cohort:
    if cohort.splits is not None and cohort.has("val"):
        rows = cohort.on("val")
    else:
        rows = cohort
    known = rows.select(rows.label >= 0)
    if len(set(known.label.tolist())) < 2:
        raise DataError(
            f"cohort {cohort.name!r} has {len(known)} validation rows of {len(set(known.label.tolist()))} labels: two are needed"
        )
    if len(known) > most:
        known = known.select(np.unique(np.linspace(0, len(known) - 1, most).round().astype(int)))
    return known


def _same(stored: Severities, asked: Severities, path: str | Path) -> Severities:
    """The stored severities; refused where they were calibrated with other settings."""
    for what in ("baseline", "reference", "cohort", "tolerance", "references"):
        if getattr(stored, what) != getattr(asked, what):
            raise SettingError(
                f"{path} was calibrated with {what} = {getattr(stored, what)} and is asked for with {getattr(asked, what)}: "
                "severities are fixed once for all models; give another file to calibrate anew"
            )
    return stored
