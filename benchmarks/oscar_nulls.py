"""False alarms of OSCAR's tests in simulated worlds without a shortcut, and power where one is planted.

`WORLDS=1000 make bench NAME=oscar-nulls` for the whole table; the default is smaller.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy import ndimage, stats

from rightreasons import partitions
from rightreasons.progress import track
from rightreasons.stats import correlation, profiles, spatial

NEEDS_GPU = False

WORLDS = int(os.environ.get("WORLDS", "300"))
SEED = int(os.environ.get("SEED", "0"))
IMAGES = 40
CELLS = (16, 16)
PIXELS = (224, 224)
DRAWS = 199
LEVEL = 0.05
SIDES = (7, 14)
# Width of the smoothing of a map, in sevenths of its side; 0: every position of the map on its own.
TEXTURES = {"rough": 0.0, "smooth": 1.0}
SCENES = ("independent", "shared task", "planted cue")
# Dutilleul's test as it was found best before: all classes, two degrees of freedom more lost, t referred to what is left.
TWO_MORE = "dutilleul, two more lost"
TESTS = ("permutation", "paper", "torus", "moran", TWO_MORE, "dutilleul", "spectral")

Kind = tuple[str, int, str]


def main() -> None:
    """Print the table and, as the last line, the JSON object."""
    start = time.perf_counter()
    kinds: list[Kind] = [(scene, side, texture) for scene in SCENES for side in SIDES for texture in TEXTURES]
    rates = {kind: called(kind, WORLDS) for kind in track(kinds, "kinds of worlds")}
    seconds = time.perf_counter() - start
    _show(rates)
    ranges = {name: [f(rates[kind][name] for kind in kinds if kind[0] != "planted cue") for f in (min, max)] for name in TESTS}
    print(
        json.dumps(
            {
                "name": "oscar-nulls",
                "measured": f"share called at the {LEVEL} level; in 'planted cue' it is the power",
                "worlds_per_kind": WORLDS,
                "default": "spectral on grids, dutilleul elsewhere",
                "lowest_and_highest_without_a_cue": ranges,
                "called": {" ".join(map(str, kind)): rates[kind] for kind in kinds},
                "seconds": round(seconds, 1),
            }
        )
    )


def called(kind: Kind, worlds: int) -> dict[str, float]:
    """Share of worlds in which each test finds p <= 5 %."""
    rng = np.random.default_rng([SEED, SCENES.index(kind[0]), kind[1], list(TEXTURES).index(kind[2])])
    found = np.stack(list(_worlds(kind, worlds, rng)))
    test, attribute, baseline = found[:, 0], found[:, 1], found[:, 2]
    a, b = correlation.residual(test, baseline), correlation.residual(attribute, baseline)
    centroids = spatial.region_centroids(partitions.grid(PIXELS, CELLS))
    variance, value = spatial.correlation_variance(a, b, centroids), correlation.pearson(a, b)
    p = {
        null: np.array(
            [
                spatial.correlation_test(*three, null=null, places=spatial.Places(centroids, CELLS), rng=rng, B=DRAWS).p
                for three in found
            ]
        )
        for null in ("permutation", "paper", "torus", "moran", "spectral")
    }
    p[TWO_MORE] = two_more_lost(value, variance)
    p["dutilleul"] = spatial.dutilleul_p(value, variance)
    return {name: round(float(np.mean(p[name] <= LEVEL)), 4) for name in TESTS}


def two_more_lost(value: NDArray, variance: NDArray) -> NDArray:
    freedom = np.maximum(1 / variance - 3, 0.5)
    return 2 * stats.t.sf(np.abs(value) * np.sqrt(freedom / (1 - value**2)), freedom)


def _worlds(kind: Kind, worlds: int, rng: np.random.Generator) -> Iterator[NDArray]:
    """Median rank profiles (3, R) of a test, an attribute and a baseline model, world by world.

    A model is a fixed field over the positions of its map; an image adds a field of its own, and the sum is rectified.
    """
    scene, side, texture = kind
    regions = partitions.grid(PIXELS, CELLS)
    for _ in range(worlds):
        test, attribute, baseline = models = _fields(rng, 3, side, texture)
        if scene != "independent":
            task = _blob(rng, side, 0.15)
            test += 2.5 * task
            baseline += 2.5 * task
        if scene == "planted cue":
            cue = _blob(rng, side, 0.15)
            test += 4.0 * cue
            attribute += 4.0 * cue
        maps = np.maximum(models[:, None] + _fields(rng, 3 * IMAGES, side, texture).reshape(3, IMAGES, side, side), 0.0)
        scores = maps.reshape(3 * IMAGES, -1) @ _mean_of_cells(side, regions)
        yield np.median(profiles.rank_regions(scores).reshape(3, IMAGES, -1), axis=1)


_WEIGHTS: dict[int, NDArray] = {}


def _mean_of_cells(side: int, regions: NDArray) -> NDArray:
    """Weights (side^2, R) of the mean over each cell of the enlarged map: the scores of the unit maps."""
    if side not in _WEIGHTS:
        _WEIGHTS[side] = profiles.region_scores(np.eye(side * side).reshape(-1, side, side), regions)
    return _WEIGHTS[side]


def _fields(rng: np.random.Generator, number: int, side: int, texture: str) -> NDArray:
    fields = rng.normal(size=(number, side, side))
    width = TEXTURES[texture] * side / 7
    if width:
        fields = ndimage.gaussian_filter(fields, (0, width, width), mode="nearest")
        fields /= fields.std()
    return fields


def _blob(rng: np.random.Generator, side: int, width: float) -> NDArray:
    """A round region at a random place, its centre not in the outer quarter; width in shares of the side."""
    centre = rng.uniform(0.25, 0.75, 2) * side
    row, column = np.mgrid[:side, :side] + 0.5
    return np.exp(-((row - centre[0]) ** 2 + (column - centre[1]) ** 2) / (2 * (side * width) ** 2))


def _show(rates: dict[Kind, dict[str, float]]) -> None:
    console = Console(width=140)
    table = Table(title=f"share of {WORLDS} worlds called at the 5 % level")
    for heading in ("worlds", "maps", *TESTS):
        table.add_column(heading)
    for (scene, side, texture), row in rates.items():
        table.add_row(scene, f"{side}x{side} {texture}", *(f"{row[name]:.3f}" for name in TESTS))
    console.print(table)
    error = np.sqrt(LEVEL * (1 - LEVEL) / WORLDS)
    console.print(f"the bar without a planted cue: 0.03 to 0.07; one standard error of a rate of 0.05: {error:.3f}")
