"""A trained model exported, run where it was exported to, and taken back: does it still say the same?

    python benchmarks/round_trips.py RUN [--data FOLDER] [--lines 1000]

RUN is a model of English to German (configs/multi30k-cpu.toml makes one); the lines are those of Multi30k's test_2016_flickr.
Every row is beside our PyTorch engine in float32: the largest difference of a logit (over the first LOGITS lines, our greedy
outputs forced), the share of lines with the same text and the BLEU, greedy and with beam 4 and n^alpha, and that BLEU's signature.

HF            `export --to hf`, loaded by the Auto classes of transformers
CTranslate2   `export --to ct2`, float32
ONNX          `export --to onnx`, run by onnxruntime
HF and back   `import` of what was exported to HF
int8          our ct2 engine, as `transduce translate` takes it on a CPU
Marian        a model that Marian trained, imported: lines that are its own output (beam 6), with the data's model folder
"""

import argparse
import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from facts import default_data, write_result

from transduce.device import choose_device
from transduce.exchange import export_model, import_model
from transduce.exchange.exporting import FORMATS
from transduce.exchange.verification import BEAM, Answer, Ours, Runtime
from transduce.metrics import translation_scores
from transduce.text import EOS
from transduce.translator import LoadOptions, Translator, open_folder

NAMES = {"hf": "HF", "ct2": "CTranslate2", "onnx": "ONNX"}
LOGITS = 100  # lines
EXTRA = 50  # tokens an output may be longer than the longest source beside it
AT_ONCE = 32  # lines of similar length
BEAMS = {"greedy": 1, f"beam {BEAM}": BEAM}


@dataclass(frozen=True)
class Work:
    """The lines, what they should become, and what divides scores."""

    lines: list[str]
    references: list[str]
    alpha: float

    def batches(self, count: int) -> Iterator[list[int]]:
        order = sorted(range(count), key=lambda n: len(self.lines[n]))
        yield from (order[begin : begin + AT_ONCE] for begin in range(0, count, AT_ONCE))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument("--lines", type=int, default=1_000)
    options = parser.parse_args()
    texts = [read(options.data / "multi30k" / f"test_2016_flickr.{side}")[: options.lines] for side in ("en", "de")]
    work = Work(*texts, alpha=open_folder(options.run).config.search.alpha)
    with tempfile.TemporaryDirectory() as folder:
        results = dict(rows(options.run, Path(folder), work))
        results["Marian, imported"] = beside_marian(options.data, Path(folder) / "marian", work)
    packages = ["torch", "transformers", "ctranslate2", "onnxruntime", "sacrebleu"]
    command = f"python benchmarks/round_trips.py RUN --lines {options.lines}"
    print(write_result("round-trips", command, packages, lines=len(work.lines), results=results))


def read(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def rows(run: Path, folder: Path, work: Work) -> Iterator[tuple[str, dict[str, Any]]]:
    ours = plain(run)
    found = {name: search(ours, work, beam) for name, beam in BEAMS.items()}

    def row(name: str, theirs: Runtime) -> tuple[str, dict[str, Any]]:
        return said(name, {"largest_logit_difference": difference(ours, theirs, work, found["greedy"])}
                    | compared({how: search(theirs, work, beam) for how, beam in BEAMS.items()}, found, work))  # fmt: skip

    yield said("ours", {how: {"bleu": bleu(answers, work)} for how, answers in found.items()})
    opened = open_folder(run)
    for to, name in NAMES.items():
        export_model(run, folder / to, to, say=print)
        yield row(name, FORMATS[to].run(opened, folder / to))
    import_model(folder / "hf", folder / "back")
    yield row("HF and back", plain(folder / "back"))
    int8 = Translator.load(run, LoadOptions(engine="ct2"))
    requests = {how: int8.request(beam=beam, length_penalty="power", alpha=work.alpha) for how, beam in BEAMS.items()}
    texts = {how: int8.translate(work.lines, request) for how, request in requests.items()}
    yield said("int8", compared({how: [Answer(t, []) for t in some] for how, some in texts.items()}, found, work))


def said(name: str, row: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    print(name, row, flush=True)
    return name, row


def plain(run: Path) -> Ours:
    opened = open_folder(run)
    device = choose_device("cpu", "fp32", 0)
    return Ours(Translator.around(opened.model("auto"), opened.vocabularies, opened.config, device))


def search(runtime: Runtime, work: Work, beam: int) -> list[Answer]:
    answers: dict[int, Answer] = {}
    for numbers in work.batches(len(work.lines)):
        lines = [work.lines[n] for n in numbers]
        limit = max(map(len, runtime.ids(lines))) + EXTRA
        answers |= zip(numbers, runtime.search(lines, limit, beam, work.alpha), strict=True)
    return [answers[number] for number in range(len(work.lines))]


def difference(ours: Ours, theirs: Runtime, work: Work, greedy: list[Answer]) -> float:
    largest = 0.0
    for numbers in work.batches(min(LOGITS, len(work.lines))):
        sources, targets = ours.ids([work.lines[n] for n in numbers]), [[*greedy[n].tokens, EOS] for n in numbers]
        for one, other in zip(ours.logits(sources, targets), theirs.logits(sources, targets), strict=True):
            largest = max(float((one - other).abs().max()), largest)
            assert math.isfinite(largest), "logits must be numbers"
    return largest


def compared(theirs: dict[str, list[Answer]], ours: dict[str, list[Answer]], work: Work) -> dict[str, Any]:
    return {how: {"same": same(found, ours[how]), "bleu": bleu(found, work)} for how, found in theirs.items()}


def same(one: list[Answer], other: list[Answer]) -> float:
    return sum(a.text.strip() == b.text.strip() for a, b in zip(one, other, strict=True)) / len(one)


def bleu(answers: list[Answer], work: Work) -> dict[str, Any]:
    score = translation_scores([one.text for one in answers], [[reference] for reference in work.references]).main
    return {"value": round(score.value, 2), "signature": score.signature}


def beside_marian(data: Path, run: Path, work: Work) -> dict[str, Any]:
    trained = data / "model-marian-multi30k-en-de"
    expected = read(trained / "test_2016_flickr.beam6-norm0.6.de")[: len(work.lines)]
    import_model(trained, run)
    found = Translator.load(run, LoadOptions(engine="torch", device="cpu")).translate(work.lines)
    equal = sum(one == other for one, other in zip(found, expected, strict=True)) / len(found)
    return said("Marian, imported", {"same": equal, "bleu": bleu([Answer(text, []) for text in found], work)})[1]


if __name__ == "__main__":
    main()
