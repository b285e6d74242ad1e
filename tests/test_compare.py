"""`transduce compare`: p-values beside sacreBLEU's own command, groups of sentences, n-grams, the cache, and exit codes."""

import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import GERMAN, lines, write_folder
from sacrebleu.metrics import BLEU, TER
from sacrebleu.metrics.base import Metric, Score, Signature
from sacrebleu.significance import PairedTest

import transduce
from transduce.cli import main
from transduce.comparison import significance
from transduce.comparison.groups import SourceUnits, by_length, by_names, by_rarest, by_unseen, make_groups
from transduce.comparison.ngrams import matched_ngrams, ngram_differences, output_habits, repeats
from transduce.comparison.report import report
from transduce.comparison.significance import Seeds, holm, p_value, paired_tests
from transduce.comparison.systems import SystemPaths, parse_systems
from transduce.errors import DataError, SettingError, TransduceError
from transduce.metrics.measures import ErrorRateMeasure, Measure, make_measures
from transduce.translator import Translator
from transduce.translator.alignment import word_pairs

SENTENCES = 60
REFERENCES = lines(SENTENCES, seed=3, words=GERMAN)
SOURCES = lines(SENTENCES, seed=3)


def damaged(seed: int, share: float) -> list[str]:
    """The references with some words replaced."""
    draw = random.Random(seed)
    return [" ".join(draw.choice(GERMAN) if draw.random() < share else w for w in line.split()) for line in REFERENCES]


OUTPUTS = {"a": damaged(1, 0.3), "b": damaged(2, 0.3), "c": damaged(3, 0.15)}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a test set and the outputs of three systems; the cache is empty."""
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "cache"))
    for name, texts in {**OUTPUTS, "source": SOURCES, "reference": REFERENCES}.items():
        write(tmp_path / name, texts)
    return tmp_path


def write(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def test_set(folder: Path) -> dict[str, Any]:
    return {"source": folder / "source", "references": folder / "reference", "quiet": True}


test_set.__test__ = False  # type: ignore[attr-defined]


def seeds(measure: Measure, *outputs: list[str]) -> Seeds:
    return Seeds(np.stack([measure.count(texts) for texts in outputs]))


def measure_of(name: str) -> Measure:
    return make_measures([name], [[text] for text in REFERENCES], "de", "word").main


@pytest.mark.parametrize(
    ("names", "title"),
    [
        (["exact-match", "character-error-rate"], "CER"),
        (["word-error-rate"], "WER"),
        (["per"], "token error rate"),
        (["word-error-rate", "bleu"], "chrF2"),
    ],
)
def test_sentences_are_compared_by_a_measure_of_their_kind(names: list[str], title: str) -> None:
    sentence = make_measures(names, [["It is fine"]], "en", "word").sentence
    assert sentence.title == title
    if title in ("CER", "WER"):
        assert sentence.scores(sentence.count(["it is fine."]))[0] == 0


# --- somebody else's answer ------------------------------------------------------------------------------------


def sacrebleu(folder: Path, *options: str) -> str:
    command = [sys.executable, "-m", "sacrebleu", "reference", "-i", "a", "b", "c", "-m", "bleu", "chrf", *options]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, encoding="utf-8", timeout=120)
    return done.stdout


@pytest.mark.parametrize(("test", "option"), [("bootstrap", "--paired-bs"), ("randomization", "--paired-ar")])
def test_scores_p_values_and_signatures_are_those_of_the_sacrebleu_command(files: Path, test: Any, option: str) -> None:
    """Its output as JSON fails with today's numpy, so the table is read: scores and intervals, then p below them."""
    theirs = sacrebleu(files, option, f"{option}-n", "300", "--format", "text", "-w", "4")
    systems = [files / name for name in "abc"]
    found = transduce.compare(systems, metrics=["bleu", "chrf"], test=test, samples=300, **test_set(files))
    ours = [[metric.systems[n] for metric in found.metrics] for n in range(3)]
    scores = [[f"{one.score:.4f}" for one in row] for row in ours]
    assert [re.findall(r" (\d+\.\d+) ", re.sub(r"\(.*?\)", "", row)) for row in table_rows(theirs)] == scores
    p_values = [f"{one.test.p:.4f}" for row in ours[1:] for one in row if one.test]
    assert re.findall(r"\(p = (\S+)\)", theirs) == p_values
    if test == "bootstrap":
        halves = [(one.interval.high - one.interval.low) / 2 for row in ours for one in row]
        assert [float(half) for half in re.findall(r"± (\d\S+)\)", theirs)] == pytest.approx(
            halves, abs=2e-4
        )  # float32
    for metric in found.metrics:
        assert metric.signature in theirs


