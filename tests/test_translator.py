"""The translator on a small random model: a line in is a line out, whatever stands beside it."""

import dataclasses
import random
from collections.abc import Iterator

import pytest
import torch
from agreement import assert_texts_agree, assert_translations_agree

from transduce.config import Config, SearchConfig, TransformerConfig
from transduce.device import Device
from transduce.errors import DataError, SettingError
from transduce.model import Tokens, Transformer
from transduce.text import EOS, UNKNOWN, Vocabularies, Vocabulary, train_vocabulary
from transduce.translator import SearchRequest, Translator, inputs
from transduce.translator.engine import SearchBlock
from transduce.translator.torch_engine import TorchEngine

pytestmark = pytest.mark.numerics

WORDS = (
    "the cat sat on a mat while seven small dogs ran under old bridges in winter rain and nobody knew why "
    "they had come so far from home only to look at water moving slowly past stones"
).split()
MODEL = TransformerConfig(d_model=32, d_ff=64, num_heads=4, num_encoder_layers=2, num_decoder_layers=2, dropout=0.1)
GREEDY, BEAM = SearchRequest(beam=1, max_extra=5), SearchRequest(beam=4, max_extra=5)
BOTH = pytest.mark.parametrize("request_", [GREEDY, BEAM], ids=["greedy", "beam"])


def random_lines(count: int, seed: int, longest: int = 12) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, longest))) for _ in range(count)]


@pytest.fixture(scope="module")
def subwords() -> Vocabulary:
    return train_vocabulary(random_lines(300, seed=1), units="bpe", size=400)


@pytest.fixture(scope="module")
def words() -> Vocabulary:
    return train_vocabulary(random_lines(300, seed=1), units="word", size=100)


def make(vocabulary: Vocabulary, model: TransformerConfig = MODEL) -> Translator:
    torch.manual_seed(1)
    transformer = Transformer(model, vocabulary.size, vocabulary.size)
    with torch.no_grad():  # logits far enough apart that the last bit of a sum decides nothing
        transformer.target_embedding.weight.mul_(2)
    config = Config(model=model, search=SearchConfig(beam=4, max_extra=5))
    return Translator.around(transformer, Vocabularies(vocabulary, vocabulary), config, Device("cpu", bf16=False))


@pytest.fixture
def ours(subwords: Vocabulary) -> Translator:
    return make(subwords)


# --- a line is translated by itself ----------------------------------------------------------------------------


@BOTH
def test_a_line_alone_is_the_line_in_a_batch(ours: Translator, request_: SearchRequest) -> None:
    lines = random_lines(50, seed=2)
    together = list(ours.stream(lines, request_))
    assert len({found.text for found in together}) > 25, "the source must matter"
    alone = [next(ours.stream([line], request_)) for line in lines]
    assert_translations_agree(ours, request_, together, alone)


@BOTH
def test_small_batches_give_what_large_ones_give(
    ours: Translator, request_: SearchRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = random_lines(30, seed=3)
    expected = list(ours.stream(lines, request_))
    monkeypatch.setattr(TorchEngine, "POSITIONS", {"cpu": 60})
    assert len(list(ours.engines.torch.batches(ours.vocabularies.source.encode(lines), request_.beam))) > 4
    assert_translations_agree(ours, request_, list(ours.stream(lines, request_)), expected)


def test_the_order_of_lines_is_kept_whatever_their_lengths(ours: Translator) -> None:
    lines = [" ".join(WORDS[:n]) for n in (3, 30, 1, 12, 2, 25, 1, 7)]
    expected = [ours.translate([line], BEAM)[0] for line in lines]
    assert len(set(expected)) == len(set(lines))
    assert_texts_agree(ours, BEAM, lines, ours.translate(lines, BEAM), expected)
    assert_texts_agree(ours, BEAM, lines, ours.translate(lines[::-1], BEAM)[::-1], expected)
    unsaid = ours.translate(lines, BEAM.but(constrained=True))  # nobody said which phrases
    assert_texts_agree(ours, BEAM, lines, unsaid, expected)
    assert [found.source for found in ours.stream(lines, BEAM)] == lines


def test_n_best_lists_are_sorted_and_begin_with_the_best(ours: Translator) -> None:
    lines = random_lines(10, seed=4)
    for found, best in zip(ours.stream(lines, BEAM.but(n_best=4)), ours.stream(lines, BEAM), strict=True):
        scores = [one.score for one in found.outputs]
        assert len(scores) == 4
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(one.tokens) for one in found.outputs}) == 4
        assert found.outputs[0].tokens == best.outputs[0].tokens


