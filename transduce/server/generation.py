"""Language models of a server, and generation as work for the queue. Knows no HTTP.

A request is one job whose lines are turns of a few tokens. A long text is therefore generated in many short batches, with other requests in between. When its client disconnects, the turns that are left are dropped.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from transduce.errors import SettingError
from transduce.server.jobs import LAST, UNNECESSARY
from transduce.server.queue import Queue
from transduce.server.specification import Specification, fingerprint
from transduce.translator import LoadOptions

if TYPE_CHECKING:
    from transduce.translator.generation import Generation
    from transduce.translator.language_model import LanguageModel

TURN = 8  # tokens of each text
READING = 1 / 8  # the cost of a token of the prompt: all of them are read at once

Parts = list[str]  # what each text grows by
Emit = Callable[[Parts], None]


@dataclass(frozen=True, eq=False)
class ServedLanguageModel:
    """A loaded language model."""

    of: Specification
    model: "LanguageModel"
    weights: str

    DOES = "generates text"
    ROUTE = "/v1/generate"

    @staticmethod
    def load(of: Specification, loading: LoadOptions) -> "ServedLanguageModel":
        """Load a model and generate with it once, so that the first request reads nothing from its folder."""
        if loading.engine == "ct2":
            raise SettingError(f"{of.folder}: a language model needs the torch engine: leave out --engine ct2")
        from transduce.translator.language_model import LanguageModel

        weights = fingerprint(of.folder, loading)
        device: Any = loading.device
        model = LanguageModel.load(of.folder, weights=loading.weights, device=device, threads=loading.threads)
        model.generate(max_tokens=2)
        return ServedLanguageModel(of, model, weights)

    @property
    def description(self) -> str:
        return self.model.config.model.description


class GenerationWork:
    """Work for the queue that continues one prompt; every line is a turn of a few tokens, in order."""

    def __init__(self, model: ServedLanguageModel, generation: "Generation", emit: Emit) -> None:
        self.model, self.request, self.emit = model, generation.request, emit
        self.prompt = min(len(generation.prompt), model.model.context)
        self._steps = iter(generation)
        self._is_over = False
        self._error: Exception | None = None

    @property
    def alone(self) -> "GenerationWork":
        return self  # its turns follow one another; the turns of other requests may run beside them

    @property
    def kind(self) -> tuple[object, ...]:
        return self.model.of.name, "generate", self.request.n.bit_length()

    @property
    def costs(self) -> list[float]:
        """The tokens of each turn; the prompt is read in the first one."""
        turns = -(-(self.request.max_tokens + 1) // TURN)  # a step more: it shows what was held back for `stop`
        first = self.request.n * (self.prompt * READING + TURN)
        return [first, *[float(self.request.n * TURN)] * (turns - 1)]

    def __call__(self, lines: list[str]) -> list[object]:
        return [self._turn() for _ in lines]

    def _turn(self) -> object:
        if self._error:  # a turn that failed is not tried again
            raise self._error
        if self._is_over:
            return UNNECESSARY
        try:
            taken = [self.emit(parts) for parts in islice(self._steps, TURN)]
        except Exception as error:
            self._error = error
            raise
        self._is_over = len(taken) < TURN
        return LAST if self._is_over else len(taken)


async def generated(queue: Queue, model: ServedLanguageModel, generation: "Generation") -> AsyncGenerator[Parts, None]:
    """What the texts grow by, as it is generated. Closing the iterator drops what has not been generated yet."""
    loop = asyncio.get_running_loop()
    feed: asyncio.Queue[Parts | None] = asyncio.Queue()  # None: nothing follows
    work = GenerationWork(model, generation, lambda parts: _hand_over(loop, feed, parts))
    answering = asyncio.ensure_future(queue.answer(work, [""] * len(work.costs), work.costs))
    answering.add_done_callback(lambda done: _end(feed, done))
    try:
        while (parts := await feed.get()) is not None:
            yield parts
        answering.result()  # raises what went wrong
    finally:
        answering.cancel()


def _hand_over(loop: asyncio.AbstractEventLoop, feed: "asyncio.Queue[Parts | None]", parts: Parts) -> None:
    loop.call_soon_threadsafe(feed.put_nowait, parts)


def _end(feed: "asyncio.Queue[Parts | None]", answering: "asyncio.Future[list[object]]") -> None:
    if not answering.cancelled():
        answering.exception()  # it is raised by whoever reads the feed, if anybody still does
    feed.put_nowait(None)
