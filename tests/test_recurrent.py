"""The recurrent families: layers written out, the sizes of the published models, costs, and that they learn."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tests.families import MODELS, accuracy_after, make
from transduce.config import (
    PRESETS,
    Config,
    Counts,
    FeedForwardConfig,
    FitRequest,
    GnmtConfig,
    ModelConfig,
    RnnConfig,
    Seq2seqConfig,
    SideCounts,
    build,
    fit,
    from_toml,
    to_toml,
)
from transduce.model import Model, Tokens, make_model, parameter_shapes, training_flops
from transduce.model.additive import additive_scores
from transduce.model.checks import PAD, SIZE, SOURCES, TARGETS, logits, shifted
from transduce.model.recurrent.attention import SourceAttention
from transduce.model.recurrent.gnmt import Gnmt
from transduce.model.recurrent.layers import RecurrentLayer, pack_ids, reversed_rows

CONFIGS = {name: config for name, config in MODELS.items() if config.family in ("ff", "seq2seq", "rnn", "gnmt")}


@pytest.fixture(scope="module", params=CONFIGS)
def model(request: pytest.FixtureRequest) -> Model:
    return make(CONFIGS[request.param])


# --- sizes and costs ------------------------------------------------------------------------------------------------


def test_matrices_of_gates_are_stacked(model: Model) -> None:
    matrices = model.matrices()
    assert all(sum(heights) == matrix.shape[0] for matrix, heights in matrices.items())
    gates = {"lstm": 4, "gru": 3}.get(getattr(model.config, "cell", "lstm"), 1)
    assert any(len(heights) == gates for heights in matrices.values()) or model.config.family == "ff"


@torch.no_grad()
def test_operations_by_formula_are_the_counted_products(model: Model) -> None:
    """Counted one step at a time, where PyTorch sees each product; it sees nothing of whole layers."""
    sources, targets = [[3, 4, 5, 6, 0]] * 2, [[7, 8, 7, 8, 0]] * 2
    model = copy.deepcopy(model).double()  # oneDNN has layers in float32
    with FlopCounterMode(display=False) as counter:
        state = model.begin(model.encode(Tokens.padded(sources, PAD)))
        inputs = shifted(targets)
        for position in range(inputs.width):
            model.step(inputs.ids[:, position], state)
    assert training_flops(model.config, SIZE - 1, 10, 10, 5.0) == pytest.approx(3 * counter.get_total_flops(), rel=0.02)


# --- layers, by other means ----------------------------------------------------------------------------------------


def gru_loop(x: Tensor, rnn: nn.GRU, h: Tensor) -> list[Tensor]:
    """Cho et al. 2014, with PyTorch's order of gates: reset, update, new."""
    states, width = [], rnn.hidden_size
    for inputs in x:
        from_x, from_h = rnn.weight_ih_l0 @ inputs + rnn.bias_ih_l0, rnn.weight_hh_l0 @ h + rnn.bias_hh_l0
        r, z = (from_x + from_h)[: 2 * width].sigmoid().split(width)
        n = (from_x[2 * width :] + r * from_h[2 * width :]).tanh()
        h = (1 - z) * n + z * h
        states.append(h)
    return states


def lstm_loop(x: Tensor, rnn: nn.LSTM, h: Tensor) -> list[Tensor]:
    """Hochreiter and Schmidhuber 1997 with forget gates; PyTorch's order: input, forget, cell, output."""
    states, c = [], torch.zeros_like(h)
    for inputs in x:
        gates = rnn.weight_ih_l0 @ inputs + rnn.bias_ih_l0 + rnn.weight_hh_l0 @ h + rnn.bias_hh_l0
        i, f, g, o = gates.split(rnn.hidden_size)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        states.append(h)
    return states


@pytest.mark.parametrize(("cell", "loop"), [("gru", gru_loop), ("lstm", lstm_loop)])
@torch.no_grad()
def test_a_layer_is_its_equations(cell: str, loop: Any) -> None:
    torch.manual_seed(1)
    layer, x, h = RecurrentLayer(cell, 5, 4), torch.randn(1, 6, 5), torch.randn(1, 4)
    found = layer(x, (h, torch.zeros_like(h))[: 1 if cell == "gru" else 2])[0]
    torch.testing.assert_close(found, torch.stack(loop(x[0], layer.rnn, h[0])), atol=1e-6, rtol=1e-5)


