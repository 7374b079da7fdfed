"""The routes that mem0's clients ask keep users apart; tests/frameworks/ has the client itself."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.mem0_talks import TALKS
from tests.routes import MEM0, SECRET, token
from tests.server import LocalServer, local_server

KEY = "mem0-key-0123456789"
EACH = pytest.mark.parametrize("language", ["zh", "en"])


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    settings = {"api_key": KEY, "jwt_secret": SECRET}
    with local_server(tmp_path_factory.mktemp("local"), **settings) as server:
        yield server


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
            answer = client.delete("/v1/memories/", params={"filters": filters})
            assert answer.status_code == 400, (filters, answer.text)
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
