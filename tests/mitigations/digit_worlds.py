"""Small planted digits and small networks for the tests of mitigations."""

import pytest

from rightreasons.data import planted
from rightreasons.models.classifier import Classifier


def digits(*, n=400, three=False, agreement=0.8, **settings):
    """A fixture of the module: a cohort of images of 16 pixels, of two classes and cue values or of three of each."""
    if three:
        settings |= {"classes": {digit: digit % 3 for digit in range(9)}, "values": 3}

    @pytest.fixture(scope="module")
    def cohort(tmp_path_factory):
        return planted.digits(tmp_path_factory.mktemp("digits"), n=n, pixels=16, agreement=agreement, seed=1, **settings)

    return cohort


def cnn(classes=(0, 1)):
    return _small("cnn", classes, width=4)


def vit(classes=(0, 1)):
    return _small("vit", classes, dim=16, depth=1, heads=2)


def _small(network, classes, **settings):
    return Classifier.load(
        f"rightreasons.models.small:small_{network}",
        num_classes=len(classes),
        classes=classes,
        size=(16, 16),
        mean=0.5,
        std=0.5,
        **settings,
    )
