"""What the README shows: translations of one model, and the five figures that a visitor should see first."""

from .safety import KILLS
from .section import read


def example() -> str:
    """Translations of the last validation of the longest Europarl run, beside the reference."""
    validations = [entry for entry in read("europarl-ours-8")["log"] if entry["event"] == "valid"]
    rows = [f"| {one['source']} | {one['output']} |" for one in validations[-1]["samples"][::2]]
    return "\n".join(["| German | the model's English |", "| --- | --- |", *rows])


def five_figures() -> str:
    figures = [europarl(), multi30k(), training_speed(), translation_speed(), kills()]
    return "\n".join(["| what | figure |", "| --- | --- |", *(f"| {what} | {figure} |" for what, figure in figures)])


def europarl() -> tuple[str, str]:
    ours, peer = (read(f"europarl-{system}-8") for system in ("ours", "hf"))
    (first, news), (their_first, their_news) = (
        [score["value"] for score in result["scores"].values()] for result in (ours, peer)
    )
    what = f"German to English after 8 minutes of training on Europarl, one {ours['hardware']['gpu']}"
    figure = f"BLEU {first:.1f} on Europarl, {news:.1f} on newstest2014"
    return what, f"{figure} (Hugging Face MarianMT in the same time: {their_first:.1f} and {their_news:.1f})"


def multi30k() -> tuple[str, str]:
    result = read("multi30k-cpu")
    minutes, cores = result["seconds"] / 60, result["hardware"]["cores"]
    what = f"English to German after {minutes:.0f} minutes of training on Multi30k, {cores} CPU cores"
    return what, f"BLEU {result['test']['scores']['BLEU']['value']:.1f} on test_2016_flickr"


def training_speed() -> tuple[str, str]:
    result = read("train-speed-gpu")
    report = result["results"]["base, 25.6k tokens a step"]["systems"]
    ours, peer = report["ours"]["target_tokens_per_s"], report["HF MarianMT"]
    what = f"training speed of the paper's base model, one {result['hardware']['gpu']}"
    return (
        what,
        f"{ours:,} target tokens/s, {peer['ours_over_it'][0]:.1f} times Hugging Face MarianMT ({peer['padding']:.0%} padding)",
    )


def translation_speed() -> tuple[str, str]:
    gpu, cpu = read("translation-gpu"), read("cpu-translation")["results"]["file, beam 4"]
    on_gpu = gpu["results"]["beam 4"]
    figure = (
        f"{on_gpu['target_tokens_per_s']:,} target tokens/s on one {gpu['hardware']['gpu']}, "
        f"{cpu['systems']['ours']['sentences_per_s']:,.0f} sentences/s on 2 CPU cores: "
        f"{on_gpu['ours_over_hf']:.0f} (HF on fewer lines) "
        f"and {cpu['ours_over']['hf']['median']:.1f} times Hugging Face `generate`"
    )
    return "translation speed with beam 4", figure


def kills() -> tuple[str, str]:
    results = [result for name in KILLS if (result := read(name))]
    equal, killed = (sum(result[name] for result in results) for name in ("equal", "kills"))
    what = "training runs killed with `kill -9` at random moments and resumed"
    return what, f"{equal} of {killed} ended with bit-identical weights"
