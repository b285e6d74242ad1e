"""The speech family: CTC against torch's, its prefixes against brute force, and what padding and caches must not change."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import ctc_loss as torch_ctc_loss
from torch.nn.functional import pad

from transduce.audio.features import BINS
from transduce.config import SpeechConfig, build
from transduce.device import Device
from transduce.errors import SettingError
from transduce.model import Ensemble, Frames, Tokens, make_model
from transduce.model.losses import IGNORED
from transduce.model.speech import SpeechModel, speech_model
from transduce.model.speech.ctc import ctc_loss
from transduce.model.speech.prefixes import Prefixes
from transduce.model.tokens import keep_same_sentence, keep_whole_row
from transduce.model.transformer import Memory
from transduce.text import EOS
from transduce.translator.engine import SearchBlock, SearchRequest
from transduce.translator.torch_engine import TorchEngine

PAD = 7


def tiny(**changes: object) -> SpeechModel:
    torch.manual_seed(0)
    shape = {
        "d_model": 16,
        "d_ff": 32,
        "num_heads": 2,
        "num_encoder_layers": 2,
        "num_decoder_layers": 1,
        "dropout": 0.0,
    }
    model = make_model(SpeechConfig(family="speech", **(shape | changes)), BINS, PAD + 1)  # type: ignore[arg-type]
    assert isinstance(model, SpeechModel)
    return model.eval()


def sounds(*lengths: int) -> list[np.ndarray]:
    draw = np.random.default_rng(1)
    return [draw.normal(size=(length, BINS)).astype(np.float32) for length in lengths]


# --- CTC ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows of different lengths: repeated labels, no labels, one frame, and more labels than frames."""
    torch.manual_seed(3)
    log_probs = torch.randn(6, 9, 5).log_softmax(-1)
    labels = torch.tensor([[0, 1, 2], [2, 2, 2], [1, 3, 0], [0, 0, 0], [3, 3, 1], [1, 2, 3]])
    return log_probs, torch.tensor([9, 9, 7, 4, 1, 2]), labels, torch.tensor([3, 3, 2, 0, 1, 3])


