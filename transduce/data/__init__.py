"""From files of pairs to a memory-mapped store of ids. (`batches` is imported by name: it needs torch.)"""

from transduce.data.cache import cache_folder
from transduce.data.corpus import (
    READ_ERRORS,
    Block,
    Corpus,
    groups_from_setting,
    groups_to_setting,
    open_bytes,
    read_pairs,
    unreadable,
    with_stdin_in,
)
from transduce.data.mixing import Mixture
from transduce.data.scanning import Scan, Side, scan
from transduce.data.store import EVERYTHING, Report, Rules, Store, open_or_build
from transduce.data.vocabularies import learn_vocabularies

__all__ = [
    "EVERYTHING",
    "READ_ERRORS",
    "Block",
    "Corpus",
    "Mixture",
    "Report",
    "Rules",
    "Scan",
    "Side",
    "Store",
    "cache_folder",
    "groups_from_setting",
    "groups_to_setting",
    "learn_vocabularies",
    "open_bytes",
    "open_or_build",
    "read_pairs",
    "scan",
    "unreadable",
    "with_stdin_in",
]
