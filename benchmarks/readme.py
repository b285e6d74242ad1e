"""Writes the README's example and five figures, and docs/results.md, from the result files: no figure is typed by hand.

python benchmarks/readme.py            rewrites both pages; the README's parts stand between marks
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transduce.paper.results import mean_and_spread

HERE = Path(__file__).parent
README, RESULTS = HERE.parent / "README.md", HERE.parent / "docs" / "results.md"
BEGIN, END = "<!-- {}: python benchmarks/readme.py -->", "<!-- end of {} -->"

INTRODUCTION = """# Results

Every figure comes from a script under `benchmarks/` and a file under `benchmarks/results/`, which records the command, the commit,
the versions and the hardware. `python benchmarks/readme.py` writes this page from these files. A ratio compares systems that took
turns on the same machine; the range in brackets goes from the lowest to the highest round. [The log](log.md) also has what was tried
and did not help.
"""


def main() -> None:
    README.write_text(replaced(README.read_text(encoding="utf-8")), encoding="utf-8")
    RESULTS.write_text(page(), encoding="utf-8")


def replaced(text: str) -> str:
    """The README with its generated parts up to date."""
    for name, part in {"example": example(), "results": five_figures()}.items():
        begin, end = BEGIN.format(name), END.format(name)
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{part}\n{end}{after}"
    return text


def example() -> str:
    """Translations of the last validation of the longest Europarl run, beside the reference."""
    validations = [entry for entry in read("europarl-ours-8")["log"] if entry["event"] == "valid"]
    rows = [f"| {one['source']} | {one['output']} |" for one in validations[-1]["samples"][::2]]
    return "\n".join(["| German | the model's English |", "| --- | --- |", *rows])


def five_figures() -> str:
    """What a visitor should see first."""
    figures = [europarl_figure(), multi30k_figure(), training_figure(), translation_figure(), kills_figure()]
    return "\n".join(["| what | figure |", "| --- | --- |", *(f"| {what} | {figure} |" for what, figure in figures)])


def europarl_figure() -> tuple[str, str]:
    ours, peer = (read(f"europarl-{system}-8") for system in ("ours", "hf"))
    (first, news), (their_first, their_news) = (
        [score["value"] for score in record["scores"].values()] for record in (ours, peer)
    )
    what = f"German to English after 8 minutes of training on Europarl, one {ours['hardware']['gpu']}"
    figure = f"BLEU {first:.1f} on Europarl, {news:.1f} on newstest2014"
    return what, f"{figure} (Hugging Face MarianMT in the same time: {their_first:.1f} and {their_news:.1f})"


def multi30k_figure() -> tuple[str, str]:
    record = read("multi30k-cpu")
    what = f"English to German after {record['seconds'] / 60:.0f} minutes of training on Multi30k, {record['hardware']['cores']} CPU cores"
    return what, f"BLEU {record['test']['scores']['BLEU']['value']:.1f}"


def training_figure() -> tuple[str, str]:
    record = read("train-speed-gpu")
    report = record["results"]["base, 25.6k tokens a step"]["systems"]
    ours, peer = report["ours"]["target_tokens_per_s"], report["HF MarianMT"]["ours_over_it"][0]
    what = f"training speed of the paper's base model, one {record['hardware']['gpu']}"
    return what, f"{ours:,} target tokens/s, {peer:.1f} times Hugging Face MarianMT"


def translation_figure() -> tuple[str, str]:
    gpu, cpu = read("translation-gpu"), read("cpu-translation")["results"]["file, beam 4"]
    on_gpu = gpu["results"]["beam 4"]
    figure = (
        f"{on_gpu['target_tokens_per_s']:,} target tokens/s on one {gpu['hardware']['gpu']} and "
        f"{cpu['systems']['ours']['sentences_per_s']:,.0f} sentences/s on 2 CPU cores; "
        f"{on_gpu['ours_over_hf']:.0f} and {cpu['ours_over']['hf']['median']:.1f} times Hugging Face `generate`"
    )
    return "translation speed with beam 4", figure


KILLS = {
    "kills": "Pairs",
    "kills-gpu": "Pairs",
    "kills-text": "Language models",
    "kills-text-gpu": "Language models",
    "kills-speech": "Speech",
    "kills-speech-gpu": "Speech",
}


def kills_figure() -> tuple[str, str]:
    records = [record for name in KILLS if (record := read(name))]
    equal, kills = (sum(record[name] for record in records) for name in ("equal", "kills"))
    what = "training runs killed with `kill -9` at random moments and resumed"
    return what, f"{equal} of {kills} ended with bit-identical weights"


def page() -> str:
    """Every figure there is, by subject."""
    subjects = {
        "Quality": [demo_row, cmudict_row, multi30k_row, bpe_row, europarl_rows],
        "Quality for a budget in minutes": [budget_rows],
        "Training speed": [gpu_rows, extras_rows, cpu_training_rows, rnn_row, prepare_row],
        "Translation speed": [gpu_translation_rows, cpu_translation_rows, student_rows],
        "Speech": [iban_rows, iban_ablation_rows, speech_rows],
        "Language models": [shakespeare_row, lm_speed_rows, fusion_rows],
        "Equal outputs": [same_outputs_rows, round_trip_rows],
        "Safety of runs": [kills_row, flips_row],
        "Server": [server_rows],
    }
    return "\n".join([INTRODUCTION, *(f"## {name}\n\n{table(makers)}\n" for name, makers in subjects.items())])


def table(makers: list[Callable[[], list[str]]]) -> str:
    rows = [row for make in makers for row in make()]
    return "\n".join(["| what | figure | where and how |", "| --- | --- | --- |", *rows])


def demo_row() -> list[str]:
    record = read("demo")
    if not record:
        return []
    demo = record["demo"]
    figure = (
        f"phoneme error rate {demo['plain']['PER']['value']:.1f} % (with stress marks {demo['stressed']['PER']['value']:.1f} %), "
        f"word error rate {demo['plain']['WER']['value']:.1f} % ({demo['stressed']['WER']['value']:.1f} %)"
    )
    how = f"`make demo`, {demo['words']:,} held-out words, greedy; {record['seconds']} s of training on {cores(record)}"
    return [row("English spelling to sound, CMUdict", figure, how)]


def cmudict_row() -> list[str]:
    record = read("cmudict-cpu")
    if not record:
        return []
    runs = record["runs"]

    def rate(marks: str, name: str) -> str:
        return mean_and_spread([run["scores"][marks][name] for run in runs])

    figure = (
        f"phoneme error rate {rate('plain', 'PER')} % (with stress marks {rate('stressed', 'PER')} %), "
        f"word error rate {rate('plain', 'WER')} % ({rate('stressed', 'WER')} %)"
    )
    minutes = max(run["command_s"] for run in runs) / 60
    how = f"`configs/cmudict-cpu.toml`, {runs[0]['words']:,} held-out words, {len(runs)} seeds; {minutes:.0f} minutes on {cores(record)}"
    return [row("The same, trained for longer", figure, how)]


def multi30k_row() -> list[str]:
    record = read("multi30k-cpu")
    if not record:
        return []
    bleu, chrf = (record["test"]["scores"][name] for name in ("BLEU", "chrF2"))
    figure = f"BLEU {bleu['value']:.1f}, chrF2 {chrf['value']:.1f}"
    how = (
        f"`configs/multi30k-cpu.toml`, trained {record['seconds'] / 60:.0f} minutes on {cores(record)}, test_2016_flickr, "
        f"raw text, beam 4; `{bleu['signature']}`"
    )
    return [row("Multi30k English to German", figure, how)]


def bpe_row() -> list[str]:
    record = read("multi30k-bpe-gpu")
    if not record:
        return []
    bleu, runs = record["bleu"], record["runs"]
    training, whole = (sorted(one[clock] for one in runs)[len(runs) // 2] for clock in ("training_s", "command_s"))
    figure = f"tokenised BLEU {bleu['mean']} ({bleu['least']} to {bleu['most']}, {len(runs)} seeds); published 41.02"
    how = (
        f"`configs/multi30k-bpe-gpu.toml`, {training:.0f} s of training, {whole:.0f} s the whole command (medians), one "
        f"{record['hardware']['gpu']}, test_2016_flickr, beam 5; `{runs[0]['signature']}`"
    )
    return [row("Multi30k English to German, tokenised as published", figure, how), *_ensemble_row()]


def _ensemble_row() -> list[str]:
    record = read("multi30k-bpe-ensemble-gpu")
    if not record:
        return []
    bleu, runs = record["ensembles"]["bleu"], record["ensembles"]["runs"]
    each = len(record["runs"]) // len(runs)
    figure = (
        f"tokenised BLEU {bleu['mean']} ({bleu['least']} to {bleu['most']}, {len(runs)} ensembles); "
        f"single models {record['bleu']['mean']} ({record['bleu']['least']} to {record['bleu']['most']})"
    )
    steps, before = (one["runs"][0]["steps"] for one in (record, read("multi30k-bpe-gpu")))
    how = (
        f"`configs/multi30k-bpe-gpu.toml` with {each} seeds each, translating together (`translate --ensemble`); measured after pairs "
        f"were packed into rows more tightly ({steps:,} steps instead of {before:,}), so the single models are other runs than those above"
    )
    return [row(f"The same, ensembles of {each}", figure, how)]


TASKS = {
    "tatoeba": "Tatoeba German to English", "multi30k": "Multi30k English to German", "cmudict": "CMUdict pronunciation",
    "eng_us": "English pronunciation (SIGMORPHON 2021)", "jpn_hira": "Japanese pronunciation (SIGMORPHON 2021)",
    "german": "German inflection (CoNLL 2017)", "finnish": "Finnish inflection (CoNLL 2017)",
}  # fmt: skip


def budget_rows() -> list[str]:
    """What `--minutes` reaches on two cores, and how long the commands really took."""
    record = read("budget-fit")
    rows = []
    for task in TASKS if record else ():
        runs = [run for run in record["rows"] if run["task"] == task]
        figure = "; ".join(f"{run['minutes']:g} minutes: {_main(run['scores'])}" for run in runs)
        clocks = ", ".join(f"{run['command_s']:.0f} s" for run in runs)
        how = f"`--minutes`, all settings fitted; two cores of {record['hardware']['cpu']}, validation data, greedy; took {clocks}"
        rows.append(row(TASKS[task], figure, how))
    return rows


def _main(scores: dict[str, float]) -> str:
    name = next(one for one in ("BLEU", "WER", "sequence error rate") if one in scores)
    return f"{name} {scores[name]:.1f}"


def europarl_rows() -> list[str]:
    rows = []
    for minutes in (2, 4, 8):
        record, peer = (read(f"europarl-{system}-{minutes}") for system in ("ours", "hf"))
        on_its_way = {} if peer else read(f"europarl-hf-{2 * minutes}").get("halfway", {})
        if not record:
            continue
        scores = record["scores"]
        figure = ", ".join(f"BLEU {score['value']:.1f} on {name}" for name, score in scores.items())
        theirs = peer.get("scores") or on_its_way
        if theirs:
            figure += f"; HF MarianMT after the same time{', halfway through a longer run' if on_its_way else ''}: "
            figure += ", ".join(f"{score['value']:.1f}" for score in theirs.values())
        how = (
            f"`{record['command']}` (configs/europarl-gpu.toml) on one {record['hardware']['gpu']}, beam 4; "
            f"`{scores['europarl']['signature']}`"
        )
        rows.append(row(f"Europarl German to English, {minutes} minutes", figure, how))
    return rows


def gpu_rows() -> list[str]:
    rows = []
    records = [record for name in ("train-speed-gpu", "train-speed-gpu-sizes") if (record := read(name))]
    for record, case, report in [(r, *found) for r in records for found in r["results"].items()]:
        ours = report["systems"]["ours"]
        figure = f"{ours['target_tokens_per_s']:,} target tokens/s, {ours['mfu']:.0%} of 790 TFLOP/s"
        others = [
            "{:.1f} times {} ({:.1f} to {:.1f})".format(one["ours_over_it"][0], name, *one["ours_over_it"][1:])
            for name, one in report["systems"].items()
            if name != "ours"
        ]
        how = f"`benchmarks/train_speed.py` on one {record['hardware']['gpu']}, translation lengths, dropout and Adam included"
        rows.append(row(f"Training on a GPU, {case}", "; ".join([figure, *others]), how))
    return rows


def extras_rows() -> list[str]:
    record = read("extras-gpu")
    if not record:
        return []
    bare, extras = (record["results"][name] for name in ("bare", "with extras"))
    figure = f"{extras['slower_by']['median']:.1%} of {bare['target_tokens_per_s']:,} target tokens/s"
    how = f"`benchmarks/extras.py` on one {record['hardware']['gpu']}, whole runs of `transduce train`, taking turns"
    return [row("Cost of clipping, a moving average and logging every 10 steps", figure, how)]


def server_rows() -> list[str]:
    load, attack = read("serve-load"), read("serve-attack")
    return [*(_load_rows(load) if load else []), *(_attack_rows(attack) if attack else [])]


def _load_rows(record: dict[str, Any]) -> list[str]:
    how = f"`benchmarks/serve_load.py` on {cores(record)}, clients included, a sentence a request"
    systems, overload = record["load"], record["overload"]
    rows = []
    for clients in ("1", "8", "64"):
        shown = [
            f"{name} {found[clients]['requests_per_s']:.0f}/s, p50 {found[clients]['p50_ms']:.0f} ms, "
            f"p99 {found[clients]['p99_ms']:.0f} ms, {found[clients]['server_cpu_ms']:.1f} ms of CPU"
            for name, found in systems.items()
        ]
        rows.append(row(f"Server, {clients} client{'s' if clients != '1' else ''}", "; ".join(shown), how))
    figure = (
        f"still answers {overload['goodput_of_peak']:.0%} of its peak; refuses within {overload['refused_p99_ms']:.0f} ms (p99); "
        f"back to its usual latency after {overload['recovery_s']:.1f} s"
    )
    return [*rows, row(f"Server at {overload['times_peak']:.0f} times its peak", figure, how)]


def _attack_rows(record: dict[str, Any]) -> list[str]:
    fuzz, stops, left = record["fuzz"], record["stops"], record["cancellations"]
    figure = (
        f"{fuzz['requests']:,} fuzzed requests, {fuzz['wrong_5xx']} answered with a 5xx status other than 503, memory {fuzz['memory_growth_mb']:+.0f} MB; "
        f"{record['slow']['closed']} of {record['slow']['connections']} slow connections closed; "
        f"{left['hung_up']:,} clients disconnected, {left['left_waiting']:.0f} of their requests kept waiting; "
        f"{stops['stops']} stops, {stops['lost']} of {stops['answered'] + stops['lost']} requests lost"
    )
    return [row("Server under attack", figure, f"`benchmarks/serve_attack.py` on {cores(record)}")]


def kills_row() -> list[str]:
    rows = []
    for name, kind in KILLS.items():
        if not (record := read(name)):
            continue
        figure = f"{record['equal']} of {record['kills']} ended with bit-identical weights"
        where = f"one {gpu}" if (gpu := record["hardware"].get("gpu")) else cores(record)
        rows.append(
            row(f"{kind}: `kill -9` at random moments, then resumed", figure, f"`{record['command']}` on {where}")
        )
    return rows


def flips_row() -> list[str]:
    record = read("flips")
    if not record:
        return []
    figure = (
        f"{record['flips']:,} damaged folders: {record['detected']:,} detected, {record['unchanged']:,} without effect, "
        f"{record['different']} silently different, {record['traceback']} tracebacks"
    )
    return [row("A flipped bit in any file of a run folder", figure, f"`benchmarks/flips.py` on {cores(record)}")]


def prepare_row() -> list[str]:
    record = read("prepare")
    if not record:
        return []
    prepare, ratio = record["results"]["prepare"], record["results"]["prepare_over_sentencepiece"]
    figure = f"{prepare['seconds']:.0f} s, {prepare['peak_resident_mb']} MB; {ratio:.2f} times sentencepiece alone"
    return [
        row(f"Preparing {prepare['pairs']:,} pairs (Europarl)", figure, f"`benchmarks/prepare.py` on {cores(record)}")
    ]


ROUND_TRIPS = {
    "ours": "Not exported",
    "HF and back": "Exported to HF and imported again",
    "int8": "In int8, as used on CPUs",
    "Marian, imported": "A Marian model, imported",
}
PEERS = {
    "hf": "HF MarianMT on the same batches",
    "hf, file order": "HF MarianMT in random order",
    "joeynmt": "JoeyNMT",
    "marian": "Marian",
    "marian, async": "Marian, asynchronous",
}


def cpu_training_rows() -> list[str]:
    record = read("cpu-peers")
    if not record:
        return []
    how = (
        f"`benchmarks/cpu_peers.py` on {cores(record)}, Multi30k, same size and tokens, each in a process, taking turns"
    )
    rows = []
    for size, report in record["results"].items():
        shape, systems = record["settings"]["shapes"][size], report["systems"]
        what = f"Training on a CPU, {shape['layers']}+{shape['layers']} layers, d_model {shape['d_model']}"
        others = [
            f"{ratio['median']:.1f} times {PEERS[peer]} ({ratio['least']:.1f} to {ratio['most']:.1f})"
            for peer, ratio in report["ours_over"].items()
        ]
        rows.append(
            row(what, "; ".join([f"{systems['ours']['target_tokens_per_s']:,.0f} target tokens/s", *others]), how)
        )
    return rows


def rnn_row() -> list[str]:
    """The recurrent network with attention beside Eole's."""
    record = read("rnn-peers")
    if not record:
        return []
    ours, eole = record["results"]["ours"], record["results"]["eole"]

    def ratios(name: str) -> str:
        return mean_and_spread([one[name] / other[name] for one, other in zip(ours, eole, strict=True)])

    figure = (
        f"{ratios('tokens_per_s')} times Eole's speed by the clock, {ratios('tokens_per_cpu_s')} times by computing time; "
        f"{mean_and_spread([one['tokens_per_s'] for one in ours])} target tokens/s"
    )
    how = f"`{record['command']}` on {cores(record)}, Multi30k, LSTMs with attention, {len(ours)} rounds of {record['settings']['seconds']:.0f} s, taking turns"
    return [row("Training a recurrent network on a CPU", figure, how)]


