"""Settings: how layers combine, what is refused and how, and what is fitted to the data."""

import re

import pytest

from transduce.config import (
    FAMILIES,
    PRESETS,
    Config,
    Counts,
    FitRequest,
    Layers,
    SideCounts,
    Time,
    assignments,
    build,
    cpu_machine,
    differences,
    fit,
    flatten,
    from_toml,
    notes_on_old_names,
    to_toml,
)
from transduce.config.fitted import UNIT_TITLES, may_take_long
from transduce.config.old_names import OLD_NAMES, Renamed
from transduce.errors import SettingError

WORDS = SideCounts(tokens_per_line=11, distinct_tokens=9000, characters_per_line=60)
SPELLINGS = SideCounts(tokens_per_line=1, distinct_tokens=20_000, characters_per_line=8)
SOUNDS = SideCounts(tokens_per_line=7, distinct_tokens=70, characters_per_line=18)


def test_later_layers_win() -> None:
    config = build(fit(Counts(29_000, WORDS, WORDS)).layer, PRESETS["base"], {"model": {"d_model": 256}})
    assert (config.model.d_model, config.model.d_ff, config.model.norm) == (256, 2048, "post")
    assert config.data.task == "translation"


def test_toml_round_trip() -> None:
    odd = {"data": {"languages": ["en", "de"], "symbols": ['a"b', "c\\d", "é\u2028"]}, "train": {"learning_rate": 1e-7}}
    config = build(odd, {"data": {"train": ["x\ty"]}})
    assert build(from_toml(to_toml(config), "")) == config


def test_set_takes_every_kind_of_value() -> None:
    layer = assignments(
        ["model.d_model=64", "train.minutes=2", "data.joint=false", "model.tie=target", "data.symbols=a,b"]
    )
    config = build(layer)
    assert (config.model.d_model, config.train.minutes, config.data.joint) == (64, 2.0, False)
    assert config.data.symbols == ("a", "b")


@pytest.mark.parametrize("given", ["data.weights=3,0.5", "data.weights=[3, 0.5]", 'data.weights=["3", "0.5"]'])
def test_weights_are_kept_as_written(given: str) -> None:
    config = build(assignments([given]))
    assert config.data.weights == ("3", "0.5")
    assert build(from_toml(to_toml(config), "")) == config


def test_differences_names_them() -> None:
    assert differences(Config(), build({"model": {"d_ff": 8}})) == {"model.d_ff": (2048, 8)}


