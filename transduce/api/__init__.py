"""The public functions: every command of the command line as a Python function, importable from `transduce`.

Functions that take a model accept a run folder or a `Translator` that `load` returned. Importing this module does not import
torch; the first call that needs torch does.
"""

from transduce.api.corpora import batch, collect_batch, verify_batch
from transduce.api.derived import average, ngram, shortlist
from transduce.api.exchange import export, import_model, serve
from transduce.api.language_models import generate, load_language_model, score_text
from transduce.api.models import attention, load, score, translate
from transduce.api.scoring import compare, evaluate, tune_reranker
from transduce.api.synthesis import backtranslate, distill
from transduce.api.tracking import clean, report, run_difference, runs
from transduce.api.training import doctor, plan, train
from transduce.batch_translation.tables import TableTranslator
from transduce.translator import LoadOptions, SearchRequest, Translator

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
