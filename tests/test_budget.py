"""Which model a budget of minutes gets: fitted to data, machine and time together."""

from dataclasses import replace
from time import perf_counter

import pytest

from transduce.config import (
    Counts,
    FitRequest,
    SideCounts,
    Time,
    TrainConfig,
    assignments,
    build,
    cpu_machine,
    fit,
    fit_text,
    gpu_machine,
)
from transduce.config.budget import (
    ENOUGH_STEPS,
    SIZES,
    Batches,
    Machine,
    Size,
    Work,
    choose,
    dropout,
    for_size,
    learning_rate,
    muon_rate,
    with_muon,
)
from transduce.training.speed import time_for

WORDS, LETTERS, SOUNDS = SideCounts(6.5, 20_000, 35.0), SideCounts(1.0, 90_000, 8.0), SideCounts(6.5, 70, 19.0)
TATOEBA = Counts(156_406, WORDS, WORDS)
PRONUNCIATION = Counts(120_000, LETTERS, SOUNDS)
QUIET, BUSY = cpu_machine(12_000), cpu_machine(3_000)  # two cores, and two cores that others use too


def fitted(counts: Counts, machine: Machine, minutes: float, *settings: str):  # type: ignore[no-untyped-def]
    layer = assignments([f"train.minutes={minutes}", *settings])
    found = fit(counts, FitRequest.of(layer), Time(machine, 0.8 * 60 * minutes))
    return build(found.layer, layer), found


def text_fitted(characters: int, machine: Machine, minutes: float, *settings: str):  # type: ignore[no-untyped-def]
    layer = assignments(["model.family=decoder", "data.task=text", f"train.minutes={minutes}", *settings])
    found = fit_text(characters, machine.muon == 0, FitRequest.of(layer), Time(machine, 0.8 * 60 * minutes))
    return build(found.layer, layer), found


def spoken(hours: float, characters: float = 70.0) -> Counts:
    side = SideCounts(characters / 6, 5_000, characters)
    return Counts(round(hours * 3600 * 14 / characters), side, side, audio=True)


def only(tokens: int) -> Batches:
    return Batches(tokens, tokens)


@pytest.mark.parametrize("minutes", [1, 2, 5, 10, 60])
@pytest.mark.parametrize("counts", [TATOEBA, PRONUNCIATION], ids=["translation", "symbols"])
@pytest.mark.parametrize("machine", [QUIET, BUSY], ids=["quiet", "busy"])
def test_a_budget_gets_enough_steps(machine: Machine, counts: Counts, minutes: float) -> None:
    """Seen before: 40 steps of a model of 20 M parameters in five minutes, and BLEU 0.1."""
    config, _ = fitted(counts, machine, minutes)
    work = Work(config.data.task, config.data.vocabulary_size, 1.0, 1e6)
    size = Size(config.model.d_model, config.model.num_heads, config.model.num_encoder_layers)
    steps = for_size(machine, 48 * minutes, work, size, only(config.train.tokens_per_batch)).steps
    assert steps > 200
    assert 1 <= config.train.warmup_steps <= steps / 10


def test_more_time_never_makes_the_model_smaller() -> None:
    for counts in (TATOEBA, PRONUNCIATION):
        widths = [fitted(counts, QUIET, minutes)[0].model.d_model for minutes in (0.5, 1, 2, 5, 10, 30, 60, 300, 3000)]
        assert widths == sorted(widths)
        assert widths[0] < widths[-1]


def test_the_data_say_what_is_largest() -> None:
    """However long the budget: more weights than the data reward are not trained."""
    small = Counts(5_000, LETTERS, SOUNDS)
    assert fitted(small, gpu_machine(7e14), 600)[0].model.d_model == 128
    assert fitted(TATOEBA, gpu_machine(7e14), 600)[0].model.d_model == 384


def test_a_gpu_gets_a_larger_model_than_a_cpu_in_the_same_time() -> None:
    on_gpu, on_cpu = fitted(TATOEBA, gpu_machine(7e14), 1)[0], fitted(TATOEBA, QUIET, 1)[0]
    assert on_gpu.model.d_model > on_cpu.model.d_model
    assert on_gpu.train.tokens_per_batch > on_cpu.train.tokens_per_batch


