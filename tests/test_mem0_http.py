"""The routes that mem0's clients ask keep users apart; tests/frameworks/ has the client itself."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from fastapi.routing import iter_route_contexts

from kemem.serve.http.mem0_routes import router as mem0
from tests.mem0_talks import TALKS
from tests.routes import MEM0, SECRET, token
from tests.server import LocalServer, local_server

KEY = "mem0-key-0123456789"
HOSTED = {"Authorization": f"Token {KEY}"}  # as mem0's hosted client sends it
EACH = pytest.mark.parametrize("language", ["zh", "en"])


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    settings = {"api_key": KEY, "jwt_secret": SECRET}
    with local_server(tmp_path_factory.mktemp("local"), **settings) as server:
        yield server


def test_an_empty_id_erases_nothing(local: LocalServer) -> None:
    """Only mem0's client erases all by that path."""
    body = {"messages": "I live in Graz", "user_id": "olga"}
    with local.client(KEY) as client:
        assert client.post("/v1/memories", json=body).is_success
        answer = client.delete("/v1/memories/", params={"user_id": "olga"})
        assert answer.status_code == 400 and "no memory_id" in answer.text
        kept = client.get("/v1/memories", params={"user_id": "olga"}).json()
        assert [it["memory"] for it in kept["results"]] == ["User lives in Graz"]
        erased = client.delete("/v1/memories/", params={"user_id": "olga"}, headers=HOSTED)
        assert erased.is_success
        assert client.get("/v1/memories", params={"user_id": "olga"}).json()["results"] == []


def test_every_route_needs_a_credential(local: LocalServer) -> None:
    with local.client() as client:
        for path in MEM0:
            assert client.get(path or "").status_code == 401, path


@EACH
def test_the_server_that_mem0_ships_is_spoken_too(local: LocalServer, language: str) -> None:
    words, user = TALKS[language], f"eve-{language}"
    with local.client(KEY) as client:
        body = {"messages": words["said"], "user_id": user}
        (added,) = client.post("/memories", json=body).json()["results"]
        asked = {"query": words["asked"], "user_id": user}
        (hit,) = client.post("/search", json=asked).json()["results"]
        (listed,) = client.get("/memories", params={"user_id": user}).json()["results"]
        one = f"/memories/{added['id']}"
        assert client.get(one).json() == listed
        assert hit["id"] == listed["id"] == added["id"]
        assert client.put(one, json={"text": "x"}).json()["memory"] == "x"
        assert len(client.get(f"{one}/history").json()) == 2
        assert client.get(one, params={"user_id": "bob"}).status_code == 404
        assert client.put(one, json={"text": "y"}, params={"user_id": "bob"}).status_code == 404
        voted = {"memory_id": added["id"], "feedback": "NEGATIVE", "feedback_reason": user}
        assert client.post("/v1/feedback/", json=voted).is_success
        shown = client.get("/dashboard/quality").text
        assert user in shown and "from=mem0" in shown
        assert client.delete(one).is_success
        assert client.get(one).status_code == 404
        assert client.delete("/memories", params={"user_id": user}).is_success


def test_hostile_values_are_refused(local: LocalServer) -> None:
    nested: Any = {"user_id": "eve"}
    for _ in range(300):
        nested = {"AND": [nested]}
    with local.client(KEY) as client:
        for body in (
            *({"filters": nested}, {"filters": "user_id"}, {"filters": {"user_id": ["eve"]}}),
            *({"user_id": {"a": 1}}, {"user_id": ""}, {"user_id": "eve", "show_expired": True}),
            {"user_id": "eve", "no_such_option": 1},
        ):
            answer = client.post("/v3/memories/", json=body)
            assert answer.status_code == 400, (body, answer.text)
            assert answer.json()["detail"] == answer.json()["error"]["message"]
        for filters in ("{", "['user_id']", "(" * 5000, "1" * 5000, "{'user_id': 7.5}"):
            answer = client.delete("/v1/memories/", params={"filters": filters}, headers=HOSTED)
            assert answer.status_code == 400, (filters, answer.text)
            assert "memory_id" not in answer.text
        for page in ({"page": 0}, {"page_size": 0}, {"page": "x"}, {"cursor": "x"}):
            answer = client.post("/v3/memories/", json={"user_id": "eve"}, params=page)
            assert answer.status_code == 400, page
        ask = {"memory_id": "n_1", "feedback": "LOUD"}
        assert client.post("/v1/feedback/", json=ask).status_code == 400
        assert client.delete("/v2/entities/app/a/").status_code == 400


def test_only_an_operator_erases_everything(local: LocalServer) -> None:
    with local.client(KEY) as client, local.client(token("bob")) as bob:
        client.post("/memories", json={"messages": "secret", "user_id": "ann", "infer": False})
        assert bob.post("/reset").status_code == 403
        assert len(client.get("/memories", params={"user_id": "ann"}).json()["results"]) == 1
        assert client.post("/reset").is_success
        assert client.get("/memories", params={"user_id": "ann"}).json()["results"] == []


def test_a_token_of_a_user_reaches_nobody_else(local: LocalServer) -> None:
    """By no route, with no id: neither in the path, in the query, in a body nor in a header."""
    said = {"messages": "秘密 secret", "user_id": "ann", "infer": False}
    with local.client(KEY) as client, local.client(token("bob")) as bob:
        (note,) = client.post("/memories", json=said).json()["results"]
        before = client.get("/memories", params={"user_id": "ann"}).json()
        named = {"user_id": "ann", "filters": {"user_id": "ann"}}
        one = {"memory_id": note["id"], "text": "x", "feedback": "POSITIVE"}
        bodies: list[dict[str, Any]] = [
            *({}, named, one, {"filters": named["filters"]}, {"memories": [one]}),
            *({"query": "秘密 secret", **some} for some in ({}, named)),
            *({"text": "x", **some} for some in ({}, named)),
        ]
        asked: list[dict[str, Any]] = [{}, {"user_id": "ann"}, {"filters": "{'user_id': 'ann'}"}]
        tried = 0
        for route in iter_route_contexts(mem0.routes):
            path = (route.path or "").replace("{memory_id}", note["id"]).replace("{name}", "ann")
            path = path.replace("{kind}", "user").replace("{rest:path}", "x")
            for method, headers in product(route.methods or (), ({}, {"X-KeMem-User": "ann"})):
                takes_body = method in ("POST", "PUT") or "batch" in path
                for body, query in product(bodies if takes_body else [{}], asked):
                    sent = body if takes_body else None
                    options: dict[str, Any] = {"params": query, "headers": headers}
                    answer = bob.request(method, path, json=sent, **options)
                    assert "secret" not in answer.text, (method, path, body, query)
                    tried += answer.status_code == 404
        assert tried > 100
        assert client.get("/memories", params={"user_id": "ann"}).json() == before


def test_a_credential_counts_by_either_name_of_its_scheme(local: LocalServer) -> None:
    """Nothing more is reached by one of them, on KeMem's own routes neither."""
    for path in ("/memories", "/v1/memories"):
        for credential, user, status in (
            *((KEY, "ann", 200), (token("bob"), "bob", 200), (token("bob"), "ann", 404)),
            *(("wrong", "ann", 401), ("", "ann", 401)),
        ):
            with local.client() as client:
                for scheme in ("Token", "bearer"):
                    headers = {"Authorization": f"{scheme} {credential}"}
                    answer = client.get(path, params={"user_id": user}, headers=headers)
                    assert answer.status_code == status, (path, scheme, user)
                basic = client.get(path, headers={"Authorization": f"Basic {KEY}"})
                assert basic.status_code == 401