REFUSED = [
    ("model.dmodel=3", "unknown setting model.dmodel; did you mean model.d_model?"),
    ("train.lr=0.001", r"unknown setting train.lr; did you mean train.learning_rate\?"),
    ("model.hidden_size=3", r"unknown setting model.hidden_size; did you mean model.d_model\?"),
    ("train.layers=3", r"did you mean model.num_encoder_layers and model.num_decoder_layers\?"),
    ("train.d_model=3", "unknown setting train.d_model; did you mean model.d_model?"),
    (
        "model.ctc_weight=0.5",
        "unknown setting model.ctc_weight for this model: the setting belongs to model.family = speech",
    ),
    ("modle.d_model=3", r"unknown section \[modle\]; did you mean model?"),
    ("model.d_model", "write section.key=value"),
    ("model.d_model=big", "model.d_model = 'big': must be a whole number"),
    ("model.d_model=2.5", "model.d_model = 2.5: must be a whole number"),
    ("model.d_model=true", "model.d_model = True: must be a whole number"),
    ("model.dropout=much", "model.dropout = 'much': must be a number"),
    ("data.joint=1", "data.joint = 1: must be true or false"),
    ("model.norm=sideways", "model.norm = 'sideways': must be one of post, pre"),
    ("model.dropout=1.5", "model.dropout = 1.5: must be at least 0 and below 1"),
    ("model.dropout=nan", "model.dropout = nan: must be at least 0 and below 1"),
    ("model.num_heads=0", "model.num_heads = 0: must be at least 1"),
    ("model.num_heads=7", "model.d_model = 512 does not divide by model.num_heads = 7"),
    ("model.d_model=513 model.num_heads=1", "sinusoids come in pairs"),
    ("model.positions=marian model.d_model=2 model.num_heads=1", "Marian's sinusoids need at least two pairs"),
    ("model.positions=rotary model.d_k=3 model.d_v=4", "rotary positions turn pairs"),
    ("data.joint=false", 'model.tie = "all" needs one vocabulary'),
    ("data.source_units=char", "data.joint = true needs equal units"),
    ("data.vocabulary_size=3", "data.vocabulary_size = 3: must be at least 8"),
    ("data.source_units=char data.target_units=char data.subword_sampling=0.1", "data.subword_sampling = 0.1 needs"),
    ("data.task=speech model.family=speech data.concatenate=0.5", "data.concatenate = 0.5 is for pairs of text"),
    ("data.languages=en", "give two, source and target, or none"),
    ("data.weights=3,much", r"data.weights = 3,much: 'much' is not a number"),
    ("data.weights=3,,1", "'' is not a number"),
    ("data.weights=3,inf", "data.weights = 3,inf: must be finite"),
    ("data.weights=nan", "data.weights = nan: must be finite"),
    ("data.weights=3,-1", "data.weights = 3,-1: must not be negative"),
    ("data.weights=1001", "data.weights = 1001: must be at most 1,000"),
    ("data.weights=0,0.0", "data.weights = 0,0.0: all are 0: nothing would be learned from"),
    ("data.weights=0", "data.weights = 0: all are 0"),
    ("data.train=a,b data.weights=1,2,3", "1,2,3: 3 for 2 corpora: give one weight for each --train, in their order"),
    ("data.train=a,b data.weights=2", "data.weights = 2: 1 for 2 corpora"),
    ("train.steps=0", "are all 0: set one, or the run never ends"),
    ("train.steps=-1", "train.steps = -1: must not be negative"),
    ("train.learning_rate=inf", "train.learning_rate = inf: must be finite"),
    ("train.epsilon=0", "train.epsilon = 0: Adam divides by it where a gradient is 0"),
    ("train.warmup_steps=0", "the inverse_sqrt schedule needs at least 1"),
    ("train.schedule=constant train.warmup_steps=0", "set a learning rate"),
    ("search.alpha=-10", "search.alpha = -10.0: must not be negative"),
    ("search.alpha=11", "search.alpha = 11.0: must be at most 10"),
    ("train.r_drop=-1", "train.r_drop = -1.0: must not be negative"),
    ("train.r_drop=5 model.dropout=0", "train.r_drop = 5.0 without dropout"),
    ("train.ramp_epochs=3", "train.ramp_epochs = 3: this feature was removed; commit 18ebe9c"),
    ("train.simcut=3", "train.simcut = 3: this feature was removed; commit 18ebe9c"),
    ("train.simcut_rate=0.1", "train.simcut_rate = 0.1: this feature was removed"),
    ("train.optimizer=schedule_free", "train.optimizer = 'schedule_free': this feature was removed"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED, ids=[s for s, _ in REFUSED])
def test_what_cannot_work_is_refused_by_name(settings: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        build(assignments(settings.split()))


def test_removed_settings_that_are_turned_off_are_ignored() -> None:
    """Every `config.toml` of earlier versions has them."""
    assert build(assignments(["train.ramp_epochs=0", "train.simcut=0.0", "train.simcut_rate=0.05"])) == Config()


OLD = [
    ({"train": {"tokens_per_microbatch": 64}}, "train.positions_per_microbatch", 64),
    ({"data": {"sampling": 0.1}}, "data.subword_sampling", 0.1),
    ({"data": {"features_column": 3}}, "data.columns", ("source=1", "features=3", "target=2")),
    ({"data": {"features_column": 0}}, "data.columns", ()),
    ({"data": {"features_column": 0, "columns": ["source=2", "target=1"]}}, "data.columns", ("source=2", "target=1")),
]


@pytest.mark.parametrize(("layer", "name", "value"), OLD)
def test_old_names_are_read_and_not_written(layer: Layers, name: str, value: object) -> None:
    config = build(layer)
    assert flatten(config)[name] == value
    assert not set(OLD_NAMES) & {f"{s}.{key}" for s, keys in from_toml(to_toml(config), "").items() for key in keys}


def test_old_names_take_their_place_in_the_order_of_layers() -> None:
    old, new = {"train": {"tokens_per_microbatch": 64}}, {"train": {"positions_per_microbatch": 32}}
    assert build(old, new).train.positions_per_microbatch == 32
    assert build(new, old).train.positions_per_microbatch == 64


def test_an_old_name_is_noted_with_the_new_one() -> None:
    (note,) = notes_on_old_names(assignments(["train.tokens_per_microbatch=64", "train.steps=3"]))
    assert note == (
        "note: train.tokens_per_microbatch is called train.positions_per_microbatch now; the old name still works"
    )
    assert notes_on_old_names(PRESETS["base"]) == []


def test_the_table_of_old_names_leads_to_settings() -> None:
    """A new name is a setting, an old one is none."""
    known = set(flatten(Config()))
    assert {fate.to for fate in OLD_NAMES.values() if isinstance(fate, Renamed)} <= known
    assert not set(OLD_NAMES) & known


def test_a_setting_under_both_names_is_refused() -> None:
    with pytest.raises(SettingError, match=r"the old name of train.positions_per_microbatch, which is set too"):
        build({"train": {"tokens_per_microbatch": 64, "positions_per_microbatch": 32}})


@pytest.mark.parametrize("value", [-1, True, "3", 10_001])
def test_a_wrong_value_under_an_old_name_is_refused_by_that_name(value: object) -> None:
    with pytest.raises(SettingError, match=r"data.features_column = .*: must be a whole number from 0 to 10,000"):
        build({"data": {"features_column": value}})


@pytest.mark.parametrize("text", ["a = ", "x = 1"])
def test_a_bad_file_is_named(text: str) -> None:
    with pytest.raises(SettingError, match=r"my\.toml: "):
        from_toml(text, "my.toml")


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_valid(preset: str) -> None:
    family = PRESETS[preset]["model"].get("family", "transformer")
    config = build(FAMILIES[family].fitted(fit(Counts(29_000, WORDS, WORDS)).layer), PRESETS[preset])
    assert config.model.family == family


@pytest.mark.parametrize("pairs", [10, 5_000, 29_000, 150_000, 500_000, 5_000_000])
@pytest.mark.parametrize(("source", "target"), [(WORDS, WORDS), (SPELLINGS, SOUNDS), (SPELLINGS, SPELLINGS)])
def test_whatever_is_fitted_works_and_is_explained(pairs: int, source: SideCounts, target: SideCounts) -> None:
    fitted = fit(Counts(pairs, source, target))
    config = build(fitted.layer)
    assert f"{pairs:,} pairs: " in fitted.summary(config)
    assert config.train.epochs > 0
    assert config.search.length_penalty == "power"  # what HF and CTranslate2 can express


@pytest.mark.parametrize(("utterances", "hours", "width"), [(2_659, 7.5, 144), (2_659, 20, 256), (60_000, 9, 144)])
def test_speech_is_fitted_to_the_hours_of_its_recordings(utterances: int, hours: float, width: int) -> None:
    """Not to the number of utterances, which may be words or minutes. Hours are those of texts read aloud."""
    spoken = SideCounts(5, 1_000, 14 * 3600 * hours / utterances)
    fitted = fit(Counts(utterances, spoken, spoken), FitRequest(task="speech", family="speech"))
    assert fitted.layer["model"]["d_model"] == width
    assert f"{utterances:,} utterances, about {hours:.1f} hours by the length" in fitted.summary(build(fitted.layer))


@pytest.mark.parametrize(("characters", "decibels"), [(4.0, 35.0), (27.0, 35.0), (30.0, 0.0), (140.0, 0.0)])
def test_quiet_ends_are_left_out_of_short_utterances(characters: float, decibels: float) -> None:
    spoken = SideCounts(1 + characters / 6, 500, characters)
    fitted = fit(Counts(2_000, spoken, spoken), FitRequest(task="speech", family="speech"))
    assert fitted.layer["data"].get("trim_quiet", 0.0) == decibels
    assert any("data.trim_quiet" in reason for reason in fitted.reasons) == bool(decibels)


def test_the_papers_learning_rate_is_not_shown_as_0() -> None:
    fitted = fit(Counts(7_000, WORDS, WORDS), FitRequest())
    summary = fitted.summary(build(fitted.layer, PRESETS["base"]))
    assert summary.endswith(", learning rate by the paper's formula")


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in ("decoder", "speech")])
def test_reasons_name_the_shape_of_the_family(family: str) -> None:
    """Which is not that of the Transformer that the recipe is written for."""
    fitted = fit(Counts(29_000, WORDS, WORDS), FitRequest(family=family))
    config = build(fitted.layer)
    assert config.model.family == family
    shape = f"29,000 pairs: {config.model.description}, dropout {config.model.dropout}, 4,096 tokens a batch"
    assert fitted.summary(config) == f"{shape}, 30 epochs, learning rate {config.train.learning_rate:g}"
    for side in ("encoder", "decoder"):
        layers = getattr(config.model, f"num_{side}_layers", None)
        assert layers is None or re.search(rf"\b{layers}\b", config.model.description)


