"""Import and export of models: Hugging Face transformers, ONNX, CTranslate2 and Marian."""

from transduce.exchange.exporting import FORMATS, export_model
from transduce.exchange.importing import ImportSummary, import_model
from transduce.exchange.language_models import VerifiedText
from transduce.exchange.verification import Verified

__all__ = ["FORMATS", "ImportSummary", "Verified", "VerifiedText", "export_model", "import_model"]
