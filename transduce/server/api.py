"""Our own routes, /v1: translations with n-best lists, scores, tokens and attention. What comes in is checked by type."""

import json
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from transduce.server.answers import REFUSALS
from transduce.server.asking import presented_key, while_present
from transduce.server.models import Model
from transduce.server.refusals import Unknown
from transduce.server.service import Service, Translated
from transduce.translator import Attention, Output, Request, Translation, Translator


def _whole(value: object) -> object:
    """JSON has one kind of number: 4.0 is a whole one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)
Inspected = Annotated[str, Field(min_length=1)]


class Body(BaseModel):
    """Strict: a misspelt field or a number in quotes is refused, not guessed at."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Choice(Body):
    """Which model: its name, or a pair of languages; neither where there is only one."""

    model: str = ""
    source: str = ""
    target: str = ""


class TranslateBody(Choice):
    text: str | list[str]
    format: Literal["text", "html"] = "text"
    n_best: Annotated[int, Field(ge=1, le=16), WHOLE] = 1
    beam: Annotated[int, Field(ge=1, le=16), WHOLE] | None = None
    alpha: Annotated[float, Field(ge=0, le=10)] | None = None
    length_penalty: Literal["paper", "power"] | None = None
    tokens: bool = False  # the log-probability of each token
    attention: bool = False  # which source tokens each output token looked at


class AttentionBody(Choice):
    text: Inspected
    output: str | None = None  # look at this output instead of the model's own


class TokenAnswer(BaseModel):
    token: str
    log_probability: float


class OutputAnswer(BaseModel):
    text: str
    score: float
    log_probability: float
    tokens: list[TokenAnswer] | None = None


class Alignment(BaseModel):
    """How much each target token looked at each source token: the mean over layers and heads."""

    source: list[str]
    target: list[str]  # what the decoder was given
    written: list[str]  # what it wrote then: the names of the rows
    weights: list[list[float]]


class SentenceAnswer(BaseModel):
    source: str
    outputs: list[OutputAnswer]  # best first
    unknown: int  # source tokens the vocabulary does not have
    cut: int  # source tokens beyond what the model takes, not translated
    attention: Alignment | None = None


class TextAnswer(BaseModel):
    text: str
    sentences: list[SentenceAnswer]


class TranslateAnswer(BaseModel):
    model: str
    translations: list[TextAnswer]


class AttentionAnswer(BaseModel):
    """Weights by layer, head, who looks, who is looked at."""

    source: list[str]
    target: list[str]  # what the decoder was given: its columns
    written: list[str]  # what it wrote then: its rows
    encoder: list[list[list[list[float]]]]
    decoder: list[list[list[list[float]]]]
    cross: list[list[list[list[float]]]]


class ModelAnswer(BaseModel):
    name: str
    source: str
    target: str
    description: str


class ModelsAnswer(BaseModel):
    models: list[ModelAnswer]


_ALIGNMENTS = TypeAdapter(list[Alignment])


def v1_routes(service: Service) -> APIRouter:
    """The routes over a service."""

    async def admit(http: HttpRequest) -> None:  # in the event loop, where nobody else takes from a key's bucket
        service.keys.admit(presented_key(http))

    router = APIRouter(prefix="/v1", tags=["v1"], dependencies=[Depends(admit)], responses=REFUSALS)

    @router.get("/models")
    async def models() -> ModelsAnswer:
        """The models of this server."""
        return ModelsAnswer(models=[_model_answer(model) for model in service.models.all])

    @router.post("/translate", responses={200: {"model": TranslateAnswer}})
    async def translate(body: TranslateBody, http: HttpRequest) -> Response:
        """Translate one text or several, with as many outputs, scores, tokens and attention as asked for."""
        answer = await while_present(http, service.metrics, _translate(service, body))
        return Response(answer, media_type="application/json")

    @router.post("/attention", responses={200: {"model": AttentionAnswer}})
    async def attention(body: AttentionBody, http: HttpRequest) -> Response:
        """Every head of every layer for a sentence and its translation."""
        texts = [body.text] if body.output is None else [body.text, body.output]
        model = choose(service, body)
        look = service.look(model, texts, lambda translator: _every_head(translator, body.text, body.output))
        return Response(await while_present(http, service.metrics, look), media_type="application/json")

    return router


