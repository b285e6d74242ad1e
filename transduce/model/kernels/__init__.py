"""GPU kernels: each replaces a few lines of plain PyTorch and makes fewer passes over memory.

The plain PyTorch code is the reference that the kernels are tested against (tests/test_kernels.py). It also runs wherever the
kernels do not: without a GPU, in float32, and in cases they do not support. Only `model` and `continuous` call kernels.

They are written in Triton, which comes with PyTorch's GPU builds. With TRITON_INTERPRET=1 they also run on a CPU, for tests.
"""

import contextlib
import os

import torch
from torch import Tensor

ALIGNED = 8  # bfloat16 elements (16 bytes): products of rows of other lengths are much slower, or fail

HEAD_WIDTHS = (16, 32, 64, 128)  # that the attention kernel supports

HAVE_TRITON = False
if torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1":  # elsewhere the import would only cost time
    with contextlib.suppress(ImportError):
        import triton.language  # noqa: F401

        HAVE_TRITON = True

if HAVE_TRITON:
    from transduce.model.kernels.attention import fits_a_page
    from transduce.model.kernels.cross_entropy import projected_cross_entropy
    from transduce.model.kernels.ctc import ctc_sums
    from transduce.model.kernels.feed_forward import relu_product
    from transduce.model.kernels.r_drop import projected_r_drop
    from transduce.model.kernels.sublayers import (
        OutputParameters,
        ResidualOptions,
        add_bias_and_norm,
        causal_attention,
        feed_forward,
        self_attention,
        source_attention,
    )

__all__ = [
    "ALIGNED",
    "HEAD_WIDTHS",
    "OutputParameters",
    "ResidualOptions",
    "add_bias_and_norm",
    "causal_attention",
    "ctc_sums",
    "feed_forward",
    "fits_a_page",
    "projected_cross_entropy",
    "projected_r_drop",
    "relu_product",
    "self_attention",
    "source_attention",
    "supports",
]


def supports(x: Tensor) -> bool:
    """Whether the kernels compute with this tensor: only in bfloat16 on a GPU, which is how training runs there."""
    return HAVE_TRITON and x.is_cuda and x.dtype == torch.bfloat16
