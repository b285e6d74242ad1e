"""From files of pairs to a memory-mapped store of ids. (`batches` is imported by name: it needs torch.)"""

from transduce.data.cache import cache_folder
from transduce.data.corpus import Block, Corpus, groups_from_setting, groups_to_setting, read_pairs, with_stdin_in
from transduce.data.mixing import Mixture
from transduce.data.scanning import Scan, Side, scan
from transduce.data.store import EVERYTHING, Report, Rules, Store, open_or_build
from transduce.data.vocabularies import learn_vocabularies

__all__ = [
    "EVERYTHING",
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
    "open_or_build",
    "read_pairs",
    "scan",
    "with_stdin_in",
]
