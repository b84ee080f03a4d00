"""Find, gate and restore under the model's own head (sec. 3), and the ablations of these steps (sec. 5.5).

Restoring shifts a row by a combination of a few directions. The affine layers at the start of a head turn the shift into a few
numbers, so that a linear head is evaluated for hundreds of directions and strengths without touching the features again.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightreasons.audits.art.pieces import Changes
from rightreasons.head import Head, Layer
from rightreasons.stats import groups, resampling, restoration
from rightreasons.stats.probes import Sample
from rightreasons.stats.resampling import Interval, Resamples, interval
from rightreasons.stats.restoration import Directions

Floats = NDArray[np.float64]
Ints = NDArray[np.integer[Any]]

ROUTINGS = ("true", "predicted")
RHOS = (0.0, 0.25, 0.5, 0.75, 1.0)
BLOCK = 4_000_000  # numbers that one block of draws holds
WGA, CSR, ALIGNED = range(3)  # places of the three numbers: WGA, CSR, share of aligned rows decided wrong
NO_PI = "no attribute value stands for a label"
TOWARDS_SHORTCUT = np.array([-1.0, 1.0, 1.0])  # signs of a change: a drop of WGA, a gain of the others


@dataclass(frozen=True)
class Procedure:
    """The settings of find, gate and restore."""

    kind: str = "class-conditional"
    rho: float = 0.5
    tau: float = 0.5
    n_min: int = 20
    gated: bool = True
    routing: str = "true"

    def directions(self, finding: Sample, gating: Sample) -> Directions:
        """Directions found on one half of the audit rows and gated on the other."""
        ungated = restoration.find(finding.z, finding.y, finding.a, self.rho, kind=self.kind)
        judged = restoration.gate(ungated, gating.z, gating.y, gating.a, self.tau, self.n_min)
        if self.gated:
            return judged
        # T and counts stay, and nothing is closed for them.
        return replace(judged, open=ungated.open, reason=ungated.reason)


@dataclass(frozen=True)
class Ablation:
    """One variant of a step of the procedure."""

    step: str
    name: str
    procedure: Procedure


def ablations_of(p: Procedure) -> list[Ablation]:
    """Each step with its alternatives, all other settings unchanged (sec. 5.5, Table 6)."""
    ablations = []
    for kind in restoration.KINDS:
        ablations.append(Ablation("find", f"{kind} direction", replace(p, kind=kind)))
    for gated in (True, False):
        ablations.append(Ablation("gate", say_gated(gated), replace(p, gated=gated)))
    for routing in ROUTINGS:
        ablations.append(Ablation("restore", f"{routing} label", replace(p, routing=routing)))
    for rho in sorted({*RHOS, p.rho}):
        ablations.append(Ablation("rho", f"{rho:g}", replace(p, rho=rho)))
    return ablations


def say_gated(gated: bool) -> str:
    return "with gate" if gated else "without gate"


# ---- the head at shifted features --------------------------------------------------------------------------------------


class Readout:
    """The decisions of a head on rows, at their features and at shifted ones."""

    def __init__(self, head: Head, z: Floats) -> None:
        affine: list[Layer] = []
        for layer in head.layers:
            if not layer.is_linear:
                break
            affine.append(layer)
        self.rest = head.layers[len(affine) :]
        self.weight = _product(affine)  # (m, d), None where the first layer is not affine
        base = z
        for layer in affine:
            base = layer(base)
        self.base = base  # (n, m)
        self.decided = self._decide(base)

    @property
    def is_linear(self) -> bool:
        return not self.rest

    def shifted(self, rows: Ints, coefficient: Floats, basis: Floats, betas: Sequence[float]) -> Ints:
        """Decisions (b, D, r) of `rows` (r,) moved by beta times coefficient (D, r, k) along basis (D, k, d), for each beta.

        A draw whose basis is zero moves nothing.
        """
        D, r = coefficient.shape[:2]
        out = np.broadcast_to(self.decided[rows].astype(np.int32), (len(betas), D, r)).copy()
        moves = np.flatnonzero(np.any(coefficient != 0, axis=(1, 2)))
        seen = basis[moves] if self.weight is None else basis[moves] @ self.weight.T  # (D', k, m)
        base, m = self.base[rows], self.base.shape[1]
        step = 1
        if self.is_linear:
            step = max(1, BLOCK // max(r * m, 1))
        for start in range(0, len(moves), step):
            here = moves[start : start + step]
            change = _combined(coefficient[here], seen[start : start + step])  # (m, D', r) for a linear head, else (r, m)
            for b, beta in enumerate(betas):
                if beta == 0:
                    continue
                if self.is_linear:
                    out[b, here] = _argmax([base[:, c] + beta * change[c] for c in range(m)])
                else:
                    out[b, here[0]] = self._decide(base + beta * change[:, 0].T)
        return out

    def _decide(self, z: Floats) -> Ints:
        for layer in self.rest:
            z = layer(z)
        return z.argmax(axis=1)


def _product(layers: Sequence[Layer]) -> Floats | None:
    weight = None
    for layer in layers:
        w = np.asarray(layer.arrays["weight"], dtype=np.float64)
        if layer.kind == "linear":
            if weight is None:
                weight = w
            else:
                weight = w @ weight
        else:
            if weight is None:
                weight = np.diag(w)
            else:
                weight = w[:, None] * weight
    return weight


def _combined(coefficient: Floats, seen: Floats) -> Floats:
    """(D, r, k) and (D, k, m) to (m, D, r)."""
    if seen.shape[1] == 1:
        return seen[:, 0].T[:, :, None] * coefficient[None, :, :, 0]
    return np.einsum("drk,dkm->mdr", coefficient, seen, optimize=True)


def _argmax(scores: Sequence[Floats]) -> Ints:
    """Which of the arrays is largest, place by place; the first of equals, as `argmax` has it."""
    best, place = scores[0], np.zeros(scores[0].shape, dtype=np.int32)
    for c, score in enumerate(scores[1:], start=1):
        larger = score > best
        place[larger] = c
        if c + 1 < len(scores):
            best = np.where(larger, score, best)
    return place


# ---- the rows that are reported on -------------------------------------------------------------------------------------


class Stage:
    """Test rows, their head and what is counted on them."""

    def __init__(self, rows: Sample, head: Head, aligned: Mapping[Hashable, Hashable], smallest: int) -> None:
        self.rows, self.head, self.aligned, self.smallest = rows, head, dict(aligned), smallest
        self.readout = Readout(head, rows.z)
        self.group, self.names = groups.group_codes(rows.y, rows.a)
        self.size = np.bincount(self.group, minlength=len(self.names))
        self.large = self.size >= smallest
        self.towards = np.array([aligned.get(v, -1) for v in rows.a.tolist()], dtype=np.int64)
        self.conflict = (self.towards >= 0) & (self.towards != rows.y)
        self.agrees = (self.towards >= 0) & (self.towards == rows.y)

    def decide(self, z: Floats) -> Ints:
        """What the model's head says of features (n, d)."""
        return self.head(z).argmax(axis=1)

    @property
    def why_undefined(self) -> tuple[str, str, str]:
        """Why each of the three numbers is undefined, where it is."""
        no_rate = "no conflicting test rows" if self.aligned else NO_PI
        return f"no group of at least {self.smallest} rows", no_rate, "no aligned test rows"

    def route(self, routing: str) -> Ints:
        """The class whose directions each row gets."""
        return self.rows.y if routing == "true" else self.readout.decided

    def decisions(self, directions: Directions, betas: Sequence[float], routing: str) -> Ints:
        """(b, n) decisions after restoring with each beta."""
        return self.along({c: directions.basis(c) for c in directions.labels}, directions, betas, routing)

    def along(
        self, bases: Mapping[Hashable, Floats], directions: Directions, betas: Sequence[float], routing: str = "true"
    ) -> Ints:
        """(b, n) decisions after restoring along other bases than the directions' own, from the same class means."""
        out = np.repeat(self.readout.decided[None], len(betas), axis=0)
        route = self.route(routing)
        for k, label in enumerate(directions.labels):
            basis = bases[label]
            rows = np.flatnonzero(route == label)
            if len(rows) and len(basis):
                coefficient = (self.rows.z[rows] - directions.mean[k]) @ basis.T
                out[:, rows] = self.readout.shifted(rows, coefficient[None], basis[None], betas)[:, 0]
        return out

    def numbers(self, decided: Ints, counts: NDArray) -> Floats:
        """WGA, CSR and the share of aligned rows decided wrong, of each resample and each set of decisions: (B, v, 3)."""
        measures = np.full((len(counts), len(decided), 3), np.nan)
        for v, guess in enumerate(decided):
            right = guess == self.rows.y
            if self.large.any():
                measures[:, v, WGA] = shares(counts, self.group, right, len(self.names))[:, self.large].min(axis=1)
            measures[:, v, CSR] = shares(counts, np.where(self.conflict, 0, -1), guess == self.towards, 1)[:, 0]
            measures[:, v, ALIGNED] = shares(counts, np.where(self.agrees, 0, -1), ~right, 1)[:, 0]
        return measures

    def point(self, decided: Ints) -> Floats:
        """`numbers` of the rows as they are, (v, 3)."""
        return self.numbers(decided, resampling.whole(len(self.rows)))[0]