def test_additive_scores_in_parts_are_those_of_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transduce.model.additive.ELEMENTS", {"cpu": 60})  # two positions at once
    torch.manual_seed(1)
    shapes = (2, 2, 5, 3), (2, 2, 4, 3), (2, 3, 1)
    queries, keys, vector = made = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    plain = (torch.tanh(queries[:, :, :, None] + keys[:, :, None]) @ vector[:, None])[..., 0]
    ours = additive_scores(queries, keys, vector)
    torch.testing.assert_close(ours, plain)
    above = torch.randn_like(plain)
    for one, other in zip(torch.autograd.grad(ours, made, above), torch.autograd.grad(plain, made, above), strict=True):
        torch.testing.assert_close(one, other)


def test_attention_is_a_mean_of_real_states() -> None:
    torch.manual_seed(1)
    attention, hidden = SourceAttention("additive", 4, 6, 5), torch.randn(2, 3, 6)
    seen: list[Tensor] = []
    attention.tap = seen.append
    keep = torch.tensor([[True, True, True], [True, False, False]])
    context = attention(torch.randn(2, 2, 4), attention.source(hidden, keep))
    (weights,) = seen
    assert weights.shape == (2, 1, 2, 3)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 1, 2))
    torch.testing.assert_close(context[1], hidden[1, :1].expand(2, 6))  # its only real state


def test_rows_are_reversed_in_place() -> None:
    found = reversed_rows(Tokens.padded(SOURCES, PAD))
    assert found.ids.tolist() == [[*row[::-1], *[PAD] * (7 - len(row))] for row in SOURCES]


@pytest.mark.parametrize("first", [2, 3])
@torch.no_grad()
def test_the_input_of_a_residual_layer_is_added(first: int) -> None:
    """With the second layers silent, only a residual connection lets anything through; of two directions, their sum."""
    config = GnmtConfig(
        family="gnmt", num_encoder_layers=2, num_decoder_layers=2, d_model=8, dropout=0.0, first_residual=first
    )
    model = make(config)
    assert isinstance(model, Gnmt)
    for layer in (model.encoder[1], model.decoder[1]):
        for parameter in layer.parameters():
            parameter.zero_()
    source = Tokens.padded(SOURCES[:1], PAD)
    lower = model.encoder[0].over_packed(pack_ids(source)._replace(data=model.source_embedding(source.ids[0])))[0].data
    inputs = shifted(TARGETS[:1])
    state = (torch.zeros(1, 8), torch.zeros(1, 8))
    states = model.decoder[0](model.target_embedding(inputs.ids), state)
    memory = model.encode(source)
    assert memory.source is not None
    torch.testing.assert_close(memory.source.values[0], (lower[:, :8] + lower[:, 8:]) * (first == 2))
    torch.testing.assert_close(model.decode(inputs, memory), states * (first == 2))


def test_a_stored_gnmt_without_the_setting_has_the_published_residuals() -> None:
    stored = to_toml(Config(model=CONFIGS["gnmt, 2 layers"]))
    assert "first_residual = 2" in stored
    older = build(from_toml(stored.replace("first_residual = 2\n", ""), "")).model
    assert isinstance(older, GnmtConfig)
    assert older.first_residual == 3


def test_a_gnmt_fitted_to_the_data_has_early_residuals_and_the_published_one_has_not() -> None:
    side = SideCounts(tokens_per_line=11, distinct_tokens=9_000, characters_per_line=60)
    recipes = {family: fit(Counts(29_000, side, side), FitRequest(family=family)).layer for family in ("rnn", "gnmt")}
    assert recipes["gnmt"]["model"]["first_residual"] == 2
    assert recipes["gnmt"]["train"]["learning_rate"] == recipes["rnn"]["train"]["learning_rate"] > 5e-3
    published = build(recipes["gnmt"], PRESETS["gnmt"])
    assert published.model == GnmtConfig(family="gnmt")
    assert (published.model.first_residual, published.train.learning_rate) == (3, 2e-3)


# --- published models ----------------------------------------------------------------------------------------------


def parameters(config: ModelConfig, source: int, target: int) -> int:
    return sum(shape.numel() for shape in parameter_shapes(config, source, target).values())


