"""The routes of the web page: what the explorer shows of a model, and the page's own files. Computes nothing itself."""

import asyncio
import gzip
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, FastAPI
from pydantic import Field
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from transduce.server.answers import REFUSALS
from transduce.server.api import WHOLE, Body, Inspected
from transduce.server.asking import presented_key, while_present
from transduce.server.models import Model
from transduce.server.refusals import Unknown
from transduce.server.service import Service

Number = Annotated[int, Field(ge=0, le=100), WHOLE]
WORTH_PACKING = 10_000  # bytes
Loose = Field(strict=False)  # JSON has lists only, which are strictly no tuples
Head = Annotated[tuple[Literal["encoder", "decoder", "source"], Number, Number], Loose]


class ExploreBody(Body):
    model: str = ""
    text: Inspected


class ExploreTranslateBody(ExploreBody):
    n_best: Annotated[int, Field(ge=1, le=20), WHOLE] = 4
    alternatives: Annotated[int, Field(ge=0, le=20), WHOLE] = 5


class ExploreAttentionBody(ExploreBody):
    target: str | None = None
    off: Annotated[tuple[Head, ...], Field(max_length=1_000), Loose] = ()  # heads to switch off


class ExploreTreeBody(ExploreBody):
    beam: Annotated[int, Field(ge=2, le=12), WHOLE] = 4


def explore_routes(service: Service) -> APIRouter:
    """The routes over a service."""

    async def admit(http: HttpRequest) -> None:  # in the event loop, where nobody else takes from a key's bucket
        service.keys.admit(presented_key(http))

    router = APIRouter(prefix="/v1/explore", tags=["explore"], dependencies=[Depends(admit)], responses=REFUSALS)

    async def show(http: HttpRequest, body: ExploreBody, name: str, texts: list[str], **arguments: Any) -> Response:
        view = view_named(name)
        look = service.look(
            service.models.named(body.model), texts, lambda translator: view(translator, body.text, **arguments)
        )
        return await packed(await while_present(http, service.metrics, look), http)

    @router.post("/translate")
    async def translate(body: ExploreTranslateBody, http: HttpRequest) -> Response:
        """Outputs of a text, and for each token what else was likely."""
        return await show(http, body, "translate_view", [body.text], n_best=body.n_best, alternatives=body.alternatives)

    @router.post("/attention")
    async def attention(body: ExploreAttentionBody, http: HttpRequest) -> Response:
        """Who looks at whom, with some heads switched off."""
        texts = [body.text] if body.target is None else [body.text, body.target]
        off = [list(head) for head in body.off]
        check_heads(service.models.named(body.model), body.off)
        return await show(http, body, "attention_view", texts, target=body.target, off=off)

    @router.post("/tree")
    async def tree(body: ExploreTreeBody, http: HttpRequest) -> Response:
        """What beam search kept and left."""
        return await show(http, body, "tree_view", [body.text], beam=body.beam)

    @router.get("/training")
    def training(model: str = "") -> dict[str, Any]:
        """The curves of a model's training."""
        seen: dict[str, Any] = view_named("training_view")(service.models.named(model).of.folder)
        return seen

    return router


def check_heads(model: Model, off: Sequence[Head]) -> None:
    """Refuse heads that the model does not have."""
    config = model.translator.config.transformer
    for part, layer, head in off:
        layers = config.num_encoder_layers if part == "encoder" else config.num_decoder_layers
        if layer >= layers or head >= config.num_heads:
            raise Unknown(f"no such head: {part} has layers 0 to {layers - 1} of heads 0 to {config.num_heads - 1}")


async def packed(body: bytes, http: HttpRequest) -> Response:
    """Long JSON in gzip for those who take it: a long sentence has megabytes of attention, most of it zeros."""
    if len(body) < WORTH_PACKING or "gzip" not in http.headers.get("accept-encoding", ""):
        return Response(body, media_type="application/json")
    small = await asyncio.to_thread(gzip.compress, body, 1)
    headers = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return Response(small, media_type="application/json", headers=headers)


def view_named(name: str) -> Callable[..., Any]:
    """A function of the explorer, imported when it is first asked for: it needs torch, which translating may not."""
    from transduce.explore import views

    view: Callable[..., Any] = getattr(views, name)
    return view


def add_page(app: FastAPI) -> None:
    """The page's files under their paths; they are all there is, so no path leads to any other file."""
    from transduce.explore import page

    for path, (content, kind) in page.files().items():
        app.add_api_route(path, _file(content, kind), methods=["GET"], include_in_schema=False)


def _file(content: bytes, kind: str) -> Callable[[], Response]:
    def file() -> Response:
        return Response(content, media_type=kind)

    return file
