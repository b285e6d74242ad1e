"""Models to and from other toolkits: Hugging Face transformers, ONNX, Marian. An edge: nothing but `cli` imports it."""

from transduce.exchange.exporting import FORMATS, export_model
from transduce.exchange.importing import Taken, import_model
from transduce.exchange.verification import Verified

__all__ = ["FORMATS", "Taken", "Verified", "export_model", "import_model"]
