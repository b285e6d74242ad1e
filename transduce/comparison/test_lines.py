"""The test set of a comparison: its sentences, their lines in the files, their labels, and the metrics of the task.

Knows files and the settings of a run, not outputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transduce.comparison.request import CompareRequest
from transduce.config import Config, DataConfig
from transduce.data import Corpus, describe_columns, is_table, read_lines, read_pairs
from transduce.data.recorded_pairs import check_recordings
from transduce.errors import DataError, SettingError
from transduce.metrics import PRONUNCIATION_METRICS, SACREBLEU, are_phonemes, bleu_tokenizer, translation_metrics
from transduce.translator.evaluation import TaskMetrics, TestSet, merges_references, task_metrics


@dataclass(frozen=True)
class TestLines:
    """A test set as its files have it, and as it is scored."""

    __test__ = False  # tells pytest that this is not a class of tests

    test: TestSet
    lines: int  # in the files; more than sentences if equal sources were merged
    first: list[int]  # for each sentence, the index of its first line
    labels: list[str]  # of each sentence; empty without labels
    task: TaskMetrics

    def outputs_of(self, path: Path) -> list[str]:
        """The outputs in a file, one for each sentence."""
        found = _read_all(path, self.lines, "output")
        return [found[index] for index in self.first]


def read_test_lines(request: CompareRequest, config: Config | None) -> TestLines:
    """Read the test set in the format of a run, and score it as one would its outputs; without a run, by what it looks like."""
    sources, references = _read_files(request, config)
    merged = _merges(config, sources, references, request.merge)
    test = TestSet.of(sources, *references, merged=merged)
    first_index = {source: index for index, source in reversed(list(enumerate(sources)))}
    first = [first_index[source] for source in test.sources] if test.merged else list(range(len(sources)))
    labels = _read_all(Path(request.labels), len(sources), "label") if request.labels else []
    return TestLines(
        test, len(sources), first, [labels[n] for n in first] if labels else [], _task(config, test, request)
    )


def _read_files(request: CompareRequest, config: Config | None) -> tuple[list[str], list[list[str]]]:
    """The sources and each list of references: of text files, or of one table that has both sides."""
    data = config.data if config else DataConfig()
    if request.columns:
        data = replace(data, columns=tuple(request.columns))
    if request.references:
        sources = read_lines(str(request.source))
        references = [_read_all(Path(path), len(sources), "reference") for path in request.references]
    elif is_table(str(request.source)):
        corpus = Corpus.of(((str(request.source),),), data)
        if data.task == "speech":
            check_recordings(corpus)
        for line in describe_columns(corpus):
            request.say(line)
        sources, targets = read_pairs(corpus)
        references = [targets]
    else:
        raise SettingError(f"{request.source}: add --reference FILE, or give a .tsv or .jsonl file that has both sides")
    if not sources:
        raise DataError(f"{request.source}: the test set is empty")
    return sources, references


def _read_all(path: Path, lines: int, what: str) -> list[str]:
    found = read_lines(str(path))
    if len(found) != lines:
        raise DataError(f"{path}: {len(found):,} lines, but the source has {lines:,}: give one {what} for each line")
    return found


def _merges(config: Config | None, sources: Sequence[str], references: Sequence[Sequence[str]], asked: str) -> bool:
    if config:
        return merges_references(config, sources, asked)
    return asked == "merged" or (asked == "auto" and _is_dictionary(sources, references))


def _is_dictionary(sources: Sequence[str], references: Sequence[Sequence[str]]) -> bool:
    """Whether the sources are single words and the references phonemes."""
    return all(len(source.split()) <= 1 for source in sources) and are_phonemes(references)


def _task(config: Config | None, test: TestSet, request: CompareRequest) -> TaskMetrics:
    """The metrics of the task, unless others are asked for."""
    language = (
        request.language or request.options.to or (config.data.languages[1] if config and config.data.languages else "")
    )
    if config:
        task = replace(task_metrics(config, test), language=language)
    elif _is_dictionary(test.sources, test.references):
        task = TaskMetrics(PRONUNCIATION_METRICS, language, "word")
    else:
        units = "word" if bleu_tokenizer(language) == "13a" else "char"
        task = TaskMetrics(translation_metrics(language, test.references), language, units)  # type: ignore[arg-type]
    return replace(task, names=tuple(request.metrics)) if request.metrics else task


def is_text(task: TaskMetrics) -> bool:
    """Whether the outputs are running text, which sacreBLEU scores."""
    return bool(set(task.names) & set(SACREBLEU))
