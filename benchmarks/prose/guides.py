"""What pages of docs/ say about results beside other things; only the figures stated here are checked."""

from collections import Counter
from collections.abc import Iterator
from datetime import date
from statistics import mean

from cells.records import ENGLISH_WORDS, IN_CMUDICT, RECORDS, recipe_of, record_of, validation_score
from cells.session import read_results
from pages.records import Group, language_mean, seeds_in_words, tested_groups, votes_of
from report.section import Result, read

from transduce.training.scaling import NVLINK, STEP_S, TOKEN_S, WEIGHT_S, Cluster, reference_cost, reference_seconds

from .statements import Statement, Statements, given, logged, number, says


def records() -> Iterator[Statement]:
    yield from tested_twice()
    yield from seeds_of_records()
    medium = record_of("g2p medium")
    (*_, last) = tested_groups(medium, read_results("records"))
    votes = votes_of(medium, last.recipe, read_results("records"))
    yield says(
        f"The WER is {mean(last.scores):.2f}, and the baseline's is {medium.published.split()[0]}",
        last.complete and mean(last.scores) > float(medium.published.split()[0]) and not votes,
    )
    multi30k = record_of("multi30k")
    untested = not any(line["task"] == "multi30k" for line in read_results("records").lines)
    yield says(f"also has {number(len(multi30k.recipes))} recipes for Multi30k that train for two minutes", untested)
    yield from other_tests()
    yield from english_words()


def other_tests() -> Iterator[Statement]:
    """Test scores that benchmarks/records.py did not measure."""
    entry = "do two passes help Multi30k as published"
    yield logged("it has the best test score (41.78, one seed) of eight variants", entry)
    yield logged("(39.33 to 41.78; [log](log.md))", entry)
    swept = Counter(one["sweep"] for one in read("sweeps")["results"] if one["test_scores"])
    yield says(
        f"the test data of German inflection ({swept['german-inflection']} models), Hungarian ({swept['hungarian']}), Icelandic ({swept['icelandic']}) and CMUdict "
        f"({swept['cmudict'] + swept['cmudict-long']})"
    )


def tested_twice() -> Iterator[Statement]:
    """The tracks in which a second recipe was tried when the test score of the first was known."""
    results = read_results("records")
    tested = {one.name: tested_groups(one, results) for one in RECORDS}
    twice = [name for name, groups in tested.items() if len({group.recipe for group in groups}) > 1]
    yield says("In two tracks, two recipes were scored on test data", twice == ["g2p medium", "g2p low"])
    low, (first, second) = record_of("g2p low"), tested["g2p low"]
    votes = [language_mean(votes_of(low, one.recipe, results)) for one in (first, second)]
    baseline = low.published.split()[0]
    yield says(
        f'"{first.recipe}" was tested on {day(first)}: the vote of its {number(len(first.seeds))} models has a WER of {votes[0]:.2f}, which '
        "is exactly the baseline's",
        f"{votes[0]:.2f}" == baseline,
    )
    tuned = [-(validation_score(low, recipe_of(low, one.recipe), results) or 0) for one in (second, first)]
    yield says(
        f"better on the validation data ({tuned[0]:.2f} against {tuned[1]:.2f}, one seed), and was tested on {day(second)}: {votes[1]:.2f}",
        tuned[0] < tuned[1],
    )
    apart, together = tested["g2p medium"]
    known = f"{len(apart.languages)} of the {len(together.languages)} languages"
    yield says(f'"{apart.recipe}" was tested on {known} before "{together.recipe}" was tried', together.complete)


def day(group: Group) -> str:
    """The only day on which it was tested."""
    (tested,) = {date.fromisoformat(line["date"]) for line in group.lines}
    return f"{tested:%d %B}"


def seeds_of_records() -> Iterator[Statement]:
    results = read_results("records")
    (first, second) = tested_groups(record_of("inflection"), results)
    yield says(
        f"Inflection has seed {first.seeds[0]} for all {number(len(first.languages))} languages, and seed {second.seeds[0]} for {number(len(second.languages))} of them",
        first.complete and (len(first.seeds), len(second.seeds)) == (1, 1),
    )
    yield given("Inflection has seven of the 52 languages of the published mean")
    medium, high = (tested_groups(record_of(name), results)[-1] for name in ("g2p medium", "g2p high"))
    yield says(
        f"Medium pronunciation has {seeds_in_words(medium.seeds)}, high pronunciation {seeds_in_words(high.seeds)}"
    )


