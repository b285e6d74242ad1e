"""Error responses: one JSON shape for every refusal, with Retry-After where a retry helps. Never repeats a user's text."""

import difflib
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from transduce.errors import TransduceError
from transduce.server.refusals import ClientDisconnected, Refusal, Unauthorized


class Refused(BaseModel):
    """The body of every error response."""

    error: str = Field(description="The reason, in one line.")


# The field `model` of routes for OpenAI's clients, which always send it.
ANY_NAME = "The name of the model, as listed by `/v1/models`. A server with a single {} also takes a name that no model of the server has."

# The error responses in the documentation of each route.
REFUSALS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Refused, "description": "The request is invalid or not allowed; `error` says why."},
    503: {"model": Refused, "description": "The server is overloaded; retry after the seconds in `Retry-After`."},
}


def refused(refusal: Refusal) -> Response:
    headers = {"Retry-After": str(refusal.retry_after_s)} if refusal.retry_after_s else {}
    if isinstance(refusal, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(Refused(error=str(refusal)).model_dump(), refusal.status, headers)


def failed(error: Exception, request_id: str) -> Response:
    """The response to a request on which the server itself failed."""
    log_failure(error, request_id)
    return JSONResponse(Refused(error="internal server error").model_dump(), 500)


def log_failure(error: BaseException | None, request_id: str = "") -> None:
    """Log where an error happened, but not its message, which could contain a user's text."""
    place = traceback.extract_tb(error.__traceback__)[-1:] if error else []
    where = f" at {place[0].filename}:{place[0].lineno}" if place else ""
    during = f" (request {request_id})" if request_id else ""
    print(f"transduce: internal error: {type(error).__name__}{where}{during}", file=sys.stderr)


def handle_errors(app: FastAPI) -> None:
    """Turn every exception of a route into a response of the one shape."""

    @app.exception_handler(Refusal)
    async def refuse(_: HttpRequest, error: Refusal) -> Response:
        return refused(error)

    @app.exception_handler(TransduceError)
    async def refuse_setting(_: HttpRequest, error: TransduceError) -> Response:
        return refused(Refusal(str(error)))

    @app.exception_handler(RequestValidationError)
    async def refuse_body(http: HttpRequest, error: RequestValidationError) -> Response:
        return refused(Refusal(explain(error.errors(), _fields(http))))

    @app.exception_handler(ClientDisconnected)
    async def forget(_: HttpRequest, error: ClientDisconnected) -> Response:
        return Response(status_code=499)  # only the metrics see it

    @app.exception_handler(Exception)
    async def fail(http: HttpRequest, error: Exception) -> Response:
        return failed(error, http.scope["request_id"])

    @app.exception_handler(HTTPException)
    async def refuse_route(_: HttpRequest, error: HTTPException) -> Response:
        not_utf8 = isinstance(error.__cause__, UnicodeDecodeError)  # FastAPI says only that it could not read the body
        reason = "the body is not valid UTF-8: send JSON in UTF-8" if not_utf8 else error.detail
        return JSONResponse(Refused(error=reason).model_dump(), error.status_code, error.headers)


EXAMPLES = {
    "q": "a sentence",
    "text": "a sentence",
    "source": "en",
    "target": "de",
}  # values of fields that bodies need


NO_OBJECT = "the body must be a JSON object, sent with the header content-type: application/json"
TEXTS = {
    "prompt": "give a text, or a list with one text",
    "stop": "give a text, or a list of at most 16 texts, of at most 200 characters each",
}  # fields that take a text or a list; others take any number of texts


def _fields(http: HttpRequest) -> list[str]:
    """The names of the fields that the body of a route has; none if it has no body."""
    dependant = getattr(http.scope.get("route"), "dependant", None)
    bodies = [one.field_info.annotation for one in dependant.body_params] if dependant else []
    return [name for body in bodies for name in getattr(body, "model_fields", {})]


def _unknown_field(where: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(where, known, n=1, cutoff=0.5)
    advice = f"; did you mean {close[0]}?" if close else f"; known fields: {', '.join(known)}" if known else ""
    return f"unknown field {where}{advice}"


def explain(errors: Sequence[Any], known: Sequence[str] = ()) -> str:
    """The first error in a body: the field and what was expected there, without the value that was sent."""
    first = next(
        (one for one in errors if one["type"] == "extra_forbidden"), errors[0]
    )  # a misspelt field explains the other errors
    if first["type"] == "json_invalid":
        return f"the body is not valid JSON: error at character {first['loc'][-1]}"
    parts = [str(part) for part in first["loc"] if part != "body"]
    where = ".".join(parts)
    if not where and first["type"] in ("missing", "model_type", "model_attributes_type"):
        return NO_OBJECT
    if first["type"] == "extra_forbidden":
        return _unknown_field(where, known)
    if first["type"] == "none_required":
        return f"{where} is not supported: leave it out"
    if any(part in ("str", "constrained-str") or part.startswith("list[") for part in parts[1:]):
        return f"{parts[0]}: {TEXTS.get(parts[0], 'give a text, or a list of texts')}"
    if first["type"] == "missing" and where:
        example = f', for example {{"{where}": "{EXAMPLES[where]}"}}' if where in EXAMPLES else ""
        return f"the field {where} is missing: add it to the body{example}"
    return f"{where}: {first['msg']}" if where else str(first["msg"])
