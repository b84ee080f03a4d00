"""Focus: where does a map of importance lie, inside the image's region or at its rim, and how spread out is it?

Retinal focus score, peripheral activation ratio and entropy (SDI, sec. V-J, eq. 20 to 26). A sanity check that describes: a map
at the rim is no proof that the rim is used, and the verdict is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy import ndimage

from rightreasons.audits import _overlay as drawing
from rightreasons.audits._contract import Context, Need, Role, estimate
from rightreasons.errors import DataError, EvidenceError, NotRun, SettingError
from rightreasons.evidence import Evidence, Recipe, View
from rightreasons.families import suggest
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
from rightreasons.stats.means import column_means
from rightreasons.stats.resampling import Interval

QUESTION = "Does the map of importance lie in the image's region, or at its rim?"
ROW: Row = "place"

REGIONS = ("fov", "mask", "box")
SAID = {"fov": "the field of view", "mask": "the mask", "box": "the boxes"}
REASONS = ("", "no positive value in the map", "no region", "the region is the whole frame", "the region is empty")
BLOCK = 256  # images enlarged at once
BINS = 20


def needs(maps: str = "gradcam", region: str = "fov", cell: int = 4) -> tuple[Need, ...]:
    """Maps, and the region in cells of `cell` pixels; without a region only the entropy is known."""
    _check(region, cell)
    return (
        Need("test", "test", _map_array(maps)),
        Need("test", "test", f"tokens@{region}(patch={cell})", optional=True),
    )


def roles() -> tuple[Role, ...]:
    return ()


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
    return _sum(np.asarray(mass, dtype=np.float64) * np.asarray(region, dtype=np.float64))


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
    return np.abs(-_sum(terms) / np.log(cells))


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
    for k, one in enumerate(inside):
        if one.any() and not one.all():
            size = one.sum()
            radius = (size / np.pi) ** 0.5 if axes == 2 else size / 2 if axes == 1 else (3 * size / (4 * np.pi)) ** (1 / 3)
            # Distances run between centres of cells; half a cell lies between a centre and the edge.
            ring[k] = one & (ndimage.distance_transform_edt(one) - 0.5 <= max(width * radius, 0.5))
    return ring


@dataclass(frozen=True)
class Measurement:
    """Focus of one model's maps, image by image.

    Attributes
    ----------
    focus, peripheral, entropy : (n,) RFS, PAR and entropy, NaN where undefined
    reason : (n,) why RFS and PAR are undefined, numbers into `REASONS`
    area, rim : (n,) share of the frame that the region covers, and share of the region that its rim covers: what an even map has
    """

    model: str
    maps: str
    region: str
    width: float
    id: np.ndarray
    focus: np.ndarray
    peripheral: np.ndarray
    entropy: np.ndarray
    reason: np.ndarray
    area: np.ndarray
    rim: np.ndarray
    n: int
    n_subjects: int | None
    left_out: int
    no_region: str
    mean_focus: Interval
    mean_peripheral: Interval
    mean_entropy: Interval
    mean_area: Interval
    mean_rim: Interval
    pictures: np.ndarray
    captions: tuple[str, ...]
    picture_row: np.ndarray
    no_pictures: str


@dataclass(frozen=True)
class Result:
    measurements: tuple[Measurement, ...]
    context: Context = field(default_factory=Context)

    def finding(self) -> Finding:
        return self.context.finding(
            question=QUESTION,
            row=ROW,
            sentence=_sentence(self.measurements[0]),
            estimates=_estimates(self.measurements[0]),
            checks=_checks(self.measurements[0]),
            exhibits=_exhibits(self.measurements),
        )


def measure(
    evidence: Evidence,
    *,
    rng: np.random.Generator,
    maps: str = "gradcam",
    region: str = "fov",
    cell: int = 4,
    width: float = 0.1,
    B: int = 10_000,
    level: float = 0.95,
    pictures: int = 12,
    same: bool = False,
) -> Measurement:
    """RFS, PAR and entropy of the test images.

    Parameters
    ----------
    maps : an attribution with its settings, such as `gradcam(layer=layer4)`, or the whole name of an array
    region : the computed field of view ("fov"), the "mask", or the united boxes ("box")
    cell : side in pixels of the cells at which maps and regions meet; 1 is the input's own resolution
    width : of the rim, as a share of the region's radius
    pictures : in the gallery
    same : show the same images of every model, evenly through the rows; else those with the least mass inside, and others
    """
    _check(region, cell)
    if not 0 < width <= 1 or not 0 <= pictures <= MAX_PICTURES:
        raise SettingError(f"found width={width} and pictures={pictures}; give 0 < width <= 1 and 0 to {MAX_PICTURES} pictures")
    view = evidence.on("test")
    if not len(view):
        raise NotRun("no test row is left to measure")
    array, cover = _map_array(maps), f"tokens@{region}(patch={cell})"
    if array not in view:
        raise NotRun(f"{array!r} is not in the evidence of {evidence.card.name} on test: extract it")
    have = cover in view
    scores = _scores(view, array, cover if have else "", width)
    subject = view.cohort.subject
    means = column_means(
        {name: scores[name] for name in ("focus", "peripheral", "entropy", "area", "rim")},
        rng=rng,
        subject=subject,
        B=B,
        level=level,
    )
    order = drawing.choose(-scores["focus"] if have else -scores["entropy"], pictures)
    if same:
        order = np.unique(np.linspace(0, len(view) - 1, min(pictures, len(view))).round().astype(np.int64))
    shown, problem, captions = _pictures(evidence, view, array, cover if have else "", order, scores)
    return Measurement(
        model=evidence.card.name,
        maps=array,
        region=region,
        width=width,
        id=np.array(view.cohort.id, dtype=np.str_),
        focus=scores["focus"],
        peripheral=scores["peripheral"],
        entropy=scores["entropy"],
        reason=scores["reason"].astype(np.int8),
        area=scores["area"],
        rim=scores["rim"],
        n=len(view),
        n_subjects=None if subject is None else len(set(subject)),
        left_out=view.left_out,
        no_region="" if have else f"{cover!r} is not in the evidence",
        mean_focus=means["focus"],
        mean_peripheral=means["peripheral"],
        mean_entropy=means["entropy"],
        mean_area=means["area"],
        mean_rim=means["rim"],
        pictures=shown,
        captions=captions,
        picture_row=order if len(shown) else np.zeros(0, np.int64),
        no_pictures=problem,
    )


def conclude(measurements: Mapping[str, Sequence[Measurement]], *, rng: np.random.Generator) -> Result:
    found = tuple(measurements["test"])
    return Result(found, Context(n_rows=found[0].n, n_subjects=found[0].n_subjects))


# ---- measuring -----------------------------------------------------------------------------------------------------------


def _check(region: str, cell: int) -> None:
    if region not in REGIONS:
        raise SettingError(f"no region {region!r}; {suggest(str(region), REGIONS)}")
    if cell < 1:
        raise SettingError(f"cell={cell}: give the side of a cell in pixels, at least 1")


def _map_array(maps: str) -> str:
    return str(Recipe.parse(maps if "@" in maps else f"maps@{maps}"))


def _scores(view: View, array: str, cover: str, width: float) -> dict[str, np.ndarray]:
    """All scores, a block of images at a time: enlarged maps of all images would not fit memory."""
    names = ("focus", "peripheral", "entropy", "area", "rim", "reason")
    parts: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for start in range(0, len(view), BLOCK):
        rows = view.select(np.arange(start, min(start + BLOCK, len(view))))
        values = rows[array].astype(np.float64)
        share = rows[cover].astype(np.float64) if cover else None
        if share is not None and share.ndim != values.ndim:
            raise EvidenceError(f"{array!r} has maps of {values.ndim - 1} axes and {cover!r} has {share.ndim - 1}: extract again")
        for name, found in _block(values, share, width).items():
            parts[name].append(found)
    return {name: np.concatenate(parts[name]) for name in names}


def _block(values: np.ndarray, share: np.ndarray | None, width: float) -> dict[str, np.ndarray]:
    nothing = np.full(len(values), np.nan)
    if share is None:
        spread = entropy(attention_mass(values))
        return {
            "focus": nothing,
            "peripheral": nothing,
            "entropy": spread,
            "area": nothing,
            "rim": nothing,
            "reason": np.full(len(values), 2.0),
        }
    mass = attention_mass(enlarge(values, share.shape[1:]))
    flat = share.reshape(len(share), -1)
    unknown = np.isnan(flat).any(axis=1)
    cover = np.nan_to_num(share)
    inside = cover >= 0.5
    frame, empty = inside.reshape(len(share), -1).all(axis=1), ~inside.reshape(len(share), -1).any(axis=1)
    ring = peripheral_ring(inside, width) * cover
    blank = np.isnan(mass.reshape(len(mass), -1)).any(axis=1)
    reason = np.select([unknown, frame, empty, blank], [2, 3, 4, 1], 0)
    known = reason == 0
    covered = _sum(cover)
    return {
        "focus": np.where(known, focus_score(mass, cover), np.nan),
        "peripheral": np.where(known, peripheral_ratio(mass, cover, ring), np.nan),
        "entropy": entropy(mass),
        "area": np.where(unknown, np.nan, covered / flat.shape[1]),
        "rim": np.where(known, np.divide(_sum(ring), covered, out=np.zeros(len(covered)), where=covered > 0), np.nan),
        "reason": reason.astype(np.float64),
    }


def enlarge(maps: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Maps (n, *space) at another resolution, linearly between centres of cells and constant beyond the outer ones."""
    found = maps
    for axis, (source, target) in enumerate(zip(maps.shape[1:], shape, strict=True), start=1):
        if source != target:
            found = np.moveaxis(np.tensordot(_along(source, target), found, axes=(1, axis)), 0, axis)
    return found


