"""A researcher's walk: the ten lines of each paper's page, copied from the page, on a small module of one's own."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

PAGES = Path(__file__).parents[1] / "docs" / "papers"
PAPERS = ("art", "oscar", "sdi-ccr", "short", "tsi")


def blocks(paper: str) -> list[str]:
    """The Python blocks of a page, in order."""
    return re.findall(r"^```python\n(.*?)^```", (PAGES / f"{paper}.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("paper", PAPERS)
def test_the_first_block_of_a_page_has_ten_lines_and_begins_at_the_table(paper: str) -> None:
    first = blocks(paper)[0]
    lines = [line for line in first.splitlines() if line.strip()]
    assert len([line for line in lines if not line.startswith(("import ", "from "))]) <= 10
    assert "import rightreasons as rr" in lines
    assert 'rr.Cohort.read("data.csv"' in first
    assert "## Ten lines" in (PAGES / f"{paper}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("paper", PAPERS)
def test_a_page_goes_from_the_papers_terms_to_the_results(paper: str) -> None:
    text = (PAGES / f"{paper}.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert [headings[0], headings[1]] == ["The paper's terms", "Ten lines"]
    assert headings[-2:] == ["What the package does differently, and why", "Where the results are"]
    assert f"examples/notebooks/{paper.replace('-', '_')}.ipynb" in text


def test_the_steps_of_art_run_on_arrays() -> None:
    names: dict[str, Any] = {}
    exec(compile(blocks("art")[1], "art.md", "exec"), names)
    assert names["restored"].shape == (400, 16)
    assert not np.array_equal(names["restored"], names["features"])


# ---- with networks ---------------------------------------------------------------------------------------------------------


def table(folder: Path, **world: Any) -> None:
    """A planted world as `data.csv` with the columns that the pages name."""
    from rightreasons.data import planted

    planted.digits(folder, attribute="sex", **{"seed": 0, **world})
    pd.read_csv(folder / "manifest.csv").rename(columns={"label": "disease"}).to_csv(folder / "data.csv", index=False)


def convolutions(width: int = 8, last: int = 2) -> Any:
    """A CNN with layers `pool` and `fc`, as on the pages; `last` is the stride of its last block."""
    from collections import OrderedDict

    import torch
    from torch import nn

    torch.manual_seed(0)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for number, (inputs, outputs, stride) in enumerate([(3, width, 2), (width, 2 * width, 1), (2 * width, 2 * width, last)]):
        layers[f"block{number}"] = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()
        )
    layers["pool"] = nn.AdaptiveAvgPool2d(1)
    layers["flat"] = nn.Flatten()
    layers["fc"] = nn.Linear(2 * width, 2)
    return nn.Sequential(layers)


def transformer(dim: int = 48) -> Any:
    """A plain ViT on torch's own blocks, 8x8 tokens of 32 pixels."""
    import torch
    from torch import nn

    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, dim, 4, stride=4)
            self.token = nn.Parameter(torch.zeros(1, 1, dim))
            self.position = nn.Parameter(0.02 * torch.randn(1, 65, dim))
            settings = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}
            self.blocks = nn.Sequential(*(nn.TransformerEncoderLayer(dim, 4, 2 * dim, **settings) for _ in range(2)))
            self.norm = nn.LayerNorm(dim)
            self.fc = nn.Linear(dim, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            tokens = self.patches(x).flatten(2).transpose(1, 2)
            tokens = torch.cat([self.token.expand(len(x), -1, -1), tokens], dim=1) + self.position
            return self.fc(self.norm(self.blocks(tokens))[:, 0])

    torch.manual_seed(0)
    return Transformer()


def trained(module: Any, **training: Any) -> Any:
    """The module after training on the rows of `data.csv`."""
    rr = importlib.import_module("rightreasons")
    rows = rr.Cohort.read("data.csv", label="disease", attribute="sex", split="split")
    start = rr.Classifier.wrap(module, head="fc", size=32, mean=0.5, std=0.5, classes=rows.classes)
    return rr.train(start, rows, seed=0, **training).module


@pytest.fixture
def walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_quiet_thread: None) -> Any:
    """Run the ten lines of a page where `data.csv` lies, with the names that the page takes for granted."""
    monkeypatch.chdir(tmp_path)

    def run(paper: str, **given: Any) -> dict[str, Any]:
        names = dict(given)
        exec(compile(blocks(paper)[0], f"{paper}.md", "exec"), names)
        pages = list(tmp_path.glob("*.html"))
        assert len(pages) == 1 and pages[0].stat().st_size > 10_000
        return names

    return run


@pytest.mark.slow
@pytest.mark.torch
def test_a_researcher_walks_with_art(walk: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    table(tmp_path, agreement=0.9, fractions={"train": 0.5, "val": 0.1, "audit": 0.25, "test": 0.15})
    names = walk("art", network=trained(convolutions(), epochs=8, lr=3e-3))
    assert names["result"].verdict == "shortcut"
    assert names["paper"].verdict in ("shortcut", "inconclusive")


@pytest.mark.slow
@pytest.mark.torch
def test_a_researcher_walks_with_oscar(walk: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    table(tmp_path, agreement=0.85)
    names = walk("oscar", network=trained(convolutions(), epochs=8, lr=3e-3), untrained=convolutions())
    finding = names["result"].finding()
    assert not finding.not_run
    failed = [check.id for check in finding.checks if check.passed is False]
    assert "baseline-balanced" not in failed and "roles-fit" not in failed


@pytest.mark.slow
@pytest.mark.torch
def test_a_researcher_walks_with_sdi(walk: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    table(tmp_path, cue="ring", agreement=0.95, n=900)
    names = walk("sdi-ccr", network=trained(convolutions(), epochs=8, lr=3e-3))
    assert names["result"].verdict == "shortcut"


@pytest.mark.slow
@pytest.mark.torch
def test_a_researcher_walks_with_short(walk: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    fractions = {"train": 0.5, "val": 0.1, "audit": 0.15, "test": 0.25}
    table(tmp_path, agreement=0.8, strength=0.3, cue_noise=0.3, pixels=16, fractions=fractions)
    names = walk("short", untrained=convolutions(4, last=1))
    assert names["result"].rho > 0.5
    assert names["result"].p < 0.05
    assert names["result"].verdict in ("shortcut", "inconclusive")  # fifteen models are few, as the page says


@pytest.mark.slow
@pytest.mark.torch
def test_a_researcher_walks_with_tsi(walk: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    table(tmp_path, cue="tag", size=4, agreement=0.95, n=900)
    names = walk("tsi", network=trained(transformer(), epochs=12, lr=2e-3, patience=None))
    finding = names["result"].finding()
    assert not finding.not_run and finding.verdict in ("shortcut", "inconclusive")
    assert (tmp_path / "classes.csv").exists()
