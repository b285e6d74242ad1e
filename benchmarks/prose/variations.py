"""What docs/variations.md says about benchmarks/results/variations.jsonl, and about dot products of random vectors."""

from collections.abc import Iterator
from pathlib import Path
from statistics import mean

from cells.session import read_results
from cells.tasks import multi30k
from cells.variations import BUDGETS, RECIPES, SHAPES
from pages.variations import SETS, differences_of, effect_of, is_clear, width_of

from transduce.paper.dot_products import KEYS, QUERIES, measure_dot_products
from transduce.paper.results import Figures
from transduce.paper.variations import BASE, PAPER_BLEU, rows

from .statements import Statement, given, number, says

RESULTS = read_results("variations")
ROWS = {row.key: row for row in rows(SHAPES["multi30k"])}
UNSCALED = "why: unscaled dot products"
BASE_CELLS = RESULTS.find(task="multi30k", system=f"{BASE}: {BASE}")


def statements() -> Iterator[Statement]:
    yield given("BLEU and perplexity on newstest2013 after 100,000 steps")
    yield from method()
    yield from noise()
    yield from positions_and_attention()
    yield from regularisation_and_size()
    yield from heads_and_windows()
    yield from the_factor()


def cells_of(row: str) -> list[Figures]:
    return RESULTS.find(task="multi30k", system=row)


def effect(row: str, name: str = "score") -> float:
    return float(effect_of(cells_of(row), BASE_CELLS, name).partition(" ")[0])


def effects(row: str) -> list[str]:
    """The sizes on validation and on test data."""
    return [f"{abs(effect(row, name)):.1f}" for name in SETS]


def lost(row: str) -> bool:
    return is_clear(cells_of(row), BASE_CELLS) and effect(row) < 0


def gained(row: str) -> bool:
    return is_clear(cells_of(row), BASE_CELLS) and effect(row) > 0


def method() -> Iterator[Statement]:
    shape, task = SHAPES["multi30k"], multi30k(Path())
    used = dict(setting.split("=") for setting in (*task.settings, *shape.settings, *RECIPES["multi30k"]))
    yield says(
        f"A Transformer with {shape.layers} + {shape.layers} layers, d_model {shape.d_model}, {shape.heads} heads (d_k {shape.d_model // shape.heads}), "
        f"d_ff {int(used['model.d_ff']):,}, dropout {shape.dropout} and LayerNorm after each sub-layer (post-norm)",
        used["model.norm"] == "post",
    )
    yield given("(29,000 pairs, tokenised, lower-cased, joint BPE)")
    yield says(
        f"{BUDGETS['multi30k'][0]:,} steps of at most {int(used['train.tokens_per_batch']):,} tokens, Adam, label smoothing {used['train.label_smoothing']}",
        "train.optimizer" not in used,
    )
    yield says(
        f"The learning rate rises to {used['train.learning_rate']} in {int(used['train.warmup_steps']):,} steps and then falls linearly",
        used["train.schedule"] == "linear",
    )
    yield says("A moving average of the weights is used", float(used["train.ema"]) > 0)
    yield given("the 1,014 sentences of `valid`, with greedy search")
    yield says(
        f"on the 1,000 sentences of `test_2016_flickr`, with beam {task.beam}",
        task.test.source.stem == "test_2016_flickr",
    )


def noise() -> Iterator[Statement]:
    others = [row for row in ROWS if row != f"{BASE}: {BASE}"]
    yield says(
        f"Only {sum(is_clear(cells_of(row), BASE_CELLS) for row in others)} of the {len(others)} rows have a clear effect"
    )
    valid, test = (max(width_of(cells_of(row), name) for row in ROWS if row != UNSCALED) for name in SETS)
    weak = [
        row
        for row in others
        if is_clear(cells_of(row), BASE_CELLS) and any(abs(effect(row, name)) < test for name in SETS)
    ]
    yield says(
        f"but on at least one set they are below {test:.1f} points",
        set(weak) == {"why: BatchNorm", "D: no label smoothing"},
    )
    unscaled = max(width_of(cells_of(UNSCALED), name) for name in SETS)
    yield says(
        f"Two seeds of the same row differ by up to {valid:.1f} BLEU points on the validation data and {test:.1f} on the test data "
        f"(those of unscaled dot products by up to {unscaled:.1f})"
    )


