"""LibreTranslate's routes, so that its clients work unchanged: /translate, /languages, /detect, /frontend/settings, /health.

JSON and forms alike; a list of texts gives a list of translations.
"""

import json
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qs

from fastapi import APIRouter
from pydantic import BaseModel, Field, ValidationError
from starlette.requests import Request as HttpRequest

from transduce.server.answers import REFUSALS, explain
from transduce.server.api import WHOLE
from transduce.server.asking import presented_key, while_present
from transduce.server.detection import Detected
from transduce.server.languages import name_of
from transduce.server.models import Model
from transduce.server.refusals import Refusal
from transduce.server.service import Service, Translated
from transduce.translator import Request

Body = TypeVar("Body", bound=BaseModel)
FIELDS = 1_100  # of a form: as many texts as a request may have, and the rest


class LibreBody(BaseModel):
    q: str | Annotated[list[str], Field(min_length=1)]
    source: str
    target: str
    format: Literal["text", "html"] = "text"
    alternatives: Annotated[int, Field(ge=0, le=10), WHOLE] = 0
    api_key: str = ""


class DetectBody(BaseModel):
    q: str
    api_key: str = ""


class DetectedAnswer(BaseModel):
    language: str
    confidence: float


class LibreAnswer(BaseModel):
    translatedText: str | list[str]
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: DetectedAnswer | list[DetectedAnswer] | None = None


class LanguageAnswer(BaseModel):
    code: str
    name: str
    targets: list[str]


def libre_routes(service: Service) -> APIRouter:
    """The routes over a service."""
    router = APIRouter(tags=["LibreTranslate"], responses=REFUSALS)

    @router.post("/translate", response_model_exclude_none=True, openapi_extra=_taken(LibreBody))
    async def translate(http: HttpRequest) -> LibreAnswer:
        """Translate a text or a list of texts."""
        body = await _read(http, LibreBody)
        service.keys.admit(body.api_key or presented_key(http))
        return await while_present(http, service.metrics, _translate(service, body))

    @router.post("/detect", openapi_extra=_taken(DetectBody))
    async def detect(http: HttpRequest) -> list[DetectedAnswer]:
        """The likeliest languages of a text, where a language detector is installed."""
        body = await _read(http, DetectBody)
        service.keys.admit(body.api_key or presented_key(http))
        return [_detected(one) for one in await service.detect(body.q)]

    @router.get("/languages")
    async def languages() -> list[LanguageAnswer]:
        """What can be translated, and into what."""
        return _languages(service.models.all)

    @router.get("/frontend/settings")
    async def settings() -> dict[str, Any]:
        """What a page of LibreTranslate's asks before it shows itself."""
        return _frontend_settings(service)

    @router.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    return router


def _taken(body: type[BaseModel]) -> dict[str, Any]:
    """What the documentation says of a body that is read by hand."""
    kinds = ("application/json", "application/x-www-form-urlencoded")
    content = {kind: {"schema": body.model_json_schema()} for kind in kinds}
    return {"requestBody": {"required": True, "content": content}}


async def _read(http: HttpRequest, kind: type[Body]) -> Body:
    """The body as JSON or as a form, checked."""
    content_type = http.headers.get("content-type", "").partition(";")[0].strip().lower()
    content = await http.body()
    is_json = content_type == "application/json"
    if not is_json and content_type != "application/x-www-form-urlencoded":
        raise Refusal("send application/json or application/x-www-form-urlencoded")
    try:
        # A form has nothing but strings, so numbers in it are read; JSON has numbers of its own.
        return kind.model_validate(json.loads(content) if is_json else _form(content), strict=is_json)
    except ValidationError as error:
        raise Refusal(explain(error.errors(include_input=False))) from None
    except (ValueError, RecursionError):
        raise Refusal(f"the body is not {'JSON' if is_json else 'a form'} in UTF-8") from None


def _form(content: bytes) -> dict[str, str | list[str]]:
    """A field that comes several times is a list."""
    fields = parse_qs(content.decode(), keep_blank_values=True, max_num_fields=FIELDS, errors="strict")
    return {name: values if len(values) > 1 else values[0] for name, values in fields.items()}


async def _translate(service: Service, body: LibreBody) -> LibreAnswer:
    texts = body.q if isinstance(body.q, list) else [body.q]
    detected = (await service.detect(" ".join(texts)))[0] if body.source == "auto" else None
    model = service.models.of_pair(detected.language if detected else body.source, body.target)
    request = _request(model, body.alternatives + 1)
    translated = await service.translate(model, texts, request, is_html=body.format == "html")
    ranks = await service.aside(partial(_ranks, translated, request.n_best), sum(one.characters for one in translated))
    return _answer(body, [best for best, *_ in ranks], [others for _, *others in ranks], detected)


def _ranks(translated: list[Translated], outputs: int) -> list[list[str]]:
    """Each text by the outputs of each rank, best first."""
    return [[one.text(rank) for rank in range(outputs)] for one in translated]


def _request(model: Model, outputs: int) -> Request:
    return model.translator.request(n_best=outputs, figures="none")


def _answer(body: LibreBody, texts: list[str], others: list[list[str]], detected: Detected | None) -> LibreAnswer:
    """A list for a list, a text for a text."""
    is_list = isinstance(body.q, list)
    language = _detected(detected) if detected else None
    return LibreAnswer(
        translatedText=texts if is_list else texts[0],
        alternatives=(others if is_list else others[0]) if body.alternatives else None,
        detectedLanguage=[language] * len(texts) if is_list and language else language,
    )


def _detected(one: Detected) -> DetectedAnswer:
    return DetectedAnswer(**asdict(one))


def _languages(models: list[Model]) -> list[LanguageAnswer]:
    targets: dict[str, list[str]] = {}
    for model in models:
        if model.of.source:
            targets.setdefault(model.of.source, []).append(model.of.target)
    return [LanguageAnswer(code=code, name=name_of(code), targets=into) for code, into in targets.items()]


def _frontend_settings(service: Service) -> dict[str, Any]:
    first = next((model.of for model in service.models.all if model.of.source), None)
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
