"""The OpenAPI description is complete: every operation, parameter and field has a text and an
example, and the examples are true.

A new field is described at its model, by Field(description=…, examples=[…]), or, where its name
means the same as elsewhere, once in src/kemem/serve/http/fields.toml.
"""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

import kemem
from kemem.serve.http.description import JSON, properties, table
from tests.routes import APP
from tests.server import Server, running_server

DESCRIPTION = APP.openapi()
SCHEMAS = DESCRIPTION["components"]["schemas"]
OPERATIONS = {
    operation["operationId"]: operation
    for operations in DESCRIPTION["paths"].values()
    for operation in operations.values()
}
NOT_JSON = {"metrics": "text/plain", "docs": "text/html", "import_file": "application/octet-stream"}
NOT_JSON |= {"export_user": "application/zip"}


def invalid(example: object, schema: dict[str, Any]) -> list[str]:
    """What is wrong with an example."""
    known = {"components": DESCRIPTION["components"], **schema}
    return [it.message for it in Draft202012Validator(known).iter_errors(example)]


def named_fields() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every field of the description, with the name of what it belongs to."""
    for name, part in (*SCHEMAS.items(), *OPERATIONS.items()):
        for field, schema in properties(part):
            yield name, field, schema
    for name, operation in OPERATIONS.items():
        for parameter in operation.get("parameters", ()):
            yield name, parameter["name"], parameter["schema"]


def test_every_part_is_described() -> None:
    """In a sentence: operations, schemas, parameters, fields, tags and answers."""
    parts = {f"schema {name}": part for name, part in SCHEMAS.items()}
    parts |= {f"operation {name}": part for name, part in OPERATIONS.items()}
    parts |= {f"{name}.{field}": schema for name, field, schema in named_fields()}
    for name, operation in OPERATIONS.items():
        for parameter in operation.get("parameters", ()):
            parts[f"parameter {name}.{parameter['name']}"] = parameter
        parts |= {f"{name} {status}": it for status, it in operation["responses"].items()}
    assert [name for name, part in parts.items() if not part.get("description")] == []
    tags = {it["name"] for it in DESCRIPTION["tags"] if it["description"]}
    assert tags == {tag for operation in OPERATIONS.values() for tag in operation["tags"]}
    assert DESCRIPTION["info"]["version"] == kemem.__version__


def holds_others(schema: dict[str, Any]) -> bool:
    """Whether a field holds objects, which have examples of their own."""
    inner = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    inner += [schema["items"]] if "items" in schema else []
    return "$ref" in schema or "properties" in schema or any(map(holds_others, inner))


def test_every_field_has_an_example_that_is_valid() -> None:
    """But for those that hold other objects."""
    missing, wrong = [], []
    for name, field, schema in named_fields():
        examples = schema.get("examples", [schema["const"]] if "const" in schema else [])
        if not examples and not holds_others(schema):
            missing.append(f"{name}.{field}")
        wrong += [f"{name}.{field}: {it}" for value in examples for it in invalid(value, schema)]
    assert (missing, wrong) == ([], [])


def test_every_operation_has_valid_examples() -> None:
    """Of what it takes, of what it answers and of its errors."""
    for name, operation in OPERATIONS.items():
        contents = {"takes": operation.get("requestBody", {}).get("content", {})}
        contents |= {it: part.get("content", {}) for it, part in operation["responses"].items()}
        assert name in NOT_JSON or JSON in contents["200"], name
        for status, content in contents.items():
            if body := content.get(JSON):
                examples = [body["example"]] if "example" in body else []
                examples += [it["value"] for it in body.get("examples", {}).values()]
                assert examples, (name, status)
                for example in examples:
                    assert invalid(example, body["schema"]) == [], (name, status, example)


def test_no_text_of_the_table_is_unused() -> None:
    """Nor is there one for a request that does not exist."""
    used = set()
    for name, field, _ in named_fields():
        whole = f"{name}.{field}"
        used.add(whole if whole in table()["fields"] else field)
    assert set(table()["fields"]) - used == set()
    assert set(table()["requests"]) | set(table()["responses"]) <= OPERATIONS.keys()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("examples") / "data", api_key="k") as server:
        yield server


def test_the_examples_of_requests_work(server: Server) -> None:
    """Those that need neither a model nor a note that is stored already."""
    of_models = {"chat", "group_turn", "chat_completions", "semantic_search", "change_memory"}
    of_models |= {"give_feedback"}
    with server.client("k") as client:
        for path, operations in DESCRIPTION["paths"].items():
            for method, operation in operations.items():
                if operation["operationId"] not in table()["requests"].keys() - of_models:
                    continue
                answer = call(client, method, path, operation)
                assert answer.status_code == 200, (path, answer.text)


def call(client: httpx.Client, method: str, path: str, operation: dict[str, Any]) -> httpx.Response:
    """Send the example of an operation."""
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", parameter["example"])
    return client.request(method, path, json=operation["requestBody"]["content"][JSON]["example"])


def test_a_user_need_not_be_named_where_the_credential_names_it() -> None:
    """A body that must name a user otherwise says so; the path of a user always has it."""
    rule = "Required unless the credential is bound to a user."
    for name in ("RecallRequest", "ChatRequest", "GroupRequest", "HybridSearch", "LexicalSearch"):
        assert "user_id" not in SCHEMAS[name].get("required", [])
        assert SCHEMAS[name]["properties"]["user_id"]["description"].endswith(rule)
