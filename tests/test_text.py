"""Vocabularies: the id layout, round trips, and that text can never speak in control symbols."""

import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import DamagedFile, DataError, SettingError
from transduce.text import EOS, UNKNOWN, Vocabulary, train_vocabulary

SENTENCE = "the cat sat on a mat while seven small dogs ran under old bridges in winter rain"
WORDS = SENTENCE.split()
LINES = [" ".join(WORDS[(i * k) % len(WORDS)] for k in range(1, 9)) for i in range(200)]
UNITS = ("bpe", "unigram", "char", "word")
CONTROLS = ["</s>", "<pad>", "<unk>", "<0x41>", "<s>", "a</s>b", "<pad><pad>", "▁</s>"]


@pytest.fixture(scope="module")
def learned() -> dict[str, Vocabulary]:
    sizes = {"bpe": 400, "unigram": 330, "char": 100, "word": 100}
    return {units: train_vocabulary(LINES, units=units, size=sizes[units]) for units in UNITS}


@pytest.fixture(scope="module")
def identity() -> dict[str, Vocabulary]:
    return {u: train_vocabulary(LINES, units=u, size=330, normalization="identity") for u in ("bpe", "unigram")}


@pytest.mark.parametrize("units", UNITS)
def test_ids_are_laid_out_as_marian_does(learned, units):
    vocabulary = learned[units]
    names = vocabulary.pieces(range(vocabulary.size))
    assert names[:2] == ["</s>", "<unk>"]
    assert names[-1] == "<pad>"
    assert vocabulary.pad == vocabulary.size - 1 == len(names) - 1
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("units", UNITS)
def test_every_line_ends_in_eos_once_and_comes_back(learned, units):
    vocabulary = learned[units]
    rows = vocabulary.encode(["", *LINES])
    assert all(row[-1] == EOS and EOS not in row[:-1] for row in rows)
    assert rows[0] == [EOS]
    assert vocabulary.decode(rows) == ["", *LINES]


def test_encode_agrees_with_sentencepiece_itself(learned):
    oracle = sentencepiece.SentencePieceProcessor(model_proto=learned["bpe"].model)
    assert learned["bpe"].encode(LINES) == [[*oracle.encode(line), EOS] for line in LINES]


@pytest.mark.parametrize("units", UNITS)
def test_typed_control_symbols_are_plain_characters(units):
    vocabulary = train_vocabulary([*LINES, "a/k", *CONTROLS * 20], units=units, size=420)
    controls = {i for i, name in enumerate(vocabulary.pieces(range(vocabulary.size))) if name in CONTROLS}
    for text, row in zip(CONTROLS, vocabulary.encode(CONTROLS), strict=True):
        assert not controls & set(row[:-1]) - {UNKNOWN}, text
        if units != "word":
            assert UNKNOWN not in row
            assert vocabulary.decode([row]) == [text.lstrip("▁")]


@given(text=st.text(st.characters(exclude_characters="▁", exclude_categories=["Cs"])))
def test_identity_round_trip(identity, text):
    for vocabulary in identity.values():
        decoded = vocabulary.decode_counted(vocabulary.encode([text]))
        assert decoded.texts == [text.replace("\n", " ")]
        assert decoded.newlines == [text.count("\n")]


def test_decoding_drops_eos_and_pad(learned):
    vocabulary = learned["bpe"]
    (row,) = vocabulary.encode(["the cat"])
    assert vocabulary.decode([[vocabulary.pad, *row, vocabulary.pad, EOS], []]) == ["the cat", ""]
    assert vocabulary.decode([]) == []


@pytest.mark.parametrize(
    ("kind", "units"), [("learned", u) for u in UNITS] + [("identity", "bpe"), ("identity", "unigram")]
)
def test_many_texts_are_spelt_as_sentencepiece_spells_them(request, kind, units):
    """Whatever the ids: bytes that are no characters, spaces at the beginning, control symbols in the middle."""
    vocabulary, drawn = request.getfixturevalue(kind)[units], random.Random()
    rows = [[drawn.randrange(vocabulary.size) for _ in range(drawn.randrange(8))] for _ in range(3_000)]
    rows += vocabulary.encode(LINES)
    expected = [vocabulary.decode([row])[0] for row in rows]  # few at a time are handed over to it
    assert vocabulary.decode(rows) == expected
    assert vocabulary.decode([np.array(row, np.int64) for row in rows]) == expected


