"""The page's files as they are served, and the single file that needs no server."""

import json
import re
from pathlib import Path

import pytest
from folders import write_folder

from transduce.cli import main
from transduce.errors import SettingError
from transduce.explore.page import FOLDER, files, shell
from transduce.explore.standalone import embedded, write_standalone

OUTSIDE = re.compile(r"(?:https?:)?//[\w.-]+\.\w+")  # an address on another machine


def test_every_file_is_served_with_its_kind() -> None:
    served = files()
    assert served["/"][1] == "text/html; charset=utf-8"
    assert served["/page/main.js"][1] == "text/javascript; charset=utf-8"
    assert served["/page/style.css"][1] == "text/css; charset=utf-8"
    names = {path.name for path in FOLDER.iterdir() if path.suffix in (".js", ".css", ".svg")}
    assert names <= {address.removeprefix("/page/") for address in served}


def test_what_files_name_is_served() -> None:
    """Imports of modules, and what the document asks for."""
    served = files()
    for address, (content, _) in served.items():
        if address.endswith(".js"):
            for name in re.findall(r'from "\./([^"]+)"', content.decode()):
                assert f"/page/{name}" in served, f"{address} imports {name}"
    for name in re.findall(r'(?:src|href)="([^"#]+)"', served["/"][0].decode()):
        assert f"/{name}" in served


def test_the_page_is_small() -> None:
    """As docs/explorer.md says; the shell, which holds all of it again, is fetched only to save a view."""
    sizes = {address: len(content) for address, (content, _) in files().items()}
    assert sum(sizes.values()) - sizes["/page/standalone.html"] < 125_000


def test_nothing_comes_from_elsewhere() -> None:
    """No other machine is named, save the names of standards."""
    for address, (content, _) in files().items():
        named = [name for name in OUTSIDE.findall(content.decode()) if "www.w3.org" not in name]
        assert named == [], address


def test_the_page_needs_no_exception_from_a_strict_policy() -> None:
    """No inline script, style or handler: `default-src 'self'` forbids them."""
    document = files()["/"][0].decode()
    assert not re.search(r"<script(?![^>]*\bsrc=)", document)
    assert not re.search(r"<style|\sstyle=|\son\w+=", document)


@pytest.mark.parametrize("name", ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("])
def test_no_module_turns_text_into_html(name: str) -> None:
    assert [path.name for path in FOLDER.glob("*.js") if name in path.read_text(encoding="utf-8")] == []


def test_modules_open_with_what_they_are() -> None:
    assert [path.name for path in FOLDER.glob("*.js") if not path.read_text(encoding="utf-8").startswith("/* ")] == []


def test_the_shell_holds_everything() -> None:
    text = shell()
    assert text.count("{{view}}") == 1
    assert "{{style}}" not in text
    assert "{{modules}}" not in text
    assert not re.search(r'(?:src|href)="', text)
    [modules] = re.findall(r'<script type="importmap">(.*?)</script>', text)
    assert set(json.loads(modules)["imports"]) == {f"page/{path.name}" for path in FOLDER.glob("*.js")}


def test_data_cannot_leave_its_element() -> None:
    view = {"text": "</script><script>alert(1)</script><!--"}
    assert "<" not in embedded(view)
    assert json.loads(embedded(view)) == view


def test_attention_as_one_file_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, path = write_folder(tmp_path / "run"), tmp_path / "view.html"
    assert main(["attention", str(model), "the cat </script> sat", "--target", "der Hund", "-o", str(path)]) == 0
    assert f"{path}: the cat </script> sat -> der Hund" in capsys.readouterr().err
    text = path.read_text(encoding="utf-8")
    [data] = re.findall(r'<script type="application/json" id="view">(.*?)</script>', text)
    assert json.loads(data)["source"]["text"] == "the cat </script> sat"
    assert [name for name in OUTSIDE.findall(text) if "www.w3.org" not in name] == []


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="cannot be written"):
        write_standalone({}, tmp_path)
