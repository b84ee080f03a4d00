"""The command line: demo · init · check · train · extract · audit · template · mitigate · sweep · verify · seal · report ·
export · gate · serve.

Commands that read the same table or model share their options: `_sharing` adds them to a command's signature.
"""

from __future__ import annotations

import errno
import inspect
import json
import math
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
import typer.core
from rich.console import Console
from rich.markup import escape

from rightreasons import __version__, families, trust
from rightreasons.errors import RightReasonsError, SettingError
from rightreasons.files import as_folder
from rightreasons.spoken import as_key, as_option, spoken

if TYPE_CHECKING:
    from rightreasons.audits import Need
    from rightreasons.data.cohort import Cohort
    from rightreasons.evidence import Evidence
    from rightreasons.findings import Finding
    from rightreasons.models.classifier import Classifier
    from rightreasons.seal import Seen
    from rightreasons.study import Study
    from rightreasons.study.checklist import Gap
    from rightreasons.study.file import Depth

app = typer.Typer(
    name="rightreasons",
    help="Is your image classifier right for the right reasons?",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
console = Console(highlight=False, soft_wrap=True)
USAGE_ERRORS: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""What the parser of options raises: an unknown option, a value of a wrong type."""


def main() -> None:
    """Run the command line; an error is one sentence and exit status 2."""
    try:
        status = app(standalone_mode=False)
    except USAGE_ERRORS as error:
        _fail(error.format_message())
    except typer.Abort:
        _fail("ended by the user")
    except RightReasonsError as error:
        _fail(spoken(str(error), as_key if _is_about_a_study() else as_option))
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "timm", "torchvision"):
            raise
        _fail(f"this command runs a network and needs {error.name}: pip install {error.name}")
    except OSError as error:
        _fail(_of_the_disk(error))
    sys.exit(status)


def _fail(sentence: str) -> None:
    _say(f"[bold red]error:[/] {escape(sentence)}")
    sys.exit(2)


def _is_about_a_study() -> bool:
    """Whether settings come from a study.toml and not from options."""
    return any(argument.endswith(".toml") for argument in sys.argv[2:3])


def _of_the_disk(error: OSError) -> str:
    """What a file could not do; a full disk and a limit of file sizes name no file."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        place = f" at {error.filename}" if error.filename else ""
        return f"{error.strerror}{place}: make room, or give --out on another disk; what was finished stays and is not made again"
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)


def _say(markup: str) -> None:
    """A line on stderr: what is said beside the result."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(markup)


# ---- help by topic --------------------------------------------------------------------------------------------------------

TOPICS = (
    "What is audited", "Columns of the table", "The model", "What is asked", "How much is trained", "Where and how it runs"
)  # fmt: skip
TABLE, COLUMNS_TOPIC, MODEL_TOPIC, ASKED, TRAINED, RUNS = TOPICS


class ByTopic(typer.core.TyperCommand):
    """A command whose help lists its options by topic; those of none come last."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        listed: dict[str, list[tuple[str, str]]] = {"Arguments": [], **{topic: [] for topic in TOPICS}, "Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                topic = getattr(parameter, "rich_help_panel", None) or "Options"
                listed["Arguments" if parameter.param_type_name == "argument" else topic].append(record)
        for topic, records in listed.items():
            if records:
                with formatter.section(topic):
                    formatter.write_dl(records)


# ---- options that commands share -----------------------------------------------------------------------------------------

Options = dict[str, tuple[Any, Any]]  # name → (annotation, default)


def _option(topic: str) -> Callable[..., tuple[Any, Any]]:
    """A maker of options of one topic."""

    def made(kind: Any, help: str, *names: str, least: int | None = None) -> tuple[Any, Any]:
        many = getattr(kind, "__origin__", None) is list
        return Annotated[kind if many else kind | None, typer.Option(*names, help=help, min=least, rich_help_panel=topic)], None

    return made


_column, _of_model, _of_run = _option(COLUMNS_TOPIC), _option(MODEL_TOPIC), _option(RUNS)

COLUMNS: Options = {
    "label": _column(str, "column with the label (default: label, y, target …)"),
    "attribute": _column(list[str], "column with an attribute; repeat for several"),
    "image": _column(str, "column with the image path (default: image, or the one with file names)"),
    "id": _column(str, "column with the id (default: the image path)"),
    "split": _column(str, "column with the split: train, val, audit, test"),
    "subject": _column(str, "column with the subject; no subject crosses splits"),
    "case": _column(str, "column with the case: several images, one decision"),
    "site": _column(str, "column with the site"),
    "box": _column(list[str], "column with boxes 'x0 y0 x1 y1; …', or four columns"),
    "mask": _column(str, "column with the path of a mask"),
    "twin": _column(str, "column with the same image but for the cue"),
    "twin_attribute": _column(str, "column with the twin's attribute"),
    "root": _column(Path, "folder that image paths start from (default: the manifest's)"),
    "map": _column(list[str], "label value=class, e.g. --map=-1=0 for uncertain to negative; repeat"),
    "bins": _column(list[str], "attribute=edges, e.g. age=40,60,80 or age=50.0, or attribute=number of quantile bins; repeat"),
    "kind": _column(list[str], "attribute=categorical or attribute=continuous; repeat"),
    "missing": _column(list[str], "a value that means not known; repeat"),
}

MODEL: Options = {
    "model": _of_model(
        str, "timm:NAME, torchvision:NAME, hf:FOLDER, monai:NAME, package.module:factory, or a folder written by train"
    ),
    "checkpoint": _of_model(Path, "weights: .safetensors, or a torch file"),
    "part": _of_model(str, "which weights of a checkpoint that holds several: its key or prefix, e.g. state_dict_ema or teacher"),
    "num_classes": _of_model(int, "number of outputs (default: the checkpoint's)", least=1),
    "classes": _of_model(str, "label value of every output, in order, separated by commas"),
    "output": _of_model(str, "one logit of a multi-label head"),
    "size": _of_model(str, "input size, e.g. 224 or 224,224 (default: the model's)"),
    "crop": _of_model(float, "centre-crop share (default: the model's)"),
    "interpolation": _of_model(str, "nearest, bilinear or bicubic (default: the model's)"),
    "mean": _of_model(str, "mean per channel, separated by commas (default: the model's)"),
    "std": _of_model(str, "standard deviation per channel, separated by commas (default: the model's)"),
    "channels": _of_model(int, "input channels (default: the model's)", least=1),
}