def test_arrays_of_narrow_integers_are_spelt_too():
    """A number in the table of spellings may be too large for the type of the ids."""
    words = [f"w{number}" for number in range(150)]
    vocabulary = train_vocabulary([" ".join(words)], units="word", size=200)
    rows = vocabulary.encode(words)
    assert vocabulary.decode([np.array(row, np.uint8) for row in rows]) == words


def test_endless_pieces_are_spelt_too():
    """What is longer than a table should be for, in letters of one, two and three bytes."""
    symbols = ["x" * 48, "y" * 49, "ж" * 24, "щ" * 25, "अ" * 20]
    vocabulary, drawn = train_vocabulary(LINES, units="bpe", size=400, symbols=symbols), random.Random()
    rows = [[drawn.randrange(2, vocabulary.pad) for _ in range(drawn.randrange(8))] for _ in range(200)]
    rows += vocabulary.encode([" ".join(drawn.sample(symbols, 3)) for _ in range(50)])
    assert vocabulary.decode(rows) == [vocabulary.decode([row])[0] for row in rows]


@pytest.mark.parametrize("units", UNITS)
def test_symbols_are_atomic(units):
    vocabulary = train_vocabulary(LINES, units=units, size=400, symbols=[">>de<<", ";V", ";PST", ";V"])
    row = vocabulary.pieces(vocabulary.encode([">>de<< cat"])[0])
    assert any(piece in (">>de<<", "▁>>de<<") for piece in row)
    if units != "word":  # words end at whitespace, features do not
        assert vocabulary.pieces(vocabulary.encode(["cat ;V;PST"])[0])[-3:] == [";V", ";PST", "</s>"]
        assert vocabulary.decode(vocabulary.encode(["cat ;V;PST"])) == ["cat ;V;PST"]


@pytest.mark.parametrize("symbol", ["</s>", "<pad>", "", "a b", "▁x"])
def test_symbols_that_cannot_be_are_refused(symbol):
    with pytest.raises(SettingError, match=r"data\.symbols: .* cannot be a symbol"):
        train_vocabulary(LINES, units="bpe", size=400, symbols=[symbol])


def test_unknown_characters_become_bytes_or_unk(learned):
    assert UNKNOWN not in learned["bpe"].encode(["☃"])[0]
    without = train_vocabulary(LINES, units="bpe", size=100, unknown="unk")
    assert UNKNOWN in without.encode(["☃"])[0]
    assert UNKNOWN in learned["char"].encode(["☃"])[0]


@pytest.mark.parametrize("units", ["bpe", "unigram"])
def test_sampling_is_a_function_of_the_seed(learned, units):
    vocabulary, rate = learned[units], 0.3
    first = vocabulary.encode_sampled(LINES, rate, 7)
    assert first == vocabulary.encode_sampled(LINES, rate, 7)
    assert first != vocabulary.encode_sampled(LINES, rate, 8)
    assert first != vocabulary.encode(LINES)
    assert vocabulary.decode(first) == LINES
    assert all(row[-1] == EOS for row in first)


def test_sampling_in_many_threads_at_once_keeps_each_seed():
    vocabulary = train_vocabulary(LINES, units="bpe", size=400, symbols=["longer-than-every-learned-piece"])
    lines = [""] * 3_000 + LINES  # the empty ones draw nothing: time for another thread to change the seed
    alone = [vocabulary.encode_sampled(lines, 0.3, seed) for seed in range(12)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda seed: vocabulary.encode_sampled(lines, 0.3, seed), range(12)))
    assert together == alone


