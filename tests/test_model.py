"""The model against torch.nn with copied weights, and the invariants that catch nearly everything."""

import dataclasses
import math

import pytest
import torch
from torch import nn

from transduce.config import PRESETS, TransformerConfig
from transduce.errors import DataError
from transduce.model import Tokens, Transformer, watch
from transduce.model.attention import KeysValues, MultiHeadAttention, attention_weights
from transduce.model.dropout import Dropout
from transduce.model.layers import DecoderLayer, EncoderLayer, make_norm
from transduce.model.positions import Positions, rotate, sinusoids
from transduce.model.tokens import keep_earlier, keep_same_sentence, keep_source

pytestmark = pytest.mark.numerics

TINY = TransformerConfig(d_model=32, d_ff=64, num_heads=4, num_encoder_layers=2, num_decoder_layers=2, dropout=0.0)
SIZE = 40
PAD = SIZE - 1

VARIANTS = {
    "paper": TINY,
    "pre": dataclasses.replace(TINY, norm="pre"),
    "rms": dataclasses.replace(TINY, norm_kind="rms"),
    "batch": dataclasses.replace(TINY, norm_kind="batch"),
    "batch, pre": dataclasses.replace(TINY, norm_kind="batch", norm="pre"),
    "unscaled": dataclasses.replace(TINY, attention="dot"),
    "additive": dataclasses.replace(TINY, attention="additive"),
    "window": dataclasses.replace(TINY, window=1),
    "learned": dataclasses.replace(TINY, positions="learned"),
    "rotary": dataclasses.replace(TINY, positions="rotary"),
    "Marian's sinusoids": dataclasses.replace(TINY, positions="marian"),
    "no positions": dataclasses.replace(TINY, positions="none"),
    "gelu": dataclasses.replace(TINY, activation="gelu"),
    "swish": dataclasses.replace(TINY, activation="swish"),
    "swiglu": dataclasses.replace(TINY, activation="swiglu"),
    "output bias": dataclasses.replace(TINY, output_bias=True),
    "target tied": dataclasses.replace(TINY, tie="target"),
    "untied": dataclasses.replace(TINY, tie="none"),
    "d_k and d_v": dataclasses.replace(TINY, d_k=6, d_v=10),
    "depths": dataclasses.replace(TINY, num_encoder_layers=3, num_decoder_layers=1),
}


@pytest.fixture(params=VARIANTS, ids=str)
def model(request: pytest.FixtureRequest) -> Transformer:
    return make(VARIANTS[request.param])


def make(config: TransformerConfig = TINY) -> Transformer:
    torch.manual_seed(1)
    model = Transformer(config, SIZE, SIZE).eval()
    with torch.no_grad():  # biases and norms away from their neutral starting values
        for name, parameter in model.named_parameters():
            if "embedding" not in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
        if config.norm_kind == "batch":
            learn_statistics(model)
    return model


def learn_statistics(model: Transformer) -> None:
    """Running statistics near those of the sentences below, as after training."""
    model.train()
    for seed in range(20):
        source, target = Tokens.padded(sentences(9, 7, seed=seed), PAD), Tokens.padded(sentences(8, 8, seed=seed), PAD)
        model.decode(target, model.encode(source))
    model.eval()


def sentences(*lengths: int, seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(2, PAD, (n,), generator=generator).tolist() for n in lengths]


def decoder_inputs(targets: list[list[int]]) -> list[list[int]]:
    return [[PAD, *target[:-1]] for target in targets]


def logits(model: Transformer, source: Tokens, target: Tokens) -> torch.Tensor:
    with torch.no_grad():
        return model.project(model.decode(target, model.encode(source)))


# --- oracles: torch.nn with copied weights ---------------------------------------------------------------------


