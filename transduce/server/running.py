"""The server process: one event loop, one socket, and a shutdown that answers every accepted request."""

import asyncio
import atexit
import gc
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import NoReturn

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server

from transduce.errors import SettingError
from transduce.memory import return_freed_memory
from transduce.server.answers import log_failure
from transduce.server.app import make_app
from transduce.server.models import AnyModel
from transduce.server.service import Service
from transduce.server.settings import ServerSettings
from transduce.server.specification import Specification
from transduce.translator import LoadOptions


def serve(models: Sequence[str], settings: ServerSettings, loading: LoadOptions) -> NoReturn:
    """Load the models, serve until SIGTERM or Ctrl-C, then end the process."""
    check_free(settings.host, settings.port)
    return_freed_memory()
    specifications = [Specification.parse(text) for text in models]
    service = Service.load(settings, specifications, loading)
    for line in notes_on_languages(service.models.all):
        loading.say(line)
    asyncio.run(_run(service, f"http://{settings.host}:{settings.port} {what_it_does(service.models.all)}"))
    _leave()


def what_it_does(models: Sequence[AnyModel]) -> str:
    """What the models do, with their names: `translates en-de; generates text with shakespeare`."""
    verbs = {"translation": "translates with", "speech": "transcribes with", "language model": "generates text with"}
    names: dict[str, list[str]] = {}
    for of in (model.of for model in models):
        names.setdefault("translates" if of.kind == "translation" and of.source else verbs[of.kind], []).append(of.name)
    return "; ".join(f"{verb} {', '.join(names[verb])}" for verb in ("translates", *verbs.values()) if verb in names)


def notes_on_languages(models: Sequence[AnyModel]) -> list[str]:
    """How to use models that translate between unknown languages."""
    unnamed = [model.of for model in models if model.of.kind == "translation" and not model.of.source]
    return [
        f"{of.name} has no languages: send texts to POST /v1/translate; for /translate and /languages too, serve it as "
        f"SOURCE-TARGET={of.folder}, such as el-ipa={of.folder}"
        for of in unnamed
    ]


def check_free(host: str, port: int) -> None:
    """Fail before any model is loaded if the server cannot listen on this address."""
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            pass
    except OSError as error:
        raise SettingError(
            f"{host}:{port}: cannot listen on this address ({_reason(error)}); choose another --port or --host"
        ) from None


def _reason(error: OSError) -> str:
    """The system's own words: Python adds the address to them."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror or error)


def _leave() -> NoReturn:
    """End the process at once: a thread of granian that runs during interpreter shutdown would abort the process."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


async def _run(service: Service, greeting: str) -> None:
    settings = service.settings
    server = Server(
        make_app(service),
        address=settings.host,
        port=settings.port,
        interface=Interfaces.ASGI,
        http=HTTPModes.http1,  # one protocol less to defend; a proxy can add HTTP/2 and TLS
        websockets=False,
        backlog=1_024,
        backpressure=settings.connections,
        http1_settings=HTTP1Settings(
            header_read_timeout=round(1_000 * settings.header_s), max_buffer_size=settings.header_bytes
        ),
        log_enabled=False,  # requests are not logged
    )
    loop = asyncio.get_running_loop()
    # asyncio's own handler would log the arguments of callbacks, which could contain a user's text.
    loop.set_exception_handler(lambda _, context: log_failure(context.get("exception")))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop)
    gc.collect()
    gc.freeze()  # these objects live as long as the server; collecting garbage among them would pause it for about 50 ms
    service.models.loading.say(greeting)
    await server.serve()
