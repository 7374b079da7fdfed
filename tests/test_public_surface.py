"""The public surface is the one that is recorded in tests/surface/, one file for each face.

A change that is meant is recorded with

    KEMEM_TEST_RECORD=1 pytest tests/test_public_surface.py

which fails after writing, so that it cannot pass unnoticed. The difference is then in git.
"""

import asyncio
import difflib
import json
import os
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from fastapi.routing import iter_route_contexts
from mcp import Client
from pydantic import AliasChoices
from pydantic.fields import FieldInfo

import kemem
from kemem import chat, recall
from kemem.compat.tools import ToolContext
from kemem.serve.cli.app import app as cli
from kemem.serve.http import create_app
from kemem.serve.mcp.server import create_mcp
from kemem.serve.rpc.jsonrpc import CODES, MAX_BATCH, params_model
from kemem.serve.rpc.methods import MemoryTools
from kemem.testing import FakeClock, HashingEmbedder
from tests.cases import each
from tests.described import (
    Described,
    described_class,
    described_command,
    inlined,
    json_shape,
    model_schema,
    public_object,
    value_text,
)

PUBLIC = ("kemem", "kemem.recall", "kemem.chat", "kemem.testing")  # all of __all__
DOCUMENTED = {  # names that the documentation imports from elsewhere
    "kemem.text.leaks": ("StreamGuard",),
    "kemem.integrations.mem0": ("AsyncMemory", "Memory"),
    "kemem.ports": ("LLM", "Reply", "Store"),
    "kemem.serve.http": ("create_app",),
    "kemem.settings": ("Settings", "load"),
    "kemem.records": ("Line",),
}

