"""Focus: where does a map of importance lie, inside the image's region or at its rim, and how spread out is it?

Retinal focus score, peripheral activation ratio and entropy (SDI, sec. V-J). A sanity check that describes: a map at the rim does
not prove that the rim is used, so the verdict is None.

| paper | function |
|---|---|
| eq. 20, 21, attention mass | `attention_mass` |
| eq. 22, retinal focus score | `focus_score` |
| eq. 23, peripheral ratio | `peripheral_ratio`, `peripheral_ring` |
| eq. 24, entropy | `entropy` |
| eq. 25, 26, means over images | `measure` |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy import ndimage

from rightreasons.audits import _overlay as drawing
from rightreasons.audits._contract import Context, Need, Role
from rightreasons.errors import DataError, EvidenceError, NotRun, SettingError
from rightreasons.evidence import Evidence, Recipe, View
from rightreasons.families import suggest, with_settings
from rightreasons.findings import (
    MAX_PICTURES,
    Bars,
    Cell,
    Check,
    Curves,
    Estimate,
    Exhibit,
    Finding,
    Gallery,
    Picture,
    Row,
    Table,
)
from rightreasons.stats.bootstrap_means import column_means
from rightreasons.stats.profiles import interpolation
from rightreasons.stats.resampling import Interval

QUESTION = "Does the map of importance lie in the image's region, or at its rim?"
ROW: Row = "place"

REGIONS = {"fov": "the field of view", "mask": "the mask", "box": "the boxes"}
REASONS = ("", "no positive value in the map", "no region", "the region is the whole frame", "the region is empty")
DEFINED, NOTHING_POSITIVE, NO_REGION, WHOLE_FRAME, EMPTY_REGION = range(len(REASONS))
REGION_KNOWN, MAPS_POSITIVE = "region-known", "maps-positive"  # ids of the checks
FEW_BLANK = 0.01  # share of the maps that may have nothing positive
BLOCK = 256  # images enlarged at once
BINS = 20


def needs(maps: str = "gradcam", region: str = "fov", cell: int = 4) -> tuple[Need, ...]:
    """Maps, and the region in cells of `cell` pixels; without a region only the entropy is known."""
    return (
        Need("test", "test", _map_array(maps)),
        Need("test", "test", _region_array(region, cell), optional=True),
    )


def roles() -> tuple[Role, ...]:
    return ()


# ---- the formulas --------------------------------------------------------------------------------------------------------


def attention_mass(maps: ArrayLike) -> np.ndarray:
    """Positive part of each map scaled to sum 1 (eq. 20, 21), (n, *space); NaN where nothing is positive."""
    values = np.asarray(maps, dtype=np.float64)
    if values.ndim < 2:
        raise DataError(f"found maps of shape {values.shape}; give (n, *space), the first axis images")
    positive = np.maximum(values, 0)
    total = positive.reshape(len(values), -1).sum(axis=1).reshape(-1, *(1,) * (values.ndim - 1))
    return np.divide(positive, total, out=np.full(values.shape, np.nan), where=total > 0)


def focus_score(mass: ArrayLike, region: ArrayLike) -> np.ndarray:
    """RFS (eq. 22), (n,): share of the mass inside the region, both (n, *space); a region may cover parts of cells."""
    return _sums(np.asarray(mass, dtype=np.float64) * np.asarray(region, dtype=np.float64))


def peripheral_ratio(mass: ArrayLike, region: ArrayLike, ring: ArrayLike) -> np.ndarray:
    """PAR (eq. 23), (n,): mass in the ring over mass in the region; NaN where the region has none."""
    inside = focus_score(mass, region)
    with np.errstate(invalid="ignore"):
        return np.divide(focus_score(mass, ring), inside, out=np.full(len(inside), np.nan), where=inside > 0)


def entropy(mass: ArrayLike) -> np.ndarray:
    """Shannon entropy of the mass over its largest possible value (eq. 24), (n,) in [0, 1]; 0 is one cell, 1 evenly spread."""
    values = np.asarray(mass, dtype=np.float64)
    cells = int(np.prod(values.shape[1:]))
    if cells < 2:
        return np.full(len(values), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(values > 0, values * np.log(values), np.where(np.isnan(values), np.nan, 0.0))
    return np.abs(-_sums(terms) / np.log(cells))


def peripheral_ring(region: ArrayLike, width: float = 0.1) -> np.ndarray:
    """The rim of each region, (n, *space) bool: cells within `width` times its radius of its boundary.

    The radius is that of a disc (ball) of the same size. The frame of the image is no boundary, so a region that is the whole
    frame has no rim. The rim is at least one cell wide.
    """
    inside = np.asarray(region)
    if inside.dtype != bool or inside.ndim < 2:
        raise DataError(f"found a region of type {inside.dtype} and shape {inside.shape}; give booleans (n, *space)")
    axes = inside.ndim - 1
    ring = np.zeros(inside.shape, dtype=bool)
    for k, cells in enumerate(inside):
        if cells.any() and not cells.all():
            radius = _radius(cells.sum(), axes)
            # Distances run between centres of cells; half a cell lies between a centre and the edge.
            ring[k] = cells & (ndimage.distance_transform_edt(cells) - 0.5 <= max(width * radius, 0.5))
    return ring


def _radius(size: np.integer, axes: int) -> float:
    """Radius of the interval, disc or ball of this size."""
    if axes == 1:
        return float(size / 2)
    if axes == 2:
        return float((size / np.pi) ** 0.5)
    return float((3 * size / (4 * np.pi)) ** (1 / 3))


def _sums(values: np.ndarray) -> np.ndarray:
    """Sum over everything but images, (n,)."""
    total: np.ndarray = values.reshape(len(values), -1).sum(axis=1)
    return total


# ---- one model -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """How one model is measured.

    Attributes
    ----------
    maps : an attribution with its settings, such as `gradcam(layer=layer4)`, or the whole name of an array
    region : the computed field of view ("fov"), the "mask", or the united boxes ("box")
    cell : side in pixels of the cells at which maps and regions meet; 1 is the input's own resolution
    width : of the rim, as a share of the region's radius
    B, level : resamples of the images, and level of the intervals
    pictures : in the gallery
    same : show the same images of every model, evenly through the rows; else those with the least mass inside, and others
    """

    maps: str = "gradcam"
    region: str = "fov"
    cell: int = 4
    width: float = 0.1
    B: int = 10_000
    level: float = 0.95
    pictures: int = 12
    same: bool = False


@dataclass(frozen=True)
class Scores:
    """The scores of every image, (n,) each; NaN where undefined.

    Attributes
    ----------
    focus, peripheral, entropy : RFS, PAR and entropy
    area, rim : share of the frame that the region covers, and share of the region that its rim covers: what an even map has
    reason : why RFS and PAR are undefined, numbers into `REASONS`
    """

    focus: np.ndarray
    peripheral: np.ndarray
    entropy: np.ndarray
    area: np.ndarray
    rim: np.ndarray
    reason: np.ndarray


@dataclass(frozen=True)
class Means:
    """Means of the scores over the images that have them (eq. 25, 26)."""

    focus: Interval
    peripheral: Interval
    entropy: Interval
    area: Interval
    rim: Interval


@dataclass(frozen=True)
class Shown:
    """Pictures (k, h, w, 3) of some images with their maps, their captions, and their rows."""

    images: np.ndarray
    captions: tuple[str, ...]
    row: np.ndarray


NONE_SHOWN = Shown(drawing.NONE, (), np.zeros(0, np.int64))


@dataclass(frozen=True)
class Measurement:
    """Focus of one model's maps.

    Attributes
    ----------
    n_subjects : None where subjects are not known
    left_out : test rows that the model was fitted or tuned on
    no_region, no_pictures : why there are none
    """

    model: str
    maps: str
    region: str
    width: float
    id: np.ndarray
    scores: Scores
    n: int
    n_subjects: int | None
    left_out: int
    no_region: str
    mean: Means
    shown: Shown
    no_pictures: str


@with_settings(Settings)
def measure(evidence: Evidence, *, rng: np.random.Generator, settings: Settings) -> Measurement:
    """RFS, PAR and entropy of the test images, and their means."""
    _check_settings(settings)
    maps, region = _map_array(settings.maps), _region_array(settings.region, settings.cell)
    view = evidence.on("test")
    if not len(view):
        raise NotRun("no test row is left to measure")
    if maps not in view:
        raise NotRun(f"{maps!r} is not in the evidence of {evidence.card.name} on test: extract it")
    no_region = ""
    if region not in view:
        no_region = f"{region!r} is not in the evidence"
    if no_region:
        region = ""
    scores, subject = score_images(view, maps, region, settings.width), view.cohort.subject
    columns = {}
    for mean in dataclasses.fields(Means):
        columns[mean.name] = getattr(scores, mean.name)
    means = column_means(columns, rng=rng, subject=subject, B=settings.B, level=settings.level)
    rows = _rows_to_show(scores, bool(region), settings)
    shown, no_pictures = _draw(evidence, view, maps, region, rows)
    return Measurement(
        model=evidence.card.name,
        maps=maps,
        region=settings.region,
        width=settings.width,
        id=np.array(view.cohort.id, dtype=np.str_),
        scores=scores,
        n=len(view),
        n_subjects=None if subject is None else len(set(subject)),
        left_out=view.left_out,
        no_region=no_region,
        mean=Means(**means),
        shown=shown,
        no_pictures=no_pictures,
    )


def score_images(view: View, maps: str, region: str, width: float) -> Scores:
    """The scores of all images, a block at a time: enlarged maps of all images would not fit memory.

    `region` is the array of regions, empty where there is none.
    """
    blocks = list(_block_scores(view, maps, region, width))
    columns = {}
    for column in dataclasses.fields(Scores):
        columns[column.name] = np.concatenate([getattr(block, column.name) for block in blocks])
    return Scores(**columns)


def _block_scores(view: View, maps: str, region: str, width: float) -> Iterator[Scores]:
    for start in range(0, len(view), BLOCK):
        rows = view.select(np.arange(start, min(start + BLOCK, len(view))))
        values = rows[maps].astype(np.float64)
        if not region:
            yield _scores_without_region(values)
            continue
        share = rows[region].astype(np.float64)
        if share.ndim != values.ndim:
            raise EvidenceError(f"{maps!r} has maps of {values.ndim - 1} axes and {region!r} has {share.ndim - 1}: extract again")
        yield _scores_with_region(values, share, width)


def _scores_without_region(values: np.ndarray) -> Scores:
    unknown = np.full(len(values), np.nan)
    reason = np.full(len(values), NO_REGION, np.int8)
    return Scores(unknown, unknown, entropy(attention_mass(values)), unknown, unknown, reason)


def _scores_with_region(values: np.ndarray, share: np.ndarray, width: float) -> Scores:
    """Scores of maps (n, *space) against the share of every cell that the region covers, (n, *cells)."""
    mass = attention_mass(enlarge(values, share.shape[1:]))
    n, cells = len(share), int(np.prod(share.shape[1:]))
    unknown = np.isnan(share.reshape(n, -1)).any(axis=1)
    blank = np.isnan(mass.reshape(n, -1)).any(axis=1)
    cover = np.nan_to_num(share)
    inside = cover >= 0.5
    whole = inside.reshape(n, -1).all(axis=1)
    empty = ~inside.reshape(n, -1).any(axis=1)
    reason = np.select([unknown, whole, empty, blank], [NO_REGION, WHOLE_FRAME, EMPTY_REGION, NOTHING_POSITIVE], DEFINED)
    defined = reason == DEFINED
    ring, covered = peripheral_ring(inside, width) * cover, _sums(cover)
    rim = np.divide(_sums(ring), covered, out=np.zeros(n), where=covered > 0)
    return Scores(
        focus=np.where(defined, focus_score(mass, cover), np.nan),
        peripheral=np.where(defined, peripheral_ratio(mass, cover, ring), np.nan),
        entropy=entropy(mass),
        area=np.where(unknown, np.nan, covered / cells),
        rim=np.where(defined, rim, np.nan),
        reason=reason.astype(np.int8),
    )


def enlarge(maps: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Maps (n, *space) at another resolution, linearly between centres of cells and constant beyond the outer ones."""
    enlarged = maps
    for axis, (source, target) in enumerate(zip(maps.shape[1:], shape, strict=True), start=1):
        if source != target:
            enlarged = np.moveaxis(np.tensordot(interpolation(source, target), enlarged, axes=(1, axis)), 0, axis)
    return enlarged


