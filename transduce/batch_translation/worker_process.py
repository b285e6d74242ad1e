"""The program of a worker process: reads the numbers of shards, and writes one JSON object per line.

`local` starts it. It ends when its input ends, and soon after the process that started it is gone.
"""

import json
import os
import sys
from dataclasses import asdict
from typing import Any

from transduce.cores import tune_idle_threads


def main(folder: str, threads: str) -> None:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not come between the objects
    tune_idle_threads()

    def tell(**about: Any) -> None:
        try:
            out.write(json.dumps(about) + "\n")
            out.flush()
        except BrokenPipeError:  # the process that started this one was killed: nobody is left to tell
            os._exit(1)

    serve(folder, int(threads), tell)


def serve(folder: str, threads: int, tell: Any) -> None:
    """Translate the shards that are asked for. Mistakes of the user end the whole command, so they are told apart."""
    from transduce.batch_translation.worker import Worker, would_repeat
    from transduce.errors import DataError, TransduceError

    parent = os.getppid()

    def advanced(rows: int) -> None:
        if os.getppid() != parent:
            sys.exit(1)
        tell(rows=rows)

    try:
        worker = Worker.open(folder, threads, lambda text: tell(note=text))
        tell(ready=True)
        for line in sys.stdin:
            try:
                tell(report=asdict(worker.translate(int(line), advanced)))
            except TransduceError as error:
                if not isinstance(error, DataError):
                    raise
                tell(failed=str(error), is_final=would_repeat(error))
            except Exception as error:
                tell(failed=str(error) or type(error).__name__)
    except TransduceError as error:
        tell(fatal=str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
