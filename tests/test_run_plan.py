"""`transduce plan`: what it predicts, what it says to change, and that it leaves nothing behind."""

import json
import os
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny import batch_of, make_model

import transduce
from transduce.cli.main import main
from transduce.config import PRESETS, TrainConfig, TransformerConfig
from transduce.config.rounding import rounded
from transduce.continuous import decoding_memory
from transduce.errors import SettingError
from transduce.memory import memory_limit, peak_resident, restart_peak
from transduce.model import kept_activations
from transduce.training.clock import Clock, Forecast
from transduce.training.memory_model import CUDA_CONTEXT, GIB, MemoryModel, Microbatch, Workload, usable
from transduce.training.plan import FINAL_CHECKPOINTS, FINAL_VALIDATIONS, Costs, Plan
from transduce.training.progress import Progress
from transduce.training.run_plan import (
    DiskFigures,
    EpochFigures,
    MemoryFigures,
    budget_figures,
    changes,
    gpu_fits,
    size,
)
from transduce.translator.evaluation import TestSet

SMALL = """
model.d_model=32 model.d_ff=64 model.num_heads=2 model.num_encoder_layers=1 model.num_decoder_layers=1
train.tokens_per_batch=120 train.threads=1 train.average=3 train.validate_every=8 train.checkpoint_every=6
""".split()


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.getbasetemp() / "plan-cache"
    monkeypatch.setenv("TRANSDUCE_CACHE", str(folder))
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    draw, folder = random.Random(1), tmp_path_factory.mktemp("plan-data")
    for name, count in (("train", 300), ("valid", 20)):
        lines = [" ".join(draw.choices("abcdefgh", k=draw.randint(2, 8))) for _ in range(count)]
        (folder / f"{name}.tsv").write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines))
    return {name: str(folder / f"{name}.tsv") for name in ("train", "valid")}


# --- the command -----------------------------------------------------------------------------------------------


def everything(folder: Path) -> dict[str, tuple[int, int]]:
    """The size and the time of every file; folders are touched when they are read from the cache."""
    found = {str(path): path.stat() for path in folder.rglob("*") if path.is_file()}
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in found.items()}


def test_a_plan_agrees_with_the_run(files: dict[str, str], tmp_path: Path) -> None:
    """Steps, tokens and disk are exact or nearly; nothing is written before the run, and nothing into a run to resume."""
    run = tmp_path / "runs" / "new"
    given = {**files, "settings": SMALL, "steps": 24, "quiet": True}
    planned = transduce.plan(run, **given)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
    result = transduce.train(run, **given)  # type: ignore[arg-type]
    assert planned.budget.last_step == planned.budget.steps == result.steps
    assert planned.changes == ()
    assert 0.5 < planned.disk.finished / sum(path.stat().st_size for path in run.glob("**/*") if path.is_file()) < 2.5
    cost = re.search(r"cost: (\S+) FLOPs", (run / "README.md").read_text())
    assert cost
    assert planned.budget.flops == pytest.approx(float(cost[1]), rel=0.05)
    before = everything(tmp_path)
    longer = transduce.plan(run, steps=40, quiet=True)
    assert (longer.budget.last_step, longer.budget.steps) == (40, 16)
    assert "budget   16 steps up to step 40: " in "\n".join(longer.lines())
    assert "budget   24 steps: " in "\n".join(planned.lines())
    finished = transduce.plan(run, quiet=True)
    assert (finished.budget.steps, finished.budget.seconds) == (0, finished.budget.starting_seconds)
    assert everything(tmp_path) == before


