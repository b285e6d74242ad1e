"""Loading a model, and using it: translations, probabilities, attention."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from transduce.api.language_models import opened_language_model
from transduce.api.options import Model, Weights, reporter
from transduce.cores import tune_idle_threads
from transduce.errors import SettingError
from transduce.tracking import refuse_untrained
from transduce.translator import Attention, LoadOptions, Translator
from transduce.translator.engines import LM_WEIGHT

if TYPE_CHECKING:
    from transduce.translator.language_model import LanguageModel
    from transduce.translator.word_search import WordWeights


def load(
    folder: str | Path,
    *,
    to: str = "",
    weights: Weights = "auto",
    engine: Literal["auto", "torch", "ct2"] = "auto",
    device: Literal["auto", "cpu", "cuda"] = "auto",
    threads: int = 0,
    quantization: Literal["int8", "bfloat16", "float32"] = "int8",
    shortlist: bool = False,
    ensemble: Sequence[str | Path] = (),
    ngram: "bool | WordWeights" = False,
    lm: str | Path = "",
    lm_weight: float = LM_WEIGHT,
    rerank: str | Path = "",
    lazy: bool = False,
    quiet: bool = False,
) -> Translator:
    """Load the model of a run folder.

    Args:
        folder: A run folder that `train`, `average` or `import_model` wrote.
        to: The target language, for models that translate into several; `Translator.to` changes it later.
        weights: Which weights of the run; "auto" is "best" or "averaged", whichever has the better validation result.
        engine: "ct2" (CTranslate2) is faster on CPUs. "auto" chooses it where it is installed and can serve the request.
        device: "auto" is a GPU if there is one.
        threads: CPU threads; 0 means one for each core.
        quantization: Number format of the weights in the ct2 engine.
        shortlist: Consider only the output tokens that `transduce.shortlist` listed (ct2 engine only).
        ensemble: Run folders of further models with the same vocabularies that translate and score together with this one.
        ngram: Use the n-gram model that `transduce.ngram` made for a speech model; weights replace those of the run.
        lm: The run folder of a language model for shallow fusion. It needs the target vocabulary
            of this model: `train(text=..., vocabulary=folder)`.
        lm_weight: The weight of its log-probabilities; those of the translator have weight 1.
        rerank: A file that `tune_reranker` wrote. N-best lists are then ordered by several models.
        lazy: Load the weights when they are first needed instead of now.
        quiet: Print no messages to stderr.

    Returns:
        A translator with the methods `translate`, `n_best`, `sample`, `stream`, `evaluate`, `score` and `attention`.

    Example:
        >>> translator = transduce.load("runs/en-de")
        >>> translator.translate(["a sentence"], beam=4)
        ['ein Satz']
    """
    options = LoadOptions(
        to=to,
        weights=weights,
        engine=engine,
        device=device,
        threads=threads,
        quantization=quantization,
        shortlist=shortlist,
        ensemble=tuple(map(str, ensemble)),
        ngram=ngram,
        lm=str(lm),
        lm_weight=lm_weight,
        say=reporter(quiet),
    )
    tune_idle_threads()
    refuse_untrained(folder)
    translator = Translator.load(folder, options)
    if rerank:
        translator = _reranking(translator, rerank, options)
    return translator if lazy else translator.ready()


def _reranking(translator: Translator, file: str | Path, options: LoadOptions) -> Translator:
    if options.lm:
        raise SettingError("--lm has no effect on reranking, whose file names its models: leave out --lm or --rerank")
    from transduce.reranking import RerankFile, RerankingTranslator

    return RerankingTranslator(translator, RerankFile.read(file), options)


def translate(
    model: Model,
    lines: Sequence[str],
    *,
    to: str = "",
    beam: int | None = None,
    alpha: float | None = None,
    split: bool = False,
    lm: str | Path = "",
    lm_weight: float = LM_WEIGHT,
) -> list[str]:
    """Translate lines. To translate more than once, `load` the model and call its `translate`.

    Args:
        model: A run folder or a translator.
        lines: Sentences, one per string.
        to: The target language, for models that translate into several.
        beam: Beam size; 1 is greedy search. By default the setting of the model.
        alpha: Strength of the length penalty, from 0 to 10. By default the setting of the model.
        split: Split each line into sentences first, and keep the text between them.
        lm: A language model for shallow fusion, as in `load`.
        lm_weight: The weight of its log-probabilities.

    Returns:
        The best translation of each line, in order.

    Example:
        >>> transduce.translate("runs/en-de", ["a sentence"])
        ['ein Satz']
    """
    return opened_model(model, to, lm, lm_weight).translate(lines, beam=beam, alpha=alpha, split=split)


def score(model: Model, sources: Sequence[str], targets: Sequence[str], *, to: str = "") -> list[float]:
    """The log-probability of each target given its source; `to` is the target language of models that have several.

    Example:
        >>> transduce.score("runs/en-de", ["a sentence"], ["ein Satz"])
        [-0.71]
    """
    return opened_model(model, to).score(sources, targets)


def attention(
    model: "Model | LanguageModel", source: str, target: str | None = None, *, output: str | Path = ""
) -> Attention:
    """The attention weights of every head in every layer for a sentence pair, a recording, or the text of a language model.

    Args:
        model: A run folder, a translator or a language model.
        source: The source sentence; for a speech model, the path of a recording; for a language model, the text, which attends to itself.
        target: The target sentence; by default the model's own translation or transcript.
        output: Also write a picture (.png, .pdf, .svg) or an interactive page (.html) to this file.

    Example:
        >>> seen = transduce.attention("runs/en-de", "a sentence", output="attention.png")
        >>> seen.maps.cross[0].shape  # of the first layer: [1, heads, target, source]
    """
    from transduce.explore import PAGE, PICTURES, check_picture_path

    path = check_picture_path(output, (*PICTURES, PAGE)) if output else None
    if (language_model := opened_language_model(model)) is not None:
        return _text_attention(language_model, source, target, path)  # it refuses an empty text
    if not source.strip():
        raise SettingError("the sentence is empty: give a sentence to translate")
    translator = opened_model(cast("Model", model))
    if path is None or path.suffix.lower() != PAGE:
        return translator.attention(source, target, picture=path or "")
    if translator.reads_speech:
        raise SettingError(
            f"{path}: for recordings, write a picture (.png, .pdf or .svg), or use the page of `transduce serve`"
        )
    from transduce.explore.standalone import write_standalone
    from transduce.explore.views import attention_view

    view = attention_view(translator, source, target)
    write_standalone(view, path)
    return translator.attention(source, view["target"]["text"])


def _text_attention(model: "LanguageModel", text: str, target: str | None, path: Path | None) -> Attention:
    from transduce.explore import PAGE

    if target is not None:
        raise SettingError("a language model has no target: give the whole text instead of a sentence and its target")
    if path is None or path.suffix.lower() != PAGE:
        return model.attention(text, picture=path or "")
    from transduce.explore.standalone import write_standalone
    from transduce.explore.text_view import text_view

    write_standalone(text_view(model, text), path)
    return model.attention(text)


def opened_model(model: Model, to: str = "", lm: str | Path = "", lm_weight: float = LM_WEIGHT) -> Translator:
    if lm and isinstance(model, Translator):
        raise SettingError("a translator keeps the language model it was loaded with: call load(RUN, lm=...)")
    translator = model if isinstance(model, Translator) else load(model, lm=lm, lm_weight=lm_weight, lazy=True)
    return translator.to(to) if to else translator
