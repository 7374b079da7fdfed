"""Memories in the dashboard: listed by page, shown with where they come from, changed, erased."""

import html
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, quote_plus

import httpx
import pytest

from kemem.serve.dashboard.labels import label
from kemem.serve.dashboard.memories import CHUNK, PAGE, changed
from tests.cases import each
from tests.server import LocalServer, add, local_server, note_of, notes, post, said

HOME = "/dashboard/memories"
EVIL = "<img src=x onerror=alert(1)>\"'"
BOTH = pytest.mark.parametrize(
    ("language", "user", "words", "note", "title"),
    [
        ("zh", "用户甲", "我不吃辣", "用户不吃辣", "来源"),
        ("en", "u_en", "I live in Berlin", "User lives in Berlin", "Where it comes from"),
    ],
    ids=["zh", "en"],
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """A server of this module's own."""
    with local_server(tmp_path_factory.mktemp("memories") / "data") as running:
        yield running


@pytest.fixture
def browser(server: LocalServer) -> Iterator[httpx.Client]:
    """A client that keeps cookies, as the forms of pages need."""
    with server.client() as connected:
        yield connected


def shown(answer: httpx.Response, status: int = 200) -> str:
    """The text of a page that has this status, as a browser would write it."""
    assert answer.status_code == status, answer.text
    return html.unescape(re.sub(r"<[^>]*>", "", answer.text))


def fill(browser: httpx.Client, address: str, **fields: str) -> httpx.Response:
    """Send the form of a page, with the token that the page has."""
    token = re.search(r'name="form_token" value="([^"]+)"', browser.get(address).text)
    assert token, address
    return browser.post(address, data={"form_token": token[1], **fields})


@BOTH
def test_a_user_s_notes_are_listed_and_each_leads_to_its_source(
    browser: httpx.Client, language: str, user: str, words: str, note: str, title: str
) -> None:
    """The page of a note shows its message among its neighbours, and its relations."""
    post(
        browser, user, said("hi 你好", "before"), said("bye 再见", "after", "2030-01-01T00:00:00Z")
    )
    added = add(browser, [said(words, "m1", "2026-03-01T10:00:00Z")], user_id=user)
    listed = browser.get(HOME, params={"user_id": user, "language": language})
    assert note in shown(listed)
    (link,) = re.findall(rf'href="({HOME}/n_[^"]+)"', listed.text)
    page = browser.get(html.unescape(link))
    text = shown(page)
    assert title in text and "hi 你好" in text and "bye 再见" in text
    source = re.search(r'<li class="source".*?</li>', page.text, re.DOTALL)
    assert source and words in source[0]
    (relation,) = added["relations"]
    assert label("relation", relation["relationship"], language) in text
    assert relation["destination"] in text


@BOTH
def test_filters_choose_by_kind_type_and_text(
    browser: httpx.Client, language: str, user: str, words: str, note: str, title: str
) -> None:
    """What they leave out is not shown."""
    mine = {"user_id": f"{user}_chosen"}
    add(browser, words, **mine)
    kept = browser.get("/v1/memories", params=mine).json()["results"][0]
    asked: list[tuple[dict[str, str], bool]] = [
        ({}, True),
        ({"kind": "user_info"}, True),
        ({"kind": "knowledge"}, False),
        ({"type": kept["memory_type"]}, True),
        ({"type": "plan"}, False),
        ({"text": note[-2:].upper()}, True),
        ({"text": "火星 mars"}, False),
        ({"as_of": "2020-01-01T00:00"}, False),
    ]
    for filters, found in asked:
        page = shown(browser.get(HOME, params={**mine, **filters}))
        assert (note in page) == found, filters
    messages = shown(browser.get(HOME, params={**mine, "kind": "message"}))
    assert words in messages and note not in messages


def test_pages_of_a_list_lose_nothing_with_and_without_a_filter(browser: httpx.Client) -> None:
    """Every message is shown on exactly one page; a filter looks at chunks until a page is full."""
    count = CHUNK + PAGE + 5
    batch = [said(f"第{i}杯茶 cup {i} {'x' * (i % 2)}", f"p{i}") for i in range(count)]
    post(browser, "pages", *batch)
    for filters, expected in (({}, set(range(count))), ({"text": "x"}, set(range(1, count, 2)))):
        seen: list[int] = []
        address = str(httpx.URL(HOME, params={"user_id": "pages", "kind": "message", **filters}))
        for _ in range(10):
            page = browser.get(address)
            seen += [int(it) for it in re.findall(r"第(\d+)杯茶", shown(page))]
            following = re.search(r'rel="next" href="([^"]+)"', page.text)
            if following is None:
                break
            address = html.unescape(following[1])
        assert len(seen) == len(set(seen)) and set(seen) == expected


@pytest.mark.parametrize(
    ("language", "first", "second", "was"),
    [
        ("zh", "我住在杭州", "我搬到了苏州，现在住在苏州", "用户住在杭州"),
        ("en", "I live in Leeds", "I moved and now live in York", "User lives in Leeds"),
    ],
)
def test_an_earlier_time_shows_what_was_true_then(
    browser: httpx.Client, language: str, first: str, second: str, was: str
) -> None:
    """What ended later is shown as it was; before anything was said there is nothing."""
    ended = {"zh": "此后已失效", "en": "ended since"}[language]
    empty = {"zh": "当时还没有", "en": "Nothing was known yet"}[language]
    user = f"moved_{language}"
    add(browser, [said(first, "m1", "2026-03-01T10:00:00Z")], user_id=user)
    add(browser, [said(second, "m2", "2026-06-01T10:00:00Z")], user_id=user)
    asked = {"user_id": user, "language": language}
    then = browser.get(HOME, params={**asked, "as_of": "2026-04-01T00:00"})
    assert was in shown(then) and ended in shown(then) and 'class="ended"' not in then.text
    assert '<a href="/dashboard/memories?' in then.text and "as_of=" in then.text
    assert was not in shown(browser.get(HOME, params=asked))
    assert empty in shown(browser.get(HOME, params={**asked, "as_of": "2026-02-01T00:00"}))


@each("language", ["zh", "en"])
def test_a_text_that_was_changed_since_is_shown_as_it_was(
    browser: httpx.Client, language: str
) -> None:
    """By its history; now the new text is shown."""
    user = f"edited_{language}"
    note_id = note_of(browser, user, "喜欢绿茶 green tea")
    before = datetime.now(UTC).isoformat()
    address = f"{HOME}/{note_id}?user_id={user}"
    assert fill(browser, address, action="edit", text="喜欢红茶 black tea").status_code == 303
    asked = {"user_id": user, "language": language}
    then = shown(browser.get(HOME, params={**asked, "as_of": before}))
    assert "喜欢绿茶 green tea" in then and "喜欢红茶" not in then
    assert {"zh": "此后有改动", "en": "changed since"}[language] in then
    assert "喜欢红茶 black tea" in shown(browser.get(HOME, params=asked))


def test_without_a_choice_the_users_are_listed(browser: httpx.Client) -> None:
    """Each leads to their memories."""
    note_of(browser, "某人 & co")
    page = browser.get(HOME, params={"language": "zh"})
    assert "请选择要查看谁的记忆" in shown(page)
    assert f"{HOME}?user_id={quote_plus('某人 & co')}" in page.text
    assert "Choose whose memories" in shown(browser.get(HOME, params={"language": "en"}))


@pytest.mark.parametrize(
    ("before", "after", "gone", "come"),
    [
        ("用户住在北京", "用户住在上海", "北京", "上海"),
        ("User likes green tea", "User likes black tea", "green", "black"),
    ],
)
def test_a_note_is_changed_and_its_history_shows_the_words_that_did(
    browser: httpx.Client, before: str, after: str, gone: str, come: str
) -> None:
    """Metadata goes along; a line's end is not a change."""
    note_id = note_of(browser, "editor", before)
    address = f"{HOME}/{note_id}?user_id=editor"
    saved = fill(browser, address, action="edit", text=f"!\r\n{after}", metadata='{"tag": "茶"}')
    assert saved.status_code == 303
    kept = browser.get(f"/v1/memories/{note_id}", params={"user_id": "editor"}).json()
    assert (kept["memory"], kept["metadata"]) == (f"!\n{after}", {"tag": "茶"})
    page = browser.get(saved.headers["location"]).text
    assert f"<del>{gone}</del><ins>{come}</ins>" in page


@each(
    "wrong",
    [
        {"action": "edit", "text": " ", "metadata": "{}"},
        {"action": "edit", "text": "新文字 new", "metadata": "[1]"},
        {"action": "edit", "text": "新文字 new", "metadata": "{"},
        {"action": "burn"},
    ],
)
def test_a_wrong_change_is_refused_on_the_page_with_what_was_typed(
    browser: httpx.Client, wrong: dict[str, str]
) -> None:
    note_id = note_of(browser, "editor", "不变 stays")
    refused = fill(browser, f"{HOME}/{note_id}?user_id=editor", **wrong)
    assert refused.status_code == 400 and 'role="alert"' in refused.text
    assert html.escape(wrong.get("metadata", "")) in refused.text.replace("&#34;", "&quot;")
    assert notes(browser, user_id="editor")[note_id] == "不变 stays"


@BOTH
def test_deleting_asks_first_and_goes_back_to_the_list(
    browser: httpx.Client, language: str, user: str, words: str, note: str, title: str
) -> None:
    """Of a message also the notes go that were drawn from it alone."""
    mine = {"user_id": f"{user}_gone"}
    added = add(browser, words, **mine)
    (message_id,) = added["message_ids"]
    asking = {**mine, "ask": "delete", "language": language}
    page = browser.get(f"{HOME}/{message_id}", params={**mine, "language": language})
    assert {"zh": "删除…", "en": "Delete…"}[language] in shown(page)
    address = str(httpx.URL(f"{HOME}/{message_id}", params=asking))
    asked = browser.get(address)
    assert words in shown(asked) and notes(browser, **mine)
    erased = fill(browser, address, action="delete")
    assert erased.status_code == 303
    assert "user_id=" in erased.headers["location"]
    assert notes(browser, **mine) == {}
    assert browser.get(address).status_code == 404


@pytest.mark.parametrize("erases", [False, True])
@pytest.mark.parametrize(
    ("language", "withdrawn", "erased"),
    [("zh", "撤下的消息数：1", "删除的消息数：1"), ("en", "withdrawn: 1", "Messages erased: 1")],
)
def test_the_messages_of_a_deleted_note_are_withdrawn_or_erased(
    browser: httpx.Client, language: str, withdrawn: str, erased: str, erases: bool
) -> None:
    """As the one who deletes chooses; the next page says what happened."""
    user = f"behind_{language}_{erases}"
    note_id = note_of(browser, user, "我喜欢茶 tea")
    address = f"{HOME}/{note_id}?user_id={user}&ask=delete"
    assert 'name="sources"' in browser.get(address).text
    chosen = {"sources": "yes"} if erases else {}
    gone = fill(browser, address, action="delete", **chosen)
    page = browser.get(gone.headers["location"] + f"&language={language}")
    assert (erased if erases else withdrawn) in shown(page)
    messages = browser.get(f"/v1/users/{user}/messages").json()["items"]
    assert [it.get("withdrawn") for it in messages] == ([] if erases else [True])


def test_a_change_without_the_token_is_refused(browser: httpx.Client) -> None:
    note_id = note_of(browser, "editor", "保持 kept")
    address = f"{HOME}/{note_id}?user_id=editor"
    browser.get(address)
    for fields in ({"action": "delete"}, {"action": "delete", "form_token": "x" * 64}):
        assert browser.post(address, data=fields).status_code == 403
    assert notes(browser, user_id="editor")[note_id] == "保持 kept"


def test_another_s_memory_is_not_found(browser: httpx.Client) -> None:
    """Whoever is named is the only one whose memory an id can mean."""
    note_id = note_of(browser, "mine 我的")
    for address in (f"{HOME}/{note_id}?user_id=other", f"{HOME}/n_nothing", f"{HOME}/m1"):
        assert browser.get(address).status_code == 404, address
    assert browser.get(f"{HOME}/{note_id}").status_code == 200


def test_what_is_sensitive_is_shown_and_marked(browser: httpx.Client) -> None:
    """Operators see it."""
    for language, mark in (("zh", "敏感"), ("en", "sensitive")):
        user = f"secret_{language}"
        note_of(browser, user, "血型 blood type O", sensitive=True)
        page = browser.get(HOME, params={"user_id": user, "language": language})
        assert "血型 blood type O" in shown(page)
        assert f'badge-sensitive">{mark}<' in page.text


def test_nothing_that_was_said_becomes_part_of_the_page(browser: httpx.Client) -> None:
    """Ids, texts, metadata and what is typed into a form are all shown as text."""
    evil: dict[str, Any] = {"user_id": EVIL, "agent_id": EVIL, "session_id": EVIL}
    message = said(EVIL, "evil/1 " + EVIL, metadata={EVIL: EVIL})
    note = add(browser, [message], **evil, infer=False, metadata={"tag": EVIL})["results"][0]
    pages = [
        browser.get(HOME),
        browser.get(HOME, params=evil),
        browser.get(HOME, params={**evil, "kind": "message", "text": "img"}),
        browser.get(HOME, params={"user_id": EVIL, "type": EVIL, "cursor": EVIL, "as_of": EVIL}),
        browser.get(f"{HOME}/{note['id']}", params={"user_id": EVIL}),
        browser.get(f"{HOME}/{quote(message['message_id'])}", params={"user_id": EVIL}),
        browser.get(f"{HOME}/{note['id']}", params={"user_id": EVIL, "ask": "delete"}),
    ]
    assert [page.status_code for page in pages] == [200, 200, 200, 400, 200, 200, 200]
    for page in pages:
        assert "onerror=alert(1)" in html.unescape(page.text)
        assert "<img src=x" not in page.text and "onerror=alert(1)>" not in page.text
        assert " style=" not in page.text


@each(
    "wrong",
    [
        {"kind": "dream 梦"},
        {"as_of": "yesterday 昨天"},
        {"cursor": "c_nothing"},
        {"user_id": "x" * 256},
        {"session_id": "."},
    ],
)
def test_a_wrong_parameter_is_explained_on_the_page(
    browser: httpx.Client, wrong: dict[str, str]
) -> None:
    """With the form that can be mended."""
    page = browser.get(HOME, params={"user_id": "editor", **wrong})
    assert page.status_code == 400
    assert 'role="alert"' in page.text and 'name="user_id"' in page.text


def test_long_texts_are_compared_as_a_whole() -> None:
    """Word by word would take minutes."""
    before, after = "茶 tea " * 2_000, "酒 wine " * 2_000
    assert changed(before, after) == [("del", before), ("ins", after)]
