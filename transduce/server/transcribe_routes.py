"""The routes of speech models: /v1/transcribe, and /v1/audio/transcriptions as OpenAI's clients know it.

A recording is the whole body, or the field `file` of a form. It stays in memory.
"""

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar, get_args

from fastapi import APIRouter, Query
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from transduce.server.answers import ANY_NAME, REFUSALS
from transduce.server.client import cancel_on_disconnect
from transduce.server.multipart import Form, is_form, parse_form
from transduce.server.refusals import Refusal, UnsupportedType
from transduce.server.service import Service, Transcribed
from transduce.server.transcript_answers import (
    SUBTITLES,
    Granularity,
    ResponseFormat,
    TranscribeAnswer,
    TranscriptionAnswer,
    VerboseTranscriptionAnswer,
    openai_answer,
    our_answer,
)
from transduce.server.transcription import ServedSpeechModel

TRANSCRIBE, OPENAI = "/v1/transcribe", "/v1/audio/transcriptions"
UPLOADS = frozenset({TRANSCRIBE, OPENAI})
MOST_BEAM = 16
IGNORED = ("language", "prompt", "temperature")  # fields of OpenAI's clients that mean nothing to these models
GRANULARITIES = "timestamp_granularities[]"

Choice = TypeVar("Choice", bound=str)
FILE = {"type": "string", "format": "binary", "description": "The recording: wav, flac, ogg (Opus, Vorbis) or mp3."}
AS_TEXT: dict[str, Any] = {kind: {"schema": {"type": "string"}} for kind in ("text/plain", "text/vtt")}


def transcribe_routes(service: Service) -> APIRouter:
    """The routes over a service."""
    router = APIRouter(tags=["speech"], responses=REFUSALS)

    @router.post(
        TRANSCRIBE,
        responses={200: {"model": TranscribeAnswer, "content": AS_TEXT}},
        openapi_extra=_body({}, raw=True),
    )
    async def transcribe(
        http: HttpRequest,
        model: Annotated[
            str, Query(description="The name of the model. A server with a single speech model needs none.")
        ] = "",
        beam: Annotated[
            int | None, Query(ge=1, le=MOST_BEAM, description="The beam size. Default: the setting of the model.")
        ] = None,
        response_format: Annotated[
            ResponseFormat,
            Query(
                description="`json`: the text and the segments; `verbose_json`: also the words with their times; `text`: "
                "the text alone; `srt`, `vtt`: subtitles."
            ),
        ] = "json",
        attention: Annotated[
            bool,
            Query(description="Return the attention of the decoder over time, in JSON, for recordings of up to 60 s."),
        ] = False,
    ) -> Response:
        """Transcribe a recording: the body of the request, or the field `file` of a form."""
        content_type = http.headers.get("content-type", "")
        body = await http.body()
        form = parse_form(content_type, body) if is_form(content_type) else Form({}, body)
        _check_fields(form, (), "; options belong to the address, as in /v1/transcribe?response_format=srt")
        if attention and not response_format.endswith("json"):
            raise Refusal(f"attention: the format {response_format} cannot hold it; leave it out, or ask for json")
        chosen = service.models.speech(model)
        words = response_format == "verbose_json" or _has_subtitle_times(chosen, response_format)
        transcribed = await _transcribed(service, http, chosen, form.file, beam=beam, words=words, attention=attention)
        return our_answer(chosen.of.name, transcribed, response_format)

    @router.post(
        OPENAI,
        responses={200: {"model": TranscriptionAnswer | VerboseTranscriptionAnswer, "content": AS_TEXT}},
        openapi_extra=_body(_OPENAI_FIELDS),
    )
    async def transcriptions(http: HttpRequest) -> Response:
        """Transcribe a recording, with OpenAI's form and response. `language`, `prompt` and `temperature` have no effect."""
        content_type = http.headers.get("content-type", "")
        if not is_form(content_type):
            raise UnsupportedType("the Content-Type must be multipart/form-data")
        form = parse_form(content_type, await http.body())
        _check_fields(form, ("model", "response_format", GRANULARITIES, "stream", *IGNORED))
        if form.value("stream", "false").lower() != "false":
            raise Refusal("stream: the answer is sent when the whole recording is transcribed; leave it out")
        written = _choice("response_format", form.value("response_format", "json"), get_args(ResponseFormat))
        granularities = _granularities(form, written)
        chosen = service.models.speech_for_openai(form.value("model"))
        words = "word" in granularities or _has_subtitle_times(chosen, written)
        transcribed = await _transcribed(service, http, chosen, form.file, words=words)
        return openai_answer(chosen.of.source, transcribed, written, granularities)

    return router


_OPENAI_FIELDS = {
    "model": {"type": "string", "description": ANY_NAME.format("speech model")},
    "response_format": {
        "type": "string",
        "enum": list(get_args(ResponseFormat)),
        "default": "json",
        "description": "`json`: the text; `verbose_json`: also the length and the segments; `text`: the text alone; "
        "`srt`, `vtt`: subtitles.",
    },
    GRANULARITIES: {
        "type": "array",
        "items": {"type": "string", "enum": list(get_args(Granularity))},
        "default": ["segment"],
        "description": "With `verbose_json`: whether segments, words or both have times. Repeat the field for both.",
    },
    "stream": {"type": "boolean", "default": False, "description": "Not supported: must be false."},
    **{name: {"type": "string", "description": "Ignored."} for name in IGNORED},
}


def _body(fields: dict[str, Any], raw: bool = False) -> dict[str, Any]:
    """The documentation of a body that the route reads itself."""
    form = {
        "type": "object",
        "description": "A form with a recording.",
        "required": ["file"],
        "properties": {"file": FILE, **fields},
    }
    content: dict[str, Any] = {"multipart/form-data": {"schema": form}}
    return {"requestBody": {"required": True, "content": {**({"audio/*": {"schema": FILE}} if raw else {}), **content}}}


async def _transcribed(
    service: Service,
    http: HttpRequest,
    model: ServedSpeechModel,
    recording: bytes,
    *,
    beam: int | None = None,
    words: bool = False,
    attention: bool = False,
) -> Transcribed:
    """The transcript."""
    if words and not model.knows_times:
        raise Refusal("this model was trained without CTC and does not know the times of words: ask for segments only")
    request = model.translator.request(beam=beam, log_probs="outputs")
    transcribing = service.transcribe(model, recording, request, words=words, attention=attention)
    return await cancel_on_disconnect(http, service.metrics, transcribing)


def _has_subtitle_times(model: ServedSpeechModel, written: ResponseFormat) -> bool:
    """Whether subtitles are cut by the times of words; those of a model without CTC have the times of segments."""
    return written in SUBTITLES and model.knows_times


def _check_fields(form: Form, known: tuple[str, ...], advice: str = "") -> None:
    if len(unknown := set(form.fields) - set(known)):
        allowed = ", ".join(("file", *known))
        raise Refusal(f"the form has {len(unknown)} unknown fields; the fields of this route are: {allowed}{advice}")


def _granularities(form: Form, written: ResponseFormat) -> list[Granularity]:
    if GRANULARITIES in form.fields and written != "verbose_json":
        raise Refusal(f"{GRANULARITIES}: only the format verbose_json has times; set response_format=verbose_json")
    given = form.fields.get(GRANULARITIES, ["segment"])
    return [_choice(GRANULARITIES, one, get_args(Granularity)) for one in given]


def _choice(name: str, given: str, known: Sequence[Choice]) -> Choice:
    for one in known:
        if given == one:
            return one
    raise Refusal(f"{name}: must be one of {', '.join(known)}")
