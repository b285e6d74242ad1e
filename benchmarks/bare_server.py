"""What one writes in ten minutes: FastAPI around CTranslate2, a request a call. The server that ours is measured beside.

python benchmarks/bare_server.py FOLDER PORT

The model, its settings, the tokenizer and the HTTP server beneath are those of ours; there is no queue, no batching, no limit
and no splitting of texts. FastAPI runs the handler in its threads, CTranslate2 has a worker for each core.
"""

import asyncio
import sys
from typing import Any

import ctranslate2
from fastapi import FastAPI
from granian.constants import HTTPModes, Interfaces
from granian.server.embed import Server
from pydantic import BaseModel

from transduce.cores import available_cores
from transduce.translator import open_folder
from transduce.translator.ct2_engine import PATIENCE
from transduce.translator.ct2_model import open_model


class Body(BaseModel):
    q: str
    source: str
    target: str


def main() -> None:
    folder = open_folder(sys.argv[1])
    model = open_model(folder, "auto", "int8", print)
    translator = ctranslate2.Translator(str(model.path), inter_threads=available_cores(), intra_threads=1)
    vocabularies, search = folder.vocabularies, folder.config.search
    names = vocabularies.target.pieces(range(vocabularies.target.pad))
    ids = {name: number for number, name in enumerate(names)}
    app = FastAPI()

    @app.get("/health/live")
    def live() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/translate")
    def translate(body: Body) -> dict[str, Any]:
        source = vocabularies.source.encode([body.q])[0]
        found = translator.translate_batch(
            [vocabularies.source.pieces(source)],
            beam_size=search.beam,
            length_penalty=search.alpha,
            patience=PATIENCE["best"]["rounded"],
            max_decoding_length=len(source) + search.max_extra,
        )
        output = [ids[name] for name in found[0].hypotheses[0]]
        return {"translatedText": vocabularies.target.decode([output])[0]}

    server = Server(
        app, port=int(sys.argv[2]), interface=Interfaces.ASGI, http=HTTPModes.http1, websockets=False, backlog=1_024,
        backpressure=4_096, log_enabled=False,
    )  # fmt: skip
    asyncio.run(server.serve())


if __name__ == "__main__":
    main()
