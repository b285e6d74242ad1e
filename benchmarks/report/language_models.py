"""Language models: their loss, the speed of training them, and what they bring to a translator."""

from collections.abc import Iterator

from .section import Result, Section, row

section = Section("Language models")

SAMPLE_LINES = 9  # those without text not counted
CORPORA = {"fusion-multi30k": "Multi30k En-De", "fusion-europarl": "Europarl De-En"}


@section.rows_from("shakespeare")
def shakespeare(result: Result) -> Iterator[str]:
    losses, seconds = ([one[name] for one in result["rows"]] for name in ("loss", "seconds"))
    figure = (
        f"{', '.join(f'{loss:.4f}' for loss in losses)} nats per character in {max(seconds):.0f} s or less "
        f"(nanoGPT: {result['anchor']} after three minutes on an A100)"
    )
    how = f"`{result['command']}` on one {result['hardware']['gpu']}: whole validation text, windows of 256 that do not overlap, {len(losses)} seeds"
    yield row("Shakespeare, characters, 6 layers of 384", figure, how)
    lines = [line for line in result["rows"][0]["sample"].split("\n") if line][:SAMPLE_LINES]
    how = '`transduce generate RUN --prompt "ROMEO:" --sample --top-p 0.95` with the first of these models'
    yield row("A sample of its output", " / ".join(lines), how)


@section.rows_from("lm-speed")
def training(result: Result) -> Iterator[str]:
    how = f"`{result['command']}` on one {result['hardware']['gpu']}, bfloat16; ratios to GPT-2's model code under torch.compile, which ran alternately"
    for size in dict.fromkeys(one["size"] for one in result["rows"]):
        shown = [speed(one) for one in result["rows"] if one["size"] == size]
        yield row(f"Training a language model, {size}", "; ".join(shown), how)


def speed(one: Result) -> str:
    tokens = f"{one['model']} {one['tokens_per_second']:,.0f} tokens/s"
    if not one["model"].startswith("ours"):
        return tokens
    return "{}, {:.2f} times ({:.2f} to {:.2f})".format(tokens, *one["ratio"])


@section.rows_from(*CORPORA)
def fusion(result: Result) -> Iterator[str]:
    """What a language model and a reverse model bring to a translator, with the test against plain search."""
    stages = result["stages"]
    tested = {
        key.removeprefix("test "): found["scores"]["BLEU"] for key, found in stages.items() if key.startswith("test ")
    }
    bleu = "; ".join(f"{system} {score['value']:.2f}" for system, score in tested.items())
    how = (
        f"`{result['command']}` on one {result['hardware']['gpu']}, {60 * result['minutes']:.0f} s for each of three models, trained at the same time; "
        f"the language model has {stages['text']['bits_per_byte']:.2f} bits per byte; `{tested['plain']['signature']}`. {' '.join(stages['compare']['verdicts'])}"
    )
    yield row(f"Fusion and reranking, {CORPORA[result['name']]}, BLEU", bleu, how)
