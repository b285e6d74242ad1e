"""Training: from files of sentence pairs to a run folder. Other packages import its public names from here."""

from transduce.training.loop import Stopped
from transduce.training.report import Reporter, SilentReporter, make_reporter
from transduce.training.request import Settings, TrainingRequest
from transduce.training.run import Result, train

__all__ = [
    "Reporter",
    "Result",
    "Settings",
    "SilentReporter",
    "Stopped",
    "TrainingRequest",
    "make_reporter",
    "train",
]
