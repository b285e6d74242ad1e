"""The page of a comparison: one HTML file that needs no server, in the style of the explorer."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from transduce.comparison.comparing import Compared
from transduce.comparison.systems import System, align_member
from transduce.errors import SettingError
from transduce.explore.page import VIEW, document, read_files
from transduce.explore.standalone import embedded
from transduce.files import check_place, write_result
from transduce.translator.alignment import Pairs
from transduce.translator.engines import Say

TEMPLATE = "compare.html"


def check_page(path: str | Path, explorer: str) -> None:
    """Refuse a path or an address that cannot work, before anything is translated."""
    check_place(path)
    if urlsplit(explorer).scheme not in ("http", "https"):
        raise SettingError(f"{explorer}: give the address of a server, such as http://127.0.0.1:5000/")


def write_page(compared: Compared, path: str | Path, explorer: str, say: Say) -> None:
    """Write the page."""
    text = document(TEMPLATE, read_files(Path(__file__).parent))
    write_result(path, text.replace(VIEW, embedded(page_view(compared, explorer, say))))


def page_view(compared: Compared, explorer: str, say: Say) -> dict[str, Any]:
    """What the page shows: the comparison, the alignments of its sentences, and where a sentence can be explored."""
    view = compared.result.as_dict()
    alignments = [_alignments(system, number, compared, say) for number, system in enumerate(compared.systems)]
    for row, *found in zip(view["rows"], *alignments, strict=True):
        row["alignments"] = found
    models = [_model_name(system) for system in compared.systems]
    return {**view, "explorer": explorer.partition("#")[0], "models": models}


def _alignments(system: System, number: int, compared: Compared, say: Say) -> list[Pairs]:
    """The alignment of each sentence of the list by the first seed of a system; none for a file of outputs."""
    rows = compared.result.rows
    if not system.members[0].config:
        return [[] for _ in rows]
    return align_member(system.members[0], [row.source for row in rows], [row.outputs[number] for row in rows], say)


def _model_name(system: System) -> str | None:
    """The name that `transduce serve RUN` gives to a run; None for a file of outputs."""
    member = system.members[0]
    if not member.config:
        return None
    return "-".join(member.config.data.languages) or member.path.resolve().name
