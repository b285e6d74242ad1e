"""The page: plain ES modules, a style sheet and two documents, as they lie in this folder; no build step.

Knows files and where a browser finds them; nothing of what they show, and no server.
"""

import base64
import json
import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
VIEW = "{{view}}"  # where the single file takes its data; saving.js puts it there as well


@cache
def files() -> dict[str, tuple[bytes, str]]:
    """Address -> content and its type. The shell of the single file is among them, for the page to save itself."""
    served = {f"/page/{name}": (content, KINDS[Path(name).suffix]) for name, content in _contents().items()}
    served["/"] = served.pop("/page/index.html")
    served["/page/standalone.html"] = (shell().encode(), KINDS[".html"])
    return served


def shell() -> str:
    """One document with style and modules inside it, which needs only a view in place of VIEW."""
    contents = {name: content.decode() for name, content in _contents().items()}
    text = contents["standalone.html"].replace("{{style}}", contents["style.css"])
    return text.replace("{{modules}}", json.dumps({"imports": _import_map(contents)}))


def _import_map(contents: dict[str, str]) -> dict[str, str]:
    """Each module as an address of its own content: a document opened from a disk may not import other files."""
    scripts = {name: text for name, text in contents.items() if name.endswith(".js")}
    return {f"page/{name}": _address(_by_name(text)) for name, text in scripts.items()}


def _by_name(script: str) -> str:
    """Imports by name instead of by place, as what is inside an address has no neighbours."""
    return re.sub(r'(from |^import )"\./', r'\1"page/', script, flags=re.MULTILINE)


def _address(script: str) -> str:
    return "data:text/javascript;base64," + base64.b64encode(script.encode()).decode()


def _contents() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(FOLDER.iterdir()) if path.suffix in KINDS}
