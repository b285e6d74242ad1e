"""LibreTranslate's routes: /translate, /languages, /detect, /frontend/settings, /health. Its clients work unchanged.

Bodies are JSON or forms. A list of texts gives a list of translations.
"""

import json
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qs

from fastapi import APIRouter
from pydantic import BaseModel, Field, ValidationError
from starlette.requests import Request as HttpRequest

from transduce.languages import name_of
from transduce.server.answers import REFUSALS, explain
from transduce.server.api import WHOLE
from transduce.server.client import cancel_on_disconnect, presented_key
from transduce.server.detection import Detected
from transduce.server.models import ServedModel
from transduce.server.refusals import Forbidden, Refusal, Unauthorized
from transduce.server.service import Service, Translated
from transduce.translator import SearchRequest

Body = TypeVar("Body", bound=BaseModel)
FIELDS = 1_100  # of a form: as many texts as a request may have, and the other fields


class LibreBody(BaseModel):
    """A translation request of LibreTranslate's API."""

    q: str | Annotated[list[str], Field(min_length=1)] = Field(description="The text to translate, or a list of texts.")
    source: str = Field(description="The code of the source language, such as `en`; `auto` detects it.")
    target: str = Field(description="The code of the target language, such as `de`.")
    format: Literal["text", "html"] = Field("text", description="Whether `q` is plain text or HTML.")
    alternatives: Annotated[int, Field(ge=0, le=10), WHOLE] = Field(
        0, description="How many alternative translations to return, at most 10."
    )
    api_key: str = Field("", description="The API key, if the server needs one.")


class DetectBody(BaseModel):
    """A language detection request of LibreTranslate's API."""

    q: str = Field(description="The text whose language is detected.")
    api_key: str = Field("", description="The API key, if the server needs one.")


class DetectedAnswer(BaseModel):
    """A likely language of a text."""

    language: str = Field(description="The code of the language, such as `en`.")
    confidence: float = Field(description="The confidence in per cent.")


class LibreAnswer(BaseModel):
    """The translations of a request: lists if `q` was a list."""

    translatedText: str | list[str] = Field(description="The translation of `q`, or one for each of its texts.")
    alternatives: list[str] | list[list[str]] | None = Field(
        None, description="The alternative translations, best first; present only if they were requested."
    )
    detectedLanguage: DetectedAnswer | list[DetectedAnswer] | None = Field(
        None, description="The detected source language; present only if `source` was `auto`."
    )


class LanguageAnswer(BaseModel):
    """A source language of this server."""

    code: str = Field(description="The code of the language, such as `en`.")
    name: str = Field(description="The English name of the language.")
    targets: list[str] = Field(description="The codes of the languages that it can be translated into.")


def libre_routes(service: Service) -> APIRouter:
    """The routes over a service."""
    router = APIRouter(tags=["LibreTranslate"], responses=REFUSALS)

    @router.post("/translate", response_model_exclude_none=True, openapi_extra=_request_body(LibreBody))
    async def translate(http: HttpRequest) -> LibreAnswer:
        """Translate a text or a list of texts."""
        body = await _read(http, LibreBody)
        _admit(service, body.api_key or presented_key(http.headers))
        return await cancel_on_disconnect(http, service.metrics, _translate(service, body))

    @router.post("/detect", openapi_extra=_request_body(DetectBody))
    async def detect(http: HttpRequest) -> list[DetectedAnswer]:
        """The likeliest languages of a text, likeliest first. Status 404 if no language detector is installed."""
        body = await _read(http, DetectBody)
        _admit(service, body.api_key or presented_key(http.headers))
        found = await cancel_on_disconnect(http, service.metrics, service.detect(body.q))
        return [_detected(one) for one in found]

    @router.get("/languages")
    async def languages() -> list[LanguageAnswer]:
        """The languages that the models of this server translate from and into."""
        return _languages(service.models.translating)

    @router.get("/frontend/settings")
    async def settings() -> dict[str, Any]:
        """The settings that LibreTranslate's web page and clients read first: limits, languages, whether keys are needed."""
        return _frontend_settings(service)

    @router.get("/health")
    async def health() -> dict[str, str]:
        """Whether the process is alive."""
        return {"status": "ok"}

    return router


