"""Worlds in which an attribute goes with more than the label, on digits, eyes and real images.

A world is a set of images, cues painted on them (paint.py), and further attributes that stand in the table alone. What no pixel
shows cannot be used, whatever it goes with; what is painted is told by painting another value on the same test image.

kind of an attribute | what it is
shortcut             | painted, and goes with the label where the model is trained
independent          | painted, and goes with nothing
encoded, unused      | painted; the model also learns to tell it, where it goes with nothing
harder group         | painted, goes with nothing; images of one value are noisier
presentation         | in the table alone; within the label it goes with how strongly the label shows
proxy                | in the table alone; goes with a cue that is painted and goes with the label
prevalence           | in the table alone; goes with the label in every split, and within the label with nothing
annotation           | labels were given by it: in the table alone (a null), or painted (then a model learns it)
no cue               | in the table alone; goes with the label in the training rows, by chance as it were
four values, continuous | painted; a shortcut, or a null where it goes with nothing ("…, null")
several cues         | painted, one of several; "several cues, null" those that go with nothing
many images per subject | goes with nothing but is the same in all images of a subject: painted, or in the table alone
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.worlds import real
from benchmarks.worlds.kinds import AGREEMENTS, FRACTIONS, SIDE, TWO_TASKS, World
from benchmarks.worlds.paint import painted
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

from rightreasons.data import planted
from rightreasons.data.cohort import Cohort
from rightreasons.stats.resampling import task_rng

KINDS = (
    "shortcut", "independent", "shortcut", "encoded, unused", "shortcut", "harder group", "shortcut", "several cues", "shortcut",
    "no cue", "shortcut", "four values", "continuous", "annotation", "many images per subject",
)  # fmt: skip
"""In this order: most of the table's attributes need a cue that is used."""
BASES = {"planted": ("digits", "eyes"), "real": real.DATA_SETS}
CUES = {
    "digits": ("tag", "vignette", "temperature", "noise", "corner", "glare", "ruler"),
    "eyes": ("tag", "temperature", "noise", "ruler", "blur", "jpeg"),
    **dict.fromkeys(real.DATA_SETS, ("vignette", "jpeg", "temperature", "noise", "corner", "ruler", "glare", "blur")),
}
IMAGES_OF_A_SUBJECT = 8
FAINT = 0.25  # contrast of a lesion that hardly shows
FLIPPED = (0.15, 0.3)  # share of labels that an annotator's habit decides
TRUTH = "truth"  # column of adjudicated labels, where labels were given by an attribute
FITTED = ("train", "val")


