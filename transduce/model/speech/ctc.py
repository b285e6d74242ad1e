"""Connectionist temporal classification (Graves et al. 2006): the probability of labels, summed over all alignments to frames.

An alignment gives each frame a label or the blank; repeated labels are merged and blanks removed. Alignments are sums over paths
through 2L + 1 states: blank, first label, blank, second label, ... The loss here is deterministic on every device, unlike torch's
on GPUs: forward and backward sums are one scan of fixed shapes, and the gradient is a matrix product instead of scattered additions.

Axes: R rows, T frames, C classes with the blank, L labels, S = 2L + 1 states.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from transduce.model import kernels
from transduce.model.shapes import Float, Int

NEVER = -1e30  # the logarithm of 0; finite, so that differences are not NaN


def ctc_loss(
    log_probs: Float[Tensor, "R T C"],
    frames: Int[Tensor, "R"],
    labels: Int[Tensor, "R L"],
    counts: Int[Tensor, "R"],
    blank: int,
) -> Float[Tensor, "R"]:
    """Minus the log-probability of each row's first `counts` labels over its first `frames` frames.

    A row without frames, or with fewer than its labels need, has no alignment; its loss and gradient are 0.
    """
    loss: Tensor = _CtcLoss.apply(log_probs, frames, labels, counts, blank)
    return loss


class _CtcLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, log_probs: Tensor, frames: Tensor, labels: Tensor, counts: Tensor, blank: int
    ) -> Float[Tensor, "R"]:
        states = _states(labels, counts, blank)
        ends = 2 * counts + 1
        emitted = log_probs.gather(2, states[:, None].expand(-1, log_probs.shape[1], -1))
        reversed_states = _reversed(states, ends)
        reversed_emitted = _reversed(_reversed(emitted, frames).mT, ends).mT
        both = _scan(torch.cat([emitted, reversed_emitted]), torch.cat([states, reversed_states]), blank)
        before, after = both.chunk(2)
        after = _reversed(_reversed(after, frames).mT, ends).mT
        total = _total(before, frames, ends)
        possible = (total > NEVER / 2) & (frames > 0)
        exists = torch.arange(states.shape[1], device=states.device) < ends[:, None]
        is_frame = torch.arange(log_probs.shape[1], device=states.device) < frames[:, None]
        inside = is_frame[:, :, None] & exists[:, None] & possible[:, None, None]
        occupied = torch.where(inside, before + after - emitted - total[:, None, None], NEVER).exp()
        ctx.save_for_backward(occupied, states)
        ctx.classes = log_probs.shape[2]
        return torch.where(possible, -total, 0.0)

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        """Minus the probability that each frame is in each class, given the labels."""
        occupied, states = ctx.saved_tensors
        classes = torch.arange(ctx.classes, device=states.device)
        gradient = occupied @ (states[..., None] == classes).to(occupied.dtype)
        return -gradient * outer[0][:, None, None], None, None, None, None


def _states(labels: Tensor, counts: Tensor, blank: int) -> Int[Tensor, "R S"]:
    """Blanks around and between the labels; those beyond the last label are blanks too."""
    real = torch.arange(labels.shape[1], device=labels.device) < counts[:, None]
    states = labels.new_full((len(labels), 2 * labels.shape[1] + 1), blank)
    states[:, 1::2] = torch.where(real, labels, blank)
    return states.long()


def _scan(emitted: Float[Tensor, "R T S"], states: Int[Tensor, "R S"], blank: int) -> Float[Tensor, "R T S"]:
    """The log-probability of all paths that are in a state at a frame, that frame included."""
    before_last = pad(states, (2, 0), value=blank)[:, :-2]
    skips = torch.where((states != blank) & (states != before_last), 0.0, NEVER)
    if kernels.HAVE_TRITON and emitted.is_cuda:
        return kernels.ctc_sums(emitted, skips)
    return _scan_by_steps(emitted, skips)


def _scan_by_steps(emitted: Float[Tensor, "R T S"], skips: Float[Tensor, "R S"]) -> Float[Tensor, "R T S"]:
    """The same, operation by operation."""
    rows, frames, states = emitted.shape
    sums = emitted.new_full((frames, rows, states + 2), NEVER)  # two states before the first
    by_frame = emitted.transpose(0, 1)
    sums[0, :, 2:4] = by_frame[0, :, :2]
    for frame in range(1, frames):
        last = sums[frame - 1]
        near = torch.logaddexp(last[:, 2:], last[:, 1:-1])
        reached = torch.logaddexp(near, last[:, :-2] + skips)
        torch.add(reached, by_frame[frame], out=sums[frame, :, 2:])
    return sums[:, :, 2:].transpose(0, 1)


def _total(before: Float[Tensor, "R T S"], frames: Tensor, ends: Tensor) -> Float[Tensor, "R"]:
    """Paths end in the last label or in the blank after it."""
    row = torch.arange(len(before), device=before.device)
    last = before[row, (frames - 1).clamp(min=0)]
    in_label = torch.where(ends > 1, last[row, (ends - 2).clamp(min=0)], NEVER)
    return torch.logaddexp(last[row, ends - 1], in_label)


def _reversed(rows: Tensor, lengths: Int[Tensor, "R"]) -> Tensor:
    """Each row with its first `lengths` entries in the opposite order."""
    index = torch.arange(rows.shape[1], device=rows.device)
    index = torch.where(index < lengths[:, None], lengths[:, None] - 1 - index, index)
    return rows.gather(1, index if rows.dim() == 2 else index[:, :, None].expand(-1, -1, rows.shape[2]))
