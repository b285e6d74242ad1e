"""The commands: each reads its input, calls a function of `transduce.api` and writes the result.

Data goes to stdout, everything for people to stderr.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from transduce.cli.lines import Lines
from transduce.config import DataConfig
from transduce.config.columns import Columns
from transduce.data import Corpus, Group, describe_columns, read_pairs, without_pipes
from transduce.errors import DataError, MissingExtra, SettingError
from transduce.translator import LoadOptions, SearchRequest, Translation, Translator, open_folder
from transduce.translator.alignment import Pairs, pharaoh
from transduce.translator.engines import say_to_stderr

if TYPE_CHECKING:
    from transduce.training import Reporter, Result, TrainingRequest
    from transduce.translator.evaluation import Evaluation, TestSet

Options = argparse.Namespace
BECAME = "not UTF-8; what could not be read became \ufffd"


def demo(options: Options) -> int:
    from transduce.demo import run_demo

    run_demo(Path(options.folder))
    return 0


def train(options: Options) -> int:
    from transduce.training import train

    request = replace(_training_request(options), start_from=options.start_from)
    return _finish(options, lambda: train(options.run, request, reporter=_reporter(options), begun=options.begun))


def _reporter(options: Options) -> "Reporter":
    from transduce.training import make_reporter

    return make_reporter(options.quiet, options.verbose)


def _training_request(options: Options) -> "TrainingRequest":
    """The request of every verb that trains a model."""
    from transduce.training import TrainingRequest

    return TrainingRequest(
        train=[tuple(group) for group in options.train],
        valid=[tuple(group) for group in options.valid],
        languages=tuple(options.languages),
        preset=options.preset,
        config=options.config,
        settings=[*_asked_columns(options), *options.settings, *_asked_budget(options)],
    )


def _asked_columns(options: Options) -> list[str]:
    columns = [f"data.columns={options.columns}"] if options.columns else []
    return columns + ["data.skip_blank_lines=true"] * options.skip_blank_lines


def _asked_budget(options: Options) -> list[str]:
    """`--minutes`, `--steps` and `--epochs` as settings; one that was given takes the place of the others' defaults."""
    given = {name: getattr(options, name) for name in ("minutes", "steps", "epochs")}
    for name, value in given.items():
        if value is not None and not value > 0:
            raise SettingError(f"--{name} {value:g}: must be more than 0")
    return [f"train.{name}={value}" for name, value in given.items() if value is not None]


def _finish(options: Options, run: Callable[[], "Result"]) -> int:
    """A training to its end, or to the signal that ends it."""
    from transduce.training import Stopped

    try:
        result = run()
    except Stopped as stopped:
        print(f"transduce: {stopped}", file=sys.stderr)
        return 128 + stopped.signal_number
    if options.json:
        _print_json(asdict(result))
    return 0


def translate(options: Options) -> int:
    _check_drawing(options)
    options.input = _input(options)
    translator = _load(options)
    request = _request(translator, options).but(
        n_best=options.n_best,
        sampling=options.sample,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        seed=options.seed,
        aligned=bool(options.alignments),
        replace_unknown=_replaces_unknown(translator, options),
        constrained=bool(options.terms),
        figures="tokens" if options.json else "outputs" if options.n_best > 1 else "none",
    )
    translator.ready(request)
    _say_what_is_awaited(options)
    lines = Lines(options.input)
    sources = _sources(lines, options) if options.columns else lines
    prefixes = Lines(options.prefix) if options.prefix else None
    phrases = Lines(options.terms) if options.terms else None
    terms = map(_phrases, phrases) if phrases else None
    noted = Noted(_expects_features(translator))
    for number, translation in enumerate(translator.stream(sources, request, prefixes, terms, lines.paused)):
        noted.add(translation)
        _print_translation(number, translation, options)
        if lines.arriving:
            sys.stdout.flush()  # whoever sent the line may wait for it
    if not options.quiet:
        noted.undecodable = lines.undecodable
        noted.undecodable_prefixes = prefixes.undecodable if prefixes else 0
        noted.undecodable_terms = phrases.undecodable if phrases else 0
        noted.tell()
    return 0