def english_words() -> Iterator[Statement]:
    words = f"of the {ENGLISH_WORDS:,}"
    yield says(
        f"has {IN_CMUDICT['test']:,} {words} English test words and {IN_CMUDICT['valid']:,} {words} validation words"
    )
    record, results = record_of("g2p high"), read_results("records")
    scores = [validation_score(record, one, results) for one in record.recipes if not one.form.with_cmudict]
    wer = sorted(-score for score in scores if score is not None)
    yield says(
        f"Without CMUdict, the validation WER of one model is {wer[0]:.2f} to {wer[-1]:.2f}", len(wer) == len(scores)
    )
    baseline = record.published.split()[0]
    yield says(f"That is no better than the baseline's {baseline} on the test data", wer[0] > float(baseline))
    tested = {one["system"] for one in results.find(purpose="test") if record_of(one["task"]) is record}
    yield says("these recipes were not scored on the test data", tested == {"256, with CMUdict"})
    yield given("`--side-by-side 6` trains six small models at once")


def distillation() -> Iterator[Statement]:
    result = read("student-cpu")
    found = result["results"]
    for name, one in found.items():
        model, search = name.split(", ")
        yield says(f"| {model} | {search} | {one['bleu']:.1f} | {one['times_teacher_beam_4'][0]:.1f} |")
    yield says(
        f"With the same search the student is {faster(found, 'beam 4')} times as fast as its teacher",
        faster(found, "greedy") == faster(found, "beam 4"),
    )
    yield says(f"the rest of the {found['student, greedy']['times_teacher_beam_4'][0]:.1f} comes from greedy search")


def faster(found: Result, search: str) -> str:
    """How many times as many sentences per second the student translates."""
    return f"{found[f'student, {search}']['sentences_per_s'] / found[f'teacher, {search}']['sentences_per_s']:.1f}"


def drift() -> Iterator[Statement]:
    entry = "how short a drift"
    yield logged(
        "`doctor` found at least 9 of 10 in each corpus when 200 lines were out of step in a file of 1,000", entry
    )
    yield logged("all of them with 128 lines in a file of 2,900", entry)


def replicas() -> Iterator[Statement]:
    kill = read("replicas")["kill"]
    yield says(
        f"{number(kill['ended_replicas'])} servers were killed with `kill -9` during {kill['requests']:,} requests, and all requests were answered",
        kill["lost"] == 0,
    )


def fusion() -> Iterator[Statement]:
    stages, small = read("fusion-europarl")["stages"], read("fusion-multi30k")["stages"]
    bleu = {name: one["scores"]["BLEU"]["value"] for name, one in stages.items() if name.startswith("test ")}
    gained = {name: f"{value - bleu['test plain']:.1f}" for name, value in bleu.items()}
    shown = [one["verdict"] for one in small["compare"]["metrics"][0]["systems"]]
    yield says(
        f"fusion gained {gained['test fusion']} BLEU points and reranking by both models {gained['test rerank-both']}"
    )
    yield says("on Multi30k no gain was shown", "better" not in shown)
    speeds = [stages[f"test rerank-{by}"]["sentences_per_second"] for by in ("lm", "reverse", "both")]
    yield says(
        f"{min(speeds):.0f} to {max(speeds):.0f} sentences/s on a GPU instead of {stages['test fusion']['sentences_per_second']:.0f}"
    )


def little_data() -> Iterator[Statement]:
    entry, ensembles = "do two passes help Multi30k", read("multi30k-bpe-ensemble-gpu")
    yield logged(
        "R-Drop gained about 1.5 BLEU points, and the moving average of the weights (`train.ema`) about 0.5", entry
    )
    yield logged("did not help there in 20 epochs", "does BPE-dropout help")
    each, gain = (
        len(ensembles["runs"]) // len(ensembles["ensembles"]["runs"]),
        ensembles["ensembles"]["bleu"]["mean"] - ensembles["bleu"]["mean"],
    )
    yield says(f"{number(each)} models were about {gain:.1f} BLEU points better than one")


def planning() -> Iterator[Statement]:
    quiet, gpu, busy = (read(f"plan-accuracy-{name}")["rows"] for name in ("cpu-quiet", "gpu", "cpu"))
    sizes = max(most(quiet + busy, what) for what in ("memory", "disk_running", "disk_finished", "steps"))
    yield says(f"Memory, disk and steps were predicted within {sizes:.0f} %")
    runs = [row["seconds"] for row in quiet if row["case"] != "minutes"]  # that one ends by the clock
    lengths, off = ([run[what] for run in runs] for what in ("happened", "off_percent"))
    short, long = [-one for one in off if one < 0], [one for one in off if one > 0]
    yield says(
        f"For {number(len(runs))} runs of {min(lengths):.0f} to {max(lengths):.0f} s on idle cores, the predicted time was "
        f"{min(short):.0f} to {max(short):.0f} % too short in {number(len(short))} cases and {max(long):.0f} % too long in {number(len(long))}"
    )
    changing = "predictions were more than 100 % off while other programs started and stopped"
    yield says(changing, most(busy, "seconds") > 100)
    seconds, memory = ([row[what]["off_percent"] for row in gpu] for what in ("seconds", "memory"))
    yield says(
        f"the predicted time was {-seconds[0]:.1f} % and {-seconds[1]:.1f} % too short, and the predicted memory "
        f"{-memory[0]:.1f} % too low and {memory[1]:.1f} % too high",
        [row["case"] for row in gpu] == ["gpu-base", "gpu-big"],
    )


