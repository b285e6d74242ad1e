"""CTC prefix search against brute force, with words and without; n-gram models of speech runs through the command line."""

import gc
import json
import math
import shutil
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tones import train, write_corpus

import transduce
from transduce.cli import main
from transduce.derived.word_models import CandidateTable
from transduce.errors import DamagedFile, DataError, RunError, SettingError
from transduce.ngrams import NgramModel, estimate, write_arpa
from transduce.search.ctc import _Prefix, prefix_search
from transduce.text import Vocabulary, train_vocabulary
from transduce.translator.ctc_engine import Candidate
from transduce.translator.word_search import WordGuide, Words, WordWeights, read_lexicon

Array = NDArray[np.float64]


class NoGuide:
    """Every text is allowed, and worth the same."""

    def start(self) -> bool:
        return True

    def extended(self, state: bool, token: int) -> bool:
        return True

    def ended(self, state: bool) -> bool:
        return True

    def score(self, state: bool) -> float:
        return 0.0


def random_frames(frames: int, classes: int, seed: int) -> Array:
    logits = 2 * np.random.default_rng(seed).normal(size=(frames, classes))
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def by_brute_force(log_probs: Array) -> dict[tuple[int, ...], float]:
    """The log-probability of every text: the sum over all alignments, one by one."""
    frames, classes = log_probs.shape
    sums: dict[tuple[int, ...], float] = defaultdict(float)
    for path in product(range(classes), repeat=frames):
        merged = [token for at, token in enumerate(path) if at == 0 or path[at - 1] != token]
        text = tuple(token for token in merged if token != classes - 1)
        sums[text] += math.exp(sum(log_probs[at, token] for at, token in enumerate(path)))
    return {text: math.log(value) for text, value in sums.items()}


EVERYTHING: dict[str, Any] = {"beam": 10**6, "n_best": 10**6, "least": 0.0, "within": math.inf}


@pytest.mark.parametrize(("frames", "classes"), [(1, 2), (4, 3), (6, 3), (5, 4)])
def test_a_search_without_limits_finds_every_text_with_its_probability(frames: int, classes: int) -> None:
    log_probs = random_frames(frames, classes, frames)
    expected = by_brute_force(log_probs)
    found = prefix_search(log_probs, NoGuide(), **EVERYTHING)
    assert {tuple(one.tokens) for one in found} == set(expected)
    for one in found:
        assert math.isclose(one.log_probability, expected[tuple(one.tokens)], rel_tol=1e-9)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


def test_a_beam_keeps_the_best_and_tokens_that_may_not_be_written_are_not() -> None:
    log_probs = random_frames(6, 4, 1)
    best = max(by_brute_force(log_probs).items(), key=lambda item: item[1])
    assert tuple(prefix_search(log_probs, NoGuide(), beam=20)[0].tokens) == best[0]
    found = prefix_search(log_probs, NoGuide(), never=(0, 2), **EVERYTHING)
    assert {token for one in found for token in one.tokens} == {1}


class Failing(NoGuide):
    """A guide with an error in it."""

    def extended(self, state: bool, token: int) -> bool:
        raise KeyError(token)


@pytest.mark.parametrize("enabled", [True, False])
def test_a_search_leaves_the_garbage_collector_as_it_was_and_no_prefix_behind(enabled: bool) -> None:
    log_probs = random_frames(12, 4, 1)
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        prefix_search(log_probs, NoGuide(), beam=20)
        assert not any(type(one) is _Prefix for one in gc.get_objects())
        assert gc.isenabled() == enabled
        with pytest.raises(KeyError):
            prefix_search(log_probs, Failing(), beam=20)
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()


def test_long_recordings_do_not_underflow() -> None:
    found = prefix_search(random_frames(3_000, 6, 2), NoGuide(), beam=4)
    assert -20_000 < found[0].log_probability < -1_000


# --- words -------------------------------------------------------------------------------------------------------

LEXICON = ["ab", "a", "ba", "bb"]


def vocabulary_of(units: Any, size: int = 40) -> Vocabulary:
    return train_vocabulary(["ab a ba bb", "a ab", "bb a", "abba ab"], units=units, size=size, unknown="unk")


def model_of_words() -> NgramModel:
    return estimate([["ab", "a"], ["a", "ba"], ["ab", "bb", "a"]], 3, LEXICON)


def frames_for(vocabulary: Vocabulary, frames: int, seed: int) -> Array:
    """Random frames; the blank is `<pad>`, the last class."""
    return random_frames(frames, vocabulary.size, seed)


def texts_by_definition(
    log_probs: Array, vocabulary: Vocabulary, ngram: NgramModel, lexicon: list[str] | None, weights: WordWeights
) -> dict[tuple[int, ...], float]:
    """The score of every text that may be written, from the text alone."""
    scores = {}
    for tokens, log_probability in by_brute_force(log_probs).items():
        if set(tokens) & {0, 1}:
            continue
        spelt = "".join(vocabulary.pieces(tokens))
        words = spelt.replace("▁", " ").split()
        if lexicon is not None and ("▁▁" in spelt or not set(words) <= set(lexicon)):
            continue
        scores[tokens] = log_probability + weights.lm_weight * ngram.sentence(words) + weights.word_bonus * len(words)
    return scores


