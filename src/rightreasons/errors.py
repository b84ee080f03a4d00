"""One tree of errors. Every message says what was found, what was expected and what to do.

RightReasonsError
├── SettingError      a keyword, name or value that no function knows
│   └── NotTrusted    a name of code that nobody has said may run
├── DataError         a manifest, a column or a cohort is not what it must be
│   └── ImageError    an image cannot be read or does not fit
├── ModelError        a network, its head or its layers cannot be used
│   └── CheckpointError   the weights do not fit the network
├── EvidenceError     an array is missing, or belongs to another cohort or model
├── TrainingError     a training run cannot start or has gone wrong
└── NotRun            an audit that was asked for cannot run here; the page shows the reason
    └── NoAttribute   a cohort without attributes was asked for one (a DataError too)
"""


class RightReasonsError(Exception):
    """Root of every error that rightreasons raises on purpose."""


class SettingError(RightReasonsError, ValueError):
    """A keyword, name or value that no function knows."""


class NotTrusted(SettingError):
    """A name of code that nobody has said may run."""


class DataError(RightReasonsError, ValueError):
    """A manifest, a column or a cohort is not what it must be."""


class ImageError(DataError):
    """An image cannot be read or does not fit."""


class ModelError(RightReasonsError, ValueError):
    """A network, its head or its layers cannot be used."""


class CheckpointError(ModelError):
    """The weights do not fit the network."""


class EvidenceError(RightReasonsError, KeyError):
    """An array is missing, or belongs to another cohort or model."""

    def __str__(self) -> str:  # KeyError would show the repr of the sentence
        return str(self.args[0]) if self.args else ""


class TrainingError(RightReasonsError, RuntimeError):
    """A training run cannot start or has gone wrong."""


class NotRun(RightReasonsError):
    """An audit that was asked for cannot run here; the message is the reason.

    `lacks` names the missing data in a word that code can ask for (`rightreasons.findings.Lack`), such as "twins".
    """

    def __init__(self, *message: object, lacks: str = "") -> None:
        super().__init__(*message)
        self.lacks = lacks


class NoAttribute(DataError, NotRun):
    """A cohort without attributes was asked for one: an audit that needs one cannot run."""