def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    theirs.in_proj_weight.data.copy_(ours.stacked.weight)
    theirs.in_proj_bias.data.copy_(ours.stacked.bias)
    theirs.out_proj.load_state_dict(ours.output.state_dict())


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_encoder_layer_is_torchs(norm: str) -> None:
    config = dataclasses.replace(TINY, norm=norm)  # type: ignore[arg-type]
    ours = make(config).encoder[0]
    theirs = nn.TransformerEncoderLayer(32, 4, 64, 0.0, "relu", batch_first=True, norm_first=norm == "pre").eval()
    copy_attention(ours.attention, theirs.self_attn)
    theirs.linear1.load_state_dict(ours.feed_forward.inner.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.outer.state_dict())
    theirs.norm1.load_state_dict(ours.attention_residual.norm.state_dict())
    theirs.norm2.load_state_dict(ours.feed_forward_residual.norm.state_dict())
    tokens = Tokens.padded(sentences(7, 3, 5), PAD)
    x = torch.randn(3, 7, 32)
    expected = theirs(x, src_key_padding_mask=~tokens.real)
    found = ours(x, tokens.position, keep_same_sentence(tokens.segment))
    torch.testing.assert_close(found[tokens.real], expected[tokens.real], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_decoder_layer_is_torchs(norm: str) -> None:
    config = dataclasses.replace(TINY, norm=norm)  # type: ignore[arg-type]
    ours: DecoderLayer = make(config).decoder[0]
    theirs = nn.TransformerDecoderLayer(32, 4, 64, 0.0, "relu", batch_first=True, norm_first=norm == "pre").eval()
    copy_attention(ours.attention, theirs.self_attn)
    copy_attention(ours.source_attention, theirs.multihead_attn)
    theirs.linear1.load_state_dict(ours.feed_forward.inner.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.outer.state_dict())
    theirs.norm1.load_state_dict(ours.attention_residual.norm.state_dict())
    theirs.norm2.load_state_dict(ours.source_attention_residual.norm.state_dict())
    theirs.norm3.load_state_dict(ours.feed_forward_residual.norm.state_dict())
    source, target = Tokens.padded(sentences(6, 4), PAD), Tokens.padded(sentences(5, 7, seed=1), PAD)
    memory, x = torch.randn(2, 6, 32), torch.randn(2, 7, 32)
    expected = theirs(
        x,
        memory,
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(7) != 0,
        tgt_key_padding_mask=~target.real,
        memory_key_padding_mask=~source.real,
    )
    found = ours(
        x,
        target.position,
        keep_earlier(target.segment),
        ours.source_attention.keys_values(memory),
        keep_source(target.segment, source.segment),
    )
    torch.testing.assert_close(found[target.real], expected[target.real], atol=1e-5, rtol=1e-5)


def test_attention_is_equation_1() -> None:
    """softmax(QK^T / sqrt(d_k)) V, written out with loops."""
    queries, keys, values = torch.randn(1, 1, 3, 4), torch.randn(1, 1, 5, 4), torch.randn(1, 1, 5, 6)
    config = dataclasses.replace(TINY, num_heads=1, d_k=4, d_v=6)
    attention = MultiHeadAttention(config)
    attention.output = nn.Identity()  # type: ignore[assignment]
    found = attention._attend(queries, KeysValues(keys, values), None)
    for q in range(3):
        weights = [math.exp(float(queries[0, 0, q] @ keys[0, 0, k]) / math.sqrt(4)) for k in range(5)]
        expected = sum(w / sum(weights) * values[0, 0, k] for k, w in enumerate(weights))
        torch.testing.assert_close(found[0, q], expected)


@pytest.mark.parametrize(("preset", "count"), [("base", 63_082_496), ("big", 214_245_376)])
def test_parameter_counts(preset: str, count: int) -> None:
    """At 37,000 ids, tied; the paper rounds to 65 M and 213 M."""
    with torch.device("meta"):
        model = Transformer(TransformerConfig(**PRESETS[preset]["model"]), 37_000, 37_000)
    assert sum(p.numel() for p in model.parameters()) == count


# --- the paper's details ---------------------------------------------------------------------------------------


def test_sinusoids_share_a_frequency() -> None:
    """Sine and cosine of a pair have the same frequency: their squares add up to 1 at every position."""
    table = sinusoids(torch.arange(200), 64)
    torch.testing.assert_close(table[:, 0::2] ** 2 + table[:, 1::2] ** 2, torch.ones(200, 32))
    for position, i in [(3, 0), (17, 5), (150, 31)]:
        angle = position / 10_000 ** (2 * i / 64)
        assert table[position, 2 * i] == pytest.approx(math.sin(angle), abs=1e-6)
        assert table[position, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-6)


@pytest.mark.parametrize(("kind", "slowest"), [("sinusoidal", 10_000 ** (30 / 32)), ("marian", 10_000)])
def test_the_slowest_sinusoid(kind: str, slowest: float) -> None:
    """Marian's frequencies go down to 1/10000 itself, the paper's stop one short; beyond the table too."""
    positions = Positions(dataclasses.replace(TINY, positions=kind))
    for position, longest in [(900, 1_000), (3_000, 4_000)]:
        found = positions(torch.zeros(1, 1, 32), torch.tensor([[position]]), longest)[0, 0]
        assert found[0] == pytest.approx(math.sin(position), abs=1e-5)
        assert found[-2] == pytest.approx(math.sin(position / slowest), abs=1e-6)
        assert found[-1] == pytest.approx(math.cos(position / slowest), abs=1e-6)


def test_moving_is_a_rotation_of_sinusoids() -> None:
    """Section 3.5: PE(pos + k) is a linear function of PE(pos), the same for every pos."""
    table = sinusoids(torch.arange(50), 16).double()
    near, far = table[:40], table[7:47]
    solution = torch.linalg.lstsq(near, far).solution
    torch.testing.assert_close(near @ solution, far, atol=1e-6, rtol=0)


def test_rotary_sees_distances_only() -> None:
    """The product of a rotated query and key depends on how far apart they stand, not on where."""
    q, k = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)

    def product(at: int, other: int) -> torch.Tensor:
        return (rotate(q, torch.tensor([[at]])) * rotate(k, torch.tensor([[other]]))).sum()

    torch.testing.assert_close(product(3, 1), product(13, 11), atol=1e-5, rtol=1e-5)
    assert not torch.isclose(product(3, 1), product(3, 2))