def scene_worlds(count: int, seed: int, family: str, networks: Sequence[str]) -> list[World]:
    """Kinds, data sets and networks in turn: the beginning of the list is a fair sample.

    Parameters
    ----------
    family : planted or real
    """
    bases, found = BASES[family], []
    for number in range(count):
        rng = task_rng(seed, f"{family} scene {number}")
        lap = number // len(KINDS)
        base, network = bases[(number + lap) % len(bases)], networks[(number // len(bases) + lap) % len(networks)]
        kind = KINDS[number % len(KINDS)]
        found.append(_scene(kind, base, network, 10_000 * seed + number, rng))
    return found


def _scene(kind: str, base: str, network: str, seed: int, rng: np.random.Generator) -> World:
    given: dict[str, Any] = {
        "agreement": float(rng.choice(AGREEMENTS[1:])) if kind == "shortcut" else 0.9,
        "strength": float(rng.choice((0.5, 1.0))),
        "kept": bool(rng.random() < 0.5),  # audit and test rows keep the training rows' association
        "in table": bool(rng.random() < 0.5),  # the used cue is
        "binding": float(rng.choice((0.6, 0.9))),  # of presentation: correlation with how strongly the label shows
        "shares": float(rng.choice((0.5, 0.7, 0.85))),  # of presentation: how the attribute goes with the label itself
        "fidelity": float(rng.choice((0.75, 0.9))),  # of a proxy: in so many rows it is the cue
        "flipped": float(rng.choice(FLIPPED)),
        "null": bool(rng.random() < 0.5),  # of four values, continuous and several: nothing goes with the label
        "painted": bool(rng.random() < 0.5),  # of annotation: the habit shows in the image
    }
    cues = rng.permutation(CUES[base])
    cue = "none" if kind in ("no cue",) or (kind == "annotation" and not given["painted"]) else str(cues[0])
    given["truth told"] = kind == "annotation" and bool(rng.random() < 0.5)  # audits are told of the adjudicated labels
    given["cues"] = [str(c) for c in cues[: 3 if kind == "several cues" else 1]] if cue != "none" else []
    models = TWO_TASKS if kind == "encoded, unused" else "trained"
    is_null = kind in ("independent", "encoded, unused", "harder group", "no cue", "many images per subject")
    return World(kind, base, cue, network, seed, is_null, given, models, family="scene")


# ---- images --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Canvas:
    """Images before anything is painted on them.

    Attributes
    ----------
    images : (n, h, w, 3) uint8
    label : (n,) 0 or 1
    shows : (n,) how much the image looks like label 1, in any unit; within a label, sicker patients have more
    subject : (n,) of whom it is
    """

    images: np.ndarray
    label: np.ndarray
    shows: np.ndarray
    subject: np.ndarray


def canvas_of(world: World, folder: Path) -> Canvas:
    most = world.settings.get("n")
    if world.base == "digits":
        return _digits(folder, world.seed, most)
    if world.base == "eyes":
        return _eyes(folder, world.seed, most)
    found = real.photos(world.base, most)
    return Canvas(found.images, found.label, real.evidence(world.base, most), found.subject)


def _digits(folder: Path, seed: int, n: int | None) -> Canvas:
    """A digit with one of the other label showing through, more or less."""
    drawn = planted.digits(folder / "digits", cue="none", n=n, seed=seed)
    images, label = np.load(folder / "digits" / "images.npy").astype(np.float32), drawn.label
    rng = task_rng(seed, "morph")
    other = np.empty(len(label), np.int64)
    for value in (0, 1):
        other[label == value] = rng.choice(np.flatnonzero(label != value), (label == value).sum())
    share = rng.uniform(0.52, 1.0, len(label)).astype(np.float32)
    mixed = share[:, None, None, None] * images + (1 - share)[:, None, None, None] * images[other]
    return Canvas(np.rint(mixed).astype(np.uint8), label, np.where(label == 1, share, -share), np.arange(len(label)))


def _eyes(folder: Path, seed: int, n: int | None) -> Canvas:
    """Lesions between hardly visible and plain; healthy eyes have none, and nothing that shows."""
    stacks = []
    for name, contrast in (("faint", FAINT), ("plain", 1.0)):
        settings = {"n": n or 1797, "n_external": 0, "pixels": SIDE, "cue": "none", "seed": seed}
        drawn = planted.fundus(folder / name, lesion_contrast=contrast, **settings)
        stacks.append(np.load(folder / name / "images.npy").astype(np.float32))
    share = task_rng(seed, "contrast").random(len(drawn)).astype(np.float32)
    mixed = stacks[0] + share[:, None, None, None] * (stacks[1] - stacks[0])
    return Canvas(np.rint(mixed).astype(np.uint8), drawn.label, share, np.arange(len(drawn)))


def with_subjects(canvas: Canvas, seed: int) -> Canvas:
    """So many images of one label are of one subject, and share a tint."""
    rng = task_rng(seed, "subjects")
    subject = np.empty(len(canvas.label), np.int64)
    for value in (0, 1):
        rows = rng.permutation(np.flatnonzero(canvas.label == value))
        subject[rows] = 2 * (np.arange(len(rows)) // IMAGES_OF_A_SUBJECT) + value
    tint = rng.uniform(0.85, 1.1, (subject.max() + 1, 1, 1, 3)).astype(np.float32)
    images = np.rint(np.clip(canvas.images * tint[subject], 0, 255)).astype(np.uint8)
    return Canvas(images, canvas.label, canvas.shows, subject)


def splits_of(canvas: Canvas, seed: int) -> np.ndarray:
    """(n,) names; a subject lies in one split, subjects of each label in fixed shares."""
    rng = task_rng(seed, "splits")
    names, first, of = np.unique(canvas.subject, return_index=True, return_inverse=True)
    found = np.empty(len(names), object)
    for value in (0, 1):
        members = rng.permutation(np.flatnonzero(canvas.label[first] == value))
        place = (np.arange(len(members)) + 0.5) / max(len(members), 1)
        found[members] = np.array(list(FRACTIONS), object)[np.searchsorted(np.cumsum(list(FRACTIONS.values())) - 1e-9, place)]
    return found[of]


# ---- attributes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Told:
    """One attribute of a world.

    Attributes
    ----------
    kind : of the null, or of the shortcut
    values : (n,) as the table has them; `free` as the balanced references saw them, `twin` of the twin images
    cue : how it is painted; empty where no pixel shows it
    in_table : whether audits are told of it
    used : for a proxy, the name of the cue that it goes with
    """

    name: str
    kind: str
    is_null: bool
    values: np.ndarray
    free: np.ndarray
    twin: np.ndarray | None = None
    cue: str = ""
    levels: int = 2  # 0 is continuous
    in_table: bool = True
    used: str = ""

    @property
    def is_painted(self) -> bool:
        return bool(self.cue)

    def look(self, values: np.ndarray) -> np.ndarray:
        """(n,) from 0 to 1."""
        return values / max(self.levels - 1, 1)


@dataclass(frozen=True)
class Drawn:
    """A world's rows: what was drawn before it is painted and written."""

    canvas: Canvas
    label: np.ndarray  # as given to the models
    split: np.ndarray
    attributes: tuple[Told, ...]
    more: Mapping[str, np.ndarray] = field(default_factory=dict)  # columns of the table that are no attribute


def drawn_of(world: World, folder: Path) -> Drawn:
    canvas = canvas_of(world, folder)
    if world.kind == "many images per subject":
        canvas = with_subjects(canvas, world.seed)
    draw = _Draw(world, canvas, splits_of(canvas, world.seed))
    if world.kind == "annotation":
        return draw.annotation()
    if world.kind == "many images per subject":
        return Drawn(canvas, canvas.label, draw.split, draw.of_subjects())
    cues = draw.cues()
    return Drawn(canvas, canvas.label, draw.split, (*cues, *draw.table(cues)))


@dataclass(frozen=True)
class _Draw:
    world: World
    canvas: Canvas
    split: np.ndarray

    @property
    def given(self) -> Mapping[str, Any]:
        return self.world.settings

    @property
    def n(self) -> int:
        return len(self.split)

    @property
    def fitted(self) -> np.ndarray:
        return np.isin(self.split, FITTED)

    def rng(self, task: str) -> np.random.Generator:
        return task_rng(self.world.seed, f"{self.world.name} {task}")

    def cues(self) -> list[Told]:
        """The painted ones."""
        kind, given = self.world.kind, self.given
        found = []
        for k, cue in enumerate(given["cues"]):
            agreement, of, is_null = given["agreement"], kind, self.world.is_null
            if kind in ("independent", "harder group"):
                agreement = 0.5
            elif kind == "several cues":
                agreement = (0.9, 0.5, 0.75)[k]
                of, is_null = ("several cues, null", True) if agreement == 0.5 else (kind, False)
            elif kind in ("four values", "continuous") and given["null"]:
                agreement, of, is_null = 0.5, f"{kind}, null", True
            levels = {"four values": 4, "continuous": 0}.get(kind, 2)
            in_table = given["in table"] or kind != "shortcut"
            found.append(self.cue(f"cue {k}" if k else "cue", cue, of, is_null, agreement, levels, in_table))
        return found

    def cue(self, name: str, cue: str, kind: str, is_null: bool, agreement: float, levels: int, in_table: bool) -> Told:
        rng = self.rng(name)
        kept = self.given["kept"] and self.world.models != TWO_TASKS
        share = np.where(self.fitted | kept, agreement, 0.5)
        values = _going_with(self.canvas.label, share, levels, rng)
        free = np.where(self.fitted, _going_with(self.canvas.label, np.full(self.n, 0.5), levels, rng), values)
        twin = 1 - values if levels in (0, 2) else (values + 1 + rng.integers(0, levels - 1, self.n)) % levels
        return Told(name, kind, is_null, values, free, twin, cue, levels, in_table)

    def table(self, cues: Sequence[Told]) -> list[Told]:
        """Those that no pixel shows: presentation always, and two of the others in turn."""
        used = [cue for cue in cues if not cue.is_null and cue.levels == 2][:1]
        others = ["proxy"] * bool(used) + list(self.rng("which").permutation(["prevalence", "no cue"]))
        found = [self.presentation()]
        for kind in others[:2]:
            if kind == "proxy":
                found.append(self.proxy(used[0]))
            else:
                found.append(self.associated(kind, everywhere=kind == "prevalence"))
        return found

    def presentation(self) -> Told:
        """Within the label the attribute is 1 where label 1 shows more, in a share of rows that goes with the label."""
        rng, label = self.rng("presentation"), self.canvas.label
        bound = self.given["binding"]
        leaning = np.empty(self.n)
        for value in (0, 1):
            rows = label == value
            place = (rankdata(self.canvas.shows[rows] + 1e-9 * rng.random(rows.sum())) - 0.5) / rows.sum()
            if self.world.base == "eyes" and value == 0:
                place = rng.random(rows.sum())  # nothing shows in a healthy eye
            leaning[rows] = bound * ndtri(place) + np.sqrt(1 - bound**2) * rng.standard_normal(rows.sum())
        share = np.where(label == 1, self.given["shares"], 1 - self.given["shares"])
        values = (ndtr(leaning) > 1 - share).astype(int)
        return self.unseen("presentation", values, rng)

    def proxy(self, cue: Told) -> Told:
        """In so many rows it is the cue, in the others it is drawn at random."""
        rng = self.rng("proxy")
        is_cue = rng.random(self.n) < 2 * self.given["fidelity"] - 1
        values = np.where(is_cue, cue.values, rng.integers(0, 2, self.n)).astype(int)
        return self.unseen("proxy", values, rng, used=cue.name)

    def associated(self, kind: str, everywhere: bool) -> Told:
        rng = self.rng(kind)
        share = np.where(self.fitted | everywhere, 0.85, 0.5)
        return self.unseen(kind, _going_with(self.canvas.label, share, 2, rng), rng)

    def unseen(self, kind: str, values: np.ndarray, rng: np.random.Generator, used: str = "") -> Told:
        free = np.where(self.fitted, rng.integers(0, 2, self.n), values)
        return Told(kind, kind, True, values, free, used=used)

    def annotation(self) -> Drawn:
        """The given label is the attribute's in a share of the rows; the truth stays in a column."""
        rng, given = self.rng("annotation"), self.given
        values = rng.integers(0, 2, self.n)
        label = np.where(rng.random(self.n) < given["flipped"], values, self.canvas.label)
        free = np.where(self.fitted, rng.integers(0, 2, self.n), values)
        kind = "annotation, painted" if given["cues"] else "annotation"
        cue = given["cues"][0] if given["cues"] else ""
        twin = 1 - values if cue else None
        told = Told("cue", kind, not cue, values, free, twin, cue)
        return Drawn(self.canvas, label, self.split, (told,), {TRUTH: self.canvas.label})

    def of_subjects(self) -> tuple[Told, ...]:
        """One painted and one that no pixel shows, each a coin for every subject."""
        rng, of = self.rng("subjects"), self.canvas.subject
        painted_, unseen = (rng.integers(0, 2, of.max() + 1)[of] for _ in range(2))
        kind = self.world.kind
        cue = Told("cue", kind, True, painted_, painted_, 1 - painted_, self.given["cues"][0])
        return cue, Told("ward", kind, True, unseen, unseen)


def _going_with(label: np.ndarray, share: np.ndarray, levels: int, rng: np.random.Generator) -> np.ndarray:
    """Values of which one half goes with each label, in so large a share of rows."""
    side = np.where(rng.random(len(label)) < share, label, 1 - label)
    if levels == 0:
        return np.round((side + rng.random(len(label))) / 2, 4)
    half = levels // 2
    return side * half + rng.integers(0, half, len(label))


# ---- painting and writing ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cohorts:
    """As an audit sees the rows; with every attribute of the fitted rows drawn again; and the twins, by painted attribute."""

    hidden: Cohort
    free: Cohort
    twins: dict[str, Cohort]
    attributes: dict[str, Told]


def cohorts_of(world: World, folder: Path) -> Cohorts:
    """Paint and write."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = drawn_of(world, folder)
    painting = _Painting(world, drawn, [told for told in drawn.attributes if told.is_painted])
    images = painting.images()
    np.save(folder / "images.npy", images)
    writing = _Writing(folder, drawn)
    hidden = writing.cohort("images.npy", {told.name: told.values for told in drawn.attributes if told.in_table})
    if not hidden.attributes:
        raise ValueError(f"{world.name} has no attribute in its table")
    if painting.cues:
        np.save(folder / "free.npy", painting.images({told.name: told.free for told in painting.cues}, harder="free"))
    free_values = {told.name: told.free for told in drawn.attributes if told.in_table or told.is_painted}
    free = writing.cohort("free.npy" if painting.cues else "images.npy", free_values)
    test = drawn.split == "test"
    twins = {}
    for told in painting.cues:
        name = f"twins-{zlib.crc32(told.name.encode())}.npy"
        np.save(folder / name, painting.images({told.name: told.twin}, test))
        twins[told.name] = writing.twins(told, name, test)
    return Cohorts(hidden, free, twins, {told.name: told for told in drawn.attributes})


@dataclass(frozen=True)
class _Painting:
    world: World
    drawn: Drawn
    cues: Sequence[Told]

    def images(
        self, changed: Mapping[str, Any] | None = None, rows: np.ndarray | None = None, harder: str = "values"
    ) -> np.ndarray:
        """The canvas with every cue; of some, other values; of some rows only. A twin is as hard as its image."""
        given, canvas = self.world.settings, self.drawn.canvas.images
        shown = canvas
        if self.world.kind == "harder group":
            grain = 255 * 0.15 * task_rng(self.world.seed, "harder").standard_normal(canvas.shape, np.float32)
            noisy = np.clip(canvas + grain * (getattr(self.cues[0], harder) == 1)[:, None, None, None], 0, 255)
            shown = np.rint(noisy).astype(np.uint8)
        for k, told in enumerate(self.cues):
            values = (changed or {}).get(told.name, told.values)
            look = given["strength"] * told.look(np.asarray(values, dtype=float))
            shown = painted(shown, told.cue, look, self.world.seed + 7919 * (k + 1))
        return shown if rows is None else shown[rows]


@dataclass(frozen=True)
class _Writing:
    folder: Path
    drawn: Drawn

    def cohort(self, stack: str, attributes: Mapping[str, np.ndarray]) -> Cohort:
        return self._cohort(np.ones(len(self.drawn.split), bool), stack, attributes)

    def twins(self, told: Told, stack: str, rows: np.ndarray) -> Cohort:
        """The named rows, each with its twin: the same but for one cue."""
        more = {"twin": [f"{stack}#{row}" for row in range(rows.sum())], "twin value": told.twin[rows]}  # type: ignore[index]
        parts = {"twin": "twin", "twin_attribute": {told.name: "twin value"}}
        return self._cohort(rows, "images.npy", {told.name: told.values}, more, **parts)

    def _cohort(
        self,
        rows: np.ndarray,
        stack: str,
        attributes: Mapping[str, np.ndarray],
        more: Mapping[str, Any] | None = None,
        **parts: Any,
    ) -> Cohort:
        drawn, at = self.drawn, np.flatnonzero(rows)
        columns: dict[str, Any] = {
            "id": [f"row-{row:05d}" for row in at],
            "image": [f"{stack}#{row}" for row in at],
            "label": drawn.label[rows],
            "split": drawn.split[rows],
            **(more or {}),
        }
        for name, values in {**attributes, **drawn.more}.items():
            columns[name] = values[rows]
        if len(np.unique(drawn.canvas.subject)) < len(drawn.split):
            columns["subject"], parts["subject"] = drawn.canvas.subject[rows], "subject"
        kinds = {told.name: "categorical" if told.levels else "continuous" for told in drawn.attributes}
        kinds = {name: kind for name, kind in kinds.items() if name in attributes}
        return Cohort.from_columns(
            columns, label="label", attribute=list(attributes), split="split", kinds=kinds, root=str(self.folder), **parts
        )
