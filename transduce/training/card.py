"""The model card (`README.md`) and the learning curves (`curves.png`) of a finished run."""

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from transduce import __version__
from transduce.checkpoint import RunFolder, read_about, write_bytes, write_text
from transduce.config import Config, TrainConfig, flatten
from transduce.errors import DamagedFile
from transduce.model import training_flops
from transduce.run_log import read_events
from transduce.training.expert_shares import shares_section
from transduce.training.ranking import lacked_points

SAME_LOSS = 1e-5  # losses are written with six digits
KINDS = {"text": "language model", "speech": "speech recognition"}
TITLES = {"symbols": "symbol sequences", "translation": "translation"}  # of models whose languages are not given


@dataclass(frozen=True)
class RunSummary:
    """What the model card reports in addition to the configuration."""

    data: list[str]  # lines that describe the data
    parameters: int
    source_size: int
    target_size: int
    source_tokens: int
    target_tokens: int
    mean_length: float
    steps: int
    seconds: float
    device: str


def write_card(folder: RunFolder, config: Config, summary: RunSummary) -> None:
    """Write the model card: usage, scores with signatures, data, training cost and settings."""
    name = folder.path.resolve().name
    kind = KINDS.get(config.data.task, " -> ".join(config.data.languages) or TITLES.get(config.data.task, ""))
    lines = [
        f"# {name}: {kind}" if kind else f"# {name}",
        "",
        f"{config.model.title} of {summary.parameters / 1e6:.1f} M parameters, trained with Transduce {__version__}.",
        "",
        "## Use",
        "",
        *_usage(name, config.data.task),
        "",
        "## Scores on the validation data",
        "",
        *_scores(folder, config),
        "",
        _chosen_by(folder, config.train),
        "",
        "## Data",
        "",
        *(f"- {line}" for line in summary.data),
        f"- vocabulary: {_vocabulary(config, summary)}",
        "",
        "## Training",
        "",
        f"- {summary.steps:,} step{'s' * (summary.steps != 1)}, {summary.target_tokens:,} target tokens",
        f"- {summary.seconds / 60:.1f} minutes on {summary.device}",
        f"- cost: {flops(config, summary):.2e} FLOPs (matrix products of the forward and backward passes, without padding)",
        "",
        "| setting | value |",
        "| --- | --- |",
        *(f"| {key} | {_cell(value)} |" for key, value in _settings(config).items() if value not in ("", ())),
        "",
        *_experts(folder),
    ]
    write_text(folder.card, "\n".join(lines))


def _experts(folder: RunFolder) -> list[str]:
    try:
        return shares_section(read_events(folder.metrics))
    except DamagedFile:  # said when the curves are drawn
        return []


def _usage(name: str, task: str) -> list[str]:
    command, call = f"transduce translate {name} < input > output", f'transduce.load("{name}").translate(["..."])'
    if task == "speech":
        command, call = f"transduce transcribe {name} recording.wav", call.replace("...", "recording.wav")
    elif task == "text":
        command, call = f'transduce generate {name} --prompt "..."', f'transduce.generate("{name}", "...")'
    return ["```", command, "```", "", "```python", "import transduce", call, "```"]


def _vocabulary(config: Config, summary: RunSummary) -> str:
    if config.data.task == "text":
        return f"{summary.target_size:,} ids"
    joint = " (joint vocabulary)" if config.data.joint else " (separate vocabularies)"
    return f"{summary.source_size:,} source and {summary.target_size:,} target ids{joint}"


def flops(config: Config, summary: RunSummary) -> float:
    passes = 2 if config.train.r_drop else 1
    tokens = passes * summary.source_tokens, passes * summary.target_tokens
    return training_flops(config.model, summary.target_size - 1, *tokens, summary.mean_length)


def _settings(config: Config) -> dict[str, Any]:
    """All settings, with file names instead of paths: a reader of the card does not have this machine's folders."""
    settings = flatten(config)
    for key in ("data.train", "data.valid"):
        settings[key] = tuple(" ".join(Path(file).name for file in group.split("\t")) for group in settings[key])
    if {config.data.source_units, config.data.target_units} <= {"char", "word"}:
        settings["data.unknown"] = ""  # without subwords, nothing is spelt in bytes whatever it says
    for key in ("train.start_from", "data.vocabulary_from"):
        settings[key] = Path(settings[key]).name if settings[key] else ""
    return settings | {"data.cache": ""}


