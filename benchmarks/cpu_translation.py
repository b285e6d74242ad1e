"""Translation on a CPU beside CTranslate2 called directly and HF `generate`: text in, text out, the same weights.

    python benchmarks/cpu_translation.py RUN [--data FOLDER] [--lines 1000] [--rounds 3] [--quick]

RUN is a trained model of English to German whose settings CTranslate2 can express (configs/multi30k-cpu.toml makes
one). About ten minutes on two cores that do nothing else. Needs the extras of development.

file      test_2016_flickr of Multi30k, sentences a second, tokenising and detokenising counted everywhere
single    the same sentences one call each, in milliseconds
ours      `Translator` with the ct2 engine, int8, as `transduce translate` has it
ct2       `ctranslate2.Translator` on the very same model folder; its batch size and threads are the fastest of those
          in BATCHES and THREADS, tried before the turns begin, for each job by itself; the patience of a beam is ours
ct2, default  the same with CTranslate2's default patience, 1, which ends a beam earlier: faster, and not as good
torch     our PyTorch engine, float32
hf        the same weights in HF (Pegasus or Marian), float32, 32 sentences a call, longest first
Beam search is beam 4 with n^0.6. CTranslate2 has one length limit a call: its default, 256; the others input + 50.
Cold start is the wall time of the whole command `transduce translate RUN` for one sentence.
Each ratio is that of one round; speeds are medians of the rounds. Writes benchmarks/results/cpu-translation.json.
"""

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ctranslate2
from facts import CORES, default_data, write_result
from turns import HF_SENTENCES, as_hf, hf_translation, say, speeds, take_turns

from transduce.device import Device
from transduce.text import Vocabularies
from transduce.translator import LoadOptions, Translator, open_folder
from transduce.translator.ct2_engine import PATIENCE as OUR_PATIENCE
from transduce.translator.ct2_model import open_model

BATCHES = [("examples", 16), ("examples", 32), ("examples", 64), ("tokens", 512), ("tokens", 1024), ("tokens", 2048)]
THREADS = [(CORES, 1), (1, CORES)]  # workers, and threads of each
BEAMS = {"greedy": 1, "beam 4": 4}
ALPHA = 0.6
PATIENCE = OUR_PATIENCE["best"]["rounded"]

Texts = list[str]


@dataclass(frozen=True)
class Direct:
    """CTranslate2 as its documentation has it called: names in, names out."""

    translator: Any
    vocabularies: Vocabularies
    names: list[str]
    ids: dict[str, int]
    batch_type: str = "examples"
    batch_size: int = 32
    patience: float = 1.0

    def translate(self, texts: Texts, beam: int) -> Texts:
        sources = [[self.names[i] for i in ids] for ids in self.vocabularies.source.encode(texts)]
        results = self.translator.translate_batch(
            sources,
            beam_size=beam,
            length_penalty=ALPHA,
            patience=self.patience,
            max_batch_size=self.batch_size,
            batch_type=self.batch_type,
        )
        return self.vocabularies.target.decode([[self.ids[name] for name in one.hypotheses[0]] for one in results])


