"""From measurements to a verdict: restorable or not, restoration or damage, and the place in the taxonomy (sec. 5.3, 5.4)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rightreasons.audits._following import is_followed, mean_pull, say_pull
from rightreasons.audits.art.pieces import (
    Ablations,
    Association,
    BetaCurve,
    Change,
    Controls,
    Counts,
    Gates,
    Groups,
    HeadAsData,
    LabelDirection,
    Layers,
    Model,
    Pictures,
    ProbeReading,
    Probes,
    Projection,
    Rates,
    Swing,
)
from rightreasons.audits.art.procedure import NO_PI, Procedure
from rightreasons.findings import Verdict
from rightreasons.measurements import spread
from rightreasons.stats.groups import SMALLEST_GROUP
from rightreasons.stats.over_models import over_seeds
from rightreasons.stats.resampling import Interval, p_value

ALPHA = 0.05
SUBSTANTIAL = 0.15  # a gain of CSR, or a drop of WGA, that counts as an effect
CSR_BESIDE_WGA = 0.05  # the gain of CSR that a drop of WGA needs beside it, and that is more than nothing
ROOM = 2 * SUBSTANTIAL  # a conflict shortcut rate nearer to 1 than this has little room to rise
FLOOR = 0.30  # below this a worst-group accuracy has little left to lose
USED = 0.1  # a swing beyond the refitted head's that counts as use
BEYOND = 0.02  # what its lower limit must exceed
UNUSED = 0.15  # a swing, or one beyond the refitted head's, that must be excluded before there is no evidence
AGREEMENT = 0.99  # share of decisions on which the head as data and the stored logits must agree

RESTORABLE, MISS = "restorable shortcut", "probe miss"
DECOUPLED, DELETED = "functional decoupling", "representational deletion"
CLOSED = "every gate closed"

# Ids of the conditions of a verdict; they are the ids of the checks that decide.
GATE_OPEN = "gate-open"
STANDS_FOR_LABEL = "stands-for-label"
CONFLICTING_ROWS = "conflicting-rows"
EXCHANGEABLE = "exchangeable"
HEAD_AGREES = "head-agrees"
NOTHING_TO_GAIN = "nothing-to-gain"
ROOM_TO_RISE = "room-to-rise"
SUBSTANTIAL_OR_NOTHING = "substantial-or-nothing"
BEYOND_SHUFFLES_OR_NOTHING = "beyond-shuffles-or-nothing"
NOT_FOLLOWED = "not-followed"


@dataclass(frozen=True)
class Measurement:
    """What restoring does to one model.

    Attributes
    ----------
    before, after : restoring with the strength that decides
    change : by restoring with it; NaN where every gate is closed
    p : of the gain of CSR against the shuffled attribute with its own gate, one-sided
    reading : which of the two decides, "swing" or "paper"
    swing : amplified and turned round, without label-null correction, beside a head that gains nothing from the attribute
    pull : of the attribute on the answers, before restoring
    """

    model: Model
    association: Association
    procedure: Procedure
    counts: Counts
    head: HeadAsData
    gates: Gates
    before: Rates
    after: Rates
    change: Change
    p: float
    curve: BetaCurve
    controls: Controls
    groups: Groups
    ablations: Ablations
    label: LabelDirection
    probes: Probes
    projection: Projection
    pictures: Pictures
    layers: Layers
    reading: str
    swing: Swing
    pull: Interval

    @property
    def has_open_gate(self) -> bool:
        """Whether a gate is open, in the reading that decides."""
        if self.reading == "paper":
            return self.gates.is_open
        return self.swing.open_classes > 0

    def scalars(self) -> dict[str, float | int | str]:
        """What a study's table shows of it."""
        judged, probe, counts = judge((self,)), self.probes.read(), self.counts
        columns: dict[str, float | int | str] = {
            "attribute": self.association.attribute,
            "n": counts.n,
            "n_audit": counts.n_find + counts.n_gate,
        }
        columns |= spread("wga", self.before.wga) | spread("csr", self.before.csr)
        columns |= spread("wga_after", self.after.wga) | spread("csr_after", self.after.csr)
        columns |= spread("delta_wga", self.change.wga) | spread("delta_csr", self.change.csr)
        columns |= spread("swing", self.swing.value) | spread("swing_refitted", self.swing.refitted_value)
        columns |= spread("swing_excess", self.swing.excess)
        columns |= spread("probe", probe.accuracy)
        return columns | {
            "probe_chance": probe.chance,
            "probe_line": probe.line,
            "p": self.p,
            "p_swing": self.swing.p,
            "open_gates": self.gates.open_classes,
            "classes": len(self.association.classes),
            "shuffles_closed": self.controls.closed_share,
            "restorable": bool(judged.restorable),
            "floor": judged.floor,
            "effect": judged.effect,
            "verdict": str(judged.verdict),
            "taxonomy": judged.taxonomy,
        }


