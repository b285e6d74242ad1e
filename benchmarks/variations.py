"""Table 3 of the paper, measured: rows A to E and rows that revert a choice of the paper, each compared with the base model and the paper.

    python benchmarks/variations.py --seconds-left 570 --out $OUT     whatever is missing; again until nothing is left
    python benchmarks/variations.py --only base "why: no positions"   some rows
    python benchmarks/variations.py --report                          writes docs/variations.md and its plots

Multi30k (published tokenisation): 6,000 steps and two seeds a row, about 25 s of a GPU each. Six rows also on Europarl De-En, 2,000 steps and one seed, about a minute. All
rows have the same number of steps, as in the paper, and the same learning rate; only what the row names is changed. `--side-by-side N` trains N at once.
"""

from cells.session import begin, options, read_results
from cells.variations import BUDGETS, cells
from pages.variations import write_page

NAME = "variations"


def main() -> None:
    chosen = options(__doc__ or "", BUDGETS)
    if chosen.report:
        write_page(read_results(NAME, chosen.out))
        return
    session = begin(NAME, chosen)
    finished = session.run_side_by_side(cell for task in chosen.tasks for cell in cells(task))
    print("finished" if finished else "time is up: run this command again")


if __name__ == "__main__":
    main()
