"""The decoder in slots against `Transformer.step`, its kernels against their plain forms, its engine against the other."""

import dataclasses
import gc
import itertools
import sys
import threading
import time
from collections.abc import Iterable, Iterator

import pytest
import torch
from agreement import assert_hypotheses_agree
from torch import Tensor

from transduce.config import TransformerConfig
from transduce.continuous import BeamOptions, SentenceBlock, kernels, plain, pool
from transduce.continuous.batcher import ContinuousBatcher
from transduce.continuous.decoder import SlotDecoder, best_classes, understands
from transduce.continuous.pool import SlotPool
from transduce.continuous.scheduler import Scheduler
from transduce.device import Device
from transduce.errors import SettingError
from transduce.model import Tokens, Transformer
from transduce.model.kernels import HAVE_TRITON
from transduce.search import Hypothesis, length_penalty
from transduce.translator.engine import SearchBlock, SearchRequest
from transduce.translator.slot_engine import SlotEngine
from transduce.translator.torch_engine import TorchEngine

PAD, END = 60, 0
TINY = TransformerConfig(d_model=32, d_ff=64, num_heads=2, num_encoder_layers=2, num_decoder_layers=2, dropout=0)
GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"


def make(seed: int = 1, **changes: object) -> Transformer:
    torch.manual_seed(seed)
    model = Transformer(dataclasses.replace(TINY, **changes), PAD + 1, PAD + 1).eval()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in model.parameters():  # far enough from nothing that every part shows
            parameter.add_(0.1 * torch.randn_like(parameter))
        for table in (model.source_embedding, model.target_embedding):
            table.weight[PAD].zero_()
    return model


def sources(*lengths: int) -> list[list[int]]:
    return [torch.randint(1, PAD, (n,)).tolist() for n in lengths]


@pytest.mark.numerics
@pytest.mark.parametrize("changes", [{}, {"norm": "pre"}, {"positions": "learned"}, {"activation": "swiglu"}])
@torch.no_grad()
def test_a_decoder_in_slots_is_the_decoder(changes: dict[str, object]) -> None:
    """Token by token, beams changing positions every time."""
    model, beams = make(**changes), 3
    memory = model.encode(Tokens.padded(sources(5, 9), PAD))
    decoder = SlotDecoder(model, slots=2, beams=beams, positions=8, source_positions=12)
    decoder.put(torch.tensor([0, 1]), decoder.project_sources(memory))
    state = model.begin(memory).select(torch.tensor([0, 0, 0, 1, 1, 1]))
    position = torch.zeros(2, dtype=torch.long)
    for _ in range(8):
        tokens = torch.randint(0, PAD, (6,))
        found = model.project(decoder.step(tokens, position))
        torch.testing.assert_close(found, model.step(tokens, state), atol=2e-5, rtol=1e-4)
        parents = torch.cat([torch.randint(0, 3, (3,)), torch.randint(3, 6, (3,))])
        decoder.reorder(parents, position)
        state = state.select(parents)
        position += 1


@pytest.mark.numerics
@torch.no_grad()
def test_a_slot_forgets_the_sentence_before() -> None:
    model = make()
    decoder = SlotDecoder(model, slots=2, beams=1, positions=8, source_positions=12)
    first, second = (model.encode(Tokens.padded(sources(n), PAD)) for n in (12, 4))
    decoder.put(torch.tensor([1]), decoder.project_sources(first))
    position = torch.zeros(2, dtype=torch.long)
    for _ in range(5):
        decoder.step(torch.tensor([3, 4]), position)
        position += 1
    decoder.put(torch.tensor([1]), decoder.project_sources(second))
    position[1] = 0  # the other slot goes on at 5
    found = model.project(decoder.step(torch.tensor([3, 7]), position))[1:]
    torch.testing.assert_close(found, model.step(torch.tensor([7]), model.begin(second)), atol=2e-5, rtol=1e-4)


def test_rotary_positions_and_uneven_heads_are_not_for_slots() -> None:
    assert understands(make().config)
    assert not understands(make(positions="rotary").config)
    assert not understands(make(d_k=8, d_v=8).config)
    assert not understands(make(d_model=48).config)  # heads of 24, which no kernel has


