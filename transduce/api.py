"""The public functions: every command of the command line as a Python function, importable from `transduce`.

Functions that take a model accept a run folder or a `Translator` that `load` returned. Importing this module does not import
torch; the first call that needs torch does.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, NoReturn, cast

from transduce.audio.recording import TYPES
from transduce.batch_translation.tables import TableTranslator
from transduce.config import Layers, settings_layer
from transduce.cores import tune_idle_threads
from transduce.data import Files, groups_of, without_pipes
from transduce.errors import MissingExtra, SettingError
from transduce.translator import Attention, LoadOptions, SearchRequest, Translator, open_folder
from transduce.translator.engines import LM_WEIGHT, Say, say_to_stderr

if TYPE_CHECKING:
    from transduce.batch_translation import BatchResult, Verification
    from transduce.comparison import Comparison
    from transduce.diagnosis import Report
    from transduce.exchange import Taken, Verified, VerifiedText
    from transduce.reranking import RerankFile
    from transduce.synthesis import Made
    from transduce.tracking import Cleaning, RunDifference, RunStatus
    from transduce.training import Result, RunPlan, Settings
    from transduce.translator.evaluation import Evaluation
    from transduce.translator.language_model import LanguageModel, TextScore
    from transduce.translator.word_search import WordWeights
    from transduce.word_models import WordModel

__all__ = [
    "LoadOptions",
    "SearchRequest",
    "TableTranslator",
    "Translator",
    "attention",
    "average",
    "backtranslate",
    "batch",
    "clean",
    "collect_batch",
    "compare",
    "distill",
    "doctor",
    "evaluate",
    "export",
    "generate",
    "import_model",
    "load",
    "load_language_model",
    "ngram",
    "plan",
    "report",
    "run_difference",
    "runs",
    "score",
    "score_text",
    "serve",
    "shortlist",
    "train",
    "translate",
    "tune_reranker",
    "verify_batch",
]

Weights = Literal["auto", "best", "last", "averaged"]
Model = str | Path | Translator


# --- using a model -----------------------------------------------------------------------------------------------


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
        weights: Which weights of the run; "auto" is the better validated of "best" and "averaged".
        engine: "ct2" (CTranslate2) is faster on CPUs. "auto" chooses it where it is installed and can serve the request.
        device: "auto" is a GPU if there is one.
        threads: CPU threads; 0 means one for each core.
        quantization: Number format of the weights in the ct2 engine.
        shortlist: Consider only the output tokens that `transduce.shortlist` listed (ct2 engine only).
        ensemble: Run folders of further models with the same vocabularies that translate together with this one.
        ngram: Use the n-gram model that `transduce.ngram` made for a speech model; weights replace those of the run.
        lm: The run folder of a language model that takes part in every search (shallow fusion). It needs the target vocabulary
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
        say=_reporting(quiet),
    )
    tune_idle_threads()
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
        split: Split each line into sentences first, and keep what stands between them.
        lm: A language model that takes part in the search, as in `load`.
        lm_weight: The weight of its log-probabilities.

    Returns:
        The best translation of each line, in order.

    Example:
        >>> transduce.translate("runs/en-de", ["a sentence"])
        ['ein Satz']
    """
    return _opened(model, to, lm, lm_weight).translate(lines, beam=beam, alpha=alpha, split=split)


def evaluate(
    model: Model,
    sources: Sequence[str],
    *references: Sequence[str],
    to: str = "",
    request: SearchRequest | None = None,
    beam: int | None = None,
    alpha: float | None = None,
    metrics: Sequence[str] = (),
    merge: Literal["auto", "separate", "merged"] = "auto",
    lm: str | Path = "",
    lm_weight: float = LM_WEIGHT,
) -> "Evaluation":
    """Translate sources and score the translations against references.

    Args:
        model: A run folder or a translator.
        sources: Source sentences.
        *references: One or more lists of references, each aligned with the sources.
        to: The target language, for models that translate into several.
        request: All search settings at once; by default those of the model.
        beam: Beam size; 1 is greedy search.
        alpha: Strength of the length penalty.
        metrics: Names as in `transduce evaluate --metrics`; by default the metrics of the task.
        merge: Whether equal sources become one source with several references, as in a dictionary.
        lm: A language model that takes part in the search, as in `load`.
        lm_weight: The weight of its log-probabilities.

    Returns:
        Scores with their signatures, the translations, and the speed.

    Example:
        >>> print(transduce.evaluate("runs/en-de", ["a sentence"], ["ein Satz"], metrics=["bleu"]).scores)
        BLEU 100.0
    """
    return _opened(model, to, lm, lm_weight).evaluate(
        sources, *references, request=request, beam=beam, alpha=alpha, metrics=metrics, merge=merge
    )


