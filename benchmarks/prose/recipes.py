"""What the headers of configs/*.toml say about the result files of these recipes."""

from collections.abc import Iterator
from statistics import mean

from cells.records import ENGLISH_WORDS, IN_CMUDICT, RECORDS, record_of
from cells.session import read_results
from pages.records import complete, language_mean, tests_of, validation_score, votes_of
from report.section import Result, read

from transduce.paper.results import Figures

from .guides import faster
from .statements import Statement, Statements, given, logged, number, says

RESULTS = read_results("records")


# --- text -----------------------------------------------------------------------------------------------------------


def europarl() -> Iterator[Statement]:
    scores = read("europarl-ours-4")["scores"]
    yield says(
        f"One H200, 4 minutes: BLEU {scores['europarl']['value']:.1f} on Europarl's test set, {scores['newstest2014']['value']:.1f} on newstest2014"
    )


def multi30k() -> Iterator[Statement]:
    result = read("multi30k-cpu")
    bleu, chrf = (result["test"]["scores"][name]["value"] for name in ("BLEU", "chrF2"))
    yield says(f"Two cores of a Xeon, {result['seconds'] / 60:.0f} minutes: BLEU {bleu:.1f}, chrF2 {chrf:.1f}")
    yield given("29,000 pairs")


def multi30k_as_published() -> Iterator[Statement]:
    result = read("multi30k-bpe-gpu")
    bleu, runs = result["bleu"], result["runs"]
    training, whole = (sorted(one[clock] for one in runs)[len(runs) // 2] for clock in ("training_s", "command_s"))
    yield says(
        f"One H200, {training:.0f} s of training, {whole:.0f} s for the whole command: {bleu['mean']:.2f} tokenised BLEU "
        f"({bleu['least']:.2f} to {bleu['most']:.2f}, {number(len(runs))} seeds;"
    )
    yield given("Published without pictures: 41.02")


def student() -> Iterator[Statement]:
    found = read("student-cpu")["results"]
    bleu = {name: one["bleu"] for name, one in found.items()}
    yield logged("Two cores of a Xeon, 14.5 minutes", "which student is worth")
    yield says(
        f"BLEU {bleu['student, greedy']:.1f} greedily and {bleu['student, beam 4']:.1f} with beam 4, "
        f"where the teacher has {bleu['teacher, greedy']:.1f} and {bleu['teacher, beam 4']:.1f}"
    )
    yield says(
        f"{faster(found, 'beam 4')} times as fast as the teacher either way, and greedily "
        f"{found['student, greedy']['times_teacher_beam_4'][0]:.1f} times as fast as the teacher with beam 4",
        faster(found, "greedy") == faster(found, "beam 4"),
    )


def shakespeare() -> Iterator[Statement]:
    result = read("shakespeare")
    losses = [f"{one['loss']:.4f}" for one in result["rows"]]
    yield given("6 layers of 384, a context of 256")
    yield given("the first 90 % of the characters")
    yield given(f"nanoGPT reports a validation loss of {result['anchor']}")
    yield says(
        f"trains {number(len(losses))} seeds: losses {', '.join(losses[:-1])} and {losses[-1]} (mean {mean(one['loss'] for one in result['rows']):.4f})"
    )
    yield says(
        f"{max(one['seconds'] for one in result['rows']):.0f} s or less for each whole command on one {result['hardware']['gpu']}"
    )


# --- pronunciation and inflection -----------------------------------------------------------------------------------


def cmudict() -> Iterator[Statement]:
    result = read("cmudict-cpu")
    runs = result["runs"]

    def rates(marks: str, name: str, digits: int = 1) -> str:
        return " and ".join(f"{run['scores'][marks][name]:.{digits}f}" for run in runs)

    minutes = mean(run["command_s"] for run in runs) / 60
    yield says(f"Two cores of an {result['hardware']['cpu']}, {minutes:.0f} minutes from start to model card")
    yield says(
        f"on {runs[0]['words']:,} words never seen, word error rate {rates('plain', 'WER', 2)} % (two seeds) and phoneme error rate "
        f"{rates('plain', 'PER')} % without stress marks, {rates('stressed', 'WER', 2)} %, {rates('stressed', 'PER')} % with them",
        len(runs) == 2,
    )


def validation(record: str, recipe: str) -> float:
    found = record_of(record)
    score = validation_score(found, next(one for one in found.recipes if one.name == recipe), RESULTS)
    assert score is not None, f"{record}, {recipe}: not measured"
    return abs(score)


def single_models(record: str) -> list[float]:
    """The mean over languages of each seed that has all of them."""
    found = record_of(record)
    tested = tests_of(found, RESULTS)
    seeds = [[line for line in tested if line["seed"] == seed] for seed in {line["seed"] for line in tested}]
    return [language_mean(lines) for lines in seeds if complete(found, lines)]


def votes(record: str) -> list[Figures]:
    found = record_of(record)
    return votes_of(found, tests_of(found, RESULTS)[0]["system"], RESULTS)


def english() -> Iterator[Statement]:
    with_cmudict, without = (validation("g2p high", recipe) for recipe in ("256, with CMUdict", "256"))
    tested, voted = single_models("g2p high"), votes("g2p high")
    yield given("33,344 words")
    yield says(
        f"Validation WER {with_cmudict:.1f} with CMUdict, and {without:.1f} without (8,000 steps, dropout 0.3)",
        recipe_has("g2p high", "256", 8_000, "model.dropout=0.3"),
    )
    yield says(
        f"Test WER with CMUdict: {mean(tested):.1f}, mean of {number(len(tested))} seeds, and {language_mean(voted):.1f} by their vote",
        voted[-1]["members"] == len(tested),
    )
    yield says(f"CMUdict has {IN_CMUDICT['test']:,} of the {ENGLISH_WORDS:,} test words")
    yield published("The baseline of the shared task, an ensemble of ten: {}", "g2p high")


def recipe_has(record: str, recipe: str, steps: int, setting: str) -> bool:
    (found,) = [one for one in record_of(record).recipes if one.name == recipe]
    return found.steps == steps and setting in found.settings.split()


def published(text: str, record: str) -> Statement:
    return says(text.format(record_of(record).published.partition(" ")[0]))


def low() -> Iterator[Statement]:
    tested, voted = single_models("g2p low"), votes("g2p low")
    yield given("ten languages with 800 words each")
    yield says(
        f"One H200: WER {mean(tested):.1f}, mean of {number(len(tested))} seeds and ten languages; {language_mean(voted):.1f} by a vote of the ten models",
        voted[-1]["members"] == 10,
    )
    yield published("The baseline of the shared task, also ten models: {}", "g2p low")


def medium() -> Iterator[Statement]:
    yield given("8,000 words of a language")


def three_languages() -> Iterator[Statement]:
    entry = "one model with language tags"
    yield given("SIGMORPHON 2021, task 1, medium: 8,000 training words and 1,000 test words of each language")
    yield logged("1,000 steps (5.6 epochs)", entry)
    yield logged(
        "word error rate 26.5 % Dutch, 19.5 % French, 17.7 % Hungarian; phoneme error rate 6.2 %, 4.8 %, 3.1 %", entry
    )
    yield logged("22 minutes on two cores", entry)


def inflection() -> Iterator[Statement]:
    tested = single_models("inflection")
    yield given("10,000 forms of each language")
    yield given("4 + 4 layers, about 400 words a step")
    yield says(
        f"One H200: {mean(tested):.1f} % is the mean accuracy of the {number(len(RECORDS[0].languages))} languages, {number(len(tested))} seed"
    )


# --- speech ---------------------------------------------------------------------------------------------------------


def iban() -> Iterator[Statement]:
    result = read("iban")
    plain, trigram = (rates(result, system) for system in ("decoder and CTC", "with trigram and lexicon"))
    yield given("seven hours of recordings of 15 speakers")
    yield given("The test set has 473 utterances of 6 other speakers")
    yield says(f"One H200, {result['minutes']:.1f} minutes with preparation")
    yield logged("104 epochs", "seven hours of Iban")
    yield says(
        f"WER {plain['test set', 'WER']}, CER {plain['test set', 'CER']} on the test set with beam {result['beam']} and the averaged weights, "
        f"{trigram['test set', 'WER']} with a trigram and the lexicon; {plain['validation speakers', 'WER']} and {trigram['validation speakers', 'WER']} on the validation speakers"
    )
    yield given("All 180 epochs have not been measured")


def rates(result: Result, system: str) -> dict[tuple[str, str], str]:
    scores = result["systems"][system]["scores"]
    return {(part, metric): f"{one[metric]['value']:.2f}" for part, one in scores.items() for metric in ("WER", "CER")}


def spoken_digits() -> Iterator[Statement]:
    runs = read("digits-cpu")["runs"]
    seconds = " and ".join(f"{run['command_s']:.0f}" for run in runs)
    right = {split: " and ".join(f"{run['right'][split]:.1f}" for run in runs) for split in ("test", "valid")}
    yield says(
        f"Two cores of a Xeon, {seconds} s for the whole command with {number(len(runs))} seeds: "
        f"{right['test']} % of the test speaker's digits are right, and {right['valid']} % of those of the validation speaker"
    )
    yield given("4 training speakers")


STATEMENTS: dict[str, Statements] = {
    "configs/cmudict-cpu.toml": cmudict,
    "configs/europarl-gpu.toml": europarl,
    "configs/g2p-high-gpu.toml": english,
    "configs/g2p-low-gpu.toml": low,
    "configs/g2p-medium-gpu.toml": medium,
    "configs/g2p-three-languages-cpu.toml": three_languages,
    "configs/iban.toml": iban,
    "configs/inflection-gpu.toml": inflection,
    "configs/multi30k-bpe-gpu.toml": multi30k_as_published,
    "configs/multi30k-cpu.toml": multi30k,
    "configs/multi30k-student-cpu.toml": student,
    "configs/shakespeare-char.toml": shakespeare,
    "configs/spoken-digits.toml": spoken_digits,
}