def test_the_task_is_inferred() -> None:
    def settings(source: SideCounts, target: SideCounts) -> tuple[str, str, str, bool]:
        data = build(fit(Counts(100_000, source, target)).layer).data
        return data.task, data.source_units, data.target_units, data.joint

    assert settings(WORDS, WORDS) == ("translation", "bpe", "bpe", True)
    assert settings(SPELLINGS, SOUNDS) == ("symbols", "char", "word", False)
    assert settings(SPELLINGS, SPELLINGS) == ("symbols", "char", "char", True)
    assert build(fit(Counts(100, SPELLINGS, SOUNDS), FitRequest(task="translation")).layer).data.task == "translation"


@pytest.mark.parametrize("pairs", [100, 400, 1_000, 10_000])
def test_words_with_features_are_spelt_however_few_they_are(pairs: int) -> None:
    """Each word once, a few dozen features: words of several kinds must not be taken for symbols."""
    words = SideCounts(tokens_per_line=2, distinct_tokens=pairs + 40, characters_per_line=17)
    forms = SideCounts(tokens_per_line=1.4, distinct_tokens=pairs, characters_per_line=11)  # some of two words
    fitted = fit(Counts(pairs, words, forms, features=True))
    data = build(fitted.layer).data
    assert (data.task, data.source_units, data.target_units, data.joint) == ("symbols", "char", "char", True)
    assert "task: symbol sequences, because words come with features" in fitted.reasons


