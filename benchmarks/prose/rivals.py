"""What docs/rivals.md says about benchmarks/results/rivals.jsonl."""

from collections.abc import Iterator
from statistics import mean

from cells.rivals import BUDGETS, SHAPES, SPEED, TRIES, TUNING_S, best_factor
from cells.session import read_results
from pages.rivals import BEAMS, flops_rows, lengths, significance

from transduce.config import GnmtConfig
from transduce.paper.results import Figures
from transduce.paper.reversal import LONGEST
from transduce.paper.rivals import BASELINE, SYSTEMS

from .statements import Statement, number, says

RESULTS = read_results("rivals")
NAMES = [system.name for system in SYSTEMS]
WITHOUT_ATTENTION = ("ff", "seq2seq", "bytenet")


def statements() -> Iterator[Statement]:
    yield from how_it_is_done()
    yield from little_data()
    yield from without_attention()
    yield from too_short()


def cells_of(system: str, task: str = "multi30k") -> list[Figures]:
    return RESULTS.find(task=task, system=system, purpose="test")


def score(system: str, task: str = "multi30k") -> float:
    return mean(one["score"] for one in cells_of(system, task))


def behind(system: str) -> float:
    """By how many points a system's mean is lower than the Transformer's."""
    return score(BASELINE) - score(system)


def timed(system: str) -> Figures:
    """The seed that had the GPU for itself."""
    return next(one for one in cells_of(system) if one["budget_s"])


def how_it_is_done() -> Iterator[Statement]:
    (width, layers), (wide, deep) = SHAPES["multi30k"], SHAPES["europarl"]
    yield says(f"as many steps as it makes in {number(BUDGETS['europarl'].seconds / 60)} minutes")
    only_speeds = RESULTS.find(task="europarl", purpose=SPEED) and not RESULTS.find(task="europarl", purpose="test")
    yield says("Only the speeds have been measured, so this page has no scores for it", bool(only_speeds))
    yield says(
        f"{number(len(TRIES))} learning rates are tried on Multi30k, side by side on the same GPU for {TUNING_S:g} seconds"
    )
    yield says("For all systems the largest one won", all(best_factor(name, RESULTS) == TRIES[-1] for name in NAMES))
    tried = {name: [valid(name, factor) for factor in TRIES] for name in NAMES}
    unclear = sorted(name for name, found in tried.items() if max(found) < 3)
    yield says(
        "For `moe` and `rnn`, this time was too short to tell the rates apart (validation BLEU below 3)",
        unclear == ["moe", "rnn"],
    )
    paired = significance()["multi30k"]
    away = {name: abs(behind(name) + paired[name]["difference"]) for name in NAMES if name in paired}
    others = max(far for name, far in away.items() if name != "gnmt")
    yield says("by up to a point, and for `gnmt` by almost three", others < 1 and 2.5 < away["gnmt"] < 3)
    yield says(f"the scores in the table are of the test data and a beam of {BEAMS['multi30k']}")
    stopped = {one["purpose"] for one in RESULTS.find(system=BASELINE) if one["purpose"].startswith("FLOPs")}
    yield says("One additional, shorter run of the Transformer stops at the FLOPs of `ff`", stopped == {"FLOPs of ff"})
    yield says(f"reversing random sequences of up to {LONGEST} symbols")
    yield says(f"On Multi30k the width is {width} and the Transformer has {layers} + {layers} layers")
    of = {name: " + ".join(map(str, layers_of(name))) for name in NAMES}
    yield says(
        f"{of['rnn']} in `rnn`, {of['gnmt']} in `seq2seq` and `gnmt`, {of['convs2s']} in `convs2s`, {of['bytenet']} blocks in `bytenet`, "
        f"and {of['prefix']} in `prefix`",
        of["seq2seq"] == of["gnmt"],
    )
    yield says(f"where the width is {wide} and the Transformer has {deep} + {deep} layers")


def layers_of(system: str) -> list[int]:
    """The layers of the stacks of a system on Multi30k."""
    return [int(one.partition("=")[2]) for one in timed(system)["settings"] if "coder_layers" in one]


def valid(system: str, factor: float) -> float:
    (found,) = RESULTS.find(task="multi30k", system=system, purpose=f"rate x {factor:g}")
    return found["valid"]