def compare(
    systems: Sequence[str | Path],
    *,
    source: str | Path,
    references: str | Path | Sequence[str | Path] = (),
    labels: str | Path = "",
    language: str = "",
    tokenize: str = "",
    metrics: Sequence[str] = (),
    test: Literal["bootstrap", "randomization"] = "bootstrap",
    samples: int | None = None,
    merge: Literal["auto", "separate", "merged"] = "auto",
    columns: Sequence[str] = (),
    to: str = "",
    beam: int | None = None,
    alpha: float | None = None,
    length_penalty: Literal["paper", "power"] | None = None,
    max_extra: int | None = None,
    html: str | Path = "",
    explorer: str = "http://127.0.0.1:5000/",
    options: LoadOptions | None = None,
    quiet: bool = False,
) -> "Comparison":
    """Compare systems on a test set: scores, intervals, significance, and where they differ.

    Args:
        systems: The baseline first. Each is a run folder, a file with one output per line, or `NAME=RUN1,RUN2` for several
            seeds. Run folders are translated once; their outputs are kept in the cache.
        source: The sources of the test set, or a .tsv or .jsonl file with sources and references.
        references: One or more files of references, aligned with the sources.
        labels: A file with a label for each line, such as its corpus; scores are then also given by label.
        language: Language code of the outputs, which selects BLEU's tokenizer; by default that of the first run.
        tokenize: BLEU's tokenizer as sacreBLEU names it, such as "none" for text that is tokenized already.
        metrics: Names as in `transduce evaluate --metrics`, the main one first; by default the metrics of the task.
        test: Paired bootstrap, or approximate randomization.
        samples: Samples of the test; by default sacreBLEU's 1,000 (bootstrap) or 10,000 (randomization).
        merge: Whether equal sources become one source with several references, as in a dictionary.
        columns: The columns of a table, as in `["source=1", "target=2"]`.
        to: The target language of the runs that translate into several.
        beam: Beam size; 1 is greedy search. By default the setting of each run.
        alpha: Strength of the length penalty.
        length_penalty: The form of the length penalty.
        max_extra: Limit outputs to this many tokens more than the input.
        html: Also write an interactive page to this file.
        explorer: The address of the server that the links of the page open.
        options: How to load the models.
        quiet: Print no messages to stderr.

    Returns:
        Scores, tests, groups of sentences, n-grams, and the sentences that differ most.

    Example:
        >>> found = transduce.compare(["runs/a", "runs/b"], source="test.en", references="test.de")
        >>> [system.test.p for system in found.main.systems[1:]]
        [0.031]
    """
    tune_idle_threads()
    from transduce.comparison import CompareRequest, Search
    from transduce.comparison import compare as run_comparison
    from transduce.comparison.page import check_page, write_page

    say = _reporting(quiet)
    if html:
        check_page(html, explorer)
    request = CompareRequest(
        systems=[str(system) for system in systems],
        source=source,
        references=[references] if isinstance(references, str | Path) else list(references),
        labels=labels,
        language=language,
        tokenize=tokenize,
        metrics=[metrics] if isinstance(metrics, str) else list(metrics),
        test=test,
        samples=samples,
        merge=merge,
        columns=columns,
        search=Search(beam, alpha, length_penalty, max_extra),
        options=_loading(options, to, quiet),
        say=say,
    )
    compared = run_comparison(request)
    if html:
        write_page(compared, html, explorer, say)
    return compared.result


def score(model: Model, sources: Sequence[str], targets: Sequence[str], *, to: str = "") -> list[float]:
    """The log-probability of each target given its source; `to` is the target language of models that have several.

    Example:
        >>> transduce.score("runs/en-de", ["a sentence"], ["ein Satz"])
        [-0.71]
    """
    return _opened(model, to).score(sources, targets)


def tune_reranker(
    run: Model,
    sources: Sequence[str],
    *references: Sequence[str],
    output: str | Path,
    lm: str | Path = "",
    reverse: str | Path = "",
    n_best: int = 10,
    metric: str = "",
    seed: int = 1,
    to: str = "",
    request: SearchRequest | None = None,
    options: LoadOptions | None = None,
    quiet: bool = False,
) -> "RerankFile":
    """Tune the weights with which n-best lists are reranked, on validation data, and write them to a file.

    The score of an output is a weighted sum of the translator's score, the log-probability of the output by a language model,
    that of the source by a model of the opposite direction, and the length. `load(run, rerank=output)` uses the file.

    Args:
        run: The run folder of the translator, or a translator.
        sources: Source sentences of the validation data.
        *references: One or more lists of references, each aligned with the sources.
        output: The file to write.
        lm: The run folder of a language model of the target language; its vocabulary does not matter.
        reverse: The run folder of a model that translates from the target language to the source language.
        n_best: The length of the lists. The beam is at least as wide.
        metric: A name as in `transduce evaluate --metrics`; by default the main metric of the task.
        seed: Another seed may find other weights.
        to: The target language, for models that translate into several.
        request: All search settings at once; by default those of the model.
        options: How to load the models.
        quiet: Print no messages to stderr.

    Returns:
        The weights, and the score on the validation data before and after.

    Example:
        >>> tuned = transduce.tune_reranker("runs/en-de", en, de, lm="runs/lm", reverse="runs/de-en", output="rerank.json")
        >>> transduce.load("runs/en-de", rerank="rerank.json").translate(["a sentence"])
    """
    tune_idle_threads()
    from transduce.reranking import TuningRequest, tune

    loading = _loading(options, to, quiet)
    translator = run if isinstance(run, Translator) else Translator.load(run, loading)
    tuned = tune(
        translator,
        TuningRequest(
            sources=sources,
            references=references,
            lm=str(lm),
            reverse=str(reverse),
            search=(request or translator.request()).but(n_best=n_best),
            metric=metric,
            seed=seed,
            options=loading,
        ),
        _reporting(quiet),
    )
    tuned.write(output)
    return tuned


