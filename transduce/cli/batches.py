"""The command `batch`: corpora in, a folder of translated shards out; and the checks and the file at its end."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from transduce import api
from transduce.cli.arguments import Options, check_sampling, is_quiet, load_options, print_json
from transduce.cli.notices import Notices
from transduce.errors import SettingError
from transduce.translator import SearchRequest, open_folder

if TYPE_CHECKING:
    from transduce.batch_translation import BatchResult, Verification

INCOMPLETE = 3  # the exit code if a shard failed, is missing or is damaged


def batch(options: Options) -> int:
    _check(options)
    told: dict[str, Any] = {}
    complete = True
    if options.run:
        result = _translate(options)
        told |= asdict(result)
        complete = not result.failures
    if options.verify and complete:
        found = api.verify_batch(options.output)
        told["verification"] = asdict(found)
        complete = found.is_complete
        _say_verified(found, options)
    if options.collect and complete:
        told["collected"] = api.collect_batch(options.output, options.collect)
        _say(f"{options.collect}: {told['collected']:,} lines", options)
    if options.json:
        print_json(told)
    return 0 if complete else INCOMPLETE


def _check(options: Options) -> None:
    check_sampling(options)
    if not options.run and not (options.verify or options.collect):
        raise SettingError("give a run folder and files to translate, or --verify or --collect for a finished folder")
    if options.run and not options.inputs:
        raise SettingError(f"no files to translate: transduce batch {options.run} FILE... --output {options.output}")
    if (options.shard is None) != (options.shards is None):
        raise SettingError("--shard and --shards belong together, as in --shard $SLURM_ARRAY_TASK_ID --shards 10")
    if options.shards is not None and (options.verify or options.collect):
        raise SettingError("--verify and --collect are for the whole folder: run them after all tasks, without --shard")


def _translate(options: Options) -> "BatchResult":
    result = api.batch(
        options.run,
        options.inputs,
        options.output,
        columns=options.columns,
        into=options.into,
        to=options.to,
        request=_request(options),
        shard_lines=options.shard_lines,
        on=options.on,
        workers=options.workers,
        shard=options.shard or 0,
        shards=options.shards or 1,
        prepare_only=options.prepare,
        options=load_options(options),
        quiet=options.quiet,
    )
    _say_result(result, options)
    return result


def _request(options: Options) -> SearchRequest:
    return SearchRequest.of(open_folder(options.run).config.search).but(
        beam=options.beam,
        alpha=options.alpha,
        length_penalty=options.length_penalty,
        max_extra=options.max_extra,
        sampling=options.sample,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        seed=options.seed,
    )


def _say_result(result: "BatchResult", options: Options) -> None:
    if not is_quiet(options):
        notices = Notices()
        vars(notices).update(result.counts)
        notices.print()
    of = f"{result.finished:,} of {result.shards:,} shards ({result.lines:,} lines) are finished"
    _say(f"{result.output}: {of}", options)
    for failure in result.failures:  # whatever --quiet says
        print(f"transduce: shard {failure.shard} was set aside: {failure.reason}", file=sys.stderr)
    if result.failures:
        print("transduce: fix the cause and rerun the command, which translates only these shards", file=sys.stderr)


def _say_verified(found: "Verification", options: Options) -> None:
    for number, reason in found.missing.items():
        print(f"transduce: shard {number} is missing{f': {reason}' if reason else ''}", file=sys.stderr)
    for path in found.damaged:
        print(f"transduce: {path}: damaged: delete it and rerun the command", file=sys.stderr)
    for path in found.changed:
        print(f"transduce: {path}: not the file that was translated", file=sys.stderr)
    if found.is_complete:
        _say(f"verified {found.shards:,} shards, {found.lines:,} lines: all counts and hashes are right", options)


def _say(text: str, options: Options) -> None:
    if not is_quiet(options):
        print(f"transduce: {text}", file=sys.stderr)