TRUST: Options = {
    "trust": _of_run(
        list[str], "module of your own whose code may run, such as my_lab (installed, or in this folder); repeat for several"
    ),
}

RUN: Options = {
    "device": _of_run(str, "where the network runs, e.g. cpu or cuda:1 (default: a GPU if there is one)"),
    "workers": _of_run(int, "threads that decode images (default: one per core)", least=1),
    "cache": _of_run(Path, "folder for decoded images, so that they are decoded once"),
}


def _sharing(*groups: Options) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add shared options to a command that takes them as `**shared`."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        own = [
            p.replace(annotation=hints.get(p.name, p.annotation))
            for p in inspect.signature(command).parameters.values()
            if p.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        shared = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for group in groups
            for name, (annotation, default) in group.items()
        ]
        own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) if p.default is not p.empty else p for p in own]

        def run(**given: Any) -> None:
            with trust.trusting(given.pop("trust", None) or ()), trust.found_here():
                command(**given)

        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in [*own, *shared]}
        return run

    return add


def _pairs(given: list[str] | None, option: str) -> dict[str, str]:
    found = {}
    for text in given or []:
        key, equals, value = text.rpartition("=")
        if not equals or not key:
            raise SettingError(f"--{option} {text!r} is not name=value")
        found[key] = value
    return found


def columns_of(shared: dict[str, Any]) -> dict[str, Any]:
    """Keywords of `Cohort.read` from the shared options; what was not given keeps its default."""
    plain = (set(COLUMNS) - {"map", "bins", "kind"}) & set(shared)
    keywords = {name: shared[name] for name in plain if shared[name] not in (None, [])}
    if mapping := _pairs(shared.get("map"), "map"):
        keywords["mapping"] = mapping
    if kinds := _pairs(shared.get("kind"), "kind"):
        keywords["kinds"] = kinds
    if bins := _pairs(shared.get("bins"), "bins"):
        keywords["bins"] = {k: int(v) if v.isdigit() else _numbers(v, "bins") for k, v in bins.items()}
    return keywords


def model_settings(shared: dict[str, Any]) -> dict[str, Any]:
    """Keywords of `Classifier.load` from the shared options."""
    found: dict[str, Any] = {
        k: shared[k]
        for k in ("checkpoint", "part", "num_classes", "crop", "interpolation", "channels")
        if shared.get(k) is not None
    }
    if shared.get("output") is not None:
        found["output"] = int(shared["output"]) if shared["output"].isdigit() else shared["output"]
    if shared.get("classes") is not None:
        found["classes"] = [c.strip() for c in shared["classes"].split(",")]
    if shared.get("size") is not None:
        sides = _whole_numbers(shared["size"], "size")
        found["size"] = sides[0] if len(sides) == 1 else tuple(sides)
    for name in ("mean", "std"):
        if shared.get(name) is not None:
            found[name] = _numbers(shared[name], name)
    return found


def _warn_of_random_weights(shared: dict[str, Any]) -> None:
    spec = str(shared.get("model"))
    if shared.get("checkpoint") is None and spec.startswith(("timm:", "torchvision:", "monai:")):
        _say(f"[bold yellow]note:[/] no --checkpoint: the weights of {escape(spec)} are random")