@dataclass(frozen=True)
class Failed:
    """A condition of the verdict that does not hold, and why."""

    id: str
    why: str


@dataclass(frozen=True)
class Swung:
    """The swing of one model, or the mean over the seeds of a method, and p of both readings' kind of shuffles."""

    value: Interval
    refitted: Interval
    excess: Interval
    accuracy: Interval
    p: float

    @property
    def is_used(self) -> bool:
        """The model's head answers to the attribute beyond shuffles, and beyond a head that has nothing to gain from it."""
        return bool(self.p <= ALPHA and self.excess.value >= USED and self.excess.low > BEYOND)

    @property
    def is_unused(self) -> bool:
        """Whether use is excluded: nothing swings, or the refitted head swings as much."""
        return bool(self.value.high < UNUSED or self.excess.high < UNUSED) and not self.excess.low > BEYOND

    @property
    def is_the_labels_look(self) -> bool:
        """It swings, and the refitted head swings as much."""
        return bool(self.is_unused and self.value.low > BEYOND and self.value.value >= USED)


@dataclass(frozen=True)
class Judged:
    """The verdict over one model, or over the seeds of one method by their means.

    Attributes
    ----------
    reading : which decides: "swing", or "paper", which only restores
    change : a model whose gates are all closed counts as unchanged, if there are others
    effect : restoration, damage or none, whatever the controls say; mixed where the models disagree
    failed : the conditions that do not hold, empty where the verdict stands
    n_open : models with an open gate
    """

    name: str
    members: tuple[Measurement, ...]
    reading: str
    swing: Swung
    before: Rates
    change: Change
    p: float
    probe: ProbeReading
    effect: str
    failed: tuple[Failed, ...]
    n_open: int

    @property
    def restorable(self) -> bool | None:
        """Whether the head uses the attribute, by the reading that decides; None where it could not be judged."""
        if self.failed:
            return None
        if self.reading == "paper":
            return is_restorable(self.change, self.p)
        return self.swing.is_used

    @property
    def paper_disagrees(self) -> bool:
        """Whether the two readings point in opposite directions, each beyond what its own shuffles or limits leave open."""
        gain = self.change.csr
        against = self.swing.is_used and gain.high < 0
        other_way = is_restorable(self.change, self.p) and self.swing.value.high < 0
        return bool(against or other_way)

    @property
    def verdict(self) -> Verdict:
        if self.failed:
            return "inconclusive"
        return "shortcut" if self.restorable else "no evidence"

    @property
    def taxonomy(self) -> str:
        """Readable or not, restorable or not (sec. 5.4); empty where it cannot be said."""
        if self.restorable is None:
            deleted = not self.n_open and not self.is_constant and self.probe.accuracy.high < self.probe.line
            return DELETED if deleted else ""
        if not self.restorable:
            return DECOUPLED
        return RESTORABLE if self.probe.accuracy.value >= self.probe.line else MISS

    @property
    def is_constant(self) -> bool:
        """Whether some model gives every row the same answer: then nothing was deleted, the network does not work."""
        return any(m.counts.outputs < 2 for m in self.members)

    @property
    def floor(self) -> bool:
        """WGA before restoring is so low that it cannot drop much."""
        return bool(self.before.wga.value < FLOOR)

    def why(self, id: str) -> list[str]:
        """Why a condition does not hold; empty where it does."""
        return [failed.why for failed in self.failed if failed.id == id]


def judge(members: Sequence[Measurement], name: str = "") -> Judged:
    """Verdict and taxonomy of one model, or of several seeds by their means."""
    reading = members[0].reading
    change = _change_over(members)
    swing = _swing_over(members)
    p = _p_over(members, change.csr)
    effect = joint_effect([m.change for m in members])
    before = Rates(over_models([m.before.wga for m in members]), over_models([m.before.csr for m in members]))
    failed = unmet_conditions(members)
    if not failed and reading == "paper":
        failed = undecided_restoration(members, before.csr, change, effect, p)
    elif not failed:
        failed = undecided_swing(members, swing)
    return Judged(
        name=name or named(members[0]),
        members=tuple(members),
        reading=reading,
        swing=swing,
        before=before,
        change=change,
        p=p,
        probe=_probe_over(members),
        effect=effect,
        failed=failed,
        n_open=sum(m.has_open_gate for m in members),
    )


