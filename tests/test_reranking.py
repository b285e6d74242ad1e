"""Reranking: n-best lists ordered by several models, with weights tuned on validation data."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from folders import (
    GERMAN,
    SHAPE,
    ends_its_sentences,
    lines,
    vocabularies,
    write_language_model,
    write_model,
    write_speech_model,
)

import transduce
from transduce.cli.main import main
from transduce.errors import DamagedFile, DataError, SettingError
from transduce.reranking import RerankFile, RerankingTranslator, Weights
from transduce.reranking.reranker import Judges, reranked
from transduce.reranking.tuning import AT_LEAST, TuningRequest
from transduce.reranking.tuning import tune as tune_weights
from transduce.reranking.weight_search import Lists, search_weights
from transduce.search import PowerPenalty
from transduce.translator import LoadOptions, SearchRequest, Translation, Translator
from transduce.translator.outputs import Output

TORCH = LoadOptions(engine="torch", device="cpu", threads=1)
ASKED = lines(6, seed=5)


# --- the search for weights ----------------------------------------------------------------------------------------


def random_lists(planted: list[float], seed: int, noise: float = 0.0) -> Lists:
    """Lists of different lengths, in which the planted weights put the best output first; the metric is its quality."""
    draw = np.random.default_rng(seed)
    features = [draw.standard_normal((draw.integers(1, 9), 4)) * [1, 5, 20, 3] for _ in range(300)]
    quality = [one @ np.array(planted) + noise * draw.standard_normal(len(one)) for one in features]
    counts = [np.array([one == one.max(), np.ones(len(one))]).T for one in quality]  # whether it is the best, and 1
    return Lists.of([*features, np.zeros((0, 4))], [*counts, np.zeros((0, 2))])


def share(sums: np.ndarray[Any, Any]) -> float:
    return float(sums[0] / sums[1])


@pytest.mark.parametrize("planted", [[1.0, 0.3, 0.0, 0.0], [1.0, 0.1, 0.05, -0.4], [1.0, 0.0, 0.02, 1.0]])
def test_planted_weights_are_recovered(planted: list[float]) -> None:
    lists = random_lists(planted, seed=1)
    found = search_weights(lists, share, AT_LEAST, seed=1)
    plain = share(lists.sums(np.eye(4)[0]))
    assert share(lists.sums(np.array(planted))) == 1
    assert plain < 0.9
    assert share(lists.sums(found)) > 0.95
    assert found[0] == 1
    np.testing.assert_allclose(found * [1, 5, 20, 3], planted * np.array([1, 5, 20, 3]), atol=0.35)
    unseen = random_lists(planted, seed=2)
    assert share(unseen.sums(found)) > 0.9


def test_features_that_say_nothing_change_little() -> None:
    lists = random_lists([1.0, 0.0, 0.0, 0.0], seed=3)
    assert search_weights(lists, share, AT_LEAST, seed=1).tolist() == [1, 0, 0, 0]


def test_a_model_never_gets_a_negative_weight() -> None:
    found = search_weights(random_lists([1.0, -0.5, -0.1, -0.5], seed=4), share, AT_LEAST, seed=1)
    assert found[1] == found[2] == 0
    assert found[3] < 0


def test_a_seed_gives_the_same_weights_again() -> None:
    lists = random_lists([1.0, 0.2, 0.1, 0.0], seed=5, noise=1.0)
    first, second, other = (search_weights(lists, share, AT_LEAST, seed).tolist() for seed in (1, 1, 2))
    assert first == second != other


# --- reranking -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A translator, a model of the opposite direction and a language model, all of them random."""
    folder, both = tmp_path_factory.mktemp("reranking"), vocabularies(joint=True)
    for name, d_ff in (("run", 96), ("reverse", 64)):
        torch.manual_seed(2)
        model = ends_its_sentences(replace(SHAPE, d_ff=d_ff), both.source.size, both.target.size)
        write_model(folder / name, model, both, languages=("en", "de") if name == "run" else ("de", "en"))
    write_language_model(folder / "lm", vocabularies(joint=False).target, languages=())  # of a vocabulary of its own
    texts = {"in": ASKED, "ref": lines(6, seed=6, words=GERMAN)}
    for name, content in texts.items():
        (folder / name).write_text("".join(f"{line}\n" for line in content))
    return folder