def _numbers(text: str, option: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise SettingError(f"--{option} {text!r} is not numbers separated by commas") from error
    if not all(map(math.isfinite, found)):
        raise SettingError(f"--{option} {text!r} is not finite: give numbers")
    return found


def _whole_numbers(text: str, option: str) -> list[int]:
    found = _numbers(text, option)
    if not all(number.is_integer() for number in found):
        raise SettingError(f"--{option} {text!r} is not whole: give pixels")
    return [int(number) for number in found]


def _where(shared: dict[str, Any]) -> dict[str, Any]:
    """Keywords of `extract` and `train` about where and how they run."""
    return {name: shared[name] for name in RUN if shared.get(name) is not None}


def _aligned(given: list[str] | None) -> dict[str, Any] | None:
    """`m=1` as value → label; `sex:m=1` as attribute → such a mapping."""
    pairs = _pairs(given, "aligned")
    if not any(":" in key for key in pairs):
        return pairs or None
    found: dict[str, Any] = {}
    for key, label in pairs.items():
        attribute, colon, value = key.partition(":")
        if not colon:
            raise SettingError(f"--aligned {key}={label} names no attribute and others do: write attribute:value=label for all")
        found.setdefault(attribute, {})[value] = label
    return found


def _sample(manifest: Path, classifier: Classifier, columns: dict[str, Any]) -> tuple[Any, Any] | None:
    """Rows and logits of a few readable images, for `check` to see whether the classes stand in the right order."""
    import torch

    from rightreasons.check import MOST_SAMPLE_ROWS
    from rightreasons.data.cohort import Cohort
    from rightreasons.errors import DataError
    from rightreasons.models.batches import batches

    try:
        cohort = Cohort.read(manifest, **columns)
        rows = [*range(0, len(cohort), max(1, len(cohort) // MOST_SAMPLE_ROWS))][:MOST_SAMPLE_ROWS]
        feed = batches(cohort.select(rows), classifier.geometry, classifier.mean, classifier.std, device=classifier.device)
        with torch.inference_mode():
            logits = torch.cat([classifier.logits(x) for _, x in feed]).cpu().numpy()
    except DataError:
        return None  # the report lists, row by row, what is wrong with the table or its images
    return rows, logits


def _fit_preprocessing(manifest: Path, classifier: Classifier | None, columns: dict[str, Any]) -> None:
    from rightreasons.data.cohort import Cohort
    from rightreasons.study.fitting import fit_preprocessing

    if classifier is None:
        raise SettingError("--fit-preprocessing tries a model on its rows: give --model and --checkpoint")
    fitted = fit_preprocessing(classifier, Cohort.read(manifest, **columns))
    for line in fitted.lines():
        _line(line)


def _cohort(manifest: Path, shared: dict[str, Any]) -> Cohort:
    from rightreasons.data.cohort import Cohort

    return Cohort.read(manifest, **columns_of(shared))


def _classifier(shared: dict[str, Any], **defaults: Any) -> Classifier:
    """The model that the options name; `defaults` are settings of `Classifier.load` for what they do not say."""
    from rightreasons.study.entrances import is_saved_model, opened_or_loaded

    spec, settings = _spec(shared), model_settings(shared)
    every = settings if is_saved_model(spec) else {**defaults, **settings}
    return opened_or_loaded(spec, every, spelled=as_option)


def _spec(shared: dict[str, Any]) -> str:
    spec = shared.get("model")
    if spec is None:
        raise SettingError("no model: give --model timm:NAME, torchvision:NAME, hf:FOLDER, monai:NAME or package.module:factory")
    return str(spec)


def _writable(out: Path | None) -> Path | None:
    """A folder that can be written to, found out before any work is done."""
    return None if out is None else as_folder(out)


# ---- commands ------------------------------------------------------------------------------------------------------------

Manifest = Annotated[Path, typer.Argument(help="CSV or Parquet table, image folder, or saved Hugging Face dataset")]
Out = Annotated[Path, typer.Option(help="folder for everything that is written", callback=_writable, rich_help_panel=RUNS)]
Seed = Annotated[int, typer.Option(help="seed of every random choice", min=0, rich_help_panel=RUNS)]
Batch = Annotated[int | None, typer.Option(help="images per forward pass (default: 32)", min=1, rich_help_panel=RUNS)]
Baseline = Annotated[
    list[Path] | None,
    typer.Option(
        help="folder of a model trained on balanced rows, for methods that compare; repeat for seeds", rich_help_panel=TRAINED
    ),
]
AttributeModel = Annotated[
    list[Path] | None,
    typer.Option(
        help="folder of a model of the attribute (train --target), for methods that compare; repeat for seeds",
        rich_help_panel=TRAINED,
    ),
]


@app.command()
def demo(out: Out = Path("build/demo"), seed: Seed = 0) -> None:
    """A planted shortcut on real digits: build, train, audit, look."""
    from rightreasons.demo import demo as run

    findings, page = run(out, seed=seed, say=console.print)
    _show(findings, page)


@app.command(cls=ByTopic)
@_sharing(COLUMNS, MODEL, RUN, TRUST)
def audit(  # noqa: PLR0913  each parameter is an option of the command
    manifest: Annotated[
        Path | None,
        typer.Argument(
            help="CSV, Parquet or Excel table, image folder, saved Hugging Face dataset, or a study.toml (default: what lies in "
            "this folder: a study.toml, or one table and one checkpoint)"
        ),
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(help="table of label, attribute …, and probabilities or decisions: no model needed", rich_help_panel=TABLE),
    ] = None,
    score: Annotated[
        str | None,
        typer.Option(
            help="with --predictions: column of probabilities, or column=class (default: p, p_<class>, score, prob …)",
            rich_help_panel=TABLE,
        ),
    ] = None,
    prediction: Annotated[
        str | None,
        typer.Option(
            help="with --predictions: column of decided classes, where there are no probabilities", rich_help_panel=TABLE
        ),
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(help="with --predictions: table of id and features of the same rows (see template)", rich_help_panel=TABLE),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="folder for everything that is written (default: rightreasons-audit)", callback=_writable, rich_help_panel=RUNS
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="minutes: train nothing but probes", rich_help_panel=TRAINED)] = False,
    full: Annotated[
        bool,
        typer.Option("--full", help="hours: four of each reference model, and families of models", rich_help_panel=TRAINED),
    ] = False,
    start: Annotated[
        str | None,
        typer.Option(
            help="starting weights of reference models: fresh, given, or a file (default: none is trained)",
            rich_help_panel=TRAINED,
        ),
    ] = None,
    audits: Annotated[
        str | None,
        typer.Option(help="which audits, separated by commas (default: all that the data allow)", rich_help_panel=ASKED),
    ] = None,
    aligned: Annotated[
        list[str] | None,
        typer.Option(
            help="attribute value=label it stands for, or attribute:value=label; repeat (default: learnt)", rich_help_panel=ASKED
        ),
    ] = None,
    truth: Annotated[
        str | None,
        typer.Option(
            help="column with adjudicated labels, to tell whether the labels follow an attribute", rich_help_panel=COLUMNS_TOPIC
        ),
    ] = None,
    threshold: Annotated[
        str | None,
        typer.Option(
            help="decide at this probability, or at that of best F1: f1, or max_f1 on val rows (default: argmax)",
            rich_help_panel=ASKED,
        ),
    ] = None,
    quartiles: Annotated[
        bool,
        typer.Option(
            help="cut a continuous attribute without --bins at its quartiles, where groups are needed", rich_help_panel=ASKED
        ),
    ] = True,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="audit.setting=value, such as oscar.partitions=grid:8; repeat", rich_help_panel=ASKED),
    ] = None,
    baseline: Baseline = None,
    attribute_model: AttributeModel = None,
    batch: Batch = None,
    seed: Annotated[
        int | None, typer.Option(help="seed of every random choice (default: 0)", min=0, rich_help_panel=RUNS)
    ] = None,
    **shared: Any,
) -> None:
    """Audit a model, a table of predictions or a study.toml. Runs what the data allow, says why not the rest, writes a page.

    What the table and the checkpoint say themselves need not be said: columns, the folder of the images, splits, classes. What
    was found is printed before anything runs.
    """
    from rightreasons.study.found import study_in

    depth = _depth(quick, full)
    of_predictions = {"score": score, "prediction": prediction, "features": features}
    asked = {
        "start": start,
        "truth": truth,
        "audits": audits,
        "aligned": aligned,
        "threshold": threshold,
        "set": settings,
        "baseline": baseline,
        "attribute_model": attribute_model,
        "batch": batch,
        "seed": seed,
    }
    if manifest is None and predictions is None:
        manifest = study_in(Path())
    if manifest is not None and manifest.suffix == ".toml":
        given = {"predictions": predictions, **of_predictions, **asked, "no_quartiles": not quartiles, **shared}
        _refuse_beside_a_study([name for name, value in given.items() if value not in (None, [], False)])
        _audit_study(manifest, out, depth)
        return
    if manifest is not None and predictions is not None:
        raise SettingError("give either a table of images with --model, or --predictions with a table of predictions")
    chosen = _audits(audits)
    tables = _audit_settings(chosen, settings, aligned=_aligned(aligned), threshold=_threshold(threshold), quartiles=quartiles)
    if predictions is not None:
        others = {key: asked[key] for key in ("baseline", "attribute_model", "start", "truth", "batch")}
        _refuse_beside_predictions({**shared, **others, "quick": quick, "full": full})
        _audit_predictions(predictions, out, of_predictions, None if audits is None else chosen, tables, seed or 0, shared)
        return
    _refuse_without_predictions(of_predictions)
    _audit_brought(manifest, out, {**asked, **shared}, tables, depth)


def _audit_study(manifest: Path, out: Path | None, depth: Depth | None) -> None:
    from rightreasons.study.entrances import audit_study
    from rightreasons.study.runs import default_folder

    place = out or default_folder(manifest)
    _show(audit_study(manifest, place, depth=depth, say=lambda line: _line(spoken(line, as_key))), place / "report.html")


def _audit_brought(
    manifest: Path | None, out: Path | None, given: dict[str, Any], tables: dict[str, dict[str, Any]], depth: Depth | None
) -> None:
    """Audit a table of images and a model; what the caller does not say of them is looked for and shown."""
    from rightreasons.study.entrances import audit_file
    from rightreasons.study.file import absolute, checked, without_none
    from rightreasons.study.found import look_around

    _warn_of_random_weights(given)
    around = look_around(_asked_of(manifest, given))
    for line in around.lines():
        _line(line)
    out = out or as_folder("rightreasons-audit")
    extraction = {"batch": given["batch"] or 32, **_where(given)}
    references = {"baseline": given["baseline"] or [], "attribute": given["attribute_model"] or []}
    asked: dict[str, Any] = {
        "name": out.resolve().name,
        "seed": given["seed"] or 0,
        "data": {"manifest": str(around.manifest), "truth": given["truth"], **around.columns},
        "model": {**around.model, "start": given["start"]},
        "references": {role: list(map(str, folders)) for role, folders in references.items() if folders},
        "extract": {key: value for key, value in extraction.items() if key != "batch" or value != 32},
        "audits": tables,
    }
    asked = without_none({key: value for key, value in asked.items() if value != {}})
    findings = audit_file(checked(absolute(asked, Path()), "the command line"), out, depth=depth, say=_say_plan)
    _show(findings, out / "report.html")


def _audit_predictions(
    predictions: Path,
    out: Path | None,
    answers: dict[str, Any],
    chosen: tuple[str, ...] | None,
    tables: dict[str, dict[str, Any]],
    seed: int,
    shared: dict[str, Any],
) -> None:
    from rightreasons.study.predictions import Asked, audit_predictions, behaviour

    asked = Asked(predictions, columns_of(shared), **answers, audits=chosen, settings=tables, seed=seed)
    place = out or as_folder("rightreasons-audit")
    findings, page = audit_predictions(asked, place, command=shlex.join(["rightreasons", *sys.argv[1:]]), say=_line)
    _show(findings, page)
    for line in behaviour(findings):
        _line(line)


@app.command(cls=ByTopic)
@_sharing(COLUMNS, MODEL, TRUST)
def init(
    manifest: Annotated[
        Path | None, typer.Argument(help="CSV, Parquet or Excel table (default: the only one in this folder)")
    ] = None,
    out: Annotated[Path, typer.Option(help="the file", rich_help_panel=RUNS)] = Path("study.toml"),
    force: Annotated[bool, typer.Option("--force", help="replace the file if it is there", rich_help_panel=RUNS)] = False,
    **shared: Any,
) -> None:
    """Look at a table and a checkpoint and write a study.toml, with the reason of every choice beside it. Nothing is run."""
    from rightreasons.study.found import init as run

    around, path = run(_asked_of(manifest, shared), out, force=force)
    for line in around.lines():
        _line(line)
    _line(f"{path} is written: look through it, then rightreasons audit {path}")


@app.command()
@_sharing({key: COLUMNS[key] for key in ("id", "label", "missing")})
def template(
    predictions: Annotated[Path, typer.Argument(help="a table of predictions")],
    to: Annotated[Path, typer.Option(help="the file to send")] = Path("features.csv"),
    **shared: Any,
) -> None:
    """Write the file that a vendor fills with features: one row for every row of a table of predictions, found by its id."""
    from rightreasons.study.predictions import template as run

    rows = run(predictions, columns_of(shared), to)
    _line(
        f"{to} has the ids of {rows} rows. Ask for the output of the layer before the last one, one column for each feature; "
        f"then rightreasons audit --predictions {predictions} --features {to}"
    )


def _asked_of(manifest: Path | None, given: dict[str, Any]) -> Any:
    """What the options say of a table and a model."""
    from rightreasons.study.entrances import is_saved_model
    from rightreasons.study.found import Asked

    settings = {key: str(value) if isinstance(value, Path) else value for key, value in model_settings(given).items()}
    spec = given.get("model")
    if spec is not None and settings and is_saved_model(spec):
        options = ", ".join(map(as_option, settings))
        raise SettingError(f"{spec} is a saved model and has its own settings: leave out {options}")
    return Asked(manifest, columns_of(given), settings if spec is None else {"model": str(spec), **settings})


@app.command(cls=ByTopic)
@_sharing(COLUMNS, MODEL, RUN, TRUST)
def extract(
    manifest: Manifest,
    out: Out = Path("rightreasons-audit"),
    audits: Annotated[str | None, typer.Option(help="for which audits, separated by commas (default: all)")] = None,
    batch: Annotated[int, typer.Option(help="images per forward pass", min=1)] = 32,
    seed: Seed = 0,
    **shared: Any,
) -> None:
    """Run a model over the images once; keep what audits need. Goes on where it was ended."""
    evidence = _extract(manifest, out, _audits(audits), batch, seed, shared)
    console.print(f"{escape(repr(evidence))}\nevidence is in {escape(str(out / 'evidence'))}")


@app.command(cls=ByTopic)
@_sharing(COLUMNS, MODEL, RUN, TRUST)
def train(  # noqa: PLR0913  each parameter is an option of the command
    manifest: Manifest,
    out: Out = Path("rightreasons-model"),
    target: Annotated[str | None, typer.Option(help="train on an attribute instead of the label")] = None,
    epochs: Annotated[int, typer.Option(help="passes over the training rows", min=1)] = 20,
    lr: Annotated[float, typer.Option(help="learning rate")] = 1e-3,
    batch: Annotated[int, typer.Option(help="images per step", min=1)] = 64,
    stop_on: Annotated[str, typer.Option(help="validation metric that chooses the epoch")] = "macro_f1",
    patience: Annotated[int | None, typer.Option(help="epochs without a better one before training stops", min=1)] = 5,
    augment: Annotated[str | None, typer.Option(help="a function of models/augment.py, or package.module:function")] = None,
    new_head: Annotated[
        bool, typer.Option(help="keep a fresh head where the checkpoint's has another number of outputs")
    ] = False,
    seed: Seed = 0,
    **shared: Any,
) -> None:
    """Train on the train split, keep the best epoch on val. Goes on where it was ended."""
    from rightreasons.models.training import train as run

    cohort = _cohort(manifest, shared)
    values = cohort.classes if target is None else cohort.attribute(target).levels
    if not values:
        raise SettingError(f"{target} has no classes to learn: cut it with --bins {target}=…")
    fresh = {"num_classes": len(values), "classes": values} if shared.get("num_classes") is None else {}
    start = _classifier(shared, new_head=new_head, **fresh)
    model = run(
        start,
        cohort,
        target=target,
        epochs=epochs,
        lr=lr,
        batch=batch,
        stop_on=stop_on,  # type: ignore[arg-type]
        patience=patience,
        augment=augment,
        seed=seed,
        folder=out,
        **_where(shared),
    )
    console.print(f"{escape(repr(model))}\nthe model is in {escape(str(out))}: audit it with --model {escape(str(out))}")


@app.command(cls=ByTopic)
@_sharing(COLUMNS, MODEL, RUN, TRUST)
def mitigate(
    method: Annotated[
        str,
        typer.Argument(
            help="erm, balanced, attenuation, …, the dotted name of a module of your own, or auto: try and say which helps"
        ),
    ],
    manifest: Manifest,
    out: Out = Path("rightreasons-mitigated"),
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="setting=value of the method; repeat", rich_help_panel=ASKED)
    ] = None,
    baseline: Baseline = None,
    attribute_model: AttributeModel = None,
    train: Annotated[
        bool,
        typer.Option(
            help="with auto: also try methods that train anew, which takes as long as training", rich_help_panel=TRAINED
        ),
    ] = False,
    seed: Seed = 0,
    **shared: Any,
) -> None:
    """Make a better model of a model, and write a page of before and after on the test rows. The model given stays as it is."""
    from rightreasons import mitigations
    from rightreasons.report import report as write
    from rightreasons.seal import seal as sealed
    from rightreasons.stats.resampling import task_rng
    from rightreasons.study.folder import save_findings
    from rightreasons.study.preflight import lines as preflight_lines
    from rightreasons.study.repair import before_and_after, look_before, sheet_of_repair

    if method == "auto":
        if settings or baseline or attribute_model:
            raise SettingError(
                "auto tries methods with their default settings: leave out --set, --baseline and --attribute-model"
            )
        _mitigate_auto(manifest, out, train, seed, shared)
        return
    if train:
        raise SettingError(f"--train goes with auto; {method} is run as it is")
    chosen = _mitigation_settings(method, settings, shared)
    references = {"baseline": baseline or [], "attribute": attribute_model or []}
    roles = mitigations.references_of(method)
    for role, option in (("baseline", "--baseline"), ("attribute", "--attribute-model")):
        if references[role] and role not in roles:
            raise SettingError(f"{method} compares with no {role} model: leave out {option}")
        if role in roles and not references[role]:
            raise SettingError(f"{method} compares with a {role} model: give {option} FOLDER, as train writes it")
    old = _classifier(shared)
    cohort = _cohort(manifest, shared).with_roles(rng=task_rng(seed, "roles of the splits"), trains=True)
    look = look_before(old, cohort, _where(shared), _line)
    opened = {role: [_classifier({"model": str(folder)}) for folder in references[role]] for role in roles}
    place = {"folder": out / "model", **_where(shared)}
    known = families.settings_of(families.member("mitigations", method).mitigate)
    given = {**{key: value for key, value in place.items() if key in known}, **chosen}
    new = mitigations.mitigate(method, old, cohort, references=opened or None, seed=seed, **given)
    before = str(old.card.get("name") or old.name)
    new.card["name"] = f"{before} + {method}"
    new.save(out / "model")
    findings = before_and_after(old, new, cohort, out, seed=seed, extraction=_where(shared))
    save_findings(findings, out)
    sheet = sheet_of_repair(out, look)
    sheet.save(out)
    for card in sheet.preflight:
        _line(preflight_lines(card)[0])
    title = f"{before} before and after {method}"
    page = write(findings, out / "report.html", title=title, subtitle=f"{manifest}", sheet=sheet)
    sealed(out, inputs=_files(table=manifest, checkpoint=shared.get("checkpoint")))
    _show(findings, page)
    console.print(f"the new model is in {escape(str(out / 'model'))}: audit it with --model {escape(str(out / 'model'))}")


