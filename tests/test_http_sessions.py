"""Sessions, the graph, the directory and jobs over HTTP."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from kemem.testing.openai_server import Answer, running_openai_server, status
from tests.cases import each
from tests.server import (
    INVALID,
    MISSING,
    LocalServer,
    add,
    local_server,
    note_of,
    notes,
    refusal,
    wait_for,
)

CHINESE = [
    "帮我把 Redis 的连接超时问题查一下，线上一直报错。",
    "可以先看连接池的配置。",
    "原因是有个任务没有释放连接，我改成了 with 语句。",
    "太好了，现在怎么样了？",
    "解决了，线上不再报错。",
]
ENGLISH = [
    "Please help me find out why the nightly Airflow job fails.",
    "Let's look at the logs first.",
    "It turned out that the disk was full, so we switched to a bigger volume.",
    "Does it run now?",
    "Yes, it works now and the job passed.",
]
BOTH = pytest.mark.parametrize(("language", "texts"), [("zh", CHINESE), ("en", ENGLISH)])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """An app by words only."""
    with local_server(tmp_path_factory.mktemp("data")) as running:
        yield running


def talk(client: httpx.Client, user: str, texts: list[str], session: str = "会话 1") -> str:
    """Say something in a session; returns the path of the session."""
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]
    add(client, messages, user_id=user, session_id=session)
    return f"/v1/sessions/{quote(session)}"


def call(client: httpx.Client, path: str, **given: Any) -> Any:
    """The answer to a POST that must succeed."""
    answer = client.post(path, json=given)
    assert answer.status_code == 200, answer.text
    return answer.json()


# Sessions


@BOTH
def test_a_context_holds_a_session_within_its_budget(
    client: httpx.Client, language: str, texts: list[str]
) -> None:
    """All of it verbatim where it fits; else summaries, and the newest messages."""
    user = f"context_{language}"
    path = talk(client, user, texts)
    whole = client.get(f"{path}/context", params={"user_id": user}).json()
    assert [item["memory"] for item in whole["messages"]] == texts
    assert all(text in whole["text"] for text in texts)
    assert whole["summaries"] == []
    short = client.get(f"{path}/context", params={"user_id": user, "max_tokens": 60}).json()
    assert short["tokens"] <= 60 < whole["tokens"]
    assert short["full_tokens"] == whole["full_tokens"]
    assert 0 < len(short["messages"]) < len(texts)
    assert short["summaries"]


@BOTH
def test_a_session_is_summarised_when_it_is_long(
    client: httpx.Client, language: str, texts: list[str]
) -> None:
    """Null while it fits; then a State in layers."""
    user = f"long_{language}"
    path = talk(client, user, texts)
    assert call(client, f"{path}/summarize", user_id=user) == {"checkpoint": None}
    many = [f"{text} 第 {n} 遍 time {n}. " * 4 for n in range(12) for text in texts]
    talk(client, user, many)
    state = call(client, f"{path}/summarize", user_id=user)["checkpoint"]
    assert state["session_id"] == "会话 1"
    assert state["layers"][0]["first"] == 1 and state["layers"][0]["text"]


@pytest.mark.parametrize("words", ["订单号是 42", "the order is 42"])
def test_short_term_memory_comes_back_from_a_checkpoint(client: httpx.Client, words: str) -> None:
    """The notes of the session as they were; what came later goes, messages stay."""
    user = f"restore_{len(words)}"
    note = note_of(client, user, words, session_id="s", memory_type="short")
    saved = call(client, "/v1/sessions/s/checkpoint", user_id=user)
    assert [item["memory"] for item in saved["notes"]] == [words]
    client.patch(f"/v1/memories/{note}", params={"user_id": user}, json={"content": "别的 other"})
    later = note_of(client, user, "后来 later", session_id="s", memory_type="short")
    assert notes(client, user_id=user) == {later: "后来 later", note: "别的 other"}
    newest = call(client, "/v1/sessions/s/checkpoint", user_id=user)
    assert len(newest["notes"]) == 2
    path = "/v1/sessions/s/checkpoint/restore"
    back = call(client, path, user_id=user, checkpoint_id=saved["checkpoint_id"])
    assert notes(client, user_id=user) == {note: words}
    assert len(notes(client, user_id=user, kinds="message")) == 2
    assert back["checkpoint_id"] not in (saved["checkpoint_id"], newest["checkpoint_id"])
    assert call(client, path, user_id=user)["notes"] == back["notes"]
    unknown = client.post(path, json={"user_id": user, "checkpoint_id": "c_unknown"})
    assert refusal(unknown) == MISSING


@BOTH
def test_a_session_that_ends_leaves_its_experience(
    client: httpx.Client, language: str, texts: list[str]
) -> None:
    """One note; short-term notes are gone, messages stay, the directory knows the end."""
    user = f"end_{language}"
    path = talk(client, user, texts)
    note_of(client, user, "草稿 draft", session_id="会话 1", memory_type="short")
    ended = call(client, f"{path}/end", user_id=user)
    assert [outcome["event"] for outcome in ended["results"]] == ["ADD"]
    (experience,) = notes(client, user_id=user, kinds="experience").values()
    assert texts[0] in experience and texts[-1] in experience
    assert notes(client, user_id=user, kinds="short_term") == {}
    assert len(notes(client, user_id=user, kinds="message")) == len(texts) + 1
    (entry,) = client.get("/v1/sessions", params={"user_id": user}).json()["items"]
    assert (entry["id"], entry["active"]) == ("会话 1", False)
    assert entry["ended_at"] is not None


def test_a_session_is_found_only_where_it_is(client: httpx.Client) -> None:
    """Unknown or another's: 404. Of several users: to be named. Of one: its id is enough."""
    for user in ("one", "two"):
        talk(client, user, ["你好 hello"], "shared")
    path = talk(client, "one", ["你好 hello"], "own")
    assert client.get(f"{path}/context").status_code == 200
    assert refusal(client.get("/v1/sessions/shared/context")) == INVALID
    assert refusal(client.get(f"{path}/context", params={"user_id": "two"})) == MISSING
    for end in ("summarize", "checkpoint", "checkpoint/restore", "end"):
        assert refusal(client.post(f"/v1/sessions/shared/{end}", json={})) == INVALID
        stranger = client.post(f"{path}/{end}", json={"user_id": "two"})
        assert refusal(stranger) == MISSING
        missing = client.post(f"/v1/sessions/nowhere/{end}", json={"user_id": "one"})
        assert missing.text == stranger.text.replace("own", "nowhere")


