"""What ART measured of one model, and the rules that turn it into a verdict: restorable, damage, floor, taxonomy."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from rightreasons.audits._pull import NOT_MEASURED, is_followed, mean_pull, say_pull
from rightreasons.findings import Verdict
from rightreasons.measurements import spread
from rightreasons.stats.groups import SMALLEST_GROUP
from rightreasons.stats.resampling import Interval, p_value
from rightreasons.stats.units import over_seeds

ALPHA = 0.05
SUBSTANTIAL = 0.15  # a gain of CSR, or a drop of WGA, that counts as an effect
CSR_BESIDE_WGA = 0.05  # the gain of CSR that a drop of WGA needs beside it, and that is more than nothing
ROOM = 2 * SUBSTANTIAL  # a conflict shortcut rate nearer to 1 than this has little room to rise
FLOOR = 0.30  # below this a worst-group accuracy has little left to lose
AGREEMENT = 0.99  # share of decisions on which the head as data and the stored logits must agree

RESTORABLE, MISS = "restorable shortcut", "probe miss"
DECOUPLED, DELETED = "functional decoupling", "representational deletion"
CLOSED = "every gate closed"
NO_PI = "no attribute value stands for a label"


@dataclass(frozen=True)
class Measurement:
    """What restoring does to one model.

    Attributes
    ----------
    betas : (b,) strengths; `main` is the place of the one that decides
    curve, change : (b, 3, 3) by strength: WGA, CSR, errors on aligned rows, and their changes, each as value, low, high
    wga, csr : before restoring; `delta_wga` is the drop, `delta_csr` the gain, NaN where every gate is closed
    p : of the gain of CSR against the shuffled attribute with its own gate, one-sided
    gate_T, gate_found, gate_counts, gate_open : (C, A) by class and value
    control : (4, D, 3) changes at the main strength by control (`_art_runs.CONTROLS`) and draw
    band : (4, b, 3, 3) mean, 5 % and 95 % of the controls' changes, by strength and number
    group_accuracy, value_rate : (2, G, 3), (2, V, 3) before and after
    ablation_change, ablation_excess : (m, 3, 3), (m, 3) the latter of CSR beyond errors on aligned rows
    label_change, label_excess : (3, 3), (3,) along the label direction less the attribute's part; `label_overlap` is their cosine
    probe : (6, 3) balanced accuracy of each probe
    projection : (2, k, 2) two principal components of some rows before and after
    pictures : (k, 2, h, w, 3) some images with Grad-CAM before and after; `no_pictures` says why there is none
    layer_open, layer_T, layer_p, layer_probe : (L,), the last (L, 3), at each of `layer_name`: classes with an open gate, the
        largest T, p against the shuffles, the linear probe within label; `layer_lacking` were asked for and not extracted
    layer_change, layer_excess, layer_control : (L, 3, 3), (L, 3), (L, D, 3) as `change`, `excess` and `control`
    pull : of the attribute on the answers, before restoring
    """

    model: str
    regime: str
    architecture: str
    seed: int | None
    attribute: str
    label_name: str
    classes: tuple[str, ...]
    values: tuple[str, ...]
    aligned: str
    aligned_from: str
    twins: bool
    linear_head: bool
    direction: str
    gated: bool
    routing: str
    rho: float
    tau: float
    n_min: int
    n: int
    n_subjects: int | None
    n_find: int
    n_gate: int
    n_conflict: int
    missing: int
    missing_audit: int
    agreement: float
    exchangeable: int
    exchange_reason: str
    betas: np.ndarray
    main: int
    curve: np.ndarray
    change: np.ndarray
    wga: Interval
    csr: Interval
    wga_after: Interval
    csr_after: Interval
    delta_wga: Interval
    delta_csr: Interval
    delta_aligned: Interval
    excess: Interval
    worst: str
    left_out: str
    p: float
    gate_T: np.ndarray
    gate_found: np.ndarray
    gate_counts: np.ndarray
    gate_open: np.ndarray
    gate_reason: tuple[str, ...]
    control: np.ndarray
    band: np.ndarray
    closed_share: float
    group_name: tuple[str, ...]
    group_size: np.ndarray
    group_accuracy: np.ndarray
    value_name: tuple[str, ...]
    value_size: np.ndarray
    value_rate: np.ndarray
    ablation_step: tuple[str, ...]
    ablation_name: tuple[str, ...]
    ablation_change: np.ndarray
    ablation_excess: np.ndarray
    label_change: np.ndarray
    label_excess: np.ndarray
    label_overlap: float
    probe_kind: tuple[str, ...]
    probe_target: tuple[str, ...]
    probe: np.ndarray
    probe_chance: np.ndarray
    probe_line: np.ndarray
    probe_reason: tuple[str, ...]
    converged: bool
    projection: np.ndarray
    projection_group: tuple[str, ...]
    pictures: np.ndarray = field(default_factory=lambda: np.zeros((0, 2, 1, 1, 3), dtype=np.uint8))
    captions: tuple[str, ...] = ()
    no_pictures: str = ""
    layer_name: tuple[str, ...] = ()
    layer_lacking: tuple[str, ...] = ()
    layer_width: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    layer_open: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    layer_T: np.ndarray = field(default_factory=lambda: np.zeros(0))
    layer_change: np.ndarray = field(default_factory=lambda: np.zeros((0, 3, 3)))
    layer_excess: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    layer_control: np.ndarray = field(default_factory=lambda: np.zeros((0, 0, 3)))
    layer_p: np.ndarray = field(default_factory=lambda: np.zeros(0))
    layer_probe: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    pull: Interval = NOT_MEASURED

    @property
    def beta(self) -> float:
        return float(self.betas[self.main])

    @property
    def is_open(self) -> bool:
        return bool(self.gate_open.any())

    def read(self, kind: str = "linear", target: str = "class-conditional") -> tuple[Interval, float, float]:
        """A probe's accuracy, its chance level and the line from which it counts as readable."""
        k = list(zip(self.probe_kind, self.probe_target, strict=True)).index((kind, target))
        value, low, high = self.probe[k]
        return Interval(value, low, high, reason=self.probe_reason[k]), float(self.probe_chance[k]), float(self.probe_line[k])

    def scalars(self) -> dict[str, float | int | str]:
        """What a study's table shows of it."""
        judged = judge((self,))
        probe, chance, line = self.read()
        found: dict[str, float | int | str] = {"attribute": self.attribute, "n": self.n, "n_audit": self.n_find + self.n_gate}
        for name in ("wga", "csr", "wga_after", "csr_after", "delta_wga", "delta_csr"):
            found |= spread(name, getattr(self, name))
        found |= spread("probe", probe)
        return found | {
            "probe_chance": chance,
            "probe_line": line,
            "p": self.p,
            "open_gates": int(self.gate_open.any(axis=1).sum()),
            "classes": len(self.classes),
            "shuffles_closed": self.closed_share,
            "restorable": bool(judged.restorable),
            "floor": judged.floor,
            "effect": judged.effect,
            "verdict": str(judged.verdict),
            "taxonomy": judged.taxonomy,
        }