def _along(source: int, target: int) -> np.ndarray:
    at = np.clip((np.arange(target) + 0.5) * source / target - 0.5, 0, source - 1)
    before = np.minimum(at.astype(np.int64), max(source - 2, 0))
    weight, rows = at - before, np.arange(target)
    matrix = np.zeros((target, source))
    matrix[rows, before] = 1 - weight
    matrix[rows, np.minimum(before + 1, source - 1)] += weight
    return matrix


def _sum(values: np.ndarray) -> np.ndarray:
    total: np.ndarray = values.reshape(len(values), -1).sum(axis=1)
    return total


def _pictures(
    evidence: Evidence, view: View, array: str, cover: str, order: np.ndarray, scores: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, str, tuple[str, ...]]:
    if not len(order):
        return drawing.NONE, "no image has a defined score", ()
    chosen = view.select(order)
    values = chosen[array].astype(np.float64)
    share = np.nan_to_num(chosen[cover]) if cover else np.zeros(values.shape)
    grid = share.shape[1:]
    laid = np.maximum(enlarge(values, grid), 0).reshape(len(order), -1)
    inside = (share >= 0.5).reshape(len(order), -1)
    shown, problem = drawing.draw(evidence, chosen.cohort, np.arange(len(order)), laid, inside, grid)
    label = chosen.label
    classes = [*(str(c) for c in evidence.card.classes), "label unknown"]
    return shown, problem, tuple(f"{chosen.cohort.id[k]}: {classes[label[k]]}" for k in range(len(order))) if len(shown) else ()


