"""What a figure says can be read: on a desk and on a phone no text is small, cut, broken in a number or over another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rightreasons.findings import Band, Bars, Check, Curve, Curves, Estimate, Exhibit, Gallery, Heatmap, Picture, Scatter, Table
from rightreasons.report import report
from sample_findings import estimate, finding, some

Visit = Callable[..., Any]
LEAST = 11  # pixels, as displayed

# Pixels that each visible text is high, the smallest first: the font's size, enlarged or reduced with its drawing.
SMALL_TEXTS = """least => {
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, of = node.parentElement;
    if (!node.textContent.trim() || of.closest('.unseen, script, style, title, desc, .skip')) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    if (!range.getClientRects().length) continue;
    const matrix = of.getScreenCTM ? of.getScreenCTM() : null;
    const size = parseFloat(getComputedStyle(of).fontSize) * (matrix ? Math.hypot(matrix.a, matrix.b) : 1);
    if (size < least) found.push(size.toFixed(2) + ': ' + node.textContent.trim().slice(0, 40));
  }
  return found.sort();
}"""

# Texts of one drawing that touch. Boxes turn with their text, and are as high as the letters, not as the line.
COLLISIONS = """() => {
  const corners = text => {
    const box = text.getBBox(), m = text.getScreenCTM(), lower = box.y + 0.82 * box.height, upper = box.y + 0.2 * box.height;
    return [[box.x, upper], [box.x + box.width, upper], [box.x + box.width, lower], [box.x, lower]]
      .map(([x, y]) => [m.a * x + m.c * y + m.e, m.b * x + m.d * y + m.f]);
  };
  const along = (shape, [x, y]) => shape.map(corner => corner[0] * x + corner[1] * y);
  const apart = (one, other) => [one, other].some(shape => [0, 1].some(k => {
    const side = [shape[k + 1][0] - shape[k][0], shape[k + 1][1] - shape[k][1]];
    const a = along(one, side), b = along(other, side), slack = 0.5 * Math.hypot(...side);
    return Math.max(...a) <= Math.min(...b) + slack || Math.max(...b) <= Math.min(...a) + slack;
  }));
  const found = [];
  for (const svg of document.querySelectorAll('svg')) {
    if (!svg.getBoundingClientRect().width) continue;
    const texts = [...svg.querySelectorAll('text')].filter(text => text.textContent.trim());
    const shapes = texts.map(corners);
    for (let i = 0; i < texts.length; i++) for (let k = 0; k < i; k++) {
      if (!apart(shapes[i], shapes[k])) found.push(texts[k].textContent + ' | ' + texts[i].textContent);
    }
  }
  return found;
}"""

# Texts of drawings that reach out of the screen, or further out of their drawing than an exported figure has margin for.
CUT = """() => [...document.querySelectorAll('svg text')].filter(text => {
  const box = text.getBoundingClientRect(), svg = text.closest('svg'), frame = svg.getBoundingClientRect();
  if (!box.width) return false;
  const margin = 14 * frame.width / svg.viewBox.baseVal.width;
  const outside = box.left < frame.left - margin || box.right > frame.right + margin
    || box.top < frame.top - margin || box.bottom > frame.bottom + margin;
  return outside || (!svg.closest('.scroll') && (box.left < 0 || box.right > innerWidth));
}).map(text => text.textContent)"""

# Numbers with a line break inside.
BROKEN = """() => {
  const found = [], walker = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (node.parentElement.closest('code, svg')) continue;
    for (const match of node.textContent.matchAll(/[\\u2212-]?\\d[\\d.,\\u202f]*/g)) {
      const range = document.createRange();
      range.setStart(node, match.index);
      range.setEnd(node, match.index + match[0].length);
      const lines = new Set([...range.getClientRects()].filter(box => box.width).map(box => Math.round(box.top)));
      if (lines.size > 1) found.push(match[0] + ' in ' + node.textContent.trim().slice(0, 60));
    }
  }
  return found;
}"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every kind of exhibit, each with the longest names and the widest numbers that audits give."""
    estimates = [
        estimate(0.123, name="follows the attribute within label, all images of the test set", unit="probability"),
        estimate(-1234.5, 800.0, name="net change", group="a group with a rather long name", unit="images"),
        Estimate(name="undefined one", value=None, reason="no image of this group was answered wrongly", row="reliance"),
    ]
    odd = finding(
        "sdi", "no evidence", attribute="age", estimates=estimates, exhibits=[*hard()], checks=[Check(name="c", passed=True)]
    )
    return report([*some(), odd], tmp_path_factory.mktemp("figures") / "report.html", title="Figures", subtitle="for a browser")


def opened(visit: Visit, path: Path, width: int) -> Any:
    """The page with everything unfolded and laid out."""
    seen = visit(path, width=width, height=900)
    seen.evaluate(
        """() => {
          document.querySelectorAll('details').forEach(details => { details.open = true; });
          document.querySelectorAll('.finding').forEach(finding => { finding.style.contentVisibility = 'visible'; });
        }"""
    )
    return seen


