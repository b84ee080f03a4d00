"""The study that the kill benchmarks run: two small CNNs, three regimes, five seeds, so 30 units of seconds each."""

from __future__ import annotations

STUDY = """
name = "{name}"
engine = "{engine}"
[data]
world = "digits"
agreement = 0.95
n = {n}
pixels = 16
[cohorts.redrawn]
redrawn = 1
[cohorts.balanced]
balance = {{within_label = true}}
[architectures.cnn]
model = "rightreasons.models.small:small_cnn"
size = 16
width = 8
[architectures.narrow]
model = "rightreasons.models.small:small_cnn"
size = 16
width = 4
[regimes.erm]
[regimes.redrawn]
cohort = "redrawn"
[regimes.balanced]
cohort = "balanced"
[train]
epochs = {epochs}
batch = 32
patience = {epochs}
[[runs]]
architecture = ["cnn", "narrow"]
regime = ["erm", "redrawn", "balanced"]
seed = [0, 1, 2, 3, 4]
[performance]
B = 500
[audits.groups]
B = 500
[audits.flips]
B = 500
[engine_settings]
{settings}
"""


def thirty_units(name: str, *, n: int, epochs: int, settings: str, engine: str = "local") -> str:
    """Its study.toml; `settings` are lines of the engine's table."""
    return STUDY.format(name=name, n=n, epochs=epochs, settings=settings, engine=engine)