def _mitigate_auto(manifest: Path, out: Path, train: bool, seed: int, shared: dict[str, Any]) -> None:
    """Try the mitigations that need no other model, and write a page of all of them and of the one that helps most."""
    from rightreasons.report import report as write
    from rightreasons.seal import seal as sealed
    from rightreasons.stats.resampling import task_rng
    from rightreasons.study.folder import save_findings
    from rightreasons.study.preflight import lines as preflight_lines
    from rightreasons.study.recommend import finding_of, recommend
    from rightreasons.study.repair import before_and_after, look_before, sheet_of_repair

    old = _classifier(shared)
    cohort = _cohort(manifest, shared).with_roles(rng=task_rng(seed, "roles of the splits"), trains=True)
    if not cohort.attributes:
        raise SettingError("auto chooses by the groups of an attribute: give --attribute")
    place = _where(shared)
    look = look_before(old, cohort, place, _line)
    found = recommend(old, cohort, out / "tried", train=train, seed=seed, where=place)
    before = str(old.card.get("name") or old.name)
    findings = [finding_of(found, before)]
    best = found.best
    if best is not None:
        best.model.save(out / "model")
        findings += before_and_after(old, best.model, cohort, out, seed=seed, extraction=place)
    save_findings(findings, out)
    sheet = sheet_of_repair(out, look)
    sheet.save(out)
    for card in sheet.preflight:
        _line(preflight_lines(card)[0])
    page = write(findings, out / "report.html", title=f"What helps {before}?", subtitle=f"{manifest}", sheet=sheet)
    sealed(out, inputs=_files(table=manifest, checkpoint=shared.get("checkpoint")))
    _show(findings, page)
    if best is None:
        console.print("no model was written: nothing that was tried helps on the validation rows")
    else:
        console.print(f"the new model is in {escape(str(out / 'model'))}: audit it with --model {escape(str(out / 'model'))}")


