"""The ASGI application: the routes over a service, behind the key check and the limits. Knows no sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from pydantic import BaseModel, Field
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from transduce import __version__
from transduce.server.access import KeyCheck, document_access
from transduce.server.answers import handle_errors
from transduce.server.api import v1_routes
from transduce.server.explore_routes import add_page, explore_routes
from transduce.server.generate_routes import generate_routes
from transduce.server.libre import libre_routes
from transduce.server.limits import Gate
from transduce.server.reference import reference_page
from transduce.server.service import Service
from transduce.server.transcribe_routes import UPLOADS, transcribe_routes

DESCRIPTION = """Translation, generation and transcription with the models of this server.

If the server has API keys, send one as `Authorization: Bearer KEY`, as `X-API-Key: KEY`, or, to LibreTranslate's routes,
as `api_key` in the body. Without a valid key, requests are refused with status 401 (LibreTranslate's routes: 403).
Every refusal is a JSON object with one field, `error`."""

TAGS = [
    {"name": "LibreTranslate", "description": "Compatible with LibreTranslate: its clients work unchanged."},
    {"name": "v1", "description": "n-best lists, scores, token log-probabilities and attention weights."},
    {
        "name": "language models",
        "description": "Generate text, streamed if requested. `/v1/completions` is OpenAI's API.",
    },
    {"name": "speech", "description": "Transcribe recordings. `/v1/audio/transcriptions` is OpenAI's API."},
    {"name": "explore", "description": "The views of the web page. They may change with the page."},
    {"name": "operation", "description": "Health checks and metrics."},
]


class StatusAnswer(BaseModel):
    """The state of the server."""

    status: str = Field(description="Always `ok`; a server that is not responds with an error status.")


def make_app(service: Service) -> Gate:
    """An ASGI application that serves the models of a service."""
    app = FastAPI(
        title="Transduce",
        description=DESCRIPTION,
        version=__version__,
        openapi_tags=TAGS,
        openapi_url=None,  # added below like every other route
        docs_url=None,  # FastAPI's own pages load scripts from other sites
        redoc_url=None,
        redirect_slashes=False,  # behind a proxy with TLS, the redirect of `/translate/` would point to http://
        lifespan=lambda _: _lifespan(service),
    )
    handle_errors(app)
    app.include_router(libre_routes(service))
    app.include_router(v1_routes(service))
    app.include_router(generate_routes(service))
    app.include_router(transcribe_routes(service))
    app.include_router(explore_routes(service))
    _add_operations(app, service)
    _add_documentation(app)
    page = add_page(app)
    checked = KeyCheck(app, service.keys, page)
    return Gate(checked, service.settings, service.queue, service.metrics, service.keys, UPLOADS)


def _add_operations(app: FastAPI, service: Service) -> None:
    """Routes for those who run the server."""

    @app.get("/health/live", tags=["operation"])
    async def live() -> StatusAnswer:
        """Whether the process is alive."""
        return StatusAnswer(status="ok")

    @app.get("/health/ready", tags=["operation"])
    async def ready() -> StatusAnswer:
        """Whether the server accepts another request; status 503 if its queue is full."""
        service.queue.check_room()
        return StatusAnswer(status="ok")

    @app.get("/metrics", tags=["operation"], response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Metrics in Prometheus' text format."""
        return Response(service.metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_documentation(app: FastAPI) -> None:
    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return JSONResponse(document_access(app.openapi()))

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(reference_page(document_access(app.openapi())))


@asynccontextmanager
async def _lifespan(service: Service) -> AsyncIterator[None]:
    watching = asyncio.create_task(service.models.watch(service.settings.reload_s))
    try:
        yield
    finally:
        watching.cancel()
        service.close()