def test_sounds_that_words_with_features_become_are_symbols() -> None:
    words = SideCounts(tokens_per_line=2, distinct_tokens=300, characters_per_line=17)
    data = build(fit(Counts(10_000, words, SOUNDS, features=True)).layer).data
    assert (data.source_units, data.target_units) == ("char", "word")


def test_words_of_a_small_dictionary_are_concatenated() -> None:
    small, large = (fit(Counts(pairs, SPELLINGS, SOUNDS)) for pairs in (800, 8_000))
    assert small.layer["data"]["concatenate"] == 0.8
    assert small.layer["train"]["epochs"] == 170  # of pairs that are nearly twice as long: as many steps as 300 without
    assert any("data.concatenate" in reason for reason in small.reasons)
    with_features = fit(Counts(800, SPELLINGS, SPELLINGS, features=True))
    assert not any("concatenate" in one.layer["data"] for one in (large, with_features))
    assert with_features.layer["train"]["epochs"] == 300
    by_steps = fit(Counts(800, SPELLINGS, SOUNDS), FitRequest(steps=100))
    assert "concatenate" not in by_steps.layer["data"], "a budget in steps or epochs would take longer"


def test_few_lines_of_words_are_no_symbols() -> None:
    few = SideCounts(tokens_per_line=2, distinct_tokens=140, characters_per_line=17)
    forms = SideCounts(tokens_per_line=1, distinct_tokens=100, characters_per_line=9)
    assert build(fit(Counts(100, few, forms)).layer).data.source_units == "char"


def test_units_that_were_asked_for_are_what_is_said() -> None:
    layer = assignments(["data.target_units=char"])
    fitted = fit(Counts(100_000, SPELLINGS, SOUNDS), FitRequest.of(layer))
    assert "tokens are characters; joint vocabulary" in fitted.reasons


@pytest.mark.parametrize("target", ["bpe", "unigram", "char", "word"])
@pytest.mark.parametrize("source", ["bpe", "unigram", "char", "word"])
@pytest.mark.parametrize("budget", ["train.steps=100", "train.minutes=5"])
@pytest.mark.parametrize("sides", [(WORDS, WORDS), (SPELLINGS, SOUNDS)])
def test_settings_are_fitted_around_all_units(
    source: str, target: str, budget: str, sides: tuple[SideCounts, SideCounts]
) -> None:
    layer = assignments([f"data.source_units={source}", f"data.target_units={target}", budget])
    counts, asked = Counts(20_000, *sides), FitRequest.of(layer)
    assert may_take_long(counts, asked) in (False, True)
    fitted = fit(counts, asked, Time(cpu_machine(2_000.0), 300.0))
    titles = [UNIT_TITLES[source], UNIT_TITLES[target]]
    tokens = (
        f"source tokens are {titles[0]}, target tokens are {titles[1]}"
        if source != target
        else f"tokens are {titles[0]}"
    )
    vocabularies = "joint vocabulary" if source == target else "separate vocabularies"
    assert f"{tokens}; {vocabularies}" in fitted.reasons
    build(fitted.layer, layer)


def test_the_longest_budget_is_fitted_too() -> None:
    layer = assignments(["train.minutes=1000000"])
    build(fit(Counts(20_000, WORDS, WORDS), FitRequest.of(layer)).layer, layer)