def test_the_folder_is_optional_and_the_cache_is_filled(
    files: dict[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "cache"))
    arguments = ["--train", files["train"], "--valid", files["valid"], "--epochs", "2", "--set", *SMALL]
    assert main(["plan", *arguments]) == 0
    shown = capsys.readouterr()
    topics = [line.split()[0] for line in shown.out.splitlines()]
    assert topics == ["model", "epoch", "budget", "time", "memory", "gpus", "disk", "change"]
    assert "not measured" in shown.out
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]
    assert not (tmp_path / "cache" / "runs").exists()  # no run uses it yet
    before = everything(tmp_path)
    assert main(["plan", *arguments, "--json", "--quiet", "--gpus", "4", "--nodes", "2"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert everything(tmp_path) == before
    cluster = figures["cluster"]
    assert (cluster["processes"], cluster["steps"], cluster["measured"]) == (8, figures["budget"]["steps"], False)
    assert cluster["step"]["bytes_across"] > 0
    assert cluster["seconds"] == pytest.approx(cluster["steps"] * cluster["step"]["seconds"])
    assert main(["plan", *arguments, "--gpus", "3"]) == 2
    assert "--gpus 3: must be a power of two" in capsys.readouterr().err
    assert figures["budget"]["epochs"] == pytest.approx(2)
    assert figures["epoch"]["pairs"] == 300
    assert [gpu["gigabytes"] for gpu in figures["memory"]["gpus"]] == [24, 40, 80, 141]
    assert all(gpu["fits"] for gpu in figures["memory"]["gpus"])
    parts = figures["memory"]["here"]
    assert parts["total"] == sum(value for name, value in parts.items() if name != "total")


@pytest.mark.parametrize(("seconds_per_line", "timed"), [(0.001, 300), (0.1, 32)])
def test_a_validation_is_timed_on_as_many_lines_as_take_a_while(
    seconds_per_line: float, timed: int, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch has a cost of its own, so a few lines say too little about many; slow lines are not timed for long."""
    asked = []

    def seconds(translator: object, pairs: object, texts: TestSet, loss_pairs: int) -> float:
        asked.append(len(texts.sources))
        return 0.1 + seconds_per_line * len(texts.sources)

    monkeypatch.setattr("transduce.training.timing.time_validation", seconds)
    given = {"train": files["train"], "valid": files["train"], "settings": [*SMALL, "data.references=separate"]}
    planned = transduce.plan(**given, steps=24, quiet=True)  # type: ignore[arg-type]
    assert max(asked) == timed
    assert planned.budget.validation_seconds == pytest.approx(0.1 + seconds_per_line * 300, rel=0.05)


def test_a_plan_in_minutes_fills_them(files: dict[str, str]) -> None:
    planned = transduce.plan(**files, settings=SMALL, minutes=2, quiet=True)  # type: ignore[arg-type]
    assert planned.budget.seconds == pytest.approx(120, abs=1)
    assert planned.budget.steps > 100
    training = planned.budget.seconds - planned.budget.starting_seconds
    assert planned.budget.steps * planned.budget.step_seconds == pytest.approx(training, rel=0.35)


def test_mistakes_are_refused_as_by_train(files: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no training data"):
        transduce.plan(quiet=True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    assert main(["plan", str(tmp_path / "full"), "--train", files["train"], "--quiet"]) == 2
    assert main(["plan", "--train", "missing.tsv", "--quiet"]) == 2


def test_train_prints_memory_and_disk(
    files: dict[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    transduce.train(tmp_path / "run", **files, settings=SMALL, steps=2)  # type: ignore[arg-type]
    line = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("plan: "))
    assert "of memory and" in line
    assert line.endswith("of disk")


# --- time ------------------------------------------------------------------------------------------------------


def clock(config: TrainConfig, progress: Progress) -> Clock:
    return Clock(config, progress, 10, Costs(step=1.0, validation=5.0, checkpoint=2.0, closing=3.0))


def test_a_forecast_counts_validations_and_checkpoints() -> None:
    config = TrainConfig(steps=100, validate_every=25, checkpoint_every=40)
    found = clock(config, Progress()).forecast()
    assert (found.steps, found.validations, found.checkpoints) == (100, 3 + FINAL_VALIDATIONS, 2 + FINAL_CHECKPOINTS)
    assert found.seconds == 100 + found.validations * 5 + found.checkpoints * 2 + 3
    later = clock(config, Progress(step=60)).forecast()
    assert (later.steps, later.validations, later.checkpoints) == (40, 1 + FINAL_VALIDATIONS, 1 + FINAL_CHECKPOINTS)


def test_a_forecast_of_minutes_ends_with_them() -> None:
    plan = Plan(10.0, 20.0, 0, 1.0, last_step=500, pause=50, validates=False, lines=10)
    config = TrainConfig(steps=0, minutes=10.0)
    found = clock(config, Progress(plan=plan)).forecast(spent=20.0)
    assert found.seconds == pytest.approx(580)
    assert found.checkpoints > found.validations > FINAL_VALIDATIONS
    by_steps = clock(replace(config, steps=50), Progress(plan=plan)).forecast(spent=20.0)
    assert by_steps.last_step == 50
    assert by_steps.seconds < 200


def test_budget_figures_scale_with_the_epochs() -> None:
    forecast = Forecast(500, 250, 3, 4, 100.0, Costs(0.4, 1, 1))
    epoch = EpochFigures(pairs=10, source_tokens=900, target_tokens=1000, steps=100, padding=0.1)
    budget = budget_figures(forecast, epoch, flops_per_epoch=6.0, starting=7.0)
    assert (budget.epochs, budget.target_tokens, budget.flops, budget.seconds) == (2.5, 2500, 15.0, 107.0)


# --- memory ----------------------------------------------------------------------------------------------------


def bytes_kept(**settings: object) -> tuple[int, TransformerConfig, int]:
    """The bytes that PyTorch keeps for the backward pass of the layers, the settings, and positions on both sides."""
    model = make_model(**settings)
    batch = batch_of([*range(20)])  # type: ignore[arg-type]
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}
    held = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own and tensor.is_floating_point():
            kept[storage.data_ptr()] = storage.nbytes()
        held.append(tensor)  # so that no other tensor gets its memory
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.decode(batch.target, model.encode(batch.source)).sum()
    return sum(kept.values()), model.config, (batch.source.real.numel(), batch.target.real.numel())  # type: ignore[return-value]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"dropout": 0.1},
        {"norm": "pre", "dropout": 0.1},
        {"activation": "gelu"},
        {"activation": "swiglu"},
        {"d_ff": 128},
    ],
    ids=str,
)
def test_activations_are_counted_as_pytorch_keeps_them(settings: dict[str, object]) -> None:
    kept, config, positions = bytes_kept(d_model=32, num_encoder_layers=3, num_decoder_layers=3, **settings)
    predicted = 4 * kept_activations(config, *positions, masks=True)  # type: ignore[misc]
    assert predicted == pytest.approx(kept, rel=0.1)


def model_of(preset: str = "big", tokens: int = 25_000, **changed: object) -> MemoryModel:
    config = TransformerConfig(**PRESETS[preset]["model"])
    parameters = {"big": 214_000_000, "base": 63_000_000}[preset]
    workload = Workload(tokens, 1.0, Microbatch(120, 120), pages=True)
    common = {
        "mode": "kernels",
        "parameters": parameters,
        "optimizer": 8 * parameters,
        "averages": False,
        "classes": 37_000,
    }
    return MemoryModel(config=config, workload=workload, **(common | changed))  # type: ignore[arg-type]


def test_memory_grows_with_the_microbatch_and_is_calibrated() -> None:
    model = model_of()
    assert model.use(131_072) == model.use(32_768)  # a step has 25,000 tokens: larger microbatches change nothing
    assert model.use(2_048).total < model.use(8_192).total < model.use(131_072).total
    assert model.use(131_072).optimizer == 8 * model.parameters
    measured = model.calibrated(131_072, total=40 * GIB)
    assert measured.use(131_072).total == pytest.approx(40 * GIB, rel=1e-6)
    assert measured.use(131_072).weights == model.use(131_072).weights


def test_slots_for_the_validation_take_at_most_a_quarter_of_what_training_leaves() -> None:
    config = TransformerConfig()
    full = decoding_memory(config, 2_000)
    assert full == 2_048 * 256 * 4 * config.d_model * config.num_decoder_layers * 2
    model = model_of(decoding=full)
    training = model_of().use(131_072).total
    assert model.use(131_072).total == training + full
    for capacity in (training + 4 * full, training + full, training + GIB):
        use = model.use(131_072, capacity)
        assert use.decoding in (full, full // 2**2, full // 2**6)
        assert use.total - use.decoding == training
        assert use.decoding <= (capacity - training) / 4
    assert model.use(131_072, training - 1).decoding == 0
    assert model.largest_fitting(training + GIB) == model_of().largest_fitting(training + GIB)


def test_several_graphs_hold_more_memory() -> None:
    model = model_of()
    assert model.workload.graphs(131_072) == 1
    assert model.workload.graphs(16_384) == 2
    long = replace(model, workload=replace(model.workload, longest=Microbatch(300, 200)))
    assert long.use(131_072).activations == 2 * model.use(131_072).activations


def test_what_fits_on_smaller_gpus() -> None:
    model = model_of(tokens=120_000)
    fits = {one.gigabytes: one for one in gpu_fits(model, 131_072, {})}
    assert fits[141].fits
    assert not fits[24].fits
    suggested = fits[24].positions_per_microbatch
    assert model.use(suggested).total <= usable(24) < model.use(2 * suggested).total


def test_a_model_that_fits_nowhere_gets_a_smaller_preset() -> None:
    huge = replace(model_of(), parameters=2_000_000_000, optimizer=16_000_000_000)
    [first, *_] = gpu_fits(huge, 131_072, {"big": model_of("big"), "base": model_of("base")})
    assert (first.fits, first.positions_per_microbatch, first.preset) == (False, 0, "big")


def figures(total_fits: bool, fitting: int, preset: str = "", free: int = 10**12) -> tuple[MemoryFigures, DiskFigures]:
    use = model_of().use(131_072)
    limit = use.total + 1 if total_fits else use.total - 1
    gpus = gpu_fits(model_of(tokens=120_000), 131_072, {})
    return MemoryFigures(use, limit, 131_072, fitting, preset, gpus), DiskFigures(10**9, 10**8, free, 0, "")


def test_changes_name_the_setting_that_fits() -> None:
    assert any("24 GB: --set train.positions_per_microbatch=" in line for line in changes(*figures(True, 131_072)))
    assert "--set train.positions_per_microbatch=4096" in changes(*figures(False, 4_096))[0]
    assert "--preset base" in changes(*figures(False, 0, "base"))[0]
    assert "free 900 MB" in changes(*figures(True, 131_072, free=10**8))[-1]


def test_sizes_are_readable() -> None:
    assert (size(1.55e9), size(2_340_000)) == ("1.6 GB", "2.34 MB")
    assert size(999_900_000) == "1,000 MB"


@pytest.mark.parametrize(
    ("number", "shown"),
    [(300, "300"), (3_349, "3,300"), (12.4, "12"), (10, "10"), (9.96, "10"), (1.24, "1.2"), (0.0124, "0.012"), (0, "0"), (1e-5, "0.00001")],
)  # fmt: skip
def test_rounded_numbers_have_no_exponent(number: float, shown: str) -> None:
    assert rounded(number) == shown


def test_the_plan_of_many_epochs_has_no_exponent() -> None:
    clock = Clock(TrainConfig(steps=3_300), Progress(), 11, Costs(step=120.0, validation=0, checkpoint=0))
    assert clock.describe().startswith("3,300 steps (300 epochs) of about 120 s; ")


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="this system has no /proc/self/clear_refs")
def test_the_peak_of_the_process_is_measured_anew() -> None:
    block = torch.ones(30_000_000)
    peak = peak_resident()
    del block
    restart_peak()
    assert peak_resident() < peak - 60_000_000
    assert memory_limit() > peak


@pytest.mark.gpu
def test_a_gpu_takes_the_memory_that_the_plan_says(files: dict[str, str], tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    given = {
        **files,
        "settings": ["train.tokens_per_batch=8192", "train.device=cuda"],
        "preset": "base",
        "steps": 30,
        "quiet": True,
    }
    planned = transduce.plan(**given)  # type: ignore[arg-type]
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    transduce.train(tmp_path / "run", **given)  # type: ignore[arg-type]
    free, total = torch.cuda.mem_get_info()
    context = total - free - torch.cuda.memory_reserved()
    if context > 3 * CUDA_CONTEXT:
        pytest.skip("other processes use this GPU, whose memory cannot be told apart")
    assert planned.memory.here.total == pytest.approx(torch.cuda.max_memory_reserved() + context, rel=0.1)
    assert planned.memory.gpus_measured
