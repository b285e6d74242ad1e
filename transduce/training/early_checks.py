"""Checks of a training request that need neither torch nor the data. Imports no torch.

`transduce/training/prepare.py` checks everything again with the data at hand; what is refused here is refused whatever the data are.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from transduce.checkpoint import RunFolder
from transduce.config import Config, Counts, FitRequest, Layers, SideCounts, build, fit, fit_text, merge
from transduce.data import groups_from_setting
from transduce.errors import RunError, SettingError, UnreadableFile
from transduce.training.rendezvous import started_together
from transduce.training.request import RequestedSettings, TrainingRequest, requested_settings

# Data of every kind that recipes differ for: words, letters and sounds, by the number of pairs.
_WORDS = SideCounts(tokens_per_line=10, distinct_tokens=9_000, characters_per_line=60)
_LETTERS = SideCounts(tokens_per_line=1, distinct_tokens=9_000, characters_per_line=8)
_SOUNDS = SideCounts(tokens_per_line=7, distinct_tokens=60, characters_per_line=20)
_PAIRS = (1_000, 20_000, 100_000, 500_000, 5_000_000)
_CHARACTERS = (1_000_000, 100_000_000, 1_000_000_000)


def refuse_early(run: str | Path, request: TrainingRequest) -> None:
    """Raise what a new run would be refused for; a run that exists has settings of its own and is left alone."""
    folder = RunFolder(Path(run)) if str(run) else None  # a plan may have none
    if folder and folder.config.exists():
        return
    requested = requested_settings(request)
    if folder:
        check_free(folder)
    data = requested.config.data
    if started_together() == 1:  # of several machines, each reads its own files
        for group in groups_from_setting((*data.train, *data.valid)):
            _check_files(group)
    _refuse_for_any_data(requested)


def check_free(folder: RunFolder) -> None:
    """Refuse a folder that holds something other than a run."""
    if not folder.config.exists() and folder.path.exists() and not _is_free(folder):
        what = "the folder is not empty and is not a run" if folder.path.is_dir() else "is a file"
        raise RunError(f"{folder.path}: {what}; give a new or empty folder")


def _is_free(folder: RunFolder) -> bool:
    """Whether the folder is empty, or holds only what a run leaves if it is killed while writing its first files."""
    ours = {
        folder.data.name,
        folder.made.name,
        *(folder.vocabulary(side).name for side in ("joint", "source", "target")),
    }
    return folder.path.is_dir() and all(p.name in ours or p.name.startswith(".") for p in folder.path.iterdir())


def _check_files(group: tuple[str, ...]) -> None:
    """Refuse files that do not exist; nothing is opened, because a pipe can be read only once."""
    for path in group:
        if path != "-" and not os.path.exists(path):
            raise UnreadableFile(f"{path}: cannot be read: no such file")


def _refuse_for_any_data(requested: RequestedSettings) -> None:
    """Raise if no data would lead to settings that work together with the requested ones.

    Settings from another model are not known here, so requests that name one are left alone.
    """
    if requested.start_from or requested.config.data.vocabulary_from:
        return
    refused: SettingError | None = None
    for layer in _recipes(requested.config, FitRequest.of(merge(*requested.layers))):
        try:
            build(layer, *requested.layers)
        except SettingError as error:
            refused = refused or error
        else:
            return
    if refused:
        raise refused


def _recipes(config: Config, asked: FitRequest) -> Iterator[Layers]:
    """The settings that would be chosen for data of every kind and size."""
    if config.data.task == "text":
        yield from (fit_text(count, on_gpu, asked).layer for count in _CHARACTERS for on_gpu in (False, True))
        return
    for pairs in _PAIRS:
        for source, target in ((_WORDS, _WORDS), (_LETTERS, _SOUNDS), (_LETTERS, _LETTERS)):
            yield fit(Counts(pairs, source, target), asked).layer
        # Sources may turn out to be recordings, for which another family is chosen.
        yield fit(Counts(pairs, _WORDS, _WORDS, audio=True), replace(asked, family="speech")).layer
