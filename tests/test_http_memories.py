"""Memories over HTTP: what is added is remembered, found, changed, erased and forgotten."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.cases import each
from tests.server import (
    INVALID,
    MISSING,
    LocalServer,
    add,
    ids,
    local_server,
    note_of,
    notes,
    post,
    read,
    refusal,
    said,
)

MEMORIES = "/v1/memories"
BOTH = pytest.mark.parametrize(
    ("user", "words", "note", "query"),
    [
        ("u_zh", "我不吃辣", "用户不吃辣", "吃辣"),
        ("u_en", "I live in Berlin", "User lives in Berlin", "Berlin"),
    ],
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """An app by words only."""
    with local_server(tmp_path_factory.mktemp("data")) as running:
        yield running


def find(client: httpx.Client, query: str, **asked: Any) -> list[dict[str, Any]]:
    """The results of a search that must succeed."""
    answer = client.post(f"{MEMORIES}/search", json={"query": query, **asked})
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


# Adding and finding


@BOTH
def test_what_was_said_is_remembered_and_found(
    client: httpx.Client, user: str, words: str, note: str, query: str
) -> None:
    """The note is drawn from the message, listed, and found with its score."""
    added = add(client, words, user_id=user)
    (outcome,) = added["results"]
    assert (outcome["memory"], outcome["event"]) == (note, "ADD")
    assert len(added["relations"]) == len(added["message_ids"]) == 1
    assert added["pending"] is False
    assert notes(client, user_id=user) == {outcome["id"]: note}
    best, *_ = find(client, query, user_id=user)
    assert (best["id"], best["memory"], best["sources"]) == (
        outcome["id"],
        note,
        added["message_ids"],
    )
    assert 0 < best["score"] <= 1
    assert "why" not in best
    assert find(client, query, user_id=user, explain=True)[0]["why"]
    assert find(client, query, user_id=f"{user}_other") == []


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ("我喜欢茶 tea", 1),
        ({"role": "assistant", "content": "好的 fine"}, 1),
        ([{"content": "你好"}, {"role": "user", "content": "hello", "message_id": "m1"}], 2),
    ],
)
def test_messages_are_a_text_a_message_or_a_list(
    client: httpx.Client, given: Any, count: int
) -> None:
    """A message without a role is the user's; each is kept and becomes a note as it is."""
    user = f"forms_{len(str(given))}"
    added = add(client, given, user_id=user, infer=False)
    assert len(added["message_ids"]) == len(read(client, user)["items"]) == count
    assert [outcome["event"] for outcome in added["results"]] == ["ADD"] * count


def test_facts_can_be_left_to_a_job(client: httpx.Client) -> None:
    """The message is there at once, the note when the worker, which is woken, has done it."""
    added = add(client, "我住在北京", user_id="later", wait=False)
    assert added["pending"] and not added["results"]
    assert len(read(client, "later")["items"]) == 1
    until = time.monotonic() + 20
    while not notes(client, user_id="later") and time.monotonic() < until:
        time.sleep(0.02)
    assert [*notes(client, user_id="later").values()] == ["用户住在北京"]


def test_a_filter_by_type_or_kind_reaches_notes_and_messages(client: httpx.Client) -> None:
    """One that nothing can fulfil is refused."""
    own = {"memory_type": "command_output"}
    add(client, "日志 the log", user_id="typed", infer=False, metadata=own)
    add(client, "别的 another", user_id="typed", infer=False)
    for kinds in ({}, {"kinds": "message"}):
        asked = {"user_id": "typed", "filters": json.dumps(own), **kinds}
        (item,) = client.get(MEMORIES, params=asked).json()["results"]
        assert item["memory"] == "日志 the log"
    assert find(client, "日志 log", user_id="typed", filters=own)[0]["memory"] == "日志 the log"
    messages = {"user_id": "typed", "filters": '{"kind": "message"}'}
    listed = client.get(MEMORIES, params=messages).json()["results"]
    assert {it["kind"] for it in listed} == {"message"}
    for method in ("GET", "DELETE"):
        unmet = {"user_id": "typed", "filters": '{"role": "user"}'}
        assert refusal(client.request(method, MEMORIES, params=unmet)) == INVALID


