"""A GPU made ready while the data are read: what runs there, and that nothing of it stays."""

import threading
from typing import Any

import pytest
import torch

from transduce.config import Config, build
from transduce.device import Device
from transduce.model import Sequences, Tokens
from transduce.training import warm_up
from transduce.training.speed import Sentences, one_update

SMALL = {
    "model": {"d_model": 32, "d_ff": 64, "num_heads": 2},
    "data": {"vocabulary_size": 64},
    "train": {"device": "cpu"},
}


def test_one_update_is_a_whole_one(monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = []
    monkeypatch.setattr(torch.optim.Adam, "step", lambda self: stepped.append(self))
    config = build(SMALL)
    one_update(config.model, config.train, Sentences(64, 64, 128, 128), Device("cpu", bf16=False))
    (optimizer,) = stepped
    gradients = [parameter.grad for group in optimizer.param_groups for parameter in group["params"]]
    assert gradients
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)


def test_a_cpu_needs_none() -> None:
    before = threading.active_count()
    with warm_up.warming_up(build(SMALL)):
        assert threading.active_count() == before


def test_a_gpu_is_ready_at_the_end_and_a_failure_is_left_to_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training meets what is wrong by itself, and says it."""
    entered = threading.Event()

    def fails(*_: object) -> None:
        entered.wait()
        raise RuntimeError("no memory")

    monkeypatch.setattr(warm_up, "choose_device", lambda *_: Device("cuda", bf16=True))
    monkeypatch.setattr(warm_up, "one_update", fails)
    with warm_up.warming_up(build(SMALL)):
        running = [thread for thread in threading.enumerate() if thread.name == warm_up.NAME]
        assert len(running) == 1
        entered.set()
    assert not running[0].is_alive()


def updated_by(config: Config, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    """What a GPU would be given to update, before the device."""
    updated: list[tuple[Any, ...]] = []
    monkeypatch.setattr(warm_up, "choose_device", lambda *_: Device("cuda", bf16=True))
    monkeypatch.setattr(warm_up, "one_update", lambda *given: updated.append(given))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    with warm_up.warming_up(config):
        pass
    [(*given, _)] = updated
    return tuple(given)


def test_a_decoder_of_source_and_target_is_updated_with_rows_as_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    config = build(SMALL | {"model": {**SMALL["model"], "family": "prefix"}})
    model, train, sentences = updated_by(config, monkeypatch)
    assert (model.family, model.num_decoder_layers) == ("prefix", 1)
    batch = sentences.batch()
    assert batch.source.width + batch.target.width == 128  # the positions that the kernels cover
    one_update(model, train, sentences, Device("cpu", bf16=False))


TEXT = {
    "model": {"family": "decoder", "d_model": 32, "d_ff": 64, "num_heads": 2, "num_decoder_layers": 3, "context": 24},
    "data": {"task": "text", "vocabulary_size": 64},
    "train": {"device": "cpu"},
}


@pytest.mark.parametrize(("documents", "rows"), [("file", Sequences), ("line", Tokens)])
def test_a_language_model_is_updated_with_rows_as_in_training(
    documents: str, rows: type[Tokens], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = build(TEXT | {"data": TEXT["data"] | {"documents": documents}})  # type: ignore[operator]
    model, train, sentences = updated_by(config, monkeypatch)
    assert (model.family, model.num_decoder_layers, model.context) == ("decoder", 1, 24)
    batch = sentences.batch()
    assert type(batch.target) is rows
    assert batch.target.width == 24
    assert batch.source.width == 0
    one_update(model, train, sentences, Device("cpu", bf16=False))  # raises if the model cannot read such rows
