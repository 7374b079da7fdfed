"""Numbers, times, queries and vectors that cannot be meant are refused; odd ones are served."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from kemem.backends.local import LocalEmbedder
from tests.cases import each
from tests.server import (
    INVALID,
    MISSING,
    check_all,
    ids,
    local_server,
    post,
    read,
    refusal,
    said,
    search,
)

LEXICAL = "/v1/messages/lexical_search"
SEMANTIC = "/v1/messages/semantic_search"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of an app with an embedder."""
    data_dir = tmp_path_factory.mktemp("values") / "data"
    with local_server(data_dir, embedder="local") as server, server.client() as client:
        yield client


def ts(second: int) -> str:
    return f"2026-01-01T00:00:{second:02}Z"


# Numbers and times


def test_sizes_in_a_query_string_are_whole_numbers(client: httpx.Client) -> None:
    """Of pages from 1, of neighbourhoods from 0."""
    path = "/v1/users/u/messages"

    def check(bad: str) -> None:
        answers = [client.get(path, params={"page_size": bad})]
        if bad != "0":
            answers += [
                client.get(f"{path}/m/neighbors", params={it: bad}) for it in ("before", "after")
            ]
        for answer in answers:
            if bad == "٣":  # a digit three is a three in every script
                assert answer.status_code in (200, 400, 404)
            else:
                assert refusal(answer) == INVALID

    check_all(check, ["0", "-1", "1001", "1.5", "abc", "NaN", "", "1e3", "٣", "9" * 5000])


def test_a_neighborhood_has_limits(client: httpx.Client) -> None:
    """More than 1000 on a side is refused."""
    post(client, "hood", said("邻居 neighbour", "m"))
    path = "/v1/users/hood/messages/m/neighbors"

    def check(side: str, bad: str) -> None:
        assert refusal(client.get(path, params={side: bad})) == INVALID

    check_all(check, ["before", "after"], ["1001", "1" + "0" * 30, "1e30", "x", "-1"])
    assert ids(client.get(path, params={"before": 0, "after": 1000}).json()) == ["m"]


def test_sizes_in_a_body_are_whole_numbers(client: httpx.Client) -> None:
    """page_size, top_k and limit alike, up to 1000."""
    sizes = {"lexical": "page_size", "semantic": "top_k", "hybrid": "limit"}

    def check(kind: str, bad: Any) -> None:
        body = {"user_id": "u", "query_text": "辣 spicy", sizes[kind]: bad}
        raw = json.dumps(body).replace("Infinity", "1e400")
        answer = client.post(f"/v1/messages/{kind}_search", content=raw, headers=JSON)
        assert refusal(answer) == INVALID

    check_all(check, sizes, [0, -1, 1001, 10**9, 1.5, "x", True, [], {}, 1e400])
    for kind, size in sizes.items():
        assert search(client, kind, "u", query_text="辣", **{size: 1000})["items"] == []


def test_requests_have_one_name_for_one_thing(client: httpx.Client) -> None:
    """query, limit and threshold are understood by every search, beside the words of its own."""
    post(client, "names", said("辣 spicy", "a"), said("辣 spicy", "b", ts(1)))
    for kind in ("lexical", "semantic", "hybrid"):
        assert set(ids(search(client, kind, "names", query="辣 spicy"))) == {"a", "b"}
    assert len(search(client, "semantic", "names", query="辣", limit=1)["items"]) == 1
    assert len(search(client, "hybrid", "names", query="辣", top_k=1)["items"]) == 1
    assert search(client, "semantic", "names", query="茶", threshold=1.0)["items"] == []
    both = {"user_id": "names", "query": "辣", "query_text": "辣"}
    answer = client.post(LEXICAL, json=both)
    assert refusal(answer) == INVALID
    assert answer.json()["error"]["details"] == {"field": "query"}


