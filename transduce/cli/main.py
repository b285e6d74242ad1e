"""From the arguments to an exit code: 0 for success, 2 for a mistake of the user, 128 + n after signal n."""

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
from transduce.errors import TransduceError

NEW_OBJECTS = 50_000  # between two collections of the youngest generation; Python's default is 700 or 2,000


def _set_waiting() -> None:
    """How idle worker threads wait for work; read once, when torch is loaded.

    Spinning for long steals the cores from those that work, and sleeping at once costs more than a small model's
    products: a few microseconds of spinning were 1.6 times faster than either (docs/log.md).
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def _collect_garbage_less_often() -> None:
    """Every translated line creates a few lists, and none of them is in a cycle.

    With Python's default thresholds, looking for cycles took a fifth of the time of translating a file on a GPU. This
    is a setting of the whole process, so the command line makes it, and the library leaves it to its users.
    """
    new_objects, *older = gc.get_threshold()
    if new_objects:
        gc.set_threshold(max(new_objects, NEW_OBJECTS), *older)


def main(arguments: list[str] | None = None) -> int:
    """Run a command; errors a user can cause are one line on stderr."""
    begun = time.perf_counter()
    _set_waiting()
    _collect_garbage_less_often()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _end)  # training and the server have ways of their own to end
    options = make_parser().parse_args(arguments)
    options.begun = begun  # a budget in minutes covers loading torch, too
    if sys.stdout is None:
        print("transduce: standard output is closed", file=sys.stderr)
        return 2
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # what goes in as UTF-8 comes out as UTF-8, whatever the locale
    module = importlib.import_module(getattr(options, "module", "transduce.cli.commands"))

    try:
        code: int = getattr(module, options.command)(options)
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
    """As an exception, so that what is half written is removed."""
    sys.exit(128 + signal.SIGTERM)


def _forget_stdout() -> None:
    """Whoever reads our output is gone; point it elsewhere, or Python complains when it flushes at the end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
