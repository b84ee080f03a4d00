"""Measurements keep their pieces in memory and are flat on disk."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from rightreasons.errors import DataError
from rightreasons.measurements import HEADER, load_measurement, made_from, measured_class, save_measurement, scalars
from rightreasons.stats.resampling import Interval


@dataclass(frozen=True)
class Gate:
    threshold: float
    counts: np.ndarray


@dataclass(frozen=True)
class Measurement:
    model: str
    gain: Interval
    gate: Gate
    other: Gate | None = None
    names: tuple[str, ...] = ()


ONE = Measurement("m", Interval(0.5, 0.4, 0.6), Gate(0.3, np.arange(3)), names=("a", "b"))


def test_a_piece_comes_back_as_the_piece_it_was(tmp_path: Path) -> None:
    read = load_measurement(Measurement, save_measurement(ONE, tmp_path / "one.npz", seed=3))
    assert read.gate.threshold == 0.3
    assert read.gate.counts.tolist() == [0, 1, 2]
    assert read.other is None
    assert (read.gain, read.names) == (ONE.gain, ("a", "b"))
    assert made_from(tmp_path / "one.npz") == {"seed": 3}
    assert measured_class(tmp_path / "one.npz") == "Measurement"


def test_the_file_is_flat(tmp_path: Path) -> None:
    with np.load(save_measurement(ONE, tmp_path / "one.npz")) as stored:
        assert "gate.counts" in stored.files


def test_numbers_of_a_piece_are_columns_with_its_name() -> None:
    assert scalars(ONE) == {"model": "m", "gain": 0.5, "gain_low": 0.4, "gain_high": 0.6, "gate_threshold": 0.3}


def test_what_cannot_be_stored_is_refused_by_name(tmp_path: Path) -> None:
    odd = Measurement("m", ONE.gain, Gate(0.3, np.array([object()])))
    with pytest.raises(DataError, match=r"gate\.counts is an array of objects"):
        save_measurement(odd, tmp_path / "odd.npz")
    assert not list(tmp_path.iterdir())


def test_a_file_of_an_earlier_format_counts_as_not_measured(tmp_path: Path) -> None:
    file = save_measurement(ONE, tmp_path / "one.npz", seed=3)
    with np.load(file) as stored:
        arrays = dict(stored)
    header = json.loads(str(arrays[HEADER]))
    del header["format"]
    np.savez(file, **{**arrays, HEADER: np.array(json.dumps(header))})
    assert made_from(file) == {}
    with pytest.raises(DataError, match="earlier version"):
        load_measurement(Measurement, file)
