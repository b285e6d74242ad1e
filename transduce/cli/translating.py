"""The commands translate, lines in, translations out, in order; and shortlist, which makes it faster."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict

from transduce import api
from transduce.cli.arguments import (
    Options,
    announce_progress,
    announce_stdin,
    check_sampling,
    input_file,
    load,
    print_json,
    search_request,
)
from transduce.cli.first_lines import looked_at
from transduce.cli.lines import Lines
from transduce.cli.notices import Notices
from transduce.config.columns import Columns
from transduce.errors import DataError, SettingError
from transduce.translator import SearchRequest, Translation, Translator
from transduce.translator.alignment import Pairs, pharaoh
from transduce.translator.engines import say_to_stderr

DIVIDED = "; --split divides lines of several sentences"


def translate(options: Options) -> int:
    check_sampling(options)
    _check_split(options)
    options.input = input_file(options)
    translator = load(options)
    announce_progress(options)
    request = _request(translator, options)
    translator.ready(request)
    announce_stdin(options)
    lines = Lines(options.input)
    if options.split:
        return _translate_split(translator, lines, request, options)
    prefixes = Lines(options.prefix) if options.prefix else None
    phrases = Lines(options.terms) if options.terms else None
    sources = _looked_at(_sources(lines, options) if options.columns else lines, translator, options)
    terms = map(_phrases, phrases) if phrases else None
    notices = Notices(translator, DIVIDED if translator.config.data.task == "translation" else "")
    for number, translation in enumerate(translator.stream(sources, request, prefixes, terms, lines.paused)):
        notices.add(translation, number + 1)
        _print_translation(number, translation, options)
        if lines.arriving:
            sys.stdout.flush()  # the sender may wait for this translation before sending the next line
    if not options.quiet:
        notices.add_undecodable("undecodable", lines)
        notices.add_undecodable("undecodable_prefixes", prefixes)
        notices.add_undecodable("undecodable_terms", phrases)
        notices.print()
    return 0


def _check_split(options: Options) -> None:
    """Refuse options whose results belong to single sentences."""
    given = {
        "--n-best": options.n_best > 1,
        "--alignments": options.alignments,
        "--prefix": options.prefix,
        "--terms": options.terms,
        "--columns": options.columns,
    }
    for name in [name for name, is_given in given.items() if is_given and options.split]:
        raise SettingError(f"{name} needs one sentence per line: leave out --split, or leave out {name}")


def _translate_split(translator: Translator, lines: Lines, request: SearchRequest, options: Options) -> int:
    """Translate lines of several sentences; a line in is a line out."""
    notices = Notices(translator)
    for number, line in enumerate(
        translator.stream_split(_looked_at(lines, translator, options), request, lines.paused), 1
    ):
        notices.add_all(line.sentences, number)
        if options.json:
            print_json(asdict(line))
        else:
            print(line.text)
        if lines.arriving:
            sys.stdout.flush()
    if not options.quiet:
        notices.add_undecodable("undecodable", lines)
        notices.print()
    return 0


def _looked_at(lines: Iterable[str], translator: Translator, options: Options) -> Iterable[str]:
    """The lines; unless people want no messages, or the lines name recordings, the first ones are examined."""
    return lines if options.quiet or translator.reads_speech else looked_at(lines, options.input, translator)


def _request(translator: Translator, options: Options) -> SearchRequest:
    return search_request(translator, options).but(
        n_best=options.n_best,
        sampling=options.sample,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        seed=options.seed,
        aligned=bool(options.alignments),
        replace_unknown=_replaces_unknown(translator, options),
        constrained=bool(options.terms),
        log_probs="tokens" if options.json else "outputs" if options.n_best > 1 else "none",
    )


def _replaces_unknown(translator: Translator, options: Options) -> bool:
    """Whether to replace `<unk>` in outputs; where no output can contain it, say so."""
    if options.replace_unknown and not translator.outputs_unknown and not options.quiet:
        say_to_stderr("--replace-unknown has no effect: this model spells unknown words in bytes, never as <unk>")
    return bool(options.replace_unknown) and translator.outputs_unknown


def _sources(lines: Lines, options: Options) -> Iterator[str]:
    """The source of each line of a table with the columns of `--columns`; blank lines stay blank."""
    columns = Columns.of(options.columns.split(","), needs_target=False)
    if columns.named:
        raise SettingError(
            f"--columns {options.columns}: the input has no header line, so give columns by number, such as source=1"
        )
    for number, line in enumerate(lines, 1):
        fields = line.split("\t")
        if line.strip() and len(fields) < columns.needed:
            raise DataError(
                f"{options.input}:{number}: has {len(fields)} of the {columns.needed} columns that --columns names"
            )
        yield columns.source_of(fields) if line.strip() else line


def _phrases(line: str) -> list[str]:
    return [phrase for phrase in line.split("\t") if phrase.strip()]


def _print_translation(number: int, translation: Translation, options: Options) -> None:
    if options.json:
        print_json(asdict(translation))
    elif options.n_best > 1:
        for output in translation.outputs:
            print(f"{number} ||| {output.text} ||| {output.score:.6f}{_aligned(output.alignment, options)}")
        if not translation.outputs:
            print(f"{number} |||  ||| 0{_aligned([], options)}")
    else:
        pairs = translation.outputs[0].alignment if translation.outputs else []  # an empty line has no output
        print(translation.text + _aligned(pairs, options))


def _aligned(pairs: Pairs, options: Options) -> str:
    return f" ||| {pharaoh(pairs)}" if options.alignments else ""


def shortlist(options: Options) -> int:
    groups = [tuple(group) for group in options.train]
    made = api.shortlist(options.run, groups, threads=options.threads, quiet=options.quiet)
    print(f"{made}: use it with `transduce translate {options.run} --shortlist`", file=sys.stderr)
    return 0
