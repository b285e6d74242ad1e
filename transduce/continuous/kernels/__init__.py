"""The Triton kernels of a decoding step; `plain.py` and `search.py` have the same functions in plain PyTorch.

They are imported only where Triton can run: on a GPU, or in its interpreter for tests.
"""

from transduce.model.kernels import HAVE_TRITON

if HAVE_TRITON:
    from transduce.continuous.kernels.attention import attend_to_past, attend_to_source
    from transduce.continuous.kernels.classes import MAX_BEST, best

__all__ = ["MAX_BEST", "attend_to_past", "attend_to_source", "best"]
