"""The Query API over chat messages, demand by demand, each in Chinese and English."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import jwt
import pytest

from kemem.backends.local import LocalEmbedder
from tests.cases import each
from tests.server import INVALID, MISSING, ids, local_server, post, read, refusal, said, search

KEY = "operator"
SECRET = "the application signs with these 32 bytes"

# One talk in two languages, side by side: minute, role, words.
TALK = {
    "zh": [
        (0, "system", "你是一个美食助手"),
        (1, "user", "我不吃辣"),
        (2, "assistant", "好的，记住了，我会避开辣的菜"),
        (3, "user", "周末想去吃火锅，有不吃辣的锅底吗"),
        (4, "assistant", "番茄锅和菌汤锅都很适合"),
        (5, "user", "下个月我要搬到北京工作"),
    ],
    "en": [
        (0, "system", "You are a food assistant"),
        (1, "user", "I do not eat spicy food"),
        (2, "assistant", "Noted, I will avoid spicy dishes"),
        (3, "user", "Is there a hotpot soup for those who do not eat spicy things"),
        (4, "assistant", "Tomato and mushroom broth both suit you"),
        (5, "user", "Next month I am moving to Berlin for work"),
    ],
}
BOTH = pytest.mark.parametrize("language", ["zh", "en"])
FIVE = {"message_id", "ts", "user_id", "role", "content"}


def at(minute: int) -> str:
    return f"2026-01-26T10:{minute:02}:00Z"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server with the local embedder that holds both talks, one user each."""
    data_dir = tmp_path_factory.mktemp("seed") / "data"
    settings = {"embedder": "local", "api_key": KEY, "jwt_secret": SECRET}
    with local_server(data_dir, **settings) as server, server.client(KEY) as client:
        for language, talk in TALK.items():
            messages = [said(words, f"m{i}", at(i), role=role) for i, role, words in talk]
            assert post(client, language, *messages)["pending"] is False
        yield client


@pytest.mark.parametrize("words", ["我不吃辣", "I do not eat spicy food"])
def test_a_message_has_the_five_fields_of_the_example(client: httpx.Client, words: str) -> None:
    """message_id, ts, user_id, role and content come back as they went in."""
    user = f"u_12345_{len(words)}"
    post(client, user, said(words, "m_01HTZ2K8J9Q1ZQ4QYQ8M9J7P6A", "2026-01-26T10:47:00Z"))
    (item,) = read(client, user)["items"]
    assert {name: item[name] for name in FIVE} == {
        "message_id": "m_01HTZ2K8J9Q1ZQ4QYQ8M9J7P6A",
        "ts": "2026-01-26T10:47:00.000000Z",
        "user_id": user,
        "role": "user",
        "content": words,
    }


@BOTH
@each("role", ["user", "assistant", "system"])
def test_the_three_roles_are_known(client: httpx.Client, language: str, role: str) -> None:
    """user, assistant and system can be stored and asked for."""
    found = read(client, language, role=role)["items"]
    assert [item["content"] for item in found] == [
        words for _, said_by, words in reversed(TALK[language]) if said_by == role
    ]


@BOTH
def test_one_user_is_one_series_in_time(client: httpx.Client, language: str) -> None:
    """A user_id names one series of messages, and nobody else's are in it."""
    found = read(client, language)["items"]
    assert {item["user_id"] for item in found} == {language}
    assert [item["content"] for item in reversed(found)] == [it[2] for it in TALK[language]]


@BOTH
def test_pages_hold_at_most_page_size_and_lead_on(client: httpx.Client, language: str) -> None:
    """next_cursor leads through everything once and is absent on the last page."""
    pages: list[Any] = [read(client, language, page_size=4)]
    pages.append(read(client, language, page_size=4, cursor=pages[0]["next_cursor"]))
    assert [ids(page) for page in pages] == [["m5", "m4", "m3", "m2"], ["m1", "m0"]]
    assert isinstance(pages[0]["next_cursor"], str)
    assert "next_cursor" not in pages[1]


@BOTH
def test_a_cursor_is_opaque(client: httpx.Client, language: str) -> None:
    """It tells nothing that a client could come to depend on: no id stands in it."""
    cursor = read(client, language, page_size=1)["next_cursor"]
    assert re.fullmatch(r"[A-Za-z0-9_=-]+", cursor)
    assert not re.search(r"(?<![A-Za-z0-9])m5(?![A-Za-z0-9])", cursor)  # letters may meet by chance