# ---- saying --------------------------------------------------------------------------------------------------------------


def _sentence(m: Measurement) -> str:
    spread = f"their entropy is {m.mean_entropy.value:.2f} of the largest possible"
    if np.isnan(m.mean_entropy.value):
        return f"No map has a positive value, so that nothing can be said of where they lie ({m.mean_entropy.reason})."
    if np.isnan(m.mean_focus.value):
        why = m.no_region or _say_reasons(m)
        return (
            f"How much of the maps lies in {SAID[m.region]} is undefined ({why}); {spread}. This describes and gives no verdict."
        )
    inside = (
        f"{m.mean_focus.value:.1%} of the maps' mass lies in {SAID[m.region]}, which covers {m.mean_area.value:.1%} of the frame"
    )
    rim = f"{m.mean_peripheral.value:.1%} of that at its rim, which is {m.mean_rim.value:.1%} of it"
    return f"{inside}, and {rim}; {spread}. This describes and gives no verdict."


def _estimates(m: Measurement) -> tuple[Estimate, ...]:
    defined = int((m.reason == 0).sum())
    reason = {"reason": m.no_region or _say_reasons(m)}
    named = [
        ("retinal focus score (mass inside the region)", m.mean_focus, defined),
        ("peripheral activation ratio (mass at the rim)", m.mean_peripheral, defined),
        ("entropy of the map", m.mean_entropy, int((~np.isnan(m.entropy)).sum())),
    ]
    return tuple(
        estimate(name, i, ROW, unit="share", n=n).model_copy(update=reason if np.isnan(i.value) and n == 0 else {})
        for name, i, n in named
    )