def test_the_loss_is_that_of_torch(batch: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    log_probs, frames, labels, counts = batch
    ours = ctc_loss(log_probs, frames, labels, counts, 4)
    options = {"blank": 4, "reduction": "none", "zero_infinity": True}
    torchs = torch_ctc_loss(log_probs.transpose(0, 1), labels, frames, counts, **options)  # type: ignore[arg-type]
    torch.testing.assert_close(ours, torchs)
    assert float(ours[5]) == 0.0  # three labels do not fit into two frames


def test_the_gradient_is_that_of_torch(batch: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    _, frames, labels, counts = batch
    torch.manual_seed(4)
    one = torch.randn(6, 9, 5, requires_grad=True)
    other = one.detach().clone().requires_grad_()
    weights = torch.arange(1.0, 7.0)
    (ctc_loss(one.log_softmax(-1), frames, labels, counts, 4) * weights).sum().backward()
    options = {"blank": 4, "reduction": "none", "zero_infinity": True}
    of_torch = torch_ctc_loss(other.log_softmax(-1).transpose(0, 1), labels, frames, counts, **options)  # type: ignore[arg-type]
    (of_torch * weights).sum().backward()
    torch.testing.assert_close(one.grad, other.grad, atol=1e-5, rtol=1e-4)
    assert one.grad is not None
    assert float(one.grad[5].abs().sum()) == 0.0


# --- prefixes ----------------------------------------------------------------------------------------------------


def spelt(path: tuple[int, ...], blank: int) -> tuple[int, ...]:
    """What an alignment says: repeated labels merged, blanks removed."""
    return tuple(p for n, p in enumerate(path) if p != blank and (n == 0 or path[n - 1] != p))


@pytest.mark.parametrize("prefix", [(), (1,), (2, 1), (1, 1), (2, 2, 1)])
def test_prefix_probabilities_are_sums_over_all_alignments(prefix: tuple[int, ...]) -> None:
    torch.manual_seed(5)
    frames, blank = 5, 3
    log_probs = torch.randn(2, frames + 2, 4).double().log_softmax(-1)  # class 0 is the end, which no frame says here
    log_probs[..., 0] = -1e30
    log_probs = log_probs.log_softmax(-1)
    found = Prefixes.at_start(log_probs, torch.tensor([frames, frames]), end=EOS)
    for label in prefix:
        found = found.extended(torch.tensor([label, label]), EOS)
    texts: dict[tuple[int, ...], float] = {}
    for path in product(range(1, 4), repeat=frames):
        p = float(sum(log_probs[0, t, c] for t, c in enumerate(path)).exp())  # type: ignore[union-attr]
        texts[spelt(path, blank)] = texts.get(spelt(path, blank), 0.0) + p
    for label in (1, 2):
        wanted = sum(p for text, p in texts.items() if text[: len(prefix) + 1] == (*prefix, label))
        np.testing.assert_allclose(float(found.scores[0, label].exp()), wanted, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(float(found.scores[0, EOS].exp()), texts.get(prefix, 0.0), rtol=1e-6, atol=1e-12)


SELECTIONS = {
    "beams": [0, 0, 0, 1, 1, 1, 2, 2, 2],
    "beams that change places": [2, 0, 1, 3, 3, 5, 8, 7, 6],
    "a sentence that is done": [0, 1, 2, 6, 8, 6],
    "sentences in another order": [4, 3, 1, 2],
    "unequal numbers": [0, 1, 3],
    "nothing": [],
}


def test_prefixes_of_a_batch_are_those_of_each_alone() -> None:
    torch.manual_seed(6)
    log_probs, frames = torch.randn(3, 12, 6).log_softmax(-1), torch.tensor([12, 7, 9])
    found, path = Prefixes.at_start(log_probs, frames, EOS), [(n, ()) for n in range(3)]
    for rows in SELECTIONS.values():
        labels = torch.randint(1, 5, (len(rows),))
        found = found.select(torch.tensor(rows, dtype=torch.long)).extended(labels, EOS)
        path = [(path[row][0], (*path[row][1], int(label))) for row, label in zip(rows, labels, strict=True)]
        for row, (sentence, spelling) in enumerate(path):
            alone = Prefixes.at_start(log_probs[sentence : sentence + 1], frames[sentence : sentence + 1], EOS)
            for label in spelling:
                alone = alone.extended(torch.tensor([label]), EOS)
            torch.testing.assert_close(found.scores[row], alone.scores[0], rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("prefix", [(), (1,), (1, 1), (2, 1, 2)])
def test_scores_are_sums_of_logarithms_even_where_a_class_is_hardly_possible(prefix: tuple[int, ...]) -> None:
    """Classes that are e^300 times less probable than others keep their scores, and impossible ones stay finite."""
    torch.manual_seed(7)
    logits = torch.randn(1, 40, 6).double()
    logits[..., 3], logits[..., 4] = -300.0, -1e30
    log_probs = logits.log_softmax(-1)
    found = Prefixes.at_start(log_probs, torch.tensor([40]), EOS)
    for label in prefix:
        found = found.extended(torch.tensor([label]), EOS)
    ended = torch.logaddexp(found.in_label, found.in_blank)[0]
    started = torch.cat([torch.tensor([-1e30 if prefix else 0.0]), ended[:-1]])
    for label in (3, 4):
        wanted = (started + log_probs[0, :, label]).logsumexp(0)
        torch.testing.assert_close(found.scores[0, label], wanted, rtol=1e-12, atol=0.0)
    assert bool(found.extended(torch.tensor([4]), EOS).scores.isfinite().all())


# --- the model ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{"convolution": 0}, {"convolution": 3}, {"convolution": 3, "positions": "rotary"}])
def test_padding_is_invisible(changes: dict[str, object]) -> None:
    model, (short, long) = tiny(**changes), sounds(21, 40)
    alone, together = model.encode(Frames.padded([short])), model.encode(Frames.padded([short, long]))
    assert alone.hidden.shape[1] == 6  # a quarter, rounded up
    torch.testing.assert_close(together.hidden[0, :6], alone.hidden[0], atol=1e-5, rtol=1e-4)
    assert together.segment[0].tolist() == [1] * 6 + [0] * 4


def test_the_mask_of_whole_rows_is_that_of_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    model, source = tiny(convolution=0), Frames.padded(sounds(21, 40, 33))
    memory = model.encode(source)
    monkeypatch.setattr(speech_model, "keep_whole_row", keep_same_sentence)
    by_segment = model.encode(source)
    assert keep_whole_row(memory.segment).mask.numel() == memory.segment.numel()
    assert bool(
        keep_whole_row(torch.zeros_like(memory.segment)).mask.all()
    )  # a row of padding has keys, so that it is no NaN
    real = memory.segment != 0
    torch.testing.assert_close(memory.hidden[real], by_segment.hidden[real], atol=1e-6, rtol=1e-5)


def test_the_source_is_copied_only_if_sentences_leave() -> None:
    """Whatever rows are selected, each continues as the same prefix alone does."""
    model = tiny(ctc_search=0.0)
    memory = model.encode(Frames.padded(sounds(30, 44, 37)))
    state, tokens = model.begin(memory), [[PAD] for _ in range(3)]
    sentences, copied = list(range(3)), []
    for rows in SELECTIONS.values():
        chosen = torch.tensor(rows, dtype=torch.long)
        before, state = state.decoder.source[0].keys, state.select(chosen)
        copied.append(state.decoder.source[0].keys is not before)
        sentences, tokens = [sentences[row] for row in rows], [tokens[row] for row in rows]
        found = model.step(torch.tensor([ids[-1] for ids in tokens], dtype=torch.long), state)
        for row, (sentence, ids) in enumerate(zip(sentences, tokens, strict=True)):
            one = Memory(memory.hidden[sentence][None], memory.segment[sentence][None])
            at_once = model.project(model.decode(Tokens.of_lengths(torch.tensor([ids]), torch.tensor([len(ids)])), one))
            torch.testing.assert_close(found[row], at_once[0, -1], atol=1e-5, rtol=1e-4)
        tokens = [[*ids, 3 + row % 3] for row, ids in enumerate(tokens)]
    assert copied == [True, False, True, True, True, True]


@pytest.mark.parametrize("ctc_search", [0.0, 0.4])
def test_token_by_token_is_all_at_once(ctc_search: float) -> None:
    model, source = tiny(ctc_search=ctc_search), Frames.padded(sounds(30, 44))
    ids = torch.tensor([[PAD, 3, 4, 4], [PAD, 5, 3, 6]])
    memory = model.encode(source)
    at_once = model.project(model.decode(Tokens.of_lengths(ids, torch.tensor([4, 4])), memory)).log_softmax(-1)
    state = model.begin(memory)
    for column in range(4):
        found = model.step(ids[:, column], state).log_softmax(-1)
        if not ctc_search:
            torch.testing.assert_close(found, at_once[:, column], atol=1e-5, rtol=1e-4)
        else:  # normalising has changed nothing: the share of `<pad>` is what is missing
            torch.testing.assert_close(found.exp().sum(-1), torch.ones(2))
            assert bool((found[:, :PAD].exp().sum(-1) < 1 + 1e-5).all())


def test_the_loss_adds_ctc_to_that_of_the_decoder() -> None:
    source = Frames.padded(sounds(30, 44))
    labels = torch.tensor([[3, 4, EOS], [5, EOS, IGNORED]])
    target = Tokens.of_lengths(torch.tensor([[PAD, 3, 4], [PAD, 5, PAD]]), torch.tensor([3, 2]))
    with_ctc, without = tiny(ctc_weight=0.4, ctc_search=0.0), tiny(ctc_weight=0.0, ctc_search=0.0)
    without.load_state_dict({k: v for k, v in with_ctc.state_dict().items() if not k.startswith("ctc.")})
    one, other = with_ctc.loss(source, target, labels, 0.1), without.loss(source, target, labels, 0.1)
    memory = with_ctc.encode(source)
    log_probs = with_ctc.ctc_log_probs(memory).transpose(0, 1)
    ctc = torch_ctc_loss(
        log_probs, torch.tensor([3, 4, 5]), torch.tensor([8, 11]), torch.tensor([2, 1]), PAD, reduction="sum"
    )
    torch.testing.assert_close(one.minimised, 0.6 * other.minimised + 0.4 * ctc, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(one.cross_entropy, other.cross_entropy)


def test_the_engine_searches_with_both() -> None:
    engine = TorchEngine(tiny(ctc_search=0.5), Device("cpu", bf16=False), PAD, PAD, EOS)
    block = SearchBlock(sounds(30, 44, 52), [()] * 3)  # type: ignore[arg-type]
    (found,) = engine.stream([block], SearchRequest(beam=3, n_best=2, max_extra=0))
    assert all(PAD not in one.tokens for best in found for one in best)
    (alone,) = engine.stream([block.only([1])], SearchRequest(beam=3, n_best=2, max_extra=0))
    assert alone[0][0].tokens == found[1][0].tokens
    assert abs(alone[0][0].score - found[1][0].score) < 1e-4


@pytest.mark.parametrize("with_ctc_first", [True, False])
def test_an_ensemble_may_have_models_with_and_without_ctc(with_ctc_first: bool) -> None:
    """Each has half the say: the one with CTC the scores of both its outputs, the other those of its decoder."""
    models = [tiny(ctc_search=0.5), tiny(ctc_weight=0.0, ctc_search=0.0)]
    with_ctc, without = models
    one, other = models if with_ctc_first else reversed(models)
    ensemble, source, tokens = Ensemble([one, other]), Frames.padded(sounds(30, 44)), torch.tensor([PAD, PAD])
    found = ensemble.step(tokens, ensemble.begin(ensemble.encode(source)))
    of_both = with_ctc.step(tokens, with_ctc.begin(with_ctc.encode(source))).softmax(-1)
    of_decoder = without.step(tokens, without.begin(without.encode(source))).softmax(-1)
    torch.testing.assert_close(found.exp(), (of_both + pad(of_decoder, (0, 1))) / 2)
    assert ensemble.never == (PAD,)
    engine = TorchEngine(one, Device("cpu", bf16=False), PAD, PAD, EOS, others=[other])
    block = SearchBlock(sounds(30, 44, 52), [()] * 3)  # type: ignore[arg-type]
    for request in (SearchRequest(beam=3, n_best=2), SearchRequest(sampling=True, n_best=20)):
        (hypotheses,) = engine.stream([block], request.but(max_extra=0))
        assert all(PAD not in each.tokens and math.isfinite(each.score) for best in hypotheses for each in best)


def test_the_number_of_bins_is_that_of_the_features() -> None:
    assert SpeechConfig.bins == BINS


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"d_model": 30}, "does not divide"),
        ({"d_model": 12, "num_heads": 4}, "must be even"),
        ({"convolution": 4}, "must be odd"),
        ({"ctc_weight": 0.0}, "no CTC output"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        build({"model": {"family": "speech", **settings}})


def test_muon_knows_which_matrices_are_stacked() -> None:
    model = tiny()
    d, heights = model.config.d_model, model.matrices()
    for layer in model.transformer.decoder:
        assert heights[layer.attention.stacked.weight] == heights[layer.source_attention.stacked.weight] == 3 * [d]
    for conformer in model.encoder:
        assert heights[conformer.attention.stacked.weight] == 3 * [d]
        assert heights[conformer.convolution.gates.weight] == 2 * [d]  # type: ignore[union-attr]


def test_r_drop_is_refused() -> None:
    with pytest.raises(SettingError, match="without R-Drop"):
        tiny().r_drop_loss(Frames.padded(sounds(9)), None, None, 0.0, 1.0)  # type: ignore[arg-type]
