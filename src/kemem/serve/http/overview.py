"""A page about the API that needs nothing but itself."""

from collections.abc import Iterator
from html import escape
from typing import Any

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }}
td {{ padding: .3em 1em .3em 0; vertical-align: top }}
code {{ font-family: ui-monospace, monospace }}
</style>
<h1>{title}</h1>
<p>The full description is <a href="/openapi.json">/openapi.json</a>.</p>
<table>
{rows}
</table>
</html>
"""


def overview(openapi: dict[str, Any]) -> str:
    """The operations of an OpenAPI description as HTML."""
    return _PAGE.format(title=escape(openapi["info"]["title"]), rows="\n".join(_rows(openapi)))


def _rows(openapi: dict[str, Any]) -> Iterator[str]:
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            inputs = ", ".join(_inputs(operation, openapi["components"]["schemas"]))
            yield (
                f"<tr><td><code>{method.upper()}</code><td><code>{escape(path)}</code><br>"
                f"<small>{escape(inputs)}</small><td>{escape(operation['description'])}"
            )


def _inputs(operation: dict[str, Any], schemas: dict[str, Any]) -> Iterator[str]:
    """The names of what an operation takes; optional ones end in "?"."""
    for parameter in operation.get("parameters", []):
        yield parameter["name"] + ("" if parameter["required"] else "?")
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content:
        schema = content["schema"]
        one = schema.get("oneOf", [schema])[0]  # of what may also come as a list
        body = schemas[one["$ref"].rpartition("/")[2]] if "$ref" in one else one
        for name in body["properties"]:
            yield name + ("" if name in body.get("required", ()) else "?")
