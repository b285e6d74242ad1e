"""The commands that keep track of runs: runs, clean."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from transduce import api
from transduce.cli.arguments import Options, print_json
from transduce.errors import SettingError
from transduce.tracking import Cleaning, Removable, RunDifference, RunStatus

DATA_CHARACTERS = 40  # of the names of data files in the table
WIDTH = 10_000  # of a table that goes to a file or a pipe: its lines are never wrapped
STYLES = {"running": "green", "stopped": "yellow", "broken": "red"}


def runs(options: Options) -> int:
    if options.diff:
        return _difference(options)
    if options.output:
        raise SettingError("-o draws the curves of two runs: add --diff A B, or leave it out")
    found = api.runs(options.folder)
    if options.json:
        print_json([one.as_dict() for one in found])
    elif not found:
        print(f"transduce: no runs under {options.folder}", file=sys.stderr)
    else:
        _print_runs(found)
    return 0


def _print_runs(found: Sequence[RunStatus]) -> None:
    """The table, then the signatures that its scores refer to, and the reasons why runs are broken."""
    signatures = list(dict.fromkeys(one.signature for one in found if one.signature))
    table = _table("run", "task", "data", "size", "steps", "minutes", "best score", "state", "disk")
    for one in found:
        cells = one.run, _task(one), _data(one), _size(one), _count(one.steps), _minutes(one), _score(one, signatures)
        table.add_row(*map(_cell, cells), Text(one.state, STYLES.get(one.state, "")), f"{one.bytes / 1e6:,.1f} MB")
    console = _console()
    console.print(table)
    for note in _footnotes(found, signatures):
        console.print(_cell(note))
    for one in found:
        if one.reason:
            console.print(_cell(f"{one.run}: {one.reason}"))


def _difference(options: Options) -> int:
    found = api.run_difference(*options.diff)
    if options.json:
        print_json(found.as_dict())
    else:
        _print_difference(found)
    if options.output:  # after the table, because there may be no curves to draw
        api.run_difference(*options.diff, picture=options.output)
        print(f"{options.output}: curves of {' and '.join(options.diff)}", file=sys.stderr)
    return 0


def _print_difference(found: RunDifference) -> None:
    one, other = found.runs
    signatures = list(dict.fromkeys(run.signature for run in found.runs if run.signature))
    table = _table("", one.run, other.run)
    for name, differs in found.data.items():
        files = [_names(getattr(run, name)) for run in found.runs]
        table.add_row(*map(_cell, (f"{name} data", *files) if differs else (f"{name} data", "the same", "the same")))
    for name, values in found.settings.items():
        table.add_row(*map(_cell, (name, *map(_value, values))))
    facts = {"size": _size, "steps": lambda run: _count(run.steps), "minutes": _minutes, "state": lambda run: run.state}
    for name, show in facts.items():
        table.add_row(*map(_cell, (name, *map(show, found.runs))))
    table.add_row(*map(_cell, ("best score", *(_score(run, signatures) for run in found.runs))))
    console = _console()
    console.print(table)
    for note in _footnotes(found.runs, signatures, other_data=found.data.get("valid", False)):
        console.print(_cell(note))
    if not found.settings and not any(found.data.values()):
        print("the settings and the data are the same", file=sys.stderr)


def clean(options: Options) -> int:
    def agree(found: Cleaning) -> bool:
        if not options.json:
            _print_cleaning(found, options.checkpoints)
        return bool(options.yes) or _confirmed(found)

    found = api.clean(options.folder, checkpoints=options.checkpoints, agree=agree)
    if options.json:
        print_json(found.as_dict())
    elif not found.removable:
        _print_cleaning(found, options.checkpoints)
    if found.removed:
        print(f"transduce: removed {_megabytes(found.removed)}", file=sys.stderr)
    elif found.removable and not options.json:
        print("transduce: nothing was removed; --yes removes without asking", file=sys.stderr)
    return 0


def _confirmed(found: Cleaning) -> bool:
    """Ask, if there is a person to answer."""
    if sys.stdin is None or not sys.stdin.isatty() or not sys.stderr.isatty():
        return False
    print(f"Remove {_megabytes(found.removable)}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _print_cleaning(found: Cleaning, checkpoints: bool) -> None:
    console = _console()
    for place, size in found.caches.items():
        console.print(_cell(f"cache: {size / 1e6:,.1f} MB in {place}"))
    console.print(_cell(f"checkpoints: {found.checkpoints / 1e6:,.1f} MB"))
    if found.resumable:
        console.print(
            _cell(
                f"  of which {_megabytes(found.resumable)} in finished runs is needed only to train them further; "
                "--checkpoints removes it too"
            )
        )
    console.print("no run needs:" if found.removable else "there is nothing to remove")
    for one in found.removable:
        console.print(_cell(f"  {one.bytes / 1e6:,.1f} MB  {one.kind}  {one.path}"))
    if checkpoints:
        _print_kept(found, console)


def _print_kept(found: Cleaning, console: Console) -> None:
    """Why --checkpoints does not remove the checkpoints of some runs."""
    for run, why in found.kept.items():
        console.print(_cell(f"checkpoints of {run} stay: {why}"))
    if not found.checkpoints:
        console.print("there are no checkpoints: no run here has any, or they were removed before")


def _megabytes(items: Sequence[Removable]) -> str:
    return f"{sum(one.bytes for one in items) / 1e6:,.1f} MB"


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        right = column in ("size", "steps", "minutes", "disk")
        table.add_column(_cell(column), justify="right" if right else "left", overflow="fold")
    return table


def _console() -> Console:
    """Tables go to stdout, where a pipe has no width to wrap lines at."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDTH)


