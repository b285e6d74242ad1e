"""Translating corpora of any size: in shards, on several processes, a Ray cluster or a SLURM array, and always resumable.

A manifest lists the inputs and cuts them into shards. A worker translates one shard at a time and renames its file when
it is complete, so that the files in the folder are the only record of what is done:

    formats     what a format of files is; `kinds` chooses one: `line_formats` or `parquet`
    manifest    what is translated, by which model, and how
    folder      the files of the output folder
    worker      one shard: read, translate, count, rename
    schedule    which shards are left, and which have failed too often
    progress    progress messages
    run         a whole command: the manifest, then workers for what is left
    local       workers in this process, or in processes of their own (`worker_process`)
    on_ray      workers in the actors of a Ray cluster
    finished    verifying and joining what was written
    tables      the same translations inside Ray Data and Spark
"""

from transduce.batch_translation.finished import Verification, collect, damaged_shards, verify
from transduce.batch_translation.folder import BatchFolder
from transduce.batch_translation.manifest import BatchRequest, Manifest, make_manifest
from transduce.batch_translation.run import BatchResult, Where, translate_corpus
from transduce.batch_translation.schedule import Failure
from transduce.batch_translation.tables import TableTranslator

__all__ = [
    "BatchFolder",
    "BatchRequest",
    "BatchResult",
    "Failure",
    "Manifest",
    "TableTranslator",
    "Verification",
    "Where",
    "collect",
    "damaged_shards",
    "make_manifest",
    "translate_corpus",
    "verify",
]
