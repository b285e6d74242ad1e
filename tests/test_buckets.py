"""Padded batches of few shapes: every pair once, shapes that repeat, and the loss of ordinary batches."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from transduce.audio.features import BINS
from transduce.config import SpeechConfig
from transduce.data.batches import Batch, make_batch, padding_share
from transduce.data.buckets import Bucketing
from transduce.model import make_model

PAD = 9


class Recordings:
    """Recordings of random numbers with random texts."""

    groups = (0,)

    def __init__(self, lengths: list[tuple[int, int]]) -> None:
        self.source_lengths = np.array([s for s, _ in lengths], np.int32)
        self.target_lengths = np.array([t for _, t in lengths], np.int32)

    def source(self, index: int) -> np.ndarray:
        draw = np.random.default_rng(index)
        return draw.normal(size=(self.source_lengths[index], BINS)).astype(np.float16)

    def target(self, index: int) -> np.ndarray:
        return np.random.default_rng(index).integers(1, PAD, self.target_lengths[index])


lengths = st.lists(st.tuples(st.integers(1, 900), st.integers(1, 60)), min_size=1, max_size=120)


@given(lengths, st.integers(1, 400), st.integers(1, 6000), st.integers(0, 3), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_a_plan_has_every_pair_once_in_rows_that_hold_it(
    pairs: list[tuple[int, int]], tokens: int, positions: int, seed: int, epoch: int
) -> None:
    recordings = Recordings(pairs)
    steps = Bucketing(tokens, positions, seed, 15.0).plan(recordings, epoch)  # type: ignore[arg-type]
    batches = [batch for step in steps for batch in step]
    assert sorted(np.concatenate([batch.pairs for batch in batches])) == list(range(len(pairs)))
    assert sum(len(batch.pairs) < batch.rows for batch in batches) <= 1
    for batch in batches:
        assert recordings.source_lengths[batch.pairs].max() <= batch.source_width
        assert recordings.target_lengths[batch.pairs].max() <= batch.target_width
        assert batch.rows == 1 or batch.rows * batch.source_width <= positions


def test_there_are_few_shapes_and_little_padding() -> None:
    """As in the seven hours of a news corpus: an epoch of 60 steps, with other speeds in every epoch."""
    draw = np.random.default_rng(0)
    seconds = draw.normal(11.3, 3.5, 2500).clip(2, 24)
    bucketing, shapes = Bucketing(2900, 131_072, 1, 15.0), set()
    for epoch in range(3):
        frames = (seconds * 100 / draw.choice([0.9, 1.0, 1.1], 2500)).astype(int)
        recordings = Recordings(list(zip(frames, (seconds * 7).astype(int), strict=True)))
        steps = bucketing.plan(recordings, epoch)  # type: ignore[arg-type]
        assert all(len(step) == 1 for step in steps)
        shapes |= {(batch.rows, batch.source_width, batch.target_width) for (batch,) in steps}
        assert padding_share(bucketing, steps, recordings) < 0.12  # type: ignore[arg-type]
        tokens = [recordings.target_lengths[batch.pairs].sum() for (batch,) in steps]
        assert np.mean(tokens) == pytest.approx(2900, rel=0.1)
    assert len(shapes) < 40


@pytest.mark.parametrize("convolution", [0, 3])
def test_padding_and_empty_rows_change_neither_loss_nor_gradients(convolution: int) -> None:
    torch.manual_seed(0)
    shape = {"d_model": 16, "d_ff": 32, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1}
    config = SpeechConfig(family="speech", **shape, dropout=0.0, convolution=convolution)  # type: ignore[arg-type]
    model = make_model(config, BINS, PAD + 1)
    recordings = Recordings([(61, 5), (40, 3), (77, 9)])
    bucketing = Bucketing(60, 10_000, 1, 10.0)
    ((planned,),) = bucketing.plan(recordings, 0)  # type: ignore[arg-type]
    assert planned.rows > 3
    assert planned.source_width > 77

    def results(batch: Batch) -> list[Tensor]:
        loss = model.loss(batch.source, batch.target, batch.labels, 0.1)
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        gradients = torch.autograd.grad(loss.minimised, parameters, allow_unused=True)
        return [loss.minimised, loss.cross_entropy, *(one for one in gradients if one is not None)]

    wanted = results(make_batch(recordings, planned.pairs, PAD, PAD))  # type: ignore[arg-type]
    for got, want in zip(results(bucketing.make(recordings, planned, PAD, PAD)), wanted, strict=True):  # type: ignore[arg-type]
        torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-3)
