"""Attenuation: weaken the places of the feature map that the shortcut uses, before it is pooled (OSCAR, sec. V-F, App. H).

OSCAR's region contributions of the model, a balanced baseline and an attribute model say where. No weight of the network
changes: its global average pool becomes a weighted one. Whether the place matters is asked of maps with the same values far
from where they belong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal, Unpack

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError, ModelError, SettingError
from rightreasons.evidence import Recipe
from rightreasons.extraction import read
from rightreasons.families import with_settings, without
from rightreasons.head import Head
from rightreasons.mitigations import card_settings, handed_on
from rightreasons.models.classifier import Classifier, build_network
from rightreasons.models.forward import layer
from rightreasons.models.grouped_rows import Rows, completed, every_group, grouped
from rightreasons.models.training_keywords import Places, runs
from rightreasons.partitions import grid
from rightreasons.progress import track
from rightreasons.remedy import WORST, Comparison, Pair, Words, compare
from rightreasons.stats.contributions import rcs_star as contrast
from rightreasons.stats.contributions import shortcut_map
from rightreasons.stats.groups import SMALLEST_GROUP
from rightreasons.stats.profiles import profile, rank_regions, region_scores
from rightreasons.stats.spatial import region_centroids

STARTS = "model"
REFERENCES = ("baseline", "attribute")

EPSILON = 1e-8  # of Algorithm 2
SMALLEST_SUM = 1e-3
ROWS_AT_ONCE = 1024
GRIDS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "quadrant": ((0.0,), (0.0, 0.25, 0.5, 1.0)),
    "paper": ((0, 0.25, 0.5, 1, 5, 10, 15, 20, 25, 30, 40, 50),) * 2,
}
"""(alpha, beta) that are tried."""

Form = Literal["quadrant", "paper"]


def weighted_pool(features: Tensor, rcs_star: Any, alpha: float, beta: float) -> Tensor:
    """Algorithm 2: maps (b, c, *space) pooled with the weights that a map (*space) gives, (b, c).

    Negative (task) places are strengthened by `alpha`, positive (shortcut) ones weakened by `beta`; large values turn them round.
    """
    weight = spatial_weight(np.asarray(torch.as_tensor(rcs_star).detach().cpu(), dtype=np.float64), alpha, beta)
    a = torch.as_tensor(weight, dtype=features.dtype, device=features.device)
    if tuple(features.shape[2:]) != tuple(a.shape):
        raise DataError(f"features are {tuple(features.shape)} and the map {tuple(a.shape)}: both must have the same places")
    over_space = tuple(range(2, features.ndim))
    return (features * a).sum(over_space) / (a.sum() + EPSILON)


def spatial_weight(values: np.ndarray, alpha: float, beta: float) -> np.ndarray:
    """Step 3 and 4 of Algorithm 2: 1 - W S with W the map over its largest absolute value, S alpha below 0 and beta elsewhere."""
    scaled = values / (np.abs(values).max() + EPSILON)
    return np.asarray(1 - scaled * np.where(scaled < 0, alpha, beta))


@dataclass(frozen=True)
class Settings:
    """What can be set of attenuation.

    Parameters
    ----------
    form : "quadrant" weakens only where the model and the attribute model both use a region more than the baseline would, less
        what the task uses; never strengthens. "paper" is Algorithm 2 on RCS*
    attribution : whose maps are ranked, with settings as in a recipe: "gradcam(layer=layer4)"
    cells : of the grid along every axis; 16, and 8 where the input has fewer than 64 pixels
    alphas, betas : that are tried; `GRIDS` has the defaults of each form
    tolerance : by how much the balanced accuracy of the tuning rows may fall
    B : resamples for the intervals of the table
    """

    attribute: str | None = None
    form: Form = "quadrant"
    attribution: str = "gradcam"
    cells: int | None = None
    alphas: Sequence[float] | None = None
    betas: Sequence[float] | None = None
    folds: int = 4
    random_maps: int = 10
    tolerance: float = 0.005
    batch: int = 32
    B: int = 2000


@with_settings(Settings)
@runs
def mitigate(
    classifier: Classifier,
    cohort: Cohort,
    *,
    rng: np.random.Generator,
    references: Mapping[str, Classifier | Sequence[Classifier]] | None = None,
    settings: Settings,
    **places: Unpack[Places],
) -> Classifier:
    """The model with a weighted pool; unchanged where no weighting does better on the tuning rows, and then its card says so.

    The audit rows, balanced in the attribute within label, are cut into folds. In each, map and (alpha, beta) come from the other
    folds, for the true map and for every random one; the table in the card uses the rows that were left out. The model handed on
    is tuned on all folds.

    Parameters
    ----------
    references : "baseline": balanced models of the label, "attribute": models of the attribute; one or several seeds of each,
        whose profiles are averaged
    """
    s = settings
    pairs = _pairs(s.form, s.alphas, s.betas, classifier)
    others = _references(references, classifier, cohort, s.attribute)
    rows = _rows(classifier, completed(cohort, rng), s.attribute, others, s.folds, rng)
    reading = {"batch": s.batch, **without(places, ("folder",))}
    seen = _Seen.of(classifier, others, rows, s.attribution, s.cells, reading)
    fold = _folds(rows, s.folds, rng)
    moves = far_permutations(region_centroids(seen.regions), seen.regions.shape, s.random_maps, rng)
    logits = []
    for move in track([None, *moves], "attenuation maps"):
        logits.append(_out_of_fold(seen, rows, fold, move, s.form, pairs, s.tolerance))
    comparison = _compare(rows, seen, logits[0], rng, s.B)
    chosen = _tuned(seen, rows, np.ones(len(rows), bool), None, s.form, pairs, s.tolerance)
    kept = {**_told(rows, seen, chosen, comparison, logits[1:]), "distance of random maps": moves.distance}
    new = classifier.copy() if chosen.pair is None else attenuated(classifier, chosen.weight)
    return handed_on(
        new, classifier, "attenuation", card_settings(**vars(settings)), selected="wga",
        selected_by=f"WGA of the tuning folds of {len(rows)} audit rows", fitted=rows.cohort.id, chosen=kept,
    )  # fmt: skip


# ---- the network ---------------------------------------------------------------------------------------------------------


class Weigh(nn.Module):
    """Multiply a map by a weight for every place, scaled so that the plain average that follows is the weighted one."""

    weight: Tensor

    def __init__(self, shape: Sequence[int], channels_last: bool = False) -> None:
        super().__init__()
        self.channels_last = channels_last
        self.register_buffer("weight", torch.ones(tuple(shape)))

    def forward(self, maps: Tensor) -> Tensor:
        return maps * (self.weight.unsqueeze(-1) if self.channels_last else self.weight)


def attenuated(classifier: Classifier, weight: np.ndarray) -> Classifier:
    """A copy whose global pool weighs the places of its map by `weight` (*space); `spatial` gives the weighted maps."""
    made = classifier.copy()
    cut = classifier.cut
    mean_one = weight * weight.size / (weight.sum() + EPSILON)
    made.module = weighing(made.module, cut.spatial, weight.shape, cut.spatial_last)
    name, side = cut.spatial.rsplit(":", 1)
    if side == "input":  # the weights come first, and the layer that was there is the second of two
        inside, place, weigh = "1", f"{name}.0:output", layer(made.module, f"{name}.0")
    else:
        inside, place, weigh = "0", cut.spatial, layer(made.module, f"{name}.1")
    weigh.to(classifier.device)
    with torch.no_grad():
        weigh.weight.copy_(torch.as_tensor(mean_one, dtype=torch.float32))  # type: ignore[operator, union-attr]

    def moved_inside(old: str) -> str:
        """A layer's name, now that it or a layer around it lies in a pair of two."""
        if old.startswith(f"{name}."):
            return f"{name}.{inside}{old[len(name) :]}"
        return old

    def renamed(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(map(moved_inside, names))

    made.cut = replace(
        cut,
        features=renamed(cut.features),
        head=renamed(cut.head),
        pooled=None if cut.pooled is None else renamed(cut.pooled),
        spatial=place,
    )
    if classifier.recipe is not None:
        shape = [int(side) for side in weight.shape]
        inner = {"network": classifier.recipe, "point": cut.spatial, "shape": shape, "channels_last": cut.spatial_last}
        made.trust = classifier.trust
        made.recipe = {"spec": f"{__name__}:rebuilt", "num_classes": classifier.recipe["num_classes"], "settings": inner}
    made.verify()
    return made


def weighing(module: nn.Module, point: str, shape: Sequence[int], channels_last: bool = False) -> nn.Module:
    """The network, changed in place, with a `Weigh` of ones at a point (`layer:input` or `layer:output`).

    For a wrapped network that was attenuated and saved: `Classifier.open(folder, module=weighing(network, point, shape))`.
    """
    name, side = point.rsplit(":", 1)
    parent, _, child = name.rpartition(".")
    old, weigh = layer(module, name), Weigh(shape, channels_last)
    setattr(layer(module, parent), child, nn.Sequential(weigh, old) if side == "input" else nn.Sequential(old, weigh))
    return module.eval()


def rebuilt(
    network: Mapping[str, Any],
    point: str,
    shape: Sequence[int],
    channels_last: bool,
    num_classes: int | None = None,
    size: Sequence[int] | None = None,
    channels: int | None = None,
) -> nn.Module:
    """Build an attenuated network again: the original one, with a `Weigh` of ones that a checkpoint can fill."""
    module = build_network(network, None if size is None else tuple(size), channels)
    return weighing(module, point, shape, channels_last)


# ---- what the models say -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Seen:
    """Everything that the folds read from the models, computed once.

    Attributes
    ----------
    ranks : by role, the ranks (n, R) of every model
    regions : region numbers over the input
    places : (n, k, P) what every place of the map contributes: to the logits (k = C) where the head after the pool is linear, so
        that pooling and head change places; else the map itself (k = c)
    head : from the pooled places to the logits
    space : shape of the map, P places
    before : (n, C) logits of the model as it is
    maps : region values (R,) by the rows that they come from and the form
    """

    ranks: dict[str, list[np.ndarray]]
    regions: np.ndarray
    places: np.ndarray
    head: Head | np.ndarray
    space: tuple[int, ...]
    before: np.ndarray
    maps: dict[tuple[bytes, str], np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        classifier: Classifier,
        others: Mapping[str, Sequence[Classifier]],
        rows: Rows,
        attribution: str,
        cells: int | None,
        reading: Mapping[str, Any],
    ) -> _Seen:
        """Read all models on the same rows; `reading` holds the keywords of `extraction.read`, `batch` among them."""
        size = classifier.geometry.size
        if not cells:
            cells = 16 if min(size) >= 64 else 8
        regions = grid(size, cells)
        array = str(Recipe.parse(f"maps@{attribution}"))

        def ranks_of(model: Classifier) -> np.ndarray:
            maps = read(model, rows.cohort, [array], **reading)[array]
            return rank_regions(region_scores(np.maximum(maps, 0), regions))

        ranks = {"test": [ranks_of(classifier)]}
        for role, models in others.items():
            ranks[role] = [ranks_of(model) for model in models]
        head: Head = classifier.pooled_head
        before, places = [], []
        step = -(-ROWS_AT_ONCE // reading["batch"]) * reading["batch"]
        space: tuple[int, ...] = ()
        for start in range(0, len(rows), step):
            part = rows.cohort.select(np.arange(start, min(start + step, len(rows))))
            arrays = read(classifier, part, ["spatial", "logits"], **reading)
            before.append(arrays["logits"])
            space = arrays["spatial"].shape[2:]
            maps = arrays["spatial"].reshape(*arrays["spatial"].shape[:2], -1)
            if head.is_linear:
                maps = np.einsum("kc,ncp->nkp", head.weight, maps, dtype=np.float64)
            places.append(maps)
        last = head.bias if head.is_linear else head
        return cls(ranks, regions, np.concatenate(places), last, space, np.concatenate(before))

    def logits(self, rows: np.ndarray, values: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        """(P, n, C) logits of some rows when the pool is weighed by a map (*space) with each of P pairs (alpha, beta).

        Pooling is linear in the weights, so three sums of the places serve all pairs.
        """
        flat = values.reshape(-1) / (np.abs(values).max() + EPSILON)
        parts = np.stack([np.ones(flat.size), np.maximum(-flat, 0), -np.maximum(flat, 0)], axis=1)
        sums = self.places[rows] @ parts  # (n, k, 3)
        by = np.column_stack([np.ones(len(pairs)), pairs])
        pooled = np.einsum("nks,ps->pnk", sums, by) / (by @ parts.sum(axis=0) + EPSILON)[:, None, None]
        if isinstance(self.head, np.ndarray):
            return np.asarray(pooled + self.head)
        return np.stack([self.head(vectors) for vectors in pooled])

    def map(self, rows: np.ndarray, form: str, move: np.ndarray | None) -> np.ndarray:
        """(*space) the map of some rows at the resolution of the features; `move` gives the region that each value goes to."""
        key = (rows.tobytes(), form)
        if key not in self.maps:  # every random map of a fold moves the same values
            profiles = {}
            for role, ranks_of_seeds in self.ranks.items():
                profiles[role] = np.mean([profile(ranks[rows]) for ranks in ranks_of_seeds], axis=0)
            formula = shortcut_map if form == "quadrant" else contrast
            self.maps[key] = formula(profiles["test"], profiles["baseline"], profiles["attribute"])
        values = self.maps[key]
        if move is not None:
            moved = np.empty_like(values)
            moved[move] = values
            values = moved
        return area_average(values[self.regions], self.space)


def area_average(image: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """An image (h, w[, d]) at a smaller shape: each place is the mean of the area that it covers, parts of pixels included."""
    for axis, target in enumerate(shape):
        source = image.shape[axis]
        edges = np.arange(target + 1) * source / target
        pixel = np.arange(source)
        overlap = np.minimum(edges[1:, None], pixel + 1) - np.maximum(edges[:-1, None], pixel)
        matrix = np.maximum(overlap, 0) * target / source
        image = np.moveaxis(np.tensordot(matrix, image, axes=(1, axis)), 0, axis)
    return image


@dataclass(frozen=True)
class Moves(Sequence[np.ndarray]):
    """Permutations of regions: `[k][r]` is where region r's value goes; every one at least `distance` of the side away."""

    permutations: tuple[np.ndarray, ...]
    distance: float

    def __getitem__(self, k: Any) -> Any:
        return self.permutations[k]

    def __len__(self) -> int:
        return len(self.permutations)


def far_permutations(centroids: np.ndarray, shape: Sequence[int], number: int, rng: np.random.Generator) -> Moves:
    """Distinct permutations in which every region's value lands at least half the image's side away (Euclidean, no wrap).

    A linear assignment with random costs finds each. Where the regions do not allow half the side (an odd grid may not), the
    share is lowered step by step, and told.
    """
    gap = np.linalg.norm(centroids[:, None] - centroids[None], axis=2) / max(shape)
    for share in (0.5, 0.45, 0.4, 0.35, 0.3, 0.25, 0.2, 0.1, 0.0):
        near = gap < share - 1e-9
        permutations: dict[bytes, np.ndarray] = {}
        for _ in range(10 * number):
            if len(permutations) == number:
                break
            cost = rng.random(gap.shape)
            _, to = linear_sum_assignment(np.where(near, 2.0 * len(gap), cost))
            if near[np.arange(len(to)), to].any():
                break
            permutations[to.tobytes()] = to
        if len(permutations) == number:
            return Moves(tuple(permutations.values()), share)
    raise DataError(f"{len(centroids)} regions have fewer than {number} permutations: give more cells=, or fewer random_maps=")


# ---- tuning --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Chosen:
    """The best pair on some rows; `pair` is None, with the reason, where the model is best left as it is."""

    pair: tuple[float, float] | None
    weight: np.ndarray
    values: np.ndarray
    reason: str = ""


def _tuned(
    seen: _Seen, rows: Rows, tuning: np.ndarray, move: np.ndarray | None, form: str, pairs: np.ndarray, tolerance: float
) -> _Chosen:
    """Map and pair from the tuning rows alone: the best worst-group accuracy among the pairs that keep the balanced accuracy."""
    index = np.flatnonzero(tuning)
    values = seen.map(index, form, move)
    unchanged = np.ones(seen.space)
    if not np.isfinite(values).all():
        return _Chosen(None, unchanged, np.zeros(seen.space), "the region contributions are undefined on these rows")
    if not values.any():
        return _Chosen(None, unchanged, values, "no region is used more by both models and not by the task")
    sums = np.array([spatial_weight(values, *pair).sum() for pair in pairs])
    allowed = np.abs(sums) > SMALLEST_SUM
    right = seen.logits(index, values, pairs).argmax(axis=2) == rows.y[index]
    worst, balanced = _scores(right, rows, index)
    first = int(np.flatnonzero((pairs == 0).all(axis=1))[0])
    allowed &= (balanced >= min(balanced[first], balanced[allowed].max()) - tolerance) & (worst >= worst[first])
    # of equal ones the better balanced, then the gentler
    best = max(np.flatnonzero(allowed), key=lambda k: (worst[k], balanced[k], -pairs[k].sum()))
    if best == first:
        return _Chosen(None, unchanged, values, "no pair is better than the model as it is")
    return _Chosen((float(pairs[best, 0]), float(pairs[best, 1])), spatial_weight(values, *pairs[best]), values)


def _scores(right: np.ndarray, rows: Rows, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(P,) worst-group and balanced accuracy of decisions that are right or not, (P, n)."""
    group, label = rows.group[index], rows.y[index]

    def shares(codes: np.ndarray, least: int) -> np.ndarray:
        size = np.bincount(codes)
        kept = np.flatnonzero(size >= (least if size.max() >= least else 1))
        member = (codes[:, None] == kept).astype(np.float64)
        return np.asarray(right @ member / member.sum(axis=0))

    return shares(group, SMALLEST_GROUP).min(axis=1), shares(label, 1).mean(axis=1)


def _out_of_fold(
    seen: _Seen, rows: Rows, fold: np.ndarray, move: np.ndarray | None, form: str, pairs: np.ndarray, tolerance: float
) -> np.ndarray:
    """(n, C) logits of every row under the map and pair that the other folds chose."""
    logits = seen.before.astype(np.float64)
    for k in np.unique(fold):
        chosen = _tuned(seen, rows, fold != k, move, form, pairs, tolerance)
        if chosen.pair is not None:
            held = np.flatnonzero(fold == k)
            logits[held] = seen.logits(held, chosen.values, np.array([chosen.pair]))[0]
    return logits


def _compare(rows: Rows, seen: _Seen, after: np.ndarray, rng: np.random.Generator, B: int) -> Comparison:
    classes, levels = rows.names
    pair = Pair(
        rows.y,
        seen.before.argmax(axis=1),
        after.argmax(axis=1),
        rows.a,
        subject=rows.cohort.subject,
        words=Words(rows.cohort.label_name, rows.attribute, classes, levels),
    )
    return compare(pair, rng=rng, rows="audit rows, each judged by what the other folds chose", B=B)


def _told(rows: Rows, seen: _Seen, chosen: _Chosen, comparison: Comparison, random: Sequence[np.ndarray]) -> dict[str, Any]:
    """What the card keeps: what was chosen, the table, and what random maps would have gained."""
    index = np.arange(len(rows))
    start = _scores((seen.before.argmax(axis=1) == rows.y)[None], rows, index)
    scores = []
    for logits in random:
        scores.append(_scores((logits.argmax(axis=1) == rows.y)[None], rows, index))
    gains = [float(worst[0] - start[0][0]) for worst, _ in scores]
    gain = comparison.get(WORST).difference.value
    alpha, beta = chosen.pair or (None, None)
    return {
        "alpha": alpha,
        "beta": beta,
        "unchanged": chosen.reason,
        "map": np.round(chosen.values, 6).tolist(),
        "rows": len(rows),
        "left out": rows.left_out,
        "comparison": comparison.to_plain(),
        "gain": gain,
        "random gains": gains,
        "random balanced accuracy": [float(balanced[0] - start[1][0]) for _, balanced in scores],
        "specific": bool(gain > max(gains, default=0.0)),
    }


# ---- at the edge ---------------------------------------------------------------------------------------------------------


def _pairs(form: str, alphas: Sequence[float] | None, betas: Sequence[float] | None, classifier: Classifier) -> np.ndarray:
    """(P, 2) pairs to try, the unchanged model among them; networks that cannot be attenuated are refused here."""
    if form not in GRIDS:
        raise SettingError(f"form is {form!r}: give {' or '.join(GRIDS)}")
    if not classifier.has_spatial:
        raise ModelError(
            f"attenuation weighs the map before a global average pool, and {classifier.name} has none: "
            f"{classifier.cut.no_spatial}"
        )
    _ = classifier.pooled_head  # refused by name where more than a head lies behind the pool
    a, b = GRIDS[form]
    if alphas is not None:
        a = tuple(alphas)
    if betas is not None:
        b = tuple(betas)
    if min(*a, *b) < 0 or (form == "quadrant" and max(b) > 1):
        raise SettingError(f"alphas={a}, betas={b}: give numbers of at least 0, and for form='quadrant' betas of at most 1")
    if classifier.cut.spatial_activation and max(b) > 1:
        raise ModelError(
            f"{classifier.name} rectifies the map after '{classifier.cut.spatial}', and a beta above 1 makes places negative, "
            "which the rectifier would cut off: give form='quadrant', or betas of at most 1"
        )
    pairs = {(float(alpha), float(beta)) for alpha, beta in product(a, b)}
    return np.array(sorted({(0.0, 0.0), *pairs}))


def _references(
    references: Mapping[str, Classifier | Sequence[Classifier]] | None,
    classifier: Classifier,
    cohort: Cohort,
    attribute: str | None,
) -> dict[str, list[Classifier]]:
    models_of = {}
    named = attribute or (cohort.attributes[0] if cohort.attributes else "")
    for role, target in zip(REFERENCES, ("", named), strict=True):
        models = (references or {}).get(role)
        if not models:
            raise SettingError(f"attenuation compares with a {role} model: give references={{'{role}': a classifier or a list}}")
        if isinstance(models, Classifier):
            models_of[role] = [models]
        else:
            models_of[role] = list(models)
        for model in models_of[role]:
            learnt = model.card.get("target")
            if learnt is not None and learnt != target and not (role == "baseline" and learnt == cohort.label_name):
                raise SettingError(f"the {role} model {model.name} predicts {_column(learnt)}, expected {_column(target)}")
            ours, theirs = classifier.geometry, model.geometry
            if (ours.crop, ours.mode) != (theirs.crop, theirs.mode) or len(ours.size) != len(theirs.size):
                raise ModelError(
                    f"the {role} model {model.name} reads images cropped by {theirs.crop} ({theirs.mode}) and {classifier.name} "
                    f"by {ours.crop} ({ours.mode}): regions are comparable for one crop only"
                )
    return models_of


def _column(target: str) -> str:
    """The column that a model predicts, in words; '' stands for the label."""
    if target:
        return repr(target)
    return "the label"


def _rows(
    classifier: Classifier,
    cohort: Cohort,
    attribute: str | None,
    others: Mapping[str, Sequence[Classifier]],
    folds: int,
    rng: np.random.Generator,
) -> Rows:
    """Audit rows that no model was fitted on, balanced in the attribute within label."""
    used = set(classifier.used)
    for models in others.values():
        used.update(*(model.used for model in models))
    audit = cohort.on("audit")
    new = audit.select(np.array([i not in used for i in audit.id], dtype=bool))
    if not len(new):
        raise DataError(
            f"all {len(audit)} audit rows were used to fit one of the models: attenuation needs rows that are new to them"
        )
    rows = grouped(classifier, new, attribute)
    if folds < 2:
        raise SettingError(f"folds is {folds}: give at least 2")
    least_rows = -(-SMALLEST_GROUP * folds // (folds - 1)) + 1  # so that the tuning folds of each group are large enough
    size = every_group(rows, least=least_rows, what="attenuation").reshape(rows.C, rows.A)
    least = np.where(size > 0, size, size.max()).min(axis=1)
    kept = []
    for g in range(size.size):
        kept.append(rng.permutation(np.flatnonzero(rows.group == g))[: least[g // rows.A]])
    chosen = rows.select(np.sort(np.concatenate(kept)))
    return replace(chosen, left_out=len(audit) - len(chosen))


def _folds(rows: Rows, number: int, rng: np.random.Generator) -> np.ndarray:
    """(n,) fold of each row: stratified on (label, attribute), whole subjects."""
    named = {f"fold {k}": 1 / number for k in range(number)}
    splits = rows.cohort.split(named, rng=rng, attribute=rows.attribute).splits
    return np.unique(np.asarray(splits, dtype=str), return_inverse=True)[1].reshape(-1)
