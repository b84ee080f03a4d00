"""What `excess` says: sentences, estimates, unevenness and exhibits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rightreasons.audits.excess.judge import FEWEST, FEWEST_IN_CELL, Judged
from rightreasons.audits.excess.pieces import Measurement
from rightreasons.findings import Bars, Cell, Estimate, Exhibit, Gallery, Picture, Row, Table, Unevenness
from rightreasons.stats.resampling import Interval

ROW: Row = "reliance"
MODEL, REFITTED = "the model", "the refitted head"


def sentence(judged: Judged) -> str:
    """The verdict and the numbers behind it."""
    m = judged.m
    cue = f"“{m.attribute}”"
    if m.n < FEWEST:
        return f"Only {m.n} test rows have a label and {cue}; at least {FEWEST} are needed to judge."
    if np.isnan(m.pulls.model.low):
        return f"There is no pull to judge: {m.pulls.model.reason}."
    if judged.outweighs_the_label and not judged.explained_by:
        return (
            f"Within a label the answers move with {cue} by {m.pulls.model:.3f} and, where {cue} is fixed, with the label "
            f"by {m.heads.label_effect:.3f} only: the model follows {cue} more than the label."
        )
    if m.reason:
        return f"No head could be refitted: {m.reason}."
    if not (judged.has_rows or judged.calls_on_few_rows):
        return (
            f"The smallest group of a label and a value of {cue} has {m.cells.smallest} audit rows; at least {FEWEST_IN_CELL} "
            "are needed to refit the head."
        )
    if not judged.head_works:
        return (
            f"A head that gains nothing from {cue} is hardly better than chance on these features "
            f"({m.heads.refitted:.2f} decided right), so there is nothing to compare with."
        )
    both = (
        f"The model's answers follow {cue} by {m.pulls.model:.3f} within a label; a head refitted where {cue} says nothing "
        f"about the label follows it by {m.pulls.refitted.value:.3f}. The excess is {m.pulls.excess:.3f}"
    )
    return f"{both}: {_meaning(judged)}"


def _meaning(judged: Judged) -> str:
    m, verdict = judged.m, judged.verdict
    seems_used = not m.pulls.excess.high < judged.seen
    if judged.explained_by and seems_used:
        left = m.within.excess_of(0)
        return (
            f"{_listed(judged.explained_by)} explains it. Among rows alike in that, little is left "
            f"({left.value:.3f}, {left.low:.3f} to {left.high:.3f})."
        )
    if judged.stands_in and seems_used:
        return (
            f"that is use, but not of “{m.attribute}” as it is recorded. {m.shown.otherwise:.0%} of the rows plainly show "
            f"the other value, and the answers follow what shows. “{m.attribute}” goes with something visible that is not in the "
            "table, or is recorded wrongly: record what shows, and audit that."
        )
    if verdict == "shortcut":
        if judged.used_beside:
            return f"the model uses it, and {_listed(judged.used_beside)} as well."
        return "the model uses it beyond what the label's look explains."
    if verdict == "inconclusive" and m.pulls.excess.low > judged.tolerance:
        return f"the model uses it or {_listed(judged.not_told_from)}; these rows cannot tell which."
    if verdict == "inconclusive":
        return f"neither beyond {judged.tolerance:g} nor surely below {judged.seen:g}."
    if m.pulls.excess.low > judged.tolerance:
        return f"the model uses it a little, surely by less than {judged.seen:g}."
    if m.pulls.model.low > judged.tolerance:
        return "the answers follow it because the label shows more strongly with it, not because the model uses it."
    return "the model does not use it."


# ---- numbers -------------------------------------------------------------------------------------------------------------


def estimates(judged: Judged, over_networks: Interval | None) -> list[Estimate]:
    """The excess first; where the attribute outweighs the label, the pull decides and comes first."""
    m = judged.m
    p = None if np.isnan(m.pulls.p) else m.pulls.p
    excess = Estimate.of("excess", m.pulls.excess, ROW, unit="probability", n=m.n, p=p, id="use")
    pull = Estimate.of("pull of the model", m.pulls.model, ROW, unit="probability", n=m.n, id="following")
    first = [pull, excess] if judged.outweighs_the_label else [excess, pull]
    shown = [
        *first,
        Estimate.of("pull of the refitted head", m.pulls.refitted, ROW, unit="probability", n=m.n),
        Estimate.of("effect of the label where the attribute is fixed", m.heads.label_effect, ROW, unit="probability", n=m.n),
        Estimate.of("model: decided right, mean over groups", m.heads.model, ROW, unit="share", n=m.n),
        Estimate.of("refitted head: decided right, mean over groups", m.heads.refitted, ROW, unit="share", n=m.n),
    ]
    if over_networks is not None:
        note = "networks trained where the attribute says nothing about the label; it decides nothing"
        shown.append(Estimate.of("excess over balanced networks", over_networks, ROW, unit="probability", n=m.n, note=note))
    if not np.isnan(m.shown.otherwise.low):
        shown.append(Estimate.of("recorded otherwise than plainly shown", m.shown.otherwise, ROW, unit="share", n=m.n))
    if len(m.within.name):
        common = {"unit": "probability", "n": m.n}
        pull_within, excess_within = m.within.pull_of(0), m.within.excess_of(0)
        shown.append(Estimate.of("pull within the other attributes", pull_within, ROW, id="following within", **common))
        shown.append(Estimate.of("excess within the other attributes", excess_within, ROW, id="use within", **common))
    return shown


def unevenness(judged: Judged) -> list[Unevenness]:
    """How much of it is presentation, annotation, another attribute, and use."""
    m = judged.m
    if m.reason or np.isnan(m.pulls.refitted.low):
        return []
    shown = []
    if not np.isnan(m.prevalence.value):
        more = f"how much more frequent a label is with the value of {m.attribute} that stands for it, training rows"
        shown.append(_kind("prevalence", more, m.prevalence, judged.tolerance))
    shown.append(_kind("presentation", "pull of a head that gains nothing from it", m.pulls.refitted, judged.tolerance))
    if not np.isnan(m.annotation.value):
        shown.append(_kind("annotation", "pull of the labels within the adjudicated ones", m.annotation, 0.0))
    shown += _companions(judged)
    if judged.stands_in and not judged.explained_by:
        estimate = Estimate.of(f"pull of what shows, among rows recorded alike in {m.attribute}", m.shown.followed, ROW)
        shown.append(Unevenness(kind="companion", present=True, estimate=estimate))
    used = {"shortcut": True, "no evidence": False}.get(str(judged.verdict))
    shown.append(Unevenness(kind="use", present=used, estimate=Estimate.of("excess", m.pulls.excess, ROW, unit="probability")))
    return shown


def _kind(kind: str, name: str, number: Interval, tolerance: float) -> Unevenness:
    present: bool | None = bool(number.low > tolerance)
    if np.isnan(number.low):
        present = None
    return Unevenness(kind=kind, estimate=Estimate.of(name, number, ROW, unit="probability"), present=present)


def _companions(judged: Judged) -> list[Unevenness]:
    """Other attributes that explain this one, that cannot be told from it where it would be called, or that are used as well."""
    m = judged.m
    present_by_name: dict[str, bool | None] = dict.fromkeys(judged.explained_by, True)
    if judged.verdict == "shortcut":
        present_by_name |= dict.fromkeys(judged.used_beside, False)
    elif judged.verdict == "inconclusive" and m.pulls.excess.low > judged.tolerance:
        present_by_name |= dict.fromkeys(judged.not_told_from)
    companions = []
    for name, present in present_by_name.items():
        excess = m.within.excess_of(m.within.name.index(name))
        estimate = Estimate.of(f"excess of {name} within {m.attribute}", excess, ROW, unit="probability")
        companions.append(Unevenness(kind="companion", companion=name, present=present, estimate=estimate))
    return companions


# ---- exhibits ------------------------------------------------------------------------------------------------------------


def exhibits(judged: Judged) -> list[Exhibit]:
    m = judged.m
    shown: list[Exhibit] = []
    if m.by_label.name:
        shown.append(label_bars(m, judged.tolerance))
    if m.within.name:
        shown += [within_table(judged), within_bars(judged)]
    if len(m.pictures.pixels):
        shown.append(disagreement_gallery(m))
    shown.append(cell_table(m))
    return shown


def label_bars(m: Measurement, tolerance: float) -> Bars:
    parts = m.by_label
    return Bars(
        title="What both heads follow, by label",
        caption="How much more probable the label is that a value stands for, among images of one label: by the model, and by "
        "its last layer refitted on held-out rows where the attribute says nothing about the label. Where both bars are as long, "
        "the label shows more strongly with that value. What the model has beyond the refitted head is use.",
        labels=parts.name,
        series={MODEL: parts.model, REFITTED: parts.refitted},
        low={MODEL: parts.model_low, REFITTED: parts.refitted_low},
        high={MODEL: parts.model_high, REFITTED: parts.refitted_high},
        reference=tolerance,
        reference_label="tolerance",
        value_label="difference of probability",
    )


def within_table(judged: Judged) -> Table:
    m = judged.m
    rows = []
    for k, name in enumerate(m.within.name):
        with_this = None
        if k > 0:
            with_this = round(float(m.within.association[k]), 2)
        pull, excess = Cell.of(m.within.pull_of(k)), Cell.of(m.within.excess_of(k))
        rows.append((name, with_this, pull, excess, _word(judged, k)))
    return Table(
        title="Several attributes at once",
        caption="Each attribute among rows that are alike in all the others. An attribute that only goes with another one that "
        "is used loses its excess here; two that always go together cannot be told apart.",
        columns=(
            "attribute",
            f"goes with {m.attribute} within the label",
            "pull within the others",
            "excess within the others",
            "read as",
        ),
        rows=tuple(rows),
        highlight=(0,),
    )


def _word(judged: Judged, k: int) -> str:
    """What the row of one attribute means, in a few words."""
    name, excess = judged.m.within.name[k], judged.m.within.excess_of(k)
    if np.isnan(excess.low):
        return "cannot be told apart"
    if excess.low > 0 and excess.value > judged.tolerance:
        return "used"
    if k == 0 and judged.explained_by:
        return f"explained by {_listed(judged.explained_by)}"
    if excess.high < judged.seen:
        return "not used"
    if name in judged.not_told_from or (k == 0 and judged.not_told_from):
        return "cannot be told apart"
    return "open"


def within_bars(judged: Judged) -> Bars:
    within = judged.m.within
    return Bars(
        title="Excess of each attribute within the others",
        caption="The part of each attribute's pull that is use, among rows that are alike in all other attributes.",
        labels=within.name,
        series={"excess": within.excess[:, 0]},
        low={"excess": within.excess[:, 1]},
        high={"excess": within.excess[:, 2]},
        reference=judged.tolerance,
        reference_label="tolerance",
        value_label="difference of probability",
    )


def disagreement_gallery(m: Measurement) -> Gallery:
    shown = zip(m.pictures.pixels, m.pictures.captions, m.pictures.apart, strict=True)
    return Gallery(
        title="Images that the two heads answer differently",
        caption=f"{m.changed} of {m.n} test rows are decided differently by a head that gains nothing from {m.attribute}; the "
        "clearest ones are shown.",
        items=[Picture(png=pixels, caption=caption, values={"how far apart": apart}) for pixels, caption, apart in shown],
        sort="how far apart",
    )


def cell_table(m: Measurement) -> Table:
    quarters = f" {m.attribute} is a number and is compared by its quarters: {m.cut}." if m.cut else ""
    rows = [(name, int(a), int(t)) for name, a, t in zip(m.cells.name, m.cells.audit, m.cells.test, strict=True)]
    return Table(
        title="Rows by label and value",
        caption=f"Audit rows fit the new head, every group with the same weight. Test rows are reported on.{quarters}",
        columns=("label, value", "audit rows", "test rows"),
        rows=tuple(rows),
    )


def _listed(names: Sequence[str]) -> str:
    if len(names) > 1:
        return f"{', '.join(names[:-1])} and {names[-1]}"
    return "".join(names)
