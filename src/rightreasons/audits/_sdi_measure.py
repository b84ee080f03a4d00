"""What one model's features do under SDI's operators: sensitivities, ratios and the probe of the cue, with their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import softmax

from rightreasons.audits._sdi_effect import LABELLED, Effects, at_working_point, taken
from rightreasons.audits._sdi_formulas import head_read, ratio
from rightreasons.audits.sdi.severities import Severities, Severity, content_recipe, nuisance_recipe
from rightreasons.data.cohort import Attribute
from rightreasons.errors import DataError, NotRun
from rightreasons.evidence import Evidence, View
from rightreasons.stats import groups, probes, resampling
from rightreasons.stats.resampling import Interval, Resamples, interval

SPACES = ("features", "what the head reads")
INSERTED = "border"
MATCHED = (0.8, 1.25)  # the content operators' pixel change over the nuisance operator's, on the rows that are measured
SMALLEST = 10
TOLERATED = 0.02  # of the cue's effect on a probability: what `flips` tolerates of its change
UNREACHED = "no content operator changes pixels as much as this one"
NO_HEAD = "the head is not known as data"


@dataclass(frozen=True)
class Measurement:
    """One model under every operator; k operators, two spaces (features, what the head reads).

    Attributes
    ----------
    attribute : the cue column; empty where the cue is a border inserted in a random half of the rows
    s_nc, s_c, r_sc : (2, k, 3) value, low, high
    p : (2, k) of R_sc = 1, two-sided, from the bootstrap
    auc : of the probe of the cue on held-out rows (AUC_nc); concordance for a continuous cue
    auc_clean : the reading against which an operator's is held: within the label where every label has two values
    auc_drop : (k, 3) fall of that reading under the operator
    cue_effect, label_effect : (3,) how far predictions differ with the cue within the label, and with the label within the cue
    left_cue, left_label : (k, 3) the same under the operator
    taken : (k, 3) what the operator takes of the cue's effect beyond what it takes of the label's
    taken_p : (k,) of `taken` at most TOLERATED, from the bootstrap
    family_s_nc, family_r_sc : (2, 3) over all operators; they decide nothing
    components : (2, 3) S_nc, R_sc, AUC_nc of the family, in each space
    component_draws : (B, 2, 3) the same in every resample
    change, content_change : (k,) RMS pixel change under the operator and (mean) under its content operators; NaN if not stored
    content : the content operators that each is compared with
    """

    model: str
    attribute: str
    continuous: bool
    calibrated: bool
    baseline: str
    operator: tuple[str, ...]
    severity: np.ndarray
    status: tuple[str, ...]
    resolved: np.ndarray
    excluded: tuple[str, ...]
    unresolved: tuple[str, ...]
    missing: tuple[str, ...]
    content: tuple[str, ...]
    change: np.ndarray
    content_change: np.ndarray
    s_nc: np.ndarray
    s_c: np.ndarray
    r_sc: np.ndarray
    p: np.ndarray
    reason: tuple[str, ...]
    auc: Interval
    auc_clean: Interval
    within: bool
    auc_drop: np.ndarray
    cue_effect: np.ndarray
    label_effect: np.ndarray
    left_cue: np.ndarray
    left_label: np.ndarray
    taken: np.ndarray
    taken_p: np.ndarray
    effect_reason: str
    family_s_nc: np.ndarray
    family_r_sc: np.ndarray
    components: np.ndarray
    component_draws: np.ndarray
    n: int
    n_audit: int
    n_cue: int
    n_subjects: int | None
    converged: bool

    def scalars(self) -> dict[str, float | int | str]:
        """The raw components and every operator's ratio, for a row of a table."""
        found: dict[str, float | int | str] = {"attribute": self.attribute, "n": self.n, "auc_nc": self.auc.value}
        for space, name in enumerate(("features", "head")):
            found |= {f"s_nc_{name}": float(self.components[space, 0]), f"r_sc_{name}": float(self.components[space, 1])}
            for k, operator in enumerate(self.operator):
                found[f"s_nc_{name}_{operator}"] = float(self.s_nc[space, k, 0])
                found[f"r_sc_{name}_{operator}"] = float(self.r_sc[space, k, 0])
        return found


