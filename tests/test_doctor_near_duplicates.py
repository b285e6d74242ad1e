"""Near-duplicates: signatures against brute force, what counts as one, and the sample of a large corpus."""

import random
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from pretend_pairs import block_of, lookup_of, pretend_pairs

from transduce.diagnosis.analysis import Context
from transduce.diagnosis.findings import Finding
from transduce.diagnosis.minhash import signatures, similarities
from transduce.diagnosis.near_duplicates import NearDuplicateAnalysis

Pairs = list[tuple[str, str]]
CLEAN = pretend_pairs(2_000, seed=3)


def analysed(pairs: Pairs, most: int = 10**6) -> list[Finding]:
    with TemporaryDirectory() as folder:
        analysis = NearDuplicateAnalysis(Context(), lookup_of(Path(folder), pairs), most)
        for first in range(0, len(pairs), 500):
            block = block_of(pairs[first : first + 500], first)
            analysis.add(block.place, analysis.observe(block))
        return analysis.finish()


def bigrams(pair: tuple[str, str]) -> set[tuple[int, str, str]]:
    words = [re.findall(r"[^\W\d_]+", text.lower()) for text in pair]
    return {(side, *two) for side in (0, 1) for two in zip(["", *words[side]], words[side], strict=False)}


def changed(pair: tuple[str, str], words: int, chance: random.Random) -> tuple[str, str]:
    texts = [text.split() for text in pair]
    for text in texts:
        for at in chance.sample(range(len(text)), min(words, len(text))):
            text[at] = "something"
    return " ".join(texts[0]), " ".join(texts[1])


def test_signatures_estimate_the_share_of_common_bigrams() -> None:
    chance = random.Random(4)
    others = [changed(pair, n % 8, chance) for n, pair in enumerate(CLEAN)]
    one, other = (signatures([(s.bytes, s.ends) for s in block_of(p).sides])[0] for p in (CLEAN, others))
    estimated = similarities(one, other)
    sets = [(bigrams(pair), bigrams(like)) for pair, like in zip(CLEAN, others, strict=True)]
    exact = np.array([len(a & b) / len(a | b) for a, b in sets])
    assert abs(float((estimated - exact).mean())) < 0.01
    assert float(np.sqrt(((estimated - exact) ** 2).mean())) < 0.06  # sqrt(0.5 * 0.5 / 64) at most


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("The vote will be on Monday.", "the vote will be on monday!", True),
        ("Question 7 by Mr Smith", "Question 18 by Mr Smith:", True),
        ("“Straße” – he said", "\"Straße\" - he said", True),
        ("Österreich und Ägypten sind", "österreich und ägypten sind", True),
        ("Доброе утро, Иван Петрович", "доброе утро иван петрович", True),
        ("He gave her the book", "She gave him the pen", False),
        ("这个问题很重要", "这个问题很重要。", True),
        ("这个问题很重要", "那些答案都不对", False),
    ],
)  # fmt: skip
def test_case_digits_and_punctuation_make_no_difference(one: str, other: str, alike: bool) -> None:
    assert bool(analysed([*CLEAN[:50], (one, one), (other, other)])) == alike


def test_planted_near_duplicates_are_counted_and_shown() -> None:
    chance = random.Random(5)
    long = [pair for pair in CLEAN if len(pair[0].split()) > 20][:100]
    pairs = [*CLEAN, *(changed(pair, 1, chance) for pair in long)]
    (finding,) = analysed(pairs)
    assert 65 <= finding.count <= 100  # they have 0.8 to 0.9 of their bigrams in common: the limit is 0.8
    assert finding.severity == "note"
    assert len(finding.examples) == 5
    for example in finding.examples:
        assert (example.source, example.target) == pairs[example.line - 1]
        original = int(example.detail.rpartition(":")[2])
        assert len(bigrams(pairs[original - 1]) & bigrams(pairs[example.line - 1])) > 20


def test_exact_duplicates_are_not_near_duplicates() -> None:
    assert analysed([*CLEAN, *CLEAN[:100]]) == []


def test_clean_pairs_have_none() -> None:
    assert analysed(CLEAN) == []


def test_pairs_with_an_empty_side_are_passed_over() -> None:
    assert analysed([*CLEAN[:50], ("", "The vote is on Monday."), ("", "The vote is on Monday!")]) == []


def test_pairs_without_words_are_passed_over() -> None:
    assert analysed([("", ""), ("1", "2"), ("...", "!"), ("", "")]) == []
    assert analysed([]) == []


def test_a_large_corpus_is_sampled_and_the_share_stays() -> None:
    pairs = [*CLEAN, *((source.upper(), target.upper()) for source, target in CLEAN)]
    (whole,) = analysed(pairs)
    (sampled,) = analysed(pairs, most=1_500)
    assert whole.share == pytest.approx(0.5, abs=0.01)
    assert sampled.share == pytest.approx(0.5, abs=0.05)
    assert sampled.count == pytest.approx(2_000, abs=200)
    assert re.search(r"estimated from 1?,?\d{3} pairs", sampled.explanation)
    assert whole.severity == "notable"
