"""The /v1 routes: translations with n-best lists, scores, tokens and attention weights. Request bodies are validated."""

import json
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from transduce.server.answers import REFUSALS
from transduce.server.client import cancel_on_disconnect
from transduce.server.models import AnyModel, ServedModel
from transduce.server.refusals import NotFound
from transduce.server.service import Service, Translated
from transduce.server.specification import Kind
from transduce.translator import Attention, Output, SearchRequest, Translation, Translator


def _whole(value: object) -> object:
    """JSON has a single type of number, so 4.0 is a whole number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)
Inspected = Annotated[str, Field(min_length=1)]
Weights = list[list[list[list[float]]]]  # [layer][head][query][key]


class Body(BaseModel):
    """A request body. It is strict: a misspelt field or a number in quotes is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class ModelChoice(Body):
    """Which model to use: its name or its languages. A server with a single model needs neither."""

    model: str = Field("", description="The name of the model, as listed by `/v1/models`.")
    source: str = Field("", description="The code of the source language, such as `en`.")
    target: str = Field("", description="The code of the target language, such as `de`.")


class TranslateBody(ModelChoice):
    """Texts to translate, and what to return with their translations."""

    text: str | list[str] = Field(description="The text to translate, or a list of texts.")
    format: Literal["text", "html"] = Field("text", description="Whether the texts are plain text or HTML.")
    n_best: Annotated[int, Field(ge=1, le=16), WHOLE] = Field(
        1, description="How many outputs to return for each sentence. Widens the beam if necessary."
    )
    beam: Annotated[int, Field(ge=1, le=16), WHOLE] | None = Field(
        None, description="The beam size; 1 is greedy search. Default: the setting of the model."
    )
    alpha: Annotated[float, Field(ge=0, le=10)] | None = Field(
        None, description="The exponent of the length penalty. Default: the setting of the model."
    )
    length_penalty: Literal["paper", "power"] | None = Field(
        None,
        description="The length penalty: `paper` is ((5 + length) / 6) ^ alpha, `power` is length ^ alpha. "
        "Default: the setting of the model.",
    )
    tokens: bool = Field(False, description="Return the tokens of each output with their log-probabilities.")
    attention: bool = Field(
        False, description="Return the cross-attention weights of the best output, averaged over layers and heads."
    )


class AttentionBody(ModelChoice):
    """A sentence whose attention weights to return."""

    text: Inspected = Field(description="The source sentence.")
    target_text: str | None = Field(
        None,
        validation_alias=AliasChoices("target_text", "output"),
        description="The target sentence. Default: the translation of the model. (`output` is the old name.)",
    )


class TokenAnswer(BaseModel):
    """A token of an output."""

    token: str = Field(description="The token as it is in the vocabulary.")
    log_probability: float = Field(description="The natural logarithm of its probability, given the tokens before it.")


class OutputAnswer(BaseModel):
    """A translation of a sentence."""

    text: str = Field(description="The translation.")
    score: float = Field(description="The log-probability divided by the length penalty. Outputs are ranked by it.")
    log_probability: float = Field(description="The natural logarithm of the probability of the whole output.")
    tokens: list[TokenAnswer] | None = Field(
        None, description="The tokens, ending in `</s>`; present only if `tokens` was requested."
    )


class PairTokens(BaseModel):
    """The tokens of a source and a target sentence."""

    source_tokens: list[str] = Field(description="The tokens of the source sentence.")
    decoder_input_tokens: list[str] = Field(
        description="The decoder's input: the start token, then every target token except the last."
    )
    target_tokens: list[str] = Field(description="The tokens that the decoder predicts, ending in `</s>`.")


class Alignment(PairTokens):
    """How much each target token attends to each source token, averaged over layers and heads."""

    weights: list[list[float]] = Field(
        description="Cross-attention weights: one row for each target token, one column for each source token."
    )


class SentenceAnswer(BaseModel):
    """A sentence of a text and its translations."""

    source: str = Field(description="The source sentence.")
    outputs: list[OutputAnswer] = Field(description="The translations, best first.")
    unknown: int = Field(
        description="How many characters of the source are not in the vocabulary; symbols, if the model reads symbols separated by spaces."
    )
    cut: int = Field(description="How many source tokens were cut off because the sentence is too long for the model.")
    unseen_features: list[str] | None = Field(
        None,
        description="Features of the source that did not occur in training, if there are any; each is an unknown token.",
    )
    attention: Alignment | None = Field(None, description="Present only if `attention` was requested.")


class TextAnswer(BaseModel):
    """A text and its translation."""

    text: str = Field(description="The translated text: the best output of each sentence, joined as in the source.")
    sentences: list[SentenceAnswer] = Field(description="The sentences of the text, in order.")


class TranslateAnswer(BaseModel):
    """The translations of a request."""

    model: str = Field(description="The name of the model that was used.")
    translations: list[TextAnswer] = Field(description="One entry for each text, in the order of the request.")