def _check_settings(settings: Settings) -> None:
    width, pictures = settings.width, settings.pictures
    if not 0 < width <= 1 or not 0 <= pictures <= MAX_PICTURES:
        raise SettingError(f"found width={width} and pictures={pictures}; give 0 < width <= 1 and 0 to {MAX_PICTURES} pictures")


def _map_array(maps: str) -> str:
    return str(Recipe.parse(maps if "@" in maps else f"maps@{maps}"))


def _region_array(region: str, cell: int) -> str:
    if region not in REGIONS:
        raise SettingError(f"no region {region!r}; {suggest(str(region), REGIONS)}")
    if cell < 1:
        raise SettingError(f"cell={cell}: give the side of a cell in pixels, at least 1")
    return f"tokens@{region}(patch={cell})"


def _rows_to_show(scores: Scores, has_region: bool, settings: Settings) -> np.ndarray:
    n = len(scores.entropy)
    if settings.same:
        return np.unique(np.linspace(0, n - 1, min(settings.pictures, n)).round().astype(np.int64))
    return drawing.choose(-scores.focus if has_region else -scores.entropy, settings.pictures)


def _draw(evidence: Evidence, view: View, maps: str, region: str, rows: np.ndarray) -> tuple[Shown, str]:
    """Pictures of these rows; or none, and why."""
    if not len(rows):
        return NONE_SHOWN, "no image has a defined score"
    chosen = view.select(rows)
    values = chosen[maps].astype(np.float64)
    if region:
        share = np.nan_to_num(chosen[region])
    else:
        share = np.zeros(values.shape)
    grid = share.shape[1:]
    laid = np.maximum(enlarge(values, grid), 0).reshape(len(rows), -1)
    inside = (share >= 0.5).reshape(len(rows), -1)
    pictures, problem = drawing.draw(evidence, chosen.cohort, np.arange(len(rows)), laid, inside, grid)
    if not len(pictures):
        return NONE_SHOWN, problem
    classes = [*(str(c) for c in evidence.card.classes), "label unknown"]  # an unknown label is -1
    captions = tuple(f"{i}: {classes[label]}" for i, label in zip(chosen.cohort.id, chosen.label, strict=True))
    return Shown(pictures, captions, rows), problem


