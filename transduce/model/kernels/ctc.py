"""The sums of CTC over all paths, frame by frame, in one launch.

Operation by operation, a scan over a thousand frames is thousands of launches, which take longer than the rest of a training step.

Axes: R rows, T frames, S states.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

WARPS = 4
NEVER = tl.constexpr(-1e30)  # the logarithm of 0, as in transduce/model/speech/ctc.py


def ctc_sums(emitted: Tensor, skips: Tensor) -> Tensor:
    """The log-probability of all paths [R, T, S] that are in a state at a frame, that frame included.

    `emitted` [R, T, S] has the log-probability of each state's label at each frame, and `skips` [R, S] what it costs to come from the
    state before the last one.
    """
    emitted = emitted.contiguous()
    rows, frames, states = emitted.shape
    sums = torch.empty_like(emitted)
    _scan[(rows,)](
        emitted, skips.contiguous(), sums, frames, states, BLOCK=triton.next_power_of_2(states), num_warps=WARPS
    )
    return sums


@triton.jit
def _scan(emitted, skips, sums, T, S, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    state = tl.arange(0, BLOCK)
    exists = state < S
    skip = tl.load(skips + row * S + state, exists, NEVER)
    emitted += row * T * S
    sums += row * T * S
    first = tl.load(emitted + state, state < tl.minimum(S, 2), NEVER)  # a path begins with a blank or the first label
    tl.store(sums + state, first, exists)
    for frame in range(1, T):
        tl.debug_barrier()  # other threads have stored the frame before
        last = sums + (frame - 1) * S + state
        stay = tl.load(last, exists, NEVER)
        next_state = tl.load(last - 1, exists & (state >= 1), NEVER)
        skipped = tl.load(last - 2, exists & (state >= 2), NEVER) + skip
        highest = tl.maximum(tl.maximum(stay, next_state), skipped)
        total = tl.exp(stay - highest) + tl.exp(next_state - highest) + tl.exp(skipped - highest)
        here = tl.load(emitted + frame * S + state, exists, NEVER)
        tl.store(sums + frame * S + state, highest + tl.log(total) + here, exists)