@pytest.mark.numerics
@pytest.mark.parametrize("output_bias", [False, True])
@torch.no_grad()
def test_the_best_classes_are_those_of_all_log_probabilities(output_bias: bool) -> None:
    torch.manual_seed(2)
    model = Transformer(dataclasses.replace(TINY, output_bias=output_bias), 301, 301)
    hidden, must = 3 * torch.randn(7, 32), torch.tensor([5, -1, 0, 299, 7, 7, -1])
    values, ids, of_must = best_classes(model, hidden, 8, must)
    expected = model.project(hidden).log_softmax(-1)
    torch.testing.assert_close(values, expected.topk(8).values)
    assert torch.equal(ids, expected.topk(8).indices)
    torch.testing.assert_close(of_must, expected.gather(1, must.clamp(min=0)[:, None])[:, 0])


# --- kernels ---------------------------------------------------------------------------------------------------


def near(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.float(), expected.float(), atol=2e-2 if GPU else 1e-5, rtol=2e-2 if GPU else 1e-4)


@pytest.mark.numerics
@pytest.mark.skipif(not HAVE_TRITON, reason="triton is not installed")
@pytest.mark.parametrize(("slots", "beams", "positions"), [(1, 1, 5), (3, 1, 70), (2, 4, 40)])
def test_kernels_attend_as_their_plain_forms(slots: int, beams: int, positions: int) -> None:
    torch.seed()
    dtype, rows, width, heads = torch.bfloat16 if GPU else torch.float32, slots * beams, 64, 2
    random = lambda *shape: torch.randn(*shape, device=DEVICE).to(dtype)  # noqa: E731
    product, bias = random(rows, 3 * width), random(3 * width)
    keys, values = random(rows, positions, width), random(rows, positions, width)
    own = torch.arange(rows, device=DEVICE, dtype=torch.int32)[:, None] // beams * beams  # beams stay in their slot
    table = own + torch.randint(0, beams, (rows, positions), device=DEVICE, dtype=torch.int32)
    position = torch.randint(0, positions, (slots,), device=DEVICE)
    ours = kernels.attend_to_past(product, bias, mine := keys.clone(), values.clone(), table, position, heads)
    near(ours, plain.attend_to_past(product, bias, theirs := keys.clone(), values.clone(), table, position, heads))
    near(mine, theirs)
    source, lengths = random(slots, 50, 2 * width), torch.randint(1, 51, (slots,), device=DEVICE, dtype=torch.int32)
    queries = random(rows, width)
    near(
        kernels.attend_to_source(queries, source, lengths, heads),
        plain.attend_to_source(queries, source, lengths, heads),
    )


