"""Safety of runs: killed and resumed, and with damaged files."""

from collections.abc import Iterator

from .section import Result, Section, cores, row, where

section = Section("Safety of runs")

KILLS = {  # result files, and what was trained
    "kills": "Pairs",
    "kills-gpu": "Pairs",
    "kills-text": "Language models",
    "kills-text-gpu": "Language models",
    "kills-speech": "Speech",
    "kills-speech-gpu": "Speech",
}


@section.rows_from(*KILLS)
def kills(result: Result) -> Iterator[str]:
    figure = f"{result['equal']} of {result['kills']} ended with bit-identical weights"
    what = f"{KILLS[result['name']]}: `kill -9` at random moments, then resumed"
    yield row(what, figure, f"`{result['command']}` on {where(result)}")


@section.rows_from("flips")
def flipped_bits(result: Result) -> Iterator[str]:
    figure = (
        f"{result['flips']:,} damaged folders: {result['detected']:,} detected, {result['unchanged']:,} without effect, "
        f"{result['different']} silently different, {result['traceback']} tracebacks"
    )
    yield row("A flipped bit in any file of a run folder", figure, f"`benchmarks/flips.py` on {cores(result)}")
