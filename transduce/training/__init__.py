"""Training: from files of sentence pairs to a run folder. Other packages import its public names from here.

They are imported when they are first used: requests can be made without torch.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transduce.training.rehearsal import plan_run
    from transduce.training.report import Reporter, SilentReporter, make_reporter
    from transduce.training.request import Settings, TrainingRequest
    from transduce.training.result import Result
    from transduce.training.run import train
    from transduce.training.run_plan import RunPlan
    from transduce.training.stopping import Stopped

__all__ = [
    "Reporter",
    "Result",
    "RunPlan",
    "Settings",
    "SilentReporter",
    "Stopped",
    "TrainingRequest",
    "make_reporter",
    "plan_run",
    "train",
]
_MODULES = {
    "rehearsal": ("plan_run",),
    "report": ("Reporter", "SilentReporter", "make_reporter"),
    "request": ("Settings", "TrainingRequest"),
    "result": ("Result",),
    "run": ("train",),
    "run_plan": ("RunPlan",),
    "stopping": ("Stopped",),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"transduce.training.{module}"), name)
    raise AttributeError(f"module 'transduce.training' has no attribute {name!r}")