def evaluate(options: Options) -> int:
    from transduce.translator.evaluation import evaluate as run

    if options.output and options.engine == "both":
        raise SettingError("--output takes the translations of one engine: name it by --engine")
    if options.output and not Path(options.output).resolve().parent.is_dir():
        raise SettingError(f"{options.output}: there is no folder {Path(options.output).parent}")
    sources, test = _read_test_set(options)
    evaluations = {}
    for engine in ("torch", "ct2") if options.engine == "both" else (options.engine,):
        shortlist = options.shortlist and (engine, options.engine) != ("torch", "both")
        quantization = None if (engine, options.engine) == ("torch", "both") else options.quantization
        one = {"engine": engine, "shortlist": shortlist, "quantization": quantization}
        translator = _load(argparse.Namespace(**vars(options) | one))
        evaluations[engine] = run(translator, test, _request(translator, options), options.metrics)
    first = next(iter(evaluations.values()))
    Noted(_expects_features(translator)).all(first.translations).tell()
    if options.output:
        # One line for every line of the test set, also where several share a source.
        text_of = dict(zip(test.sources, first.outputs, strict=True))
        texts = [text_of[source] for source in sources] if test.merged else first.outputs
        Path(options.output).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    if options.engine == "both":
        _print_both(evaluations["torch"], evaluations["ct2"], options)
    elif options.json:
        _print_json(_report(first))
    else:
        _print_evaluation(first)
    return 0


def _read_test_set(options: Options) -> tuple[list[str], "TestSet"]:
    """The source of every line, and the test set that they make with all their references."""
    from transduce.translator.evaluation import TestSet, merges_references

    config = open_folder(options.run).config
    data = _read_as(config.data, options)
    with _plain_files(options.files) as (source, *others):
        groups: list[tuple[str, ...]] = [(source, other) for other in others] or [(source,)]
        sides = [_read_pairs(data, group) for group in groups]
    sources = sides[0][0]
    merged = merges_references(config, sources, options.references)
    test = TestSet.of(sources, *(references for _, references in sides), merged=merged)
    if repeated := len(sources) - len(test.sources):
        print(
            f"{repeated:,} line{'s repeat' if repeated > 1 else ' repeats'} the source of an earlier one: their references "
            "are merged (--references separate scores every line)",
            file=sys.stderr,
        )
    return sources, test


def _print_both(torch: "Evaluation", ct2: "Evaluation", options: Options) -> None:
    """What the faster engine costs in quality: measured, not assumed."""
    difference = ct2.scores.main.value - torch.scores.main.value
    if options.json:
        _print_json({"torch": _report(torch), "ct2": _report(ct2), "difference": difference})
        return
    for name, evaluation in (("torch, float32", torch), (f"ct2, {options.quantization or 'int8'}", ct2)):
        print(f"{name}:")
        _print_evaluation(evaluation)
    print(f"difference: {ct2.scores.main.name} {difference:+.2f}")


def _print_evaluation(evaluation: "Evaluation") -> None:
    print(evaluation.scores.with_signatures(), flush=True)
    print(
        f"{evaluation.sentences} sentence{'s' * (evaluation.sentences != 1)} in {evaluation.seconds:.1f} s: "
        f"{evaluation.sentences_per_second:.1f} sentences/s, {evaluation.tokens_per_second:.0f} tokens/s",
        file=sys.stderr,
    )


def _report(evaluation: "Evaluation") -> dict[str, Any]:
    return {
        "scores": evaluation.scores.as_dict(),
        "sentences": evaluation.sentences,
        "outputs_at_limit": evaluation.outputs_at_limit,
        "sentences_per_second": evaluation.sentences_per_second,
        "tokens_per_second": evaluation.tokens_per_second,
    }