@BOTH
def test_since_is_inclusive_and_until_is_not(client: httpx.Client, language: str) -> None:
    """The same window in every query that takes a filter."""
    window = {"since": at(1), "until": at(3)}
    assert ids(read(client, language, **window)) == ["m2", "m1"]
    for kind in ("lexical", "semantic"):
        asked: dict[str, Any] = {"query_text": "辣 spicy", "filter": {"time_range": window}}
        assert set(ids(search(client, kind, language, **asked))) == {"m1", "m2"}


@BOTH
def test_a_role_limits_every_query(client: httpx.Client, language: str) -> None:
    """What another role said is not found."""
    assert ids(read(client, language, role="assistant")) == ["m4", "m2"]
    for kind in ("lexical", "semantic"):
        asked: dict[str, Any] = {"query_text": "辣 spicy", "filter": {"role": "assistant"}}
        found = search(client, kind, language, **asked)["items"]
        assert found and {item["role"] for item in found} == {"assistant"}


@BOTH
def test_a_range_read_takes_all_its_parameters(client: httpx.Client, language: str) -> None:
    """since, until, role, page_size and cursor together."""
    asked: dict[str, Any] = {"since": at(0), "until": at(5), "role": "user", "page_size": 1}
    first = read(client, language, **asked)
    second = read(client, language, **asked, cursor=first["next_cursor"])
    assert ids(first) + ids(second) == ["m3", "m1"]


@pytest.mark.parametrize("words", ["同时", "at once"])
def test_a_range_read_goes_by_time_down_and_then_by_arrival(
    client: httpx.Client, words: str
) -> None:
    """Times are kept as given. The seed breaks ties by message_id, we by arrival: it is as stable
    and unique, and tells which of two messages of one time came first. Every page size gives the
    same order, also when the message under a cursor is deleted before the next page.
    """
    user = f"ties_{len(words)}"
    tied = [said(words, name, at(1)) for name in ("c", "a", "d")]
    post(client, user, said(words, "z", at(0)), *tied, said(words, "y", at(2)))
    post(client, user, said(words, "b", at(1)), said(words, "e", at(1), session_id="another"))
    whole = ["y", "e", "b", "d", "a", "c", "z"]
    items = read(client, user)["items"]
    assert [item["message_id"] for item in items] == whole
    assert {item["ts"] for item in items[1:-1]} == {"2026-01-26T10:01:00.000000Z"}
    for size in range(1, len(whole) + 1):
        assert paged(client, user, page_size=size) == whole
    first = read(client, user, page_size=4)
    assert client.delete("/v1/memories/d", params={"user_id": user}).status_code == 200
    rest = read(client, user, cursor=first["next_cursor"])
    assert ids(first) + ids(rest) == whole


def paged(client: httpx.Client, user: str, **asked: Any) -> list[str]:
    """The ids of all pages of a range read."""
    page = read(client, user, **asked)
    found = ids(page)
    while "next_cursor" in page:
        page = read(client, user, **asked, cursor=page["next_cursor"])
        found += ids(page)
    return found


@pytest.mark.parametrize(
    ("language", "query_text"),
    [("zh", '"不吃辣" AND 火锅'), ("en", '"not eat spicy" AND hotpot')],
)
def test_a_phrase_and_a_word_are_both_wanted(
    client: httpx.Client, language: str, query_text: str
) -> None:
    """The seed's own example of a query."""
    assert ids(search(client, "lexical", language, query_text=query_text)) == ["m3"]


@pytest.mark.parametrize(("language", "phrase"), [("zh", "不吃辣"), ("en", "not eat spicy")])
def test_the_request_example_of_lexical_search(
    client: httpx.Client, language: str, phrase: str
) -> None:
    """The seed's request, word for word, but for the user."""
    body = {
        "user_id": language,
        "filter": {
            "time_range": {"since": "2026-01-01T00:00:00Z", "until": "2026-02-01T00:00:00Z"},
            "role": "user",
        },
        "query_text": f'"{phrase}"',
        "page_size": 50,
    }
    answer = client.post("/v1/messages/lexical_search", json=body)
    assert answer.status_code == 200
    assert sorted(ids(answer.json())) == ["m1", "m3"]


