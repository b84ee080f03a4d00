"""Run an audit on evidence: measure every model, conclude over all of them. No network runs here."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rightreasons import families
from rightreasons.audits._contract import Context, Need, Result, Role, subjects_of
from rightreasons.display import show_as_finding
from rightreasons.errors import EvidenceError, NotRun, SettingError
from rightreasons.evidence import Evidence
from rightreasons.findings import Finding, not_run
from rightreasons.progress import track
from rightreasons.stats.resampling import task_rng
from rightreasons.trust import named_in_the_call

__all__ = ["Context", "Need", "Result", "Role", "audit", "audit_all", "needs_of", "subjects_of"]

Models = Evidence | Mapping[str, Evidence | Sequence[Evidence]]


def audit(method: str, models: Models, *, seed: int = 0, name: str | None = None, **settings: Any) -> Any:
    """Run one audit and give its Result.

    Parameters
    ----------
    method : a member of `audits/`, or the dotted name of a module of your own
    models : role → Evidence, or a list of them (seeds); audits of one model also take a bare Evidence
    name : of the finding; the method's by default
    settings : keywords of the audit's `measure` and `conclude`; an unknown one is an error that lists the known
    """
    with named_in_the_call(method):
        return _audit(method, models, seed, name, settings)


def _audit(method: str, models: Models, seed: int, name: str | None, settings: dict[str, Any]) -> Any:
    module = families.member("audits", method)
    full = families.resolve(settings, module.measure, module.conclude, where=f"audit {method!r}")
    families.refuse_beyond_limits({**full, "seed": seed}, f"audit {method!r}:")
    roles = _by_role(method, models, module, full)
    start = time.perf_counter()
    of_measure, of_conclude = families.accepted(module.measure, full), families.accepted(module.conclude, full)
    measurements: dict[str, list[Any]] = {}
    for role, members in roles.items():
        measurements[role] = []
        for evidence in members:
            # The task is (audit, cohort) and not the model: all models share resamples.
            rng = task_rng(seed, f"{method} measure")
            measurements[role].append(module.measure(evidence, rng=rng, **of_measure))
    result = module.conclude(measurements, rng=task_rng(seed, f"{method} conclude"), **of_conclude)
    tested = roles.get("test", next(iter(roles.values())))
    view = tested[0].on(result.context.cohort)
    n_rows, n_subjects = result.context.n_rows, result.context.n_subjects
    if n_rows is None:
        n_rows = len(view)
    if n_subjects is None:
        n_subjects = subjects_of(view)
    context = replace(
        result.context,
        name=name or method,
        audit=method,
        model=", ".join(dict.fromkeys(e.card.name for e in tested)),
        n_rows=n_rows,
        n_subjects=n_subjects,
        settings=full,
        seed=seed,
        seconds=time.perf_counter() - start,
    )
    show_as_finding(type(result))
    return replace(result, context=context)


def audit_all(
    models: Models,
    *,
    audits: Sequence[str] | None = None,
    seed: int = 0,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Finding]:
    """Run what the evidence allows, once for every attribute; what cannot run is a finding that says why.

    Parameters
    ----------
    audits : which ones; all by default
    settings : audit → its settings; a key that names no audit in `audits` is an error
    """
    if isinstance(audits, str):
        raise SettingError(f"audits={audits!r} is one text: give a list of names")
    chosen = tuple(audits) if audits is not None else families.members("audits")
    given = dict(settings or {})
    for key in given:
        if key not in chosen:
            raise SettingError(f"settings are given for audit {key!r}, which is not run; {families.suggest(key, chosen)}")
    with named_in_the_call(*chosen):
        tasks = [(method, attribute) for method in chosen for attribute in _attributes(method, models, given.get(method, {}))]
        return [_one(method, attribute, models, seed, given.get(method, {})) for method, attribute in _shown(tasks)]


def _shown(tasks: Sequence[tuple[str, str | None]]) -> Iterable[tuple[str, str | None]]:
    return track(tasks, "audits", kinds=[method for method, _ in tasks])


def needs_of(audits: Sequence[str], settings: Mapping[str, Mapping[str, Any]] | None = None) -> tuple[Need, ...]:
    """Every array that these audits read, without repetition."""
    needs: dict[Need, None] = {}
    for method in audits:
        module = families.member("audits", method)
        full = families.resolve(
            dict((settings or {}).get(method, {})), module.measure, module.conclude, where=f"audit {method!r}"
        )
        needs.update(dict.fromkeys(module.needs(**families.accepted(module.needs, full))))
    return tuple(needs)


# ---- what the functions above use ----------------------------------------------------------------------------------------


def _by_role(method: str, models: Models, module: Any, settings: dict[str, Any]) -> dict[str, list[Evidence]]:
    if isinstance(models, Evidence):
        return {"test": [models]}
    roles = {role: [given] if isinstance(given, Evidence) else list(given) for role, given in models.items()}
    asked = {need.role for need in module.needs(**families.accepted(module.needs, settings))}
    for role in roles:
        if role not in asked:
            raise SettingError(f"audit {method!r} has no role {role!r}; {families.suggest(role, asked)}")
    return roles


def _tested(models: Models) -> Evidence:
    if isinstance(models, Evidence):
        return models
    first = models.get("test", next(iter(models.values())))
    if isinstance(first, Evidence):
        return first
    return first[0]


def _attributes(method: str, models: Models, settings: Mapping[str, Any]) -> tuple[str | None, ...]:
    """The attributes to run one audit for: those of the test rows, unless it takes none or one is named."""
    module = families.member("audits", method)
    if "attribute" not in families.settings_of(module.measure) or settings.get("attribute") is not None:
        return (None,)
    return _tested(models).on("test").cohort.attributes or (None,)


def _one(method: str, attribute: str | None, models: Models, seed: int, settings: Mapping[str, Any]) -> Finding:
    module = families.member("audits", method)
    several = len(_tested(models).on("test").cohort.attributes) > 1 and attribute is not None
    if several:
        name = f"{method}-{attribute}"
    else:
        name = method
    chosen = dict(settings)
    if attribute is not None:
        chosen["attribute"] = attribute
    try:
        roles = models if isinstance(models, Evidence) else _asked(models, module)
        return audit(method, roles, seed=seed, name=name, **chosen).finding()
    except (NotRun, EvidenceError) as error:
        return not_run(
            name=name,
            audit=method,
            question=module.QUESTION,
            row=module.ROW,
            reason=str(error),
            lacks=getattr(error, "lacks", ""),
            model=_tested(models).card.name,
            attribute=attribute or "",
            settings=chosen,
            seed=seed,
        )


def _asked(models: Mapping[str, Any], module: Any) -> dict[str, Any]:
    """The roles that this audit knows; an audit of one model gets only the tested one."""
    asked = {need.role for need in module.needs()}
    return {role: given for role, given in models.items() if role in asked}
