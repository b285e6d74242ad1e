"""Word n-gram language models: estimated from text, and kept as ARPA files, the format that other toolkits read and write."""

from transduce.ngrams.arpa import read_arpa, write_arpa
from transduce.ngrams.estimation import estimate
from transduce.ngrams.model import BEGIN, END, UNKNOWN_WORD, NgramModel

__all__ = ["BEGIN", "END", "UNKNOWN_WORD", "NgramModel", "estimate", "read_arpa", "write_arpa"]
