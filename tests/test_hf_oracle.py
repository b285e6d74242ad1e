"""HF transformers as oracle: our weights in its Marian (post-norm) and Pegasus (pre-norm) give the same answers.

What must be known to carry a model there is what exports are made of; the tests check it down to the tokens of `generate`.
"""

import dataclasses
from functools import cache
from typing import Any

import pytest
import torch
from agreement import Reference, assert_agree
from torch import Tensor

from transduce.config import Config, TransformerConfig
from transduce.device import Device
from transduce.exchange.hf import hf_settings, hf_tensors
from transduce.model import Tokens, Transformer
from transduce.search import Hypothesis, PowerPenalty
from transduce.search.beam import beam_search
from transduce.translator import SearchRequest
from transduce.translator.torch_engine import TorchEngine

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")

pytestmark = pytest.mark.numerics

POST = TransformerConfig(
    d_model=64, d_ff=128, num_heads=4, num_encoder_layers=3, num_decoder_layers=2, dropout=0.0, output_bias=True
)
PRE = dataclasses.replace(POST, norm="pre")
SIZE, END = 300, 0
PAD = SIZE - 1
LIMIT = 64  # of an output, counting `</s>`; the beams of `ends_its_sentences` end long before
TOLERANCE = 1e-4
TIED = {"model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head"}  # with model.shared
BOTH = pytest.mark.parametrize("config", [POST, PRE], ids=["post-norm is Marian", "pre-norm is Pegasus"])


# --- our weights in their model --------------------------------------------------------------------------------


def as_hf(model: Transformer) -> Any:
    """The same model as a `MarianMTModel`, or as a `PegasusForConditionalGeneration` where it is pre-norm."""
    name = "Pegasus" if model.config.norm == "pre" else "Marian"
    make = transformers.PegasusForConditionalGeneration if name == "Pegasus" else transformers.MarianMTModel
    size = model.target_embedding.num_embeddings
    settings = hf_settings(Config(model=model.config), size)
    theirs = make(getattr(transformers, f"{name}Config")(**settings))
    tensors = hf_tensors(model, size, settings["max_position_embeddings"])
    missing, unexpected = theirs.load_state_dict(tensors, strict=False)
    assert not unexpected
    assert {key.rpartition(".")[0] for key in missing} <= TIED, missing
    return theirs.eval()


# --- models and sentences --------------------------------------------------------------------------------------


@cache
def ends_its_sentences(config: TransformerConfig) -> Transformer:
    """A random model of peaked distributions whose `</s>` grows likely with the position.

    A random model rambles to the limit. So one feature is left to the position alone, a slow sine that no sub-layer
    writes to, and only `</s>` looks at it.
    """
    torch.manual_seed(1)
    model = Transformer(config, SIZE, SIZE).eval()
    last_norm = model.decoder_norm if config.norm == "pre" else model.decoder[-1].feed_forward_residual.norm
    sine = 26  # sin(position / 42), which rises up to the limit
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
            if name.endswith(("output.weight", "output.bias", "outer.weight", "outer.bias", "norm.bias")):
                parameter[sine] = 0
        last_norm.weight.mul_(2 * torch.randn(config.d_model).sign())
        last_norm.weight[sine] = 8
        model.target_embedding.weight[:, sine] = 0
        model.target_embedding.weight[END, sine] = 15
        model.output_bias[END] -= 5  # type: ignore[index]
    return model


def sources(count: int, seed: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 25, (count,), generator=generator).tolist()
    return [[*torch.randint(1, PAD, (n,), generator=generator).tolist(), END] for n in lengths]


def our_search(model: Transformer, beam: int, alpha: float, n_best: int = 1) -> list[list[Hypothesis]]:
    asked = sources(30, seed=2)
    with torch.no_grad():
        state = model.begin(model.encode(Tokens.padded(asked, PAD)))
    limits = torch.full((len(asked),), LIMIT)
    penalty = PowerPenalty(alpha)
    return beam_search(model.step, state, start=PAD, end=END, limits=limits, beam=beam, penalty=penalty, n_best=n_best)


