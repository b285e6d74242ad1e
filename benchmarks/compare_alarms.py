"""How often does `transduce compare` see a difference where there is none?

    python benchmarks/compare_alarms.py --source test.en --reference test.de RUN_A RUN_B --metrics bleu chrf ter exact-match

RUN_A and RUN_B are two systems, best two seeds of one recipe. Their outputs are swapped at random, sentence by sentence, so that
neither of the two new systems is better, and both tests compare them. Repeated 200 times, p < .05 should come in about 5 % of
the cases. Counted for sacreBLEU's p and for the two-sided p that the verdict uses.

`--name` names the result: benchmarks/results/compare-alarms-NAME.json.
"""

import argparse
import time

import numpy as np
from facts import write_result

from transduce.comparison.comparing import first_config, outputs_of
from transduce.comparison.measures import Measure, make_measures
from transduce.comparison.request import CompareRequest
from transduce.comparison.significance import LEVEL, Seeds, Test, paired_tests
from transduce.comparison.systems import open_system, parse_systems
from transduce.comparison.test_lines import read_test_lines

PACKAGES = ["numpy", "sacrebleu"]
TESTS: tuple[Test, ...] = ("bootstrap", "randomization")


def main() -> None:
    options = parse()
    request = CompareRequest(
        systems=options.systems, source=options.source, references=options.reference, metrics=options.metrics
    )
    systems = [open_system(paths, request.options) for paths in parse_systems(request.systems)]
    lines = read_test_lines(request, first_config(systems))
    kept = slice(options.sentences or None)
    references = lines.test.references[kept]
    measures = make_measures(lines.task.names, references, lines.task.language, lines.task.units)
    outputs = [outputs_of(system, lines, request)[0][kept] for system in systems]
    figures = {
        measure.title: {test: alarms(measure, outputs, test, options) for test in TESTS} for measure in measures.all
    }
    command = f"python benchmarks/compare_alarms.py --name {options.name} --metrics {' '.join(lines.task.names)} ..."
    facts = {"sentences": len(outputs[0]), "repetitions": options.repetitions, "samples": options.samples}
    print(write_result(f"compare-alarms-{options.name}", command, PACKAGES, **facts, alarms=figures))


def alarms(measure: Measure, outputs: list[list[str]], test: Test, options: argparse.Namespace) -> dict[str, float]:
    """The share of repetitions with p < .05."""
    counts = np.stack([measure.count(texts) for texts in outputs])
    scores = [float(score) for score in measure.scores(counts.sum(axis=1))]
    draw, begun, results = np.random.default_rng(1), time.perf_counter(), []
    for _ in range(options.repetitions):
        first = draw.random(counts.shape[1]) < 0.5
        swapped = [np.where(first[:, None], counts[one], counts[1 - one]) for one in (0, 1)]
        results += paired_tests(measure, [Seeds(of[None]) for of in swapped], test, options.samples).results
    found = {
        "sacrebleu_p": float(np.mean([result.p < LEVEL for result in results])),
        "verdict": float(np.mean([result.is_significant for result in results])),
    }
    print(f"{measure.title}, {test}: {scores}: {found}", flush=True)
    return {**found, "scores": scores, "seconds": round(time.perf_counter() - begun, 1)}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("systems", nargs=2)
    parser.add_argument("--source", required=True)
    parser.add_argument("--reference", action="append", default=[])
    parser.add_argument("--metrics", nargs="+", default=[])
    parser.add_argument("--sentences", type=int, default=0, help="use only the first ones of the test set")
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--samples", type=int, default=1_000)
    parser.add_argument("--name", default="multi30k")
    return parser.parse_args()


if __name__ == "__main__":
    main()
