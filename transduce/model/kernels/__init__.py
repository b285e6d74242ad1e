"""The GPU's short cuts: each computes what a few lines of plain PyTorch elsewhere in this folder do, in fewer passes
over memory.

Every kernel's plain form is its oracle (tests/test_kernels.py) and what runs where there is no GPU, in float32, and
whenever a case is not covered here. Nothing outside `model` and the loss knows that kernels exist.

Written in Triton, which comes with PyTorch's GPU builds. Under TRITON_INTERPRET=1 they also run on a CPU, for tests.
"""

import torch
from torch import Tensor

try:
    import triton.language  # noqa: F401
except ImportError:
    HAVE_TRITON = False
else:
    HAVE_TRITON = True
    from transduce.model.kernels.attention import attend_to_memory, attend_to_self, fits_a_page
    from transduce.model.kernels.cross_entropy import MOST_IDS, projected_cross_entropy
    from transduce.model.kernels.feed_forward import relu_product
    from transduce.model.kernels.residual import add, add_and_norm

__all__ = [
    "MOST_IDS",
    "add",
    "add_and_norm",
    "attend_to_memory",
    "attend_to_self",
    "fits_a_page",
    "projected_cross_entropy",
    "relu_product",
    "serve",
]


def serve(x: Tensor) -> bool:
    """Whether kernels take care of a tensor: in bfloat16 on a GPU, where training spends its time."""
    return HAVE_TRITON and x.is_cuda and x.dtype == torch.bfloat16