@app.command(cls=ByTopic)
@_sharing(COLUMNS, MODEL, TRUST)
def check(
    manifest: Annotated[Path, typer.Argument(help="CSV or Parquet table, image folder, Hugging Face dataset, or a study.toml")],
    as_json: Annotated[bool, typer.Option("--json", help="print the report as JSON")] = False,
    everything: Annotated[bool, typer.Option("--all", help="print every row")] = False,
    fit_preprocessing: Annotated[
        bool, typer.Option("--fit-preprocessing", help="try the usual sizes, means, stds and crops on these rows; say which fits")
    ] = False,
    **shared: Any,
) -> None:
    """Say in seconds what is wrong with a table and a model. Row by row, all at once; exit status 1 where something is wrong."""
    from rightreasons.check import check as run

    columns = columns_of(shared)
    if manifest.suffix == ".toml":
        _refuse_beside_a_study([name for name, value in shared.items() if value not in (None, [])])
        manifest, columns, classifier = _studied(manifest)
    else:
        classifier = None if shared.get("model") is None else _classifier(shared)
    if fit_preprocessing:
        _fit_preprocessing(manifest, classifier, columns)
        return
    sample = None if classifier is None else _sample(manifest, classifier, columns)
    found = run(manifest, classifier=classifier, sample=sample, **columns)
    spelled = as_key if _is_about_a_study() else as_option
    found = replace(found, problems=tuple(replace(p, message=spoken(p.message, spelled)) for p in found.problems))
    if as_json:
        print(json.dumps(found.to_json(), indent=1))
    else:
        found.print(console, all=everything)
    raise typer.Exit(found.exit_status)


