"""What clients do wrong, by accident or on purpose: refused in one form, and nothing breaks."""

import base64
import http.client
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from kemem.backends.local import LocalEmbedder
from kemem.memory import AsyncMemory
from kemem.serve.http import create_app
from tests.server import (
    INVALID,
    MISSING,
    Server,
    ids,
    post,
    read,
    refusal,
    running_server,
    said,
    search,
)

TOO_LARGE = (413, "RESOURCE_EXHAUSTED")
LEXICAL = "/v1/messages/lexical_search"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("faults") / "data") as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture(scope="module")
def crowded(client: httpx.Client) -> str:
    """A user with 150 messages, 40 at each time, all about one thing in both languages."""
    batch = [
        said("火锅 hotpot", f"m{n:03}", f"2026-01-01T00:00:0{n // 40}Z", session_id=f"s{n % 40}")
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


def sample(client: httpx.Client, name: str) -> float:
    """One number of the server's metrics."""
    lines = client.get("/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


# Pages and cursors


def test_pages_of_any_size_hold_every_message_once(client: httpx.Client, crowded: str) -> None:
    """Newest first, equal times by id, whatever the page size."""
    expected = [f"m{n:03}" for second in (3, 2, 1, 0) for n in range(150) if n // 40 == second]
    for size in (1, 2, 7, 39, 40, 41, 80, 149, 150, 151, 10**9, 10**40):
        assert walk(client, crowded, page_size=size) == expected


@pytest.mark.parametrize("words", ["茶", "tea"])
def test_pages_stay_whole_while_messages_arrive(client: httpx.Client, words: str) -> None:
    """Newer, equal and older ones come in between: nothing is shown twice or skipped."""
    user = f"moving_{len(words)}"
    times = [f"2026-01-01T00:00:{second:02}Z" for second in (10, 10, 20, 20, 30, 30)]
    before = [f"m{n}" for n in range(6)]
    post(client, user, *[said(words, m, ts, session_id=m) for m, ts in zip(before, times)])
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
        *("' OR 1=1 --", "c_'; DROP TABLE message; --", "游标", "c_游标", "\0", "c_\ud83d\ude00"),
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


# Numbers, times and fields


def ts(second: int) -> str:
    return f"2026-01-01T00:00:{second:02}Z"


@pytest.mark.parametrize("bad", ["0", "-1", "1.5", "abc", "NaN", "", "1e3", "٣", "9" * 5000])
def test_sizes_in_a_query_string_are_whole_numbers(client: httpx.Client, bad: str) -> None:
    """Of pages from 1, of neighbourhoods from 0."""
    path = "/v1/users/u/messages"
    answers = [client.get(path, params={"page_size": bad})]
    if bad != "0":
        answers += [
            client.get(f"{path}/m/neighbors", params={name: bad}) for name in ("before", "after")
        ]
    for answer in answers:
        if bad == "٣":  # a digit three is a three in every script
            assert answer.status_code in (200, 400, 404)
        else:
            assert refusal(answer) == INVALID


@pytest.mark.parametrize("bad", ["1001", "1" + "0" * 30, "1e30", "x", "-1"])
def test_a_neighborhood_has_limits(client: httpx.Client, bad: str) -> None:
    """More than 1000 on a side is refused."""
    post(client, "hood", said("邻居 neighbour", "m"))
    path = "/v1/users/hood/messages/m/neighbors"
    for side in ("before", "after"):
        assert refusal(client.get(path, params={side: bad})) == INVALID
    assert ids(client.get(path, params={"before": 0, "after": 1000}).json()) == ["m"]


@pytest.mark.parametrize("kind", ["lexical", "semantic", "hybrid"])
@pytest.mark.parametrize("bad", [0, -1, 1.5, "x", True, [], {}, 1e400])
def test_sizes_in_a_body_are_whole_numbers(client: httpx.Client, kind: str, bad: Any) -> None:
    """page_size, top_k and limit alike; a huge one means "as many as you can"."""
    size = {"lexical": "page_size", "semantic": "top_k", "hybrid": "limit"}[kind]
    body = {"user_id": "u", "query_text": "辣 spicy", size: bad}
    raw = json.dumps(body).replace("Infinity", "1e400")
    answer = client.post(f"/v1/messages/{kind}_search", content=raw, headers=JSON)
    assert refusal(answer) == INVALID
    if kind != "semantic":
        assert search(client, kind, "u", query_text="辣", **{size: 10**9})["items"] == []


@pytest.mark.parametrize(
    "bad",
    ["2026", "2026-01-01", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z", "2026-01-01T00:00:00"]
    + ["2026-01-01T24:00:01Z", "yesterday", "昨天", "", "1769424420", "2026-01-01T00:00:00+99:00"],
)
def test_times_that_are_none_are_refused(client: httpx.Client, bad: str) -> None:
    """In the query string, in a filter and in a message; the field is named."""
    for field in ("since", "until"):
        answers = [
            client.get("/v1/users/u/messages", params={field: bad}),
            client.post(
                LEXICAL,
                json={"user_id": "u", "query_text": "x", "filter": {"time_range": {field: bad}}},
            ),
        ]
        for answer in answers:
            assert refusal(answer) == INVALID
            assert field in answer.json()["error"]["message"]
    body = {"messages": [said("x", "m", bad)]}
    assert refusal(client.post("/v1/users/u/messages", json=body)) == INVALID


def test_times_are_compared_as_instants(client: httpx.Client) -> None:
    """The same moment in another zone is the same filter; an empty window is no mistake."""
    post(client, "zones", said("早 early", "a", ts(0)), said("晚 late", "b", ts(1)))
    assert ids(read(client, "zones", since="2026-01-01T08:00:01+08:00")) == ["b"]
    assert ids(read(client, "zones", until="2025-12-31T19:00:01-05:00")) == ["a"]
    assert ids(read(client, "zones", since=ts(1), until=ts(1))) == []
    answer = client.get("/v1/users/zones/messages", params={"since": ts(2), "until": ts(1)})
    assert refusal(answer) == INVALID


def test_odd_times_are_stored_and_ordered(client: httpx.Client) -> None:
    """Far away, to the microsecond, in a leap second, and not in the order they are told."""
    given = {
        "future": ("9999-12-31T23:59:58Z", "9999-12-31T23:59:58Z"),
        "past": ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        "leap": ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00Z"),
        "micro": ("2016-12-31T23:59:59.123456Z", "2016-12-31T23:59:59.123456Z"),
        "nano": ("2016-12-31T23:59:59.1234569Z", "2016-12-31T23:59:59.123456Z"),
        "zone": ("2017-01-01T08:00:01+08:00", "2017-01-01T00:00:01Z"),
    }
    for name, (time, _) in given.items():
        post(client, "odd", said("时间 time", name, time, session_id=name))
    items = read(client, "odd")["items"]
    assert {it["message_id"]: it["ts"] for it in items} == {k: v[1] for k, v in given.items()}
    assert ids({"items": items}) == ["future", "zone", "leap", "micro", "nano", "past"]


@pytest.mark.parametrize(
    "edge",
    ["9999-12-31T23:59:60Z", "9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00"]
    + ["9999-12-31T23:59:59.999999Z", "0000-01-01T00:00:00Z"],
)
def test_a_time_at_the_edge_of_the_calendar_breaks_nothing(client: httpx.Client, edge: str) -> None:
    """Stored or refused: either way the user's messages can still be read."""
    user = f"edge_{edge}"
    batch = [said("边 edge", "m1", edge), said("边 edge", "m2", edge)]
    answer = client.post(f"/v1/users/{user}/messages", json={"messages": batch})
    assert answer.status_code == 200 or refusal(answer) == INVALID
    assert len(read(client, user)["items"]) == (2 if answer.status_code == 200 else 0)


# Queries

HOSTILE = [
    *('"', "'", '""', '"""', "(", ")", "()", "((", "))", "*", "**", "^", ":", "-", "--", "+", "\\"),
    *("AND", "OR", "NOT", "NEAR", "AND AND", "a AND", "OR b", "NOT NOT a", "a NOT", "NOT", "a OR"),
    *("content:辣", "message_fts MATCH 'a'", "NEAR(a b)", "a NEAR/3 b", '"a" * "b"', "a* b*", "^a"),
    *("'; DROP TABLE message; --", "' OR '1'='1", "\0", "a\0b", "{a}", "a:b:c", "%", "_", "%%"),
    *("辣" * 5000, "(" * 3000, "a " * 5000, '"' * 999, "😀", "\u202e辣", "ﬀ", "İ", "\ud7ff"),
    *(
        "a AND (b OR (c",
        "-辣",
        "+辣",
        "~辣",
        "辣~2",
        "辣^9",
        "[a TO b]",
        "a\\",
        "a\nb",
        "\t",
        "&|!",
    ),
]


@pytest.mark.parametrize("kind", ["lexical", "hybrid"])
def test_no_query_is_taken_for_a_program(client: httpx.Client, kind: str) -> None:
    """Whatever is typed is searched or refused, and never fails."""
    post(client, "hostile", said("辣 spicy a b c", "m"))
    for text in HOSTILE:
        body = {"user_id": "hostile", "query_text": text}
        answer = client.post(f"/v1/messages/{kind}_search", json=body)
        assert answer.status_code == 200 or refusal(answer) == INVALID, text


@pytest.mark.parametrize(
    ("words", "asked"),
    [("我会C++编程", "C++"), ("mail user@x.com now", "user@x.com"), ("100%同意", "100%")]
    + [("版本 v1.2.3-rc", "v1.2.3-rc"), ("路径 /etc/hosts", "/etc/hosts"), ("it's 李's", "李's")],
)
def test_signs_in_words_are_found(client: httpx.Client, words: str, asked: str) -> None:
    """What looks like syntax is often just what was said."""
    user = f"signs_{words.encode().hex()[:20]}"
    post(client, user, said(words, "m1"), said("别的 other", "m2"))
    assert ids(search(client, "lexical", user, query_text=asked)) == ["m1"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("火锅 AND 辣", {"both"}),
        ("hotpot AND spicy", {"both"}),
        ("火锅 OR 辣", {"both", "pot", "hot"}),
        ("hotpot OR spicy", {"both", "pot", "hot"}),
        ("火锅 NOT 辣", {"pot"}),
        ("hotpot NOT spicy", {"pot"}),
        ('"辣火锅"', {"both"}),
        ('"spicy hotpot"', {"both"}),
        ("(火锅 OR 辣) NOT 麻", {"pot", "hot"}),
        ("(hotpot OR spicy) NOT numbing", {"pot", "hot"}),
        ("hotp*", {"both", "pot"}),
    ],
)
def test_phrases_and_operators_mean_what_they_say(
    client: httpx.Client, asked: str, expected: set[str]
) -> None:
    """AND, OR, NOT, ( ), phrases and prefixes, in both languages."""
    post(
        client,
        "operators",
        said("麻 辣火锅 numbing spicy hotpot", "both", ts(0)),
        said("清汤火锅 clear hotpot", "pot", ts(1)),
        said("辣椒 spicy pepper", "hot", ts(2)),
    )
    assert set(ids(search(client, "lexical", "operators", query_text=asked))) == expected


@pytest.fixture(scope="module")
def semantic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a server with an embedder; nothing is stored, so no model is loaded."""
    data_dir = tmp_path_factory.mktemp("semantic") / "data"
    with running_server(data_dir, embedder="local") as server, server.client() as client:
        yield client


WIDTH = LocalEmbedder.width


@pytest.mark.parametrize(
    "given",
    [
        '{"query_embedding": []}',
        '{"query_embedding": null}',
        '{"query_embedding": "0.1"}',
        '{"query_embedding": {"0": 1}}',
        f'{{"query_embedding": {[0] * WIDTH}}}',
        f'{{"query_embedding": {[0.5] * (WIDTH - 1)}}}',
        f'{{"query_embedding": {[0.5] * (WIDTH + 1)}}}',
        f'{{"query_embedding": [NaN{", 1" * (WIDTH - 1)}]}}',
        f'{{"query_embedding": [Infinity{", 1" * (WIDTH - 1)}]}}',
        f'{{"query_embedding": [-Infinity{", 1" * (WIDTH - 1)}]}}',
        f'{{"query_embedding": [1e999{", 1" * (WIDTH - 1)}]}}',
        f'{{"query_embedding": [1e300{", 1" * (WIDTH - 1)}]}}',
        f'{{"query_embedding": [{"9" * 400}{", 1" * (WIDTH - 1)}]}}',
        f'{{"query_embedding": ["1"{", 1" * (WIDTH - 1)}]}}',
        f'{{"query_embedding": [null{", 1" * (WIDTH - 1)}]}}',
        f'{{"query_embedding": [true{", 1" * (WIDTH - 1)}]}}',
        f'{{"query_embedding": [[1]{", 1" * (WIDTH - 1)}]}}',
        f'{{"query_embedding": {[0.5] * 100_000}}}',
        f'{{"query_embedding": {json.dumps(["x"] * 100_000)}}}',
        f'{{"query_text": "辣", "query_embedding": {[0.5] * WIDTH}}}',
        "{}",
        '{"query_text": ""}',
        '{"query_text": "辣", "min_score": "x"}',
        '{"query_text": "辣", "min_score": 1.5}',
        '{"query_text": "辣", "min_score": -0.1}',
        '{"query_text": "辣", "min_score": NaN}',
        '{"query_text": "辣", "min_score": 1e999}',
    ],
    ids=lambda given: given[:60],
)
def test_a_vector_that_cannot_be_compared_is_refused(semantic: httpx.Client, given: str) -> None:
    """Not finite, not numbers, all zero, of another width, or beside a text."""
    body = '{"user_id": "u", ' + given[1:] if given != "{}" else '{"user_id": "u"}'
    answer = semantic.post("/v1/messages/semantic_search", content=body.encode(), headers=JSON)
    assert refusal(answer) == INVALID


def test_without_an_embedder_meaning_is_not_searched(client: httpx.Client) -> None:
    """The answer says why."""
    answer = client.post("/v1/messages/semantic_search", json={"user_id": "u", "query_text": "辣"})
    assert refusal(answer) == INVALID
    assert "embedder" in answer.json()["error"]["message"]


# Another's messages


@pytest.mark.parametrize("words", ["秘密", "a secret"])
def test_a_strangers_message_looks_like_a_missing_one(client: httpx.Client, words: str) -> None:
    """The same answer to the byte before and after another user has that id."""
    name = f"secret_{len(words)}"
    path = f"/v1/users/curious/messages/{name}/neighbors"
    missing = client.get(path)
    assert refusal(missing) == MISSING
    post(client, "keeper", said(words, name))
    foreign = client.get(path)
    assert (foreign.status_code, foreign.content) == (missing.status_code, missing.content)
    for kind in ("lexical", "hybrid"):
        assert words not in str(search(client, kind, "curious", query_text=words))


# Bodies


@pytest.mark.parametrize("path", [LEXICAL, "/v1/users/u/messages"])
@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"null", b"[]", b"[1]", b'"text"', b"1", b"{}", b"NaN", b"{]", b"{'a': 1}"),
        *(b"\xff\xfe", b'{"user_id": "\xff"}', "{}".encode("utf-16"), b"\xef\xbb\xbf{}"),
        *(b"[" * 100_000, b'{"a":' * 100_000, b"[" * 900 + b"]" * 900, b"9" * 5000),
        *(b'{"user_id": "\\ud800", "query_text": "x"}', b'{"\\udfff": 1}', b'{"\xed\xa0\x80": 1}'),
        *(b'{"user_id": "u", "query_text": "x", "n": NaN}', b'{"messages": [{"role": Infinity}]}'),
        *(b'{"messages": {}}', b'{"messages": []}', b'{"messages": [null]}', b'{"messages": "x"}'),
    ],
    ids=lambda body: str(body[:30]) if isinstance(body, bytes) else None,
)
def test_a_body_that_is_no_request_is_refused(client: httpx.Client, path: str, body: bytes) -> None:
    """Not JSON, not UTF-8, not an object, nested without end, or with half characters."""
    assert refusal(client.post(path, content=body, headers=JSON)) == INVALID


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        *(("content", it) for it in (None, 1, "", " ", [], {}, "\ud800", True)),
        *(("role", it) for it in (None, 1, "", "User", "厨师", [])),
        *(("message_id", it) for it in (1, "", " a", "a\n", "x" * 65, "\0", [])),
        *(("metadata", it) for it in (1, "x", [], {"a": float("nan")}, {"a": "\0"})),
        *(("ts", it) for it in (1, 1.5, [], "now")),
        *(("content_type", it) for it in (1, "", "x" * 51)),
        *(("agent_id", it) for it in (1, "", "a\tb")),
        ("颜色", "red"),
    ],
)
def test_a_message_that_is_none_is_refused(client: httpx.Client, field: str, bad: Any) -> None:
    """Nothing of its batch is stored, and the field is named."""
    batch = [said("好 fine", "m1"), {**said("坏 bad", "m2"), field: bad}]
    raw = json.dumps({"messages": batch})
    answer = client.post("/v1/users/strict/messages", content=raw, headers=JSON)
    assert refusal(answer) == INVALID
    assert read(client, "strict")["items"] == []


def test_deep_metadata_is_refused(client: httpx.Client) -> None:
    """A depth that JSON readers bear is still no use as metadata."""
    deep = '{"messages": [{"role": "user", "content": "深 deep", "metadata": {"a": %s}}]}'
    for depth in (40, 400, 900):
        body = deep % ("[" * depth + "]" * depth)
        answer = client.post("/v1/users/deep/messages", content=body.encode(), headers=JSON)
        assert refusal(answer) == INVALID


def test_many_messages_are_refused_at_once(client: httpx.Client) -> None:
    """More than a batch may hold is too large, not wrong."""
    batch = [{"role": "user", "content": "x"}] * 5001
    answer = client.post("/v1/users/many/messages", json={"messages": batch})
    assert refusal(answer) == TOO_LARGE


def test_a_body_that_is_too_large_is_refused(client: httpx.Client) -> None:
    """Ten times the limit, declared or not; one byte less than the limit is read."""
    limit = 1_048_576
    body = b'{"user_id": "u", "query_text": "x", "x": "%s"}'
    fitting = body % (b"a" * (limit - len(body) + 2))
    assert len(fitting) == limit
    assert refusal(client.post(LEXICAL, content=fitting, headers=JSON)) == INVALID
    assert refusal(client.post(LEXICAL, content=fitting + b" ", headers=JSON)) == TOO_LARGE
    assert refusal(client.post(LEXICAL, content=b"x" * 10 * limit, headers=JSON)) == TOO_LARGE
    chunks = iter([b"x" * 65_536] * 100)
    assert refusal(client.post(LEXICAL, content=chunks, headers=JSON)) == TOO_LARGE


def test_a_body_without_end_is_cut_and_costs_no_memory(client: httpx.Client) -> None:
    """The server answers or hangs up, and does not grow."""
    before = sample(client, "process_resident_memory_bytes")
    chunk = b"x" * 262_144
    for _ in range(2):
        try:
            endless = (chunk for _ in range(1024))
            assert refusal(client.post(LEXICAL, content=endless, headers=JSON)) == TOO_LARGE
        except httpx.TransportError:
            pass
    assert client.get("/healthz").status_code == 200
    assert sample(client, "process_resident_memory_bytes") - before < 48 << 20


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


def test_many_clients_at_once_store_one_row(server: Server, client: httpx.Client) -> None:
    """32 posts of one id: one is stored, the others are told that it is there."""
    message = said("同时 at once", "race")
    with server.client() as shared, ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda _: post(shared, "race", message), range(32)))
    assert sorted(len(answer["inserted"]) for answer in answers) == [0] * 31 + [1]
    assert sum(answer["ignored"] == ["race"] for answer in answers) == 31
    assert ids(read(client, "race")) == ["race"]


@pytest.mark.parametrize("words", ["我搬到北京了", "I moved to Berlin"])
def test_a_retry_after_a_crash_stores_one_row(tmp_path: Path, words: str) -> None:
    """The server dies after the write and before the client has read its answer."""
    body = json.dumps({"messages": [said(words, "m1")]}).encode()
    head = f"POST /v1/users/u/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
    with running_server(tmp_path / "data") as server, server.client() as watcher:
        with socket.create_connection(("127.0.0.1", server.port)) as lost:
            lost.sendall(head.encode() + b"\r\nContent-Type: application/json\r\n\r\n" + body)
            while not read(watcher, "u")["items"]:
                pass
            server.process.kill()
            server.process.wait()
    with running_server(tmp_path / "data") as server, server.client() as client:
        assert post(client, "u", said(words, "m1"))["ignored"] == ["m1"]
        assert ids(read(client, "u")) == ["m1"]
        assert ids(search(client, "lexical", "u", query_text=words)) == ["m1"]


# Paths and methods


def ask(server: Server, method: str, target: str) -> tuple[int, bytes, list[tuple[str, str]]]:
    """A request whose target goes out exactly as it is written here."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    try:
        connection.putrequest(method, target, skip_accept_encoding=True)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.getheaders()
    finally:
        connection.close()


@pytest.mark.parametrize(
    "user",
    ["%2e%2e", "..", ".", "%00", "%ff", "%c3%28", "%ed%a0%80", "%0d%0aX-Evil:%201", "%0a", "%20a"]
    + ["x" * 5000, "%F0%9F%98%80" * 65, "%2F..%2F", "a%2Fb", "%E2%80%A8", "%85", "%7f"],
)
def test_strange_user_ids_are_refused(server: Server, user: str) -> None:
    """No way up, no control characters, no broken text, and no header of the caller's making."""
    status, body, headers = ask(server, "GET", f"/v1/users/{user}/messages")
    assert status in (400, 404)
    assert json.loads(body)["error"]["code"] in ("INVALID_ARGUMENT", "NOT_FOUND")
    assert not [name for name, _ in headers if "evil" in name.lower()]


@pytest.mark.parametrize("user", ["用户", "a b", "a+b", "ü%", "😀", "a&b=c#d", "Ω'\"<>"])
def test_user_ids_of_any_script_are_served(client: httpx.Client, user: str) -> None:
    """Percent-encoded in the path, as they are in the body."""
    path = "".join(f"%{byte:02X}" for byte in user.encode())
    post(client, path, said("辣 spicy", "m1"))
    (item,) = search(client, "lexical", user, query_text="辣")["items"]
    assert item["user_id"] == user


@pytest.mark.parametrize(
    "target",
    ["/", "//", "//etc/passwd", "/static/../../etc/passwd", "/..%2f..%2fetc/passwd", "/v1", "/v2"]
    + ["/v1/users/u/messages/", "/v1//users/u/messages", "/%2e%2e/etc/passwd", "/redoc", "/docs/"]
    + ["/v1/users/u", "/v1/messages", "/openapi.yaml", "/favicon.ico", "/\\..\\etc", "/%00"],
)
def test_what_is_not_there_is_not_found(server: Server, target: str) -> None:
    """No file, no redirect, no hint."""
    status, body, headers = ask(server, "GET", target)
    assert status == 404
    assert json.loads(body)["error"]["code"] == "NOT_FOUND"
    assert "location" not in dict(headers)
    assert b"root:" not in body


@pytest.mark.parametrize(
    ("method", "target", "allowed"),
    [
        ("PUT", "/v1/users/u/messages", "GET, POST"),
        ("DELETE", "/v1/users/u/messages", "GET, POST"),
        ("TRACE", "/v1/users/u/messages", "GET, POST"),
        ("OPTIONS", "/v1/users/u/messages", "GET, POST"),
        ("GET", LEXICAL, "POST"),
        ("TRACE", LEXICAL, "POST"),
        ("POST", "/v1/users/u/messages/m/neighbors", "GET"),
        ("POST", "/metrics", "GET"),
        ("BREW", "/docs", "GET"),
    ],
)
def test_a_wrong_method_is_told_the_right_ones(
    server: Server, method: str, target: str, allowed: str
) -> None:
    """And nothing of the request is echoed."""
    status, body, headers = ask(server, method, target)
    assert status == 405
    assert json.loads(body)["error"]["code"] == "METHOD_NOT_ALLOWED"
    assert {name.lower(): value for name, value in headers}["allow"] == allowed


# Connections


def test_clients_that_hang_up_leave_nothing_behind(server: Server, client: httpx.Client) -> None:
    """In the middle of a request or of an answer, 60 times: no descriptor stays open."""
    post(client, "large", *[said("长" * 2000, f"m{n}", ts(n), session_id="s") for n in range(40)])
    read(client, "large")
    before = sample(client, "process_open_fds")
    whole = b"GET /v1/users/large/messages HTTP/1.1\r\nHost: localhost\r\n\r\n"
    half = b"POST /v1/messages/lexical_search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n"
    half += b"Content-Type: application/json\r\n\r\n{"
    for number in range(60):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall((whole, half, whole[:20])[number % 3])
            if number % 6 == 0:  # the others do not even wait for the first byte
                connection.recv(100)
    assert len(read(client, "large")["items"]) == 40
    assert sample(client, "process_open_fds") <= before + 3
    assert "Traceback" not in server.log.read_text("utf-8")


# Faults of our own


class BrokenMemory(AsyncMemory):
    """A memory with a fault in it."""

    async def messages(self, *given: Any, **named: Any) -> Any:
        raise RuntimeError("INSERT 绝密 secret INTO /var/lib/kemem")


async def test_a_fault_of_ours_is_logged_and_not_explained(tmp_path: Path) -> None:
    """The caller gets INTERNAL, the log the kind and place of the fault, nobody the text."""
    transport = httpx.ASGITransport(create_app(BrokenMemory(data_dir=tmp_path)))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        with structlog.testing.capture_logs() as log:
            answer = await client.get("/v1/users/u/messages")
    assert refusal(answer) == (500, "INTERNAL")
    assert answer.headers["cache-control"] == "no-store"
    assert log[0]["kind"] == "RuntimeError"
    assert "test_http_faults.py" in log[0]["at"][-1]
    for text in (answer.text, str(log)):
        assert not any(word in text for word in ("绝密", "secret", "/var/lib"))