@pytest.mark.numerics
@pytest.mark.skipif(not HAVE_TRITON, reason="triton is not installed")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("classes", "count"), [(5, 8), (40, 1), (64, 8), (2500, 8), (2500, 3), (4095, 1), (4095, 8)])
def test_a_kernel_finds_the_best_classes(classes: int, count: int, dtype: torch.dtype) -> None:
    """Also where rows are so aligned that a GPU loads them otherwise; of equal logits either may be the better."""
    logits = (5 * torch.randn(4, classes + 1, device=DEVICE)).to(dtype)
    must = torch.tensor([3, -1, 0, classes - 1], device=DEVICE)
    ours, expected = kernels.best(logits, classes, count, must), plain.best(logits, classes, count, must)
    torch.testing.assert_close(ours[0], expected[0], atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(ours[2], expected[2], atol=1e-4, rtol=1e-5)
    found = logits[:, :classes].float().log_softmax(-1).gather(1, ours[1])
    torch.testing.assert_close(found, expected[0], atol=1e-4, rtol=1e-5)
    assert all(len(set(row)) == min(count, classes) for row in ours[1].tolist())


@pytest.mark.skipif(not HAVE_TRITON, reason="triton is not installed")
def test_logits_that_are_not_numbers_still_give_a_class() -> None:
    """An id outside the vocabulary would stop the whole device at the next embedding."""
    logits, must = torch.full((2, 62), torch.nan, device=DEVICE), torch.tensor([-1, 3], device=DEVICE)
    assert kernels.best(logits, 61, 4, must)[1].max() < 61


def searched(
    engine: TorchEngine, sources: list[list[int]], prefixes: list[list[int]], request: SearchRequest
) -> list[list[Hypothesis]]:
    """What an engine finds for one block."""
    return next(engine.stream([SearchBlock(sources, prefixes)], request))


def decoded(
    engine: SlotEngine, blocks: Iterable[SearchBlock], request: SearchRequest
) -> Iterator[list[list[Hypothesis]]]:
    """What `stream` gives, without its threads."""
    options = BeamOptions(request.beam, request.n_best, length_penalty(request.length_penalty, request.alpha), True)
    return engine.batcher.decode(engine._with_limits(blocks, request), options)


def test_samples_of_one_line_differ_from_batch_to_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line is a batch, and each block two: none repeats the random numbers of another; the same seed does."""
    monkeypatch.setattr(TorchEngine, "POSITIONS", {"cpu": 1, "cuda": 1})
    engine, request = (
        TorchEngine(make(), Device("cpu", bf16=False), PAD, PAD, END),
        SearchRequest(sampling=True, max_extra=3),
    )
    blocks = [SearchBlock(sources(6) * 2, [[], []])] * 2
    drawn = [[best[0].tokens for found in engine.stream(iter(blocks), request) for best in found] for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert len({tuple(tokens) for tokens in drawn[0]}) > 1


# --- the engine ------------------------------------------------------------------------------------------------


@pytest.mark.numerics
@pytest.mark.parametrize("refill", [1 / 16, 1 / 3])  # one slot at a time, and several
@pytest.mark.parametrize(
    "request_",
    [SearchRequest(beam=1), SearchRequest(beam=3, n_best=3), SearchRequest(beam=4, length_penalty="power", alpha=1.0)],
)
def test_an_engine_of_slots_finds_what_the_other_finds(
    request_: SearchRequest, refill: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More sentences than slots, of all lengths, some with a beginning they must have."""
    monkeypatch.setattr(ContinuousBatcher, "MAX_ROWS", 12)
    monkeypatch.setattr(ContinuousBatcher, "SMALLEST", 16)
    monkeypatch.setattr(pool, "REFILL", refill)
    request = dataclasses.replace(request_, max_extra=4)
    model = make()
    asked = sources(3, 9, 1, 7, 12, 25, 5, 5, 9, 2)
    prefixes = [[] if n % 3 else [5, 9][: n % 2 + 1] for n in range(len(asked))]
    engines = [kind(model, Device("cpu", bf16=False), PAD, PAD, END) for kind in (SlotEngine, TorchEngine)]
    ours, theirs = (searched(engine, asked, prefixes, request) for engine in engines)
    assert_hypotheses_agree(engines[1], request, asked, ours, theirs)
    without = searched(engines[0], asked, prefixes, request.but(log_probs="none"))
    assert [[list(h.tokens) for h in one] for one in without] == [[h.tokens for h in one] for one in ours]


def test_an_engine_of_slots_wants_a_prefix_for_every_source() -> None:
    engine = SlotEngine(make(), Device("cpu", bf16=False), PAD, PAD, END)
    blocks = [SearchBlock(sources(3, 9), [[], []]), SearchBlock(sources(3, 9), [[]])]
    with pytest.raises(ValueError, match="shorter"):
        list(engine.stream(iter(blocks), SearchRequest(beam=2, max_extra=3)))


@pytest.mark.numerics
def test_an_engine_of_slots_takes_block_after_block() -> None:
    engine, request = SlotEngine(make(), Device("cpu", bf16=False), PAD, PAD, END), SearchRequest(beam=2, max_extra=3)
    blocks = [SearchBlock(sources(3, 9), [[], []]), SearchBlock([], []), SearchBlock(sources(1, 7, 2), [[5], [], []])]
    found = list(engine.stream(iter(blocks), request))
    for block, hypotheses in zip(blocks, found, strict=True):
        again = searched(engine, block.sources, block.prefixes, request)
        assert_hypotheses_agree(engine, request, block.sources, hypotheses, again)


@pytest.mark.numerics
def test_slots_that_a_block_leaves_go_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """One stream takes fewer steps than its blocks one by one, also where some need larger slots, and says the same."""
    monkeypatch.setattr(ContinuousBatcher, "MAX_ROWS", 8)
    monkeypatch.setattr(ContinuousBatcher, "SMALLEST", 16)
    steps = []
    monkeypatch.setattr(SlotPool, "_step", lambda pool, step=SlotPool._step: (steps.append(1), step(pool))[1])
    request = SearchRequest(beam=1, max_extra=4)
    lengths = [
        (3, 9, 1, 7, 12, 5, 5, 9, 2, 30),
        (2, 8, 8, 3),
        (4,),
        (),
        (11, 1, 40, 3, 3, 6, 10, 2, 7),
        (5,) * 12,
        (1,),
    ]
    blocks = [SearchBlock(sources(*some), [[]] * len(some)) for some in lengths]

    engine = SlotEngine(make(), Device("cpu", bf16=False), PAD, PAD, END)
    apart = [line for block in blocks for line in searched(engine, block.sources, block.prefixes, request)]
    alone = len(steps)
    together = list(itertools.chain(*decoded(engine, blocks, request)))  # what `stream` does, without its threads
    flowing = len(steps) - alone
    asked = [source for block in blocks for source in block.sources]
    for found in (together, list(itertools.chain(*engine.stream(iter(blocks), request)))):
        assert_hypotheses_agree(engine, request, asked, found, apart)
    assert flowing < 0.9 * alone


def test_an_engine_of_slots_does_not_wait_for_blocks_to_answer_those_it_has() -> None:
    engine, answered = SlotEngine(make(), Device("cpu", bf16=False), PAD, PAD, END), threading.Event()

    def blocks() -> Iterator[SearchBlock]:
        yield SearchBlock(sources(3, 9), [[], []])
        assert answered.wait(30), "the answer to the first should not need the second"
        yield SearchBlock(sources(2), [[]])

    found = engine.stream(blocks(), SearchRequest(beam=1, max_extra=3))
    assert len(next(found)) == 2
    answered.set()
    assert len(next(found)) == 1


def test_searches_of_one_engine_may_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search while a stream is read, and two streams side by side: each has slot pools of its own."""
    monkeypatch.setattr(ContinuousBatcher, "MAX_ROWS", 8)
    engine, request = SlotEngine(make(), Device("cpu", bf16=False), PAD, PAD, END), SearchRequest(beam=1, max_extra=4)
    blocks = [SearchBlock(sources(*range(1, 12)), [[]] * 11) for _ in range(4)]

    expected = [searched(engine, block.sources, block.prefixes, request) for block in blocks]

    def check(found: list[list[Hypothesis]], number: int) -> None:
        assert_hypotheses_agree(engine, request, blocks[number].sources, found, expected[number])

    for number, found in enumerate(engine.stream(blocks, request)):
        check(found, number)
        check(searched(engine, blocks[0].sources, blocks[0].prefixes, request), 0)
    for number, both in enumerate(zip(engine.stream(blocks, request), engine.stream(blocks, request), strict=True)):
        for found in both:
            check(found, number)


def test_a_stream_that_is_left_ends_soon_though_its_input_never_comes() -> None:
    engine, request = SlotEngine(make(), Device("cpu", bf16=False), PAD, PAD, END), SearchRequest(beam=1, max_extra=4)
    never, before = threading.Event(), threading.active_count()

    def blocks() -> Iterator[SearchBlock]:
        yield SearchBlock(sources(3), [[]])
        never.wait()

    stream = engine.stream(blocks(), request)
    next(stream)
    stream.close()  # without waiting for the input: nothing has let it go on
    assert not never.is_set()
    never.set()
    deadline = time.monotonic() + 60
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


def test_an_engine_of_slots_leaves_the_settings_of_the_process_alone() -> None:
    engine, usual = (
        SlotEngine(make(), Device("cpu", bf16=False), PAD, PAD, END),
        (gc.get_threshold(), sys.getswitchinterval()),
    )
    for _ in engine.stream([SearchBlock(sources(3), [[]])] * 3, SearchRequest(beam=1, max_extra=4)):
        assert (gc.get_threshold(), sys.getswitchinterval()) == usual


def test_blocks_before_one_that_fails_are_answered() -> None:
    engine, request = SlotEngine(make(), Device("cpu", bf16=False), PAD, PAD, END), SearchRequest(beam=1, max_extra=4)

    def blocks() -> Iterator[SearchBlock]:
        yield from [SearchBlock(sources(3, 4), [[], []])] * 3
        raise SettingError("no more")

    for answers in (decoded(engine, blocks(), request), engine.stream(blocks(), request)):
        assert len(list(itertools.islice(answers, 3))) == 3
        with pytest.raises(SettingError, match="no more"):
            next(answers)


def test_the_longest_sentences_of_all_open_blocks_go_first() -> None:
    blocks = [SentenceBlock(sources(*some), [[]] * len(some), some) for some in ([3, 9, 4], [5, 300, 8])]
    scheduler = Scheduler(iter(blocks), smallest=256)
    scheduler.receive()
    assert [len(one.source) for one in scheduler.take(256, 3)] == [9, 8, 5]
    assert [len(one.source) for one in scheduler.take(512, 3)] == [300]
    assert [len(one.source) for one in scheduler.take(256, 3)] == [4, 3]
    assert not list(scheduler.sizes())
    assert scheduler.take(256, 3) == []


@pytest.mark.parametrize("beam", [1, 3])
def test_an_engine_of_slots_goes_on_after_a_search_that_was_left(beam: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody reads one block of two, while sentences of the other are in their slots."""
    monkeypatch.setattr(ContinuousBatcher, "MAX_ROWS", 12)
    engine, request = (
        SlotEngine(make(), Device("cpu", bf16=False), PAD, PAD, END),
        SearchRequest(beam=beam, max_extra=3),
    )
    asked = sources(*range(1, 30))
    expected = searched(engine, asked, [[]] * len(asked), request)
    short = sources(*[5] * 60)
    left = decoded(engine, [SearchBlock(of, [[]] * len(of)) for of in (sources(*range(20, 40)), short)], request)
    next(left)
    left.close()
    assert not all(next(iter(engine.batcher.idle_pools.values())).search.finished)
    assert searched(engine, asked, [[]] * len(asked), request) == expected


@pytest.mark.numerics
@pytest.mark.parametrize("beam", [1, 2])
def test_an_engine_of_slots_has_no_more_positions_than_were_learned(beam: int) -> None:
    """A slot whose output has reached the last of them waits there until somebody looks."""
    model, request = make(positions="learned", max_positions=40), SearchRequest(beam=beam, max_extra=50)
    engines = [kind(model, Device("cpu", bf16=False), PAD, PAD, END) for kind in (SlotEngine, TorchEngine)]
    asked = sources(3, 20, 37)
    ours, theirs = (searched(engine, asked, [[]] * 3, request) for engine in engines)
    assert_hypotheses_agree(engines[1], request, asked, ours, theirs)


def test_an_engine_of_slots_leaves_the_rest_to_the_other() -> None:
    model = make(positions="rotary")
    device = Device("cpu", bf16=False)
    asked, request = sources(4), SearchRequest(beam=2, max_extra=3)
    ours, theirs = (
        searched(kind(model, device, PAD, PAD, END), asked, [[]], request) for kind in (SlotEngine, TorchEngine)
    )
    assert [one.tokens for one in ours[0]] == [one.tokens for one in theirs[0]]
    sampled = searched(
        SlotEngine(make(), device, PAD, PAD, END), sources(4), [[]], SearchRequest(sampling=True, max_extra=3)
    )
    assert len(sampled[0]) == 1


@pytest.mark.gpu
@pytest.mark.skipif(not GPU, reason="needs a GPU")
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("beam", [1, 4])
def test_an_engine_of_slots_finds_the_same_on_a_gpu(norm: str, beam: int) -> None:
    """All of its kernels together, in bfloat16, whose rounding may decide some outputs."""
    model = Transformer(dataclasses.replace(TINY, norm=norm, d_model=128, num_heads=2), 4096, 4096).eval()
    with torch.no_grad():
        model.target_embedding.weight.mul_(4)  # so that one class stands out
    device, request = Device("cuda", bf16=True), SearchRequest(beam=beam, max_extra=3)
    asked = [torch.randint(1, 4000, (n,)).tolist() for n in range(1, 40)]
    ours, theirs = (
        searched(kind(model, device, 4095, 4095, END), asked, [[]] * len(asked), request)
        for kind in (SlotEngine, TorchEngine)
    )
    assert sum(one[0].tokens == other[0].tokens for one, other in zip(ours, theirs, strict=True)) > 0.7 * len(asked)


def test_every_block_that_is_done_is_reported() -> None:
    engine, done = SlotEngine(make(), Device("cpu", bf16=False), PAD, PAD, END), list[int]()
    counts = [3, 1, 2]
    blocks = [SearchBlock(sources(4) * count, [[]] * count, searched=done.append) for count in counts]
    list(engine.stream(blocks, SearchRequest(beam=2, max_extra=3)))
    assert done == counts
