"""The verdict of `excess` and the conditions under which it can be believed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rightreasons.audits._conditions import complete_rows, enough_rows, has_direction, training_rows_known
from rightreasons.audits.excess.pieces import Measurement
from rightreasons.findings import Check, Verdict

TOLERANCE = 0.03  # what the excess must exceed to count
SEEN = 0.1  # what must be excluded before there is no evidence of one
FEWEST = 30  # test rows
FEWEST_IN_CELL = 10  # audit rows of every label and value, before anything is cleared
FEWEST_TO_CALL = 5  # of them for a call: too few rows make the excess smaller than the use, not larger
CLEARLY = 0.1  # share of the way from chance to 1 that the refitted head must surely have gone
RELATED = 0.15  # association within the label from which another attribute could explain this one
STANDS_IN = 0.04  # share of rows, recorded otherwise than they plainly show, from which the record is not what the model reads
ON_EACH_SIDE = 0.02  # of it, for each of the two values: a cue that is missing from some images is no stand-in
RATIO = 9.21  # of likelihoods, of which 1 in 100 attributes that are what shows has more
EXPLAINED = 0.5  # of the excess that may be left, within other attributes, of one that they explain


@dataclass(frozen=True)
class Judged:
    """What a measurement means.

    Attributes
    ----------
    tolerance : what the lower limit of the excess must exceed
    seen : what its upper limit must stay below before there is no evidence
    """

    m: Measurement
    tolerance: float = TOLERANCE
    seen: float = SEEN

    @property
    def verdict(self) -> Verdict:
        m = self.m
        if m.n < FEWEST or np.isnan(m.pulls.model.low):
            return "inconclusive"
        if self.outweighs_the_label:
            return self._unless_explained()
        if not self.head_works or np.isnan(m.pulls.excess.low):
            return "inconclusive"
        if not self.has_rows:
            return "shortcut" if self.calls_on_few_rows else "inconclusive"
        if m.pulls.excess.low > self.tolerance:
            return self._unless_explained()
        if m.pulls.excess.high < self.seen or self.explained_by or self.stands_in:
            return "no evidence"
        return "inconclusive"

    @property
    def calls_on_few_rows(self) -> bool:
        """Whether an excess is sure although some cell has too few rows for a clearance."""
        enough = FEWEST_TO_CALL <= self.m.cells.smallest < FEWEST_IN_CELL
        return enough and self.m.pulls.excess.low > self.tolerance and self._unless_explained() == "shortcut"

    def _unless_explained(self) -> Verdict:
        """A call, unless other attributes explain it or cannot be told from it."""
        if self.explained_by or self.stands_in:
            return "no evidence"
        if self.not_told_from:
            return "inconclusive"
        return "shortcut"

    @property
    def stands_in(self) -> bool:
        """Whether the features plainly show something else, which the attribute only goes with, and the answers follow that.

        Without it in the table no head can be kept from gaining by it. A cue that is recorded wrongly looks the same.
        """
        seen = self.m.shown
        if np.isnan(seen.record_followed.low):
            return False
        differs = seen.ratio > RATIO and seen.otherwise.low > STANDS_IN and min(seen.low.low, seen.high.low) > ON_EACH_SIDE
        record, thing = seen.record_followed, seen.followed
        follows_the_thing = record.low <= self.tolerance and record.high < max(self.seen, EXPLAINED * thing.value)
        return bool(differs and follows_the_thing)

    @property
    def has_rows(self) -> bool:
        return self.m.cells.smallest >= FEWEST_IN_CELL

    @property
    def head_works(self) -> bool:
        """Whether the refitted head is clearly better than chance: one that knows nothing follows nothing."""
        heads = self.m.heads
        return bool(heads.refitted.low > heads.chance + CLEARLY * (1 - heads.chance))

    @property
    def outweighs_the_label(self) -> bool:
        """Whether answers surely follow the attribute more than the label, and the label cannot be read without the attribute.

        How strongly the label shows cannot be the reason then, and no refitted head is needed to say so.
        """
        pull, label = self.m.pulls.model, self.m.heads.label_effect
        return bool(not self.head_works and pull.low > self.tolerance and pull.low > label.high)

    @property
    def related(self) -> tuple[int, ...]:
        """Other attributes that go with this one, within the label, strongly enough to stand in for it: positions in `within`."""
        association = self.m.within.association
        return tuple(k for k in range(1, len(association)) if association[k] >= RELATED)

    @property
    def explained_by(self) -> tuple[str, ...]:
        """Related attributes that keep their excess within this one, where this one keeps none within them."""
        if not self.related or not self._little_is_left:
            return ()
        within = self.m.within
        return tuple(within.name[k] for k in self.related if self._is_used_within(k))

    @property
    def not_told_from(self) -> tuple[str, ...]:
        """Related attributes that could be what is used instead of this one, as far as these rows can tell."""
        if not self.related or self._is_used_within(0):
            return ()
        within = self.m.within
        return tuple(within.name[k] for k in self.related if not within.excess_of(k).high < self.tolerance)

    @property
    def used_beside(self) -> tuple[str, ...]:
        """Other attributes that are used as well as this one."""
        if not self._is_used_within(0):
            return ()
        names = self.m.within.name
        return tuple(names[k] for k in range(1, len(names)) if self._is_used_within(k))

    @property
    def _little_is_left(self) -> bool:
        """Whether what is left of the excess within the others surely is little, or a part of what it seemed to be."""
        left = self.m.within.excess_of(0)
        alone = self.m.pulls.excess.value
        return left.low <= self.tolerance and left.high < max(self.seen, EXPLAINED * alone)

    def _is_used_within(self, k: int) -> bool:
        if not self.m.within.name:
            return False
        excess = self.m.within.excess_of(k)
        return excess.low > 0 and excess.value > self.tolerance

    # ---- conditions ------------------------------------------------------------------------------------------------------

    def checks(self) -> tuple[Check, ...]:
        m = self.m
        defined = not np.isnan(m.pulls.model.low)
        return (
            enough_rows(m.n, FEWEST),
            has_direction(defined, m.aligned, m.aligned_from),
            self._cells_check(),
            Check(
                id="refitted head",
                name="the refitted head is clearly better than chance",
                passed=self.head_works if defined else None,
                note=m.reason or f"{m.heads.refitted:.2f}",
                decides=not self.outweighs_the_label,
            ),
            self._power_check(defined),
            self._others_check(),
            self._record_check(),
            training_rows_known(m.training_known),
            complete_rows(m.missing),
        )

    def _cells_check(self) -> Check:
        cells = self.m.cells
        note = f"the smallest has {cells.smallest}: {cells.name[int(cells.audit.argmin())]}"
        few_are_enough = self.verdict == "shortcut" and not self.has_rows and self.head_works
        if few_are_enough:
            note += "; enough for a call, too few to clear"
        return Check(
            id="cells",
            name=f"at least {FEWEST_IN_CELL} audit rows of every label and value",
            passed=self.has_rows,
            note=note,
            decides=not (self.outweighs_the_label or few_are_enough),
        )

    def _power_check(self, defined: bool) -> Check:
        excess = self.m.pulls.excess
        is_clear = bool(excess.low > self.tolerance or excess.high < self.seen)
        decided = is_clear or bool(self.outweighs_the_label or self.explained_by or self.stands_in)
        return Check(
            id="power",
            name=f"an excess of {self.seen:g} could be told from none",
            passed=decided if defined else None,
            note="" if decided else f"the interval holds both {self.tolerance:g} and {self.seen:g}: more rows would help",
            decides=True,
        )

    def _record_check(self) -> Check:
        seen = self.m.shown
        note = seen.reason
        if not np.isnan(seen.otherwise.low):
            note = f"{seen.otherwise:.0%} plainly show the other value"
        return Check(
            id="recorded as shown",
            name="the attribute is recorded as the features show it",
            passed=None if np.isnan(seen.otherwise.low) else not self.stands_in,
            note=note,
        )

    def _others_check(self) -> Check:
        within = self.m.within
        note = within.reason
        if within.left_out:
            note = f"not held fixed: {', '.join(within.left_out)} (too many values, or too few rows of one)"
        called = self.m.pulls.excess.low > self.tolerance or self.outweighs_the_label
        can_be_told = not (called and not self.explained_by and not self.stands_in and self.not_told_from)
        if not can_be_told:
            note = f"it cannot be told from {', '.join(self.not_told_from)}: they go together in these rows"
        return Check(
            id="told apart",
            name="the attribute can be told from the others in the table",
            passed=can_be_told if within.name else None,
            note=note,
            decides=not can_be_told,
        )