def cpu_translation_rows() -> list[str]:
    record = read("cpu-translation")
    if not record:
        return []
    how = f"`benchmarks/cpu_translation.py` on {cores(record)}, {record['model']}, taking turns"
    names = {"ct2": "CTranslate2 called directly", "ct2, default": "the same, patience 1", "hf": "HF `generate`"}
    rows = [
        row(f"Translating, {job}, beside {name}", f"{beside(report, peer)}", how)
        for job, report in record["results"].items()
        for peer, name in names.items()
        if "ours_over" in report
    ]
    cold = sorted(record["results"]["cold start"]["seconds"]["ct2"])
    return [*rows, row("`transduce translate` of one sentence, cold", f"{cold[len(cold) // 2]:.2f} s", how)]


def gpu_translation_rows() -> list[str]:
    record = read("translation-gpu")
    if not record:
        return []
    rows = []
    for name, one in record["results"].items():
        least, most = one["least_most"]
        peer = f"; {one['ours_over_hf']:.0f} times HF `generate`" if "ours_over_hf" in one else ""
        figure = f"{one['target_tokens_per_s']:,} target tokens/s ({least:,} to {most:,}){peer}; one line by itself takes {one['one_line_ms']:.0f} ms; "
        figure += (
            f"{one['same_as_plain_float32']:.1%} of outputs equal those of the plain search in float32 (plain search in bfloat16: "
            f"{one['plain_bf16_as_float32']:.1%}); {one['alone_as_in_company']:.1%} are the same whether a line is translated alone or in a batch"
        )
        how = (
            f"`{record['command']}` on one {record['hardware']['gpu']}, strings in, strings out, {record['settings']['lines']:,} lines "
            f"repeated {record['settings']['times']} times, bfloat16; HF: its best batch size, on the first {record['settings']['peer_lines']:,} lines"
        )
        rows.append(row(f"Translating on a GPU, {name}", figure, how))
    return rows


