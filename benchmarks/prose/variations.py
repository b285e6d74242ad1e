"""What docs/variations.md says about benchmarks/results/variations.jsonl, and about dot products of random vectors."""

from collections.abc import Iterator
from statistics import mean

from cells.session import read_results
from cells.variations import SHAPES
from pages.variations import effect_of

from transduce.paper.dot_products import KEYS, QUERIES, measure_dot_products
from transduce.paper.results import Figures
from transduce.paper.variations import BASE, PAPER_BLEU, rows

from .statements import Statement, given, number, says

RESULTS = read_results("variations")
ROWS = {row.key: row for row in rows(SHAPES["multi30k"])}
UNSCALED = "why: unscaled dot products"


def statements() -> Iterator[Statement]:
    yield given("BLEU and perplexity on newstest2013 after 100,000 steps")
    yield from noise()
    yield from positions_and_attention()
    yield from regularisation_and_size()
    yield from the_factor()


def cells_of(row: str) -> list[Figures]:
    return RESULTS.find(task="multi30k", system=row)


def effect(row: str) -> float:
    return float(effect_of(cells_of(row), cells_of(f"{BASE}: {BASE}")).partition(" ")[0])


def seeds(row: str) -> list[float]:
    return [one["score"] for one in cells_of(row)]


def noise() -> Iterator[Statement]:
    spread = {row: max(seeds(row)) - min(seeds(row)) for row in ROWS}
    unscaled = spread.pop(UNSCALED)
    yield says(
        f"Two seeds of the same row differ by up to {max(spread.values()):.1f} BLEU points (those of unscaled dot products by {unscaled:.1f})"
    )


def positions_and_attention() -> Iterator[Statement]:
    yield says(f"Without positions the model loses {-effect('why: no positions'):.0f} points")
    learned = ROWS["E: learned positions"]
    yield says(
        f"Learned positions are {-effect(learned.key):.1f} points behind sinusoids here",
        abs(learned.bleu - PAPER_BLEU) < 0.2,
    )
    yield given("With 29,000 pairs")
    yield says("this model hardly learns ({:.0f} and {:.0f} BLEU)".format(*sorted(seeds(UNSCALED))))
    additive, dot = (
        mean(one["train_tokens_per_s"] for one in cells_of(row)) for row in ("why: additive attention", UNSCALED)
    )
    yield says(
        f"comes close ({effect('why: additive attention'):.1f}) but trains at less than half the speed of dot products",
        additive < dot / 2,
    )
    worst, best = min(seeds("why: BatchNorm")), max(seeds(f"{BASE}: {BASE}"))
    yield says(
        "in place of LayerNorm gains a point, in both seeds", 0.75 < effect("why: BatchNorm") < 1.25 and worst > best
    )


def regularisation_and_size() -> Iterator[Statement]:
    dropout, smoothing = effect("D: no dropout"), effect("D: no label smoothing")
    yield says(f"Dropout is worth {-dropout:.0f} points and label smoothing {-smoothing:.1f}")
    costs = {f"{-effect(row):.1f}" for row in ("C: d_model 128", "C: 1 layer")}
    yield says(
        f"Halving the width or keeping one layer of {number(SHAPES['multi30k'].layers)} costs {' or '.join(sorted(costs))} points"
    )
    yield given("WMT has 150 times as many pairs")
    heads = {row: effect(row) for row in ROWS if row.startswith("A: ")}
    clear = [row for row in heads if max(seeds(row)) < min(seeds(f"{BASE}: {BASE}"))]
    yield says("One head does as well as four", abs(heads["A: 1 head"]) < 0.5)
    yield says(
        "attending to four neighbours as well as to the whole sentence",
        abs(effect("why: self-attention to 4 neighbours")) < 0.5,
    )
    width = SHAPES["multi30k"].d_model // 16
    yield says(f"Sixteen heads of {width} dimensions are the only clear loss", clear == ["A: 16 heads"])
    paper = {row: ROWS[row].bleu - PAPER_BLEU for row in heads}
    yield says(
        f"in the paper, a single head loses most ({paper['A: 1 head']:.1f})",
        min(paper, key=lambda row: paper[row]) == "A: 1 head",
    )


def the_factor() -> Iterator[Statement]:
    """Words rather than figures: the values depend on the rounding of the machine."""
    yield says(f"the variance of the logits of {KEYS} keys")
    yield says(f"The gradient is the median over {QUERIES} queries")
    left = {d_k: gradient(d_k, scaled=False) / gradient(d_k, scaled=True) for d_k in (2, 4, 8, 16, 32, 64, 512)}
    yield says(
        "Up to d_k = 32, the gradient is larger without the factor", all(left[d_k] > 1 for d_k in (2, 4, 8, 16, 32))
    )
    yield says(
        "At the paper's d_k = 64, two thirds of it are left, and at 512, a single head of the base model, less than a fiftieth",
        0.6 < left[64] < 0.72 and left[512] < 1 / 50,
    )
    shape = SHAPES["multi30k"]
    yield says(
        f"the model above has d_k = {shape.d_model // shape.heads} and loses {-effect(UNSCALED):.0f} BLEU points",
        shape.d_model // shape.heads == 64,
    )
    yield given("independent values with mean 0 and variance 1")
    yield given("need not keep a variance of 1")


def gradient(d_k: int, scaled: bool) -> float:
    return measure_dot_products(d_k, scaled).gradient