def positions_and_attention() -> Iterator[Statement]:
    without = effects("why: no positions")
    yield says(
        f"Without positions, the model loses {without[0]} points on the validation data and {without[1]} on the test data",
        lost("why: no positions"),
    )
    learned = ROWS["E: learned positions"]
    both = [effect(learned.key, name) for name in SETS]
    pairs = [one for name in SETS for one in differences_of(cells_of(learned.key), BASE_CELLS, name)]
    yield says(
        f"lower than sinusoids in all seeds ({both[0]:.1f} and {both[1]:.1f}), but on the validation data their two seeds differ by "
        f"{width_of(cells_of(learned.key), 'valid'):.1f}. So the loss is not clear. The paper found no difference",
        max(pairs) < 0 and not lost(learned.key) and abs(learned.bleu - PAPER_BLEU) < 0.2,
    )
    scores = sorted(one["score"] for one in cells_of(UNSCALED))
    yield says("this model hardly learns ({:.0f} and {:.0f} BLEU)".format(*scores), lost(UNSCALED))
    additive, dot = (
        mean(one["train_tokens_per_s"] for one in cells_of(row)) for row in ("why: additive attention", UNSCALED)
    )
    yield says(
        "loses {} and {} points and trains at less than half the speed of dot products".format(
            *effects("why: additive attention")
        ),
        lost("why: additive attention") and additive < dot / 2,
    )
    yield says(
        "in place of LayerNorm gains {} and {} points".format(*effects("why: BatchNorm")), gained("why: BatchNorm")
    )


def regularisation_and_size() -> Iterator[Statement]:
    dropout, smoothing = "D: no dropout", "D: no label smoothing"
    paper = {row: ROWS[row].bleu - PAPER_BLEU for row in (dropout, smoothing)}
    yield says(
        f"Without dropout, the model loses {' and '.join(effects(dropout))} points, much more than in the paper ({paper[dropout]:.1f})",
        lost(dropout) and max(effect(dropout, name) for name in SETS) < 4 * paper[dropout],
    )
    yield says(
        f"Without label smoothing, it loses {' and '.join(effects(smoothing))} points, and in the paper {-paper[smoothing]:.1f}",
        lost(smoothing),
    )
    half, one = f"C: d_model {SHAPES['multi30k'].d_model // 2}", "C: 1 layer"
    yield says(
        f"Half the width loses {' and '.join(effects(half))} points, and one layer instead of {number(SHAPES['multi30k'].layers)} {' and '.join(effects(one))}",
        lost(half) and lost(one),
    )
    size = [row for row in ROWS if row.startswith("C: ")]
    yield says("No larger model has a clear gain", not any(gained(row) for row in size))
    yield given("WMT has 150 times as many pairs")


def heads_and_windows() -> Iterator[Statement]:
    heads = [row for row in ROWS if row.startswith("A: ")]
    one, sixteen = "A: 1 head", "A: 16 heads"
    yield says("The number of heads has no clear effect", not any(lost(row) or gained(row) for row in heads))
    yield says(
        f"a single head loses {effects(one)[0]} points on the validation data and nothing on the test data, and 16 heads lose {effects(sixteen)[1]} on the "
        "test data and nothing on the validation data",
        abs(effect(one)) < 0.1 and abs(effect(sixteen, "valid")) < 0.1,
    )
    paper = {row: ROWS[row].bleu - PAPER_BLEU for row in heads}
    yield says(
        f"In the paper, a single head loses most ({paper[one]:.1f})", min(paper, key=lambda row: paper[row]) == one
    )
    rest = ("why: self-attention to 4 neighbours", "why: norm before each sub-layer")
    yield says(
        "Self-attention to 4 neighbours and LayerNorm before each sub-layer have no clear effect either",
        not any(lost(row) or gained(row) for row in rest),
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
        f"the model above has d_k = {shape.d_model // shape.heads} and loses {-effect(UNSCALED):.0f} BLEU points on the test data",
        shape.d_model // shape.heads == 64,
    )
    yield given("independent values with mean 0 and variance 1")
    yield given("need not keep a variance of 1")


def gradient(d_k: int, scaled: bool) -> float:
    return measure_dot_products(d_k, scaled).gradient
