"""docs/records.md: a row for each record, and how its recipes compared."""

import json
from collections.abc import Iterable, Iterator, Sequence
from statistics import mean

from cells.records import RECORDS, Record, record_of, validation_score
from facts import RESULTS

from transduce.paper.results import Figures, Results, mean_and_spread

from .parts import DOCS, replace_part, table

COMMAND = "records.py --report"


def write_page(results: Results) -> None:
    page = DOCS / "records.md"
    page.write_text(replaced(page.read_text(encoding="utf-8"), results), encoding="utf-8")


def replaced(text: str, results: Results) -> str:
    header = ("task", "published", "goal", "one model", "vote", "recipe", "seconds", "hardware")
    rows = table(header, [*(summary(record, results) for record in RECORDS), *cmudict_summary()])
    details = [part for record in RECORDS for part in details_of(record, results)]
    return replace_part(text, "measured", COMMAND, "\n\n".join([rows, *details]))


def summary(record: Record, results: Results) -> tuple[str, ...]:
    begin = (record.title, record.published, record.goal)
    tested = tests_of(record, results)
    if not tested:
        return (*begin, "not measured yet", "", "", "", "")
    recipe = tested[0]["system"]
    caveat = next((one.caveat for one in record.recipes if one.name == recipe), "")
    company = " (shared GPU)" if any(line["at_once"] > 1 for line in tested) else ""
    seconds = f"{mean(line['command_s'] for line in tested):.0f}{company}"
    votes = votes_of(record, recipe, results)
    together = f"{language_mean(votes):.2f} (of {votes[-1]['members']})" if complete(record, votes) else ""
    shown = ", ".join(filter(None, (recipe, caveat)))
    return (*begin, single_model(record, tested), together, shown, seconds, tested[-1]["hardware"])


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
    return [(title, "none with these splits", "29.0", one, "", "configs/cmudict-cpu.toml", seconds, hardware)]


def single_model(record: Record, tested: Sequence[Figures]) -> str:
    """The mean over languages, for every seed that has all of them."""
    seeds = {line["seed"]: [other for other in tested if other["seed"] == line["seed"]] for line in tested}
    means = [language_mean(lines) for lines in seeds.values() if complete(record, lines)]
    if not means:
        return f"{len({line['task'] for line in tested})} of {len(record.languages)} languages measured"
    return mean_and_spread(means) + (f", {len(means)} seeds" if len(means) > 1 else ", one seed")


def tests_of(record: Record, results: Results) -> list[Figures]:
    """The tested models of the recipe that was tested last."""
    lines = [line for line in results.find(purpose="test") if record_of(line["task"]) is record]
    return [line for line in lines if line["system"] == lines[-1]["system"]]


def votes_of(record: Record, recipe: str, results: Results) -> list[Figures]:
    """The largest vote of each task, by models of one recipe."""
    lines = [line for line in results.find(purpose="vote", system=recipe) if record_of(line["task"]) is record]
    return list({line["task"]: line for line in sorted(lines, key=lambda line: line["members"])}.values())


def language_mean(lines: Iterable[Figures]) -> float:
    return mean(score for line in lines for score in line["test_by_language"].values())


def complete(record: Record, lines: Iterable[Figures]) -> bool:
    return {name for line in lines for name in line["test_by_language"]} == set(record.languages or ("",))


def details_of(record: Record, results: Results) -> Iterator[str]:
    """How the recipes compared on the validation data, and the languages of the test."""
    tried = {one.name: validation_score(record, one, results) for one in record.recipes}
    known = [(name, f"{abs(score):.2f}") for name, score in tried.items() if score is not None]
    if known:
        yield f"## {record.title}"
        on = ", ".join(record.tried_on or record.languages)
        yield f"Validation data{f' of {on}' if on else ''}, seed 1:"
        yield table(("recipe", "score"), known)
    recipe = next((line["system"] for line in tests_of(record, results)), "")
    lines = votes_of(record, recipe, results)
    votes = {name: score for line in lines for name, score in line["test_by_language"].items()}
    if votes and record.languages:
        yield "Test data, vote of all seeds:"
        yield table(("language", "score"), [(name, f"{votes[name]:.2f}") for name in record.languages if name in votes])