# --- language models ---------------------------------------------------------------------------------------------


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
        weights: Which weights of the run; "auto" is the better validated of "best" and "averaged".
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


def attention(
    model: "Model | LanguageModel", source: str, target: str | None = None, *, output: str | Path = ""
) -> Attention:
    """The attention weights of every head in every layer for a sentence pair, or for the text of a language model.

    Args:
        model: A run folder, a translator or a language model.
        source: The source sentence; for a language model, the text, which attends to itself.
        target: The target sentence; by default the model's own translation.
        output: Also write a picture (.png, .pdf, .svg) or an interactive page (.html) to this file.

    Example:
        >>> seen = transduce.attention("runs/en-de", "a sentence", output="attention.png")
        >>> seen.maps.cross[0].shape  # of the first layer: [1, heads, target, source]
    """
    from transduce.explore import PAGE, PICTURES, check_picture_path

    if not source.strip():
        raise SettingError("the sentence is empty: give a sentence to translate")
    path = check_picture_path(output, (*PICTURES, PAGE)) if output else None
    if (language_model := _language_model(model)) is not None:
        return _text_attention(language_model, source, target, path)
    translator = _opened(cast("Model", model))
    if path is None or path.suffix.lower() != PAGE:
        return translator.attention(source, target, picture=path or "")
    from transduce.explore.standalone import write_standalone
    from transduce.explore.views import attention_view

    view = attention_view(translator, source, target)
    write_standalone(view, path)
    return translator.attention(source, view["target"]["text"])


def _language_model(model: "Model | LanguageModel") -> "LanguageModel | None":
    """The language model that this is, or whose run folder it is; None for a translator."""
    if isinstance(model, Translator):
        return None
    if isinstance(model, str | Path):
        return load_language_model(model) if open_folder(model).config.model.reads_text else None
    return model


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


# --- translating corpora -----------------------------------------------------------------------------------------


def batch(
    run: str | Path,
    inputs: str | Path | Sequence[str | Path],
    output: str | Path,
    *,
    columns: str = "",
    into: str = "translation",
    to: str = "",
    beam: int | None = None,
    alpha: float | None = None,
    request: SearchRequest | None = None,
    shard_lines: int = 100_000,
    on: Literal["local", "ray"] = "local",
    workers: int = 0,
    shard: int = 0,
    shards: int = 1,
    prepare_only: bool = False,
    options: LoadOptions | None = None,
    quiet: bool = False,
) -> "BatchResult":
    """Translate files of any size to a folder, in shards. Call it again with the same arguments to resume.

    A shard is written to a file of its own, which gets its name when it is complete: whatever dies, every line is
    translated exactly once, in order. `collect_batch` joins the shards.

    Args:
        run: The run folder of the model.
        inputs: Files of one format, or patterns such as "crawl/*.gz": plain text, TSV, JSONL (compressed or not) or parquet.
        output: The folder for the shards. A folder that was begun with another model, inputs or options is refused.
        columns: For tables, the column to translate: "source=2", "source=text" or "source=word,features=tags".
        into: For tables, the column to add.
        to: The target language, for models that translate into several.
        beam: Beam size; 1 is greedy search. By default the setting of the model.
        alpha: Strength of the length penalty.
        request: All search settings at once.
        shard_lines: Lines per shard; what is lost when a worker dies.
        on: "ray" runs on a Ray cluster, which needs the extra `transduce[ray]`.
        workers: Processes, or actors of Ray. 0 is one for each GPU; without several GPUs, this process translates.
        shard: The number of this task, from 0, among `shards` tasks that share the work without knowing of each other.
        shards: The number of such tasks, as in a SLURM array.
        prepare_only: Write the manifest, and translate nothing.
        options: How to load the model. Its `threads` are those of each worker; 0 divides the cores between the workers.
        quiet: Print nothing.

    Returns:
        The shards and lines that are finished, and the shards that failed three times, with the reasons.

    Example:
        >>> result = transduce.batch("runs/de-en", "crawl/*.gz", "translated", workers=8)
        >>> result.failures
        []
        >>> transduce.collect_batch("translated", "crawl.en.gz")
        12000000
    """
    tune_idle_threads()
    from transduce.batch_translation import BatchRequest, Where, translate_corpus

    wanted = BatchRequest(
        run=run,
        inputs=[inputs] if isinstance(inputs, str | Path) else inputs,
        columns=columns,
        into=into,
        shard_rows=shard_lines,
        search=_search(run, request, beam, alpha),
        options=_loading(options, to, quiet),
    )
    return translate_corpus(
        wanted, output, Where(on=on, workers=workers, task=shard, tasks=shards, prepare_only=prepare_only)
    )


