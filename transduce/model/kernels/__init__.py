"""The GPU's short cuts: each computes what some lines of plain PyTorch elsewhere do, in fewer passes over memory.

Every kernel's plain form is its oracle (tests/test_kernels.py) and what runs where there is no GPU, in float32, and
whenever a case is not covered here. Only `model`, the loss and `continuous` know that kernels exist.

Written in Triton, which comes with PyTorch's GPU builds. Under TRITON_INTERPRET=1 they also run on a CPU, for tests.
"""

import contextlib
import os

import torch
from torch import Tensor

ALIGNED = 8  # elements of bfloat16: rows of other lengths are multiplied at a fraction of the speed, or not at all

HEAD_WIDTHS = (16, 32, 64, 128)  # that a program can hold

HAVE_TRITON = False
if torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1":  # elsewhere it would only cost time
    with contextlib.suppress(ImportError):
        import triton.language  # noqa: F401

        HAVE_TRITON = True

if HAVE_TRITON:
    from transduce.model.kernels.attention import fits_a_page
    from transduce.model.kernels.cross_entropy import projected_cross_entropy
    from transduce.model.kernels.feed_forward import relu_product
    from transduce.model.kernels.r_drop import projected_r_drop
    from transduce.model.kernels.sublayers import Around, Last, feed_forward, leave, self_attention, source_attention

__all__ = [
    "ALIGNED",
    "HEAD_WIDTHS",
    "Around",
    "Last",
    "feed_forward",
    "fits_a_page",
    "leave",
    "projected_cross_entropy",
    "projected_r_drop",
    "relu_product",
    "self_attention",
    "serve",
    "source_attention",
]


def serve(x: Tensor) -> bool:
    """Whether kernels take care of a tensor: in bfloat16 on a GPU, where training spends its time."""
    return HAVE_TRITON and x.is_cuda and x.dtype == torch.bfloat16