@BOTH
def test_return_fields_select_the_fields_of_items(client: httpx.Client, language: str) -> None:
    """The seed's list, in both searches that take it."""
    wanted = ["message_id", "ts", "role", "content"]
    asked: dict[str, Any] = {"query_text": "辣 spicy", "return_fields": wanted}
    for item in search(client, "lexical", language, **asked)["items"]:
        assert item.keys() == set(wanted)
    for item in search(client, "semantic", language, **asked)["items"]:
        assert item.keys() == {*wanted, "semantic_score"}


@pytest.mark.parametrize(
    ("language", "word", "snippet"),
    [
        ("zh", "不吃辣", "我<mark>不吃辣</mark>"),
        ("en", "spicy", "I do not eat <mark>spicy</mark> food"),
    ],
)
def test_hits_come_with_highlights_and_scores(
    client: httpx.Client, language: str, word: str, snippet: str
) -> None:
    """Every hit has its score, from high to low, and the places that match."""
    answer = search(client, "lexical", language, query_text=word)
    marked = {entry["message_id"]: entry["snippets"] for entry in answer["highlights"]}
    assert marked["m1"] == [snippet]
    assert [entry["message_id"] for entry in answer["scores"]] == ids(answer)
    scores = [entry["score"] for entry in answer["scores"]]
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score <= 1 for score in scores)


@pytest.mark.parametrize(("user", "word"), [("rank_zh", "咖啡"), ("rank_en", "coffee")])
def test_equal_relevance_goes_by_time_down_and_then_by_id(
    client: httpx.Client, user: str, word: str
) -> None:
    """The same words score the same; then the newest comes first, then the smaller id."""
    tied = [said(word, name, at(1), session_id=name) for name in ("c", "a", "b")]
    post(client, user, said(word, "z", at(0)), *tied, said(word, "y", at(2)))
    assert ids(search(client, "lexical", user, query_text=word)) == ["y", "a", "b", "c", "z"]
    near = search(client, "semantic", user, query_text=word)
    assert ids(near) == ["y", "a", "b", "c", "z"]


@pytest.mark.parametrize(
    ("user", "asked", "best"),
    [("best_zh", "北京 烤鸭", "北京烤鸭"), ("best_en", "roast duck", "roast duck")],
)
def test_the_more_relevant_comes_first(
    client: httpx.Client, user: str, asked: str, best: str
) -> None:
    """What holds all the words beats what holds one, however new that is."""
    one = asked.split()[0]
    post(client, user, said(best, "all", at(0)), said(one, "one", at(9)))
    assert ids(search(client, "lexical", user, query_text=asked)) == ["all", "one"]


@BOTH
def test_a_lexical_search_goes_on_with_its_cursor(client: httpx.Client, language: str) -> None:
    """Page by page the same hits in the same order as at once."""
    whole = ids(search(client, "lexical", language, query_text="辣 spicy"))
    first = search(client, "lexical", language, query_text="辣 spicy", page_size=2)
    rest = search(client, "lexical", language, query_text="辣 spicy", cursor=first["next_cursor"])
    assert len(whole) == 3
    assert ids(first) + ids(rest) == whole
    assert "next_cursor" not in rest


@pytest.mark.parametrize(("language", "asked"), [("zh", "不吃辣"), ("en", "cannot stand chili")])
def test_the_request_example_of_semantic_search(
    client: httpx.Client, language: str, asked: str
) -> None:
    """The seed's request, word for word, but for the user: similar meanings come first."""
    body = {
        "user_id": language,
        "filter": {"role": "user", "time_range": {"since": "2026-01-01T00:00:00Z"}},
        "query_text": asked,
        "top_k": 20,
    }
    answer = client.post("/v1/messages/semantic_search", json=body)
    assert answer.status_code == 200
    items = answer.json()["items"]
    assert {"m1", "m3"} == {item["message_id"] for item in items[:2]}
    scores = [item["semantic_score"] for item in items]
    assert scores == sorted(scores, reverse=True)


@BOTH
def test_a_vector_can_be_asked_for_instead_of_a_text(client: httpx.Client, language: str) -> None:
    """query_embedding alone is enough; with query_text, or with neither, it is refused."""
    vector = [1.0] * LocalEmbedder.width
    assert len(search(client, "semantic", language, query_embedding=vector)["items"]) == 6
    for wrong in ({}, {"query_text": "辣", "query_embedding": vector}):
        answer = client.post("/v1/messages/semantic_search", json={"user_id": language, **wrong})
        assert refusal(answer) == INVALID


