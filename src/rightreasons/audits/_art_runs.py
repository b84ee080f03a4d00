"""What restoring does to the decisions: the head read at shifted features, for ART itself, its ablations and its controls.

A shift of a row is a combination of a few directions. The affine layers at the start of a head turn it into a few numbers, so
that a linear head is evaluated for hundreds of directions and strengths without touching the features again.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightreasons.evidence import View
from rightreasons.head import Head, Layer
from rightreasons.stats import groups, resampling, restoration
from rightreasons.stats.resampling import Exchange, Resamples, exchange_within_label
from rightreasons.stats.restoration import Directions

Floats = NDArray[np.float64]
Ints = NDArray[np.integer[Any]]

COMPONENTS = 50  # at most so many leading within-class components, which hold at least this share of the variance
COMPONENT_SHARE = 0.9
BLOCK = 4_000_000  # numbers that one block of draws holds
CONTROLS = ("shuffled attribute", "shuffled attribute, gate forced open", "random direction", "random subspace")


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows with features, label and attribute codes, none missing."""

    z: Floats
    y: Ints
    a: Ints
    subject: NDArray | None

    def select(self, rows: NDArray) -> Sample:
        return Sample(self.z[rows], self.y[rows], self.a[rows], None if self.subject is None else self.subject[rows])

    def __len__(self) -> int:
        return len(self.y)