def most(rows: list[Result], what: str) -> float:
    return max(abs(row[what]["off_percent"]) for row in rows)


def pronunciation() -> Iterator[Statement]:
    entry = "what do word forms and pronunciations of few words need"
    yield given("800 words of each of ten languages")
    yield logged(
        "one model for all made 42 errors in the 200 validation words of Icelandic and Greek, and a model for each language made 52",
        entry,
    )
    yield logged("from 35, 40 and 47 % to 27, 35 and 30 %", "what helps a dictionary of 800 words")
    yield logged("87.5 % of German inflected forms were right instead of 84.5 %", entry)
    yield logged("28.8 % of English words were wrong instead of 30.2 %", "how good can English pronunciation get")
    accuracy = {
        row["task"]: row["scores"]["exact match"]
        for row in read("budget-fit")["rows"]
        if row["minutes"] == 10 and row["task"] in ("german", "finnish")
    }
    yield says(
        f"With `--minutes 10` on two CPU cores and the high training set of CoNLL 2017 (10,000 forms), German inflection reaches an accuracy of {accuracy['german']:.1f} % on the validation data, and Finnish {accuracy['finnish']:.1f} %"
    )


def speech_translation() -> Iterator[Statement]:
    entry = "what cures words with quiet around them"
    yield logged("the right German word for 90.8 %", entry)
    yield logged("for 82.4 % of those of the", entry)


def corpora() -> Iterator[Statement]:
    result = read("batch-corpus")
    yield says(f"this happened to {result['differ_from_translate']} of {result['lines']:,} lines with the ct2 engine")


def scaling() -> Iterator[Statement]:
    """The page explains a model of cost, whose constants are fitted to measurements."""
    base, tokens = 63.1e6, 25_600
    one, many, slow = (
        reference_cost(cluster, base, tokens) for cluster in (Cluster(8), Cluster(8, 8), Cluster(8, 8, 100.0))
    )
    yield says(
        f"{1e3 * STEP_S:.1f} ms, plus {1e6 * TOKEN_S:.2f} µs + {1e15 * WEIGHT_S:.1f} fs per parameter for each target token",
        fits_measurements(),
    )
    yield says(f"{NVLINK / 1e9:.0f} GB/s within a machine")
    yield says(f"over PCIe at 25 GB/s, the exchange takes {one.bytes_within / 25e6:.0f} ms for base")
    added, added_slowly = (1e3 * (step.exchange_seconds - one.exchange_seconds) for step in (many, slow))
    yield says(
        f"the network adds {added:.1f} ms for base. With 100 Gb/s it adds {number(added_slowly / added)} times that"
    )
    yield says("communication is then a fifth of a step with 25,600 tokens per GPU", 0.17 < slow.communication < 0.23)
    flat = 7 / 8 * 6 * base
    yield says(f"{flat / 1e9:.2f} GB for base, {number(flat / many.bytes_across)} times as much")


def fits_measurements() -> bool:
    """Whether the model of cost is within 2 % of the three steps that were measured on a GPU."""
    measured = read("train-speed-gpu")["results"] | read("train-speed-gpu-sizes")["results"]
    cases = {"base, 25.6k": (63.1e6, 25_600), "base, 102k": (63.1e6, 102_400), "big, 25.6k": (214.3e6, 25_600)}

    def seconds(case: str, tokens: int) -> float:
        return tokens / measured[f"{case} tokens a step"]["systems"]["ours"]["target_tokens_per_s"]

    return all(abs(reference_seconds(*size) / seconds(case, size[1]) - 1) < 0.02 for case, size in cases.items())


STATEMENTS: dict[str, Statements] = {
    "docs/how-to/back-translation-and-distillation.md": distillation,
    "docs/how-to/checking-data.md": drift,
    "docs/how-to/deploying.md": replicas,
    "docs/how-to/language-models.md": fusion,
    "docs/how-to/low-resource.md": little_data,
    "docs/how-to/planning-a-run.md": planning,
    "docs/how-to/pronunciation-and-inflection.md": pronunciation,
    "docs/how-to/speech.md": speech_translation,
    "docs/how-to/translating-corpora.md": corpora,
    "docs/scaling.md": scaling,
}
