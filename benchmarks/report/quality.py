"""Quality of the recipes in `configs/`, speech and language models aside."""

from collections.abc import Callable, Iterator

from transduce.paper.results import mean_and_spread

from .section import Result, Section, cores, read, row

section = Section("Quality")


@section.rows_from("demo")
def demo(result: Result) -> Iterator[str]:
    scores = result["demo"]
    figure = error_rates(lambda marks, name: f"{scores[marks][name]['value']:.1f}")
    training = f"{result['seconds']} s of training on {cores(result)}"
    how = f"`make demo`, {scores['words']:,} held-out words, greedy; {training}"
    yield row("English spelling to sound, CMUdict", figure, how)


@section.rows_from("cmudict-cpu")
def cmudict(result: Result) -> Iterator[str]:
    runs = result["runs"]
    figure = error_rates(lambda marks, name: mean_and_spread([run["scores"][marks][name] for run in runs]))
    minutes = max(run["command_s"] for run in runs) / 60
    how = f"`configs/cmudict-cpu.toml`, {runs[0]['words']:,} held-out words, {len(runs)} seeds; {minutes:.0f} minutes on {cores(result)}"
    yield row("The same, trained for longer", figure, how)


def error_rates(rate: Callable[[str, str], str]) -> str:
    """The error rates of a dictionary, by a function of the marks (plain or stressed) and the metric."""
    return (
        f"phoneme error rate {rate('plain', 'PER')} % (with stress marks {rate('stressed', 'PER')} %), "
        f"word error rate {rate('plain', 'WER')} % ({rate('stressed', 'WER')} %)"
    )


@section.rows_from("multi30k-cpu")
def multi30k(result: Result) -> Iterator[str]:
    bleu, chrf = (result["test"]["scores"][name] for name in ("BLEU", "chrF2"))
    figure = f"BLEU {bleu['value']:.1f}, chrF2 {chrf['value']:.1f}"
    how = (
        f"`configs/multi30k-cpu.toml`, trained {result['seconds'] / 60:.0f} minutes on {cores(result)}, test_2016_flickr, "
        f"raw text, beam 4; `{bleu['signature']}`"
    )
    yield row("Multi30k English to German", figure, how)


@section.rows_from("multi30k-bpe-gpu")
def multi30k_as_published(result: Result) -> Iterator[str]:
    bleu, runs = result["bleu"], result["runs"]
    training, whole = (sorted(one[clock] for one in runs)[len(runs) // 2] for clock in ("training_s", "command_s"))
    figure = f"tokenised BLEU {bleu['mean']} ({bleu['least']} to {bleu['most']}, {len(runs)} seeds); published 41.02"
    how = (
        f"`configs/multi30k-bpe-gpu.toml`, {training:.0f} s of training, {whole:.0f} s for the whole command (medians), one "
        f"{result['hardware']['gpu']}, test_2016_flickr, beam 5; `{runs[0]['signature']}`"
    )
    yield row("Multi30k English to German, tokenised as published", figure, how)


@section.rows_from("multi30k-bpe-ensemble-gpu")
def ensembles(result: Result) -> Iterator[str]:
    bleu, runs = result["ensembles"]["bleu"], result["ensembles"]["runs"]
    each = len(result["runs"]) // len(runs)
    figure = (
        f"tokenised BLEU {bleu['mean']} ({bleu['least']} to {bleu['most']}, {len(runs)} ensembles); "
        f"single models {result['bleu']['mean']} ({result['bleu']['least']} to {result['bleu']['most']})"
    )
    steps, before = (one["runs"][0]["steps"] for one in (result, read("multi30k-bpe-gpu")))
    how = (
        f"`configs/multi30k-bpe-gpu.toml` with {each} seeds each (`translate --ensemble`); measured after pairs "
        f"were packed into rows more tightly ({steps:,} steps instead of {before:,}), so the single models are not the runs above"
    )
    yield row(f"The same, ensembles of {each}", figure, how)


@section.rows_from("europarl-ours-2", "europarl-ours-4", "europarl-ours-8")
def europarl(result: Result) -> Iterator[str]:
    minutes, scores = int(result["name"].rpartition("-")[2]), result["scores"]
    figure = ", ".join(f"BLEU {score['value']:.1f} on {name}" for name, score in scores.items())
    how = (
        f"`{result['command']}` (configs/europarl-gpu.toml) on one {result['hardware']['gpu']}, beam 4; "
        f"the command took {result['command_s']:.0f} s, because preparing data did not count as part of `--minutes` then; `{scores['europarl']['signature']}`"
    )
    yield row(f"Europarl German to English, {minutes} minutes", figure + marian_after(minutes), how)


def marian_after(minutes: int) -> str:
    """The scores of HF MarianMT after the same time, of a run that ended then or of one that was halfway through."""
    whole, halfway = read(f"europarl-hf-{minutes}"), read(f"europarl-hf-{2 * minutes}").get("halfway")
    scores = whole["scores"] if whole else halfway
    if not scores:
        return ""
    which = "" if whole else ", halfway through a longer run"
    return f"; HF MarianMT after the same time{which}: " + ", ".join(
        f"{score['value']:.1f}" for score in scores.values()
    )
