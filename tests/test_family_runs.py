"""Runs of every family through the public interface: what holds for Transformers holds for them."""

import json
from pathlib import Path

import pytest
import torch

import transduce
from tests.families import RUNS, write_pairs
from transduce.config import FAMILIES as SETTINGS_OF
from transduce.errors import SettingError
from transduce.explore.views import attention_view, translate_view, tree_view
from transduce.training.loop import Trainer

FAMILIES = list(RUNS)
LAYERS_THAT_ATTEND = {"rnn": 1, "gnmt": 1, "convs2s": 2, "mingru": 1}
SETTINGS = {
    "model.d_model": 16, "model.dropout": 0.1, "train.device": "cpu", "train.threads": 2, "train.tokens_per_batch": 200,
    "train.validate_lines": 2, "train.validate_every": 6, "train.checkpoint_every": 3, "train.average": 0,
    "search.max_extra": 3,
}  # fmt: skip


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_pairs(tmp_path_factory.mktemp("pairs"), 160)


def train(run: Path, family: str, pairs: str) -> None:
    settings = SETTINGS | {"model.family": family} | RUNS.get(family, {})
    transduce.train(run, train=pairs, steps=6, settings=settings, quiet=True)


@pytest.fixture(scope="module")
def runs(pairs: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    for family in (*FAMILIES, "transformer"):
        train(folder / family, family, pairs)
    return {family: folder / family for family in (*FAMILIES, "transformer")}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_translates_scores_and_is_evaluated(family: str, runs: dict[str, Path]) -> None:
    model = transduce.load(runs[family], device="cpu")
    texts = ["a b c", "d", "f e d c b a"]
    for options in ({"beam": 1}, {"beam": 3}):
        assert len(model.translate(texts, **options)) == 3
    assert len(model.sample(texts, n=2, seed=1)) == 3
    assert model.evaluate(texts, ["c b a", "d", "a b c d e f"]).sentences == 3
    assert model.score(["a b c"], ["c b a"])[0] < 0
    assert f"{SETTINGS_OF[family].title} of " in (runs[family] / "README.md").read_text()


@pytest.mark.parametrize("family", FAMILIES)
def test_families_translate_together(family: str, runs: dict[str, Path]) -> None:
    for other in ("transformer", "rnn"):
        together = transduce.load(runs[family], device="cpu", engine="torch", ensemble=[runs[other]])
        assert len(together.translate(["a b c"], beam=2)) == 1


@pytest.mark.parametrize("family", LAYERS_THAT_ATTEND)
def test_attention_to_the_source_is_shown(family: str, runs: dict[str, Path], tmp_path: Path) -> None:
    seen = transduce.attention(runs[family], "a b c", "c b a", output=tmp_path / "picture.png")
    assert len(seen.maps.cross) == LAYERS_THAT_ATTEND[family]
    for weights in seen.maps.cross:
        assert weights.shape[2:] == (4, 4)
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    assert (tmp_path / "picture.png").stat().st_size > 1_000
    view = attention_view(transduce.load(runs[family], device="cpu", engine="torch"), "a b c")
    assert len(view["maps"]["cross"]) == LAYERS_THAT_ATTEND[family]
    assert (view["maps"]["encoder"], view["masks"]["encoder"]) == ([], [])
    assert view["can_switch_off"] == (family == "mingru")
    json.dumps(view)


def test_attention_of_a_decoder_alone_is_divided_between_source_and_target(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    """A target position has one softmax over both; source tokens see those before them."""
    maps = transduce.attention(runs["prefix"], "a b c", "c b a", output=tmp_path / "picture.png").maps
    assert [len(layers) for layers in (maps.encoder, maps.decoder, maps.cross)] == [2, 2, 2]
    for within, to_source in zip(maps.decoder, maps.cross, strict=True):
        assert within.shape == to_source.shape == (1, 2, 4, 4)
        torch.testing.assert_close(within.sum(-1) + to_source.sum(-1), torch.ones(1, 2, 4))
    view = attention_view(transduce.load(runs["prefix"], device="cpu", engine="torch"), "a b", "b a")
    assert view["masks"]["encoder"] == view["masks"]["decoder"] == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert view["masks"]["cross"] == [[1, 1, 1]] * 3
    assert len({tuple(row) for row in [*view["positions"]["source"], *view["positions"]["target"]]}) == 6
    assert not view["can_switch_off"]


@pytest.mark.parametrize("family", ["rnn", "gnmt", "convs2s"])
def test_attention_without_heads_is_not_switched_off(family: str, runs: dict[str, Path]) -> None:
    with pytest.raises(SettingError, match="only heads of multi-head attention can be switched off"):
        attention_view(transduce.load(runs[family], device="cpu", engine="torch"), "a b", off=[["cross", 0, 0]])


def test_heads_of_a_family_that_has_some_are_switched_off(runs: dict[str, Path]) -> None:
    model = transduce.load(runs["mingru"], device="cpu", engine="torch")
    one, other = (attention_view(model, "a b", "b a", off=off) for off in ([], [["cross", 0, 0], ["cross", 0, 1]]))
    assert one["target"]["log_probabilities"] != other["target"]["log_probabilities"]


@pytest.mark.parametrize("family", ["ff", "seq2seq", "bytenet"])
def test_families_without_attention_refuse_to_show_it(family: str, runs: dict[str, Path]) -> None:
    with pytest.raises(SettingError, match=rf"^model\.family = {family}: this model has no attention$"):
        transduce.attention(runs[family], "a b c")
    model = transduce.load(runs[family], device="cpu", engine="torch")
    assert len(tree_view(model, "a b c", beam=2)["outputs"]) >= 1
    with pytest.raises(SettingError, match="no attention"):
        attention_view(model, "a b c")
    assert translate_view(model, "a b c", n_best=1)["outputs"]


@pytest.mark.parametrize("family", FAMILIES)
def test_exports_refuse_other_families(family: str, runs: dict[str, Path], tmp_path: Path) -> None:
    for to in ("hf", "ct2", "onnx"):
        with pytest.raises(SettingError, match=rf"model\.family = \"?{family}\b(?!.*try --to)"):
            transduce.export(runs[family], tmp_path / to, to, quiet=True)  # type: ignore[arg-type]


class Killed(BaseException):
    """Nothing catches it, so that nothing is saved."""


@pytest.mark.parametrize("family", FAMILIES)
def test_a_killed_run_ends_with_the_same_weights(
    family: str, runs: dict[str, Path], pairs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after step 4, one step after its checkpoint; on two threads and with dropout."""
    after = Trainer._after_step

    def die(trainer: Trainer) -> None:
        after(trainer)
        if trainer.progress.step == 4:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_after_step", die)
        with pytest.raises(Killed):
            train(tmp_path / "run", family, pairs)
    transduce.train(tmp_path / "run", quiet=True)
    assert (tmp_path / "run/last.safetensors").read_bytes() == (runs[family] / "last.safetensors").read_bytes()