@pytest.mark.parametrize("tokenizer", ["none", "intl", "char"])
def test_a_tokenizer_is_that_of_the_sacrebleu_command(files: Path, tokenizer: str) -> None:
    """The texts have full stops that are not separated, so that tokenizers differ."""
    for name in "abc":
        write(files / name, [f"{text}." for text in OUTPUTS[name]])
    write(files / "reference", [f"{text} ." for text in REFERENCES])
    theirs = sacrebleu(files, "--tokenize", tokenizer, "--format", "text", "-w", "4")
    found = transduce.compare(
        [files / name for name in "abc"], metrics=["bleu"], tokenize=tokenizer, samples=100, **test_set(files)
    )
    for system in found.main.systems:
        assert f"{system.score:.4f}" in theirs
    assert f"|tok:{tokenizer}|" in found.main.signature
    plain = transduce.compare([files / name for name in "abc"], metrics=["bleu"], samples=100, **test_set(files))
    assert (plain.main.systems[0].score == found.main.systems[0].score) == (tokenizer == "intl")


def table_rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("│") and re.search(r"│ +(Baseline: )?[abc] │", line)]


@pytest.mark.parametrize("test", ["bs", "ar"])
def test_ter_is_tested_as_by_sacrebleu(test: str) -> None:
    named = [("a", OUTPUTS["a"]), ("c", OUTPUTS["c"])]
    _, theirs = PairedTest(named, {"TER": TER()}, [REFERENCES], test_type=test, n_samples=300)()
    measure = measure_of("ter")
    full = {"bs": "bootstrap", "ar": "randomization"}[test]
    ours = paired_tests(measure, [seeds(measure, OUTPUTS[name]) for name in "ac"], full, 300)  # type: ignore[arg-type]
    assert ours.results[0].p == theirs["TER"][1].p_value


class ErrorRate(Metric):
    """An error rate as sacreBLEU would have it, from our counts."""

    _SIGNATURE_TYPE = Signature

    def __init__(self, measure: ErrorRateMeasure) -> None:
        super().__init__()
        self.measure, self.num_refs = measure, 1

    def _aggregate_and_compute(self, stats: Any) -> Score:
        return self._compute_score_from_stats(np.sum(stats, axis=0))

    def _compute_score_from_stats(self, stats: Any) -> Score:
        return Score("rate", float(100 * stats[0] / stats[1]))

    def _extract_corpus_statistics(self, hypotheses: Any, references: Any) -> Any:
        return self.measure.count(hypotheses).tolist()

    def _preprocess_segment(self, sent: str) -> str:
        raise NotImplementedError

    def _extract_reference_info(self, refs: Any) -> dict[str, Any]:
        raise NotImplementedError

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: Any) -> list[Any]:
        raise NotImplementedError