def hard() -> list[Exhibit]:
    rng = np.random.default_rng(0)
    groups = ["No finding, lateral, portable", "COVID-19, anteroposterior, intensive care unit, second hospital", "C, m"]
    told = {"caption": "What is seen here, and what it means."}
    layers = [f"features.denseblock{k}.denselayer{k + 3}" for k in range(1, 14)]
    low, high = [-0.07, 0.31, 0.0], [0.2, 0.78, 1.0]
    bands = (Band(axis="y", high=0.1, label="too small to count"), Band(axis="x", low=2.0, label="beyond the training range"))
    lines = {"hline": 0.1, "hline_label": "counts as an effect", "vline": 2.0, "vline_label": "decides the verdict of the audit"}
    series = {"answers that follow the attribute": Curve(y=rng.random(5)), "all the other answers": Curve(y=rng.random(5))}
    photo = rng.random((64, 96, 3))
    items = [
        Picture(png=photo, caption="AP film, answered COVID", group="follows the projection", values={"probability lost": -0.123})
        for _ in range(5)
    ]
    axes = {"x_label": "mean change of the predicted probability when the tag is swapped, towards the label it stands for"}
    return [
        Bars(title="Groups", labels=groups, series={"before": low, "after": high}, low={"before": low}, high={"before": high},
             reference=0.5, reference_label="the overall accuracy of the model on these rows", value_label="accuracy", **told),
        Bars(title="One", labels=groups, series=[-12_345.6, 0.0, 98_765.4], value_label="images of the cohort", **told),
        Curves(title="Strength", x=[0, 0.5, 1, 2, 4], series=series, bands=bands, y_label="share", **axes, **lines, **told),
        Curves(title="Layers", x=layers, series=rng.random(13), y_label="balanced accuracy within label", **told),
        Curves(title="Short", x=["stem", "layer1", "layer2", "head"], series=rng.random(4), x_label="layer", **told),
        Curves(title="Wide", x=[1e-6, 1e-3, 1, 1e4], series=[1, 10, 1e4, 1e7], x_scale="log", y_scale="log", y_label="n", **told),
        Curves(title="Years", x=[20_000, 40_000, 60_000], series=[-0.001, 0.0005, 0.001], x_label="images", **told),
        Scatter(title="Models", x=rng.random(30), y=-1e4 * rng.random(30), group=[f"regime number {k % 5}" for k in range(30)],
                x_label="AUC", y_label="absolute disparity", vline=0.7, vline_label="floor", **told),
        Scatter(title="Names", x=["women over 60", "men over 60", "women", "men"] * 3, y=rng.random(12), boxes=True, **told),
        Heatmap(title="Numbers", values=rng.standard_normal((6, 9)), row_labels=[f"{g} {k}" for g in groups for k in (1, 2)],
                col_labels=layers[:9], low=np.full((6, 9), -3), high=np.full((6, 9), 3), scale="diverging",
                row_title="group", col_title="layer of the network", value_label="correlation with the attribute, within label"),
        Heatmap(title="Many", values=rng.random((24, 30)), row_labels=[f"row {k}" for k in range(24)],
                col_labels=[f"column {k}" for k in range(30)], value_label="share"),
        Heatmap(title="Where", values=np.where(rng.random((8, 12)) < 0.2, np.nan, rng.random((8, 12))), background=photo,
                value_label="how much more the answer rests on this region than that of the reference model"),
        Heatmap(title="Image", values=rng.random((80, 80)), value_label="influence"),
        Gallery(title="Images", items=items, sort="probability lost", **told),
        Table(title="Table", columns=["group", "images", "accuracy", "AUC"],
              rows=[[g, 12_345, {"value": 0.123, "low": -0.05, "high": 0.31}, 0.987] for g in groups]),
    ]  # fmt: skip


@pytest.mark.parametrize("width", [1280, 900, 390])
def test_no_text_is_small(visit: Visit, path: Path, width: int) -> None:
    seen = opened(visit, path, width)
    assert seen.locator("svg.chart").count() >= 17
    assert seen.evaluate(SMALL_TEXTS, LEAST) == []


@pytest.mark.parametrize("width", [1280, 900, 390])
def test_no_label_touches_another_or_is_cut(visit: Visit, path: Path, width: int) -> None:
    seen = opened(visit, path, width)
    assert seen.evaluate(COLLISIONS) == []
    assert seen.evaluate(CUT) == []


@pytest.mark.parametrize("width", [1280, 900, 390])
def test_no_number_is_broken(visit: Visit, path: Path, width: int) -> None:
    seen = opened(visit, path, width)
    assert seen.evaluate(BROKEN) == []
    assert seen.evaluate("document.scrollingElement.scrollWidth") <= width


def test_a_text_that_is_small_touches_another_or_is_cut_is_seen(visit: Visit, path: Path) -> None:
    """The measures above find what they look for."""
    seen = opened(visit, path, 1280)
    seen.evaluate(
        """() => {
          const svg = document.querySelector('svg.chart'), made = (x, y, words, size) => {
            const text = document.createElementNS('http://www.w3.org/2000/svg', 'text');
            text.setAttribute('x', x); text.setAttribute('y', y); text.style.fontSize = size; text.textContent = words;
            svg.append(text);
          };
          made(100, 60, 'under', '12px'); made(110, 62, 'over', '12px'); made(10, 40, 'tiny', '8px');
          made(340, 20, 'much too long', '12px');
          const answer = document.querySelector('.says');
          answer.textContent = '0.1234567';
          answer.style.width = '3rem';
          answer.style.overflowWrap = 'anywhere';
        }"""
    )
    assert any(text.endswith("tiny") for text in seen.evaluate(SMALL_TEXTS, LEAST))
    assert "under | over" in seen.evaluate(COLLISIONS)
    assert "much too long" in seen.evaluate(CUT)
    assert any(text.startswith("0.1234567") for text in seen.evaluate(BROKEN))