def by_method(measurements: Sequence[Measurement]) -> list[Judged]:
    """One judgement per method: models that differ by their seed only belong together."""
    several = len({m.model.architecture for m in measurements}) > 1
    seeds: dict[str, list[Measurement]] = {}
    for m in measurements:
        seeds.setdefault(named(m, several), []).append(m)
    return [judge(members, name) for name, members in seeds.items()]


def named(m: Measurement, with_architecture: bool = False) -> str:
    name = m.model.method or m.model.name
    if with_architecture and m.model.architecture and m.model.method:
        return f"{name}, {m.model.architecture}"
    return name


# ---- the rules -----------------------------------------------------------------------------------------------------------


def is_restorable(change: Change, p: float) -> bool:
    """A substantial change that the shuffled attribute does not reach."""
    return bool(p <= ALPHA and is_substantial(change))


def is_substantial(change: Change) -> bool:
    """CSR up by 15 points; or WGA down by 15 with CSR up by 5 and its interval above 0. Undefined is not substantial."""
    wga, csr = change.wga, change.csr
    return bool(csr.value >= SUBSTANTIAL or (wga.value >= SUBSTANTIAL and csr.value >= CSR_BESIDE_WGA and csr.low > 0))


def effect_of(change: Change) -> str:
    """Restoration makes errors that follow the attribute; damage makes errors.

    Damage is a drop of WGA without a gain of CSR, or a gain of CSR that errors on aligned rows match: with two labels every
    error on a conflicting row follows the attribute, so that noise alone raises CSR.
    """
    excess = change.excess
    follows = math.isnan(excess.value) or (excess.value > 0 and not excess.low <= 0)
    if is_substantial(change) and follows:
        return "restoration"
    if change.wga.value >= SUBSTANTIAL or is_substantial(change):
        return "damage"
    return "none"


def joint_effect(changes: Sequence[Change]) -> str:
    """What most models show, each by its own interval: the spread of a few seeds says little. "mixed" without a majority."""
    counted = Counter(map(effect_of, changes))
    effect, models = counted.most_common(1)[0]
    return effect if 2 * models > len(changes) else "mixed"


def unmet_conditions(members: Sequence[Measurement]) -> tuple[Failed, ...]:
    """The conditions without which nothing can be said, as far as they fail in any of the models (gates: in all)."""
    failed: list[Failed] = []
    if not any(m.has_open_gate for m in members):
        failed.append(Failed(GATE_OPEN, _why_closed(members[0])))
    for m in members:
        conflicts, agreement = m.counts.n_conflict, m.head.agreement
        if not m.association.aligned:
            failed.append(Failed(STANDS_FOR_LABEL, f"{NO_PI} ({m.association.source})"))
        elif conflicts < SMALLEST_GROUP:
            failed.append(Failed(CONFLICTING_ROWS, f"{conflicts} conflicting test rows, at least {SMALLEST_GROUP} needed"))
        if m.controls.reason:
            failed.append(Failed(EXCHANGEABLE, m.controls.reason))
        if agreement < AGREEMENT:
            failed.append(Failed(HEAD_AGREES, f"the head gives the stored decision on only {agreement:.1%} of the test rows"))
    return tuple(dict.fromkeys(failed))


def undecided_restoration(
    members: Sequence[Measurement], csr: Interval, change: Change, effect: str, p: float
) -> tuple[Failed, ...]:
    """Why restoring alone neither shows a shortcut nor an unused attribute; empty where it shows one of them."""
    failed = unproven(effect, p) if is_substantial(change) else halfway(csr, change.csr, p)
    if not failed and not is_restorable(change, p):
        failed = followed(members)
    return failed


def undecided_swing(members: Sequence[Measurement], swing: Swung) -> tuple[Failed, ...]:
    """Why the swing neither shows a shortcut nor an unused attribute; empty where it shows one of them."""
    swings = not swing.value.high < UNUSED
    if swings:
        lacking = _why_no_guard(members, swing)
        if lacking:
            return (Failed(NOTHING_TO_GAIN, lacking),)
    if swing.is_used:
        return ()
    if swing.is_unused:
        return () if swings else followed(members)
    if swing.excess.value >= USED and swing.excess.low > BEYOND:
        why = f"the swing is substantial but unproven: shuffles reach it too often (p = {swing.p:.3f})"
        return (Failed(BEYOND_SHUFFLES_OR_NOTHING, why),)
    limits = f"{swing.excess.low:.3f} to {swing.excess.high:.3f}"
    why = f"the swing beyond the refitted head's ({limits}) is neither surely above {BEYOND:g} nor surely below {UNUSED:g}"
    return (Failed(SUBSTANTIAL_OR_NOTHING, why),)