def _search(run: str | Path, request: SearchRequest | None, beam: int | None, alpha: float | None) -> SearchRequest:
    return (request or SearchRequest.of(open_folder(run).config.search)).but(beam=beam, alpha=alpha)


def verify_batch(output: str | Path) -> "Verification":
    """Count the lines of every shard in a folder again, and compare all hashes, those of the inputs too.

    Example:
        >>> transduce.verify_batch("translated").is_complete
        True
    """
    from transduce.batch_translation import verify

    return verify(output)


def collect_batch(output: str | Path, file: str | Path) -> int:
    """Join the shards of a folder in one file, in the order of the inputs. The file may end in .gz, .xz or .bz2.

    Returns:
        The number of lines.

    Example:
        >>> transduce.collect_batch("translated", "crawl.en.gz")
        12000000
    """
    from transduce.batch_translation import collect

    return collect(output, file)


# --- making a model ----------------------------------------------------------------------------------------------


def train(
    run: str | Path,
    *,
    train: Files | None = None,
    valid: Files | None = None,
    text: Files | None = None,
    valid_text: Files | None = None,
    languages: Iterable[str] | None = None,
    preset: str = "",
    config: str | Path = "",
    settings: "Settings | None" = None,
    start_from: str | Path = "",
    vocabulary: str | Path = "",
    minutes: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    quiet: bool = False,
    verbose: bool = False,
    started_at: float | None = None,
) -> "Result":
    """Train a model, or resume a run.

    Training ends when the first of `minutes`, `steps` and `epochs` is reached; without any of them, the budget is fitted to
    the data. Call it again with the same folder to resume; with `steps` or `epochs` the result is bit-identical to an
    uninterrupted run.

    Args:
        run: The run folder to create or resume.
        train: Training data: a source and a target file, `("train.en", "train.de")`, one .tsv or .jsonl file, or a list
            of these.
        valid: Validation data, in the same forms. Without it, some of the training data is held out.
        text: One or several text files, to train a language model instead of a translator.
        valid_text: Text files for validation. Without them, the end of each file of `text` is held out.
        languages: Language codes of source and target, such as `("en", "de")`.
        preset: A named recipe instead of settings fitted to the data.
        config: A TOML file of settings.
        settings: `{"model.d_model": 64}`, `{"model": {"d_model": 64}}` or `["model.d_model=64"]`.
        start_from: A run folder whose weights to start from.
        vocabulary: A run folder whose vocabulary to use; a language model uses its target vocabulary.
        minutes: Wall-clock time of the run from start to model card, summed over all calls that resumed it.
        steps: Budget in optimizer steps.
        epochs: Budget in passes over the training data.
        quiet: Print nothing.
        verbose: Print several sample outputs with their references at every validation.
        started_at: The `time.perf_counter()` from which `minutes` count; by default the beginning of this call.

    Returns:
        The number of steps, the time, and the validation score of the best weights.

    Example:
        >>> transduce.train("runs/en-de", train=("train.en", "train.de"), valid=("valid.en", "valid.de"), minutes=30)
    """
    tune_idle_threads()
    from transduce.diagnosis.quick import quick_findings
    from transduce.training import TrainingRequest, make_reporter
    from transduce.training import train as run_training

    request = TrainingRequest(
        train=train,
        valid=valid,
        text=text,
        valid_text=valid_text,
        languages=languages,
        preset=preset,
        config=config,
        settings=_with_budget(settings, minutes, steps, epochs),
        start_from=start_from,
        vocabulary=vocabulary,
    )
    reporter = make_reporter(quiet, verbose)
    return run_training(run, request, reporter=reporter, begun=started_at, inspect=quick_findings)