def test_rnnsearch_50_has_the_published_matrices() -> None:
    """Appendix A of Bahdanau et al. 2015: n = 1000, m = 620, n' = 1000, l = 500, 30,000 words a side."""
    n, m, l, words = 1000, 620, 500, 30_000  # noqa: E741 - the paper's names
    encoder = 2 * 3 * (n * m + n * n)
    alignment = n * n + n * 2 * n + n  # W_a, U_a, v_a
    initial = n * n  # W_s; here one for each of the two layers
    output = 2 * l * (n + 2 * n + m) + words * l  # U_o, C_o, V_o and W_o
    decoder = 3 * (n * m + n * n) + 3 * (n * 3 * n + n * n)  # the paper's single GRU: 3 (n m + n n + n 2n)
    matrices = 2 * words * m + encoder + alignment + 2 * initial + output + decoder
    biases = 2 * 2 * 3 * n + 2 * 2 * 3 * n + 2 * n + 2 * l + words - 1  # PyTorch's GRU has two; `<pad>` is not a class
    assert parameters(RnnConfig(family="rnn"), words, words) == matrices + biases


def test_gnmt_has_as_many_parameters_as_nvidias() -> None:
    """160,671,297, which NVIDIA's training prints for its vocabulary of 32,320 ids; here `<pad>` has no output bias."""
    d, ids = 1024, 32_320
    lstm = {inputs: 4 * d * (inputs * d + d) + 8 * d for inputs in (1, 2)}
    encoder = 2 * lstm[1] + lstm[2] + 2 * lstm[1]
    decoder = lstm[1] + 3 * lstm[2]
    attention = 2 * d * d + d + (1 + d)  # query, key and vector; the scale and the bias of the normalisation
    theirs = ids * d + (ids * d + ids) + encoder + decoder + attention
    assert theirs == 160_671_297
    assert parameters(GnmtConfig(family="gnmt"), ids, ids) == theirs - 1


def test_seq2seq_has_the_published_384_million_parameters() -> None:
    """Sutskever et al. 2014, section 3.4: 384 M parameters, of which 64 M are recurrent connections."""
    source, target = 160_000, 80_000
    config = Seq2seqConfig(family="seq2seq", output_bias=False)
    biases = 2 * 4 * 8 * 1000
    assert parameters(config, source, target) - biases == 384_000_000
    recurrent = {
        name: shape.numel() for name, shape in parameter_shapes(config, source, target).items() if "rnn.weight" in name
    }
    assert sum(recurrent.values()) == 64_000_000


# --- must learn ----------------------------------------------------------------------------------------------------


LEARNERS: dict[str, ModelConfig] = {
    "seq2seq": Seq2seqConfig(family="seq2seq", num_encoder_layers=1, num_decoder_layers=1, d_model=32),
    "rnn": RnnConfig(family="rnn", d_embedding=0, d_readout=0, d_model=32, dropout=0.0),
    "gnmt": GnmtConfig(family="gnmt", num_encoder_layers=2, num_decoder_layers=2, d_model=32, dropout=0.0),
}


@pytest.mark.parametrize("family", LEARNERS)
def test_a_short_word_is_learned_backwards(family: str) -> None:
    assert accuracy_after(LEARNERS[family], steps=60, rate=2e-2, reverse=True) > 0.9


@pytest.mark.parametrize("encoder", ["average", "separate"])
def test_the_order_of_the_source_is_nothing_to_a_feed_forward_network(encoder: str) -> None:
    torch.manual_seed(1)
    model = make_model(replace(CONFIGS["ff"], encoder=encoder), SIZE, SIZE).eval()  # type: ignore[call-arg]
    one, other = (logits(model, [source], TARGETS[:1]) for source in ([3, 4, 5, 0], [5, 0, 3, 4]))
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_a_feed_forward_network_learns_words_but_not_their_order() -> None:
    config = FeedForwardConfig(family="ff", d_model=32, d_ff=64, window=4, dropout=0.0)
    assert (
        0.4 < accuracy_after(config, steps=60, rate=1e-2, reverse=True) < 0.88
    )  # 0.79 is what a bag of words can know


def test_a_shape_is_refused_where_matrices_cannot_be_the_same() -> None:
    from transduce.config import check
    from transduce.errors import SettingError

    with pytest.raises(SettingError, match=r"embeddings of 620 values cannot be the output matrix, which has 500"):
        check(replace(Config(), model=RnnConfig(family="rnn", tie="target")))
