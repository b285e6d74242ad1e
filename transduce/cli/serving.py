"""The commands for servers: serve, key."""

import sys
from pathlib import Path

from transduce import api
from transduce.cli.arguments import Options, load_options


def serve(options: Options) -> int:
    api.serve(
        options.models,
        host=options.host,
        port=options.port,
        allowed_hosts=options.allow_host,
        keys=options.keys,
        open=options.open,
        replicas=options.replicas,
        batch_lines=options.batch,
        queue_requests=options.queue,
        characters=options.characters,
        generated_tokens=options.max_tokens,
        audio_bytes=options.audio_bytes,
        audio_seconds=options.audio_seconds,
        audio_types=options.audio_types,
        uploads=options.uploads,
        options=load_options(options),
    )


def key(options: Options) -> int:
    from transduce.server.keys import add_key

    print(add_key(Path(options.file), options.name, options.requests_per_minute))
    print(
        f"transduce: {options.file} stores only a hash of this key: keep the key, it is not shown again",
        file=sys.stderr,
    )
    return 0