def test_a_shape_that_was_asked_for_gets_batches_that_suit_it() -> None:
    config, _ = fitted(
        TATOEBA, QUIET, 5, "model.d_model=256", "model.num_encoder_layers=3", "model.num_decoder_layers=3"
    )
    assert config.model.d_model == 256
    assert config.train.tokens_per_batch < 8_192
    adams = learning_rate("translation", 256, config.train.tokens_per_batch)
    assert (config.train.optimizer, config.train.learning_rate) == ("muon", muon_rate("translation", adams))


def test_muon_is_chosen_where_time_is_the_limit() -> None:
    """On a CPU, if nothing else was asked for: a learning rate without an optimizer is one for Adam."""
    config, found = fitted(TATOEBA, QUIET, 5)
    assert config.train.optimizer == "muon"
    assert found.summary(config).endswith(f"learning rate {config.train.learning_rate:g} with Muon")
    adam, said = fitted(TATOEBA, QUIET, 5, "train.optimizer=adam")
    assert adam.train.learning_rate == config.train.learning_rate / 2
    assert "Muon" not in said.summary(adam)
    for others in (["train.learning_rate=0.001"], ["model.family=rnn"]):
        assert fitted(TATOEBA, QUIET, 5, *others)[0].train.optimizer == "adam"
    assert fitted(TATOEBA, gpu_machine(7e14), 1)[0].train.optimizer == "adam", "not measured there"
    small = Counts(3_000, LETTERS, SOUNDS)
    assert fitted(small, QUIET, 30)[0].train.optimizer == "adam", "enough time for hundreds of epochs"


def test_language_models_on_a_cpu_are_trained_with_muon() -> None:
    def rate(on_gpu: bool, **asked: str) -> tuple[str, float]:
        train = fit_text(1_000_000, on_gpu, FitRequest(**asked)).layer["train"]  # type: ignore[arg-type]
        return train["optimizer"], train["learning_rate"]

    assert rate(on_gpu=False) == rate(on_gpu=False, optimizer="muon") == ("muon", 4e-3)
    assert rate(on_gpu=False, optimizer="adamw") == ("adamw", 2e-3)
    assert rate(on_gpu=True)[0] == "adamw"


def test_muon_has_time_for_fewer_steps() -> None:
    work, size = Work("symbols", 100, 1.0, 1e6), Size(128, 4, 3)
    adam = for_size(QUIET, 600, work, size, only(1_024))
    muon = with_muon(QUIET, 600, work, adam, only(1_024))
    assert (muon.size, muon.tokens_per_batch) == (adam.size, adam.tokens_per_batch)
    assert 0.6 < muon.steps / adam.steps < 0.8, "measured: 0.7"
    assert muon.tokens_per_second == pytest.approx(muon.tokens / 600)
    small = for_size(QUIET, 60, work, size, only(256))
    assert with_muon(QUIET, 60, work, small, only(256)).tokens_per_batch == 256, "as it was asked for"
    assert with_muon(QUIET, 60, work, small, Batches(4_096, 256)).tokens_per_batch == 1_024
    assert muon_rate("symbols", 1e-3) == 2e-3
    assert muon_rate("symbols", 3e-3) == 5e-3


def test_a_budget_far_below_what_the_data_need_is_said() -> None:
    _, short = fitted(TATOEBA, QUIET, 2)
    assert (
        "this machine can train about 0.48 epochs in 2 minutes; about 15 would be best for this data"
        in short.warnings[0]
    )
    assert "hours on this machine" in short.warnings[0]
    _, long = fitted(TATOEBA, gpu_machine(7e14), 10)
    assert long.warnings == []


def test_without_a_budget_a_cpu_gets_what_ends_in_a_sensible_time() -> None:
    found = fit(TATOEBA, FitRequest(), Time(QUIET))
    config = build(found.layer)
    assert config.train.epochs < 15
    assert config.model.d_model < 384
    assert config.train.minutes == 0  # the budget is in epochs: what is trained does not depend on the clock
    assert (
        "a smaller model will be trained, in at most about an hour; use --minutes to set another budget. A GPU would take minutes"
        in found.warnings[0]
    )
    assert build(fit(TATOEBA, FitRequest(), Time(gpu_machine(7e14))).layer) == build(fit(TATOEBA).layer)


@pytest.mark.parametrize("minutes", [0, 2])
def test_the_recommended_model_is_one_of_the_requested_family(minutes: float) -> None:
    """And not the Transformer that recipes are written for."""
    asked = FitRequest(family="rnn", minutes=minutes)
    best = build(fit(TATOEBA, FitRequest(family="rnn")).layer).model.description
    assert best.startswith("rnn: 1 + 2 layers, d_model 384")
    assert f"({best}, 15 epochs)" in fit(TATOEBA, asked, Time(QUIET, 60 * minutes)).warnings[0]


