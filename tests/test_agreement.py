"""The comparison of engines itself: rounding passes, and an engine that is wrong in any of these ways does not."""

import dataclasses
from collections.abc import Callable, Sequence

import pytest
import torch
from agreement import Agreement, Reference, assert_agree, assert_hypotheses_agree, assert_texts_agree, compare
from folders import SHAPE, ends_its_sentences, lines, vocabularies

from transduce.config import Config
from transduce.device import Device
from transduce.model import Transformer
from transduce.search import Hypothesis
from transduce.text import EOS
from transduce.translator import SearchRequest, Translator
from transduce.translator.engine import SearchBlock
from transduce.translator.torch_engine import TorchEngine

pytestmark = pytest.mark.numerics

SIZE, PAD = 400, 399
GREEDY, BEAM = (
    SearchRequest(beam=1, max_extra=20),
    SearchRequest(beam=4, n_best=3, max_extra=20, length_penalty="power", alpha=1.0),
)
BOTH = pytest.mark.parametrize("request_", [GREEDY, BEAM], ids=["greedy", "beam"])


def engine(change: Callable[[Transformer], None] = lambda model: None) -> TorchEngine:
    model = ends_its_sentences(SHAPE, SIZE, SIZE)
    with torch.no_grad():
        change(model)
    return TorchEngine(model, Device("cpu", bf16=False), PAD, PAD, EOS)


def sources() -> list[list[int]]:
    draw = torch.Generator().manual_seed(5)
    lengths = torch.randint(2, 12, (40,), generator=draw).tolist()
    return [[*torch.randint(2, PAD, (n,), generator=draw).tolist(), EOS] for n in lengths]


def search(of: TorchEngine, request: SearchRequest) -> list[list[Hypothesis]]:
    return next(of.stream([SearchBlock(sources(), [[]] * 40)], request))


def noise(size: float) -> Callable[[Transformer], None]:
    def change(model: Transformer) -> None:
        torch.manual_seed(9)
        for parameter in model.parameters():
            parameter.mul_(1 + size * torch.randn_like(parameter))

    return change


def late(model: Transformer) -> None:
    """Every position of the decoder one too far."""
    model.target_positions.table.copy_(model.target_positions.table.roll(-1, 0))


def other_heads(model: Transformer) -> None:
    """The queries of two heads of the last layer exchanged."""
    weight = model.decoder[-1].source_attention.stacked.weight
    weight.copy_(torch.cat([weight[16:32], weight[:16], weight[32:]]))


@BOTH
def test_rounding_passes(request_: SearchRequest) -> None:
    right, rounded = engine(), engine(noise(1e-7))
    assert_hypotheses_agree(right, request_, sources(), search(rounded, request_), search(right, request_))


@BOTH
@pytest.mark.parametrize("change", [noise(1e-2), late, other_heads], ids=["weights", "positions", "heads"])
def test_another_model_is_rejected(request_: SearchRequest, change: Callable[[Transformer], None]) -> None:
    right, wrong = engine(), engine(change)
    found, expected = search(wrong, request_), search(right, request_)
    with pytest.raises(AssertionError):
        assert_hypotheses_agree(right, request_, sources(), found, expected)
    tokens = [[[one.tokens for one in line] for line in lines] for lines in (found, expected)]
    with pytest.raises(AssertionError):  # by the outputs alone, without the figures
        assert_agree(Reference(right, request_), sources(), *tokens)


@BOTH
def test_figures_that_are_not_the_model_s_are_rejected(request_: SearchRequest) -> None:
    right = engine()
    expected = search(right, request_)
    found = [[one._replace(score=one.score + 1e-3) for one in line] for line in expected]
    with pytest.raises(AssertionError):
        assert_hypotheses_agree(right, request_, sources(), found, expected)


def test_a_search_that_finds_worse_outputs_is_rejected() -> None:
    """Greedy outputs in place of the best of a beam."""
    right = engine()
    wanted = dataclasses.replace(BEAM, n_best=1)
    found = search(right, dataclasses.replace(wanted, beam=1))
    with pytest.raises(AssertionError, match="misses"):
        assert_hypotheses_agree(right, wanted, sources(), found, search(right, wanted))


HALF = 200


def twin(tokens: Sequence[int]) -> list[int]:
    return [token + HALF if 2 <= token < HALF - 1 else token for token in tokens]


def test_ties_are_counted_and_bounded() -> None:
    """A model to which every token has a twin: an engine may write either, and not too often the other."""

    def double(model: Transformer) -> None:
        model.target_embedding.weight[HALF + 2 : PAD] = model.target_embedding.weight[2 : HALF - 1]
        model.output_bias[HALF + 2 : PAD] = model.output_bias[2 : HALF - 1]  # type: ignore[index]

    right = engine(double)
    reference = Reference(right, GREEDY)
    first = [[tokens] for line in search(right, GREEDY) if (tokens := [token % HALF for token in line[0].tokens])]
    asked = sources()[: len(first)]
    some = [[twin(line[0])] if number < 2 else line for number, line in enumerate(first)]
    assert compare(reference, asked, some, first) == Agreement(lines=len(first), ties=2, misses=0)
    assert_agree(reference, asked, some, first)
    with pytest.raises(AssertionError, match=f"ties={len(first)}"):
        assert_agree(reference, asked, [[twin(line[0])] for line in first], first)


def test_texts_are_compared_as_the_model_s_tokens() -> None:
    both = vocabularies(joint=True)
    model = ends_its_sentences(SHAPE, both.source.size, both.target.size)
    translator = Translator.around(model, both, Config(model=SHAPE), Device("cpu", bf16=False))
    asked, request = lines(12, seed=3), translator.request(beam=1)
    texts = translator.translate(asked, request)
    assert_texts_agree(translator, request, asked, texts, texts)
    with pytest.raises(AssertionError, match="misses=1"):
        assert_texts_agree(translator, request, asked, ["the rain", *texts[1:]], texts)
