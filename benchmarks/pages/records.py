"""docs/records.md: a row for each record, how its recipes compared, and every recipe that was scored on test data."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import mean, median

from cells.records import RECORDS, Record, record_of, validation_score
from facts import RESULTS

from transduce.paper.results import Figures, Results, mean_and_spread

from .parts import DOCS, replace_part, table

COMMAND = "records.py --report"
HEADER = ("task", "published", "published figure reached", "one model", "vote", "recipe", "seconds", "hardware")


def write_page(results: Results) -> None:
    page = DOCS / "records.md"
    page.write_text(replaced(page.read_text(encoding="utf-8"), results), encoding="utf-8")


def replaced(text: str, results: Results) -> str:
    rows = table(HEADER, [*multi30k_summary(), *cmudict_summary(), *(summary(record, results) for record in RECORDS)])
    details = [part for record in RECORDS for part in details_of(record, results)]
    return replace_part(text, "measured", COMMAND, "\n\n".join([rows, *details]))


# --- one row for each record ----------------------------------------------------------------------------------------


def summary(record: Record, results: Results) -> tuple[str, ...]:
    """The recipe that was tested last, and the names of those that were tested before it."""
    groups = tested_groups(record, results)
    if not groups:
        return (record.title, record.published, "", "not measured yet", "", "", "", "")
    recipe, tested = groups[-1].recipe, tests_of(record, results)
    caveat = next((one.caveat for one in record.recipes if one.name == recipe), "")
    earlier = [score_in_words(record, group, results) for group in groups if group.recipe != recipe]
    company = " (shared GPU)" if any(line["at_once"] > 1 for line in tested) else ""
    seconds = f"{mean(line['command_s'] for line in tested):.0f}{company}"
    together = vote_of(record, recipe, results)
    shown = ", ".join(filter(None, (recipe, caveat, *earlier)))
    one_model = single_model(record, [group for group in groups if group.recipe == recipe])
    return (
        *(record.title, record.published, reached(record, recipe, results), one_model, together),
        *(shown, seconds, tested[-1]["hardware"]),
    )


def score_in_words(record: Record, group: "Group", results: Results) -> str:
    """A recipe that was tested earlier, with its score."""
    vote = vote_of(record, group.recipe, results)
    known = "all" if group.complete else f"{len(group.languages)} of {len(record.languages)}"
    score = f"vote {vote.partition(' ')[0]}" if vote else f"{known} languages, below"
    return f'tested after "{group.recipe}" ({score})'


def reached(record: Record, recipe: str, results: Results) -> str:
    """Whether the best score of the recipe is better than the published figure."""
    if record.baseline is None:
        return f"not comparable: {record.difference}"
    votes = votes_of(record, recipe, results)
    groups = [one for one in tested_groups(record, results) if one.recipe == recipe and one.complete]
    if not groups:
        return ""
    by_vote = complete(record, votes)
    score = language_mean(votes) if by_vote else mean(groups[-1].scores)
    higher = groups[-1].lines[0]["higher_is_better"]
    better = score > record.baseline if higher else score < record.baseline
    return f"{'yes' if better else 'no'}, {'by the vote' if by_vote else 'by one model'}"


def multi30k_summary() -> list[tuple[str, ...]]:
    """The row of the recipe that benchmarks/multi30k_bpe.py measures."""
    path = RESULTS / "multi30k-bpe-gpu.json"
    if not path.exists():
        return []
    record = json.loads(path.read_text(encoding="utf-8"))
    title = "Multi30k En-De as published, tokenised BLEU (`benchmarks/multi30k_bpe.py`)"
    scores = [run["bleu"] for run in record["runs"]]
    seconds = f"{median(run['command_s'] for run in record['runs']):.0f}"
    hardware = f"{record['hardware']['gpu']}, torch {record['versions']['torch']}"
    task = record_of("multi30k")
    better = f"{'yes' if task.baseline and mean(scores) > task.baseline else 'no'}, by one model"
    one = f"{mean_and_spread(scores)}, {len(scores)} seeds"
    return [(title, task.published, better, one, "", "configs/multi30k-bpe-gpu.toml", seconds, hardware)]


def cmudict_summary() -> list[tuple[str, ...]]:
    """The row of the record that benchmarks/cmudict.py measures."""
    path = RESULTS / "cmudict-cpu.json"
    if not path.exists():
        return []
    record = json.loads(path.read_text(encoding="utf-8"))
    title = "CMUdict on two CPU cores in ten minutes, WER without stress marks (`benchmarks/cmudict.py`)"
    scores = [run["scores"]["plain"]["WER"] for run in record["runs"]]
    seconds = f"{mean(run['command_s'] for run in record['runs']):.0f}"
    hardware = f"{record['hardware']['cores']} cores ({record['hardware']['cpu']})"
    one = f"{mean_and_spread(scores)}, {len(scores)} seeds"
    return [(title, "none with these splits", "", one, "", "configs/cmudict-cpu.toml", seconds, hardware)]


# --- what was tested ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """The tested models of one recipe that have the same languages: a line for each seed, or for each seed and language."""

    recipe: str
    lines: list[Figures]
    languages: tuple[str, ...]
    complete: bool  # these are all languages of the record

    @property
    def seeds(self) -> list[int]:
        return sorted({line["seed"] for line in self.lines})

    @property
    def scores(self) -> list[float]:
        """For each seed, the mean over languages."""
        return [language_mean(line for line in self.lines if line["seed"] == seed) for seed in self.seeds]

    @property
    def valid(self) -> list[float]:
        """The same on validation data."""
        return [
            mean(
                line["valid_by_language"][name]
                for line in self.lines
                if line["seed"] == seed
                for name in line["test_by_language"]
            )
            for seed in self.seeds
        ]

    def score_of(self, language: str) -> float:
        return mean(line["test_by_language"][language] for line in self.lines if language in line["test_by_language"])


def tests_of(record: Record, results: Results) -> list[Figures]:
    """The tested models of the recipe that was tested last."""
    groups = tested_groups(record, results)
    return [line for group in groups if group.recipe == groups[-1].recipe for line in group.lines]


def tested_groups(record: Record, results: Results) -> list[Group]:
    """In the order in which they were tested."""
    lines = [line for line in results.find(purpose="test") if record_of(line["task"]) is record]
    found: dict[tuple[str, tuple[str, ...]], list[Figures]] = {}
    for recipe, seed in dict.fromkeys((line["system"], line["seed"]) for line in lines):
        own = [line for line in lines if (line["system"], line["seed"]) == (recipe, seed)]
        names = {name for line in own for name in line["test_by_language"]}
        languages = tuple(name for name in record.languages or ("",) if name in names)
        found.setdefault((recipe, languages), []).extend(own)
    everything = record.languages or ("",)
    return [Group(recipe, own, names, names == everything) for (recipe, names), own in found.items()]


def single_model(record: Record, groups: Sequence[Group]) -> str:
    """The mean over languages for every seed that has all of them, and which seeds have only some."""
    means = [score for group in groups if group.complete for score in group.scores]
    parts = [f"{seeds_in_words(one.seeds)} for {len(one.languages)} of {len(record.languages)} languages"
             for one in groups if not one.complete]  # fmt: skip
    if not means:
        return f"only {'; '.join(parts)}"
    said = mean_and_spread(means) + (f", {len(means)} seeds" if len(means) > 1 else ", one seed")
    return "; ".join([said, *(f"also {part} (below)" for part in parts)])


def seeds_in_words(seeds: Sequence[int]) -> str:
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    in_row = len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1))
    return f"seeds {seeds[0]} to {seeds[-1]}" if in_row else f"seeds {' and '.join(map(str, seeds))}"


def vote_of(record: Record, recipe: str, results: Results) -> str:
    votes = votes_of(record, recipe, results)
    return f"{language_mean(votes):.2f} (of {votes[-1]['members']})" if complete(record, votes) else ""


def votes_of(record: Record, recipe: str, results: Results) -> list[Figures]:
    """The largest vote of each task, by models of one recipe."""
    lines = [line for line in results.find(purpose="vote", system=recipe) if record_of(line["task"]) is record]
    return list({line["task"]: line for line in sorted(lines, key=lambda line: line["members"])}.values())


def language_mean(lines: Iterable[Figures]) -> float:
    return mean(score for line in lines for score in line["test_by_language"].values())


def complete(record: Record, lines: Iterable[Figures]) -> bool:
    return {name for line in lines for name in line["test_by_language"]} == set(record.languages or ("",))


# --- details --------------------------------------------------------------------------------------------------------


def details_of(record: Record, results: Results) -> Iterator[str]:
    """How the recipes compared on the validation data, and all that were scored on the test data."""
    tried = {one.name: validation_score(record, one, results) for one in record.recipes}
    known = [
        (tuning_date(record, name, results), name, f"{abs(score):.2f}")
        for name, score in tried.items()
        if score is not None
    ]
    if known:
        yield f"## {record.title}"
        on = ", ".join(record.tried_on or record.languages)
        yield f"Validation data{f' of {on}' if on else ''}, seed 1:"
        yield table(("date", "recipe", "score"), known)
    groups = tested_groups(record, results)
    if groups:
        yield "Test data, all recipes that were scored on them, in this order:"
        header = ("date", "recipe", "seeds", "languages", "validation", "test", "vote")
        yield table(header, [tested_row(record, group, results) for group in groups])
    if groups and len(record.languages) > 1:
        yield "Test data by language, mean over the seeds:"
        yield languages_table(record, groups, results)


def tuning_date(record: Record, recipe: str, results: Results) -> str:
    lines = [line for line in results.find(purpose="tuning", system=recipe) if record_of(line["task"]) is record]
    return str(max(line["date"] for line in lines))


def tested_row(record: Record, group: Group, results: Results) -> tuple[str, ...]:
    """The validation score is of the same models and languages."""
    languages = (
        f"all {len(group.languages)}" if group.complete and len(group.languages) > 1 else ", ".join(group.languages)
    )
    vote = vote_of(record, group.recipe, results) if group.complete else ""
    date = str(max(line["date"] for line in group.lines))
    seeds = seeds_in_words(group.seeds).partition(" ")[2]
    return (date, group.recipe, seeds, languages, mean_and_spread(group.valid), mean_and_spread(group.scores), vote)


def languages_table(record: Record, groups: Sequence[Group], results: Results) -> str:
    columns: dict[str, dict[str, float]] = {}
    for group in groups:
        name = f"{group.recipe}: {seeds_in_words(group.seeds)}"
        columns[name] = {language: group.score_of(language) for language in group.languages}
        if group.complete and (votes := votes_of(record, group.recipe, results)):
            scores = {language: score for line in votes for language, score in line["test_by_language"].items()}
            columns[f"{group.recipe}: vote"] = scores
    rows = [
        (language, *(f"{scores[language]:.2f}" if language in scores else "" for scores in columns.values()))
        for language in record.languages
    ]
    return table(("language", *columns), rows)
