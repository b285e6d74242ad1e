"""Language models: loading, generating, and how well they predict a text."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from transduce.api.options import Model, Weights
from transduce.cores import tune_idle_threads
from transduce.tracking import refuse_untrained
from transduce.translator import Translator, open_folder

if TYPE_CHECKING:
    from transduce.translator.language_model import LanguageModel, TextScore


def load_language_model(
    folder: str | Path,
    *,
    weights: Weights = "auto",
    device: Literal["auto", "cpu", "cuda"] = "auto",
    threads: int = 0,
) -> "LanguageModel":
    """Load a language model, which was trained with `train(text=...)`.

    Args:
        folder: The run folder.
        weights: Which weights of the run; "auto" is "best" or "averaged", whichever has the better validation result.
        device: "auto" is a GPU if there is one.
        threads: CPU threads; 0 means one for each core.

    Returns:
        A language model with the methods `generate`, `stream` and `score`.

    Example:
        >>> model = transduce.load_language_model("runs/shakespeare")
        >>> model.score("To be, or not to be").bits_per_byte
        2.4
    """
    tune_idle_threads()
    refuse_untrained(folder)
    from transduce.translator.language_model import LanguageModel

    return LanguageModel.load(folder, weights=weights, device=device, threads=threads)


def generate(
    model: "str | Path | LanguageModel",
    prompt: str = "",
    *,
    sampling: bool = False,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 1,
    n: int = 1,
    max_tokens: int = 200,
    stop: Sequence[str] = (),
) -> list[str]:
    """Continue a prompt. To generate more than once, call `load_language_model` and its `generate`.

    Args:
        model: A run folder or a language model.
        prompt: The beginning of a document; empty for a new document.
        sampling: Sample from the model instead of taking the most probable token each time.
        temperature: Below 1, probable tokens become more probable; above 1, less.
        top_k: Sample from the `top_k` most probable tokens; 0 means all.
        top_p: Sample from the most probable tokens whose probabilities sum to `top_p`.
        seed: Another seed gives other samples.
        n: How many texts.
        max_tokens: The most tokens of each text.
        stop: Strings that end a text: it ends before the first of them.

    Returns:
        The texts, without the prompt.

    Example:
        >>> transduce.generate("runs/shakespeare", "ROMEO:", sampling=True, top_p=0.9)
    """
    loaded = load_language_model(model) if isinstance(model, str | Path) else model
    return loaded.generate(
        prompt,
        sampling=sampling,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        n=n,
        max_tokens=max_tokens,
        stop=stop,
    )


def score_text(model: "str | Path | LanguageModel", texts: str | Sequence[str], *, stride: int = 0) -> "TextScore":
    """How well a language model predicts one or several texts: bits per byte, nats per token and perplexity per word.

    Args:
        model: A run folder or a language model.
        texts: A text, or several.
        stride: Tokens from one window to the next; 0 is the context, so that windows do not overlap.

    Example:
        >>> transduce.score_text("runs/shakespeare", "To be, or not to be").nats_per_token
        1.7
    """
    loaded = load_language_model(model) if isinstance(model, str | Path) else model
    return loaded.score(texts, stride)


def opened_language_model(model: "Model | LanguageModel") -> "LanguageModel | None":
    """The language model that this is, or whose run folder it is; None for a translator."""
    if isinstance(model, Translator):
        return None
    if isinstance(model, str | Path):
        return load_language_model(model) if open_folder(model).config.model.reads_text else None
    return model
