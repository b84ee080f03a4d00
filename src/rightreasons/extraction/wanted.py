"""What is to be made: cohorts by name, and the arrays of each with everything that they are made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rightreasons import families
from rightreasons.audits import Need, needs_of
from rightreasons.data.cohort import Cohort
from rightreasons.errors import DataError, ModelError, SettingError
from rightreasons.evidence import Recipe
from rightreasons.extraction import recipes
from rightreasons.head import outputs_for
from rightreasons.models.classifier import Classifier
from rightreasons.models.passes import Maker
from rightreasons.stats.resampling import task_rng


def named_cohorts(cohorts: Cohort | Mapping[str, Cohort], seed: int = 0) -> dict[str, Cohort]:
    """Cohorts by name: the splits of a single cohort (halved where it has none), and the twins of its test rows."""
    if not isinstance(cohorts, Cohort):
        return dict(cohorts)
    whole = cohorts.with_roles(rng=task_rng(seed, "roles of the splits"))
    if whole.splits is None:
        names = []
    else:
        names = [name for name in dict.fromkeys(whole.splits) if name]
    if "test" not in names:
        raise DataError(
            f"cohort {whole.name!r} has no rows in split 'test' (it has {', '.join(names) or 'none'}): call the rows that the "
            "model has not seen 'test', or leave split= out and all rows are halved into audit and test"
        )
    named = {name: whole.on(name) for name in names}
    if whole.twin is not None:
        twins = named["test"].twins()
        if len(twins):
            named["twin"] = twins
    return named


def refusal(need: Need, named: Mapping[str, Cohort], classifier: Classifier) -> str:
    """Why an array cannot be made of these cohorts by this network; empty where it can."""
    if need.cohort not in named:
        return f"there are no {need.cohort} rows"
    try:
        _steps_to(need.cohort, need.array, named, classifier)
    except (DataError, ModelError) as error:
        return str(error)
    return ""


def wanted_arrays(
    needs: Iterable[Need | str], named: Mapping[str, Cohort], classifier: Classifier
) -> dict[str, dict[str, Maker]]:
    """Cohort → arrays with their makers, each after those that it reads.

    A cohort that the manifest lacks is passed over, and so is what an audit needs and this table or network cannot give: the
    audit says so. An array that is asked for by its own name is refused instead.
    """
    wanted: dict[str, dict[str, Maker]] = {}
    for asked in [needs] if isinstance(needs, str | Need) else needs:
        is_of_audit, single_needs = _single_needs(asked)
        for need in single_needs:
            if need.cohort not in named:
                continue
            try:
                steps = _steps_to(need.cohort, need.array, named, classifier)
            except (DataError, ModelError):
                if not is_of_audit:
                    raise
                continue
            for step in steps:
                wanted.setdefault(step.cohort, {}).setdefault(step.array, step.maker)
    return wanted


def _single_needs(asked: Need | str) -> tuple[bool, Sequence[Need]]:
    """Whether an audit asks for it, and the arrays that are asked for one by one."""
    if isinstance(asked, Need):
        return True, (asked,)
    is_own_audit = "." in asked and "@" not in asked
    if asked in families.members("audits") or is_own_audit:
        return True, needs_of([asked])
    return False, (Need("test", "test", asked),)


@dataclass(frozen=True)
class _Step:
    cohort: str
    array: str
    maker: Maker


def _steps_to(
    cohort: str, array: str, named: Mapping[str, Cohort], classifier: Classifier, above: tuple[str, ...] = ()
) -> list[_Step]:
    """Everything that an array is made from, itself last; refused where that cannot be."""
    name = str(Recipe.parse(array))
    here = f"{cohort}/{name}"
    if here in above:
        raise SettingError(f"{' reads '.join((*above, here))}: an array cannot be made from itself")
    if cohort not in named:
        raise DataError(f"{above[-1]} reads {name!r} of cohort {cohort!r}, and there are {', '.join(named)}: add such rows")
    maker = recipes.make(name)
    for column in ("box", "mask"):
        if column in maker.reads and getattr(named[cohort], column) is None:
            raise DataError(
                f"{name!r} reads a {column} of every image, and cohort {cohort!r} has none: give {column}= when reading"
            )
    if maker.check is not None:
        maker.check(classifier)
    steps = []
    for source in maker.arrays:
        other_cohort, _, source_array = source.rpartition("/")
        steps += _steps_to(other_cohort or cohort, source_array, named, classifier, (*above, here))
    return [*steps, _Step(cohort, name, maker)]


def refuse_other_classes(classifier: Classifier, named: Mapping[str, Cohort]) -> None:
    """Refuse label values that no output stands for now, and not after hours of forward passes."""
    target = str(classifier.card.get("target") or "")
    for cohort in named.values():
        if target and target != cohort.label_name:
            if target in cohort.attributes:
                outputs_for(cohort.attribute(target).levels, classifier.classes)
        elif cohort.classes:
            outputs_for(cohort.classes, classifier.classes)