def shares(counts: NDArray, code: Ints, hit: NDArray, K: int) -> Floats:
    """Share of hits by code in each resample, (B, K); NaN where a code has no row."""
    cells = resampling.tally(counts, np.where(code < 0, -1, 2 * code + hit), 2 * K).reshape(len(counts), K, 2)
    of = cells.sum(axis=2)
    return np.divide(cells[:, :, 1], of, out=np.full(of.shape, np.nan), where=of > 0)


@dataclass(frozen=True, eq=False)
class Outcome:
    """The three numbers of v sets of decisions: value (v, 3) and draws (B, v, 3), and why each is undefined, where it is."""

    value: Floats
    draws: Floats
    why_undefined: tuple[str, str, str]

    def __getitem__(self, sets: slice) -> Outcome:
        return replace(self, value=self.value[sets], draws=self.draws[:, sets])

    def against(self, before: Outcome) -> Outcome:
        """Changes against one set of decisions: drop of WGA, gain of CSR, gain of errors on aligned rows."""
        value, draws = self.value - before.value, self.draws - before.draws
        return replace(self, value=TOWARDS_SHORTCUT * value, draws=TOWARDS_SHORTCUT * draws)

    def intervals(self, number: int, level: float) -> tuple[Interval, ...]:
        """One of the numbers, of every set of decisions."""
        value, draws, why = self.value[:, number], self.draws[:, :, number], self.why_undefined[number]
        return tuple(interval(value[k], draws[:, k], level, why) for k in range(len(value)))

    def as_changes(self, level: float) -> Changes:
        """Of changes: all of them with their intervals."""
        value = self.value[:, CSR] - self.value[:, ALIGNED]
        draws = self.draws[:, :, CSR] - self.draws[:, :, ALIGNED]
        excess = []
        for k in range(len(value)):
            excess.append(interval(value[k], draws[:, k], level, self.why_undefined[CSR]))
        return Changes(
            wga=self.intervals(WGA, level),
            csr=self.intervals(CSR, level),
            aligned=self.intervals(ALIGNED, level),
            excess=tuple(excess),
        )


