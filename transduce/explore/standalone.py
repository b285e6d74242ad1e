"""Save a view as one HTML file that needs no server, no network and no other file."""

import json
from pathlib import Path
from typing import Any

from transduce.explore.page import VIEW, shell
from transduce.files import write_result


def write_standalone(view: dict[str, Any], path: str | Path) -> None:
    """Write the file that the page's *Save as page* writes."""
    write_result(path, shell().replace(VIEW, embedded(view)))


def embedded(view: dict[str, Any]) -> str:
    """JSON that cannot close the HTML element around it."""
    return json.dumps(view, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
