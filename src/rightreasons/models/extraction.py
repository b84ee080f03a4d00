"""Run a model over cohorts and keep what it says as evidence: once per need, chunk by chunk, resumable, bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
import zarr

from rightreasons import families
from rightreasons.audits import Need, needs_of
from rightreasons.data.cohort import Cohort
from rightreasons.data.facts import Facts
from rightreasons.errors import DataError, EvidenceError, ModelError, SettingError
from rightreasons.evidence import CHUNK_ROWS, Card, Evidence, Recipe, View, missing_chunks
from rightreasons.head import outputs_for
from rightreasons.models import recipes
from rightreasons.models.batches import batches
from rightreasons.models.classifier import Classifier
from rightreasons.progress import track
from rightreasons.stats.resampling import task_rng


def extract(
    classifier: Classifier,
    cohorts: Cohort | Mapping[str, Cohort],
    needs: Iterable[Need | str] = ("groups", "flips", "probes"),
    *,
    out: str | os.PathLike[str] | None = None,
    training: Cohort | None = None,
    batch: int = 32,
    chunk: int = CHUNK_ROWS,
    device: str | None = None,
    threads: int | None = None,
    workers: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> Evidence:
    """Evidence of one model: what audits need and is not there yet.

    Parameters
    ----------
    cohorts : cohorts by name; or one cohort, whose splits are the names. A single cohort without splits is halved into
        `audit` and `test`; where it has twins, those of the test rows are the cohort `twin`.
    needs : names of audits, or arrays: a `Need`, or a recipe such as "features" (on `test`)
    out : folder of the evidence; in memory by default. What is already in it is not made again.
    training : the rows the model was trained on, where known; by default those of the `train` split that the model says
        it was fitted on
    batch, chunk : images per forward pass, and rows per chunk (a multiple of `batch`, because ragged batches change the
        last bits of a number)
    cache : folder for decoded pixels (`rightreasons.data.facts`); images are decoded on the fly by default
    seed : of the halving of a cohort without splits
    """
    if chunk % batch:
        raise SettingError(f"chunk={chunk} is not a multiple of batch={batch}: the bits of a resumed extraction would differ")
    named = named_cohorts(cohorts, seed)
    wanted = _arrays(needs, named, classifier)
    known = training if training is not None else _training(classifier, named)
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    _refuse_other_classes(classifier, named)
    evidence = Evidence.create(out, card_of(classifier), head=classifier.head_data, training=known, used=classifier.used)
    with _running(classifier, place, threads):
        for name in wanted:
            evidence.add(name, named[name])
        for is_late in (False, True):  # what is made from whole arrays comes when these are whole
            for name, arrays in wanted.items():
                now = [array for array in arrays if _is_late(arrays, array) == is_late]
                _extract_cohort(classifier, evidence, name, named[name], arrays, now, batch, chunk, workers, cache)
    return evidence


def card_of(classifier: Classifier) -> Card:
    """The card of a classifier's evidence."""
    card = classifier.card
    return Card(
        name=str(card.get("name") or classifier.name),
        architecture=str(card.get("architecture") or classifier.name),
        regime=str(card.get("regime") or ""),
        seed=card.get("seed"),
        target=str(card.get("target") or ""),
        classes=tuple(classifier.classes),
        start=str(card.get("start") or ""),
        model=classifier.fingerprint,
        training=str(classifier.training or ""),
        settings={**dict(card.get("settings") or {}), "geometry": asdict(classifier.geometry)},
    )


def named_cohorts(cohorts: Cohort | Mapping[str, Cohort], seed: int = 0) -> dict[str, Cohort]:
    """Cohorts by name: the splits of a single cohort (halved where it has none), and the twins of its test rows."""
    if not isinstance(cohorts, Cohort):
        return dict(cohorts)
    whole = cohorts.with_roles(rng=task_rng(seed, "roles of the splits"))
    names = [] if whole.splits is None else [name for name in dict.fromkeys(whole.splits) if name]
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
        _closure(need.cohort, need.array, named, classifier)
    except (DataError, ModelError) as error:
        return str(error)
    return ""


# ---- what the functions above use ----------------------------------------------------------------------------------------