def measured(
    evidence: Evidence,
    chosen: Severities,
    attribute: str | None,
    draws: int,
    C: float,
    B: int,
    level: float,
    rng: np.random.Generator,
) -> Measurement:
    test, audit = evidence.on("test"), evidence.on("audit")
    held = frozenset(evidence.arrays("test"))
    present = [o for o in chosen.used if all(nuisance_recipe("features", o, d) in held for d in range(draws))]
    if not present:
        raise NotRun(
            "no features under a nuisance operator: extract what sdi needs with the same severities="
            if chosen.used
            else "every nuisance operator was excluded by the calibration"
        )
    cohort, _, z = test.by_case("features")
    probing, showing = (np.random.default_rng(s) for s in rng.integers(2**63, size=2))
    sample = resampling.resamples(len(cohort), rng=probing, B=B, subject=cohort.subject)
    moves = _Moves(evidence, test, z, draws, held)
    rows = [moves.of(o) for o in present]
    sensitivities = _sensitivities(moves, rows, sample, level)
    cue = _cue(evidence, audit, test, z, present, attribute, showing)
    read = _probe(cue, moves, present, sample, C, level)
    drop, auc = read.pop("auc_drop"), read["auc"]
    drawn = np.concatenate([sensitivities.pop("family_draws"), np.tile(read.pop("auc_draws")[:, None, None], (1, 2, 1))], axis=2)
    family = sensitivities["family_r_sc"][:, 0], sensitivities["family_s_nc"][:, 0]
    return Measurement(
        model=evidence.card.name,
        attribute=cue.name,
        continuous=cue.continuous,
        calibrated=chosen.calibrated,
        baseline=chosen.baseline,
        operator=tuple(o.operator for o in present),
        severity=np.array([o.severity for o in present]),
        status=tuple(o.status for o in present),
        resolved=np.array([o.resolved for o in present]),
        excluded=tuple(f"{o.operator}: {o.reason}" for o in chosen.operators if o not in chosen.used),
        unresolved=tuple(o.operator for o in chosen.operators if not o.resolved),
        missing=tuple(o.operator for o in chosen.used if o not in present),
        content=tuple(r.said for r in rows),
        change=np.array([r.change for r in rows]),
        content_change=np.array([r.content_change for r in rows]),
        auc_drop=drop,
        components=np.stack([family[1], family[0], np.full(2, auc.value)], axis=1),
        component_draws=drawn.astype(np.float32),
        n=len(cohort),
        n_subjects=None if cohort.subject is None else sample.units,
        **sensitivities,
        **read,
        **_effects(cue, moves, present, sample, level),
    )


# ---- sensitivities -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Moved:
    """Distances (2, n) under one nuisance operator and, on average, under its content operators (None where none matches)."""

    nuisance: np.ndarray
    content: np.ndarray | None
    change: float
    content_change: float
    said: str
    reason: str


class _Moves:
    """Distances in both spaces between the features as they are and under an operator; each array is read once."""

    def __init__(self, evidence: Evidence, test: View, z: np.ndarray, draws: int, held: frozenset[str]) -> None:
        self.test, self.z, self.draws, self.head, self.held = test, z, draws, evidence.head, held
        self.read = None if self.head is None else head_read(self.head, z)
        self.norm = np.stack([_norm(z), np.full(len(z), np.nan) if self.read is None else _norm(self.read)])
        self._distance: dict[str, np.ndarray] = {}

    def of(self, operator: Severity) -> _Moved:
        nuisance = self._mean(lambda d: nuisance_recipe("features", operator, d))
        change = self._change(lambda d: nuisance_recipe("change", operator, d))
        matched, said, changes, off = [], [], [], []
        for name, severity in operator.content.items():
            recipe = [content_recipe("features", name, severity, d) for d in range(self.draws)]
            if not self.held.issuperset(recipe):
                continue
            one = self._change(lambda d, n=name, s=severity: content_recipe("change", n, s, d))  # type: ignore[misc]
            if change == 0:
                off.append(f"{operator.operator} changes no pixel")
                continue
            if not math.isnan(one / change) and not MATCHED[0] <= one / change <= MATCHED[1]:
                off.append(f"{name} changes pixels {one / change:.2f} times as much")
                continue
            matched.append(np.mean([self.distance(r) for r in recipe], axis=0))
            said.append(f"{name} ({severity:.3g})")
            changes.append(one)
        reason = "" if matched else "; ".join([UNREACHED, *off])
        content = np.mean(matched, axis=0) if matched else None
        return _Moved(nuisance, content, change, float(np.mean(changes)) if changes else math.nan, ", ".join(said), reason)

    def features(self, operator: Severity) -> list[np.ndarray]:
        return [self._features(nuisance_recipe("features", operator, d)) for d in range(self.draws)]

    def probabilities(self, operators: list[Severity]) -> np.ndarray:
        """(1 + k, n, C) predicted probabilities as images are and under operators, at the working point, mean over draws."""
        if self.head is None:
            raise DataError(NO_HEAD)
        clean = softmax(self.head(self.z.astype(np.float64)), axis=1)
        found = [clean]
        for operator in operators:
            logits = (self.head(z.astype(np.float64)) for z in self.features(operator))
            found.append(np.mean([at_working_point(each, clean.mean(axis=0)) for each in logits], axis=0))
        return np.stack(found)

    def distance(self, recipe: str) -> np.ndarray:
        """(2, n)"""
        if recipe not in self._distance:
            moved = self._features(recipe)
            away = np.full(len(moved), np.nan)
            if self.head is not None and self.read is not None:
                away = _norm(self.read - head_read(self.head, moved))
            self._distance[recipe] = np.stack([_norm(self.z - moved), away])
        return self._distance[recipe]

    def _mean(self, recipe: Callable[[int], str]) -> np.ndarray:
        found: np.ndarray = np.mean([self.distance(recipe(d)) for d in range(self.draws)], axis=0)
        return found

    def _change(self, recipe: Callable[[int], str]) -> float:
        names = [recipe(d) for d in range(self.draws)]
        return float(np.mean([self.test[r].mean() for r in names])) if self.held.issuperset(names) else math.nan

    def _features(self, recipe: str) -> np.ndarray:
        moved = self.test.by_case(recipe)[2]
        if moved.shape != self.z.shape:
            raise DataError(f"{recipe!r} has shape {moved.shape} and features {self.z.shape}: extract them again")
        return moved