def plan(
    run: str | Path = "",
    *,
    train: Files | None = None,
    valid: Files | None = None,
    text: Files | None = None,
    valid_text: Files | None = None,
    languages: Iterable[str] | None = None,
    preset: str = "",
    config: str | Path = "",
    settings: "Settings | None" = None,
    start_from: str | Path = "",
    vocabulary: str | Path = "",
    minutes: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    gpus: int = 0,
    nodes: int = 1,
    network: float = 400.0,
    quiet: bool = False,
    started_at: float | None = None,
) -> "RunPlan":
    """What `train` with the same arguments will take: time, memory, disk, tokens and operations.

    Reads the data, trains a dozen steps, validates and writes a checkpoint to a temporary folder, and discards all of it. Only
    the cache of prepared data stays, which `train` reads next.

    Args:
        run: The run folder to create or resume. Nothing is written into it. By default, a new run.
        train: Training data, as in `train`.
        valid: Validation data, as in `train`.
        text: Text of a language model, as in `train`.
        valid_text: Text for validation, as in `train`.
        languages: Language codes of source and target.
        preset: A named recipe instead of settings fitted to the data.
        config: A TOML file of settings.
        settings: Settings, as in `train`.
        start_from: A run folder whose weights to start from.
        vocabulary: A run folder whose vocabulary to use; a language model uses its target vocabulary.
        minutes: Budget in minutes.
        steps: Budget in optimizer steps.
        epochs: Budget in passes over the training data.
        gpus: GPUs per machine. If given, the plan also predicts the run on a cluster, with settings fitted to it.
        nodes: Machines of the cluster.
        network: Gb/s per GPU between the machines.
        quiet: Print nothing.
        started_at: The `time.perf_counter()` from which the time to start counts; by default the beginning of this call.

    Returns:
        The plan: `lines()` for people, `as_dict()` for programs, and the figures as attributes.

    Example:
        >>> planned = transduce.plan(train=("train.en", "train.de"), valid=("valid.en", "valid.de"), steps=10_000)
        >>> planned.budget.seconds, planned.memory.here.total, planned.changes
        (2710.4, 812345678, ())
    """
    tune_idle_threads()
    from transduce.diagnosis.quick import quick_findings
    from transduce.training import TrainingRequest, make_reporter, plan_run
    from transduce.training.scaling import Cluster

    cluster = Cluster(gpus or 1, nodes, network) if gpus or nodes > 1 else None
    request = TrainingRequest(
        train=train,
        valid=valid,
        text=text,
        valid_text=valid_text,
        languages=languages,
        preset=preset,
        config=config,
        settings=_with_budget(settings, minutes, steps, epochs),
        start_from=start_from,
        vocabulary=vocabulary,
    )
    return plan_run(
        run, request, reporter=make_reporter(quiet), begun=started_at, inspect=quick_findings, cluster=cluster
    )


def doctor(
    *,
    train: Files,
    valid: Files | None = None,
    test: Files | None = None,
    languages: Iterable[str] | None = None,
    preset: str = "",
    config: str | Path = "",
    settings: "Settings | None" = None,
    minutes: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    thresholds: Mapping[str, float] | None = None,
    fast: bool = False,
    write: str | Path = "",
    keep: Iterable[str] = (),
    only: Iterable[str] = (),
    html: str | Path = "",
    model: str | Path = "",
    reverse: str | Path = "",
    processes: int = 0,
    quiet: bool = False,
) -> "Report":
    """Look for problems in training, validation and test data before training on them.

    Every file is read once, by several processes. If torch is already imported, these are started anew, so that a script
    must call this function under `if __name__ == "__main__":`.

    Args:
        train: Training data, in the forms that `train` takes.
        valid: Validation data, which is trusted: limits such as the longest source are taken from it if it is large enough.
        test: Test data; the training data is searched for its pairs.
        languages: Language codes of source and target, such as `("en", "de")`.
        preset: A named recipe that `train` would use.
        config: A TOML file of settings that `train` would use.
        settings: Settings that `train` would use, as in `train`.
        minutes: Budget that `train` would have; so are `steps` and `epochs`.
        steps: Budget in optimizer steps.
        epochs: Budget in passes over the training data.
        thresholds: Limits of rules by name, such as `{"largest_ratio": 4.0}`.
        fast: Leave out near-duplicates and the identification of languages.
        write: A new folder for clean training files and a table of what was left out.
        keep: Names of rules whose pairs are reported, but written all the same.
        only: Names of the only rules whose pairs are left out.
        html: A file to write the report to as a page.
        model: A run folder by whose cross-entropy the pairs are ranked.
        reverse: A run folder of the opposite direction; both scores are then combined.
        processes: How many processes read the data; 0 means one for each core.
        quiet: Print no progress.

    Returns:
        The findings with counts, examples and advice, the most serious first; statistics; and what `train` would do.

    Example:
        >>> report = transduce.doctor(train=("train.en", "train.de"), valid=("valid.en", "valid.de"))
        >>> [finding.rule for finding in report.findings if finding.severity == "serious"]
        []
    """
    from transduce.diagnosis.checkup import Outputs, check_up
    from transduce.diagnosis.examination import Options
    from transduce.diagnosis.removal import Removal
    from transduce.training.request import TrainingRequest, requested_settings

    request = TrainingRequest(
        train=train,
        valid=valid,
        languages=languages,
        preset=preset,
        config=config,
        settings=_with_budget(settings, minutes, steps, epochs),
    )
    removal = Removal(keep=frozenset(keep), only=frozenset(only))
    options = Options(thresholds=thresholds or {}, workers=processes, fast=fast, removal=removal)
    outputs = Outputs(write=str(write), html=str(html), model=str(model), reverse=str(reverse))
    return check_up(requested_settings(request), groups_of(test), options, outputs, _reporting(quiet))


