"""Severity calibration: equation 13 by bisection, a baseline that depends on the cue, content of equal change, the file."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from rightreasons import perturbations  # noqa: E402
from rightreasons.audits.sdi.severities import CONTENT, DEPENDS, EXCLUDED, FIELD, KEPT, REDUCED, REFERENCE, Severities  # noqa: E402
from rightreasons.data import images  # noqa: E402
from rightreasons.data.cohort import Cohort  # noqa: E402
from rightreasons.errors import DataError, SettingError  # noqa: E402
from rightreasons.extraction import severities as calibration  # noqa: E402
from rightreasons.extraction.severities import bisect, calibrate  # noqa: E402
from rightreasons.models.classifier import Classifier  # noqa: E402
from rightreasons.perturbations import nuisance  # noqa: E402

SIDE = 24


class Regions(torch.nn.Module):
    """Mean brightness of the centre and of the uppermost row; a linear head on both."""

    def __init__(self, centre: float, row: float) -> None:
        super().__init__()
        self.pool = torch.nn.Conv2d(3, 2, SIDE, bias=False)
        weight = torch.zeros(2, 3, SIDE, SIDE)
        weight[0, :, 8:16, 8:16] = 1 / (3 * 64)
        weight[1, :, 0] = 1 / (3 * SIDE)
        self.pool.weight = torch.nn.Parameter(weight)
        self.flat = torch.nn.Flatten()
        self.head = torch.nn.Linear(2, 2)
        self.head.weight = torch.nn.Parameter(torch.tensor([[0.0, 0.0], [centre, row]]))
        self.head.bias = torch.nn.Parameter(torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.flat(self.pool(x)))


def model(centre: float, row: float) -> Classifier:
    return Classifier.wrap(
        Regions(centre, row), features="flat", head="head", size=(SIDE, SIDE), mean=0.0, std=1.0, classes=(0, 1)
    )


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Cohort:
    """Label in the centre's brightness, an uppermost row that goes with it; full frames."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(0)
    n = 90
    label = np.arange(n) % 2
    pixels = rng.integers(60, 140, (n, SIDE, SIDE, 3)).astype(np.uint8)
    pixels[:, 8:16, 8:16] += (40 * label)[:, None, None, None].astype(np.uint8)
    pixels[:, 0] = np.where(label, 230, 150)[:, None, None] + rng.integers(-15, 15, (n, 1, 1))
    np.save(folder / "stack.npy", pixels)
    masks = np.zeros((n, SIDE, SIDE), np.uint8)
    masks[:, 8:16, 8:16] = 1
    np.save(folder / "masks.npy", masks)
    columns = {
        "id": [f"r{i}" for i in range(n)],
        "image": [f"stack.npy#{i}" for i in range(n)],
        "mask": [f"masks.npy#{i}" for i in range(n)],
        "label": label,
        "row": label,
        "split": np.where(np.arange(n) % 3 == 0, "train", "val"),
    }
    return Cohort.from_columns(columns, attribute=["row"], split="split", mask="mask", root=folder, name="rows")


def of(found: Severities) -> dict:
    return {o.operator: o for o in found.operators}


def test_the_reference_severities_are_those_of_the_operators():
    for family, known in (("nuisance", REFERENCE), ("content", CONTENT)):
        functions = dict(perturbations._functions(family))
        assert {name: inspect.signature(f).parameters["severity"].default for name, f in functions.items()} == known


def test_bisection_finds_the_largest_severity_within_the_tolerance():
    """Twin: a fine scan of a drop that grows with severity (equation 13)."""
    drop = lambda s: 0.1 * s**2  # noqa: E731
    found = bisect(drop, 0.8, 0.02, steps=20)
    scan = max(s for s in np.linspace(0.08, 0.8, 100_001) if drop(s) <= 0.02)
    assert found == pytest.approx(scan, abs=1e-5)
    assert bisect(drop, 0.3, 0.02) == 0.3
    assert np.isnan(bisect(lambda s: 0.5, 0.3, 0.02))


def test_the_drop_is_equation_13(world):
    """Twin: the AUC of pairs, before and after, of the logits of the baseline; severities that are kept stay within 0.02."""
    baseline, rows = model(0.1, 5.0), world.on("val")
    found = calibrate(baseline, world, operators=["border", "tags", "grain"])
    assert max(o.drop for o in found.operators) > 0.3
    x = (
        torch.from_numpy(np.stack([images.load(r, baseline.geometry, root=rows.root) for r in rows.image])).permute(0, 3, 1, 2)
        / 255
    )

    def pairs(pixels: torch.Tensor) -> float:
        with torch.inference_mode():
            logits = baseline.logits((pixels - baseline.mean[0]) / baseline.std[0]).double()
        score = (logits[:, 1] - logits[:, 0]).numpy()
        of = [(p > q) + 0.5 * (p == q) for p in score[rows.label == 1] for q in score[rows.label == 0]]
        return float(np.mean(of))

    for o in found.operators:
        changed = getattr(nuisance, o.operator)(x, perturbations.seeds(rows.id, o.operator), severity=o.severity)
        assert o.drop == pytest.approx(pairs(x) - pairs(changed), abs=1e-6)
        assert o.status not in (KEPT, REDUCED) or o.drop <= 0.02