@pytest.mark.parametrize("units", ["char", "word"])
def test_characters_and_words_have_nothing_to_sample(learned, units):
    assert learned[units].encode_sampled(LINES, 0.3, 7) == learned[units].encode(LINES)


@pytest.mark.parametrize("units", UNITS)
def test_training_is_deterministic(learned, units):
    again = train_vocabulary(LINES, units=units, size={"bpe": 400, "unigram": 330}.get(units, 100))
    assert again.model == learned[units].model


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize(
    "lines",
    [
        ["a"],
        ["word " * 20_000],
        ["unbroken" * 20_000],
        ["\U0001f600" * 4_000],
        ["again"] * 5_000 + ["and again"] * 5_000,
        ["nul\0nul", "tab\ttab", "line\nline", "\r", "\x85\u2028"],
        ["</s>", "x"],
    ],
    ids=["tiny", "long line", "long word", "long word of four-byte characters", "repeated", "separators", "controls"],
)
def test_odd_text_still_trains(units, lines):
    assert train_vocabulary(lines, units=units, size=8_000).size >= 3


def test_training_says_nothing():
    code = "from transduce.text import train_vocabulary as t; t(['a b c d'] * 9, units='unigram', size=300)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_size_too_small_says_what_is_needed():
    with pytest.raises(
        SettingError, match=r"data\.vocabulary_size = 20: .* set data\.vocabulary_size=\d+ or more"
    ) as e:
        train_vocabulary(LINES, units="bpe", size=20)
    needed = int(str(e.value).split("data.vocabulary_size=")[1].split()[0])
    assert train_vocabulary(LINES, units="bpe", size=needed).size == needed


def test_no_text_is_an_error():
    with pytest.raises(DataError, match="every line is empty"):
        train_vocabulary(["", ""], units="bpe", size=300)


def test_half_a_surrogate_pair_is_an_error(learned):
    with pytest.raises(DataError, match="line 2 of the text is not valid Unicode"):
        learned["bpe"].encode(["fine", "\ud800"])


def test_save_and_load(learned, tmp_path: Path):
    learned["bpe"].save(tmp_path / "v")
    assert Vocabulary.load(tmp_path / "v").encode(LINES) == learned["bpe"].encode(LINES)


@pytest.mark.parametrize("content", [b"", b"not a model", b"\0" * 99])
def test_what_is_no_model_is_damaged(tmp_path, content):
    (tmp_path / "v").write_bytes(content)
    with pytest.raises(DamagedFile, match=r"v: not a sentencepiece model$"):
        Vocabulary.load(tmp_path / "v")


def test_a_missing_vocabulary_is_damage(tmp_path):
    with pytest.raises(DamagedFile, match="cannot be read"):
        Vocabulary.load(tmp_path / "v")


def test_another_id_layout_is_refused(tmp_path):
    with (tmp_path / "v").open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(LINES), model_writer=file, vocab_size=39, minloglevel=3
        )
    with pytest.raises(DamagedFile, match=r"starts with the ids <unk>, <s>, but needs </s>, <unk>$"):
        Vocabulary.load(tmp_path / "v")


@pytest.mark.parametrize("units", ["bpe", "unigram", "char", "word"])
def test_a_vocabulary_knows_whether_its_tokens_are_separated_by_spaces(units: str) -> None:
    vocabulary = train_vocabulary(["a cab", "a bad cab", "abba ; x"] * 5, units=units, size=14, unknown="unk")  # type: ignore[arg-type]
    assert vocabulary.has_only_symbols == (units == "word")


def test_the_share_of_unknown_characters() -> None:
    letters = train_vocabulary(["abc"] * 5, units="char", size=50, unknown="unk")
    assert letters.unknown_share(["hello"]) == 1
    assert letters.unknown_share(["ab", "xy c"]) == 2 / 5
    assert letters.unknown_share(["abc", ""]) == letters.unknown_share([]) == 0
    in_bytes = train_vocabulary(["abc"] * 5, units="bpe", size=280, unknown="bytes")
    assert in_bytes.unknown_share(["ab\u20ac\u00e9"]) == 1 / 2
