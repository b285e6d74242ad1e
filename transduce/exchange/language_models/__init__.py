"""Export of language models: Hugging Face transformers and CTranslate2."""

from transduce.exchange.language_models.exporting import FORMATS, export_language_model
from transduce.exchange.language_models.verification import VerifiedText

__all__ = ["FORMATS", "VerifiedText", "export_language_model"]