def test_embeddings_are_scaled_and_tied() -> None:
    model = make()
    assert model.source_embedding is model.target_embedding is model.output_embedding
    first = torch.tensor([[0]])
    embedded = model.eval().embed_target(torch.tensor([[5]]), first, longest=1)
    expected = model.target_embedding.weight[5] * 32**0.5 + sinusoids(first, 32)[0, 0]
    torch.testing.assert_close(embedded[0, 0], expected)


def test_norm_is_over_the_features_of_one_token() -> None:
    norm = make_norm(TINY)
    x = torch.randn(4, 6, 32)
    torch.testing.assert_close(norm(x)[2, 3], norm(x[2:3, 3:4])[0, 0])
    torch.testing.assert_close(norm(x).mean(-1), torch.zeros(4, 6), atol=1e-6, rtol=0)


def test_dropout_is_where_the_paper_puts_it() -> None:
    """On every sub-layer's output and on the sums of embeddings and positions, nowhere else."""
    model = Transformer(dataclasses.replace(TINY, dropout=0.5), SIZE, SIZE)
    active = [name for name, m in model.named_modules() if isinstance(m, nn.Dropout) and m.p > 0]
    residuals = [name for name in active if name.endswith("_residual.dropout")]
    assert sorted(active) == sorted([*residuals, "embedding_dropout"])
    assert len(residuals) == 2 * 2 + 2 * 3


@pytest.mark.parametrize("setting", ["dropout", "attention_dropout", "activation_dropout"])
def test_dropout_settings_act_in_training_only(setting: str) -> None:
    model = Transformer(dataclasses.replace(TINY, **{setting: 0.5}), SIZE, SIZE)
    source, target = Tokens.padded(sentences(6), PAD), Tokens.padded(decoder_inputs(sentences(6)), PAD)
    model.train()
    assert not torch.equal(logits(model, source, target), logits(model, source, target))
    model.eval()
    assert torch.equal(logits(model, source, target), logits(model, source, target))


