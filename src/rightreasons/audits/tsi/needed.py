"""Which arrays TSI needs, by its settings."""

from __future__ import annotations

from collections.abc import Iterator

from rightreasons.audits._contract import Need
from rightreasons.audits.tsi import arrays
from rightreasons.audits.tsi.settings import Settings, check_arrays, wanted_extras
from rightreasons.errors import SettingError
from rightreasons.families import suggest

ANNOTATIONS = {"auto": ("box", "mask"), "box": ("box", "mask"), "mask": ("mask", "box"), "fov": ("fov",), "attention": ()}
SIDES = ("inside", "outside")


def needed(settings: Settings, against: str) -> tuple[Need, ...]:
    """Of the tested model everything; of the models it is compared with what the scores need."""
    check_arrays(settings)
    if against not in arrays.AGAINST:
        raise SettingError(f"against={against!r}; {suggest(str(against), arrays.AGAINST)}")
    cohort = settings.cohort
    influence = arrays.influence_array(settings.maps, settings.explain)
    read = [*_for_scores("test", settings), *_for_extras("test", settings)]
    if against in ("auto", "twins") and cohort == "test" and settings.region not in arrays.DESCRIBES:
        read.append(Need("test", "twin", influence, optional=True))
    read.append(Need("test", "audit", "logits", optional=True))  # π, where the training rows are unknown
    return (*read, *_for_scores("baseline", settings), *_for_scores("panel", settings))


def _for_scores(role: str, settings: Settings) -> list[Need]:
    """Logits, influence, and where the object is."""
    region, maps, explain = settings.region, settings.maps, settings.explain
    read = [
        Need(role, settings.cohort, "logits"),
        Need(role, settings.cohort, arrays.influence_array(maps, explain)),
    ]
    for kind in ANNOTATIONS[region]:
        optional = region == "auto" or kind != region
        read.append(Need(role, settings.cohort, arrays.tokens_array(kind, maps), optional))
    if region == "attention":
        read.append(Need(role, settings.cohort, arrays.map_array("attention", explain)))
    return read


def _for_extras(role: str, settings: Settings) -> list[Need]:
    """What the extras read beyond that; the audit can do without each of them."""
    known = {need.array for need in _for_scores(role, settings)}
    names = dict.fromkeys(_extra_arrays(settings))
    return [Need(role, settings.cohort, name, optional=True) for name in names if name not in known]


def _extra_arrays(settings: Settings) -> Iterator[str]:
    asked, explain = wanted_extras(settings.extras), settings.explain
    by = "mask" if settings.region == "mask" else "box"
    if "substitutes" in asked:
        yield from (arrays.map_array(method, explain) for method in arrays.SUBSTITUTES)
    if "deletion" in asked:
        for method in arrays.DELETED_BY:
            yield from (arrays.drop_array(method, top, explain) for top in arrays.DELETED)
    if "noise" in asked:
        for draw in range(settings.draws):
            yield from (arrays.noise_array(by, draw, side, settings.sd) for side in SIDES)
    if "keep" in asked:
        yield from (arrays.keep_array(by, side) for side in SIDES)
    if "missingness" in asked:
        yield arrays.drop_array("random", arrays.MISSING, explain)
        yield from (arrays.fill_array(fill, settings.maps) for fill in arrays.FILLS)
