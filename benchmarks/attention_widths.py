"""Which attention serves packed rows that are wider than the kernel's 128 positions?

    python benchmarks/attention_widths.py                 on a GPU: forward and backward of self-attention, by width

The same number of tokens at every width, packed with sequences of the given lengths: sentences (128), the contexts of language
models (256 to 1,024) and of speech (250 to 1,000 frames). Candidates: our kernel (up to 128), PyTorch's
scaled_dot_product_attention with a mask, the same without a mask where a row is one sequence, and FlexAttention with a block mask
(compiled). Times are medians of one call, forward and backward, alternating.
"""

import argparse
import statistics
from collections.abc import Callable

import torch
from facts import write_result
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from transduce.model.kernels.attention import WIDEST, attend, attend_backward

TOKENS, HEADS, HEAD = 25_600, 8, 64
CASES = [
    (128, 25),
    (256, 256),
    (256, 64),
    (512, 512),
    (1_024, 1_024),
    (1_024, 250),
]  # width of a row, length of a sequence


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--name", default="", help="write benchmarks/results/NAME.json")
    options = parser.parse_args()
    rows = [row for width, length in CASES for row in measure(width, length, options.rounds)]
    for row in rows:
        print(f"{row['width']:6} {row['sequence']:6}  {row['way']:24} {row['ms']:8.3f} ms")
    if options.name:
        write_result(options.name, "python benchmarks/attention_widths.py", ["torch", "triton"], rows=rows)


def measure(width: int, length: int, rounds: int) -> list[dict]:
    """Every candidate at this width, alternating; all of them see the same causal sequences."""
    batch = TOKENS // width
    segment = (torch.arange(width, device="cuda") // length + 1).expand(batch, -1).contiguous()
    inputs = [
        torch.randn(batch, HEADS, width, HEAD, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        for _ in range(3)
    ]
    candidates = ways(segment, width, length)
    reference = candidates["masked SDPA"](*inputs).detach()
    times: dict[str, list[float]] = {}
    for name, way in candidates.items():
        difference = (way(*inputs).detach() - reference).abs().max().item()
        assert difference < 0.05, (name, difference)
        run(way, inputs)
    ours = our_kernel(segment, [one.detach() for one in inputs]) if width <= WIDEST else None
    for _ in range(rounds):
        for name, way in candidates.items():
            times.setdefault(name, []).append(run(way, inputs))
        if ours:
            times.setdefault("our kernel", []).append(timed(ours))
    return [
        {"width": width, "sequence": length, "way": name, "ms": round(statistics.median(all_), 3)}
        for name, all_ in times.items()
    ]


def ways(segment: torch.Tensor, width: int, length: int) -> dict[str, Callable[..., torch.Tensor]]:
    """What can compute this attention."""
    mask = (segment[:, None, :, None] == segment[:, None, None, :]).tril()

    def document(b, h, q, k):  # type: ignore[no-untyped-def]
        return (segment[b, q] == segment[b, k]) & (q >= k)

    blocks = create_block_mask(document, len(segment), None, width, width, device="cuda")
    flex = torch.compile(flex_attention, dynamic=False)
    found: dict[str, Callable[..., torch.Tensor]] = {
        "masked SDPA": lambda q, k, v: scaled_dot_product_attention(q, k, v, mask),
        "FlexAttention": lambda q, k, v: flex(q, k, v, block_mask=blocks),
    }
    if length >= width:
        found["causal SDPA, no mask"] = lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=True)
    return found


def our_kernel(segment: torch.Tensor, inputs: list[torch.Tensor]) -> Callable[[], object]:
    """The kernel of the model, which takes heads side by side."""
    beside = tuple(one.transpose(1, 2).flatten(2).contiguous() for one in inputs)
    biases = tuple(torch.zeros(HEADS * HEAD, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    gradients = tuple(torch.empty_like(one) for one in beside)
    segment = segment.int()

    def both() -> object:
        out, levels = attend(beside, biases, segment, segment, HEADS, causal=True)
        return attend_backward(out, levels, beside, biases, gradients, segment, segment, HEADS, causal=True)

    both()
    return both


def run(way: Callable[..., torch.Tensor], inputs: list[torch.Tensor]) -> float:
    """Milliseconds of one forward and backward pass."""

    def both() -> None:
        out = way(*inputs)
        torch.autograd.grad(out, inputs, out.detach())

    return timed(both)


def timed(work: Callable[[], object]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


if __name__ == "__main__":
    main()
