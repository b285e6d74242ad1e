"""The routes of language models: /v1/generate, and /v1/completions as OpenAI's clients know it. Both can stream."""

import json
import secrets
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from transduce.server.answers import ANY_NAME, REFUSALS
from transduce.server.api import WHOLE, Body
from transduce.server.client import cancel_on_disconnect
from transduce.server.events import DONE, Events, EventStream, event, with_errors
from transduce.server.generation import ServedLanguageModel
from transduce.server.refusals import Refusal
from transduce.server.service import Service
from transduce.translator.engine import SAMPLING_SETTINGS

if TYPE_CHECKING:
    from transduce.translator.generation import GeneratedText, Generation, GenerationRequest

MOST_TEXTS = 16
SEEDS = 2**63

Finish = Literal["stop", "length"]
Stop = Annotated[str, Field(max_length=200)]  # an empty one is refused with the words of the command line
Count = Annotated[int, Field(ge=1, le=MOST_TEXTS), WHOLE]
MaxTokens = Annotated[int, Field(ge=1), WHOLE]
Seed = Annotated[int, Field(ge=0, lt=SEEDS), WHOLE]


class GenerateBody(Body):
    """A prompt to continue, and how."""

    model: str = Field("", description="The name of the model. A server with a single language model needs none.")
    prompt: str = Field("", description="The beginning of the text; empty for a new document.")
    n: Count = Field(1, description="How many texts to generate; more than one needs `sampling`.")
    sampling: bool = Field(
        False, description="Sample from the model instead of taking the most probable token each time."
    )
    temperature: float | None = Field(
        None, description="Below 1, probable tokens become more probable; above 1, less. Default: 1."
    )
    top_k: Annotated[int, WHOLE] | None = Field(
        None, description="Sample from the `top_k` most probable tokens. Default: from all."
    )
    top_p: float | None = Field(
        None, description="Sample from the most probable tokens whose probabilities sum to `top_p`. Default: 1."
    )
    seed: Seed | None = Field(
        None, description="The same seed, prompt and `n` give the same texts. Default: 1, as on the command line."
    )
    max_tokens: MaxTokens = Field(200, description="The most tokens of each text.")
    stop: Stop | Annotated[list[Stop], Field(max_length=16)] = Field(
        default_factory=list, description="A text ends before the first of these strings."
    )
    stream: bool = Field(False, description="Send the texts as server-sent events while they are generated.")


class GeneratedTextAnswer(BaseModel):
    """A generated text."""

    text: str = Field(description="The text, without the prompt.")
    tokens: int = Field(description="How many tokens were generated.")
    finish_reason: Finish = Field(
        description="`stop`: its document ended, or a string of `stop` followed; `length`: it reached `max_tokens`."
    )


class GenerateAnswer(BaseModel):
    """The generated texts."""

    model: str = Field(description="The name of the model that was used.")
    texts: list[GeneratedTextAnswer] = Field(description="The texts, as many as `n`.")
    prompt_tokens: int = Field(description="How many tokens the prompt has.")
    cut: int = Field(description="How many of them the model did not see, because its context is shorter.")
    unknown: int = Field(description="How many characters of the prompt are not in the vocabulary.")


class CompletionBody(Body):
    """A request of OpenAI's completions API. Fields that are not listed here are refused."""

    model: str = Field(description=ANY_NAME.format("language model"))
    prompt: str | Annotated[list[str], Field(min_length=1, max_length=1)] = Field(
        "", description="The beginning of the text, or a list with one text."
    )
    n: Count = Field(1, description="How many texts to generate.")
    temperature: Annotated[float, Field(ge=0, le=2)] = Field(
        1.0, description="The temperature of sampling; 0 takes the most probable token each time."
    )
    top_p: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="Sample from the most probable tokens whose probabilities sum to `top_p`."
    )
    seed: Seed | None = Field(None, description="The same seed gives the same texts. Default: a new one each time.")
    max_tokens: MaxTokens = Field(16, description="The most tokens of each text.")
    stop: Stop | Annotated[list[Stop], Field(max_length=16)] | None = Field(
        None, description="A text ends before the first of these strings."
    )
    stream: bool = Field(False, description="Send the texts as server-sent events, the last of which is `[DONE]`.")
    echo: Literal[False] = Field(False, description="Not supported.")
    best_of: Literal[1] | None = Field(None, description="Not supported.")
    logprobs: None = Field(None, description="Not supported.")
    suffix: None = Field(None, description="Not supported.")
    presence_penalty: Annotated[float, Field(ge=0, le=0)] = Field(0.0, description="Not supported: must be 0.")
    frequency_penalty: Annotated[float, Field(ge=0, le=0)] = Field(0.0, description="Not supported: must be 0.")
    user: str = Field("", description="Ignored.")


