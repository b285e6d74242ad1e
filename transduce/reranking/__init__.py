"""Reranking: n-best lists ordered by a translator, a language model, a reverse model and the length together.

`tuning` chooses the weights on validation data and writes them to a small file; `RerankingTranslator` reads it and translates.
Only `api` imports this package.
"""

from transduce.reranking.reranker import RerankingTranslator
from transduce.reranking.tuning import TuningRequest, tune
from transduce.reranking.weights import RerankFile, Weights

__all__ = ["RerankFile", "RerankingTranslator", "TuningRequest", "Weights", "tune"]