def _cell(text: str) -> Text:
    """Text as it is: no markup, and no control characters, which could move the cursor."""
    return Text("".join(c if c.isprintable() else "\ufffd" for c in text))


def _task(one: RunStatus) -> str:
    return f"{one.task} {'-'.join(one.languages)}".strip()


def _data(one: RunStatus) -> str:
    names = _names(one.train)
    return names if len(names) <= DATA_CHARACTERS else names[: DATA_CHARACTERS - 1] + "…"


def _names(groups: Sequence[Sequence[str]]) -> str:
    """The names of files: `train.en train.de, more.tsv`; with the last folder if names repeat: `fr/train.tsv, de/train.tsv`."""
    paths = [Path(path) for group in groups for path in group]
    repeats = len({path.name for path in paths}) < len(paths)
    shown = (lambda path: f"{path.parent.name}/{path.name}") if repeats else (lambda path: path.name)
    return ", ".join(" ".join(shown(Path(path)) for path in group) for group in groups)


def _size(one: RunStatus) -> str:
    return f"{one.parameters / 1e6:,.2f} M" if one.parameters is not None else ""


def _count(number: int | None) -> str:
    return f"{number:,}" if number is not None else ""


def _minutes(one: RunStatus) -> str:
    return f"{one.seconds / 60:,.1f}" if one.seconds is not None else ""


def _score(one: RunStatus, signatures: list[str]) -> str:
    if one.score is None:
        return ""
    number = f" [{signatures.index(one.signature) + 1}]" if one.signature else ""
    return f"{one.metric} {one.score:.2f}{number}{_lines(one)}"


def _footnotes(found: Sequence[RunStatus], signatures: Sequence[str], other_data: bool = False) -> Iterator[str]:
    """The signatures, each with a warning if the scores that have it are known to be of different lines."""
    for number, signature in enumerate(signatures, 1):
        yield f"[{number}] {signature}"
        scored = [one for one in found if one.signature == signature and one.lines is not None]
        if len({(one.lines, one.all_lines) for one in scored}) > 1 or (other_data and len(scored) > 1):
            yield f"[{number}] scored on different lines: not comparable; use `transduce compare`"


def _lines(one: RunStatus) -> str:
    """How many lines the score is of, if these are not all of the validation data, or if that is not known."""
    if one.lines is None or one.lines == one.all_lines:
        return ""
    return f" on {one.lines:,}{f' of {one.all_lines:,}' if one.all_lines else ''} lines"


def _value(value: Any) -> str:
    if value is None:
        return "-"
    return ", ".join(map(str, value)) or "-" if isinstance(value, tuple) else str(value)