def test_without_a_budget_a_shape_that_was_asked_for_decides_how_long_it_takes() -> None:
    """A small one that ends within the hour gets the epochs of the data, and not more because there would be time."""
    small = FitRequest.of(assignments(["model.d_model=64", "model.num_encoder_layers=2", "model.num_decoder_layers=2"]))
    found = fit(TATOEBA, small, Time(QUIET))
    assert (found.layer["train"]["epochs"], found.warnings) == (15, [])
    slow = fit(TATOEBA, small, Time(BUSY))
    assert slow.layer["train"]["epochs"] < 15
    assert "fewer epochs will be trained" in slow.warnings[0]


def test_a_budget_in_steps_or_epochs_keeps_the_recipe_of_the_data() -> None:
    for asked in (FitRequest(steps=100), FitRequest(epochs=2)):
        assert fit(TATOEBA, asked).layer["model"] == fit(TATOEBA).layer["model"]


def test_minutes_leave_the_pauses_to_the_plan_and_learn_the_vocabulary_from_less() -> None:
    config, _ = fitted(TATOEBA, QUIET, 2)
    assert (config.train.validate_every, config.train.checkpoint_every) == (0, 0)
    assert config.data.vocabulary_sample == 50_000


@pytest.mark.parametrize("task", list(SIZES))
def test_thresholds_fall_with_the_size(task: str) -> None:
    thresholds = [least for least, _ in SIZES[task]]
    assert thresholds == sorted(thresholds, reverse=True)
    assert thresholds[-1] == 0  # whatever the budget, there is a size


def test_batches_shrink_until_there_are_enough_steps() -> None:
    work = Work("translation", 8_000, 1.0, 1.7e6)
    large = for_size(QUIET, 10_000, work, Size(128, 4, 2), Batches(8_192, 512))
    small = for_size(QUIET, 240, work, Size(128, 4, 2), Batches(8_192, 512))
    assert large.tokens_per_batch == 8_192
    assert small.tokens_per_batch < 8_192
    assert small.steps >= ENOUGH_STEPS["translation"]
    least = choose(cpu_machine(10.0), 60, work, Size(512, 8, 6), Batches(8_192, 512))
    assert (least.size.d_model, least.tokens_per_batch) == (64, 512)


def test_rates_and_dropout() -> None:
    assert learning_rate("translation", 256, 4_096) == 2.1e-3
    assert learning_rate("translation", 128, 512) == 2.1e-3
    assert learning_rate("symbols", 64, 2_048) == 3e-3
    assert [dropout("translation", 0.3, epochs) for epochs in (1, 20, 60)] == [0.1, 0.2, 0.3]
    assert [dropout("symbols", 0.3, epochs) for epochs in (20, 40, 60)] == [0.1, 0.2, 0.3]
    assert dropout("translation", 0.05, 60) == 0.05


def test_a_batch_that_was_asked_for_is_what_the_rest_is_fitted_to() -> None:
    """Its warm-up is a share of the steps that there are with it, not of those with smaller batches."""
    config, _ = fitted(TATOEBA, QUIET, 3, "train.tokens_per_batch=8192")
    assert config.train.tokens_per_batch == 8_192
    tokens = 60 * 3 * QUIET.tokens_per_second(Size(config.model.d_model, 4, config.model.num_encoder_layers), 8_000)
    assert config.train.warmup_steps < 0.1 * tokens / 8_192 + 1


# --- language models ---------------------------------------------------------------------------------------------

SHAKESPEARE = 1_000_000  # characters


@pytest.mark.parametrize("machine", [QUIET, BUSY], ids=["quiet", "busy"])
@pytest.mark.parametrize("minutes", [1, 3, 6, 60])
def test_a_language_model_gets_enough_steps_and_a_share_of_them_as_warm_up(machine: Machine, minutes: float) -> None:
    """Seen before: a warm-up of 98 steps in a run of 217, whose size did not depend on the minutes."""
    config, found = text_fitted(SHAKESPEARE, machine, minutes)
    work = Work("text", 100, 0.0, SHAKESPEARE)
    size = Size(config.model.d_model, config.model.num_heads, config.model.num_decoder_layers)
    batches, seconds = only(config.train.tokens_per_batch), 48 * minutes
    choice = with_muon(machine, seconds, work, for_size(machine, seconds, work, size, batches), batches)
    assert choice.steps > 200
    assert 0.03 * choice.steps - 1 <= config.train.warmup_steps <= 0.1 * choice.steps
    said = found.summary(config)
    assert said.startswith(f"1,000,000 characters in {minutes} minute{'s' * (minutes > 1)} on a CPU: ")
    assert f", d_model {size.d_model}, " in said
    assert ", about " in said


