"""The wrong language or script: suspects by their words, lingua's verdict, and writing systems."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pretend_pairs import block_of, pretend_pairs, side_of

from transduce.config import DataConfig
from transduce.data import Corpus, scan
from transduce.diagnosis import detection
from transduce.diagnosis.analysis import Context
from transduce.diagnosis.detection import contradiction
from transduce.diagnosis.findings import Finding
from transduce.diagnosis.language import LanguageAnalysis
from transduce.diagnosis.profiles import suspects
from transduce.diagnosis.quick import quick_findings
from transduce.diagnosis.script import ScriptAnalysis, lines_in_other_scripts

Pairs = list[tuple[str, str]]
CLEAN = pretend_pairs(1_500, seed=6)
ENGLISH = "the house and a small garden behind the old church were sold to the people who live near this river".split()
GERMAN = (
    "das haus und ein kleiner garten hinter der alten kirche wurden an die leute verkauft die am fluss wohnen".split()
)
FRENCH = "la maison et un petit jardin derrière cette vieille église ont été vendus aux gens du quartier voisin".split()


def sentence(words: list[str], chance: random.Random) -> str:
    return " ".join(chance.sample(words, 12)).capitalize() + "."


def english_german(count: int) -> Pairs:
    chance = random.Random(7)
    return [(sentence(ENGLISH, chance), sentence(GERMAN, chance)) for _ in range(count)]


def analysed(pairs: Pairs, languages: tuple[str, ...] = ()) -> tuple[list[Finding], LanguageAnalysis]:
    analysis = LanguageAnalysis(Context(languages=languages))
    for first in range(0, len(pairs), 500):
        block = block_of(pairs[first : first + 500], first)
        analysis.add(block.place, analysis.observe(block))
    return analysis.finish(), analysis


def planted(pairs: Pairs, rows: list[int], change: dict[str, str] | None = None) -> Pairs:
    """These rows with their sides swapped, or with another target."""
    pairs = list(pairs)
    for row in rows:
        pairs[row] = (pairs[row][0], change["target"]) if change else (pairs[row][1], pairs[row][0])
    return pairs


def test_words_tell_the_sides_apart() -> None:
    rows = [n for n in range(0, 1_500, 50) if len(CLEAN[n][0].split()) > 5]
    found = suspects(block_of(planted(CLEAN, rows)))
    assert found.like_other[0].tolist() == found.like_other[1].tolist() == rows
    clean = suspects(block_of(CLEAN))
    assert [len(some) for some in (*clean.like_other, *clean.strange)] == [0, 0, 0, 0]


def test_a_line_without_common_words_is_strange() -> None:
    pairs = planted(english_german(500), [100], {"target": sentence(FRENCH, random.Random(1))})
    assert [some.tolist() for some in suspects(block_of(pairs)).strange] == [[], [100]]


def test_small_blocks_have_no_suspects() -> None:
    found = suspects(block_of(planted(CLEAN[:100], [50])))
    assert [len(some) for some in (*found.like_other, *found.strange)] == [0, 0, 0, 0]
    assert len(suspects(block_of([])).like_other[0]) == 0


def test_swapped_pairs_are_found_without_lingua(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "find_spec", lambda name: None)
    rows = [n for n in range(0, 1_500, 50) if len(CLEAN[n][0].split()) > 5]
    (finding,), analysis = analysed(planted(CLEAN, rows))
    assert (finding.rule, finding.severity, finding.count) == ("swapped_sides", "notable", len(rows))
    assert len(finding.examples) <= 5
    assert "judged by words alone" in finding.explanation
    assert analysis.concerned() == {}


def test_wrong_languages_without_lingua_name_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "find_spec", lambda name: None)
    (finding,), _ = analysed(planted(CLEAN, [100], {"target": CLEAN[3][0]}))
    assert (finding.rule, finding.severity, finding.count) == ("wrong_language", "note", 1)
    assert "pip install" in finding.explanation


@pytest.fixture
def _lingua() -> None:
    pytest.importorskip("lingua", reason="no lingua: pip install lingua-language-detector")


@pytest.mark.usefixtures("_lingua")
class TestWithLingua:
    def test_clean_pairs(self) -> None:
        assert analysed(english_german(1_000), ("en", "de"))[0] == []
        assert analysed(english_german(1_000))[0] == []

    def test_swapped_pairs(self) -> None:
        (finding,), analysis = analysed(planted(english_german(1_000), [10, 500, 900]), ("en", "de"))
        assert (finding.rule, finding.severity, finding.count) == ("swapped_sides", "notable", 3)
        assert [example.line for example in finding.examples] == [11, 501, 901]
        assert analysis.concerned()["swapped_sides"].tolist() == [10, 500, 900]

    def test_a_third_language(self) -> None:
        pairs = planted(english_german(1_000), [700], {"target": sentence(FRENCH, random.Random(1))})
        (finding,), analysis = analysed(pairs, ("eng", "de-AT"))
        assert (finding.rule, finding.count) == ("wrong_language", 1)
        assert finding.examples[0].detail == "the target looks French"
        assert analysis.concerned()["wrong_language"].tolist() == [700]

    def test_a_target_in_the_language_of_the_source(self) -> None:
        pairs = planted(english_german(1_000), [700], {"target": sentence(ENGLISH, random.Random(1))})
        (finding,), _ = analysed(pairs, ("en", "de"))
        assert (finding.rule, finding.examples[0].detail) == ("wrong_language", "the target looks English")

    def test_swapped_files(self) -> None:
        (finding,), analysis = analysed(english_german(1_000), ("de", "en"))
        assert (finding.rule, finding.severity, finding.count) == ("swapped_sides", "serious", 1_000)
        assert finding.advice == (
            "Swap the two files, or the two languages after --languages; --write keeps these pairs."
        )
        assert analysis.concerned() == {}

    def test_one_language_on_both_sides(self) -> None:
        swapped = planted(english_german(1_000), [10, 500, 900])
        assert analysed(swapped, ("en", "en-GB"))[0] == []

    @pytest.mark.parametrize("languages", [("fr", "it"), ("en", "it"), ("fr", "de"), ("iba", "fr")])
    def test_files_in_other_languages_than_they_should_be(self, languages: tuple[str, ...]) -> None:
        (finding,), analysis = analysed(english_german(1_000), languages)
        assert (finding.rule, finding.severity, finding.count) == ("wrong_language", "serious", 1_000)
        says = f"--languages says {' to '.join(languages)}, but the sources look English and the targets look German"
        assert finding.explanation.startswith(says)
        assert "Correct --languages" in finding.advice
        assert analysis.concerned() == {}

    def test_only_the_files_of_one_option_are_in_another_language(self) -> None:
        analysis = LanguageAnalysis(Context(languages=("en", "de")))
        for group, pairs in enumerate([english_german(400), [(source, source) for source, _ in english_german(300)]]):
            block = block_of(pairs)
            analysis.add(replace(block.place, group=group), analysis.observe(block))
        (finding,) = analysis.finish()
        assert (finding.rule, finding.count) == ("wrong_language", 300)
        assert "the targets look English" in finding.explanation

    def test_related_languages_are_not_confused(self) -> None:
        chance = random.Random(3)
        words = (
            "kuća i mali vrt iza stare crkve prodani su ljudima koji žive blizu ove rijeke jer nisu imali novca".split()
        )
        texts = [sentence(words, chance) for _ in range(100)]
        assert contradiction(("hr", "sr"), (texts, texts)) is None
        found = contradiction(("hr", "sl"), (texts, texts))
        assert found is not None
        assert not found.swapped

    def test_few_texts_are_not_judged(self) -> None:
        sides = tuple(zip(*english_german(8), strict=True))
        assert contradiction(("fr", "it"), sides) is None

    @pytest.mark.parametrize(
        ("languages", "advice"),
        [
            (("de", "en"), "swap the two languages or the two files"),
            (("fr", "de"), "correct --languages, or the files"),
        ],
    )
    def test_train_warns_about_wrong_languages(self, tmp_path: Path, languages: tuple[str, str], advice: str) -> None:
        (line,) = quick_lines(tmp_path, languages=languages)
        looks = "the sources look English and the targets look German"
        assert line == f"warning: --languages says {' to '.join(languages)}, but {looks}: {advice}"

    def test_train_does_not_warn_about_right_languages(self, tmp_path: Path) -> None:
        for settings in ({"languages": ("en", "de")}, {}, {"languages": ("en", "fr"), "tags": ("fr", "de")}):
            assert quick_lines(tmp_path, **settings) == []
        assert quick_lines(tmp_path, languages=("de", "en"), task="symbols") == []

    def test_languages_that_lingua_does_not_know(self) -> None:
        assert analysed(english_german(400), ("en", "iba"))[0] == []


def quick_lines(folder: Path, **settings: Any) -> list[str]:
    path = folder / "pairs.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in english_german(200)), encoding="utf-8")
    corpus = scan(Corpus(((str(path),),)), 1_000)
    return [
        line for line in quick_findings(corpus, DataConfig(**{"task": "translation", **settings})) if "look" in line
    ]


def test_nothing_is_said_about_languages_without_lingua(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "find_spec", lambda name: None)
    assert quick_lines(tmp_path, languages=("de", "en")) == []
    assert analysed(english_german(1_000), ("fr", "it"))[0] == []


def test_nothing_is_said_about_no_pairs() -> None:
    assert analysed([])[0] == []


# --- scripts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "script", "wrong"),
    [
        ("Доброе утро", "Latin", True),
        ("Guten Morgen, Straße", "Latin", False),
        ("Dvořák und Ελλάς im Konzert", "Latin", False),
        ("Good morning", "Cyrillic", True),
        ("Доброе утро, Tom", "Cyrillic", False),
        ("使用 Microsoft Word 编辑文件", "Han", False),
        ("Microsoft Word is used here", "Han", True),
        ("これは日本語です", "Kana", False),
        ("สวัสดีครับ", "Thai", False),
        ("12 + 34 = 46 …", "Cyrillic", False),
        ("OK", "Cyrillic", False),
        ("anything", "", False),
    ],
)
def test_the_script_of_a_line(text: str, script: str, wrong: bool) -> None:
    assert lines_in_other_scripts(side_of(["", text, ""]), script).tolist() == [1] * wrong


def scripts_of(pairs: Pairs, languages: tuple[str, ...] = ()) -> tuple[list[Finding], ScriptAnalysis]:
    analysis = ScriptAnalysis(Context(languages=languages))
    block = block_of(pairs)
    analysis.add(block.place, analysis.observe(block))
    return analysis.finish(), analysis


@pytest.mark.parametrize("languages", [("en", "ru"), ()])
def test_lines_in_another_script_are_found(languages: tuple[str, ...]) -> None:
    pairs = [("Good morning", "Доброе утро")] * 400 + [("Good morning", "Good morning"), ("Доброе утро", "Good")]
    (finding,), analysis = scripts_of(pairs, languages)
    assert (finding.rule, finding.severity, finding.count) == ("wrong_script", "notable", 2)
    assert [example.detail for example in finding.examples] == ["the target", "the source and the target"]
    assert np.array_equal(analysis.concerned()["wrong_script"], [400, 401])


def test_files_in_the_wrong_order_are_serious() -> None:
    (finding,), analysis = scripts_of([("Доброе утро", "Good morning")] * 10, ("en", "ru"))
    assert finding.severity == "serious"
    assert analysis.concerned() == {}
    assert "--languages" in finding.advice


def test_clean_scripts() -> None:
    assert scripts_of([("Good morning", "Доброе утро")] * 10, ("en", "ru"))[0] == []
    assert scripts_of([], ("en", "ru"))[0] == []
