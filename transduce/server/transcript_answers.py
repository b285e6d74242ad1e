"""Transcripts as responses: our JSON, OpenAI's JSON, plain text, and subtitles in SRT and WebVTT. Knows no requests."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field
from starlette.responses import PlainTextResponse, Response

from transduce.server.service import Transcribed

if TYPE_CHECKING:
    from transduce.translator.transcription import Segment
    from transduce.translator.word_times import Word

ResponseFormat = Literal["json", "text", "srt", "vtt", "verbose_json"]
Granularity = Literal["segment", "word"]
SUBTITLES = frozenset({"srt", "vtt"})


class CtcAnswer(BaseModel):
    """When the encoder emits the tokens of a segment: the most probable path of CTC that spells the text."""

    emitted: list[int | None] = Field(
        description="For each column of the attention, the number of the token that is emitted there; null for blank."
    )
    probabilities: list[float] = Field(description="For each column, the probability of that token, or of the blank.")


class ListeningAnswer(BaseModel):
    """The attention of the decoder over time, for each token of a segment."""

    begin: float = Field(
        description="Where the first column begins, in seconds; silence at the ends may have been trimmed."
    )
    end: float = Field(description="Where the last column ends.")
    tokens: list[str] = Field(description="The tokens of the text, ending in `</s>`.")
    weights: list[list[float]] = Field(
        description="Cross-attention, averaged over layers and heads: a row per token, a column per 40 ms."
    )
    ctc: CtcAnswer | None = Field(None, description="When CTC emits the tokens; absent if the model has no CTC output.")


class WordAnswer(BaseModel):
    """A word with its begin and end."""

    text: str = Field(description="The word.")
    begin: float = Field(description="Where it begins, in seconds.")
    end: float = Field(description="Where it ends.")
    confidence: float = Field(description="The geometric mean of the probabilities of its tokens by CTC.")


class SegmentAnswer(BaseModel):
    """A piece of a recording with its text."""

    begin: float = Field(description="Where the piece begins, in seconds.")
    end: float = Field(description="Where it ends.")
    text: str = Field(description="Its text; empty for silence.")
    confidence: float = Field(
        description="The geometric mean of the probabilities of its tokens by decoder and CTC; 1 for silence."
    )
    words: list[WordAnswer] | None = Field(None, description="Its words; present only in the format `verbose_json`.")
    attention: ListeningAnswer | None = Field(None, description="Present only if `attention` was requested.")


class TranscribeAnswer(BaseModel):
    """The transcript of a recording."""

    model: str = Field(description="The name of the model that was used.")
    text: str = Field(description="The text of the whole recording.")
    seconds: float = Field(description="How long the recording is.")
    segments: list[SegmentAnswer] = Field(description="Long recordings are cut at silences; nothing is left out.")


class TranscriptionAnswer(BaseModel):
    """OpenAI's answer in the format `json`."""

    text: str = Field(description="The text of the whole recording.")


class TranscriptionSegment(BaseModel):
    """A piece of a recording as in OpenAI's answer."""

    id: int = Field(description="Its number, from 0.")
    start: float = Field(description="Where it begins, in seconds.")
    end: float = Field(description="Where it ends.")
    text: str = Field(description="Its text; empty for silence.")
    confidence: float = Field(
        description="The geometric mean of the probabilities of its tokens by decoder and CTC; 1 for silence."
    )


class TranscriptionWord(BaseModel):
    """A word as in OpenAI's answer."""

    word: str = Field(description="The word.")
    start: float = Field(description="Where it begins, in seconds.")
    end: float = Field(description="Where it ends.")
    confidence: float = Field(description="The geometric mean of the probabilities of its tokens by CTC.")


class VerboseTranscriptionAnswer(BaseModel):
    """OpenAI's answer in the format `verbose_json`."""

    task: Literal["transcribe"] = Field(default="transcribe", description="Always `transcribe`.")
    language: str = Field(description="The code of the language that is spoken; empty if it is not known.")
    duration: float = Field(description="How long the recording is, in seconds.")
    text: str = Field(description="The text of the whole recording.")
    segments: list[TranscriptionSegment] | None = Field(
        None, description="Present unless `timestamp_granularities[]` is `word` alone."
    )
    words: list[TranscriptionWord] | None = Field(
        None, description="Present if `timestamp_granularities[]` has `word`."
    )


def our_answer(model: str, transcribed: Transcribed, written: ResponseFormat) -> Response:
    """The response of /v1/transcribe."""
    if written not in ("json", "verbose_json"):
        return _plain(transcribed, written)
    segments = [
        SegmentAnswer(
            begin=one.begin,
            end=one.end,
            text=one.text,
            confidence=one.confidence,
            words=[WordAnswer(**vars(word)) for word in one.words] if written == "verbose_json" else None,
            attention=transcribed.listened.get(number),  # type: ignore[arg-type]
        )
        for number, one in enumerate(transcribed.segments)
    ]
    return _json(TranscribeAnswer(model=model, text=transcribed.text, seconds=transcribed.seconds, segments=segments))


def openai_answer(
    language: str, transcribed: Transcribed, written: ResponseFormat, granularities: Sequence[Granularity]
) -> Response:
    """The response of /v1/audio/transcriptions."""
    if written == "json":
        return _json(TranscriptionAnswer(text=transcribed.text))
    if written != "verbose_json":
        return _plain(transcribed, written)
    words = [_word(word) for segment in transcribed.segments for word in segment.words]
    segments = [_segment(number, one) for number, one in enumerate(transcribed.segments)]
    answer = VerboseTranscriptionAnswer(
        language=language,
        duration=transcribed.seconds,
        text=transcribed.text,
        segments=segments if "segment" in granularities else None,
        words=words if "word" in granularities else None,
    )
    return _json(answer)


def _segment(number: int, one: "Segment") -> TranscriptionSegment:
    return TranscriptionSegment(id=number, start=one.begin, end=one.end, text=one.text, confidence=one.confidence)


def _word(word: "Word") -> TranscriptionWord:
    return TranscriptionWord(word=word.text, start=word.begin, end=word.end, confidence=word.confidence)


def _json(answer: BaseModel) -> Response:
    return Response(answer.model_dump_json(exclude_none=True), media_type="application/json")


def _plain(transcribed: Transcribed, written: ResponseFormat) -> Response:
    from transduce.translator.subtitles import srt, vtt
    from transduce.translator.transcription import Transcript

    transcript = Transcript("", transcribed.segments)
    if written == "vtt":
        return PlainTextResponse(vtt(transcript), media_type="text/vtt")
    return PlainTextResponse(srt(transcript) if written == "srt" else f"{transcript.text}\n")