@app.command()
def report(
    folders: Annotated[
        list[Path] | None, typer.Argument(help="folders of findings, as audit writes them, or single findings (.json)")
    ] = None,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="what changed: from one folder to the other, or over three and more, the oldest first"),
    ] = False,
    out: Annotated[Path, typer.Option(help="the page")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="its title")] = "Is this classifier right for the right reasons?",
) -> None:
    """Write one self-contained page from findings. With --compare: of what changed between them."""
    from rightreasons.case import Sheet
    from rightreasons.findings import Finding
    from rightreasons.report import report as write

    if not folders:
        raise SettingError("name a folder of findings, or --compare and two of them or more")
    if compare:
        _show_changes(folders, out)
        return
    findings: list[Finding] = []
    _refuse_twice(folders)
    for folder in folders:
        findings += [Finding.read(folder)] if folder.suffix == ".json" else Finding.read_all(folder)
    sheet = Sheet.read(folders[0]) if len(folders) == 1 else None
    _show(findings, write(findings, out, title=title, sheet=sheet))


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(help="folder of findings, as audit or sweep writes it")],
    to: Annotated[Path, typer.Option(help="folder for what is written", callback=_writable)] = Path("rightreasons-export"),
    only: Annotated[
        str | None, typer.Option(help="kinds, separated by commas: json, csv, parquet, svg, png, markdown, pdf")
    ] = None,
    log: Annotated[
        str | None, typer.Option(help="mlflow or wandb: log numbers, findings and page there instead of writing files")
    ] = None,
    project: Annotated[str, typer.Option(help="with --log: the experiment (MLflow) or project (W&B)")] = "rightreasons",
) -> None:
    """Write findings for other programs: JSON with its schema, tables, figures, a model card, a PDF; or log them."""
    from rightreasons.exports import export as run
    from rightreasons.exports import log as send

    if log is not None:
        if only is not None:
            raise SettingError("--log sends everything to one place and --only chooses the files to write: give one of them")
        send(folder, log, project=project)
        console.print(f"{folder} is logged to {log}, in {project}", markup=False)
        return
    done = run(folder, to, kinds=None if only is None else [part.strip() for part in only.split(",")])
    for kind, count in done.written.items():
        console.print(f"{kind}: {count} file{'' if count == 1 else 's'}", markup=False)
    for kind, reason in done.lacking.items():
        console.print(f"{kind}: not written, {reason}", markup=False)
    console.print(f"all is in {to}", markup=False)
    raise typer.Exit(1 if only is not None and done.lacking else 0)


@app.command()
def gate(
    folder: Annotated[Path, typer.Argument(help="folder of findings, as audit or sweep writes it, or a single finding (.json)")],
    policy: Annotated[
        Path | None, typer.Option(help="a policy.toml of what must hold (default: no shortcut, nothing inconclusive)")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="JUnit XML to write")] = None,
) -> None:
    """Judge findings by a policy, for CI. Exit status 0 where all of it holds, 1 where it does not, 2 where it cannot be read."""
    from rightreasons.findings import Finding
    from rightreasons.gate import Policy, judge

    rules = Policy() if policy is None else Policy.read(policy)
    judgement = judge([Finding.read(folder)] if folder.suffix == ".json" else Finding.read_all(folder), rules)
    if junit is not None:
        judgement.save_junit(junit, name=str(folder))
    console.print(judgement.one_line(), markup=False)
    raise typer.Exit(judgement.exit_status)


@app.command()
def serve(
    folder: Annotated[Path, typer.Argument(help="a folder of studies and audits")] = Path(),
    host: Annotated[
        str, typer.Option(help="address to listen on; others than this machine's own let the network in")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="port to listen on; 0 takes a free one", min=0, max=65535)] = 8765,
) -> None:
    """Show a folder of studies in the browser: pages, progress of running sweeps, comparisons. Changes nothing."""
    from rightreasons.serve import Server, step_back

    step_back()
    with Server(folder, host, port) as server:
        console.print(f"{escape(str(folder.resolve()))} is at {server.address} (Ctrl-C ends it)")
        server.run()


@app.command(cls=ByTopic)
@_sharing(TRUST)
def sweep(
    study: Annotated[Path, typer.Argument(help="a study.toml, or the folder of a study")],
    out: Annotated[
        Path | None,
        typer.Option(help="folder of the study (default: rightreasons-<name>)", callback=_writable, rich_help_panel=RUNS),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print the units and what each is missing; run nothing", rich_help_panel=ASKED)
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option(help="run units that failed in an earlier sweep once more", rich_help_panel=ASKED)
    ] = True,
) -> None:
    """Train, extract and measure every unit of a study: does what is missing and nothing else, however it was ended before."""
    from rightreasons.study import sweep as driver

    if dry_run:
        _show_plan(driver.planned(study, out, save=False))
        return
    found = driver.sweep(study, out, retry_failed=retry_failed, say=lambda line: console.print(line, markup=False))
    failed = [unit for unit in found.units if found.status(unit) == "failed"]
    for unit in failed:
        error = found.run(unit)["error"]
        console.print(f"failed: {unit}: {error['type']}: {error['message']}", markup=False)
    console.print(f"the table is {found.folder / 'table.parquet'}", markup=False)
    if any(found.status(unit) == "done" for unit in found.units):
        _show(found.findings(), found.folder / "report.html")
    raise typer.Exit(1 if failed else 0)


