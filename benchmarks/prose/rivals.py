"""What docs/rivals.md says about benchmarks/results/rivals.jsonl."""

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import facts
from cells.rivals import BUDGETS, RATES, SHAPES, SPEED, TIE, TUNING_S, best_rate, rate_for, rates_of, tries_of
from cells.session import read_results
from cells.tasks import TASKS
from pages.rivals import BEAMS, flops_rows, lengths, rate_in, significance

from transduce.config import GnmtConfig, settings_layer
from transduce.paper.results import Figures
from transduce.paper.reversal import LONGEST
from transduce.paper.rivals import BASELINE, SYSTEMS

from .statements import Statement, logged, number, says

RESULTS = read_results("rivals")
NAMES = [system.name for system in SYSTEMS]
WITHOUT_ATTENTION = ("ff", "seq2seq", "bytenet")


def statements() -> Iterator[Statement]:
    yield from how_it_is_done()
    yield from recipe()
    yield from little_data()
    yield from more_data()
    yield from without_attention()
    yield from what_a_setting_hides()


def cells_of(system: str, task: str = "multi30k") -> list[Figures]:
    return RESULTS.find(task=task, system=system, purpose="test")


def score(system: str, task: str = "multi30k") -> float:
    return mean(one["score"] for one in cells_of(system, task))


def behind(system: str) -> float:
    """By how many points a system's mean is lower than the Transformer's."""
    return score(BASELINE) - score(system)


def timed(system: str) -> Figures:
    """The run that had the GPU for itself."""
    (found,) = RESULTS.find(task="multi30k", system=system, purpose=SPEED)
    return found


def greedy_speed(system: str) -> float:
    return mean(one["greedy_sentences_per_s"] for one in cells_of(system) if one["budget_s"] or one.get("greedy_alone"))


def how_it_is_done() -> Iterator[Statement]:
    (width, layers), (wide, deep) = SHAPES["multi30k"], SHAPES["europarl"]
    yield says(f"each system trains for {BUDGETS['multi30k'].seconds:g} seconds with no other run on the GPU")
    yield says(f"as many steps as it makes in {number(BUDGETS['europarl'].seconds / 60)} minutes")
    part = {0.5: "half"}[TUNING_S / BUDGETS["multi30k"].seconds]
    yield says(f"{number(len(RATES))} learning rates are tried on Multi30k, for {part} of the steps")
    yield says(f"if the scores of several rates differ by less than {TIE:g}, the lowest of them")
    tuned = sorted(name for name in NAMES if best_rate(name, RESULTS))
    yield says(
        "So far only `rnn`, `seq2seq` and `gnmt` have been tuned in this way", tuned == ["gnmt", "rnn", "seq2seq"]
    )
    yield says("The other seven were tuned before", len(NAMES) - len(tuned) == 7)
    others = [
        rates_of(name) for name in NAMES if name not in tuned and float(rate_in(cells_of(name)[0])) != rates_of(name)[1]
    ]
    yield says("it is the middle one of those that are tried now", not others)
    highest = sorted(name for name in tuned if best_rate(name, RESULTS) == rates_of(name)[-1])
    carried = [rate_for("europarl", name, RESULTS) for name in highest]
    seconds = [
        sorted(rates_of(name), key=lambda rate, of=name: tries_of(of, RESULTS)[rate]["valid"])[-2] for name in highest
    ]
    yield says("so `rnn` and `gnmt` train at their second best", highest == ["gnmt", "rnn"] and carried == seconds)
    paired = significance()["multi30k"]
    away = {name: abs(behind(name) + paired[name]["difference"]) for name in NAMES if name in paired}
    yield says(
        "so the tested difference deviates from the difference of the mean scores, by up to a point",
        max(away.values()) < 1,
    )
    untested = sorted(set(NAMES) - set(paired) - {BASELINE})
    yield says(
        "`rnn`, `gnmt` and `bytenet` were measured again later and have not been tested there",
        untested == ["bytenet", "gnmt", "rnn"],
    )
    yield says(f"The scores in the table are of the test data and a beam of {BEAMS['multi30k']}")
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
    yield says(f"On Europarl the width is {wide} and the Transformer has {deep} + {deep} layers")
    missing = sorted(name for name in NAMES if not cells_of(name, "europarl"))
    yield says("`seq2seq` and `bytenet` on Europarl: their trainings were stopped", missing == ["bytenet", "seq2seq"])