def score(options: Options) -> int:
    if options.quantization and options.engine != "ct2":
        raise SettingError("--quantization is for the ct2 engine: add --engine ct2, or leave it out")
    with _plain_files(options.files) as files:
        sources, targets = _read_pairs(_read_as(open_folder(options.run).config.data, options), files)
    translator = _load(options)
    noted = Noted(_expects_features(translator))
    for scored in translator.score_tokens(sources, targets):
        noted.cut += scored.cut > 0
        if options.json:
            _print_json({"log_probability": scored.log_probability, **asdict(scored)})
        else:
            print(f"{scored.log_probability:.6f}")
    noted.tell()
    return 0


def attention(options: Options) -> int:
    from transduce.explore import PAGE, PICTURES, check_picture_path, draw_attention

    path = check_picture_path(options.output, (*PICTURES, PAGE))
    if not options.sentence.strip():
        raise SettingError("the sentence is empty: there is nothing to attend to")
    if path.suffix.lower() == PAGE:
        return _attention_page(options, path)
    translator = _load(options)
    target = translator.translate([options.sentence])[0] if options.target is None else options.target
    draw_attention(translator.attention(options.sentence, target), path)
    print(f"{path}: {options.sentence} -> {target}", file=sys.stderr)
    return 0


def _attention_page(options: Options, path: Path) -> int:
    from transduce.explore.standalone import write_standalone
    from transduce.explore.views import attention_view

    view = attention_view(_load(options), options.sentence, options.target)
    write_standalone(view, path)
    print(f"{path}: {view['source']['text']} -> {view['target']['text']}", file=sys.stderr)
    return 0


def export(options: Options) -> int:
    from transduce.exchange import export_model

    def say(line: str) -> None:
        print(f"transduce: {line}", file=sys.stderr)

    verified = export_model(
        options.run,
        options.folder,
        options.to,
        weights=options.weights,
        sample=options.sample,
        threads=options.threads,
        say=say,
    )
    print(f"{options.folder}: {verified.summary()}", file=sys.stderr)
    if options.json:
        _print_json(asdict(verified))
    return 0


def import_model(options: Options) -> int:
    from transduce.exchange import import_model as take

    taken = take(options.source, options.run)
    print(f"{options.run}: {taken.origin}, {taken.parameters / 1e6:.1f} M parameters", file=sys.stderr)
    for note in taken.notes:
        print(f"transduce: {note}", file=sys.stderr)
    return 0


def distill(options: Options) -> int:
    from transduce.synthesis import distill

    request = _training_request(options)
    how = {"keep_original": options.keep_original, "beam": options.beam, "loading": _loading(options)}
    return _finish(options, lambda: distill(options.teacher, options.run, request, reporter=_reporter(options), **how))


def backtranslate(options: Options) -> int:
    from transduce.synthesis import backtranslate

    _check_drawing(options)
    _say_what_is_awaited(options)
    made = backtranslate(
        options.model,
        Lines(options.input),
        options.folder,
        beam=options.beam,
        sampling=options.sample,
        seed=1 if options.seed is None else options.seed,
        loading=_loading(options),
        say=_say_nothing if options.quiet else say_to_stderr,
    )
    if options.json:
        _print_json({key: str(value) if isinstance(value, Path) else value for key, value in asdict(made).items()})
    return 0


def shortlist(options: Options) -> int:
    from transduce.shortlisting import make_shortlist

    say = _say_nothing if options.quiet else say_to_stderr
    loading = LoadOptions(engine="torch", threads=options.threads, say=say)
    with TemporaryDirectory() as scratch:
        pairs = without_pipes(tuple(tuple(group) for group in options.train), Path(scratch))
        made = make_shortlist(options.run, pairs, options=loading, say=say)
    print(f"{made}: use it by `transduce translate {options.run} --shortlist`", file=sys.stderr)
    return 0


def average(options: Options) -> int:
    from transduce.averaging import average

    folder = average(options.runs, options.output, options.weights)
    print(f"{folder}: the mean of {len(options.runs)} models", file=sys.stderr)
    return 0


