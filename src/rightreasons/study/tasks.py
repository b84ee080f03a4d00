"""What a study lacks, as tasks that wait for each other: trainings, calibrations, extractions, whole units. No torch."""

from __future__ import annotations

import graphlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rightreasons.study.engines import Task
from rightreasons.study.folder import Study

CALIBRATION = "severities"  # how the tasks and graph name a calibration


@dataclass
class Graph:
    """Tasks that wait for others.

    Attributes
    ----------
    waiting : key → the task, and the keys of those that it waits for
    optional : keys of tasks whose failure stops nobody
    """

    waiting: dict[str, tuple[Task, set[str]]] = field(default_factory=dict)
    optional: set[str] = field(default_factory=set)

    def add(self, task: Task, *after: Task, is_optional: bool = False) -> Task:
        self.waiting[task.key] = (task, {before.key for before in after})
        if is_optional:
            self.optional.add(task.key)
        return task

    def ready(self) -> Iterator[Task]:
        for key in [key for key, (_, after) in self.waiting.items() if not after]:
            yield self.waiting.pop(key)[0]

    def done(self, task: Task) -> None:
        for _, after in self.waiting.values():
            after.discard(task.key)

    def drop(self, task: Task) -> list[Task]:
        """Give up what waits for a task, and what waits for that; whoever waits for an optional task goes on without it."""
        if task.key in self.optional:
            self.done(task)
            return []
        lost = [other for other, after in self.waiting.values() if task.key in after]
        for other in lost:
            self.waiting.pop(other.key, None)
        return lost + [further for other in lost for further in self.drop(other)]


def uncalibrated(study: Study) -> list[str]:
    """The calibrations whose severities are not there yet."""
    return [name for name, one in study.plan.severities.items() if not (study.folder / one.file).exists()]


def tasks(study: Study, todo: list[str]) -> Graph:
    """What is missing: trainings that others need, batched groups and large extractions come before those units."""
    graph = Graph()
    first = _trainings(study, todo, graph)
    calibrations = [first[_node(name)] for name in uncalibrated(study)]
    keepers = {one.baseline for one in study.plan.severities.values()}  # severities lie with the model they were found on
    for unit in todo:
        if unit in first:
            others: tuple[str, ...] = ()
            after = [first[unit], *calibrations]
        else:
            others = _waits(study, unit)
            after = [*calibrations, *(first[other] for other in others if other in first)]
        pieces = []
        if "extract" in study.missing(unit):
            pieces = [graph.add(piece, *after) for piece in _pieces(study, unit)]
        reads = tuple(sorted({*others, *keepers} - {unit}))
        graph.add(Task(unit, (unit,), reads=reads), *(pieces or after))
    return graph


def _trainings(study: Study, todo: list[str], graph: Graph) -> dict[str, Task]:
    """Unit (or calibration) → the task that trains (or makes) it, where that is one of its own; added to the graph."""
    missing = uncalibrated(study)
    waits: dict[str, tuple[str, ...]] = {unit: _waits(study, unit) for unit in todo}
    for unit, others in waits.items():
        users = [name for name in missing if study.plan.severities[name] in study.calibrations_of(unit)]
        if others:
            waits[unit] = (*others, *(_node(name) for name in users))
    for name in missing:
        one = study.plan.severities[name]
        waits[_node(name)] = tuple(unit for unit in (one.baseline, one.reference) if unit and unit != study.plan.brought)
    needed = {other for others in waits.values() for other in others}
    groups = _groups(study)
    first: dict[str, Task] = {}
    for node in _in_order(waits):
        before = [first[other] for other in waits[node] if other in first]
        if node not in study.plan.units:
            name = node.removeprefix(CALIBRATION).strip()
            is_optional = not study.plan.severities[name].is_needed
            first[node] = graph.add(_calibration(study, name), *before, is_optional=is_optional)
            continue
        if "train" not in study.missing(node):
            continue
        group = groups.get(node, ())
        if group and node not in first:
            together = graph.add(Task(f"{group[0]} and {len(group) - 1} more, batched", group, "train"))
            first |= dict.fromkeys(group, together)
        elif not group and (node in needed or any(_pieces(study, node))):
            reads = tuple(other for other in waits[node] if other in study.plan.units)
            first[node] = graph.add(Task(f"{node} train", (node,), "train", reads=reads), *before)
    return first


def _calibration(study: Study, name: str) -> Task:
    one = study.plan.severities[name]
    reads = (one.reference,) if one.reference else ()
    return Task(_node(name), (one.baseline,), "calibrate", reads=reads, calibration=name)


def _node(name: str) -> str:
    """How a calibration is called among the units that wait for each other."""
    return f"{CALIBRATION} {name}".strip()


def _waits(study: Study, unit: str) -> tuple[str, ...]:
    """Units whose models a unit that is still to be trained needs."""
    if "train" not in study.missing(unit):
        return ()
    return study.waits_for(unit)


def _groups(study: Study) -> dict[str, tuple[str, ...]]:
    """Unit → all units that are trained as one batched model with it."""
    members: dict[str, list[str]] = {}
    for unit in study.units:
        members.setdefault(",".join(study.plan.units[unit].batched), []).append(unit)
    return {unit: tuple(group) for key, group in members.items() if key for unit in group}


def _in_order(waits: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Units after those whose models they need."""
    return [unit for unit in graphlib.TopologicalSorter(waits).static_order() if unit in waits]


def _pieces(study: Study, unit: str) -> Iterator[Task]:
    """The extraction of large cohorts in pieces of whole chunks."""
    most, chunk = study.plan.driver.split_rows, study.plan.extract["chunk"]
    inside = study.plan.cohorts[study.plan.units[unit].cohort].splits
    sizes = {
        **inside,
        "twin": inside.get("test", 0),
        **{name: study.plan.cohorts[name].rows for name in study.external(unit)},
    }
    for cohort in dict.fromkeys(need.cohort for need in study.needs(unit)):
        rows = sizes.get(cohort, 0)
        if rows <= most:
            continue
        step, total = max(1, most // chunk), -(-rows // chunk)
        for lo in range(0, total, step):
            hi = min(lo + step, total)
            yield Task(f"{unit} {cohort} rows {lo * chunk} to {min(hi * chunk, rows)}", (unit,), "extract", cohort, (lo, hi))
