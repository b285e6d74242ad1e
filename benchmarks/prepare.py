"""What it costs to prepare 1.7 M pairs, beside what sentencepiece alone needs to encode the same text.

    python benchmarks/prepare.py [--data FOLDER] [--vocabulary-size 16000]

About six minutes on two cores. Every stage runs in a process of its own, so that its peak memory is its own:
learn     read, check and sample the corpus, and learn a joint BPE vocabulary
threads   sentencepiece alone: the text already in memory, `encode(lines, num_threads=cores)`
prepare   read and check the corpus, then build the store (decompression included; the vocabulary is there)
processes sentencepiece alone: one process a core, each with its share of the text in memory
Writes benchmarks/results/prepare.json.
"""

import argparse
import json
import lzma
import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import synchronize
from pathlib import Path

import sentencepiece
from facts import CORES, default_data, write_result

from transduce.config import DataConfig
from transduce.data import Corpus, Rules, learn_vocabularies, open_or_build, scan
from transduce.text import Vocabularies, Vocabulary

LINES = 50_000  # encoded at a time by sentencepiece alone, so that results need not be kept


@dataclass(frozen=True)
class Job:
    """Where things lie, and the settings."""

    corpus: Corpus
    files: list[Path]
    cache: Path
    settings: DataConfig

    @property
    def model(self) -> Path:
        return self.cache / "benchmark.model"


def main() -> None:
    arguments = parse_arguments()
    if arguments.stage:
        print(json.dumps(STAGES[arguments.stage](job_of(arguments))))
        return
    with tempfile.TemporaryDirectory(dir=arguments.cache or None) as cache:
        results = {stage: run(stage, arguments, cache) for stage in STAGES}
    alone = min(results["threads"]["seconds"], results["processes"]["seconds"])
    results["prepare_over_sentencepiece"] = round(results["prepare"]["seconds"] / alone, 3)
    write(results, arguments)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=default_data(), help="folder that holds europarl-de-en/")
    parser.add_argument("--vocabulary-size", type=int, default=16_000)
    parser.add_argument("--cache", default="", help="where the temporary store is written")
    parser.add_argument("--stage", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def job_of(arguments: argparse.Namespace) -> Job:
    files = sorted((arguments.data / "europarl-de-en").glob("train-*.*.xz"))
    if not files:
        raise SystemExit(f"{arguments.data}/europarl-de-en: no train-*.xz there: give --data or $TRANSDUCE_DATA")
    groups = tuple((str(file), str(file).replace(".de.", ".en.")) for file in files if ".de." in file.name)
    settings = DataConfig(source_units="bpe", target_units="bpe", vocabulary_size=arguments.vocabulary_size)
    return Job(Corpus(groups), files, Path(arguments.cache), settings)


def run(stage: str, arguments: argparse.Namespace, cache: str) -> dict[str, float]:
    print(f"{stage} ...", file=sys.stderr, flush=True)
    options = ["--data", arguments.data, "--vocabulary-size", arguments.vocabulary_size, "--cache", cache]
    command = [sys.executable, __file__, "--stage", stage, *map(str, options)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, float] = json.loads(done.stdout)
    print(f"{stage}: {result}", file=sys.stderr, flush=True)
    return result


def learn(job: Job) -> dict[str, float]:
    begin = time.perf_counter()
    scanned = scan(job.corpus, job.settings.vocabulary_sample)
    middle = time.perf_counter()
    learned = learn_vocabularies(scanned, job.settings, job.cache)
    end = time.perf_counter()
    learned.source.save(job.model)
    return {
        "scan_seconds": round(middle - begin, 2),
        "learn_seconds": round(end - middle, 2),
        "sample_pairs": len(scanned.sample[0]),
        "peak_resident_mb": peak_resident_mb(),
    }


def prepare(job: Job) -> dict[str, float]:
    vocabulary = Vocabulary.load(job.model)
    both = Vocabularies(vocabulary, vocabulary)
    begin = time.perf_counter()
    scanned = scan(job.corpus, job.settings.vocabulary_sample)
    middle = time.perf_counter()
    store = open_or_build(job.corpus, scanned, both, Rules.for_training(job.settings), job.cache)
    end = time.perf_counter()
    open_or_build(job.corpus, scanned, both, Rules.for_training(job.settings), job.cache)
    return {
        "pairs": store.report.pairs,
        "kept": store.report.kept,
        "tokens": store.report.source_tokens + store.report.target_tokens,
        "seconds": round(end - begin, 2),
        "scan_seconds": round(middle - begin, 2),
        "build_seconds": round(end - middle, 2),
        "reopen_seconds": round(time.perf_counter() - end, 3),
        "peak_resident_mb": peak_resident_mb(),
    }


def threads(job: Job) -> dict[str, float]:
    seconds = sum(encode_alone(job.model, file, CORES) for file in job.files)
    return {"seconds": round(seconds, 2), "peak_resident_mb": peak_resident_mb()}


def processes(job: Job) -> dict[str, float]:
    """Seconds of the slowest process, each beginning when all have their text in memory."""
    context = multiprocessing.get_context("fork")
    seconds = 0.0
    for i in range(0, len(job.files), CORES):
        files = job.files[i : i + CORES]
        barrier, queue = context.Barrier(len(files)), context.SimpleQueue()
        workers = [context.Process(target=encode_into, args=(queue, job.model, file, barrier)) for file in files]
        for worker in workers:
            worker.start()
        seconds += max(queue.get() for _ in workers)
        for worker in workers:
            worker.join()
    return {"seconds": round(seconds, 2)}


def encode_into(
    queue: "multiprocessing.SimpleQueue[float]", model: Path, file: Path, barrier: synchronize.Barrier
) -> None:
    queue.put(encode_alone(model, file, 1, barrier.wait))


def encode_alone(model: Path, file: Path, num_threads: int, ready: Callable[[], object] = lambda: None) -> float:
    with lzma.open(file) as compressed:
        lines = compressed.read().decode().removesuffix("\n").split("\n")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    ready()
    begin = time.perf_counter()
    for first in range(0, len(lines), LINES):
        processor.encode(lines[first : first + LINES], num_threads=num_threads)
    return time.perf_counter() - begin


def peak_resident_mb() -> int:
    """Of this process; all parallel work of ours is threads inside it."""
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def write(results: dict[str, object], arguments: argparse.Namespace) -> None:
    command = f"python benchmarks/prepare.py --vocabulary-size {arguments.vocabulary_size}"
    data = "europarl-de-en, train-0 to train-3"
    print(write_result("prepare", command, ["numpy", "sentencepiece"], data=data, results=results))


# Ours stands between the two others, so that a machine that grows slower or busier meanwhile is seen in one of them.
STAGES = {"learn": learn, "threads": threads, "prepare": prepare, "processes": processes}

if __name__ == "__main__":
    main()