def test_times_in_another_form_are_refused(client: httpx.Client) -> None:
    """In the query string, in a filter and in a message; the field is named."""

    def check(field: str, bad: str) -> None:
        window = {"time_range": {field: bad}}
        body = {"user_id": "u", "query_text": "x", "filter": window}
        in_query = client.get("/v1/users/u/messages", params={field: bad})
        for answer in (in_query, client.post(LEXICAL, json=body)):
            assert refusal(answer) == INVALID
            assert field in answer.json()["error"]["message"]
        message = {"messages": [said("x", "m", bad)]}
        assert refusal(client.post("/v1/users/u/messages", json=message)) == INVALID

    times = [
        *(
            "2026",
            "2026-01-01",
            "2026-13-01T00:00:00Z",
            "2026-02-30T00:00:00Z",
            "yesterday",
            "昨天",
        ),
        *("2026-01-01T00:00:00", "2026-01-01T24:00:01Z", "2026-01-01T00:00:00+99:00", "", "176942"),
    ]
    check_all(check, ["since", "until"], times)


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
        "future": ("9999-12-31T23:59:58Z", "9999-12-31T23:59:58.000000Z"),
        "past": ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000000Z"),
        "leap": ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00.000000Z"),
        "micro": ("2016-12-31T23:59:59.123456Z", "2016-12-31T23:59:59.123456Z"),
        "nano": ("2016-12-31T23:59:59.1234569Z", "2016-12-31T23:59:59.123456Z"),
        "zone": ("2017-01-01T08:00:01+08:00", "2017-01-01T00:00:01.000000Z"),
    }
    for name, (time, _) in given.items():
        post(client, "odd", said("时间 time", name, time, session_id=name))
    items = read(client, "odd")["items"]
    assert {it["message_id"]: it["ts"] for it in items} == {k: v[1] for k, v in given.items()}
    assert ids({"items": items}) == ["future", "zone", "leap", "nano", "micro", "past"]


def test_a_time_at_the_edge_of_the_calendar_breaks_nothing(client: httpx.Client) -> None:
    """Stored or refused: either way the user's messages can still be read."""
    for edge in (
        *("9999-12-31T23:59:60Z", "9999-12-31T23:59:59-01:00", "9999-12-31T23:59:59.999999Z"),
        *("0001-01-01T00:00:00+01:00", "0000-01-01T00:00:00Z"),
    ):
        user = f"edge_{edge}"
        batch = [said("边 edge", "m1", edge), said("边 edge", "m2", edge)]
        answer = client.post(f"/v1/users/{user}/messages", json={"messages": batch})
        assert answer.status_code == 200 or refusal(answer) == INVALID, edge
        assert len(read(client, user)["items"]) == (2 if answer.status_code == 200 else 0), edge


# Queries

