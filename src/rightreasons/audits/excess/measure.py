"""One model: refit its last layer where the attribute says nothing about the label, and compare what both heads follow."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import norm

from rightreasons.audits._alignment import alignment_of, say_alignment
from rightreasons.audits._contract import subjects_of
from rightreasons.audits._following import NO_SIDES, direction_to_look
from rightreasons.audits._levels import levels_of
from rightreasons.audits._thumbnails import thumbnails
from rightreasons.audits.excess.pieces import (
    UNDEFINED,
    ByLabel,
    Cells,
    Heads,
    Measurement,
    Pictures,
    Pulls,
    Shown,
    Within,
)
from rightreasons.audits.excess.rows import Other, Side, cell_sizes, labelled_outputs, other_attributes, side
from rightreasons.audits.excess.shown import shown
from rightreasons.errors import NotRun
from rightreasons.evidence import Evidence, as_outputs
from rightreasons.families import with_settings
from rightreasons.progress import track
from rightreasons.stats import groups
from rightreasons.stats.correlation import cramers_v_within
from rightreasons.stats.partial_pull import partial_pull_draws
from rightreasons.stats.refit import columns_of, fitted, matched, raked_weights, refit, shortfall
from rightreasons.stats.resampling import Interval, Resamples, interval, limits_of, resamples, whole

EMPTY_CELL = "a label has no audit rows with one of the attribute's values, so no head can be fitted that gains nothing from it"
MOST_WITHIN = 400  # resamples of pulls within other attributes, which cost more and decide at the same limits


@dataclass(frozen=True)
class Settings:
    """
    attribute : which one; the table's first by default
    aligned : attribute value → the label it stands for; learnt as in `groups` by default, and where the training rows show
        none, from the audit rows
    truth : column of adjudicated labels; where it is given, everything is compared within those
    refits : how often the head is fitted again on resampled audit rows: what its interval is widened by
    pictures : images shown that the two heads answer differently
    B : resamples of the test rows, of subjects where they are known
    """

    attribute: str | None = None
    aligned: Mapping[Any, Any] | None = None
    truth: str | None = None
    refits: int = 24
    pictures: int = 12
    B: int = 2_000
    level: float = 0.95


@with_settings(Settings)
def measure(evidence: Evidence, *, rng: np.random.Generator, settings: Settings) -> Measurement:
    """Refit on audit rows, compare on test rows."""
    name = attribute_of(evidence, settings.attribute)
    classes = labelled_outputs(evidence, settings.truth)
    audit, test = (side(evidence, cohort, name, settings.truth, classes) for cohort in ("audit", "test"))
    aligned, source = direction(evidence, test, settings.aligned)
    sizes = cells(audit, test)
    sample = resamples(len(test.label), rng=rng, B=settings.B, subject=test.cohort.subject)
    compared = Comparison(audit, test, aligned, sample, settings, rng)
    own = compared.own(source)
    cut = ""
    if test.cohort.attribute(name).kind == "continuous":
        cut = ", ".join(levels_of(evidence, name).names)
    known = Measurement(
        model=evidence.card.name,
        attribute=name,
        n=len(test.label),
        n_audit=len(audit.label),
        n_subjects=subjects_of(evidence.on("test")),
        missing=test.missing,
        aligned=say_alignment(aligned, test.attribute, evidence),
        aligned_from=source,
        cut=cut,
        training_known=evidence.training is not None,
        cells=sizes,
        pulls=own,
        heads=Heads(),
        by_label=ByLabel(),
        within=Within(),
        shown=Shown(),
        prevalence=compared.prevalence(evidence),
        annotation=compared.annotation(),
        changed=0,
        pictures=Pictures(),
        reason=EMPTY_CELL if not sizes.smallest else own.model.reason,
    )
    if known.reason:
        return known
    return compared.refitted(known, evidence)


def attribute_of(evidence: Evidence, attribute: str | None) -> str:
    cohort = evidence.on("test").cohort
    if not cohort.attributes:
        raise NotRun("no attribute: name one with attribute=")
    if "audit" not in evidence.cohorts:
        raise NotRun("no audit rows: the new head is fitted on rows that are neither trained on nor reported on")
    return cohort.attribute(attribute).name


def direction(evidence: Evidence, test: Side, given: Mapping[Any, Any] | None) -> tuple[dict[Hashable, Hashable], str]:
    """Which output each value stands for, and where that comes from."""
    aligned, source = alignment_of(evidence, test.attribute, given)
    if aligned:
        return aligned, source
    return direction_to_look(evidence, test.attribute.name), f"{source}: direction from the audit rows"


def cells(audit: Side, test: Side) -> Cells:
    """Rows of every label and value that occurs in the test rows."""
    levels = test.attribute.levels
    sizes = [cell_sizes(rows, len(levels)) for rows in (audit, test)]
    occurs = sizes[1].sum(axis=0) > 0
    names = []
    for label in test.names:
        names += [f"{label}, {level}" for level, there in zip(levels, occurs, strict=True) if there]
    return Cells(tuple(names), *(size[:, occurs].ravel() for size in sizes))


@dataclass(frozen=True)
class Comparison:
    """Both heads on the same test rows and resamples."""

    audit: Side
    test: Side
    aligned: Mapping[Hashable, Hashable]
    sample: Resamples
    settings: Settings
    rng: np.random.Generator

    @property
    def towards(self) -> dict[Hashable, int]:
        return self.test.towards(self.aligned)

    def draws(self, answers: np.ndarray) -> np.ndarray:
        """The pull on answers (n, C) in every resample, (B,)."""
        label, values, towards = self.test.label, self.test.attribute.values, self.towards
        return self.sample.apply(lambda counts: groups.pull_draws(label, answers, values, towards, counts))

    def pull(self, answers: np.ndarray) -> float:
        return groups.pull(self.test.label, answers, self.test.attribute.values, self.towards)

    def own(self, source: str) -> Pulls:
        """The pull on the model's own answers."""
        value = self.pull(self.test.answers)
        draws = self.draws(self.test.answers)
        why = NO_SIDES if self.towards else source
        return Pulls(model=interval(value, draws, self.settings.level, why), draws=draws)

    def prevalence(self, evidence: Evidence) -> Interval:
        """How much more frequent labels are with the values that stand for them, where the model was trained."""
        if evidence.training is None:
            return replace(UNDEFINED, reason="training rows unknown")
        train = evidence.training
        name = self.test.attribute.name
        a = levels_of(evidence, name).of(train.attribute(name))
        label = as_outputs(train.label, train.classes, evidence.card.classes)
        kept = np.flatnonzero(np.isin(label, self.test.classes) & a.present)
        if not len(kept):
            return replace(UNDEFINED, reason=f"no training row has both a label and {name}")
        truth = (label[kept][:, None] == self.test.classes).astype(np.float64)
        sample = resamples(len(kept), rng=self.rng, B=MOST_WITHIN, subject=train.select(kept).subject)

        def draw(counts: np.ndarray) -> np.ndarray:
            return groups.pull_draws(np.zeros(len(kept), np.int64), truth, a.values[kept], self.towards, counts)

        return interval(float(draw(whole(len(kept)))[0]), sample.apply(draw), self.settings.level, NO_SIDES)

    def annotation(self) -> Interval:
        """How far the labels themselves follow the attribute within the adjudicated ones."""
        if self.settings.truth is None:
            return replace(UNDEFINED, reason="no adjudicated labels: name their column with truth=")
        given = np.eye(len(self.test.classes))[self.test.given]
        return interval(self.pull(given), self.draws(given), self.settings.level, NO_SIDES)

    def refitted(self, known: Measurement, evidence: Evidence) -> Measurement:
        """What the refitted head adds to what is known."""
        others, left_out = other_attributes(evidence, self.audit, self.test)
        columns = self.columns()
        alone = self.refit_against(columns, ())
        pulls = self.excess(known.pulls, alone)
        return replace(
            known,
            pulls=pulls,
            heads=self.heads(alone),
            by_label=self.by_label(alone.answers),
            within=self.within(evidence, columns, others, left_out),
            shown=shown(self.audit, self.test, columns, self.towards, self.sample, self.rng),
            changed=int((alone.answers.argmax(axis=1) != self.test.answers.argmax(axis=1)).sum()),
            pictures=self.pictures(alone.answers),
        )

    def columns(self) -> tuple[np.ndarray, np.ndarray]:
        """What heads are fitted on, (n_audit, p) and (n_test, p)."""
        audit, test = self.audit, self.test
        columns = columns_of(audit.inputs, audit.logits, self.rng)
        return columns(audit.inputs, audit.logits), columns(test.inputs, test.logits)

    def refit_against(self, columns: tuple[np.ndarray, np.ndarray], others: tuple[Other, ...]) -> Refitted:
        """A head with nothing to gain from the attribute, nor from the others; and heads of resampled audit rows."""
        audit, test, C = self.audit, self.test, len(self.test.classes)
        z_audit, z_test = columns
        held_fixed = [audit.attribute.values, *(other.audit for other in others)]
        even = raked_weights(test.label, [test.attribute.values])
        weight = raked_weights(audit.label, held_fixed)
        head = refit(z_audit, audit.label, C, weight, rng=self.rng, subject=audit.cohort.subject)
        answers = matched(head(z_test), test.answers, test.label, even)
        again = []
        drawn = resamples(len(audit.label), rng=self.rng, B=max(self.settings.refits, 1), subject=audit.cohort.subject)
        for counts in drawn.counts()[: self.settings.refits]:
            rows = np.flatnonzero(counts)
            base = raked_weights(audit.label[rows], [a[rows] for a in held_fixed], counts[rows])
            other = fitted(z_audit[rows], audit.label[rows], C, base, head.penalty, head)
            again.append(matched(other(z_test), test.answers, test.label, even))
        factor = shortfall(test.answers, answers, test.label, even)
        return Refitted(answers, head(z_test), tuple(again), factor, head.penalty)

    def excess(self, pulls: Pulls, refitted: Refitted) -> Pulls:
        """The pull of the refitted head and the excess over it."""
        value = float(refitted.made_up(self.pull(refitted.answers)))
        draws = refitted.made_up(self.draws(refitted.answers))
        spread_of_fit = float(np.std([refitted.made_up(self.pull(answers)) for answers in refitted.again], ddof=1))
        level = self.settings.level
        excess = with_spread(pulls.model.value - value, pulls.draws - draws, spread_of_fit, level)
        return replace(
            pulls,
            refitted=with_spread(value, draws, spread_of_fit, level),
            excess=excess,
            p=two_sided(excess, level),
        )

    def heads(self, refitted: Refitted) -> Heads:
        """Share decided right by both, mean over the cells, and how strongly the model's answers follow the label."""
        test = self.test
        return Heads(
            model=self._decided_right(test.logits),
            refitted=self._decided_right(refitted.logits),
            label_effect=self._interval(lambda counts: _label_effects(test, counts)),
            chance=1 / len(test.classes),
            penalty=refitted.penalty,
        )

    def _decided_right(self, logits: np.ndarray) -> Interval:
        guess = logits.argmax(axis=1)
        return self._interval(lambda counts: _cell_accuracy(self.test, guess, counts))

    def by_label(self, refitted: np.ndarray) -> ByLabel:
        """Both heads' pull within every label, for every value that stands for one."""
        test, level = self.test, self.settings.level
        levels = dict(enumerate(test.attribute.levels))
        names: list[str] = []
        own: list[Interval] = []
        of_refitted: list[Interval] = []
        for value, column in self.towards.items():
            for c in np.unique(test.label):
                only_this = np.where(test.label == c, 0, -1)
                names.append(f"{test.names[c]}: {levels[value]} → {test.names[column]}")  # type: ignore[index]
                own.append(self._interval(_pull_within(only_this, test.answers, test, {value: column}), level))
                of_refitted.append(self._interval(_pull_within(only_this, refitted, test, {value: column}), level))
        return ByLabel(tuple(names), *limits_of(own).T, *limits_of(of_refitted).T)

    def within(
        self, evidence: Evidence, columns: tuple[np.ndarray, np.ndarray], others: list[Other], left_out: tuple[str, ...]
    ) -> Within:
        """Pull and excess of every attribute among rows that are alike in all others."""
        if not others:
            return Within(reason="no other attribute can be held fixed", left_out=left_out)
        test = self.test
        refitted = self.refit_against(columns, tuple(others))
        sample = replace(self.sample, states=self.sample.states[:MOST_WITHIN])
        mine = Other(test.attribute.name, self.audit.attribute.values, test.attribute.values, test.attribute)
        every = [mine, *others]
        pulls, excesses = [], []
        for k, one in enumerate(track(every, "attributes within others")):
            rest = [other.test for j, other in enumerate(every) if j != k]
            aligned = self.towards
            if one is not mine:
                aligned = test.towards(direction(evidence, replace(test, attribute=one.levels), None)[0])
            both = _Within(test, one.test, aligned, rest, sample)
            pull, other_pull = both.draws(test.answers), refitted.made_up(both.draws(refitted.answers))
            value, other_value = both.value(test.answers), float(refitted.made_up(both.value(refitted.answers)))
            fit = float(np.std([refitted.made_up(both.value(answers)) for answers in refitted.again], ddof=1))
            pulls.append(with_spread(value, pull, 0.0, self.settings.level))
            excesses.append(with_spread(value - other_value, pull - other_pull, fit, self.settings.level))
        return Within(
            name=tuple(one.name for one in every),
            pull=limits_of(pulls),
            excess=limits_of(excesses),
            association=np.array([cramers_v_within(test.label, mine.test, one.test) for one in every]),
            left_out=left_out,
        )

    def pictures(self, refitted: np.ndarray) -> Pictures:
        """Test images that the two heads decide differently, the clearest first."""
        test = self.test
        guess, other = test.answers.argmax(axis=1), refitted.argmax(axis=1)
        apart = np.abs(test.answers - refitted).max(axis=1)
        rows = np.flatnonzero(guess != other)
        rows = rows[np.argsort(-apart[rows], kind="stable")][: self.settings.pictures]
        pixels, reason = thumbnails(test.cohort, rows)
        if reason or not len(rows):
            return Pictures(reason=reason)
        captions = []
        for row in rows:
            value = test.attribute.levels[test.attribute.values[row]]
            captions.append(
                f"{test.cohort.label_name} {test.names[test.label[row]]}, {test.attribute.name} {value}: the model says "
                f"{test.names[guess[row]]}, the refitted head {test.names[other[row]]}"
            )
        return Pictures(pixels, tuple(captions), apart[rows])

    def _interval(self, draw: Any, level: float | None = None) -> Interval:
        value = float(draw(whole(len(self.test.label)))[0])
        return interval(value, self.sample.apply(draw), level or self.settings.level)