def test_more_time_never_makes_a_language_model_smaller() -> None:
    shapes = [text_fitted(SHAKESPEARE, QUIET, minutes)[0].model for minutes in (0.1, 1, 3, 6, 20, 60, 600, 10_000)]
    sizes = [(model.d_model, model.num_decoder_layers) for model in shapes]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == ((64, 2), (384, 6)), "from the smallest to what the text supports"
    assert text_fitted(SHAKESPEARE, gpu_machine(7e14), 1)[0].model.d_model == 384
    assert text_fitted(2_000_000_000, gpu_machine(7e14), 600)[0].model.d_model == 768


def test_dropout_of_a_language_model_is_for_text_that_is_read_often() -> None:
    rates = [text_fitted(SHAKESPEARE, QUIET, minutes)[0].model.dropout for minutes in (3, 60, 6_000)]
    assert rates == [0.0, 0.1, 0.25]
    small = text_fitted(SHAKESPEARE, QUIET, 6_000, "model.d_model=128", "model.num_decoder_layers=4")[0].model
    assert (small.dropout, small.context) == (0.1, 128), "a small model does not overfit so soon"


def test_a_language_model_keeps_what_was_asked_for() -> None:
    config, _ = text_fitted(SHAKESPEARE, QUIET, 5, "model.d_model=192", "train.tokens_per_batch=4096")
    assert (config.model.d_model, config.train.tokens_per_batch) == (192, 4_096)
    adam, _ = text_fitted(SHAKESPEARE, QUIET, 5, "train.optimizer=adamw")
    muon, _ = text_fitted(SHAKESPEARE, QUIET, 5)
    assert (adam.train.optimizer, muon.train.optimizer) == ("adamw", "muon")
    assert muon.train.learning_rate == 2 * adam.train.learning_rate
    assert text_fitted(SHAKESPEARE, gpu_machine(7e14), 1)[0].train.optimizer == "adamw"


def test_little_time_for_a_language_model_is_said() -> None:
    (warning,) = text_fitted(SHAKESPEARE, QUIET, 1)[1].warnings
    assert "epochs in 1 minute; about 30 would be best for this data" in warning
    assert "(d_model 384, 6 layers, 30 epochs) would take about" in warning
    assert text_fitted(SHAKESPEARE, gpu_machine(7e14), 2)[1].warnings == []


@pytest.mark.parametrize("asked", [FitRequest(), FitRequest(steps=100), FitRequest(epochs=2.0)])
def test_without_minutes_a_language_model_has_the_settings_of_the_text_and_the_device(asked: FitRequest) -> None:
    on_cpu, on_gpu = (fit_text(SHAKESPEARE, on_gpu, asked).layer for on_gpu in (False, True))
    shape = ("d_model", "num_heads", "num_decoder_layers", "context", "dropout")
    assert [on_cpu["model"][name] for name in shape] == [128, 4, 4, 128, 0.1]
    assert [on_gpu["model"][name] for name in shape] == [384, 6, 6, 256, 0.25]
    assert [layer["train"]["tokens_per_batch"] for layer in (on_cpu, on_gpu)] == [2_048, 16_384]
    steps = asked.steps or round((asked.epochs or 4) * SHAKESPEARE / 2_048)
    assert on_cpu["train"]["warmup_steps"] == steps // 20
    assert "vocabulary_sample" not in on_cpu["data"]


# --- speech ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", [QUIET, BUSY], ids=["quiet", "busy"])
@pytest.mark.parametrize("minutes", [1, 3, 10, 60])
def test_speech_gets_enough_steps_and_a_share_of_them_as_warm_up(machine: Machine, minutes: float) -> None:
    """Seen before: 25 steps of 2,048 tokens in three minutes, 24 of them warm-up, and no word right."""
    counts = spoken(0.2, characters=4.0)
    config, found = fitted(counts, machine, minutes, "model.family=speech")
    work = Work("speech", 100, (4 / 14 + 0.1) * 25 / 5, 5.0 * counts.pairs)
    size = Size(config.model.d_model, 4, config.model.num_decoder_layers)
    choice = for_size(machine, 48 * minutes, work, size, only(config.train.tokens_per_batch))
    assert choice.steps > 200
    assert 0.03 * choice.steps - 1 <= config.train.warmup_steps <= 0.1 * choice.steps
    assert config.model.num_encoder_layers == 2 * config.model.num_decoder_layers
    assert f"in {minutes} minute{'s' * (minutes > 1)}: speech:" in found.summary(config)
    assert choice.tokens > 10 * work.tokens_per_epoch, "no larger model than hears the recordings ten times"