def test_fast_dropout_is_dropout() -> None:
    """The share that is zeroed, and the mean that stays, are what torch's own has."""
    torch.manual_seed(0)
    x = torch.ones(1000, 1001)
    for rate in (0.1, 0.3, 0.5):
        found = Dropout(rate)(x)
        assert (found == 0).float().mean() == pytest.approx(rate, abs=0.003)
        assert found.mean() == pytest.approx(1.0, abs=0.005)
        assert found.max() == pytest.approx(1 / (1 - rate), rel=1e-3)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    torch.manual_seed(1)
    once = Dropout(0.5)(x)
    torch.manual_seed(1)
    assert torch.equal(once, Dropout(0.5)(x))


def test_pad_is_no_class_and_stays_zero(model: Transformer) -> None:
    source, target = Tokens.padded(sentences(6, 2), PAD), Tokens.padded(decoder_inputs(sentences(6, 3)), PAD)
    out = model.project(model.decode(target, model.encode(source)))
    assert out.shape[-1] == PAD
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    out.square().sum().backward()
    optimizer.step()
    for table in (model.source_embedding, model.target_embedding, model.output_embedding):
        assert table.weight[PAD].abs().sum() == 0
        assert table.weight[5].abs().sum() > 0


# --- invariants, for every variant -----------------------------------------------------------------------------


def test_cache_equals_all_at_once(model: Transformer) -> None:
    source = Tokens.padded(sentences(9, 4, 6), PAD)
    targets = decoder_inputs(sentences(8, 8, 8, seed=2))
    whole = logits(model, source, Tokens.padded(targets, PAD))
    with torch.no_grad():
        state = model.begin(model.encode(source))
        for place, column in enumerate(torch.tensor(targets).T):
            torch.testing.assert_close(model.step(column, state), whole[:, place], atol=1e-5, rtol=1e-5)


def test_cache_follows_selected_rows(model: Transformer) -> None:
    source = Tokens.padded(sentences(9, 4, 6), PAD)
    targets = torch.tensor(decoder_inputs(sentences(40, 40, 40, seed=3)))  # longer than the cache's first room
    rows = torch.tensor([2, 0, 0, 1])
    with torch.no_grad():
        state = model.begin(model.encode(source))
        for place in range(20):
            model.step(targets[:, place], state)
        state = state.select(rows)
        found = [model.step(targets[rows, place], state) for place in range(20, 40)]
    expected = logits(model, source, Tokens.padded(targets.tolist(), PAD))[rows, 20:]
    torch.testing.assert_close(torch.stack(found, 1), expected, atol=2e-5, rtol=1e-5)


def test_later_tokens_change_nothing_earlier(model: Transformer) -> None:
    source = Tokens.padded(sentences(5), PAD)
    one, other = decoder_inputs(sentences(8, seed=4)), decoder_inputs(sentences(8, seed=5))
    mixed = [one[0][:4] + other[0][4:]]
    a, b = (logits(model, source, Tokens.padded(t, PAD)) for t in (one, mixed))
    torch.testing.assert_close(a[:, :4], b[:, :4], atol=1e-6, rtol=1e-6)
    assert not torch.allclose(a[:, 4:], b[:, 4:])