class Choice(BaseModel):
    """A text of a completion."""

    index: int = Field(description="The number of the text, from 0.")
    text: str = Field(description="The text; in a stream, the part that is new.")
    finish_reason: Finish | None = Field(description="Why the text ended; in a stream, null until it ends.")
    logprobs: None = Field(default=None, description="Always null.")


class Usage(BaseModel):
    """The tokens of a completion."""

    prompt_tokens: int = Field(description="Of the prompt.")
    completion_tokens: int = Field(description="Of the texts together.")
    total_tokens: int = Field(description="Of both.")


class CompletionAnswer(BaseModel):
    """OpenAI's answer; a stream has several of them, without `usage`."""

    id: str = Field(description="The id of the completion.")
    object: Literal["text_completion"] = Field("text_completion", description="Always `text_completion`.")
    created: int = Field(description="The time in seconds since 1970.")
    model: str = Field(description="The name of the model that was used.")
    choices: list[Choice] = Field(description="The texts.")
    usage: Usage | None = Field(None, description="How many tokens there are; not in a stream.")


def generate_routes(service: Service) -> APIRouter:
    """The routes over a service."""
    router = APIRouter(prefix="/v1", tags=["language models"], responses=REFUSALS)

    @router.post("/generate", responses={200: {"model": GenerateAnswer}})
    async def generate(body: GenerateBody, http: HttpRequest) -> Response:
        """Continue a prompt. A stream has events with `index` and `text`, and ends with an event `done` or `error`."""
        model = service.models.language_model(body.model)
        generation = await service.prepare_generation(model, body.prompt, _request(body))
        if body.stream:
            return await _streamed(service, http, _events(service, model, generation))
        texts = await cancel_on_disconnect(http, service.metrics, _texts(service, model, generation))
        return _json(_answer(model, generation, texts))

    @router.post("/completions", responses={200: {"model": CompletionAnswer}})
    async def completions(body: CompletionBody, http: HttpRequest) -> Response:
        """Continue a prompt, with OpenAI's request and response."""
        model = service.models.language_model_for_openai(body.model)
        prompt = body.prompt if isinstance(body.prompt, str) else body.prompt[0]
        generation = await service.prepare_generation(model, prompt, _completion_request(body))
        written = _completion_writer(model)
        if body.stream:
            return await _streamed(service, http, _chunks(service, model, generation, written))
        texts = await cancel_on_disconnect(http, service.metrics, _texts(service, model, generation))
        choices = [
            Choice(index=index, text=text, finish_reason=_finish(one))
            for index, (text, one) in enumerate(zip(texts, generation.texts, strict=True))
        ]
        return _json(written(choices, _usage(generation)))

    return router


def _request(body: GenerateBody) -> "GenerationRequest":
    from transduce.translator.generation import GenerationRequest

    given = {name: getattr(body, name) for name in SAMPLING_SETTINGS}
    for name in SAMPLING_SETTINGS:
        if not body.sampling and given[name] is not None:
            raise Refusal(f"{name} has no effect without sampling: add `sampling`, or leave it out")
    if body.n > 1 and not body.sampling:
        raise Refusal(f"n = {body.n}: without sampling all texts would be the same: add `sampling`")
    request = GenerationRequest(sampling=body.sampling, max_tokens=body.max_tokens, n=body.n, stop=_stops(body.stop))
    return request.but(**given)


