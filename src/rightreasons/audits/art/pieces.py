"""The pieces of what ART keeps of one model: rates and their changes, gates, the curve, controls, ablations, probes, layers.

WGA is worst-group accuracy and CSR the conflict shortcut rate (sec. 4). Errors on aligned rows stand beside them: with two labels
every error on a conflicting row follows the attribute, so noise alone raises CSR, and it raises these errors as much.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rightreasons.stats.resampling import Interval

CONTROLS = {
    "shuffled": "shuffled attribute",
    "forced": "shuffled attribute, gate forced open",
    "direction": "random direction",
    "subspace": "random subspace",
}
"""Field of `Controls` → its name on the page (Table 5)."""


@dataclass(frozen=True)
class Model:
    """The audited model; `method` is its regime, with that of the model it went on from: `art_head_neggrad`."""

    name: str
    method: str
    architecture: str
    seed: int | None


@dataclass(frozen=True)
class Association:
    """What is held together, in the manifest's words.

    Attributes
    ----------
    classes, values : of the gates' rows and columns
    aligned : π, the label that each attribute value stands for; empty where no value stands for one
    source : where π comes from, or why there is none
    """

    attribute: str
    label: str
    classes: tuple[str, ...]
    values: tuple[str, ...]
    aligned: str
    source: str


@dataclass(frozen=True)
class Counts:
    """How many rows each step had; `missing` lack the label or the attribute. `outputs` are those that the model gives."""

    n: int
    n_subjects: int | None
    n_find: int
    n_gate: int
    n_conflict: int
    outputs: int
    missing: int
    missing_audit: int
    twins: bool


@dataclass(frozen=True)
class HeadAsData:
    """`agreement` is the share of test rows on which it decides what the stored logits say; 1 where there are none."""

    is_linear: bool
    agreement: float


@dataclass(frozen=True)
class Gates:
    """Whether a direction may be amplified, (C, A) by class and attribute value.

    Attributes
    ----------
    T : separation of the value from the rest of its class
    found, counts : rows of the group on which the direction was found and gated
    reason : why a gate is closed
    """

    T: np.ndarray
    found: np.ndarray
    counts: np.ndarray
    open: np.ndarray
    reason: tuple[tuple[str, ...], ...]

    @property
    def is_open(self) -> bool:
        """Whether any gate is."""
        return bool(self.open.any())

    @property
    def open_classes(self) -> int:
        return int(self.open.any(axis=1).sum())

    @property
    def largest_T(self) -> float:
        return float(np.nanmax(self.T, initial=0.0))


@dataclass(frozen=True)
class Rates:
    wga: Interval
    csr: Interval


@dataclass(frozen=True)
class Change:
    """What an intervention does: drop of WGA, gain of CSR, gain of errors on aligned rows.

    `excess` is the gain of CSR less the gain of errors on aligned rows.
    """

    wga: Interval
    csr: Interval
    aligned: Interval
    excess: Interval


@dataclass(frozen=True)
class Changes:
    """`Change` of several interventions, in their order."""

    wga: tuple[Interval, ...]
    csr: tuple[Interval, ...]
    aligned: tuple[Interval, ...]
    excess: tuple[Interval, ...]

    def __getitem__(self, k: int) -> Change:
        return Change(self.wga[k], self.csr[k], self.aligned[k], self.excess[k])

    def __len__(self) -> int:
        return len(self.wga)


@dataclass(frozen=True)
class BetaCurve:
    """Restoring with every strength; `main` is the place of the one that decides among `betas` (b,)."""

    betas: np.ndarray
    main: int
    wga: tuple[Interval, ...]
    csr: tuple[Interval, ...]
    aligned: tuple[Interval, ...]
    change: Changes

    @property
    def beta(self) -> float:
        return float(self.betas[self.main])


@dataclass(frozen=True)
class Swing:
    """How far decisions follow the attribute when its part of the features is amplified, and when it is turned round.

    Following is CSR less errors on aligned rows; the swing is half of what lies between -beta and beta.

    Attributes
    ----------
    betas : (b,) strengths of the curves
    model, refitted : how far decisions of the model's head and of the refitted one follow, with every strength
    value, refitted_value, excess : the swing of both heads, and the difference
    accuracy : of the refitted head, mean over the groups
    p : of the swing against the shuffled attribute with its own gates, one-sided
    shuffled : (D,) the swing under shuffles
    cosine : largest cosine of an open direction with the space of the class means; NaN where none is open
    open_classes : classes with an open gate
    smallest, needed : audit rows on the smaller side of the smallest contrast, and how many a gate asks for
    guard : why there is no refitted head, where there is none
    """

    betas: np.ndarray
    beta: float
    model: tuple[Interval, ...]
    refitted: tuple[Interval, ...]
    value: Interval
    refitted_value: Interval
    excess: Interval
    accuracy: Interval
    p: float
    shuffled: np.ndarray
    cosine: float
    open_classes: int
    smallest: int
    needed: int
    guard: str

    @property
    def has_looked(self) -> bool:
        return not math.isnan(self.value.low)


@dataclass(frozen=True)
class Draws:
    """The three changes in many draws of a control: arrays of one shape."""

    wga: np.ndarray
    csr: np.ndarray
    aligned: np.ndarray


@dataclass(frozen=True)
class Control:
    """One control.

    Attributes
    ----------
    draws : (D,) at the strength that decides
    wga_band, csr_band, aligned_band : (b, 3) mean, 5 % and 95 % of the draws with every strength; NaN where not evaluated
    """

    draws: Draws
    wga_band: np.ndarray
    csr_band: np.ndarray
    aligned_band: np.ndarray


@dataclass(frozen=True)
class Controls:
    """The controls of Table 5; `shuffled`, which has its own gate, decides.

    Attributes
    ----------
    closed_share : of the shuffles, those that closed every gate
    exchangeable : subjects (rows where there are none) that a shuffle can give another value
    reason : why the shuffles decide nothing; empty if they do
    """

    shuffled: Control
    forced: Control
    direction: Control
    subspace: Control
    closed_share: float
    exchangeable: int
    reason: str

    @property
    def number(self) -> int:
        """Draws of each."""
        return len(self.shuffled.draws.csr)

    def named(self) -> Iterator[tuple[str, Control]]:
        """(name on the page, control)."""
        for field, name in CONTROLS.items():
            yield name, getattr(self, field)


@dataclass(frozen=True)
class Shares:
    """A share before and after restoring, of named sets of test rows."""

    name: tuple[str, ...]
    size: np.ndarray
    before: tuple[Interval, ...]
    after: tuple[Interval, ...]


@dataclass(frozen=True)
class Groups:
    """Accuracy of every group (label and attribute), and the shortcut rate of every value that stands for a label.

    `worst` is the worst group before restoring; `left_out` are those too small to be it.
    """

    accuracy: Shares
    rate: Shares
    worst: str
    left_out: str


@dataclass(frozen=True)
class Ablations:
    """One step changed at a time (sec. 5.5, Table 6)."""

    step: tuple[str, ...]
    name: tuple[str, ...]
    change: Changes


@dataclass(frozen=True)
class LabelDirection:
    """Restoring along what the attribute leaves of the label's direction; `overlap` is the cosine of the two."""

    change: Change
    overlap: float


