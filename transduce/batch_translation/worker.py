"""A worker: reads one shard, translates it, counts what it wrote and gives the file its name.

The same code runs in this process, in a process of its own, in an actor of Ray and in a task of a SLURM array. It needs
the output folder with its manifest, and a translator. Knows nothing of other workers.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter

from transduce.batch_translation.folder import BatchFolder, process_name, write_errors
from transduce.batch_translation.formats import Format, Range, Rows
from transduce.batch_translation.manifest import Manifest, Shard, model_hash
from transduce.errors import DataError, RunError, UnreadableFile
from transduce.translator import SearchRequest, Translation, Translator
from transduce.translator.engines import Say

Advanced = Callable[[int], None]  # told how many more rows are written


@dataclass
class Counts:
    """What a user should know about the rows of a shard, as counts; the names are those of the notices of `transduce translate`."""

    cut: int = 0
    outputs_at_limit: int = 0
    unknown: int = 0
    newlines: int = 0
    empty: int = 0
    undecodable: int = 0

    def add(self, translation: Translation) -> None:
        self.cut += translation.cut > 0
        self.outputs_at_limit += translation.outputs_at_limit
        self.unknown += translation.unknown
        self.newlines += translation.newlines
        self.empty += bool(translation.source.strip()) and not translation.outputs


@dataclass(frozen=True)
class ShardReport:
    """What a worker did with a shard."""

    shard: int
    rows: int
    seconds: float
    counts: dict[str, int] = field(default_factory=dict)


class ShardError(Exception):
    """A shard that could not be translated, with the line that caused it if one line did."""


def would_repeat(error: Exception) -> bool:
    """Whether every further attempt would fail in the same way: the input itself is wrong."""
    return isinstance(error, DataError) and not isinstance(error, UnreadableFile)


class Worker:
    """Translates the shards of one folder."""

    def __init__(self, folder: BatchFolder, manifest: Manifest, translator: Translator) -> None:
        self.folder, self.manifest, self.translator, self.format = folder, manifest, translator, manifest.format

    @staticmethod
    def open(path: str | Path, threads: int, say: Say) -> "Worker":
        """Load the model that the manifest in this folder names; a model that has changed since is refused."""
        folder = BatchFolder(Path(path))
        manifest = folder.manifest()
        options = manifest.load_options(threads, say)
        if model_hash(manifest.run, options) != manifest.model:
            raise RunError(f"{manifest.run}: the model has changed since {folder.manifest_file} was written")
        translator = Translator.load(manifest.run, options)
        return Worker(folder, manifest, translator.ready(SearchRequest(**manifest.search)))

    def translate(self, number: int, advanced: Advanced = lambda rows: None) -> ShardReport:
        """Write the file of a shard. Whatever goes wrong leaves no file under its final name."""
        shard, begun = self.manifest.shards[number], perf_counter()
        self._check_input(shard)
        temporary, counts = self.folder.temporary(number, process_name()), Counts()
        try:
            self._write(shard, temporary, counts, advanced)
            with write_errors():
                self._finish(shard, temporary)
        finally:
            temporary.unlink(missing_ok=True)
        return ShardReport(number, shard.rows, perf_counter() - begun, asdict(counts))

    def _check_input(self, shard: Shard) -> None:
        given = self.manifest.inputs[shard.input]
        try:
            size = Path(given.path).stat().st_size
        except OSError as error:
            raise UnreadableFile(f"{given.path}: cannot be read: {(error.strerror or '').lower()}") from None
        if size != given.bytes:
            raise DataError(f"{given.path}: has {size:,} bytes, but had {given.bytes:,} when the batch began")

    def _finish(self, shard: Shard, path: Path) -> None:
        """Count the rows and name the file, unless another attempt was faster and has removed it."""
        try:
            if (found := self.format.count(path)) != shard.rows:
                raise ShardError(f"the shard has {shard.rows:,} lines, but {found:,} were written")
            self.folder.finish(shard.number, path, self.format.ending)
        except FileNotFoundError:
            if not self.folder.is_finished(shard.number):
                raise

    def _write(self, shard: Shard, path: Path, counts: Counts, advanced: Advanced) -> None:
        with write_errors():
            file = path.open("wb")
        with file:
            writer = self.format.writer(file)
            for rows, translations in self._translated(shard, counts):
                with write_errors():
                    writer.write(rows.kept, translations)
                    file.flush()  # a dead worker's file tells how far it came
                advanced(len(translations))
            with write_errors():
                writer.close()

    def _translated(self, shard: Shard, counts: Counts) -> Iterator[tuple[Rows, list[str]]]:
        """The rows of a shard with their translations, as they were read. An engine reads a few blocks ahead."""
        waiting: deque[Rows] = deque()
        request, texts = self.manifest.search_request(shard), Source(self.format, waiting)
        translations: list[str] = []
        stream = self.translator.stream(texts.of(self.manifest.range(shard)), request)
        while True:
            try:
                translation = next(stream, None)
            except (DataError, RunError, MemoryError):
                raise
            except Exception as error:
                raise self._blamed(error, shard, texts, request) from error
            if translation is None:
                return
            counts.add(translation)
            translations.append(translation.text)
            if len(translations) == len(waiting[0].texts):
                counts.undecodable += waiting[0].undecodable
                yield waiting.popleft(), translations
                texts.passed += len(translations)
                translations = []

    def _blamed(self, error: Exception, shard: Shard, texts: "Source", request: SearchRequest) -> ShardError:
        """The error, with the line that fails on its own if there is one."""
        pending = [text for rows in texts.waiting for text in rows.texts]
        reason = f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
        found = self._culprit(pending, request)
        place = self.manifest.place(shard.number, texts.passed + (found or 0))
        if found is None:
            return ShardError(f"{place}: {reason}, at or after this line")
        return ShardError(f"{place}: {reason}: {pending[found][:100]!r}")

    def _culprit(self, texts: Sequence[str], request: SearchRequest) -> int | None:
        """The index of a text that cannot be translated alone, by halving; None if each half can be translated."""
        begin, end = 0, len(texts)
        while end - begin > 1:
            middle = (begin + end) // 2
            if self._fails(texts[begin:middle], request):
                end = middle
            elif self._fails(texts[middle:end], request):
                begin = middle
            else:
                return None
        return begin if texts and self._fails(texts[begin:end], request) else None

    def _fails(self, texts: Sequence[str], request: SearchRequest) -> bool:
        try:
            self.translator.translate(texts, request)
        except Exception:
            return True
        return False


class Source:
    """Hands the texts of a range to a translator, and keeps the rows that are not translated yet."""

    def __init__(self, form: Format, waiting: deque[Rows]) -> None:
        self.format, self.waiting, self.passed = form, waiting, 0

    def of(self, part: Range) -> Iterator[str]:
        for rows in self.format.read(part):
            self.waiting.append(rows)
            yield from rows.texts
