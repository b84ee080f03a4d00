"""The study of two benchmarks: one small CNN on planted digits, some seeds of it."""

from __future__ import annotations


def seeds_of_a_cnn(name: str, *, units: int, epochs: int, workers: int) -> str:
    """Its study.toml."""
    return f"""
name = "{name}"
[data]
world = "digits"
[architectures.cnn]
model = "rightreasons.models.small:small_cnn"
size = 32
width = 8
[train]
epochs = {epochs}
patience = {epochs}
[[runs]]
seed = {list(range(units))}
[audits.groups]
B = 500
[audits.flips]
B = 500
[engine_settings]
workers = {workers}
"""
