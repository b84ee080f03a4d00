"""The example notebooks run from top to bottom, and what they show is what they say."""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
Shown = list[Any]


def code(path: Path) -> list[str]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def run(path: Path) -> tuple[dict[str, Any], Shown]:
    """Run the cells in order, as a kernel does; gives the names, and the value of every last line."""
    names: dict[str, Any] = {"__name__": "__main__"}
    shown: Shown = []
    for number, source in enumerate(code(path), 1):
        tree = ast.parse(source)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"{path.name}, cell {number}", "exec"), names)
        if last is not None:
            shown.append(eval(compile(ast.Expression(last.value), f"{path.name}, cell {number}", "eval"), names))
    return names, shown


def test_there_is_a_notebook_for_each_paper_and_three_more() -> None:
    papers = ["art", "oscar", "sdi_ccr", "short", "tsi"]
    assert [path.stem for path in NOTEBOOKS] == sorted([*papers, "fixing_a_model", "own_model", "volumes_with_atlas"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_whole_and_holds_no_output(path: Path) -> None:
    told = json.loads(path.read_text(encoding="utf-8"))
    assert (told["nbformat"], told["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in told["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in told["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
            compile("".join(cell["source"]), path.name, "exec")
    assert told["cells"][0]["cell_type"] == "markdown"


@pytest.fixture
def ran(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], Shown]:
    torch = pytest.importorskip("torch")
    if request.param == "volumes_with_atlas":
        pytest.importorskip("nibabel")
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        names, shown = run(FOLDER / f"{request.param}.ipynb")
    finally:
        torch.set_num_threads(threads)
    assert os.path.getsize(names["page"]) > 20_000  # noqa: PTH202
    for value in shown:
        if hasattr(value, "_repr_html_"):
            assert len(value._repr_html_()) > 50
    return names, shown


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("ran", ["own_model"], indirect=True)
def test_an_own_model_is_audited(ran: tuple[dict[str, Any], Shown]) -> None:
    names, shown = ran
    assert {f.name: f.headline for f in names["findings"]}["flips"] == "shortcut"
    # A notebook shows a result as its finding.
    assert sum(hasattr(value, "_repr_html_") or hasattr(value, "finding") for value in shown) >= 4


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("ran", ["fixing_a_model"], indirect=True)
def test_a_model_is_fixed(ran: tuple[dict[str, Any], Shown]) -> None:
    names, _ = ran
    gain = names["change"].estimates[0]
    assert gain.name == "worst-group accuracy, difference"
    assert gain.low > 0


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("ran", ["volumes_with_atlas"], indirect=True)
def test_volumes_are_audited_in_the_regions_of_an_atlas(ran: tuple[dict[str, Any], Shown]) -> None:
    names, shown = ran
    finding = names["finding"]
    assert finding.audit == "oscar" and not finding.not_run
    table = shown[-2]  # regions that test and attribute model use more; the cue was planted in the first
    assert table["region"].iloc[0] == "right anterior midway"


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("ran", ["art"], indirect=True)
def test_art_finds_the_shortcut_and_not_after_the_head_was_fitted_again(ran: tuple[dict[str, Any], Shown]) -> None:
    names, shown = ran
    assert names["result"].verdict == "shortcut"
    assert names["after"].verdict != "shortcut"
    by_hand = next(value for value in shown if isinstance(value, dict))
    assert by_hand["after"] > by_hand["before"]


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("ran", ["oscar"], indirect=True)
def test_oscar_finds_that_the_model_looks_at_the_tag(ran: tuple[dict[str, Any], Shown]) -> None:
    names, _ = ran
    assert names["result"].verdict == "shortcut"


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("ran", ["sdi_ccr"], indirect=True)
def test_sdi_finds_the_frame_and_consistency_lessens_it(ran: tuple[dict[str, Any], Shown]) -> None:
    names, _ = ran
    assert names["result"].verdict == "shortcut"
    before, after = (names["flips"][name].estimates[0].value for name in ("before", "after"))
    assert after < before


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("ran", ["short"], indirect=True)
def test_short_finds_that_the_lean_goes_with_the_encoding(ran: tuple[dict[str, Any], Shown]) -> None:
    names, _ = ran
    assert names["result"].verdict == "shortcut"
    assert names["grid"][names["result"].pick(tolerance=0.02)] in names["grid"]


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("ran", ["tsi"], indirect=True)
def test_tsi_finds_a_token_outside_the_box(ran: tuple[dict[str, Any], Shown]) -> None:
    names, _ = ran
    assert names["result"].verdict == "shortcut"
