"""Pages: every pair whole and once, no row too full, hardly a place empty, and the data that feed a step."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.data.batches import padding_share
from transduce.data.packing import GRAIN, WIDTH, Widths, pack, pages_of_epoch
from transduce.data.pages import Paging, make_pages
from transduce.model import IGNORED
from transduce.threads import prefetch

pytestmark = pytest.mark.numerics

PAD = 99


class Memory:
    """Pairs in memory: pair n is n repeated, so that its tokens are known wherever they turn up."""

    def __init__(self, lengths: list[tuple[int, int]]) -> None:
        self.source_lengths = np.array([s for s, _ in lengths], np.int32)
        self.target_lengths = np.array([t for _, t in lengths], np.int32)

    def sources(self, numbers: np.ndarray) -> np.ndarray:
        return np.repeat(numbers, self.source_lengths[numbers])

    def targets(self, numbers: np.ndarray) -> np.ndarray:
        return np.repeat(numbers, self.target_lengths[numbers])


lengths = st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), min_size=1, max_size=150)


@given(lengths, st.integers(50, 2000), st.integers(50, 2000), st.integers(0, 3), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_a_plan_has_every_pair_once_and_no_row_too_full(
    pairs: list[tuple[int, int]], tokens: int, positions: int, seed: int, epoch: int
) -> None:
    memory = Memory(pairs)
    batches = [batch for step in Paging(tokens, positions, seed).plan(memory, epoch) for batch in step]  # type: ignore[arg-type]
    assert sorted(np.concatenate([batch.pairs for batch in batches])) == list(range(len(pairs)))
    for batch in batches:
        assert len(batch.counts) <= batch.rows
        row = np.repeat(np.arange(len(batch.counts)), batch.counts)
        for of_pairs, width in (
            (memory.source_lengths, batch.widths.source),
            (memory.target_lengths, batch.widths.target),
        ):
            assert np.bincount(row, of_pairs[batch.pairs]).max() <= width


def test_a_plan_is_a_function_of_seed_and_epoch() -> None:
    memory = Memory([(n % 40 + 1, n % 33 + 1) for n in range(2000)])

    def flat(seed: int, epoch: int) -> list[list[int]]:
        return [batch.pairs.tolist() for step in Paging(500, 500, seed).plan(memory, epoch) for batch in step]  # type: ignore[arg-type]

    assert flat(1, 2) == flat(1, 2)
    assert flat(1, 2) != flat(1, 3)
    assert flat(1, 2) != flat(2, 2)


def test_every_batch_of_a_width_has_the_same_shape() -> None:
    draw = np.random.default_rng(1)
    memory = Memory([(int(n), int(n * 0.9) + 1) for n in draw.lognormal(3.2, 0.6, 5000).clip(1, 600)])
    shapes = {
        (batch.rows, batch.widths)
        for epoch in range(3)
        for step in Paging(2560, 100_000, 1).plan(memory, epoch)  # type: ignore[arg-type]
        for batch in step
    }
    assert len({widths for _, widths in shapes}) == len(shapes) > 1
    assert all(rows * widths.target == pytest.approx(2560, rel=0.3) for rows, widths in shapes)


def test_a_step_of_more_than_fits_is_several_batches() -> None:
    memory = Memory([(20, 20)] * 2000)
    plan = Paging(tokens_per_batch=4096, max_positions=1024, seed=1).plan(memory, 0)  # type: ignore[arg-type]
    assert {len(step) for step in plan[:-1]} == {4}
    sizes = [sum(20 * len(batch.pairs) for batch in step) for step in plan[:-1]]
    assert np.mean(sizes) == pytest.approx(4096, rel=0.1)


def test_the_side_with_fewer_tokens_has_narrower_rows() -> None:
    assert Widths.fitting(1000, 1000) == Widths(WIDTH, WIDTH)
    narrow = Widths.fitting(750, 1000)
    assert narrow == Widths(96, WIDTH)
    assert Widths.fitting(1, 100_000).source == GRAIN


def test_rows_fill_up_on_translation_lengths() -> None:
    draw = np.random.default_rng(2)
    target = np.round(25 * np.exp(0.6 * draw.standard_normal(30_000))).clip(1, 128).astype(int)
    source = np.round(target * np.exp(0.2 * draw.standard_normal(30_000))).clip(1, 128).astype(int)
    rows = pack(source, target, Widths(WIDTH, WIDTH))
    assert (source.sum() + target.sum()) / (2 * WIDTH * len(rows)) > 0.94


def test_rows_fill_up_on_a_real_corpus(shared_data: Path) -> None:
    """Words stand in for subwords: as many pairs to a row, and as uneven."""
    sides = [
        [len(line.split()) + 1 for line in (shared_data / "multi30k" / f"train.{language}").read_text().split("\n")]
        for language in ("en", "de")
    ]
    memory = Memory(list(zip(*sides, strict=True)))
    paging = Paging(tokens_per_batch=4096, max_positions=100_000, seed=1)
    assert padding_share(paging, paging.plan(memory, 0), memory) < 0.06  # type: ignore[arg-type]


def test_a_pages_batch_holds_whole_pairs_side_by_side() -> None:
    memory = Memory([(3, 2), (2, 4), (5, 1), (1, 1)])
    order = np.random.default_rng(0)
    numbers = np.arange(4)
    (pages,) = pages_of_epoch(memory.source_lengths, memory.target_lengths, numbers, 16, Widths(8, 8), order)
    batch = make_pages(memory, pages, PAD, PAD)  # type: ignore[arg-type]
    assert batch.tokens == 8
    assert 1 - batch.padding == pytest.approx(19 / (2 * 8 * 2))
    for row in range(pages.rows):
        for segment in range(1, int(batch.source.segment[row].max()) + 1):
            source, target = batch.source.segment[row] == segment, batch.target.segment[row] == segment
            number = int(batch.source.ids[row][source][0])
            assert batch.source.ids[row][source].tolist() == [number] * memory.source_lengths[number]
            assert batch.source.position[row][source].tolist() == list(range(memory.source_lengths[number]))
            assert batch.labels[row][target].tolist() == [number] * memory.target_lengths[number]
            assert batch.target.ids[row][target].tolist() == [PAD, *batch.labels[row][target].tolist()[:-1]]
            assert batch.target.position[row][target].tolist() == list(range(memory.target_lengths[number]))
    assert (batch.labels[~batch.target.real] == IGNORED).all()
    assert (batch.source.ids[~batch.source.real] == PAD).all()


# --- feeding a step --------------------------------------------------------------------------------------------


def test_prefetched_items_come_in_order_and_stop_with_their_user() -> None:
    made: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(1000):
            made.append(number)
            yield number

    before = threading.active_count()
    with prefetch(numbers(), depth=3) as items:
        assert [next(items) for _ in range(5)] == list(range(5))
        time.sleep(0.05)
        assert len(made) <= 5 + 3 + 1, "no further ahead than asked"
    assert threading.active_count() == before


def test_waiting_for_a_prefetched_item_can_be_cancelled() -> None:
    never = threading.Event()

    def nothing() -> Iterator[int]:
        never.wait(60)
        yield 1

    with prefetch(nothing(), depth=1, join_timeout_s=0.1) as items:
        threading.Timer(0.1, items.cancelled.set).start()
        assert list(items) == []
    never.set()


def test_prefetched_items_end() -> None:
    with prefetch([1, 2, 3], depth=1) as items:
        assert list(items) == [1, 2, 3]


def test_an_exception_while_prefetching_is_raised_by_next() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("the disk is gone")

    with prefetch(broken(), depth=8) as items:
        assert next(items) == 1
        with pytest.raises(ValueError, match="the disk is gone"):
            next(items)
