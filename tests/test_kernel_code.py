"""The code that Triton makes of a kernel for a GPU: compiled here for Hopper, which needs no GPU.

Triton's interpreter, in which the other tests of kernels run without a GPU, knows neither copies that run beside the program nor fences.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton is not installed: plain PyTorch runs instead")

# In a process of its own: where there is no GPU, this one has only the interpreter.
COMPILE = """
import sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from transduce.model.kernels.attention import BACKWARD_WARPS, _attend_backward

bf16, whole, number = "*bf16", "*i32", "i32"
types = dict(
    gradient=bf16, queries=bf16, keys=bf16, values=bf16, q_bias=bf16, query_segment=whole, key_segment=whole, levels="*fp32",
    d_queries=bf16, d_keys=bf16, d_values=bf16, sums="*fp32", out_stride=number, q_stride=number, k_stride=number,
    scale="fp32", bits="fp32", tiles=number,
)
Q, K = map(int, sys.argv[1:3])
constants = dict(
    Q=Q, K=K, E=64, H=4, BLOCK_Q=128, BLOCK_K=128, CAUSAL=sys.argv[3] == "causal", WINDOW=int(sys.argv[4]), AHEAD=2, FENCE=True
)
names = _attend_backward.arg_names
aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if types.get(name, "fp32") != "fp32"}
signature = {name: types.get(name, "constexpr") for name in names}
source = ASTSource(_attend_backward, signature, constants, aligned)
print(triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": BACKWARD_WARPS}).asm["ptx"])
"""

OURS = "fence.proxy.async.shared::cta; mov.b32"


def compiled(queries: int, keys: int, causal: str, window: int, folder: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, str(queries), str(keys), causal, str(window)],
        capture_output=True, text=True, check=False, env=clean | {"TRITON_CACHE_DIR": str(folder)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("queries", "keys", "causal", "window"),
    [(128, 128, "", 0), (102, 102, "causal", 0), (102, 128, "", 0), (128, 128, "", 8)],
)
def test_a_fence_is_between_the_copies_of_tiles_and_the_products_that_read_them(
    queries: int, keys: int, causal: str, window: int, tmp_path: Path
) -> None:
    """Otherwise a product may read what was in shared memory before, and a training would not repeat its bits."""
    code = compiled(queries, keys, causal, window, tmp_path)
    assert "cp.async.c" in code, "the tiles are not copied asynchronously: the kernel no longer needs its fence"
    body = code[code.index("cp.async.wait_group") :]
    wait, fence, product = (body.index(part) for part in ("bar.sync", OURS, "wgmma.mma_async"))
    assert wait < fence < product
    assert code.count(OURS) == 1, "one fence is enough for all products of a tile"
