"""Statements of the paper that no other test pins, and readings of it that are wrong. `docs/paper.md` is the map."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import transduce.model.transformer
from transduce import checkpoint
from transduce.config import PRESETS, Config, Counts, SearchConfig, SideCounts, TransformerConfig, build, fit
from transduce.data import Corpus, learn_vocabularies, scan
from transduce.data.batches import Batching, make_batch, padding_share
from transduce.device import Device
from transduce.model import IGNORED, Tokens, Transformer, training_flops, watch
from transduce.model.attention import MultiHeadAttention, attention_weights
from transduce.model.layers import FeedForward, Residual, make_norm
from transduce.model.losses import smoothed_loss
from transduce.model.positions import sinusoids
from transduce.model.tokens import keep_same_sentence
from transduce.search import length_penalty
from transduce.text import EOS
from transduce.training.optimizer import make_optimizer
from transduce.training.schedule import make_schedule
from transduce.translator import SearchRequest
from transduce.translator.engine import SearchBlock
from transduce.translator.torch_engine import TorchEngine

pytestmark = pytest.mark.numerics

TINY = TransformerConfig(d_model=32, d_ff=64, num_heads=4, num_encoder_layers=2, num_decoder_layers=2, dropout=0.0)
SIZE = 40
PAD = SIZE - 1
CORPUS = Counts(pairs=4_500_000, source=SideCounts(25.0, 90_000, 130.0), target=SideCounts(24.0, 90_000, 140.0))

PAPER: dict[str, dict[str, dict[str, Any]]] = {
    "base": {
        "model": {"num_encoder_layers": 6, "num_decoder_layers": 6, "d_model": 512, "d_ff": 2048, "num_heads": 8}
        | {"key_width": 64, "value_width": 64, "dropout": 0.1},
        "train": {"steps": 100_000, "average": 5},
    },
    "big": {
        "model": {"num_encoder_layers": 6, "num_decoder_layers": 6, "d_model": 1024, "d_ff": 4096, "num_heads": 16}
        | {"key_width": 64, "value_width": 64, "dropout": 0.3},
        "train": {"steps": 300_000, "average": 20},
    },
}
IN_BOTH: dict[str, dict[str, Any]] = {
    "model": {"norm": "post", "norm_kind": "layer", "positions": "sinusoidal", "activation": "relu", "tie": "all"}
    | {"output_bias": False, "attention_dropout": 0.0, "activation_dropout": 0.0},
    "data": {"source_units": "bpe", "target_units": "bpe", "joint": True, "vocabulary_size": 37_000},
    "train": {"optimizer": "adam", "beta1": 0.9, "beta2": 0.98, "epsilon": 1e-9, "weight_decay": 0.0}
    | {"schedule": "inverse_sqrt", "warmup_steps": 4_000, "learning_rate": 0.0, "clip_norm": 0.0}
    | {"r_drop": 0.0}
    | {"label_smoothing": 0.1, "tokens_per_batch": 25_000, "epochs": 0.0, "minutes": 0.0, "ema": 0.0, "patience": 0},
    "search": {"beam": 4, "alpha": 0.6, "length_penalty": "paper", "max_extra": 50},
}
# Table 3: what each row changes in the base model, and its parameters in millions.
TABLE_3: dict[str, tuple[dict[str, int], int]] = {
    "base": ({}, 65),
    "A, 1 head": ({"num_heads": 1, "d_k": 512, "d_v": 512}, 65),
    "A, 4 heads": ({"num_heads": 4, "d_k": 128, "d_v": 128}, 65),
    "A, 16 heads": ({"num_heads": 16, "d_k": 32, "d_v": 32}, 65),
    "A, 32 heads": ({"num_heads": 32, "d_k": 16, "d_v": 16}, 65),
    "B, d_k 16": ({"d_k": 16}, 58),
    "B, d_k 32": ({"d_k": 32}, 60),
    "C, 2 layers": ({"num_encoder_layers": 2, "num_decoder_layers": 2}, 36),
    "C, 4 layers": ({"num_encoder_layers": 4, "num_decoder_layers": 4}, 50),
    "C, 8 layers": ({"num_encoder_layers": 8, "num_decoder_layers": 8}, 80),
    "C, d_model 256": ({"d_model": 256, "d_k": 32, "d_v": 32}, 28),
    "C, d_model 1024": ({"d_model": 1024, "d_k": 128, "d_v": 128}, 168),
    "C, d_ff 1024": ({"d_ff": 1024}, 53),
    "C, d_ff 4096": ({"d_ff": 4096}, 90),
}


def make(config: TransformerConfig = TINY) -> Transformer:
    torch.manual_seed(1)
    return Transformer(config, SIZE, SIZE).eval()


def predict(model: Transformer, source: list[int], target: list[int]) -> torch.Tensor:
    with torch.no_grad():
        memory = model.encode(Tokens.padded([source], PAD))
        return model.project(model.decode(Tokens.padded([target], PAD), memory))[0]


# --- the presets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["base", "big"])
def test_presets_are_the_papers(preset: str) -> None:
    """Whatever is fitted to the data beneath them (pre-norm, a linear schedule, clipping) does not show through."""
    config = build(fit(CORPUS).layer, PRESETS[preset])
    for expected in (PAPER[preset], IN_BOTH):
        for section, values in expected.items():
            for name, value in values.items():
                assert getattr(getattr(config, section), name) == value, f"{section}.{name}"


def test_defaults_of_the_page_are_the_base_preset() -> None:
    """`settings.py` alone is the paper's base model too: the preset changes nothing but units left to the data."""
    with_preset = build(PRESETS["base"])
    units = dataclasses.replace(with_preset.data, source_units="auto", target_units="auto")
    assert dataclasses.replace(with_preset, data=units) == Config()


