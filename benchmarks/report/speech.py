"""Speech: error rates of the recipe for Iban, and speed and memory by the length of recordings."""

from collections.abc import Iterator

from .section import Result, Section, cores, read, row, where

section = Section("Speech")

ENCODERS = {"iban": "convolutions in the encoder", "iban-plain": "the encoder of the paper"}
PARTS = ("test set", "test set without texts of the training data")
ABLATIONS = {  # result files of 40 % of the steps, and what is left out
    "iban-short": "the recipe",
    "iban-short-no-speeds": "without speed perturbation",
    "iban-short-no-masks": "without SpecAugment",
    "iban-short-plain": "without convolutions",
    "iban-short-no-ctc": "without CTC",
}


@section.rows_from(*ENCODERS)
def iban(result: Result) -> Iterator[str]:
    for system, found in result["systems"].items():
        test, new = (found["scores"][part] for part in PARTS)
        rates = [f"{metric} {part[metric]['value']:.2f}" for part in (test, new) for metric in ("WER", "CER")]
        figure = f"{rates[0]}, {rates[1]} (only texts that are not in the training data: {rates[2]}, {rates[3]})"
        how = (
            f"`configs/iban.toml` with {', '.join(result['settings']) or 'nothing changed'}, {result['minutes']:.1f} minutes on one {result['trained']}; "
            f"beam {result['beam']}; `{test['WER']['signature']}`"
        )
        yield row(f"Iban, 473 test utterances: {ENCODERS[result['name']]}, {system}", figure, how)


@section.rows_from("iban-short")
def iban_ablations(recipe: Result) -> Iterator[str]:
    """The recipe with 40 % of the steps, and what each of its parts is worth there."""
    shown = [f"{title}: {short_rates(result)}" for name, title in ABLATIONS.items() if (result := read(name))]
    steps = next(one.removeprefix("train.steps=") for one in recipe["settings"] if one.startswith("train.steps="))
    how = f"`configs/iban.toml`, {int(steps):,} steps, one seed, beam {recipe['beam']}, {recipe['trained']}; `benchmarks/iban.py --no-trigram`"
    yield row("Iban with 40 % of the steps: ablation of each part", "; ".join(shown), how)


def short_rates(result: Result) -> str:
    (system,) = result["systems"].values()
    test, valid = (system["scores"][part] for part in ("test set", "validation speakers"))
    return f"WER {test['WER']['value']:.2f}, CER {test['CER']['value']:.2f} (validation speakers WER {valid['WER']['value']:.2f})"


BEFORE = {  # result files that compare the version before speech and language models with a later one
    "before-after-speech-train-gpu": "training on a GPU",
    "before-after-speech-translate-gpu-beam4": "translation on a GPU, beam 4",
    "before-after-speech-train-cpu": "training on a CPU",
    "before-after-speech-translate-cpu-beam4": "translation on a CPU, beam 4",
    "before-after-speech-translate-cpu-beam1": "translation on a CPU, greedy",
    "before-after-speech-load-cpu": "loading a model",
}


@section.rows_from("before-after-speech-train-gpu")
def unchanged_by_speech(result: Result) -> Iterator[str]:
    found = {what: one["now_over_before"] for name, what in BEFORE.items() if (one := read(name))}
    figure = "; ".join(
        "{} {median:.2f} ({least:.2f} to {most:.2f})".format(what, **ratio) for what, ratio in found.items()
    )
    how = f"`benchmarks/before_after.py`, compared with commit {result['before']}, which ran alternately, on one {result['hardware']['gpu']} and on two CPU cores; torch engine"
    yield row("Effect of adding speech models on the speed of text translation: new speed / old speed", figure, how)


@section.rows_from("digits-cpu")
def digits(result: Result) -> Iterator[str]:
    runs = result["runs"]
    right = {split: " and ".join(f"{run['right'][split]:.1f}" for run in runs) for split in ("test", "valid")}
    figure = f"accuracy {right['test']} % for the test speaker, {right['valid']} % for the validation speaker"
    seconds = " and ".join(f"{run['command_s']:.0f}" for run in runs)
    yield row(
        "Spoken digits of speakers who are not in the training data",
        figure,
        f"`configs/spoken-digits.toml`, {seconds} s for the whole training command on {cores(result)}; `{result['command']}`",
    )


@section.rows_from("speech-speed-gpu", "speech-speed-cpu-one-core")
def speed(result: Result) -> Iterator[str]:
    """Memory and speed by the length of recordings; on a CPU the ratios are of computing time, since its cores were shared."""
    gpu, settings = "gpu" in result["hardware"], result["settings"]
    which, clock = ("speed_ratio", "wall-clock time") if gpu else ("core_ratio", "CPU time of all cores")
    how = (
        f"`{result['command']}` on {where(result)}, {settings['precision']}, random weights, "
        f"{settings['seconds_per_step']} s of sound per batch; speeds by wall-clock time, ratios by {clock}"
    )
    device = "GPU" if gpu else "CPU"
    for length in sorted({one["length_s"] for one in result["rows"]}):
        found = [one for one in result["rows"] if one["length_s"] == length]
        yield row(f"Training on recordings of {length} s, {device}", training(found, which), how)
        yield row(f"Transcribing recordings of {length} s, {device}", searching(found, which), how)


def training(systems: list[Result], which: str) -> str:
    shown = [
        f"{one['system']} ({one['parameters'] / 1e6:.1f} M): {one['memory_gib']:.2f} GiB, {one['sound_s_per_s']:,.1f} s of sound per second{times(one, which, 'training')}"
        for one in systems
    ]
    return "; ".join(shown)


def searching(systems: list[Result], which: str) -> str:
    """Real-time factors: seconds of computing for a second of sound."""
    shown = [
        f"{one['system']}: real-time factor {one['real_time_factor']['greedy']:.4f}{times(one, which, 'greedy')}, "
        f"beam 4 {one['real_time_factor']['beam']:.4f}{times(one, which, 'beam')}"
        for one in systems
        if one["real_time_factor"]
    ]
    return "; ".join(shown)


def times(one: Result, which: str, job: str) -> str:
    if not one["system"].startswith("ours"):
        return ""
    ratio = one[which][job]
    return f", {ratio['median']:.2f} times HF ({ratio['least']:.2f} to {ratio['most']:.2f})"