@pytest.mark.parametrize("sampling", [False, True], ids=["search", "sample"])
@pytest.mark.parametrize("beam", [1, 4])
def test_unknown_tokens_are_left_out_where_the_model_says_so(words: Vocabulary, beam: int, sampling: bool) -> None:
    """`search.allow_unknown`: a setting of the model, as Marian's models have it."""
    ours, lines = make(words), random_lines(20, seed=5)
    with torch.no_grad():
        ours.model.target_embedding.weight[UNKNOWN] *= 4
    asked = ours.request(beam=beam, sampling=sampling, max_extra=5)
    assert any("<unk>" in found.outputs[0].tokens for found in ours.stream(lines, asked))
    config = dataclasses.replace(ours.config, search=dataclasses.replace(ours.config.search, allow_unknown=False))
    other = Translator.around(ours.model, ours.vocabularies, config, ours.device)
    asked = other.request(beam=beam, sampling=sampling, max_extra=5)
    assert not any("<unk>" in found.outputs[0].tokens for found in other.stream(lines, asked))


# --- nothing is lost -------------------------------------------------------------------------------------------


@BOTH
def test_empty_lines_are_empty_translations(ours: Translator, request_: SearchRequest) -> None:
    lines = ["", "the cat", " \t ", "winter rain", "\u00a0", ""]
    found = list(ours.stream(lines, request_))
    assert [one.source for one in found] == lines
    assert [bool(one.outputs) for one in found] == [False, True, False, True, False, False]
    assert [one.text for one in found if not one.outputs] == [""] * 4
    assert_texts_agree(ours, request_, ["the cat"], [found[1].text], ours.translate(["the cat"], request_))


def test_no_lines_are_no_translations(ours: Translator) -> None:
    assert ours.translate([]) == []
    assert ours.translate([""]) == [""]
    assert ours.score([], []) == []


@BOTH
def test_a_source_too_long_is_cut_and_counted(ours: Translator, request_: SearchRequest) -> None:
    ours.longest_source = 16
    short, long = "the cat sat", " ".join(WORDS)
    ids = ours.vocabularies.source.encode([long])[0]
    found = list(ours.stream([short, long, short], request_))
    assert [one.cut for one in found] == [0, len(ids) - 16, 0]
    assert [one.source_tokens for one in found][1] == len(ids)
    assert found[0].text == found[2].text
    engine, sources = ours.engines.torch, [ours.source_ids(short), [*ids[:15], EOS]]
    searched = next(engine.stream([SearchBlock(sources, [[], []])], request_))
    texts = ours.vocabularies.target.decode([line[0].tokens for line in searched])
    assert_texts_agree(ours, request_, [short, long], [found[0].text, found[1].text], texts)


def test_learned_positions_bound_the_source(subwords: Vocabulary) -> None:
    limited = make(subwords, dataclasses.replace(MODEL, positions="learned", max_positions=24))
    found = next(limited.stream([" ".join(WORDS)], GREEDY))
    assert limited.longest_source == 24
    assert found.cut == found.source_tokens - 24
    assert found.outputs


def test_unknown_symbols_are_counted(words: Vocabulary) -> None:
    found = list(make(words).stream(["the cat sat", "the zebra sat", "zebra sat lion"], GREEDY))
    assert [one.unknown for one in found] == [0, 1, 2]
    assert [one.source_tokens for one in found] == [4, 4, 4]


