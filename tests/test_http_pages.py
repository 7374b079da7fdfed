"""Pages lose nothing and repeat nothing, cursors are bound to their query, ids are stored once."""

import base64
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server import (
    INVALID,
    LocalServer,
    ids,
    local_server,
    post,
    read,
    refusal,
    running_server,
    said,
    search,
    wait_for,
)

LEXICAL = "/v1/messages/lexical_search"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """An app by words only."""
    with local_server(tmp_path_factory.mktemp("data")) as running:
        yield running


def ts(second: int) -> str:
    return f"2026-01-01T00:00:{second:02}Z"


@pytest.fixture(scope="module")
def crowded(client: httpx.Client) -> str:
    """A user with 150 messages, 40 at each time, all about one thing in both languages.

    The order of their ids is not that of their arrival.
    """
    batch = [
        said("火锅 hotpot", f"m{n * 77 % 150:03}", f"2026-01-01T00:00:0{n // 40}Z")
        for n in range(150)
    ]
    post(client, "crowded", *batch)
    return "crowded"


def walk(client: httpx.Client, user_id: str, **asked: Any) -> list[str]:
    """The ids of all pages of a range read."""
    page = read(client, user_id, **asked)
    found = ids(page)
    while "next_cursor" in page:
        page = read(client, user_id, **asked, cursor=page["next_cursor"])
        found += ids(page)
    return found


# Pages and cursors


def test_pages_of_any_size_hold_every_message_once(client: httpx.Client, crowded: str) -> None:
    """Newest first, of equal times the last that arrived, whatever the page size."""
    expected = [f"m{n * 77 % 150:03}" for n in reversed(range(150))]
    for size in (1, 2, 7, 39, 40, 41, 80, 149, 150, 151, 1000):
        assert walk(client, crowded, page_size=size) == expected