def complete(view: View, attribute: str, array: str = "features") -> tuple[Sample, int, NDArray]:
    """Rows that have a label and the attribute, how many lack one, and the ids of those that have both."""
    cohort, label, z = view.by_case(array)
    values = cohort.attribute(attribute).values.astype(np.int64)
    known = (label >= 0) & (values >= 0)
    rows = Sample(z, label, values, cohort.subject)
    return (rows if known.all() else rows.select(known)), int((~known).sum()), cohort.id[known]


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
        found = restoration.find(finding.z, finding.y, finding.a, self.rho, kind=self.kind)
        judged = restoration.gate(found, gating.z, gating.y, gating.a, self.tau, self.n_min)
        if self.gated:
            return judged
        # T and counts stay, and nothing is closed for them.
        return Directions(**{**vars(judged), "open": found.open, "reason": found.reason})


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
        step = max(1, BLOCK // max(r * m, 1)) if self.is_linear else 1
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
            weight = w if weight is None else w @ weight
        else:
            weight = np.diag(w) if weight is None else w[:, None] * weight
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
        best = np.where(larger, score, best) if c + 1 < len(scores) else best
    return place


# ---- the rows that are reported on -------------------------------------------------------------------------------------


class Stage:
    """Test rows, their head and what is counted on them."""

    def __init__(self, rows: Sample, head: Head, aligned: Mapping[Hashable, Hashable], smallest: int) -> None:
        self.rows, self.aligned = rows, dict(aligned)
        self.readout = Readout(head, rows.z)
        self.group, self.names = groups.group_codes(rows.y, rows.a)
        self.size = np.bincount(self.group, minlength=len(self.names))
        self.large = self.size >= smallest
        self.towards = np.array([aligned.get(v, -1) for v in rows.a.tolist()], dtype=np.int64)
        self.conflict = (self.towards >= 0) & (self.towards != rows.y)
        self.agrees = (self.towards >= 0) & (self.towards == rows.y)

    def route(self, routing: str) -> Ints:
        """The class whose directions each row gets."""
        return self.rows.y if routing == "true" else self.readout.decided

    def decisions(self, directions: Directions, betas: Sequence[float], routing: str) -> Ints:
        """(b, n) decisions after restoring with each beta."""
        return self.along({c: directions.basis(c) for c in directions.labels}, directions, betas, routing)

    def along(
        self, bases: Mapping[Hashable, Floats], directions: Directions, betas: Sequence[float], routing: str = "true"
    ) -> Ints:
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
        found = np.full((len(counts), len(decided), 3), np.nan)
        for v, guess in enumerate(decided):
            right = guess == self.rows.y
            if self.large.any():
                found[:, v, 0] = shares(counts, self.group, right, len(self.names))[:, self.large].min(axis=1)
            found[:, v, 1] = shares(counts, np.where(self.conflict, 0, -1), guess == self.towards, 1)[:, 0]
            found[:, v, 2] = shares(counts, np.where(self.agrees, 0, -1), ~right, 1)[:, 0]
        return found

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
    """Numbers of v sets of decisions: value (v, 3) and draws (B, v, 3), in the order WGA, CSR, errors on aligned rows."""

    value: Floats
    draws: Floats

    @property
    def change(self) -> Outcome:
        """Change against the first set: drop of WGA, gain of CSR, gain of errors on aligned rows."""
        sign = np.array([-1.0, 1.0, 1.0])
        return Outcome(sign * (self.value - self.value[:1]), sign * (self.draws - self.draws[:, :1]))


def outcome(stage: Stage, decided: Ints, sample: Resamples) -> Outcome:
    return Outcome(stage.point(decided), sample.apply(lambda counts: stage.numbers(decided, counts)))


# ---- controls ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Controls:
    """Changes under controls.

    Attributes
    ----------
    change : (4, b, D, 3) by control (`CONTROLS`), beta and draw: drop of WGA, gain of CSR, gain of errors on aligned rows; NaN
        for strengths that were not evaluated
    closed : (D,) whether every gate of a shuffle was closed
    exchangeable : subjects (rows where there are none) that could come to hold another value
    reason : why the shuffles decide nothing, empty if they do
    """

    change: Floats
    closed: NDArray[np.bool_]
    exchangeable: int
    reason: str


class _Count:
    """Sums over rows of D draws and b strengths, class by class, from which the three numbers follow."""

    def __init__(self, stage: Stage, b: int, D: int) -> None:
        self.stage = stage
        self.right = np.zeros((b, D, len(stage.names)))
        self.followed, self.wrong = np.zeros((b, D)), np.zeros((b, D))

    def add(self, rows: Ints, decided: Ints, draws: slice = slice(None)) -> None:
        """Decisions (b, D, r) of `rows` in some draws, or (1, 1, r) that are the same in all."""
        stage = self.stage
        right = decided == stage.rows.y[rows]
        for g in np.unique(stage.group[rows]):
            self.right[:, draws, g] += np.count_nonzero(right[..., stage.group[rows] == g], axis=-1)
        conflict, agrees = stage.conflict[rows], stage.agrees[rows]
        followed = decided[..., conflict] == stage.towards[rows][conflict]
        self.followed[:, draws] += np.count_nonzero(followed, axis=-1)
        self.wrong[:, draws] += np.count_nonzero(~right[..., agrees], axis=-1)

    def numbers(self) -> Floats:
        stage = self.stage
        nothing = np.full(self.followed.shape, np.nan)
        worst = (self.right / stage.size)[..., stage.large].min(axis=-1) if stage.large.any() else nothing
        conflicts, agreeing = stage.conflict.sum(), stage.agrees.sum()
        rate = self.followed / conflicts if conflicts else nothing
        return np.stack([worst, rate, self.wrong / agreeing if agreeing else nothing], axis=-1)


@dataclass(frozen=True, eq=False)
class Audit:
    """Everything that the controls need of one run of ART."""

    stage: Stage
    finding: Sample
    gating: Sample
    procedure: Procedure
    directions: Directions
    betas: tuple[float, ...]
    main: int  # place of the default strength among them
    exchanges: tuple[Exchange, Exchange] = field(init=False)

    def __post_init__(self) -> None:
        halves = (self.finding, self.gating)
        object.__setattr__(self, "exchanges", tuple(exchange_within_label(h.y, h.a, h.subject) for h in halves))


def run_controls(audit: Audit, D: int, rng: np.random.Generator) -> Controls:
    """The four controls, D draws each; shuffles exchange the attribute within class and half, so that group sizes stay."""
    shuffling, drawing = rng.spawn(2)
    find_a, gate_a = (
        np.stack([half.a[rows] for rows in exchange.permutations(D, shuffling)])
        for half, exchange in zip((audit.finding, audit.gating), audit.exchanges, strict=True)
    )
    stage, b = audit.stage, len(audit.betas)
    count = [_Count(stage, b, D) for _ in CONTROLS]
    closed = np.ones(D, dtype=bool)
    route = stage.route(audit.procedure.routing)
    # Beside the deciding control, a head that must be evaluated draw by draw is evaluated at the default strength only.
    some = audit.betas if stage.readout.is_linear else (0.0, audit.betas[audit.main])
    untouched = np.ones(len(stage.rows), dtype=bool)
    pooled = _shuffled(audit, None, find_a, gate_a) if audit.procedure.kind == "global" else None
    for k, label in enumerate(audit.directions.labels):
        rows = np.flatnonzero(route == label)
        untouched[rows] = False
        residual = stage.rows.z[rows] - audit.directions.mean[k]
        gated, forced = pooled or _shuffled(audit, int(label), find_a, gate_a)  # type: ignore[call-overload]
        closed &= ~np.any(gated != 0, axis=(1, 2))
        mine = audit.directions.basis(label)
        inside = audit.finding.z[audit.finding.y == label]
        components = restoration.leading_components(inside, mine, COMPONENTS, COMPONENT_SHARE, drawing)
        seen, length = residual @ components.T, np.linalg.norm(residual @ mine.T, axis=1)
        turns = [_turns(len(components), dims, D, drawing) for dims in (1, max(2, len(mine)))]
        for draws in _blocks(D, len(rows)):
            for control, basis, strengths in ((0, gated[draws], audit.betas), (1, forced[draws], some)):
                decided = stage.readout.shifted(rows, _coefficients(residual, basis), basis, strengths)
                count[control].add(rows, _filled(decided, strengths, audit), draws)
            for control, turn in enumerate(turns, start=2):
                coefficient = _rescaled(seen, turn[draws], length)
                decided = stage.readout.shifted(rows, coefficient, turn[draws] @ components, some)
                count[control].add(rows, _filled(decided, some, audit), draws)
    rest = np.flatnonzero(untouched)
    for one in count:
        one.add(rest, stage.readout.decided[rest][None, None])
    base = stage.point(stage.readout.decided[None])[0]
    change = np.stack([np.array([-1.0, 1.0, 1.0]) * (one.numbers() - base) for one in count])
    if len(some) < b:
        asked = [k for k in range(b) if k != audit.main and audit.betas[k] != 0]
        change[1:, asked] = np.nan
    exchangeable = sum(e.exchangeable for e in audit.exchanges)
    what = "rows" if audit.finding.subject is None else "subjects"
    fewest = resampling.FEWEST_EXCHANGEABLE
    reason = f"{exchangeable} exchangeable {what}, at least {fewest} needed" if exchangeable < fewest else ""
    return Controls(change, closed, exchangeable, reason)


def _shuffled(audit: Audit, label: int | None, find_a: Ints, gate_a: Ints) -> tuple[Floats, Floats]:
    """Spans (D, k, d) with their own gate, and forced open, of one class, or over all rows (None)."""
    p, directions = audit.procedure, audit.directions
    if p.kind == "label":  # no shuffle changes it
        basis = directions.basis(label)
        same = np.repeat(basis[None], len(find_a), axis=0)
        return same, same
    values = np.array(directions.values)
    place = np.full(int(max(audit.finding.a.max(), audit.gating.a.max(initial=0))) + 1, len(values))
    place[values] = np.arange(len(values))
    inside, judged = (
        np.ones(len(half), dtype=bool) if label is None else half.y == label for half in (audit.finding, audit.gating)
    )
    centre = directions.centre if label is None else directions.mean[directions.labels.index(label)]
    drawn = restoration.find_and_gate_draws(
        audit.finding.z[inside] - centre, place[find_a[:, inside]], audit.gating.z[judged] - centre, place[gate_a[:, judged]],
        len(values), directions.label_basis, p.rho, p.tau, p.n_min,
    )  # fmt: skip
    return (drawn.gated if p.gated else drawn.forced), drawn.forced


def _coefficients(residual: Floats, basis: Floats) -> Floats:
    """(D, r, k): each row's residual along each basis."""
    D, k, d = basis.shape
    return (basis.reshape(D * k, d) @ residual.T).reshape(D, k, -1).transpose(0, 2, 1)


def _turns(q: int, dims: int, D: int, rng: np.random.Generator) -> Floats:
    """(D, k, q) orthonormal rows: random spans of at most `dims` among q components; one row of zeros where there is none."""
    drawn = rng.normal(size=(D, q, min(dims, q)))
    return np.linalg.qr(drawn)[0].transpose(0, 2, 1) if q else np.zeros((D, 1, 0))


def _rescaled(seen: Floats, turn: Floats, length: Floats) -> Floats:
    """(D, r, k) coefficients of rows (r, q) along each span, rescaled to each row's `length`."""
    along = np.matmul(seen[None], turn.transpose(0, 2, 1))
    size = np.linalg.norm(along, axis=2, keepdims=True)
    return np.divide(along, size, out=np.zeros_like(along), where=size > 0) * length[None, :, None]


def _blocks(D: int, rows: int) -> list[slice]:
    step = max(1, BLOCK // max(rows, 1))
    return [slice(start, min(start + step, D)) for start in range(0, D, step)]


def _filled(decided: Ints, strengths: Sequence[float], audit: Audit) -> Ints:
    """Decisions for all strengths of the audit; those that were not evaluated repeat the last, and are made NaN at the end."""
    if len(strengths) == len(audit.betas):
        return decided
    return decided[[0 if beta == 0 else 1 for beta in audit.betas]]