class AttentionAnswer(PairTokens):
    """The attention weights of every layer and head, as [layer][head][query][key]."""

    encoder: Weights = Field(description="Encoder self-attention: queries and keys are the source tokens.")
    decoder: Weights = Field(
        description="Decoder self-attention: queries are the target tokens, keys are the decoder input tokens."
    )
    cross: Weights = Field(description="Cross-attention: queries are the target tokens, keys are the source tokens.")


class ModelAnswer(BaseModel):
    """A model of this server."""

    name: str = Field(description="The name to send as `model`.")
    kind: Kind = Field(description="What it does: `translation`, `speech` (transcription) or `language model`.")
    source: str = Field(description="The code of the source language; empty if it is not known.")
    target: str = Field(description="The code of the target language; empty if it is not known.")
    description: str = Field(description="The size of the model.")


class ModelsAnswer(BaseModel):
    """The models of this server."""

    models: list[ModelAnswer] = Field(description="The models, in the order of the command line.")


_ALIGNMENTS = TypeAdapter(list[Alignment])


def v1_routes(service: Service) -> APIRouter:
    """The routes over a service."""
    router = APIRouter(prefix="/v1", tags=["v1"], responses=REFUSALS)

    @router.get("/models")
    async def models() -> ModelsAnswer:
        """List the models of this server."""
        return ModelsAnswer(models=[_model_answer(model) for model in service.models.all])

    @router.post("/translate", responses={200: {"model": TranslateAnswer}})
    async def translate(body: TranslateBody, http: HttpRequest) -> Response:
        """Translate one or several texts, optionally with n-best lists, token log-probabilities and attention weights."""
        answer = await cancel_on_disconnect(http, service.metrics, _translate(service, body))
        return Response(answer, media_type="application/json")

    @router.post("/attention", responses={200: {"model": AttentionAnswer}})
    async def attention(body: AttentionBody, http: HttpRequest) -> Response:
        """The attention weights of every layer and head for a sentence and its translation or a given target."""
        text, target = body.text, body.target_text
        model = choose(service, body)
        inspect = service.inspect(
            model, [text] if target is None else [text, target], lambda one: _every_head(one, text, target)
        )
        return Response(await cancel_on_disconnect(http, service.metrics, inspect), media_type="application/json")

    return router


def choose(service: Service, choice: ModelChoice) -> ServedModel:
    """The model with this name or these languages; if both are given, they must agree."""
    pair = (choice.source, choice.target)
    if pair == ("", ""):
        return service.models.named(choice.model)
    model = service.models.of_pair(*pair)
    if choice.model not in ("", model.of.name):
        raise NotFound("this model does not translate this language pair: send only `model`, or only the languages")
    return model


async def _translate(service: Service, body: TranslateBody) -> bytes:
    """A `TranslateAnswer` as JSON."""
    model = choose(service, body)
    texts = [body.text] if isinstance(body.text, str) else body.text
    translated = await service.translate(model, texts, _request(model, body), is_html=body.format == "html")
    alignments = await _alignments(service, model, translated) if body.attention else []
    write = partial(_written, model.of.name, translated, body.tokens, alignments)
    return await service.off_loop(write, sum(one.characters for one in translated))


def _request(model: ServedModel, body: TranslateBody) -> SearchRequest:
    return model.translator.request(
        n_best=body.n_best,
        beam=body.beam,
        alpha=body.alpha,
        length_penalty=body.length_penalty,
        log_probs="tokens" if body.tokens else "outputs",
    )


def _written(name: str, translated: list[Translated], with_tokens: bool, alignments: list[Alignment]) -> bytes:
    """The answer, written sentence by sentence: serialising thousands at once would hold the interpreter for seconds."""
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
        unseen_features=list(translation.unseen_features) or None,
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


async def _alignments(service: Service, model: ServedModel, translated: list[Translated]) -> list[Alignment]:
    """The alignment of the best output of each sentence."""
    pairs = [(each.source, each.outputs[0].text) for one in translated for each in one.translations]
    if not pairs:
        return []
    seen = await service.inspect(
        model,
        [" ".join(source for source, _ in pairs)],
        lambda translator: [_alignment(translator.attention(*pair)) for pair in pairs],
    )
    return _ALIGNMENTS.validate_json(seen)


def _alignment(attention: Attention) -> dict[str, Any]:
    layers = attention.maps.cross
    mean = sum(layer[0].double().mean(0) for layer in layers) / len(layers)
    return _tokens(attention) | {"weights": mean.round(decimals=4).tolist()}  # type: ignore[union-attr]


def _every_head(translator: Translator, text: str, target: str | None) -> dict[str, Any]:
    attention = translator.attention(text, target)
    weights = {
        name: [layer[0].double().round(decimals=4).tolist() for layer in layers]
        for name, layers in vars(attention.maps).items()
    }
    return _tokens(attention) | weights


def _tokens(attention: Attention) -> dict[str, list[str]]:
    return {
        "source_tokens": attention.source,
        "decoder_input_tokens": attention.target,
        "target_tokens": attention.written,
    }


def _model_answer(model: AnyModel) -> ModelAnswer:
    of = model.of
    return ModelAnswer(name=of.name, kind=of.kind, source=of.source, target=of.target, description=model.description)
