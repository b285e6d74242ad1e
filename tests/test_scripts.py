"""Scripts without spaces: which task a corpus is, in which units, and how it is scored."""

from collections import Counter
from pathlib import Path

import pytest
from unspaced import names, sentences, translations

from transduce.cli import main
from transduce.config import Config, build, fit
from transduce.data import Corpus, scan
from transduce.metrics import bleu_tokenizer, translation_scores
from transduce.scripts import count_scripts, main_script, script_of, script_of_language, script_of_texts
from transduce.text import train_vocabulary
from transduce.training.choices import counts


def fitted(folder: Path, pairs: list[tuple[str, str]], languages: tuple[str, ...] = ()) -> Config:
    """The settings that a corpus of these pairs gets."""
    path = folder / "pairs.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return build(fit(counts(scan(Corpus(((str(path),),)), 1_000), languages)).layer)


@pytest.mark.parametrize("languages", [True, False])
@pytest.mark.parametrize(
    ("source", "target"), [("en", "ja"), ("ja", "en"), ("en", "zh"), ("zh", "en"), ("en", "th"), ("th", "en"), ("zh", "ja")]
)  # fmt: skip
def test_sentences_without_spaces_are_translated(tmp_path: Path, source: str, target: str, languages: bool) -> None:
    data = fitted(tmp_path, translations(source, target, 40), (source, target) if languages else ()).data
    assert (data.task, data.source_units, data.target_units) == ("translation", "bpe", "bpe")
    assert data.normalization == ("nmt_nfkc" if target == "en" else "identity")


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("languages", [(), ("en", "ja")])
def test_names_in_katakana_are_symbols(tmp_path: Path, full: bool, languages: tuple[str, ...]) -> None:
    data = fitted(tmp_path, names(40, full=full), languages).data
    assert (data.task, data.source_units, data.target_units) == ("symbols", "char", "char")


def test_two_languages_are_translated_however_few_their_words_are(tmp_path: Path) -> None:
    """40 English words again and again look like symbols; `--languages` says that they are not."""
    assert fitted(tmp_path, translations("ja", "en"), ("ja", "en")).data.task == "translation"


def test_readings_are_symbols_whatever_the_script(tmp_path: Path) -> None:
    words = [("東京", "t o o k y o o"), ("友達", "t o m o d a tɕ i"), ("朝ご飯", "a s a g o h a N")] * 50
    data = fitted(tmp_path, words).data
    assert (data.task, data.source_units, data.target_units) == ("symbols", "char", "word")


def test_words_already_separated_are_words(tmp_path: Path) -> None:
    """Japanese that went through a word segmenter is spaced text."""
    pairs = [
        (en, ja.replace("は", " は ").replace("、", " 、 ").replace("を", " を "))
        for en, ja in translations("en", "ja", 40)
    ]
    assert fitted(tmp_path, pairs).data.task == "translation"


def test_thousands_of_characters_have_room_in_the_vocabulary(tmp_path: Path) -> None:
    plain = fitted(tmp_path, translations("en", "ja")).data.vocabulary_size
    many = [
        (f"line {n} of text here", "".join(chr(0x4E00 + (20 * n + i) % 3_000) for i in range(20))) for n in range(600)
    ]
    assert fitted(tmp_path, many).data.vocabulary_size > plain + 2_900


def test_what_does_not_fit_in_a_small_vocabulary_is_spelt_in_bytes() -> None:
    """Fails without lower coverage: 1,500 characters that are rare do not fit into 1,400 ids."""
    rare = [chr(0x4E00 + n) for n in range(1_500)]
    lines = ["今天天气很好，我们去公园吧。" * 30 + one for one in rare]
    vocabulary = train_vocabulary(lines, units="bpe", size=1_400, normalization="identity")
    assert vocabulary.decode(vocabulary.encode([lines[7], rare[3]])) == [lines[7], rare[3]]


@pytest.mark.parametrize("language", ["ja", "zh", "th"])
def test_text_comes_back_as_it_was_written(tmp_path: Path, language: str) -> None:
    """NFKC would rewrite the full-width comma and question mark, and the Thai vowel am."""
    texts = sentences(language, 100)
    data = fitted(tmp_path, translations("en", language)).data
    vocabulary = train_vocabulary(texts, units="bpe", size=600, normalization=data.normalization)
    assert vocabulary.decode(vocabulary.encode(texts)) == texts


@pytest.mark.parametrize(
    ("language", "text", "main", "tokenizer"),
    [
        ("", "zh", "chrF2", "char"),
        ("", "en", "BLEU", "13a"),
        ("zh", "zh", "BLEU", "zh"),
        ("ja", "ja", "BLEU", bleu_tokenizer("ja")),
        ("th", "th", "chrF2", "char"),
        ("my-MM", "th", "chrF2", "char"),
    ],
)
def test_the_main_score_suits_the_script(language: str, text: str, main: str, tokenizer: str) -> None:
    references = [[line] for line in sentences(text, 20)]
    outputs = [line[0].replace("。", "！").replace("？", "。") for line in references]
    found = translation_scores(outputs, references, language)
    assert found.main.name == main
    assert f"tok:{tokenizer}" in next(score.signature for score in found.all if score.name == "BLEU")
    ter = [score for score in found.all if score.name == "TER"]
    assert len(ter) == (text != "th")
    assert all(score.value < 50 for score in ter)  # one edit a line, not a whole line that differs


def test_scripts_of_texts_and_languages() -> None:
    texts = {language: script_of_texts(sentences(language, 20)) for language in ("en", "ja", "zh", "th")}
    assert texts == {language: script_of_language(language) for language in texts}
    assert texts == {"en": "Latin", "ja": "Kana", "zh": "Han", "th": "Thai"}
    assert [script_of_language(code) for code in ("zh_Hans", "rus", "JA", "x-unknown")] == [
        "Han",
        "Cyrillic",
        "Kana",
        "",
    ]
    assert [script_of(c) for c in "aéжあア漢ก7 。."] == [
        "Latin", "Latin", "Cyrillic", "Hiragana", "Katakana", "Han", "Thai", "", "", "", "",
    ]  # fmt: skip
    assert main_script(count_scripts(Counter("123 ..."))) == ""


def test_japanese_is_trained_by_one_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, seed, count in (("train", 1, 120), ("valid", 2, 10)):
        for language in ("en", "ja"):
            lines = sentences(language, count, seed)
            (tmp_path / f"{name}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    small = [
        "model.d_model=16",
        "model.d_ff=16",
        "model.num_encoder_layers=1",
        "model.num_decoder_layers=1",
        "train.steps=2",
    ]
    files: list[str] = []
    for name in ("train", "valid"):
        files += [f"--{name}", f"{tmp_path}/{name}.en", f"{tmp_path}/{name}.ja"]
    command = ["train", str(tmp_path / "run"), *files, "--languages", "en", "ja", "--set", *small]
    assert main([*command, f"data.cache={tmp_path / 'cache'}", "train.threads=1", "search.max_extra=5"]) == 0
    said = capsys.readouterr().err
    assert "task: translation, because lines are phrases or sentences" in said
    assert f"tok:{bleu_tokenizer('ja')}" in said