def outcome(stage: Stage, decided: Ints, sample: Resamples) -> Outcome:
    draws = sample.apply(lambda counts: stage.numbers(decided, counts))
    return Outcome(stage.point(decided), draws, stage.why_undefined)


# ---- one run -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Audit:
    """One run of ART on one model: the rows, the procedure and the directions that it found."""

    stage: Stage
    finding: Sample
    gating: Sample
    procedure: Procedure
    directions: Directions
    betas: tuple[float, ...]
    main: int  # place among them of the strength that decides

    @property
    def beta(self) -> float:
        return self.betas[self.main]

    @property
    def all_rows(self) -> Sample:
        """The audit rows of both halves."""
        return self.finding.and_also(self.gating)


@dataclass(frozen=True, eq=False)
class Restored:
    """What restoring does to the test rows, all of it on the same resamples.

    Attributes
    ----------
    decided : (n,) decisions with the strength that decides
    before : of the decisions as they are
    curve : with every strength
    ablations : of every ablation, with the strength that decides
    label : along what the attribute leaves of the label direction
    label_overlap : cosine of that direction with the attribute's
    """

    decided: Ints
    before: Outcome
    curve: Outcome
    ablations: Outcome
    label: Outcome
    label_overlap: float


def restore_test_rows(audit: Audit, ablations: Sequence[Ablation], sample: Resamples) -> Restored:
    """Restore the test rows with every strength, by every ablation and along the label, and count on resamples of them."""
    stage, b = audit.stage, len(audit.betas)
    curve = stage.decisions(audit.directions, audit.betas, audit.procedure.routing)
    ablated = [_ablated(audit, ablation.procedure) for ablation in ablations]
    label, overlap = along_the_label_alone(audit)
    outcomes = outcome(stage, np.concatenate([stage.readout.decided[None], curve, *ablated, label]), sample)
    return Restored(curve[audit.main], outcomes[:1], outcomes[1 : 1 + b], outcomes[1 + b : -1], outcomes[-1:], overlap)


def along_the_label_alone(audit: Audit) -> tuple[Ints, float]:
    """Decisions (1, n) along what the attribute leaves of the label direction, and how much of it the attribute shares (cosine).

    Features of a model that learned a shortcut may hold label and attribute in one direction; only the rest is the label alone.
    """
    finding = audit.finding
    label = restoration.find(finding.z, finding.y, finding.a, kind="label")
    attribute = restoration.find(finding.z, finding.y, finding.a, rho=0.0)
    left: dict[Hashable, Floats] = {}
    shared = []
    for c in label.labels:
        whole, taken = label.basis(c), attribute.basis(c)
        rest = whole - (whole @ taken.T) @ taken
        length = np.linalg.norm(rest, axis=1, keepdims=True)
        something = length[:, 0] > restoration.SAME
        left[c] = rest[something] / length[something]
        shared.append(float(np.linalg.norm(whole @ taken.T)))
    return audit.stage.along(left, label, (audit.beta,), audit.procedure.routing), max(shared)


def _ablated(audit: Audit, procedure: Procedure) -> Ints:
    directions = procedure.directions(audit.finding, audit.gating)
    return audit.stage.decisions(directions, (audit.beta,), procedure.routing)
