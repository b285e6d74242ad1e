"""Room for what comes next: models of other kinds run through training, search and translation as they are.

Each sketch is a family of models that exists only here. The tests register it in the two tables of families and change
nothing else, which shows that the rest of the program knows no family by name.
"""

import multiprocessing
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import transduce
from tests.families import write_pairs
from tests.tiny import batch_of
from tests.tiny import make_model as tiny_transformer
from transduce import config as settings
from transduce import model as models
from transduce.config import ModelConfig, TrainConfig, build
from transduce.config.setting import setting
from transduce.data.batches import Batch, Batching, Pairs
from transduce.device import Device
from transduce.errors import SettingError
from transduce.model import Family, Frames, Model, Tokens, Transformer, make_model
from transduce.model.embeddings import make_embedding
from transduce.text import EOS
from transduce.training.optimizer import make_optimizer
from transduce.training.update import PlainUpdate
from transduce.translator.engine import SearchBlock, SearchRequest
from transduce.translator.torch_engine import TorchEngine

CPU = Device("cpu", bf16=False)
Register = Callable[[str, type[ModelConfig], type[Model]], None]


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Register:
    """Make a family known for the length of a test."""

    def add(name: str, config: type[ModelConfig], kind: type[Model]) -> None:
        monkeypatch.setitem(settings.FAMILIES, name, config)
        monkeypatch.setitem(models.FAMILIES, name, Family(kind, lambda *_: 0.0, lambda *_: 0))

    return add


# --- a recurrent model ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(ModelConfig):
    layers: int = setting(1, "Layers of the encoder and of the decoder.", least=1, most=8, inherited="always")


@dataclass
class RecurrentState:
    hidden: Tensor  # [layers, R, D]

    def select(self, rows: Tensor) -> "RecurrentState":
        self.hidden = self.hidden.index_select(1, rows)
        return self


class Recurrent(Model):
    """Sutskever et al. 2014 in miniature, with a BatchNorm whose running statistics a checkpoint must hold."""

    def __init__(self, config: RecurrentConfig, source_size: int, target_size: int) -> None:
        super().__init__()
        self.config, self.target_pad, self.output_bias = config, target_size - 1, None
        self.source_embedding = make_embedding(source_size, config.d_model)
        self.output_embedding = make_embedding(target_size, config.d_model)
        self.norm = nn.BatchNorm1d(config.d_model)
        self.encoder, self.decoder = (
            nn.GRU(config.d_model, config.d_model, config.layers, batch_first=True) for _ in range(2)
        )

    def encode(self, source: models.Source) -> Tensor:
        assert isinstance(source, Tokens)
        lengths = source.real.sum(1).clamp(min=1).cpu()
        embedded = self.norm(self.source_embedding(source.ids.long()).transpose(1, 2)).transpose(1, 2)
        packed = nn.utils.rnn.pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        last: Tensor = self.encoder(packed)[1]
        return last

    def decode(self, target: Tokens, memory: Tensor) -> Tensor:
        hidden: Tensor = self.decoder(self.output_embedding(target.ids.long()), memory)[0]
        return hidden

    def begin(self, memory: Tensor) -> RecurrentState:
        return RecurrentState(memory)

    def step(self, tokens: Tensor, state: RecurrentState) -> Tensor:
        hidden, state.hidden = self.decoder(self.output_embedding(tokens[:, None]), state.hidden)
        return self.project(hidden[:, 0])


def train_small(folder: Path, family: str, **more: Any) -> Any:
    """A short run through the public interface."""
    asked = {"model.family": family, "model.d_model": 32, "train.device": "cpu", "train.tokens_per_batch": 256, **more}
    return transduce.train(folder / "run", train=write_pairs(folder), steps=12, settings=asked, quiet=True)


def test_a_recurrent_model_trains_resumes_and_translates(tmp_path: Path, register: Register) -> None:
    register("recurrent", RecurrentConfig, Recurrent)
    train_small(tmp_path, "recurrent", **{"model.layers": 2})
    translator = transduce.load(tmp_path / "run", device="cpu")
    assert len(translator.translate(["a b c", "d e"], beam=2)) == 2
    assert translator.evaluate(["a b", "c d"], ["b a", "d c"]).sentences == 2
    resumed = transduce.train(tmp_path / "run", steps=20, quiet=True)
    assert resumed.steps == 20


