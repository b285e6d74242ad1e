"""Table 2 of the paper, measured: the Transformer and other architectures on the same data, in the same time, under the same loop, search and scores.

    python benchmarks/rivals.py --seconds-left 570 --out $OUT      whatever is missing; again until nothing is left
    python benchmarks/rivals.py --only rnn gnmt --tasks multi30k   some rows
    python benchmarks/rivals.py --significance                     paired tests, from the outputs of all sessions
    python benchmarks/rivals.py --report                           writes docs/rivals.md and its plots

Multi30k (published tokenisation): each system trains for 40 s, alone on the GPU, from the start of the training command to its end, after a warm-up that
prepares data and compiles kernels. The cells of the table make as many steps. With half of them, three learning rates are tried; with the best on the
validation data there are three seeds. Europarl De-En: one seed, the rate carried over (divided by sqrt(2): the model is twice as wide; the highest of the
three is not carried over), and as many steps as a system makes in two minutes by its speed alone. On both, two shorter Transformer runs have the FLOPs of
the cheapest rival and of the one in the middle. Reversal of random sequences: the same number of steps for all, one seed. `--side-by-side N` trains N
cells at once.
"""

import argparse
import re
import tempfile
from pathlib import Path

from cells.rivals import BUDGETS, equal_flops, first_timed, speeds, tests, tuning
from cells.session import Session, begin, options, outputs_of, read_results, time_alone
from cells.tasks import TASKS, without_bpe
from facts import write_result
from pages.rivals import significance, write_page

import transduce
from transduce.paper.cells import read_lines
from transduce.paper.results import Figures, Results
from transduce.paper.rivals import BASELINE, SYSTEMS, available_systems

NAME = "rivals"


def main() -> None:
    chosen = options(__doc__ or "", BUDGETS, add)
    if chosen.report:
        write_page(read_results(NAME, chosen.out))
    elif chosen.significance:
        print(compare(read_results(NAME, chosen.out), chosen))
    else:
        finished = run(begin(NAME, chosen), chosen.tasks)
        print("finished" if finished else "time is up: run this command again")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--significance", action="store_true", help="test the outputs of all sessions against the Transformer's"
    )


def run(session: Session, tasks: list[str]) -> bool:
    """Whatever is missing; False if time ended first. Rates are tried on Multi30k, whatever the tasks."""
    systems, results = available_systems()[::-1], session.results  # the Transformer first
    return (
        session.run(first_timed(systems))
        and (tasks == ["europarl"] or session.run_side_by_side(tuning(systems, results)))
        and ("europarl" not in tasks or session.run(speeds(systems), time_alone))
        and session.run_side_by_side(cell for task in tasks for cell in tests(task, systems, results))
        and session.run_side_by_side(cell for task in tasks for cell in equal_flops(task, results))
    )


# --- significance -------------------------------------------------------------------------------------------------


def compare(results: Results, chosen: argparse.Namespace) -> Path:
    """Each system against the Transformer, with all seeds, by the paired bootstrap of `transduce compare`.

    Systems whose outputs are not there any more keep their test, unless they were measured again.
    """
    before, again = significance(), {line["key"] for line in read_lines_of(chosen.out)}
    found = {
        task: {
            name: one for name, one in before.get(task, {}).items() if f"{task} / {name} / test / seed 1" not in again
        }
        | compare_on(task, results, chosen)
        for task in ("multi30k", "europarl")
    }
    return write_result("rivals-significance", "python benchmarks/rivals.py --significance", ["sacrebleu"], tasks=found)


def read_lines_of(out: Path) -> list[Figures]:
    """The cells of a session."""
    return Results.read(out / f"{NAME}.jsonl").lines


def compare_on(task: str, results: Results, chosen: argparse.Namespace) -> dict[str, Figures]:
    keys = {
        s.name: [one["key"] for one in results.find(task=task, system=s.name, purpose="test")] for s in SYSTEMS[::-1]
    }
    files = {name: [path for key in of if (path := outputs_of(chosen.out, key)).exists()] for name, of in keys.items()}
    texts = [f"{name}={','.join(map(str, paths))}" for name, paths in files.items() if paths]
    if len(texts) < 2 or not files.get(BASELINE):
        return {}
    tokenize = tokenizer_of(task, results)
    with tempfile.TemporaryDirectory() as folder:
        source, target = undone(TASKS[task](chosen.data).test, Path(folder))
        compared = transduce.compare(
            texts, source=source, references=target, metrics=["bleu"], tokenize=tokenize, merge="separate", quiet=True
        )
    main = compared.main
    return {
        one.name: {"difference": round(one.test.difference, 2), "p": one.test.p_corrected, "verdict": main.verdict(one)}
        for one in main.systems
        if one.test
    } | {"signature": {"text": main.signature}}


def tokenizer_of(task: str, results: Results) -> str:
    """The tokenizer by which the scores in the table were computed, from their signature."""
    found = {re.search(r"\|tok:([^|]+)", one["signature"])[1] for one in results.find(task=task, purpose="test")}
    assert len(found) == 1, f"scores of {task} by several tokenizers: {found}"
    return found.pop()


def undone(test, folder: Path) -> tuple[Path, Path]:
    """The test set with its BPE undone, as the outputs have been kept."""
    paths = folder / "source", folder / "reference"
    for path, original in zip(paths, (test.source, test.target), strict=True):
        path.write_text("".join(f"{line}\n" for line in without_bpe(read_lines(original))), encoding="utf-8")
    return paths


if __name__ == "__main__":
    main()