Key = Annotated[Path | None, typer.Option(help="file with a secret of at least 16 bytes")]


@app.command()
@_sharing(TRUST)
def verify(
    folder: Annotated[Path, typer.Argument(help="folder that audit, sweep or mitigate wrote")],
    as_json: Annotated[bool, typer.Option("--json", help="print what is wrong as JSON")] = False,
    key: Key = None,
) -> None:
    """Say which files are not as they were written and, of a study, what it lacks; exit status 1 where there is any."""
    from rightreasons import seal as seals
    from rightreasons.study import checklist

    if key is not None:
        seals.refuse_weak_key(key)
    study = _study_of_runs(folder)
    gaps = [] if study is None else checklist.verify(study)
    is_sealed = seals.is_sealed(folder)
    if study is None and not is_sealed:
        seals.read(folder)  # says that there is nothing to verify, and what to do
    seen = seals.check(folder) if is_sealed else None
    forged = key is not None and is_sealed and not seals.is_signed_with(folder, key)
    is_wrong = bool(gaps) or seen is None or not seen.is_whole or forged
    if as_json:
        told = {} if study is None else checklist.told(study, gaps)
        about = None if seen is None else {"whole": seen.is_whole, "signed": None if key is None else not forged, **vars(seen)}
        print(json.dumps({**told, "seal": about}, indent=1))
    else:
        if study is not None:
            _show_gaps(study, gaps)
        _show_seal(folder, seen, key, forged)
    raise typer.Exit(1 if is_wrong else 0)


@app.command()
def seal(
    folder: Annotated[Path, typer.Argument(help="folder that audit, sweep or mitigate wrote")],
    key: Key = None,
) -> None:
    """Hash every file of a folder anew, after a change that was meant; with --key, also write who made the seal had the key."""
    from rightreasons import seal as seals

    if key is not None:
        seals.refuse_weak_key(key)
    made = seals.seal(folder)
    console.print(f"{len(made.files)} files are sealed in {folder / seals.SEAL}; the results are {made.digest}", markup=False)
    if key is not None:
        console.print(f"{seals.sign(folder, key)} shows who has the key that this seal was made with it", markup=False)


@app.command()
def version() -> None:
    """Print the version."""
    console.print(__version__)


# ---- what the commands use -----------------------------------------------------------------------------------------------


def _say_plan(text: str) -> None:
    """A line of a plan, whose reasons speak of keywords."""
    _line(spoken(text, as_option))


def _line(text: str) -> None:
    console.print(text, markup=False)


def _study_of_runs(folder: Path) -> Study | None:
    """The study in a folder; None where it holds the audit of one model or table, of which no checklist is asked."""
    from rightreasons.study import Study

    if not (folder / "plan.json").is_file():
        return None
    if (folder / "model.json").is_file():
        raise SettingError(f"{folder} is a saved model, and has no seal: audit it, and verify the folder of the audit")
    study = Study.open(folder)
    return None if study.plan.brought else study


def _show_gaps(study: Study, gaps: Sequence[Gap]) -> None:
    from rightreasons.study.checklist import notes

    for unit in dict.fromkeys(gap.unit for gap in gaps):
        console.print(unit or "the study as a whole", style="bold", markup=False)
        for gap in (gap for gap in gaps if gap.unit == unit):
            console.print(f"  {gap.item}: {gap.what}", markup=False)
    for note in notes(study):
        console.print(f"note: {note}", markup=False)
    incomplete = len({gap.unit for gap in gaps if gap.unit})
    console.print(f"{len(study.units) - incomplete} of {len(study.units)} units are complete, {len(gaps)} things are missing")


def _show_seal(folder: Path, seen: Seen | None, key: Path | None, forged: bool) -> None:
    if seen is None:
        _line(f"there is no seal: finish the study, or seal it as it is with rightreasons seal {folder}")
        return
    for line in seen.lines:
        _line(line)
    for line in seen.inputs:
        _line(f"note: {line}")
    if forged:
        _line(f"seal.hmac was not made of this seal with {key}: whoever wrote the seal did not have that key")
    elif key is not None:
        _line(f"the seal was made with {key}")
    as_written = seen.files - len(seen.changed) - len(seen.missing)
    _line(f"{as_written} of {seen.files} files are as they were written; the results are {seen.digest}")


def _depth(quick: bool, full: bool) -> Depth | None:
    if quick and full:
        raise SettingError("--quick and --full: give one of them")
    return "quick" if quick else "full" if full else None


def _refuse_beside_a_study(given: list[str]) -> None:
    if given:
        options = ", ".join(as_option(name) for name in given)
        raise SettingError(f"a study.toml says what is audited and how: write it there and leave out {options}")


def _refuse_beside_predictions(given: dict[str, Any]) -> None:
    """Predictions need no network, no images and no other models: whoever names them means something else."""
    columns = [name for name in COLUMNS if name not in ("image", "root", "mask", "box", "twin", "twin_attribute")]
    for name, value in given.items():
        if name not in columns and value not in (None, [], False):
            raise SettingError(f"{as_option(name)} goes with a table of images and a model, not with --predictions")


def _studied(source: Path) -> tuple[Path, dict[str, Any], Classifier | None]:
    """The table, its columns and the model of a study.toml, for `check`."""
    from rightreasons.study.entrances import opened_or_loaded
    from rightreasons.study.file import read

    file = read(source)
    if file.data is None or file.data.manifest is None:
        raise SettingError(f"{source} names no manifest in [data]: there is no table to check")
    manifest, columns = Path(file.data.manifest), file.data.keywords
    if file.model is None or file.model.model is None:
        return manifest, columns, None  # networks that are still to be trained have nothing to check
    return manifest, columns, opened_or_loaded(file.model.model, file.model.keywords)


def _files(**given: Path | None) -> dict[str, Path]:
    """Those of the given inputs that are a file, by what they are."""
    return {what: path for what, path in given.items() if path is not None and path.is_file()}


def _refuse_without_predictions(given: dict[str, Any]) -> None:
    for name, value in given.items():
        if value is not None:
            raise SettingError(f"{as_option(name)} goes with --predictions, a table of what a model answered")