def recipe() -> Iterator[Statement]:
    ours, more = (settings_layer(TASKS[name](Path()).settings) for name in ("multi30k", "europarl"))
    train, model = ours["train"], ours["model"]
    yield says(
        f"Adam, linear decay of the learning rate after {train['warmup_steps']} steps of warm-up (Europarl: {more['train']['warmup_steps']}), "
        f"label smoothing {train['label_smoothing']}, dropout {model['dropout']} (Europarl: {more['model']['dropout']}), and on Multi30k a moving "
        f"average of {train['ema']}",
        {train["schedule"], more["train"]["schedule"]} == {"linear"} and "optimizer" not in train,
    )
    best = json.loads((facts.RESULTS / "multi30k-bpe-gpu.json").read_text())["bleu"]["mean"]
    yield says(f"which reaches {best} on Multi30k with R-Drop")


def layers_of(system: str) -> list[int]:
    """The layers of the stacks of a system on Multi30k."""
    return [int(one.partition("=")[2]) for one in timed(system)["settings"] if "coder_layers" in one]


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
        "The GRU with attention is half a point behind with a tenth of the FLOPs, and stacked LSTMs two points",
        0.4 < behind("rnn") < 0.6 and 0.09 < flops < 0.11 and 1.8 < behind("gnmt") < 2.4,
    )
    ours, gru = timed(BASELINE), timed("rnn")
    training = ours["train_tokens_per_s"] / gru["train_tokens_per_s"]
    translating = greedy_speed(BASELINE) / greedy_speed("rnn")
    yield says(
        f"it trains on {ours['train_tokens_per_s'] / 1e6:.1f} million tokens/s, {number(training)} times as many as the GRU, "
        f"and translates {number(translating)} times as many sentences per second"
    )
    stopped = next(row for row in flops_rows("multi30k", RESULTS) if row[0].endswith(" ff"))
    yield says(
        f"Stopped after {stopped[2]} seconds, at the FLOPs of `ff`, it scores as high as after {ours['training_s']:.0f}",
        abs(float(stopped[3]) - score(BASELINE)) < 0.5,
    )


def more_data() -> Iterator[Statement]:
    measured = [name for name in NAMES if cells_of(name, "europarl")]
    ahead = {name: score(BASELINE, "europarl") - score(name, "europarl") for name in measured}
    others = [ahead[name] for name in measured if name not in (BASELINE, "window", *WITHOUT_ATTENTION)]
    yield says(
        f"the Transformer is {ahead['window']:.1f} points ahead of the next system, the Transformer with restricted self-attention, and "
        f"{min(others):.1f} to {max(others):.1f} points ahead of the other systems with attention",
        ahead["window"] < min(others),
    )
    tested = [one for name, one in significance()["europarl"].items() if name != "signature"]
    significant = all(one["verdict"] == "worse" for one in tested) and len(tested) == len(measured) - 1
    yield says("By the paired test over sentences, all differences are significant", significant)
    (ours,), (gru,) = cells_of(BASELINE, "europarl"), cells_of("rnn", "europarl")
    yield says(f"it performs {ours['flops'] / gru['flops']:.1f} times as many floating-point operations as the GRU")


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


def what_a_setting_hides() -> Iterator[Statement]:
    first = GnmtConfig.first_residual
    now = next(int(one.partition("=")[2]) for one in timed("gnmt")["settings"] if "first_residual" in one)
    yield logged("`gnmt` had 18.9 BLEU on Multi30k", "table 2 on Europarl")
    yield says(
        f"instead of {score('gnmt'):.1f}: its {number(sum(layers_of('gnmt')))} layers had none of the "
        "residual connections of the published model, which begin at the third layer there and at the second here",
        (first, now) == (3, 2),
    )
    bytenet = [one["score"] for one in cells_of("bytenet")]
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
