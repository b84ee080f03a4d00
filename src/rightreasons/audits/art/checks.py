"""The conditions under which ART can be believed, as checks with stable ids. Those of a verdict have the ids of `judge`."""

from __future__ import annotations

import math

import numpy as np

from rightreasons.audits._following import is_followed, mean_pull, say_pull
from rightreasons.audits.art import judge as rules
from rightreasons.audits.art.judge import AGREEMENT, FLOOR, Judged, Measurement
from rightreasons.audits.art.settings import DUE_DRAWS
from rightreasons.findings import Check
from rightreasons.stats.groups import SMALLEST_GROUP
from rightreasons.stats.resampling import FEWEST_EXCHANGEABLE


def checks(j: Judged) -> list[Check]:
    """All of them, in the order of the page."""
    return [
        *_can_be_judged(j),
        *_controls(j),
        *_could_be_seen(j),
        *_rows(j),
        *_layers(j),
        *_pictures(j),
    ]


def _can_be_judged(j: Judged) -> list[Check]:
    """What a verdict needs before it looks at the effect."""
    association = j.members[0].association
    conflicts = min(m.counts.n_conflict for m in j.members)
    agreement = min(m.head.agreement for m in j.members)
    return [
        Check(id=rules.GATE_OPEN, name="a gate is open", passed=j.n_open > 0, decides=True, note=_say_gates(j)),
        Check(
            id=rules.STANDS_FOR_LABEL,
            name="the attribute stands for a label",
            passed=all(m.association.aligned for m in j.members),
            decides=True,
            note=f"{association.aligned} ({association.source})" if association.aligned else association.source,
        ),
        Check(
            id=rules.CONFLICTING_ROWS,
            name=f"at least {SMALLEST_GROUP} conflicting test rows",
            passed=conflicts >= SMALLEST_GROUP,
            decides=True,
            note=f"{conflicts}",
        ),
        Check(
            id=rules.EXCHANGEABLE,
            name=f"at least {FEWEST_EXCHANGEABLE} rows or subjects can exchange the attribute",
            passed=all(not m.controls.reason for m in j.members),
            decides=True,
            note=f"{min(m.controls.exchangeable for m in j.members)}",
        ),
        Check(
            id=rules.HEAD_AGREES,
            name="the head as data decides like the model",
            passed=agreement >= AGREEMENT,
            decides=True,
            note=f"on {agreement:.1%} of the test rows",
        ),
    ]


def _controls(j: Judged) -> list[Check]:
    """Whether the effect is one of the attribute."""
    draws = min(m.controls.number for m in j.members)
    gain, random, excess = j.change.csr.value, _random_gain(j, draws), j.change.excess
    compared = not (math.isnan(gain) or math.isnan(random))
    return [
        Check(
            id="control-draws",
            name=f"at least {DUE_DRAWS} draws of every control",
            passed=draws >= DUE_DRAWS,
            note=f"{draws}",
        ),
        Check(
            id="errors-follow-attribute",
            name="the new errors follow the attribute",
            passed=None if math.isnan(excess.value) else bool(excess.low > 0),
            note="the gain of the conflict shortcut rate exceeds that of errors on aligned rows",
        ),
        Check(
            id="beyond-random-directions",
            name="beyond random directions of the same length",
            passed=bool(gain > random) if compared else None,
            note="" if math.isnan(random) else f"their 95th percentile is {random:.3f}; decides nothing",
        ),
    ]


def _could_be_seen(j: Judged) -> list[Check]:
    """Whether the effect had room to show, and whether it is restoration or damage."""
    pull = mean_pull([m.pull for m in j.members])
    if j.reading == "swing":
        decided_by = [
            _condition(j, rules.NOTHING_TO_GAIN, "a head that gains nothing from the attribute can be fitted"),
            _condition(j, rules.SUBSTANTIAL_OR_NOTHING, "the swing beyond that head is substantial or nothing"),
            _condition(j, rules.BEYOND_SHUFFLES_OR_NOTHING, "the swing is beyond shuffles or nothing"),
            Check(
                id="readings-agree",
                name="the paper's reading points the same way",
                passed=not j.paper_disagrees,
                note=f"gain of conflict errors {j.change.csr.value:.3f} with rho = {j.members[0].procedure.rho:g}",
            ),
        ]
    else:
        decided_by = [
            _condition(j, rules.ROOM_TO_RISE, "the conflict shortcut rate has room to rise"),
            _condition(j, rules.SUBSTANTIAL_OR_NOTHING, "what was restored is substantial or nothing"),
            _condition(j, rules.BEYOND_SHUFFLES_OR_NOTHING, "what was restored is beyond shuffles or nothing"),
        ]
    return [
        Check(
            id="room-to-drop",
            name="worst-group accuracy has room to drop",
            passed=not j.floor,
            note=f"floor: it starts below {FLOOR:g}, so that the drop says little" if j.floor else "",
        ),
        *decided_by,
        Check(
            id=rules.NOT_FOLLOWED,
            name="answers do not follow what moved nothing",
            passed=None if is_followed(pull) is None else not j.why(rules.NOT_FOLLOWED),
            decides=True,
            note=say_pull(pull, j.members[0].association.attribute),
        ),
    ]


def _rows(j: Judged) -> list[Check]:
    counts, too_small = j.members[0].counts, j.members[0].groups.left_out
    missing = sum(m.counts.missing + m.counts.missing_audit for m in j.members)
    left_out = f"{counts.missing_audit} audit rows and {counts.missing} test rows left out"
    return [
        Check(id="probes-converged", name="the probes converged", passed=all(m.probes.converged for m in j.members)),
        Check(
            id="large-groups",
            name="every group is large enough",
            passed=not any(m.groups.left_out for m in j.members),
            note=f"left out of worst-group accuracy: {too_small}" if too_small else "",
        ),
        Check(
            id="complete-rows",
            name="every row has a label and the attribute",
            passed=not missing,
            note=left_out if missing else "",
        ),
    ]


def _layers(j: Judged) -> list[Check]:
    lacking = list(dict.fromkeys(name for m in j.members for name in m.layers.lacking))
    if not lacking and not any(m.layers.name for m in j.members):
        return []
    note = ""
    if lacking:
        note = f"not in the evidence: {', '.join(lacking)}"
    return [Check(id="layers-measured", name="every layer asked for was measured", passed=not lacking, note=note)]


def _pictures(j: Judged) -> list[Check]:
    why = j.members[0].pictures.missing
    if not why:
        return []
    return [Check(id="pictures", name="Grad-CAM before and after", passed=None, note=why)]


def _condition(j: Judged, id: str, name: str) -> Check:
    """A condition of the verdict on the effect itself: the note says why it does not hold."""
    why = j.why(id)
    return Check(id=id, name=name, passed=not why, note="; ".join(why), decides=True)


def _random_gain(j: Judged, draws: int) -> float:
    """95th percentile of the gain of CSR along random directions, mean over models; NaN where it is undefined."""
    gain = np.mean([m.controls.direction.draws.csr[:draws] for m in j.members], axis=0)
    return math.nan if np.isnan(gain).any() else float(np.quantile(gain, 0.95))


def _say_gates(j: Judged) -> str:
    if len(j.members) > 1:
        return f"{j.n_open} of {len(j.members)} models have an open gate"
    return "; ".join(_say_gate(j.members[0], c) for c in range(len(j.members[0].association.classes)))


def _say_gate(m: Measurement, c: int) -> str:
    return f"{m.association.classes[c]}: {'open' if m.gates.open[c].any() else 'closed'}"
