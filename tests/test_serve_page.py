"""The routes of the page: what they ask the explorer, and how the page is served."""

import json
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from folders import write_folder
from pydantic import BaseModel
from serving import Client, client, refused, run, service, symbols

import transduce.explore
from transduce.server.explore_answers import AttentionView, TrainingView, TranslateView, TreeView
from transduce.server.explore_routes import TrainingViews
from transduce.server.service import Service


@pytest.fixture
def explorer(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The page's side of the seam: remembers what it was asked."""
    asked: list[Any] = []

    def view(name: str) -> Any:
        def show(first: object, *positional: Any, **named: Any) -> dict[str, Any]:
            asked.append((name, type(first).__name__, positional, named))
            return {"view": name}

        return show

    views, page = types.ModuleType("views"), types.ModuleType("page")
    for name in ("translate_view", "attention_view", "tree_view", "training_view"):
        setattr(views, name, view(name))
    page.files = lambda: {  # type: ignore[attr-defined]
        "/": (b"<!doctype html>", "text/html; charset=utf-8"),
        "/page/main.js": (b"1", "text/javascript"),
    }
    monkeypatch.setattr(transduce.explore, "views", views, raising=False)
    monkeypatch.setattr(transduce.explore, "page", page, raising=False)
    return iter([asked])


def test_the_explorer_is_asked(client: Client, service: Service, explorer: Iterator[list[Any]]) -> None:
    asked = next(explorer)
    base = {"model": "en-de", "text": "the cat"}
    assert client.post("/v1/explore/translate", {**base, "n_best": 3}).json() == {"view": "translate_view"}
    assert (
        client.post("/v1/explore/attention", {**base, "target_text": "x", "off": [["cross", 1, 0]]}).status_code == 200
    )
    assert client.post("/v1/explore/tree", {**base, "beam": 2}).status_code == 200
    assert client.get("/v1/explore/training?model=en-de").json() == {"view": "training_view"}
    assert asked[:3] == [
        ("translate_view", "Translator", ("the cat",), {"n_best": 3, "alternatives": 5}),
        ("attention_view", "Translator", ("the cat",), {"target_text": "x", "off": [["cross", 1, 0]]}),
        ("tree_view", "Translator", ("the cat",), {"beam": 2}),
    ]
    assert asked[3][1] == "PosixPath"
    refused(client.post("/v1/explore/attention", {**base, "off": [["nowhere", 1, 0]]}), 400)
    said = refused(client.post("/v1/explore/tree", {**base, "text": "zq " * 300}), 413)
    count = len(service.models.named("en-de").translator.vocabularies.source.encode(["zq " * 300])[0])
    assert said == f"the text has {count} tokens; this route accepts at most 200"
    said = refused(client.post("/v1/explore/tree", {**base, "text": "a" * 2_001}), 413)
    assert said == "the text has 2,001 characters; this route accepts at most 2,000"
    assert "no such model" in refused(client.get("/v1/explore/training?model=../../etc"), 404)


def test_the_page_is_served_with_a_strict_policy(client: Client, explorer: Iterator[list[Any]]) -> None:
    assert client.get("/").text == "<!doctype html>"
    script = client.get("/page/main.js")
    assert script.headers["content-type"].startswith("text/javascript")
    policy = script.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert script.headers["x-content-type-options"] == "nosniff"
    assert script.headers["referrer-policy"] == "no-referrer"
    refused(client.get("/page/../../../etc/passwd"), 404)


@pytest.mark.parametrize(
    ("path", "change", "view"),
    [
        ("translate", {}, TranslateView),
        ("attention", {"off": [["cross", 0, 0]]}, AttentionView),
        ("tree", {}, TreeView),
    ],
)
def test_views_are_what_the_documentation_says(
    client: Client, path: str, change: dict[str, Any], view: type[BaseModel]
) -> None:
    answer = client.post(f"/v1/explore/{path}", {"text": "the cat sat", "model": "en-de"} | change)
    view.model_validate_json(answer.content)


def test_the_training_view_is_what_the_documentation_says(client: Client) -> None:
    TrainingView.model_validate_json(client.get("/v1/explore/training?model=en-de").content)


def test_the_log_of_a_run_is_read_again_only_if_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transduce.explore import views

    run, shown, read = write_folder(tmp_path / "run"), views.training_view, []
    monkeypatch.setattr(views, "training_view", lambda folder: read.append(folder) or shown(folder))
    made = TrainingViews()
    steps = [json.loads(made.json(run))["steps"] for _ in range(2)]
    (run / "metrics.jsonl").write_text('{"event": "train", "step": 7, "loss": 1.0}\n')
    steps += [json.loads(made.json(run))["steps"] for _ in range(2)]
    assert [[point["step"] for point in points] for points in steps] == [[], [], [7], [7]]
    assert len(read) == 2


def test_old_names_of_fields_are_still_read(client: Client) -> None:
    base = {"model": "en-de", "text": "the cat"}
    new = client.post("/v1/explore/attention", {**base, "target_text": "der Hund", "off": [["cross", 0, 0]]})
    old = client.post("/v1/explore/attention", {**base, "target": "der Hund", "off": [["source", 0, 0]]})
    assert old.json() == new.json()
    assert new.json()["off"] == [["cross", 0, 0]]


def test_the_explorer_itself_answers(client: Client) -> None:
    asked = {"text": "the cat sat", "model": "en-de"}
    translated = client.post("/v1/explore/translate", asked).json()
    assert translated["outputs"]
    inside = client.post("/v1/explore/attention", asked | {"off": [["cross", 0, 0]]})
    assert inside.status_code == 200
    long = asked | {"text": "the cat sat on the mat " * 5}
    packed = client.post("/v1/explore/attention", long)
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < len(packed.content) / 3  # httpx unpacks what it shows
    plain = client.post("/v1/explore/attention", long, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.json() == packed.json()
    assert client.post("/v1/explore/tree", asked | {"beam": 2}).json()["steps"]
    assert client.get("/v1/explore/training?model=en-de").status_code == 200
    refused(client.post("/v1/explore/attention", asked | {"off": [["cross", 99, 0]]}), 404)
    for path, name, most in (("translate", "alternatives", 20), ("translate", "n_best", 20), ("tree", "beam", 12)):
        assert client.post(f"/v1/explore/{path}", asked | {name: most}).status_code == 200, "as the views have it"
        refused(client.post(f"/v1/explore/{path}", asked | {name: most + 1}), 400)
    assert client.get("/").text.startswith("<!doctype html>")
    assert client.get("/page/main.js").status_code == 200
