"""The documentation of the API as one HTML page, made from the OpenAPI document. It loads nothing from other sites."""

import json
from html import escape
from typing import Any

STYLE = """
:root { color-scheme: light dark; --line: light-dark(#ccc, #444); --code: light-dark(#f4f4f4, #222) }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem }
h2 { margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: 1rem; font-size: 1.1rem }
code, pre { font: 14px/1.4 ui-monospace, monospace; background: var(--code); border-radius: 4px; padding: 0 .3em }
pre { padding: .7em; overflow-x: auto }
summary { cursor: pointer }
"""


def reference_page(document: dict[str, Any]) -> str:
    """Every route with its parameters, its body and its responses."""
    routes = [
        _route(method, path, operation)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]
    title = escape(f"{document['info']['title']} {document['info']['version']}")
    schemas = _details("All schemas", document.get("components", {}).get("schemas", {}))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>'
        f"<style>{STYLE}</style></head><body><h1>{title}</h1>"
        f"<p>{escape(document['info'].get('description', ''))}</p>"
        f'<p>OpenAPI document: <a href="/openapi.json">/openapi.json</a></p>'
        f"{''.join(routes)}<h2>Schemas</h2>{schemas}</body></html>"
    )


def _route(method: str, path: str, operation: dict[str, Any]) -> str:
    taken = operation.get("requestBody", {}).get("content", {})
    given = {status: one.get("description", "") for status, one in operation["responses"].items()}
    return (
        f"<h2><code>{escape(method.upper())} {escape(path)}</code></h2>"
        f"<p>{escape(operation.get('description', ''))}</p>"
        f"{_details('Parameters', operation.get('parameters'))}{_details('Body', taken)}{_details('Responses', given)}"
    )


def _details(title: str, content: Any) -> str:
    if not content:
        return ""
    return f"<details><summary>{title}</summary><pre>{escape(json.dumps(content, indent=1))}</pre></details>"