# ---- over models ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    measurements: tuple[Measurement, ...]
    context: Context = field(default_factory=Context)

    def finding(self) -> Finding:
        first = self.measurements[0]
        return self.context.finding(
            question=QUESTION,
            row=ROW,
            sentence=sentence(first),
            estimates=estimates(first),
            checks=checks(first),
            exhibits=exhibits(self.measurements),
        )


def conclude(measurements: Mapping[str, Sequence[Measurement]], *, rng: np.random.Generator) -> Result:
    models = tuple(measurements["test"])
    return Result(models, Context(n_rows=models[0].n, n_subjects=models[0].n_subjects))


# ---- on the page ---------------------------------------------------------------------------------------------------------


def sentence(m: Measurement) -> str:
    mean, region = m.mean, REGIONS[m.region]
    if np.isnan(mean.entropy.value):
        return f"No map has a positive value, so nothing can be said of where they lie ({mean.entropy.reason})."
    spread = f"their entropy is {mean.entropy.value:.2f} of the largest possible"
    describes = "This describes and gives no verdict."
    if np.isnan(mean.focus.value):
        return f"How much of the maps lies in {region} is undefined ({_why_undefined(m)}); {spread}. {describes}"
    inside = f"{mean.focus.value:.1%} of the maps' mass lies in {region}, which covers {mean.area.value:.1%} of the frame"
    rim = f"{mean.peripheral.value:.1%} of that at its rim, which is {mean.rim.value:.1%} of it"
    return f"{inside}, and {rim}; {spread}. {describes}"