def test_alone_padded_and_packed_are_the_same(model: Transformer) -> None:
    sources, targets = sentences(5, 9, 1, 3), decoder_inputs(sentences(7, 2, 1, 6, seed=6))
    alone = [
        logits(model, Tokens.padded([s], PAD), Tokens.padded([t], PAD))[0]
        for s, t in zip(sources, targets, strict=True)
    ]
    padded = logits(model, Tokens.padded(sources, PAD), Tokens.padded(targets, PAD))
    packed = logits(
        model,
        Tokens.packed([sources[:3], sources[3:]], PAD),
        Tokens.packed([targets[:3], targets[3:]], PAD),
    )
    places = [(0, 0), (0, 7), (0, 9), (1, 0)]
    for n, (row, begin) in enumerate(places):
        torch.testing.assert_close(padded[n, : len(targets[n])], alone[n], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(packed[row, begin : begin + len(targets[n])], alone[n], atol=1e-5, rtol=1e-5)
    assert padded.isfinite().all()
    assert packed.isfinite().all()


def test_padding_never_reaches_gradients(model: Transformer) -> None:
    """The gradient of real tokens' loss is the same whatever ids stand in the padding."""
    source, target = Tokens.padded(sentences(6, 2), PAD), Tokens.padded(decoder_inputs(sentences(5, 3)), PAD)

    def gradient(junk: int) -> list[torch.Tensor]:
        model.zero_grad()
        s, t = (Tokens(torch.where(x.real, x.ids, junk), x.position, x.segment) for x in (source, target))
        model.project(model.decode(t, model.encode(s)))[target.real].logsumexp(-1).sum().backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    for a, b in zip(gradient(PAD), gradient(7), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_watching_changes_nothing(model: Transformer) -> None:
    source, target = Tokens.padded(sentences(6, 4), PAD), Tokens.padded(decoder_inputs(sentences(5, 5)), PAD)
    unwatched = logits(model, source, target)
    with watch(model) as maps:
        watched = logits(model, source, target)
    assert torch.equal(unwatched, watched)
    assert torch.equal(unwatched, logits(model, source, target))
    assert [len(maps.encoder), len(maps.decoder), len(maps.cross)] == [
        model.config.num_encoder_layers,
        model.config.num_decoder_layers,
        model.config.num_decoder_layers,
    ]
    for weights in maps.cross:
        assert weights.shape == (2, 4, 5, 6)
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 5))
        assert (weights[1, :, :, 4:] == 0).all()  # the second source has 4 tokens
    for weights in maps.decoder:
        assert (weights.triu(1) == 0).all()


def test_the_taps_show_what_is_computed() -> None:
    """The weights a tap sees, times the values, are the attention's output."""
    layer: EncoderLayer = make().encoder[0]
    x, tokens = torch.randn(2, 5, 32), Tokens.padded(sentences(5, 3), PAD)
    keep = keep_same_sentence(tokens.segment)
    queries, keys, values = map(layer.attention._split, layer.attention.stacked(x).split(layer.attention.widths, -1))
    expected = layer.attention.output(
        (attention_weights(queries, keys, keep.mask) @ values).transpose(1, 2).flatten(-2)
    )
    torch.testing.assert_close(layer.attention.to_self(x, tokens.position, keep), expected, atol=1e-5, rtol=1e-5)


def test_learned_positions_end_somewhere() -> None:
    model = make(dataclasses.replace(TINY, positions="learned", max_positions=4))
    with pytest.raises(DataError, match=r"a row has 5 tokens, but the model learned only model.max_positions = 4"):
        model.encode(Tokens.padded(sentences(5), PAD))


def test_a_packed_row_may_be_wider_than_the_learned_positions() -> None:
    """What counts is the length of its sentences, not how many of them share the row."""
    model = make(dataclasses.replace(TINY, positions="learned", max_positions=4))
    packed = model.encode(Tokens.packed([sentences(4, 3)], PAD)).hidden[0]
    alone = model.encode(Tokens.padded(sentences(4, 3), PAD)).hidden
    torch.testing.assert_close(packed, torch.cat([alone[0], alone[1, :3]]), atol=1e-5, rtol=1e-5)
    with pytest.raises(DataError, match="a row has 5 tokens"):
        model.encode(Tokens.packed([sentences(3, 5)], PAD))


def test_sinusoids_go_on_beyond_the_table() -> None:
    """A sentence longer than the precomputed table has the positions it should have."""
    model = make(dataclasses.replace(TINY, num_encoder_layers=1))
    long = sentences(1030)
    hidden = model.encode(Tokens.padded(long, PAD)).hidden
    assert hidden.isfinite().all()
    table = model.source_positions
    position = torch.arange(1030)[None]
    found = table(torch.zeros(1, 1030, 32), position, 1030)
    torch.testing.assert_close(found[0, :1024], table.table)
