"""What a setting declares about itself, and `transduce settings`, which prints it."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from transduce.cli.main import main
from transduce.config import FAMILIES, PRESETS, Config, Setting, all_settings, build
from transduce.config.listing import fitted_names, markdown, of_family
from transduce.config.other_names import OURS, our_name
from transduce.config.refusals import check_ranges
from transduce.errors import SettingError

ROOT = Path(__file__).parents[1]
SETTINGS = list(all_settings())
NUMBERS = [one for one in SETTINGS if one.kind in (int, float)]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["settings", *arguments]) == 0
    return capsys.readouterr().out


def with_value(one: Setting, value: float) -> Config:
    section = replace(getattr(Config(), one.section), **{one.key: value})
    return replace(Config(), **{one.section: section})


@pytest.mark.parametrize("one", SETTINGS, ids=lambda one: one.name)
def test_every_setting_is_described(one: Setting) -> None:
    assert one.about.meaning[0].isupper()
    assert one.about.meaning.endswith(".")
    assert tuple(one.about.choices or ()) == one.choices
    assert (one.default in one.choices) == bool(one.choices)


@pytest.mark.parametrize("one", NUMBERS, ids=lambda one: one.name)
def test_bounds_are_where_they_are_said_to_be(one: Setting) -> None:
    """Bounds are allowed and what lies beyond them is refused by name; no number is without a lower bound."""
    about = one.about
    assert about.least is not None
    assert not one.refusal(one.default)
    beyond = [about.least - 1, math.nan, math.inf]
    beyond += [about.below] if about.below is not None else []
    beyond += [about.most + 1] if about.most is not None else []
    assert not any(one.refusal(bound) for bound in (about.least, about.most) if bound is not None)
    for value in beyond:
        with pytest.raises(SettingError, match=rf"^{one.name} = {str(value).replace('+', '.')}: must "):
            check_ranges(with_value(one, value))


@pytest.mark.parametrize("one", [one for one in NUMBERS if one.about.most is not None], ids=lambda one: one.name)
def test_whole_numbers_above_their_bound_are_refused(one: Setting) -> None:
    with pytest.raises(SettingError, match="must be at most"):
        build({one.section: {one.key: one.about.most + 1}})


def test_fine_tuning_inherits_the_whole_shape_of_a_model() -> None:
    """Dropout has no weights; everything else of a model must be what its weights were trained as."""
    chosen = [one.key for one in SETTINGS if one.section == "model" and one.about.inherited != "always"]
    assert chosen == ["dropout", "attention_dropout", "activation_dropout"]


def test_what_may_change_when_a_run_is_resumed() -> None:
    """Budgets, intervals and places; nothing that changes what is learned from a step."""
    assert {one.name for one in SETTINGS if one.about.resumable} == {
        "train.steps", "train.epochs", "train.minutes", "train.patience", "train.average",
        "train.validate_every", "train.validate_lines", "train.checkpoint_every", "train.log_every",
        "train.device", "train.threads", "train.process_timeout", "data.train", "data.valid", "data.cache",
    }  # fmt: skip


def test_all_settings_are_listed_with_default_and_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys)
    for one in SETTINGS:
        assert f"  {one.key} = " in lines
        assert one.about.meaning.split()[0] in lines
    assert [line.split("]")[0] for line in lines.splitlines() if line.startswith("[")] == [
        "[model", "[data", "[train", "[search",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["model.positions", "positions"])
def test_one_setting_is_explained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, name).splitlines() == [
        "model.positions",
        "  How the model knows the position of a token.",
        "  Default: sinusoidal",
        "  Type: one of sinusoidal, marian, learned, rotary, none",
        "    sinusoidal: sines and cosines are added to the embeddings, as in the paper",
        "    marian: sinusoidal, in Marian's layout, for imported models",
        "    learned: a learned vector is added for each of max_positions positions",
        "    rotary: queries and keys are rotated by their position (RoPE)",
        "    none: no positional encoding",
        "  When a run is resumed: must stay the same",
        "  When fine-tuning (--from): taken from the model that training starts from; another value is refused",
    ]


def test_bounds_units_and_zero_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "train.minutes")
    assert "  Default: 0.0 (minutes)" in text
    assert "  Type: a number, at least 0 and at most 1,000,000" in text
    assert "  0 means: not limited" in text
    assert "  When a run is resumed: may change" in text


def test_a_section_is_listed_alone(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "search")
    assert "  beam = 4 *" in lines
    assert "d_model" not in lines


def test_settings_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    everything = json.loads(printed(capsys, "--json"))
    assert [one["name"] for one in everything] == [one.name for one in SETTINGS]
    (one,) = json.loads(printed(capsys, "train.label_smoothing", "--json"))
    assert (one["default"], one["least"], one["below"], one["fitted"]) == (0.1, 0, 1, False)
    assert one["resumable"] is False


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("model.dmodel", "no setting model.dmodel; did you mean model.d_model?"),
        ("dmodel", "no setting dmodel; did you mean d_model?"),
        ("modle", "no setting modle; did you mean model?"),
        ("lr", "no setting lr; did you mean train.learning_rate?"),
        ("train.batch_size", "no setting train.batch_size; did you mean train.tokens_per_batch?"),
        ("max_update", "no setting max_update; did you mean train.steps?"),
        ("xyzzy", "no setting xyzzy; `transduce settings` lists all of them"),
    ],
)
def test_an_unknown_setting_is_an_error_with_advice(name: str, advice: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", name]) == 2
    assert capsys.readouterr().err == f"transduce: {advice}\n"


def test_names_of_other_toolkits_lead_to_settings_that_exist() -> None:
    known = {one.name for one in SETTINGS}
    for other, ours in OURS.items():
        assert {ours} <= known or set(ours.split(" and ")) <= known, other
        assert other not in {one.key for one in SETTINGS}, "a name of ours needs no suggestion"


def test_names_of_other_toolkits_lead_where_the_page_about_them_leads() -> None:
    page = (ROOT / "docs/how-to/coming-from-other-toolkits.md").read_text(encoding="utf-8")
    checked = 0
    for theirs, here in re.findall(r"^\| (`[^|]*) \| ([^|]*) \|$", page, re.MULTILINE):
        for other in re.findall(r"`-*([\w-]+)`", theirs):
            if ours := our_name(other):
                names = [ours, *ours.split(" and "), f"--{ours.partition('.')[2]}"]
                assert any(f"`{name}" in here for name in names), (other, ours, here)
                checked += 1
    assert checked > 40


def test_the_page_of_settings_is_what_the_code_says(capsys: pytest.CaptureFixture[str]) -> None:
    """After a change: `transduce settings --markdown > docs/settings.md`."""
    assert (ROOT / "docs/settings.md").read_text(encoding="utf-8") == markdown() == printed(capsys, "--markdown")


def test_what_is_fitted_is_marked() -> None:
    assert {"model.d_model", "train.learning_rate", "search.alpha", "data.task"} <= fitted_names()
    assert {"search.max_extra", "data.vocabulary_sample"} <= fitted_names()
    assert not {"model.positions", "train.seed", "data.max_length"} & fitted_names()
    assert fitted_names() <= {one.name for one in SETTINGS}


def test_the_defaults_are_the_preset_base() -> None:
    """Apart from what the paper leaves open: units that are otherwise inferred."""
    base = build(PRESETS["base"])
    assert base.model == Config().model
    assert base.search == Config().search
    assert base.train == Config().train


def test_an_old_name_given_to_training_is_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "a.tsv").write_text("".join(f"{a} {b}\t{b} {a}\n" for a in "abcde" for b in "fghij"))
    shape = "model.d_model=16 model.num_heads=2 model.num_encoder_layers=1 model.num_decoder_layers=1 train.steps=1"
    old = "train.tokens_per_microbatch=64"
    assert main(["train", str(tmp_path / "run"), "--train", str(tmp_path / "a.tsv"), "--set", *shape.split(), old]) == 0
    said = capsys.readouterr().err
    assert "note: train.tokens_per_microbatch is called train.positions_per_microbatch now" in said
    written = (tmp_path / "run" / "config.toml").read_text()
    assert "positions_per_microbatch = 64" in written
    assert "tokens_per_microbatch" not in written


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "transformer"])
def test_the_settings_of_a_family_are_listed(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, family)
    assert re.search(rf"^  family = {family}  +The family \(architecture\) of the model", lines, re.MULTILINE)
    for one in of_family(family):
        assert f"  {one.key} = " in lines
        test_every_setting_is_described(one)


def test_a_setting_of_another_family_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert "gated recurrent units" in printed(capsys, "model.cell")
