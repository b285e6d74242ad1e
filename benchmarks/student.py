"""A distilled student beside its teacher: BLEU and speed on a CPU, as `transduce translate` has both (ct2, int8).

    python benchmarks/student.py TEACHER STUDENT SOURCE REFERENCE [--rounds 5]

Each greedily and with beam 4, alternating; sentences a second with tokenising and detokenising, medians of the rounds, and how many
times as fast as the teacher with beam 4 each one was in its round. Sizes are of the weights, and of the int8 file that translates.
"""

import argparse
import statistics
from pathlib import Path
from typing import Any

from facts import write_result
from turns import take_turns

from transduce.checkpoint import RunFolder
from transduce.metrics import translation_scores
from transduce.translator import LoadOptions, Translator, open_folder

BEAMS = {"greedy": 1, "beam 4": 4}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("teacher", type=Path)
    parser.add_argument("student", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    lines, references = (
        path.read_text(encoding="utf-8").removesuffix("\n").split("\n") for path in (options.source, options.reference)
    )
    systems = {}
    for role in ("teacher", "student"):
        translator = Translator.load(getattr(options, role), LoadOptions(engine="ct2", device="cpu"))
        for name, beam in BEAMS.items():
            request = translator.request(beam=beam, length_penalty="power")
            translator.translate(lines[:20], request)
            systems[f"{role}, {name}"] = lambda t=translator, request=request: t.translate(lines, request)
    turns = take_turns(systems, options.rounds)
    results: dict[str, Any] = {}
    for name, one in turns.items():
        bleu = translation_scores(one.outputs, [[text] for text in references], ter=False).main
        rates = [len(lines) / seconds for seconds in one.seconds]
        ratios = [a / b for a, b in zip(turns["teacher, beam 4"].seconds, one.seconds, strict=True)]
        results[name] = {
            "bleu": round(bleu.value, 2),
            "signature": bleu.signature,
            "sentences_per_s": round(statistics.median(rates), 1),
            "times_teacher_beam_4": [round(f(ratios), 2) for f in (statistics.median, min, max)],
        }
        print(name, results[name], flush=True)
    command = f"python benchmarks/student.py TEACHER STUDENT {options.source.name} {options.reference.name}"
    shapes = {role: shape(getattr(options, role)) for role in ("teacher", "student")}
    print(write_result("student-cpu", command, ["ctranslate2", "sacrebleu"], models=shapes, results=results))


def shape(run: Path) -> dict[str, Any]:
    config = open_folder(run).config.model
    int8 = sum(path.stat().st_size for path in (run / "ct2").rglob("model.bin"))
    return {
        "layers": f"{config.num_encoder_layers}+{config.num_decoder_layers}",
        "d_model": config.d_model,
        "weights_mb": round(RunFolder(run).weights("best").stat().st_size / 1e6, 1),
        "int8_mb": round(int8 / 1e6, 1),
    }


if __name__ == "__main__":
    main()
