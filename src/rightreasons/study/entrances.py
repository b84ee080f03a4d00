"""The ways into a study: evidence, a classifier with its rows, a study.toml. All but the first end in one runner."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rightreasons import families
from rightreasons.audits import Models
from rightreasons.audits import audit_all as audit_evidence
from rightreasons.errors import SettingError
from rightreasons.evidence import Evidence
from rightreasons.findings import Finding
from rightreasons.study.file import DEPTHS, Depth, StudyFile, naming, read
from rightreasons.study.keywords import refuse_wrong_types
from rightreasons.study.plan import DATA
from rightreasons.study.preflight import checked, lines, of_all_rows
from rightreasons.trust import named_in_the_call, trusting

if TYPE_CHECKING:
    from rightreasons.data.cohort import Cohort
    from rightreasons.models.classifier import Classifier
    from rightreasons.study.brought import Brought


def audit_all(  # noqa: PLR0913  each keyword is a documented setting
    what: Models | Classifier | str | os.PathLike[str],
    cohort: Cohort | None = None,
    *,
    audits: Sequence[str] | None = None,
    seed: int = 0,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    out: str | os.PathLike[str] | None = None,
    depth: Depth | None = None,
    say: Callable[[str], None] = print,
    trust: str | Sequence[str] = (),
    **more: Any,
) -> list[Finding]:
    """Everything that the data allow, as findings; what cannot run is a finding that says why.

    Parameters
    ----------
    what : Evidence, or role → Evidence: the audits run on what was extracted. A study.toml, or a Classifier with its `cohort`:
        evidence is extracted, reference models are trained, and a page is written to `out`
    audits : which ones; all by default
    settings : audit → its settings
    depth : "quick" trains nothing but probes; "usual" trains the reference models; "full" trains four of each, and families
    trust : modules of your own that a study.toml or a saved model names and whose code may run; no file can say so itself
    more : of a classifier, see `audit_classifier`
    """
    given = {"audits": audits, "settings": settings, "depth": depth, "say": say}
    with trusting(trust), named_in_the_call(*(audits or ())):
        return _audit_all(what, cohort, out, given, seed, more)


def _audit_all(
    what: Models | Classifier | str | os.PathLike[str],
    cohort: Cohort | None,
    out: str | os.PathLike[str] | None,
    given: Mapping[str, Any],
    seed: int,
    more: Mapping[str, Any],
) -> list[Finding]:
    audits, settings, depth, say = (given[key] for key in ("audits", "settings", "depth", "say"))
    if isinstance(what, Evidence | Mapping):
        if cohort is not None or out is not None or more:
            raise SettingError("with evidence there is nothing to extract or train: leave out cohort=, out= and the like")
        findings, cards = checked(audit_evidence(what, audits=audits, seed=seed, settings=settings), what)
        for card in cards:
            if not card.works:
                say(lines(card)[0])
        return findings
    if isinstance(what, str | os.PathLike):
        if cohort is not None or audits is not None or settings or more:
            raise SettingError("a study.toml says what is audited and how: leave out all but out= and depth=")
        return audit_study(what, out, depth=depth, say=say)
    if cohort is None or out is None:
        raise SettingError("give a classifier with cohort= and out=, the folder for all that is made")
    names = tuple(audits) if audits is not None else families.members("audits")
    for name in settings or {}:
        if name not in names:
            raise SettingError(f"settings are given for audit {name!r}, which is not run; {families.suggest(name, names)}")
    tables = {name: dict((settings or {}).get(name, {})) for name in names}
    return audit_classifier(what, cohort, Path(out), audits=tables, depth=depth or "usual", seed=seed, say=say, **more)


def audit_classifier(  # noqa: PLR0913  each keyword is a documented setting
    classifier: Classifier,
    cohort: Cohort,
    folder: Path,
    *,
    audits: Mapping[str, Mapping[str, Any]],
    depth: Depth = "usual",
    seed: int = 0,
    start: str | None = None,
    external: Mapping[str, Cohort] | None = None,
    references: Mapping[str, Sequence[str | os.PathLike[str]]] | None = None,
    training: Mapping[str, Any] | None = None,
    extraction: Mapping[str, Any] | None = None,
    title: str = "",
    subtitle: str = "",
    say: Callable[[str], None] = print,
) -> list[Finding]:
    """Audit a model that is in memory.

    Parameters
    ----------
    audits : table → settings, `method` among them where it is not the table's name
    start : starting weights of the reference models: "fresh", "given", a folder or a checkpoint; by default what the model's
        card says, and of a brought checkpoint it says nothing
    external : cohorts from elsewhere: what the model does there is described beside
    references : role → folders of models that are there already
    training : keywords of `train` for the reference models
    extraction : keywords of `extract`
    """
    from rightreasons.study.brought import Brought  # it runs networks, and evidence is audited without torch
    from rightreasons.study.cohorts import refuse_taken_name
    from rightreasons.study.file import Audit, Model, References

    for name in external or {}:
        refuse_taken_name(name)
    trained_with = dict(training or {})
    threads = trained_with.pop("threads", None)
    if depth not in DEPTHS:
        raise SettingError(f"depth={depth!r}; {families.suggest(str(depth), DEPTHS)}")
    file = StudyFile(
        seed=seed,
        depth=depth,
        title=title,
        subtitle=subtitle,
        model=Model(start=start),
        references=References(**trained_with),
        extract=dict(extraction or {}),
        audits={name: Audit(**table) for name, table in audits.items()},
    )
    return _audit(
        Brought(
            classifier=classifier,
            data=cohort,
            folder=folder,
            file=file,
            external=external or {},
            references=_opened(references or {}),
            threads=threads,
        ),
        say,
    )


def audit_study(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    depth: Depth | None = None,
    say: Callable[[str], None] = print,
) -> list[Finding]:
    """Run what a study.toml asks for, with what the data allow where it names no audits, and write the page.

    Parameters
    ----------
    depth : "quick", "usual" or "full"; what the file says by default
    """
    from rightreasons.study.runs import default_folder

    file = read(Path(source))
    with naming(Path(source)):
        return audit_file(file, Path(out) if out is not None else default_folder(Path(source)), depth=depth, say=say)


def audit_file(file: StudyFile, folder: Path, *, depth: Depth | None = None, say: Callable[[str], None] = print) -> list[Finding]:
    """The same of a checked file; it is written to `folder/study.toml`, so that the folder says how it was made."""
    asked = file if depth is None else file.model_copy(update={"depth": depth})
    if asked.model is None:
        from rightreasons.study.filled import audited_runs

        return audited_runs(asked, folder, command_line(folder), say)
    return _audit(brought_by(asked, folder), say)


def brought_by(file: StudyFile, folder: Path) -> Brought:
    """The model and rows that a file with [model] names."""
    from rightreasons.study import cohorts
    from rightreasons.study.brought import Brought, refuse_wrong_tables

    refuse_wrong_tables(file)
    complete = StudyFile.model_validate({**file.model_dump(exclude_unset=True), "depth": file.depth})
    manifest = "" if file.data is None else file.data.manifest or ""
    return Brought(
        classifier=classifier_of(file),
        data=cohorts.data_of(file, folder),
        folder=folder,
        file=file if file.subtitle is not None else file.model_copy(update={"subtitle": manifest}),
        external=cohorts.external_cohorts(file, folder),
        references=_opened({"baseline": file.references.baseline, "attribute": file.references.attribute}),
        text=complete.to_toml(),
        command=command_line(folder),
    )


def classifier_of(file: StudyFile) -> Classifier:
    """The network of [model]: the folder of a saved one, or a specification with keywords of `Classifier.load`."""
    table = file.model
    if table is None or table.model is None:
        raise SettingError(
            "[model] has no model: timm:NAME, torchvision:NAME, … , package.module:factory, or a folder that train wrote"
        )
    from rightreasons.models.classifier import Classifier

    refuse_wrong_types(table.keywords, Classifier.load, where="[model]")
    return opened_or_loaded(table.model, table.keywords)


def opened_or_loaded(spec: str, settings: Mapping[str, Any], spelled: Callable[[str], str] = str) -> Classifier:
    """A saved model by its folder, or a network by its specification with keywords of `Classifier.load`.

    Parameters
    ----------
    spelled : how the caller writes a setting, for the error
    """
    from rightreasons.models.classifier import Classifier

    if not is_saved_model(spec):
        return Classifier.load(spec, **settings, trust=())  # a file cannot trust its own code
    if settings:
        raise SettingError(f"{spec} is a saved model and has its own settings: leave out {', '.join(map(spelled, settings))}")
    opened = Classifier.open(spec)
    opened.card.setdefault("name", Path(spec).resolve().name)
    return opened


def is_saved_model(spec: str) -> bool:
    """Whether it is a folder that `train` or `Classifier.save` wrote."""
    return (Path(spec) / "model.json").is_file()


def command_line(folder: Path) -> str:
    """What to type to do it again."""
    return shlex.join(["rightreasons", "audit", str(folder / "study.toml"), "--out", str(folder)])


def _audit(brought: Brought, say: Callable[[str], None]) -> list[Finding]:
    from rightreasons.study.first_look import first_look
    from rightreasons.study.sweep import run

    study = brought.study()
    for name, what in (brought.classifier.card.get("resampled") or {}).items():
        say(f"{name} of the checkpoint was resampled {what}, as timm does")
    look = first_look(brought.classifier, study.cohort(DATA), brought.file.extract)
    if look is not None:
        look = of_all_rows(look, brought.data, study.cohort(DATA), brought.file.seed)
        look = look.model_copy(update={"splits": dict(study.plan.cohorts[DATA].splits)})
        for line in lines(look):
            say(line)
    study.held.first_look = look
    return run(study, say=say).concluded()


def _opened(references: Mapping[str, Sequence[str | os.PathLike[str]]]) -> dict[str, list[Classifier]]:
    from rightreasons.models.classifier import Classifier

    return {role: [Classifier.open(Path(folder)) for folder in folders] for role, folders in references.items() if folders}