def test_without_a_preset_the_recipe_is_not_the_papers() -> None:
    """The differences that `docs/paper.md` lists for runs fitted to their data."""
    config = build(fit(CORPUS).layer)
    assert (config.model.norm, config.train.schedule, config.train.clip_norm) == ("pre", "linear", 1.0)
    assert (config.search.length_penalty, config.search.alpha) == ("power", 1.0)


@pytest.mark.parametrize("preset", ["base", "big"])
def test_what_the_presets_leave_to_the_data(preset: str) -> None:
    """Of what is fitted, the preset overrules all but these."""
    left = {
        f"{section}.{name}"
        for section, values in fit(CORPUS).layer.items()
        for name in values.keys() - PRESETS[preset].get(section, {}).keys()
    }
    of_data = {"data.task", "data.normalization", "data.unknown", "data.identical"}
    assert left == of_data


@pytest.mark.parametrize("row", TABLE_3)
def test_every_row_of_table_3_is_a_setting(row: str) -> None:
    """Parameters rounded to millions are the paper's, if its vocabulary had 41,000 rows rather than 37,000."""
    changes, millions = TABLE_3[row]
    assert round(count_parameters(TransformerConfig(**changes), 41_000) / 1e6) == millions  # type: ignore[arg-type]


def test_no_vocabulary_gives_the_papers_base_and_big() -> None:
    """65 M and 213 M are not of one vocabulary, as we count: what fits base is too much for big."""

    def ids_for(preset: str, millions: float) -> float:
        config = TransformerConfig(**PRESETS[preset]["model"])
        without = count_parameters(config, 1_000) - 1_000 * config.d_model
        return (1e6 * millions - without) / config.d_model

    assert (ids_for("base", 64.5), ids_for("base", 65.5)) == pytest.approx((39_768, 41_721), abs=1)
    assert (ids_for("big", 212.5), ids_for("big", 213.5)) == pytest.approx((35_295, 36_272), abs=1)