def same_outputs_rows() -> list[str]:
    record = read("same-outputs")
    if not record:
        return []
    how = (
        "`benchmarks/same_outputs.py`; the reference takes one sentence at a time, uses no cache and never stops early"
    )
    rows = []
    for name, engines in record["results"].items():
        shares: dict[str, list[float]] = {}
        for engine, one in engines.items():
            shares.setdefault(engine.partition(",")[0], []).append(one["same"])
        figure = ", ".join(f"{engine} {min(found):.1%}" for engine, found in shares.items())
        rows.append(
            row(f"Outputs equal to those of a reference search, {name}", f"{figure} of {record['lines']:,}", how)
        )
    return rows


def round_trip_rows() -> list[str]:
    record = read("round-trips")
    if not record:
        return []
    rows = []
    for name, one in record["results"].items():
        marian = "same" in one
        searches = {"beam 6": one} if marian else {search: one[search] for search in ("greedy", "beam 4")}
        shown = [
            f"{search}: "
            + (f"{found['same']:.1%} identical, " if "same" in found else "")
            + f"BLEU {found['bleu']['value']:.2f}"
            for search, found in searches.items()
        ]
        far = f"; logits within {one['largest_logit_difference']:.0e}" if "largest_logit_difference" in one else ""
        what = ROUND_TRIPS.get(name, f"Exported: {name}")
        beside = "Marian's own output" if marian else "our PyTorch engine"
        how = f"`benchmarks/round_trips.py`, {record['lines']:,} sentences of Multi30k, beside {beside}"
        rows.append(row(what, "; ".join(shown) + far, how))
    return rows