HOSTILE = [
    *('"', "'", '""', '"""', "(", ")", "()", "((", "))", "*", "**", "^", ":", "-", "--", "+", "\\"),
    *("AND", "OR", "NOT", "NEAR", "AND AND", "a AND", "OR b", "NOT NOT a", "a NOT", "NOT", "a OR"),
    *("content:辣", "message_fts MATCH 'a'", "NEAR(a b)", "a NEAR/3 b", '"a" * "b"', "a* b*", "^a"),
    *("'; DROP TABLE message; --", "' OR '1'='1", "\0", "a\0b", "{a}", "a:b:c", "%", "_", "%%"),
    *('"' * 99, "(" * 99, "😀", "\u202e辣", "ﬀ", "İ", "\ud7ff"),
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


LONG = ["辣" * 5000, "(" * 3000, "a " * 5000, "辣 AND " * 400, "辣" * 20_000]  # slow to embed


@pytest.mark.parametrize("kind", ["lexical", "semantic", "hybrid"])
def test_no_query_is_taken_for_a_program(client: httpx.Client, kind: str) -> None:
    """Whatever is typed is searched or refused, and never fails."""
    post(client, "hostile", said("辣 spicy a b c", "m"))
    for text in HOSTILE + (LONG if kind == "lexical" else []):
        body = {"user_id": "hostile", "query_text": text}
        answer = client.post(f"/v1/messages/{kind}_search", json=body)
        assert answer.status_code == 200 or refusal(answer) == INVALID, text[:80]


@each(
    ("words", "asked"),
    [
        ("我会C++编程", "C++"),
        ("mail user@x.com now", "user@x.com"),
        ("100%同意", "100%"),
        ("版本 v1.2.3-rc", "v1.2.3-rc"),
        ("see /etc/hosts", "/etc/hosts"),
    ],
)
def test_signs_in_words_are_found(client: httpx.Client, words: str, asked: str) -> None:
    """What looks like syntax is often just what was said."""
    user = f"signs_{words.encode().hex()[:20]}"
    post(client, user, said(words, "m1"), said("别的 other", "m2"))
    assert ids(search(client, "lexical", user, query_text=asked)) == ["m1"]


@each(
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


WIDTH = LocalEmbedder.width
REST = ", 1" * (WIDTH - 1)
HALVES = "0.5, " * WIDTH + "0.5"
UNFIT = {
    "empty": "[]",
    "null": "null",
    "a text": '"0.1"',
    "an object": '{"0": 1}',
    "zero": f"[0{REST.replace('1', '0')}]",
    "too short": f"[{REST[2:]}]",
    "too long": f"[{HALVES}]",
    "far too long": json.dumps([0.5] * 100_000),
    "far too many texts": json.dumps(["x"] * 100_000),
    **{
        f"with {odd[:9]}": f"[{odd}{REST}]"
        for odd in ("NaN", "Infinity", "-Infinity", "1e999", "1e300", "9" * 400)
    },
    **{f"with {odd}": f"[{odd}{REST}]" for odd in ('"1"', "null", "true", "[1]", "{}")},
}


def test_a_vector_that_cannot_be_compared_is_refused(client: httpx.Client) -> None:
    """Not finite, not numbers, all zero or of another width."""

    def check(kind: str) -> None:
        body = f'{{"user_id": "u", "query_embedding": {UNFIT[kind]}}}'
        assert refusal(client.post(SEMANTIC, content=body, headers=JSON)) == INVALID

    check_all(check, UNFIT)


def test_a_search_by_meaning_that_is_unclear_is_refused(client: httpx.Client) -> None:
    """A text or a vector, and a least score between 0 and 1."""

    def check(fields: str) -> None:
        body = '{"user_id": "u"' + (", " + fields[1:] if fields != "{}" else "}")
        assert refusal(client.post(SEMANTIC, content=body, headers=JSON)) == INVALID

    unclear = [
        "{}",
        f'{{"query_text": "辣", "query_embedding": [1{REST}]}}',
        '{"query_text": ""}',
        *(
            f'{{"query_text": "辣", "min_score": {it}}}'
            for it in ('"x"', 1.5, -0.1, "NaN", "1e999")
        ),
        *(f'{{"query_text": "辣", "min_score": {it}}}' for it in ("[]", "true")),
    ]
    check_all(check, unclear)


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
    for kind in ("lexical", "semantic", "hybrid"):
        assert words not in str(search(client, kind, "curious", query_text=words))


# Names of fields


SIZES = ("limit", "top_k", "page_size")
LISTS = ["/v1/users/u/messages", "/v1/memories", "/v1/sessions", "/v1/users", "/v1/agents"]
LISTS += ["/v1/graph", "/v1/jobs", "/v1/memories/forgotten", "/v1/memories/n_1/history"]


def test_a_size_has_the_same_names_everywhere(client: httpx.Client) -> None:
    """`limit`, `top_k`, and where there is a cursor `page_size`; of two names one is refused."""
    described = client.get("/openapi.json").json()["paths"]

    def check(path: str) -> None:
        template = path.replace("/u/", "/{user_id}/").replace("n_1", "{memory_id}")
        names = {it["name"] for it in described[template]["get"]["parameters"]}
        owner = {"user_id": "u"} if "user_id" in names and "{user_id}" not in template else {}
        for size in SIZES if "cursor" in names else SIZES[:2]:
            answer = client.get(path, params={**owner, size: "0"})
            assert refusal(answer) == INVALID and "must be 1-1000, not 0" in answer.text, size

    check_all(check, LISTS)
    for mode, sizes in (("lexical", SIZES), ("semantic", SIZES[:2]), ("hybrid", SIZES[:2])):
        body: dict[str, Any] = {"user_id": "u", "query": "茶 tea"}
        for size in sizes:
            answer = client.post(f"/v1/messages/{mode}_search", json={**body, size: 0})
            assert refusal(answer) == INVALID and "must be 1-1000, not 0" in answer.text
            assert client.post(f"/v1/messages/{mode}_search", json={**body, size: 3}).is_success
        both = {**body, "limit": 3, "top_k": 4}
        assert refusal(client.post(f"/v1/messages/{mode}_search", json=both)) == INVALID


@each(
    ("path", "body", "field", "reason"),
    [
        (
            "/v1/users/u/messages",
            {"messages": [{"role": 1, "content": "茶"}]},
            "messages[0].role",
            "must be one of user, assistant, system, tool, not 1",
        ),
        (
            "/v1/memories",
            {"user_id": "u", "messages": [{"role": 1, "content": "茶"}]},
            "messages[0].role",
            "must",
        ),
        ("/v1/chat/completions", {"messages": []}, "messages", "must have at least 1 item, not []"),
        (LEXICAL, {"user_id": "u", "query": "茶", "limit": "a"}, "limit", "must be an integer"),
        (
            LEXICAL,
            {"user_id": "u", "query": "茶", "return_fields": ["a"]},
            "return_fields[0]",
            "must be one of message_id",
        ),
    ],
)
def test_an_error_names_a_field_as_python_does(
    client: httpx.Client, path: str, body: dict[str, Any], field: str, reason: str
) -> None:
    """And says in plain words what it must be."""
    error = client.post(path, json=body).json()["error"]
    assert error["details"]["field"] == field
    assert error["message"].startswith(f"{field} {reason}")
