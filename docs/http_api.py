"""Writes docs/reference/http.md, every route of the server, from its OpenAPI document.

python docs/http_api.py
"""

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any

import httpx

from transduce.server.app import make_app
from transduce.server.models import Specification
from transduce.server.service import Service
from transduce.server.settings import ServerSettings
from transduce.translator import LoadOptions

PAGE = Path(__file__).parent / "reference" / "http.md"
MODEL = Path(__file__).parents[1] / "tests" / "frozen" / "0.1.0"  # any model will do: routes do not depend on it
INTRODUCTION = """# HTTP API

This page lists every route of `transduce serve`. It is generated from the server's OpenAPI document by `python docs/http_api.py`.
A running server has the same information at `/docs` and `/openapi.json`. [Serving](../serving.md) explains how to run it.
"""


def main() -> None:
    PAGE.write_text(page(openapi()), encoding="utf-8")


def openapi() -> dict[str, Any]:
    """The document of a server that has one model."""
    with tempfile.TemporaryDirectory() as folder:
        run = shutil.copytree(MODEL, Path(folder) / "run")
        options = LoadOptions(engine="torch", device="cpu", threads=1, say=lambda _: None)
        service = Service.load(ServerSettings(), [Specification.parse(str(run))], options)
        return asyncio.run(_asked(make_app(service)))


async def _asked(app: Any) -> dict[str, Any]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        return (await client.get("/openapi.json")).json()


def page(document: dict[str, Any]) -> str:
    parts = [INTRODUCTION, document["info"]["description"]]
    for tag in document["tags"]:
        parts += [f"\n## {tag['name']}\n", tag["description"]]
        parts += [
            route(method, path, operation)
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
            if operation["tags"] == [tag["name"]]
        ]
    parts += ["\n## Objects\n", "The objects that requests and responses consist of, by name."]
    parts += [schema_section(name, schema) for name, schema in document["components"]["schemas"].items()]
    return "\n".join(parts) + "\n"


def route(method: str, path: str, operation: dict[str, Any]) -> str:
    parts = [f"\n### {method.upper()} {path}\n", operation.get("description", "")]
    parts += ["\nNeeds no API key."] if operation.get("security") == [] else []
    if parameters := operation.get("parameters"):
        parts.append(fields({one["name"]: one["schema"] | one for one in parameters}, []))
    if body := operation.get("requestBody"):
        *_, schema = [one["schema"] for one in body["content"].values()]  # a form is the last: it names the fields
        parts.append(f"\nRequest ({' or '.join(f'`{kind}`' for kind in body['content'])}):")
        parts.append(described(schema))
    if kinds := operation["responses"]["200"].get("content"):
        parts.append(f"\nResponse: {', or '.join(response(kind, content) for kind, content in kinds.items())}.")
    return "\n".join(parts)


def response(kind: str, content: dict[str, Any]) -> str:
    """A response in a few words: its object, or the type of its text."""
    return f"text (`{kind}`)" if kind.startswith("text/") else json_type(content["schema"]) or "text"


def described(schema: dict[str, Any]) -> str:
    """The fields of a request: of the object it names, or its own."""
    if "$ref" in schema:
        return f"\nAn object {json_type(schema)}."
    return fields(schema.get("properties", {}), schema.get("required", []))


def schema_section(name: str, schema: dict[str, Any]) -> str:
    parts = [f"\n### {name}\n", schema.get("description", "")]
    return "\n".join([*parts, fields(schema.get("properties", {}), schema.get("required", []))])


def fields(properties: dict[str, dict[str, Any]], required: list[str]) -> str:
    rows = [
        f"| `{name}` | {json_type(one)} | {default(name, one, required)} | {cell(one.get('description', ''))} |"
        for name, one in properties.items()
    ]
    return "\n".join(["", "| field | type | default | meaning |", "| --- | --- | --- | --- |", *rows])


def json_type(schema: dict[str, Any]) -> str:
    """The type of a value in a few words; objects link to their section."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(json_type(one) for one in options))
    if values := schema.get("enum") or ([schema["const"]] if "const" in schema else []):
        return " or ".join(f'`"{value}"`' if isinstance(value, str) else f"`{value}`" for value in values)
    if schema.get("type") == "array":
        return f"list of {plural(json_type(schema.get('items', {})))}"
    return str(schema.get("type", ""))


def plural(kind: str) -> str:
    if kind.startswith("list of"):
        return f"lists{kind.removeprefix('list')}"
    return f"{kind}s" if kind.isalpha() else kind or "values"


def default(name: str, schema: dict[str, Any], required: list[str]) -> str:
    if name in required or "default" not in schema:
        return "required" if name in required else ""
    return f"`{schema['default']!r}`".replace("'", '"') if schema["default"] not in ("", None) else "none"


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    main()