def _completion_request(body: CompletionBody) -> "GenerationRequest":
    from transduce.translator.generation import GenerationRequest

    if not body.temperature and body.n > 1:
        raise Refusal(f"n = {body.n}: with temperature 0 all texts would be the same")
    return GenerationRequest(
        sampling=body.temperature > 0,
        temperature=body.temperature or 1.0,
        top_p=body.top_p,
        seed=secrets.randbelow(SEEDS) if body.seed is None else body.seed,
        n=body.n,
        max_tokens=body.max_tokens,
        stop=_stops(body.stop or []),
    )


def _stops(stop: str | list[str]) -> tuple[str, ...]:
    return (stop,) if isinstance(stop, str) else tuple(stop)


async def _texts(service: Service, model: ServedLanguageModel, generation: "Generation") -> list[str]:
    """The whole texts."""
    texts = [""] * len(generation.texts)
    async with aclosing(service.generate(model, generation)) as steps:
        async for parts in steps:
            texts = [text + part for text, part in zip(texts, parts, strict=True)]
    return texts


async def _streamed(service: Service, http: HttpRequest, events: Events) -> Response:
    """A response that begins with the first event; what goes wrong before it has a status of its own."""
    first = await cancel_on_disconnect(http, service.metrics, _first(events))
    return EventStream(first, with_errors(events, http.scope["request_id"]), service.metrics)


async def _first(events: Events) -> bytes:
    return await anext(events)


async def _events(service: Service, model: ServedLanguageModel, generation: "Generation") -> Events:
    """An event for each part of a text, and a last one with what is known at the end."""
    async with aclosing(service.generate(model, generation)) as steps:
        async for parts in steps:
            for index, text in enumerate(parts):
                if text:
                    yield event({"index": index, "text": text})
    answer = _answer(model, generation, [""] * len(generation.texts)).model_dump()
    yield event(
        answer | {"texts": [{k: v for k, v in text.items() if k != "text"} for text in answer["texts"]]}, "done"
    )


Write = Callable[[list[Choice], Usage | None], CompletionAnswer]


def _completion_writer(model: ServedLanguageModel) -> Write:
    """Makes the answers to one request: all have the same id and time."""
    about: dict[str, Any] = {"id": f"cmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": model.of.name}
    return lambda choices, usage: CompletionAnswer(**about, choices=choices, usage=usage)


async def _chunks(service: Service, model: ServedLanguageModel, generation: "Generation", written: Write) -> Events:
    """OpenAI's events: one for each part of a text, one for each end of a text, and `[DONE]`."""
    async with aclosing(service.generate(model, generation)) as steps:
        async for parts in steps:
            choices = [Choice(index=i, text=text, finish_reason=None) for i, text in enumerate(parts) if text]
            if choices:
                yield _chunk(written, choices)
    ends = [Choice(index=i, text="", finish_reason=_finish(one)) for i, one in enumerate(generation.texts)]
    yield _chunk(written, ends)
    yield DONE


def _chunk(written: Write, choices: list[Choice]) -> bytes:
    return event(written(choices, None).model_dump(exclude={"usage"}))


def _answer(model: ServedLanguageModel, generation: "Generation", texts: list[str]) -> GenerateAnswer:
    answers = [
        GeneratedTextAnswer(text=text, tokens=one.tokens, finish_reason=_finish(one))
        for text, one in zip(texts, generation.texts, strict=True)
    ]
    return GenerateAnswer(
        model=model.of.name,
        texts=answers,
        prompt_tokens=len(generation.prompt),
        cut=generation.cut,
        unknown=generation.unknown,
    )


def _usage(generation: "Generation") -> Usage:
    prompt, completion = len(generation.prompt), sum(text.tokens for text in generation.texts)
    return Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)


def _finish(text: "GeneratedText") -> Finish:
    return "stop" if text.ended else "length"


def _json(answer: BaseModel) -> Response:
    return Response(json.dumps(answer.model_dump(), ensure_ascii=False), media_type="application/json")