def _arrays(
    needs: Iterable[Need | str], named: Mapping[str, Cohort], classifier: Classifier
) -> dict[str, dict[str, recipes.Maker]]:
    """Cohort → arrays with their makers, each after those that it reads.

    A cohort that the manifest lacks is passed over, and so is what an audit needs and this table or network cannot give: the
    audit says so. An array that is asked for by its own name is refused instead.
    """
    audits = set(families.members("audits"))
    wanted: dict[str, dict[str, recipes.Maker]] = {}
    for need in [needs] if isinstance(needs, str | Need) else needs:
        is_audit = isinstance(need, Need) or need in audits or ("." in need and "@" not in need)  # dotted: one's own audit
        if isinstance(need, Need):
            asked: Sequence[Need] = (need,)
        else:
            asked = needs_of([need]) if is_audit else (Need("test", "test", need),)
        for one in asked:
            if one.cohort not in named:
                continue
            try:
                closure = _closure(one.cohort, one.array, named, classifier)
            except (DataError, ModelError):
                if not is_audit:
                    raise
                continue
            for cohort, array, maker in closure:
                wanted.setdefault(cohort, {}).setdefault(array, maker)
    return wanted


def _closure(
    cohort: str, array: str, named: Mapping[str, Cohort], classifier: Classifier, above: tuple[str, ...] = ()
) -> list[tuple[str, str, recipes.Maker]]:
    """(cohort, array, maker) of everything that an array is made from, itself last; refused where that cannot be."""
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
    found = []
    for other in maker.arrays:
        where, _, what = other.rpartition("/")
        found += _closure(where or cohort, what, named, classifier, (*above, here))
    return [*found, (cohort, name, maker)]


def _refuse_other_classes(classifier: Classifier, named: Mapping[str, Cohort]) -> None:
    """Label values that no output stands for are an error now, and not after hours of forward passes."""
    target = str(classifier.card.get("target") or "")
    for cohort in named.values():
        if target and target != cohort.label_name:
            if target in cohort.attributes:
                outputs_for(cohort.attribute(target).levels, classifier.classes)
        elif cohort.classes:
            outputs_for(cohort.classes, classifier.classes)


def _training(classifier: Classifier, named: Mapping[str, Cohort]) -> Cohort | None:
    train = named.get("train")
    if train is None or classifier.training is None:
        return None
    rows = np.array([i in classifier.used for i in train.id])
    return train.select(rows, name="train") if rows.any() else None


@contextmanager
def _running(classifier: Classifier, device: str, threads: int | None) -> Iterator[None]:
    """The model on a device, evaluating, with so many threads; everything as it was afterwards."""
    home, before = classifier.device, torch.get_num_threads()
    modes = [(module, module.training) for module in classifier.module.modules()]
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        classifier.to(device)
        classifier.module.eval()
        yield
    finally:
        classifier.to(home)
        for module, mode in modes:
            module.training = mode
        torch.set_num_threads(before)