def reranking(runs: Path, weights: Weights, **changes: Any) -> RerankingTranslator:
    models = {"lm": str(runs / "lm"), "reverse": str(runs / "reverse")}
    file = RerankFile(weights=weights, n_best=5, **(models | changes))
    return RerankingTranslator(Translator.load(runs / "run", TORCH), file, TORCH)


def test_the_translator_s_weight_alone_gives_plain_search(runs: Path) -> None:
    plain = Translator.load(runs / "run", TORCH)
    request = plain.request(beam=5)
    expected = [found.text for found in plain.stream(ASKED, request)]
    assert reranking(runs, Weights()).translate(ASKED) == expected
    found = list(reranking(runs, Weights()).stream(ASKED, request.but(n_best=3)))
    listed = list(plain.stream(ASKED, request.but(n_best=3)))
    assert [[one.text for one in each.outputs] for each in found] == [[one.text for one in e.outputs] for e in listed]


def test_a_model_of_weight_0_is_not_loaded(runs: Path) -> None:
    ours = reranking(runs, Weights(lm=0.5)).ready()
    ours.translate(ASKED[:1])
    assert "lm" in vars(ours.judges)
    assert "reverse" not in vars(ours.judges)


@pytest.mark.numerics
def test_features_are_those_of_the_models(runs: Path) -> None:
    plain, lm = (
        Translator.load(runs / "run", TORCH),
        transduce.load_language_model(runs / "lm", device="cpu", threads=1),
    )
    translations = plain.n_best([*ASKED[:3], ""], 4)
    judges = Judges(str(runs / "lm"), str(runs / "reverse"), TORCH)
    features = judges.features(translations, PowerPenalty(1.0))
    assert [len(one) for one in features] == [4, 4, 4, 0]
    reverse = Translator.load(runs / "reverse", TORCH)
    for translation, rows in zip(translations, features, strict=True):
        for output, row in zip(translation.outputs, rows, strict=True):
            [of_reverse], [of_lm] = reverse.score([output.text], [translation.source]), lm.score_lines([output.text])
            expected = [output.score, of_lm / output.length, of_reverse / output.length, output.length]
            assert row.tolist() == pytest.approx(expected, abs=1e-4)


def test_outputs_are_ordered_by_the_weighted_sum(runs: Path) -> None:
    weights = Weights(direct=1.0, lm=0.3, reverse=0.2, length=0.1)
    ours = reranking(runs, weights)
    found = list(ours.stream(ASKED, ours.request(n_best=5)))
    features = ours.judges.features(list(Translator.load(runs / "run", TORCH).n_best(ASKED, 5)), PowerPenalty(1.0))
    for translation, rows in zip(found, features, strict=True):
        expected = sorted(rows @ np.array(weights.values), reverse=True)
        assert [one.score for one in translation.outputs] == pytest.approx(expected, abs=1e-4)
    assert [one.text for one in found] == ours.translate(ASKED)
    assert ours.translate(ASKED) != reranking(runs, Weights()).translate(ASKED)
    assert len(ours.translate(["the cat. seven dogs.", ""], split=True)) == 2


def test_notices_are_about_the_output_that_is_chosen() -> None:
    first = Output("one", [], -1.0, -1.0, [], newlines=2, lost=1, at_limit=True)
    second = Output("two", [], -2.0, -2.0, [], newlines=1)
    listed = Translation("line", []).of_outputs([first, second])
    assert (listed.newlines, listed.lost, listed.outputs_at_limit) == (3, 1, 1)
    chosen = reranked(listed, np.array([[-1.0, 0, 0, 0], [-2.0, 9.0, 0, 0]]), Weights(lm=1.0), 1)
    assert (chosen.text, chosen.newlines, chosen.lost, chosen.outputs_at_limit) == ("two", 1, 0, 0)


def test_a_pause_in_the_input_is_not_waited_for(runs: Path) -> None:
    ours, read = reranking(runs, Weights(length=0.1)), []

    def typed() -> Any:
        for line in ASKED[:3]:
            read.append(line)
            yield line

    for count, found in enumerate(ours.stream(typed(), paused=lambda: True), 1):
        assert found.source == ASKED[count - 1]
        assert len(read) == count


