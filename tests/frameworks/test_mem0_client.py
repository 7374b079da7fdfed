"""mem0's own client, of the installed version, works against the server."""

import inspect
import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest
from starlette.routing import Match

from kemem.integrations.mem0 import AsyncMemory, Memory
from kemem.serve.http.mem0_routes import router as mem0
from tests.frameworks.with_frameworks import FRAMEWORKS, ROOT
from tests.mem0_talks import TALKS
from tests.routes import SECRET, token
from tests.server import running_server

KEY = "mem0-key-0123456789"
FACTS = {"zh": "用户对花生过敏", "en": "User is allergic to peanuts"}
EACH = pytest.mark.parametrize("language", ["zh", "en"])


@pytest.fixture(scope="module")
def got(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the real clients got from a server process, in a process that has mem0."""
    assert (FRAMEWORKS / "mem0").is_dir(), "make test-frameworks installs it"
    home = tmp_path_factory.mktemp("mem0")
    path = os.pathsep.join((str(ROOT), str(ROOT / "src")))
    own = {"HOME": str(home), "MEM0_DIR": str(home), "MEM0_TELEMETRY": "False"}
    with running_server(home / "data", api_key=KEY, jwt_secret=SECRET) as server:
        arguments = [str(FRAMEWORKS), server.url, KEY, token("bob")]
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tests.frameworks.mem0_client", *arguments],
            cwd=ROOT,
            env={**os.environ, **own, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


@EACH
def test_the_client_adds_and_finds(got: dict[str, Any], language: str) -> None:
    answers, words = got[language], TALKS[language]
    (added,), (verbatim,) = answers["added"]["results"], answers["verbatim"]["results"]
    assert (added["memory"], added["event"]) == (FACTS[language], "ADD")
    (hit,) = answers["searched"]["results"]
    assert (hit["id"], hit["memory"]) == (added["id"], FACTS[language])
    assert 0 < hit["score"] <= 1
    (tagged,) = answers["tagged"]["results"]
    assert (tagged["memory"], tagged["metadata"]) == (words["verbatim"], {"tag": "travel"})
    assert (tagged["user_id"], tagged["run_id"]) == (f"ann-{language}", "r_1")
    assert answers["got"]["expiration_date"] == "2099-01-31"
    listed = answers["all"]
    assert [it["id"] for it in listed["results"]] == [verbatim["id"], added["id"]]
    assert (listed["count"], listed["next"], listed["previous"]) == (2, None, None)
    page = answers["page"]
    assert ([it["id"] for it in page["results"]], page["count"]) == ([added["id"]], 2)
    assert "page=1" in page["previous"]


@EACH
def test_the_client_changes_and_deletes(got: dict[str, Any], language: str) -> None:
    answers, words = got[language], TALKS[language]
    assert answers["updated"]["memory"] == words["changed"]
    assert answers["updated"]["metadata"] == {"tag": "travel", "paid": True}
    assert [(it["event"], it["new_memory"]) for it in answers["history"]] == [
        ("ADD", words["verbatim"]),
        ("UPDATE", words["changed"]),
    ]
    for name in ("voted", "batch", "deleted"):
        assert isinstance(answers[name]["message"], str)
    assert answers["gone"][0] == "MemoryNotFoundError"


OF_OTHERS = [
    *("get", "get, as bob", "update", "history", "delete", "feedback", "batch"),
    *("search", "add", "delete_all"),
]
WITHOUT_A_SCOPE = [
    *("search without a scope", "list without a scope", "any user", "one user or another"),
    *("delete_all without a scope", "add without a scope"),
]
UNSUPPORTED = ["app_id", "categories", "delete_linked", "expiration", "summary", "webhooks"]


def test_another_users_memories_are_not_found(got: dict[str, Any]) -> None:
    others = got["others"]
    for name in OF_OTHERS:
        assert others["refused"][name][0] == "MemoryNotFoundError", name
    assert (others["own"], others["left"]) == ([], "secret")
    assert others["refused"]["users"][0] == "AuthenticationError"
    assert others["refused"]["key"][0] == "ValueError"


def test_nothing_is_read_without_a_scope(got: dict[str, Any]) -> None:
    for name in WITHOUT_A_SCOPE:
        kind, reason = got["others"]["refused"][name]
        assert kind == "ValidationError" and reason.startswith("user_id, agent_id or run_id"), name


def test_what_has_no_counterpart_is_said_in_plain_words(got: dict[str, Any]) -> None:
    """The client shows the reason itself, not the JSON around it."""
    for name in UNSUPPORTED:
        kind, reason = got["others"]["refused"][name]
        assert kind == "ValidationError" and "{" not in reason, reason
        assert re.search("counterpart|not supported|cannot be changed", reason), reason


def test_users_are_listed_and_erased(got: dict[str, Any]) -> None:
    entities = got["others"]["users"]["results"]
    assert {(it["type"], it["name"]) for it in entities} == {
        *(("user", "ann"), ("user", "ann-zh"), ("user", "ann-en"), ("run", "r_1"))
    }
    assert got["others"]["after"]["count"] == got["awaited"]["after"]["count"] == 0
    assert [it["memory"] for it in got["awaited"]["found"]["results"]]
    assert got["reset"] == {"zh": 0, "en": 0}


NOT_IMPLEMENTED = {"chat"}  # by mem0 either
NOT_TAKEN = {"llm"}  # it writes procedural memories


def test_the_classes_take_what_mem0s_take(got: dict[str, Any]) -> None:
    """Every method of the installed version, and every parameter by its name and place."""
    for name, kind in (("Memory", Memory), ("AsyncMemory", AsyncMemory)):
        methods = got["mem0"]["methods"][name]
        assert {"add", "search", "from_config", "close"} <= methods.keys()
        for method in methods.keys() - NOT_IMPLEMENTED:
            taken = inspect.signature(getattr(kind, method)).parameters
            missing = set(methods[method]) - {*taken, *NOT_TAKEN, "kwargs"}
            assert not missing, (name, method)
            by_place = [it.name for it in taken.values() if it.kind is it.POSITIONAL_OR_KEYWORD]
            assert methods[method][: len(by_place)] == by_place[: len(methods[method])], method


def test_every_route_that_the_client_asks_is_answered(got: dict[str, Any]) -> None:
    """With data, or with the reason why there is none."""
    routes = got["mem0"]["routes"]
    assert len(routes) > 20
    for method, path in routes:
        scope = {"type": "http", "method": method, "path": "/" + path.lstrip("/")}
        assert any(route.matches(scope)[0] is Match.FULL for route in mem0.routes), (method, path)


def test_a_config_object_of_mem0_is_read(got: dict[str, Any]) -> None:
    meant, ignored = got["mem0"]["config"]
    assert meant["instructions"] == "only food"
    assert {"vector_store (qdrant)", "embedder (openai)", "history_db_path"} <= set(ignored)
