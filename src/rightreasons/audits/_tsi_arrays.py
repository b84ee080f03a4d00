"""Which arrays TSI reads, by its settings: the names under which extraction keeps them."""

from __future__ import annotations

from collections.abc import Sequence

from rightreasons.audits._contract import Need
from rightreasons.errors import SettingError
from rightreasons.evidence import Recipe
from rightreasons.families import suggest

REGIONS = ("auto", "box", "mask", "fov", "attention")
DESCRIBES = ("fov", "attention")  # regions that nobody drew around an object: with them TSI only describes
EXTRAS = ("substitutes", "deletion", "noise", "keep", "missingness")
AGAINST = ("auto", "baseline", "twins", "tolerance")
EXPLAIN = ("label", "predicted")

UNEXPLAINED = ("attention", "rollout")  # maps that are the same for every class
SUBSTITUTES = ("attention", "rollout", "gradcam")
DELETED_BY = ("token_influence", "gradcam", "random")
DELETED = (1, 3, 5, 10, 20)
CORE_TOPS = (5, 10, 20, 40, 80)
FILLS = ("zero", "mean", "blur")
MISSING = 20  # tokens dropped or filled in the missingness check
PATCHED = ("patch",)  # settings that say which cells stand for tokens where a model has none


def influence_array(maps: str, explain: str) -> str:
    """`token_influence`, an attribution with settings, or the whole name of an array."""
    recipe = Recipe.parse(maps if "@" in maps else f"maps@{maps}")
    settings = dict(recipe.settings)
    if recipe.method not in UNEXPLAINED:
        settings.setdefault("explain", explain)
    return str(Recipe(recipe.quantity, recipe.method, tuple(sorted(settings.items()))))


def tokens_array(kind: str, maps: str) -> str:
    """Which tokens an object covers, on the grid of the influence."""
    settings = [(k, v) for k, v in Recipe.parse(influence_array(maps, "label")).settings if k in PATCHED]
    return str(Recipe("tokens", kind, tuple(settings)))


def map_array(method: str, explain: str) -> str:
    return f"maps@{method}" if method in UNEXPLAINED else f"maps@{method}(explain={explain})"


def drop_array(by: str, top: int, explain: str) -> str:
    settings = "draw=0" if by == "random" else f"explain={explain}"
    return f"logits@drop({settings},map={by},top={top})"


def fill_array(fill: str, maps: str) -> str:
    settings = dict(Recipe.parse(influence_array(maps, "label")).settings)
    patch = f",patch={settings['patch']}" if "patch" in settings else ""
    return f"logits@fill(draw=0,fill={fill},map=random{patch},top={MISSING})"


def keep_array(by: str, region: str) -> str:
    return f"logits@keep(by={by},region={region})"


def noise_array(by: str, draw: int, region: str, sd: float) -> str:
    return f"logits@noise(by={by},draw={draw},region={region},sd={sd:g})"


def check_settings(region: str, explain: str, extras: Sequence[str], draws: int, sd: float) -> None:
    if region not in REGIONS:
        raise SettingError(f"no region {region!r}; {suggest(str(region), REGIONS)}")
    if explain not in EXPLAIN:
        raise SettingError(f"explain={explain!r}; {suggest(str(explain), EXPLAIN)}")
    for name in [extras] if isinstance(extras, str) else extras:
        if name not in (*EXTRAS, "all"):
            raise SettingError(f"extras= names {name!r}; {suggest(str(name), (*EXTRAS, 'all'))}")
    if draws < 1 or sd <= 0:
        raise SettingError(f"found draws={draws} and sd={sd}; noise needs at least one draw and a positive deviation")


def wanted(extras: Sequence[str]) -> tuple[str, ...]:
    """The extras asked for, in their order."""
    given = [extras] if isinstance(extras, str) else list(extras)
    return EXTRAS if "all" in given else tuple(name for name in EXTRAS if name in given)


def arrays(region: str, maps: str, explain: str, extras: Sequence[str], draws: int, sd: float) -> tuple[tuple[str, bool], ...]:
    """Every array that one model's measurement reads, and whether it can do without."""
    kinds = {"auto": ("box", "mask"), "box": ("box", "mask"), "mask": ("mask", "box"), "fov": ("fov",), "attention": ()}[region]
    found = [("logits", False), (influence_array(maps, explain), False)]
    found += [(tokens_array(kind, maps), region == "auto" or kind != region) for kind in kinds]
    if region == "attention":
        found.append((map_array("attention", explain), False))
    asked, by = wanted(extras), "mask" if region == "mask" else "box"
    more: list[str] = []
    if "substitutes" in asked:
        more += [map_array(method, explain) for method in SUBSTITUTES]
    if "deletion" in asked:
        more += [drop_array(method, top, explain) for method in DELETED_BY for top in DELETED]
    if "noise" in asked:
        more += [noise_array(by, draw, side, sd) for draw in range(draws) for side in ("inside", "outside")]
    if "keep" in asked:
        more += [keep_array(by, side) for side in ("inside", "outside")]
    if "missingness" in asked:
        more += [drop_array("random", MISSING, explain), *(fill_array(fill, maps) for fill in FILLS)]
    known = {name for name, _ in found}
    return tuple(found) + tuple((name, True) for name in dict.fromkeys(more) if name not in known)


def needed(
    region: str, maps: str, explain: str, cohort: str, extras: Sequence[str], draws: int, sd: float, against: str
) -> tuple[Need, ...]:
    check_settings(region, explain, extras, draws, sd)
    if against not in AGAINST:
        raise SettingError(f"against={against!r}; {suggest(str(against), AGAINST)}")
    light = arrays(region, maps, explain, (), draws, sd)
    found = [Need("test", cohort, name, optional) for name, optional in arrays(region, maps, explain, extras, draws, sd)]
    if against in ("auto", "twins") and cohort == "test" and region not in DESCRIBES:
        found.append(Need("test", "twin", influence_array(maps, explain), optional=True))
    found.append(Need("test", "audit", "logits", optional=True))  # π, where the training rows are unknown
    for role in ("baseline", "panel"):
        found += [Need(role, cohort, name, optional) for name, optional in light]
    return tuple(found)