@pytest.mark.parametrize("lexicon", [LEXICON, None])
@pytest.mark.parametrize(("units", "size"), [("char", 40), ("bpe", 9)])
def test_a_search_with_words_is_that_by_brute_force(units: str, size: int, lexicon: list[str] | None) -> None:
    vocabulary, ngram = vocabulary_of(units, size), model_of_words()
    assert vocabulary.size <= 9
    weights = WordWeights(lm_weight=0.7, word_bonus=0.4)
    log_probs = frames_for(vocabulary, 5, 3)
    expected = texts_by_definition(log_probs, vocabulary, ngram, lexicon, weights)
    found = prefix_search(log_probs, WordGuide(Words(vocabulary, ngram, lexicon), weights), never=(0, 1), **EVERYTHING)
    assert {tuple(one.tokens) for one in found} == set(expected)
    for one in found:
        assert math.isclose(one.score, expected[tuple(one.tokens)], rel_tol=1e-9, abs_tol=1e-9)


def test_without_weights_and_lexicon_it_is_plain_prefix_search() -> None:
    vocabulary = vocabulary_of("char")
    log_probs = frames_for(vocabulary, 12, 4)
    guide = WordGuide(Words(vocabulary, model_of_words()), WordWeights(lm_weight=0, word_bonus=0))
    plain, guided = (prefix_search(log_probs, one, beam=8, n_best=8, never=(0, 1)) for one in (NoGuide(), guide))
    assert [(one.tokens, one.score) for one in plain] == [(one.tokens, one.score) for one in guided]


def test_words_that_cannot_be_spelt_are_left_out() -> None:
    words = Words(vocabulary_of("char"), model_of_words(), ["ab", "xyz"])
    assert words.words == {"ab": "ab"}


def test_a_lexicon_may_have_pronunciations_and_marks(tmp_path: Path) -> None:
    (tmp_path / "l.txt").write_text("<sil>\tSIL\nke\tk @\n\nnya NJ a\nke\tk e\n")
    assert read_lexicon(tmp_path / "l.txt") == ["ke", "nya"]
    (tmp_path / "empty.txt").write_text("<sil>\tSIL\n")
    with pytest.raises(DataError, match=r"empty\.txt: no words: a lexicon has one word per line"):
        read_lexicon(tmp_path / "empty.txt")
    with pytest.raises(DataError, match=r"none\.txt: cannot be read"):
        read_lexicon(tmp_path / "none.txt")


# --- weights -----------------------------------------------------------------------------------------------------


def test_tuned_weights_have_the_fewest_errors_of_all() -> None:
    draw, vocabulary = np.random.default_rng(0), vocabulary_of("char")
    tokens = [ids[:-1] for ids in vocabulary.encode(LEXICON)]
    found = [
        [Candidate(tokens[n], -draw.random(), -draw.random(), n % 3, [-draw.random()]) for n in draw.permutation(4)]
        for _ in range(12)
    ]
    table = CandidateTable.of([*found, []], [*(LEXICON * 3), "lost words"], vocabulary)
    weights = table.best_weights(WordWeights())
    tried = (
        WordWeights(ctc_weight=c / 5, lm_weight=m / 5, word_bonus=b)
        for c, m, b in product(range(6), range(11), range(-2, 6))
    )
    assert table.errors_with(weights) <= min(map(table.errors_with, tried))
    assert table.least_errors == 2  # the right text is always among those found, except where there are none
    assert table.words == 14
    with_weights = [max(texts, key=lambda one: one.score(weights)) for texts in found]
    wrong = sum(vocabulary.decode([one.tokens])[0] != word for one, word in zip(with_weights, LEXICON * 3, strict=True))
    assert table.errors_with(weights) == wrong + 2


@pytest.mark.parametrize(
    ("name", "value"), [("lm_weight", -1), ("ctc_weight", 1.5), ("word_bonus", math.nan), ("prefixes", 0)]
)
def test_impossible_weights_are_refused(name: str, value: float) -> None:
    with pytest.raises(SettingError, match=f"{name} = .*: must be at least"):
        WordWeights(**{name: value})


# --- runs --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tones")
    write_corpus(folder, "train", 24, 1)
    write_corpus(folder, "valid", 4, 2)
    train(
        folder,
        folder / "run",
        60,
        **{"train.learning_rate": 0.01, "train.warmup_steps": 10, "train.validate_every": 60},
    )
    (folder / "lexicon.txt").write_text("low\tL OU\nmid\nhigh\nhid\nzulu\n")
    return folder


