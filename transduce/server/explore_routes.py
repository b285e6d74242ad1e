"""The routes of the web page: the explorer's views of a model, and the files of the page. Computes nothing itself."""

import asyncio
import gzip
import json
import threading
from collections.abc import Callable, Hashable, Sequence, Set
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, FastAPI, Query
from pydantic import AliasChoices, BeforeValidator, Field
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from transduce.explore.runs import training_state
from transduce.server.answers import REFUSALS
from transduce.server.api import WHOLE, Body, Inspected
from transduce.server.client import cancel_on_disconnect
from transduce.server.explore_answers import AttentionView, TrainingView, TranslateView, TreeView
from transduce.server.models import ServedModel
from transduce.server.refusals import NotFound
from transduce.server.service import Service

OLD_PARTS = {"source": "cross"}  # names of earlier versions


def _renamed(part: object) -> object:
    return OLD_PARTS.get(part, part) if isinstance(part, str) else part


Number = Annotated[int, Field(ge=0, le=100), WHOLE]
WORTH_COMPRESSING = 10_000  # bytes
Loose = Field(strict=False)  # JSON has lists but no tuples, so strict validation would refuse every value
Part = Annotated[Literal["encoder", "decoder", "cross"], BeforeValidator(_renamed)]
Head = Annotated[tuple[Part, Number, Number], Loose]


class ExploreBody(Body):
    """A sentence to look into."""

    model: str = Field("", description="The name of the model. A server with a single model needs none.")
    text: Inspected = Field(description="The source sentence.")


class ExploreTranslateBody(ExploreBody):
    """A sentence to translate, with alternatives to each token."""

    n_best: Annotated[int, Field(ge=1, le=20), WHOLE] = Field(4, description="How many outputs to return.")
    alternatives: Annotated[int, Field(ge=0, le=20), WHOLE] = Field(
        5, description="How many alternatives to each token to return."
    )


class ExploreAttentionBody(ExploreBody):
    """A sentence whose attention to show, optionally with some heads switched off."""

    target_text: str | None = Field(
        None,
        validation_alias=AliasChoices("target_text", "target"),
        description="The target sentence. Default: the translation of the model. (`target` is the old name.)",
    )
    off: Annotated[tuple[Head, ...], Field(max_length=1_000), Loose] = Field(
        (),
        description="Heads to switch off, each as [part, layer, head]; part is `encoder`, `decoder` or `cross`, "
        "layers and heads count from 0.",
    )


class ExploreTreeBody(ExploreBody):
    """A sentence whose beam search to show."""

    beam: Annotated[int, Field(ge=2, le=12), WHOLE] = Field(4, description="The beam size.")


def explore_routes(service: Service) -> APIRouter:
    """The routes over a service."""
    router = APIRouter(prefix="/v1/explore", tags=["explore"], responses=REFUSALS)
    training_views = TrainingViews()

    async def show(http: HttpRequest, body: ExploreBody, name: str, texts: list[str], **arguments: Any) -> Response:
        view = view_named(name)
        inspect = service.inspect(
            service.models.named(body.model), texts, lambda translator: view(translator, body.text, **arguments)
        )
        return await compressed(await cancel_on_disconnect(http, service.metrics, inspect), http)

    @router.post("/translate", responses={200: {"model": TranslateView}})
    async def translate(body: ExploreTranslateBody, http: HttpRequest) -> Response:
        """The best outputs for a sentence, and the most probable alternatives to each of their tokens."""
        return await show(http, body, "translate_view", [body.text], n_best=body.n_best, alternatives=body.alternatives)

    @router.post("/attention", responses={200: {"model": AttentionView}})
    async def attention(body: ExploreAttentionBody, http: HttpRequest) -> Response:
        """Attention weights, head statistics, masks and positional encoding, optionally with some heads switched off."""
        target = body.target_text
        texts = [body.text] if target is None else [body.text, target]
        off = [list(head) for head in body.off]
        check_heads(service.models.named(body.model), body.off)
        return await show(http, body, "attention_view", texts, target_text=target, off=off)

    @router.post("/tree", responses={200: {"model": TreeView}})
    async def tree(body: ExploreTreeBody, http: HttpRequest) -> Response:
        """Beam search on a sentence, step by step: the candidates, and which of them were kept."""
        return await show(http, body, "tree_view", [body.text], beam=body.beam)

    @router.get("/training", responses={200: {"model": TrainingView}})
    def training(
        model: Annotated[
            str, Query(description="The name of the model. A server with a single model needs none.")
        ] = "",
    ) -> Response:
        """The training log of a model: curves, validations and the model card."""
        body = training_views.json(service.models.of_any_kind(model).of.folder)
        return Response(body, media_type="application/json")

    return router


class TrainingViews:
    """The training view of each run as JSON, made again only if the run has changed: reading a long log takes a second."""

    def __init__(self) -> None:
        self._made: dict[Path, tuple[Hashable, bytes]] = {}
        self._lock = threading.Lock()  # requests that come together read a log once

    def json(self, run: Path) -> bytes:
        with self._lock:
            state, (known, body) = training_state(run), self._made.get(run, (None, b""))
            if state != known:
                body = json.dumps(view_named("training_view")(run), allow_nan=False).encode()
                self._made[run] = state, body
            return body


def check_heads(model: ServedModel, off: Sequence[Head]) -> None:
    """Refuse to switch off heads that the model does not have."""
    config = model.translator.config.transformer
    for part, layer, head in off:
        layers = config.num_encoder_layers if part == "encoder" else config.num_decoder_layers
        if layer >= layers or head >= config.num_heads:
            raise NotFound(f"no such head: {part} has layers 0 to {layers - 1} with heads 0 to {config.num_heads - 1}")


async def compressed(body: bytes, http: HttpRequest) -> Response:
    """JSON, compressed if it is long and the client accepts gzip: the weights of a long sentence take megabytes."""
    if len(body) < WORTH_COMPRESSING or "gzip" not in http.headers.get("accept-encoding", ""):
        return Response(body, media_type="application/json")
    small = await asyncio.to_thread(gzip.compress, body, 1)
    headers = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return Response(small, media_type="application/json", headers=headers)


def view_named(name: str) -> Callable[..., Any]:
    """A view function of the explorer, imported on first use: it needs torch, which translation may not."""
    from transduce.explore import views

    view: Callable[..., Any] = getattr(views, name)
    return view


def add_page(app: FastAPI) -> Set[str]:
    """Add a route for each file of the page, and return the paths. No path is built from a request."""
    from transduce.explore import page

    for path, (content, kind) in page.files().items():
        app.add_api_route(path, _file(content, kind), methods=["GET"], include_in_schema=False)
    return set(page.files())


def _file(content: bytes, kind: str) -> Callable[[], Response]:
    def file() -> Response:
        return Response(content, media_type=kind)

    return file
