"""Which model a budget of minutes gets: fitted to data, machine and time together."""

import pytest

from transduce.config import (
    Counts,
    FitRequest,
    SideCounts,
    Time,
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

WORDS, LETTERS, SOUNDS = SideCounts(6.5, 20_000, 35.0), SideCounts(1.0, 90_000, 8.0), SideCounts(6.5, 70, 19.0)
TATOEBA = Counts(156_406, WORDS, WORDS)
PRONUNCIATION = Counts(120_000, LETTERS, SOUNDS)
QUIET, BUSY = cpu_machine(12_000), cpu_machine(3_000)  # two cores, and two cores that others use too


def fitted(counts: Counts, machine: Machine, minutes: float, *settings: str):  # type: ignore[no-untyped-def]
    layer = assignments([f"train.minutes={minutes}", *settings])
    found = fit(counts, FitRequest.of(layer), Time(machine, 0.8 * 60 * minutes))
    return build(found.layer, layer), found


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
        "this machine can train about 0.48 epochs in 2 minutes, and a model for this data keeps improving up to about 15"
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


@pytest.mark.parametrize("task", ["translation", "symbols"])
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