@dataclass(frozen=True)
class ProbeReading:
    """Balanced accuracy of a probe, its chance level, and the line from which the attribute counts as readable."""

    accuracy: Interval
    chance: float
    line: float


@dataclass(frozen=True)
class Probes:
    """What readouts of the features say of the attribute (sec. 5.2, Table 3): one entry for each kind and target."""

    kind: tuple[str, ...]
    target: tuple[str, ...]
    accuracy: tuple[Interval, ...]
    chance: np.ndarray
    line: np.ndarray
    converged: bool

    def read(self, kind: str = "linear", target: str = "class-conditional") -> ProbeReading:
        k = list(zip(self.kind, self.target, strict=True)).index((kind, target))
        return ProbeReading(self.accuracy[k], float(self.chance[k]), float(self.line[k]))


@dataclass(frozen=True)
class Projection:
    """(k, 2) some rows before and after restoring, on the two leading components of both, and the group of each."""

    before: np.ndarray
    after: np.ndarray
    group: tuple[str, ...]


@dataclass(frozen=True)
class Pictures:
    """(k, 2, h, w, 3) images with Grad-CAM before and after; `missing` says why there are none where they were asked for."""

    images: np.ndarray
    captions: tuple[str, ...]
    missing: str


@dataclass(frozen=True)
class Layers:
    """ART inside the network, at each of L layers.

    Attributes
    ----------
    lacking : layers that were asked for and are not in the evidence
    width : (L,) channels
    open : (L,) classes with an open gate
    T : (L,) largest separation
    shuffled : (L, D) changes under shuffles of the attribute
    p : (L,) of the gain of CSR against them
    probe : linear probe within label
    """

    name: tuple[str, ...]
    lacking: tuple[str, ...]
    width: np.ndarray
    open: np.ndarray
    T: np.ndarray
    change: Changes
    shuffled: Draws
    p: np.ndarray
    probe: tuple[Interval, ...]