def estimates(m: Measurement) -> tuple[Estimate, ...]:
    defined = int((m.scores.reason == DEFINED).sum())
    positive = int((~np.isnan(m.scores.entropy)).sum())
    return (
        _estimate("focus score (mass inside the region)", m.mean.focus, defined, m),
        _estimate("peripheral activation ratio (mass at the rim)", m.mean.peripheral, defined, m),
        _estimate("entropy of the map", m.mean.entropy, positive, m),
    )


def _estimate(name: str, mean: Interval, n: int, m: Measurement) -> Estimate:
    if np.isnan(mean.value) and n == 0:
        mean = dataclasses.replace(mean, reason=_why_undefined(m))
    return Estimate.of(name, mean, ROW, unit="share", n=n)


def checks(m: Measurement) -> tuple[Check, ...]:
    blank = int(np.isnan(m.scores.entropy).sum())
    return (
        Check(
            id=REGION_KNOWN,
            name="the region is known and is not the whole frame",
            passed=bool((m.scores.reason == DEFINED).any()),
            note=_why_undefined(m),
        ),
        Check(
            id=MAPS_POSITIVE,
            name="maps have positive values",
            passed=blank <= FEW_BLANK * m.n,
            note=f"{blank} of {m.n} maps have none",
        ),
    )