def _cell(value: Any) -> str:
    text = ", ".join(value) if isinstance(value, tuple) else str(value)
    return text.replace("|", "\\|").replace("\t", " ")


def _scores(folder: RunFolder, config: Config) -> list[str]:
    search = "" if config.data.task == "text" else ", greedy search"
    lines = [
        f"| weights | step | loss | score{search} | lines | signature |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for which in ("best", "averaged"):
        if folder.weights(which).exists():
            about = read_about(folder.weights(which), needed=("step", "loss", "metric", "score", "signature"))
            score = f"{about['metric']} {float(about['score']):.{4 if config.data.task == 'text' else 2}f}"
            lines.append(
                f"| {which} | {about['step']} | {float(about['loss']):.4f} | {score} | {_lines(about, 'lines')} "
                f"| `{_cell(about['signature'])}` |"
            )
    return lines


def _chosen_by(folder: RunFolder, train: TrainConfig) -> str:
    about = read_about(folder.weights("best"), needed=("metric", "loss"))
    task = ", the main metric of the task" if train.best_metric == "auto" else ""
    name = f"the loss{_why_loss(about)}" if _by_loss(about) else f"{about['metric']}{task}"
    where = f" on {_lines(about, 'ranked_lines')} lines" if "ranked_lines" in about else ""
    chosen = f"the best validation result{where}, measured by {name} (`train.best_metric = {train.best_metric}`)"
    averaged = (
        " `averaged` is used instead if its result on the same lines is as good or better." if train.average else ""
    )
    return f"`best` is the checkpoint with {chosen}.{averaged}"


def _by_loss(about: Mapping[str, str]) -> bool:
    if "ranked_by" in about:
        return about["ranked_by"] == "loss"
    return abs(float(about.get("rank", "inf")) + float(about["loss"])) < SAME_LOSS


def _why_loss(about: Mapping[str, str]) -> str:
    near = lacked_points(float(about.get("rank", "inf")))
    return f", because its {about['metric']} is near that of an untrained model" if near else ""


def _lines(about: Mapping[str, str], name: str) -> str:
    """How many validation lines were used, and of how many if not all were."""
    lines, whole = (f"{int(about[key]):,}" if key in about else "" for key in (name, "all_lines"))
    return lines if lines == whole or not whole else f"{lines} of {whole}"


def training_losses(train: list[dict[str, Any]], dropout: bool = True) -> dict[str, list[tuple[int, float]]]:
    """The training loss without label smoothing, comparable with the validation loss; old logs have only the smoothed loss."""
    plain = [(event["step"], event["cross_entropy"]) for event in train if "cross_entropy" in event]
    smoothed = [(event["step"], event["loss"]) for event in train]
    return {f"training{' (with dropout)' * dropout}": plain} if plain else {"training (with label smoothing)": smoothed}


def draw_curves(metrics: Path, picture: Path, dropout: bool) -> None:
    """Plot the loss, the main scores and the learning rate over the steps, as logged in `metrics.jsonl`.

    `dropout` says whether the training loss was computed with dropout.
    """
    try:
        render(make_figure(read_events(metrics), dropout), picture)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DamagedFile(f"{metrics}: the log cannot be drawn ({error!r}); the weights are not affected") from None


def render(figure: Any, picture: Path) -> None:
    """Write the picture: all of it, or an older one stays."""
    drawn = BytesIO()
    figure.savefig(drawn, format="png")
    write_bytes(picture, drawn.getvalue())


def make_figure(events: list[dict[str, Any]], dropout: bool) -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    train = [e for e in events if e["event"] == "train"]
    valid = [e for e in events if e["event"] == "valid"]
    figure = Figure(figsize=(12, 3.6), dpi=110, layout="constrained")
    loss, score, rate = figure.subplots(1, 3)
    for label, points in training_losses(train, dropout).items():
        loss.plot([step for step, _ in points], [value for _, value in points], label=label)
    loss.plot([e["step"] for e in valid], [e["loss"] for e in valid], "o-", label="validation")
    loss.set(title="loss per target token", xlabel="step")
    loss.legend()
    for name in list(valid[0]["scores"])[:2] if valid else []:
        score.plot([e["step"] for e in valid], [e["scores"][name]["value"] for e in valid], "o-", label=name)
        score.legend()
    score.set(title="validation score", xlabel="step", ylim=(0, None))
    rate.plot([e["step"] for e in train], [e["learning_rate"] for e in train])
    rate.set(title="learning rate", xlabel="step")
    for panel in (loss, score, rate):
        panel.grid(alpha=0.3)
    return figure