@each("budget", ["0", "49", "-1", "many", "1.5", ""])
def test_a_budget_that_holds_nothing_is_refused(client: httpx.Client, budget: str) -> None:
    """At least 50 tokens."""
    path = talk(client, "budget", ["你好 hello"])
    asked = {"user_id": "budget", "max_tokens": budget}
    answer = client.get(f"{path}/context", params=asked)
    assert refusal(answer) == INVALID
    assert answer.json()["error"]["details"] == {"field": "max_tokens"}


# The graph


@pytest.mark.parametrize(
    ("user", "words", "source", "relation", "destination"),
    [
        ("graph_zh", "李明在北京大学读书", "李明", "studies_at", "北京大学"),
        ("graph_en", "I live in Berlin", "user", "lives_in", "Berlin"),
    ],
)
def test_relations_are_found_near_an_entity(
    client: httpx.Client, user: str, words: str, source: str, relation: str, destination: str
) -> None:
    """With the time from which they are true, and the notes that say so."""
    added = add(client, words, user_id=user, timestamp="2026-01-26T10:47:00Z")
    add(client, "王芳住在上海", user_id=user)
    for name in (source, destination):
        asked = {"user_id": user, "around": name}
        (found,) = client.get("/v1/graph", params=asked).json()["relations"]
        assert (found["source"], found["relationship"], found["destination"]) == (
            source,
            relation,
            destination,
        )
        assert found["note_ids"] == [added["results"][0]["id"]]
        assert (found["valid_from"], found["valid_until"]) == ("2026-01-26T10:47:00.000000Z", None)
    assert len(client.get("/v1/graph", params={"user_id": user}).json()["relations"]) == 2
    both: dict[str, Any] = {"user_id": user, "around": [source, "王芳"], "hops": 2}
    assert len(client.get("/v1/graph", params=both).json()["relations"]) == 2
    earlier = {"user_id": user, "as_of": "2025-01-01T00:00:00Z"}
    for none in (earlier, {"user_id": f"{user}_other", "around": source}):
        assert client.get("/v1/graph", params=none).json() == {"relations": []}