def test_what_a_call_says_of_its_messages_is_kept(client: httpx.Client) -> None:
    """Metadata, time, end, kind and ids, the session under either of its names."""
    told = {"agent_id": "厨师", "metadata": {"标签": ["a", 1]}, "memory_type": "short"}
    told |= {"timestamp": "2026-01-26T10:47:00Z", "expires_at": "2099-01-01T00:00:00Z"}
    for name in ("run_id", "session_id"):
        note_of(client, "told", f"用 {name}", **told, **{name: "晚餐"})
        (item,) = client.get(MEMORIES, params={"user_id": "told", name: "晚餐"}).json()["results"]
        assert (item["agent_id"], item["session_id"], item["kind"]) == (
            "厨师",
            "晚餐",
            "short_term",
        )
        assert item["metadata"]["标签"] == ["a", 1]
        assert item["event_time"] == "2026-01-26T10:47:00.000000Z"
        assert item["expires_at"] == "2099-01-01T00:00:00.000000Z"
        client.delete(MEMORIES, params={"user_id": "told"})
    both = {"user_id": "told", "session_id": "a", "run_id": "b"}
    assert refusal(client.get(MEMORIES, params=both)) == INVALID


def test_what_an_agent_knows_is_shared_by_its_users(client: httpx.Client) -> None:
    """Without a user it is knowledge; users find it, and cannot change it."""
    added = add(client, "客服电话是 support@example.com", agent_id="service", infer=False)
    name = added["results"][0]["id"]
    (best, *_) = find(client, "客服电话", user_id="customer", agent_id="service")
    assert (best["id"], best["kind"], best["user_id"]) == (name, "knowledge", None)
    assert find(client, "客服电话", user_id="customer", agent_id="other") == []
    path = f"{MEMORIES}/{name}"
    assert refusal(client.delete(path, params={"user_id": "customer"})) == MISSING
    assert client.get(path, params={"agent_id": "service"}).status_code == 200


def test_a_search_is_narrowed_by_all_that_it_takes(client: httpx.Client) -> None:
    """Size under either name, kinds, filters, a least score."""
    for n in range(4):
        note_of(client, "narrow", f"茶 tea number {n}", metadata={"n": n, "even": n % 2 == 0})
    assert len(find(client, "茶 tea", user_id="narrow", limit=3)) == 3
    assert len(find(client, "茶 tea", user_id="narrow", top_k=2)) == 2
    assert find(client, "茶 tea", user_id="narrow", threshold=1.0) == []
    for kind in ("message", "user_info"):
        found = find(client, "茶 tea", user_id="narrow", kinds=[kind])
        assert {it["kind"] for it in found} == {kind}
    wanted = {"OR": [{"n": {"gte": 3}}, {"n": 0}], "even": True}
    found = find(client, "茶 tea", user_id="narrow", kinds=["user_info"], filters=wanted)
    assert [it["metadata"]["n"] for it in found] == [0]
    listed = client.get(MEMORIES, params={"user_id": "narrow", "filters": json.dumps(wanted)})
    assert [it["metadata"]["n"] for it in listed.json()["results"]] == [0]
    in_filters = {"filters": {"user_id": "narrow", "n": 2}, "kinds": ["user_info"]}
    assert [it["metadata"]["n"] for it in find(client, "茶 tea", **in_filters)] == [2]


@pytest.mark.parametrize(
    ("user", "first", "then", "old", "new"),
    [
        ("moved_zh", "我住在北京", "我搬到上海了", "北京", "上海"),
        ("moved_en", "I live in Berlin", "I moved to Paris", "Berlin", "Paris"),
    ],
)
def test_the_past_can_be_asked_for(
    client: httpx.Client, user: str, first: str, then: str, old: str, new: str
) -> None:
    """Today the newer fact is true; as of an earlier day, the older one was."""
    add(client, first, user_id=user, timestamp="2026-01-01T00:00:00Z")
    added = add(client, then, user_id=user, timestamp="2026-02-01T00:00:00Z")
    assert [outcome["event"] for outcome in added["results"]] == ["UPDATE"]
    now, before = (
        notes(client, user_id=user),
        notes(client, user_id=user, as_of="2026-01-15T00:00:00Z"),
    )
    assert (
        [new in text for text in now.values()]
        == [old in text for text in before.values()]
        == [True]
    )


@BOTH
def test_stored_messages_can_be_drawn_from_later(
    client: httpx.Client, user: str, words: str, note: str, query: str
) -> None:
    """What came in by the message route is remembered when asked for, once."""
    user = f"later_{user}"
    post(client, user, said(words, "m1"))
    assert notes(client, user_id=user) == {}
    for event in ("ADD", "NONE"):
        answer = client.post(f"{MEMORIES}/extract", json={"user_id": user}).json()
        assert [(it["memory"], it["event"]) for it in answer["results"]] == [(note, event)]