def their_search(model: Transformer, **settings: Any) -> Any:
    """Their maximum length counts the `<pad>` that decoding starts from; the one of new tokens is our limit."""
    asked = Tokens.padded(sources(30, seed=2), PAD)
    return as_hf(model).generate(
        input_ids=asked.ids,
        attention_mask=asked.real.long(),
        max_new_tokens=LIMIT,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
        **settings,
    )


def outputs(generated: Tensor) -> list[list[int]]:
    """Without the `<pad>` it starts from, `</s>` and the padding after it; the last place of all is `</s>` to us."""
    rows = [row[1:LIMIT] for row in generated.tolist()]
    return [row[: row.index(END)] if END in row else row for row in rows]


# --- the same answers ------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("bias", [True, False], ids=["output bias", "none"])
def test_logits_are_theirs(config: TransformerConfig, bias: bool) -> None:
    torch.manual_seed(3)
    model = (
        ends_its_sentences(config) if bias else Transformer(dataclasses.replace(config, output_bias=False), SIZE, SIZE)
    )
    source, target = (
        Tokens.padded(sources(16, seed=3), PAD),
        Tokens.padded([[PAD, *s[:-1]] for s in sources(16, seed=4)], PAD),
    )
    with torch.no_grad():
        ours = model.eval().project(model.decode(target, model.encode(source)))
        theirs = as_hf(model)(
            input_ids=source.ids,
            attention_mask=source.real.long(),
            decoder_input_ids=target.ids,
            decoder_attention_mask=target.real.long(),
        ).logits
    assert (theirs[..., PAD] == -torch.inf).all()
    difference = float((ours - theirs[..., :PAD])[target.real].abs().max())
    print(f"largest difference {difference:.1e}")
    assert float(ours.std()) > 0.5
    assert difference <= TOLERANCE


@BOTH
def test_the_models_searched_are_worth_searching(config: TransformerConfig) -> None:
    """Outputs differ between sources, end well before the limit, and a wider beam finds others."""
    model = ends_its_sentences(config)
    greedy, beam = our_search(model, 1, 1.0), our_search(model, 4, 1.0, n_best=4)
    lengths = [len(one.tokens) for found in beam for one in found]
    assert max(lengths) < LIMIT - 16
    assert len(set(lengths)) > 5
    assert len({tuple(found[0].tokens) for found in beam}) > 20
    assert sum(one[0].tokens != wide[0].tokens for one, wide in zip(greedy, beam, strict=True)) > 10


def assert_searches_agree(
    model: Transformer, found: list[list[list[int]]], ours: list[list[Hypothesis]], **how: Any
) -> None:
    engine = TorchEngine(model, Device("cpu", bf16=False), PAD, PAD, END)
    reference = Reference(engine, SearchRequest(length_penalty="power", **how))
    assert_agree(reference, sources(30, seed=2), found, [[one.tokens for one in line] for line in ours])


@BOTH
def test_greedy_search_is_theirs(config: TransformerConfig) -> None:
    model = ends_its_sentences(config)
    theirs = their_search(model, num_beams=1)
    found = [[tokens] for tokens in outputs(theirs.sequences)]
    assert_searches_agree(model, found, our_search(model, 1, 1.0), beam=1)


@BOTH
@pytest.mark.parametrize("alpha", [0.6, 1.0])
@pytest.mark.parametrize("n_best", [1, 4])
def test_beam_search_is_theirs(config: TransformerConfig, alpha: float, n_best: int) -> None:
    """Tokens and scores, which both divide by n^alpha, where n counts `</s>` and not the first `<pad>`."""
    model = ends_its_sentences(config)
    theirs = their_search(model, num_beams=4, num_return_sequences=n_best, length_penalty=alpha, early_stopping="never")
    ours, flat = our_search(model, 4, alpha, n_best), outputs(theirs.sequences)
    found = [flat[begin : begin + n_best] for begin in range(0, len(flat), n_best)]
    assert_searches_agree(model, found, ours, beam=4, alpha=alpha)
    differences = (torch.tensor([one.score for line in ours for one in line]) - theirs.sequences_scores).abs()
    print(f"largest difference {differences.max():.1e}")
    assert float(differences.max()) <= TOLERANCE