def distill(
    teacher: str | Path,
    run: str | Path,
    *,
    train: Files,
    valid: Files | None = None,
    languages: Iterable[str] | None = None,
    preset: str = "student",
    config: str | Path = "",
    settings: "Settings | None" = None,
    keep_original: bool = False,
    to: str = "",
    beam: int | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    options: LoadOptions | None = None,
    on: Literal["local", "ray"] = "local",
    workers: int = 0,
    quiet: bool = False,
    verbose: bool = False,
) -> "Result":
    """Train a small model on the translations of a large one (Kim and Rush 2016). Call it again to resume.

    Args:
        teacher: The run folder of the large model.
        run: The run folder of the student to create or resume.
        train: Training data whose sources the teacher translates.
        valid: Validation data, not translated by the teacher.
        languages: Language codes; by default those of the teacher.
        preset: The shape of the student.
        config: A TOML file of settings of the student.
        settings: Settings of the student, as in `train`.
        keep_original: Also train on the original targets.
        to: The target language, for a teacher that translates into several. The student translates into this one.
        beam: The beam size of the teacher.
        minutes: Budget of the student's training in minutes; translating does not count.
        steps: Budget in optimizer steps.
        epochs: Budget in passes over the training data.
        options: How to load the teacher.
        on: Where the teacher translates, as in `batch`.
        workers: The workers of the teacher, as in `batch`.
        quiet: Print nothing.
        verbose: Print several sample outputs with their references at every validation.

    Example:
        >>> transduce.distill("runs/en-de", "runs/student", train=("train.en", "train.de"))
    """
    tune_idle_threads()
    from transduce.batch_translation import Where
    from transduce.synthesis import distill as run_distillation
    from transduce.training import TrainingRequest, make_reporter

    request = TrainingRequest(
        train=train,
        valid=valid,
        languages=languages,
        preset=preset,
        config=config,
        settings=_with_budget(settings, minutes, steps, epochs),
    )
    return run_distillation(
        teacher,
        run,
        request,
        keep_original=keep_original,
        beam=beam,
        options=_loading(options, to, quiet),
        where=Where(on=on, workers=workers),
        reporter=make_reporter(quiet, verbose),
    )


def backtranslate(
    model: str | Path,
    lines: Iterable[str],
    folder: str | Path,
    *,
    to: str = "",
    beam: int | None = None,
    sampling: bool = False,
    seed: int = 1,
    options: LoadOptions | None = None,
    on: Literal["local", "ray"] = "local",
    workers: int = 0,
    quiet: bool = False,
) -> "Made":
    """Make training pairs from monolingual text with a model that translates from target to source language.

    The work is saved in parts; call it again with the same arguments to resume.

    Args:
        model: The run folder of a model that translates from the target language to the source language.
        lines: Lines of the target language.
        folder: Where to write made.txt (the sources) and given.txt (the targets).
        to: The language of the sources, for a model that translates into several.
        beam: Beam size.
        sampling: Sample the sources instead of searching for the best ones.
        seed: Another seed gives other samples.
        options: How to load the model.
        on: Where to translate, as in `batch`.
        workers: Processes or actors of Ray, as in `batch`.
        quiet: Print nothing.

    Returns:
        The two files, the number of pairs, and the number of lines left out because one side was empty.

    Example:
        >>> made = transduce.backtranslate("runs/de-en", open("mono.de"), "backtranslated")
        >>> transduce.train("runs/en-de", train=[("train.en", "train.de"), (made.made, made.given)])
    """
    tune_idle_threads()
    from transduce.batch_translation import Where
    from transduce.synthesis import backtranslate as run_backtranslation

    return run_backtranslation(
        model,
        (line.rstrip("\r\n") for line in lines),
        folder,
        beam=beam,
        sampling=sampling,
        seed=seed,
        options=_loading(options, to, quiet),
        where=Where(on=on, workers=workers),
    )


def average(runs: Sequence[str | Path], folder: str | Path, *, weights: Weights = "auto") -> Path:
    """Write a new model folder with the mean of the weights of several models of one shape and vocabulary.

    Example:
        >>> transduce.average(["runs/a", "runs/b"], "runs/mean")
        PosixPath('runs/mean')
    """
    tune_idle_threads()
    from transduce.averaging import average as write_average

    return write_average(runs, folder, weights)


def shortlist(run: str | Path, train: Files | None = None, *, threads: int = 0, quiet: bool = False) -> Path:
    """Write a lexical shortlist for a model, with which `load(run, shortlist=True)` translates faster on CPUs.

    Args:
        run: A run folder.
        train: Pairs to learn the shortlist from; by default the training data of the run.
        threads: CPU threads; 0 means one for each core.
        quiet: Print nothing.

    Returns:
        The file that was written, `RUN/shortlist.txt`.

    Example:
        >>> transduce.shortlist("runs/en-de")
        PosixPath('runs/en-de/shortlist.txt')
    """
    tune_idle_threads()
    from transduce.shortlisting import make_shortlist

    say = _reporting(quiet)
    with TemporaryDirectory() as scratch:
        pairs = without_pipes(groups_of(train), Path(scratch))
        return make_shortlist(run, pairs, options=LoadOptions(engine="torch", threads=threads, say=say), say=say)