def student_rows() -> list[str]:
    record = read("student-cpu")
    if not record:
        return []
    how = f"`benchmarks/student.py` on {cores(record)}, int8, test_2016_flickr, taking turns"
    rows = []
    for name, one in record["results"].items():
        model = record["models"][name.partition(",")[0]]
        middle, least, most = one["times_teacher_beam_4"]
        figure = (
            f"BLEU {one['bleu']:.1f}; {one['sentences_per_s']:,.0f} sentences/s, {middle:.1f} times the teacher with beam 4 "
            f"({least:.1f} to {most:.1f}); {model['int8_mb']:.1f} MB"
        )
        rows.append(row(f"Distilled on Multi30k: {name} ({model['layers']} layers)", figure, how))
    return rows


def iban_rows() -> list[str]:
    """Error rates of the recipe configs/iban.toml, with the encoder of a Conformer and with that of the paper."""
    rows = []
    for name, encoder in (("iban", "convolutions in the encoder"), ("iban-plain", "the encoder of the paper")):
        record = read(name)
        for system, found in record.get("systems", {}).items():
            test, new = (found["scores"][part] for part in ("test set", "test set without texts of the training data"))
            rates = [f"{metric} {part[metric]['value']:.2f}" for part in (test, new) for metric in ("WER", "CER")]
            figure = f"{rates[0]}, {rates[1]} (without texts of the training data {rates[2]}, {rates[3]})"
            how = (
                f"`configs/iban.toml` with {', '.join(record['settings']) or 'nothing changed'}, {record['minutes']:.1f} minutes on one {record['trained']}; "
                f"beam {record['beam']}; `{test['WER']['signature']}`"
            )
            rows.append(row(f"Iban, 473 test utterances: {encoder}, {system}", figure, how))
    return rows