def little_data() -> Iterator[Statement]:
    best = sorted(NAMES, key=score)[-3:]
    leaders = {"convs2s", "window", BASELINE} == set(best) and score(best[-1]) - score(best[0]) < 1
    yield says("three systems have the best scores, within a point of each other", leaders)
    ahead, paired = score("convs2s") - score(BASELINE), significance()["multi30k"]["convs2s"]["difference"]
    first = [next(one["score"] for one in cells_of(name) if one["seed"] == 1) for name in ("convs2s", BASELINE)]
    yield says(
        f"In the paired test of seeds 2 and 3, ConvS2S is ahead of the Transformer by {paired:.1f} points; "
        f"over all three seeds it is {ahead:.1f}, and with seed 1 the Transformer is ahead",
        first[0] < first[1],
    )
    yield says(
        "Mixtures of experts (`moe`) and a decoder alone (`prefix`) are less than a point behind the Transformer",
        max(behind("moe"), behind("prefix")) < 1,
    )
    flops = mean(one["flops"] for one in cells_of("rnn")) / mean(one["flops"] for one in cells_of(BASELINE))
    yield says(
        "The GRU with attention is less than two points behind with a tenth of the FLOPs",
        behind("rnn") < 2 and 0.09 < flops < 0.11,
    )
    ours, gru = timed(BASELINE), timed("rnn")
    training, translating = (ours[name] / gru[name] for name in ("train_tokens_per_s", "greedy_sentences_per_s"))
    yield says(
        f"it trains on {ours['train_tokens_per_s'] / 1e6:.1f} million tokens/s, {number(training)} times as many as the GRU, "
        f"and translates {number(translating)} times as many sentences per second"
    )
    stopped = next(row for row in flops_rows(RESULTS) if row[0].endswith(" ff"))
    yield says(
        f"Stopped after {stopped[2]} seconds, at the FLOPs of `ff`, it scores as high as after {ours['training_s']:.0f}",
        abs(float(stopped[3]) - score(BASELINE)) < 0.5,
    )


def without_attention() -> Iterator[Statement]:
    share = [
        mean(one) / mean(other)
        for one, other in zip(
            *(lengths("multi30k", name, RESULTS).values() for name in ("seq2seq", BASELINE)), strict=True
        )
    ]
    yield says(
        "loses half of the score, and most on long sentences",
        0.45 < score("seq2seq") / score(BASELINE) < 0.55 and min(share) == share[-1],
    )
    first, *_, last = lengths("reversal", "seq2seq", RESULTS).items()
    yield says(
        f"{mean(first[1]):.0f} % of the symbols are right in sequences of up to {first[0][1] - 1} symbols, "
        f"{mean(last[1]):.0f} % in sequences of {LONGEST}"
    )
    attending = [name for name in NAMES if name not in WITHOUT_ATTENTION]
    least = min(score(name, "reversal") for name in attending)
    shortest = min(mean(found) for name in attending for found in lengths("reversal", name, RESULTS).values())
    yield says(f"get {least:.1f} % or more over all lengths, and at least {shortest:.1f} % at every length")


def too_short() -> Iterator[Statement]:
    yield says(f"What {BUDGETS['multi30k'].seconds:g} seconds are too short for")
    curve = timed("gnmt")["curve"]
    before = next(loss for seconds, loss in curve if seconds > 0.8 * curve[-1][0])
    yield says("The loss of `gnmt` is still falling steeply when the time is up", curve[-1][1] < 0.95 * before)
    yield says("it does learn to reverse long sequences", score("gnmt", "reversal") > 99)
    layers, first = layers_of("gnmt"), GnmtConfig.first_residual
    yield says(
        f"there are {number(layers[0])} encoder and {number(layers[1])} decoder layers, and none of the residual connections of the "
        "published model, which begin at the third layer",
        first == 3 and max(layers) < first,
    )
    gnmt, bytenet = ([one["score"] for one in cells_of(name)] for name in ("gnmt", "bytenet"))
    yield says(f"its {number(len(gnmt))} seeds score between {min(gnmt):.1f} and {max(gnmt):.1f}")
    ahead = score("bytenet") - score("seq2seq")
    yield says(
        f"scores {min(bytenet):.1f} to {max(bytenet):.1f}, {number(ahead)} points more than the LSTM without attention"
    )
    first, *_, last = lengths("reversal", "bytenet", RESULTS).items()
    yield says(
        f"{mean(first[1]):.0f} % of the symbols are right in sequences of up to {first[0][1] - 1} symbols, "
        f"{mean(last[1]):.0f} % in sequences of {LONGEST}"
    )
    yield says(
        "a set of five for each layer of the Transformer", set(layers_of("bytenet")) == {5 * SHAPES["multi30k"][1]}
    )
    yield says("ByteNet was measured again later and has not been tested", "bytenet" not in significance()["multi30k"])