def test_running_statistics_are_saved_and_restored(tmp_path: Path, register: Register) -> None:
    register("recurrent", RecurrentConfig, Recurrent)
    train_small(tmp_path, "recurrent", **{"train.average": 0})
    loaded = transduce.load(tmp_path / "run", engine="torch", device="cpu", weights="last")
    norm = getattr(loaded, "translator", loaded).model.norm
    assert norm.running_mean.abs().sum() > 0
    assert int(norm.num_batches_tracked) > 0


def test_one_model_computes_running_statistics() -> None:
    """Several copies, one per thread, would each change them at the same time."""
    model = Recurrent(RecurrentConfig(d_model=16), 20, 20)
    train = TrainConfig()
    assert len(PlainUpdate(model, make_optimizer(model, train), train, CPU).replicas.models) == 1


def test_fine_tuning_takes_running_statistics_along(tmp_path: Path, register: Register) -> None:
    register("recurrent", RecurrentConfig, Recurrent)
    train_small(tmp_path, "recurrent")
    tuned = transduce.train(
        tmp_path / "tuned", train=write_pairs(tmp_path), start_from=tmp_path / "run", steps=3, settings={"train.device": "cpu"}, quiet=True,
    )  # fmt: skip
    assert tuned.steps == 3


def test_a_family_refuses_the_settings_of_another(register: Register) -> None:
    register("recurrent", RecurrentConfig, Recurrent)
    with pytest.raises(SettingError, match=r"unknown setting model\.num_heads"):
        build({"model": {"family": "recurrent", "num_heads": 4}})


def test_an_unknown_family_is_refused_by_name() -> None:
    with pytest.raises(SettingError, match=r"model\.family = 'recurent': must be one of transformer"):
        build({"model": {"family": "recurent"}})


# --- a decoder without an encoder ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LanguageModelConfig(ModelConfig):
    pass


class LanguageModel(Recurrent):
    """Predicts the target from nothing but itself."""

    def __init__(self, config: LanguageModelConfig, source_size: int, target_size: int) -> None:
        super().__init__(RecurrentConfig(d_model=config.d_model), 2, target_size)
        self.config = config  # type: ignore[assignment]
        del self.encoder, self.source_embedding, self.norm

    def encode(self, source: models.Source) -> Tensor:
        return torch.zeros(1, source.shape[0], self.config.d_model, device=source.real.device)


def test_a_decoder_without_an_encoder_trains_and_generates(tmp_path: Path, register: Register) -> None:
    register("language-model", LanguageModelConfig, LanguageModel)
    train_small(tmp_path, "language-model")
    outputs = transduce.load(tmp_path / "run", device="cpu").translate(["a b c", "f"], beam=1)
    assert outputs[0] == outputs[1]  # it never saw the source


def test_sources_of_no_tokens_are_a_batch() -> None:
    empty = Tokens.padded([[], []], pad=7)
    assert empty.shape == (2, 0)
    assert empty.doubled().shape == (4, 0)


# --- frames as source ----------------------------------------------------------------------------------------------

FRAME, PAD = 5, 11


@dataclass(frozen=True, kw_only=True)
class SpeechConfig(ModelConfig):
    pass


class Speech(Recurrent):
    """Reads vectors instead of ids."""

    def __init__(self, config: SpeechConfig, source_size: int, target_size: int) -> None:
        super().__init__(RecurrentConfig(d_model=config.d_model), 2, target_size)
        self.config = config  # type: ignore[assignment]
        self.front = nn.Linear(source_size, config.d_model)
        del self.source_embedding, self.norm

    def encode(self, source: models.Source) -> Tensor:
        assert isinstance(source, Frames)
        last: Tensor = self.encoder(self.front(source.values))[1]
        return last


class Recordings:
    """Frames and the ids they stand for, as batches are made from."""

    def __init__(self, count: int) -> None:
        draw = np.random.default_rng(0)
        self.targets_ = [[*draw.integers(3, PAD, draw.integers(1, 5)).tolist(), EOS] for _ in range(count)]
        sounds = draw.normal(size=(PAD, FRAME)).astype(np.float32)
        self.frames = [np.repeat(sounds[ids], 3, axis=0) for ids in self.targets_]
        self.source_lengths = np.array([len(frames) for frames in self.frames], np.int32)
        self.target_lengths = np.array([len(ids) for ids in self.targets_], np.int32)
        self.groups = (count,)

    def source(self, index: int) -> NDArray[np.float32]:
        return self.frames[index]

    def target(self, index: int) -> NDArray[np.int64]:
        return np.array(self.targets_[index])