def serve(options: Options) -> int:
    _require("fastapi", "granian", "prometheus_client", extra="serve")
    from transduce.server.running import serve as run
    from transduce.server.settings import ServerSettings

    settings = ServerSettings(
        host=options.host,
        port=options.port,
        allowed_hosts=tuple(options.allow_host),
        keys=options.keys,
        open=options.open,
        batch_lines=options.batch,
        queue_requests=options.queue,
        characters=options.characters,
    )
    run(options.models, settings, _loading(options))


def key(options: Options) -> int:
    from transduce.server.keys import add_key

    print(add_key(Path(options.file), options.name, options.requests_per_minute))
    print(f"transduce: {options.file} has its hash only: keep the key, it is not shown again", file=sys.stderr)
    return 0


def _require(*packages: str, extra: str) -> None:
    for package in packages:
        if find_spec(package) is None:
            raise MissingExtra(package, extra)


def _load(options: Options) -> Translator:
    return Translator.load(options.run, _loading(options))


def _loading(options: Options) -> LoadOptions:
    _check_quantization(options)
    return LoadOptions(
        weights=options.weights,
        engine=options.engine,
        device=options.device,
        threads=options.threads,
        quantization=options.quantization or "int8",
        ensemble=tuple(getattr(options, "ensemble", ())),
        shortlist=getattr(options, "shortlist", False),
        say=_say_nothing if getattr(options, "quiet", False) else say_to_stderr,
    )


def _say_nothing(text: str) -> None:
    pass


@contextmanager
def _plain_files(files: Sequence[str]) -> Iterator[Group]:
    """The same files, with stdin and pipes copied: they are read more than once."""
    with TemporaryDirectory() as scratch:
        yield without_pipes((tuple(files),), Path(scratch))[0]


def _read_as(data: DataConfig, options: Options) -> DataConfig:
    """How the model's data were read, with what the options say of these files."""
    if options.columns:
        data = replace(data, columns=tuple(options.columns.split(",")))
    return replace(data, skip_blank_lines=data.skip_blank_lines or options.skip_blank_lines)


def _read_pairs(data: DataConfig, files: Sequence[str]) -> tuple[list[str], list[str]]:
    """Pairs read as the model's own data were; before the model is, since they are checked faster."""
    corpus = Corpus.of((tuple(files),), data)
    for line in describe_columns(corpus):
        say_to_stderr(line)
    sources, targets = read_pairs(corpus)
    if not sources:
        raise DataError(f"{' '.join(files)}: empty: there is not a single pair")
    return sources, targets


def _sources(lines: Lines, options: Options) -> Iterator[str]:
    """The source of each line of a table, as `--columns` says; blank lines stay as they are."""
    columns = Columns.of(options.columns.split(","), needs_target=False)
    if columns.named:
        raise SettingError(f"--columns {options.columns}: lines to translate have no header: give numbers, source=1")
    for number, line in enumerate(lines, 1):
        fields = line.split("\t")
        if line.strip() and len(fields) < columns.needed:
            raise DataError(
                f"{options.input}:{number}: {len(fields)} of the {columns.needed} columns that --columns names"
            )
        yield columns.source_of(fields) if line.strip() else line


def _input(options: Options) -> str:
    """The file to translate; standard input where none is named."""
    if options.file and options.input:
        raise SettingError(f"{options.file} and --input {options.input}: name the input once")
    return str(options.file or options.input or "-")


def _say_what_is_awaited(options: Options) -> None:
    """Whoever sits at the terminal sees why nothing happens."""
    if options.input == "-" and sys.stdin is not None and sys.stdin.isatty() and not options.quiet:
        say_to_stderr("reading from the terminal: one sentence a line; Ctrl-D ends them")


def _request(translator: Translator, options: Options) -> SearchRequest:
    return translator.request(
        beam=options.beam,
        alpha=options.alpha,
        length_penalty=options.length_penalty,
        max_extra=options.max_extra,
    )


def _expects_features(translator: Translator) -> bool:
    columns = translator.config.data.layout
    return columns is not None and bool(columns.features)