def ngram(
    run: str | Path,
    texts: Sequence[str | Path] = (),
    *,
    order: int = 3,
    lexicon: str | Path = "",
    arpa: str | Path = "",
    valid: Files | None = None,
    tune: bool = True,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    threads: int = 0,
    quiet: bool = False,
) -> "WordModel":
    """Give a speech model an n-gram model of words, with which `load(run, ngram=True)` writes fewer wrong words.

    Args:
        run: The run folder of a speech model.
        texts: Plain text or manifests to learn from; by default the transcripts that the run was trained on.
        order: The longest n-grams.
        lexicon: A file with the words that may be written, one per line; by default any word.
        arpa: A finished n-gram model to use instead of learning one.
        valid: Manifests to tune the weights on; by default the validation data of the run.
        tune: Whether to tune the weights.
        device: Where they are tuned; "auto" is a GPU if there is one.
        threads: CPU threads; 0 means one for each core.
        quiet: Print nothing.

    Returns:
        The file that was written, the weights, and the word error rate that they reached.

    Example:
        >>> transduce.ngram("runs/iban", lexicon="lexicon.txt").weights
        WordWeights(lm_weight=0.6, word_bonus=1.0, ctc_weight=0.4, prefixes=60)
    """
    tune_idle_threads()
    from transduce.word_models import make_word_model

    options = LoadOptions(engine="torch", device=device, threads=threads, say=_reporting(quiet))
    return make_word_model(
        run, [str(text) for text in texts], order=order, lexicon=lexicon, arpa=arpa, valid=groups_of(valid), tuned=tune,
        options=options, say=options.say,
    )  # fmt: skip


# --- keeping track of runs ---------------------------------------------------------------------------------------


def runs(folder: str | Path = ".") -> "list[RunStatus]":
    """The runs in and below a folder: data, size, progress, best score with its signature, state and disk space.

    A run that cannot be read is listed with the state "broken" and the reason.

    Example:
        >>> [(run.run, run.state, run.score) for run in transduce.runs("runs")]
        [('runs/en-de', 'finished', 37.9)]
    """
    from transduce.tracking import list_runs

    return list_runs(folder)


def run_difference(one: str | Path, other: str | Path, *, picture: str | Path = "") -> "RunDifference":
    """The settings and the data in which two runs differ.

    Args:
        one: A run folder.
        other: Another run folder.
        picture: Also draw the learning curves of both runs to this .png, .pdf or .svg file.

    Example:
        >>> transduce.run_difference("runs/a", "runs/b", picture="curves.png").settings
        {'model.dropout': (0.1, 0.3)}
    """
    from transduce.explore import check_picture_path
    from transduce.tracking import draw_difference
    from transduce.tracking import run_difference as compare_runs

    path = check_picture_path(picture) if picture else None
    found = compare_runs(one, other)
    if path is not None:
        draw_difference(one, other, path)
    return found


def clean(
    folder: str | Path = ".",
    *,
    checkpoints: bool = False,
    agree: "Callable[[Cleaning], bool] | None" = None,
) -> "Cleaning":
    """Find what the cache and the runs under a folder hold that no run needs, and remove it if `agree` returns True.

    Args:
        folder: The folder of the runs. Runs elsewhere that have used the cache keep what they need too.
        checkpoints: Include the last checkpoints of finished runs, which are needed only to train them further.
        agree: Called with what was found, if anything can be removed. Without it, nothing is removed.

    Returns:
        What the cache and the checkpoints take, what can be removed, and what was removed.

    Example:
        >>> transduce.clean("runs", agree=lambda found: True).removed
    """
    from transduce.tracking import clean as clean_runs

    return clean_runs(folder, checkpoints=checkpoints, agree=agree or (lambda found: False))


def report() -> dict[str, Any]:
    """The versions, processors and settings of the environment that matter for a bug report, without paths and names.

    Example:
        >>> transduce.report()["torch"]
        '2.13.0'
    """
    tune_idle_threads()
    from transduce.environment import environment

    return environment()


# --- other toolkits, and other programs --------------------------------------------------------------------------


def export(
    run: str | Path,
    folder: str | Path,
    to: Literal["hf", "ct2", "onnx"],
    *,
    weights: Weights = "auto",
    sample: str | Path = "",
    threads: int = 0,
    quiet: bool = False,
) -> "Verified | VerifiedText":
    """Export a model for Hugging Face transformers, CTranslate2 or onnxruntime.

    The export is kept only if the other runtime gives the same logits and translations on sample sentences, or, for a
    language model, the same logits and continuations on sample texts.

    Args:
        run: A run folder.
        folder: The folder to create.
        to: "hf", "ct2" or "onnx"; each needs the extra of its name, as in `pip install "transduce[hf]"`.
        weights: Which weights of the run.
        sample: A file of source lines, or of text, to compare on; by default the validation data of the run.
        threads: CPU threads; 0 means one for each core.
        quiet: Print no messages to stderr.

    Returns:
        What was compared, and how far the runtimes differed.

    Example:
        >>> transduce.export("runs/en-de", "exported", "hf").summary()
    """
    tune_idle_threads()
    from transduce.exchange import export_model

    return export_model(run, folder, to, weights=weights, sample=str(sample), threads=threads, say=_reporting(quiet))