def test_more_time_never_makes_a_speech_model_smaller() -> None:
    for hours in (0.2, 7.0, 50.0):
        models = [fitted(spoken(hours), QUIET, minutes, "model.family=speech")[0].model for minutes in (1, 5, 30, 120, 900, 90_000)]  # fmt: skip
        sizes = [(model.d_model, model.num_decoder_layers) for model in models]
        assert sizes == sorted(sizes)
        assert (sizes[0], sizes[-1]) == ((64, 1), (256, 4) if hours > 10 else (144, 3))


def test_speech_is_masked_less_where_there_are_few_epochs() -> None:
    few, many = (fitted(spoken(7.0), QUIET, minutes, "model.family=speech")[0].data for minutes in (30, 3_000))
    assert (few.frequency_masks, few.time_masks) == (1, 1)
    assert (many.frequency_masks, many.time_masks) == (2, 5)


def test_a_speech_model_that_was_asked_for_gets_batches_that_suit_it() -> None:
    shape = ("model.family=speech", "model.d_model=144", "model.num_encoder_layers=6", "model.num_decoder_layers=3")
    config, _ = fitted(spoken(7.0), QUIET, 10, *shape)
    assert (config.model.d_model, config.model.num_encoder_layers) == (144, 6)
    assert config.train.tokens_per_batch < 2_048
    assert FitRequest.of(assignments(list(shape))).size == Size(144, 4, 3)


def test_features_take_their_time_from_the_budget_of_speech(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer on a CPU that others use too; texts take next to none."""

    def seconds(counts: Counts, speed: float) -> float:
        monkeypatch.setattr("transduce.training.speed.measure_cpu", lambda device, seconds: cpu_machine(speed))
        asked = FitRequest(minutes=10.0)
        time = time_for(TrainConfig(device="cpu"), counts, asked, perf_counter())
        assert time is not None
        return time.seconds

    hour = spoken(1.0)
    of_text = seconds(replace(hour, audio=False), 9_400)
    assert of_text == pytest.approx(0.9 * 597, rel=0.05)
    assert of_text - seconds(hour, 9_400) == pytest.approx(0.9 * 24, rel=0.1)
    assert of_text - seconds(hour, 940) == pytest.approx(0.9 * 240, rel=0.1)
    assert seconds(spoken(100.0), 940) == 0.2 * 600, "some of the budget is left for training"


def test_fine_tuning_is_compared_with_no_recipe_for_new_models() -> None:
    def warnings(minutes: float) -> list[str]:
        asked = replace(FitRequest.of(assignments([f"train.minutes={minutes}"])), fine_tunes=True)
        return fit(TATOEBA, asked, Time(QUIET, 96.0 if minutes else 0.0)).warnings

    assert warnings(2) == []
    (warning,) = warnings(0)
    assert warning.startswith("no budget was given, so the model is trained for at most about an hour;")


def test_time_for_speech_is_said_once() -> None:
    """Below ten epochs the clock says how many minutes are needed, when it has measured a step."""
    assert fitted(spoken(7.0), QUIET, 3, "model.family=speech")[1].warnings == []
    (warning,) = fitted(spoken(7.0), QUIET, 10, "model.family=speech")[1].warnings
    assert "about 100 would be best for this data: expect a weaker model" in warning
    assert "(speech: 6 + 3 layers, convolutions of 15, d_model 144, 100 epochs) would take about" in warning


@pytest.mark.parametrize("asked", [FitRequest(), FitRequest(steps=100), FitRequest(epochs=2.0)])
def test_without_minutes_speech_has_the_settings_of_its_hours(asked: FitRequest) -> None:
    layer = fit(spoken(7.0), replace(asked, family="speech"), None).layer
    assert [layer["model"][name] for name in ("d_model", "num_encoder_layers", "num_decoder_layers")] == [144, 6, 3]
    assert (layer["train"]["tokens_per_batch"], layer["train"]["learning_rate"]) == (2_048, 1e-3)
    assert (layer["data"]["frequency_masks"], layer["data"]["time_masks"]) == (2, 5)
