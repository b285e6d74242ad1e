"""Codes of languages: which are accepted, and what is suggested for a name."""

import pytest

import transduce
from transduce.cli import main
from transduce.errors import SettingError
from transduce.languages import _SHORT_OF, is_code, name_of, shorter_code, wrong_code


@pytest.mark.parametrize(
    "code",
    ["de", "deu", "DE", "zh-Hant", "zh_Hant", "pt-BR", "mlt-Latn", "mlt_latn", "wel_sw", "x-klingon", "qaa", "ipa"],
)
def test_codes_of_any_language_are_accepted(code: str) -> None:
    assert is_code(code)
    assert wrong_code(code) == ""


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("german", "de"),
        ("English", "en"),
        ("germann", "de"),
        ("upper-sorbian", "hsb"),
        ("Farsi", "fa"),
        ("MANDARIN", "zh"),
    ],
)
def test_the_code_of_a_name_is_suggested(name: str, code: str) -> None:
    assert wrong_code(name) == f"unknown language code '{name}'; did you mean {code}?"


@pytest.mark.parametrize("text", ["", "x", "phonemes", "d", "de-", "de en", "de1"])
def test_other_texts_are_no_codes(text: str) -> None:
    assert wrong_code(text) == f"unknown language code '{text}'; write a code such as de, hsb or pt-BR, or x-NAME"


def test_names_of_codes() -> None:
    assert (name_of("de"), name_of("tlh")) == ("German", "tlh")


@pytest.mark.parametrize(
    ("code", "short"),
    [
        ("deu", "de"),
        ("GER", "de"),
        ("eng-US", "en-US"),
        ("zho_Hant", "zh_Hant"),
        ("de", "de"),
        ("hsb", "hsb"),
        ("tlh", "tlh"),
        ("x-deu", "x-deu"),
    ],
)
def test_codes_of_three_letters_have_shorter_ones(code: str, short: str) -> None:
    assert shorter_code(code) == short


def test_the_codes_of_three_letters_are_those_of_iso_639() -> None:
    lingua = pytest.importorskip("lingua")
    known = {one.iso_code_639_3.name.lower(): one.iso_code_639_1.name.lower() for one in lingua.Language.all()}
    assert {long: _SHORT_OF.get(long, short) for long, short in known.items()} == known
    assert len(set(known) & set(_SHORT_OF)) > 60
    assert all(name_of(short) != short for short in _SHORT_OF.values())


@pytest.mark.parametrize("start", ["train run --train none.tsv", "plan --train none.tsv", "doctor --train none.tsv"])
@pytest.mark.parametrize(
    "languages", ["--languages german en", "--languages en German", "--set data.languages=en,german"]
)
def test_every_command_refuses_names(capsys: pytest.CaptureFixture[str], start: str, languages: str) -> None:
    """Before any file is read."""
    assert main(f"{start} {languages}".split()) == 2
    assert capsys.readouterr().err.lower() == "transduce: unknown language code 'german'; did you mean de?\n"


def test_compare_refuses_names() -> None:
    with pytest.raises(SettingError, match=r"unknown language code 'german'; did you mean de\?"):
        transduce.compare(["a", "b"], source="source", references=["reference"], language="german")