def _admit(service: Service, key: str) -> None:
    """Check the key; LibreTranslate's status for a missing or wrong one is 403."""
    try:
        service.keys.admit(key)
    except Unauthorized as refusal:
        raise Forbidden(str(refusal)) from None


def _request_body(body: type[BaseModel]) -> dict[str, Any]:
    """The documentation of a body that the route reads itself."""
    kinds = ("application/json", "application/x-www-form-urlencoded")
    content = {kind: {"schema": body.model_json_schema()} for kind in kinds}
    return {"requestBody": {"required": True, "content": content}}


async def _read(http: HttpRequest, kind: type[Body]) -> Body:
    """The body, JSON or a form, validated."""
    content_type = http.headers.get("content-type", "").partition(";")[0].strip().lower()
    content = await http.body()
    is_json = content_type == "application/json"
    if not is_json and content_type != "application/x-www-form-urlencoded":
        raise Refusal("the Content-Type must be application/json or application/x-www-form-urlencoded")
    try:
        # A form contains only strings, so they are converted to numbers; JSON has numbers of its own.
        return kind.model_validate(json.loads(content) if is_json else _form(content), strict=is_json)
    except ValidationError as error:
        raise Refusal(explain(error.errors(include_input=False))) from None
    except (ValueError, RecursionError):
        raise Refusal(f"the body is not valid {'JSON' if is_json else 'form data'} in UTF-8") from None


def _form(content: bytes) -> dict[str, str | list[str]]:
    """The fields of a form; a field that occurs several times becomes a list."""
    fields = parse_qs(content.decode(), keep_blank_values=True, max_num_fields=FIELDS, errors="strict")
    return {name: values if len(values) > 1 else values[0] for name, values in fields.items()}


async def _translate(service: Service, body: LibreBody) -> LibreAnswer:
    texts = body.q if isinstance(body.q, list) else [body.q]
    detected = (await service.detect(" ".join(texts)))[0] if body.source == "auto" else None
    model = service.models.of_pair(detected.language if detected else body.source, body.target)
    request = _request(model, body.alternatives + 1)
    translated = await service.translate(model, texts, request, is_html=body.format == "html")
    ranks = await service.off_loop(
        partial(_ranks, translated, request.n_best), sum(one.characters for one in translated)
    )
    return _answer(body, [best for best, *_ in ranks], [others for _, *others in ranks], detected)


def _ranks(translated: list[Translated], outputs: int) -> list[list[str]]:
    """Each text in as many versions as there are outputs, best first."""
    return [[one.text(rank) for rank in range(outputs)] for one in translated]


def _request(model: ServedModel, outputs: int) -> SearchRequest:
    return model.translator.request(n_best=outputs, log_probs="none")


def _answer(body: LibreBody, texts: list[str], others: list[list[str]], detected: Detected | None) -> LibreAnswer:
    """Lists if `q` was a list, single values otherwise."""
    is_list = isinstance(body.q, list)
    language = _detected(detected) if detected else None
    return LibreAnswer(
        translatedText=texts if is_list else texts[0],
        alternatives=(others if is_list else others[0]) if body.alternatives else None,
        detectedLanguage=[language] * len(texts) if is_list and language else language,
    )


def _detected(one: Detected) -> DetectedAnswer:
    return DetectedAnswer(**asdict(one))


def _languages(models: list[ServedModel]) -> list[LanguageAnswer]:
    targets: dict[str, list[str]] = {}
    for model in models:
        if model.of.source:
            targets.setdefault(model.of.source, []).append(model.of.target)
    return [LanguageAnswer(code=code, name=name_of(code), targets=into) for code, into in targets.items()]


def _frontend_settings(service: Service) -> dict[str, Any]:
    first = next((model.of for model in service.models.translating if model.of.source), None)
    codes = {"source": first.source, "target": first.target} if first else {}
    return {
        "apiKeys": service.keys.is_needed,
        "keyRequired": service.keys.is_needed,
        "charLimit": service.settings.characters,
        "frontendTimeout": 500,
        "language": {side: {"code": code, "name": name_of(code)} for side, code in codes.items()},
        "suggestions": False,
        "filesTranslation": False,
        "supportedFilesFormat": [],
    }
