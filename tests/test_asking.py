"""What can be asked of a translation besides the text: several models, phrases that must occur, alignments, no <unk>."""

import dataclasses
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from agreement import assert_texts_agree
from folders import (
    SHAPE,
    ends_its_sentences,
    lines,
    vocabularies,
    write_character_model,
    write_folder,
    write_model,
    write_speech_model,
)

from transduce.cli import main
from transduce.errors import DataError, RunError, SettingError
from transduce.model import Ensemble, Tokens, Transformer
from transduce.model.ensemble import EnsembleState
from transduce.search import Hypothesis
from transduce.text import UNKNOWN, Vocabularies, train_vocabulary
from transduce.translator import LoadOptions, Translator
from transduce.translator.alignment import pharaoh, with_source_words, word_numbers, word_pairs

FROZEN = Path(__file__).parent / "frozen" / "0.1.0"
TORCH = LoadOptions(engine="torch", device="cpu", threads=1)


# --- ensembles -------------------------------------------------------------------------------------------------


def two_models() -> list[Transformer]:
    narrow = dataclasses.replace(SHAPE, d_model=32, num_encoder_layers=1)
    return [ends_its_sentences(config, 50, 50).eval() for config in (SHAPE, narrow)]


@torch.inference_mode()
def test_an_ensemble_predicts_the_mean_of_probabilities() -> None:
    models = two_models()
    source, target = Tokens.padded([[5, 6, 7, 0], [8, 0]], 49), Tokens.padded([[49, 3, 4], [49, 9, 2]], 49)
    expected = sum(m.project(m.decode(target, m.encode(source))).double().softmax(-1) for m in models) / 2
    ensemble = Ensemble(models)
    whole = ensemble.predict(target, ensemble.encode(source))
    assert torch.allclose(whole.double().exp(), expected, atol=1e-6)
    state = ensemble.begin(ensemble.encode(source)).select(torch.tensor([1, 0]))
    for place in range(3):
        stepped = ensemble.step(target.ids[[1, 0], place], state)
        assert torch.allclose(stepped, whole[[1, 0], place], atol=1e-4)


@dataclasses.dataclass(frozen=True)
class Rows:
    """The state of a model that does not change its state: `select` returns another one."""

    numbers: torch.Tensor

    def select(self, rows: torch.Tensor) -> "Rows":
        return Rows(self.numbers[rows])


def test_a_model_of_an_ensemble_may_return_a_new_state() -> None:
    state = EnsembleState([Rows(torch.arange(2))]).select(torch.tensor([1, 1, 0]))
    assert [own.numbers.tolist() for own in state.states] == [[1, 1, 0]]  # type: ignore[attr-defined]


def write_pair(folder: Path) -> list[Path]:
    both = vocabularies(joint=True)
    torch.manual_seed(2)
    models = [
        ends_its_sentences(dataclasses.replace(SHAPE, d_ff=d_ff), both.source.size, both.target.size)
        for d_ff in (96, 64)
    ]
    return [write_model(folder / f"run-{number}", model, both) for number, model in enumerate(models)]


