"""Placeholders: parts of a text that must survive are masked as they were learned, and come back where they belong."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import transduce
from transduce.cli import main
from transduce.cli.notices import Notices
from transduce.config import Config, DataConfig, check
from transduce.data import Corpus, read_pairs
from transduce.errors import SettingError
from transduce.placeholders import KINDS, SYMBOLS, Masked, Masker, restored, widths
from transduce.translator import Translation, Translator
from transduce.translator.forms import LearnedLine, LineForms

ALL = Masker(tuple(KINDS))
TEXTS = st.text("ab1 .,<>/⟦⟧@:w") | st.text(st.characters(codec="utf-8"))


@pytest.mark.parametrize(
    ("line", "masked", "values"),
    [
        ("See https://a.org/x?y=1, or (http://b.de).", "See ⟦1⟧, or (⟦2⟧).", ("https://a.org/x?y=1", "http://b.de")),
        ("www.a.org and awww.x", "⟦1⟧ and awww.x", ("www.a.org",)),
        ("Mail a.b+c@d-e.co.uk.", "Mail ⟦1⟧.", ("a.b+c@d-e.co.uk",)),
        ("1,000.5 of 3 at 12:30.", "⟦1⟧ of ⟦2⟧ at ⟦3⟧.", ("1,000.5", "3", "12:30")),
        ("mp3, B2B, x1 and 2nd", "mp3, B2B, x1 and 2nd", ()),
        ('a <b class="x y">bold</b> <br/> word', "a ⟦1⟧bold⟦2⟧ ⟦3⟧ word", ('<b class="x y">', "</b>", "<br/>")),
        ("a < b and c > d", "a < b and c > d", ()),
        ("5 and 5 and 6", "⟦1⟧ and ⟦1⟧ and ⟦2⟧", ("5", "6")),
        ("the symbol ⟦3⟧ itself", "the symbol ⟦1⟧ itself", ("⟦3⟧",)),
        ("", "", ()),
    ],
)
def test_parts_are_found(line: str, masked: str, values: tuple[str, ...]) -> None:
    assert ALL.mask(line) == Masked(masked, values)


def test_only_the_kinds_that_were_chosen() -> None:
    assert Masker(("urls",)).mask("5 at http://a.org").text == "5 at ⟦1⟧"
    assert Masker(()).mask("5 at http://a.org ⟦1⟧") == Masked("5 at http://a.org ⟦1⟧")


@given(TEXTS)
def test_what_is_masked_comes_back(line: str) -> None:
    masked = ALL.mask(line)
    found = restored(masked.text, masked.values)
    assert (found.text, found.lost) == (line, 0)
    assert len(masked.values) <= len(SYMBOLS)


@given(TEXTS, TEXTS)
def test_both_sides_of_a_pair_have_the_same_symbols(source: str, target: str) -> None:
    values = ALL.shared(source, target)
    masked = ALL.mask_pair(source, target)
    for symbol, value in zip(SYMBOLS, values, strict=False):
        assert masked[0].count(symbol) == masked[1].count(symbol) > 0, value
    assert tuple(restored(side, values).text for side in masked) == (source, target) or not values


@pytest.mark.parametrize(
    ("source", "target", "pair"),
    [
        ("in 1999 and 2001", "2001 und 1999", ("in ⟦1⟧ and ⟦2⟧", "⟦2⟧ und ⟦1⟧")),
        ("1,000 in 1999", "1.000 in 1999", ("1,000 in ⟦1⟧", "1.000 in ⟦1⟧")),  # written otherwise: both stay
        ("5 and 5", "5", ("5 and 5", "5")),
        ("no parts", "5", ("no parts", "5")),
    ],
)
def test_pairs_to_learn_from(source: str, target: str, pair: tuple[str, str]) -> None:
    assert Masker(("numbers",)).mask_pair(source, target) == pair


def test_what_is_lost_is_counted(capfd: pytest.CaptureFixture[str]) -> None:
    found = restored("⟦2⟧ and ⟦3⟧", ("a", "b"))
    assert (found.text, found.lost) == ("b and ", 1)  # a symbol that the source does not have is dropped
    Notices().add_all([Translation("x", [], lost=found.lost)]).print()
    assert "1 placeholder is missing in the outputs" in capfd.readouterr().err


def test_alignments_count_the_words_that_come_back() -> None:
    """A tag with an attribute is two words; the pairs of a masked word are those of all its words."""
    line = ALL.mask('<b class="x"> now 5')
    assert widths(line.text, line.values) == [2, 1, 1]
    learned = LearnedLine("", f">>de<< {line.text}", has_new_tag=True, values=line.values)
    pairs = [(0, 0), (1, 1), (2, 0), (3, 2)]  # the tag, the element, now, 5
    assert learned.aligned(pairs, "jetzt ⟦1⟧ ⟦2⟧") == [(0, 1), (0, 2), (1, 1), (1, 2), (2, 0), (3, 3)]


def test_prefixes_and_terms_are_masked_like_their_lines() -> None:
    forms = LineForms(DataConfig(placeholders=("numbers",)), ())
    lines = forms.learned(["from 5 to 6", "7"])
    assert forms.masked_like(lines, ["von 6", "bis 6"]) == ["von ⟦2⟧", "bis 6"]
    assert forms.terms_masked_like(lines, [["6", "x"], []]) == [["⟦2⟧", "x"], []]
    assert forms.masked_like(lines, []) == []


def test_scored_pairs_are_masked_as_pairs() -> None:
    lines, targets = LineForms(DataConfig(placeholders=("numbers",)), ()).learned_pairs(["5 of 6"], ["6 von fünf"])
    assert ([line.text for line in lines], targets) == (["5 of ⟦1⟧"], ["⟦1⟧ von fünf"])


def test_a_corpus_is_masked_on_request_only(tmp_path: Path) -> None:
    (tmp_path / "data.tsv").write_text("in 5\t5 in\n")
    group = ((str(tmp_path / "data.tsv"),),)
    assert read_pairs(Corpus(group)) == (["in 5"], ["5 in"])
    assert read_pairs(Corpus(group, placeholders=("numbers",))) == (["in ⟦1⟧"], ["⟦1⟧ in"])


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(SettingError, match=r"data.placeholders: 'dates' is not one of tags, urls, emails, numbers"):
        check(Config(data=DataConfig(placeholders=("urls", "dates"))))


# --- a model that has learned with them --------------------------------------------------------------------------

SETTINGS = """
model.d_model=64 model.d_ff=128 model.num_heads=4 model.num_encoder_layers=1 model.num_decoder_layers=1
model.dropout=0 train.steps=150 train.tokens_per_batch=600 train.learning_rate=5e-3 train.warmup_steps=10
train.validate_every=150 train.checkpoint_every=150 train.threads=1 search.max_extra=5 data.task=translation
data.source_units=bpe data.target_units=bpe data.vocabulary_size=330 data.placeholders=urls,numbers
""".split()
NAMES = {"cat": "Katze", "dog": "Hund", "fox": "Fuchs", "cow": "Kuh"}


def pairs(count: int) -> list[str]:
    """Two numbers and a name, in an order that differs between the sides."""
    draw = random.Random(1)
    rows = [(draw.randrange(10_000), draw.choice(list(NAMES)), draw.randrange(10_000)) for _ in range(count)]
    return [f"{one} {name} {two}\t{NAMES[name]} {two} {one}\n" for one, name, two in rows]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("placeholders")
    (folder / "train.tsv").write_text("".join(pairs(400)))
    (folder / "valid.tsv").write_text("".join(pairs(420)[400:]))
    files = ["--train", str(folder / "train.tsv"), "--valid", str(folder / "valid.tsv")]
    assert (
        main(["train", str(folder / "run"), *files, "--quiet", "--set", *SETTINGS, f"data.cache={folder / 'cache'}"])
        == 0
    )
    return folder / "run"


@pytest.fixture(scope="module")
def translator(model: Path) -> Translator:
    return transduce.load(model, engine="torch")


def test_parts_that_were_never_seen_survive(translator: Translator) -> None:
    lines = ["123456789 cat 987654321", "https://example.org/a?b=c dog 7", "⟦1⟧ fox 3.14"]
    expected = ["Katze 987654321 123456789", "Hund 7 https://example.org/a?b=c", "Fuchs 3.14 ⟦1⟧"]
    assert translator.translate(lines) == expected
    assert [(found.text, found.lost) for found in translator.stream(lines)] == [(text, 0) for text in expected]
    assert [found.source for found in translator.stream(lines)] == lines


def test_alignments_follow_them(translator: Translator) -> None:
    """What stands behind a symbol changes no alignment, and every pair names words of the line and of the output."""
    lines = ["123456789 cat 987654321", "https://example.org/a?b=c cat 7"]
    one, other = (found.outputs[0] for found in translator.stream(lines, translator.request(aligned=True)))
    assert one.alignment == other.alignment != []
    assert {target for _, target in one.alignment} == {0, 1, 2}
    assert {source for source, _ in one.alignment} <= {0, 1, 2}


def test_the_score_of_validation_is_of_real_text(model: Path) -> None:
    """Samples and references in the log have their numbers, not symbols."""
    log = (model / "metrics.jsonl").read_text(encoding="utf-8")
    assert '"samples"' in log
    assert "⟦" not in log


def test_a_prefix_with_a_number(translator: Translator) -> None:
    [found] = translator.stream(["11 cat 22"], prefixes=["Katze 22"])
    assert found.text == "Katze 22 11"


def test_scores_are_of_masked_pairs(translator: Translator) -> None:
    right, wrong = translator.score(["11 cat 22"] * 2, ["Katze 22 11", "Katze 11 22"])
    assert right > -1 > wrong
