"""Transduce: the Transformer of "Attention Is All You Need", from pairs of sequences to a translator.

    import transduce
    transduce.train("runs/en-de", train=("train.en", "train.de"), valid=("valid.en", "valid.de"))
    transduce.load("runs/en-de").translate(["a sentence"])

`import transduce` is quick: the functions below are imported from `transduce.api` when they are first used, and torch
when it is first needed.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transduce.api import (
        LoadOptions,
        SearchRequest,
        TableTranslator,
        Translator,
        attention,
        average,
        backtranslate,
        batch,
        clean,
        collect_batch,
        compare,
        distill,
        doctor,
        evaluate,
        export,
        generate,
        import_model,
        load,
        load_language_model,
        ngram,
        plan,
        report,
        run_difference,
        runs,
        score,
        score_text,
        serve,
        shortlist,
        train,
        translate,
        tune_reranker,
        verify_batch,
    )

__version__ = "0.1.0"
__all__ = [
    "LoadOptions",
    "SearchRequest",
    "TableTranslator",
    "Translator",
    "__version__",
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


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'transduce' has no attribute {name!r}")
    from transduce import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
