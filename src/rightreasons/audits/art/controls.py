"""The controls of Table 5: the same operation along shuffled and random directions.

Shuffles exchange the attribute within class and half, so that group sizes stay, and run the whole procedure again. With its own
gate that is the control that decides (a closed gate changes nothing); the others are shown beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rightreasons.audits.art.pieces import CONTROLS, Control, Controls, Draws
from rightreasons.audits.art.procedure import ALIGNED, BLOCK, CSR, TOWARDS_SHORTCUT, WGA, Audit, Floats, Ints, Stage
from rightreasons.stats import resampling, restoration
from rightreasons.stats.probes import Sample
from rightreasons.stats.resampling import Exchange, exchange_within_label

COMPONENTS = 50  # at most so many leading within-class components, which hold at least this share of the variance
COMPONENT_SHARE = 0.9


@dataclass(frozen=True, eq=False)
class ControlDraws:
    """Changes under the controls.

    Attributes
    ----------
    change : control (`CONTROLS`) → (b, D, 3) by strength, draw and number; NaN for strengths that were not evaluated
    closed : (D,) whether every gate of a shuffle was closed
    exchangeable, reason : as in `Controls`
    """

    change: dict[str, Floats]
    closed: NDArray[np.bool_]
    exchangeable: int
    reason: str

    def summary(self, main: int) -> Controls:
        """What a measurement keeps of them; `main` is the place of the strength that decides."""
        controls = {name: _summary(change, main) for name, change in self.change.items()}
        return Controls(
            shuffled=controls["shuffled"],
            forced=controls["forced"],
            direction=controls["direction"],
            subspace=controls["subspace"],
            closed_share=float(self.closed.mean()),
            exchangeable=self.exchangeable,
            reason=self.reason,
        )


def run_controls(audit: Audit, D: int, rng: np.random.Generator) -> ControlDraws:
    """The four controls, D draws each."""
    shuffling, drawing = rng.spawn(2)
    stage, shuffles = audit.stage, Shuffles(audit, D, shuffling)
    # Beside the deciding control, a head that must be evaluated draw by draw is evaluated at the deciding strength only.
    if stage.readout.is_linear:
        some = audit.betas
    else:
        some = (0.0, audit.beta)
    strengths = {name: audit.betas if name == "shuffled" else some for name in CONTROLS}
    tallies = {name: Tally(stage, len(audit.betas), D) for name in CONTROLS}
    closed = np.ones(D, dtype=bool)
    route = stage.route(audit.procedure.routing)
    for k, label in enumerate(audit.directions.labels):
        rows = np.flatnonzero(route == label)
        residual = stage.rows.z[rows] - audit.directions.mean[k]
        spans = shuffles.spans(int(label))  # type: ignore[call-overload]
        closed &= ~np.any(spans.gated != 0, axis=(1, 2))
        random = RandomSpans(audit, int(label), residual, D, drawing)  # type: ignore[call-overload]
        for draws in blocks(D, len(rows)):
            moves = {
                "shuffled": along(residual, spans.gated[draws]),
                "forced": along(residual, spans.forced[draws]),
                "direction": random.move(random.directions[draws]),
                "subspace": random.move(random.subspaces[draws]),
            }
            for name, move in moves.items():
                decided = stage.readout.shifted(rows, move.coefficient, move.basis, strengths[name])
                tallies[name].add(rows, _for_all_strengths(decided, strengths[name], audit.betas), draws)
    untouched = np.flatnonzero(~np.isin(route, np.array(audit.directions.labels)))
    base = stage.point(stage.readout.decided[None])[0]
    change = {}
    for name, tally in tallies.items():
        tally.add(untouched, stage.readout.decided[untouched][None, None])
        change[name] = _changes(tally.numbers() - base, strengths[name], audit.betas)
    return ControlDraws(change, closed, shuffles.exchangeable, shuffles.reason)


class Shuffles:
    """D exchanges of the attribute within class and half, and the directions that they give."""

    def __init__(self, audit: Audit, D: int, rng: np.random.Generator) -> None:
        self.audit = audit
        finding, gating = exchanges = self.exchanges(audit)
        self.find_a = _exchanged(audit.finding, finding, D, rng)
        self.gate_a = _exchanged(audit.gating, gating, D, rng)
        self.exchangeable = sum(exchange.exchangeable for exchange in exchanges)
        what = "rows" if audit.finding.subject is None else "subjects"
        fewest = resampling.FEWEST_EXCHANGEABLE
        self.reason = ""
        if self.exchangeable < fewest:
            self.reason = f"{self.exchangeable} exchangeable {what}, at least {fewest} needed"
        self._over_all_rows: restoration.Draws | None = None

    def crossed(self, audit: Audit) -> Shuffles:
        """The same exchanges with the two halves swapped."""
        other = copy(self)
        other.audit, other._over_all_rows = audit, None
        other.find_a, other.gate_a = self.gate_a, self.find_a
        return other

    @staticmethod
    def exchanges(audit: Audit) -> tuple[Exchange, Exchange]:
        """How each half may exchange its attribute."""
        finding, gating = audit.finding, audit.gating
        return (
            exchange_within_label(finding.y, finding.a, finding.subject),
            exchange_within_label(gating.y, gating.a, gating.subject),
        )

    def spans(self, label: int) -> Spans:
        """Of one class; an ungated procedure has no gate to close in its shuffles either."""
        audit = self.audit
        if audit.procedure.kind == "label":  # no shuffle changes it
            same = np.repeat(audit.directions.basis(label)[None], len(self.find_a), axis=0)
            return Spans(same, same)
        if audit.procedure.kind == "global":
            if self._over_all_rows is None:
                self._over_all_rows = self._drawn(None)
            drawn = self._over_all_rows
        else:
            drawn = self._drawn(label)
        return Spans(drawn.gated if audit.procedure.gated else drawn.forced, drawn.forced)

    def _drawn(self, label: int | None) -> restoration.Draws:
        """Find and gate all draws, of one class or over all rows (None)."""
        p, directions, finding, gating = self.audit.procedure, self.audit.directions, self.audit.finding, self.audit.gating
        values = np.array(directions.values)
        place = np.full(int(max(finding.a.max(), gating.a.max(initial=0))) + 1, len(values))
        place[values] = np.arange(len(values))
        if label is None:
            centre = directions.centre
        else:
            centre = directions.mean[directions.labels.index(label)]
        to_find, to_gate = _of_class(finding, label), _of_class(gating, label)
        return restoration.find_and_gate_draws(
            restoration.ShuffledRows(finding.z[to_find] - centre, place[self.find_a[:, to_find]]),
            restoration.ShuffledRows(gating.z[to_gate] - centre, place[self.gate_a[:, to_gate]]),
            len(values), directions.label_basis, p.rho, p.tau, p.n_min,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Spans:
    """(D, k, d) what each shuffle spans, with its own gate and with the gate forced open."""

    gated: Floats
    forced: Floats


class RandomSpans:
    """Random directions and subspaces among a class's leading components, the attribute's own directions removed.

    Each row moves as far as ART moved it.
    """

    def __init__(self, audit: Audit, label: int, residual: Floats, D: int, rng: np.random.Generator) -> None:
        own = audit.directions.basis(label)
        inside = audit.finding.z[audit.finding.y == label]
        self.components = restoration.leading_components(inside, own, COMPONENTS, COMPONENT_SHARE, rng)
        self.seen = residual @ self.components.T
        self.length = np.linalg.norm(residual @ own.T, axis=1)
        self.directions = _turns(len(self.components), 1, D, rng)
        self.subspaces = _turns(len(self.components), max(2, len(own)), D, rng)

    def move(self, turns: Floats) -> Move:
        """Along spans (D, k, q) of the components, rescaled row by row to the length that ART gave it."""
        along = np.matmul(self.seen[None], turns.transpose(0, 2, 1))
        size = np.linalg.norm(along, axis=2, keepdims=True)
        coefficient = np.divide(along, size, out=np.zeros_like(along), where=size > 0) * self.length[None, :, None]
        return Move(coefficient, turns @ self.components)


@dataclass(frozen=True, eq=False)
class Move:
    """Shifts of r rows in D draws: coefficient (D, r, k) along basis (D, k, d)."""

    coefficient: Floats
    basis: Floats


def draws_of(change: Floats) -> Draws:
    """(..., 3) changes, number by number."""
    return Draws(change[..., WGA], change[..., CSR], change[..., ALIGNED])


# ---- what the functions above use ----------------------------------------------------------------------------------------


class Tally:
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
        """(b, D, 3) WGA, CSR, errors on aligned rows."""
        stage = self.stage
        worst, rate, wrong = (np.full(self.followed.shape, np.nan) for _ in range(3))
        if stage.large.any():
            worst = (self.right / stage.size)[..., stage.large].min(axis=-1)
        if stage.conflict.any():
            rate = self.followed / stage.conflict.sum()
        if stage.agrees.any():
            wrong = self.wrong / stage.agrees.sum()
        return np.stack([worst, rate, wrong], axis=-1)


def _changes(difference: Floats, evaluated: Sequence[float], betas: Sequence[float]) -> Floats:
    change = TOWARDS_SHORTCUT * difference
    if len(evaluated) < len(betas):
        change[[beta not in evaluated for beta in betas]] = np.nan
    return change


def _summary(change: Floats, main: int) -> Control:
    low, high = np.quantile(change, [0.05, 0.95], axis=1)
    band = np.stack([change.mean(axis=1), low, high], axis=-1)  # (b, 3, 3): strength, number, and mean, 5 %, 95 %
    return Control(draws_of(change[main]), band[:, WGA], band[:, CSR], band[:, ALIGNED])


def _of_class(half: Sample, label: int | None) -> NDArray[np.bool_]:
    if label is None:
        return np.ones(len(half), dtype=bool)
    return half.y == label


def _exchanged(half: Sample, exchange: Exchange, D: int, rng: np.random.Generator) -> Ints:
    return np.stack([half.a[rows] for rows in exchange.permutations(D, rng)])


def along(residual: Floats, basis: Floats) -> Move:
    """Each row's residual along each basis (D, k, d)."""
    D, k, d = basis.shape
    coefficient = (basis.reshape(D * k, d) @ residual.T).reshape(D, k, -1).transpose(0, 2, 1)
    return Move(coefficient, basis)


def _turns(q: int, dims: int, D: int, rng: np.random.Generator) -> Floats:
    """(D, k, q) orthonormal rows: random spans of at most `dims` among q components; one row of zeros where there is none."""
    drawn = rng.normal(size=(D, q, min(dims, q)))
    if q:
        return np.linalg.qr(drawn)[0].transpose(0, 2, 1)
    return np.zeros((D, 1, 0))


def blocks(D: int, rows: int) -> list[slice]:
    step = max(1, BLOCK // max(rows, 1))
    return [slice(start, min(start + step, D)) for start in range(0, D, step)]


def _for_all_strengths(decided: Ints, evaluated: Sequence[float], betas: Sequence[float]) -> Ints:
    """Decisions for all strengths; those that were not evaluated repeat the last, and are made NaN at the end."""
    if len(evaluated) == len(betas):
        return decided
    return decided[[0 if beta == 0 else 1 for beta in betas]]