def test_a_baseline_on_the_cue_is_seen_against_a_balanced_reference(world):
    operators = ["border", "cast", "periphery"]
    found = calibrate(model(0.1, 5.0), _without_mask(world), reference=model(5.0, 0.0), operators=operators)
    border, cast, periphery = (of(found)[name] for name in operators)
    assert border.status == DEPENDS and border.severity == REFERENCE["border"] and border.resolved
    assert border.drop > 0.3 and border.drop_reference == 0
    assert cast.status == KEPT and cast.drop <= 0.02
    assert periphery.status == EXCLUDED and "changes nothing" in periphery.reason  # nothing surrounds a full frame
    assert found.auc == 1.0 and found.baseline == model(0.1, 5.0).fingerprint and found.rows == 60


def test_an_operator_that_leaves_the_mask_alone_is_kept_as_well(world):
    border = of(calibrate(model(0.1, 5.0), world, operators=["border"]))["border"]
    assert border.status == DEPENDS and border.resolved and "mask" in border.reason


def test_without_reference_and_mask_a_failing_operator_stays_unresolved(world):
    found = calibrate(model(0.1, 5.0), _without_mask(world), operators=["border"])
    border = of(found)["border"]
    assert not border.resolved and border.status in (REDUCED, EXCLUDED)
    assert border.status == EXCLUDED or border.drop <= 0.02


def test_the_papers_rule_leaves_out_what_costs_auc(world):
    found = calibrate(model(0.1, 5.0), world, operators=["border", "cast"], exclude=True)
    assert of(found)["border"].status == EXCLUDED and [o.operator for o in found.used] == ["cast"]


def test_content_is_matched_in_pixel_change(world):
    found = calibrate(model(5.0, 0.0), world, operators=["cast", "channels", "grain"])
    stage = calibration._ValidationRows(model(5.0, 0.0), world.on("val"), None, 32)
    for o in found.operators:
        assert o.content, o.operator
        for name, severity in o.content.items():
            assert stage.change(name, severity) == pytest.approx(o.change, rel=0.1)
    assert calibration._matched(0.9, {"elastic": 0.1 * calibration.GRID}) == {}


def test_severities_are_stored_and_read_and_not_made_again_for_another_model(world, tmp_path):
    path = tmp_path / "severities.json"
    made = calibrate(model(5.0, 0.0), world, operators=["cast"], out=path)
    assert Severities.read(path) == made
    assert calibrate(model(5.0, 0.0), world, operators=["cast"], out=path) == made
    with pytest.raises(SettingError, match="another file"):
        calibrate(model(4.0, 0.0), world, operators=["cast"], out=path)
    names = [name for name, _, _ in made.pictures]
    assert [names.count(name) for name in ("field of view", "as it is", "cast", "elastic")] == [4, 1, 3, 3]
    with pytest.raises(SettingError, match="references"):
        calibrate(model(5.0, 0.0), world, operators=["cast"], references={"cast": 0.2}, out=path)


def test_every_operator_is_shown_at_three_severities_and_the_field_of_view_is_drawn(world):
    found = calibrate(model(5.0, 0.0), world, operators=["cast", "flatfield", "tags"])
    shown: dict[str, set[float]] = {}
    for name, severity, picture in found.pictures:
        assert picture
        shown.setdefault(name, set()).add(severity)
    for name, own in [*((o.operator, o.severity) for o in found.operators), *CONTENT.items()]:
        assert len(shown[name]) == 3 and any(abs(s - own) < 1e-4 for s in shown[name])
    assert sum(name == FIELD for name, _, _ in found.pictures) == calibration.FIELDS


def test_other_reference_severities_are_where_calibration_starts(world):
    found = of(calibrate(model(5.0, 0.0), world, operators=["cast", "grain"], references={"cast": 0.2}))
    assert (found["cast"].severity, found["grain"].severity) == (0.2, REFERENCE["grain"])


def test_rows_and_operators_that_cannot_serve_are_refused(world):
    with pytest.raises(SettingError, match="cats"):
        calibrate(model(5.0, 0.0), world, operators=["cats"])
    with pytest.raises(DataError, match="two are needed"):
        calibrate(model(5.0, 0.0), world.select(world.label == 1), operators=["cast"])


def _without_mask(world: Cohort) -> Cohort:
    columns = {name: world.column(name) for name in ("id", "image", "label", "row", "split")}
    return Cohort.from_columns(columns, attribute=["row"], split="split", root=world.root, name="rows")
