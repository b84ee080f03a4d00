"""ART, the association restoration test: is a shortcut that the decisions no longer show still usable by the model's own head?

Find class-conditional attribute directions in the features, gate the unreliable ones, amplify what is left of them in each test
row, and read the result with the original head. Controls run the same procedure on a shuffled attribute; probes beside it say
whether the attribute is readable at all.

| paper | function |
|---|---|
| sec. 3, Find | `stats.restoration.find` |
| sec. 3, Gate | `stats.restoration.gate` |
| sec. 3, Restore | `stats.restoration.restore`; under the head `procedure.restore_test_rows` |
| sec. 4, protocol (two halves of the audit rows, test rows) | `rows.read_rows` |
| sec. 4, WGA and CSR; sec. 5.3, Δ_WGA and Δ_CSR | `procedure.Stage.numbers`, `measure.deciding_change` |
| sec. 5.2, Table 3: probes | `measure.read_probes` |
| sec. 5.4, taxonomy | `judge.Judged.taxonomy` |
| sec. 5.5, Table 5: controls | `controls.run_controls` |
| sec. 5.5, Table 6: ablations | `procedure.ablations_of` |
| sec. 5.6, timestamp shortcut rate | `page`, shortcut rate by attribute value, with `twins=True` |
| Tables 2 to 7, methods side by side | `comparison` |
| sec. 5.7, ART-head | `mitigations.art_head` |
| – : swing, both ways and against a head that gains nothing (ours, decides by default) | `swing.measure_swing` |
| – : verdict (ours) | `judge.judge` |
| – : earlier layers (ours) | `layers.measure_layers` |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rightreasons.audits._contract import Context, Need, Role
from rightreasons.audits.art import layers, page
from rightreasons.audits.art.checks import checks
from rightreasons.audits.art.judge import Judged, Measurement, by_method
from rightreasons.audits.art.measure import measure
from rightreasons.audits.art.settings import Settings
from rightreasons.families import with_settings
from rightreasons.findings import Finding, Row, Verdict
from rightreasons.stats.groups import aligned_label
from rightreasons.stats.restoration import Directions, find, gate, restore

__all__ = [
    "QUESTION", "ROW", "Directions", "Measurement", "Result", "Settings", "aligned_label", "conclude", "find", "gate", "measure",
    "needs", "restore", "roles",
]  # fmt: skip

QUESTION = "Can an association that the decisions may no longer show be brought back under the model's own head?"
ROW: Row = "reliance"
READS_HEAD = True
COMPARES_GROUPS = True
ALIKE = "last layer"  # the swing is nearly the number of other audits that fit the last layer again


@with_settings(Settings)
def needs(settings: Settings) -> tuple[Need, ...]:
    read = [*_needs_of("test", settings, optional=False), *_needs_of("panel", settings, optional=True)]
    if settings.pictures:
        read.append(Need("test", "test", "spatial", True))
    for array in layers.audit_arrays(settings):
        read.append(Need("test", "audit", array, True))
    for array in layers.test_arrays(settings):
        read.append(Need("test", "test", array, True))
    if settings.twins and settings.layers:
        for array in ("logits", *layers.test_arrays(settings)):
            read.append(Need("test", "twin", array, True))
    return tuple(read)


def _needs_of(role: str, settings: Settings, optional: bool) -> list[Need]:
    cohorts = ("audit", "test", "twin") if settings.twins else ("audit", "test")
    features = [Need(role, cohort, "features", optional) for cohort in cohorts]
    return [*features, Need(role, "audit", "logits", True), Need(role, "test", "logits", True)]


def roles() -> tuple[Role, ...]:
    return ()


def conclude(measurements: Mapping[str, Sequence[Measurement]], *, rng: np.random.Generator) -> Result:
    """Judge each method: the models of `test`, then those of `panel`; seeds of one method together."""
    members = [*measurements.get("test", ()), *measurements.get("panel", ())]
    counts = members[0].counts
    context = Context(attribute=members[0].association.attribute, n_rows=counts.n, n_subjects=counts.n_subjects)
    return Result(tuple(by_method(members)), context)


@dataclass(frozen=True)
class Result:
    """What ART says: of the tested model or its seeds, and of every other method given beside it.

    The verdict is that of the first method of the role `test`.
    """

    methods: tuple[Judged, ...]
    context: Context = field(default_factory=Context)

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        return tuple(m for method in self.methods for m in method.members)

    @property
    def verdict(self) -> Verdict:
        return self.methods[0].verdict

    @property
    def taxonomy(self) -> str:
        """Restorable shortcut, probe miss, functional decoupling, representational deletion; empty where none can be said."""
        return self.methods[0].taxonomy

    def finding(self) -> Finding:
        return self._finding(self.methods[0])

    def findings(self) -> list[Finding]:
        """One finding per method, each with the comparison of all; the names end in the method where there are several."""
        if len(self.methods) == 1:
            return [self.finding()]
        return [
            self._finding(method).model_copy(update={"name": f"{self.context.name}-{method.name}", "model": method.name})
            for method in self.methods
        ]

    def _finding(self, judged: Judged) -> Finding:
        return self.context.finding(
            question=QUESTION,
            row=ROW,
            verdict=judged.verdict,
            sentence=page.sentence(judged),
            estimates=page.estimates(judged),
            checks=checks(judged),
            exhibits=page.exhibits(judged, self.methods),
            alike=ALIKE if judged.reading == "swing" else "",
        )