# --- prefixes --------------------------------------------------------------------------------------------------


@BOTH
def test_outputs_begin_with_their_prefixes(ours: Translator, request_: SearchRequest) -> None:
    lines = random_lines(4, seed=5, longest=4)
    prefixes = ["", "small dogs", " ".join(WORDS), "winter"]  # one is longer than its output may be
    found = list(ours.stream(lines, request_, prefixes))
    for one, prefix in zip(found, prefixes, strict=True):
        forced = ours.vocabularies.target.encode([prefix])[0][:-1]
        assert one.outputs[0].tokens[: len(forced)] == ours.vocabularies.target.pieces(forced)
        assert one.text.startswith(prefix)
    alone = [next(ours.stream([line], request_, [prefix])) for line, prefix in zip(lines, prefixes, strict=True)]
    assert_translations_agree(ours, request_, [next(ours.stream(lines[:1], request_)), *alone], [found[0], *found])


def test_prefixes_and_terms_for_other_lines_are_refused(ours: Translator) -> None:
    with pytest.raises(DataError, match="fewer prefixes than lines"):
        list(ours.stream(["the cat", "a mat"], GREEDY, ["x"]))
    with pytest.raises(DataError, match="more prefixes than lines: give exactly one for each line"):
        list(ours.stream(["the cat"], GREEDY, ["the", "a"]))
    with pytest.raises(DataError, match="more lines of terms than lines"):
        list(ours.stream(["the cat"], GREEDY, terms=[["cat"], []]))


# --- scores ----------------------------------------------------------------------------------------------------


@BOTH
def test_scoring_ids_gives_what_the_search_said(ours: Translator, request_: SearchRequest) -> None:
    sources = ours.vocabularies.source.encode(random_lines(20, seed=6))
    found = next(
        ours.engines.torch.stream([SearchBlock(sources, [[]] * len(sources))], request_.but(n_best=request_.beam))
    )
    pairs = [(source, one) for source, hypotheses in zip(sources, found, strict=True) for one in hypotheses]
    scored = ours.engines.torch.score([source for source, _ in pairs], [[*one.tokens, EOS] for _, one in pairs])
    assert len(scored) == 20 * request_.beam
    for (_, one), values in zip(pairs, scored, strict=True):
        assert values == pytest.approx(one.token_log_probabilities, abs=1e-4)
        assert sum(values) == pytest.approx(one.log_probability, abs=1e-4)


def test_scoring_text_gives_what_the_translation_said(words: Vocabulary) -> None:
    """Whole words segment in one way only, so that the text has the very tokens of the search."""
    translator_ = make(words)
    lines = random_lines(20, seed=7)
    found = [one for one in translator_.stream(lines, BEAM) if "<unk>" not in one.outputs[0].tokens]
    assert len(found) > 10
    scored = translator_.score_tokens([one.source for one in found], [one.text for one in found])
    for one, values in zip(found, scored, strict=True):
        assert values.token_log_probabilities == pytest.approx(one.outputs[0].token_log_probabilities, abs=1e-4)


@pytest.mark.parametrize("alpha", [-10, -0.1, 10.1, float("nan")])
def test_a_length_penalty_that_empties_or_bloats_outputs_is_refused(ours: Translator, alpha: float) -> None:
    with pytest.raises(SettingError, match=f"alpha = {alpha}: must be at"):
        ours.request(alpha=alpha)


def test_scoring_needs_pairs(ours: Translator) -> None:
    with pytest.raises(DataError, match="2 sources but 1 targets"):
        ours.score(["a", "b"], ["c"])


# --- what it leaves alone --------------------------------------------------------------------------------------


