"""The log of a run, `metrics.jsonl`: its events, read while training may be writing them.

Knows the file, one JSON object per line, and not what the events mean.
"""

import json
import os
from pathlib import Path
from typing import Any

from transduce.errors import DamagedFile
from transduce.files import open_plain, read_plain

Event = dict[str, Any]
TAIL_BYTES = 1 << 16  # the last events, with sample translations of ordinary length, fit into this


def read_events(metrics: Path) -> list[Event]:
    """All events of a log without the last line, which may be incomplete; none without a log."""
    *lines, _ = read_text(metrics).split("\n")
    return _parsed(lines, metrics)


def last_events(metrics: Path) -> list[Event]:
    """The events at the end of a log, however long it is; none without a log."""
    try:
        with open_plain(metrics) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - TAIL_BYTES))
            *lines, _ = file.read().decode(errors="replace").split("\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unreadable(metrics, error) from None
    return _parsed(lines[1:] if size > TAIL_BYTES else lines, metrics)  # the first line may begin in its middle


def read_text(path: Path) -> str:
    """The text of a file of a run; empty if there is no such file."""
    try:
        return read_plain(path).decode(errors="replace").replace("\r\n", "\n")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise _unreadable(path, error) from None


def _parsed(lines: list[str], metrics: Path) -> list[Event]:
    try:
        events = [json.loads(line) for line in lines if line.strip()]
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"{metrics}: the log cannot be read ({error}); the weights are not affected") from None
    return [event for event in events if isinstance(event, dict)]


def _unreadable(path: Path, error: OSError) -> DamagedFile:
    return DamagedFile(f"{path}: cannot be read ({error.strerror})")