# The directory


def test_agents_users_and_sessions_are_listed_page_by_page(client: httpx.Client) -> None:
    """Each once, in the order of ids; a cursor belongs to its list."""
    for n in range(5):
        note_of(client, f"dir_{n}", agent_id="图书 library", session_id=f"s{n}")
    lists: list[tuple[str, dict[str, Any], list[str]]] = [
        ("/v1/users", {"agent_id": "图书 library"}, [f"dir_{n}" for n in range(5)]),
        ("/v1/sessions", {"agent_id": "图书 library"}, [f"s{n}" for n in range(5)]),
    ]
    for path, asked, expected in lists:
        found: list[str] = []
        page = client.get(path, params={**asked, "limit": 2}).json()
        cursor = page["next_cursor"]
        while True:
            found += [item["id"] for item in page["items"]]
            if "next_cursor" not in page:
                break
            more = {**asked, "limit": 2, "cursor": page["next_cursor"]}
            page = client.get(path, params=more).json()
        assert found == expected
        for wrong in ({"agent_id": "other", "cursor": cursor}, {**asked, "cursor": f"{cursor}A"}):
            assert refusal(client.get(path, params=wrong)) == INVALID
    agents = client.get("/v1/agents").json()["items"]
    assert "图书 library" in [agent["id"] for agent in agents]
    assert all(agent["user_id"] is None for agent in agents)


# Jobs


class Model:
    """A language model that is away until it is told to be there."""

    there = False

    def __call__(self, request: dict[str, Any]) -> Answer:
        if not self.there:
            return status(500)
        return {"facts": [{"text": "用户不吃辣", "type": "user_preference"}], "entities": []}


def test_work_that_failed_is_listed_tried_again_and_done(tmp_path: Path) -> None:
    """The message is kept at once; the note comes when the model is back."""
    model = Model()
    with (
        running_openai_server(model) as away,
        local_server(tmp_path, llm_base_url=away.base_url, llm_api_key="any") as server,
        server.client() as client,
    ):
        added = add(client, "我真的一点辣都吃不了", user_id="u", session_id="s")
        assert (len(added["message_ids"]), added["pending"]) == (1, True)
        (job,) = client.get("/v1/jobs").json()["items"]
        assert (job["kind"], job["state"], job["user_id"]) == ("extract", "pending", "u")
        assert job["attempts"] == 1 and job["error"]
        assert refusal(client.get("/v1/jobs", params={"limit": 0})) == INVALID
        assert refusal(client.post("/v1/jobs/j_unknown/retry")) == MISSING
        model.there = True
        again = client.post(f"/v1/jobs/{job['id']}/retry").json()
        assert (again["id"], again["attempts"], again["state"]) == (job["id"], 0, "pending")
        assert again["due"] < job["due"]
        assert client.post("/v1/jobs/run").json()["done"] in (0, 1)  # the server works as well
        wait_for(lambda: client.get("/v1/jobs").json() == {"items": []})
        assert list(notes(client, user_id="u").values()) == ["用户不吃辣"]
