"""Subtitles of transcripts as text in the formats SRT and WebVTT. Knows no files: callers print or send what is returned."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from textwrap import wrap

from transduce.translator.transcription import Segment, Transcript
from transduce.translator.word_times import Word

LINE = 42  # characters
LINES = 2
LONGEST_SECONDS = 7.0
SHORTEST_SECONDS = 1.0  # where there is room before the next one
PAUSE_SECONDS = 0.8  # a subtitle does not go on after such a pause


@dataclass(frozen=True)
class Cue:
    """A subtitle."""

    begin: float  # seconds
    end: float
    text: str


def srt(transcript: Transcript) -> str:
    """The subtitles of a transcript in the format SRT."""
    blocks = (
        f"{number}\n{_time(cue.begin, ',')} --> {_time(cue.end, ',')}\n{_lines(cue.text.replace('-->', '->'))}\n"
        for number, cue in enumerate(cues(transcript), 1)
    )
    return "\n".join(blocks)


def vtt(transcript: Transcript) -> str:
    """The subtitles of a transcript in the format WebVTT."""
    blocks = (
        f"\n{_time(cue.begin, '.')} --> {_time(cue.end, '.')}\n{_escaped(_lines(cue.text))}\n"
        for cue in cues(transcript)
    )
    return "".join(["WEBVTT\n", *blocks])


def cues(transcript: Transcript) -> list[Cue]:
    """Subtitles of at most two lines, in order and without overlaps."""
    found = [cue for segment in transcript.segments for cue in _of_segment(segment)]
    if not found:
        return []
    end = transcript.segments[-1].end
    starts = [cue.begin for cue in found[1:]] + [end]
    return [
        replace(cue, end=min(max(cue.end, cue.begin + SHORTEST_SECONDS), max(cue.begin, start)))
        for cue, start in zip(found, starts, strict=True)
    ]


def _of_segment(segment: Segment) -> Iterator[Cue]:
    """The subtitles of a segment; one for all of it where the times of its words are not known."""
    if segment.text and not segment.words:
        yield Cue(segment.begin, segment.end, segment.text)
    for words in _runs(segment.words):
        yield Cue(words[0].begin, words[-1].end, " ".join(word.text for word in words))


def _runs(words: Sequence[Word]) -> Iterator[list[Word]]:
    """Words that make one subtitle."""
    run = list(words[:1])
    for last, word in pairwise(words):
        text = " ".join(one.text for one in [*run, word])
        fits = len(_wrapped(text)) <= LINES and word.end - run[0].begin <= LONGEST_SECONDS
        if not fits or word.begin - last.end >= PAUSE_SECONDS:
            yield run
            run = []
        run.append(word)
    if run:
        yield run


def _lines(text: str) -> str:
    return "\n".join(_wrapped(text))


def _wrapped(text: str) -> list[str]:
    return wrap(text, LINE, break_long_words=False, break_on_hyphens=False)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _time(seconds: float, point: str) -> str:
    thousandths = round(seconds * 1000)
    return (
        f"{thousandths // 3_600_000:02}:{thousandths // 60_000 % 60:02}:{thousandths // 1000 % 60:02}{point}"
        f"{thousandths % 1000:03}"
    )