@dataclass(frozen=True)
class Judged:
    """The verdict over one model or over the seeds of one method.

    Attributes
    ----------
    restorable : None where it could not be judged
    effect : restoration, damage or none, whatever the controls say; mixed where the models disagree
    floor : WGA before restoring is so low that it cannot drop much
    why : the conditions that failed, empty where the verdict stands; a gain that is real and too small is one
    n_open : models with an open gate; the others count as unchanged in the means
    """

    name: str
    members: tuple[Measurement, ...]
    wga: Interval
    csr: Interval
    delta_wga: Interval
    delta_csr: Interval
    excess: Interval
    p: float
    probe: Interval
    chance: float
    line: float
    restorable: bool | None
    effect: str
    floor: bool
    verdict: Verdict
    taxonomy: str
    why: tuple[str, ...]
    n_open: int


def judge(members: Sequence[Measurement], name: str = "") -> Judged:
    """Verdict and taxonomy of one model, or of several seeds by their means (a closed gate counts as no change there)."""
    found = tuple(members)
    wga, csr = (_over([getattr(m, what) for m in found]) for what in ("wga", "csr"))
    several = len(found) > 1
    n_open = sum(m.is_open for m in found)
    deltas = [_over([_unchanged(getattr(m, what), m, several) for m in found]) for what in ("delta_wga", "delta_csr", "excess")]
    delta_wga, delta_csr, excess = deltas
    readings = [m.read() for m in found]
    probe = _over([reading for reading, _, _ in readings])
    chance, line = (float(np.mean([r[k] for r in readings])) for k in (1, 2))
    p = _p(found, delta_csr)
    effect = joint_effect([(m.delta_wga, m.delta_csr, m.excess) for m in found])
    why = failed(found, n_open)
    meets = is_substantial(delta_wga, delta_csr)
    if not why:
        why = unproven(effect, p) if meets else halfway(csr, delta_csr, p)
    if not why and not (p <= ALPHA and meets):
        why = followed(found)
    restorable = None if why else bool(p <= ALPHA and meets)
    verdict: Verdict = "inconclusive" if why else "shortcut" if restorable else "no evidence"
    readable = None if math.isnan(probe.value) else probe.value >= line
    if restorable:
        taxonomy = RESTORABLE if readable else MISS
    elif restorable is False:
        taxonomy = DECOUPLED
    else:
        taxonomy = DELETED if not n_open and probe.high < line else ""
    floor = bool(wga.value < FLOOR)
    label = name or named(found[0])
    return Judged(
        label, found, wga, csr, delta_wga, delta_csr, excess, p, probe, chance, line, restorable, effect, floor, verdict,
        taxonomy, why, n_open,
    )  # fmt: skip


def is_substantial(delta_wga: Interval, delta_csr: Interval) -> bool:
    """CSR up by 15 points; or WGA down by 15 with CSR up by 5 and its interval above 0. Undefined is not substantial."""
    return bool(
        delta_csr.value >= SUBSTANTIAL
        or (delta_wga.value >= SUBSTANTIAL and delta_csr.value >= CSR_BESIDE_WGA and delta_csr.low > 0)
    )


