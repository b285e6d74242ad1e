"""Training, and what comes before it: a look at the data and a plan."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from transduce.api.options import reporter
from transduce.config import Layers, settings_layer
from transduce.cores import tune_idle_threads
from transduce.data import Files, groups_of

if TYPE_CHECKING:
    from transduce.diagnosis import Report
    from transduce.training import Result, RunPlan, Settings


def train(
    run: str | Path,
    *,
    train: Files | None = None,
    valid: Files | None = None,
    text: Files | None = None,
    valid_text: Files | None = None,
    languages: Iterable[str] | None = None,
    preset: str = "",
    config: str | Path = "",
    settings: "Settings | None" = None,
    start_from: str | Path = "",
    vocabulary: str | Path = "",
    minutes: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    quiet: bool = False,
    verbose: bool = False,
    started_at: float | None = None,
) -> "Result":
    """Train a model, or resume a run.

    Training ends when the first of `minutes`, `steps` and `epochs` is reached; without any of them, the budget is chosen for the data.
    Call it again with the same folder to resume; with `steps` or `epochs` the result is bit-identical to an uninterrupted run.

    Args:
        run: The run folder to create or resume.
        train: Training data: a source and a target file, `("train.en", "train.de")`, one .tsv or .jsonl file, or a list
            of these.
        valid: Validation data, in the same forms. Without it, some of the training data is held out.
        text: One or several text files, to train a language model instead of a translator.
        valid_text: Text files for validation. Without them, the end of each file of `text` is held out.
        languages: Language codes of source and target, such as `("en", "de")`.
        preset: A named recipe instead of settings chosen for the data.
        config: A TOML file of settings.
        settings: `{"model.d_model": 64}`, `{"model": {"d_model": 64}}` or `["model.d_model=64"]`.
        start_from: A run folder whose weights to start from.
        vocabulary: A run folder whose vocabulary to use; a language model uses its target vocabulary.
        minutes: Wall-clock time of the run from start to model card, summed over all calls that resumed it.
        steps: Budget in optimizer steps.
        epochs: Budget in passes over the training data.
        quiet: Print nothing.
        verbose: Print several sample outputs with their references at every validation.
        started_at: The `time.perf_counter()` from which `minutes` count; by default the beginning of this call.

    Returns:
        The number of steps, the time, and the validation score of the best weights.

    Example:
        >>> transduce.train("runs/en-de", train=("train.en", "train.de"), valid=("valid.en", "valid.de"), minutes=30)
    """
    tune_idle_threads()
    from transduce.training.early_checks import refuse_early
    from transduce.training.request import TrainingRequest

    request = TrainingRequest(
        train=train,
        valid=valid,
        text=text,
        valid_text=valid_text,
        languages=languages,
        preset=preset,
        config=config,
        settings=with_budget(settings, minutes, steps, epochs),
        start_from=start_from,
        vocabulary=vocabulary,
    )
    refuse_early(run, request)
    from transduce.diagnosis.quick import quick_findings
    from transduce.training import make_reporter
    from transduce.training import train as run_training

    reporter = make_reporter(quiet, verbose)
    return run_training(run, request, reporter=reporter, begun=started_at, inspect=quick_findings)


def plan(
    run: str | Path = "",
    *,
    train: Files | None = None,
    valid: Files | None = None,
    text: Files | None = None,
    valid_text: Files | None = None,
    languages: Iterable[str] | None = None,
    preset: str = "",
    config: str | Path = "",
    settings: "Settings | None" = None,
    start_from: str | Path = "",
    vocabulary: str | Path = "",
    minutes: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    gpus: int = 0,
    nodes: int = 1,
    network: float = 400.0,
    quiet: bool = False,
    started_at: float | None = None,
) -> "RunPlan":
    """Predict what `train` with the same arguments will take: time, memory, disk, tokens and operations.

    Reads the data, trains a dozen steps, validates and writes a checkpoint to a temporary folder, and discards all of it. Only
    the cache of prepared data stays, which `train` reads next.

    Args:
        run: The run folder to create or resume. Nothing is written into it. By default, a new run.
        train: Training data, as in `train`.
        valid: Validation data, as in `train`.
        text: Text of a language model, as in `train`.
        valid_text: Text for validation, as in `train`.
        languages: Language codes of source and target.
        preset: A named recipe instead of settings chosen for the data.
        config: A TOML file of settings.
        settings: Settings, as in `train`.
        start_from: A run folder whose weights to start from.
        vocabulary: A run folder whose vocabulary to use; a language model uses its target vocabulary.
        minutes: Budget in minutes.
        steps: Budget in optimizer steps.
        epochs: Budget in passes over the training data.
        gpus: GPUs per machine. If given, the plan also predicts the run on a cluster, with the settings chosen for it.
        nodes: Machines of the cluster.
        network: Gb/s per GPU between the machines.
        quiet: Print nothing.
        started_at: The `time.perf_counter()` from which the time to start counts; by default the beginning of this call.

    Returns:
        The plan: `lines()` as text, `as_dict()` for JSON, and the figures as attributes.

    Example:
        >>> planned = transduce.plan(train=("train.en", "train.de"), valid=("valid.en", "valid.de"), steps=10_000)
        >>> planned.budget.seconds, planned.memory.here.total, planned.changes
        (2710.4, 812345678, ())
    """
    tune_idle_threads()
    from transduce.training.early_checks import refuse_early
    from transduce.training.request import TrainingRequest

    request = TrainingRequest(
        train=train,
        valid=valid,
        text=text,
        valid_text=valid_text,
        languages=languages,
        preset=preset,
        config=config,
        settings=with_budget(settings, minutes, steps, epochs),
        start_from=start_from,
        vocabulary=vocabulary,
    )
    refuse_early(run, request)
    from transduce.diagnosis.quick import quick_findings
    from transduce.training import make_reporter, plan_run
    from transduce.training.scaling import Cluster

    cluster = Cluster(gpus or 1, nodes, network) if gpus or nodes > 1 else None
    return plan_run(
        run, request, reporter=make_reporter(quiet), begun=started_at, inspect=quick_findings, cluster=cluster
    )


def doctor(
    *,
    train: Files,
    valid: Files | None = None,
    test: Files | None = None,
    languages: Iterable[str] | None = None,
    preset: str = "",
    config: str | Path = "",
    settings: "Settings | None" = None,
    minutes: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    thresholds: Mapping[str, float] | None = None,
    fast: bool = False,
    write: str | Path = "",
    keep: Iterable[str] = (),
    only: Iterable[str] = (),
    html: str | Path = "",
    model: str | Path = "",
    reverse: str | Path = "",
    processes: int = 0,
    quiet: bool = False,
) -> "Report":
    """Look for problems in training, validation and test data before training on them.

    Every file is read once, by several processes. If torch is already imported, they are spawned instead of forked, so a script
    must call this function under `if __name__ == "__main__":`.

    Args:
        train: Training data, in the forms that `train` takes.
        valid: Validation data, which is trusted: limits such as the longest source are taken from it if it is large enough.
        test: Test data; the training data is searched for its pairs.
        languages: Language codes of source and target, such as `("en", "de")`.
        preset: A named recipe that `train` would use.
        config: A TOML file of settings that `train` would use.
        settings: Settings that `train` would use, as in `train`.
        minutes: Budget in minutes that `train` would have.
        steps: Budget in optimizer steps.
        epochs: Budget in passes over the training data.
        thresholds: Limits of rules by name, such as `{"largest_ratio": 4.0}`.
        fast: Leave out near-duplicates and the identification of languages.
        write: A new folder for clean training files and a table of what was left out.
        keep: Names of rules whose pairs are reported, but not removed.
        only: Names of the rules whose pairs are removed; all other pairs are kept.
        html: A file to write the report to as a page.
        model: A run folder by whose cross-entropy the pairs are ranked.
        reverse: A run folder of the opposite direction; both scores are then combined.
        processes: How many processes read the data; 0 means one for each core.
        quiet: Print no progress.

    Returns:
        The findings with counts, examples and advice, the most serious first; statistics; and what `train` would do.

    Example:
        >>> report = transduce.doctor(train=("train.en", "train.de"), valid=("valid.en", "valid.de"))
        >>> [finding.rule for finding in report.findings if finding.severity == "serious"]
        []
    """
    from transduce.diagnosis.checkup import Outputs, check_up
    from transduce.diagnosis.examination import Options
    from transduce.diagnosis.removal import Removal
    from transduce.training.request import TrainingRequest, requested_settings

    request = TrainingRequest(
        train=train,
        valid=valid,
        languages=languages,
        preset=preset,
        config=config,
        settings=with_budget(settings, minutes, steps, epochs),
    )
    removal = Removal(keep=frozenset(keep), only=frozenset(only))
    options = Options(thresholds=thresholds or {}, workers=processes, fast=fast, removal=removal)
    outputs = Outputs(write=str(write), html=str(html), model=str(model), reverse=str(reverse))
    return check_up(requested_settings(request), groups_of(test), options, outputs, reporter(quiet))


def with_budget(settings: "Settings | None", minutes: float | None, steps: int | None, epochs: float | None) -> Layers:
    """The settings with the budget, which takes precedence; as in the settings, 0 is no limit."""
    given = {"minutes": minutes, "steps": steps, "epochs": epochs}
    layer = settings_layer(settings or ())
    layer.setdefault("train", {}).update({name: value for name, value in given.items() if value is not None})
    return layer
