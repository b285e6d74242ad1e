"""The application: routes over a service, behind the gate. Knows no sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from transduce import __version__
from transduce.server.answers import handle_errors
from transduce.server.api import v1_routes
from transduce.server.asking import presented_key
from transduce.server.explore_routes import add_page, explore_routes
from transduce.server.libre import libre_routes
from transduce.server.limits import Gate
from transduce.server.reference import reference_page
from transduce.server.service import Service


def make_app(service: Service) -> Gate:
    """An ASGI application that serves these models."""
    app = FastAPI(
        title="Transduce",
        version=__version__,
        docs_url=None,  # FastAPI's own pages load scripts from elsewhere
        redoc_url=None,
        lifespan=lambda _: _living(service),
    )
    handle_errors(app)
    app.include_router(libre_routes(service))
    app.include_router(v1_routes(service))
    app.include_router(explore_routes(service))
    _add_operations(app, service)
    add_page(app)
    return Gate(app, service.settings, service.queue, service.metrics)


def _add_operations(app: FastAPI, service: Service) -> None:
    """What those who run the server ask it."""

    @app.get("/health/live", tags=["operation"])
    async def live() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @app.get("/health/ready", tags=["operation"])
    async def ready() -> dict[str, str]:
        """There is room for another request."""
        service.queue.check_room()
        return {"status": "ok"}

    @app.get("/metrics", tags=["operation"], response_class=PlainTextResponse)
    async def metrics(http: HttpRequest) -> Response:
        """Figures for Prometheus."""
        service.keys.admit(presented_key(http))
        return Response(service.metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(reference_page(app.openapi()))


@asynccontextmanager
async def _living(service: Service) -> AsyncIterator[None]:
    watching = asyncio.create_task(service.models.watch(service.settings.reload_s))
    try:
        yield
    finally:
        watching.cancel()
        service.close()