def _why_undefined(m: Measurement) -> str:
    """Why images have no RFS and PAR, with their numbers; empty where all have."""
    if m.no_region:
        return m.no_region
    number = np.bincount(m.scores.reason, minlength=len(REASONS))
    return "; ".join(f"{n} × {why}" for n, why in zip(number, REASONS, strict=True) if why and n)


def exhibits(measurements: Sequence[Measurement]) -> tuple[Exhibit, ...]:
    first = measurements[0]
    shown: list[Exhibit] = []
    if not np.isnan(first.mean.focus.value):
        shown.append(mass_bars(first))
    shown.append(score_curves(first))
    if len(measurements) > 1:
        shown.append(model_table(measurements))
    if len(first.shown.images):
        shown.append(map_gallery(first))
    return tuple(shown)


def mass_bars(m: Measurement) -> Bars:
    return Bars(
        title="Where the mass lies",
        caption="Mean share of the positive mass inside the region, and of that at its rim, with intervals, beside what a map "
        "without any preference would have. More mass at the rim goes with leaning on the border; it does not prove it.",
        labels=["inside the region", f"at its rim ({m.width:g} of the radius)"],
        series={"maps": [m.mean.focus, m.mean.peripheral], "an even map": [m.mean.area, m.mean.rim]},
        value_label="share of the mass",
    )


def score_curves(m: Measurement) -> Curves:
    edges = np.linspace(0, 1, BINS + 1)
    columns = {"inside the region": m.scores.focus, "at the rim": m.scores.peripheral, "entropy": m.scores.entropy}
    series = {}
    for name, values in columns.items():
        defined = values[~np.isnan(values)]
        if len(defined):
            series[name] = np.histogram(np.clip(defined, 0, 1), bins=edges)[0] / len(defined)
    return Curves(
        title="Image by image",
        caption="Share of the images by each score.",
        x=(edges[:-1] + edges[1:]) / 2,
        series=series or {"entropy": np.zeros(BINS)},
        x_label="score",
        y_label="share of images",
        style="steps",
    )


def model_table(measurements: Sequence[Measurement]) -> Table:
    rows = []
    for m in measurements:
        rows.append([m.model, Cell.of(m.mean.focus), Cell.of(m.mean.peripheral), Cell.of(m.mean.entropy), m.n])
    return Table(
        title="By model",
        caption="Means over the test images, each with its interval.",
        columns=["model", "mass inside", "mass at the rim", "entropy", "n"],
        rows=rows,
    )


def map_gallery(m: Measurement) -> Gallery:
    items = []
    for pixels, caption, r in zip(m.shown.images, m.shown.captions, m.shown.row, strict=True):
        scores = m.scores
        values = {"mass inside": scores.focus[r], "mass at the rim": scores.peripheral[r], "entropy": scores.entropy[r]}
        items.append(Picture(png=pixels, caption=caption, values=values))
    caption = "Maps laid over their images, the region outlined in green. A map shows what moves the score, not why."
    return Gallery(title="Where the maps lie", caption=caption, items=items, sort="entropy")
