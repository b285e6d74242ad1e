"""The routes of speech models: /v1/transcribe, and /v1/audio/transcriptions as OpenAI's clients know it.

A recording is the whole body, or the field `file` of a form. It stays in memory.
"""

from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, PlainTextResponse, Response

from transduce.server.answers import REFUSALS
from transduce.server.client import cancel_on_disconnect
from transduce.server.multipart import Form, is_form, parse_form
from transduce.server.refusals import Refusal, UnsupportedType
from transduce.server.service import Service, Transcribed

TRANSCRIBE, OPENAI = "/v1/transcribe", "/v1/audio/transcriptions"
UPLOADS = frozenset({TRANSCRIBE, OPENAI})
MOST_BEAM = 16
IGNORED = ("language", "prompt", "temperature")  # fields of OpenAI's clients that mean nothing to these models

ResponseFormat = Literal["json", "text", "verbose_json"]
FILE = {"type": "string", "format": "binary", "description": "The recording: wav, flac, ogg (Opus, Vorbis) or mp3."}


class ListeningAnswer(BaseModel):
    """Where the decoder listens while it writes the tokens of a segment."""

    tokens: list[str] = Field(description="The tokens of the text, ending in `</s>`.")
    weights: list[list[float]] = Field(
        description="Cross-attention, averaged over layers and heads: a row per token, a column per 40 ms of the segment."
    )


class SegmentAnswer(BaseModel):
    """A piece of a recording with its text."""

    begin: float = Field(description="Where the piece begins, in seconds.")
    end: float = Field(description="Where it ends.")
    text: str = Field(description="Its text; empty for silence.")
    confidence: float = Field(description="The geometric mean of the probabilities of its tokens; 1 for silence.")
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


def transcribe_routes(service: Service) -> APIRouter:
    """The routes over a service."""
    router = APIRouter(tags=["speech"], responses=REFUSALS)

    @router.post(TRANSCRIBE, responses={200: {"model": TranscribeAnswer}}, openapi_extra=_body({}, raw=True))
    async def transcribe(
        http: HttpRequest,
        model: Annotated[
            str, Query(description="The name of the model. A server with a single speech model needs none.")
        ] = "",
        beam: Annotated[
            int | None, Query(ge=1, le=MOST_BEAM, description="The beam size. Default: the setting of the model.")
        ] = None,
        attention: Annotated[
            bool, Query(description="Return where the decoder listens, for recordings of up to 60 s.")
        ] = False,
    ) -> Response:
        """Transcribe a recording: the body of the request, or the field `file` of a form."""
        content_type = http.headers.get("content-type", "")
        body = await http.body()
        form = parse_form(content_type, body) if is_form(content_type) else Form({}, body)
        _check_fields(form, ())
        name, transcribed = await _transcribed(service, http, model, form.file, beam, attention)
        segments = [
            SegmentAnswer(**vars(segment), attention=transcribed.listened.get(number))  # type: ignore[arg-type]
            for number, segment in enumerate(transcribed.segments)
        ]
        answer = TranscribeAnswer(model=name, text=transcribed.text, seconds=transcribed.seconds, segments=segments)
        return Response(answer.model_dump_json(exclude_none=True), media_type="application/json")

    @router.post(OPENAI, responses={200: {"model": TranscriptionAnswer}}, openapi_extra=_body(_OPENAI_FIELDS))
    async def transcriptions(http: HttpRequest) -> Response:
        """Transcribe a recording, with OpenAI's form and response. `language`, `prompt` and `temperature` have no effect."""
        content_type = http.headers.get("content-type", "")
        if not is_form(content_type):
            raise UnsupportedType("the Content-Type must be multipart/form-data")
        form = parse_form(content_type, await http.body())
        _check_fields(form, ("model", "response_format", *IGNORED))
        written = _format(form)
        _, transcribed = await _transcribed(service, http, form.fields.get("model", ""), form.file, None)
        return _openai_response(transcribed, written)

    return router


_OPENAI_FIELDS = {
    "model": {"type": "string", "description": "The name of the model, as listed by `/v1/models`."},
    "response_format": {
        "type": "string",
        "enum": list(get_args(ResponseFormat)),
        "default": "json",
        "description": "`json`: the text; `text`: the text alone; `verbose_json`: also the length and the segments.",
    },
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
    service: Service, http: HttpRequest, name: str, recording: bytes, beam: int | None, attention: bool = False
) -> tuple[str, Transcribed]:
    """The name of the model, and what it heard."""
    model = service.models.speech(name)
    request = model.translator.request(beam=beam, figures="outputs")
    return model.of.name, await cancel_on_disconnect(
        http, service.metrics, service.transcribe(model, recording, request, attention=attention)
    )


def _check_fields(form: Form, known: tuple[str, ...]) -> None:
    if len(unknown := set(form.fields) - set(known)):
        allowed = ", ".join(("file", *known))
        raise Refusal(f"the form has {len(unknown)} unknown fields; the fields of this route are: {allowed}")


def _format(form: Form) -> ResponseFormat:
    wanted = form.fields.get("response_format", "json")
    for known in get_args(ResponseFormat):
        if wanted == known:
            return known
    raise Refusal(f"response_format: must be one of {', '.join(get_args(ResponseFormat))}")


def _openai_response(transcribed: Transcribed, written: ResponseFormat) -> Response:
    if written == "text":
        return PlainTextResponse(f"{transcribed.text}\n")
    if written == "json":
        return Response(TranscriptionAnswer(text=transcribed.text).model_dump_json(), media_type="application/json")
    segments = [
        {"id": number, "start": one.begin, "end": one.end, "text": one.text, "confidence": one.confidence}
        for number, one in enumerate(transcribed.segments)
    ]
    answer = {"task": "transcribe", "duration": transcribed.seconds, "text": transcribed.text, "segments": segments}
    return JSONResponse(answer)