@dataclass(frozen=True)
class Refitted:
    """Answers of a refitted head on the test rows, made as sharp as the model's; those of heads fitted on resampled rows."""

    answers: np.ndarray
    logits: np.ndarray
    again: tuple[np.ndarray, ...]
    shortfall: float
    penalty: float

    def made_up(self, pull: np.ndarray | float) -> np.ndarray:
        """The pull of a head that errs more than the model, as it would be if it erred as little: errors dilute a pull.

        A pull against the attribute stays as it is, or the excess would grow by it.
        """
        return np.maximum(pull, self.shortfall * np.asarray(pull))


@dataclass(frozen=True)
class _Within:
    """The pull of one attribute within others."""

    test: Side
    codes: np.ndarray
    aligned: Mapping[Hashable, int]
    rest: list[np.ndarray]
    sample: Resamples

    def at(self, answers: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return partial_pull_draws(self.test.label, answers, self.codes, self.aligned, self.rest, counts)

    def value(self, answers: np.ndarray) -> float:
        return float(self.at(answers, whole(len(self.codes)))[0])

    def draws(self, answers: np.ndarray) -> np.ndarray:
        return self.sample.apply(lambda counts: self.at(answers, counts))


def with_spread(value: float, draws: np.ndarray, more: float, level: float) -> Interval:
    """A normal interval from the spread over test resamples and, beside it, over refitted heads."""
    plain = interval(value, draws, level)
    if np.isnan(plain.low):
        return plain
    half = float(norm.ppf((1 + level) / 2)) * float(np.hypot(np.nanstd(draws, ddof=1), more))
    return replace(plain, low=value - half, high=value + half)


def two_sided(excess: Interval, level: float) -> float:
    """The p-value of a normal test that the excess is 0."""
    if np.isnan(excess.low):
        return float("nan")
    sd = (excess.high - excess.low) / (2 * float(norm.ppf((1 + level) / 2)))
    if sd <= 0:
        return float("nan")
    return float(2 * norm.sf(abs(excess.value) / sd))


def _cell_accuracy(test: Side, guess: np.ndarray, counts: np.ndarray) -> np.ndarray:
    shares = groups.group_accuracy_draws(test.label, guess, test.attribute.values, counts)
    return np.nanmean(shares, axis=1)


def _label_effects(test: Side, counts: np.ndarray) -> np.ndarray:
    """`refit.label_effect` within the values of the attribute, in every resample: what the label does where the cue is fixed."""
    effects = []
    for value in np.unique(test.attribute.values):
        here = test.attribute.values == value
        for c in range(len(test.classes)):
            if len(np.unique(test.label[here] == c)) < 2:
                continue  # all rows of this value have the label, or none has: nothing to compare
            aligned: dict[Hashable, int] = {1: c}
            is_label = np.where(here, (test.label == c).astype(np.int64), -1)
            draws = groups.pull_draws(np.where(here, 0, -1), test.answers, is_label, aligned, counts)
            if not np.isnan(draws).all():
                effects.append(draws)
    if not effects:
        return np.full(len(counts), np.nan)
    return np.mean(effects, axis=0)


def _pull_within(only: np.ndarray, answers: np.ndarray, test: Side, aligned: Mapping[Hashable, int]) -> Any:
    return lambda counts: groups.pull_draws(only, answers, test.attribute.values, aligned, counts)
