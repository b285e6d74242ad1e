"""A character-level language model of Shakespeare: loss, seconds and a sample, for three seeds.

    python benchmarks/shakespeare.py --name shakespeare          on a GPU: about a minute for each seed, at most

The first 90 % of the characters are for training and the rest for validation, as in nanoGPT, whose loss is 1.4697. Ours is over
the whole validation text, in windows of 256 that do not overlap (the expectation of nanoGPT's estimate) and in windows that
overlap by half. Seconds are those of the whole command, from its start to the model card.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from facts import default_data, write_result

import transduce

ROOT = Path(__file__).parents[1]
ANCHOR = 1.4697


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=default_data() / "shakespeare" / "input.txt")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--set", nargs="*", default=[], help="settings to change, such as train.steps=20")
    parser.add_argument("--name", default="", help="write benchmarks/results/NAME.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        files = split(options.data, Path(scratch))
        rows = [run(seed, files, Path(scratch, f"seed{seed}"), options.set) for seed in options.seeds]
    print(rows[0]["sample"])
    for row in rows:
        print(f"seed {row['seed']}  loss {row['loss']:.4f}  strided {row['strided']:.4f}  {row['seconds']:.1f} s")
    print(f"nanoGPT: {ANCHOR}")
    if options.name:
        write_result(options.name, "python benchmarks/shakespeare.py", ["torch"], anchor=ANCHOR, rows=rows)


def split(text: Path, folder: Path) -> tuple[Path, Path]:
    """The first 90 % of the characters, and the rest."""
    whole = text.read_text(encoding="utf-8")
    border = int(0.9 * len(whole))
    files = folder / "train.txt", folder / "valid.txt"
    for path, part in zip(files, (whole[:border], whole[border:]), strict=True):
        path.write_text(part, encoding="utf-8")
    return files


def run(seed: int, files: tuple[Path, Path], folder: Path, settings: list[str]) -> dict:
    """Train in a process of its own, so that starting counts."""
    begun = time.perf_counter()
    subprocess.run(
        [
            *(sys.executable, "-m", "transduce", "train", str(folder), "--seed", str(seed)),
            *("--config", str(ROOT / "configs" / "shakespeare-char.toml")),
            *("--text", str(files[0]), "--valid-text", str(files[1])),
            *(["--set", *settings] if settings else []),
        ],
        check=True,
    )
    seconds = time.perf_counter() - begun
    model, text = transduce.load_language_model(folder), files[1].read_text(encoding="utf-8")
    loss, strided = (model.score(text, stride).nats_per_token for stride in (model.context, model.context // 2))
    sample = model.generate("ROMEO:", sampling=True, top_p=0.95, max_tokens=300)[0]
    return {"seed": seed, "loss": loss, "strided": strided, "seconds": seconds, "sample": f"ROMEO:{sample}"}


if __name__ == "__main__":
    main()