def test_one_vocabulary_or_two_as_asked() -> None:
    two = build(fit(Counts(29_000, WORDS, WORDS), FitRequest(joint=False)).layer)
    assert (two.data.joint, two.model.tie) == (False, "target")


@pytest.mark.parametrize(
    ("asked", "budget"), [("steps=50000", (50_000, 0, 0)), ("epochs=3", (0, 3, 0)), ("minutes=5", (0, 0, 5))]
)
def test_a_budget_that_was_given_is_the_only_one(asked: str, budget: tuple[float, ...]) -> None:
    layer = assignments([f"train.{asked}"])
    train = build(fit(Counts(29_000, WORDS, WORDS), FitRequest.of(layer)).layer, layer).train
    assert (train.steps, train.epochs, train.minutes) == budget
    if train.steps:
        assert train.validate_every == train.checkpoint_every == train.warmup_steps == 2_500


@pytest.mark.parametrize(
    ("pairs", "identical", "languages", "kept"),
    [
        (10_000, 100, (), "drop"),  # stray lines that nobody translated
        (10_000, 2_000, (), "keep"),  # copying is part of the task
        (10_000, 2_000, ("en", "de"), "drop"),
    ],
)
def test_equal_sides_are_dropped_from_translations_only_where_they_are_stray(
    pairs: int, identical: int, languages: tuple[str, ...], kept: str
) -> None:
    fitted = fit(Counts(pairs, WORDS, WORDS, languages=languages, identical=identical))
    assert build(fitted.layer).data.identical == kept
    other = {"drop": "keep", "keep": "drop"}[kept]
    assert f"{identical:,} pairs whose source equals their target" in " ".join(fitted.reasons)
    assert f"data.identical={other}" in " ".join(fitted.reasons)


def test_equal_sides_are_kept_in_symbols() -> None:
    fitted = fit(Counts(10_000, SPELLINGS, SOUNDS, identical=10))
    assert build(fitted.layer).data.identical == "keep"
    assert "10 pairs whose source equals their target are kept; to leave them out, set data.identical=drop" in " ".join(
        fitted.reasons
    )


def test_several_gpus_get_larger_steps_and_say_why() -> None:
    counts = Counts(5_000_000, WORDS, WORDS)
    one, eight, many = (fit(counts, FitRequest(gpus=gpus)) for gpus in (1, 8, 1024))
    assert eight.layer["train"]["tokens_per_batch"] == 8 * one.layer["train"]["tokens_per_batch"]
    assert eight.layer["train"]["learning_rate"] == pytest.approx(
        8**0.25 * one.layer["train"]["learning_rate"], rel=0.02
    )
    assert eight.layer["train"]["epochs"] == one.layer["train"]["epochs"]
    assert many.layer["train"]["tokens_per_batch"] <= 402_000
    assert any(reason.startswith("8 GPUs: batches 8 times as large as on one GPU") for reason in eight.reasons)
    assert not any("GPU" in reason for reason in one.reasons)
    steps = [fit(counts, FitRequest(gpus=gpus, steps=1_000)).layer["train"] for gpus in (1, 8)]
    assert [one["warmup_steps"] for one in steps] == [50, 100]


def test_too_few_steps_or_a_given_size_keep_steps_as_they_are() -> None:
    counts = Counts(29_000, WORDS, WORDS)
    small, one = (fit(counts, FitRequest(gpus=gpus)) for gpus in (64, 1))
    times = small.layer["train"]["tokens_per_batch"] // one.layer["train"]["tokens_per_batch"]
    assert times < 8
    tiny = fit(Counts(1_000, WORDS, WORDS), FitRequest(gpus=64))
    assert any("64 GPUs: batches as large as on one GPU, because larger ones" in reason for reason in tiny.reasons)
    speech = fit(Counts(100_000, WORDS, WORDS, audio=True), FitRequest(gpus=8))
    assert any(
        "8 GPUs: batches as large as on one GPU, because larger ones were not measured" in r for r in speech.reasons
    )
    given = fit(counts, FitRequest(gpus=8, tokens_per_batch=5_000))
    assert any("8 GPUs: each step is divided among them (train.tokens_per_batch was given)" in r for r in given.reasons)
    assert given.layer["train"]["learning_rate"] == one.layer["train"]["learning_rate"]


@pytest.mark.parametrize("name", ["title", "shortens"])
def test_what_belongs_to_a_family_is_no_setting(name: str) -> None:
    with pytest.raises(SettingError, match=f"unknown setting model.{name}") as refusal:
        build({"model": {"family": "rnn", name: "anything"}})
    assert "title" not in str(refusal.value).partition("known:")[2]
