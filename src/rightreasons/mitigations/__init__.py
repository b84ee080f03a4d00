"""Change a model for the better: one file a method, found by its name. `mitigate` runs one; the model given stays as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rightreasons import families
from rightreasons.errors import SettingError
from rightreasons.stats.resampling import task_rng

if TYPE_CHECKING:
    from rightreasons.data.cohort import Cohort
    from rightreasons.models.classifier import Classifier

RUNNING = ("folder", "device", "threads", "workers", "cache")
"""Keywords of `mitigate` functions that say where and how they run, and change no result that is promised."""


def mitigate(
    method: str,
    classifier: Classifier,
    cohort: Cohort,
    *,
    references: Mapping[str, Classifier | Sequence[Classifier]] | None = None,
    seed: int = 0,
    **settings: Any,
) -> Classifier:
    """Run one mitigation and give the new model.

    Parameters
    ----------
    method : a member of `mitigations/`, or the dotted name of a module of your own
    references : role → model, or a list of them (seeds), for methods that read other models
    settings : keywords of the method's `mitigate`; an unknown one is an error that lists the known
    """
    module = families.member("mitigations", method)
    known = {key: value for key, value in families.settings_of(module.mitigate).items() if key != "references"}
    families.refuse_unknown(settings, known, f"mitigation {method!r}")
    roles = references_of(method)
    given = {role: list(models) if isinstance(models, Sequence) else [models] for role, models in (references or {}).items()}
    for role in given:
        if role not in roles:
            raise SettingError(f"mitigation {method!r} has no role {role!r}; {families.suggest(role, roles)}")
    missing = [role for role in roles if not given.get(role)]
    if missing:
        raise SettingError(f"mitigation {method!r} compares with other models and lacks references for {', '.join(missing)}")
    extra = {"references": given} if roles else {}
    rng = task_rng(seed, f"mitigation {method.rpartition('.')[2]}")
    found: Classifier = module.mitigate(classifier, cohort, rng=rng, **extra, **settings)
    return found


def references_of(method: str) -> tuple[str, ...]:
    """Roles of the other models that a method reads."""
    return tuple(getattr(families.member("mitigations", method), "REFERENCES", ()))