@pytest.mark.parametrize("test", ["bs", "ar"])
@pytest.mark.parametrize("name", ["per", "wer", "exact-match"])
def test_error_rates_are_resampled_as_by_sacrebleu(name: str, test: str) -> None:
    measure = measure_of(name)
    assert isinstance(measure, ErrorRateMeasure)
    named = [("a", OUTPUTS["a"]), ("b", OUTPUTS["b"])]
    _, theirs = PairedTest(named, {"rate": ErrorRate(measure)}, [REFERENCES], test_type=test, n_samples=400)()
    full = {"bs": "bootstrap", "ar": "randomization"}[test]
    ours = paired_tests(measure, [seeds(measure, OUTPUTS[name]) for name in "ab"], full, 400)  # type: ignore[arg-type]
    assert ours.results[0].p == pytest.approx(theirs["rate"][1].p_value, abs=2 / 401)  # ties at the end of float32


def test_scores_of_error_rates_are_those_of_evaluate() -> None:
    expected = transduce.metrics.score_outputs(  # type: ignore[attr-defined]
        OUTPUTS["a"], [[text] for text in REFERENCES], ["per", "wer", "exact-match"]
    )
    for score in expected.all:
        measure = measure_of({"PER": "per", "WER": "wer", "exact match": "exact-match"}[score.name])
        assert seeds(measure, OUTPUTS["a"]).score(measure) == pytest.approx(score.value, abs=1e-9)