def test_several_folders_translate_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = write_pair(tmp_path)
    alone = Translator.load(one, TORCH)
    asked = lines(4)
    same = Translator.load(one, dataclasses.replace(TORCH, ensemble=(str(one),)))
    assert_texts_agree(alone, alone.request(), asked, same.translate(asked), alone.translate(asked))
    both = Translator.load(one, dataclasses.replace(TORCH, ensemble=(str(other),)))
    found = list(both.stream(asked, both.request(beam=3)))
    assert [f.text for f in found] != alone.translate(asked)
    scored = both.score_tokens(asked, [f.text for f in found])
    for translation, pair in zip(found, scored, strict=True):
        if len(pair.token_log_probabilities) == len(translation.outputs[0].tokens) + 1:  # segmented as it was
            assert pair.log_probability == pytest.approx(translation.outputs[0].log_probability, abs=1e-4)
    (tmp_path / "in").write_text("\n".join(asked) + "\n")
    command = ["translate", str(one), "--beam", "3", "--input", str(tmp_path / "in"), "--ensemble", str(other)]
    assert main([*command, "--threads", "1"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [f.text for f in found]
    assert "instead of ct2: it does not support ensembles" in printed.err
    assert main([*command, "--engine", "ct2"]) == 2
    (tmp_path / "expected").write_text(printed.out)
    scored_files = [str(tmp_path / "in"), str(tmp_path / "expected")]
    capsys.readouterr()
    evaluate = [
        "evaluate",
        str(one),
        *scored_files,
        "--beam",
        "3",
        "--threads",
        "1",
        "--metrics",
        "exact-match",
        "--json",
    ]
    assert main([*evaluate, "--ensemble", str(other)]) == 0
    assert json.loads(capsys.readouterr().out)["scores"]["exact match"]["value"] == 100.0
    assert main(evaluate) == 0
    assert json.loads(capsys.readouterr().out)["scores"]["exact match"]["value"] < 100.0
    score = ["score", str(one), *scored_files, "--threads", "1"]
    assert main([*score, "--ensemble", str(other)]) == 0
    printed_scores = [float(line) for line in capsys.readouterr().out.split()]
    assert printed_scores == pytest.approx([pair.log_probability for pair in scored], abs=1e-4)
    assert main(score) == 0
    assert [float(line) for line in capsys.readouterr().out.split()] != pytest.approx(printed_scores, abs=1e-2)


def test_an_ensemble_is_refused_where_it_cannot_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").write_text("a\n")
    text, ensemble = str(tmp_path / "text"), ["--ensemble", str(FROZEN)]
    assert main(["score", str(FROZEN), "--text", text, *ensemble]) == 2
    assert "--ensemble is for translators: language models (--text) are scored one at a time" in capsys.readouterr().err
    assert main(["score", str(FROZEN), text, text, "--engine", "ct2", *ensemble]) == 2
    assert "it does not support ensembles; use engine torch" in capsys.readouterr().err


def test_an_ensemble_is_of_one_kind(tmp_path: Path) -> None:
    """Whatever their vocabularies: a model of text cannot read recordings."""
    speech = write_speech_model(tmp_path / "speech")
    text = write_character_model(tmp_path / "text")
    for one, other in ((speech, FROZEN), (FROZEN, text)):
        translator = Translator.load(one, dataclasses.replace(TORCH, ensemble=(str(other),)))
        with pytest.raises(RunError, match=r"this model (translates|continues text), and .*must be of one kind"):
            translator.ready()


def test_an_ensemble_shares_its_vocabulary(tmp_path: Path) -> None:
    other = write_folder(tmp_path / "other", joint=True)
    translator = Translator.load(FROZEN, dataclasses.replace(TORCH, ensemble=(str(other),)))
    with pytest.raises(RunError, match=r"other: its source vocabulary differs from that of .*; the models of an"):
        translator.translate(["a"])


# --- phrases that must occur -----------------------------------------------------------------------------------


def test_terms_occur_in_every_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").write_text("hello\nwinter\n\nbridge\n")
    (tmp_path / "terms").write_text("Z\n\nM\nOY1 AH0\tZH\n")
    command = ["translate", str(FROZEN), "--input", str(tmp_path / "in"), "--threads", "1", "--n-best", "2"]
    assert main([*command, "--terms", str(tmp_path / "terms")]) == 0
    printed = capsys.readouterr()
    rows = [line.split(" ||| ") for line in printed.out.splitlines()]
    outputs = {number: [f" {text} " for n, text, *_ in rows if n == number] for number in "0123"}
    assert all(" Z " in text for text in outputs["0"])
    assert all(" OY1 AH0 " in text and " ZH " in text for text in outputs["3"])
    assert len(outputs["0"]) == len(outputs["3"]) == 2
    assert outputs["2"] == ["  "]
    free = [f" {one.text} " for one in next(Translator.load(FROZEN, TORCH).stream(["winter"])).outputs]
    assert free[0] in outputs["1"]
    assert "instead of ct2: it does not support terms that must occur" in printed.err


def test_terms_without_room_and_missing_lines_are_refused() -> None:
    translator = Translator.load(FROZEN, TORCH)
    with pytest.raises(DataError, match="fewer lines of terms than lines: give one for each line"):
        list(translator.stream(["a", "b"], terms=[["Z"]]))
    with pytest.raises(SettingError, match="terms need beam search"):
        list(translator.stream(["a"], translator.request(sampling=True), terms=[["Z"]]))
    long = next(iter(translator.stream(["a"], translator.request(max_extra=0, beam=2), terms=[["Z M Z N", "N Z"]])))
    assert "Z M Z N" in long.text, "the limit makes room for what must be there"
    assert "N Z" in long.text


# --- alignments ------------------------------------------------------------------------------------------------


def test_pieces_are_counted_by_word() -> None:
    assert word_numbers(["▁a", "b", "▁c", "▁", "d"]) == [0, 0, 1, 2, 2]
    assert word_numbers(["a", "▁b"]) == [0, 1]
    assert word_pairs(["▁a", "b", "▁c", "</s>"], ["▁x", "y", "▁z"], [2, 2, 1]) == [(0, 1), (1, 0)]
    assert pharaoh([(0, 1), (1, 0)]) == "0-1 1-0"


def test_what_looks_at_what_follows_the_word_from_left_to_right() -> None:
    """A model of spelling to sound: later sounds come from later letters."""
    translator = Translator.load(FROZEN, TORCH)
    words = ["transformer", "attention", "understanding", "international", "conversation"]
    ids = translator.vocabularies.source.encode(words)
    found = [one.outputs[0] for one in translator.stream(words)]
    targets = translator.vocabularies.target.encode([one.text for one in found])
    looks = translator.engines.torch.align(ids, targets)
    for row, source, target in zip(looks, ids, targets, strict=True):
        assert len(row) == len(target) - 1
        assert max(row) < len(source) - 1, "never `</s>`"
        rises = sum(a <= b for a, b in itertools.pairwise(row))
        assert rises >= 0.75 * (len(row) - 1)
        assert row[0] <= len(source) // 3
        assert row[-1] >= len(source) // 2


def test_alignments_are_printed_and_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_folder(tmp_path / "run")
    (tmp_path / "in").write_text("the cat sat\n\nseven dogs\n")
    command = ["translate", str(run), "--input", str(tmp_path / "in"), "--threads", "1", "--alignments", "pharaoh"]
    assert main(command) == 0
    printed = capsys.readouterr()
    assert "alignments need attention weights" in printed.err
    rows = printed.out.split("\n")
    assert rows[1] == " ||| "  # as many fields as any line
    for row, source in ((rows[0], "the cat sat"), (rows[2], "seven dogs")):
        text, pairs = row.split(" ||| ")
        numbers = [tuple(map(int, pair.split("-"))) for pair in pairs.split()]
        assert {target for _, target in numbers} == set(range(len(text.split()))) or "▁" in text
        assert all(at < len(source.split()) for at, _ in numbers)
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["outputs"][0]["alignment"] == [
        list(map(int, pair.split("-"))) for pair in rows[0].split(" ||| ")[1].split()
    ]
    assert main([*command, "--n-best", "2"]) == 0
    assert all(line.count(" ||| ") == 3 for line in capsys.readouterr().out.splitlines() if not line.startswith("1 "))


# --- unknown words ---------------------------------------------------------------------------------------------


class SaysUnknown:
    """An engine whose outputs hold `<unk>`, and that looks at the second source token."""

    spares_cores = False
    longest = 100

    def __init__(self, tokens: list[int]) -> None:
        self.tokens, self.torch = tokens, self

    def searching(self, request: object) -> "SaysUnknown":
        return self

    def stream(self, blocks: object, request: object) -> Iterator[list[list[Hypothesis]]]:
        for block in blocks:  # type: ignore[attr-defined]
            yield [[Hypothesis(self.tokens, 0.0, 0.0, [])] for _ in block.sources]

    def align(self, sources: list[list[int]], targets: list[list[int]]) -> list[list[int]]:
        return [[1] * (len(target) - 1) for target in targets]


def test_an_unknown_word_becomes_the_word_it_looks_at() -> None:
    words = train_vocabulary(lines(200), units="word", size=100)
    config = Translator.load(FROZEN, TORCH).config
    cat = words.encode(["cat"])[0][0]
    translator = Translator(SaysUnknown([cat, UNKNOWN, cat]), Vocabularies(words, words), config)  # type: ignore[arg-type]
    request = translator.request(beam=1)
    plain, replaced = (
        next(iter(translator.stream(["the Xylophon sat"], request.but(replace_unknown=asked)))).text
        for asked in (False, True)
    )
    assert replaced == "cat Xylophon cat"
    assert "Xylophon" not in plain


def test_marks_that_cannot_be_told_apart_stay() -> None:
    assert with_source_words("a ⁇ b ⁇ c", "⁇", ["X", "Y"]) == "a X b Y c"
    assert with_source_words("a ⁇ b ⁇ c", "⁇", ["X"]) == "a ⁇ b ⁇ c"
    assert with_source_words("", "⁇", []) == ""


def test_replacing_is_an_option_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").write_text("hello\n")
    assert main(["translate", str(FROZEN), "--input", str(tmp_path / "in"), "--replace-unknown", "--threads", "1"]) == 0
    assert capsys.readouterr().out.split() == Translator.load(FROZEN, TORCH).translate(["hello"])[0].split()


def test_replacing_is_idle_where_bytes_spell_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_folder(tmp_path / "run")
    (tmp_path / "in").write_text("the cat sat\n")
    assert main(["translate", str(run), "--input", str(tmp_path / "in"), "--replace-unknown", "--threads", "1"]) == 0
    said = capsys.readouterr().err
    assert "--replace-unknown has no effect: this model spells unknown words in bytes" in said
    assert "alignments need attention weights" not in said