def main() -> None:
    arguments = parse_arguments()
    load = os.getloadavg()[0]
    texts = (arguments.data / "multi30k/test_2016_flickr.en").read_text().splitlines()[: arguments.lines]
    ours, torch = (
        Translator.load(arguments.run, LoadOptions(engine=engine, device="cpu")) for engine in ("ct2", "torch")
    )
    theirs = as_hf(torch.model)
    results, chosen = {}, {}
    for name, beam in BEAMS.items():
        request = ours.request(beam=beam, alpha=ALPHA, length_penalty="power")
        few = texts[: max(1, len(texts) // 10)]
        for job, lines, one_by_one in ((f"file, {name}", texts, False), (f"single, {name}", few, True)):
            direct, chosen[job] = fastest_direct(arguments.run, lines, beam, one_by_one)
            patient = replace(direct, patience=PATIENCE)
            systems = {
                "ours": lambda asked, request=request: ours.translate(asked, request),
                "ct2": lambda asked, patient=patient, beam=beam: patient.translate(asked, beam),
                "ct2, default": lambda asked, direct=direct, beam=beam: direct.translate(asked, beam),
                "torch": lambda asked, request=request: torch.translate(asked, request),
                "hf": lambda asked, beam=beam: hf_texts(theirs, torch.vocabularies, asked, beam),
            }
            say(f"{job}: {len(lines)} lines ...")
            results[job] = measure(systems, lines, one_by_one, arguments.rounds)
    results["cold start"] = cold_start(arguments.run, texts[0], arguments.rounds)
    if not arguments.quick:
        settings = {"rounds": arguments.rounds, "ct2": chosen, "hf_sentences_per_call": HF_SENTENCES, "load": load}
        write(arguments, results, settings, len(texts))
    print(table(results))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("--data", type=Path, default=default_data(), help="folder that holds multi30k/")
    parser.add_argument("--lines", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a few lines, to see that it runs; writes nothing")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.lines, arguments.rounds = 40, 2
    return arguments


# --- systems ---------------------------------------------------------------------------------------------------


def fastest_direct(run: Path, texts: Texts, beam: int, one_by_one: bool) -> tuple[Direct, dict[str, Any]]:
    """CTranslate2 with the batches and threads that translate these texts fastest, and what they are."""
    opened = open_folder(run)
    path = str(open_model(opened, "auto", "int8", say).path)
    names = [
        vocabulary.pieces(range(vocabulary.pad))
        for vocabulary in (opened.vocabularies.source, opened.vocabularies.target)
    ]
    ids = {name: number for number, name in enumerate(names[1])}
    tried: list[tuple[float, Direct, dict[str, Any]]] = []
    for workers, threads in THREADS:
        translator = ctranslate2.Translator(path, compute_type="int8", inter_threads=workers, intra_threads=threads)
        for batch_type, size in BATCHES[:1] if one_by_one else BATCHES:
            direct = Direct(translator, opened.vocabularies, names[0], ids, batch_type, size)
            direct.translate(texts[:10], beam)
            seconds = min(timed(lambda asked, d=direct: d.translate(asked, beam), texts, one_by_one) for _ in range(2))
            said = {
                "inter_threads": workers,
                "intra_threads": threads,
                "batch_type": batch_type,
                "max_batch_size": size,
            }
            tried.append((seconds, direct, said))
    _, best, chosen = min(tried, key=lambda one: one[0])
    return best, chosen


def hf_texts(theirs: Any, vocabularies: Vocabularies, texts: Texts, beam: int) -> Texts:
    ids = vocabularies.source.encode(texts)
    order = sorted(range(len(ids)), key=lambda n: -len(ids[n]))
    found = hf_translation(theirs, [ids[n] for n in order], beam, Device("cpu", bf16=False))
    decoded = dict(zip(order, vocabularies.target.decode(found), strict=True))
    return [decoded[n] for n in range(len(ids))]


# --- measuring -------------------------------------------------------------------------------------------------


def timed(translate: Callable[[Texts], Texts], texts: Texts, one_by_one: bool) -> float:
    begun = time.perf_counter()
    run(translate, texts, one_by_one)
    return time.perf_counter() - begun


def run(translate: Callable[[Texts], Texts], texts: Texts, one_by_one: bool) -> Texts:
    if not one_by_one:
        return translate(texts)
    return list(itertools.chain.from_iterable(translate([text]) for text in texts))


def measure(
    systems: dict[str, Callable[[Texts], Texts]], texts: Texts, one_by_one: bool, rounds: int
) -> dict[str, Any]:
    for translate in systems.values():
        run(translate, texts[:4], one_by_one)
    turns = take_turns(
        {name: lambda t=translate: run(t, texts, one_by_one) for name, translate in systems.items()}, rounds
    )
    report = speeds(turns, {name: {"sentences": len(texts)} for name in systems})
    for name, one in turns.items():
        report["systems"][name]["ms_per_sentence"] = round(1000 * statistics.median(one.seconds) / len(texts), 2)
        equal = [a == b for a, b in zip(one.outputs, turns["ours"].outputs, strict=True)]
        report["systems"][name]["outputs_equal_to_ours"] = round(statistics.mean(equal), 3)
    return report


def cold_start(folder: Path, text: str, rounds: int) -> dict[str, Any]:
    """Seconds of `transduce translate` for one sentence."""
    command = [sys.executable, "-m", "transduce", "translate", str(folder), "--device", "cpu", "--engine"]
    seconds: dict[str, list[float]] = {"ct2": [], "torch": []}
    for _ in range(rounds):
        for engine, taken in seconds.items():
            begun = time.perf_counter()
            subprocess.run([*command, engine], input=text, text=True, capture_output=True, check=True)
            taken.append(round(time.perf_counter() - begun, 3))
    return {"seconds": seconds}


# --- the record ------------------------------------------------------------------------------------------------


def write(arguments: argparse.Namespace, results: dict[str, Any], settings: dict[str, Any], lines: int) -> None:
    command = f"python benchmarks/cpu_translation.py RUN --lines {arguments.lines} --rounds {arguments.rounds}"
    about = {"data": f"Multi30k test_2016_flickr, {lines} lines", "model": model_shape(arguments.run)}
    packages = ["ctranslate2", "torch", "transformers", "sentencepiece"]
    print(write_result("cpu-translation", command, packages, **about, settings=settings, results=results))


def model_shape(folder: Path) -> str:
    config = open_folder(folder).config.model
    return (
        f"{config.norm}-norm {config.num_encoder_layers}+{config.num_decoder_layers}, "
        f"d_model {config.d_model}, d_ff {config.d_ff}"
    )


def table(results: dict[str, Any]) -> str:
    lines = []
    for job, report in results.items():
        if job == "cold start":
            lines += [f"{job:18}{name:14}{statistics.median(s):8.2f} s" for name, s in report["seconds"].items()]
            continue
        for name, one in report["systems"].items():
            ratio = report["ours_over"].get(name)
            faster = f"ours is {ratio['median']:.2f}x ({ratio['least']:.2f} - {ratio['most']:.2f})" if ratio else ""
            speed = f"{one['sentences_per_s']:9.1f} a second {one['ms_per_sentence']:8.2f} ms"
            lines.append(f"{job:18}{name:14}{speed}   {one['outputs_equal_to_ours']:.1%} equal   {faster}".rstrip())
    return "\n".join(lines)


if __name__ == "__main__":
    main()