def _checks(m: Measurement) -> tuple[Check, ...]:
    blank = int(np.isnan(m.entropy).sum())
    return (
        Check(
            name="the region is known and is not the whole frame",
            passed=bool((m.reason == 0).any()),
            note=m.no_region or _say_reasons(m),
        ),
        Check(name="maps have positive values", passed=blank <= 0.01 * m.n, note=f"{blank} of {m.n} maps have none"),
    )


def _say_reasons(m: Measurement) -> str:
    found = [f"{int((m.reason == k).sum())} × {why}" for k, why in enumerate(REASONS) if why and (m.reason == k).any()]
    return "; ".join(found)


def _exhibits(measurements: Sequence[Measurement]) -> tuple[Exhibit, ...]:
    m = measurements[0]
    found: list[Exhibit] = []
    if not np.isnan(m.mean_focus.value):
        found.append(_against_even(m))
    found.append(_distribution(m))
    if len(measurements) > 1:
        found.append(_by_model(measurements))
    if len(m.pictures):
        items = [
            Picture(
                png=pixels,
                caption=caption,
                values={"mass inside": m.focus[r], "mass at the rim": m.peripheral[r], "entropy": m.entropy[r]},
            )
            for pixels, caption, r in zip(m.pictures, m.captions, m.picture_row, strict=True)
        ]
        caption = "Maps laid over their images, the region outlined in green. A map shows what moves the score, not why."
        found.append(Gallery(title="Where the maps lie", caption=caption, items=items, sort="entropy"))
    return tuple(found)


def _against_even(m: Measurement) -> Exhibit:
    pairs = [(m.mean_focus, m.mean_area), (m.mean_peripheral, m.mean_rim)]
    series = {"maps": [a for a, _ in pairs], "an even map": [b for _, b in pairs]}
    return Bars(
        title="Where the mass lies",
        caption="Mean share of the positive mass inside the region, and of that at its rim, with intervals, beside what a map "
        "without any preference would have. More mass at the rim goes with leaning on the border; it does not prove it.",
        labels=["inside the region", f"at its rim ({m.width:g} of the radius)"],
        series={name: [i.value for i in found] for name, found in series.items()},
        low={name: [i.low for i in found] for name, found in series.items()},
        high={name: [i.high for i in found] for name, found in series.items()},
        value_label="share of the mass",
    )


def _distribution(m: Measurement) -> Exhibit:
    edges = np.linspace(0, 1, BINS + 1)
    series = {}
    for name, values in (("inside the region", m.focus), ("at the rim", m.peripheral), ("entropy", m.entropy)):
        known = values[~np.isnan(values)]
        if len(known):
            series[name] = np.histogram(np.clip(known, 0, 1), bins=edges)[0] / len(known)
    return Curves(
        title="Image by image",
        caption="Share of the images by each score.",
        x=(edges[:-1] + edges[1:]) / 2,
        series=series or {"entropy": np.zeros(BINS)},
        x_label="score",
        y_label="share of images",
        style="steps",
    )


def _by_model(measurements: Sequence[Measurement]) -> Exhibit:
    def cell(i: Interval) -> Cell:
        return Cell(value=i.value, low=i.low, high=i.high, reason=i.reason)

    return Table(
        title="By model",
        caption="Means over the test images, each with its interval.",
        columns=["model", "mass inside", "mass at the rim", "entropy", "n"],
        rows=[[m.model, cell(m.mean_focus), cell(m.mean_peripheral), cell(m.mean_entropy), m.n] for m in measurements],
    )