def _extract_cohort(
    classifier: Classifier,
    evidence: Evidence,
    name: str,
    cohort: Cohort,
    arrays: Mapping[str, recipes.Maker],
    asked: Sequence[str],
    batch: int,
    chunk: int,
    workers: int | None,
    cache: str | os.PathLike[str] | None,
) -> None:
    finished = evidence.arrays(name)
    makers = {array: arrays[array].fitted(evidence) for array in asked if array not in finished}
    if not makers or not len(cohort):
        return
    reads = {array: _columns(arrays, array, evidence, cohort) for array in makers}
    labels = _labels(evidence, name, cohort, [array for array, maker in makers.items() if "label" in maker.reads])
    told = {a: {"batch": batch, **({"arrays": list(m.arrays)} if m.arrays else {})} for a, m in makers.items()}
    begun = {array: evidence.begun(name, array) for array in makers}
    stored: dict[str, zarr.Array] = {  # what was begun with other batches or chunks is refused here, before anything runs
        array: evidence.begin(name, array, old.shape[1:], old.dtype, chunk, reads[array], **told[array])
        for array, old in begun.items()
        if old is not None
    }
    total = -(-len(cohort) // chunk)
    missing = {a: set(missing_chunks(stored[a]).tolist()) if a in stored else set(range(total)) for a in makers}
    todo = sorted(set().union(*missing.values()))
    pixels = None if cache is None else Facts(cache, cohort, classifier.geometry, workers=workers).pixels()
    order = np.concatenate([np.arange(c * chunk, min((c + 1) * chunk, len(cohort))) for c in todo])
    # The last chunk alone may be ragged, so every batch holds the rows that it holds in an undisturbed run.
    feed = batches(
        cohort,
        classifier.geometry,
        classifier.mean,
        classifier.std,
        batch=batch,
        order=order,
        workers=workers,
        pixels=pixels,
        device=classifier.device,
    )
    everything = View(evidence, name, np.arange(len(cohort)))
    with closing(feed), torch.inference_mode():
        what = f"extract {name} ({evidence.card.name})"
        for c in track(todo, what, done=total - len(todo), each=min(chunk, len(cohort)), unit="images"):
            rows = slice(c * chunk, min((c + 1) * chunk, len(cohort)))
            now = {array: maker for array, maker in makers.items() if c in missing[array]}
            made: dict[str, list[np.ndarray]] = {array: [] for array in now}
            noted: dict[str, dict[str, Any]] = {array: {} for array in now}
            had = {a: _stored_rows(everything, stored, a, rows) for a in _read_by(now) if a not in now}
            for _ in range(-(-(rows.stop - rows.start) // batch)):
                numbers, x = next(feed)
                seen = recipes.Pass(
                    classifier,
                    x,
                    None if labels is None else torch.from_numpy(labels[numbers]).to(x.device),
                    cohort,
                    numbers,
                    {a: torch.from_numpy(values[numbers - rows.start]).to(x.device) for a, values in had.items()},
                )
                for array, maker in now.items():
                    seen.arrays[array] = maker(seen).float()
                    made[array].append(seen.arrays[array].cpu().numpy())
                    noted[array] |= seen.notes.get(array, {})
            for array, parts in made.items():
                values = np.concatenate(parts)
                _refuse_odd(values, array, cohort, rows, evidence, makers[array].may_lack)
                if array not in stored:
                    shape = values.shape[1:]
                    stored[array] = evidence.begin(name, array, shape, values.dtype, chunk, reads[array], **told[array])
                if noted[array]:
                    stored[array].attrs["notes"] = {**_notes(stored[array]), str(c): noted[array]}
                stored[array][rows] = values


def _columns(arrays: Mapping[str, recipes.Maker], array: str, evidence: Evidence, cohort: Cohort) -> list[str]:
    """Columns that an array is tied to, through the arrays of the same cohort that it reads too."""
    found: dict[str, None] = {}
    for column in arrays[array].reads:
        found.setdefault(_target(evidence, cohort) if column == "label" else column)
    for other in arrays[array].arrays:
        if "/" not in other:
            found |= dict.fromkeys(_columns(arrays, other, evidence, cohort))
    return list(found)


def _is_late(arrays: Mapping[str, recipes.Maker], array: str) -> bool:
    maker = arrays[array]
    return maker.fit is not None or any(_is_late(arrays, other) for other in maker.arrays if "/" not in other)


def _read_by(makers: Mapping[str, recipes.Maker]) -> list[str]:
    return list(dict.fromkeys(other for maker in makers.values() for other in maker.arrays if "/" not in other))


def _stored_rows(everything: View, stored: Mapping[str, zarr.Array], array: str, rows: slice) -> np.ndarray:
    """Rows of an array that was made earlier, or whose chunk was."""
    held = stored[array] if array in stored else everything._array(array)
    return np.asarray(held[rows])


def _notes(array: zarr.Array) -> dict[str, Any]:
    notes: Any = array.attrs.asdict().get("notes", {})
    return dict(notes)


def _target(evidence: Evidence, cohort: Cohort) -> str:
    """The part of the cohort that the model's label is."""
    target = evidence.card.target
    return target if target and target != cohort.label_name else "label"


def _labels(evidence: Evidence, name: str, cohort: Cohort, readers: Sequence[str]) -> np.ndarray | None:
    """(n,) which output is right, where an array's recipe reads it; every row must have one."""
    if not readers:
        return None
    label = View(evidence, name, np.arange(len(cohort))).label
    if (label < 0).any():
        first = int(np.argmax(label < 0))
        raise DataError(
            f"{', '.join(readers)} explain the label, and {int((label < 0).sum())} rows of cohort {name!r} have none, first id "
            f"{cohort.id[first]!r}: explain=predicted, or leave those rows out"
        )
    return label


def _refuse_odd(values: np.ndarray, array: str, cohort: Cohort, rows: slice, evidence: Evidence, may_lack: bool = False) -> None:
    flat = values.reshape(len(values), -1)
    finite = (~np.isinf(flat) if may_lack else np.isfinite(flat)).all(axis=1)
    if not finite.all():
        first = rows.start + int(np.argmin(finite))
        raise EvidenceError(
            f"{array!r} of {evidence.card.name} is not finite for {int((~finite).sum())} images of cohort {cohort.name!r}, first "
            f"for id {cohort.id[first]!r} ({cohort.image[first]}): look at the weights, at mean= and std=, and at that image; "
            "chunks that were finished before are kept"
        )
