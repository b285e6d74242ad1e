"""Every value of the model's settings on a GPU: kernels and slots against the plain path.

    python benchmarks/every_setting_gpu.py

Walks every value, and then pairs of values, until the time is over (four minutes by default). Kernels: loss and gradients in
bfloat16, with kernels and without, against double precision. Slots: the log-probability of every token that they
report, against the plain engine in float32. The table at the end says how many were the same, left to the plain path, or
refused; a difference makes the exit code 1. Writes `results/every-setting-gpu.json`.
"""

import argparse
import copy
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from facts import write_result
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from setting_values import Change, changed, changes, label, pairs_of_changes, refusal

from transduce.config import TransformerConfig
from transduce.continuous import decoder as slots
from transduce.device import Device
from transduce.model import IGNORED, Tokens, Transformer, fused, kernels
from transduce.translator.engine import SearchBlock, SearchRequest
from transduce.translator.slot_engine import SlotEngine
from transduce.translator.torch_engine import TorchEngine

PAD, END = 60, 0
REQUEST = SearchRequest(beam=1, alpha=1.0, length_penalty="power", max_extra=3)
KERNELS_OFF = 0.02  # relative error in bfloat16 beyond twice that of plain PyTorch
TOKEN_OFF = 0.05  # of a log-probability in bfloat16, beyond twice that of the plain engine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=4.0, help="time after which no further pair is begun")
    options = parser.parse_args()
    begun, tally, wrong = time.monotonic(), Counter[str](), []
    cases = [*((change,) for change in singles()), *pairs_of_changes(fused.SUPPORTS, slots.SUPPORTS)]
    for walked, those in enumerate(cases):
        if time.monotonic() - begun > 60 * options.minutes:
            tally["not walked, for lack of time"] = len(cases) - walked
            break
        for result in walk(those, tally):
            wrong.append(result)
            print(f"DIFFERENT: {result}", flush=True)
    seconds = round(time.monotonic() - begun)
    path = write_result(
        "every-setting-gpu", "python benchmarks/every_setting_gpu.py", ["torch"],
        seconds=seconds, cases=len(cases), counts=dict(tally), different=wrong,
    )  # fmt: skip
    print(f"\n{path}: {len(cases)} cases, {seconds} s")
    for what, count in sorted(tally.items()):
        print(f"{count:6}  {what}")
    print(f"{len(wrong):6}  different")
    sys.exit(bool(wrong))


def singles() -> list[Change]:
    """Every value of every setting of the model, but for the largest sizes, which take minutes or all memory."""
    return [(one, value) for one, value in changes("model") if one.kind is not int or value != one.about.most]


def walk(those: tuple[Change, ...], tally: Counter[str]) -> Iterator[str]:
    """Count what comes of these settings; what differs is yielded."""
    tally["walked"] += 1
    if refusal(*those):
        tally["refused"] += 1
        return
    model = trained(changed(*those))
    for name, understood, difference in (
        ("kernels", fused.understands(model.config), kernel_difference(model)),
        ("slots", slots.understands(model.config), slot_difference(model)),
    ):
        tally[f"{name}: {'the same' if understood else 'left to the plain path, the same'}"] += not difference
        if difference:
            yield f"{label(*those)}: {name}: {difference}"


# --- a tiny model ----------------------------------------------------------------------------------------------


def sentences() -> list[list[int]]:
    draw = random.Random(1)
    return [[*(draw.randrange(2, PAD) for _ in range(draw.randint(2, 6))), END] for _ in range(96)]


def loss_of(model: Transformer) -> Tensor:
    """Of pairs whose target is the source backwards, three of them in a row."""
    pairs = [(source, [*source[-2::-1], END]) for source in sentences()]
    rows = [pairs[n : n + 3] for n in range(0, len(pairs), 3)]
    source = Tokens.packed([[one for one, _ in row] for row in rows], PAD).to("cuda")
    target = Tokens.packed([[[PAD, *other[:-1]] for _, other in row] for row in rows], PAD).to("cuda")
    labels = Tokens.packed([[other for _, other in row] for row in rows], IGNORED).ids.to("cuda")
    return model.loss(source, target, labels, 0.1).minimised


def trained(config: TransformerConfig) -> Transformer:
    """After two steps of gradient descent in float32, without dropout: at its bound it leaves no finite weight."""
    torch.manual_seed(1)
    model = Transformer(config, PAD + 1, PAD + 1).cuda().eval()
    for _ in range(2):
        model.zero_grad()
        loss_of(model).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter -= 0.05 * parameter.grad / parameter.grad.norm().clamp_min(1e-6)
    return model


# --- kernels ---------------------------------------------------------------------------------------------------


@contextmanager
def without_kernels() -> Iterator[None]:
    supports = kernels.supports
    kernels.supports = lambda x: False
    try:
        yield
    finally:
        kernels.supports = supports


def gradients(model: Transformer) -> dict[str, Tensor]:
    model.zero_grad()
    loss = loss_of(model)
    loss.backward()
    found = {name: p.grad.double() for name, p in model.named_parameters() if p.grad is not None}
    return {"loss": loss.detach().double(), **found}


def kernel_difference(model: Transformer) -> str:
    """Where kernels are further from double precision than twice what plain PyTorch in bfloat16 is."""
    expected = gradients(copy.deepcopy(model).double())
    served = copy.deepcopy(model).to(torch.bfloat16)
    fast = gradients(served)
    with without_kernels():
        plain = gradients(served)
    largest = max(float(want.norm()) for want in expected.values())
    for name, want in expected.items():
        size = float(want.norm()) + 0.02 * largest
        ours, theirs = (float((found[name] - want).norm()) / size for found in (fast, plain))
        if not ours <= 2 * theirs + KERNELS_OFF:
            return f"{name} is off by {ours:.3f}, plain PyTorch by {theirs:.3f}"
    return ""


# --- slots -----------------------------------------------------------------------------------------------------


def slot_difference(model: Transformer) -> str:
    """Where a token's log-probability by slots is further from float32 than twice what the plain engine in bfloat16 is."""
    sources = sentences()[:6]
    block = SearchBlock(sources, [source[:2] for source in reversed(sources)])
    fast = SlotEngine(copy.deepcopy(model), Device("cuda", bf16=True), PAD, PAD, END)
    (every,) = fast.stream(iter([block]), REQUEST)
    found = [best[0] for best in every]
    outputs = [[*one.tokens, END] for one in found]
    precise, plain = (
        TorchEngine(copy.deepcopy(model), Device("cuda", bf16=bf16), PAD, PAD, END).score(sources, outputs)
        for bf16 in (False, True)
    )
    usual = max(abs(a - b) for rows in zip(plain, precise, strict=True) for a, b in zip(*rows, strict=True))
    for one, want in zip(found, precise, strict=True):
        for got, value in zip(one.token_log_probabilities, want, strict=False):
            if not abs(got - value) <= 2 * usual + TOKEN_OFF:
                return f"a token's log-probability is {got:.3f}, not {value:.3f} (plain bf16 is off by {usual:.3f})"
    return ""


if __name__ == "__main__":
    main()
