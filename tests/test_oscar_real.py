"""OSCAR on real images: brains, photos whose cue has no place, and volumes with a real atlas; the examples, shortened."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.real_data]

EXAMPLES = Path(__file__).parents[1] / "examples" / "oscar"


@pytest.fixture
def example(monkeypatch):
    """An example of `examples/oscar` as a module, by name."""
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def find(name: str) -> ModuleType:
        return importlib.import_module(name)

    return find


def test_real_brains_are_cut_into_named_regions_and_resampled_by_subject(example, real_data, tmp_path):
    oasis, roles = example("oasis"), example("roles")
    (finding,) = oasis.run(Path(real_data), tmp_path, splits=1, seeds=roles.Seeds(1, 1, 1), epochs=6, B=500)
    assert finding.verdict in ("shortcut", "no evidence", "inconclusive")
    assert finding.n_subjects == finding.n_rows >= 40
    partial = finding.estimates[0]
    assert "atlas" in partial.name and partial.low < partial.high
    table = next(x for x in finding.exhibits if x.title.startswith("The regions"))
    assert table.rows and all("label" not in str(row[0]) for row in table.rows)
    assert any(str(row[0]).startswith(("ctx-", "Left-", "Right-", "CC_", "CSF", "WM-")) for row in table.rows)


def test_no_place_is_claimed_for_a_tag_that_has_none(example, real_data, tmp_path):
    pets, roles = example("pets"), example("roles")
    oscar, flips = pets.run(Path(real_data), tmp_path, photos=900, seeds=roles.Seeds(1, 1, 1), epochs=8, B=500)
    assert flips.verdict == "shortcut"  # the model does follow the tag
    assert oscar.verdict == "inconclusive"
    assert "no fixed place" in oscar.sentence and "alignment fails" in oscar.sentence
    assert next(c for c in oscar.checks if c.name == "the attribute model looks at a fixed place").passed is False
    assert "localised" not in oscar.sentence and "diffuse" not in oscar.sentence


def test_a_cue_planted_in_a_volume_is_placed_in_its_region_of_a_real_atlas(example, tmp_path):
    pytest.importorskip("monai")
    volumes, roles = example("volumes"), example("roles")
    finding = volumes.run(_atlas(volumes), tmp_path, n=120, seeds=roles.Seeds(1, 1, 1), epochs=10, B=500)
    table = next(x for x in finding.exhibits if x.title.startswith("The regions"))
    assert volumes.CUE in [row[0] for row in table.rows[:3]]  # of 108
    where = next(x for x in finding.exhibits if x.title == "Where the correlation comes from")
    assert any("slice" in picture.caption for picture in where.items)


def _atlas(volumes: ModuleType) -> Path:
    given = os.environ.get("RIGHTREASONS_ATLAS")
    try:
        return volumes.atlas_folder(Path(given) if given else None)
    except SystemExit as missing:
        pytest.skip(str(missing))
