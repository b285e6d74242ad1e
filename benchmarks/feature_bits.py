"""What fewer bits for features cost on spoken digits: configs/spoken-digits.toml, trained once, transcribes features that were rounded.

    python benchmarks/feature_bits.py [--data FOLDER]        needs soundfile

Training keeps features in 16 bits. 32 and 16 bits are floating point; fewer bits are evenly spaced values between the smallest and
the largest of each utterance. All 500 recordings of the test speaker, with the recipe's beam, on one thread.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from digits import CONFIG, call
from facts import default_data, write_result

import transduce
from transduce.audio.features import log_mel
from transduce.audio.files import read_samples
from transduce.audio.recording import Recording
from transduce.audio.silences import without_quiet_ends
from transduce.audio.utterances import normalised
from transduce.data import Corpus, read_pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=default_data() / "spoken-digits")
    data = parser.parse_args().data
    with tempfile.TemporaryDirectory() as folder:
        files = ["--train", str(data / "train.tsv"), "--valid", str(data / "valid.tsv"), "--config", str(CONFIG)]
        call(
            ["train", f"{folder}/run", *files, "--set", "train.seed=1", "train.threads=1", f"data.cache={folder}/cache"]
        )
        model = transduce.load(f"{folder}/run", device="cpu", threads=1)
        sources, words = read_pairs(Corpus(((str(data / "test.tsv"),),)))
        exact = [features(source, model.config.data.trim_quiet) for source in sources]
        of_bits = {bits: [rounded(one, bits).numpy() for one in exact] for bits in (32, 16, 8)}
        heard = {bits: [one.text for one in model.transcribe(of)] for bits, of in of_bits.items()}
    right = {bits: 100 * sum(map(str.__eq__, texts, words)) / len(words) for bits, texts in heard.items()}
    changed = {bits: sum(map(str.__ne__, texts, heard[32])) for bits, texts in heard.items()}
    content = {"recordings": len(words), "right": right, "other_text_than_with_32_bits": changed}
    print(write_result("feature-bits", "python benchmarks/feature_bits.py", ["torch"], seed=1, **content))


def features(source: str, trim_quiet: float) -> torch.Tensor:
    samples = read_samples(Recording.parse(source))
    return normalised(log_mel(samples[slice(*without_quiet_ends(samples, trim_quiet))]))


def rounded(exact: torch.Tensor, bits: int) -> torch.Tensor:
    if bits >= 16:
        return exact.half() if bits == 16 else exact
    step = (exact.max() - exact.min()) / (2**bits - 1)
    return ((exact - exact.min()) / step).round() * step + exact.min()


if __name__ == "__main__":
    main()