@pytest.mark.parametrize("words", ["茶", "tea"])
def test_pages_stay_whole_while_messages_arrive(client: httpx.Client, words: str) -> None:
    """Newer, equal and older ones come in between: nothing is shown twice or skipped."""
    user = f"moving_{len(words)}"
    times = [f"2026-01-01T00:00:{second:02}Z" for second in (10, 10, 20, 20, 30, 30)]
    before = [f"m{n}" for n in range(6)]
    post(
        client,
        user,
        *[said(words, m, ts, session_id=m) for m, ts in zip(before, times, strict=True)],
    )
    for pages in (_range_pages(client, user), _ranking_pages(client, user, words)):
        found = []
        for number, page in enumerate(pages):
            found += page
            for ts in ("2026-01-01T00:00:20Z", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"):
                fresh = f"x{number}_{ts[5:7]}{ts[17:19]}_{len(found)}_{id(pages)}"
                post(client, user, said(words, fresh, ts, session_id=fresh))
        assert len(found) == len(set(found))
        assert set(before) <= set(found)


def _range_pages(client: httpx.Client, user: str) -> Iterator[list[str]]:
    page = read(client, user, page_size=2)
    yield ids(page)
    while "next_cursor" in page and len(ids(page)) == 2:
        page = read(client, user, page_size=2, cursor=page["next_cursor"])
        yield [name for name in ids(page) if not name.startswith("x")]


def _ranking_pages(client: httpx.Client, user: str, words: str) -> Iterator[list[str]]:
    page = search(client, "lexical", user, query_text=words, page_size=4)
    yield ids(page)
    while "next_cursor" in page:
        cursor = page["next_cursor"]
        page = search(client, "lexical", user, query_text=words, page_size=4, cursor=cursor)
        yield ids(page)


def bad_cursors(good: str) -> list[str]:
    middle = len(good) // 2
    flipped = good[:middle] + ("A" if good[middle] != "A" else "B") + good[middle + 1 :]
    empty = base64.urlsafe_b64encode(b"{}").decode()
    return [
        *(flipped, good[:-4], good[:-1], good[::-1], good + "A", good + "=", good * 2, f" {good}"),
        *(good.removeprefix("c_"), "c_", "", "0", "null", "c_" + "A" * 9_000, empty, f"c_{empty}"),
        *("' OR 1=1 --", "c_'; DROP TABLE message; --", "游标", "c_游标", "\0", "c_😀"),
    ]


def test_a_cursor_that_is_not_ours_is_refused(client: httpx.Client, crowded: str) -> None:
    """Bent, cut, made up or long: refused with the reason, in both queries that take one."""
    good = read(client, crowded, page_size=1)["next_cursor"]
    for bad in bad_cursors(good):
        answer = client.get(f"/v1/users/{crowded}/messages", params={"cursor": bad})
        assert refusal(answer) == INVALID
        assert answer.json()["error"]["details"]["field"] == "cursor"
    asked = {"user_id": crowded, "query_text": "火锅 hotpot", "page_size": 1}
    good = client.post(LEXICAL, json=asked).json()["next_cursor"]
    for bad in bad_cursors(good):
        assert refusal(client.post(LEXICAL, json={**asked, "cursor": bad})) == INVALID


def test_a_cursor_continues_only_its_own_query(client: httpx.Client, crowded: str) -> None:
    """Another user, filter, query or kind of query: never somebody else's rows."""
    post(client, "curious", said("火锅 hotpot", "mine"), said("火锅 hotpot", "mine2"))
    cursor = read(client, crowded, page_size=1)["next_cursor"]
    for user, other in [("curious", {}), (crowded, {"role": "user"}), (crowded, {"since": ts(1)})]:
        params = {"cursor": cursor, **other}
        assert refusal(client.get(f"/v1/users/{user}/messages", params=params)) == INVALID
    asked = {"user_id": crowded, "query_text": "火锅", "page_size": 1}
    ranked = client.post(LEXICAL, json=asked).json()["next_cursor"]
    for other in [
        {"user_id": "curious", "cursor": ranked},
        {"query_text": "hotpot", "cursor": ranked},
        {"filter": {"role": "user"}, "cursor": ranked},
        {"cursor": cursor},
    ]:
        assert refusal(client.post(LEXICAL, json={**asked, **other})) == INVALID


# Ids that are already there


@pytest.mark.parametrize("words", ["我不吃辣", "no spicy food"])
def test_an_id_is_stored_once(client: httpx.Client, words: str) -> None:
    """The same message again is ignored; other words under its id are a conflict."""
    user = f"twice_{len(words)}"
    first = said(words, "m1")
    assert post(client, user, first)["inserted"] == ["m1"]
    again = post(client, user, first, said(words, "m2", ts(2)))
    assert (again["inserted"], again["ignored"]) == (["m2"], ["m1"])
    batch = [said("新 new", "m3"), said(f"{words}!", "m1")]
    answer = client.post(f"/v1/users/{user}/messages", json={"messages": batch})
    assert refusal(answer) == (409, "CONFLICT")
    assert sorted(ids(read(client, user))) == ["m1", "m2"]


def test_many_clients_at_once_store_one_row(server: LocalServer, client: httpx.Client) -> None:
    """32 posts of one id: one is stored, the others are told that it is there."""
    message = said("同时 at once", "race")
    with server.client() as shared, ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda _: post(shared, "race", message), range(32)))
    assert sorted(len(answer["inserted"]) for answer in answers) == [0] * 31 + [1]
    assert sum(answer["ignored"] == ["race"] for answer in answers) == 31
    assert ids(read(client, "race")) == ["race"]


def test_a_retry_after_a_crash_stores_one_row(tmp_path: Path) -> None:
    """The server dies after the write and before the client has read its answer."""
    batch = [said("我搬到北京了", "zh"), said("I moved to Berlin", "en", ts(9))]
    body = json.dumps({"messages": batch}).encode()
    head = f"POST /v1/users/u/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
    with (
        running_server(tmp_path / "data") as server,
        server.client() as watcher,
        socket.create_connection(("127.0.0.1", server.port)) as lost,
    ):
        lost.sendall(head.encode() + b"\r\nContent-Type: application/json\r\n\r\n" + body)
        wait_for(lambda: read(watcher, "u")["items"])
        server.process.kill()
        server.process.wait()
    with running_server(tmp_path / "data") as server, server.client() as client:
        assert post(client, "u", *batch)["ignored"] == ["zh", "en"]
        assert ids(read(client, "u")) == ["zh", "en"]
        assert ids(search(client, "lexical", "u", query_text="搬到北京")) == ["zh"]
        assert ids(search(client, "lexical", "u", query_text="moved to Berlin")) == ["en"]
