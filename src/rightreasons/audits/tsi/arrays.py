"""The names under which extraction keeps the arrays that TSI reads."""

from __future__ import annotations

from rightreasons.evidence import Recipe

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
    """The influence on a class, from `token_influence`, an attribution with settings, or the whole name of an array."""
    recipe = Recipe.parse(maps if "@" in maps else f"maps@{maps}")
    settings = dict(recipe.settings)
    if recipe.method not in UNEXPLAINED:
        settings.setdefault("explain", explain)
    return str(Recipe(recipe.quantity, recipe.method, tuple(sorted(settings.items()))))


def tokens_array(kind: str, maps: str) -> str:
    """Which tokens an object covers, on the grid of the influence."""
    patched = []
    for setting in Recipe.parse(influence_array(maps, "label")).settings:
        if setting[0] in PATCHED:
            patched.append(setting)
    return str(Recipe("tokens", kind, tuple(patched)))


def map_array(method: str, explain: str) -> str:
    """The map of an attribution that may stand in for the influence."""
    if method in UNEXPLAINED:
        return f"maps@{method}"
    return f"maps@{method}(explain={explain})"


def drop_array(by: str, top: int, explain: str) -> str:
    """Logits without the `top` tokens of a map."""
    settings = "draw=0"
    if by != "random":
        settings = f"explain={explain}"
    return f"logits@drop({settings},map={by},top={top})"


def fill_array(fill: str, maps: str) -> str:
    """Logits with the patches that `drop_array("random", MISSING, …)` leaves out filled instead."""
    settings = dict(Recipe.parse(influence_array(maps, "label")).settings)
    patch = ""
    if "patch" in settings:
        patch = f",patch={settings['patch']}"
    return f"logits@fill(draw=0,fill={fill},map=random{patch},top={MISSING})"


def keep_array(by: str, region: str) -> str:
    """Logits from the tokens inside or outside the object alone."""
    return f"logits@keep(by={by},region={region})"


def noise_array(by: str, draw: int, region: str, sd: float) -> str:
    """Logits with noise inside or outside the object."""
    return f"logits@noise(by={by},draw={draw},region={region},sd={sd:g})"