def test_frames_train_by_the_same_update_and_are_searched_by_the_same_engine(register: Register) -> None:
    register("speech", SpeechConfig, Speech)
    torch.manual_seed(0)
    model = make_model(SpeechConfig(family="speech", d_model=32, dropout=0.0), FRAME, PAD + 1)
    train = TrainConfig(label_smoothing=0.0)
    update = PlainUpdate(model, make_optimizer(model, train), train, CPU)
    recordings: Pairs = Recordings(40)  # type: ignore[assignment]
    batching = Batching(tokens_per_batch=60, max_positions=400, seed=1)
    losses = []
    for epoch in range(12):
        for step in batching.plan(recordings, epoch):
            batches = [batching.make(recordings, numbers, PAD, PAD) for numbers in step]
            for batch in batches:
                update.add(batch, sum(one.tokens for one in batches))
            update.apply(0.02)
        losses.append(update.measured().cross_entropy)
    assert losses[-1] < 0.7 * losses[0]
    engine = TorchEngine(model, CPU, PAD, PAD, EOS)
    block = SearchBlock(Recordings(3).frames, [()] * 3)
    (found,) = engine.stream([block], SearchRequest(beam=2, max_extra=4))
    assert [len(best) for best in found] == [1, 1, 1]


# --- several processes ---------------------------------------------------------------------------------------------


class SharedUpdate(PlainUpdate):
    """Each process takes its share of a batch's rows; gradients are added over processes before they are applied."""

    def add(self, batch: Batch, tokens: int) -> None:
        share = batch.shares(torch.distributed.get_world_size())[torch.distributed.get_rank()]
        super().add(share, tokens)

    def apply(self, learning_rate: float) -> None:
        for parameter in self.model.parameters():
            torch.distributed.all_reduce(parameter.grad)
        super().apply(learning_rate)


def updated_by(kind: type[PlainUpdate]) -> dict[str, Tensor]:
    torch.set_num_threads(1)
    model, train = tiny_transformer(), TrainConfig(epsilon=1.0)  # so that what is zero but for rounding stays so
    update = kind(model, make_optimizer(model, train), train, CPU)
    for numbers in (np.arange(8), np.arange(8, 16)):
        batch = batch_of(numbers)
        update.add(batch, batch.tokens)
        update.apply(1.0)
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def work(rank: int, port: int, path: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    weights = updated_by(SharedUpdate)
    torch.distributed.destroy_process_group()
    np.savez(f"{path}/{rank}.npz", **{name: tensor.numpy() for name, tensor in weights.items()})


@pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch was built without torch.distributed")
def test_several_processes_share_a_step_by_another_update(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=work, args=(rank, port, str(tmp_path))) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(240)
        assert process.exitcode == 0
    alone = updated_by(PlainUpdate)
    for rank in range(2):
        shared = np.load(tmp_path / f"{rank}.npz")
        for name, tensor in alone.items():
            np.testing.assert_allclose(shared[name], tensor.numpy(), rtol=2e-4, atol=2e-6)


# --- what serves Transformers only ---------------------------------------------------------------------------------


def test_what_serves_transformers_only_refuses_other_families(tmp_path: Path, register: Register) -> None:
    register("recurrent", RecurrentConfig, Recurrent)
    train_small(tmp_path, "recurrent")
    with pytest.raises(SettingError, match=r"model\.family = recurrent: this model has no attention"):
        transduce.load(tmp_path / "run", engine="torch", device="cpu").attention("a b")
    with pytest.raises(SettingError, match="only Transformers and language models can be exported"):
        transduce.export(tmp_path / "run", tmp_path / "exported", "hf", quiet=True)
    with pytest.raises(SettingError, match=r"model\.family = recurrent"):
        transduce.load(tmp_path / "run", engine="ct2", device="cpu").translate(["a b"])


def test_a_transformer_is_one_family_among_others() -> None:
    assert isinstance(make_model(build({"model": {"d_model": 16, "num_heads": 2}}).model, 20, 20), Transformer)
