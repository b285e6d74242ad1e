"""Quality for a budget in minutes: what `--minutes` reaches on two cores, and how long the commands really took."""

from collections.abc import Iterator

from .section import Result, Section, row

section = Section("Quality for a budget in minutes")

TASKS = {
    "tatoeba": "Tatoeba German to English", "multi30k": "Multi30k English to German", "cmudict": "CMUdict pronunciation",
    "eng_us": "English pronunciation (SIGMORPHON 2021)", "jpn_hira": "Japanese pronunciation (SIGMORPHON 2021)",
    "german": "German inflection (CoNLL 2017, high)", "finnish": "Finnish inflection (CoNLL 2017, high)",
}  # fmt: skip
MAIN = {"BLEU": "BLEU", "WER": "WER", "exact match": "accuracy"}  # of a task, the first that it has


@section.rows_from("budget-fit")
def fitted(result: Result) -> Iterator[str]:
    for task, title in TASKS.items():
        runs = [run for run in result["rows"] if run["task"] == task]
        figure = "; ".join(f"{run['minutes']:g} minutes: {main_score(run['scores'])}" for run in runs)
        clocks = ", ".join(f"{run['command_s']:.0f} s" for run in runs)
        cpu = result["hardware"]["cpu"]
        how = f"`--minutes`, all settings chosen automatically; two cores of {cpu}, validation data, greedy, beside seven other runs, on {result['date']}; the commands took {clocks}"
        yield row(title, figure, how)


def main_score(scores: dict[str, float]) -> str:
    name, title = next(one for one in MAIN.items() if one[0] in scores)
    return f"{title} {scores[name]:.1f}"