def transcribed(corpus: Path, capsys: pytest.CaptureFixture[str], *options: str) -> list[dict[str, Any]]:
    files = [str(corpus / f"valid{number}.wav") for number in range(4)]
    assert main(["transcribe", str(corpus / "run"), *files, "--device", "cpu", "--json", *options]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_one_command_makes_the_model_and_transcribe_and_evaluate_use_it(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(corpus / "run")
    command = ["ngram", run, "--lexicon", str(corpus / "lexicon.txt"), "--device", "cpu"]
    assert main([*command, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["words"] == 4
    assert made["utterances"] == 4
    assert 0 <= made["least_error_rate"] <= made["error_rate"]
    found = transcribed(corpus, capsys, "--ngram", "--beam", "5")
    assert all(set(one["text"].split()) <= {"low", "mid", "high", "hid"} for one in found)
    assert (
        main(["evaluate", run, str(corpus / "valid.tsv"), "--ngram", "--device", "cpu", "--beam", "20", "--json"]) == 0
    )
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert math.isclose(scores["WER"]["value"], made["error_rate"], abs_tol=1e-6)
    assert main([*command, "--no-tune"]) == 0
    assert "use it with `transduce transcribe" in capsys.readouterr().err


def test_weights_of_the_command_line_replace_those_of_the_run(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    transduce.ngram(corpus / "run", tune=False, quiet=True, order=2)
    free = transcribed(corpus, capsys, "--ngram", "--ctc-weight", "1")
    wordless = transcribed(corpus, capsys, "--ngram", "--word-bonus", "-20", "--lm-weight", "10", "--ctc-weight", "1")
    assert sum(len(one["text"].split()) for one in wordless) < max(1, sum(len(one["text"].split()) for one in free))


def test_the_score_is_the_weighted_sum_and_the_log_probability_that_of_score(corpus: Path) -> None:
    transduce.ngram(corpus / "run", tune=False, quiet=True)
    weights = WordWeights(lm_weight=0.3, word_bonus=0.2, ctc_weight=0.4)
    translator = transduce.load(corpus / "run", device="cpu", ngram=weights)
    source = str(corpus / "valid0.wav")
    outputs = translator.n_best([source], 3)[0].outputs
    assert len(outputs) == 3
    assert [one.score for one in outputs] == sorted((one.score for one in outputs), reverse=True)
    assert math.isclose(sum(outputs[0].token_log_probabilities), outputs[0].log_probability)
    canonical = [one for one in outputs if one.tokens == translator.vocabularies.target.written(one.text)[:-1]]
    for one in canonical:
        assert math.isclose(translator.score([source], [one.text])[0], one.log_probability, abs_tol=1e-3)


def test_an_arpa_file_of_another_program_can_be_used(corpus: Path, tmp_path: Path) -> None:
    write_arpa(estimate([["low", "low"]], 2), tmp_path / "given.arpa")
    made = transduce.ngram(corpus / "run", arpa=tmp_path / "given.arpa", tune=False, quiet=True)
    assert made.file.read_bytes() == (tmp_path / "given.arpa").read_bytes()


def test_plain_text_can_be_learned_from(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("low mid\nlow hid\nlow zulu\n")
    made = transduce.ngram(corpus / "run", [tmp_path / "text.txt"], tune=False, quiet=True, order=1)
    words = [line.split("\t")[1] for line in made.file.read_text().splitlines() if "\t" in line]
    assert words == ["</s>", "<s>", "<unk>", "hid", "low", "mid"]  # the model cannot write zulu


def test_what_does_not_fit_together_is_refused(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = corpus / "run"
    (tmp_path / "foreign.txt").write_text("привет\n")
    with pytest.raises(DataError, match="can write none of the words of the lexicon"):
        transduce.ngram(run, lexicon=tmp_path / "foreign.txt", tune=False, quiet=True)
    with pytest.raises(SettingError, match="not both"):
        transduce.ngram(run, ["a.txt"], arpa="b.arpa", quiet=True)
    assert main(["transcribe", str(run), "x.wav", "--lm-weight", "1"]) == 2
    assert "--lm-weight has no effect without --ngram" in capsys.readouterr().err
    with pytest.raises(SettingError, match="needs the torch engine"):
        transduce.load(run, ngram=True, engine="ct2")
    transduce.ngram(run, tune=False, quiet=True)
    translator = transduce.load(run, ngram=True, device="cpu")
    with pytest.raises(SettingError, match="beam search alone"):
        translator.sample([str(corpus / "valid0.wav")], 2)


def test_files_that_are_missing_or_damaged_are_named(corpus: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(corpus / "run", copy)
    shutil.rmtree(copy / "ngram", ignore_errors=True)
    with pytest.raises(RunError, match=r"weights.json: no such file; `transduce ngram .*` creates it"):
        transduce.load(copy, ngram=True, device="cpu")
    transduce.ngram(copy, tune=False, quiet=True)
    (copy / "ngram" / "weights.json").write_text("{}")
    with pytest.raises(DamagedFile, match="not the weights of a word search"):
        transduce.load(copy, ngram=True, device="cpu")
    (copy / "ngram" / "words.arpa").unlink()
    with pytest.raises(RunError, match=r"words.arpa: no such file"):
        transduce.load(copy, ngram=WordWeights(), device="cpu")
