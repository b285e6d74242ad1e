"""From files of pairs to a memory-mapped store of ids, and from the store to batches.

`batches`, `packing` and `pages` are not imported here: they need torch.
"""

from transduce.data.cache import cache_folder, remember_run
from transduce.data.checks import warnings as data_warnings
from transduce.data.corpus import (
    READ_ERRORS,
    Corpus,
    Group,
    PairBlock,
    iconv_command,
    is_manifest,
    is_table,
    open_bytes,
    read_lines,
    read_pairs,
    unreadable,
)
from transduce.data.inputs import (
    Files,
    absolute_setting,
    find,
    found_setting,
    groups_from_setting,
    groups_of,
    groups_to_setting,
    paths_of,
    without_pipes,
)
from transduce.data.layout import describe as describe_columns
from transduce.data.layout import infer_columns
from transduce.data.mixing import Mixture
from transduce.data.scanning import EmptyCorpus, Scan, SideStatistics, scan
from transduce.data.store import Report, Rules, Store, open_or_build
from transduce.data.text_corpus import TextCorpus
from transduce.data.text_windows import TextWindows
from transduce.data.vocabularies import learn_vocabularies
from transduce.data.windows import Windows

__all__ = [
    "READ_ERRORS",
    "Corpus",
    "EmptyCorpus",
    "Files",
    "Group",
    "Mixture",
    "PairBlock",
    "Report",
    "Rules",
    "Scan",
    "SideStatistics",
    "Store",
    "TextCorpus",
    "TextWindows",
    "Windows",
    "absolute_setting",
    "cache_folder",
    "data_warnings",
    "describe_columns",
    "find",
    "found_setting",
    "groups_from_setting",
    "groups_of",
    "groups_to_setting",
    "iconv_command",
    "infer_columns",
    "is_manifest",
    "is_table",
    "learn_vocabularies",
    "open_bytes",
    "open_or_build",
    "paths_of",
    "read_lines",
    "read_pairs",
    "remember_run",
    "scan",
    "unreadable",
    "without_pipes",
]
