"""Training on what models write: distillation and back-translation."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from transduce.api.options import loading_options
from transduce.api.training import with_budget
from transduce.cores import tune_idle_threads
from transduce.data import Files
from transduce.translator import LoadOptions, open_folder

if TYPE_CHECKING:
    from transduce.derived.synthesis import Made
    from transduce.training import Result, Settings


def distill(
    teacher: str | Path,
    run: str | Path,
    *,
    train: Files,
    valid: Files | None = None,
    languages: Iterable[str] | None = None,
    preset: str = "student",
    config: str | Path = "",
    settings: "Settings | None" = None,
    keep_original: bool = False,
    to: str = "",
    beam: int | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    options: LoadOptions | None = None,
    on: Literal["local", "ray"] = "local",
    workers: int = 0,
    quiet: bool = False,
    verbose: bool = False,
) -> "Result":
    """Train a small model on the translations of a large one (Kim and Rush 2016). Call it again to resume.

    Args:
        teacher: The run folder of the large model.
        run: The run folder of the student to create or resume.
        train: Training data whose sources the teacher translates.
        valid: Validation data, not translated by the teacher.
        languages: Language codes; by default those of the teacher.
        preset: The shape of the student.
        config: A TOML file of settings of the student.
        settings: Settings of the student, as in `train`.
        keep_original: Also train on the original targets.
        to: The target language, for a teacher that translates into several. The student translates into this one.
        beam: The beam size of the teacher.
        minutes: Budget of the student's training in minutes; translating does not count.
        steps: Budget in optimizer steps.
        epochs: Budget in passes over the training data.
        options: How to load the teacher.
        on: Where the teacher translates, as in `batch`.
        workers: The workers of the teacher, as in `batch`.
        quiet: Print nothing.
        verbose: Print several sample outputs with their references at every validation.

    Example:
        >>> transduce.distill("runs/en-de", "runs/student", train=("train.en", "train.de"))
    """
    tune_idle_threads()
    open_folder(teacher)  # refused before torch is imported, if it is no model
    from transduce.batch_translation import Where
    from transduce.derived.synthesis import distill as run_distillation
    from transduce.training import TrainingRequest, make_reporter

    request = TrainingRequest(
        train=train,
        valid=valid,
        languages=languages,
        preset=preset,
        config=config,
        settings=with_budget(settings, minutes, steps, epochs),
    )
    return run_distillation(
        teacher,
        run,
        request,
        keep_original=keep_original,
        beam=beam,
        options=loading_options(options, to, quiet),
        where=Where(on=on, workers=workers),
        reporter=make_reporter(quiet, verbose),
    )


def backtranslate(
    model: str | Path,
    lines: Iterable[str],
    folder: str | Path,
    *,
    to: str = "",
    beam: int | None = None,
    sampling: bool = False,
    seed: int = 1,
    options: LoadOptions | None = None,
    on: Literal["local", "ray"] = "local",
    workers: int = 0,
    quiet: bool = False,
) -> "Made":
    """Make training pairs from monolingual text with a model that translates from target to source language.

    The work is saved in parts; call it again with the same arguments to resume.

    Args:
        model: The run folder of a model that translates from the target language to the source language.
        lines: Lines of the target language.
        folder: Where to write made.txt (the sources) and given.txt (the targets).
        to: The language of the sources, for a model that translates into several.
        beam: Beam size.
        sampling: Sample the sources instead of searching for the best ones.
        seed: Another seed gives other samples.
        options: How to load the model.
        on: Where to translate, as in `batch`.
        workers: Processes or actors of Ray, as in `batch`.
        quiet: Print nothing.

    Returns:
        The two files, the number of pairs, and the number of lines left out because one side was empty.

    Example:
        >>> made = transduce.backtranslate("runs/de-en", open("mono.de"), "backtranslated")
        >>> transduce.train("runs/en-de", train=[("train.en", "train.de"), (made.made, made.given)])
    """
    tune_idle_threads()
    from transduce.batch_translation import Where
    from transduce.derived.synthesis import backtranslate as run_backtranslation

    return run_backtranslation(
        model,
        (line.rstrip("\r\n") for line in lines),
        folder,
        beam=beam,
        sampling=sampling,
        seed=seed,
        options=loading_options(options, to, quiet),
        where=Where(on=on, workers=workers),
    )