# --- tuning --------------------------------------------------------------------------------------------------------


def tune(runs: Path, output: Path, *more: str) -> list[str]:
    command = ["rerank", str(runs / "run"), str(runs / "in"), str(runs / "ref"), "-o", str(output), "--n-best", "5"]
    models = ["--lm", str(runs / "lm"), "--reverse", str(runs / "reverse")]
    return [*command, *models, "--engine", "torch", "--device", "cpu", "--threads", "1", *more]


def test_weights_are_tuned_written_and_used(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*tune(runs, tmp_path / "one"), "--metric", "chrf", "--json"]) == 0
    tuned = json.loads(capsys.readouterr().out)
    assert main([*tune(runs, tmp_path / "two"), "--metric", "chrf"]) == 0
    assert f"chrF2 {tuned['before']:.2f} -> {tuned['after']:.2f}" in capsys.readouterr().out
    assert (tmp_path / "one").read_text() == (tmp_path / "two").read_text()
    assert tuned["after"] > tuned["before"]
    common = ["--rerank", str(tmp_path / "one"), "--engine", "torch", "--device", "cpu", "--threads", "1"]
    files = [str(runs / "in"), str(runs / "ref")]
    assert main(["evaluate", str(runs / "run"), *files, *common, "--metrics", "chrf", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert scores["chrF2"]["value"] == pytest.approx(tuned["after"], abs=1e-6)
    assert main(["translate", str(runs / "run"), files[0], *common]) == 0
    expected = transduce.load(runs / "run", rerank=tmp_path / "one", engine="torch", device="cpu").translate(ASKED)
    assert capsys.readouterr().out.splitlines() == expected
    assert main(["translate", str(runs / "run"), files[0], *common, "--n-best", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2 * len(ASKED)


def test_transcripts_are_reranked(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sound = np.random.default_rng(0).normal(size=16_000) / 9
    pytest.importorskip("soundfile").write(tmp_path / "a.wav", sound, 16_000)
    (tmp_path / "test.tsv").write_text(f"audio\ttext\n{tmp_path / 'a.wav'}\tthe cat\n")
    run, device = str(write_speech_model(tmp_path / "speech")), ["--device", "cpu", "--threads", "1"]
    texts = []
    for direct in (1.0, -1.0):  # the second one chooses the worst output
        RerankFile(weights=Weights(direct=direct, lm=0.01), lm=str(runs / "lm")).write(tmp_path / "rerank.json")
        asked = ["--rerank", str(tmp_path / "rerank.json"), *device]
        assert main(["transcribe", run, str(tmp_path / "a.wav"), *asked, "--json"]) == 0
        texts.append(json.loads(capsys.readouterr().out)["text"])
        expected = transduce.load(run, rerank=tmp_path / "rerank.json", device="cpu").translate(
            [str(tmp_path / "a.wav")]
        )
        assert texts[-1:] == expected
    assert texts[0] != texts[1]
    assert main(["evaluate", run, str(tmp_path / "test.tsv"), *asked]) == 0
    said = capsys.readouterr().err
    assert "1 recording in" in said
    assert " recordings/s, " in said


def test_validation_data_without_any_output_is_one_line(runs: Path) -> None:
    request = TuningRequest(
        sources=[""], references=[["x"]], lm=str(runs / "lm"), search=SearchRequest(beam=5, n_best=5), options=TORCH
    )
    with pytest.raises(DataError, match="no line of the validation data has an output"):
        tune_weights(Translator.load(runs / "run", TORCH), request, lambda said: None)


def test_a_file_moves_with_its_models(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "lm", tmp_path / "here" / "lm")
    written = RerankFile(weights=Weights(lm=0.5), lm=str(tmp_path / "here" / "lm"), n_best=3, metric="BLEU")
    written.write(tmp_path / "here" / "rerank.json")
    assert RerankFile.read(tmp_path / "here" / "rerank.json") == written
    (tmp_path / "here").rename(tmp_path / "there")
    moved = RerankFile.read(tmp_path / "there" / "rerank.json")
    assert moved == replace(written, lm=str(tmp_path / "there" / "lm"))


def test_a_missing_model_is_traced_to_the_file(tmp_path: Path) -> None:
    RerankFile(weights=Weights(lm=0.5), lm=str(tmp_path / "gone")).write(tmp_path / "file")
    with pytest.raises(DataError, match=r"file: its language model .*gone does not exist: move it back"):
        RerankFile.read(tmp_path / "file")
    RerankFile(weights=Weights(), lm=str(tmp_path / "gone")).write(tmp_path / "file")
    RerankFile.read(tmp_path / "file")  # it is not needed


@pytest.mark.parametrize(
    ("useless", "message"),
    [
        (["lm", "reverse"], "neither model improved the score"),
        (["reverse"], "the reverse model did not improve the score"),
    ],
)
def test_models_without_a_weight_are_named(
    useless: list[str], message: str, runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [1.0, *(0.0 if name in useless else 0.5 for name in ("lm", "reverse")), 0.0]
    monkeypatch.setattr("transduce.reranking.tuning.search_weights", lambda *_: np.array(found))
    assert main(tune(runs, runs / "tuned")) == 0
    printed = capsys.readouterr()
    assert message in printed.err
    assert f"(weights: translator 1, language model {found[1]:g}, reverse model 0, length 0)" in printed.out


@pytest.mark.parametrize(
    "content",
    ["", "[1]", "{}", '{"version": 9}', '{"version": 1, "weights": {"direct": "x"}, "lm": "", "reverse": ""}',
     '{"version": 1, "weights": {"direct": NaN}, "lm": "", "reverse": ""}',
     '{"version": 1, "weights": {"other": 1}, "lm": "", "reverse": ""}'],
)  # fmt: skip
def test_other_files_are_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(content)
    with pytest.raises(DamagedFile, match="not a file of weights for reranking, or damaged: `transduce rerank` writes"):
        RerankFile.read(tmp_path / "file")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rerank", "RUN", "IN", "REF", "-o", "out"], "nothing to rerank with: give --lm RUN, --reverse RUN, or both"),
        (["rerank", "RUN", "IN", "REF", "-o", "out", "--lm", "LM", "--n-best", "1"], "needs lists of at least 2 outputs"),
        (["rerank", "RUN", "IN", "REF", "-o", "missing/out", "--lm", "LM"], "the folder missing does not exist"),
        (["rerank", "RUN", "IN", "REF", "-o", "out", "--lm", "RUN"], "this model translates: it is not a language model"),
        (["rerank", "RUN", "IN", "REF", "-o", "out", "--reverse", "LM"], "a language model does not translate"),
        (["rerank", "RUN", "IN", "REF", "-o", "out", "--reverse", "RUN"], "must translate from de to en"),
        (["translate", "REVERSE", "IN", "--rerank", "JUDGED"], "reverse translates from de to en"),
        (["translate", "RUN", "IN", "--rerank", "missing"], "missing: cannot be read (No such file or directory)"),
        (["translate", "RUN", "IN", "--rerank", "FILE", "--lm", "LM"], "leave out --lm or --rerank"),
        (["translate", "RUN", "IN", "--rerank", "FILE", "--sample"], "reranking needs beam search"),
    ],
)  # fmt: skip
def test_mistakes(arguments: list[str], message: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    RerankFile(weights=Weights(lm=0.5), lm=str(runs / "lm")).write(runs / "rerank.json")
    RerankFile(weights=Weights(reverse=0.5), reverse=str(runs / "reverse")).write(runs / "judged.json")
    names = {"RUN": "run", "LM": "lm", "IN": "in", "REF": "ref", "FILE": "rerank.json"}
    names |= {"REVERSE": "reverse", "JUDGED": "judged.json"}
    given = [str(runs / names[one]) if one in names else one for one in arguments]
    assert main([*given, "--device", "cpu", "--engine", "torch"]) == 2
    assert message in capsys.readouterr().err


def test_a_reverse_model_needs_text(runs: Path) -> None:
    translator = Translator.load(runs / "run", TORCH)
    translator.config = replace(translator.config, data=replace(translator.config.data, task="speech"))
    with pytest.raises(SettingError, match="a reverse model needs sources of text"):
        RerankingTranslator(translator, RerankFile(weights=Weights(), reverse="x"), TORCH)
