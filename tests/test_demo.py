"""The demo shows everything: both networks, five methods, a repair, one page; and a second run makes nothing again."""

from __future__ import annotations

import functools

import pytest

pytest.importorskip("torch")

from rightreasons import demo
from rightreasons.case import Sheet, cases
from rightreasons.data import planted

pytestmark = [pytest.mark.torch, pytest.mark.slow]


def test_the_demo_has_every_method_and_makes_nothing_twice(tmp_path, monkeypatch):
    for name, epochs in (("CNN_TRAINING", 3), ("VIT_TRAINING", 1), ("TINY_TRAINING", 1)):
        monkeypatch.setattr(demo, name, {**getattr(demo, name), "epochs": epochs})
    monkeypatch.setattr(planted, "digits", functools.partial(planted.digits, n=600))
    said: list[str] = []
    findings, page = demo.demo(tmp_path, say=said.append)
    assert [line[:3] for line in said] == [f"{k}/6" for k in range(1, 7)]
    ran = {f.audit for f in findings if not f.not_run}
    assert ran >= {"oscar", "art", "tsi", "short", "sdi", "flips", "groups", "probes", "remedy"}
    judged = {case.model: case for case in cases(findings, Sheet.read(tmp_path))}
    assert list(judged) == ["biased CNN", "biased ViT", "balanced CNN", demo.FAMILY, "repaired CNN"]
    assert judged["biased CNN"].rows["remedy"] and judged["biased CNN"].unevenness
    assert judged["balanced CNN"].imbalance.value < 0.1
    short = next(f for f in findings if f.audit == "short")
    assert "7 scales and 3 seeds" in short.sentence and "25 scales" in short.sentence
    assert page.stat().st_size < 8e6
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.safetensors")}
    again, _ = demo.demo(tmp_path, say=said.append)
    assert before == {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.safetensors")}
    assert [f.estimates for f in again] == [f.estimates for f in findings]
