"""The commands that measure and inspect a model: evaluate, score, attention."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from transduce import api
from transduce.checkpoint import read_about
from transduce.cli.arguments import Options, announce_progress, load, print_json, search_request
from transduce.cli.decoding import Decoding
from transduce.cli.generating import score_text
from transduce.cli.line_display import shown_lines
from transduce.cli.notices import Notices
from transduce.config import DataConfig
from transduce.data import Corpus, Group, describe_columns, is_manifest, read_pairs, without_pipes
from transduce.data.manifests import look_like_recordings
from transduce.errors import DataError, RunError, SettingError
from transduce.files import check_place, write_result
from transduce.translator import Translator, open_folder
from transduce.translator.engines import say_to_stderr
from transduce.translator.file_order import unrelated_warning

if TYPE_CHECKING:
    from transduce.data.recorded_pairs import Places
    from transduce.translator.evaluation import Evaluation
    from transduce.translator.language_model import LanguageModel

FULL_PRECISION: dict[str, Any] = {"engine": "torch", "shortlist": False, "quantization": "int8"}  # ct2 options unused


def evaluate(options: Options) -> int:
    _check_output(options)
    files = read_test_set(options)
    announce_progress(options)
    results, decoded = {}, {}
    for engine in ("torch", "ct2") if options.engine == "both" else (options.engine,):
        compared = FULL_PRECISION if (engine, options.engine) == ("torch", "both") else {"engine": engine}
        translator = load(options, **compared)
        results[engine] = _evaluate(translator, files, options)
        decoded[engine] = Decoding.of(translator, options)
    first, how = next(iter(results.values())), next(iter(decoded.values()))
    notices = Notices(translator)
    are_lines = _are_lines(options) and len(first.sources) == len(files.sources)  # none was merged
    (notices.add_numbered if are_lines else notices.add_all)(first.translations).print()
    _report_merged(len(files.sources) - len(first.sources))
    if warning := first.order_warning or _unrelated_warning(first, how, options):
        say_to_stderr(warning)
    if options.output:
        outputs = first.outputs_for(files.sources)
        write_result(options.output, "".join(f"{text}\n" for text in outputs))
    if options.engine == "both":
        _print_both(results, decoded, options)
    elif options.json:
        print_json(_report(first, how))
    else:
        _print_evaluation(first, how, options, "recording" if translator.reads_speech else "sentence")
    return 0


def _unrelated_warning(evaluation: "Evaluation", how: Decoding, options: Options) -> str:
    opened = open_folder(options.run)
    about = read_about(opened.folder.weights(how.weights))
    if opened.config.data.task != "translation" or "score" not in about:
        return ""
    scores = {score.name: score.value for score in evaluation.scores.all}
    return unrelated_warning(evaluation.sentences, scores, about.get("metric", ""), float(about["score"]))


def _are_lines(options: Options) -> bool:
    """Whether the number of a pair is that of its line: a table may have a header, or blank lines that are skipped."""
    return len(options.files) > 1


def _check_output(options: Options) -> None:
    if options.output and options.engine == "both":
        raise SettingError("--output needs one engine: choose it with --engine torch or --engine ct2")
    if options.output:
        check_place(options.output)


def _evaluate(translator: Translator, files: "TestFiles", options: Options) -> "Evaluation":
    given: dict[str, Any] = {"metrics": options.metrics, "merge": options.references}
    with files.naming_lines(), _shown_progress(translator, files, options):
        return api.evaluate(
            translator, files.sources, *files.references, request=search_request(translator, options), **given
        )


def _shown_progress(translator: Translator, files: "TestFiles", options: Options) -> AbstractContextManager[None]:
    if options.json or options.quiet:
        return nullcontext()
    from transduce.translator.evaluation import merges_references

    merged = merges_references(translator.config, files.sources, options.references)
    sources = set(files.sources) if merged else files.sources
    return shown_lines(translator, sum(bool(source.strip()) for source in sources))


def _report_merged(count: int) -> None:
    if count:
        say_to_stderr(
            f"{count:,} line{'s have' if count > 1 else ' has'} the same source as an earlier line; their references were "
            "merged (--references separate scores every line)"
        )


@dataclass(frozen=True)
class TestFiles:
    """What the files of a test set have."""

    __test__ = False  # tells pytest that this is not a class of tests

    sources: list[str]
    references: list[list[str]]  # each is as long as the sources
    places: "Places | None" = None  # the line that names each recording; None if sources are texts

    def naming_lines(self) -> AbstractContextManager[None]:
        """Errors about recordings name the line of the test set."""
        if self.places is None:
            return nullcontext()
        from transduce.data.recorded_pairs import naming_lines

        return naming_lines(self.places)


def read_test_set(options: Options) -> TestFiles:
    """The test set, read before the model is loaded, so that errors appear at once."""
    data = _format_of(options)
    with _plain_files(options.files) as (source, *others):
        groups: list[tuple[str, ...]] = [(source, other) for other in others] or [(source,)]
        sides = [_read_pairs(data, group) for group in groups]
    return replace(sides[0], references=[references for side in sides for references in side.references])


def _check_order(options: Options) -> None:
    """Refuse a run folder that stands after the files, where it is easily put."""
    run, target = Path(options.run), "TARGET" if options.command == "score" else "REFERENCE"
    if run.is_file() and any((Path(file) / "config.toml").is_file() for file in options.files):
        raise RunError(f"{run}: a file, not a model folder; write `transduce {options.command} RUN SOURCE {target}`")


def _print_both(results: dict[str, "Evaluation"], decoded: dict[str, Decoding], options: Options) -> None:
    """The scores of both engines, and the difference that the faster engine makes."""
    difference = results["ct2"].scores.main.value - results["torch"].scores.main.value
    if options.json:
        reports = {engine: _report(evaluation, decoded[engine]) for engine, evaluation in results.items()}
        print_json({**reports, "difference": difference})
        return
    for engine, evaluation in results.items():
        print(f"{engine}, {decoded[engine].precision}:")
        _print_evaluation(evaluation, decoded[engine], options)
    print(f"difference: {results['torch'].scores.main.name} {difference:+.2f}")


def _print_evaluation(evaluation: "Evaluation", how: Decoding, options: Options, unit: str = "sentence") -> None:
    print(evaluation.scores.with_signatures(), flush=True)
    if options.quiet:
        return
    print(
        f"{how}\n"
        f"{evaluation.sentences} {unit}{'s' * (evaluation.sentences != 1)} in {evaluation.seconds:.1f} s: "
        f"{evaluation.sentences_per_second:.1f} {unit}s/s, {evaluation.tokens_per_second:.0f} tokens/s",
        file=sys.stderr,
    )


def _report(evaluation: "Evaluation", how: Decoding) -> dict[str, Any]:
    return {
        "scores": evaluation.scores.as_dict(),
        "sentences": evaluation.sentences,
        "outputs_at_limit": evaluation.outputs_at_limit,
        "sentences_per_second": evaluation.sentences_per_second,
        "tokens_per_second": evaluation.tokens_per_second,
        "decoding": asdict(how),
    }


def score(options: Options) -> int:
    if options.text and options.files:
        raise SettingError("--text is for language models and FILE is for translators: give one of the two")
    if options.text and options.ensemble:
        raise SettingError("--ensemble is for translators: language models (--text) are scored one at a time")
    if options.text:
        return score_text(options)
    if not options.files or options.stride is not None:
        raise SettingError("give a SOURCE and a TARGET file, or --text FILE (with --stride N) for a language model")
    if options.quantization and options.engine != "ct2":
        raise SettingError("--quantization has no effect on the torch engine: add --engine ct2, or leave it out")
    with _plain_files(options.files) as files:
        pairs = _read_pairs(_format_of(options), files)
    translator = load(options)
    notices = Notices(translator)
    notices.longest = 0  # the source or the target may be too long
    for source in translator.forms.learned(pairs.sources) if not translator.reads_speech else ():
        notices.unseen_features.update(translator.sources.unseen(source.text))
    with pairs.naming_lines():
        all_scored = translator.score_tokens(pairs.sources, pairs.references[0])
    for line, scored in enumerate(all_scored, 1):
        notices.cut += scored.cut > 0
        if scored.cut and _are_lines(options):
            notices.lines["cut"].add(line)
        if options.json:
            print_json({"log_probability": scored.log_probability, **asdict(scored)})
        else:
            print(f"{scored.log_probability:.6f}")
    notices.print()
    return 0


def attention(options: Options) -> int:
    model = _language_model(options) or load(options)
    seen = api.attention(model, options.sentence, options.target, output=options.output)
    shown = f"{options.sentence} -> {seen.text}" if seen.source else options.sentence
    print(f"{options.output}: {shown}", file=sys.stderr)
    return 0


def _language_model(options: Options) -> "LanguageModel | None":
    """The language model of the run folder; None if the model translates."""
    if not open_folder(options.run).config.model.reads_text:
        return None
    return api.load_language_model(options.run, weights=options.weights, device=options.device, threads=options.threads)


@contextmanager
def _plain_files(files: Sequence[str]) -> Iterator[Group]:
    """The files, with standard input and pipes copied to temporary files, because files are read more than once."""
    with TemporaryDirectory() as scratch:
        yield without_pipes((tuple(files),), Path(scratch))[0]


def _format_of(options: Options) -> DataConfig:
    """The format of the model's training data, changed by the options."""
    _check_order(options)
    data = open_folder(options.run).config.data
    if options.columns:
        data = replace(data, columns=tuple(options.columns.split(",")))
    return replace(data, skip_blank_lines=data.skip_blank_lines or options.skip_blank_lines)


def _refuse_recordings(data: DataConfig, files: Sequence[str]) -> None:
    for file in files:
        what = "is a recording" if look_like_recordings([file]) else "names recordings" if is_manifest((file,)) else ""
        if what:
            raise DataError(f"{file}: {what}, and this model {data.what_it_does}: give files with text")


def _read_pairs(data: DataConfig, files: Sequence[str]) -> TestFiles:
    """The pairs of a table or of two files; their targets are the only list of references."""
    corpus, places = Corpus.of((tuple(files),), data), None
    if data.task == "speech":
        from transduce.data.recorded_pairs import check_recordings

        places = check_recordings(corpus)
    else:
        _refuse_recordings(data, files)
    for line in describe_columns(corpus):
        say_to_stderr(line)
    sources, targets = read_pairs(corpus)
    if not sources:
        raise DataError(f"{' '.join(files)}: the input is empty: give at least one pair")
    return TestFiles(sources, [targets], places)