def count_parameters(config: TransformerConfig, ids: int) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in Transformer(config, ids, ids).parameters())


def test_heads_share_the_width_and_cost_nothing() -> None:
    """Section 3.2.2: with d_k = d_model / h, more heads are not more parameters."""
    assert len({count_parameters(dataclasses.replace(TINY, num_heads=h), SIZE) for h in (1, 2, 4, 8)}) == 1


# --- section 3: the model --------------------------------------------------------------------------------------


def test_dot_products_have_variance_d_k() -> None:
    """Footnote 4 of the paper: the reason for dividing by sqrt(d_k)."""
    q, k = torch.randn(2, 20_000, 64, generator=torch.Generator().manual_seed(0))
    products = (q * k).sum(-1)
    assert products.mean().abs() < 0.3
    assert products.var() == pytest.approx(64, rel=0.05)


def test_scaling_is_by_the_heads_width_not_the_models() -> None:
    """With 4 heads of 8 in a d_model of 32, scores are divided by sqrt(8)."""
    layer = make().encoder[0]
    x = torch.randn(1, 5, 32)
    queries, keys, _ = map(layer.attention._split, layer.attention.stacked(x).split(layer.attention.widths, -1))
    found = attention_weights(queries, keys, None)
    torch.testing.assert_close(found, (queries @ keys.transpose(-1, -2) / math.sqrt(8)).softmax(-1))
    assert not torch.allclose(found, (queries @ keys.transpose(-1, -2) / math.sqrt(32)).softmax(-1), atol=1e-3)