ABLATIONS = {  # of 40 % of the steps: the result file, and what is left out
    "iban-short": "the recipe",
    "iban-short-no-speeds": "without speed perturbation",
    "iban-short-no-masks": "without SpecAugment",
    "iban-short-plain": "without convolutions",
    "iban-short-no-ctc": "without CTC",
}


def iban_ablation_rows() -> list[str]:
    """The recipe with 40 % of the steps, and what each of its parts is worth there."""
    records = {title: record for name, title in ABLATIONS.items() if (record := read(name))}
    if not records:
        return []
    shown = []
    for title, record in records.items():
        (system,) = record["systems"].values()
        test, valid = (system["scores"][part] for part in ("test set", "validation speakers"))
        shown.append(
            f"{title}: WER {test['WER']['value']:.2f}, CER {test['CER']['value']:.2f} (validation speakers WER {valid['WER']['value']:.2f})"
        )
    first = next(iter(records.values()))
    steps = next(one.removeprefix("train.steps=") for one in first["settings"] if one.startswith("train.steps="))
    how = f"`configs/iban.toml`, {int(steps):,} steps, one seed, beam {first['beam']}, {first['trained']}; `benchmarks/iban.py --no-trigram`"
    return [row("Iban with 40 % of the steps: what each part is worth", "; ".join(shown), how)]


