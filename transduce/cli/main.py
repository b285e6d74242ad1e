"""From the arguments to an exit code: 0 for success, 2 for a mistake of the user, 3 for a finding, 128 + n after signal n."""

import contextlib
import gc
import importlib
import io
import os
import signal
import sys
import threading
import time
from typing import NoReturn

from transduce.cli.parser import make_parser
from transduce.cores import tune_idle_threads
from transduce.errors import TransduceError

NEW_OBJECTS = 50_000  # between two collections of the youngest generation; Python's default is 700 or 2,000


def _collect_garbage_less_often() -> None:
    """Every translated line creates a few lists, and none of them is in a cycle.

    With Python's default thresholds, looking for cycles took a fifth of the time of translating a file on a GPU. This
    is a setting of the whole process, so the command line makes it, and the library leaves it to its users.
    """
    new_objects, *older = gc.get_threshold()
    if new_objects:
        gc.set_threshold(max(new_objects, NEW_OBJECTS), *older)


def main(arguments: list[str] | None = None) -> int:
    """Run a command. Errors that a user can correct are printed as one line on stderr."""
    started_at = time.perf_counter()
    tune_idle_threads()
    _collect_garbage_less_often()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _end)  # training and the server install handlers of their own
    options = make_parser().parse_args(arguments)
    options.started_at = started_at  # a budget in minutes includes the time to load torch
    if sys.stdout is None:
        print("transduce: standard output is closed", file=sys.stderr)
        return 2
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # whatever the locale
    command = getattr(importlib.import_module(options.module), options.command)
    try:
        code: int = command(options)
        sys.stdout.flush()
        return code
    except TransduceError as error:
        print(f"transduce: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _forget_stdout()
        return 141
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"transduce: {where}{error.strerror or error}", file=sys.stderr)
        _forget_stdout()
        return 2


def _end(*_: object) -> NoReturn:
    """End by an exception, so that unfinished files are removed."""
    sys.exit(128 + signal.SIGTERM)


def _forget_stdout() -> None:
    """Redirect stdout when its reader is gone; otherwise Python reports an error when it flushes at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
