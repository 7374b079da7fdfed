"""The OpenAPI description: what the types say, completed with the texts and examples of a table."""

import tomllib
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from kemem import __version__
from kemem.serve.http.auth import is_write
from kemem.serve.http.idempotency import HEADER, MAX_KEY

JSON = "application/json"
_ABOUT = """\
Long-term memory for LLM agents: it keeps what was said, remembers the facts in it and finds them
again.

Bodies and answers are JSON in UTF-8, times RFC 3339 in UTC. A request about memories names a
`user_id` or an `agent_id`. Where the server needs a credential, send
`Authorization: Bearer <key>` or `X-API-Key: <key>`. A key reaches the memory of its project; an
operator of the server names a project in the header `X-KeMem-Project`. Errors have a
`code` for programs and a `message` for people."""

# Taken by a middleware, whatever the route.
IDEMPOTENCY_KEY = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": MAX_KEY},
}


class DescribedAPI(FastAPI):
    """An app that describes every parameter and field, with an example for each operation."""

    def __init__(self, **options: Any) -> None:
        tags = [{"name": name, "description": text} for name, text in table()["tags"].items()]
        about: dict[str, Any] = {"title": "KeMem", "version": __version__, "description": _ABOUT}
        super().__init__(**about, openapi_tags=tags, **options)

    def openapi(self) -> dict[str, Any]:
        """The description, made on first use."""
        if self.openapi_schema is None:
            self.openapi_schema = _complete(super().openapi())
        return self.openapi_schema


@cache
def table() -> dict[str, Any]:
    """What is said of fields, requests, errors and tags beside the types."""
    return tomllib.loads(Path(__file__).with_name("fields.toml").read_text("utf-8"))


def _complete(description: dict[str, Any]) -> dict[str, Any]:
    schemas = description["components"]["schemas"]
    for name, schema in schemas.items():
        for field, part in properties(schema):
            _describe(part, f"{name}.{field}", field)
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            _let_credential_name_user(operation, schemas)
            if is_write(method.upper(), path):
                operation.setdefault("parameters", []).append(deepcopy(IDEMPOTENCY_KEY))
            _complete_operation(operation, schemas)
    return description


def _let_credential_name_user(operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Mark the user of a body as optional: a credential that is bound to a user fills it in."""
    body = operation.get("requestBody", {}).get("content", {}).get(JSON, {}).get("schema", {})
    schema = schemas.get(body.get("$ref", "").rpartition("/")[2], {})
    if "user_id" in schema.get("required", ()):
        schema["required"].remove("user_id")
        if not schema["required"]:
            del schema["required"]
        user = schema["properties"]["user_id"]
        user["description"] += " Required unless the credential is bound to a user."


def _complete_operation(operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Describe the parameters of an operation, and give examples of what it takes and answers."""
    name = operation["operationId"]
    for field, part in properties(operation):
        _describe(part, f"{name}.{field}", field)
    for parameter in operation.get("parameters", ()):
        field, schema = parameter["name"], parameter["schema"]
        _describe(schema, f"{name}.{field}", field)
        parameter.setdefault("description", schema["description"])
        if parameter["required"] or field == "user_id":  # Swagger UI fills in what must be there
            parameter["example"] = schema["examples"][0]
    body = operation.get("requestBody", {}).get("content", {}).get(JSON)
    if body is not None and name in table()["requests"]:
        body["example"] = table()["requests"][name]
    for status, response in operation["responses"].items():
        content = response.get("content", {}).get(JSON)
        if content is None:
            continue
        if failures := table()["errors"].get(status):
            content["examples"] = {it["code"]: {"value": {"error": it}} for it in failures}
        elif name in table()["responses"]:
            content["example"] = table()["responses"][name]
        else:
            content["example"] = example_of(content["schema"], schemas)


def properties(schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The fields of a schema and of those within it, each with its name."""
    if isinstance(schema, list):
        for part in schema:
            yield from properties(part)
    elif isinstance(schema, dict):
        for name, part in schema.items():
            if name == "properties":
                yield from part.items()
                yield from properties(list(part.values()))
            elif name not in ("example", "examples", "default"):
                yield from properties(part)


def _describe(part: dict[str, Any], *names: str) -> None:
    """Give a field the text and the example of the first of some names."""
    fields = table()["fields"]
    text, *examples = next((fields[name] for name in names if name in fields), ("",))
    part.setdefault("description", text)
    if examples:
        part.setdefault("examples", examples)


def example_of(schema: dict[str, Any], schemas: dict[str, Any]) -> Any:
    """A value that a schema describes, composed of the examples of fields that are always there."""
    if schema.get("examples"):
        return schema["examples"][0]
    if "$ref" in schema:
        return example_of(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    for choice in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        if choice.get("type") != "null":
            return example_of(choice, schemas)
    if "const" in schema or "enum" in schema:
        return schema["const"] if "const" in schema else schema["enum"][0]
    if schema.get("type") == "array":
        return [example_of(schema["items"], schemas)]
    fields = schema.get("properties", {})
    shown = schema.get("required", fields)
    return {
        name: None if _is_mostly_null(name, part) else example_of(part, schemas)
        for name, part in fields.items()
        if name in shown
    }


def _is_mostly_null(name: str, schema: dict[str, Any]) -> bool:
    nullable = any(it.get("type") == "null" for it in schema.get("anyOf", ()))
    return nullable and name not in ("user_id", "session_id", "name", "checkpoint")