def _why_no_guard(members: Sequence[Measurement], swing: Swung) -> str:
    """Why there is no head to compare with; empty where there is one."""
    for m in members:
        if m.swing.guard:
            return m.swing.guard
    chance = 1 / max(len(members[0].association.classes), 1)
    if not swing.accuracy.low > chance:
        return f"the refitted head is hardly better than chance ({swing.accuracy.value:.2f} decided right, chance {chance:.2f})"
    return ""


def _why_closed(m: Measurement) -> str:
    if m.reading == "swing" and m.swing.smallest < m.swing.needed:
        return (
            f"{CLOSED}: {m.swing.smallest} audit rows in the smallest group of a label and a value, {m.swing.needed} are enough"
        )
    return CLOSED


def halfway(csr: Interval, delta_csr: Interval, p: float) -> tuple[Failed, ...]:
    """Why a change that is not substantial does not show an unused attribute; empty where it does.

    Decoupling is a gate that opens and nothing that is restored. A model that follows the attribute nearly everywhere has no 15
    points left to gain, and models that unlearned half of a shortcut restore 5 to 15 points, beyond every shuffle.
    """
    if csr.value > 1 - ROOM:
        why = (
            f"at the ceiling: {csr.value:.0%} of the conflicting rows follow the attribute already, so the rate cannot rise much"
        )
        return (Failed(ROOM_TO_RISE, why),)
    if p <= ALPHA and delta_csr.value >= CSR_BESIDE_WGA:
        why = f"the gain is halfway: beyond what shuffles reach, but below {100 * SUBSTANTIAL:.0f} points"
        return (Failed(SUBSTANTIAL_OR_NOTHING, why),)
    return ()


def unproven(effect: str, p: float) -> tuple[Failed, ...]:
    """Why a substantial change neither shows a shortcut nor an unused attribute; empty where it shows one of them.

    Decoupling is nothing restored; here something was, and shuffles can do it too. Damage restores nothing.
    """
    if p > ALPHA and effect != "damage":
        why = f"the gain is substantial but unproven: shuffles reach it too often (p = {p:.3f})"
        return (Failed(BEYOND_SHUFFLES_OR_NOTHING, why),)
    return ()


def followed(members: Sequence[Measurement]) -> tuple[Failed, ...]:
    """Answers that follow the attribute use it, whatever could be restored: the direction was not the one that the head reads."""
    pull = mean_pull([m.pull for m in members])
    if is_followed(pull):
        said = say_pull(pull, members[0].association.attribute)
        return (Failed(NOT_FOLLOWED, f"nothing was restored, yet answers follow the attribute: {said}"),)
    return ()


# ---- over models ---------------------------------------------------------------------------------------------------------


def over_models(intervals: Sequence[Interval]) -> Interval:
    """Of one model as it is; of several, their mean with its t interval."""
    if len(intervals) == 1:
        return intervals[0]
    return over_seeds([i.value for i in intervals])


def change_over_models(changes: Sequence[Change]) -> Change:
    return Change(
        over_models([change.wga for change in changes]),
        over_models([change.csr for change in changes]),
        over_models([change.aligned for change in changes]),
        over_models([change.excess for change in changes]),
    )


def _change_over(members: Sequence[Measurement]) -> Change:
    if len(members) == 1:
        return members[0].change
    nothing = Interval(0.0, 0.0, 0.0)
    unchanged = Change(nothing, nothing, nothing, nothing)
    return change_over_models([m.change if m.gates.is_open else unchanged for m in members])


def _swing_over(members: Sequence[Measurement]) -> Swung:
    swings = [m.swing for m in members]
    value = over_models([swing.value for swing in swings])
    looked = [swing for swing in swings if len(swing.shuffled)]
    if len(members) == 1 or not looked:
        p = swings[0].p
    else:
        D = min(len(swing.shuffled) for swing in looked)
        p = p_value(value.value, np.mean([swing.shuffled[:D] for swing in looked], axis=0), "greater")
    return Swung(
        value,
        over_models([swing.refitted_value for swing in swings]),
        over_models([swing.excess for swing in swings]),
        over_models([swing.accuracy for swing in swings]),
        p,
    )


def _p_over(members: Sequence[Measurement], delta_csr: Interval) -> float:
    if len(members) == 1:
        return members[0].p
    D = min(m.controls.number for m in members)
    # Models share their shuffles, so the mean over models is one statistic with one null.
    return p_value(delta_csr.value, np.mean([m.controls.shuffled.draws.csr[:D] for m in members], axis=0), "greater")


def _probe_over(members: Sequence[Measurement]) -> ProbeReading:
    readings = [m.probes.read() for m in members]
    return ProbeReading(
        accuracy=over_models([reading.accuracy for reading in readings]),
        chance=float(np.mean([reading.chance for reading in readings])),
        line=float(np.mean([reading.line for reading in readings])),
    )