def _norm(values: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.linalg.norm(values, axis=1)
    return found


def _sensitivities(moves: _Moves, rows: list[_Moved], sample: Resamples, level: float) -> dict[str, Any]:
    """S_nc, S_c, R_sc of every operator and of the family, in both spaces; one matrix of distances serves all resamples."""
    k, n = len(rows), moves.norm.shape[1]
    nothing = np.full((2, n), np.nan)
    nuisance = np.stack([r.nuisance for r in rows], axis=1)  # (2, k, n)
    content = np.stack([nothing if r.content is None else r.content for r in rows], axis=1)
    matrix = np.concatenate([nuisance.reshape(2 * k, n), content.reshape(2 * k, n), moves.norm]).T
    known = ~np.isnan(matrix).any(axis=0)

    def statistic(counts: np.ndarray) -> np.ndarray:
        """(b, 3, 2, k + 1): S_nc, S_c, R_sc by space and operator, the family last."""
        total = resampling.sums(counts, np.where(known, matrix, 0.0))
        total[:, ~known] = np.nan
        away, within, norm = total[:, : 2 * k], total[:, 2 * k : 4 * k], total[:, 4 * k :]
        scale = np.where(norm > 0, norm, np.nan)[:, :, None]
        s_nc, s_c = away.reshape(-1, 2, k) / scale, within.reshape(-1, 2, k) / scale
        both = ~np.isnan(s_c)
        of = [np.where(both, s, 0.0).sum(axis=2) / np.maximum(both.sum(axis=2), 1) for s in (s_nc, s_c)]
        whole = [s_nc.mean(axis=2), np.where(both.any(axis=2), of[1], np.nan)]
        family = ratio(np.where(both.any(axis=2), of[0], np.nan), whole[1])
        parts = [(s_nc, whole[0]), (s_c, whole[1]), (ratio(s_nc, s_c), family)]
        return np.stack([np.concatenate([each, all_[:, :, None]], axis=2) for each, all_ in parts], axis=1)

    point, draws = statistic(resampling.whole(n))[0], sample.apply(statistic)
    reason = tuple(r.reason for r in rows)
    made = np.array(
        [
            [[_limits(interval(point[s, a, o], draws[:, s, a, o], level)) for o in range(k + 1)] for a in range(2)]
            for s in range(3)
        ]
    )
    p = np.array([[_p(point[2, a, o], draws[:, 2, a, o]) for o in range(k)] for a in range(2)])
    if moves.read is None:
        reason = tuple("; ".join(filter(None, (why, NO_HEAD))) for why in reason)
    return {
        "s_nc": made[0, :, :k], "s_c": made[1, :, :k], "r_sc": made[2, :, :k], "p": p, "reason": reason,
        "family_s_nc": made[0, :, k], "family_r_sc": made[2, :, k],
        "family_draws": draws[..., k][:, [0, 2]].transpose(0, 2, 1),
    }  # fmt: skip


def _limits(found: Interval) -> list[float]:
    return [found.value, found.low, found.high]


def _p(value: float, draws: np.ndarray, null: float = 1.0) -> float:
    """Two-sided p of a null value (R_sc = 1): twice the share of resamples on its other side."""
    if math.isnan(value):
        return math.nan
    known = draws[~np.isnan(draws)]
    beyond = np.sum(known <= null) if value > null else np.sum(known >= null)
    return float(min(1.0, 2 * (1 + beyond) / (len(known) + 1)))


# ---- the cue's effect ----------------------------------------------------------------------------------------------------


def _effects(cue: _Cue, moves: _Moves, present: list[Severity], sample: Resamples, level: float) -> dict[str, Any]:
    """What the cue does to predictions, as images are and under every operator, and what each operator takes of it."""
    k = len(present)
    reason = NO_HEAD if moves.head is None else "" if cue.name else "no cue is named"
    if moves.head is not None and not reason:
        effects = Effects(moves.probabilities(present), cue.y, cue.a, continuous=cue.continuous)
        reason = effects.problem
    if moves.head is None or reason:
        gone = {name: np.full((k, 3), np.nan) for name in ("left_cue", "left_label", "taken")}
        whole = {name: np.full(3, np.nan) for name in ("cue_effect", "label_effect")}
        return {**whole, **gone, "taken_p": np.full(k, np.nan), "effect_reason": reason}
    point, draws = effects.draws(resampling.whole(sample.n)), sample.apply(effects.draws)
    has_label = bool(point[0, 1, 0] >= LABELLED)
    lost, lost_draws = taken(point, has_label)[0], taken(draws, has_label)
    left = np.array([[_limits(interval(point[0, e, o], draws[:, e, o], level)) for o in range(k + 1)] for e in range(2)])
    return {
        "cue_effect": left[0, 0], "label_effect": left[1, 0], "left_cue": left[0, 1:], "left_label": left[1, 1:],
        "taken": np.array([_limits(interval(lost[o], lost_draws[:, o], level)) for o in range(k)]),
        "taken_p": np.array([_p(lost[o], lost_draws[:, o], TOLERATED) for o in range(k)]),
        "effect_reason": "",
    }  # fmt: skip


# ---- the cue and its probe -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Cue:
    """The cue of audit and test rows, with the features to read it from; codes -1 or NaN where missing."""

    name: str
    continuous: bool
    fit_z: np.ndarray
    fit_y: np.ndarray
    fit_a: np.ndarray
    z: np.ndarray
    y: np.ndarray
    a: np.ndarray


def _cue(
    evidence: Evidence, audit: View, test: View, z: np.ndarray, present: list[Severity], attribute: str | None,
    rng: np.random.Generator,
) -> _Cue:  # fmt: skip
    fit, fit_y, fit_z = audit.by_case("features")
    cohort, y, _ = test.by_case("features")
    if cohort.attributes:
        a = cohort.attribute(attribute)
        other = fit.attribute(a.name)
        _same_levels(a, other)
        return _Cue(a.name, a.kind == "continuous", fit_z, fit_y, other.values, z, y, a.values)
    inserted = next((o for o in present if o.operator == INSERTED), None)
    recipe = None if inserted is None else nuisance_recipe("features", inserted, 0)
    if recipe is None or recipe not in audit:
        raise NotRun(
            "no cue: name an attribute with attribute=, or extract the features of audit rows under the border, which is then "
            "inserted in a random half of the rows"
        )
    halves = [rng.permutation(n) % 2 for n in (len(fit_z), len(z))]
    bordered = [view.by_case(recipe)[2] for view in (audit, test)]
    mixed = [np.where(h[:, None] == 1, b, clean) for h, b, clean in zip(halves, bordered, (fit_z, z))]
    return _Cue("", False, mixed[0], fit_y, halves[0], mixed[1], y, halves[1])


def _same_levels(a: Attribute, b: Attribute) -> None:
    if a.levels != b.levels:
        raise DataError(
            f"{a.name!r} has the values {list(a.levels)} on test rows and {list(b.levels)} on audit rows: read one table"
        )


def _probe(cue: _Cue, moves: _Moves, present: list[Severity], sample: Resamples, C: float, level: float) -> dict[str, Any]:
    """AUC_nc on held-out rows, and how far it falls under each operator; the probe is fitted once, on audit rows as they are."""
    fit, read = _known(cue.fit_a, cue.continuous), _known(cue.a, cue.continuous)
    levels = [] if cue.continuous else _large(cue.fit_a[fit], cue.a[read])
    if not cue.continuous:
        fit, read = (k & np.isin(a, np.array(levels)) for k, a in ((fit, cue.fit_a), (read, cue.a)))
    counted = {"n_audit": int(fit.sum()), "n_cue": int(read.sum()), "within": False, "converged": True}
    if (not cue.continuous and len(levels) < 2) or min(fit.sum(), read.sum()) < 2 * SMALLEST:
        gone = Interval(
            math.nan, math.nan, math.nan, reason=f"fewer than two values of the cue with {SMALLEST} rows in both sets"
        )
        nothing = {"auc_drop": np.full((len(present), 3), np.nan), "auc_draws": np.full(sample.B, np.nan)}
        return {"auc": gone, "auc_clean": gone, **nothing, **counted}
    if cue.continuous:
        marginal = held = probes.fit_ridge(cue.fit_z[fit], cue.fit_a[fit])
    else:
        pairs = [f"{y} {a}" for y, a in zip(cue.fit_y[fit], cue.fit_a[fit])]
        marginal = probes.fit(cue.fit_z[fit], cue.fit_a[fit], C=C)
        held = probes.fit(cue.fit_z[fit], cue.fit_a[fit], C=C, weight=probes.equal_weights(pairs))
    parts = _parts(cue, read)
    reading = _Reading(cue, read, parts, sample, level)
    whole = _Reading(cue, read, [np.flatnonzero(read)], sample, level)
    clean = reading.draws(held, cue.z)
    encoded = whole.draws(marginal, cue.z)
    drops = []
    for operator in present:
        if cue.name:
            under = [reading.draws(held, moved) for moved in moves.features(operator)]
            point, drawn = float(np.mean([p for p, _ in under])), np.mean([d for _, d in under], axis=0)
            drops.append(_limits(interval(clean[0] - point, clean[1] - drawn, level)))
        else:
            drops.append([math.nan] * 3)
    converged = marginal.converged and held.converged
    return {
        **counted, "auc": whole.interval(*encoded), "auc_draws": encoded[1], "auc_clean": reading.interval(*clean),
        "auc_drop": np.array(drops).reshape(-1, 3), "within": len(parts) > 1, "converged": converged,
    }  # fmt: skip


class _Reading:
    """AUC (concordance for numbers) of a probe's scores, averaged over parts of the rows, with the draws of the bootstrap."""

    def __init__(self, cue: _Cue, read: np.ndarray, parts: list[np.ndarray], sample: Resamples, level: float) -> None:
        self.cue, self.parts, self.sample, self.level = cue, parts, sample, level

    def draws(self, probe: probes.Probe, z: np.ndarray) -> tuple[float, np.ndarray]:
        score = probe.score(z)
        place = {value: k for k, value in enumerate(probe.levels)}

        def statistic(counts: np.ndarray) -> np.ndarray:
            found = []
            for rows in self.parts:
                truth, those = self.cue.a[rows], np.ascontiguousarray(counts[:, rows])
                if self.cue.continuous:
                    found.append(resampling.concordance_draws(truth, score[rows], those))
                else:
                    codes = np.array([place[v] for v in truth.tolist()], dtype=np.int64)
                    found.append(groups.auc_draws(codes, score[rows], those))
            mean: np.ndarray = np.mean(found, axis=0)
            return mean

        return float(statistic(resampling.whole(len(z)))[0]), self.sample.apply(statistic)

    def interval(self, point: float, drawn: np.ndarray) -> Interval:
        return interval(point, drawn, self.level)


def _parts(cue: _Cue, read: np.ndarray) -> list[np.ndarray]:
    """The rows of each label where every label has two values of the cue, else all rows."""
    labels = [y for y in sorted(set(cue.y[read].tolist())) if y >= 0]
    parts = [np.flatnonzero(read & (cue.y == y)) for y in labels]
    enough = [_has_two(cue.a[rows], cue.continuous) for rows in parts]
    return parts if len(parts) > 1 and all(enough) and cue.name else [np.flatnonzero(read)]


def _has_two(values: np.ndarray, continuous: bool) -> bool:
    _, count = np.unique(values, return_counts=True)
    return len(count) > 1 and (continuous or bool(count.min() >= SMALLEST // 2))


def _known(values: np.ndarray, continuous: bool) -> np.ndarray:
    return ~np.isnan(values) if continuous else values >= 0


def _large(fit: np.ndarray, read: np.ndarray) -> list[int]:
    return [v for v in np.unique(fit).tolist() if min(np.sum(fit == v), np.sum(read == v)) >= SMALLEST]