def import_model(source: str | Path, run: str | Path) -> "Taken":
    """Convert a Marian model, in Hugging Face's or in Marian's own format, to a run folder.

    Example:
        >>> transduce.import_model("opus-mt-en-de", "runs/opus-en-de").notes
    """
    tune_idle_threads()
    from transduce.exchange import import_model as write_imported

    return write_imported(source, run)


def serve(
    models: Sequence[str],
    *,
    host: str = "127.0.0.1",
    port: int = 5000,
    allowed_hosts: Sequence[str] = (),
    keys: str | Path = "",
    open: bool = False,
    replicas: int = 1,
    batch_lines: int = 16,
    queue_requests: int = 128,
    characters: int = 50_000,
    generated_tokens: int = 4_096,
    audio_bytes: int = 25_000_000,
    audio_seconds: float = 600.0,
    audio_types: Sequence[str] = TYPES,
    uploads: int = 16,
    options: LoadOptions | None = None,
) -> NoReturn:
    """Serve models over HTTP until SIGTERM or Ctrl-C, then end the process. Needs the extra `transduce[serve]`.

    Args:
        models: Run folders, or `SOURCE-TARGET=FOLDER` as in "en-de=runs/mine". Language models and speech models: `NAME=FOLDER`.
        host: The address to listen on.
        port: The port to listen on.
        allowed_hosts: Host names under which clients reach the server, besides localhost and IP addresses.
        keys: A file of API keys; only requests with a key are then answered.
        open: Accept requests from other machines without keys.
        replicas: How many servers a proxy divides the requests among; each admits its share of a key's rate.
        batch_lines: The maximum number of lines in a batch.
        queue_requests: The maximum number of requests at a time; further ones are refused.
        characters: The maximum number of characters in the texts of a request.
        generated_tokens: The maximum number of tokens that a language model generates for a request.
        audio_bytes: The maximum size of a recording.
        audio_seconds: The maximum length of a recording.
        audio_types: The accepted types of recordings, of "wav", "flac", "ogg" and "mp3".
        uploads: The maximum number of recordings in memory at a time; further ones are refused.
        options: How to load the models.

    Example:
        >>> transduce.serve(["runs/en-de"], port=8080)
    """
    _require("fastapi", "granian", "prometheus_client", extra="serve")
    tune_idle_threads()
    from transduce.server.running import serve as run_server
    from transduce.server.settings import ServerSettings

    settings = ServerSettings(
        host=host,
        port=port,
        allowed_hosts=tuple(allowed_hosts),
        keys=str(keys),
        open=open,
        replicas=replicas,
        batch_lines=batch_lines,
        queue_requests=queue_requests,
        characters=characters,
        generated_tokens=generated_tokens,
        audio_bytes=audio_bytes,
        audio_seconds=audio_seconds,
        audio_types=tuple(audio_types),
        uploads=uploads,
    )
    run_server(models, settings, options or LoadOptions())


# --- shared by the functions above -------------------------------------------------------------------------------


def _opened(model: Model, to: str = "", lm: str | Path = "", lm_weight: float = LM_WEIGHT) -> Translator:
    if lm and isinstance(model, Translator):
        raise SettingError("a translator keeps the language model it was loaded with: call load(RUN, lm=...)")
    translator = model if isinstance(model, Translator) else load(model, lm=lm, lm_weight=lm_weight, lazy=True)
    return translator.to(to) if to else translator


def _loading(options: LoadOptions | None, to: str, quiet: bool) -> LoadOptions:
    """The options with this target language, if there is one."""
    given = options or LoadOptions()
    return replace(given, to=to or given.to, say=_say_nothing if quiet else given.say)


def _reporting(quiet: bool) -> Say:
    return _say_nothing if quiet else say_to_stderr


def _say_nothing(text: str) -> None:
    pass


def _with_budget(settings: "Settings | None", minutes: float | None, steps: int | None, epochs: float | None) -> Layers:
    """The settings with the budget, which takes precedence."""
    given = {"minutes": minutes, "steps": steps, "epochs": epochs}
    for name, value in given.items():
        if value is not None and not value > 0:
            raise SettingError(f"{name} = {value:g}: must be more than 0")
    layer = settings_layer(settings or ())
    layer.setdefault("train", {}).update({name: value for name, value in given.items() if value is not None})
    return layer


def _require(*packages: str, extra: str) -> None:
    for package in packages:
        if find_spec(package) is None:
            raise MissingExtra(package, extra)
