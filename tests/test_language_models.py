"""Language models: the decoder alone, text cut into windows, and runs trained on text."""

import json
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import transduce
from transduce.checkpoint import read_tensors
from transduce.cli.main import main
from transduce.config import DecoderConfig, build, from_toml
from transduce.data import Store, TextCorpus, TextWindows, open_or_build, scan
from transduce.data.batches import Batching, make_batch
from transduce.data.pages import Paging
from transduce.data.store import Rules
from transduce.data.text_windows import document_ends, strided_windows
from transduce.errors import DamagedFile, DataError, SettingError
from transduce.explore.text_view import text_view
from transduce.model import Decoder, Sequences, Tokens, training_flops
from transduce.text import EOS, Vocabularies, Vocabulary, train_vocabulary
from transduce.training.loss import batch_loss
from transduce.translator.generation import GeneratedText, GenerationRequest, IncrementalDetokenizer
from transduce.translator.language_model import LanguageModel

SIZE, PAD, CONTEXT = 20, 19, 12


def small_decoder(**settings: Any) -> Decoder:
    torch.manual_seed(1)
    shape = {"d_model": 16, "d_ff": 32, "num_heads": 2, "num_decoder_layers": 2, "dropout": 0.0, "context": CONTEXT}
    return Decoder(DecoderConfig(family="decoder", **(shape | settings)), SIZE, SIZE).eval()


def random_ids(rows: int, width: int) -> torch.Tensor:
    ids = torch.from_numpy(np.random.default_rng(0).integers(2, PAD, (rows, width)))
    ids[:, 0] = PAD
    return ids


# --- the model -----------------------------------------------------------------------------------------------------