def _threshold(given: str | None) -> str | float | None:
    try:
        return None if given is None else float(given)
    except ValueError:
        return given


def _audits(given: str | None) -> tuple[str, ...]:
    chosen = families.members("audits") if given is None else tuple(part.strip() for part in given.split(","))
    for name in chosen:
        families.member("audits", name)
    return chosen


def _audit_settings(chosen: tuple[str, ...], given: list[str] | None, **options: Any) -> dict[str, dict[str, Any]]:
    """For each audit, those of the options that it knows and that are not its defaults, and what `--set` says."""
    from rightreasons.study.keywords import refuse_wrong_types

    found: dict[str, dict[str, Any]] = {}
    for name in chosen:
        module = families.member("audits", name)
        defaults = families.settings_of(module.measure, module.conclude)
        known = {**options, "threshold": _as_known(options.get("threshold"), defaults)}
        found[name] = {key: value for key, value in known.items() if key in defaults and value not in (None, defaults[key])}
    for text in given or []:
        key, equals, value = text.partition("=")
        audit, dot, setting = key.rpartition(".")
        if not (equals and dot):
            raise SettingError(f"--set {text!r} is not audit.setting=value")
        if audit not in found:
            raise SettingError(f"--set {text}: audit {audit!r} is not run; {families.suggest(audit, chosen)}")
        module = families.member("audits", audit)
        families.resolve({setting: None}, module.measure, module.conclude, where=f"audit {audit!r}")
        found[audit][setting] = _value(value)
        refuse_wrong_types({setting: found[audit][setting]}, module.measure, module.conclude, where=f"--set {audit}:")
    return found


def _as_known(threshold: str | float | None, defaults: Mapping[str, Any]) -> str | float | None:
    """A threshold for an audit that decides: one whose own is the best on val rows knows no number and no halves."""
    if defaults.get("threshold") != "max_f1":
        return threshold
    return "max_f1" if threshold == "f1" else threshold if threshold in ("max_f1", "argmax") else None


def _extract(manifest: Path, out: Path, needs: Iterable[Need | str], batch: int, seed: int, shared: dict[str, Any]) -> Evidence:
    from rightreasons.data.cohort import Cohort
    from rightreasons.data.found import look
    from rightreasons.extraction import extract as run

    model = _classifier(shared)
    seen = look(manifest, columns_of(shared), classes=model.classes)  # as audit does, which goes on with what is extracted here
    for line in seen.lines():
        _line(line)
    cohort = Cohort.read(manifest, **{**seen.keywords, **columns_of(shared)})
    _warn_of_random_weights(shared)
    return run(model, cohort, needs, out=out / "evidence", batch=batch, seed=seed, **_where(shared))


def _mitigation_settings(method: str, given: list[str] | None, shared: dict[str, Any]) -> dict[str, Any]:
    """Settings of a mitigation, refused before anything is loaded."""
    from rightreasons.mitigations import RUNNING
    from rightreasons.study.keywords import refuse_wrong_types

    module = families.member("mitigations", method)
    known = [key for key in families.settings_of(module.mitigate) if key not in ("references", *RUNNING)]
    settings = {}
    for text in given or []:
        key, equals, value = text.partition("=")
        if not equals:
            raise SettingError(f"--set {text!r} is not setting=value")
        families.refuse_unknown([key], known, f"mitigation {method!r}")
        settings[key] = _value(value)
    refuse_wrong_types(settings, module.mitigate, where=f"--set {method}:")
    brought = shared.get("checkpoint") is not None
    if brought and module.STARTS == "start" and "start" not in settings:
        raise SettingError(
            f"{method} trains anew and the starting weights of {shared['checkpoint']} are not known: give --set start=fresh for "
            "random ones, --set start=given to go on from the checkpoint, or --set start=FILE with the weights it started from"
        )
    return settings


def _value(text: str) -> Any:
    """A setting as it is written on the command line: none, true, false, a number, numbers separated by commas, or text."""
    named = {"none": None, "true": True, "false": False}
    if text.lower() in named:
        return named[text.lower()]
    if "," in text:
        return [_value(part.strip()) for part in text.split(",") if part.strip()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _refuse_twice(given: Sequence[Path]) -> None:
    """A folder that is named twice would count twice."""
    seen: dict[Path, Path] = {}
    for path in given:
        if seen.setdefault(path.resolve(), path) is not path:
            raise SettingError(f"{path} is given twice: name it once")


def _show_changes(folders: Sequence[Path], out: Path) -> None:
    from rightreasons.compare import sides
    from rightreasons.report import page
    from rightreasons.trend import compared

    shown = compared(sides(*folders))
    subtitle = " and ".join(map(str, folders))
    path = page.write(shown.findings, out, title=shown.title, subtitle=subtitle, lead=shown.lead, first=shown.first)
    for finding in shown.findings:
        console.print(escape(finding.one_line()))
    console.print(f"\nthe page is {escape(str(path))}")


def _show_plan(study: Study) -> None:
    from rightreasons.study.sweep import dry_run, estimate

    units = dry_run(study)
    for unit, status, missing, _ in units.itertuples(index=False):
        console.print(f"{unit}: {status}" + (f", missing {missing}" if missing else ""), markup=False)
    console.print(f"{len(units)} units in {study.folder}: {estimate(study, units)}", markup=False)


def _show(findings: list[Finding], page: Path) -> None:
    for finding in findings:
        if not finding.not_run:
            console.print(escape(finding.one_line()))
    if lacking := [finding.name for finding in findings if finding.not_run]:
        console.print(f"not run: {escape(', '.join(lacking))} (the page says why)")
    console.print(f"\nthe page is {escape(str(page))}")
    console.print(f"[bold]verdict:[/] {escape(_verdict(findings))}")


def _verdict(findings: list[Finding]) -> str:
    """One line over all findings: the verdict of every model and attribute."""
    from rightreasons.case import cases

    judged = cases(findings)
    called: dict[str, list[str]] = {}
    for case in judged:
        called.setdefault(str(case.verdict), []).append(", ".join(filter(None, (case.model, case.attribute))))
    if len(judged) == 1:
        return f"{judged[0].verdict}: {judged[0].sentence}"
    said = [
        f"{verdict} ({'; '.join(called[verdict])})"
        for verdict in ("shortcut", "no evidence", "inconclusive")
        if verdict in called
    ]
    return "; ".join(said) or "none: there are no findings"