@pytest.mark.parametrize(("user", "words"), [("many_zh", "第{}件事"), ("many_en", "thing {}")])
def test_top_k_is_20_unless_told(client: httpx.Client, user: str, words: str) -> None:
    """The default of the seed, and a smaller wish."""
    post(client, user, *[said(words.format(n), f"m{n}", at(n)) for n in range(25)])
    assert len(search(client, "semantic", user, query_text=words)["items"]) == 20
    assert len(search(client, "semantic", user, query_text=words, top_k=3)["items"]) == 3


@BOTH
def test_min_score_leaves_out_what_is_less_similar(client: httpx.Client, language: str) -> None:
    """Nothing below it comes back, and nothing above it is lost."""
    found = search(client, "semantic", language, query_text="辣 spicy")["items"]
    least = found[2]["semantic_score"]
    kept = search(client, "semantic", language, query_text="辣 spicy", min_score=least)["items"]
    assert kept == [item for item in found if item["semantic_score"] >= least]
    assert 3 <= len(kept) < 6


@BOTH
def test_neighbors_are_in_the_order_of_the_talk(client: httpx.Client, language: str) -> None:
    """`before` and `after` messages around the anchor, oldest first."""
    path = f"/v1/users/{language}/messages/m3/neighbors"
    assert ids(client.get(path, params={"before": 1, "after": 2}).json()) == [
        "m2",
        "m3",
        "m4",
        "m5",
    ]


@pytest.mark.parametrize(("user", "words"), [("near_zh", "第{}句"), ("near_en", "sentence {}")])
def test_neighbors_are_20_before_and_none_after_unless_told(
    client: httpx.Client, user: str, words: str
) -> None:
    """The defaults of the seed."""
    post(client, user, *[said(words.format(n), f"m{n:02}", at(n)) for n in range(30)])
    found = ids(client.get(f"/v1/users/{user}/messages/m25/neighbors").json())
    assert found == [f"m{n:02}" for n in range(5, 26)]


@pytest.mark.parametrize("words", ["同时", "at once"])
def test_neighbors_of_one_time_go_by_arrival(client: httpx.Client, words: str) -> None:
    """ts asc, then arrival, around every anchor among its equals: a range read turned around."""
    user = f"near_ties_{len(words)}"
    post(client, user, *[said(words, name, at(1)) for name in "bad"])
    post(client, user, *[said(words, name, at(1), session_id=name) for name in "ce"])
    whole = ids(read(client, user))[::-1]
    assert whole == list("badce")
    for place, name in enumerate(whole):
        path = f"/v1/users/{user}/messages/{name}/neighbors"
        found = ids(client.get(path, params={"before": 1, "after": 2}).json())
        assert found == whole[max(0, place - 1) : place + 3]


@BOTH
def test_neighbors_stay_within_the_user(client: httpx.Client, language: str) -> None:
    """Both talks have the same times; neither shows up in the other."""
    path = f"/v1/users/{language}/messages/m5/neighbors"
    found = client.get(path, params={"before": 1000, "after": 1000}).json()["items"]
    assert [item["content"] for item in found] == [it[2] for it in TALK[language]]


@BOTH
def test_errors_have_a_code_a_message_and_details(client: httpx.Client, language: str) -> None:
    """INVALID_ARGUMENT and NOT_FOUND; INTERNAL is forced in the tests of the faults."""
    wrong = client.get(f"/v1/users/{language}/messages", params={"role": "厨师 cook"})
    assert refusal(wrong) == INVALID
    assert wrong.json()["error"]["details"] == {"field": "role"}
    assert "厨师 cook" in wrong.json()["error"]["message"]
    assert refusal(client.get(f"/v1/users/{language}/messages/m9/neighbors")) == MISSING


@BOTH
def test_a_recalling_agent_cannot_choose_its_user(client: httpx.Client, language: str) -> None:
    """A token from the trusted application decides whose messages are seen."""
    token = jwt.encode({"sub": language}, SECRET, algorithm="HS256")
    other = "en" if language == "zh" else "zh"
    headers = {"Authorization": f"Bearer {token}"}
    assert client.get(f"/v1/users/{language}/messages", headers=headers).status_code == 200
    assert refusal(client.get(f"/v1/users/{other}/messages", headers=headers)) == MISSING
    body = {"user_id": other, "query_text": "辣"}
    for kind in ("lexical", "semantic", "hybrid"):
        answer = client.post(f"/v1/messages/{kind}_search", json=body, headers=headers)
        assert refusal(answer) == MISSING