def test_queries_come_from_the_decoder_and_keys_and_values_from_the_encoder() -> None:
    """Reordering the encoder's output changes nothing; reordering the decoder's input reorders the output."""
    attention = make().decoder[0].source_attention
    x, memory = torch.randn(1, 4, 32), torch.randn(1, 6, 32)
    order, reverse = torch.tensor([2, 0, 3, 1]), torch.arange(5, -1, -1)

    def attend(x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        return attention.to_memory(x, attention.keys_values(memory), None)

    assert attend(x, memory).shape == (1, 4, 32)  # as long as the target, not the source
    torch.testing.assert_close(attend(x, memory[:, reverse]), attend(x, memory))
    torch.testing.assert_close(attend(x[:, order], memory), attend(x, memory)[:, order])
    assert not torch.allclose(attend(x, memory), attend(x, memory + 1))


def test_without_the_sequence_mask_a_model_sees_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changing the last token changes earlier predictions, unless the mask is there: that is what it is for."""
    model, source = make(), [5, 6, 7]
    one, other = [PAD, 8, 9, 10], [PAD, 8, 9, 11]
    torch.testing.assert_close(predict(model, source, one)[:3], predict(model, source, other)[:3])
    monkeypatch.setattr(transduce.model.transformer, "keep_earlier", keep_same_sentence)
    assert not torch.allclose(predict(model, source, one)[:3], predict(model, source, other)[:3], atol=1e-3)


def test_the_decoders_input_is_its_target_moved_right() -> None:
    """Section 3.1: with outputs offset by one, place i is predicted from the outputs before i."""
    batch = make_batch(Sentences([[5, 6, EOS], [7, EOS]]), np.array([0, 1]), PAD, PAD)
    assert batch.target.ids.tolist() == [[PAD, 5, 6], [PAD, 7, PAD]]
    assert batch.labels.tolist() == [[5, 6, EOS], [7, EOS, IGNORED]]
    assert batch.target.real.tolist() == [[True, True, True], [True, True, False]]


def test_a_sublayer_is_dropped_before_it_is_added_and_normalised() -> None:
    """With everything dropped, what is left is LayerNorm(x) in the paper's order, and x in pre-norm."""
    x = torch.randn(2, 3, 32)
    post, pre = (Residual(dataclasses.replace(TINY, norm=norm)) for norm in ("post", "pre"))  # type: ignore[arg-type]
    post.dropout = pre.dropout = nn.Dropout(1.0)
    segment = torch.ones(x.shape[:2], dtype=torch.long)
    torch.testing.assert_close(post(x, segment, torch.exp), make_norm(TINY)(x))
    torch.testing.assert_close(pre(x, segment, torch.exp), x)


def test_the_norm_comes_after_the_addition() -> None:
    """Post-norm, the paper's text: what leaves a layer has mean 0 and variance 1; pre-norm needs a last norm."""
    tokens = Tokens.padded([[5, 6, 7, 8]], PAD)
    for norm in ("post", "pre"):
        model = make(dataclasses.replace(TINY, norm=norm))  # type: ignore[arg-type]
        x, keep = 3 * torch.randn(1, 4, 32), keep_same_sentence(tokens.segment)
        deviation = model.encoder[-1](x, tokens.position, keep).std(-1, correction=0)
        assert torch.allclose(deviation, torch.ones(1, 4), atol=1e-3) == (norm == "post")
        assert isinstance(model.encoder_norm, nn.Identity) == (norm == "post")


def test_the_feed_forward_network_is_the_same_at_every_place() -> None:
    """Section 3.3: each place by itself, with the parameters of its layer; another layer has others."""
    model, x, order = make(), torch.randn(1, 6, 32), torch.randperm(6)
    one, other = model.encoder[0].feed_forward, model.encoder[1].feed_forward
    torch.testing.assert_close(one(x[:, order]), one(x)[:, order])
    expected = torch.relu(x @ one.inner.weight.T + one.inner.bias) @ one.outer.weight.T + one.outer.bias
    torch.testing.assert_close(one(x), expected)
    assert isinstance(other, FeedForward)
    assert not torch.allclose(one(x), other(x))


def test_the_tied_projection_is_not_scaled() -> None:
    """Section 3.4 multiplies by sqrt(d_model) in the embedding layers; the projection is the matrix as it is."""
    model, hidden = make(), torch.randn(3, 32)
    torch.testing.assert_close(model.project(hidden), hidden @ model.target_embedding.weight[:PAD].T)


def test_wavelengths_run_from_2_pi_to_10000_times_2_pi() -> None:
    """Section 3.5: a geometric progression, the first pair of features the fastest."""
    first = sinusoids(torch.arange(2), 512)[1]
    frequencies = torch.atan2(first[0::2].double(), first[1::2].double())
    assert 2 * math.pi / float(frequencies[0]) == pytest.approx(2 * math.pi)
    assert float(frequencies[-1]) == pytest.approx(10_000 ** -(510 / 512), rel=1e-4)
    ratios = (frequencies[1:] / frequencies[:-1])[:200]
    torch.testing.assert_close(ratios, torch.full_like(ratios, 10_000 ** -(2 / 512)), atol=1e-4, rtol=0)


def test_the_exponent_of_the_cosine_is_not_its_own_index() -> None:
    """With 2i+1 in the exponent, sin^2 + cos^2 of a pair is not 1 and a shift is no rotation."""
    position, i = torch.arange(100)[:, None], torch.arange(0, 16, 2)
    sine, cosine = torch.sin(position / 10_000 ** (i / 16)), torch.cos(position / 10_000 ** ((i + 1) / 16))
    assert ((sine**2 + cosine**2) - 1).abs().max() > 0.5
    right = sinusoids(torch.arange(100), 16)
    assert ((right[:, 0::2] ** 2 + right[:, 1::2] ** 2) - 1).abs().max() < 1e-5


def test_attention_without_positions_knows_no_order() -> None:
    """Section 3.5: the model has no recurrence and no convolution, so order must be put in."""
    source, order = [5, 6, 7, 8, 9], torch.tensor([3, 0, 4, 1, 2])
    moved = [source[n] for n in order]
    bag, ordered = make(dataclasses.replace(TINY, positions="none")), make()
    for model, equal in ((bag, True), (ordered, False)):
        a, b = (model.encode(Tokens.padded([s], PAD)).hidden[0] for s in (source, moved))
        assert torch.allclose(a[order], b, atol=1e-5) == equal


# --- section 4: why self-attention -----------------------------------------------------------------------------


def sees(network: nn.Module, width: int = 27) -> torch.Tensor:
    """[output, input]: True where an output place depends on an input place."""
    x = torch.ones(1, 1, width, dtype=torch.float64, requires_grad=True)
    rows = [torch.autograd.grad(network(x)[0, 0, place], x)[0][0, 0] for place in range(width)]
    return torch.stack(rows) != 0


def convolutions(dilations: list[int], kernel: int = 3) -> nn.Module:
    """A stack in which every weight is 1, each output seeing `kernel` inputs up to its own place."""
    layers: list[nn.Module] = []
    for dilation in dilations:
        layer = nn.Conv1d(1, 1, kernel, dilation=dilation, bias=False, dtype=torch.float64)
        nn.init.ones_(layer.weight)
        layers += [nn.ConstantPad1d(((kernel - 1) * dilation, 0), 0.0), layer]
    return nn.Sequential(*layers)


def test_one_convolution_does_not_see_the_sequence_and_one_attention_does() -> None:
    """27 places, kernel 3: a stack of 13 contiguous layers, or of log_3(27) = 3 dilated ones, connects the ends."""
    assert sees(convolutions([1])).sum(1).max() == 3
    for dilations, connected in [([1] * 12, False), ([1] * 13, True), ([1, 3], False), ([1, 3, 9], True)]:
        assert bool(sees(convolutions(dilations))[-1, 0]) == connected
    attention = MultiHeadAttention(TINY).double()
    x = torch.randn(1, 27, 32, dtype=torch.float64, requires_grad=True)
    out = attention.to_self(x, torch.arange(27)[None], None)
    for place in range(27):
        seen = torch.autograd.grad(out[0, place].square().sum(), x, retain_graph=True)[0]
        assert (seen.abs().sum(-1) > 0).all()


# --- section 5: training ---------------------------------------------------------------------------------------


def test_the_schedule_is_equation_3() -> None:
    """Rises for 4,000 steps counted from 1, turns there, and falls as the inverse square root of the step."""
    schedule = make_schedule(build(PRESETS["base"]))
    for step in (1, 2, 1_000, 3_999, 4_000, 4_001, 16_000, 100_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4_000**-1.5)
        assert schedule(step, 100_000) == pytest.approx(expected, rel=1e-12)
    rates = [schedule(step, 100_000) for step in range(1, 8_001)]
    assert rates.index(max(rates)) + 1 == 4_000
    assert max(rates) == pytest.approx((512 * 4_000) ** -0.5)
    assert schedule(16_000, 100_000) == pytest.approx(max(rates) / 2)
    assert rates[0] == pytest.approx(max(rates) / 4_000)  # step 1, not step 0: the first update is not lost


def test_adam_has_the_papers_constants() -> None:
    optimizer = make_optimizer(make(), build(PRESETS["base"]).train)
    assert type(optimizer) is torch.optim.Adam
    assert {(g["betas"], g["eps"], g["weight_decay"]) for g in optimizer.param_groups} == {((0.9, 0.98), 1e-9, 0.0)}


def test_label_smoothing_is_its_formula() -> None:
    """Cross-entropy against 1 - e on the label plus e / V on each of the V classes, summed over real tokens."""
    logits, smoothing = torch.randn(2, 3, 7, dtype=torch.float64), 0.1
    labels = torch.tensor([[1, 6, 0], [4, IGNORED, IGNORED]])
    expected = 0.0
    for row, column in [(0, 0), (0, 1), (0, 2), (1, 0)]:
        target = [smoothing / 7 + (1 - smoothing) * (c == int(labels[row, column])) for c in range(7)]
        total = sum(math.exp(float(x)) for x in logits[row, column])
        log_probs = [float(x) - math.log(total) for x in logits[row, column]]
        divergence = sum(t * (math.log(t) - q) for t, q in zip(target, log_probs, strict=True))
        entropy = -sum(t * math.log(t) for t in target)
        expected += divergence + entropy  # KL(target || model) + a constant
    assert float(smoothed_loss(logits, labels, smoothing)) == pytest.approx(expected, rel=1e-5)


def test_label_smoothing_punishes_certainty() -> None:
    """Its best answer gives the label 1 - e + e / V: more doubt than the data have, hence a worse perplexity."""
    label, certain = torch.tensor([2]), torch.zeros(1, 10)
    certain[0, 2] = 30.0
    doubtful = torch.full((1, 10), math.log(0.01))
    doubtful[0, 2] = math.log(1 - 0.1 + 0.01)
    assert smoothed_loss(doubtful, label, 0.1) < smoothed_loss(certain, label, 0.1)
    assert smoothed_loss(doubtful, label, 0.0) > smoothed_loss(certain, label, 0.0)


class Sentences:
    """Pairs whose two sides are the same ids."""

    def __init__(self, rows: list[list[int]]) -> None:
        self.rows = rows
        self.source_lengths = self.target_lengths = np.array([len(row) for row in rows], np.int32)

    def source(self, index: int) -> np.ndarray:
        return np.array(self.rows[index])

    target = source

    def resampled(self, *_: object) -> "Sentences":
        return self


def test_batches_group_similar_lengths_under_a_token_budget() -> None:
    """Section 5.1: every pair once, about `tokens_per_batch` target tokens a step, little padding."""
    lengths = np.random.default_rng(0).integers(2, 60, 3_000)
    pairs = Sentences([[5] * int(n) for n in lengths])
    batching = Batching(tokens_per_batch=1_000, max_positions=500, seed=1)
    plan = batching.plan(pairs, epoch=0)
    batches = [batch for step in plan for batch in step]
    assert sorted(np.concatenate(batches)) == list(range(3_000))
    assert max(len(batch) * lengths[batch].max() for batch in batches) <= 500
    assert np.mean([sum(lengths[batch].sum() for batch in step) for step in plan]) == pytest.approx(1_000, rel=0.02)
    assert padding_share(batching, plan, pairs) < 0.03
    assert (
        padding_share(batching, [[np.arange(n, n + 16)] for n in range(0, 2_992, 16)], pairs) > 0.4
    )  # in the order given


def test_one_vocabulary_of_bpe_for_both_sides(tmp_path: Path) -> None:
    """Section 5.1: as the preset asks, learned from both sides together and used for both."""
    path = tmp_path / "pairs.tsv"
    path.write_text("the old house\tdas alte haus\n" * 50)
    settings = dataclasses.replace(build(PRESETS["base"]).data, vocabulary_size=320)
    both = learn_vocabularies(scan(Corpus(((str(path),),)), 100), settings, tmp_path / "cache")
    assert both.source is both.target
    pieces = set(both.source.pieces(range(both.source.size)))
    assert {"▁house", "▁haus"} <= pieces


# --- section 6: results ----------------------------------------------------------------------------------------


def test_averaging_is_the_mean(tmp_path: Path) -> None:
    """Section 6.1, through the files of checkpoints."""
    paths = [tmp_path / f"{n}.safetensors" for n in range(5)]
    tensors = torch.randn(5, 3, 4)
    for path, tensor in zip(paths, tensors, strict=True):
        checkpoint.write_tensors(path, {"w": tensor})
    torch.testing.assert_close(checkpoint.average(paths)["w"], tensors.mean(0))


def test_search_is_the_papers_by_default() -> None:
    expected = (4, 0.6, "paper", 50)
    for search in (SearchConfig(), SearchRequest(), SearchRequest.of(SearchConfig())):
        assert (search.beam, search.alpha, search.length_penalty, search.max_extra) == expected


@pytest.mark.parametrize(("length", "penalty"), [(1, 1.0), (7, 2**0.6), (13, 3**0.6)])
def test_the_length_penalty_is_its_formula(length: int, penalty: float) -> None:
    """((5 + n) / 6)^0.6: nothing at one token, 2^0.6 at seven."""
    assert length_penalty("paper", 0.6)(length) == pytest.approx(penalty)


@pytest.mark.parametrize("beam", [1, 4])
def test_the_output_limit_is_the_input_plus_50(beam: int) -> None:
    """A model that never ends is ended there: source and output both count their `</s>`."""
    model = make(dataclasses.replace(TINY, output_bias=True))
    with torch.no_grad():
        model.output_bias[EOS] = -100.0  # type: ignore[index]
    engine = TorchEngine(model, Device("cpu", bf16=False), PAD, PAD, EOS)
    found = next(engine.stream([SearchBlock([[5, 6, EOS], [5, EOS]], [[], []])], SearchRequest(beam=beam)))
    assert [len(one[0].tokens) + 1 for one in found] == [3 + 50, 2 + 50]


def test_the_cost_is_what_torch_counts() -> None:
    """The matrix products of a training step, forward and backward, by torch's own counter."""
    config = dataclasses.replace(TINY, num_decoder_layers=3, d_k=6, d_v=10)
    model = Transformer(config, SIZE, SIZE)
    tokens = Tokens.padded([[5] * 10] * 3, PAD)
    with FlopCounterMode(display=False) as counter:
        model.project(model.decode(tokens, model.encode(tokens))).sum().backward()
    counts = {str(operation): flops for operation, flops in counter.get_flop_counts()["Global"].items()}
    products = counts["aten.mm"] + counts["aten.addmm"]
    assert products == training_flops(config, PAD, 30, 30, mean_length=0.0)


def test_the_cost_of_attention_is_what_torch_counts() -> None:
    """Q K^T and the product with V in every head of 2 + 2 * 3 attentions; backward is twice as much again."""
    config = dataclasses.replace(TINY, num_decoder_layers=3, d_k=6, d_v=10)
    queries, keys, values = torch.randn(3, 4, 10, 6), torch.randn(3, 4, 10, 6), torch.randn(3, 4, 10, 10)
    with FlopCounterMode(display=False) as counter:
        attention_weights(queries, keys, None) @ values
    with_attention = training_flops(config, PAD, 30, 30, mean_length=10.0)
    without = training_flops(config, PAD, 30, 30, mean_length=0.0)
    assert with_attention - without == 3 * (2 + 2 * 3) * counter.get_total_flops()


def test_table_2_is_time_times_capacity() -> None:
    """The paper's 3.3e18 is 12 hours of eight P100 at 9.5 TFLOPS; the products themselves are 3.5 times fewer."""
    capacity = 8 * 9.5e12
    assert (12 * 3600 * capacity, 3.5 * 86_400 * capacity) == pytest.approx((3.3e18, 2.3e19), rel=0.01)
    tokens = 100_000 * 25_000
    counted = training_flops(build(PRESETS["base"]).model, 36_999, tokens, tokens, mean_length=30.0)
    assert 3.3e18 / counted == pytest.approx(3.5, abs=0.05)


def test_attention_can_be_seen_in_every_layer_and_head() -> None:
    """The appendix's pictures: weights of all three uses, each row summing to 1."""
    model = make()
    with watch(model) as maps:
        predict(model, [5, 6, 7], [PAD, 8])
    shapes = [tuple(weights.shape) for part in (maps.encoder, maps.decoder, maps.cross) for weights in part]
    assert shapes == [(1, 4, 3, 3)] * 2 + [(1, 4, 2, 2)] * 2 + [(1, 4, 2, 3)] * 2
