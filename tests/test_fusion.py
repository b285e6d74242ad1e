"""Shallow fusion: a language model takes part in the search of a translator with the same target vocabulary."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from agreement import assert_texts_agree
from folders import (
    GERMAN,
    SHAPE,
    ends_its_sentences,
    lines,
    vocabularies,
    write_folder,
    write_language_model,
    write_model,
)

import transduce
from transduce.checkpoint import RunFolder
from transduce.cli.main import main
from transduce.errors import RunError, SettingError
from transduce.model import SlidingDecoder
from transduce.text import EOS
from transduce.translator import LoadOptions, Translator, open_folder
from transduce.translator.language_model import LanguageModel

pytestmark = pytest.mark.numerics

TORCH = LoadOptions(engine="torch", device="cpu", threads=1)
ASKED = lines(12, seed=5)
FEW = ASKED[:4]
CONTEXT = 6  # shorter than many outputs
APART = replace(SHAPE, tie="target")  # source and target have vocabularies of their own


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("fusion") / "run", APART, joint=False)


@pytest.fixture(scope="module")
def lm(run: Path) -> Path:
    return write_language_model(run.parent / "lm", open_folder(run).vocabularies.target, CONTEXT)


def fused(run: Path, lm: Path, weight: float = 0.5, **options: Any) -> Translator:
    return Translator.load(run, replace(TORCH, lm=str(lm), lm_weight=weight, **options))


# --- the language model --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(lm: Path) -> LanguageModel:
    return transduce.load_language_model(lm, device="cpu", threads=1)


@torch.inference_mode()
def by_hand(model: LanguageModel, ids: list[int], start: int) -> float:
    """log p of these ids after `start`; whenever the context is full, its older half is dropped."""
    window, total = [start], 0.0
    for number, token in enumerate(ids):
        logits = model.model.project(model.model.extend(torch.tensor([window]), model.model.begin(None)))[0, -1]
        total += float(logits.log_softmax(-1)[token])
        seen = [start, *ids[: number + 1]]
        window = seen[-(CONTEXT // 2) :] if len(window) == CONTEXT else [*window, token]
    return total


def test_steps_go_on_beyond_the_context_and_begin_with_a_new_line(model: LanguageModel) -> None:
    ids = [5, 9, 2, 7, 3, 8, 4, 6, 11, 12, 13, 3, 5, EOS]
    for start in (EOS, model.vocabulary.pad):
        sliding, total = SlidingDecoder(model.model, start), 0.0
        state = sliding.begin().select(torch.tensor([0, 0]))
        with torch.inference_mode():
            for before, token in zip([19, *ids[:-1]], ids, strict=True):  # what the search begins with does not matter
                state = state.select(torch.tensor([1, 0]))
                total += float(sliding.step(torch.tensor([before, before]), state)[0].log_softmax(-1)[token])
        assert total == pytest.approx(by_hand(model, ids, start), abs=1e-3)


@pytest.mark.parametrize("documents", ["line", "file"])
def test_lines_are_scored_each_by_itself(model: LanguageModel, documents: Any) -> None:
    data = replace(model.config.data, documents=documents)
    ours = LanguageModel(model.model, model.vocabulary, replace(model.config, data=data), model.device)
    texts = ["der", "der Hund", "es regnet", ""]
    start = model.vocabulary.pad if documents == "line" else EOS
    encoded = model.vocabulary.encode(texts)
    assert max(map(len, encoded)) <= CONTEXT
    assert ours.score_lines(texts) == pytest.approx([by_hand(model, ids, start) for ids in encoded], abs=1e-4)
    long = [" ".join(GERMAN)]
    assert ours.score_lines([*texts, *long])[-1] == pytest.approx(ours.score_lines(long)[0], abs=1e-4)


# --- searching -----------------------------------------------------------------------------------------------------


def hypotheses(translator: Translator, texts: list[str], **changes: Any) -> list[Any]:
    request = translator.request(**changes)
    return [found for _, block in translator._searched(_inputs(texts), request) for found in block]


def _inputs(texts: list[str]) -> Any:
    from transduce.translator.inputs import InputLines

    return InputLines.of(texts)


@pytest.mark.parametrize("changes", [{"beam": 1}, {"beam": 4, "n_best": 3}, {"beam": 2, "sampling": True, "n_best": 2}])
def test_scores_are_weighted_sums(run: Path, lm: Path, model: LanguageModel, changes: dict[str, Any]) -> None:
    translator = fused(run, lm, 0.5)
    plain = Translator.load(run, TORCH)
    beyond = 0
    for text, found in zip(ASKED, hypotheses(translator, ASKED, **changes), strict=True):
        for one in found:
            ids = [*one.tokens, EOS]
            beyond += len(ids) > CONTEXT
            of_run = sum(plain.engines.torch.score([plain.source_ids(text)], [ids])[0])
            expected = of_run + 0.5 * by_hand(model, ids, model.vocabulary.pad)
            assert one.log_probability == pytest.approx(expected, abs=2e-3)
    assert beyond or changes["beam"] == 1, "outputs must be longer than the language model's context"


def test_a_weight_of_zero_is_plain_search(run: Path, lm: Path) -> None:
    plain = Translator.load(run, TORCH)
    for beam in (1, 4):
        wanted = [found.outputs[0].text for found in plain.stream(ASKED, plain.request(beam=beam))]
        assert_texts_agree(
            plain, plain.request(beam=beam), ASKED, fused(run, lm, 0.0).translate(ASKED, beam=beam), wanted
        )


def test_a_larger_weight_finds_what_the_language_model_prefers(run: Path, lm: Path, model: LanguageModel) -> None:
    means = []
    for weight in (0.0, 0.5, 3.0):
        texts = fused(run, lm, weight).translate(ASKED)
        tokens = sum(map(len, model.vocabulary.encode(texts)))
        means.append(sum(model.score_lines(texts)) / tokens)
    assert means[0] < means[1] < means[2]


def test_a_line_alone_is_the_line_in_a_batch(run: Path, lm: Path) -> None:
    translator = fused(run, lm)
    together = hypotheses(translator, ASKED)
    alone = [hypotheses(translator, [line])[0] for line in FEW]
    same = sum(one[0].tokens == other[0].tokens for one, other in zip(together, alone, strict=False))
    assert same >= len(FEW) - 1
    for one, other in zip(together, alone, strict=False):
        assert one[0].score == pytest.approx(other[0].score, abs=1e-3)


def test_an_ensemble_is_fused_too(run: Path, lm: Path, model: LanguageModel) -> None:
    both = open_folder(run).vocabularies
    other = write_model(
        run.parent / "other", ends_its_sentences(replace(APART, d_ff=64), both.source.size, both.target.size), both
    )
    translator = fused(run, lm, 0.5, ensemble=(str(other),))
    for text, [one] in zip(ASKED[:4], hypotheses(translator, ASKED[:4]), strict=True):
        ids = [*one.tokens, EOS]
        of_both = sum(translator.engines.torch.score([translator.source_ids(text)], [ids])[0])
        assert one.log_probability == pytest.approx(of_both + 0.5 * by_hand(model, ids, model.vocabulary.pad), abs=2e-3)


def test_terms_and_prefixes_are_kept(run: Path, lm: Path) -> None:
    translator = fused(run, lm)
    [found] = translator.stream(["the cat"], prefixes=["Wiese"])
    assert found.text.startswith("Wiese")
    [found] = translator.stream(["the cat"], terms=[["niemand"]])
    assert "niemand" in found.text


def test_the_models_are_part_of_the_digest(run: Path, lm: Path) -> None:
    digests = {Translator.load(run, TORCH).digest, fused(run, lm, 0.1).digest, fused(run, lm, 0.2).digest}
    assert len(digests) == 3


# --- commands and functions ----------------------------------------------------------------------------------------


def test_the_command_line_translates_and_evaluates(
    run: Path, lm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in FEW))
    expected = fused(run, lm, 0.5).translate(FEW)
    (tmp_path / "out").write_text("".join(f"{line}\n" for line in expected))
    asked = ["--lm", str(lm), "--lm-weight", "0.5", "--threads", "1", "--device", "cpu"]
    assert main(["translate", str(run), str(tmp_path / "in"), *asked]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == expected
    assert "it cannot search with a language model" in printed.err or "only it can search with" in printed.err
    files = [str(tmp_path / "in"), str(tmp_path / "out")]
    assert main(["evaluate", str(run), *files, *asked, "--metrics", "exact-match", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"]["exact match"]["value"] == 100
    assert transduce.translate(run, FEW, lm=lm, lm_weight=0.5) == expected
    assert transduce.evaluate(run, FEW, expected, lm=lm, lm_weight=0.5, metrics="exact-match").outputs == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lm-weight", "0.5"], "--lm-weight has no effect without --lm: name a language model"),
        (["--lm", "LM", "--lm-weight", "-1"], "lm_weight = -1.0: must be at least 0 and at most 10"),
        (["--lm", "LM", "--lm-weight", "nan"], "lm_weight = nan: must be at least 0 and at most 10"),
        (
            ["--lm", "RUN"],
            "run: this model translates: it is not a language model; `transduce train RUN --text FILE` trains one",
        ),
        (["--lm", "missing"], "missing: no such folder"),
        (["--lm", "LM", "--engine", "ct2"], "the ct2 engine cannot serve this: it cannot search with a language model"),
    ],
)
def test_mistakes(
    arguments: list[str], message: str, run: Path, lm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "ct2" in arguments:
        pytest.importorskip("ctranslate2")
    (tmp_path / "in").write_text("the cat\n")
    given = [{"LM": str(lm), "RUN": str(run)}.get(one, one) for one in arguments]
    assert main(["translate", str(run), str(tmp_path / "in"), "--device", "cpu", *given]) == 2
    assert message in capsys.readouterr().err


def test_another_vocabulary_is_refused(run: Path, tmp_path: Path) -> None:
    other = write_language_model(tmp_path / "lm", vocabularies(joint=True).target)
    with pytest.raises(RunError, match=r"its vocabulary is not the target vocabulary of .*run: train .* --vocabulary"):
        fused(run, other).translate(["the cat"])


def test_one_language_model_at_a_time() -> None:
    with pytest.raises(SettingError, match="--ngram and --lm cannot be combined"):
        LoadOptions(lm="lm", ngram=True)


def test_a_translator_keeps_its_language_model(run: Path, lm: Path) -> None:
    with pytest.raises(SettingError, match="a translator keeps the language model it was loaded with"):
        transduce.translate(Translator.load(run, TORCH), ["the cat"], lm=lm)


# --- training with the vocabulary of another run -------------------------------------------------------------------

TINY: dict[str, Any] = {
    "model.d_model": 16, "model.d_ff": 16, "model.num_heads": 2, "model.num_decoder_layers": 1, "train.device": "cpu",
    "train.threads": 1, "train.tokens_per_batch": 256, "train.validate_every": 2, "train.checkpoint_every": 2,
}  # fmt: skip


def test_a_language_model_with_the_vocabulary_of_a_translator(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines(60, words=GERMAN)))
    command = ["train", str(tmp_path / "lm"), "--text", str(tmp_path / "text"), "--vocabulary", str(run), "--set"]
    command += [f"{name}={value}" for name, value in TINY.items()]
    for steps in ("2", "4"):  # the second time, the run is resumed
        assert main([*command, "data.documents=line", "--steps", steps]) == 0
    assert f"using the vocabulary of {run}" in capsys.readouterr().err
    opened = open_folder(tmp_path / "lm")
    assert opened.vocabularies.target.digest == open_folder(run).vocabularies.target.digest
    assert opened.config.data.joint
    assert opened.config.data.vocabulary_from == str(run)
    assert len(fused(run, tmp_path / "lm").translate(ASKED[:2])) == 2
    assert "data.vocabulary_from | run |" in RunFolder(tmp_path / "lm").card.read_text()


def test_a_translator_with_the_vocabulary_of_another(run: Path, tmp_path: Path) -> None:
    for name, words in (("a", lines(60)), ("b", lines(60, words=GERMAN))):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in words))
    files = (str(tmp_path / "a"), str(tmp_path / "b"))
    settings = TINY | {"model.num_encoder_layers": 1}
    transduce.train(tmp_path / "new", train=files, vocabulary=run, steps=2, settings=settings, quiet=True)
    theirs, ours = open_folder(run).vocabularies, open_folder(tmp_path / "new").vocabularies
    assert (ours.source.digest, ours.target.digest) == (theirs.source.digest, theirs.target.digest)
    together = Translator.load(run, replace(TORCH, ensemble=(str(tmp_path / "new"),)))
    assert len(together.translate(ASKED[:2])) == 2


def test_settings_that_contradict_the_vocabulary_are_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines(60, words=GERMAN)))
    given: dict[str, Any] = {"text": tmp_path / "text", "vocabulary": run, "steps": 2, "quiet": True}
    with pytest.raises(SettingError, match=r"data.target_units = char: the vocabulary of .* has bpe: leave out"):
        transduce.train(tmp_path / "lm", settings={"data.target_units": "char"}, **given)
    lm = write_language_model(tmp_path / "first", open_folder(run).vocabularies.target)
    with pytest.raises(SettingError, match="--vocabulary has no effect with --from"):
        transduce.train(tmp_path / "lm", start_from=lm, settings={"train.device": "cpu"}, **given)
