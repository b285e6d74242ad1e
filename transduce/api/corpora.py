"""Translating files of any size, in shards."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from transduce.api.options import loading_options
from transduce.cores import tune_idle_threads
from transduce.translator import LoadOptions, SearchRequest, open_folder

if TYPE_CHECKING:
    from transduce.batch_translation import BatchResult, Verification


def batch(
    run: str | Path,
    inputs: str | Path | Sequence[str | Path],
    output: str | Path,
    *,
    columns: str = "",
    into: str = "translation",
    to: str = "",
    beam: int | None = None,
    alpha: float | None = None,
    request: SearchRequest | None = None,
    shard_lines: int = 100_000,
    on: Literal["local", "ray"] = "local",
    workers: int = 0,
    shard: int = 0,
    shards: int = 1,
    prepare_only: bool = False,
    options: LoadOptions | None = None,
    quiet: bool = False,
) -> "BatchResult":
    """Translate files of any size to a folder, in shards. Call it again with the same arguments to resume.

    Each shard is written to its own file, which gets its final name when it is complete. Every line is therefore translated exactly
    once, in order, even if processes die. `collect_batch` joins the shards.

    Args:
        run: The run folder of the model.
        inputs: Files of one format, or patterns such as "crawl/*.gz": plain text, TSV, JSONL (compressed or not) or parquet.
        output: The folder for the shards. A folder that was begun with another model, inputs or options is refused.
        columns: For tables, the column to translate: "source=2", "source=text" or "source=word,features=tags".
        into: For tables, the column to add.
        to: The target language, for models that translate into several.
        beam: Beam size; 1 is greedy search. By default the setting of the model.
        alpha: Strength of the length penalty.
        request: All search settings at once.
        shard_lines: Lines per shard. A worker that dies loses at most its current shard.
        on: "ray" runs on a Ray cluster, which needs the extra `transduce[ray]`.
        workers: Processes, or actors of Ray. 0 is one for each GPU; without several GPUs, this process translates.
        shard: The number of this task, from 0, among `shards` tasks that share the work without communicating.
        shards: The number of such tasks, as in a SLURM array.
        prepare_only: Write the manifest, and translate nothing.
        options: How to load the model. Its `threads` are those of each worker; 0 divides the cores between the workers.
        quiet: Print nothing.

    Returns:
        The shards and lines that are finished, and the shards that failed three times, with the reasons.

    Example:
        >>> result = transduce.batch("runs/de-en", "crawl/*.gz", "translated", workers=8)
        >>> result.failures
        []
        >>> transduce.collect_batch("translated", "crawl.en.gz")
        12000000
    """
    tune_idle_threads()
    from transduce.batch_translation import BatchRequest, Where, translate_corpus

    wanted = BatchRequest(
        run=run,
        inputs=[inputs] if isinstance(inputs, str | Path) else inputs,
        columns=columns,
        into=into,
        shard_rows=shard_lines,
        search=_search(run, request, beam, alpha),
        options=loading_options(options, to, quiet),
    )
    return translate_corpus(
        wanted, output, Where(on=on, workers=workers, task=shard, tasks=shards, prepare_only=prepare_only)
    )


def _search(run: str | Path, request: SearchRequest | None, beam: int | None, alpha: float | None) -> SearchRequest:
    return (request or SearchRequest.of(open_folder(run).config.search)).but(beam=beam, alpha=alpha)


def verify_batch(output: str | Path) -> "Verification":
    """Count the lines of every shard in a folder again, and compare all hashes, those of the inputs too.

    Example:
        >>> transduce.verify_batch("translated").is_complete
        True
    """
    from transduce.batch_translation import verify

    return verify(output)


def collect_batch(output: str | Path, file: str | Path) -> int:
    """Join the shards of a folder in one file, in the order of the inputs. The file may end in .gz, .xz or .bz2.

    Returns:
        The number of lines.

    Example:
        >>> transduce.collect_batch("translated", "crawl.en.gz")
        12000000
    """
    from transduce.batch_translation import collect

    return collect(output, file)
