"""How often does `transduce compare` see a difference where there is none?

    python benchmarks/compare_alarms.py --source test.en --reference test.de RUN_A RUN_B --metrics bleu chrf ter exact-match

RUN_A and RUN_B are two systems, best two seeds of one recipe. Their outputs are swapped at random, sentence by sentence, so that
neither of the two new systems is better, and both tests compare them. Repeated 200 times, p < .05 should come in about 5 % of
the cases. Counted for sacreBLEU's p and for the two-sided p that the verdict uses.

    python benchmarks/compare_alarms.py --seeds DATA --name multi30k-seeds

trains the two systems first: seeds 1 and 2 of the preset tiny, 2,000 steps each (`--steps`), on Multi30k in the folder DATA (train, valid and
test_2016_flickr, .en and .de). The runs stay in `--runs`, and a second command continues with them.

`--name` names the result: benchmarks/results/compare-alarms-NAME.json.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from facts import write_result

import transduce
from transduce.comparison.comparing import first_config, outputs_of
from transduce.comparison.request import CompareRequest
from transduce.comparison.significance import LEVEL, Seeds, Test, paired_tests
from transduce.comparison.systems import open_system, parse_systems
from transduce.comparison.test_lines import read_test_lines
from transduce.metrics.measures import Measure, make_measures

PACKAGES = ["numpy", "sacrebleu"]
TESTS: tuple[Test, ...] = ("bootstrap", "randomization")
SEEDS = (1, 2)


def main() -> None:
    options = parse()
    if options.seeds:
        use_seeds(options)
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


def use_seeds(options: argparse.Namespace) -> None:
    """Train two seeds, unless they are trained already, and compare them on the test set."""
    train, valid, test = (
        tuple(str(options.seeds / f"{name}.{side}") for side in ("en", "de"))
        for name in ("train", "valid", "test_2016_flickr")
    )
    options.systems = [str(options.runs / f"seed-{seed}") for seed in SEEDS]
    options.source, options.reference = test[0], [test[1]]
    for run, seed in zip(options.systems, SEEDS, strict=True):
        settings = {"train.seed": seed}
        transduce.train(
            run, train=train, valid=valid, languages=("en", "de"), preset="tiny", settings=settings, steps=options.steps
        )


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
    parser.add_argument("systems", nargs="*")
    parser.add_argument("--source")
    parser.add_argument("--seeds", type=Path, metavar="DATA", help="train two seeds on Multi30k in this folder first")
    parser.add_argument("--runs", type=Path, default=Path("runs/alarms"), help="where --seeds keeps its runs")
    parser.add_argument("--steps", type=int, default=2_000, help="of each seed")
    parser.add_argument("--reference", action="append", default=[])
    parser.add_argument("--metrics", nargs="+", default=[])
    parser.add_argument("--sentences", type=int, default=0, help="use only the first ones of the test set")
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--samples", type=int, default=1_000)
    parser.add_argument("--name", default="multi30k")
    options = parser.parse_args()
    if not options.seeds and (len(options.systems) != 2 or not options.source):
        parser.error("give two systems and --source, or --seeds DATA")
    return options


if __name__ == "__main__":
    main()