def shakespeare_row() -> list[str]:
    record = read("shakespeare")
    if not record:
        return []
    losses, seconds = ([one[name] for one in record["rows"]] for name in ("loss", "seconds"))
    figure = (
        f"{', '.join(f'{loss:.4f}' for loss in losses)} nats per character in {max(seconds):.0f} s or less "
        f"(nanoGPT: {record['anchor']} after three minutes of an A100)"
    )
    how = f"`{record['command']}` on one {record['hardware']['gpu']}: whole validation text, windows of 256 that do not overlap, {len(losses)} seeds"
    return [row("Shakespeare, characters, 6 layers of 384", figure, how)]


def lm_speed_rows() -> list[str]:
    record = read("lm-speed")
    rows = []
    for size in dict.fromkeys(one["size"] for one in record.get("rows", [])):
        shown = [
            f"{one['model']} {one['tokens_per_second']:,.0f} tokens/s"
            + (f", {one['ratio'][0]:.2f} times ({one['ratio'][1]:.2f} to {one['ratio'][2]:.2f})" if one["model"].startswith("ours") else "")
            for one in record["rows"]
            if one["size"] == size
        ]  # fmt: skip
        how = f"`{record['command']}` on one {record['hardware']['gpu']}, bfloat16, taking turns; ratios to GPT-2's model code under torch.compile"
        rows.append(row(f"Training a language model, {size}", "; ".join(shown), how))
    return rows