def choose(service: Service, choice: Choice) -> Model:
    """By name, or by pair of languages; where both are given they must agree."""
    pair = (choice.source, choice.target)
    if pair == ("", ""):
        return service.models.named(choice.model)
    model = service.models.of_pair(*pair)
    if choice.model not in ("", model.of.name):
        raise Unknown("the model of that name does not translate that pair of languages")
    return model


async def _translate(service: Service, body: TranslateBody) -> bytes:
    """A `TranslateAnswer` in JSON."""
    model = choose(service, body)
    texts = [body.text] if isinstance(body.text, str) else body.text
    translated = await service.translate(model, texts, _request(model, body), is_html=body.format == "html")
    alignments = await _alignments(service, model, translated) if body.attention else []
    write = partial(_written, model.of.name, translated, body.tokens, alignments)
    return await service.aside(write, sum(one.characters for one in translated))


def _request(model: Model, body: TranslateBody) -> Request:
    return model.translator.request(
        n_best=body.n_best,
        beam=body.beam,
        alpha=body.alpha,
        length_penalty=body.length_penalty,
        figures="tokens" if body.tokens else "outputs",
    )


def _written(name: str, translated: list[Translated], with_tokens: bool, alignments: list[Alignment]) -> bytes:
    """The answer sentence by sentence: writing thousands of them in one go would hold the interpreter for seconds."""
    aligned = iter(alignments)
    texts = []
    for one in translated:
        answers = (_sentence_answer(each, with_tokens, next(aligned, None)) for each in one.translations)
        sentences = ",".join(answer.model_dump_json(exclude_none=True) for answer in answers)
        texts.append(f'{{"text":{_json(one.text())},"sentences":[{sentences}]}}')
    return f'{{"model":{_json(name)},"translations":[{",".join(texts)}]}}'.encode()


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _sentence_answer(translation: Translation, with_tokens: bool, alignment: Alignment | None) -> SentenceAnswer:
    return SentenceAnswer(
        source=translation.source,
        outputs=[_output_answer(output, with_tokens) for output in translation.outputs],
        unknown=translation.unknown,
        cut=translation.cut,
        attention=alignment,
    )


def _output_answer(output: Output, with_tokens: bool) -> OutputAnswer:
    pairs = zip([*output.tokens, "</s>"], output.token_log_probabilities, strict=True) if with_tokens else []
    tokens = [TokenAnswer(token=token, log_probability=value) for token, value in pairs]
    return OutputAnswer(
        text=output.text,
        score=output.score,
        log_probability=output.log_probability,
        tokens=tokens if with_tokens else None,
    )


async def _alignments(service: Service, model: Model, translated: list[Translated]) -> list[Alignment]:
    """What the best output of each sentence looked at."""
    pairs = [(each.source, each.outputs[0].text) for one in translated for each in one.translations]
    if not pairs:
        return []
    seen = await service.look(
        model,
        [" ".join(source for source, _ in pairs)],
        lambda translator: [_alignment(translator.attention(*pair)) for pair in pairs],
    )
    return _ALIGNMENTS.validate_json(seen)


def _alignment(attention: Attention) -> dict[str, Any]:
    layers = attention.maps.source
    mean = sum(layer[0].double().mean(0) for layer in layers) / len(layers)
    return _names(attention) | {"weights": mean.round(decimals=4).tolist()}  # type: ignore[union-attr]


def _every_head(translator: Translator, text: str, output: str | None) -> dict[str, Any]:
    attention = translator.attention(text, output)
    maps = {"encoder": attention.maps.encoder, "decoder": attention.maps.decoder, "cross": attention.maps.source}
    weights = {
        name: [layer[0].double().round(decimals=4).tolist() for layer in layers] for name, layers in maps.items()
    }
    return _names(attention) | weights


def _names(attention: Attention) -> dict[str, Any]:
    return {"source": attention.source, "target": attention.target, "written": attention.written}


def _model_answer(model: Model) -> ModelAnswer:
    description = model.translator.config.model.description
    return ModelAnswer(name=model.of.name, source=model.of.source, target=model.of.target, description=description)
