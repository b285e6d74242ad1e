"""Iban speech recognition: the recipe configs/iban.toml, trained in pieces, and its error rates on the test set.

    python benchmarks/iban.py --run runs/iban --seconds 540                    # again until it is finished, then it scores
    python benchmarks/iban.py --run runs/iban-plain --set model.convolution=0 --name iban-plain    # the encoder of the paper
    python benchmarks/iban.py --run runs/short --set train.epochs=72 --no-trigram --name iban-short    # 40 % of the steps, for ablations

Needs soundfile. Training stops by SIGTERM after `--seconds` and resumes when the command is run again. The test set is scored once, when
training is finished: all of it, and without the texts that also occur in the training data; by beam search with the decoder and CTC, and
with a word trigram of the training transcripts and the lexicon of the corpus, whose weights are tuned on the validation speakers.
"""

import argparse
import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from facts import HERE, default_data, write_result

import transduce
from transduce.metrics import TRANSCRIPT_METRICS, score_outputs
from transduce.translator import open_folder

HELD_OUT = {"ibf_010", "ibm_010"}


def main() -> None:
    options = _options()
    data, run = Path(options.data) / "iban", Path(options.run)
    manifests = write_manifests(data, run.parent / "iban-manifests")
    if not options.trained and not train(run, manifests, options):
        print("not finished: run the same command again to resume")
        sys.exit(3)
    report(run, data, manifests, options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=str(default_data()))
    parser.add_argument("--run", default="runs/iban")
    parser.add_argument("--config", default=str(HERE.parent / "configs" / "iban.toml"))
    parser.add_argument("--seconds", type=float, default=0.0, help="stop training after so long; 0: train to the end")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", dest="settings")
    parser.add_argument("--beam", type=int, default=10)
    parser.add_argument("--rescored", type=int, default=20, help="texts that the decoder rescores, with the trigram")
    parser.add_argument("--order", type=int, default=3, help="of the n-gram model")
    parser.add_argument("--no-trigram", action="store_true", help="score without a trigram and the lexicon")
    parser.add_argument("--name", default="iban", help="of the result file")
    parser.add_argument("--trained", default="", metavar="WHERE", help="only score a run that was trained elsewhere")
    return parser.parse_args()


def read_table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def write_manifests(data: Path, folder: Path) -> dict[str, Path]:
    """The training utterances without the validation speakers, and those of the validation speakers."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = read_table(data / "train.tsv")
    parts = {
        "train": [row for row in rows if row["speaker"] not in HELD_OUT],
        "valid": [row for row in rows if row["speaker"] in HELD_OUT],
    }
    for name, part in parts.items():
        lines = [f"{(data / row['audio']).resolve()}\t{row['text']}\t{row['speaker']}" for row in part]
        (folder / f"{name}.tsv").write_text("\n".join(["audio\ttext\tspeaker", *lines]) + "\n", encoding="utf-8")
    return {name: folder / f"{name}.tsv" for name in parts}


def train(run: Path, manifests: dict[str, Path], options: argparse.Namespace) -> bool:
    """Whether training is finished."""
    command = [sys.executable, "-m", "transduce", "train", str(run), "--config", options.config]
    command += ["--train", str(manifests["train"]), "--valid", str(manifests["valid"])]
    for one in [f"data.cache={run.parent / 'iban-cache'}", *options.settings]:
        command += ["--set", one]
    begun = time.monotonic()
    process = subprocess.Popen(command)
    try:
        code = process.wait(options.seconds or None)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        code = process.wait()
    record = run.parent / f"{run.name}-seconds.json"
    spent = (json.loads(record.read_text()) if record.exists() else 0.0) + time.monotonic() - begun
    record.write_text(json.dumps(spent))
    if code not in (0, 128 + signal.SIGTERM, -signal.SIGTERM):
        sys.exit(f"training failed with exit code {code}")
    return code == 0


def report(run: Path, data: Path, manifests: dict[str, Path], options: argparse.Namespace) -> None:
    """The error rates of the validation speakers and of the test set."""
    config = open_folder(run).config
    with_words = config.model.ctc_weight and not options.no_trigram
    systems = {"decoder and CTC" if config.model.ctc_weight else "decoder": (transduce.load(run), options.beam)}
    if with_words:
        if not (run / "ngram" / "weights.json").exists():
            transcripts, valid = [manifests["train"]], [str(manifests["valid"])]
            transduce.ngram(run, transcripts, order=options.order, lexicon=data / "lexicon.txt", valid=valid)
        systems["with trigram and lexicon"] = (transduce.load(run, ngram=True), options.rescored)
    test, seen = read_table(data / "test.tsv"), {row["text"] for row in read_table(data / "train.tsv")}
    valid = [row for row in read_table(data / "train.tsv") if row["speaker"] in HELD_OUT]
    sets = {
        "validation speakers": valid,
        "test set": test,
        "test set without texts of the training data": [row for row in test if row["text"] not in seen],
    }
    weights = json.loads((run / "ngram" / "weights.json").read_text()) if with_words else {}
    results = {name: measure(name, *system, sets, data) for name, system in systems.items()}
    minutes = json.loads((run.parent / f"{run.name}-seconds.json").read_text()) / 60
    print(f"{minutes:.1f} minutes of training with preparation")
    write_result(
        options.name, " ".join(["python", *sys.argv]), ["torch", "numpy"],
        settings=options.settings, trained=options.trained, minutes=minutes, beam=options.beam, rescored=options.rescored, systems=results, ngram=weights,
    )  # fmt: skip


def measure(
    name: str, model: transduce.Translator, beam: int, sets: dict[str, list[dict[str, str]]], data: Path
) -> dict[str, Any]:
    """The error rates of a system on each set, and the time it takes; every recording is transcribed once."""
    rows = list({row["audio"]: row for of_set in sets.values() for row in of_set}.values())
    begun = time.perf_counter()
    written = model.translate([str((data / row["audio"]).resolve()) for row in rows], beam=beam)
    seconds = time.perf_counter() - begun
    outputs = {row["audio"]: output for row, output in zip(rows, written, strict=True)}
    table = {}
    for title, of_set in sets.items():
        texts = [outputs[row["audio"]] for row in of_set]
        scores = score_outputs(texts, [[row["text"]] for row in of_set], TRANSCRIPT_METRICS)
        table[title] = scores.as_dict() | {"utterances": len(of_set)}
        print(f"{name}, {title} ({len(of_set)} utterances): {scores.with_signatures()}")
    print(f"{name}: {seconds:.1f} s to transcribe {len(rows)} recordings")
    samples = [{"reference": row["text"], "output": outputs[row["audio"]]} for row in rows[::60]]
    return {"scores": table, "seconds": seconds, "samples": samples}


if __name__ == "__main__":
    main()