# One memory


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [("我喜欢茶", "我喜欢咖啡", "content"), ("I like tea", "I like coffee", "memory")],
)
def test_a_note_is_read_changed_and_erased(
    client: httpx.Client, old: str, new: str, name: str
) -> None:
    """By either name of its text; its history tells what it said, and then that it ended."""
    user = f"life_{len(old)}"
    path, owner = f"{MEMORIES}/{note_of(client, user, old)}", {"user_id": user}
    assert client.get(path, params=owner).json()["memory"] == old
    changed = client.patch(path, params=owner, json={name: new}).json()
    assert (changed["memory"], changed["id"]) == (new, path.rpartition("/")[2])
    changed = client.patch(path, params=owner, json={"metadata": {"标签": 1}}).json()
    assert (changed["memory"], changed["metadata"]) == (new, {"标签": 1})
    assert client.get(path, params=owner).json() == changed
    lines = client.get(f"{path}/history", params=owner).json()["items"]
    texts = [(line["event"], line["before"], line["after"]) for line in lines]
    assert texts == [("update", old, new), ("add", None, old)]
    answer = client.delete(path, params=owner).json()
    assert (answer["deleted"], len(answer["withdrawn"]), answer["erased"]) == (1, 1, [])
    for gone in (client.get, client.delete):
        assert refusal(gone(path, params=owner)) == MISSING
    assert refusal(client.patch(path, params=owner, json={"content": old})) == MISSING
    lines = client.get(f"{path}/history", params=owner).json()["items"]
    assert (lines[0]["event"], lines[0]["before"], lines[0]["after"]) == ("delete", None, None)
    assert old not in str(lines) and new not in str(lines)
    (line,) = client.get(f"{MEMORIES}/forgotten", params=owner).json()["items"]
    assert line["memory_id"] == path.rpartition("/")[2]


@each("message_id", ["消息 1", "a+b&c=d#e?f", "😀", "forgotten", "100%"])
def test_a_message_is_a_memory_of_its_own_id(client: httpx.Client, message_id: str) -> None:
    """Whatever the id is made of; it is read and erased, and never changed."""
    post(client, "m", said("我喜欢茶 tea", message_id))
    path, owner = f"{MEMORIES}/{quote(message_id, safe='')}", {"user_id": "m"}
    if message_id != "forgotten":  # a route of its own
        item = client.get(path, params=owner).json()
        assert (item["id"], item["kind"], item["role"]) == (message_id, "message", "user")
    assert refusal(client.patch(path, params=owner, json={"content": "x"})) == INVALID
    erased = {"deleted": 1, "withdrawn": [], "erased": [message_id]}
    assert client.delete(path, params=owner).json() == erased
    assert ids(read(client, "m")) == []


def test_of_an_erased_message_nothing_is_remembered(client: httpx.Client) -> None:
    """The notes that were drawn from it alone go with it."""
    added = add(client, "我不吃辣", user_id="drawn")
    path = f"{MEMORIES}/{added['message_ids'][0]}"
    client.delete(path, params={"user_id": "drawn"})
    assert notes(client, user_id="drawn", kinds=["message", "user_info"]) == {}


def test_an_id_alone_or_of_another_is_not_enough(client: httpx.Client) -> None:
    """400 without an owner; a stranger's memory looks like one that does not exist, to the byte."""
    unknown, name = "n_00000000000000000000000000", note_of(client, "owner")
    for method, end in [("GET", ""), ("PATCH", ""), ("DELETE", ""), ("GET", "/history")]:
        body = {"content": "x"} if method == "PATCH" else None
        alone = client.request(method, f"{MEMORIES}/{name}{end}", json=body)
        assert refusal(alone) == INVALID
        assert alone.json()["error"]["details"] == {"field": "user_id"}
        for stranger in ({"user_id": "stranger"}, {"agent_id": "stranger"}):
            one, other = (
                client.request(method, f"{MEMORIES}/{it}{end}", json=body, params=stranger)
                for it in (name, unknown)
            )
            assert refusal(one) == MISSING
            assert one.text.replace(name, unknown) == other.text
    assert notes(client, user_id="owner") == {name: "我喜欢茶 tea"}


@pytest.mark.parametrize("body", [{}, {"content": None, "metadata": None}, {"content": " "}])
def test_a_change_of_nothing_is_refused(client: httpx.Client, body: Any) -> None:
    """Words or metadata, or both."""
    path = f"{MEMORIES}/{note_of(client, 'unchanged')}"
    assert refusal(client.patch(path, params={"user_id": "unchanged"}, json=body)) == INVALID


# Lists, erasures, forgetting


