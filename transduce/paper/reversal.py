"""Reversing random sequences of growing lengths: a task that depends on how far a signal travels through the network.

The first symbol of the source is the last of the target. A network that carries a sentence in one vector must remember all of it;
attention looks it up. Writes files, and knows no model.
"""

import random
import string
from pathlib import Path

LONGEST = 40
SIZES = {"train": 20_000, "valid": 200, "test": 1_000}
SETTINGS = (
    "data.task=symbols",
    "data.source_units=word",
    "data.target_units=word",
    "data.joint=true",
    "model.dropout=0.0",
)


def write_reversal(folder: Path, longest: int = LONGEST, sizes: dict[str, int] = SIZES) -> None:
    """Random letters and the same backwards, of all lengths up to the longest: `train.source`, `train.target`, and so on."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (split, size) in enumerate(sizes.items()):
        draw = random.Random(number)
        sources = [draw.choices(string.ascii_lowercase, k=draw.randint(1, longest)) for _ in range(size)]
        for side, lines in (("source", sources), ("target", [source[::-1] for source in sources])):
            (folder / f"{split}.{side}").write_text("".join(f"{' '.join(line)}\n" for line in lines), encoding="utf-8")


def symbols_right(outputs: list[str], references: list[str]) -> float:
    """The share of reference symbols that the output has at the same place, in percent."""
    pairs = [(output.split(), reference.split()) for output, reference in zip(outputs, references, strict=True)]
    right = sum(one == other for output, reference in pairs for one, other in zip(output, reference, strict=False))
    return 100 * right / sum(len(reference) for _, reference in pairs)