@pytest.mark.numerics
@pytest.mark.parametrize(
    "settings",
    [{}, {"norm": "pre", "positions": "rotary"}, {"window": 3}, {"positions": "learned", "max_positions": 12}],
)
def test_step_by_step_gives_what_all_at_once_gives(settings: dict[str, Any]) -> None:
    model, ids = small_decoder(**settings), random_ids(3, CONTEXT)
    with torch.no_grad():
        wanted = model.project(model.decode(Tokens.of_lengths(ids, torch.full((3,), CONTEXT)), None))
        state = model.begin(None)
        stepped = torch.stack([model.step(column, state) for column in ids.T], dim=1)
        state = model.begin(None)
        begun = model.project(model.extend(ids[:, :5], state))
        following = model.step(ids[:, 5], state)
    torch.testing.assert_close(stepped, wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(begun, wanted[:, :5], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(following, wanted[:, 5], rtol=1e-4, atol=1e-5)


@pytest.mark.numerics
def test_nothing_attends_to_another_document() -> None:
    model, ids = small_decoder(), random_ids(2, 5)
    with torch.no_grad():
        packed = model.decode(Tokens.packed([ids.tolist()], PAD), None)
        alone = model.decode(Tokens.padded(ids.tolist(), PAD), None)
    torch.testing.assert_close(packed[0], alone.flatten(0, 1), rtol=1e-4, atol=1e-5)


@pytest.mark.numerics
def test_a_row_of_one_sequence_needs_no_mask() -> None:
    model, tokens = small_decoder(), Tokens.padded([[PAD, 3, 4], [PAD, 5, 6, 7, 8]], PAD)
    with torch.no_grad():
        masked = model.decode(tokens, None)
        unmasked = model.decode(Sequences(tokens.ids, tokens.position, tokens.segment), None)
    torch.testing.assert_close(unmasked[tokens.real], masked[tokens.real], rtol=1e-4, atol=1e-5)


def test_more_tokens_than_the_context_are_refused() -> None:
    with pytest.raises(DataError, match="13 tokens are more than the model's context of 12"):
        small_decoder().decode(Tokens.padded([[2] * 13], PAD), None)


def test_in_a_window_a_token_costs_as_much_as_in_a_context_of_twice_its_size() -> None:
    config = small_decoder(window=2).config
    half = replace(config, window=0, context=6)
    assert training_flops(config, 49, 0, 100, 9.0) == training_flops(half, 49, 0, 100, 9.0)


def test_padding_is_not_counted_towards_the_context() -> None:
    """Rows of an odd context are filled up to an even width on a GPU."""
    model = small_decoder()
    filled = Tokens.padded([[2] * CONTEXT], PAD).padded_to(2, CONTEXT + 2)
    with torch.no_grad():
        hidden = model.decode(Sequences(filled.ids, filled.position, filled.segment), None)
        alone = model.decode(Tokens.padded([[2] * CONTEXT], PAD), None)
    torch.testing.assert_close(hidden[:1, :CONTEXT], alone, rtol=1e-4, atol=1e-5)


def test_the_matrices_of_attention_are_known_as_three() -> None:
    model = small_decoder()
    assert model.matrices()[model.layers[0].attention.stacked.weight] == [16, 16, 16]
    assert model.output_embedding.weight not in model.matrices()


# --- windows -------------------------------------------------------------------------------------------------------

TEXT = "to be or not\n\nto be\nthat is\n\nthe question\n"


@pytest.fixture(scope="module")
def characters() -> Vocabulary:
    return train_vocabulary(TEXT.splitlines(), units="char", size=40, normalization="identity")


@pytest.fixture(scope="module")
def store(characters: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("text")
    for name in ("one.txt", "two.txt"):
        (folder / name).write_text(TEXT)
    corpus = TextCorpus(((str(folder / "one.txt"),), (str(folder / "two.txt"),)))
    both = Vocabularies(characters, characters)
    return open_or_build(corpus, scan(corpus, 100), both, Rules(), folder / "cache")


def documents_of(windows: TextWindows, characters: Vocabulary) -> list[str]:
    return [
        "".join(
            " " if piece == "▁" else "\n" if piece == "</s>" else piece for piece in characters.pieces(ids.tolist())
        )
        for ids in map(windows.target, range(len(windows.ends)))
    ]


@pytest.mark.parametrize(
    ("documents", "found"),
    [
        ("file", [TEXT, TEXT]),
        ("blank-line", 2 * ["to be or not\n\n", "to be\nthat is\n\n", "the question\n"]),
        ("line", [line + "\n" for line in 2 * TEXT.splitlines()]),
    ],
)
def test_documents(store: Store, characters: Vocabulary, documents: Any, found: list[str]) -> None:
    windows = TextWindows(store, 1_000, documents)
    assert documents_of(windows, characters) == found
    assert set(windows.preceding(np.arange(len(found)))) == {-1}
    assert store.report.target_bytes == store.report.target_tokens == len(2 * TEXT)


@pytest.mark.parametrize("documents", ["file", "blank-line", "line"])
@pytest.mark.parametrize("epoch", range(4))
def test_every_epoch_has_the_whole_text_in_windows_of_the_context(store: Store, documents: Any, epoch: int) -> None:
    windows = TextWindows(store, 7, documents).at_epoch(3, epoch)
    numbers = np.arange(len(windows.ends))
    assert np.array_equal(windows.targets(numbers), store.target_ids)
    assert windows.target_lengths.max() <= 7
    assert set(windows.document_ends) <= set(windows.ends)
    for number, before in enumerate(windows.preceding(numbers)):
        first = windows.begins[number] in {0, *windows.document_ends}
        assert before == (-1 if first else store.target_ids[windows.begins[number] - 1])


def test_where_windows_begin_is_a_function_of_seed_and_epoch(store: Store) -> None:
    base = TextWindows(store, 7, "file")
    cuts = {(seed, epoch): tuple(base.at_epoch(seed, epoch).ends) for seed in (1, 2) for epoch in range(8)}
    assert all(tuple(base.at_epoch(9, 9).at_epoch(*key).ends) == cut for key, cut in cuts.items())
    assert len(set(cuts.values())) > 4


@pytest.mark.numerics
def test_padded_rows_and_pages_have_the_same_loss(store: Store, characters: Vocabulary) -> None:
    windows, pad = TextWindows(store, CONTEXT, "file").at_epoch(1, 1), characters.pad
    model = Decoder(small_decoder().config, characters.size, characters.size).eval()
    losses = []
    for planner in (
        Batching(1_000, 1_000, seed=1),
        Paging(1_000, 1_000, seed=1, width=CONTEXT, packed=False),
        Paging(1_000, 1_000, seed=1, width=2 * CONTEXT),
    ):
        if isinstance(planner, Paging) and planner.packed:
            model.config = small_decoder(context=2 * CONTEXT).config  # rows of two windows
        batches = [planner.make(windows, batch, pad, pad) for step in planner.plan(windows, 0) for batch in step]
        assert sum(batch.tokens for batch in batches) == len(store.target_ids)
        assert all(isinstance(batch.target, Sequences) is not getattr(planner, "packed", False) for batch in batches)
        losses.append(sum(float(batch_loss(model, batch, 0.0).minimised.detach()) for batch in batches))
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)


def test_a_window_begins_with_the_token_before_it(store: Store, characters: Vocabulary) -> None:
    windows = TextWindows(store, 5, "file")
    batch = make_batch(windows, np.array([0, 1]), characters.pad, characters.pad)
    assert batch.source.shape == (2, 0)
    assert batch.target.ids[:, 0].tolist() == [characters.pad, batch.labels[0, -1]]
    assert batch.target.ids[1, 1:].tolist() == batch.labels[1, :-1].tolist()


def test_the_end_of_each_file_is_held_out(tmp_path: Path) -> None:
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for path in paths:
        path.write_text("".join(f"{path.stem}{n}\n" for n in range(25)))
    parts = [
        [
            line
            for block in TextCorpus(tuple((str(p),) for p in paths), hold_out=10, part=part).blocks()
            for line in block.target
        ]
        for part in ("kept", "held out")
    ]
    assert parts[1] == ["a23", "a24", "b23", "b24"]
    assert len(parts[0]) == 46


# --- training ------------------------------------------------------------------------------------------------------

SETTINGS: dict[str, Any] = {
    "model.d_model": 32, "model.d_ff": 64, "model.num_heads": 2, "model.num_decoder_layers": 1, "model.context": 16,
    "model.dropout": 0.0, "train.device": "cpu", "train.threads": 1, "train.tokens_per_batch": 256, "train.learning_rate": 0.01,
    "train.warmup_steps": 4, "train.validate_every": 20, "train.checkpoint_every": 20,
}  # fmt: skip


def write_text(folder: Path, lines: int = 120) -> Path:
    """Words that can be predicted from their first letters."""
    words = np.random.default_rng(1).choice(["alpha", "beta", "gamma", "delta"], (lines, 4))
    path = folder / "text.txt"
    path.write_text("".join(f"{' '.join(line)}\n" for line in words))
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("language-model")
    transduce.train(folder / "run", text=write_text(folder), steps=60, settings=SETTINGS, quiet=True)
    return folder / "run"


def test_a_language_model_learns(trained: Path) -> None:
    card = (trained / "README.md").read_text()
    assert "transduce generate run" in card
    assert "| weights | step | loss | score | lines | signature |" in card, "nothing is searched"
    assert "`averaged`" not in card, "nothing is averaged"
    assert "data.unknown" not in card, "characters are never spelt in bytes"
    loss = float(next(line for line in card.splitlines() if line.startswith("| best")).split("|")[3])
    assert loss < 0.9  # a fifth of log2(4) bits is the least; a uniform guess is 2.6
    assert read_tensors(trained / "best.safetensors").keys() >= {"output_embedding.weight"}


def test_validation_text_with_unknown_characters_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "valid").write_text("日 本 語\n" * 5)
    settings = SETTINGS | {"train.label_smoothing": 0.0}
    transduce.train(
        tmp_path / "run", text=write_text(tmp_path), valid_text=tmp_path / "valid", steps=1, settings=settings
    )
    warning = "15 of 30 validation tokens are not in the vocabulary. The model does not predict which"
    assert warning in " ".join(capsys.readouterr().err.split())
    assert warning in (tmp_path / "run" / "README.md").read_text()


def test_damaged_weights_are_refused_with_what_to_do(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    path = tmp_path / "run" / "best.safetensors"
    whole = path.read_bytes()
    for damaged in (whole[:-1], bytes(9), whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(damaged)
        with pytest.raises(
            DamagedFile, match=r"best\.safetensors: .*: restore the file from a copy, or use --weights last$"
        ):
            transduce.load_language_model(tmp_path / "run")
    transduce.load_language_model(tmp_path / "run", weights="last")


def test_minutes_choose_the_size_and_the_warm_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model that these seconds can train; a resumed run keeps it, however many minutes it is given."""
    run, text = tmp_path / "run", str(write_text(tmp_path, 4_000))
    command = [
        "train",
        str(run),
        "--text",
        text,
        "--device",
        "cpu",
        "--threads",
        "1",
        "--set",
        f"data.cache={tmp_path}",
    ]
    assert main([*command, "--minutes", "0.1"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    shape = r"2 layers of \d heads, d_model 64, a context of 128 tokens, dropout 0\.0, 512 tokens a batch"
    assert re.search(rf"characters in 0\.1 minutes on a CPU: {shape}", said)
    assert "tokens are characters, because the text has at most 5,000,000 characters" in said
    assert said.index("characters in 0.1 minutes") < said.index("plan: ") < said.index("finished ")
    chosen = from_toml((run / "config.toml").read_text(), "config.toml")
    assert 1 <= chosen["train"]["warmup_steps"] < 40, "98 before, whatever the minutes"
    assert main([*command, "--minutes", "0.15"]) == 0
    assert "chosen for this data" not in capsys.readouterr().err
    again = from_toml((run / "config.toml").read_text(), "config.toml")
    assert again["train"].pop("minutes") == 0.15
    assert chosen["train"].pop("minutes") == 0.1
    assert again == chosen


def test_a_resumed_run_is_the_run_that_was_never_stopped(tmp_path: Path) -> None:
    text, asked = write_text(tmp_path, 30), SETTINGS | {"train.schedule": "constant", "model.dropout": 0.1}
    for name, stops in (("whole", [9]), ("resumed", [4, 9])):  # an epoch has 3 steps
        for steps in stops:
            transduce.train(tmp_path / name, text=text, steps=steps, settings=asked, quiet=True)
    one, other = (read_tensors(tmp_path / name / "last.safetensors") for name in ("whole", "resumed"))
    assert all(torch.equal(one[name], other[name]) for name in one)


KILLED = """
import json, os, signal, sys
import transduce
from transduce.training.loop import Trainer
run, text, settings, last = json.loads(sys.argv[1])
after = Trainer._after_step
def die(trainer):
    after(trainer)
    if trainer.progress.step == last:
        os.kill(os.getpid(), signal.SIGKILL)
Trainer._after_step = die
transduce.train(run, text=text, steps=9, settings=settings, quiet=True)
"""


def test_a_run_that_is_killed_with_kill_9_ends_with_the_same_weights(tmp_path: Path) -> None:
    """Between two checkpoints, and in the second of three epochs."""
    text = str(write_text(tmp_path, 30))
    asked = SETTINGS | {"train.schedule": "constant", "model.dropout": 0.1, "train.checkpoint_every": 2}
    given = json.dumps([str(tmp_path / "killed"), text, asked, 5])
    done = subprocess.run([sys.executable, "-c", KILLED, given], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    for name in ("killed", "whole"):
        transduce.train(tmp_path / name, text=text, steps=9, settings=asked, quiet=True)
    one, other = ((tmp_path / name / "last.safetensors").read_bytes() for name in ("killed", "whole"))
    assert one == other


def test_the_line_break_is_the_end_of_a_sentence(store: Store) -> None:
    assert store.target_ids[len("to be or not")] == EOS


# --- measuring -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(trained: Path) -> LanguageModel:
    return transduce.load_language_model(trained, device="cpu", threads=1)


def nats_by_hand(model: LanguageModel, ids: list[int], begin: int, end: int) -> list[float]:
    """-log p of each token from `begin` on, one after the other, given at most the tokens since `begin`."""
    state, nats = model.model.begin(None), []
    before = [model.vocabulary.pad, *ids][begin]
    for token in ids[begin:end]:
        with torch.no_grad():
            logits = model.model.step(torch.tensor([before]), state)
        nats.append(-float(logits.log_softmax(-1)[0, token]))
        before = token
    return nats


@pytest.mark.numerics
def test_the_figures_are_those_of_a_computation_by_hand(model: LanguageModel) -> None:
    text = "alpha beta\ngamma delta alpha\nbeta"
    ids = [token for line in model.vocabulary.encode(text.split("\n")) for token in line]
    assert len(ids) == len(text) + 1 == 34
    whole = [nats for begin in (0, 16, 32) for nats in nats_by_hand(model, ids, begin, begin + 16)]
    strided = [*nats_by_hand(model, ids, 0, 16)]
    for begin in (6, 12, 18):
        strided += nats_by_hand(model, ids, begin, begin + 16)[16 - 6 :]
    for stride, nats in ((0, whole), (6, strided)):
        score = model.score(text, stride)
        assert score.nats == pytest.approx(sum(nats), rel=1e-4)
        assert score.bits_per_byte == pytest.approx(sum(nats) / np.log(2) / 34, rel=1e-4)
        assert score.nats_per_token == pytest.approx(sum(nats) / 34, rel=1e-4)
        assert score.perplexity_per_word == pytest.approx(np.exp(sum(nats) / 6), rel=1e-3)
        assert (score.tokens, score.bytes, score.words, score.unknown) == (34, 34, 6, 0)
    assert score.signature == "context:16|stride:6|documents:file"
    assert transduce.score_text(model, [text, text]).nats == pytest.approx(2 * sum(whole), rel=1e-4)


@pytest.mark.parametrize("documents", ["line", "blank-line", "file"])
@pytest.mark.parametrize("stride", [1, 3, 7])
def test_strided_windows_cover_every_token_once(documents: Any, stride: int) -> None:
    ends = document_ends(np.array([5, 1, 9, 4, 1, 20]), [3, 3], documents)
    windows = strided_windows(ends, 7, stride)
    assert [token for _, new, end in windows for token in range(new, end)] == list(range(40))
    assert all(end - begin <= 7 for begin, _, end in windows)


def test_the_command_line_prints_both_strides(
    trained: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = str(trained.parent / "text.txt")
    monkeypatch.setattr("transduce.cli.line_display.PLAIN_EVERY_S", -1.0)
    assert main(["score", str(trained), "--text", text, "--device", "cpu", "--threads", "1", "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert "measured" not in printed.err
    assert [one["stride"] for one in found] == [16, 8]
    assert found[1]["bits_per_byte"] < found[0]["bits_per_byte"]
    assert main(["score", str(trained), "--text", text, "--device", "cpu", "--threads", "1", "--stride", "16"]) == 0
    printed = capsys.readouterr()
    assert f"{found[0]['bits_per_byte']:.4f} bits per byte" in printed.out
    assert f"measured {16:,} of {found[0]['tokens']:,} tokens" in printed.err


def test_carriage_returns_are_named_where_bytes_are_counted(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_bytes(b"a\r\nb\n")
    options = ["score", str(trained), "--text", str(tmp_path / "text"), "--device", "cpu", "--threads", "1"]
    assert main([*options, "--stride", "16"]) == 0
    said = capsys.readouterr()
    assert "4 bytes" in said.out
    assert "carriage returns removed at the ends of lines, and not counted: 1\n" in said.err


def test_every_unknown_character_is_counted(
    model: LanguageModel, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sentencepiece writes one `<unk>` for a sequence of unknown characters: four here, for eight characters."""
    text = "日本語 alpha\nbeta ÄÖ gamma\nÄ日 delta 9\n"
    score = model.score(text)
    assert (score.unknown, score.unknown_characters, score.characters) == (4, 8, len(text))
    assert (score.unknown_bytes, score.bytes) == (4 * 3 + 3 * 2 + 1, len(text.encode()))
    assert score.most_bits_per_byte == pytest.approx(score.bits_per_byte + 8 * (19 + 4) / len(text.encode()))
    (tmp_path / "text").write_text(text, encoding="utf-8")
    options = ["score", str(trained), "--text", str(tmp_path / "text"), "--device", "cpu", "--threads", "1"]
    assert main([*options, "--stride", "16"]) == 0
    said = capsys.readouterr().err
    assert f"8 of {len(text)} characters (19 of {len(text.encode())} bytes) are not in the vocabulary" in said
    assert (
        "counting 8 bits for each byte of these characters, the figure is at most "
        f"{score.most_bits_per_byte:.4f} bits per byte instead of {score.bits_per_byte:.4f}" in said
    )
    assert main([*options, "--json"]) == 0
    for found in json.loads(capsys.readouterr().out):
        assert (found["unknown_characters"], found["characters"], found["unknown_bytes"]) == (8, len(text), 19)
        assert found["most_bits_per_byte"] > found["bits_per_byte"]


# --- generating ----------------------------------------------------------------------------------------------------


@pytest.mark.numerics
def test_greedy_text_is_the_most_probable_token_each_time(model: LanguageModel) -> None:
    """Longer than the context: half of it is dropped whenever it is full."""
    ids = [model.vocabulary.pad, *model.vocabulary.encode(["alp"])[0][:-1]]
    window = list(ids)
    for _ in range(40):
        with torch.no_grad():
            logits = model.model.project(model.model.decode(Tokens.padded([window], 0), None))[0, -1]
        logits[1] = -torch.inf
        ids.append(int(logits.argmax()))
        window = [*window, ids[-1]] if len(window) < 16 else ids[-8:]
    assert model.generate("alp", max_tokens=40) == [spelt(model.vocabulary, ids[4:])]


def test_what_the_model_does_not_see_of_a_prompt_is_said(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["generate", str(trained), "--device", "cpu", "--threads", "1", "--max-tokens", "2", "--prompt"]
    assert main([*common, "alpha"]) == 0
    assert capsys.readouterr().err == ""
    assert main([*common, "alpha beta gamma 日本"]) == 0
    said = capsys.readouterr().err
    assert "2 characters of the prompt are not in the vocabulary" in said
    assert "the prompt is longer than the context of 16 tokens: its first 3 tokens were ignored" in said
    assert main([*common, "alpha\udcff"]) == 2
    assert "--prompt: not valid UTF-8" in capsys.readouterr().err


def spelt(vocabulary: Vocabulary, ids: list[int]) -> str:
    return "".join({"</s>": "\n", "▁": " "}.get(piece, piece) for piece in vocabulary.pieces(ids))


def test_samples_are_reproducible_and_stream_as_they_are_returned(model: LanguageModel) -> None:
    request = GenerationRequest(sampling=True, n=3, seed=5, top_p=0.95, temperature=1.2, max_tokens=30)
    texts = model.generate("beta\nga", request)
    assert texts == model.generate("beta\nga", request)
    assert texts != model.generate("beta\nga", request, seed=6)
    assert len(set(texts)) == 3
    parts = list(model.stream("beta\nga", request))
    assert [sum(map(len, (part[row] for part in parts))) for row in range(3)] == [30, 30, 30]
    assert all(text.lstrip("\n")[0] in "m" for text in model.generate("ga", sampling=True, n=3, top_k=1, max_tokens=3))


@pytest.mark.parametrize(
    ("documents", "text", "taken"), [("line", "ob", 3), ("blank-line", "ob\n\n", 4), ("file", "ob\n\nth", 6)]
)
def test_a_text_ends_with_its_document(characters: Vocabulary, documents: str, text: str, taken: int) -> None:
    first, second = (characters.encode([line])[0] for line in ("ob", "th"))
    speller, parts = IncrementalDetokenizer(characters, [], documents), []
    for token in [*first, EOS, *second[:-1]]:
        if not speller.ended:
            parts.append(speller.take(token))
    assert "".join(parts) == text
    assert len(parts) == taken


@pytest.mark.parametrize("stop", [["obo"], ["bob"], ["o\n"], ["obx", "bobo", "z"], ["boboboc", "ro"], ["xyz"]])
def test_a_text_ends_before_the_first_string_that_stops_it(characters: Vocabulary, stop: list[str]) -> None:
    whole = "bboobobor\nobobo"
    ids = [token for line in characters.encode(whole.split("\n")) for token in line][:-1]
    text = GeneratedText(IncrementalDetokenizer(characters, [], "file"), stop)
    shown = "".join(map(text.take, ids)) + text.held
    ends = [whole.index(one) for one in stop if one in whole]
    assert shown == whole[: min(ends, default=len(whole))]
    assert text.ended == bool(ends)


def test_stop_and_the_number_of_tokens(model: LanguageModel) -> None:
    free = model.generate("ga", max_tokens=12)[0]
    stop = free[6:8]
    generation = model.generation("ga", GenerationRequest(max_tokens=12, stop=(stop,)))
    assert "".join(parts[0] for parts in generation) == free[: free.index(stop)] == model.generate("ga", stop=[stop])[0]
    assert generation.texts[0].tokens <= free.index(stop) + 2
    assert generation.cut == 0
    assert model.generation("g" * 2 * model.context, GenerationRequest()).cut == model.context + 1
    with pytest.raises(SettingError, match="an empty string would end every text"):
        GenerationRequest(stop=("a", ""))
    with pytest.raises(SettingError, match=r"stop: give a list of strings, such as \['end'\]"):
        model.generate("ga", stop="end")
    with pytest.raises(SettingError, match=r"n = 2: .*: set sampling=True"):
        model.generate("ga", n=2)
    for prompt in (None, b"ga"):
        with pytest.raises(SettingError, match=r"prompt: must be a text \(str\), not "):
            model.generate(prompt)  # type: ignore[arg-type]


def test_the_command_line_generates(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["generate", str(trained), "--device", "cpu", "--threads", "1", "--prompt", "alpha", "--max-tokens", "8"]
    assert main(common) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("alpha")
    assert main([*common, "--json"]) == 0
    assert "alpha" + json.loads(capsys.readouterr().out)["texts"][0] + "\n" == printed
    assert main([*common, "--stop", "zzz", printed[7:9]]) == 0
    assert capsys.readouterr().out == printed[: printed.index(printed[7:9], 5)] + "\n"
    assert main([*common, "--sample", "--n", "2"]) == 0
    assert "--- 2 ---" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", "RUN", "--temperature", "2"], "--temperature has no effect without --sample"),
        (["generate", "RUN", "--n", "2"], "--n 2: without sampling all texts would be the same: add --sample"),
        (["generate", "RUN", "--max-tokens", "0"], "max_tokens = 0: must be at least 1"),
        (["generate", "RUN", "--stop", ""], "stop: an empty string would end every text"),
        (["generate", "RUN", "--sample", "--seed", "-1"], "seed = -1: must be at least 0"),
        (["score", "RUN"], "give a SOURCE and a TARGET file, or --text FILE"),
        (["score", "RUN", "a", "--text", "b"], "give one of the two"),
        (
            ["score", "RUN", "--text", "TEXT", "--stride", "17"],
            "stride = 17: must be at least 1 and at most the context of 16",
        ),
        (["score", "RUN", "--text", "/dev/null"], "the text is empty"),
        (["translate", "RUN"], "a language model does not translate: use `transduce generate`"),
    ],
)
def test_mistakes_on_the_command_line(
    arguments: list[str], message: str, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"RUN": str(trained), "TEXT": str(trained.parent / "text.txt")}
    assert main([*(names.get(one, one) for one in arguments), "--device", "cpu"]) == 2
    assert message in capsys.readouterr().err


# --- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ({"model": {"family": "decoder"}}, "model.family = decoder learns from text, not from pairs: give --text"),
        (
            {"data": {"task": "text"}},
            "data.task = text: model.family = transformer learns from pairs: give them with --train, or leave out model.family",
        ),
        (
            {"data": {"task": "text", "weights": "2"}, "model": {"family": "decoder"}},
            "data.weights is for pairs and has no effect on a language model",
        ),
        ({"data": {"documents": "line"}}, "data.documents = line is for the text of a language model"),
        (
            {"data": {"task": "text"}, "model": {"family": "decoder", "positions": "learned", "context": 2_000}},
            "model.context = 2000 is over model.max_positions = 1024",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(layer: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        build(layer)


def test_text_and_pairs_at_once_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="leave out --train and --valid"):
        transduce.train(tmp_path / "run", text="a.txt", train="b.tsv", quiet=True)
    with pytest.raises(SettingError, match="give text files as one path or as a list of paths"):
        transduce.train(tmp_path / "run", text=[("a.txt", "b.txt")], quiet=True)
    with pytest.raises(SettingError, match="--languages has no effect on a language model"):
        transduce.train(tmp_path / "run", text="a.txt", languages=("en", "de"), quiet=True)


def test_an_empty_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(DataError, match=r"empty\.txt: empty: there is no line of text to learn from"):
        transduce.train(tmp_path / "run", text=tmp_path / "empty.txt", steps=1, quiet=True)


def test_a_text_of_empty_lines_is_named(tmp_path: Path) -> None:
    (tmp_path / "blank.txt").write_text("\n" * 200)
    with pytest.raises(DataError, match=r"blank\.txt: no text to learn a vocabulary from: every line is empty"):
        transduce.train(
            tmp_path / "run", text=tmp_path / "blank.txt", steps=1, settings={"train.device": "cpu"}, quiet=True
        )


def test_too_little_text_to_hold_any_out(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("one\ntwo\n")
    with pytest.raises(DataError, match=r"too little text \(2 lines\).*, which takes whole lines: give --valid-text"):
        transduce.train(
            tmp_path / "run", text=tmp_path / "short.txt", steps=1, settings={"train.device": "cpu"}, quiet=True
        )


# --- attention -----------------------------------------------------------------------------------------------------


@pytest.mark.numerics
def test_a_text_attends_to_itself(model: LanguageModel, tmp_path: Path) -> None:
    text = "alpha\nbe"
    seen = transduce.attention(model, text, output=tmp_path / "attention.png")
    assert seen.target == ["<pad>", *"alpha", "</s>", *"be"]
    assert seen.written == [*"alpha", "</s>", *"be", seen.following]
    assert seen.following == model.generate(text, max_tokens=1)[0]
    [weights] = seen.maps.decoder
    assert weights.shape == (1, 2, 9, 9)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2, 9))
    assert weights.triu(1).max() == 0
    assert (tmp_path / "attention.png").stat().st_size > 1_000


@pytest.mark.numerics
def test_the_view_has_the_distribution_of_every_next_token(model: LanguageModel) -> None:
    view = text_view(model, "alpha\nbe")
    steps = view["predictions"]["tokens"]
    assert [step["token"] for step in steps] == [*"alpha", "\u21b5", *"be", model.attention("alpha\nbe").following]
    ids = [token for line in model.vocabulary.encode(["alpha", "be"]) for token in line][:-1]
    nats = nats_by_hand(model, ids, 0, len(ids))
    assert [step["log_probability"] for step in steps[:-1]] == pytest.approx([-nat for nat in nats], abs=1e-3)
    for step in steps:
        values = [other["log_probability"] for other in step["alternatives"]]
        assert values == sorted(values, reverse=True)
        assert len(values) == 5
    assert steps[-1]["log_probability"] >= steps[-1]["alternatives"][0]["log_probability"]
    assert view["masks"]["decoder"][2] == [1, 1, 1, 0, 0, 0, 0, 0, 0]
    assert len(view["positions"]["source"]) == 9
    json.dumps(view)


def test_attention_as_one_file_from_the_command_line(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["attention", str(trained), "alpha", "-o", str(tmp_path / "view.html")]) == 0
    assert capsys.readouterr().err == f"{tmp_path / 'view.html'}: alpha\n"
    assert '"predictions":' in (tmp_path / "view.html").read_text()


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (" ", [], "the text is empty: there is nothing to show"),
        ("a" * 16, [], "17 tokens are more than the model's context of 16"),
        ("a", ["--target", "b"], "a language model has no target"),
    ],
)
def test_texts_that_cannot_be_shown(
    text: str, options: list[str], message: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["attention", str(trained), text, *options, "-o", str(tmp_path / "view.png")]) == 2
    assert message in capsys.readouterr().err


def test_too_long_a_text_for_the_page(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transduce.explore.text_view.MOST_TOKENS", 4)
    with pytest.raises(DataError, match="the text has 6 tokens: at most 4 can be shown"):
        text_view(model, "alpha")
