"""How the server says no: one shape for every refusal, with Retry-After where coming again helps. Text is never echoed."""

import sys
import traceback
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from transduce.errors import TransduceError
from transduce.server.refusals import Abandoned, Refusal


class Refused(BaseModel):
    """Why there is no answer."""

    error: str


# What every route's documentation says of its refusals.
REFUSALS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Refused, "description": "What was asked cannot be done, and why"},
    503: {"model": Refused, "description": "More work than can be done in time; see Retry-After"},
}


def refused(refusal: Refusal) -> Response:
    headers = {"Retry-After": str(refusal.retry_after_s)} if refusal.retry_after_s else None
    return JSONResponse(Refused(error=str(refusal)).model_dump(), refusal.status, headers)


def failed(error: Exception) -> Response:
    """An error of ours."""
    log_failure(error)
    return JSONResponse(Refused(error="the server failed on this request").model_dump(), 500)


def log_failure(error: BaseException | None) -> None:
    """Where it happened, and not its words, which could be a user's."""
    place = traceback.extract_tb(error.__traceback__)[-1:] if error else []
    where = f" at {place[0].filename}:{place[0].lineno}" if place else ""
    print(f"transduce: something failed: {type(error).__name__}{where}", file=sys.stderr)


def handle_errors(app: FastAPI) -> None:
    """Every way a handler can fail, in the one shape."""

    @app.exception_handler(Refusal)
    async def refuse(_: HttpRequest, error: Refusal) -> Response:
        return refused(error)

    @app.exception_handler(TransduceError)
    async def refuse_setting(_: HttpRequest, error: TransduceError) -> Response:
        return refused(Refusal(str(error)))

    @app.exception_handler(RequestValidationError)
    async def refuse_body(_: HttpRequest, error: RequestValidationError) -> Response:
        return refused(Refusal(explain(error.errors())))

    @app.exception_handler(Abandoned)
    async def forget(_: HttpRequest, error: Abandoned) -> Response:
        return Response(status_code=499)  # read by the metrics only

    @app.exception_handler(Exception)
    async def fail(_: HttpRequest, error: Exception) -> Response:
        return failed(error)

    @app.exception_handler(HTTPException)
    async def refuse_route(_: HttpRequest, error: HTTPException) -> Response:
        return JSONResponse(Refused(error=error.detail).model_dump(), error.status_code, error.headers)


def explain(errors: Sequence[Any]) -> str:
    """The first thing wrong with a body: where it is and what was expected, without what was sent."""
    first = next(
        (one for one in errors if one["type"] == "extra_forbidden"), errors[0]
    )  # a name misspelt explains the rest
    if first["type"] == "json_invalid":
        return f"the body is not JSON: wrong at character {first['loc'][-1]}"
    where = ".".join(str(part) for part in first["loc"] if part != "body")
    return f"{where}: {first['msg']}" if where else str(first["msg"])