@pytest.fixture(scope="module")
def many(client: httpx.Client) -> str:
    """A user with 25 notes, five at each time."""
    for day in range(1, 6):
        texts = [{"content": f"第 {day} 天 day, 第 {n} 条 note"} for n in range(5)]
        time = f"2026-01-0{day}T00:00:00Z"
        add(client, texts, user_id="many", infer=False, timestamp=time, metadata={"day": day})
    return "many"


@each("size", [1, 4, 5, 24, 25, 26, 1000])
def test_pages_of_any_size_hold_every_note_once(client: httpx.Client, many: str, size: int) -> None:
    """Newest first, with either name of the size, and with a filter."""
    whole = list(notes(client, user_id=many))
    assert len(whole) == 25
    for name, given in [("limit", {}), ("top_k", {"filters": '{"day": {"gt": 2}}'})]:
        asked: dict[str, Any] = {"user_id": many, name: size, **given}
        found: list[str] = []
        page = client.get(MEMORIES, params=asked).json()
        while True:
            found += [item["id"] for item in page["results"]]
            if "next_cursor" not in page:
                break
            page = client.get(MEMORIES, params={**asked, "cursor": page["next_cursor"]}).json()
        assert found == (whole[:15] if given else whole)


def test_a_cursor_is_sealed_and_bound_to_its_list(client: httpx.Client, many: str) -> None:
    """Bent, cut, or of another user, filter, kind or route: refused by name."""
    asked: dict[str, Any] = {"user_id": many, "limit": 1}
    good = client.get(MEMORIES, params=asked).json()["next_cursor"]
    swapped = good[:9] + ("A" if good[9] != "A" else "B") + good[10:]
    bent = [good[:-1], good[:-4], f"{good}A", good[::-1], swapped, "", "c_", "游标", "null"]
    others: list[dict[str, Any]] = [{"user_id": "other"}, {"filters": '{"day": 1}'}]
    others += [{"kinds": "message"}, {"agent_id": "default"}, {"as_of": "2026-02-01T00:00:00Z"}]
    tries = [{**asked, "cursor": it} for it in bent]
    tries += [{**asked, "cursor": good, **other} for other in others]
    answers = [client.get(MEMORIES, params=it) for it in tries]
    answers += [client.get("/v1/sessions", params={"user_id": many, "cursor": good})]
    for answer in answers:
        assert refusal(answer) == INVALID
        assert answer.json()["error"]["details"]["field"] == "cursor"


def test_an_erasure_goes_as_far_as_it_says(client: httpx.Client) -> None:
    """By filter only notes, by kind that kind, by session that session; others keep theirs."""
    for user in ("gone", "stays"):
        for n in range(4):
            note_of(client, user, f"第 {n} 条 note", session_id=f"s{n % 2}", metadata={"n": n})

    def erase(**asked: Any) -> int:
        return int(client.delete(MEMORIES, params={"user_id": "gone", **asked}).json()["deleted"])

    nothing = client.delete(MEMORIES, params={"user_id": "gone", "filters": "{}"})
    assert refusal(nothing) == INVALID and "must hold a condition" in nothing.text
    assert erase(filters='{"n": 0}') == 1
    assert len(read(client, "gone")["items"]) == 4
    assert erase(kinds="message", session_id="s1") == 2
    assert len(notes(client, user_id="gone")) == 3
    assert erase() == 5
    assert erase() == 0
    assert notes(client, user_id="gone", kinds=["message", "user_info"]) == {}
    assert len(notes(client, user_id="stays", kinds=["message", "user_info"])) == 8
    assert refusal(client.delete(MEMORIES)) == INVALID


def test_forgetting_names_what_went_and_why(tmp_path: Path) -> None:
    """A server that keeps one note of each user; of the others an id and a reason are left."""
    with local_server(tmp_path, forget_limit=1) as server, server.client() as client:
        texts = {
            note_of(client, "u", words) for words in ("我喜欢茶", "I like tea", "天气 weather")
        }
        gone = client.post(f"{MEMORIES}/forget", json={"user_id": "u"}).json()["forgotten"]
        assert gone.keys() < texts and len(gone) == 2 and all(gone.values())
        lines = client.get(f"{MEMORIES}/forgotten", params={"user_id": "u"}).json()["items"]
        assert {line["memory_id"] for line in lines} == gone.keys()
        assert {line["memory_id"]: line["reason"] for line in lines} == gone
        assert "tea" not in str(lines) and "茶" not in str(lines)
        assert notes(client, user_id="u").keys() == texts - gone.keys()