class Noted:
    """What a reader of the output should know, counted over all lines."""

    def __init__(self, expects_features: bool = False) -> None:
        self.expects_features, self.featureless = expects_features, 0
        self.cut = self.outputs_at_limit = self.unknown = self.newlines = self.empty = 0
        self.undecodable = self.undecodable_prefixes = self.undecodable_terms = 0

    def add(self, translation: Translation) -> None:
        self.cut += translation.cut > 0
        self.outputs_at_limit += translation.outputs_at_limit
        self.unknown += translation.unknown
        self.newlines += translation.newlines
        self.empty += bool(translation.source.strip()) and not translation.outputs
        self.featureless += (
            self.expects_features and bool(translation.source.strip()) and " ;" not in translation.source
        )

    def all(self, translations: Iterable[Translation]) -> "Noted":
        for translation in translations:
            self.add(translation)
        return self

    def tell(self) -> None:
        for count, one, several, what in [
            (self.cut, "line was", "lines were", "longer than the model takes, and cut"),
            (
                self.outputs_at_limit,
                "output",
                "outputs",
                "reached the length limit, and may be cut there: raise it with --max-extra",
            ),
            (
                self.featureless,
                "line has",
                "lines have",
                "no features: this model expects a word, a tab and its features",
            ),
            (self.unknown, "source token was", "source tokens were", "unknown to the vocabulary"),
            (self.newlines, "line break was", "line breaks were", "turned into blanks in outputs"),
            (self.empty, "line has", "lines have", "no output: none of a probability above 0 was found"),
            (self.undecodable, "line was", "lines were", BECAME),
            (self.undecodable_prefixes, "prefix was", "prefixes were", BECAME),
            (self.undecodable_terms, "line of terms was", "lines of terms were", BECAME),
        ]:
            if count:
                say_to_stderr(f"{count} {one if count == 1 else several} {what}")


def _print_translation(number: int, translation: Translation, options: Options) -> None:
    if options.json:
        _print_json(asdict(translation))
    elif options.n_best > 1:
        for output in translation.outputs:
            print(f"{number} ||| {output.text} ||| {output.score:.6f}{_aligned(output.alignment, options)}")
        if not translation.outputs:
            print(f"{number} |||  ||| 0{_aligned([], options)}")
    else:
        pairs = translation.outputs[0].alignment if translation.outputs else []  # a line of nothing has none
        print(translation.text + _aligned(pairs, options))


def _aligned(pairs: Pairs, options: Options) -> str:
    return f" ||| {pharaoh(pairs)}" if options.alignments else ""


def _phrases(line: str) -> list[str]:
    return [phrase for phrase in line.split("\t") if phrase.strip()]


def _check_drawing(options: Options) -> None:
    """Refuse what would do nothing: options of drawing where there is a search, and the other way round."""
    if options.sample and options.beam is not None:
        raise SettingError("--beam is for searching and --sample draws: leave out one of them")
    for name in ("temperature", "top_k", "top_p", "seed"):
        if not options.sample and getattr(options, name, None) is not None:
            raise SettingError(f"--{name.replace('_', '-')} is for drawing: add --sample, or leave it out")


def _check_quantization(options: Options) -> None:
    """Refuse it where nothing is quantized."""
    for name, value in (("engine", "torch"), ("device", "cuda")):
        if options.quantization and getattr(options, name) == value:
            raise SettingError(f"--quantization is for the ct2 engine: leave out --quantization, or --{name} {value}")


def _replaces_unknown(translator: Translator, options: Options) -> bool:
    """Whether to look for `<unk>` in outputs: not where bytes spell everything, and then it says so."""
    data = translator.config.data
    spells = data.unknown == "bytes" and data.target_units in ("bpe", "unigram")
    if options.replace_unknown and spells and not options.quiet:
        say_to_stderr("--replace-unknown changes nothing: this model spells unknown words in bytes, never as <unk>")
    return options.replace_unknown and not spells


def _print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False))
