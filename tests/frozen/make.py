"""Makes a frozen model folder for this version: `python tests/frozen/make.py`. Done once a version, never again.

A tiny model of English pronunciation, trained on a part of the CMU dictionary, and what it says to some words.
"""

import json
import shutil
import tempfile
from pathlib import Path

import transduce
from transduce.pronunciations import read_dictionary, split_dictionary, write_splits

KEPT = ("config.toml", "data.json", "source.spm", "target.spm", "best.safetensors")
SETTINGS = """
model.d_model=32 model.d_ff=64 model.num_heads=2 model.num_encoder_layers=1 model.num_decoder_layers=1 model.dropout=0
train.steps=1200 train.tokens_per_batch=1024 train.learning_rate=8e-3 train.warmup_steps=60 train.average=0 train.threads=1
train.validate_every=1200 train.checkpoint_every=1200 train.validate_lines=200
""".split()


def main() -> None:
    frozen = Path(__file__).parent / transduce.__version__
    with tempfile.TemporaryDirectory() as scratch:
        splits = split_dictionary(read_dictionary())
        files = write_splits(splits, Path(scratch) / "data")
        run = Path(scratch) / "run"
        transduce.train(run, train=[(files["train"],)], valid=[(files["valid"],)], settings=SETTINGS)
        frozen.mkdir(exist_ok=True)
        for name in KEPT:
            shutil.copyfile(run / name, frozen / name)
    text = (frozen / "config.toml").read_text().partition("\n")[2]  # edited, so without the hash in the first line
    (frozen / "config.toml").write_text(text.replace(scratch, ""))
    words = sorted({word for word, _ in splits["test"]})[::300]
    found = transduce.load(frozen).n_best(words, 2)
    expected = [{"source": t.source, "texts": [o.text for o in t.outputs], "score": t.outputs[0].score} for t in found]
    (frozen / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
