"""Language models: the decoder alone, text cut into windows, and runs trained on text."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import transduce
from transduce.checkpoint import read_tensors
from transduce.config import DecoderConfig, build
from transduce.data import Store, TextCorpus, TextWindows, open_or_build, scan
from transduce.data.batches import Batching, make_batch
from transduce.data.pages import Paging
from transduce.data.store import Rules
from transduce.errors import DataError, SettingError
from transduce.model import Decoder, Sequences, Tokens
from transduce.text import EOS, Vocabularies, Vocabulary, train_vocabulary
from transduce.training.loss import batch_loss

pytestmark = pytest.mark.usefixtures("few_threads")

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
    loss = float(next(line for line in card.splitlines() if line.startswith("| best")).split("|")[3])
    assert loss < 0.9  # a fifth of log2(4) bits is the least; a uniform guess is 2.6
    assert read_tensors(trained / "best.safetensors").keys() >= {"output_embedding.weight"}


def test_a_resumed_run_is_the_run_that_was_never_stopped(tmp_path: Path) -> None:
    text, asked = write_text(tmp_path, 30), SETTINGS | {"train.schedule": "constant", "model.dropout": 0.1}
    for name, stops in (("whole", [9]), ("resumed", [4, 9])):  # an epoch has 3 steps
        for steps in stops:
            transduce.train(tmp_path / name, text=text, steps=steps, settings=asked, quiet=True)
    one, other = (read_tensors(tmp_path / name / "last.safetensors") for name in ("whole", "resumed"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_line_break_is_the_end_of_a_sentence(store: Store) -> None:
    assert store.target_ids[len("to be or not")] == EOS


# --- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ({"model": {"family": "decoder"}}, "model.family = decoder learns from text, not from pairs: give --text"),
        (
            {"data": {"task": "text"}},
            "data.task = text: model.family = transformer learns from pairs, not from text; give text files with --text",
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


def test_too_little_text_to_hold_any_out(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("one\ntwo\n")
    with pytest.raises(DataError, match=r"too little text \(2 lines\).*--valid-text"):
        transduce.train(
            tmp_path / "run", text=tmp_path / "short.txt", steps=1, settings={"train.device": "cpu"}, quiet=True
        )