# --- resampling ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("test", ["bootstrap", "randomization"])
@pytest.mark.parametrize("name", ["bleu", "wer"])
def test_samples_drawn_in_parts_are_the_same(name: str, test: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    measure = measure_of(name)
    systems = [seeds(measure, OUTPUTS[name]) for name in "ab"]
    whole = paired_tests(measure, systems, test, 200)
    monkeypatch.setattr(significance, "CELLS", 40 * SENTENCES)
    assert paired_tests(measure, systems, test, 200) == whole


@pytest.mark.parametrize("test", ["bootstrap", "randomization"])
def test_a_test_set_too_large_for_sacrebleu_has_the_same_p(test: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    measure = measure_of("bleu")
    systems = [seeds(measure, OUTPUTS[name]) for name in "ab"]
    theirs = paired_tests(measure, systems, test, 300)
    monkeypatch.setattr(significance, "SACREBLEU_CELLS", 0)
    assert paired_tests(measure, systems, test, 300) == theirs


def test_another_seed_gives_other_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    measure = measure_of("wer")
    systems = [seeds(measure, OUTPUTS[name]) for name in "ac"]
    first = paired_tests(measure, systems, "bootstrap", 200)
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    other = paired_tests(measure, systems, "bootstrap", 200)
    assert first != other
    assert other == paired_tests(measure, systems, "bootstrap", 200)
    monkeypatch.setenv("SACREBLEU_SEED", "none")
    assert paired_tests(measure, systems, "bootstrap", 200) != paired_tests(measure, systems, "bootstrap", 200)
    monkeypatch.setenv("SACREBLEU_SEED", "seven")
    with pytest.raises(SettingError, match="SACREBLEU_SEED=seven: set it to a number"):
        paired_tests(measure, systems, "bootstrap", 200)


@pytest.mark.parametrize("test", ["bootstrap", "randomization"])
def test_swapped_outputs_rarely_raise_an_alarm(test: Any) -> None:
    """Without a real difference, the corrected p is below .05 about once in 20 times; sacreBLEU's p is so more often."""
    draw = np.random.default_rng(5)
    counts = np.stack([draw.poisson(1.0, (2, 100)), draw.integers(4, 20, 100) + np.zeros((2, 1))], axis=2).astype(float)
    measure, alarms, theirs = measure_of("per"), 0, 0
    for _ in range(200):
        first = draw.random(100) < 0.5
        swapped = [np.where(first[:, None], counts[one], counts[1 - one]) for one in (0, 1)]
        [result] = paired_tests(measure, [Seeds(of[None]) for of in swapped], test, 200).results
        alarms, theirs = alarms + result.is_significant, theirs + (result.p < 0.05)
    assert 4 <= alarms <= 16
    assert theirs > alarms


def test_holm() -> None:
    """The example of Holm's paper as R's `p.adjust` computes it."""
    assert holm([0.01, 0.02, 0.03, 0.04, 0.05]) == pytest.approx([0.05, 0.08, 0.09, 0.09, 0.09])
    assert holm([0.04, 0.01, 0.6]) == pytest.approx([0.08, 0.03, 0.6])
    assert holm([]) == []


def test_a_difference_that_every_sample_has_is_never_certain() -> None:
    assert p_value(np.zeros(999), 1.0) == 1 / 1000


def test_several_seeds_are_scored_by_their_mean(files: Path) -> None:
    found = transduce.compare(
        [f"A={files}/a,{files}/b", f"C={files}/c"], metrics=["bleu"], samples=200, **test_set(files)
    )
    [baseline, system] = found.main.systems
    alone = [BLEU().corpus_score(OUTPUTS[name], [REFERENCES]).score for name in "abc"]
    assert baseline.seeds == pytest.approx(alone[:2], abs=1e-9)
    assert baseline.score == pytest.approx(np.mean(alone[:2]), abs=1e-9)
    assert baseline.spread == pytest.approx(abs(alone[0] - alone[1]), abs=1e-9)
    assert system.test
    assert system.test.difference == pytest.approx(alone[2] - np.mean(alone[:2]), abs=1e-9)
    assert found.rows[0].outputs[0] in OUTPUTS["a"]


# --- verdicts --------------------------------------------------------------------------------------------------


def test_one_training_run_each_is_said_to_leave_out_the_seeds(files: Path) -> None:
    caveat = "One training run each: the interval does not cover the difference between seeds."
    once = transduce.compare([files / "a", files / "b"], samples=100, **test_set(files))
    assert caveat in report(once).splitlines()
    assert once.as_dict()["caveat"] == caveat
    seeds = {"a": [files / "a", files / "b"], "b": [files / "b"]}
    systems = [f"{name}={','.join(map(str, paths))}" for name, paths in seeds.items()]
    twice = transduce.compare(systems, samples=100, test="bootstrap", **test_set(files))
    assert (twice.caveat, twice.as_dict()["caveat"]) == ("", "")
    assert caveat not in report(twice)


def test_equal_systems_show_no_difference(files: Path) -> None:
    write(files / "same", OUTPUTS["a"])
    found = transduce.compare([files / "a", files / "same"], samples=200, **test_set(files))
    assert [found.main.verdict(one) for one in found.main.systems[1:]] == ["no difference shown"]
    assert next(found.sentences_about()).startswith("No difference shown between a and same: BLEU +0.00")
    assert (found.pairs[0].wins, found.pairs[0].losses) == (0, 0)
    assert "0.00" in report(found)
    assert " 0.0050 " not in report(found)  # sacreBLEU's p of equal systems, the smallest that 200 samples give


@pytest.mark.parametrize("test", ["bootstrap", "randomization"])
@pytest.mark.parametrize("name", ["bleu", "ter", "wer"])
def test_one_sentence_makes_no_difference(name: str, test: Any) -> None:
    """sacreBLEU counts only larger differences than the real one, so that its p is small here."""
    other = [*OUTPUTS["a"][:-1], REFERENCES[-1]]
    measure = measure_of(name)
    [found] = paired_tests(measure, [seeds(measure, OUTPUTS["a"]), seeds(measure, other)], test, 300).results
    assert found.difference != 0
    assert not found.is_significant


def test_a_lower_error_rate_is_better(files: Path) -> None:
    found = transduce.compare([files / "a", files / "c"], metrics=["ter", "bleu"], samples=200, **test_set(files))
    system = found.main.systems[1]
    assert system.test
    assert system.test.difference < 0
    assert found.main.verdict(system) == "better"


def test_seeds_that_differ_more_than_the_systems_are_mentioned(files: Path) -> None:
    found = transduce.compare(
        [f"A={files}/a,{files}/a", f"C={files}/c,{files}/b"], metrics=["bleu"], samples=200, **test_set(files)
    )
    assert "the seeds of C alone differ by up to" in found.main.sentence(found.main.systems[1])


# --- where they differ -----------------------------------------------------------------------------------------

WORDS = SourceUnits("words", str.split)


def test_groups_by_length_have_about_the_same_size() -> None:
    sources = ["x " * n for n in range(1, 41)]
    groups = by_length(sources, WORDS)
    assert [group.name for group in groups] == ["1 to 10 words", "11 to 20 words", "21 to 30 words", "31 to 40 words"]
    assert [len(group.sentences) for group in groups] == [10] * 4
    assert [group.name for group in by_length(["x y"] * 5, WORDS)] == ["2 words"]


def test_groups_by_training_frequency() -> None:
    frequencies = {"the": 5_000, "cat": 40, "rare": 1}
    sources = ["the", "the cat", "the rare cat", "the zebra", "zebra gnu"]
    rarest = {group.name: list(group.sentences) for group in by_rarest(sources, WORDS, frequencies)}
    assert rarest == {"unseen": [3, 4], "1 to 9 times": [2], "10 to 99 times": [1], "1,000 times or more": [0]}
    unseen = {group.name: list(group.sentences) for group in by_unseen(sources, WORDS, frequencies)}
    assert unseen == {"none": [0, 1, 2], "one": [3], "two or more": [4]}


def test_a_name_is_a_capitalised_word_that_the_reference_has_too() -> None:
    sources = ["Das Haus steht in Berlin.", "Das Haus ist alt.", "I see IBM"]
    references = [["The house is in Berlin"], ["The house is old"], ["Ich sehe IBM", "x"]]
    assert [list(group.sentences) for group in by_names(sources, references)] == [[0, 2], [1]]


def test_a_kind_with_one_group_is_left_out() -> None:
    groups = make_groups(["a b", "c d"], [["x"], ["y"]], WORDS, None, ["news", "talks"])
    assert [(group.kind, group.name) for group in groups] == [("label", "news"), ("label", "talks")]


def test_sources_of_one_word_are_grouped_by_characters() -> None:
    units = SourceUnits.of(["cat", "zebra"], characters=False)
    assert (units.name, list(units.split("a b"))) == ("characters", ["a", "b"])


def test_groups_have_their_own_scores_and_intervals(files: Path) -> None:
    write(files / "labels", ["news" if n < 40 else "talks" if n < 55 else "few" for n in range(SENTENCES)])
    found = transduce.compare(
        [files / "a", files / "c"], labels=files / "labels", metrics=["bleu"], samples=200, **test_set(files)
    )
    groups = {group.name: group for group in found.pairs[0].groups if group.kind == "label"}
    assert [group.sentences for group in groups.values()] == [40, 15, 5]
    expected = [BLEU().corpus_score(OUTPUTS[name][:40], [REFERENCES[:40]]).score for name in "ac"]
    assert [groups["news"].baseline, groups["news"].system] == pytest.approx(expected, abs=1e-9)
    interval = groups["news"].interval
    assert interval
    assert interval.low < groups["news"].difference < interval.high
    assert groups["few"].interval is None


def test_ngrams_that_one_system_gets_and_the_other_misses() -> None:
    references = [["a red house"], ["a red car", "the red car"]]
    one = matched_ngrams(["a red house", "a blue car"], references, str.split)
    other = matched_ngrams(["a house", "the red car car"], references, str.split)
    gained, lost = ngram_differences(one, other)
    assert ("the red car", 0, 1) in [(gram.text, gram.baseline, gram.system) for gram in gained]
    assert ("a red house", 1, 0) in [(gram.text, gram.baseline, gram.system) for gram in lost]
    assert other[("car",)] == 1


def test_habits_of_outputs() -> None:
    habits = output_habits(["no no no", "", "so so"], [["no"], ["a b c"], ["so so la la", "la"]], str.split)
    assert (habits.repetitive, habits.empty) == (1, 1)
    assert habits.length_ratio == 5 / (1 + 3 + 1)
    assert repeats("a b a b".split())
    assert not repeats("a b a c".split())


# --- systems ---------------------------------------------------------------------------------------------------


def test_names_of_systems(tmp_path: Path) -> None:
    assert SystemPaths.parse("runs/en-de") == SystemPaths("en-de", (Path("runs/en-de"),))
    assert SystemPaths.parse("A=x,y") == SystemPaths("A", (Path("x"), Path("y")))
    odd = tmp_path / "A=x,y"
    odd.touch()
    assert SystemPaths.parse(str(odd)).paths == (odd,)
    assert [one.name for one in parse_systems(["1/out", "2/out", "B=3/out"])] == ["1/out", "2/out", "B"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    train = [write(folder / "train.en", lines(50, seed=8)), write(folder / "train.de", lines(50, seed=8, words=GERMAN))]
    return write_folder(folder / "run", train=("\t".join(map(str, train)),), task="translation")


def test_a_run_folder_is_translated_once(run: Path, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compare(beam: int) -> Any:
        return transduce.compare([files / "a", run], metrics=["chrf"], samples=100, beam=beam, **test_set(files))

    first = compare(beam=1)
    outputs = dict(zip(SOURCES, transduce.load(run).translate(SOURCES, beam=1), strict=True))
    assert {row.source: row.outputs[1] for row in first.rows} == {row.source: outputs[row.source] for row in first.rows}
    assert [note for note in first.notes if "counted in 50 sources" in note]
    assert [group for group in first.pairs[0].groups if group.kind == "training frequency of the rarest word"]

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("translated again")

    monkeypatch.setattr(Translator, "translate", refuse)
    assert compare(beam=1) == first
    with pytest.raises(AssertionError, match="translated again"):
        compare(beam=2)


def test_training_data_that_is_gone_is_mentioned(run: Path, files: Path, tmp_path: Path) -> None:
    gone = write_folder(tmp_path / "gone", train=("/no/such/train.en\t/no/such/train.de",), task="translation")
    found = transduce.compare([gone, files / "a"], metrics=["chrf"], samples=100, beam=1, **test_set(files))
    assert [note for note in found.notes if "no groups by training frequency" in note and "/no/such/train.en" in note]
    assert not [group for group in found.pairs[0].groups if "training" in group.kind]


def test_given_pairs_are_aligned_by_attention(run: Path) -> None:
    translator = transduce.load(run, engine="torch", device="cpu")
    found = translator.align([*SOURCES[:3], ""], [*REFERENCES[:3], "x"])
    assert found[3] == []
    for source, target, pairs in zip(SOURCES[:3], REFERENCES[:3], found[:3], strict=True):
        seen = translator.attention(source, target)
        weights = seen.maps.cross[0][0].mean(0)[:-1, :-1]  # of the last layer but one, without </s>
        assert pairs == word_pairs(seen.source, seen.target[1:], weights.argmax(-1).tolist())


def test_a_dictionary_is_recognised_and_merged(files: Path) -> None:
    write(files / "words", ["read", "cat", "read"])
    write(files / "sounds", ["R IY D", "K AE T", "R EH D"])
    one, other = write(files / "one", ["R EH D", "K AE T", "x"]), write(files / "other", ["R AA D", "K AE T", "x"])
    found = transduce.compare(
        [one, other], source=files / "words", references=files / "sounds", samples=100, quiet=True
    )
    assert found.sentences == 2
    assert [metric.title for metric in found.metrics] == ["PER", "WER", "exact match"]
    assert [round(system.score, 1) for system in found.main.systems] == [0.0, 16.7]
    assert found.main.signature.endswith("|refs:merged")
    assert [row.line for row in found.rows] == [1, 2]


def test_several_references(files: Path) -> None:
    write(files / "second", OUTPUTS["b"])
    found = transduce.compare(
        [files / "a", files / "b"],
        source=files / "source",
        references=[files / "reference", files / "second"],
        metrics=["bleu"],
        samples=100,
        quiet=True,
    )
    assert found.main.systems[1].score == pytest.approx(100)
    assert found.main.signature.startswith("nrefs:2|")
    assert len(found.rows[0].references) == 2


# --- the command line ------------------------------------------------------------------------------------------


def command(folder: Path, *options: str) -> list[str]:
    where = ["--source", f"{folder}/source", "--reference", f"{folder}/reference", "--samples", "200"]
    return ["compare", *where, *options]


def test_the_report_says_it_in_words(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(files, f"{files}/a", f"{files}/b", f"{files}/c", "--quiet")) == 0
    said = capsys.readouterr().out
    assert "No difference shown between a and b: BLEU" in said
    assert "c is better than a: BLEU +" in said
    for part in (
        "95% interval",
        "nrefs:1|bs:200|seed:12345",
        "source length",
        "n-grams that c gets more",
        "length ratio",
    ):
        assert part in said


def test_json_has_everything(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(files, f"{files}/a", f"{files}/c", "--json", "--metrics", "bleu", "ter")) == 0
    found = json.loads(capsys.readouterr().out)
    assert [metric["title"] for metric in found["metrics"]] == ["BLEU", "TER"]
    assert found["metrics"][0]["systems"][1]["verdict"] == "better"
    assert set(found["metrics"][0]["systems"][1]["test"]) == {
        "difference",
        "interval",
        "p",
        "p_two_sided",
        "p_corrected",
    }
    assert len(found["rows"]) == SENTENCES
    assert found["worse"] == []


def test_a_loss_is_exit_code_3(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(files, f"{files}/c", f"{files}/a", "--fail-if-worse", "--json", "--metrics", "bleu")) == 3
    assert "--fail-if-worse: a is worse than c: BLEU -" in capsys.readouterr().err
    assert main(command(files, f"{files}/c", f"{files}/a", "--json", "--metrics", "bleu")) == 0
    assert main(command(files, f"{files}/a", f"{files}/b", "--fail-if-worse", "--json", "--metrics", "bleu")) == 0
    assert main(command(files, f"{files}/a", f"{files}/c", "--fail-if-worse", "--json", "--metrics", "bleu")) == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["a"], "give at least two systems"),
        (["a", "missing"], "no such file or folder: give a run folder, or a file"),
        (["a", "short"], "short: 3 lines, but the source has 60: give one output for each line"),
        (["a", "="], "write NAME=RUN"),
        (["a", "b", "--samples", "10"], "samples = 10: must be at least 100"),
        (["a", "b", "--samples", "0"], "samples = 0: must be at least 100"),
        (["a", "B=b,c", "--test", "randomization"], "same number of seeds"),
        (["A=a", "A=a"], "two systems have the same name"),
        (["a", "b", "--reference", "short"], "give one reference for each line"),
        (["a", "b", "--labels", "short"], "give one label for each line"),
    ],
)
def test_mistakes_are_one_line(
    files: Path,
    arguments: list[str],
    complaint: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(files / "short", ["x"] * 3)
    monkeypatch.chdir(files)
    assert main(["compare", "--source", "source", "--reference", "reference", *arguments]) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert said.count("\n") == 1


def test_a_test_set_without_references_is_refused(files: Path) -> None:
    with pytest.raises(SettingError, match="add --reference FILE"):
        transduce.compare([files / "a", files / "b"], source=files / "source")
    write(files / "empty", [])
    with pytest.raises(DataError, match="the test set is empty"):
        transduce.compare([files / "a", files / "b"], source=files / "empty", references=files / "empty")
    with pytest.raises(SettingError, match=r"tokenize = words: choose from 13a, none"):
        transduce.compare([files / "a", files / "b"], tokenize="words", **test_set(files))
    with pytest.raises(TransduceError, match="unknown metric"):
        transduce.compare([files / "a", files / "b"], metrics=["blue"], **test_set(files))
