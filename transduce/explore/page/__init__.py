"""The files of the web page: plain ES modules, a style sheet and two HTML documents; there is no build step.

Knows the files and their addresses, but not what they show, and no server.
"""

import base64
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
VIEW = "{{view}}"  # the placeholder for the data of a saved page; saving.js uses it as well


@cache
def files() -> dict[str, tuple[bytes, str]]:
    """Address -> content and media type. They include the template of a saved page."""
    served = {f"/page/{name}": (content, KINDS[Path(name).suffix]) for name, content in _contents().items()}
    served["/"] = served.pop("/page/index.html")
    served["/page/standalone.html"] = (shell().encode(), KINDS[".html"])
    return served


def shell() -> str:
    """The template of a saved page: one document with style and modules, and VIEW in place of the data."""
    return document("standalone.html", {})


def document(template: str, others: Mapping[str, str]) -> str:
    """A template with the page's style and modules in it; `others` are further files, a style sheet of the same name among them."""
    contents = {name: content.decode() for name, content in _contents().items()} | dict(others)
    style = contents["style.css"] + contents.get(Path(template).with_suffix(".css").name, "")
    text = contents[template].replace("{{style}}", style)
    return text.replace("{{modules}}", json.dumps({"imports": _import_map(contents)}))


def read_files(folder: Path) -> dict[str, str]:
    """The files of a page in another folder, for `document`."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.iterdir()) if path.suffix in KINDS}


def _import_map(contents: dict[str, str]) -> dict[str, str]:
    """Each module as a data URL: a document opened from disk may not import other files."""
    scripts = {name: text for name, text in contents.items() if name.endswith(".js")}
    return {f"page/{name}": _address(_by_name(text)) for name, text in scripts.items()}


def _by_name(script: str) -> str:
    """Imports by name instead of by path: a module in a data URL cannot use relative paths."""
    return re.sub(r'(from |^import )"\./', r'\1"page/', script, flags=re.MULTILINE)


def _address(script: str) -> str:
    return "data:text/javascript;base64," + base64.b64encode(script.encode()).decode()


def _contents() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(FOLDER.iterdir()) if path.suffix in KINDS}