RECORDED = Path(__file__).parent / "surface"
RECORD = "KEMEM_TEST_RECORD"
HOW = f"If the change is meant, record it: {RECORD}=1 pytest tests/test_public_surface.py"
NOW = 1_767_225_600_000_000  # 2026-01-01
BESIDE_TYPE = ("default", "description")
SCHEMAS = ("inputSchema", "outputSchema")
LANGUAGES: tuple[Any, ...] = ("zh", "en")


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither the environment nor a kemem.toml has a say in what is built."""
    for name in os.environ:
        if name.startswith(("KEMEM_", "OPENAI_")) and name != RECORD:
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def open_memory(**given: Any) -> kemem.AsyncMemory:
    """A memory in the working directory that asks no model, at a fixed time."""
    settings = kemem.Settings(data_dir=Path("data"), llm="none", **given)
    return kemem.AsyncMemory(settings=settings, embedder=HashingEmbedder(), clock=FakeClock(NOW))


# Python


def python_face() -> Described:
    """All public names, what the memory gives access to, and the JSON of results."""
    names = {module: tuple(import_module(module).__all__) for module in PUBLIC} | DOCUMENTED
    public = {name for of_module in names.values() for name in of_module}
    return {
        "modules": {
            module: {name: _named(module, name, public) for name in of_module}
            for module, of_module in names.items()
        },
        **asyncio.run(_reached()),
        "to_dict of records": {name: json_shape(it) for name, it in _records().items()},
    }


def _named(module: str, name: str, public: set[str]) -> Described:
    return public_object(getattr(import_module(module), name), public)


async def _reached() -> Described:
    """Objects that are documented by what they do, not by a name, and results of a short run."""
    async with open_memory() as memory:
        error = kemem.KeMemError("wrong", field="name")
        return {
            "reached": {
                "AsyncMemory.journal": _handed_out(memory.journal),
                "AsyncMemory.workspaces()": _handed_out(await memory.workspaces()),
                "attributes of AsyncMemory": sorted(it for it in vars(memory) if it[0] != "_"),
                "attributes of KeMemError": sorted(vars(error)),
            },
            "to_dict of a run": await _results(memory),
        }


def _handed_out(value: object) -> Described:
    """An object of a class without a public name, which callers do not construct."""
    return {k: v for k, v in described_class(type(value), ()).items() if k != "constructor"}


async def _results(memory: kemem.AsyncMemory) -> Described:
    ids: Any = {"user_id": "u", "session_id": "s"}
    spoken = {"content": "我不吃辣", "metadata": {"speaker": "李明"}}
    said: list[dict[str, Any]] = [spoken, {"content": "I live in Oslo."}]
    results: dict[str, Any] = {
        "Added": await memory.add(said, **ids),
        "Added, of a change": await memory.add("I moved to Bergen.", **ids),
        "Memories of Hit": await memory.search("辣 Oslo", user_id="u", explain=True, count=True),
        "Memories of Hit, messages": await memory.search("辣", user_id="u", kinds=["message"]),
        "Memories of Item": await memory.get_all("u"),
        "Memories of Item, messages": await memory.get_all("u", kinds=["message"]),
        "Item, learned": await memory.learn("Tea is kept dry.", summary="Tea", tags=["tea"]),
        "Context": await memory.context("s", "u"),
        "Recalled": await memory.recall("Do I eat spicy food? 辣", **ids),
    }
    return {name: json_shape(it.to_dict()) for name, it in results.items()}


def _records() -> dict[str, dict[str, Any]]:
    """Records with what a short run does not bring about."""
    link = kemem.Link("n", "Anna", "lives in", "Oslo")
    outcome = kemem.Outcome("n", "Bergen", "UPDATE", previous="Oslo")
    events = [
        chat.RecallEvent("tea", ({"content": "tea"},), 0.1),
        chat.TextEvent("Green"),
        chat.ToolCallEvent("c", "recall_memory", "{}"),
        chat.ToolResultEvent("c", "recall_memory", "{}"),
        chat.ErrorEvent("UNAVAILABLE", "no model"),
        chat.DoneEvent("Green tea.", member_id="tea"),
    ]
    return {
        "Link": link.to_dict(),
        "Outcome of an update": outcome.to_dict(),
        "Added": kemem.Added((outcome,), (link,), ("m",), ("m",), ("m",), True, ("p",)).to_dict(),
        "Backup": kemem.Backup(Path("kemem.json"), NOW, 1, 1, 1, 1).to_dict(),
        "Memories": kemem.Memories((), "next", ("vectors",), total=1).to_dict(),
        "Reply": chat.Reply("Green tea.", "m", None).to_dict(),
        **{type(each).__name__: each.to_dict() for each in events},
    }


# Protocols


def openapi_face() -> Described:
    """The OpenAPI document with inlined schemas, and all routes, those it hides as well.

    Its texts and examples, which tests/test_openapi.py is about, may change.
    """
    app = create_app(open_memory(api_key="key"))
    document = _without_texts(inlined(app.openapi()))
    del document["components"]["schemas"]  # each stands where it is used
    routes = (
        f"{route.path} {method}"
        for route in iter_route_contexts(app.routes)
        for method in route.methods or ["*"]
    )
    return {"document": document, "routes": sorted(routes)}


def _without_texts(part: Any) -> Any:
    if isinstance(part, list):
        return [_without_texts(each) for each in part]
    if not isinstance(part, dict):
        return part
    texts = {"description", "example", "examples", "info", "tags"}
    return {name: _without_texts(each) for name, each in part.items() if name not in texts}


def cli_face() -> Described:
    """Every command of kemem."""
    return described_command(typer.main.get_command(cli))


def settings_face() -> Described:
    """Every setting with its variables, its type and its default."""
    described = inlined(kemem.Settings.model_json_schema(by_alias=False))["properties"]
    settings = {
        name: {
            "variables": _variables(name, field),
            "type": {k: v for k, v in described[name].items() if k not in BESIDE_TYPE},
            "default": value_text(field.get_default(call_default_factory=True)),
        }
        for name, field in kemem.Settings.model_fields.items()
    }
    return {"settings": settings, "file": kemem.Settings.model_config["toml_file"]}


def _variables(name: str, field: FieldInfo) -> Described:
    """The environment variables that a setting is read from, the first that is set."""
    if isinstance(field.validation_alias, AliasChoices):
        return field.validation_alias.choices
    return [f"{kemem.Settings.model_config['env_prefix']}{name}".upper()]


def mcp_face() -> Described:
    """What an MCP client is told, in both languages."""
    return {language: asyncio.run(_listed(language)) for language in LANGUAGES}


async def _listed(language: Any) -> Described:
    async with open_memory() as memory:
        server = create_mcp(lambda _: ToolContext(memory.for_user("u"), shared=memory), language)
        async with Client(server) as client:
            lists: dict[str, list[Any]] = {
                "tools": (await client.list_tools()).tools,
                "resources": (await client.list_resources()).resources,
                "templates": (await client.list_resource_templates()).resource_templates,
                "prompts": (await client.list_prompts()).prompts,
            }
            info = client.server_info
            assert info
            told = {"name": info.name, "title": info.title, "instructions": client.instructions}
    shown = {name: [_as_sent(each) for each in listed] for name, listed in lists.items()}
    return {"server": told, **shown}


def _as_sent(listed: Any) -> Described:
    """A tool, resource or prompt as JSON, with inlined schemas; its own title stays."""
    sent = listed.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {**sent, **{name: inlined(sent[name]) for name in SCHEMAS if name in sent}}


def rpc_face() -> Described:
    """The methods of JSON-RPC, their parameters in order, and the codes of errors."""
    methods = MemoryTools(open_memory(), "agent").methods
    models = {name: params_model(method) for name, method in methods.items()}
    return {
        "methods": {
            name: {"order": list(params.model_fields), "params": model_schema(params)}
            for name, params in models.items()
        },
        "codes": CODES,
        "max_batch": MAX_BATCH,
    }


def recall_tools_face() -> Described:
    """The tools of the recall agent as they are handed to others."""
    ways = (recall.openai_tools, recall.mcp_tools, recall.json_schemas)
    return {way.__name__: {language: way(language) for language in LANGUAGES} for way in ways}


# Comparing

FACES: dict[str, Callable[[], Described]] = {
    "python": python_face,
    "openapi": openapi_face,
    "cli": cli_face,
    "settings": settings_face,
    "mcp": mcp_face,
    "rpc": rpc_face,
    "recall_tools": recall_tools_face,
}


def as_text(described: Described) -> str:
    return json.dumps(described, ensure_ascii=False, indent=2, sort_keys=True) + "\n"


def difference(name: str, before: str, after: str) -> str:
    """What changed, as a unified diff; empty where nothing did."""
    recorded, built = before.splitlines(), after.splitlines()
    names = (f"recorded {name}", f"built {name}")
    return "\n".join(difflib.unified_diff(recorded, built, *names, n=8, lineterm=""))


def places(before: Described, after: Described, at: str = "") -> Iterator[str]:
    """Where two values differ, as paths of keys; a list is one place."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        if before != after:
            yield at
        return
    for key in sorted({*before, *after}):
        yield from places(before.get(key), after.get(key), f"{at} > {key}" if at else key)


@each("face", FACES)
def test_a_face_is_as_recorded(face: str) -> None:
    path = RECORDED / f"{face}.json"
    built = as_text(FACES[face]())
    if os.environ.get(RECORD):
        path.write_text(built, encoding="utf-8")
        pytest.fail(f"recorded {path.name}; run without {RECORD} to compare", pytrace=False)
    if not path.exists():
        pytest.fail(f"{path.name} was never recorded. {HOW}", pytrace=False)
    recorded = path.read_text(encoding="utf-8")
    if changed := difference(path.name, recorded, built):
        where = "\n".join(places(json.loads(recorded), json.loads(built)))
        pytest.fail(f"{path.name} has changed.\n{HOW}\n\n{where}\n\n{changed}", pytrace=False)


def test_every_recorded_file_is_compared() -> None:
    assert {path.name for path in RECORDED.iterdir()} == {f"{face}.json" for face in FACES}


def test_the_record_names_only_public_modules() -> None:
    """A class may move between private modules without a change of the record."""
    recorded = (RECORDED / "python.json").read_text(encoding="utf-8")
    assert {*re.findall(r"\bkemem(?:\.\w+)*", recorded)} == {*PUBLIC, *DOCUMENTED}