def test_streaming_reads_no_further_than_a_block(ours: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "LINES_AT_ONCE", 4)
    lines, read = random_lines(10, seed=8), 0

    def pulled() -> Iterator[str]:
        nonlocal read
        for line in lines:
            read += 1
            yield line

    stream = ours.stream(pulled(), GREEDY)
    assert read == 0
    for number, line in enumerate(lines):
        assert next(stream).source == line
        assert read == min(4 * (number // 4 + 1), len(lines))
    assert next(stream, None) is None
    alone = [ours.translate([line], GREEDY)[0] for line in lines]
    assert_texts_agree(ours, GREEDY, lines, alone, ours.translate(lines, GREEDY))


@pytest.mark.parametrize(
    "request_", [GREEDY, BEAM, SearchRequest(sampling=True, max_extra=5)], ids=["greedy", "beam", "sample"]
)
def test_translating_in_the_middle_of_training_changes_nothing(subwords: Vocabulary, request_: SearchRequest) -> None:
    lines = random_lines(8, seed=9)

    def gradients(translate: bool) -> list[torch.Tensor]:
        """After two batches with dropout, whose random numbers follow one another."""
        ours = make(subwords)
        torch.manual_seed(3)
        for batch in (lines[:4], lines[4:]):
            ours.model.train()
            accumulate(ours, batch)
            if translate:
                list(ours.stream(lines, request_))
                ours.score(lines, lines)
        return [parameter.grad for parameter in ours.model.parameters() if parameter.grad is not None]

    for untouched, between in zip(gradients(False), gradients(True), strict=True):
        assert torch.equal(untouched, between)


def accumulate(ours: Translator, lines: list[str]) -> None:
    pad = ours.vocabularies.source.pad
    ids = ours.vocabularies.source.encode(lines)
    target = Tokens.padded([[pad, *row[:-1]] for row in ids], pad)
    hidden = ours.model.decode(target, ours.model.encode(Tokens.padded(ids, pad)))
    ours.model.project(hidden)[target.real].logsumexp(-1).sum().backward()


# --- the length limit ------------------------------------------------------------------------------------------


def test_limits_leave_room_for_what_must_be_said_and_end_where_the_model_does() -> None:
    sources, prefixes = [[5, 6, EOS], [7, EOS], [8, EOS], []], [(), (9,) * 20, (), ()]
    assert GREEDY.limits(SearchBlock(sources, prefixes)) == [8, 21, 7, 5]
    assert GREEDY.limits(SearchBlock(sources, prefixes), longest=7) == [7, 7, 7, 5]
    phrases = [[], [], [[1] * 6, [2] * 3], []]
    assert GREEDY.limits(SearchBlock(sources, prefixes, phrases)) == [8, 21, 10, 5]
    assert GREEDY.limits(SearchBlock(sources, prefixes, at_most=[100, 3, 2, 2])) == [8, 21, 2, 2]


@BOTH
def test_outputs_that_reach_the_limit_are_counted(ours: Translator, request_: SearchRequest) -> None:
    """A random model seldom stops by itself."""
    found = list(ours.stream(["the cat", ""], request_.but(n_best=1)))
    [output] = found[0].outputs
    assert output.length == found[0].source_tokens + 5
    assert output.at_limit
    assert [one.outputs_at_limit for one in found] == [1, 0]
    enough = next(ours.stream(["the cat"], request_.but(max_extra=output.length), prefixes=[output.text]))
    assert enough.outputs[0].at_limit == (enough.outputs[0].length == found[0].source_tokens + output.length)


@BOTH
def test_each_line_can_have_a_limit_of_its_own(ours: Translator, request_: SearchRequest) -> None:
    lines = random_lines(20, seed=3)
    free = list(ours.stream(lines, request_))
    limits = [max(1, one.outputs[0].length - number % 3) for number, one in enumerate(free)]
    bounded = list(ours.stream(lines, request_, at_most=limits))
    assert all(one.outputs[0].length <= limit for one, limit in zip(bounded, limits, strict=True))
    assert sum(one.outputs_at_limit for one in bounded) >= 20 - 7
    with pytest.raises(DataError, match="fewer length limits than lines"):
        list(ours.stream(lines, request_, at_most=limits[1:]))