def fusion_rows() -> list[str]:
    """What a language model and a reverse model bring to a translator, with the test against plain search."""
    rows = []
    for name, corpus in (("fusion-multi30k", "Multi30k En-De"), ("fusion-europarl", "Europarl De-En")):
        record = read(name)
        if record:
            tested = {
                key.removeprefix("test "): found["scores"]["BLEU"]
                for key, found in record["stages"].items()
                if key.startswith("test ")
            }
            bleu = "; ".join(f"{system} {score['value']:.2f}" for system, score in tested.items())
            how = (
                f"`{record['command']}` on one {record['hardware']['gpu']}, {60 * record['minutes']:.0f} s for each of three models side by side, "
                f"language model {record['stages']['text']['bits_per_byte']:.2f} bits per byte; `{tested['plain']['signature']}`. {' '.join(record['stages']['compare']['verdicts'])}"
            )
            rows.append(row(f"Fusion and reranking, {corpus}, BLEU", bleu, how))
    return rows


def speech_rows() -> list[str]:
    """Memory and speed by the length of recordings; on a CPU the ratios are of computing time, since its cores were shared."""
    rows = []
    for record in [record for name in ("speech-speed-gpu", "speech-speed-cpu") if (record := read(name))]:
        gpu = record["hardware"].get("gpu")
        which, clock = ("speed_ratio", "clock") if gpu else ("core_ratio", "computing time of all cores")
        settings = record["settings"]
        how = (
            f"`{record['command']}` on {f'one {gpu}' if gpu else cores(record)}, {settings['precision']}, random weights, "
            f"{settings['seconds_per_step']} s of sound at once; speeds by the clock, ratios by the {clock}"
        )
        for length in sorted({one["length_s"] for one in record["rows"]}):
            found = [one for one in record["rows"] if one["length_s"] == length]
            where = "GPU" if gpu else "CPU"
            rows.append(row(f"Training on {length} s of sound, {where}", _speech_training(found, which), how))
            rows.append(row(f"Transcribing {length} s of sound, {where}", _speech_search(found, which), how))
    return rows


def _speech_training(systems: list[dict[str, Any]], which: str) -> str:
    shown = [
        f"{one['system']} ({one['parameters'] / 1e6:.1f} M): {one['memory_gib']:.2f} GiB, {one['sound_s_per_s']:,.1f} s of sound per s{_times(one, which, 'training')}"
        for one in systems
    ]
    return "; ".join(shown)


def _speech_search(systems: list[dict[str, Any]], which: str) -> str:
    """Real-time factors: seconds of computing for a second of sound."""
    shown = [
        f"{one['system']}: real-time factor {one['real_time_factor']['greedy']:.4f}{_times(one, which, 'greedy')}, "
        f"beam 4 {one['real_time_factor']['beam']:.4f}{_times(one, which, 'beam')}"
        for one in systems
        if one["real_time_factor"]
    ]
    return "; ".join(shown)


def _times(one: dict[str, Any], which: str, job: str) -> str:
    if not one["system"].startswith("ours"):
        return ""
    ratio = one[which][job]
    return f", {ratio['median']:.2f} times HF ({ratio['least']:.2f} to {ratio['most']:.2f})"


def beside(report: dict[str, Any], peer: str) -> str:
    ratio, ours = report["ours_over"][peer], report["systems"]["ours"]
    speed = f"{ours['sentences_per_s']:,.0f} sentences/s, {ours['ms_per_sentence']:.1f} ms each"
    return f"{ratio['median']:.2f} times as fast ({ratio['least']:.2f} to {ratio['most']:.2f}); {speed}"


def read(name: str) -> dict[str, Any]:
    path = HERE / "results" / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def cores(record: dict[str, Any]) -> str:
    return f"{record['hardware']['cores']} cores ({record['hardware']['cpu'].strip()})"


def row(what: str, figure: str, how: str) -> str:
    return f"| {what} | {figure} | {how.replace('|', chr(92) + '|')} |"


if __name__ == "__main__":
    main()