def halfway(csr: Interval, delta_csr: Interval, p: float) -> tuple[str, ...]:
    """Why a change that is not substantial does not show an unused attribute; empty where it does.

    Decoupling is a gate that opens and nothing that is restored. A model that follows the attribute nearly everywhere has no 15
    points left to gain, and models that unlearned half of a shortcut restore 5 to 15 points, beyond every shuffle.
    """
    if csr.value > 1 - ROOM:
        return (f"ceiling: {csr.value:.0%} of the conflicting rows follow the attribute already, so that the gain had no room",)
    if p <= ALPHA and delta_csr.value >= CSR_BESIDE_WGA:
        return (f"halfway: the gain exceeds that of shuffles and is below {100 * SUBSTANTIAL:.0f} points",)
    return ()


def unproven(effect: str, p: float) -> tuple[str, ...]:
    """Why a substantial change neither shows a shortcut nor an unused attribute; empty where it shows one of them.

    Decoupling is nothing restored; here something was, and shuffles can do it too. Damage restores nothing.
    """
    if p > ALPHA and effect != "damage":
        return (f"unproven: the gain is substantial, and that of shuffles is too often as large (p = {p:.3f})",)
    return ()


def followed(found: Sequence[Measurement]) -> tuple[str, ...]:
    """Answers that follow the attribute use it, whatever could be restored: the direction was not the one that the head reads."""
    pull = mean_pull([m.pull for m in found])
    if is_followed(pull):
        return (f"followed: nothing was restored, and answers follow the attribute: {say_pull(pull, found[0].attribute)}",)
    return ()


def effect_of(delta_wga: Interval, delta_csr: Interval, excess: Interval) -> str:
    """Restoration makes errors that follow the attribute; damage makes errors.

    Damage is a drop of WGA without a gain of CSR, or a gain of CSR that errors on aligned rows match: with two labels every
    error on a conflicting row follows the attribute, so that noise alone raises CSR. `excess` is the gain of CSR less the gain
    of errors on aligned rows.
    """
    follows = math.isnan(excess.value) or (excess.value > 0 and not excess.low <= 0)
    if is_substantial(delta_wga, delta_csr) and follows:
        return "restoration"
    return "damage" if delta_wga.value >= SUBSTANTIAL or is_substantial(delta_wga, delta_csr) else "none"


def joint_effect(changes: Sequence[tuple[Interval, Interval, Interval]]) -> str:
    """What most models show, each by its own interval: the spread of a few seeds says little. "mixed" without a majority.

    Changes are of WGA, CSR and `excess`.
    """
    counted = Counter(effect_of(*change) for change in changes)
    effect, models = counted.most_common(1)[0]
    return effect if 2 * models > len(changes) else "mixed"


def failed(found: Sequence[Measurement], n_open: int) -> tuple[str, ...]:
    """The conditions without which nothing can be said, as far as they failed in any of the models (gates: in all)."""
    why: dict[str, None] = {}
    if not n_open:
        why[CLOSED] = None
    for m in found:
        if not m.aligned:
            why[f"{NO_PI} ({m.aligned_from})"] = None
        elif m.n_conflict < SMALLEST_GROUP:
            why[f"{m.n_conflict} conflicting test rows, at least {SMALLEST_GROUP} needed"] = None
        if m.exchange_reason:
            why[m.exchange_reason] = None
        if m.agreement < AGREEMENT:
            why[f"the head gives the stored decision on {m.agreement:.1%} of the test rows only"] = None
    return tuple(why)


def by_method(found: Sequence[Measurement]) -> list[Judged]:
    """One judgement per method: models that differ by their seed only belong together."""
    several = len({m.architecture for m in found}) > 1
    keys = [named(m, several) for m in found]
    order = {key: k for k, key in enumerate(dict.fromkeys(keys))}
    rows = sorted(zip(keys, found, strict=True), key=lambda pair: order[pair[0]])
    return [judge([m for _, m in group], key) for key, group in groupby(rows, key=lambda pair: pair[0])]


def named(m: Measurement, with_architecture: bool = False) -> str:
    name = m.regime or m.model
    return f"{name}, {m.architecture}" if with_architecture and m.architecture and m.regime else name


def _over(intervals: Sequence[Interval]) -> Interval:
    if len(intervals) == 1:
        return intervals[0]
    return over_seeds([i.value for i in intervals])


def _unchanged(change: Interval, m: Measurement, several: bool) -> Interval:
    return Interval(0.0, 0.0, 0.0) if several and not m.is_open and change.reason == CLOSED else change


def _p(found: Sequence[Measurement], delta_csr: Interval) -> float:
    if len(found) == 1:
        return found[0].p
    D = min(m.control.shape[1] for m in found)
    # Models share their shuffles, so the mean over models is one statistic with one null.
    return p_value(delta_csr.value, np.mean([m.control[0, :D, 1] for m in found], axis=0), "greater")
